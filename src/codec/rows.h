// Rows on their way: in which order they travel, and which bucket of a key each belongs to.
//
// A part of a key by rows is, for n rows, n ids of 64 bits, each once and ascending by Mix, then the n
// rows in the same order, their values as ValueType says.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/mix.h"
#include "codec/codec.h"

namespace tkv::codec {

// Which rows a bucket of a key has, and how many bytes each.
struct Bucket {
  uint64_t row_count = 0;  // of the key: ids are below it
  uint32_t number = 0;
  uint32_t count = 1;
  size_t row_bytes = 0;
  size_t wide_row_bytes = 0;  // of kWideValues

  // How many rows a part of so many bytes with this parameter has.
  size_t RowsIn(size_t part_bytes, uint32_t param = 0) const {
    return part_bytes / (sizeof(uint64_t) + (param == kWideValues ? wide_row_bytes : row_bytes));
  }
};
Bucket BucketOfKey(const KeyMeta& meta, uint32_t chunk);

// The ids that stand there, as their Mix, copied: the bytes may change.
//   throws  kInvalidArgument (they do not ascend, or are of another bucket), kOutOfRange
std::vector<uint64_t> MixesOf(const Bucket& bucket, const std::byte* ids, size_t count);
// Of bytes that are ids and nothing else.
//   throws  as above, and kInvalidArgument (no whole number of them)
std::vector<uint64_t> MixesOf(const Bucket& bucket, const Bytes& ids);

// Ids in the order in which rows travel, each once, and where it stood.
class IdOrder {
 public:
  // Ids in any order, with repetitions; fewer than 2^32.
  explicit IdOrder(std::span<const int64_t> ids);

  size_t size() const { return mixes_.size(); }
  std::span<const uint64_t> mixes() const { return mixes_; }
  // Where the i-th stood, in that order.
  std::span<const uint32_t> PlacesOf(size_t i) const {
    return {places_.data() + begins_[i], begins_[i + 1] - begins_[i]};
  }

 private:
  std::vector<uint64_t> mixes_;
  std::vector<uint32_t> places_;
  std::vector<uint32_t> begins_;
};

// Ends of the buckets among ascending mixes.
std::vector<size_t> EndsOf(std::span<const uint64_t> mixes, uint32_t buckets);

// The bytes of a contribution of these rows.
inline size_t RowsBytes(std::span<const uint64_t> mixes, size_t row_bytes) {
  return mixes.size() * (sizeof(uint64_t) + row_bytes);
}

// Makes a contribution of these rows in a block of RowsBytes.
//   row_bytes  of rows whose values are as `param` says
//   write  is called as write(i, at): the bytes of the i-th row belong there
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

// Makes the ids of a pull of these rows, in a block of 8 bytes each.
void WriteIds(std::span<const uint64_t> mixes, uint32_t buckets, const Block& block,
              Contribution* made);

}  // namespace tkv::codec
