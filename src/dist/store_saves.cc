#include "dist/store_saves.h"

#include <utility>

#include "base/duration.h"
#include "base/format.h"
#include "base/wait.h"

namespace tkv {

bool StoreSaves::IsBusyNow() const {
  return cutting_ != Cutting::kNone || (newest_ != nullptr && !newest_->done());
}

bool StoreSaves::IsBusy() const {
  std::lock_guard lock(mutex_);
  return IsBusyNow();
}

void StoreSaves::AwaitEnd(Awaited awaited, std::chrono::steady_clock::time_point deadline,
                          const StoreOptions& options) {
  const bool all = awaited == Awaited::kAll;
  std::shared_ptr<Saving> saving;
  {
    std::unique_lock lock(mutex_);
    WaitUntil(&lock, &cut_, deadline, options.interrupt, [&] {
      return cutting_ == Cutting::kNone || (!all && cutting_ == Cutting::kForUser);
    });
    if (all || is_automatic_) saving = newest_;
  }
  if (saving != nullptr) saving->WaitUntilDone(options.patience);
}

void StoreSaves::Add(std::shared_ptr<Saving> saving, bool is_automatic) {
  std::lock_guard lock(mutex_);
  newest_ = std::move(saving);
  is_automatic_ = is_automatic;
}

void StoreSaves::Forget(const Saving& saving) {
  std::lock_guard lock(mutex_);
  if (newest_.get() == &saving) newest_ = nullptr;
}

std::shared_ptr<Saving> StoreSaves::TakeNewest(bool* is_automatic) {
  std::lock_guard lock(mutex_);
  *is_automatic = is_automatic_;
  return std::exchange(newest_, nullptr);
}

void StoreSaves::NoteErased() {
  std::lock_guard lock(mutex_);
  has_erased_ = true;
}

bool StoreSaves::has_erased() const {
  std::lock_guard lock(mutex_);
  return has_erased_;
}

CutTurn::CutTurn(std::shared_ptr<StoreSaves> saves, const std::string& verb,
                 StoreSaves::Cutting cutting, const char* whose)
    : saves_(std::move(saves)) {
  std::lock_guard lock(saves_->mutex_);
  if (saves_->IsBusyNow()) {
    throw Fail(Code::kFailedPrecondition,
               "{}: an earlier save or export of {} is under way; begin the next one after it",
               verb, whose);
  }
  saves_->cutting_ = cutting;
}

CutTurn::~CutTurn() {
  std::lock_guard lock(saves_->mutex_);
  saves_->cutting_ = StoreSaves::Cutting::kNone;
  saves_->cut_.notify_all();
}

}  // namespace tkv
