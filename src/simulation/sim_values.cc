#include "simulation/sim_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/mix.h"
#include "codec/compress.h"
#include "codec/rows.h"
#include "kernels/encode.h"
#include "kernels/half.h"

namespace tkv::simulation {

int64_t Wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kI16:
      return static_cast<int16_t>(value);
    case DType::kI32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

void Store(DType dtype, int64_t value, std::byte* target) {
  const auto put = [&](auto element) { std::memcpy(target, &element, sizeof(element)); };
  switch (dtype) {
    case DType::kF32:
      return put(static_cast<float>(value));
    case DType::kF64:
      return put(static_cast<double>(value));
    case DType::kF16:
      return put(kernels::F16FromF32(static_cast<float>(value)));
    case DType::kBF16:
      return put(kernels::BF16FromF32(static_cast<float>(value)));
    case DType::kI8:
      return put(static_cast<int8_t>(value));
    case DType::kU8:
      return put(static_cast<uint8_t>(value));
    case DType::kI16:
      return put(static_cast<int16_t>(value));
    case DType::kI32:
      return put(static_cast<int32_t>(value));
    default:
      return put(value);
  }
}

int64_t Load(DType dtype, const std::byte* source) {
  const auto get = [&](auto element) {
    std::memcpy(&element, source, sizeof(element));
    return element;
  };
  switch (dtype) {
    case DType::kF32:
      return static_cast<int64_t>(get(float{}));
    case DType::kF64:
      return static_cast<int64_t>(get(double{}));
    case DType::kF16:
      return static_cast<int64_t>(kernels::F32FromF16(get(uint16_t{})));
    case DType::kBF16:
      return static_cast<int64_t>(kernels::F32FromBF16(get(uint16_t{})));
    case DType::kI8:
      return get(int8_t{});
    case DType::kU8:
      return get(uint8_t{});
    case DType::kI16:
      return get(int16_t{});
    case DType::kI32:
      return get(int32_t{});
    default:
      return get(int64_t{});
  }
}

namespace {

uint64_t MaskOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0xFF;
    case DType::kBF16:
      return 0x1F;
    case DType::kF32:
      return 0x7FF;
    case DType::kF64:
      return 0xFFFF'FFFF;
    case DType::kI8:
    case DType::kU8:
      return 0x7F;
    case DType::kI16:
      return 0x7FFF;
    case DType::kI32:
      return 0x7FFF'FFFF;
    default:
      return 0x7FFF'FFFF'FFFF'FFFF;
  }
}

uint64_t BaseOf(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round) {
  return Random::Mix(seed ^ IdOf(key.name).low) ^ (static_cast<uint64_t>(rank) << 48) ^
         (incarnation << 32) ^ round;
}

Lanes DrawnLanes(uint64_t base, DType dtype) {
  Lanes lanes;
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes[i] = static_cast<int64_t>(Random::Mix(base ^ (i << 60)) & MaskOf(dtype));
  }
  return lanes;
}

struct SimCoding {
  Encoding encoding = Encoding::kDense;
  int64_t threshold = 0;
  // For dense values, runs and rows: the key's dtype, or float32 as for a sum of 16-bit values.
  DType values{};

  bool is_wide(const SimKey& key) const { return values != key.meta.dtype; }
};

// Draws the encoding of a push.  Sums of bf16 keys are exact only below 256, so they use no int8.
// With fewer elements than lanes, some encodings could not distinguish pushes.
SimCoding CodingOf(uint64_t base, const SimKey& key) {
  SimCoding coding{.values = key.meta.dtype};
  const bool has_choice = key.encodes || key.meta.by_rows();
  if (!has_choice || ComputeType(key.meta.dtype) != DType::kF32) return coding;
  constexpr std::array kAll = {Encoding::kDense, Encoding::kF16,  Encoding::kBf16, Encoding::k2Bit,
                               Encoding::k1Bit,  Encoding::kTopK, Encoding::kRuns, Encoding::kInt8};
  size_t count = kAll.size() - (key.meta.dtype == DType::kBF16 ? 1 : 0);
  if (key.meta.elements() < kLanes) count = 2;
  const uint64_t drawn = Random::Mix(base ^ kEncodings);
  if ((drawn >> 40 & 1) != 0) coding.values = DType::kF32;
  if (key.meta.by_rows()) return coding;
  coding.encoding = kAll[drawn % count];
  if (coding.encoding == Encoding::k2Bit) {
    coding.threshold = static_cast<int64_t>(drawn >> 32 & 0xF) + 1;
  }
  return coding;
}

// Returns lane i of a push as the encoding can represent it exactly.  The first 256 pushes all
// differ.
int64_t Exactly(const SimCoding& coding, size_t i, uint64_t push, int64_t lane) {
  const bool bit = (push >> i & 1) != 0;
  switch (coding.encoding) {
    case Encoding::kBf16:
      return lane & 0xFF;
    case Encoding::k2Bit:
      return bit ? coding.threshold : i % 2 == 0 ? 0 : -coding.threshold;
    case Encoding::k1Bit:
      return bit ? 1 : -1;
    case Encoding::kTopK:
    case Encoding::kRuns:
      return i == 0 ? static_cast<int64_t>(push % 31) + 1 : lane % 3 == 0 ? 0 : lane;
    case Encoding::kInt8:  // with scale 1
      return i == 0 ? 127 : i == 1 ? static_cast<int64_t>(push % 255) - 127 : lane % 255 - 127;
    default:
      return lane;
  }
}

// Encodes the non-zero elements of each chunk as runs.
void EncodeRuns(const KeyMeta& meta, DType type, const std::vector<float>& values,
                std::vector<std::byte>* out, codec::Contribution* contribution) {
  const size_t item = ItemSize(type);
  size_t begin = 0;
  for (uint32_t c = 0; c < meta.chunk_count(); ++c) {
    const auto elements = static_cast<uint32_t>(meta.elements_of(c));
    std::vector<codec::Run> runs;
    size_t total = 0;
    for (uint32_t i = 0; i < elements; ++i) {
      if (values[begin + i] == 0) continue;
      if (runs.empty() || runs.back().begin + runs.back().length != i) runs.push_back({i, 0});
      ++runs.back().length;
      ++total;
    }
    const size_t at = out->size();
    out->resize(at + codec::RunHeadBytes(runs.size()) + total * item);
    std::byte* target = codec::WriteRunHeads(runs, out->data() + at);
    for (uint32_t i = 0; i < elements; ++i) {
      if (values[begin + i] == 0) continue;
      Store(type, static_cast<int64_t>(values[begin + i]), target);
      target += item;
    }
    contribution->ends.push_back(out->size());
    begin += elements;
  }
}

// Encodes the non-zero elements of each chunk as positions and values.
void EncodeChosen(const KeyMeta& meta, const std::vector<float>& values,
                  std::vector<std::byte>* out, codec::Contribution* contribution) {
  size_t begin = 0;
  for (uint32_t c = 0; c < meta.chunk_count(); ++c) {
    const auto elements = static_cast<size_t>(meta.elements_of(c));
    std::vector<float> rest(values.begin() + static_cast<ptrdiff_t>(begin),
                            values.begin() + static_cast<ptrdiff_t>(begin + elements));
    const size_t at = out->size();
    out->resize(at + elements * 8);
    const size_t taken = codec::TakeLargest(rest.data(), elements, elements, out->data() + at);
    out->resize(at + taken * 8);
    contribution->ends.push_back(out->size());
    begin += elements;
  }
}

}  // namespace

Lanes Contribution(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                   uint64_t round) {
  const uint64_t base = BaseOf(seed, key, rank, incarnation, round);
  const SimCoding coding = CodingOf(base, key);
  Lanes lanes = DrawnLanes(base, key.meta.dtype);
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = Exactly(coding, i, round, lanes[i]);
  return lanes;
}

RowSet InitialRows(uint64_t seed, const SimKey& key) {
  return Random::Mix(BaseOf(~seed, key, 0, 0, 1)) & kAllRows;
}

Lanes InitialValue(uint64_t seed, const SimKey& key) {
  Lanes lanes = DrawnLanes(BaseOf(~seed, key, 0, 0, 0), key.meta.dtype);
  if (!key.meta.by_rows()) return lanes;
  const RowSet there = InitialRows(seed, key);
  for (size_t i = 0; i < kRowIds; ++i) {
    if ((there >> i & 1) == 0) lanes[i] = static_cast<int64_t>(key.meta.initializer.a);
  }
  return lanes;
}

std::vector<uint64_t> RowsOf(const SimKey& key, uint32_t chunk, RowSet rows) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < kRowIds; ++id) {
    const bool is_its = BucketOf(Mix(id), key.meta.buckets) == chunk;
    if (is_its && (rows >> id & 1) != 0) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [](uint64_t a, uint64_t b) { return Mix(a) < Mix(b); });
  return ids;
}

// Without gaps, a push has at least one row in every bucket, so that the model can identify it
// there.
RowSet Touched(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round) {
  if (!key.meta.by_rows()) return kAllRows;
  const uint64_t drawn = Random::Mix(BaseOf(seed, key, rank, incarnation, round) ^ kRowDraws);
  auto rows = static_cast<RowSet>(drawn & drawn >> 12 & kAllRows);
  for (uint32_t c = 0; c < key.meta.buckets && !key.has_gaps; ++c) {
    const std::vector<uint64_t> ids = RowsOf(key, c, kAllRows);
    rows = static_cast<RowSet>(rows | 1U << ids[(drawn >> 32) % ids.size()]);
  }
  return rows;
}

namespace {

std::vector<int64_t> IdsOf(RowSet rows) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < static_cast<int64_t>(kRowIds); ++id) {
    if ((rows >> id & 1) != 0) ids.push_back(id);
  }
  return ids;
}

// Writes rows with the values of the lanes.  The other rows may have any value, because no worker
// reads them.
void FillRows(const SimKey& key, DType type, const Lanes& lanes, RowSet rows,
              codec::Contribution* made, size_t other_rows = 0) {
  std::vector<int64_t> ids = IdsOf(rows);
  for (size_t i = 0; i < other_rows; ++i) ids.push_back(static_cast<int64_t>(kRowIds + i));
  const codec::IdOrder order(ids);
  const size_t item = ItemSize(type);
  const size_t row_bytes = key.meta.elements() * item;
  auto bytes =
      std::make_shared<std::vector<std::byte>>(codec::RowsBytes(order.mixes(), row_bytes) + 8);
  codec::WriteRows(
      order.mixes(), key.meta.buckets, row_bytes, {bytes->data(), bytes->size() - 8, bytes},
      [&](size_t i, std::byte* at) {
        for (size_t e = 0; e < row_bytes; e += item) {
          Store(type, lanes[Unmix(order.mixes()[i]) % kRowIds], at + e);
        }
      },
      made, type == key.meta.dtype ? 0 : codec::kWideValues);
}

Bytes FillWith(const SimKey& key, DType type, const Lanes& lanes) {
  const size_t item = ItemSize(type);
  const size_t count = key.meta.elements();
  auto bytes = std::make_shared<std::vector<std::byte>>(count * item + 8);
  for (size_t i = 0; i < std::min(count, kLanes); ++i) {
    Store(type, lanes[i], bytes->data() + i * item);
  }
  for (size_t i = kLanes; i < count; i += kLanes) {  // repeats the first eight
    std::memcpy(bytes->data() + i * item, bytes->data(), std::min(kLanes, count - i) * item);
  }
  return {bytes->data(), count * item, bytes};
}

}  // namespace

codec::Contribution Initial(uint64_t seed, const SimKey& key) {
  const Lanes lanes = InitialValue(seed, key);
  codec::Contribution value;
  if (key.meta.by_rows()) {
    FillRows(key, key.meta.dtype, lanes, InitialRows(seed, key), &value, key.other_rows);
  } else {
    value.bytes = FillWith(key, key.meta.dtype, lanes);
  }
  return value;
}

codec::Contribution AskFor(const SimKey& key, RowSet rows) {
  codec::Contribution asked;
  if (!key.meta.by_rows()) return asked;
  const codec::IdOrder order(IdsOf(rows));
  auto bytes = std::make_shared<std::vector<std::byte>>(order.size() * 8 + 8);
  codec::WriteIds(order.mixes(), key.meta.buckets, {bytes->data(), bytes->size() - 8, bytes},
                  &asked);
  return asked;
}

size_t PulledBytes(const SimKey& key, uint32_t chunk, RowSet rows) {
  if (!key.meta.by_rows()) return key.meta.bytes_of(chunk);
  return RowsOf(key, chunk, rows).size() * key.meta.row_bytes();
}

size_t PulledBytes(const SimKey& key, RowSet rows) {
  size_t bytes = 0;
  for (uint32_t c = 0; c < key.meta.chunk_count(); ++c) bytes += PulledBytes(key, c, rows);
  return bytes;
}

codec::Contribution Encoded(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                            uint64_t round) {
  const Lanes lanes = Contribution(seed, key, rank, incarnation, round);
  const SimCoding coding = CodingOf(BaseOf(seed, key, rank, incarnation, round), key);
  codec::Contribution contribution;
  if (key.meta.by_rows()) {
    FillRows(key, coding.values, lanes, Touched(seed, key, rank, incarnation, round),
             &contribution);
    return contribution;
  }
  contribution.encoding = coding.encoding;
  if (coding.encoding == Encoding::kDense) {
    contribution.bytes = FillWith(key, coding.values, lanes);
    if (coding.is_wide(key)) contribution.encoding = Encoding::kF32;
    return contribution;
  }
  const auto count = static_cast<size_t>(key.meta.elements());
  std::vector<float> values(count), residual(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(lanes[i % kLanes]);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  if (coding.encoding == Encoding::kTopK) {
    EncodeChosen(key.meta, values, bytes.get(), &contribution);
  } else if (coding.encoding == Encoding::kRuns) {
    EncodeRuns(key.meta, coding.values, values, bytes.get(), &contribution);
    if (coding.is_wide(key)) contribution.param = codec::kWideValues;
  } else {
    const auto threshold = static_cast<float>(coding.threshold);
    bytes->resize(kernels::EncodedBytes(coding.encoding, count));
    kernels::Encode({coding.encoding, threshold}, values.data(), residual.data(), bytes->data(),
                    count);
    contribution.param = std::bit_cast<uint32_t>(threshold);
  }
  TKV_CHECK(std::all_of(residual.begin(), residual.end(), [](float rest) { return rest == 0; }));
  const size_t size = bytes->size();
  bytes->resize(size + 8);  // has an owner even if it has no bytes
  contribution.bytes = {bytes->data(), size, bytes};
  return contribution;
}

}  // namespace tkv::simulation
