#include "dist/saver.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/duration.h"
#include "base/format.h"
#include "dist/cut_after_others.h"
#include "job/job_status.h"
#include "store/checks.h"

namespace tkv {
namespace {

constexpr size_t kNamedMax = 5;  // the keys named in one line of the log
// The wait of a save for the head's news of lower ranks.
constexpr std::chrono::seconds kNewsPatience(1);

// Waits until a save has ended.  If the wait fails, stops the save and returns the exception.
std::exception_ptr AwaitOrStop(Saving* saving, std::chrono::nanoseconds patience) {
  try {
    saving->WaitUntilDone(patience);
  } catch (...) {
    saving->Stop();
    return std::current_exception();
  }
  return nullptr;
}

bool HasErased(std::span<const SavedStore> stores) {
  return std::ranges::any_of(stores,
                             [](const SavedStore& store) { return store.saves->has_erased(); });
}

// Returns the keys of the servers that a save of these stores lacks.
//   store_count  the stores that this worker has opened: one that is not saved here saves elsewhere
//                or not at all
std::vector<KeyStatus> LackingKeys(const std::vector<KeyStatus>& keys,
                                   std::span<const SavedStore> stores, uint32_t store_count) {
  std::set<std::string> saved;  // canonical names
  std::set<uint32_t> numbers;
  for (const SavedStore& store : stores) {
    numbers.insert(store.number);
    for (const RecordPtr& record : store.records) saved.insert(record->name);
  }
  std::vector<KeyStatus> lacking;
  for (const KeyStatus& key : keys) {
    const bool is_ours = numbers.contains(key.store) || key.store >= store_count;
    if (is_ours && !saved.contains(CanonicalKey(key.store, key.key.view()))) lacking.push_back(key);
  }
  return lacking;
}

// Returns the names of the first keys, and the number of the others.
std::string NamesOf(std::span<const KeyStatus> keys) {
  std::string names;
  for (const KeyStatus& key : keys.first(std::min(keys.size(), kNamedMax))) {
    if (!names.empty()) names += ", ";
    names += Format("{} of store {}", key.key.view().ToString(), key.store);
  }
  if (keys.size() > kNamedMax) names += Format(" and {} more", keys.size() - kNamedMax);
  return names;
}

}  // namespace

Saver::Saver(StoreCore* core, const ServerUpdater* updater, std::shared_ptr<SaveSchedule> schedule)
    : core_(*core), schedule_(std::move(schedule)), cutter_(core, updater) {
  if (schedule_ != nullptr) schedule_->Add(core_.number, {&core_.keys, &core_.calls, saves_});
}

// ---- saves that the user asks for ---------------------------------------------------------------

// Returns true if the store saves by a schedule into the folder `path`.
bool Saver::IsFolderOfSchedule(const std::string& path) const {
  return schedule_ != nullptr && schedule_->IsFolder(path);
}

// Returns the stores of a save that the user asks for, this one among them.
std::vector<SavedStore> Saver::StoresToSave(const SaveRequest& request) const {
  core_.calls.CheckOpen(request.verb);
  if (request.parts == Parts::kAll && IsFolderOfSchedule(request.path)) {
    return schedule_->OpenStores();
  }
  const auto lock = core_.Lock(request.verb);
  return {{core_.number, core_.keys.Records(), saves_}};
}

// Begins a save, the only one of its stores.  Returns null if another rank saves.
//   waits    wait for the save or export of another worker, instead of throwing
//   prepare  called with the save before the stores know it: if it throws, there is no save
template <typename F>
std::shared_ptr<Saving> Saver::Begin(const SaveRequest& request, StoreSaves::Cutting cutting,
                                     bool waits, F prepare) {
  std::deque<CutTurn> turns;
  // The other stores take part as in a save by the schedule: their own saves wait for this one, and
  // they report no error of it.
  for (const SavedStore& store : request.stores) {
    if (store.number == core_.number) {
      turns.emplace_back(store.saves, request.verb, cutting);
    } else {
      turns.emplace_back(store.saves, request.verb, StoreSaves::Cutting::kByItself,
                         "another store that saves into this folder");
    }
  }
  const auto cut = [&] { return cutter_.Cut(request); };
  std::shared_ptr<Saving> saving =
      waits ? CutAfterOthers(request.patience, core_.options.interrupt, cut) : cut();
  if (saving == nullptr) return nullptr;
  std::unique_lock<std::mutex> lock;
  try {
    prepare(saving.get());
    lock = core_.Lock(request.verb);  // another thread may have closed the store meanwhile
  } catch (...) {
    saving->Release();
    throw;
  }
  for (const SavedStore& store : request.stores) {
    store.saves->Add(saving,
                     cutting == StoreSaves::Cutting::kByItself || store.number != core_.number);
  }
  return saving;
}

// Begins a save that the user asks for.  Returns null if another rank saves.
std::shared_ptr<Saving> Saver::BeginForUser(const std::string& verb, const std::string& path,
                                            Parts parts) {
  core_.calls.RaiseUnseen(verb, {});
  AwaitAutoSave();
  SaveRequest request{verb, path, parts, {}, core_.options.patience};
  request.stores = StoresToSave(request);
  if (!IsLastSender(verb, kNewsPatience)) return nullptr;
  const uint64_t rounds = schedule_ == nullptr ? 0 : schedule_->Rounds();
  return Begin(request, StoreSaves::Cutting::kForUser, true, [&](Saving* saving) {
    if (parts == Parts::kStates) return;
    SpareRepeat(request.stores, saving);
    if (!IsFolderOfSchedule(path)) return;
    // This snapshot has all that an automatic save would have.
    saving->OnEnd([saving, schedule = schedule_, rounds] {
      if (!saving->failure()) schedule->NoteSaved(rounds);
    });
  });
}

std::string Saver::Save(const std::string& verb, const std::string& path, Parts parts) {
  const std::shared_ptr<Saving> saving = BeginForUser(verb, path, parts);
  if (saving == nullptr) return {};
  // The caller receives the error here, so the store must not report it again.
  struct Ended {
    StoreSaves* saves;
    const Saving* saving;
    ~Ended() { saves->Forget(*saving); }
  } const ended{saves_.get(), saving.get()};
  return saving->Run();
}

Ticket Saver::SaveAsync(const std::string& path) {
  const std::shared_ptr<Saving> saving = BeginForUser("save", AbsolutePath(path), Parts::kAll);
  if (saving != nullptr) Saving::Start(saving);
  return saving;
}

// Makes a save of a higher rank write nothing if the newest snapshot is equal.  All ranks may call
// save at the end of a script, and a rank that is late finds the lower ones, which have saved,
// gone.
void Saver::SpareRepeat(std::span<const SavedStore> stores, Saving* saving) const {
  const Rank rank = core_.worker->Ask(&Client::rank);
  if (rank > 0) saving->OnlyIfNew(true, HasErased(stores), nullptr);
}

// Waits until an automatic save has ended, so that an explicit save does not fail because of it.
// Waits at most the patience.
void Saver::AwaitAutoSave() {
  saves_->AwaitEnd(StoreSaves::Awaited::kAutomatic, DeadlineAfter(core_.options.patience),
                   core_.options);
}

// ---- saves by the schedule ----------------------------------------------------------------------

void Saver::SaveIfDue(std::span<const KeyView> keys, uint32_t step) {
  if (schedule_ == nullptr || !schedule_->BeginsStep(keys, core_.keys, step)) return;
  const std::optional<SaveSchedule::Due> due = schedule_->DueNow();
  if (!due || IsUneven(due->stores) || !schedule_->Begin(*due)) return;
  SaveBeside(due->stores, core_.options.patience, SaveWhen::kAlways, nullptr);
}

// Returns true if a key has to be pushed again before a save, and logs that once.
bool Saver::IsUneven(std::span<const SavedStore> stores) {
  RecordPtr uneven;
  try {
    for (const SavedStore& store : stores) {
      if (uneven == nullptr) uneven = core_.calls.FirstToRepeat("save", store.records);
    }
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // a signal interrupted it
    return true;  // a server is out of reach, so that the save is due again at the next push
  }
  if (uneven == nullptr) return false;
  if (!schedule_->TakeWarningOfUneven() || !core_.options.log) return true;
  core_.options.log(
      2, Format("no snapshot is saved by itself until key {} is pushed again: a push of "
                "this worker, or of its earlier process, has not ended, and parts have it",
                uneven->key.view().ToString()));
  return true;
}

// Logs the keys that the snapshot will lack.  A job that continues from a snapshot has keys before
// its script inits them.  Snapshots before that init lack them.
void Saver::WarnOfLacking(std::span<const SavedStore> stores) {
  if (!core_.options.log || !core_.worker->rejoined()) return;
  std::vector<KeyStatus> lacking;
  try {
    if (!core_.worker->Ask(&Client::IsSender) || !schedule_->TakeLookForLacking()) return;
    core_.calls.CheckOpen("save");
    const ServerListings listed = ListServers(
        core_.worker, "save", core_.number, core_.options.server_patience, core_.options.interrupt);
    lacking = LackingKeys(ListedKeys(listed), stores, core_.worker->stores().count());
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    // The save itself will report the error.
    return;
  }
  if (lacking.empty()) return;
  core_.options.log(
      2, Format("the servers have keys that this script has not inited, and the snapshot "
                "will lack them: {}; init all keys before the first push",
                NamesOf(lacking)));
}

// Starts an automatic save.  A failure becomes a line of the log.
//   earlier  with kIfNew: a save that has ended and has succeeded; null: none
//   returns  null: it has failed, or another rank saves
std::shared_ptr<Saving> Saver::SaveBeside(const std::vector<SavedStore>& stores,
                                          std::chrono::nanoseconds patience, SaveWhen when,
                                          const Saving* earlier) {
  const auto log_failure = [log = core_.options.log](const Error& error) {
    if (log) log(2, Format("no snapshot was saved by itself: {}", error.what()));
  };
  try {
    const std::string& folder = schedule_->folder();
    WarnOfLacking(stores);
    const auto prepare = [&](Saving* saving) {
      if (when == SaveWhen::kIfNew) {
        saving->OnlyIfNew(schedule_->has_replaced(), HasErased(stores), earlier);
      }
      saving->OnEnd([log_failure, log = core_.options.log, folder, saving] {
        if (const auto error = saving->failure()) return log_failure(*error);
        if (!log || saving->saved_path().empty()) return;
        log(1, Format("a snapshot has been saved in {}", folder));
      });
    };
    std::shared_ptr<Saving> saving =
        Begin({"save", folder, Parts::kAll, stores, patience}, StoreSaves::Cutting::kByItself,
              when == SaveWhen::kIfNew, prepare);
    if (saving == nullptr) return nullptr;
    Saving::Start(saving);
    return saving;
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // a signal interrupted it
    log_failure(error);
    return nullptr;
  }
}

// ---- the other ranks ----------------------------------------------------------------------------

// Returns true if every lower rank has left the job or is dead.  Under `continue` servers complete
// rounds without those, and may know of it before this worker does: it asks the head.
bool Saver::IsLastSender(const std::string& verb, std::chrono::nanoseconds patience) const {
  if (core_.worker->Ask(&Client::IsSender)) return true;
  const bool may_be_late = core_.worker->Ask(
      [](const Client& client) { return client.epoch().policy == Epoch::Policy::kContinue; });
  if (!may_be_late) return false;
  try {
    Operation news = core_.calls.Make(Operation::NewestEpoch{}, verb, nullptr);
    news.patience = Saturated(patience).count();
    core_.calls.Await(core_.calls.Start(verb, std::move(news)), patience);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // without a head there is no news
  }
  return core_.worker->Ask(&Client::IsSender);
}

// Returns the workers of other ranks that have neither left nor died, by their incarnations.
std::set<uint64_t> Saver::LivingOthers() const {
  return core_.worker->Ask([](const Client& client) {
    std::set<uint64_t> living;
    for (size_t rank = 0; rank < client.epoch().workers.size(); ++rank) {
      const Epoch::Seat& seat = client.epoch().workers[rank];
      if (static_cast<Rank>(rank) != client.rank() && !seat.IsOver()) {
        living.insert(seat.incarnation);
      }
    }
    return living;
  });
}

// ---- the end of the store -----------------------------------------------------------------------

// Starts the last save.  Servers answer at once unless another worker is missing, and close does
// not wait for a missing worker.
std::shared_ptr<Saving> Saver::SaveLast(const std::vector<SavedStore>& stores,
                                        const Saving* earlier) {
  return SaveBeside(stores, core_.options.server_patience, SaveWhen::kIfNew, earlier);
}

// Saves the stores, and for asynchronous keys again for as long as other workers leave meanwhile.
// A worker that leaves while this one writes saves nothing, because this one is the lowest.
//   returns  the error of a wait
std::exception_ptr Saver::SaveUntilNoneLeaves(const std::vector<SavedStore>& stores) {
  std::set<uint64_t> others = LivingOthers();
  std::shared_ptr<Saving> saving = SaveLast(stores, nullptr);
  while (saving != nullptr && HasAsyncKeys(stores)) {
    if (auto stopped = AwaitOrStop(saving.get(), core_.options.patience)) return stopped;
    const std::set<uint64_t> remaining = LivingOthers();
    const bool has_one_left = !std::ranges::includes(remaining, others);
    if (saving->failure() || !has_one_left) break;
    others = remaining;
    saving = SaveLast(stores, saving.get());
  }
  return nullptr;
}

std::exception_ptr Saver::SaveAtEnd() {
  if (schedule_ == nullptr || core_.calls.is_closed()) return nullptr;
  try {
    AwaitAutoSave();
    // A snapshot without the stores that were closed before must not become the newest one.
    if (!schedule_->BeginLast()) return nullptr;
    if (!IsLastSender("close", core_.options.server_patience)) return nullptr;
    schedule_->NoteSaved(schedule_->Rounds());
    const std::vector<SavedStore> stores = schedule_->OpenStores();
    // Wait also for saves that the script has begun.
    const auto deadline = DeadlineAfter(core_.options.patience);
    for (const SavedStore& store : stores) {
      store.saves->AwaitEnd(StoreSaves::Awaited::kAll, deadline, core_.options);
    }
    return SaveUntilNoneLeaves(stores);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) return std::current_exception();
    if (core_.options.log)
      core_.options.log(2, Format("no snapshot was saved by itself: {}", error.what()));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Waits for the save under way, and stops it after the patience.  The store takes part in no later
// automatic save.
//   late     set to the exception of a wait that failed
//   returns  the error of the save, unless a line of the log or its caller has reported it
std::optional<Error> Saver::StopSaving(std::chrono::nanoseconds patience,
                                       std::exception_ptr* late) {
  if (schedule_ != nullptr) schedule_->Remove(core_.number);
  bool is_automatic = false;
  const std::shared_ptr<Saving> saving = saves_->TakeNewest(&is_automatic);
  if (saving == nullptr) return std::nullopt;
  *late = AwaitOrStop(saving.get(), patience);
  if (*late == nullptr) saving->Stop();
  return is_automatic ? std::nullopt : saving->Unseen();
}

void Saver::EndSaving(std::chrono::nanoseconds patience) {
  std::exception_ptr late;
  const std::optional<Error> error = StopSaving(patience, &late);
  if (late != nullptr) std::rethrow_exception(late);
  if (error) throw Error(*error);
}

std::optional<Error> Saver::EndSavingUnclosed(std::chrono::nanoseconds patience) noexcept {
  std::exception_ptr late;  // the stopped save reports it as its own error
  return StopSaving(patience, &late);
}

}  // namespace tkv
