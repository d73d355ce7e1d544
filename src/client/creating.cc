// Creation and removal of keys: init, open, delete, and the closing of a store.

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "client/client.h"

namespace tkv {
namespace {

// An addition to an error for a worker that finds keys, which may be those of a snapshot.
constexpr const char* kOptionsOfSaver =
    "; a job that goes on from a snapshot needs the options of the job that saved it, such as "
    "--deterministic and --staleness";

std::string ModeText(const KeyMeta& meta) {
  std::string text = meta.mode == KeyMeta::Mode::kSync ? "sync" : "async";
  if (meta.staleness > 0) text += Format(", staleness {}", meta.staleness);
  if (meta.deterministic) text += ", deterministic";
  return text;
}

// Returns true if neither key has an optimizer of its own, or both have one with the same states.
// Hyperparameters may differ: rank 0's are valid.
bool OwnAlike(const KeyMeta& a, const KeyMeta& b) {
  if (!a.own || !b.own) return a.own.has_value() == b.own.has_value();
  return a.own->program == b.own->program && a.own->multi_precision == b.own->multi_precision &&
         a.own->lazy == b.own->lazy;
}

std::string OwnText(const KeyMeta& meta) {
  return meta.own ? "an optimizer of its own" : "no optimizer of its own";
}

std::string BeginningText(const RowInitializer& initializer) {
  const auto text = [&](std::string_view name) {
    return Format("{}({}, {})", name, initializer.a, initializer.b);
  };
  switch (initializer.kind) {
    case RowInitializer::Kind::kUniform:
      return text("uniform");
    case RowInitializer::Kind::kNormal:
      return text("normal");
    case RowInitializer::Kind::kConstant:
      break;
  }
  return Format("{}", initializer.a);
}

// Returns true if rows begin alike.  Seeds may differ: rank 0's is valid, like its dense values.
bool BeginAlike(RowInitializer a, const RowInitializer& b) {
  a.seed = b.seed;
  return a == b;
}

// Returns true if both policies keep the same rows.  The caller compares `replaces_all`.
bool PoliciesAgree(RowPolicy a, const RowPolicy& b) {
  a.replaces_all = b.replaces_all;
  return a == b;
}

// Returns how a key that a worker inits differs from the key in the store; empty: it does not.
std::string Differences(const KeyMeta& mine, const KeyMeta& meta, bool rejoined) {
  if (meta.by_rows() != mine.by_rows()) {
    return Format("layout {} here, {} in the store", Name(mine.layout), Name(meta.layout));
  }
  if (meta.by_rows() && meta.row_count != mine.row_count) {
    return Format("{} rows here, {} in the store", mine.row_count, meta.row_count);
  }
  if (!OwnAlike(meta, mine)) {
    return meta.own && mine.own ? std::string("the key's own optimizer is another one in the store")
                                : Format("{} here, {} in the store", OwnText(mine), OwnText(meta));
  }
  // A key of a snapshot of an earlier version keeps its rows, whatever its maker says.
  if (meta.by_rows() && !rejoined && meta.policy.replaces_all != mine.policy.replaces_all) {
    const auto verb = [](const KeyMeta& key) {
      return key.policy.replaces_all ? "init" : "init_table";
    };
    return Format("made by {} here, by {} in the store", verb(mine), verb(meta));
  }
  if (meta.by_rows() && !PoliciesAgree(meta.policy, mine.policy)) {
    return "rows are admitted, evicted or noted otherwise here than in the store";
  }
  if (meta.by_rows() && !BeginAlike(meta.initializer, mine.initializer)) {
    return Format("rows begin as {} here, as {} in the store", BeginningText(mine.initializer),
                  BeginningText(meta.initializer));
  }
  if (meta.shape != mine.shape || meta.dtype != mine.dtype) {
    return Format("shape {} {} here, {} {} in the store", mine.shape.ToString(), Name(mine.dtype),
                  meta.shape.ToString(), Name(meta.dtype));
  }
  if (meta.mode != mine.mode || meta.staleness != mine.staleness ||
      meta.deterministic != mine.deterministic) {
    return Format(
        "{} here, {} in the store; every worker has to make the same stores in the same order{}",
        ModeText(mine), ModeText(meta), rejoined ? kOptionsOfSaver : "");
  }
  return "";
}

}  // namespace

void Client::StartInit(const KeyId& id, KeyState* key, Op* op) {
  op->has_started = true;
  if (key->is_ready) return Finish(op);  // an open of a known key
  key->opening = op->id;
  const auto* const init = op->operation.As<Operation::Init>();
  if (init != nullptr) key->meta = *init->meta;
  key->meta.name = op->operation.key;
  key->meta.birth = (welcome_.incarnation << 32) + ++birth_count_;
  const bool is_first = init != nullptr && welcome_.rank == 0;
  // Rank 0 creates the key without asking if no earlier life and no other worker can have created
  // it.
  const bool has_heirs = epoch_.policy == Epoch::Policy::kContinue;
  if (is_first && !welcome_.rejoined && !has_heirs) return StartMaking(id, key, op);
  Outgoing describe;
  describe.op = op->id;
  describe.message.type = Type::kDescribe;
  describe.message.key = id;
  const uint32_t server = ServerOf(epoch_.placement, id, 0);
  const ServerLink& link = links_[server];
  const bool grants = link.incarnation() == 0 || (link.features() & kMakersFeature) != 0;
  if (init != nullptr && grants) {
    describe.message.flags = kMayMake;
    describe.message.chunk = StoreOf(op->operation.key);
  } else if (is_first || (init == nullptr && !op->operation.As<Operation::Open>()->may_wait)) {
    describe.message.flags = kNoWait;
  }
  op->unpulled = 1;
  Queue(server, std::move(describe));
}

void Client::StartMaking(const KeyId& id, KeyState* key, Op* op) {
  if (const auto error = codec::Cut(key->meta, op->operation.value())) return Fail(op, *error);
  PlaceChunks(id, key);
  op->creating = Creating::kRest;
  QueueInits(id, key, op);
}

// Queues the INITs of all chunks but the first, or of the first: the key exists when that is done.
void Client::QueueInits(const KeyId& id, KeyState* key, Op* op) {
  if (key->chunks.size() == 1) op->creating = Creating::kFirst;
  const bool is_rest = op->creating == Creating::kRest;
  const uint32_t begin = is_rest ? 1 : 0;
  const uint32_t end = is_rest ? static_cast<uint32_t>(key->chunks.size()) : 1;
  for (uint32_t c = begin; c < end; ++c) {
    Outgoing init;
    init.op = op->id;
    init.message.type = Type::kInit;
    init.message.key = id;
    init.message.chunk = c;
    init.message.dtype = key->meta.dtype;
    const bool overwrites = welcome_.rejoined || key->was_tried || op->grant != 0;
    if (overwrites) init.message.flags = kOverwrite;
    init.message.number = op->grant;
    init.message.extra = Encode(key->meta);
    init.message.body = op->operation.value()->PartOf(c);
    ++op->unaccepted;
    Queue(key->chunks[c].server, std::move(init));
  }
}

void Client::OnInitAnswer(const Outgoing& sent, const Message& reply) {
  const auto found = keys_.find(sent.message.key);
  Op* const op = Find(sent.op);
  if (op == nullptr || found == keys_.end()) return;
  KeyState& key = found->second;
  const bool is_describe = sent.message.type == Type::kDescribe;
  Drop(is_describe ? &op->unpulled : &op->unaccepted);
  // True if the key does not exist and no other worker is creating it.  A server without grants
  // says so to rank 0 with NotFound.
  const bool is_unmade = is_describe && op->operation.Is<Operation::Init>() &&
                         (reply.type == Type::kOk ||
                          (reply.type == Type::kError && (sent.message.flags & kNoWait) != 0 &&
                           ErrorOf(reply).code() == Code::kNotFound));
  if (is_unmade) {
    op->grant = reply.type == Type::kOk ? reply.number : 0;
    return StartMaking(found->first, &key, op);
  }
  if (reply.type == Type::kError) return Fail(op, ErrorOf(reply));
  if (reply.type == Type::kExists) {
    return Fail(op, Error(Code::kAlreadyExists, "the key is there already"));
  }
  if (is_describe) {
    const KeyMeta meta = DecodeKeyMeta(reply.extra);
    if (meta.name != op->operation.key) {
      return Fail(
          op, Error(Code::kAlreadyExists, Format("the id is taken by {}", ShownKey(meta.name))));
    }
    if (const auto* const init = op->operation.As<Operation::Init>()) {
      const std::string why = Differences(*init->meta, meta, welcome_.rejoined);
      if (!why.empty()) return Fail(op, Error(Code::kInvalidArgument, why));
    }
    key.meta = meta;
    key.is_ready = true;
    PlaceChunks(found->first, &key);
    if (role_ == Role::kWorker && welcome_.rejoined && meta.mode == KeyMeta::Mode::kSync) {
      key.must_join = true;
      return StartJoin(found->first, &key);  // the operation ends when the round is known
    }
    return Finish(op);
  }
  if (op->unaccepted > 0) return;
  if (op->creating == Creating::kRest) {
    op->creating = Creating::kFirst;
    return QueueInits(found->first, &key, op);
  }
  key.is_ready = true;
  const Announcements::Last* const last = announcements_.LastOf(StoreOf(key.meta.name));
  if (last != nullptr) key.listed_in = last->generation;
  Finish(op);
}

void Client::StartDelete(const KeyId& id, KeyState* key, Op* op) {
  op->has_started = true;
  op->round = key->round;
  PlaceChunks(id, key);
  key->opening = op->id;  // no other operation on this key starts meanwhile
  // Rank 0 deletes the key for all workers.  Under `continue`, every worker does so, because rank 0
  // may be dead before this worker knows it.  The birth protects a key that was created anew
  // meanwhile from a late DELETE.
  const bool has_heirs = epoch_.policy == Epoch::Policy::kContinue;
  std::set<uint32_t> servers;
  for (const KnownChunk& known : key->chunks) {
    const bool knows_births = (links_[known.server].features() & kMakersFeature) != 0;
    if (welcome_.rank == 0 || (has_heirs && (knows_births || IsSender()))) {
      servers.insert(known.server);
    }
  }
  for (const uint32_t server : servers) {
    Outgoing erase;
    erase.op = op->id;
    erase.message.type = Type::kDelete;
    erase.message.key = id;
    if ((links_[server].features() & kMakersFeature) != 0) {
      erase.message.flags = kOfBirth;
      erase.message.need = key->meta.birth;
    }
    ++op->unaccepted;
    Queue(server, std::move(erase));
  }
  if (servers.empty()) {
    Forget(key);
    Finish(op);
  }
}

// Resets the state of a key, but keeps its queued operations.
void Client::Forget(KeyState* key) {
  KeyState fresh;
  fresh.queue = std::move(key->queue);
  *key = std::move(fresh);
}

// Adds the counters of a bucket.  Returns false if the reply has none.
bool Client::AddTableStats(const Message& reply, TableStats* table) {
  const auto of_bucket = DecodeChunkStatus(reply.extra).table;
  if (!of_bucket) return false;
  table->rows += of_bucket->rows;
  table->candidates += of_bucket->candidates;
  table->evicted += of_bucket->evicted;
  table->memory_bytes += of_bucket->memory_bytes;
  table->disk_rows += of_bucket->disk_rows;
  table->disk_bytes += of_bucket->disk_bytes;
  table->version = std::min(table->version, of_bucket->version);
  return true;
}

void Client::OnOtherAnswer(const Outgoing& sent, const Message& reply) {
  Op* const op = Find(sent.op);
  if (op == nullptr) return;
  Drop(&op->unaccepted);
  if (op->operation.Is<Operation::Control>()) {
    Announcement* const change = announcements_.Find(op->id);
    if (reply.type == Type::kError && !change->error) change->error = ErrorOf(reply);
    return;  // AdvanceAnnouncements goes on
  }
  if (op->operation.Is<Operation::Close>()) {  // Abandon keeps the CLOSE for a server out of reach
    if (op->unaccepted > 0) return;
    ForgetStore(op->operation.store);
    return Finish(op);
  }
  if (reply.type == Type::kError) return Fail(op, ErrorOf(reply));
  if (op->operation.Is<Operation::FindBase>()) {
    const ChunkStatus status = DecodeChunkStatus(reply.extra);
    KeyState& key = keys_.at(op->key);
    key.base = status.base;
    key.former_step = status.step.value_or(PushStep{});
  }
  if (op->operation.Is<Operation::Stats>() && !AddTableStats(reply, &op->table)) {
    return Fail(op, CannotSaveRows(keys_.at(op->key).chunks[sent.message.chunk].server));
  }
  if (op->unaccepted > 0) return;
  if (op->operation.Is<Operation::Delete>()) Forget(&keys_.at(op->key));
  Finish(op);
}

// Closes a store on every server once its earlier pushes are accepted and earlier changes of its
// updater have ended.  All other operations on the store fail then.
void Client::AdvanceCloses() {
  const std::set<OpId> closing = closing_;  // a copy: operations may end here
  for (const OpId id : closing) {
    Op* const op = Find(id);
    if (op->has_started || IsInUse(op->operation.store, id)) continue;
    op->has_started = true;
    FailStore(op->operation.store, id);
    for (const ServerLink& link : links_) {
      if (link.dead()) continue;
      Outgoing close;
      close.op = id;
      close.message.type = Type::kClose;
      close.message.chunk = op->operation.store;
      ++op->unaccepted;
      Queue(link.server(), std::move(close));
    }
    if (op->unaccepted > 0) continue;
    ForgetStore(op->operation.store);
    Finish(op);
  }
}

// Returns true if an earlier push of the store is not accepted or an earlier change of its updater
// has not ended.
bool Client::IsInUse(uint32_t store, OpId close) const {
  const auto is_open = [&](OpId id) {
    const Op* const op = ops_.Find(id);
    if (op == nullptr || id > close) return false;
    return !op->is_accepted && StoreOf(op->operation.key) == store;
  };
  return std::any_of(pushes_.begin(), pushes_.end(), is_open) ||
         announcements_.IsInUse(store, close);
}

void Client::FailStore(uint32_t store, OpId close) {
  std::vector<OpId> ids;
  ops_.ForEach([&](OpId id, const Op& op) {
    const bool of_key = !op.operation.key.empty() && StoreOf(op.operation.key) == store;
    const bool is_control = op.operation.Is<Operation::Control>() && op.operation.store == store;
    if (id != close && (of_key || is_control)) ids.push_back(id);
  });
  std::sort(ids.begin(), ids.end());
  PrepareToFail(ids);
  for (const OpId id : ids) {
    if (Op* const op = Find(id)) Fail(op, StoreIsClosed());
  }
}

void Client::ForgetStore(uint32_t store) {
  const KeyId barrier = IdOf(InternalKey(store, "barrier"));
  announcements_.ForgetLast(store);
  barriers_.erase(barrier);
  for (auto at = keys_.begin(); at != keys_.end();) {
    const bool is_its = at->first == barrier ||
                        (!at->second.meta.name.empty() && StoreOf(at->second.meta.name) == store);
    at = is_its ? keys_.erase(at) : std::next(at);
  }
}

}  // namespace tkv
