#include "exploration/fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <boost/pfr.hpp>
#include <boost/unordered/unordered_map.hpp>
#include <concepts>
#include <type_traits>

namespace tkv {

// A writer that turns the state of machines into bytes.  Every machine declares it a friend.
class StateWriter {
 public:
  explicit StateWriter(std::string* bytes) : bytes_(bytes) {}

  void Add(const Node& node) { All(node.last_link_, node.links_); }
  void Add(const HeadNode& node) {
    Add(static_cast<const Node&>(node));
    Add(node.head_);
  }
  void Add(const ServerNode& node) {
    Add(static_cast<const Node&>(node));
    All(node.member_, node.shard_);
  }
  void Add(const ClientNode& node) {
    Add(static_cast<const Node&>(node));
    All(node.role_, node.member_, node.client_, node.head_was_open_);
  }

 private:
  template <typename... T>
  void All(const T&... values) {
    (Add(values), ...);
  }
  void Raw(const void* data, size_t size) { bytes_->append(static_cast<const char*>(data), size); }
  void Hashed(const void* data, size_t size) {
    const XXH128_hash_t hash = XXH3_128bits(data, size);
    Raw(&hash, sizeof hash);
  }

  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void Add(const T& value) {
    Raw(&value, sizeof value);
  }
  void Add(const std::string& value) {
    Add(value.size());
    Raw(value.data(), value.size());
  }
  void Add(const Bytes& value) {
    All(value.size, value.data != nullptr);
    if (value.data != nullptr) Hashed(value.data, value.size);
  }
  void Add(const Block& value) { Add(value.bytes()); }
  void Add(const ChunkData& data) { All(data.dense_, data.rows_); }
  // Adds the rows in order, with their notes and optimizer states, and the candidates.
  void Add(const RowTable& table) {
    const std::vector<uint64_t> mixes = table.Mixes(0, table.size());
    All(mixes, table.state_count(), table.has_master(), table.version());
    if (table.policy().has_notes) {
      std::vector<RowNote> notes(mixes.size());
      table.ReadNotes(mixes, notes.data());
      Add(notes);
    }
    Add(table.candidates().From(0, table.candidates().size()));
    const size_t elements = mixes.size() * table.row_elements();
    std::string bytes(elements * ItemSize(table.dtype()), '\0');
    table.Read(mixes, bytes.data());
    Add(bytes);
    bytes.resize(elements * ItemSize(ComputeType(table.dtype())));
    if (table.has_master()) {
      table.ReadMaster(mixes, bytes.data());
      Add(bytes);
    }
    for (size_t i = 0; i < table.state_count(); ++i) {
      table.ReadState(i, mixes, bytes.data());
      Add(bytes);
    }
  }
  void Add(const SparseSum& sum) {
    All(sum.dtype(), std::vector<uint64_t>(sum.names().begin(), sum.names().end()));
    const RowSource rows = sum.values();
    for (size_t i = 0; i < sum.size(); ++i) Raw(rows.at(i), rows.row_bytes);
  }
  void Add(const Shape& value) {
    for (const int64_t dim : value) Add(dim);
    Add(value.rank());
  }
  void Add(const Error& value) { All(value.code(), std::string(value.what())); }
  void Add(const std::shared_ptr<const KeyMeta>& value) {
    Add(value != nullptr);
    if (value != nullptr) Add(*value);
  }
  void Add(const std::shared_ptr<const std::vector<ChunkState>>& value) {
    Add(value != nullptr);
    if (value != nullptr) Add(*value);
  }
  void Add(const RulePtr& value) {
    Add(value != nullptr);
    if (value == nullptr) return;
    All(value->sender(), value->incarnation(), value->generation(), value->store(), value->spec());
  }
  template <typename A, typename B>
  void Add(const std::pair<A, B>& value) {
    All(value.first, value.second);
  }
  template <typename T>
  void Add(const std::optional<T>& value) {
    Add(value.has_value());
    if (value) Add(*value);
  }
  // Adds an ordered container.
  template <typename T>
    requires requires(const T& t) {
      t.begin();
      t.size();
    }
  void Add(const T& values) {
    Add(values.size());
    for (const auto& value : values) Add(value);
  }
  // Adds an unordered container, sorted, because its order has no meaning.
  template <typename K, typename V>
  void Add(const boost::unordered_flat_map<K, V>& values) {
    Sorted(values);
  }
  template <typename K, typename V>
  void Add(const boost::unordered_map<K, V>& values) {
    Sorted(values);
  }
  template <typename T>
  void Add(const PooledTable<T>& table) {
    std::vector<std::pair<uint64_t, const T*>> entries;
    table.ForEach([&](uint64_t id, const T& entry) { entries.emplace_back(id, &entry); });
    std::sort(entries.begin(), entries.end());
    Add(entries.size());
    for (const auto& [id, entry] : entries) All(id, *entry);
  }
  template <typename T>
  void Sorted(const T& values) {
    std::vector<std::string> parts;
    parts.reserve(values.size());
    for (const auto& value : values) {
      std::string part;
      StateWriter(&part).Add(value);
      parts.push_back(std::move(part));
    }
    std::sort(parts.begin(), parts.end());
    Add(parts);
  }
  template <typename... T>
  void Add(const std::variant<T...>& value) {
    Add(value.index());
    std::visit([this](const auto& present) { this->Add(present); }, value);
  }
  template <typename T>
    requires std::is_aggregate_v<T>
  void Add(const T& value) {
    boost::pfr::for_each_field(value, [this](const auto& field) { this->Add(field); });
  }

  // Adds nothing: no behaviour depends on these counters.
  void Add(const CurrentWait&) {}
  void Add(const Op::ListEntry&) {}  // derived from ops_

  void Add(const Backoff& backoff) { Add(backoff.wait_); }
  void Add(const Head& head) {
    All(head.epoch_, head.last_incarnation_, head.has_news_, head.workers_, head.servers_,
        head.links_);
  }
  void Add(const Member& member) {
    All(member.link_, member.welcomed_, member.welcome_, member.epoch_, member.refused_,
        member.last_heard_, member.next_ping_, member.next_dial_, member.backoff_,
        member.open_since_, member.lost_since_, member.head_has_ended_);
  }
  void Add(const Session& session) {
    All(session.id, session.role, session.link, session.low, session.window, session.waiting,
        session.parked, session.closed, session.end);
  }
  void Add(const Round::Hyperparameters& sent) {
    All(sent.rank, sent.scalars.numbers, sent.scalars.rule);
  }
  void Add(const ClosedStores& stores) { All(stores.below_, stores.above_); }
  void Add(const Shard& shard) {
    const ShardCore& core = shard.core();
    All(core.incarnation, core.members.epoch_, core.members.member_count_, core.sessions,
        core.members.came_again_, core.hellos, core.describes, core.keys, core.chunks,
        core.controls, core.control_count, core.held_bytes, core.cuts, core.grants,
        core.half_closed, core.dropped, core.has_begun);
  }
  void Add(const SessionTable& table) { All(table.sessions_, table.links_); }
  void Add(const WaitingDescribes& describes) { All(describes.requests_); }
  void Add(const GrantTable& table) { All(table.grants_, table.count_); }
  void Add(const CutTable& table) { All(table.cutter_, table.cuts_); }
  // Adds a link without its counters.
  void Add(const ServerLink& link) {
    All(link.server_, link.state_, link.link_, link.incarnation_, link.has_begun_,
        link.credit_bytes_, link.next_seq_, link.unaccepted_bytes_, link.waiting_pull_bytes_,
        link.ready_pull_bytes_, link.dead_, link.is_marked_, link.has_priorities_, link.pushes_,
        link.pulls_, link.ready_pulls_, link.asking_pulls_, link.sent_, link.mutating_,
        link.down_since_, link.next_dial_, link.backoff_, link.open_since_, link.last_heard_,
        link.next_ping_);
  }
  void Add(const Announcements& changes) {
    All(changes.queue_, changes.last_, changes.generation_);
  }
  void Add(const HeadRequests& head) { All(head.requests_, head.lost_since_, head.has_ended_); }
  void Add(const KnownMembers& members) { All(members.role, members.welcome, members.epoch); }
  // Adds the operations without their timers and verbs, which are derived from them.
  void Add(const OpTable& ops) { All(ops.last_, ops.ops_); }
  void Add(const ClientKeys& keys) { All(keys.barriers_, keys.keys_, keys.ready_); }
  // Adds a client without the list of its pushes, which is derived from the operations.
  void Add(const ClientCore& core) {
    All(core.members, core.closed, core.has_left, core.head, core.now, core.ops, core.keys,
        core.links, core.pump_, core.announcements, core.leaves, core.newest_epochs, core.closes,
        core.next_timer, core.begins_anew, core.birth_count);
  }
  void Add(const Client& client) { Add(client.core_); }

  std::string* bytes_;
};

namespace exploration {

Fingerprint FingerprintOf(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

Fingerprint FingerprintOf(const Frame& frame) {
  std::string bytes = frame.head;
  for (const Bytes& body : frame.bodies) {
    const XXH128_hash_t hash = XXH3_128bits(body.data, body.size);
    bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  }
  return FingerprintOf(bytes);
}

void AppendState(const HeadNode& node, std::string* bytes) { StateWriter(bytes).Add(node); }
void AppendState(const ServerNode& node, std::string* bytes) { StateWriter(bytes).Add(node); }
void AppendState(const ClientNode& node, std::string* bytes) { StateWriter(bytes).Add(node); }

}  // namespace exploration
}  // namespace tkv
