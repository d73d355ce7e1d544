#include "transport/socket/ready_list.h"

#include <algorithm>
#include <utility>

namespace tkv {

void ReadyList::Arrive(const Readiness& item) noexcept {
  std::lock_guard lock(mutex_);
  --expected_;
  items_.push_back(item);
}

void ReadyList::Add(const Readiness& item) {
  std::lock_guard lock(mutex_);
  Reserve();
  items_.push_back(item);
}

std::optional<Readiness> ReadyList::Take() {
  std::lock_guard lock(mutex_);
  if (next_ == items_.size()) return std::nullopt;
  const Readiness item = items_[next_++];
  if (next_ == items_.size()) {
    items_.clear();
    next_ = 0;
  }
  return item;
}

bool ReadyList::NoteWake() {
  std::lock_guard lock(mutex_);
  return !std::exchange(woken_, true);
}

size_t ReadyList::TakeWake() {
  std::lock_guard lock(mutex_);
  woken_ = false;
  return items_.size() - next_;
}

bool ReadyList::IsIdle() {
  std::lock_guard lock(mutex_);
  return next_ == items_.size() && !woken_;
}

void ReadyList::AddExpected() {
  std::lock_guard lock(mutex_);
  Reserve();
  ++expected_;
}

void ReadyList::RemoveExpected() {
  std::lock_guard lock(mutex_);
  --expected_;
}

// Makes room for one event more than those that are expected.
void ReadyList::Reserve() {
  const size_t needed = expected_ + 1;
  if (items_.capacity() - items_.size() >= needed) return;
  items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(next_));
  next_ = 0;
  if (items_.capacity() - items_.size() >= needed) return;
  items_.reserve(std::max(2 * items_.capacity(), items_.size() + needed));
}

}  // namespace tkv
