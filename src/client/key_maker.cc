#include "client/key_maker.h"

#include <set>

#include "base/check.h"
#include "base/format.h"

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

void KeyMaker::StartInit(const KeyId& id, ClientKey* key, Op* op) {
  op->has_started = true;
  if (key->is_ready) return core_.Finish(op);  // an open of a known key
  key->opening = op->id;
  const auto* const init = op->operation.As<Operation::Init>();
  if (init != nullptr) key->meta = *init->meta;
  key->meta.name = op->operation.key;
  key->meta.birth = (core_.members.welcome.incarnation << 32) + ++core_.birth_count;
  const bool is_first = init != nullptr && core_.members.welcome.rank == 0;
  // Rank 0 creates the key without asking if no earlier life and no other worker can have created
  // it.
  const bool has_heirs = core_.members.epoch.policy == Epoch::Policy::kContinue;
  if (is_first && !core_.members.welcome.rejoined && !has_heirs) return StartMaking(id, key, op);
  Outgoing describe;
  describe.op = op->id;
  describe.message.type = Type::kDescribe;
  describe.message.key = id;
  const uint32_t server = ServerOf(core_.members.epoch.placement, id, 0);
  const ServerLink& link = core_.links[server];
  const bool grants = link.incarnation() == 0 || (link.features() & kMakersFeature) != 0;
  if (init != nullptr && grants) {
    describe.message.flags = kMayMake;
    describe.message.chunk = StoreOf(op->operation.key);
  } else if (is_first || (init == nullptr && !op->operation.As<Operation::Open>()->may_wait)) {
    describe.message.flags = kNoWait;
  }
  op->unpulled = 1;
  core_.Queue(server, std::move(describe));
}

void KeyMaker::StartMaking(const KeyId& id, ClientKey* key, Op* op) {
  if (const auto error = codec::Cut(key->meta, op->operation.value()))
    return core_.Fail(op, *error);
  core_.PlaceChunks(id, key);
  op->creating = Op::Creating::kRest;
  QueueInits(id, key, op);
}

// Queues the INITs of all chunks but the first, or of the first: the key exists when that is done.
void KeyMaker::QueueInits(const KeyId& id, ClientKey* key, Op* op) {
  if (key->chunks.size() == 1) op->creating = Op::Creating::kFirst;
  const bool is_rest = op->creating == Op::Creating::kRest;
  const uint32_t begin = is_rest ? 1 : 0;
  const uint32_t end = is_rest ? static_cast<uint32_t>(key->chunks.size()) : 1;
  for (uint32_t c = begin; c < end; ++c) {
    Outgoing init;
    init.op = op->id;
    init.message.type = Type::kInit;
    init.message.key = id;
    init.message.chunk = c;
    init.message.dtype = key->meta.dtype;
    const bool overwrites = core_.members.welcome.rejoined || key->was_tried || op->grant != 0;
    if (overwrites) init.message.flags = kOverwrite;
    init.message.number = op->grant;
    init.message.extra = Encode(key->meta);
    init.message.body = op->operation.value()->PartOf(c);
    ++op->unaccepted;
    core_.Queue(key->chunks[c].server, std::move(init));
  }
}

void KeyMaker::OnInitAnswer(const Outgoing& sent, const Message& reply) {
  ClientKey* const found = core_.keys.Find(sent.message.key);
  Op* const op = core_.ops.Find(sent.op);
  if (op == nullptr || found == nullptr) return;
  ClientKey& key = *found;
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
    return StartMaking(sent.message.key, &key, op);
  }
  if (reply.type == Type::kError) return core_.Fail(op, ErrorOf(reply));
  if (reply.type == Type::kExists) {
    return core_.Fail(op, Error(Code::kAlreadyExists, "the key is there already"));
  }
  if (is_describe) {
    const KeyMeta meta = DecodeKeyMeta(reply.extra);
    if (meta.name != op->operation.key) {
      return core_.Fail(
          op, Error(Code::kAlreadyExists, Format("the id is taken by {}", ShownKey(meta.name))));
    }
    if (const auto* const init = op->operation.As<Operation::Init>()) {
      const std::string why = Differences(*init->meta, meta, core_.members.welcome.rejoined);
      if (!why.empty()) return core_.Fail(op, Error(Code::kInvalidArgument, why));
    }
    key.meta = meta;
    key.is_ready = true;
    core_.PlaceChunks(sent.message.key, &key);
    if (!core_.members.is_observer() && core_.members.welcome.rejoined &&
        meta.mode == KeyMeta::Mode::kSync) {
      key.must_join = true;
      return finder_.Start(sent.message.key, &key);  // the operation ends when the round is known
    }
    return core_.Finish(op);
  }
  if (op->unaccepted > 0) return;
  if (op->creating == Op::Creating::kRest) {
    op->creating = Op::Creating::kFirst;
    return QueueInits(sent.message.key, &key, op);
  }
  key.is_ready = true;
  const Announcements::Last* const last = core_.announcements.LastOf(key.store());
  if (last != nullptr) key.listed_in = last->generation;
  core_.Finish(op);
}

void KeyMaker::StartDelete(const KeyId& id, ClientKey* key, Op* op) {
  op->has_started = true;
  op->round = key->round;
  core_.PlaceChunks(id, key);
  key->opening = op->id;  // no other operation on this key starts meanwhile
  // Rank 0 deletes the key for all workers.  Under `continue`, every worker does so, because rank 0
  // may be dead before this worker knows it.  The birth protects a key that was created anew
  // meanwhile from a late DELETE.
  const bool has_heirs = core_.members.epoch.policy == Epoch::Policy::kContinue;
  std::set<uint32_t> servers;
  for (const KnownChunk& known : key->chunks) {
    const bool knows_births = (core_.links[known.server].features() & kMakersFeature) != 0;
    if (core_.members.welcome.rank == 0 ||
        (has_heirs && (knows_births || core_.members.IsSender()))) {
      servers.insert(known.server);
    }
  }
  for (const uint32_t server : servers) {
    Outgoing erase;
    erase.op = op->id;
    erase.message.type = Type::kDelete;
    erase.message.key = id;
    if ((core_.links[server].features() & kMakersFeature) != 0) {
      erase.message.flags = kOfBirth;
      erase.message.need = key->meta.birth;
    }
    ++op->unaccepted;
    core_.Queue(server, std::move(erase));
  }
  if (servers.empty()) {
    key->Reset();
    core_.Finish(op);
  }
}

}  // namespace tkv
