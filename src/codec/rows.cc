#include "codec/rows.h"

#include <algorithm>
#include <bit>

#include "base/format.h"

namespace tkv::codec {

Bucket BucketOfKey(const KeyMeta& meta, uint32_t chunk) {
  const size_t wide = meta.elements() * ItemSize(ComputeType(meta.dtype));
  return {meta.row_count, chunk, meta.buckets, meta.row_bytes(), wide};
}

std::vector<uint64_t> MixesOf(const Bucket& bucket, const std::byte* ids, size_t count) {
  std::vector<uint64_t> mixes(count);
  if (count > 0) std::memcpy(mixes.data(), ids, count * sizeof(uint64_t));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t id = mixes[i];
    if (id >= bucket.row_count) {
      throw Fail(Code::kOutOfRange, "id {}, the key has ids below {}", id, bucket.row_count);
    }
    mixes[i] = Mix(id);
    if (BucketOf(mixes[i], bucket.count) != bucket.number) {
      throw Fail(Code::kInvalidArgument, "id {} is not of bucket {} of {}", id, bucket.number,
                 bucket.count);
    }
    if (i > 0 && mixes[i] <= mixes[i - 1]) {
      throw Fail(Code::kInvalidArgument, "id {} comes after id {}: rows ascend by the mix of ids",
                 id, Unmix(mixes[i - 1]));
    }
  }
  return mixes;
}

std::vector<uint64_t> MixesOf(const Bucket& bucket, const Bytes& ids) {
  if (ids.size % sizeof(uint64_t) != 0) {
    throw Fail(Code::kInvalidArgument, "{} bytes are no whole number of ids", ids.size);
  }
  return MixesOf(bucket, ids.data, ids.size / sizeof(uint64_t));
}

namespace {

struct Placed {
  uint64_t mix = 0;
  uint32_t place = 0;
};

// Sorts ids by mix; equal ids keep their order.  Mixes are evenly distributed, so their first bits
// distribute them into groups of a few ids.
std::vector<Placed> Sorted(std::span<const int64_t> ids) {
  constexpr size_t kGroup = 8;    // average number of ids in a group
  constexpr ptrdiff_t kFew = 64;  // the most ids for insertion sort
  const size_t count = ids.size();
  const int bits = std::clamp(static_cast<int>(std::bit_width(count / kGroup)), 1, 20);
  std::vector<uint32_t> ends((size_t{1} << bits) + 1);
  std::vector<uint64_t> mixes(count);
  for (size_t i = 0; i < count; ++i) {
    mixes[i] = Mix(static_cast<uint64_t>(ids[i]));
    ++ends[(mixes[i] >> (64 - bits)) + 1];
  }
  for (size_t g = 1; g < ends.size(); ++g) ends[g] += ends[g - 1];
  std::vector<Placed> sorted(count);
  for (size_t i = 0; i < count; ++i) {
    sorted[ends[mixes[i] >> (64 - bits)]++] = {mixes[i], static_cast<uint32_t>(i)};
  }
  const auto is_before = [](const Placed& a, const Placed& b) { return a.mix < b.mix; };
  auto begin = sorted.begin();
  for (size_t g = 0; g + 1 < ends.size(); ++g) {
    const auto end = sorted.begin() + ends[g];
    if (end - begin > kFew) {
      std::stable_sort(begin, end, is_before);
    } else {
      for (auto at = begin; at < end; ++at) {
        const Placed moved = *at;
        auto to = at;
        for (; to > begin && is_before(moved, to[-1]); --to) *to = to[-1];
        *to = moved;
      }
    }
    begin = end;
  }
  return sorted;
}

}  // namespace

IdOrder::IdOrder(std::span<const int64_t> ids) {
  const std::vector<Placed> sorted = Sorted(ids);
  places_.reserve(sorted.size());
  mixes_.reserve(sorted.size());
  begins_.reserve(sorted.size() + 1);
  for (const Placed& id : sorted) {
    if (mixes_.empty() || mixes_.back() != id.mix) {
      mixes_.push_back(id.mix);
      begins_.push_back(static_cast<uint32_t>(places_.size()));
    }
    places_.push_back(id.place);
  }
  begins_.push_back(static_cast<uint32_t>(places_.size()));
}

std::vector<size_t> EndsOf(std::span<const uint64_t> mixes, uint32_t buckets) {
  std::vector<size_t> ends(buckets);
  auto at = mixes.begin();
  for (uint32_t b = 0; b < buckets; ++b) {
    at = std::partition_point(at, mixes.end(),
                              [&](uint64_t mix) { return BucketOf(mix, buckets) <= b; });
    ends[b] = static_cast<size_t>(at - mixes.begin());
  }
  return ends;
}

void WriteIds(std::span<const uint64_t> mixes, uint32_t buckets, const Block& block,
              Contribution* made) {
  WriteRows(mixes, buckets, 0, block, [](size_t, std::byte*) {}, made);
}

}  // namespace tkv::codec
