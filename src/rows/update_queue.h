// Updates of the rows of a table, which are prefetched before.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/mix.h"
#include "rows/prefetch.h"
#include "rows/row_pages.h"
#include "rows/row_update.h"

namespace tkv {

// A queue of rows to be updated, in the order in which they are added.  If RowUpdate takes one row
// at a time, a row is updated while 16 later ones are being prefetched.  Otherwise a group is
// prefetched and then updated.
class UpdateQueue {
 public:
  UpdateQueue(const RowPages& pages, RowUpdate* update)
      : pages_(pages),
        update_(update),
        group_(update->rows_max()),
        length_(group_ + (group_ == 1 ? kPrefetchedRows : 0)) {}
  // Updates the rows that wait.
  ~UpdateQueue() {
    for (; done_ < added_; done_ += std::min(group_, added_ - done_)) {
      Run(std::min(group_, added_ - done_));
    }
  }
  UpdateQueue(const UpdateQueue&) = delete;
  UpdateQueue& operator=(const UpdateQueue&) = delete;

  // Adds a row and begins to prefetch it.  If the queue is full, updates the first rows before.
  //   sum  the row's sum of gradients; read until the row is updated
  void Add(uint64_t place, uint64_t mix, const void* sum) noexcept {
    if (added_ - done_ == length_) {
      Run(group_);
      done_ += group_;
    }
    const size_t slot = added_++ % length_;
    std::byte* const record = pages_.At(place);
    PrefetchBytes(record, pages_.StrideAt(place));
    parts_[slot] = pages_.PartsOf(record);
    sums_[slot] = sum;
    ids_[slot] = update_->draws() ? Unmix(mix) : 0;
  }

 private:
  void Run(size_t count) noexcept {
    const size_t slot = done_ % length_;
    update_->Run({parts_.data() + slot, count}, sums_.data() + slot, ids_.data() + slot);
  }

  static constexpr size_t kLengthMax = RowUpdate::kRowsMax + kPrefetchedRows;
  const RowPages& pages_;
  RowUpdate* const update_;
  const size_t group_;  // rows that are updated together; contiguous in the queue
  const size_t length_;
  size_t added_ = 0, done_ = 0;
  std::array<RowParts, kLengthMax> parts_;
  std::array<const void*, kLengthMax> sums_;
  std::array<uint64_t, kLengthMax> ids_;
};

}  // namespace tkv
