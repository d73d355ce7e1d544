#include "dist/save_schedule.h"

#include <filesystem>
#include <utility>

#include "base/format.h"
#include "job/worker.h"
#include "options/save_interval.h"
#include "store/snapshots.h"
#include "tkv/error.h"

namespace tkv {
namespace {

// Returns a path without symbolic links and detours, as far as the folders exist.
std::string CanonicalFolder(const std::string& path) {
  std::error_code failed;
  std::filesystem::path canonical = std::filesystem::weakly_canonical(path, failed);
  if (failed) canonical = std::filesystem::path(path).lexically_normal();
  if (!canonical.has_filename()) canonical = canonical.parent_path();  // it ended with a slash
  return canonical.string();
}

// Returns the absolute path of the folder.
std::string CheckedFolder(const std::string& folder, const std::string& every) {
  if (folder.empty() || every.empty()) {
    throw Fail(Code::kInvalidArgument,
               "create: snapshots='{}', snapshot_every='{}': both are needed", folder, every);
  }
  return AbsolutePath(folder);
}

}  // namespace

SaveClock::SaveClock(const std::string& every, Time now) : last_(now) {
  const std::optional<SaveInterval> interval = SaveIntervalOf(every);
  if (!interval) {
    throw Fail(
        Code::kInvalidArgument,
        "create: snapshot_every='{}': a number of rounds, such as 100, or of seconds, such as "
        "30s, is needed",
        every);
  }
  rounds_ = interval->rounds;
  span_ = static_cast<Time>(interval->seconds) * kSecond;
}

SaveSchedule::SaveSchedule(const std::string& folder, std::string every, Time now)
    : every_(std::move(every)),
      folder_(CheckedFolder(folder, every_)),
      canonical_(CanonicalFolder(folder_)),
      clock_(every_, now) {}

bool SaveSchedule::IsFolder(const std::string& path) const {
  if (path.empty()) return false;
  std::error_code error;
  return CanonicalFolder(AbsolutePath(path)) == canonical_ ||
         std::filesystem::equivalent(path, folder_, error);
}

// ---- the stores ---------------------------------------------------------------------------------

void SaveSchedule::Add(uint32_t number, Member store) {
  std::lock_guard lock(mutex_);
  stores_.emplace(number, std::move(store));
}

void SaveSchedule::Remove(uint32_t number) {
  std::lock_guard lock(mutex_);
  stores_.erase(number);
  is_stale_ = true;
}

bool SaveSchedule::IsUnused() const {
  std::lock_guard lock(mutex_);
  return stores_.empty();
}

std::vector<SavedStore> SaveSchedule::OpenStores() const {
  std::lock_guard lock(mutex_);
  std::vector<SavedStore> open;
  for (const auto& [number, store] : stores_) {
    std::lock_guard store_lock(store.keys->mutex());
    if (store.calls->is_closed()) continue;
    open.push_back({number, store.keys->Records(), store.saves});
  }
  return open;
}

// ---- pushes -------------------------------------------------------------------------------------

void SaveSchedule::Raise(uint64_t rounds) {
  uint64_t most = most_rounds_;
  while (most < rounds && !most_rounds_.compare_exchange_weak(most, rounds)) {
  }
}

void SaveSchedule::GoOnAfter(uint64_t rounds, uint32_t step) {
  Raise(rounds);
  std::lock_guard lock(mutex_);
  steps_.ContinueAfter(step);
  if (rounds > 0) clock_.GoesOn(rounds);
}

bool SaveSchedule::BeginsStep(std::span<const KeyView> keys, const StoreKeys& of, uint32_t step) {
  is_ending_ = false;
  if (is_stale_) RecountRounds();
  const uint64_t most_rounds = most_rounds_;
  std::vector<const KeyRecord*> records;
  bool begins_round = false;  // of a key that has had the most
  {
    std::lock_guard lock(of.mutex());
    for (const KeyView& key : keys) {
      const RecordPtr record = of.Find(key);
      if (record == nullptr) continue;
      records.push_back(record.get());
      begins_round = begins_round || record->rounds() >= most_rounds;
    }
  }
  if (step == 0 && !begins_round) return false;
  std::lock_guard lock(mutex_);
  const bool was_numbered = steps_.has_numbered();
  const bool begins = step > 0 ? steps_.PushNumbered(records, step) : steps_.PushPlain();
  if (begins) CountStep(was_numbered);
  return begins;
}

// A step with numbers counts as one round at least, because an optimizer that was made later may
// make steps that raise no key's rounds above the most.  A step without numbers raises them, unless
// its push has failed.
uint64_t SaveSchedule::RoundsWithStep(uint64_t most, bool is_numbered) const {
  if (!has_begun_) return most;
  return rounds_at_begin_ + std::max<uint64_t>(is_numbered ? 1 : 0, most - most_at_begin_);
}

// Counts the step that has ended, when the next one begins.
void SaveSchedule::CountStep(bool is_numbered) {
  const uint64_t most = most_rounds_;
  rounds_at_begin_ = RoundsWithStep(most, is_numbered);
  most_at_begin_ = most;
  has_begun_ = true;
}

uint64_t SaveSchedule::Rounds() const {
  std::lock_guard lock(mutex_);
  return RoundsWithStep(most_rounds_, steps_.has_numbered());
}

// Counts the rounds of the remaining keys, after a key that may have had the most was removed.
void SaveSchedule::RecountRounds() {
  std::lock_guard lock(mutex_);
  is_stale_ = false;
  uint64_t before = most_rounds_;
  uint64_t most = 0;
  steps_.ForgetNumbers();
  has_begun_ = false;
  for (const auto& [number, store] : stores_) {
    std::lock_guard store_lock(store.keys->mutex());
    most = std::max(most, store.keys->MostRounds());
    for (const RecordPtr& record : store.keys->Records()) {
      steps_.ContinueAfter(std::atomic_ref(record->last_step).load());
    }
  }
  clock_.GoesBack(most);
  // If another thread has raised it meanwhile, the next call counts again.
  if (!most_rounds_.compare_exchange_strong(before, most)) is_stale_ = true;
}

// ---- saves --------------------------------------------------------------------------------------

std::optional<SaveSchedule::Due> SaveSchedule::DueNow() const {
  if (most_rounds_ == 0) return std::nullopt;
  Due due;
  {
    std::lock_guard lock(mutex_);
    due.rounds = rounds_at_begin_;
    if (!clock_.IsDue(due.rounds, NodeThread::Now())) return std::nullopt;
  }
  due.stores = OpenStores();
  const auto is_busy = [](const SavedStore& store) { return store.saves->IsBusy(); };
  if (std::ranges::any_of(due.stores, is_busy)) return std::nullopt;
  return due;
}

bool SaveSchedule::Begin(const Due& due) {
  std::lock_guard lock(mutex_);
  const Time now = NodeThread::Now();
  if (!clock_.IsDue(due.rounds, now)) return false;
  clock_.NoteSaved(due.rounds, now);
  return true;
}

void SaveSchedule::NoteSaved(uint64_t rounds) {
  std::lock_guard lock(mutex_);
  clock_.NoteSaved(rounds, NodeThread::Now());
}

bool SaveSchedule::TakeLookForLacking() {
  std::lock_guard lock(mutex_);
  return !std::exchange(has_looked_, true);
}

bool SaveSchedule::TakeWarningOfUneven() {
  std::lock_guard lock(mutex_);
  return !std::exchange(has_warned_, true);
}

// ---- changes that no count of rounds shows ------------------------------------------------------

void SaveSchedule::NoteErased(uint64_t rounds) {
  if (rounds >= most_rounds_) is_stale_ = true;
}

void SaveSchedule::NoteReplaced() {
  is_ending_ = false;
  std::lock_guard lock(mutex_);
  has_replaced_ = true;
}

bool SaveSchedule::has_replaced() const {
  std::lock_guard lock(mutex_);
  return has_replaced_;
}

void SaveSchedule::NoteLoaded() {
  std::lock_guard lock(mutex_);
  steps_.Reset();
}

void CheckSchedule(const std::string& folder, const std::string& every) {
  if (!folder.empty() || !every.empty()) SaveSchedule(folder, every, 0);
}

std::shared_ptr<SaveSchedule> ScheduleOf(Worker* worker, const std::string& folder,
                                         const std::string& every) {
  if (folder.empty() && every.empty()) return nullptr;
  const auto made = std::make_shared<SaveSchedule>(folder, every, NodeThread::Now());
  Worker::SaveSchedules& all = worker->save_schedules();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<SaveSchedule> schedule =
      all.by_folder.emplace(made->canonical_folder(), made).first->second;
  // The mutex of a schedule must not be taken within this one.
  lock.unlock();
  if (schedule->every() != every && schedule->IsUnused()) {
    lock.lock();
    std::shared_ptr<SaveSchedule>& newest = all.by_folder[made->canonical_folder()];
    if (newest == schedule) newest = made;
    schedule = newest;
    lock.unlock();
  }
  if (schedule->every() != every) {
    throw Fail(Code::kInvalidArgument,
               "create: snapshot_every='{}': another store of this process saves into '{}' every "
               "'{}'; give all of them the same",
               every, folder, schedule->every());
  }
  return schedule;
}

}  // namespace tkv
