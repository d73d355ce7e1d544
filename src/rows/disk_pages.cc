#include "rows/disk_pages.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "rows/row_memory.h"

namespace tkv {
namespace {

constexpr size_t kLookedAt = 256;  // pages that one search for the worst page examines

}  // namespace

size_t DiskPages::memory_bytes() const noexcept {
  size_t bytes = pages_.capacity() * sizeof(Page) +
                 (unused_.capacity() + written_.capacity()) * sizeof(uint32_t);
  for (const Page& page : pages_) bytes += page.memory.size + page.notes.size;
  return bytes;
}

size_t DiskPages::disk_bytes() const noexcept {
  size_t bytes = 0;
  for (const Page& page : pages_) {
    if (page.extent != nullptr) bytes += (size_t{page.stride} + sizeof(uint64_t)) * page.room;
  }
  return bytes;
}

// Frees a page that has no live rows, so that its number can be used again.
void DiskPages::Drop(size_t number) noexcept {
  dead_ -= pages_[number].rows;
  pages_[number] = {};
  try {
    unused_.push_back(static_cast<uint32_t>(number));  // Open has reserved the capacity
  } catch (const std::exception& error) {
    static_cast<void>(error);  // a copy of the table lacks that capacity: the number stays unused
  }
}

void DiskPages::Open(size_t stride, uint64_t rule) {
  Page page;
  page.stride = static_cast<uint32_t>(stride);
  page.rule = rule;
  const size_t bytes = std::min(std::max(page_bytes_, disk_->page_bytes_min()),
                                kPageBytesMin << std::min<size_t>(pages_.size() / 2, 20));
  const size_t row_bytes = stride + sizeof(uint64_t);
  page.room = static_cast<uint32_t>(std::max<size_t>(1, bytes / row_bytes));
  page.memory = NewRowMemory(row_bytes * page.room);
  if (has_notes_) page.notes = NewRowMemory(sizeof(RowNote) * page.room);
  if (unused_.empty()) {
    unused_.reserve(pages_.size() + 1);
    written_.reserve(pages_.size() + 1);
    pages_.push_back(std::move(page));
    open_ = pages_.size() - 1;
  } else {
    open_ = unused_.back();
    unused_.pop_back();
    pages_[open_] = std::move(page);
  }
}

// Cuts the page to the rows that it has.  Makes new memory, because copies may share the old one.
void DiskPages::Shorten(Page* page) const {
  const size_t records = size_t{page->stride} * page->rows;
  const size_t mixes = sizeof(uint64_t) * page->rows;
  const Block memory = NewRowMemory(records + mixes);
  std::memcpy(memory.data, page->memory.data, records);
  std::memcpy(memory.data + records, MixesOf(*page, page->memory.data), mixes);
  if (has_notes_) {
    const Block notes = NewRowMemory(sizeof(RowNote) * page->rows);
    std::memcpy(notes.data, page->notes.data, notes.size);
    page->notes = notes;
  }
  page->memory = memory;
  page->room = page->rows;
}

// Begins to write the open page and closes it.
//   returns  true if the disk has accepted the page, or no row of it was alive
bool DiskPages::Seal() {
  Page& page = pages_[open_];
  if (page.alive == 0) {
    Drop(std::exchange(open_, kNone));
    return true;
  }
  if (page.rows < page.room) Shorten(&page);
  // Pages whose write failed stay in memory, so no further pages are written until the disk works.
  page.extent = is_failing_ ? nullptr : disk_->Write(page.memory);
  if (page.extent == nullptr) return false;
  // An entry of an earlier page with this number.
  std::erase(written_, static_cast<uint32_t>(open_));
  written_.push_back(static_cast<uint32_t>(std::exchange(open_, kNone)));
  return true;
}

std::optional<DiskPages::Room> DiskPages::Put(uint64_t mix, size_t stride, uint64_t rule,
                                              const RowNote* note) {
  if (open_ != kNone) {
    const Page& page = pages_[open_];
    // A page that a copy shares takes no more rows: both tables would write to the same place.
    const bool fits =
        page.stride == stride && page.rule == rule && page.memory.unique() && page.rows < page.room;
    if (!fits && !Seal()) return std::nullopt;
  }
  if (open_ == kNone) Open(stride, rule);
  Page& page = pages_[open_];
  const uint32_t row = page.rows++;
  ++page.alive;
  ++rows_;
  MixesOf(page, page.memory.data)[row] = mix;
  if (has_notes_) page.notes.as<RowNote>()[row] = *note;
  return Room{kBit | uint64_t{open_} << 32 | row, page.memory.data + size_t{row} * page.stride};
}

void DiskPages::Free(uint64_t place) noexcept {
  const size_t number = PageOf(place);
  --rows_;
  ++dead_;
  if (--pages_[number].alive == 0 && number != open_) Drop(number);
}

void DiskPages::Prefetch(uint64_t place, size_t bytes) const noexcept {
  const Page& page = pages_[PageOf(place)];
  if (!page.memory) page.extent->Prefetch(size_t{RowOf(place)} * page.stride, bytes);
}

const std::byte* DiskPages::Read(uint64_t place, size_t bytes, std::byte* scratch) const {
  const Page& page = pages_[PageOf(place)];
  const size_t at = size_t{RowOf(place)} * page.stride;
  if (page.memory) return page.memory.data + at;
  page.extent->Read(at, bytes, scratch);
  return scratch;
}

std::optional<DiskRange> DiskPages::RangeOf(uint64_t place, size_t bytes) const {
  const Page& page = pages_[PageOf(place)];
  if (page.memory) return std::nullopt;
  return DiskRange{page.extent, size_t{RowOf(place)} * page.stride, bytes};
}

void DiskPages::FreeWritten() {
  bool has_written = false, has_failed = false;
  std::erase_if(written_, [&](uint32_t number) {
    Page& page = pages_[number];
    if (page.extent == nullptr) return true;  // the page was dropped, and its number is used again
    if (page.extent->state() == Extent::State::kWritten) {
      page.memory = {};
      has_written = true;
      return true;
    }
    has_failed = has_failed || page.extent->state() == Extent::State::kFailed;
    return false;
  });
  // Set until a write succeeds or no page is left to be written.
  is_failing_ = !has_written && !written_.empty() && (is_failing_ || has_failed);
  if (!has_failed) return;
  for (const uint32_t number : written_) {
    Page& page = pages_[number];
    if (page.extent->state() != Extent::State::kFailed) continue;
    auto again = disk_->Write(page.memory);
    if (again == nullptr) return;
    page.extent = std::move(again);
    if (is_failing_) return;  // one write shows whether the disk works again
  }
}

std::optional<DiskPages::Whole> DiskPages::TakeWorst() {
  if (dead_ <= rows_) return std::nullopt;
  size_t worst = kNone;
  const auto share = [&](size_t number) {
    return static_cast<double>(pages_[number].alive) / pages_[number].rows;
  };
  for (size_t i = 0; i < std::min(kLookedAt, pages_.size()); ++i) {
    const size_t number = next_++ % pages_.size();
    const Page& page = pages_[number];
    if (number == open_ || page.rows == 0 || 2 * size_t{page.alive} > page.rows) continue;
    if (worst == kNone || share(number) < share(worst)) worst = number;
  }
  if (worst == kNone) return std::nullopt;
  const Page& page = pages_[worst];
  Block memory = page.memory;
  if (!memory) {
    memory = NewRowMemory((size_t{page.stride} + sizeof(uint64_t)) * page.room);
    page.extent->Read(0, memory.size, memory.data);
  }
  return Whole{memory,
               page.stride,
               page.rule,
               {MixesOf(page, memory.data), page.rows},
               kBit | uint64_t{worst} << 32};
}

}  // namespace tkv
