// Runs elementwise code tile by tile.
//
// Code is compiled for one compute type: each step is one loop of kernels/, its results go to
// scratch registers of one tile or straight to an output.  Nothing here has threads.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "update/program_body.h"
#include "update/random.h"

namespace tkv {

// Elements of one tile: a dozen registers of f32 fit the second-level cache, the few in use the
// first.
inline constexpr size_t kTileElements = 2048;

struct TileCode {
  struct Place {
    enum class Kind : uint8_t { kNone, kInput, kRegister, kOutput, kScalar, kReduction };
    Kind kind = Kind::kNone;
    uint16_t index = 0;
  };
  struct Step {
    kernels::OpFunction run = nullptr;  // null: copy the first operand to `out`, or reduce it
    Place operands[3];
    Place out;
    int draw = -1;  // number of a draw of a seed and a count
  };

  DType compute = DType::kF32;
  std::vector<Step> steps;
  uint16_t register_count = 0;

  size_t scratch_bytes(size_t tile) const { return register_count * tile * ItemSize(compute); }
};

// Where the draws of a tile are, and the scalars in f64, which have
// the seeds and counts.
struct Draws {
  DrawPlace place;
  const double* scalars = nullptr;
};

// An instruction that leaves its array as it is, bit for bit, while its scalar has this value.
struct Identity {
  uint16_t instruction = 0;
  uint16_t array = 0;
  uint16_t scalar = 0;
  double value = 0;
};

// Those of `body`; none where it reduces or draws.  NaN stays NaN: a minimum counts only where the
// scalar comes first.
std::vector<Identity> FindIdentities(const ProgramBody& body);

// `body` without those identities whose bit is set in `left_out`.
ProgramBody Without(const ProgramBody& body, std::span<const Identity> identities,
                    uint64_t left_out);

// Compiles `body` for keys of `dtype`.  Inputs are numbered as arrays in the body; outputs are
// `value` (0) and the states (1 and up).
//   throws  kInvalidArgument  an operation that the dtype does not have, a bool key
TileCode Compile(const ProgramBody& body, DType dtype);

// The passes that find the reductions of `body`, which come before that code; reduction i of a pass is
// the i-th of `body` that has its number.  `body` compiles for `dtype`.
std::vector<TileCode> CompilePasses(const ProgramBody& body, DType dtype);

// One operation on one or two inputs, output 0.  A scalar operand is scalar 0.
TileCode CompileOne(kernels::Op op, DType dtype, kernels::ScalarMask scalars);

// Rounds f64 scalars to the compute type, for RunTile, or to an unsigned integer, for a fill.
//   throws  kInvalidArgument  an integer type cannot hold one of them exactly
std::vector<std::byte> RoundScalars(std::span<const double> scalars, DType compute);
//   rounded  scalars.size() elements of the type
void RoundScalars(std::span<const double> scalars, DType compute, std::byte* rounded);

// Runs the code once over `count` <= kTileElements elements of the compute type.  An output may be
// the input that it replaces.
//   sums  where the reductions of these elements go; null where the code has none
void RunTile(const TileCode& code, const void* scalars, const void* const* inputs,
             void* const* outputs, void* scratch, size_t count, double* sums = nullptr,
             const Draws& draws = {});

}  // namespace tkv
