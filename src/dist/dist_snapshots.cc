// Saving and loading of a distributed store.

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/duration.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "base/wait.h"
#include "dist/dist_store.h"
#include "dist/snapshot_keys.h"
#include "store/checks.h"

namespace tkv {
namespace {

// The bytes that may be on their way to servers.
constexpr size_t kAheadBytes = size_t{64} << 20;
constexpr uint64_t kCandidatesAtOnce = uint64_t{1} << 19;
constexpr size_t kNamedMax = 5;  // the keys named in one line of the log

}  // namespace

// ---- saving -------------------------------------------------------------------------------------

// Returns the keys of this store, in the order of their init.
DistStore::SavedStore DistStore::ToSave(const std::string& verb) const {
  const auto lock = Lock(verb);
  return {number_, keys_.Records(), saves_};
}

// Returns all stores that save into the folder of this one.  Call with the mutex of
// `saving_stores_`.
std::vector<DistStore::SavedStore> DistStore::AllToSave() const {
  std::vector<SavedStore> all;
  for (const auto& [number, store] : saving_stores_->stores) {
    std::lock_guard lock(store->keys_.mutex());
    if (store->calls_.is_closed()) continue;
    all.push_back({number, store->keys_.Records(), store->saves_});
  }
  return all;
}

// Makes the servers keep a version of every key at its present round.  Returns null if another rank
// saves.
std::shared_ptr<Saving> DistStore::Cut(const std::string& verb, const std::string& path,
                                       Parts parts, std::span<const SavedStore> stores,
                                       std::chrono::nanoseconds patience) {
  std::vector<std::pair<RecordPtr, uint32_t>> records;  // with the numbers of their stores
  for (const SavedStore& store : stores) {
    for (const RecordPtr& record : store.records) records.emplace_back(record, store.number);
  }
  bool has_optimizer = parts == Parts::kAll;
  {
    const auto lock = Lock(verb);
    has_optimizer = has_optimizer || optimizer_ != nullptr;
  }
  if (!IsSender()) return nullptr;
  auto saving = std::make_shared<Saving>(verb, path, parts, worker_, number_, options_);
  for (const SavedStore& store : stores) saving->AddStore(store.number);
  if (records.empty()) return saving;
  const CallPtr call = calls_.New(verb);
  const auto outcomes = std::make_shared<std::map<OpId, Outcome>>();
  call->on_outcome = [outcomes](const Outcome& outcome) { outcomes->emplace(outcome.op, outcome); };
  std::vector<Operation> operations;
  operations.reserve(records.size());
  for (const auto& [record, number] : records) {
    operations.push_back(calls_.Make(Operation::Kind::kCut, verb, record.get()));
  }
  try {
    worker_->Launch(call, std::move(operations));
    calls_.Await(call, patience);
    for (size_t i = 0; i < records.size(); ++i) {
      const auto& [record, number] = records[i];
      const Outcome& outcome = outcomes->at(call->ops[i]);
      const uint64_t base =
          worker_->Run([&](ClientNode& node, Time) { return node.client().BaseOf(record->name); });
      SavedKey key = Named(verb.c_str(), [&] {
        return DescribeKey(record->key, *outcome.meta, *outcome.states, base + outcome.round,
                           parts);
      });
      key.store = number;
      // Another rank may have set the optimizer, or the key may have its own.
      has_optimizer = has_optimizer || !key.program.text.empty() || !key.own.text.empty();
      saving->Add(std::move(key), {record->name, outcome.meta, outcome.states});
    }
    Named(verb.c_str(), [&] { CheckHasStates(has_optimizer); });
  } catch (...) {
    saving->Release();
    throw;
  }
  return saving;
}

DistStore::CutTurn::CutTurn(std::shared_ptr<Saves> saves, const std::string& verb, Cutting cutting)
    : saves_(std::move(saves)) {
  std::lock_guard lock(saves_->mutex);
  if (saves_->is_busy()) {
    throw Fail(Code::kFailedPrecondition,
               "{}: an earlier save or export of this store is under way", verb);
  }
  saves_->cutting = cutting;
}

DistStore::CutTurn::~CutTurn() {
  std::lock_guard lock(saves_->mutex);
  saves_->cutting = Cutting::kNone;
  saves_->cut.notify_all();
}

// Begins a save, the only one of its stores.  Returns null if another rank saves.
std::shared_ptr<Saving> DistStore::Begin(const std::string& verb, const std::string& path,
                                         Parts parts, std::span<const SavedStore> stores,
                                         Cutting cutting, std::chrono::nanoseconds patience) {
  std::deque<CutTurn> turns;
  for (const SavedStore& store : stores) turns.emplace_back(store.saves, verb, cutting);
  std::shared_ptr<Saving> saving = Cut(verb, path, parts, stores, patience);
  if (saving == nullptr) return nullptr;
  std::unique_lock<std::mutex> lock;
  try {
    lock = Lock(verb);
  } catch (...) {
    // Another thread has closed the store meanwhile.
    saving->Release();
    throw;
  }
  for (const SavedStore& store : stores) {
    std::lock_guard saves_lock(store.saves->mutex);
    store.saves->saving = saving;
    store.saves->is_auto_saving = cutting == Cutting::kByItself;
  }
  return saving;
}

std::string DistStore::SaveAs(const std::string& verb, const std::string& path, Parts parts) {
  calls_.RaiseUnseen(verb, {});
  AwaitAutoSave();
  const SavedStore store = ToSave(verb);
  const uint64_t most_rounds = saving_stores_ == nullptr ? 0 : saving_stores_->most_rounds.load();
  const std::shared_ptr<Saving> saving =
      Begin(verb, path, parts, std::span(&store, 1), Cutting::kForUser, options_.patience);
  if (saving == nullptr) return {};
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
  if (saving_stores_ != nullptr && PlaceOf(path) == saving_stores_->when.folder()) {
    std::lock_guard lock(saving_stores_->mutex);
    // This snapshot has all that an automatic save would have.
    if (saving_stores_->stores.size() == 1) {
      saving_stores_->when.Begun(most_rounds, NodeThread::Now());
    }
  }
  return saved;
}

Ticket DistStore::SaveAsync(const std::string& path) {
  return calls_.Counted(Verb::kSave, [&]() -> Ticket {
    calls_.RaiseUnseen("save", {});
    AwaitAutoSave();
    const SavedStore store = ToSave("save");
    const std::shared_ptr<Saving> saving =
        Begin("save", PlaceOf(path), Parts::kAll, std::span(&store, 1), Cutting::kForUser,
              options_.patience);
    if (saving == nullptr) return KVStore::DoneTicket();
    Saving::Start(saving);
    return saving;
  });
}

// Starts an automatic save if one is due and this call begins a new round.  Every key is then as
// the step before has left it.  The save includes all stores that save into the same folder.
void DistStore::SaveIfDue(std::span<const KeyView> keys) {
  if (saving_stores_ == nullptr) return;
  NoteWriter();
  if (saving_stores_->is_stale) RecountRounds();
  const uint64_t most_rounds = saving_stores_->most_rounds;
  {
    std::lock_guard lock(keys_.mutex());
    const auto begins_round = [&](const KeyView& key) {
      const RecordPtr record = keys_.Find(key);
      return record != nullptr && record->rounds() >= most_rounds;
    };
    if (most_rounds == 0 || std::none_of(keys.begin(), keys.end(), begins_round)) return;
  }
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
  if (const auto uneven = FirstUneven(stores)) return TellUneven(*uneven);
  {
    std::lock_guard lock(saving_stores_->mutex);
    const Time now = NodeThread::Now();
    if (!saving_stores_->when.IsDue(most_rounds, now)) return;  // another thread has begun it
    saving_stores_->when.Begun(most_rounds, now);
  }
  SaveBeside(stores, options_.patience, SaveWhen::kAlways);
}

// Returns the first key that cannot be saved, because only a part of it has got a push of this
// worker, which has not repeated it yet.
std::optional<Key> DistStore::FirstUneven(std::span<const SavedStore> stores) const {
  return worker_->Run([&](ClientNode& node, Time) -> std::optional<Key> {
    for (const SavedStore& store : stores) {
      for (const RecordPtr& record : store.records) {
        if (node.client().MustRepeat(record->name)) return record->key;
      }
    }
    return std::nullopt;
  });
}

void DistStore::TellUneven(const Key& key) {
  {
    std::lock_guard lock(saving_stores_->mutex);
    if (std::exchange(saving_stores_->has_told_uneven, true)) return;
  }
  if (!options_.log) return;
  options_.log(2, Format("no snapshot is saved by itself until key {} is pushed again: a push of "
                         "this worker, or of its earlier process, has reached only a part of it",
                         key.view().ToString()));
}

// Counts the rounds of the remaining keys, after a key that may have had the most was removed.
void DistStore::RecountRounds() {
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->is_stale = false;
  uint64_t before = saving_stores_->most_rounds;
  uint64_t most = 0;
  for (const auto& [number, store] : saving_stores_->stores) {
    std::lock_guard store_lock(store->keys_.mutex());
    most = std::max(most, store->keys_.MostRounds());
  }
  saving_stores_->when.GoesBack(most);
  // If another thread has raised it meanwhile, the next call counts again.
  if (!saving_stores_->most_rounds.compare_exchange_strong(before, most)) {
    saving_stores_->is_stale = true;
  }
}

// Notes if this worker has the lowest living rank: such a worker saves on close.
void DistStore::NoteWriter() {
  {
    std::lock_guard lock(saving_stores_->mutex);
    if (saving_stores_->is_writer) return;
  }
  if (!IsSender()) return;
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->is_writer = true;
}

// Notes that an assign or the load of a snapshot has replaced values, unless the snapshot is in
// this folder.
void DistStore::NoteAssigned(const std::string& snapshot) {
  if (saving_stores_ == nullptr) return;
  std::error_code error;
  const auto folder = std::filesystem::path(snapshot).parent_path();
  if (std::filesystem::equivalent(folder, saving_stores_->when.folder(), error)) return;
  std::lock_guard lock(saving_stores_->mutex);
  saving_stores_->has_assigned = true;
}

bool DistStore::IsSender() const {
  return worker_->Run([](ClientNode& node, Time) { return node.client().IsSender(); });
}

// Returns true if a worker of a lower rank is dead, so that its last rounds may not be saved.
bool DistStore::FollowsTheDead() const {
  return worker_->Run([](ClientNode& node, Time) {
    const Client& client = node.client();
    const auto& workers = client.epoch().workers;
    return std::any_of(workers.begin(), workers.begin() + client.rank(),
                       [](const Epoch::Seat& seat) { return seat.IsDead(); });
  });
}

// Saves everything that no snapshot has, before the first store of the folder is closed.
// The lowest rank does so.  The next one does it again only if it has pushed since, or if that rank
// has died.  CloseAs waits until all is written.
//   returns  the exception of an interrupt, which ends the wait but not the close
std::exception_ptr DistStore::SaveAtEnd() {
  if (saving_stores_ == nullptr) return nullptr;
  if (calls_.is_closed()) return nullptr;
  try {
    AwaitAutoSave();
    const bool follows_the_dead = FollowsTheDead();
    std::vector<SavedStore> stores;
    {
      std::lock_guard lock(saving_stores_->mutex);
      if (!saving_stores_->is_writer && !follows_the_dead) return nullptr;
      saving_stores_->when.Begun(saving_stores_->most_rounds, NodeThread::Now());
      stores = AllToSave();
    }
    // Servers answer at once unless another worker is missing, and close does not wait for a
    // missing worker.
    SaveBeside(stores, options_.server_patience, SaveWhen::kIfNew);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) return std::current_exception();
    if (options_.log) options_.log(2, Format("no snapshot was saved by itself: {}", error.what()));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Logs the keys that the snapshot will lack.  A job that continues from a snapshot has keys before
// its script inits them.  Keys that are not inited before the first save are in no snapshot of the
// store.
void DistStore::WarnOfLacking(std::span<const SavedStore> stores) {
  if (!options_.log || !worker_->rejoined()) return;
  std::vector<KeyStatus> keys;
  try {
    if (!IsSender()) return;
    {
      std::lock_guard lock(saving_stores_->mutex);
      if (std::exchange(saving_stores_->has_looked, true)) return;
    }
    keys = ListedKeys(ListAll("save"));
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
void DistStore::SaveBeside(std::span<const SavedStore> stores, std::chrono::nanoseconds patience,
                           SaveWhen when) {
  const auto log_failure = [log = options_.log](const Error& error) {
    if (log) log(2, Format("no snapshot was saved by itself: {}", error.what()));
  };
  try {
    const std::string& folder = saving_stores_->when.folder();
    WarnOfLacking(stores);
    const std::shared_ptr<Saving> saving =
        Begin("save", folder, Parts::kAll, stores, Cutting::kByItself, patience);
    bool has_assigned = false;
    {
      std::lock_guard lock(saving_stores_->mutex);
      saving_stores_->is_writer = saving != nullptr;
      has_assigned = std::exchange(saving_stores_->has_assigned, false);
    }
    if (saving == nullptr) return;
    if (when == SaveWhen::kIfNew && !has_assigned && saving->IsInNewest()) return saving->Skip();
    saving->OnEnd([log_failure, log = options_.log, folder, saving = saving.get()] {
      if (const auto error = saving->failure()) return log_failure(*error);
      if (log) log(1, Format("a snapshot has been saved in {}", folder));
    });
    Saving::Start(saving);
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;  // a signal interrupted it
    log_failure(error);
  }
}

// Waits until an automatic save has ended, so that an explicit save never fails because one is
// running.
void DistStore::AwaitAutoSave() {
  std::shared_ptr<Saving> saving;
  {
    std::unique_lock lock(saves_->mutex);
    WaitUntil(&lock, &saves_->cut, DeadlineAfter(options_.patience), options_.interrupt,
              [&] { return saves_->cutting != Cutting::kByItself; });
    if (saves_->is_auto_saving) saving = saves_->saving;
  }
  if (saving != nullptr) saving->WaitUntilDone(options_.patience);
}

// Takes the save under way, if there is one.  The store takes part in no later automatic save.
//   is_told  set to true if a line of the log reports the end of that save
std::shared_ptr<Saving> DistStore::TakeLastSaving(bool* is_told) {
  if (saving_stores_ != nullptr) {
    std::lock_guard lock(saving_stores_->mutex);
    saving_stores_->stores.erase(number_);
    saving_stores_->is_stale = true;
  }
  std::lock_guard lock(saves_->mutex);
  *is_told = saves_->is_auto_saving;
  return std::exchange(saves_->saving, nullptr);
}

// Waits for a save under way, at most so long, and stops it if it takes longer.
void DistStore::EndSaving(std::chrono::nanoseconds patience) {
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

// Ends a save as EndSaving does, for a store that is dropped.  An error that nobody has received
// becomes a line of the log.
void DistStore::EndSavingUnclosed(std::chrono::nanoseconds patience) noexcept {
  bool is_told = false;
  const std::shared_ptr<Saving> saving = TakeLastSaving(&is_told);
  if (saving == nullptr) return;
  try {
    saving->WaitUntilDone(patience);
  } catch (const std::exception& late) {
    // The save is stopped below and then reports that itself.
    static_cast<void>(late);
  }
  saving->Stop();
  const auto error = saving->Unseen();
  if (!error || is_told || !options_.log) return;
  options_.log(2, Format("a store was dropped without close() while it saved, and there is no "
                         "snapshot: {}",
                         error->what()));
}

// ---- loading ------------------------------------------------------------------------------------

// The keys to load, and their places in a snapshot.
struct DistStore::Loading {
  std::vector<RecordPtr> records;
  Meeting meeting{.task = "reads the snapshot", .verb = "load"};
  // This member and the next ones are set only on the rank that reads.
  std::optional<checkpoint::Reader> reader;
  std::vector<KeyMeta> metas;
  std::vector<size_t> matches;
};

// Runs f, and waits until every worker has done so.  An error of one worker is the error of all,
// and the worker whose f fails waits for no other.  An interrupt and a lack of memory count, too.
// If the worker with the task dies on the way, all others receive an error that names the undone
// work.
template <typename F>
void DistStore::Meet(const std::string& verb, const Meeting& meeting, const char* left, F f) {
  using Task = Operation::Task;
  try {
    f();
  } catch (...) {
    // Wait until the error is accepted.  Otherwise this worker could leave the job before the
    // others learn the reason.
    const CallPtr told = StartBarrier(verb, ErrorNow(verb));
    worker_->GoOn();
    try {
      told->WaitAccepted(options_.server_patience);
    } catch (const Error& unheard) {
      static_cast<void>(unheard);  // the others end by their own patience
    }
    throw;
  }
  if (meeting.worker.first == rank()) {
    return calls_.Await(StartBarrier(verb, {}, Task::kDone));
  }
  const Error undone = Fail(Code::kAborted,
                            "worker {}, which {}, has not ended the {}: it is dead, or has called "
                            "something else; {}: {} again, on every rank that lives",
                            meeting.worker.first, meeting.task, meeting.verb, left, verb);
  try {
    calls_.Await(StartBarrier(verb, undone, Task::kOfAnother));
  } catch (const Error& error) {
    if (error.code() == Code::kAborted) AwaitEndOf(meeting);
    throw;
  }
}

// Waits until this worker also knows of the death of the worker with the task.  Servers may learn
// of it earlier.  Without this wait, the worker would not know that the next turn to read is its
// own.
void DistStore::AwaitEndOf(const Meeting& meeting) {
  constexpr std::chrono::milliseconds kStep(1);
  const auto is_over = [&] {
    return worker_->Run([&](ClientNode& node, Time) {
      return node.client().Sender() != meeting.worker || node.client().closed();
    });
  };
  worker_->GoOn();
  WaitUntil(nullptr, DeadlineAfter(options_.server_patience), options_.interrupt, is_over,
            [&](std::chrono::nanoseconds) { std::this_thread::sleep_for(kStep); });
}

// Returns the own optimizer of a key.  Another rank may have set it.
static std::shared_ptr<const Optimizer> OwnOf(const KeyRecord& record, const KeyMeta& meta) {
  if (record.own || !meta.own) return record.own;
  return std::make_shared<const Optimizer>(Program::Parse(meta.own->program),
                                           meta.own->multi_precision, meta.own->lazy);
}

// Opens the snapshot and checks all of it before anything changes.
void DistStore::OpenFor(const std::string& verb, const std::string& path, Parts parts,
                        Loading* loading) {
  calls_.RaiseUnseen(verb, {});
  std::shared_ptr<const Optimizer> optimizer;
  {
    const auto lock = Lock(verb);
    loading->records = keys_.Records();
    optimizer = optimizer_;
  }
  loading->meeting.worker =
      worker_->Run([](ClientNode& node, Time) { return node.client().Sender(); });
  if (loading->meeting.worker.first != rank()) return;
  Named(verb.c_str(), [&] {
    loading->reader.emplace(OpenSnapshot(path, number_, options_));
    CheckNoUpdaterStates(*loading->reader);
    std::vector<LoadedKey> keys;
    for (const RecordPtr& record : loading->records) {
      const auto meta =
          worker_->Run([&](ClientNode& node, Time) { return node.client().MetaOf(record->name); });
      if (!meta) {
        throw Fail(Code::kNotFound, "key {}: no such key", record->key.view().ToString());
      }
      keys.push_back({record->key, meta->shape, meta->dtype, meta->chunk_count(), meta->by_rows(),
                      meta->row_count, meta->initializer, OwnOf(*record, *meta)});
      loading->metas.push_back(*meta);
    }
    loading->matches = MatchKeys(*loading->reader, keys, optimizer.get(), parts);
  });
}

void DistStore::PutBack(const std::string& verb, Parts parts, const Loading& loading) {
  std::deque<std::pair<CallPtr, size_t>> under_way;
  size_t bytes_ahead = 0;
  bool has_begun = false;
  const auto wait_for_first = [&] {
    const auto [call, bytes] = under_way.front();
    under_way.pop_front();
    calls_.Await(call);
    bytes_ahead -= bytes;
  };
  const auto in_part = [&](const Error& error) {
    return Fail(error.code(),
                "{}; some keys have been put back and others not: {} again, on every rank, before "
                "anything is pulled, or start the job again",
                error.what(), verb);
  };
  try {
    using Restoring = Operation::Restoring;
    const auto put_back = [&](size_t i, RestoredKey restored, Restoring restoring) {
      const RecordPtr& record = loading.records[i];
      Operation restore = calls_.Make(Operation::Kind::kRestore, verb, record.get());
      restore.states = std::make_shared<const std::vector<ChunkState>>(std::move(restored.states));
      restore.value.bytes = MemoryOf(restored.body);
      restore.round = loading.reader->keys()[loading.matches[i]].round;
      restore.value.ends = std::move(restored.ends);
      restore.restoring = restoring;
      const CallPtr call = calls_.New(verb);
      call->keys.push_back(record);
      call->sources.push_back(restore.value.bytes);
      under_way.emplace_back(call, restore.value.bytes.size);
      bytes_ahead += restore.value.bytes.size;
      std::vector<Operation> operations;
      operations.push_back(std::move(restore));
      has_begun = true;
      worker_->Launch(call, std::move(operations));
      while (bytes_ahead > kAheadBytes) wait_for_first();
    };
    for (size_t i = 0; i < loading.matches.size(); ++i) {
      const size_t match = loading.matches[i];
      const KeyMeta& meta = loading.metas[i];
      if (!meta.by_rows()) {
        put_back(i, GatherValue(*loading.reader, match, meta, parts), Restoring::kAll);
        continue;
      }
      const SavedKey& saved = loading.reader->keys()[match];
      const uint64_t at_once = RowsAtOnce(saved, meta, parts);
      uint64_t first = 0;
      // The first part goes to every bucket, even if a bucket gets no rows.
      do {
        const uint64_t count = std::min(at_once, saved.rows - first);
        put_back(i, GatherRows(*loading.reader, match, meta, parts, false, first, count),
                 first > 0 ? Restoring::kMore : Restoring::kAll);
        first += count;
      } while (first < saved.rows);
      const uint64_t candidates = parts == Parts::kAll ? saved.candidates : 0;
      for (first = 0; first < candidates; first += kCandidatesAtOnce) {
        const uint64_t count = std::min(kCandidatesAtOnce, candidates - first);
        put_back(i, GatherRows(*loading.reader, match, meta, parts, true, first, count),
                 Restoring::kMore);
      }
    }
    while (!under_way.empty()) wait_for_first();
  } catch (const Error& error) {
    if (!has_begun) throw;
    throw in_part(error);
  } catch (const std::bad_alloc&) {
    if (!has_begun) throw;
    throw in_part(ErrorNow(verb));
  }
}

// Loads between two barriers.  No worker has then begun a round on the old values, and none reads
// before all values are loaded.
KVStore::SnapshotInfo DistStore::LoadAs(const std::string& verb, const std::string& path,
                                        Parts parts) {
  // The other workers go on and would not come to the barriers.
  if (worker_->rejoined()) {
    throw Fail(Code::kFailedPrecondition,
               "{} {}: this rank has lived before in this job, because it was started again or a "
               "snapshot was restored before its script began; values and states are on the "
               "servers, and `round` says where they are",
               verb, path);
  }
  Loading loading;
  Meet(verb, loading.meeting, "nothing has been put back",
       [&] { OpenFor(verb, path, parts, &loading); });
  Meet(verb, loading.meeting, "some keys may have been put back and others not",
       [&] { PutBack(verb, parts, loading); });
  // Residuals belong to pushes after the snapshot.
  if (parts == Parts::kAll) {
    const auto lock = Lock(verb);
    for (const RecordPtr& record : loading.records) record->residual = nullptr;
  }
  SnapshotInfo info;
  if (loading.reader) info.path = loading.reader->path();
  NoteAssigned(info.path);
  if (loading.records.empty()) return info;
  const CallPtr call = calls_.New(verb);
  std::vector<Operation> operations;
  operations.reserve(loading.records.size());
  for (const RecordPtr& record : loading.records) {
    operations.push_back(calls_.Make(Operation::Kind::kFindBase, verb, record.get()));
  }
  worker_->Launch(call, std::move(operations));
  calls_.Await(call);
  for (const RecordPtr& record : loading.records) {
    info.rounds.emplace_back(record->key, Round(record->key.view()));
  }
  return info;
}

// ---- assigning ----------------------------------------------------------------------------------

void DistStore::SendValues(const std::string& verb, std::span<const InitItem> items,
                           const std::vector<RecordPtr>& records) {
  std::vector<Operation> operations;
  const CallPtr call = calls_.New(verb);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto meta = worker_->Run(
        [&](ClientNode& node, Time) { return node.client().MetaOf(records[i]->name); });
    if (!meta) throw Fail(Code::kNotFound, "{} {}: no such key", verb, items[i].key.ToString());
    const NDArray* const values[] = {items[i].value};
    Operation assign = calls_.Make(Operation::Kind::kRestore, verb, records[i].get());
    assign.value.bytes = MemoryOf(AllOnHost(verb, items[i].key, values)[0].Packed());
    size_t end = 0;
    for (uint32_t c = 0; c < meta->chunk_count(); ++c) {
      assign.value.ends.push_back(end += meta->elements_of(c) * ItemSize(meta->dtype));
    }
    assign.states = std::make_shared<const std::vector<ChunkState>>(meta->chunk_count());
    assign.restoring = Operation::Restoring::kOnlyValue;
    call->keys.push_back(records[i]);
    call->sources.push_back(assign.value.bytes);
    operations.push_back(std::move(assign));
  }
  worker_->Launch(call, std::move(operations));
  calls_.Await(call);
}

// Throws if this incarnation of a worker that was started again has pushed nothing yet.  Its script
// may be at its beginning, and the others do not come to the barriers.
void DistStore::CheckHasPushed(const std::string& verb) {
  const auto lock = Lock(verb);
  const auto is_pushed = [](const RecordPtr& record) { return record->pushes > 0; };
  if (std::ranges::any_of(keys_.Records(), is_pushed)) return;
  throw Fail(
      Code::kFailedPrecondition,
      "{}: this rank has lived before in this job, because it was started again or a snapshot was "
      "restored before its script began, and has pushed nothing since; the values on the servers "
      "count until its first push",
      verb);
}

// Throws if only a part of the key has got a push of this worker, which has not repeated it yet.
// Otherwise only a part of the key would be updated after the assignment.
void DistStore::CheckEven(const std::string& verb, const KeyRecord& record) {
  const auto why = worker_->Run([&](ClientNode& node, Time) -> std::optional<Error> {
    const Client& client = node.client();
    if (!client.MustRepeat(record.name)) return std::nullopt;
    return Client::Uneven(client.PushedOf(record.name));
  });
  if (why) NamingKey(verb, record.key.view(), [&] { throw Error(*why); });
}

// Assigns between two barriers, as a load.  No worker has begun a round on the old values, and none
// reads before all keys have the new ones.
void DistStore::AssignAs(const std::string& verb, std::span<const InitItem> items) {
  if (worker_->rejoined()) CheckHasPushed(verb);
  std::vector<RecordPtr> records;
  Meeting meeting{.task = "gives the values", .verb = "assign"};
  Meet(verb, meeting, "nothing has been assigned", [&] {
    const AssignedValues given(verb, items);
    calls_.RaiseUnseen(verb, KeysOf(items));
    {
      const auto lock = Lock(verb);
      for (const PushItem& item : given.items()) {
        const RecordPtr record = keys_.Get(verb, item.key);
        CheckAssignable(verb, item.key, record->info.by_rows);
        CheckValues(verb, item, record->info.shape, record->info.dtype);
        records.push_back(record);
      }
    }
    for (const RecordPtr& record : records) CheckEven(verb, *record);
    meeting.worker = worker_->Run([](ClientNode& node, Time) { return node.client().Sender(); });
  });
  Meet(verb, meeting, "some keys may have been assigned and others not", [&] {
    if (meeting.worker.first == rank()) SendValues(verb, items, records);
  });
  NoteAssigned({});
}

}  // namespace tkv
