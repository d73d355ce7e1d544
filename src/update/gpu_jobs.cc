#include "update/gpu_jobs.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/operation.h"

namespace tkv {
namespace {

using kernels::Elementwise;

// Calls f for each pointer of a job, in the order of the numbers in its code.
template <typename F>
void ForPointers(const TileJob& job, F f) {
  const size_t named = std::min(job.sources.size(), Elementwise::kSourcesMax);
  for (const void* source : job.sources.first(named)) f(source);
  f(job.value);
  for (const TileJob::Output& output : job.outputs) f(output.data);
  if (job.update == nullptr) return;
  for (const void* state : job.states.first(job.update->program.body().states.size())) f(state);
  if (job.master != nullptr) f(job.master);
}

class Builder {
 public:
  explicit Builder(const TileJob& job) : job_(job), value_pointer_(SourcePointers()) {
    code().compute = ComputeType(job.dtype);
    code().source_dtype = job.dtype;
    code().source_count = value_pointer_;
    code().has_more_sources = job.sources.size() > Elementwise::kSourcesMax;
    ForPointers(job, [&](const void*) { ++code().pointer_count; });
  }

  GpuCode Build() {
    uint16_t result = 0;  // number of the array that becomes the value
    if (job_.sources.empty()) {
      code().loads.push_back({job_.dtype, value_pointer_});
      result = 1;
    } else if (job_.update == nullptr) {
      const DType type = job_.is_wide ? code().compute : job_.dtype;
      code().stores.push_back({result, type, type, value_pointer_});
    } else {
      result = Update();
    }
    auto pointer = static_cast<uint16_t>(value_pointer_ + 1);
    for (const TileJob::Output& output : job_.outputs) StoreTo(result, output.dtype, pointer++);
    return std::move(built_);
  }

 private:
  Elementwise& code() { return built_.elementwise; }

  uint16_t SourcePointers() const {
    return static_cast<uint16_t>(std::min(job_.sources.size(), Elementwise::kSourcesMax));
  }

  // Rounds the stored elements to the value's dtype first, even for an output of another dtype.
  void StoreTo(uint16_t array, DType dtype, uint16_t pointer) {
    code().stores.push_back({array, job_.dtype, dtype, pointer});
  }

  uint16_t Update() {
    const ProgramBody& body = job_.update->program.body();
    if (!HasKernel(job_.update->program)) {
      throw Fail(Code::kUnimplemented, "update: '{}' has reduce_sum or normal, which no kernel has",
                 job_.update->program.name());
    }
    const DType compute = code().compute;
    const auto state_pointer = static_cast<uint16_t>(value_pointer_ + 1 + job_.outputs.size());
    const auto master_pointer = static_cast<uint16_t>(state_pointer + body.states.size());
    const bool has_master = job_.master != nullptr;
    code().loads.push_back(has_master ? Elementwise::Load{compute, master_pointer}
                                      : Elementwise::Load{job_.dtype, value_pointer_});
    for (uint16_t i = state_pointer; i < master_pointer; ++i) code().loads.push_back({compute, i});
    for (const Instruction& instruction : body.instructions) Append(instruction);
    uint16_t value = 0;
    for (const tkv::StoreTo& store : body.stores) {
      if (store.target == 1) {
        value = store.source;
        continue;
      }
      const auto pointer = static_cast<uint16_t>(state_pointer + store.target - 2);
      code().stores.push_back({store.source, compute, compute, pointer});
    }
    if (has_master) code().stores.push_back({value, compute, compute, master_pointer});
    StoreTo(value, job_.dtype, value_pointer_);
    return value;
  }

  // Appends an instruction, numbering scalars in the order of their first use.
  void Append(Instruction instruction) {
    for (int k = 0; k < kernels::Arity(instruction.op); ++k) {
      Operand& operand = instruction.operands[k];
      if (!operand.is_scalar) continue;
      auto& scalars = built_.scalars;
      const auto found = std::ranges::find(scalars, operand.index);
      const auto number = static_cast<uint16_t>(found - scalars.begin());
      if (found == scalars.end()) scalars.push_back(operand.index);
      operand.index = number;
    }
    code().scalar_count = static_cast<uint16_t>(built_.scalars.size());
    code().instructions.push_back(instruction);
  }

  const TileJob& job_;
  const uint16_t value_pointer_;
  GpuCode built_;
};

}  // namespace

bool HasKernel(const Program& program) {
  return program.body().reductions.empty() && program.body().draw_count == 0;
}

GpuCode GpuCodeOf(const TileJob& job) {
  TKV_CHECK(IsArithmetic(job.dtype) && job.base == nullptr && job.codings.empty());
  return Builder(job).Build();
}

kernels::cuda::Scalars GpuScalarsOf(const GpuCode& code, std::span<const double> scalars) {
  SmallVector<double, 16> taken;
  for (const uint16_t number : code.scalars) taken.push_back(scalars[number]);
  kernels::cuda::Scalars rounded(taken.size() * ItemSize(code.elementwise.compute));
  RoundScalars({taken.data(), taken.size()}, code.elementwise.compute, rounded.data());
  return rounded;
}

kernels::cuda::Entry GpuEntryOf(const TileJob& job, kernels::cuda::Scalars scalars) {
  const auto address = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
  kernels::cuda::Entry entry;
  entry.count = job.count;
  ForPointers(job, [&](const void* pointer) { entry.pointers.push_back(address(pointer)); });
  for (size_t i = Elementwise::kSourcesMax; i < job.sources.size(); ++i) {
    entry.more_sources.push_back(address(job.sources[i]));
  }
  entry.scalars = std::move(scalars);
  return entry;
}

}  // namespace tkv
