#include "trace/span.h"

#include <array>

#include "base/byte_io.h"

namespace tkv {

const char* Name(Span::Kind kind) noexcept {
  constexpr std::array kNames = {"push", "pull", "update", "other"};
  return kNames[static_cast<size_t>(kind)];
}

const char* Name(Span::State state) noexcept {
  constexpr std::array kNames = {"done", "failed", "under way"};
  return kNames[static_cast<size_t>(state)];
}

std::string EncodeSpans(std::span<const Span> spans) {
  ByteWriter writer;
  for (const Span& span : spans) {
    writer.Number(span.begin);
    writer.Number(span.nanoseconds);
    writer.Number(span.key_low);
    writer.Number(span.key_high);
    writer.Number(span.number);
    writer.Number(span.bytes);
    writer.Number(span.chunk);
    writer.Number(span.rank);
    writer.Number(span.kind);
    writer.Number(span.state);
  }
  return writer.Take();
}

std::vector<Span> DecodeSpans(std::string_view bytes) {
  ByteReader reader(bytes);
  std::vector<Span> spans;
  spans.reserve(bytes.size() / kSpanBytes);
  while (reader.left() > 0) {
    Span& span = spans.emplace_back();
    span.begin = reader.Number<int64_t>();
    span.nanoseconds = reader.Number<int64_t>();
    span.key_low = reader.Number<uint64_t>();
    span.key_high = reader.Number<uint64_t>();
    span.number = reader.Number<uint64_t>();
    span.bytes = reader.Number<uint64_t>();
    span.chunk = reader.Number<uint32_t>();
    span.rank = reader.Number<int32_t>();
    const auto kind = reader.Number<uint8_t>();
    if (kind >= kSpanKinds) throw Fail(Code::kInvalidArgument, "there is no span of kind {}", kind);
    span.kind = static_cast<Span::Kind>(kind);
    const auto state = reader.Number<uint8_t>();
    if (state > 2) throw Fail(Code::kInvalidArgument, "there is no span in state {}", state);
    span.state = static_cast<Span::State>(state);
  }
  return spans;
}

}  // namespace tkv
