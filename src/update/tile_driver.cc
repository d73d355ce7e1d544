#include "update/tile_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/format.h"
#include "base/process.h"
#include "update/binding.h"
#include "update/parallel.h"

namespace tkv {
namespace {

using kernels::Write;

// Below this many bytes, waking a second thread costs more than it saves (docs/performance.md,
// "Thresholds").
constexpr size_t kParallelBytes = size_t{1} << 20;
constexpr size_t kParallelGrainBytes = size_t{128} << 10;

size_t TilesOf(const TileJob& job) { return (job.count + kTileElements - 1) / kTileElements; }

DType ValueTypeOf(const TileJob& job) { return job.is_wide ? ComputeType(job.dtype) : job.dtype; }

size_t WrittenBytes(const TileJob& job) {
  size_t bytes = 0;
  if (!job.sources.empty() || job.base != nullptr) bytes = job.count * ItemSize(ValueTypeOf(job));
  for (const TileJob::Output& output : job.outputs) bytes += job.count * ItemSize(output.dtype);
  return bytes;
}

size_t TouchedBytes(const TileJob& job) {
  return WrittenBytes(job) +
         job.count * ItemSize(job.dtype) * (job.sources.size() + 1 + 2 * job.states.size());
}

// Returns the number of written bytes above which stores bypass the cache, since the bytes would
// not stay in it.
size_t StreamingThreshold() {
  static const size_t bytes = std::min(LastLevelCacheBytes(), size_t{16} << 20);
  return bytes;
}

// The scratch memory of one thread: a tile of the sum, a tile of a 16-bit value in f32, and the
// evaluator's registers.
class Scratch {
 public:
  Scratch(size_t register_bytes, size_t source_count) {
    if (source_count > kFew) many_.resize(source_count);
    if (register_bytes == 0) return;
    registers_.reset(std::aligned_alloc(64, (register_bytes + 63) / 64 * 64));
    if (registers_ == nullptr)
      throw Fail(Code::kResourceExhausted, "update: no memory for scratch");
  }
  void* sum() { return sum_; }
  float* wide() { return wide_; }
  void* registers() { return registers_.get(); }
  const void** sources() { return many_.empty() ? few_ : many_.data(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static constexpr size_t kFew = kFewSources;
  const void* few_[kFew];
  std::vector<const void*> many_;
  alignas(64) std::byte sum_[kTileElements * sizeof(double)];
  alignas(64) float wide_[kTileElements];
  std::unique_ptr<void, Free> registers_;
};

// A tile of one job.
class Tile {
 public:
  Tile(const TileJob& job, size_t index, Write write, Scratch* scratch)
      : job_(job),
        begin_(index * kTileElements),
        count_(std::min(kTileElements, job.count - begin_)),
        write_(write),
        scratch_(scratch) {}

  void Run() {
    if (!job_.sources.empty() || job_.base != nullptr) {
      if (job_.update != nullptr) {
        Update();
      } else {
        Assign();
        return;
      }
    }
    WriteOutputs(At(job_.value, job_.dtype));
  }

  // Runs a reduction pass, which changes nothing except `sums`.
  void Reduce(const TileCode& pass, const void* rounded, double* sums) {
    const DType compute = ComputeType(job_.dtype);
    const void* value = At(job_.value, job_.dtype);
    if (job_.master != nullptr) {
      value = job_.master + begin_;
    } else if (compute != job_.dtype) {
      kernels::Convert(job_.dtype, value, compute, scratch_->wide(), count_);
      value = scratch_->wide();
    }
    const void* inputs[Program::kStatesMax + 2] = {SumForUpdate(), value};
    const size_t arrays = job_.update->program.states().size();
    for (size_t i = 0; i < arrays; ++i) inputs[i + 2] = At(job_.states[i], compute);
    RunTile(pass, rounded, inputs, nullptr, scratch_->registers(), count_, sums, DrawsHere());
  }

 private:
  void* At(void* data, DType dtype) const {
    return static_cast<std::byte*>(data) + begin_ * ItemSize(dtype);
  }

  Draws DrawsHere() const {
    return {{job_.stream, job_.begin + begin_}, job_.scalars->values.data()};
  }

  // Stores the sum without an update.  With Write::kStreaming the stores bypass the cache.
  void Assign() {
    const DType compute = ComputeType(job_.dtype);
    void* const value = At(job_.value, ValueTypeOf(job_));
    if (job_.is_wide) return SumInto(value, write_);
    if (job_.sources.size() == 1 && job_.base == nullptr && job_.codings.empty()) {
      const void* source =
          static_cast<const std::byte*>(job_.sources[0]) + begin_ * ItemSize(job_.dtype);
      kernels::Copy(source, value, count_ * ItemSize(job_.dtype), write_);
      WriteOutputs(source);
      return;
    }
    if (job_.outputs.empty() && compute == job_.dtype) return SumInto(value, write_);
    SumInto(scratch_->sum(), Write::kCached);
    const void* result = scratch_->sum();
    if (compute != job_.dtype) {
      kernels::Convert(compute, result, job_.dtype, scratch_->wide(), count_);
      result = scratch_->wide();
    }
    kernels::Copy(result, value, count_ * ItemSize(job_.dtype), write_);
    WriteOutputs(result);
  }

  void SumInto(void* target, Write write) {
    if (!job_.codings.empty()) return SumEncodedInto(static_cast<float*>(target));
    const size_t offset = begin_ * ItemSize(job_.dtype);
    const void** sources = scratch_->sources();
    for (size_t i = 0; i < job_.sources.size(); ++i) {
      sources[i] = static_cast<const std::byte*>(job_.sources[i]) + offset;
    }
    if (job_.base == nullptr) {
      kernels::Sum(job_.dtype, {sources, job_.sources.size()}, target, count_, write);
    } else {
      SumOntoBase(sources, target, write);
    }
  }

  // Ensures that every encoding can be read from the first element of a tile.
  static_assert(kTileElements % kEncodedElements == 0);
  void SumEncodedInto(float* target) {
    bool is_first = job_.base == nullptr;
    const void* const base = is_first ? target : At(const_cast<void*>(job_.base), DType::kF32);
    if (base != target) std::memcpy(target, base, count_ * sizeof(float));
    for (size_t i = 0; i < job_.sources.size(); ++i) {
      const auto* const source = static_cast<const std::byte*>(job_.sources[i]);
      const kernels::Coding& coding = job_.codings[i];
      if (coding.encoding == Encoding::kDense) {
        AddDense(source + begin_ * ItemSize(job_.dtype), target, is_first);
      } else {
        kernels::Decode(coding, source + kernels::EncodedBytes(coding.encoding, begin_), target,
                        count_, is_first ? kernels::Into::kWrite : kernels::Into::kAdd);
      }
      is_first = false;
    }
  }

  void AddDense(const void* source, float* target, bool is_first) {
    if (is_first) return kernels::Sum(job_.dtype, {&source, 1}, target, count_, Write::kCached);
    alignas(64) float dense[kTileElements];
    kernels::Sum(job_.dtype, {&source, 1}, dense, count_, Write::kCached);
    const void* const both[] = {target, dense};
    kernels::Sum(DType::kF32, both, target, count_, Write::kCached);
  }

  void SumOntoBase(const void* const* sources, void* target, Write write) {
    const DType compute = ComputeType(job_.dtype);
    const void* both[2] = {At(const_cast<void*>(job_.base), compute), nullptr};
    if (job_.sources.empty()) return kernels::Sum(compute, {both, 1}, target, count_, write);
    if (job_.sources.size() == 1 && compute == job_.dtype) {
      both[1] = sources[0];
    } else {
      kernels::Sum(job_.dtype, {sources, job_.sources.size()}, scratch_->sum(), count_,
                   Write::kCached);
      both[1] = scratch_->sum();
    }
    kernels::Sum(compute, both, target, count_, write);
  }

  // Returns the sum for the updater: a single source in the compute type is read in place.
  const void* SumForUpdate() {
    if (job_.base == nullptr && job_.sources.size() == 1 && job_.codings.empty() &&
        ComputeType(job_.dtype) == job_.dtype) {
      return static_cast<const std::byte*>(job_.sources[0]) + begin_ * ItemSize(job_.dtype);
    }
    SumInto(scratch_->sum(), Write::kCached);
    return scratch_->sum();
  }

  void Update() {
    const DType compute = ComputeType(job_.dtype);
    void* const stored = At(job_.value, job_.dtype);
    void* value = stored;
    if (job_.master != nullptr) {
      value = job_.master + begin_;
    } else if (compute != job_.dtype) {
      value = scratch_->wide();
      kernels::Convert(job_.dtype, stored, compute, value, count_);
    }
    RunUpdate(SumForUpdate(), value, compute);
    if (compute != job_.dtype) kernels::Convert(compute, value, job_.dtype, stored, count_);
  }

  void RunUpdate(const void* sum, void* value, DType compute) {
    void* outputs[Program::kStatesMax + 1] = {value};
    const void* inputs[Program::kStatesMax + 2] = {sum, value};
    const size_t arrays = job_.update->program.states().size();
    for (size_t i = 0; i < arrays; ++i) {
      outputs[i + 1] = At(job_.states[i], compute);
      inputs[i + 2] = outputs[i + 1];
    }
    const CompiledUpdate& update = *job_.update;
    if (update.fused != kernels::Fused::kNone) {
      kernels::UpdateFused(update.fused, compute,
                           {job_.scalars->fused.data(), job_.scalars->fused_count}, sum, value,
                           outputs + 1, count_);
    } else {
      RunTile(*job_.scalars->code, job_.scalars->rounded.data(), inputs, outputs,
              scratch_->registers(), count_, nullptr, DrawsHere());
    }
  }

  void WriteOutputs(const void* value) {
    for (const TileJob::Output& output : job_.outputs) {
      void* const target = At(output.data, output.dtype);
      if (output.dtype != job_.dtype) {
        kernels::Convert(job_.dtype, value, output.dtype, target, count_);
      } else if (target != value) {
        kernels::Copy(value, target, count_ * ItemSize(job_.dtype), write_);
      }
    }
  }

  const TileJob& job_;
  const size_t begin_;
  const size_t count_;
  const Write write_;
  Scratch* const scratch_;
};

// The needs that the jobs of one call have in common.
struct Plan {
  Write write = Write::kCached;
  size_t touched = 0;         // bytes
  size_t register_bytes = 0;  // registers of the evaluator, per thread
  size_t source_count = 0;    // largest number of sources of any job

  explicit Plan(std::span<const TileJob> jobs) {
    size_t written = 0;
    for (const TileJob& job : jobs) {
      written += WrittenBytes(job);
      touched += TouchedBytes(job);
      source_count = std::max(source_count, job.sources.size());
      if (job.update != nullptr && job.update->fused == kernels::Fused::kNone) {
        register_bytes = std::max(register_bytes, job.scalars->code->scratch_bytes(kTileElements));
      }
      if (job.update == nullptr) continue;
      for (const TileCode& pass : job.update->passes) {
        register_bytes = std::max(register_bytes, pass.scratch_bytes(kTileElements));
      }
    }
    if (written > StreamingThreshold()) write = Write::kStreaming;
  }
};

void RunSerially(std::span<const TileJob> jobs, const Plan& plan) {
  Scratch scratch(plan.register_bytes, plan.source_count);
  for (const TileJob& job : jobs) {
    for (size_t tile = 0; tile < TilesOf(job); ++tile) Tile(job, tile, plan.write, &scratch).Run();
  }
  if (plan.write == Write::kStreaming) kernels::Fence();
}

void RunInParallel(std::span<const TileJob> jobs, const Plan& plan, int threads) {
  std::vector<size_t> ends(jobs.size());  // number of tiles up to and including job i
  size_t tiles = 0;
  for (size_t i = 0; i < jobs.size(); ++i) ends[i] = tiles += TilesOf(jobs[i]);
  std::vector<std::unique_ptr<Scratch>> scratch;  // allocated before anything changes
  scratch.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    scratch.push_back(std::make_unique<Scratch>(plan.register_bytes, plan.source_count));
  }
  const size_t grain = std::max<size_t>(1, tiles * kParallelGrainBytes / plan.touched);
  ParallelFor(threads, tiles, grain, [&](size_t slot, size_t begin, size_t end) {
    size_t j =
        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (size_t at = begin; at < end; ++j) {
      const size_t start = j == 0 ? 0 : ends[j - 1];
      for (; at < std::min(end, ends[j]); ++at) {
        Tile(jobs[j], at - start, plan.write, scratch[slot].get()).Run();
      }
    }
    if (plan.write == Write::kStreaming) kernels::Fence();
  });
}

// Computes the reductions of a job, pass by pass, and completes its scalars.
void FindReductions(const TileJob& job, const Plan& plan, int threads) {
  const CompiledUpdate& update = *job.update;
  const ProgramBody& body = update.program.body();
  std::vector<double>& values = job.scalars->values;
  const size_t tiles = TilesOf(job);
  std::vector<std::unique_ptr<Scratch>> scratch(static_cast<size_t>(threads));
  for (auto& one : scratch) {
    one = std::make_unique<Scratch>(plan.register_bytes, plan.source_count);
  }
  const size_t grain =
      std::max<size_t>(1, tiles * kParallelGrainBytes / std::max<size_t>(1, plan.touched));
  for (size_t number = 0; number < update.passes.size(); ++number) {
    const TileCode& pass = update.passes[number];
    std::vector<uint16_t> found;  // numbers of the scalars that this pass computes
    for (const Reduction& reduction : body.reductions) {
      if (reduction.pass == number) found.push_back(reduction.scalar);
    }
    const std::vector<std::byte> rounded = RoundFor(pass, values);
    std::vector<double> sums(tiles * found.size());
    ParallelFor(threads, tiles, grain, [&](size_t slot, size_t begin, size_t end) {
      for (size_t tile = begin; tile < end; ++tile) {
        Tile(job, tile, Write::kCached, scratch[slot].get())
            .Reduce(pass, rounded.data(), sums.data() + tile * found.size());
      }
    });
    for (size_t i = 0; i < found.size(); ++i) {
      double sum = 0;
      for (size_t tile = 0; tile < tiles; ++tile) sum += sums[tile * found.size() + i];
      values[found[i]] = sum;
    }
    EvaluateReduced(body, values.data());
  }
  TakeScalars(update, values, job.scalars);
}

}  // namespace

void RunJobs(std::span<const TileJob> jobs, int threads) {
  const Plan plan(jobs);
  for (const TileJob& job : jobs) {
    const bool has_reductions = job.update != nullptr && !job.update->passes.empty();
    if (!has_reductions || (job.sources.empty() && job.base == nullptr)) continue;
    FindReductions(job, plan, plan.touched >= kParallelBytes ? threads : 1);
  }
  if (threads > 1 && plan.touched >= kParallelBytes) {
    RunInParallel(jobs, plan, threads);
  } else {
    RunSerially(jobs, plan);
  }
}

void RunSmallJobs(size_t count, size_t touched, int threads,
                  const std::function<TileJob(size_t)>& job) {
  constexpr size_t kGrain = 256;
  if (touched < kParallelBytes) threads = 1;
  std::vector<std::unique_ptr<Scratch>> scratch;
  scratch.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) scratch.push_back(std::make_unique<Scratch>(0, 0));
  ParallelFor(threads, count, kGrain, [&](size_t slot, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const TileJob one = job(i);
      for (size_t tile = 0; tile < TilesOf(one); ++tile) {
        Tile(one, tile, Write::kCached, scratch[slot].get()).Run();
      }
    }
  });
}

}  // namespace tkv
