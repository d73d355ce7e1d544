#include "client/ranges.h"

namespace tkv {

codec::Range PulledRange(const KeyMeta& meta, const Operation::Pull& pull, uint32_t chunk) {
  if (!meta.by_rows()) return codec::DenseRange(meta, chunk);
  const size_t begin = chunk == 0 ? 0 : pull.ids.ends[chunk - 1];
  const size_t size = pull.ids.ends[chunk] - begin;
  return {begin / sizeof(uint64_t) * meta.row_bytes(), size / sizeof(uint64_t) * meta.row_bytes()};
}

}  // namespace tkv
