#include "codec/codec.h"

#include "base/format.h"

namespace tkv::codec {

Bytes Contribution::Part(uint32_t chunk) const {
  const size_t begin = chunk == 0 ? 0 : ends[chunk - 1];
  if (ends[chunk] == begin) return {};  // no bytes, and nobody to keep for them
  return {bytes.data + begin, ends[chunk] - begin, bytes.owner};
}

Range DenseRange(const KeyMeta& meta, uint32_t chunk) {
  return {size_t{chunk} * meta.bytes_of(0), meta.bytes_of(chunk)};
}

std::optional<Error> Judge(const KeyMeta& meta, uint32_t chunk, Encoding encoding, uint32_t param,
                           size_t bytes) {
  if (encoding != Encoding::kDense) {
    return Fail(Code::kUnimplemented, "encoding {} is not in protocol {} of {}", NameOf(encoding),
                kProtocolVersion, PackageName());
  }
  if (param != 0) {
    return Fail(Code::kInvalidArgument, "encoding dense with a parameter, {}", param);
  }
  if (bytes != meta.bytes_of(chunk)) {
    return Fail(Code::kFailedPrecondition, "{} bytes of {}, the chunk has {}", bytes,
                Name(meta.dtype), meta.bytes_of(chunk));
  }
  if (bytes > kPartBytesMax) {
    return Fail(Code::kResourceExhausted, "{} bytes for one chunk, at most {} are allowed", bytes,
                kPartBytesMax);
  }
  return std::nullopt;
}

std::optional<Error> Cut(const KeyMeta& meta, Contribution* contribution) {
  auto& ends = contribution->ends;
  const uint32_t count = meta.chunk_count();
  if (contribution->encoding == Encoding::kDense && ends.empty()) {
    ends.resize(count);
    for (uint32_t c = 0; c < count; ++c) {
      const Range range = DenseRange(meta, c);
      ends[c] = range.begin + range.size;
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
