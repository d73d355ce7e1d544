// Runs pushes and pulls on values: sums, updates, stores and copies out in one pass over memory.
//
// For each tile that fits into the first-level cache: sums the sources into scratch, runs the
// updater on the tile of the stored value, and writes every output.  Reads each source byte once
// and writes each output byte once.  Sources are added in their order, for any number of threads.

#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/encode.h"
#include "tkv/optimizer.h"
#include "update/evaluator.h"

namespace tkv {

// The variants of a program's code without instructions that have no effect for the current
// scalars, such as no clipping or a scale of one.  Each variant is compiled on first use.
class ShorterCode {
 public:
  ShorterCode(const Program& program, DType dtype);
  //   returns  null if every instruction is needed, or if kKeptMax variants exist already
  const TileCode* For(std::span<const double> scalars);

 private:
  static constexpr size_t kKeptMax = 16;
  const Program program_;
  const DType dtype_;
  const std::vector<Identity> identities_;
  std::mutex mutex_;
  std::map<uint64_t, TileCode> codes_;  // by the set of omitted identities
};

// A program compiled for one dtype, shared by the keys that use it.
struct CompiledUpdate {
  Program program;
  TileCode code;                 // unused if there is a fused kernel
  std::vector<TileCode> passes;  // passes that compute the reductions, before `code`
  kernels::Fused fused;
  std::shared_ptr<ShorterCode> shorter;
};

// Compiles a program for a dtype.
//   throws  kInvalidArgument (the dtype lacks an operation of the program)
CompiledUpdate CompileUpdate(const Program& program, DType dtype);

// The scalars of one update, rounded for the code that will run.  If there are reductions, RunJobs
// computes them first and then completes the scalars.
struct UpdateScalars {
  std::array<double, kernels::kFusedScalarsMax> fused{};
  size_t fused_count = 0;
  std::vector<std::byte> rounded;
  const TileCode* code = nullptr;  // the code that stores; null if a fused kernel runs
  std::vector<double> states;      // the scalar states after the update
  std::vector<double> values;      // all scalars; empty without reductions or draws
};

// Computes and rounds the scalars of one update.
//   states  as in TileJob: arrays first, then scalars; empty: before the first update
//   throws  kInvalidArgument (an integer dtype cannot hold one of them)
UpdateScalars BindScalars(const CompiledUpdate& update, std::span<const double> params,
                          std::span<void* const> states, double t, double n);

// Stores the scalar states of an update that has run.
void KeepScalars(const UpdateScalars& scalars, std::span<void* const> states);

struct TileJob {
  struct Output {
    void* data;
    DType dtype;  // the job's dtype; or both dtypes are floats
  };

  DType dtype = DType::kF32;
  size_t count = 0;  // elements
  // A partial sum in the compute type, added before the sources.
  const void* base = nullptr;
  std::span<const void* const> sources;  // empty, without a base: the job only writes outputs
  // The encoding of each source, for a job whose compute type is f32; empty: all are dense.
  std::span<const kernels::Coding> codings;
  void* value = nullptr;  // the stored value
  // True if the value has the compute type and receives the unrounded sum; only for a job without
  // update and outputs.
  bool is_wide = false;
  float* master = nullptr;                 // f32 master of a 16-bit value; may be null
  const CompiledUpdate* update = nullptr;  // null: the sum is assigned
  UpdateScalars* scalars = nullptr;
  std::span<void* const> states;  // arrays of the compute type, then scalars, which no tile changes
  std::span<const Output> outputs;
  uint64_t stream = 0;  // stream of the key, for draws
  uint64_t begin = 0;   // index of the first element in the value, for draws
};

// Runs all jobs.  No job may write memory that another job uses.  Reductions add in f64: within a
// tile as kernels::ReduceSum, then tile by tile in order.
//   throws  kResourceExhausted, std::bad_alloc (no scratch memory); no value changed
void RunJobs(std::span<const TileJob> jobs, int threads);

// Runs `count` jobs on any thread; `job(i)` describes a job just before it runs.  Intended for so
// many jobs that a list of them would exceed the cache.  Jobs have no update, and at most
// kFewSources sources each.
//   touched  about the bytes that all jobs read and write
//   throws  std::bad_alloc (no scratch memory); nothing changed
inline constexpr size_t kFewSources = 16;
void RunSmallJobs(size_t count, size_t touched, int threads,
                  const std::function<TileJob(size_t)>& job);

}  // namespace tkv
