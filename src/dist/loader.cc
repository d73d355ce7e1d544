#include "dist/loader.h"

#include <algorithm>
#include <atomic>
#include <deque>

#include "base/format.h"
#include "base/memory_error.h"
#include "dist/snapshot_keys.h"
#include "store/checks.h"

namespace tkv {
namespace {

// The bytes that may be on their way to servers.
constexpr size_t kAheadBytes = size_t{64} << 20;
constexpr uint64_t kCandidatesAtOnce = uint64_t{1} << 19;

// Returns the own optimizer of a key.  Another rank may have set it.
std::shared_ptr<const Optimizer> OwnOf(const KeyRecord& record, const KeyMeta& meta) {
  if (record.own || !meta.own) return record.own;
  return std::make_shared<const Optimizer>(Program::Parse(meta.own->program),
                                           meta.own->multi_precision, meta.own->lazy);
}

}  // namespace

// The keys to load, and their positions in a snapshot.
struct Loader::Loading {
  std::vector<RecordPtr> records;
  Meeting meeting{.task = "reads the snapshot", .verb = "load"};
  // This member and the next ones are set only on the rank that reads.
  std::optional<checkpoint::Reader> reader;
  std::vector<KeyMeta> metas;
  std::vector<size_t> matches;
};

// Collects the keys to load.  The rank that reads also opens the snapshot and verifies all of it,
// unless a restore has.
void Loader::OpenFor(const std::string& verb, const std::string& path, Parts parts,
                     Loading* loading) {
  core_.calls.RaiseUnseen(verb, {});
  std::shared_ptr<const Optimizer> optimizer;
  {
    const auto lock = core_.Lock(verb);
    loading->records = core_.keys.Records();
    optimizer = updater_.optimizer();
    if (verified_ && verified_->first == path) loading->reader = std::move(verified_->second);
    verified_.reset();
  }
  CheckEven(verb, loading->records);
  loading->meeting.worker = core_.worker->Ask(&Client::SnapshotReader);
  if (loading->meeting.worker.first != core_.worker->rank()) {
    loading->reader.reset();
    return;
  }
  Named(verb.c_str(), [&] {
    if (!loading->reader) loading->reader.emplace(OpenSnapshot(path, core_.number, core_.options));
    CheckNoUpdaterStates(*loading->reader);
    std::vector<LoadedKey> keys;
    for (const RecordPtr& record : loading->records) {
      const auto meta = core_.worker->Ask(&Client::MetaOf, record->name);
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

// Sends the parts of keys to the servers, with a bounded number of bytes on their way.
class Loader::Restores {
 public:
  Restores(StoreCore* core, const std::string& verb) : core_(*core), verb_(verb) {}

  bool has_begun() const { return has_begun_; }
  // Sends a part.
  //   blocks  while too many bytes are on their way
  void Send(const RecordPtr& record, Operation::Restore part) {
    const Bytes bytes = part.value.bytes;
    const CallPtr call = core_.calls.New(verb_);
    call->keys.push_back(record);
    call->sources.push_back(bytes);
    under_way_.emplace_back(call, bytes.size);
    bytes_ahead_ += bytes.size;
    std::vector<Operation> operations;
    operations.push_back(core_.calls.Make(std::move(part), verb_, record.get()));
    has_begun_ = true;
    core_.worker->calls().Launch(call, std::move(operations));
    while (bytes_ahead_ > kAheadBytes) AwaitFirst();
  }
  void AwaitAll() {
    while (!under_way_.empty()) AwaitFirst();
  }

 private:
  void AwaitFirst() {
    const auto [call, bytes] = under_way_.front();
    under_way_.pop_front();
    core_.calls.Await(call);
    bytes_ahead_ -= bytes;
  }

  StoreCore& core_;
  const std::string& verb_;
  std::deque<std::pair<CallPtr, size_t>> under_way_;
  size_t bytes_ahead_ = 0;
  bool has_begun_ = false;
};

// Sends one key of the snapshot.
void Loader::PutBackKey(size_t number, Parts parts, const Loading& loading, Restores* restores) {
  using Extent = Operation::Restore::Extent;
  const size_t match = loading.matches[number];
  const SavedKey& saved = loading.reader->keys()[match];
  const KeyMeta& meta = loading.metas[number];
  const auto send = [&](RestoredKey restored, Extent extent) {
    Operation::Restore restore;
    restore.states = std::make_shared<const std::vector<ChunkState>>(std::move(restored.states));
    restore.value.bytes = MemoryOf(restored.body);
    restore.round = saved.round;
    restore.value.ends = std::move(restored.ends);
    restore.extent = extent;
    if (parts == Parts::kAll) restore.step = {saved.step, 0};
    restores->Send(loading.records[number], std::move(restore));
  };
  if (!meta.by_rows()) {
    return send(GatherValue(*loading.reader, match, meta, parts), Extent::kAll);
  }
  const uint64_t at_once = RowsAtOnce(saved, meta, parts);
  uint64_t first = 0;
  // The first part goes to every bucket, even if a bucket gets no rows.
  do {
    const uint64_t count = std::min(at_once, saved.rows - first);
    send(GatherRows(*loading.reader, match, meta, parts, false, first, count),
         first > 0 ? Extent::kMore : Extent::kAll);
    first += count;
  } while (first < saved.rows);
  const uint64_t candidates = parts == Parts::kAll ? saved.candidates : 0;
  for (first = 0; first < candidates; first += kCandidatesAtOnce) {
    const uint64_t count = std::min(kCandidatesAtOnce, candidates - first);
    send(GatherRows(*loading.reader, match, meta, parts, true, first, count), Extent::kMore);
  }
}

void Loader::PutBack(const std::string& verb, Parts parts, const Loading& loading) {
  Restores restores(&core_, verb);
  const auto in_part = [&](const Error& error) {
    return Fail(error.code(),
                "{}; some keys have been put back and others not: {} again, on every rank, before "
                "anything is pulled, or start the job again",
                error.what(), verb);
  };
  try {
    for (size_t i = 0; i < loading.matches.size(); ++i) PutBackKey(i, parts, loading, &restores);
    restores.AwaitAll();
  } catch (const Error& error) {
    if (!restores.has_begun()) throw;
    throw in_part(error);
  } catch (const std::bad_alloc&) {
    if (!restores.has_begun()) throw;
    throw in_part(ErrorNow(verb));
  }
}

// Throws if a worker that was started again has pushed nothing in its present life.  Its script
// may be at its beginning, and the others do not come to the barriers.
void Loader::CheckHasPushed(const std::string& task) {
  const auto lock = core_.Lock(task);
  const auto is_pushed = [](const RecordPtr& record) { return record->pushes > 0; };
  if (!core_.worker->rejoined() || std::ranges::any_of(core_.keys.Records(), is_pushed)) return;
  throw Fail(
      Code::kFailedPrecondition,
      "{}: this rank has lived before in this job, because it was started again or a snapshot was "
      "restored before its script began, and has pushed nothing since; the values and states on "
      "the servers count until its first push, and `round` says where they are",
      task);
}

// Loads between two barriers.  No worker has then begun a round on the old values, and none reads
// before all values are loaded.
KVStore::SnapshotInfo Loader::Load(const std::string& verb, const std::string& path, Parts parts) {
  CheckHasPushed(Format("{} {}", verb, path));
  Loading loading;
  barriers_.Meet(verb, loading.meeting, "nothing has been put back",
                 [&] { OpenFor(verb, path, parts, &loading); });
  barriers_.Meet(verb, loading.meeting, "some keys may have been put back and others not", [&] {
    // If an earlier life of this worker had reached the second barrier, it has put the values back,
    // or has told why it could not.
    if (!barriers_.HasReachedNext()) PutBack(verb, parts, loading);
  });
  // Compression residuals come from pushes that the load has undone.
  if (parts == Parts::kAll) {
    const auto lock = core_.Lock(verb);
    for (const RecordPtr& record : loading.records) record->residual = nullptr;
  }
  KVStore::SnapshotInfo info;
  if (loading.reader) info.path = loading.reader->path();
  saver_.NoteReplaced();
  saver_.NoteLoaded();
  if (loading.records.empty()) return info;
  const CallPtr call = core_.calls.New(verb);
  std::vector<Operation> operations;
  operations.reserve(loading.records.size());
  for (const RecordPtr& record : loading.records) {
    operations.push_back(core_.calls.Make(Operation::FindBase{}, verb, record.get()));
  }
  core_.worker->calls().Launch(call, std::move(operations));
  core_.calls.Await(call);
  for (const RecordPtr& record : loading.records) {
    const PushStep step = core_.worker->Ask(&Client::FormerStepOf, record->name);
    {
      const auto lock = core_.Lock(verb);
      record->former_step = step;
      std::atomic_ref(record->last_step).store(step.number);
    }
    info.rounds.emplace_back(record->key, core_.worker->Ask(&Client::PushedOf, record->name));
  }
  return info;
}

// Restores a snapshot.  The rank that reads verifies all of it before any rank creates keys.
KVStore::SnapshotInfo Loader::Restore(const RestoreSteps& steps) {
  const std::string verb = "restore";
  CheckHasPushed(Format("{} {}", verb, steps.path));
  std::optional<checkpoint::Reader> verified;
  Meeting meeting{.task = "reads the snapshot", .verb = "restore"};
  barriers_.Meet(verb, meeting, "nothing has been created", [&] {
    steps.check();
    meeting.worker = core_.worker->Ask(&Client::SnapshotReader);
    if (meeting.worker.first != core_.worker->rank()) return;
    Named("restore",
          [&] { verified.emplace(OpenSnapshot(steps.path, core_.number, core_.options)); });
  });
  if (verified) {
    const auto lock = core_.Lock(verb);
    verified_.emplace(steps.path, *std::move(verified));
  }
  try {
    return steps.create();
  } catch (...) {
    std::lock_guard lock(core_.keys.mutex());  // a later load takes the newest snapshot
    verified_.reset();
    throw;
  }
}

// ---- assigning ----------------------------------------------------------------------------------

void Loader::SendValues(const std::string& verb, std::span<const InitItem> items,
                        const std::vector<RecordPtr>& records) {
  std::vector<Operation> operations;
  const CallPtr call = core_.calls.New(verb);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto meta = core_.worker->Ask(&Client::MetaOf, records[i]->name);
    if (!meta) throw Fail(Code::kNotFound, "{} {}: no such key", verb, items[i].key.ToString());
    const NDArray* const values[] = {items[i].value};
    Operation::Restore assign;
    assign.value.bytes = MemoryOf(builder_.AllOnHost(verb, items[i].key, values)[0].Packed());
    size_t end = 0;
    for (uint32_t c = 0; c < meta->chunk_count(); ++c) {
      assign.value.ends.push_back(end += meta->elements_of(c) * ItemSize(meta->dtype));
    }
    assign.states = std::make_shared<const std::vector<ChunkState>>(meta->chunk_count());
    assign.extent = Operation::Restore::Extent::kOnlyValue;
    call->keys.push_back(records[i]);
    call->sources.push_back(assign.value.bytes);
    operations.push_back(core_.calls.Make(std::move(assign), verb, records[i].get()));
  }
  core_.worker->calls().Launch(call, std::move(operations));
  core_.calls.Await(call);
}

// Throws if only some parts of a key have a push of this worker, which has to repeat it.  After the
// values are replaced, the repetition would update the other parts alone.
void Loader::CheckEven(const std::string& verb, std::span<const RecordPtr> records) {
  const RecordPtr uneven = core_.calls.FirstToRepeat(verb, records);
  if (uneven == nullptr) return;
  const uint64_t round = core_.worker->Ask(&Client::PushedOf, uneven->name);
  NamingKey(verb, uneven->key.view(), [&] { throw UnevenAt(round); });
}

// Assigns between two barriers, as a load.  No worker has begun a round on the old values, and none
// reads before all keys have the new ones.
void Loader::Assign(const std::string& verb, std::span<const InitItem> items) {
  CheckHasPushed(verb);
  std::vector<RecordPtr> records;
  Meeting meeting{.task = "gives the values", .verb = "assign"};
  barriers_.Meet(verb, meeting, "nothing has been assigned", [&] {
    const AssignedValues given(verb, items);
    core_.calls.RaiseUnseen(verb, KeysOf(items));
    {
      const auto lock = core_.Lock(verb);
      for (const PushItem& item : given.items()) {
        const RecordPtr record = core_.keys.Get(verb, item.key);
        CheckAssignable(verb, item.key, record->info.by_rows);
        CheckValues(verb, item, record->info.shape, record->info.dtype);
        records.push_back(record);
      }
    }
    CheckEven(verb, records);
    meeting.worker = core_.worker->Ask(&Client::SnapshotReader);
  });
  barriers_.Meet(verb, meeting, "some keys may have been assigned and others not", [&] {
    if (meeting.worker.first == core_.worker->rank() && !barriers_.HasReachedNext()) {
      SendValues(verb, items, records);
    }
  });
  saver_.NoteReplaced();
}

}  // namespace tkv
