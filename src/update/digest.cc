#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "tkv/ndarray.h"
#include "tkv/ops.h"
#include "update/parallel.h"

namespace tkv {

uint64_t Digest(const NDArray& array) {
  constexpr size_t kSection = size_t{1} << 20;  // bytes; part of the definition
  array.storage()->WaitReadable();
  const NDArray packed = array.Packed().WithContext({});
  packed.storage()->WaitReadable();
  const auto* const data = static_cast<const std::byte*>(packed.HostData());
  const size_t bytes = packed.bytes();
  if (bytes <= kSection) return XXH3_64bits(data, bytes);
  std::vector<uint64_t> digests((bytes + kSection - 1) / kSection);
  ParallelFor(ThreadsFor(0), digests.size(), 1, [&](size_t, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t at = i * kSection;
      digests[i] = XXH3_64bits(data + at, std::min(kSection, bytes - at));
    }
  });
  return XXH3_64bits(digests.data(), digests.size() * sizeof(uint64_t));
}

}  // namespace tkv
