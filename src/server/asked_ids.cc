#include "server/asked_ids.h"

#include "base/format.h"
#include "base/memory_error.h"

namespace tkv {

std::vector<uint64_t> AskedMixes(const Message& pull, const codec::Bucket& bucket,
                                 size_t row_bytes) {
  const size_t bytes = pull.body.size;
  if (bytes % sizeof(uint64_t) != 0) {
    throw Fail(Code::kInvalidArgument, "{} bytes of ids; an id has 8", bytes);
  }
  if (bytes > 0 && !pull.body) {  // Admit refused memory for the ids
    throw Fail(Code::kResourceExhausted, "{} bytes of ids of this worker are too many", bytes);
  }
  const size_t count = bytes / sizeof(uint64_t);
  if (count * row_bytes > kPartBytesMax) {
    throw Fail(Code::kResourceExhausted,
               "{} rows of {} bytes for one chunk, at most {} bytes are allowed", count, row_bytes,
               kPartBytesMax);
  }
  return NamedWhereMemoryEnds("the server", [&] { return codec::MixesOf(bucket, pull.body); });
}

}  // namespace tkv
