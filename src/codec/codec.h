// Contributions: what pushes bring, in an encoding.  An encoding alone knows how a contribution is
// cut into the parts of chunks and how many bytes each has.

#pragma once

#include <bit>
#include <optional>
#include <vector>

#include "base/small_vector.h"
#include "kernels/encode.h"
#include "wire/message.h"

namespace tkv::codec {

// The parameter of runs and rows whose values are float32 though those of the key have 16 bits: sums that a
// worker has made of several values, which are rounded once, by the server.  Dense ones are Encoding::kF32.
inline constexpr uint32_t kWideValues = 1;
// The type of the values in runs or rows of a key.
inline DType ValueType(DType dtype, uint32_t param) {
  return param == kWideValues ? ComputeType(dtype) : dtype;
}

struct Contribution {
  Encoding encoding = Encoding::kDense;
  uint32_t param = 0;  // of the encoding
  Bytes bytes;         // read until every part is accepted
  // Chunk c's part is [ends[c - 1], ends[c]).  Where the size of a part follows from its elements
  // there may be none yet.
  SmallVector<size_t, 1> ends;

  Bytes PartOf(uint32_t chunk) const;
};

// What a contribution brings for one chunk.
struct Part {
  Encoding encoding = Encoding::kDense;
  uint32_t param = 0;
  Bytes bytes;

  bool is_dense() const { return encoding == Encoding::kDense; }
  bool is_tiled() const { return IsTiled(encoding); }
  kernels::Coding coding() const { return {encoding, std::bit_cast<float>(param)}; }
};

// How many bytes so many elements of this dtype have in a tiled encoding.
size_t TiledBytes(Encoding encoding, DType dtype, size_t elements);

// The positions that a part in an encoding which names them brings, copied: its bytes may change.
//   throws  kInvalidArgument  they do not ascend, or are not the chunk's
std::vector<uint32_t> PositionsOf(const Part& part, size_t elements);
// Adds the values to the elements at the positions.
//   shape  target: f32
void AddAt(const Part& part, std::span<const uint32_t> positions, float* target);

// Elements that lie one behind the other.
struct Run {
  uint32_t begin = 0;
  uint32_t length = 0;
};
// A part in runs is a u32 that counts them and four bytes of zero, then begin and length of each, then
// their values as ValueType says; or nothing.
inline constexpr size_t kRunsHeadBytes = 8;

// The runs that a part brings, copied: its bytes may change.
//   throws  kInvalidArgument  they do not ascend, are not the chunk's, or their values are not there
//   shape  dtype: that of the key
std::vector<Run> RunsOf(const Part& part, DType dtype, size_t elements);
// Adds the values of the runs.
//   shape  dtype: that of the key; target: of the compute type
void AddRuns(const Part& part, std::span<const Run> runs, DType dtype, void* target);
// Writes a part in runs without its values, and says where those begin.
std::byte* WriteRunHeads(std::span<const Run> runs, std::byte* target);
inline size_t RunHeadBytes(size_t runs) {
  return runs == 0 ? 0 : kRunsHeadBytes + runs * sizeof(Run);
}

// The bytes of a chunk among those of a whole dense array.
struct Range {
  size_t begin = 0, size = 0;
};
Range DenseRange(const KeyMeta& meta, uint32_t chunk);

// How an INIT writes the initial value of this key down.
Encoding InitEncoding(const KeyMeta& meta);
// What is wrong with a part of a contribution to this chunk; nothing where it may be used.
std::optional<Error> Judge(const KeyMeta& meta, uint32_t chunk, Encoding encoding, uint32_t param,
                           size_t bytes);
// Finds the parts of a contribution to this key, each as a server will judge it.
std::optional<Error> Cut(const KeyMeta& meta, Contribution* contribution);

}  // namespace tkv::codec
