#include "dist/saver.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/duration.h"
#include "base/format.h"
#include "base/wait.h"
#include "dist/snapshot_keys.h"
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

}  // namespace

Saver::Saver(std::shared_ptr<Worker> worker, uint32_t number, const StoreOptions& options,
             StoreCalls* calls, StoreKeys* keys, std::shared_ptr<SavingStores> saving_stores,
             std::function<bool()> has_optimizer)
    : worker_(std::move(worker)),
      number_(number),
      options_(options),
      calls_(*calls),
      keys_(*keys),
      saving_stores_(std::move(saving_stores)),
      has_optimizer_(std::move(has_optimizer)) {
  if (saving_stores_ == nullptr) return;
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->stores.emplace(number_, this);
}

void Saver::GoOnAfter(uint64_t rounds, uint32_t step) {
  if (saving_stores_ == nullptr) return;
  saving_stores_->Raise(rounds);
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->last_step = std::max<uint64_t>(saving_stores_->last_step, step);
  if (rounds == 0) return;
  saving_stores_->when.GoesOn(rounds);
}

// Returns the keys of this store, in the order of their init.
Saver::SavedStore Saver::ToSave(const std::string& verb) const {
  const auto lock = keys_.Lock(verb);
  return {number_, keys_.Records(), saves_};
}

// Returns all stores that save into the folder of this one.  Call with the mutex of
// `saving_stores_`.
std::vector<Saver::SavedStore> Saver::AllToSave() const {
  std::vector<SavedStore> all;
  for (const auto& [number, store] : saving_stores_->stores) {
    std::lock_guard lock(store->keys_.mutex());
    if (store->calls_.is_closed()) continue;
    all.push_back({number, store->keys_.Records(), store->saves_});
  }
  return all;
}

// Returns true if the store saves by a schedule into the folder `path`.
bool Saver::IsFolderOfSchedule(const std::string& path) const {
  if (saving_stores_ == nullptr || path.empty()) return false;
  const std::string& folder = saving_stores_->when.folder();
  std::error_code error;
  return PlaceOf(path) == folder || std::filesystem::equivalent(path, folder, error);
}

// Returns the stores of a save that the user asks for, this one among them.
std::vector<Saver::SavedStore> Saver::StoresToSave(const std::string& verb, const std::string& path,
                                                   Parts parts) const {
  std::vector<SavedStore> stores(1, ToSave(verb));
  if (parts == Parts::kAll && IsFolderOfSchedule(path)) {
    std::lock_guard lock(saving_stores_->mutex);
    stores = AllToSave();
  }
  return stores;
}

// Makes the servers keep a version of these keys at their present rounds.  Adds what is kept to
// `outcomes`.
void Saver::CutKeys(const std::string& verb, std::span<const RecordPtr> records,
                    std::chrono::nanoseconds patience, Outcomes* outcomes) {
  if (records.empty()) return;
  const CallPtr call = calls_.New(verb);
  const auto of_operations = std::make_shared<std::map<OpId, Outcome>>();
  call->on_outcome = [of_operations](const Outcome& outcome) {
    of_operations->emplace(outcome.op, outcome);
  };
  std::vector<Operation> operations;
  operations.reserve(records.size());
  for (const RecordPtr& record : records) {
    operations.push_back(calls_.Make(Operation::Cut{}, verb, record.get()));
  }
  worker_->Launch(call, std::move(operations));
  calls_.Await(call, patience);
  for (size_t i = 0; i < records.size(); ++i) {
    outcomes->emplace(records[i], of_operations->at(call->ops[i]));
  }
}

// Makes the servers keep a version of every key at its present round.  Returns null if another rank
// saves.
std::shared_ptr<Saving> Saver::Cut(const std::string& verb, const std::string& path, Parts parts,
                                   std::span<const SavedStore> stores,
                                   std::chrono::nanoseconds patience) {
  bool may_lack_states = parts == Parts::kAll;  // a save of states alone needs some
  {
    const auto lock = keys_.Lock(verb);
    may_lack_states = may_lack_states || has_optimizer_();
  }
  if (!IsSender()) return nullptr;
  auto saving = std::make_shared<Saving>(verb, path, parts, worker_, number_, options_);
  for (const SavedStore& store : stores) saving->AddStore(store.number);
  const auto is_empty = [](const SavedStore& store) { return store.records.empty(); };
  if (std::all_of(stores.begin(), stores.end(), is_empty)) return saving;
  try {
    // Other workers go on pushing to asynchronous keys.  A user may keep the progress of a script
    // in a later store.  Later stores are cut first, so that this progress is never ahead of
    // values.
    Outcomes outcomes;
    std::vector<RecordPtr> synchronous;
    for (auto store = stores.rbegin(); store != stores.rend(); ++store) {
      if (HasAsyncKeys({&*store, 1})) {
        CutKeys(verb, store->records, patience, &outcomes);
      } else {
        synchronous.insert(synchronous.end(), store->records.begin(), store->records.end());
      }
    }
    CutKeys(verb, synchronous, patience, &outcomes);
    std::vector<std::pair<RecordPtr, uint32_t>> records;  // with the numbers of their stores
    for (const SavedStore& store : stores) {
      for (const RecordPtr& record : store.records) records.emplace_back(record, store.number);
    }
    for (const auto& [record, number] : records) {
      const Outcome& outcome = outcomes.at(record);
      const auto& cut = *outcome.As<Outcome::Cut>();
      const uint64_t base = worker_->Ask(&Client::BaseOf, record->name);
      SavedKey key = Named(verb.c_str(), [&] {
        return DescribeKey(record->key, *cut.meta, *cut.states, base + outcome.round, parts);
      });
      key.store = number;
      if (record->mode == KeyMeta::Mode::kSync) {
        key.step = std::atomic_ref(record->last_step).load();
      }
      // Another rank may have set the optimizer, or the key may have its own.
      may_lack_states = may_lack_states || !key.program.text.empty() || !key.own.text.empty();
      saving->Add(std::move(key), {record->name, cut.meta, cut.states});
    }
    Named(verb.c_str(), [&] { CheckHasStates(may_lack_states); });
  } catch (...) {
    saving->Release();
    throw;
  }
  return saving;
}

Saver::CutTurn::CutTurn(std::shared_ptr<Saves> saves, const std::string& verb, Cutting cutting,
                        const char* whose)
    : saves_(std::move(saves)) {
  std::lock_guard lock(saves_->mutex);
  if (saves_->is_busy()) {
    throw Fail(Code::kFailedPrecondition, "{}: an earlier save or export of {} is under way", verb,
               whose);
  }
  saves_->cutting = cutting;
}

Saver::CutTurn::~CutTurn() {
  std::lock_guard lock(saves_->mutex);
  saves_->cutting = Cutting::kNone;
  saves_->cut.notify_all();
}

// Cuts as Cut does.  Servers keep the versions of one worker at a time, so this waits until the
// save or export of another worker has ended.  A save of another worker began when this one was
// dead.
std::shared_ptr<Saving> Saver::CutAfterOthers(const std::string& verb, const std::string& path,
                                              Parts parts, std::span<const SavedStore> stores,
                                              std::chrono::nanoseconds patience) {
  std::optional<std::shared_ptr<Saving>> made;
  std::optional<Error> busy;
  const auto is_made = [&] {
    if (made) return true;
    try {
      made = Cut(verb, path, parts, stores, patience);
    } catch (const Error& error) {
      if (!std::string_view(error.what()).ends_with(kIsSaving)) throw;
      busy = error;
    }
    return made.has_value();
  };
  const auto rest = [](std::chrono::nanoseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  if (!WaitUntil(nullptr, DeadlineAfter(patience), options_.interrupt, is_made, rest)) {
    throw Error(*busy);
  }
  return *made;
}

// Begins a save, the only one of its stores.  Returns null if another rank saves.
//   waits  wait for the save or export of another worker, instead of throwing
std::shared_ptr<Saving> Saver::Begin(const std::string& verb, const std::string& path, Parts parts,
                                     std::span<const SavedStore> stores, Cutting cutting,
                                     bool waits, std::chrono::nanoseconds patience) {
  std::deque<CutTurn> turns;
  // The other stores take part as in a save by the schedule: their own saves wait for this one, and
  // they report no error of it.
  for (const SavedStore& store : stores) {
    if (store.number == number_) {
      turns.emplace_back(store.saves, verb, cutting);
    } else {
      turns.emplace_back(store.saves, verb, Cutting::kByItself,
                         "another store that saves into this folder");
    }
  }
  std::shared_ptr<Saving> saving = waits ? CutAfterOthers(verb, path, parts, stores, patience)
                                         : Cut(verb, path, parts, stores, patience);
  if (saving == nullptr) return nullptr;
  std::unique_lock<std::mutex> lock;
  try {
    lock = keys_.Lock(verb);
  } catch (...) {
    // Another thread has closed the store meanwhile.
    saving->Release();
    throw;
  }
  for (const SavedStore& store : stores) {
    std::lock_guard saves_lock(store.saves->mutex);
    store.saves->saving = saving;
    store.saves->is_auto_saving = cutting == Cutting::kByItself || store.number != number_;
  }
  return saving;
}

std::string Saver::Save(const std::string& verb, const std::string& path, Parts parts) {
  calls_.RaiseUnseen(verb, {});
  AwaitAutoSave();
  const std::vector<SavedStore> stores = StoresToSave(verb, path, parts);
  if (!IsLastSender(verb, kNewsPatience)) return {};
  const uint64_t most_rounds = saving_stores_ == nullptr ? 0 : saving_stores_->most_rounds.load();
  const std::shared_ptr<Saving> saving =
      Begin(verb, path, parts, stores, Cutting::kForUser, true, options_.patience);
  if (saving == nullptr) return {};
  if (parts == Parts::kAll) SpareRepeat(stores, saving.get());
  // The caller receives the error here, so the store must not report it again.
  struct Ended {
    Saves* saves;
    const Saving* saving;
    ~Ended() {
      std::lock_guard lock(saves->mutex);
      if (saves->saving.get() == saving) saves->saving = nullptr;
    }
  } const ended{saves_.get(), saving.get()};
  std::string saved = saving->Run();
  // This snapshot has all that an automatic save would have.
  if (parts == Parts::kAll && IsFolderOfSchedule(path)) saving_stores_->NoteSaved(most_rounds);
  return saved;
}

Ticket Saver::SaveAsync(const std::string& path) {
  calls_.RaiseUnseen("save", {});
  AwaitAutoSave();
  const std::vector<SavedStore> stores = StoresToSave("save", path, Parts::kAll);
  if (!IsLastSender("save", kNewsPatience)) return nullptr;
  const uint64_t most_rounds = saving_stores_ == nullptr ? 0 : saving_stores_->most_rounds.load();
  const std::shared_ptr<Saving> saving =
      Begin("save", PlaceOf(path), Parts::kAll, stores, Cutting::kForUser, true, options_.patience);
  if (saving == nullptr) return nullptr;
  SpareRepeat(stores, saving.get());
  if (IsFolderOfSchedule(path)) {
    saving->OnEnd([saving = saving.get(), stores = saving_stores_, most_rounds] {
      if (!saving->failure()) stores->NoteSaved(most_rounds);
    });
  }
  Saving::Start(saving);
  return saving;
}

// Makes a save of a higher rank write nothing if the newest snapshot is equal.  All ranks may call
// save at the end of a script, and a rank that is late finds the lower ones, which have saved,
// gone.
void Saver::SpareRepeat(std::span<const SavedStore> stores, Saving* saving) const {
  const Rank rank = worker_->Ask(&Client::rank);
  if (rank > 0) saving->OnlyIfNew(true, HasErased(stores), nullptr);
}

bool Saver::HasErased(std::span<const SavedStore> stores) {
  return std::ranges::any_of(stores, [](const SavedStore& store) {
    std::lock_guard lock(store.saves->mutex);
    return store.saves->has_erased;
  });
}

// Returns true if a push begins a step of the training script.
//
// A push with a step number begins one if no push has had this number or a larger one.  A push
// without a number begins one if it gives a key more pushes than any key has.  A script may do both
// in a step, in any order: a step then ends before the next push of the kind that began it.
bool Saver::BeginsStep(std::span<const KeyView> keys, uint32_t step) {
  const uint64_t most_rounds = saving_stores_->most_rounds;
  if (step == 0) {
    std::lock_guard lock(keys_.mutex());
    const auto begins_round = [&](const KeyView& key) {
      const RecordPtr record = keys_.Find(key);
      return record != nullptr && record->rounds() >= most_rounds;
    };
    if (std::none_of(keys.begin(), keys.end(), begins_round)) return false;
  }
  std::lock_guard lock(saving_stores_->mutex);
  if (step > 0) {
    if (step <= saving_stores_->last_step) return false;
    saving_stores_->last_step = step;
  }
  bool& has_mine = step > 0 ? saving_stores_->has_numbered : saving_stores_->has_plain;
  bool& has_other = step > 0 ? saving_stores_->has_plain : saving_stores_->has_numbered;
  const bool begins = has_mine || !has_other;
  if (begins) has_other = false;
  has_mine = true;
  return begins;
}

void Saver::SaveIfDue(std::span<const KeyView> keys, uint32_t step) {
  if (saving_stores_ == nullptr) return;
  saving_stores_->is_ending = false;
  if (saving_stores_->is_stale) RecountRounds();
  if (!BeginsStep(keys, step)) return;
  const uint64_t most_rounds = saving_stores_->most_rounds;
  if (most_rounds == 0) return;
  std::vector<SavedStore> stores;
  {
    std::lock_guard lock(saving_stores_->mutex);
    const Time now = NodeThread::Now();
    if (!saving_stores_->when.IsDue(most_rounds, now)) return;
    stores = AllToSave();
    const auto is_busy = [](const SavedStore& store) {
      std::lock_guard saves_lock(store.saves->mutex);
      return store.saves->is_busy();
    };
    if (std::any_of(stores.begin(), stores.end(), is_busy)) return;
  }
  if (IsUneven(stores)) return;
  {
    std::lock_guard lock(saving_stores_->mutex);
    const Time now = NodeThread::Now();
    if (!saving_stores_->when.IsDue(most_rounds, now)) return;  // another thread has begun it
    saving_stores_->when.NoteSaved(most_rounds, now);
  }
  SaveBeside(stores, options_.patience, SaveWhen::kAlways, nullptr);
}

// Returns true if a key has to be pushed again before a save, and logs that once.
bool Saver::IsUneven(std::span<const SavedStore> stores) {
  RecordPtr uneven;
  try {
    for (const SavedStore& store : stores) {
      if (uneven == nullptr) uneven = calls_.FirstToRepeat("save", store.records);
    }
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // a signal interrupted it
    return true;  // a server is out of reach, so that the save is due again at the next push
  }
  if (uneven == nullptr) return false;
  {
    std::lock_guard lock(saving_stores_->mutex);
    if (std::exchange(saving_stores_->has_told_uneven, true)) return true;
  }
  if (!options_.log) return true;
  options_.log(2, Format("no snapshot is saved by itself until key {} is pushed again: a push of "
                         "this worker, or of its earlier process, has not ended, and parts have it",
                         uneven->key.view().ToString()));
  return true;
}

// Counts the rounds of the remaining keys, after a key that may have had the most was removed.
void Saver::RecountRounds() {
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->is_stale = false;
  uint64_t before = saving_stores_->most_rounds;
  uint64_t most = 0;
  saving_stores_->last_step = 0;
  for (const auto& [number, store] : saving_stores_->stores) {
    std::lock_guard store_lock(store->keys_.mutex());
    most = std::max(most, store->keys_.MostRounds());
    for (const RecordPtr& record : store->keys_.Records()) {
      const uint64_t step = std::atomic_ref(record->last_step).load();
      saving_stores_->last_step = std::max(saving_stores_->last_step, step);
    }
  }
  saving_stores_->when.GoesBack(most);
  // If another thread has raised it meanwhile, the next call counts again.
  if (!saving_stores_->most_rounds.compare_exchange_strong(before, most)) {
    saving_stores_->is_stale = true;
  }
}

void Saver::NoteReplaced() {
  if (saving_stores_ == nullptr) return;
  saving_stores_->is_ending = false;
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->has_replaced = true;
}

void Saver::NoteLoaded() {
  if (saving_stores_ == nullptr) return;
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->last_step = 0;
  saving_stores_->has_numbered = saving_stores_->has_plain = false;
}

// Returns true if pushes of other workers change values without a push of this one.
bool Saver::HasAsyncKeys(std::span<const SavedStore> stores) {
  const auto is_async = [](const RecordPtr& record) {
    return record->mode == KeyMeta::Mode::kAsync;
  };
  return std::any_of(stores.begin(), stores.end(), [&](const SavedStore& store) {
    return std::any_of(store.records.begin(), store.records.end(), is_async);
  });
}

bool Saver::IsSender() const { return worker_->Ask(&Client::IsSender); }

// Returns true if every lower rank has left the job or is dead.  Under `continue` servers complete
// rounds without those, and may know of it before this worker does: it asks the head.
bool Saver::IsLastSender(const std::string& verb, std::chrono::nanoseconds patience) const {
  if (IsSender()) return true;
  const bool may_be_late = worker_->Ask(
      [](const Client& client) { return client.epoch().policy == Epoch::Policy::kContinue; });
  if (!may_be_late) return false;
  try {
    Operation news = calls_.Make(Operation::News{}, verb, nullptr);
    news.patience = Saturated(patience).count();
    calls_.Await(calls_.Start(verb, std::move(news)), patience);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // without a head there is no news
  }
  return IsSender();
}

// Returns the workers of other ranks that have neither left nor died, by their incarnations.
std::set<uint64_t> Saver::LivingOthers() const {
  return worker_->Ask([](const Client& client) {
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

std::exception_ptr Saver::SaveAtEnd() {
  if (saving_stores_ == nullptr) return nullptr;
  if (calls_.is_closed()) return nullptr;
  try {
    AwaitAutoSave();
    // A snapshot without the stores that were closed before must not become the newest one.
    if (saving_stores_->is_ending.exchange(true)) return nullptr;
    if (!IsLastSender("close", options_.server_patience)) return nullptr;
    std::vector<SavedStore> stores;
    {
      std::lock_guard lock(saving_stores_->mutex);
      saving_stores_->when.NoteSaved(saving_stores_->most_rounds, NodeThread::Now());
      stores = AllToSave();
    }
    AwaitSaves(stores);
    // Servers answer at once unless another worker is missing, and close does not wait for a
    // missing worker.
    std::set<uint64_t> others = LivingOthers();
    std::shared_ptr<Saving> saving =
        SaveBeside(stores, options_.server_patience, SaveWhen::kIfNew, nullptr);
    // A worker that leaves while this one writes saves nothing, because this one is the lowest.
    while (saving != nullptr && HasAsyncKeys(stores)) {
      if (auto stopped = AwaitOrStop(saving.get(), options_.patience)) return stopped;
      const std::set<uint64_t> remaining = LivingOthers();
      const bool has_one_left =
          !std::includes(remaining.begin(), remaining.end(), others.begin(), others.end());
      if (saving->failure() || !has_one_left) break;
      others = remaining;
      saving = SaveBeside(stores, options_.server_patience, SaveWhen::kIfNew, saving.get());
    }
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) return std::current_exception();
    if (options_.log) options_.log(2, Format("no snapshot was saved by itself: {}", error.what()));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Logs the keys that the snapshot will lack.  A job that continues from a snapshot has keys before
// its script inits them.  Snapshots before that init lack them.
void Saver::WarnOfLacking(std::span<const SavedStore> stores) {
  if (!options_.log || !worker_->rejoined()) return;
  std::vector<KeyStatus> keys;
  try {
    if (!IsSender()) return;
    {
      std::lock_guard lock(saving_stores_->mutex);
      if (std::exchange(saving_stores_->has_looked, true)) return;
    }
    calls_.CheckOpen("save");
    keys = ListedKeys(
        ListServers(worker_, "save", number_, options_.server_patience, options_.interrupt));
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    // The save itself will report the error.
    return;
  }
  std::set<std::string> saved;  // canonical names
  std::set<uint32_t> numbers;
  for (const SavedStore& store : stores) {
    numbers.insert(store.number);
    for (const RecordPtr& record : store.records) saved.insert(record->name);
  }
  std::string named;
  size_t count = 0;
  for (const KeyStatus& key : keys) {
    // If this worker has opened a store that is not saved here, that store saves elsewhere or not
    // at all.
    const bool is_ours = numbers.contains(key.store) || key.store >= worker_->store_count();
    if (!is_ours || saved.contains(CanonicalKey(key.store, key.key.view()))) continue;
    if (++count <= kNamedMax) {
      named +=
          Format("{}{} of store {}", count > 1 ? ", " : "", key.key.view().ToString(), key.store);
    }
  }
  if (count == 0) return;
  if (count > kNamedMax) named += Format(" and {} more", count - kNamedMax);
  options_.log(2, Format("the servers have keys that this script has not inited, and the snapshot "
                         "will lack them: {}; init all keys before the first push",
                         named));
}

// Starts an automatic save.  A failure becomes a line of the log.
//   earlier  with kIfNew: a save that has ended and has succeeded; null: none
//   returns  null: it has failed, or another rank saves
std::shared_ptr<Saving> Saver::SaveBeside(std::span<const SavedStore> stores,
                                          std::chrono::nanoseconds patience, SaveWhen when,
                                          const Saving* earlier) {
  const auto log_failure = [log = options_.log](const Error& error) {
    if (log) log(2, Format("no snapshot was saved by itself: {}", error.what()));
  };
  try {
    const std::string& folder = saving_stores_->when.folder();
    WarnOfLacking(stores);
    std::shared_ptr<Saving> saving = Begin("save", folder, Parts::kAll, stores, Cutting::kByItself,
                                           when == SaveWhen::kIfNew, patience);
    if (saving == nullptr) return nullptr;
    if (when == SaveWhen::kIfNew) {
      std::lock_guard lock(saving_stores_->mutex);
      saving->OnlyIfNew(saving_stores_->has_replaced, HasErased(stores), earlier);
    }
    saving->OnEnd([log_failure, log = options_.log, folder, saving = saving.get()] {
      if (const auto error = saving->failure()) return log_failure(*error);
      if (!log || saving->saved_path().empty()) return;
      log(1, Format("a snapshot has been saved in {}", folder));
    });
    Saving::Start(saving);
    return saving;
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // a signal interrupted it
    log_failure(error);
    return nullptr;
  }
}

// Waits until an automatic save has ended, so that an explicit save does not fail because of it.
// Waits at most the patience.
void Saver::AwaitAutoSave() {
  std::shared_ptr<Saving> saving;
  {
    std::unique_lock lock(saves_->mutex);
    WaitUntil(&lock, &saves_->cut, DeadlineAfter(options_.patience), options_.interrupt,
              [&] { return saves_->cutting != Cutting::kByItself; });
    if (saves_->is_auto_saving) saving = saves_->saving;
  }
  if (saving != nullptr) saving->WaitUntilDone(options_.patience);
}

// Waits until the saves of these stores have ended, also those that the script has begun.  Waits at
// most the patience.
void Saver::AwaitSaves(std::span<const SavedStore> stores) const {
  const auto deadline = DeadlineAfter(options_.patience);
  for (const SavedStore& store : stores) {
    std::shared_ptr<Saving> saving;
    {
      std::unique_lock lock(store.saves->mutex);
      WaitUntil(&lock, &store.saves->cut, deadline, options_.interrupt,
                [&] { return store.saves->cutting == Cutting::kNone; });
      saving = store.saves->saving;
    }
    if (saving != nullptr) saving->WaitUntilDone(options_.patience);
  }
}

// Takes the save under way, if there is one.  The store takes part in no later automatic save.
//   is_told  set to true if a line of the log reports the end of that save
std::shared_ptr<Saving> Saver::TakeLastSaving(bool* is_told) {
  if (saving_stores_ != nullptr) {
    std::lock_guard lock(saving_stores_->mutex);
    saving_stores_->stores.erase(number_);
    saving_stores_->is_stale = true;
  }
  std::lock_guard lock(saves_->mutex);
  *is_told = saves_->is_auto_saving;
  return std::exchange(saves_->saving, nullptr);
}

void Saver::EndSaving(std::chrono::nanoseconds patience) {
  bool is_told = false;
  const std::shared_ptr<Saving> saving = TakeLastSaving(&is_told);
  if (saving == nullptr) return;
  try {
    saving->WaitUntilDone(patience);
  } catch (...) {
    saving->Stop();
    throw;
  }
  saving->Stop();
  const auto error = saving->Unseen();
  if (error && !is_told) throw Error(*error);
}

std::optional<Error> Saver::EndSavingUnclosed(std::chrono::nanoseconds patience) noexcept {
  bool is_told = false;
  const std::shared_ptr<Saving> saving = TakeLastSaving(&is_told);
  if (saving == nullptr) return std::nullopt;
  try {
    saving->WaitUntilDone(patience);
  } catch (const std::exception& late) {
    // The save is stopped below and then reports that itself.
    static_cast<void>(late);
  }
  saving->Stop();
  return is_told ? std::nullopt : saving->Unseen();
}

}  // namespace tkv
