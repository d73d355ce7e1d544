#include "kernels/cuda/launch_table.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/round_up.h"

namespace tkv::kernels::cuda {
namespace {

bool IsAligned(const Entry& entry) {
  const auto is_aligned = [](uint64_t address) { return address % kAlignment == 0; };
  return std::ranges::all_of(entry.pointers, is_aligned) &&
         std::ranges::all_of(entry.more_sources, is_aligned);
}

}  // namespace

uint64_t TilesOf(const Entry& entry) { return (entry.count + kBlockElements - 1) / kBlockElements; }

std::vector<std::byte> BuildTable(const Elementwise& code, std::span<const Entry> entries) {
  const size_t item = ItemSize(code.compute);
  const size_t entries_offset = RoundUp(sizeof(TableHead) + 4 * entries.size(), 8);
  size_t more_offset = entries_offset + entries.size() * EntryBytes(code);
  size_t bytes = more_offset;
  for (const Entry& entry : entries) bytes += 8 * entry.more_sources.size();
  TKV_CHECK(bytes <= UINT32_MAX);
  std::vector<std::byte> table(bytes);
  const auto put = [&](size_t at, const void* data, size_t size) {
    if (size > 0) std::memcpy(table.data() + at, data, size);
  };
  uint64_t tiles = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    TKV_CHECK(entry.pointers.size() == code.pointer_count &&
              entry.scalars.size() == code.scalar_count * item);
    const auto first_tile = static_cast<uint32_t>(tiles);
    put(sizeof(TableHead) + 4 * i, &first_tile, 4);
    tiles += TilesOf(entry);
    const EntryHead head{entry.count, IsAligned(entry),
                         static_cast<uint32_t>(entry.more_sources.size()),
                         static_cast<uint32_t>(more_offset), 0};
    size_t at = entries_offset + i * EntryBytes(code);
    put(at, &head, sizeof(head));
    at += sizeof(head);
    put(at, entry.pointers.data(), 8 * entry.pointers.size());
    at += 8 * entry.pointers.size();
    for (size_t k = 0; k < code.scalar_count; ++k) {
      put(at + 8 * k, entry.scalars.data() + k * item, item);
    }
    put(more_offset, entry.more_sources.data(), 8 * entry.more_sources.size());
    more_offset += 8 * entry.more_sources.size();
  }
  TKV_CHECK(tiles <= INT32_MAX);  // the kernel counts beyond them by the size of its grid
  const TableHead head{static_cast<uint32_t>(entries.size()), static_cast<uint32_t>(tiles),
                       static_cast<uint32_t>(entries_offset), 0};
  put(0, &head, sizeof(head));
  return table;
}

}  // namespace tkv::kernels::cuda
