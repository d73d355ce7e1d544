// Rows on the wire: their order, and the bucket of a key to which each belongs.
//
// A part of a key by rows with n rows begins with n ids of 64 bits, each once, ascending by Mix.
// The n rows follow in the same order, with values of ValueType.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/mix.h"
#include "codec/codec.h"

namespace tkv::codec {

// The rows of a bucket of a key, and the number of bytes of each.
struct Bucket {
  uint64_t row_count = 0;  // of the key; ids are less than it
  uint32_t number = 0;
  uint32_t count = 1;
  size_t row_bytes = 0;
  size_t wide_row_bytes = 0;  // bytes of a row with kWideValues

  // Returns the number of rows in a part with this size and parameter.
  size_t RowsIn(size_t part_bytes, uint32_t param = 0) const {
    return part_bytes / (sizeof(uint64_t) + (param == kWideValues ? wide_row_bytes : row_bytes));
  }
};
Bucket BucketOfKey(const KeyMeta& meta, uint32_t chunk);

// Returns the mixes of `count` ids.  A copy, because the bytes may change.
//   throws  kInvalidArgument (they do not ascend, or are of another bucket), kOutOfRange
std::vector<uint64_t> MixesOf(const Bucket& bucket, const std::byte* ids, size_t count);
// Returns the mixes of a part that consists only of ids.
//   throws  as above, and kInvalidArgument (not a whole number of ids)
std::vector<uint64_t> MixesOf(const Bucket& bucket, const Bytes& ids);

// Ids sorted in wire order, each once, with its positions in the input.
class IdOrder {
 public:
  // Sorts ids, which may be in any order and repeat; fewer than 2^32.
  explicit IdOrder(std::span<const int64_t> ids);

  size_t size() const { return mixes_.size(); }
  std::span<const uint64_t> mixes() const { return mixes_; }
  // Returns the positions of the i-th id in the input, ascending.
  std::span<const uint32_t> PositionsOf(size_t i) const {
    return {places_.data() + begins_[i], begins_[i + 1] - begins_[i]};
  }

 private:
  std::vector<uint64_t> mixes_;
  std::vector<uint32_t> places_;
  std::vector<uint32_t> begins_;
};

// Returns the end of each bucket among ascending mixes.
std::vector<size_t> EndsOf(std::span<const uint64_t> mixes, uint32_t buckets);

// Returns the number of bytes of a contribution of these rows.
inline size_t RowsBytes(std::span<const uint64_t> mixes, size_t row_bytes) {
  return mixes.size() * (sizeof(uint64_t) + row_bytes);
}

// Writes a contribution of these rows into a block of RowsBytes.
//   row_bytes  size of a row with values as `param` says
//   write  is called as write(i, at) and writes the bytes of the i-th row to `at`
template <typename Write>
void WriteRows(std::span<const uint64_t> mixes, uint32_t buckets, size_t row_bytes,
               const Block& block, Write write, Contribution* made, uint32_t param = 0) {
  Contribution& rows = *made;
  rows.encoding = Encoding::kRows;
  rows.param = param;
  rows.bytes = block.bytes();
  const std::vector<size_t> ends = EndsOf(mixes, buckets);
  rows.ends.resize(buckets);
  std::byte* at = block.data;
  size_t i = 0;
  for (uint32_t b = 0; b < buckets; ++b) {
    for (size_t j = i; j < ends[b]; ++j, at += sizeof(uint64_t)) {
      const uint64_t id = Unmix(mixes[j]);
      std::memcpy(at, &id, sizeof(id));
    }
    for (; i < ends[b]; ++i, at += row_bytes) write(i, at);
    rows.ends[b] = static_cast<size_t>(at - block.data);
  }
}

// Writes the ids of a pull of these rows into a block with 8 bytes for each.
void WriteIds(std::span<const uint64_t> mixes, uint32_t buckets, const Block& block,
              Contribution* made);

}  // namespace tkv::codec
