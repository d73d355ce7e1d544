#include "job/open_stores.h"

#include "base/format.h"

namespace tkv {

uint32_t OpenStores::Open(int rank) {
  std::lock_guard lock(mutex_);
  if (is_over_) {
    throw Fail(Code::kFailedPrecondition,
               "create: another thread is closing the last store of worker {}; create again when "
               "it has",
               rank);
  }
  open_.insert(count_);
  return count_++;
}

void OpenStores::Observe(uint32_t store) {
  std::lock_guard lock(mutex_);
  open_.insert(store);
}

bool OpenStores::Close(uint32_t store) {
  std::lock_guard lock(mutex_);
  if (open_.erase(store) == 0) return false;
  is_over_ = open_.empty();
  return is_over_;
}

uint32_t OpenStores::count() const {
  std::lock_guard lock(mutex_);
  return count_;
}

bool OpenStores::is_over() const {
  std::lock_guard lock(mutex_);
  return is_over_;
}

void OpenStores::NoteFailedClose(uint32_t store) {
  std::lock_guard lock(mutex_);
  failed_closes_.emplace_back(std::this_thread::get_id(), store);
  has_failed_closes_ = true;
}

std::vector<uint32_t> OpenStores::TakeFailedCloses() {
  std::lock_guard lock(mutex_);
  std::vector<uint32_t> stores;
  for (const auto& [thread, store] : failed_closes_) {
    if (thread == std::this_thread::get_id()) stores.push_back(store);
  }
  std::erase_if(failed_closes_,
                [](const auto& close) { return close.first == std::this_thread::get_id(); });
  has_failed_closes_ = !failed_closes_.empty();
  return stores;
}

}  // namespace tkv
