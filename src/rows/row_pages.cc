#include "rows/row_pages.h"

#include <cstring>

#include "base/format.h"
#include "base/round_up.h"
#include "kernels/kernels.h"
#include "rows/row_memory.h"

namespace tkv {
namespace {

constexpr size_t kPageBytesMin = size_t{4} << 10;
constexpr size_t kPageBytesMax = kHugePage;

}  // namespace

RowPages::RowPages(DType dtype, size_t elements, bool has_notes, bool has_names)
    : dtype_(dtype),
      compute_(ComputeType(dtype)),
      elements_(elements),
      row_bytes_(elements * ItemSize(dtype)),
      wide_bytes_(elements * ItemSize(compute_)),
      has_notes_(has_notes),
      has_names_(has_names) {}

size_t RowPages::memory_bytes() const noexcept {
  size_t bytes = pages_.capacity() * sizeof(Page) + free_.capacity() * sizeof(uint64_t);
  for (const Page& page : pages_) bytes += page.memory.size;
  return bytes;
}

uint32_t RowPages::Stride() const {
  const size_t arrays = (has_master_ ? 1 : 0) + state_count_;
  const size_t bytes = MasterAt(row_bytes_) + arrays * RoundUp(wide_bytes_, sizeof(double));
  if (bytes > (size_t{1} << 30)) {
    throw Fail(Code::kResourceExhausted, "a row takes {} bytes with its states, at most 1 GiB",
               bytes);
  }
  return static_cast<uint32_t>(std::max<size_t>(bytes, sizeof(double)));
}

void RowPages::Start(std::byte* record, const std::byte* value) const noexcept {
  if (value != record) std::memcpy(record, value, row_bytes_);
  const RowParts parts = PartsOf(record);
  if (has_master_) kernels::Convert(dtype_, record, compute_, parts.master, elements_);
  if (state_count_ > 0) std::memset(parts.states, 0, state_count_ * parts.state_bytes);
}

RowPages::Page RowPages::NewPage(uint32_t rows) const {
  Page page;
  page.stride = Stride();
  page.rows = rows;
  page.rule = rule_;
  const size_t bytes = (size_t{page.stride} + note_bytes() + name_bytes()) * rows;
  const size_t whole = RoundUp(bytes, kHugePage);
  page.memory = NewRowMemory(whole - bytes <= bytes / 8 ? whole : bytes);
  return page;
}

void RowPages::StartStates(size_t state_count, bool has_master) noexcept {
  state_count_ = state_count;
  has_master_ = has_master && compute_ != dtype_;
  ++rule_;
}

// Copies a page that is shared, or that has the states of an earlier update rule.
void RowPages::MakePageWritable(size_t number) {
  Page& page = pages_[number];
  if (page.checked == batch_) return;
  const bool has_states = page.rule == rule_;
  if (!has_states || !page.memory.unique()) {
    Page fresh = NewPage(page.rows);
    const uint32_t used = number < tail_.page ? page.rows : number == tail_.page ? tail_.row : 0;
    if (has_states) {
      std::memcpy(fresh.memory.data, page.memory.data, size_t{used} * page.stride);
    } else {
      for (size_t row = 0; row < used; ++row) {
        Start(fresh.memory.data + row * fresh.stride, page.memory.data + row * page.stride);
      }
    }
    const auto notes = [](const Page& of) { return of.memory.data + size_t{of.rows} * of.stride; };
    if (has_notes_) std::memcpy(notes(fresh), notes(page), used * sizeof(RowNote));
    if (has_names_) std::memcpy(NamesOf(fresh), NamesOf(page), page.rows * name_bytes());
    page = std::move(fresh);
  }
  page.checked = batch_;
}

RowPages::Taken RowPages::TakePlace() {
  if (!free_.empty()) {
    const uint64_t place = free_.back();
    free_.pop_back();
    return {place, true};
  }
  if (tail_.page < pages_.size() && tail_.row == pages_[tail_.page].rows) {
    tail_ = {tail_.page + 1, 0};
  }
  if (tail_.page == pages_.size()) {
    const size_t bytes = std::min(kPageBytesMax, kPageBytesMin << std::min<size_t>(tail_.page, 20));
    const size_t rows = bytes / BytesPerRow();
    pages_.push_back(NewPage(static_cast<uint32_t>(std::max<size_t>(1, rows))));
  }
  return {uint64_t{tail_.page} << 32 | tail_.row++, false};
}

void RowPages::PutBack(const Taken& taken) noexcept {
  if (taken.is_from_list) {
    free_.push_back(taken.place);
  } else {
    tail_ = {PageOf(taken.place), RowOf(taken.place)};
  }
}

bool RowPages::IsWritable(uint64_t place) noexcept {
  Page& page = pages_[PageOf(place)];
  if (page.checked == batch_) return true;
  if (page.rule != rule_ || !page.memory.unique()) return false;
  page.checked = batch_;
  return true;
}

void RowPages::MakeAllWritable() {
  StartBatch();
  for (size_t i = 0; i < pages_.size(); ++i) MakePageWritable(i);
}

uint64_t RowPages::NextPlace() noexcept {
  const auto end_of = [&](size_t page) {
    return page < tail_.page ? pages_[page].rows : page == tail_.page ? tail_.row : 0;
  };
  while (hand_.row >= end_of(hand_.page)) {
    hand_ = {hand_.page >= tail_.page ? 0 : hand_.page + 1, 0};
  }
  return uint64_t{hand_.page} << 32 | hand_.row++;
}

void RowPages::ReserveFree(size_t count) {
  const size_t most = free_.size() + count;
  if (most > free_.capacity()) free_.reserve(std::max(most, 2 * free_.capacity()));
}

}  // namespace tkv
