// The push of one call of a store of one process.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "store/claim.h"
#include "store/function_push.h"
#include "store/local_compression.h"
#include "store/push_input.h"
#include "store/push_jobs.h"
#include "store/small_assigns.h"
#include "tkv/error.h"
#include "tkv/kvstore.h"

namespace tkv {

// A plan that sums what a call pushes to each key, and updates or assigns the key.
//
// A call makes a plan, gathers its input, and then calls Prepare, Enter, Run and Commit in this
// order, each once.  Until Run returns, the destructor undoes everything.
class PushPlan final {
 public:
  // Decides how the keys are updated and which are compressed.
  //   claim, compression  must outlive the plan; the claim has all keys of the call
  //   throws  kUnimplemented  the updater is a function, and a key is kept by rows
  PushPlan(Claim* claim, LocalCompression* compression);
  PushPlan(const PushPlan&) = delete;
  PushPlan& operator=(const PushPlan&) = delete;

  // Returns true if the push replaces the arrays of the values; otherwise it writes into them.
  bool ReplacesArrays() const { return updates_ == Updates::kByFunction; }
  // Returns a function that returns true if the push needs the value of a group on the host.
  std::function<bool(size_t group)> NeedsHost() const;

  // Takes the rows of a call that pushes rows.  Call it before Gather.
  //   kept  owns copies of strided rows; must outlive the plan
  //   blocks, throws  as tkv::SumRows
  void SumRows(std::span<const RowsPushItem> items, std::vector<NDArray>* kept);
  // Takes the arrays of a call.  The values of the keys are where they are summed.
  //   before  number of pushes of the claim before these items
  //   blocks, throws  as Sources::Take
  void Gather(std::span<const PushItem> items, size_t before = 0);
  const Sources& sources() const { return input_.sources; }
  // Writes the updated values to outputs, in the same pass over memory.
  void WriteTo(const Outputs& outputs) { input_.outputs = &outputs; }

  // Compresses the input, makes the jobs, and allocates what they need.
  //   throws  kInvalidArgument, kUnimplemented, kResourceExhausted, and the errors of GPUs
  void Prepare();
  // Orders the work of GPUs after earlier uses of its memory.
  //   blocks  at most the timeout (`patience`)
  //   throws  as GpuBatches::Enter
  void Enter();
  // Runs the jobs, or the user's function.
  //   throws  as PushJobs::Run and FunctionPush::Run; nothing has changed
  void Run();
  // Makes the push count for its keys.
  void Commit();
  //   throws  the error of a part of the push, if the pushes to other keys have taken effect
  void CheckComplete() const;

 private:
  enum class Updates : uint8_t { kByFunction, kByJobs };
  using Work = std::variant<FunctionPush, PushJobs, SmallAssigns>;

  static Updates UpdatesOf(const Claim& claim);
  void SpreadRows();

  Claim& claim_;
  LocalCompression& compression_;
  const Updates updates_;
  PushInput input_;
  const LocalCompression::Plan compressors_;
  LocalCompression::Owed owed_;
  std::optional<Work> work_;  // from Prepare to Commit
  std::optional<Error> partial_error_;
};

}  // namespace tkv
