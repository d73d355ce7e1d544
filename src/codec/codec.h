// Contributions: the encoded data of pushes.  The encoding alone determines how a contribution is
// cut into the parts of chunks, and the number of bytes of each part.

#pragma once

#include <bit>
#include <optional>
#include <vector>

#include "base/small_vector.h"
#include "kernels/encode.h"
#include "wire/message.h"

namespace tkv::codec {

// The parameter of runs and rows with float32 values for a key of 16-bit values.  A worker has
// summed several values; only the server rounds the sum.  For dense sums the encoding is
// Encoding::kF32.
inline constexpr uint32_t kWideValues = 1;
// Returns the type of the values in runs or rows of a key.
inline DType ValueType(DType dtype, uint32_t param) {
  return param == kWideValues ? ComputeType(dtype) : dtype;
}

// The encoded data of one push of one key, for all of its chunks.
struct Contribution {
  Encoding encoding = Encoding::kDense;
  uint32_t param = 0;  // parameter of the encoding
  Bytes bytes;         // must stay valid until every part is accepted
  // Chunk c's part is [ends[c - 1], ends[c]).  The list may be empty before Cut if the encoding has
  // a fixed size for each element.
  SmallVector<size_t, 1> ends;

  Bytes PartOf(uint32_t chunk) const;
};

// The part of a contribution for one chunk.
struct Part {
  Encoding encoding = Encoding::kDense;
  uint32_t param = 0;
  Bytes bytes;

  bool is_dense() const { return encoding == Encoding::kDense; }
  bool is_tiled() const { return IsTiled(encoding); }
  kernels::Coding coding() const { return {encoding, std::bit_cast<float>(param)}; }
};

// Returns the number of bytes of `elements` elements of this dtype in a tiled encoding.
size_t TiledBytes(Encoding encoding, DType dtype, size_t elements);

// Returns a copy of the positions in a top-k part.  A copy, because the part's bytes may change.
//   throws  kInvalidArgument  the positions do not ascend, or are outside of the chunk
std::vector<uint32_t> PositionsOf(const Part& part, size_t elements);
// Adds the part's values to the elements at the positions.
//   shape  target: f32
void AddAt(const Part& part, std::span<const uint32_t> positions, float* target);

// A range of consecutive elements.
struct Run {
  uint32_t begin = 0;
  uint32_t length = 0;
};
// A part in runs begins with a u32, the number of runs, and four bytes of zero.  The begin and
// length of each run follow, then their values of ValueType.  A part without runs may also have no
// bytes.
inline constexpr size_t kRunsHeadBytes = 8;

// Returns a copy of the runs of a part.  A copy, because the part's bytes may change.
//   throws  kInvalidArgument  the runs do not ascend, are outside of the chunk, or do not match the
//                             number of values
//   shape  dtype: that of the key
std::vector<Run> RunsOf(const Part& part, DType dtype, size_t elements);
// Adds the values of the runs.
//   shape  dtype: that of the key; target: of the compute type
void AddRuns(const Part& part, std::span<const Run> runs, DType dtype, void* target);
// Writes the head of a part in runs.  Returns the position of the values.
std::byte* WriteRunHeads(std::span<const Run> runs, std::byte* target);
inline size_t RunHeadBytes(size_t runs) {
  return runs == 0 ? 0 : kRunsHeadBytes + runs * sizeof(Run);
}

// The bytes of a chunk within a whole dense array.
struct Range {
  size_t begin = 0, size = 0;
};
Range DenseRange(const KeyMeta& meta, uint32_t chunk);

// Returns the encoding of an initial value of this key in INIT.
Encoding InitEncoding(const KeyMeta& meta);
// Returns the fault of a part of a contribution to this chunk; none if the part is valid.
std::optional<Error> Judge(const KeyMeta& meta, uint32_t chunk, Encoding encoding, uint32_t param,
                           size_t bytes);
// Finds the parts of a contribution to this key.  Returns the fault if a server would refuse one.
std::optional<Error> Cut(const KeyMeta& meta, Contribution* contribution);

}  // namespace tkv::codec
