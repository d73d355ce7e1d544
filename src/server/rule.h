// Update rules: how a shard updates a value with the sum of a round.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "update/cache.h"
#include "update/program_body.h"
#include "wire/message.h"

namespace tkv {

// The update rule of one CONTROL, or of a key with its own optimizer.  Immutable, except for the
// cache of compiled code.
class Rule {
 public:
  //   throws  kInvalidArgument  not a program, or hyperparameters that are not its own
  Rule(Rank sender, uint64_t incarnation, uint64_t generation, uint32_t store,
       const UpdateSpec& spec);

  const UpdateSpec& spec() const { return spec_; }
  bool assigns() const { return !program_; }
  const Program& program() const { return *program_; }  // only if not assigns()
  bool NeedsWholeValues() const { return program_ && NeedsWholeValue(*program_); }
  size_t param_count() const { return program_ ? program_->params().size() : 0; }
  // Returns true if this rule continues the state of the other one.
  bool KeepsStateOf(const Rule* other) const;
  //   throws  kInvalidArgument  an operation of the program does not exist for the dtype
  const CompiledUpdate& CompiledFor(DType dtype) const;

  bool SentBy(Rank rank, uint64_t incarnation) const {
    return sender_ == rank && incarnation_ == incarnation;
  }
  Rank sender() const { return sender_; }
  uint64_t incarnation() const { return incarnation_; }
  uint64_t generation() const { return generation_; }
  uint32_t store() const { return store_; }  // the rule applies to this store's keys

 private:
  Rank sender_;
  uint64_t incarnation_;
  uint64_t generation_;
  uint32_t store_;
  UpdateSpec spec_;
  std::optional<Program> program_;
  mutable CompiledUpdates compiled_;
};

using RulePtr = std::shared_ptr<const Rule>;

// Returns an error if the rule needs whole values and the key's value is split into parts.
std::optional<Error> WhyNotWhole(const KeyMeta& meta, const Rule& rule);

}  // namespace tkv
