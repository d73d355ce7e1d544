// Contributions: what pushes bring, in an encoding.  An encoding alone knows how a contribution is
// cut into the parts of chunks and how many bytes each has.

#pragma once

#include <optional>

#include "base/small_vector.h"
#include "wire/message.h"

namespace tkv::codec {

struct Contribution {
  Encoding encoding = Encoding::kDense;
  uint32_t param = 0;  // of the encoding
  Bytes bytes;         // read until every part is accepted
  SmallVector<size_t, 1>
      ends;  // chunk c's part is [ends[c - 1], ends[c]); a dense one may have none yet

  Bytes Part(uint32_t chunk) const;
};

// The bytes of a chunk among those of a whole dense array.
struct Range {
  size_t begin = 0, size = 0;
};
Range DenseRange(const KeyMeta& meta, uint32_t chunk);

// What is wrong with a part of a contribution to this chunk; nothing where it may be used.
std::optional<Error> Judge(const KeyMeta& meta, uint32_t chunk, Encoding encoding, uint32_t param,
                           size_t bytes);
// Finds the parts of a contribution to this key, each as a server will judge it.
std::optional<Error> Cut(const KeyMeta& meta, Contribution* contribution);

}  // namespace tkv::codec
