// The payloads of optimizers: the rule of a CONTROL, hyperparameters, steps and chunk states.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/byte_io.h"
#include "wire/checked_fields.h"
#include "wire/message.h"

namespace tkv {
namespace {

constexpr size_t kParamsMax = 128;

enum SpecBit : uint8_t { kFresh = 1, kEager = 2 };  // wire value

void Write(const UpdateSpec& value, ByteWriter* writer) {
  writer->Text(value.program);
  writer->Number(static_cast<uint8_t>(value.multi_precision));
  writer->Number(static_cast<uint32_t>(value.params.size()));
  for (const double param : value.params) writer->Number(param);
  const int bits = (value.fresh ? kFresh : 0) | (value.lazy ? 0 : kEager);
  writer->Number(static_cast<uint8_t>(bits));
}

UpdateSpec ReadUpdateSpec(ByteReader* reader) {
  UpdateSpec spec;
  spec.program = reader->Text(kProgramBytesMax);
  spec.multi_precision = ReadBool(reader);
  const uint32_t count = reader->Count(sizeof(double));
  if (count > kParamsMax) throw Fail(Code::kInvalidArgument, "{} hyperparameters", count);
  spec.params.resize(count);
  for (double& param : spec.params) param = reader->Number<double>();
  const auto bits = reader->Number<uint8_t>();
  if ((bits & ~(kFresh | kEager)) != 0) throw Fail(Code::kInvalidArgument, "update bits {}", bits);
  spec.fresh = (bits & kFresh) != 0;
  spec.lazy = (bits & kEager) == 0;
  return spec;
}

}  // namespace

std::string EncodeScalars(const std::vector<double>& scalars) {
  ByteWriter writer;
  writer.Number(static_cast<uint32_t>(scalars.size()));
  for (const double scalar : scalars) writer.Number(scalar);
  return writer.Take();
}

std::vector<double> DecodeScalars(std::string_view bytes) {
  ByteReader reader(bytes);
  const uint32_t count = reader.Count(sizeof(double));
  if (count > kParamsMax) throw Fail(Code::kInvalidArgument, "{} hyperparameters", count);
  std::vector<double> scalars(count);
  for (double& scalar : scalars) scalar = reader.Number<double>();
  reader.End();
  return scalars;
}

std::string EncodeRuleDigest(uint64_t digest) {
  ByteWriter writer;
  writer.Number(digest);
  return writer.Take();
}

uint64_t TakeRuleDigest(std::string_view* bytes) {
  if (bytes->size() < sizeof(uint64_t)) {
    throw Fail(Code::kInvalidArgument, "{} bytes, and a digest has 8", bytes->size());
  }
  ByteReader reader(bytes->substr(bytes->size() - sizeof(uint64_t)));
  bytes->remove_suffix(sizeof(uint64_t));
  return reader.Number<uint64_t>();
}

uint64_t UpdateSpec::Digest() const {
  const uint64_t seed = (multi_precision ? 1U : 0U) | (lazy ? 2U : 0U);
  return std::max<uint64_t>(1, XXH3_64bits_withSeed(program.data(), program.size(), seed));
}

std::string Encode(const PushStep& value) {
  ByteWriter writer;
  writer.Number(value.number);
  writer.Number(value.keys);
  return writer.Take();
}

PushStep TakeStep(std::string_view* bytes) {
  ByteReader reader(*bytes);
  PushStep step;
  step.number = reader.Number<uint32_t>();
  step.keys = reader.Number<uint32_t>();
  bytes->remove_prefix(bytes->size() - reader.left());
  return step;
}

std::string Encode(const UpdateSpec& value) {
  ByteWriter writer;
  Write(value, &writer);
  return writer.Take();
}

UpdateSpec DecodeUpdateSpec(std::string_view bytes) {
  ByteReader reader(bytes);
  UpdateSpec spec = ReadUpdateSpec(&reader);
  reader.End();
  return spec;
}

bool ChunkState::HasPart(uint64_t part) const {
  if (part == kValue) return has_value;
  if (part == kMaster) return has_master;
  if (part == kIds) return by_rows;
  if (part == kNotes) return by_rows && has_notes;
  if (part >= kCandidateNotes) return by_rows && candidates > 0;
  return part - kStates < uint64_t{arrays} + scalars;
}

bool ChunkState::IsScalar(uint64_t part) const {
  return part >= kStates && part - kStates >= arrays && part < kCandidateNotes && HasPart(part);
}

size_t ChunkState::PartBytes(uint64_t part, DType dtype, size_t elements) const {
  if (!HasPart(part)) return 0;
  if (IsScalar(part)) return sizeof(double);
  return RowBytes(part, dtype, elements) * (by_rows ? RowsOf(part) : 1);
}

uint64_t ChunkState::RowsOf(uint64_t part) const {
  return part == kCandidates || part == kCandidateNotes ? candidates : rows;
}

size_t ChunkState::RowBytes(uint64_t part, DType dtype, size_t elements) {
  if (part == kIds || part == kCandidates) return sizeof(uint64_t);
  if (part == kNotes || part == kCandidateNotes) return 2 * sizeof(uint64_t);
  return elements * ItemSize(part == kValue ? dtype : ComputeType(dtype));
}

size_t ChunkState::Bytes(DType dtype, size_t elements) const {
  size_t bytes = 0;
  for (const uint64_t part : {kIds, kNotes, kCandidates, kCandidateNotes}) {
    bytes += PartBytes(part, dtype, elements);
  }
  const uint64_t parts = kStates + arrays + scalars;
  for (uint64_t part = 0; part < parts; ++part) bytes += PartBytes(part, dtype, elements);
  return bytes;
}

std::string Encode(const ChunkState& value) {
  ByteWriter writer;
  writer.Number(value.version);
  writer.Number(value.updates);
  writer.Number(static_cast<uint8_t>(value.has_value));
  writer.Number(static_cast<uint8_t>(value.has_master));
  writer.Number(value.arrays);
  writer.Number(value.scalars);
  Write(value.spec, &writer);
  if (!value.by_rows) return writer.Take();  // the layout of older versions
  writer.Number(value.rows);
  writer.Number(value.row_version);
  writer.Number(static_cast<uint8_t>(value.has_notes));
  writer.Number(value.candidates);
  return writer.Take();
}

std::string Encode(const RowRange& value) {
  ByteWriter writer;
  writer.Number(value.first);
  writer.Number(value.count);
  return writer.Take();
}

RowRange DecodeRowRange(std::string_view bytes) {
  ByteReader reader(bytes);
  RowRange range;
  range.first = reader.Number<uint64_t>();
  range.count = reader.Number<uint64_t>();
  reader.End();
  return range;
}

ChunkState DecodeChunkState(std::string_view bytes) {
  ByteReader reader(bytes);
  ChunkState state;
  state.version = reader.Number<uint64_t>();
  state.updates = reader.Number<uint64_t>();
  state.has_value = ReadBool(&reader);
  state.has_master = ReadBool(&reader);
  state.arrays = reader.Number<uint8_t>();
  state.scalars = reader.Number<uint8_t>();
  if (state.arrays > ChunkState::kStatesMax || state.scalars > ChunkState::kStatesMax) {
    throw Fail(Code::kInvalidArgument, "{} and {} states", state.arrays, state.scalars);
  }
  state.spec = ReadUpdateSpec(&reader);
  state.by_rows = reader.left() > 0;
  if (state.by_rows) {
    state.rows = reader.Number<uint64_t>();
    state.row_version = reader.Number<uint64_t>();
    state.has_notes = ReadBool(&reader);
    state.candidates = reader.Number<uint64_t>();
  }
  if (state.rows > ChunkState::kRowsMax || state.candidates > ChunkState::kRowsMax) {
    throw Fail(Code::kInvalidArgument, "{} rows and {} candidates of a bucket", state.rows,
               state.candidates);
  }
  reader.End();
  return state;
}

}  // namespace tkv
