#include "server/rule.h"

#include "base/format.h"

namespace tkv {

static_assert(kProgramBytesMax == Program::kTextBytesMax, "a message has room for every program");

Rule::Rule(Rank sender, uint64_t incarnation, uint64_t generation, uint32_t store,
           const UpdateSpec& spec)
    : sender_(sender),
      incarnation_(incarnation),
      generation_(generation),
      store_(store),
      spec_(spec) {
  if (!spec_.program.empty()) program_ = Program::Parse(spec_.program);
  if (spec_.params.size() != param_count()) {
    throw Fail(Code::kInvalidArgument, "{} hyperparameters, the program has {}",
               spec_.params.size(), param_count());
  }
}

bool Rule::KeepsStateOf(const Rule* other) const {
  return other != nullptr && !spec_.fresh && spec_.program == other->spec_.program &&
         spec_.multi_precision == other->spec_.multi_precision;
}

std::optional<Error> WhyNotWhole(const KeyMeta& meta, const Rule& rule) {
  if (!rule.NeedsWholeValues()) return std::nullopt;
  if (meta.by_rows()) {
    return Fail(Code::kFailedPrecondition,
                "key {} is kept by rows, and the program '{}' needs whole values",
                ShownKey(meta.name), rule.program().name());
  }
  if (meta.chunk_count() == 1) return std::nullopt;
  return Fail(
      Code::kFailedPrecondition,
      "key {} lies in {} parts on the servers, and the program '{}' needs each value whole; "
      "keys that are made after set_optimizer are",
      ShownKey(meta.name), meta.chunk_count(), rule.program().name());
}

const CompiledUpdate& Rule::CompiledFor(DType dtype) const {
  return compiled_.For(*program_, dtype);
}

}  // namespace tkv
