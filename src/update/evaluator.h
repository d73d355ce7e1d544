// Runs elementwise code tile by tile.
//
// Code is compiled for one compute type.  Each step is one loop of kernels/; its results go to a
// scratch register of one tile, or directly to an output.  Uses no threads.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "update/program_body.h"
#include "update/random.h"

namespace tkv {

// Elements of one tile.  A dozen f32 registers of this size fit into the second-level cache; the
// few that a step uses fit into the first.
inline constexpr size_t kTileElements = 2048;

struct TileCode {
  struct Location {
    enum class Kind : uint8_t { kNone, kInput, kRegister, kOutput, kScalar, kReduction };
    Kind kind = Kind::kNone;
    uint16_t index = 0;
  };
  struct Step {
    kernels::OpFunction run = nullptr;  // null: copies the first operand to `out`, or reduces it
    Location operands[3];
    Location out;
    int draw = -1;  // number of the draw, which has a seed and a count as operands; -1: no draw
  };

  DType compute = DType::kF32;
  std::vector<Step> steps;
  uint16_t register_count = 0;

  size_t scratch_bytes(size_t tile) const { return register_count * tile * ItemSize(compute); }
};

// The position of a tile's draws, and the f64 scalars, which contain their seeds and counts.
struct Draws {
  DrawPosition location;
  const double* scalars = nullptr;
};

// An instruction that does not change its array, bit for bit, if its scalar has this value.
struct Identity {
  uint16_t instruction = 0;
  uint16_t array = 0;
  uint16_t scalar = 0;
  double value = 0;
};

// Returns the identities of `body`; none if it reduces or draws.  A minimum or maximum counts only
// if the scalar is its first operand, because NaN has to stay NaN.
std::vector<Identity> FindIdentities(const ProgramBody& body);

// Returns `body` without the identities whose bit is set in `left_out`.
ProgramBody Without(const ProgramBody& body, std::span<const Identity> identities,
                    uint64_t left_out);

// Compiles `body` for keys of `dtype`.  Inputs have the numbers of the arrays in the body; outputs
// are `value` (0) and the states (from 1 on).
//   throws  kInvalidArgument (the dtype lacks an operation; a bool key)
TileCode Compile(const ProgramBody& body, DType dtype);

// Compiles the passes that compute the reductions of `body`, to be run before the code of Compile.
// The reductions of one pass keep their order in `body`.  `body` must compile for `dtype`.
std::vector<TileCode> CompilePasses(const ProgramBody& body, DType dtype);

// Compiles one operation on one or two inputs, with output 0.  A scalar operand is scalar 0.
TileCode CompileOne(kernels::Op op, DType dtype, kernels::ScalarMask scalars);

// Rounds f64 scalars to the compute type (for RunTile) or to an unsigned integer (for a fill).
//   throws  kInvalidArgument (an integer type cannot hold one of them exactly)
std::vector<std::byte> RoundScalars(std::span<const double> scalars, DType compute);
//   rounded  scalars.size() elements of the type
void RoundScalars(std::span<const double> scalars, DType compute, std::byte* rounded);

// Runs the code once over `count` <= kTileElements elements of the compute type.  An output may be
// the input that it replaces.
//   sums  receives the reductions of these elements; null if the code has none
void RunTile(const TileCode& code, const void* scalars, const void* const* inputs,
             void* const* outputs, void* scratch, size_t count, double* sums = nullptr,
             const Draws& draws = {});

}  // namespace tkv
