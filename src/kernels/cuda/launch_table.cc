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

void LaunchTable::Add(const Entry& entry) {
  TKV_CHECK(entry.pointers.size() == pointers_ && entry.scalars.size() == scalars_ * item_bytes_);
  const EntryHead head{entry.count, IsAligned(entry),
                       static_cast<uint32_t>(entry.more_sources.size()),
                       static_cast<uint32_t>(8 * more_sources_.size()), 0};
  size_t at = entries_.size();
  entries_.resize(at + sizeof(head) + 8 * (pointers_ + scalars_));
  const auto put = [&](const void* data, size_t size) {
    if (size > 0) std::memcpy(entries_.data() + at, data, size);
    at += size;
  };
  put(&head, sizeof(head));
  put(entry.pointers.data(), 8 * pointers_);
  for (size_t k = 0; k < scalars_; ++k) {
    put(entry.scalars.data() + k * item_bytes_, item_bytes_);
    at += 8 - item_bytes_;
  }
  more_sources_.insert(more_sources_.end(), entry.more_sources.begin(), entry.more_sources.end());
  first_tiles_.push_back(static_cast<uint32_t>(tiles_));
  tiles_ += TilesOf(entry);
  TKV_CHECK(tiles_ <= INT32_MAX);  // the kernel's counter exceeds this by the size of its grid
}

std::vector<std::byte> LaunchTable::Bytes() const {
  const size_t count = first_tiles_.size();
  const size_t entries_offset = RoundUp(sizeof(TableHead) + 4 * count, 8);
  const size_t more_offset = entries_offset + entries_.size();
  const size_t bytes = more_offset + 8 * more_sources_.size();
  TKV_CHECK(bytes <= UINT32_MAX);
  std::vector<std::byte> table(bytes);
  const auto put = [&](size_t at, const void* data, size_t size) {
    if (size > 0) std::memcpy(table.data() + at, data, size);
  };
  const TableHead head{static_cast<uint32_t>(count), static_cast<uint32_t>(tiles_),
                       static_cast<uint32_t>(entries_offset), 0};
  put(0, &head, sizeof(head));
  put(sizeof(head), first_tiles_.data(), 4 * count);
  put(entries_offset, entries_.data(), entries_.size());
  put(more_offset, more_sources_.data(), 8 * more_sources_.size());
  for (size_t i = 0; i < count; ++i) {  // makes more_offset count from the table's head
    std::byte* const place = table.data() + entries_offset + i * (entries_.size() / count) +
                             offsetof(EntryHead, more_offset);
    uint32_t offset = 0;
    std::memcpy(&offset, place, sizeof(offset));
    offset += static_cast<uint32_t>(more_offset);
    std::memcpy(place, &offset, sizeof(offset));
  }
  return table;
}

}  // namespace tkv::kernels::cuda
