// Sum, update, store and copy out in one pass over memory: what a push, a pull and a pushpull do to
// their keys.
//
// For each tile that fits the first-level cache: sum the sources into scratch, run the updater on
// the tile of the stored value, write every output.  Each source byte is read once and each output
// byte written once. The order of addition is that of the sources, whatever the number of threads.

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

// Code without the instructions that change nothing for the values of their scalars: no clipping, a
// scale of one.  Compiled when it is first asked for.
class ShorterCode {
 public:
  ShorterCode(const Program& program, DType dtype);
  //   returns  null  every instruction is needed, or there are more kinds of values than are kept
  const TileCode* For(std::span<const double> scalars);

 private:
  static constexpr size_t kKeptMax = 16;
  const Program program_;
  const DType dtype_;
  const std::vector<Identity> identities_;
  std::mutex mutex_;
  std::map<uint64_t, TileCode> codes_;  // by what is left out
};

// A program compiled for one dtype, shared by the keys that have it.
struct CompiledUpdate {
  Program program;
  TileCode code;                 // unused where there is a fused kernel
  std::vector<TileCode> passes;  // that find the reductions, before it
  kernels::Fused fused;
  std::shared_ptr<ShorterCode> shorter;
};

//   throws  kInvalidArgument  the dtype does not have an operation of the program
CompiledUpdate CompileUpdate(const Program& program, DType dtype);

// The scalars of one update, rounded for the code that will run.  Where there are reductions RunJobs
// finds them first, and completes the rest.
struct UpdateScalars {
  std::array<double, kernels::kFusedScalarsMax> fused{};
  size_t fused_count = 0;
  std::vector<std::byte> rounded;
  const TileCode* code = nullptr;  // of the update, which stores; null where a fused kernel runs
  std::vector<double> states;      // the scalar states after the update
  std::vector<double> values;      // all scalars, where there are reductions or draws
};

//   states  as a job has them: arrays first, then scalars; empty: before the first update
//   throws  kInvalidArgument  an integer dtype cannot hold one of them
UpdateScalars BindScalars(const CompiledUpdate& update, std::span<const double> params,
                          std::span<void* const> states, double t, double n);

// Keeps the scalar states of an update that has run.
void KeepScalars(const UpdateScalars& scalars, std::span<void* const> states);

struct TileJob {
  struct Output {
    void* data;
    DType dtype;  // that of the job, or both are floats
  };

  DType dtype = DType::kF32;
  size_t count = 0;                      // elements
  const void* base = nullptr;            // a sum so far, of the compute type, that comes first
  std::span<const void* const> sources;  // none, and no base: outputs only
  // How each source is written down, of a job whose compute type is f32; none: all are dense.
  std::span<const kernels::Coding> codings;
  void* value = nullptr;  // stored
  // The value is of the compute type: the sum as it is, of a job without update and outputs.
  bool is_wide = false;
  float* master = nullptr;                 // f32 master of a 16-bit value, or null
  const CompiledUpdate* update = nullptr;  // null: the sum is assigned
  UpdateScalars* scalars = nullptr;
  std::span<void* const> states;  // arrays of the compute type, then scalars, which no tile touches
  std::span<const Output> outputs;
  uint64_t stream = 0;  // of the key, for draws
  uint64_t begin = 0;   // of the first element in the value, for draws
};

// Runs all jobs; jobs share no memory that one of them writes.  Reductions add in f64: tile by tile as
// kernels::ReduceSum, then the tiles in their order.
//   throws  kResourceExhausted  no scratch memory, before anything has changed
void RunJobs(std::span<const TileJob> jobs, int threads);

// Runs `count` jobs that `job(i)` describes when it is their turn, on any thread: so many that a list
// of them would leave the cache.  They have no update, and at most kFewSources sources each.
//   touched  bytes of all of them, about
//   throws  kResourceExhausted  before anything has changed
inline constexpr size_t kFewSources = 16;
void RunSmallJobs(size_t count, size_t touched, int threads,
                  const std::function<TileJob(size_t)>& job);

}  // namespace tkv
