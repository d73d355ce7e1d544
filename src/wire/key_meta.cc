// The payloads that describe a key (KeyMeta) and a chunk (ChunkStatus).

#include <algorithm>
#include <cmath>

#include "base/byte_io.h"
#include "base/key_text.h"
#include "wire/checked_fields.h"
#include "wire/message.h"

namespace tkv {

uint32_t KeyMeta::chunk_count() const {
  if (layout == Layout::kWhole) return 1;
  if (layout == Layout::kRows) return buckets;
  const uint64_t count = (elements() + chunk_elements - 1) / chunk_elements;
  return static_cast<uint32_t>(std::max<uint64_t>(count, 1));  // an empty tensor has one chunk
}

uint64_t KeyMeta::elements_of(uint32_t chunk) const {
  if (layout == Layout::kRows) return 0;
  if (layout == Layout::kWhole) return chunk == 0 ? elements() : 0;
  const uint64_t begin = uint64_t{chunk} * chunk_elements;
  return std::min<uint64_t>(chunk_elements, elements() - std::min(begin, elements()));
}

const char* Name(Layout layout) noexcept {
  switch (layout) {
    case Layout::kDense:
      return "dense";
    case Layout::kWhole:
      return "whole";
    case Layout::kRows:
      return "rows";
  }
  return "?";
}

namespace {

//   throws  kInvalidArgument  impossible rows, buckets or initializer
void CheckRows(const KeyMeta& meta) {
  if (meta.elements() == 0 || meta.elements() * ItemSize(meta.dtype) > kRowBytesMax) {
    throw Fail(Code::kInvalidArgument, "rows of shape {} {}: one row has 1 to {} bytes",
               meta.shape.ToString(), Name(meta.dtype), kRowBytesMax);
  }
  if (meta.row_count == 0 || meta.row_count > kRowsMax) {
    throw Fail(Code::kInvalidArgument, "{} rows; there are 1 to 2^63", meta.row_count);
  }
  if (meta.buckets == 0 || meta.buckets > KeyMeta::kBucketsMax) {
    throw Fail(Code::kInvalidArgument, "{} buckets; there are 1 to {}", meta.buckets,
               KeyMeta::kBucketsMax);
  }
  if (!std::isfinite(meta.initializer.a) || !std::isfinite(meta.initializer.b)) {
    throw Fail(Code::kInvalidArgument, "an initializer with {} and {}", meta.initializer.a,
               meta.initializer.b);
  }
}

// Refuses a name that some language or tool cannot represent, because files and tools share names.
void CheckText(const KeyView& key) {
  const char* const why = key.is_string ? WhyNoKey(key.text) : nullptr;
  if (why != nullptr) throw Fail(Code::kInvalidArgument, "the key {} {}", key.ToString(), why);
}

enum PolicyBit : uint8_t { kHasNotes = 1, kReplacesAll = 2 };  // wire value

uint8_t BitsOf(const RowPolicy& policy) {
  const int bits = (policy.has_notes ? kHasNotes : 0) | (policy.replaces_all ? kReplacesAll : 0);
  return static_cast<uint8_t>(bits);
}

//   throws  kInvalidArgument  a bit that no policy has
void ReadBits(ByteReader* reader, RowPolicy* policy) {
  const auto bits = reader->Number<uint8_t>();
  if ((bits & ~(kHasNotes | kReplacesAll)) != 0) {
    throw Fail(Code::kInvalidArgument, "policy bits {}", bits);
  }
  policy->has_notes = (bits & kHasNotes) != 0;
  policy->replaces_all = (bits & kReplacesAll) != 0;
}

}  // namespace

// Layout: name, birth, dtype, rank, dims, chunk elements, mode, staleness, deterministic, layout,
// rows, buckets, initializer (kind, a, b, seed), policy (admission, age, rows, score, bits,
// memory), own optimizer (or no bytes).
std::string Encode(const KeyMeta& value) {
  ByteWriter writer;
  writer.Text(value.name);
  writer.Number(value.birth);
  writer.Number(value.dtype);
  writer.Number(static_cast<uint8_t>(value.shape.rank()));
  for (const int64_t dim : value.shape) writer.Number(dim);
  writer.Number(value.chunk_elements);
  writer.Number(value.mode);
  writer.Number(value.staleness);
  writer.Number(static_cast<uint8_t>(value.deterministic));
  writer.Number(value.layout);
  writer.Number(value.row_count);
  writer.Number(value.buckets);
  writer.Number(value.initializer.kind);
  writer.Number(value.initializer.a);
  writer.Number(value.initializer.b);
  writer.Number(value.initializer.seed);
  writer.Number(value.policy.admit_count);
  writer.Number(value.policy.age_max);
  writer.Number(value.policy.rows_max);
  writer.Number(value.policy.score);
  writer.Number(BitsOf(value.policy));
  writer.Number(value.policy.memory_max);
  writer.Text(value.own ? Encode(*value.own) : std::string());
  return writer.Take();
}

KeyMeta DecodeKeyMeta(std::string_view bytes) {
  ByteReader reader(bytes);
  KeyMeta meta;
  meta.name = reader.Text(kKeyBytesMax);
  if (!IsCanonicalKey(meta.name)) throw Fail(Code::kInvalidArgument, "not a canonical key");
  CheckText(KeyOf(meta.name));
  meta.birth = reader.Number<uint64_t>();
  meta.dtype = ReadDType(&reader);
  const auto rank = reader.Number<uint8_t>();
  if (rank > Shape::kRankMax) throw Fail(Code::kInvalidArgument, "a shape of rank {}", rank);
  std::array<int64_t, Shape::kRankMax> dims;
  for (uint8_t i = 0; i < rank; ++i) dims[i] = reader.Number<int64_t>();
  meta.shape = Shape(std::span<const int64_t>(dims.data(), rank));
  meta.chunk_elements = reader.Number<uint32_t>();
  if (meta.chunk_elements == 0 || meta.chunk_elements % 1024 != 0) {
    throw Fail(Code::kInvalidArgument, "chunks of {} elements, a multiple of 1024 is needed",
               meta.chunk_elements);
  }
  if (meta.elements() / meta.chunk_elements >= KeyMeta::kChunksMax) {
    throw Fail(Code::kInvalidArgument, "{} elements are too many chunks", meta.elements());
  }
  meta.mode = ReadEnum(&reader, KeyMeta::Mode::kAsync, "mode");
  meta.staleness = reader.Number<uint32_t>();
  if (meta.staleness > KeyMeta::kStalenessMax) {
    throw Fail(Code::kInvalidArgument, "a staleness of {} rounds, at most {} are allowed",
               meta.staleness, KeyMeta::kStalenessMax);
  }
  meta.deterministic = ReadBool(&reader);
  meta.layout = ReadEnum(&reader, Layout::kRows, "layout");
  meta.row_count = reader.Number<uint64_t>();
  meta.buckets = reader.Number<uint32_t>();
  meta.initializer.kind = ReadEnum(&reader, RowInitializer::Kind::kNormal, "initializer");
  meta.initializer.a = reader.Number<double>();
  meta.initializer.b = reader.Number<double>();
  meta.initializer.seed = reader.Number<uint64_t>();
  meta.policy.admit_count = reader.Number<uint32_t>();
  meta.policy.age_max = reader.Number<uint64_t>();
  meta.policy.rows_max = reader.Number<uint64_t>();
  meta.policy.score = ReadEnum(&reader, RowPolicy::Score::kNorm, "score");
  ReadBits(&reader, &meta.policy);
  meta.policy.memory_max = reader.Number<uint64_t>();
  const std::string_view own = reader.Text(2 * kProgramBytesMax);
  if (!own.empty()) meta.own = DecodeUpdateSpec(own);
  const bool has_rows = meta.row_count != 0 || meta.buckets != 0 ||
                        !(meta.initializer == RowInitializer{}) ||  // also true for NaN
                        meta.policy != RowPolicy{};
  if (has_rows && meta.layout != Layout::kRows) {
    throw Fail(Code::kInvalidArgument, "rows of a key whose layout is {}", Name(meta.layout));
  }
  if (meta.layout == Layout::kRows) CheckRows(meta);
  reader.End();
  return meta;
}

std::string Encode(const ChunkStatus& value) {
  ByteWriter writer;
  writer.Number(value.version);
  writer.Number(value.last_arrived);
  writer.Number(static_cast<uint32_t>(value.missing.size()));
  for (const Rank rank : value.missing) writer.Number(rank);
  writer.Number(value.base);
  if (value.table) {  // without a table, the layout of older versions
    writer.Number(value.table->rows);
    writer.Number(value.table->candidates);
    writer.Number(value.table->evicted);
    writer.Number(value.table->memory_bytes);
    writer.Number(value.table->version);
    writer.Number(value.table->disk_rows);
    writer.Number(value.table->disk_bytes);
  } else if (value.step) {
    writer.Number(value.step->number);
    writer.Number(value.step->keys);
  }
  return writer.Take();
}

ChunkStatus DecodeChunkStatus(std::string_view bytes) {
  ByteReader reader(bytes);
  ChunkStatus status;
  status.version = reader.Number<uint64_t>();
  status.last_arrived = reader.Number<uint64_t>();
  const uint32_t count = reader.Count(sizeof(Rank));
  if (count > static_cast<uint32_t>(kWorkersMax)) {
    throw Fail(Code::kInvalidArgument, "{} ranks are missing", count);
  }
  status.missing.resize(count);
  for (Rank& rank : status.missing) rank = ReadRank(&reader);
  status.base = reader.Number<uint64_t>();
  if (reader.left() == sizeof(uint32_t) * 2) {
    PushStep& step = status.step.emplace();
    step.number = reader.Number<uint32_t>();
    step.keys = reader.Number<uint32_t>();
  } else if (reader.left() > 0) {
    TableStats& table = status.table.emplace();
    table.rows = reader.Number<uint64_t>();
    table.candidates = reader.Number<uint64_t>();
    table.evicted = reader.Number<uint64_t>();
    table.memory_bytes = reader.Number<uint64_t>();
    table.version = reader.Number<uint64_t>();
    table.disk_rows = reader.Number<uint64_t>();
    table.disk_bytes = reader.Number<uint64_t>();
  }
  reader.End();
  return status;
}

}  // namespace tkv
