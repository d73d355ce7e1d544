#include "codec/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/format.h"
#include "kernels/kernels.h"

namespace tkv::codec {

Bytes Contribution::PartOf(uint32_t chunk) const {
  const size_t begin = chunk == 0 ? 0 : ends[chunk - 1];
  const bool is_nothing = ends[chunk] == begin && encoding != Encoding::kRows;
  if (is_nothing) return {};  // no bytes, so no owner to keep
  return {bytes.data + begin, ends[chunk] - begin, bytes.owner};
}

Range DenseRange(const KeyMeta& meta, uint32_t chunk) {
  return {size_t{chunk} * meta.bytes_of(0), meta.bytes_of(chunk)};
}

size_t TiledBytes(Encoding encoding, DType dtype, size_t elements) {
  return encoding == Encoding::kDense ? elements * ItemSize(dtype)
                                      : kernels::EncodedBytes(encoding, elements);
}

namespace {

constexpr size_t kChosenBytes = sizeof(uint32_t) + sizeof(float);  // for each element of top-k

bool IsThere(Encoding encoding) {
  return IsTiled(encoding) || encoding == Encoding::kTopK || encoding == Encoding::kRuns ||
         encoding == Encoding::kRows;
}

// Returns true for 16-bit values, whose sums are float32.
bool IsNarrow(DType dtype) { return ComputeType(dtype) != dtype; }

// Returns the fault of an encoding's parameter.
std::optional<Error> JudgeParam(DType dtype, Encoding encoding, uint32_t param) {
  const auto threshold = std::bit_cast<float>(param);
  switch (encoding) {
    case Encoding::k2Bit:
      if (std::isfinite(threshold) && threshold > 0) return std::nullopt;
      return Fail(Code::kInvalidArgument, "encoding 2bit with threshold {}", threshold);
    case Encoding::k1Bit:
      if (std::isfinite(threshold)) return std::nullopt;
      return Fail(Code::kInvalidArgument, "encoding 1bit with threshold {}", threshold);
    case Encoding::kRuns:
    case Encoding::kRows:
      if (param == kWideValues && IsNarrow(dtype)) return std::nullopt;
      [[fallthrough]];
    default:
      if (param == 0) return std::nullopt;
      return Fail(Code::kInvalidArgument, "encoding {} with a parameter, {}", NameOf(encoding),
                  param);
  }
}

// Returns the fault of a part's size.
std::optional<Error> JudgeSize(const KeyMeta& meta, uint32_t chunk, Encoding encoding,
                               uint32_t param, size_t bytes) {
  const size_t item = ItemSize(ValueType(meta.dtype, param));
  if (encoding == Encoding::kRows) {
    const size_t row = sizeof(uint64_t) + meta.elements() * item;
    if (bytes % row == 0) return std::nullopt;
    return Fail(Code::kFailedPrecondition, "{} bytes of rows, a row and its id have {}", bytes,
                row);
  }
  const auto elements = static_cast<size_t>(meta.elements_of(chunk));
  if (encoding == Encoding::kTopK) {
    if (bytes % kChosenBytes == 0 && bytes / kChosenBytes <= elements) return std::nullopt;
    return Fail(Code::kFailedPrecondition, "{} bytes of topk, the chunk has {} elements", bytes,
                elements);
  }
  if (encoding == Encoding::kRuns) {
    // Every element a run of its own.
    const size_t most = kRunsHeadBytes + elements * (sizeof(Run) + item);
    if (bytes == 0 || (bytes >= kRunsHeadBytes && bytes <= most)) return std::nullopt;
    return Fail(Code::kFailedPrecondition, "{} bytes of runs, the chunk has {} elements", bytes,
                elements);
  }
  const size_t wanted = TiledBytes(encoding, meta.dtype, elements);
  if (bytes == wanted) return std::nullopt;
  return Fail(Code::kFailedPrecondition, "{} bytes of {}, the chunk has {}", bytes,
              encoding == Encoding::kDense ? Name(meta.dtype) : NameOf(encoding), wanted);
}

}  // namespace

std::optional<Error> Judge(const KeyMeta& meta, uint32_t chunk, Encoding encoding, uint32_t param,
                           size_t bytes) {
  if (!IsThere(encoding)) {
    return Fail(Code::kUnimplemented, "encoding {} is not in protocol {} of {}", NameOf(encoding),
                kProtocolVersion, PackageName());
  }
  if (auto error = JudgeParam(meta.dtype, encoding, param)) return error;
  if (meta.by_rows() != (encoding == Encoding::kRows)) {
    return Fail(Code::kFailedPrecondition, "encoding {} of a key whose layout is {}",
                NameOf(encoding), Name(meta.layout));
  }
  const bool is_compressed =
      encoding != Encoding::kDense && encoding != Encoding::kRows && encoding != Encoding::kRuns;
  const bool fits =
      encoding == Encoding::kF32 ? IsNarrow(meta.dtype) : ComputeType(meta.dtype) == DType::kF32;
  if (is_compressed && !fits) {
    return Fail(Code::kInvalidArgument, "encoding {} of {} values", NameOf(encoding),
                Name(meta.dtype));
  }
  if (auto error = JudgeSize(meta, chunk, encoding, param, bytes)) return error;
  if (bytes > kPartBytesMax) {
    return Fail(Code::kResourceExhausted, "{} bytes for one chunk, at most {} are allowed", bytes,
                kPartBytesMax);
  }
  return std::nullopt;
}

Encoding InitEncoding(const KeyMeta& meta) {
  return meta.by_rows() ? Encoding::kRows : Encoding::kDense;
}

std::vector<uint32_t> PositionsOf(const Part& part, size_t elements) {
  std::vector<uint32_t> positions(part.bytes.size / kChosenBytes);
  if (positions.empty()) return positions;
  std::memcpy(positions.data(), part.bytes.data, positions.size() * sizeof(uint32_t));
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] < elements && (i == 0 || positions[i] > positions[i - 1])) continue;
    throw Fail(Code::kInvalidArgument, "topk: position {} is {}{}, the chunk has {} elements", i,
               positions[i], i == 0 ? "" : Format(" after {}", positions[i - 1]), elements);
  }
  return positions;
}

void AddAt(const Part& part, std::span<const uint32_t> positions, float* target) {
  const std::byte* const values = part.bytes.data + positions.size() * sizeof(uint32_t);
  for (size_t i = 0; i < positions.size(); ++i) {
    float value;
    std::memcpy(&value, values + i * sizeof(value), sizeof(value));
    target[positions[i]] += value;
  }
}

std::vector<Run> RunsOf(const Part& part, DType dtype, size_t elements) {
  if (part.bytes.size == 0) return {};
  uint32_t count;
  std::memcpy(&count, part.bytes.data, sizeof(count));
  if (count > elements || RunHeadBytes(count) > part.bytes.size) {
    throw Fail(Code::kInvalidArgument, "{} runs in {} bytes, the chunk has {} elements", count,
               part.bytes.size, elements);
  }
  std::vector<Run> runs(count);
  if (count > 0) {
    std::memcpy(runs.data(), part.bytes.data + kRunsHeadBytes, count * sizeof(Run));
  }
  uint64_t end = 0;
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    if (runs[i].begin < end || runs[i].length == 0 ||
        uint64_t{runs[i].begin} + runs[i].length > elements) {
      throw Fail(Code::kInvalidArgument,
                 "run {} of {} elements begins at {}, after {}; the chunk has {} elements", i,
                 runs[i].length, runs[i].begin, end, elements);
    }
    end = uint64_t{runs[i].begin} + runs[i].length;
    total += runs[i].length;
  }
  const DType type = ValueType(dtype, part.param);
  const size_t wanted = std::max(RunHeadBytes(count), kRunsHeadBytes) + total * ItemSize(type);
  if (wanted != part.bytes.size) {
    throw Fail(Code::kInvalidArgument, "{} bytes of runs, {} elements of {} have {}",
               part.bytes.size, total, Name(type), wanted);
  }
  return runs;
}

void AddRuns(const Part& part, std::span<const Run> runs, DType dtype, void* target) {
  constexpr size_t kTile = 1024;
  const DType compute = ComputeType(dtype);
  const DType type = ValueType(dtype, part.param);
  const std::byte* values = part.bytes.data + RunHeadBytes(runs.size());
  alignas(64) float wide[kTile];
  for (const Run& run : runs) {
    for (size_t done = 0; done < run.length; done += kTile) {
      const size_t count = std::min<size_t>(kTile, run.length - done);
      const void* source = values + done * ItemSize(type);
      if (compute != type) {
        kernels::Sum(type, {&source, 1}, wide, count, kernels::Write::kCached);
        source = wide;
      }
      auto* const at = static_cast<std::byte*>(target) + (run.begin + done) * ItemSize(compute);
      const void* const both[] = {at, source};
      kernels::Sum(compute, both, at, count, kernels::Write::kCached);
    }
    values += run.length * ItemSize(type);
  }
}

std::byte* WriteRunHeads(std::span<const Run> runs, std::byte* target) {
  if (runs.empty()) return target;
  const uint32_t head[] = {static_cast<uint32_t>(runs.size()), 0};
  std::memcpy(target, head, sizeof(head));
  std::memcpy(target + sizeof(head), runs.data(), runs.size() * sizeof(Run));
  return target + RunHeadBytes(runs.size());
}

std::optional<Error> Cut(const KeyMeta& meta, Contribution* contribution) {
  auto& ends = contribution->ends;
  const uint32_t count = meta.chunk_count();
  if (IsTiled(contribution->encoding) && ends.empty()) {
    ends.resize(count);
    size_t end = 0;
    for (uint32_t c = 0; c < count; ++c) {
      end += TiledBytes(contribution->encoding, meta.dtype, meta.elements_of(c));
      ends[c] = end;
    }
  }
  if (ends.size() != count || ends.back() != contribution->bytes.size) {
    return Fail(Code::kInvalidArgument, "{} bytes in {} parts, the key has {} chunks",
                contribution->bytes.size, ends.size(), count);
  }
  size_t begin = 0;
  for (uint32_t c = 0; c < count; ++c) {
    const size_t end = ends[c];
    if (end < begin) return Fail(Code::kInvalidArgument, "part {} ends before it begins", c);
    if (auto error = Judge(meta, c, contribution->encoding, contribution->param, end - begin)) {
      return error;
    }
    begin = end;
  }
  return std::nullopt;
}

}  // namespace tkv::codec
