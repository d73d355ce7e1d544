// A shard: the chunks of one server thread, the sessions of the workers that use them, and every
// rule of docs/protocol.md that a server keeps.  A pure state machine.
//
// Everything is judged when a message is whole; a message that breaks the protocol closes its
// session with a reason and changes nothing else.

#pragma once

#include <algorithm>
#include <boost/unordered/unordered_map.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/session.h"
#include "wire/listed.h"

namespace tkv {

struct ShardOptions {
  std::string job;
  Protocol protocol;                             // that it speaks
  uint32_t index = 0;                            // until the head has said which
  size_t credit_budget_bytes = size_t{1} << 30;  // of pushes that are on their way in, all workers
  size_t credit_min_bytes = size_t{8} << 20;     // each worker's part is at least that
  size_t chunk_bytes_max = size_t{4} << 30;
  size_t hold_bytes_max = size_t{4} << 30;  // of pushes that `deterministic` keys hold
  size_t parked_max = size_t{1} << 20;      // operations of one session that wait, 200 bytes each
  size_t asked_bytes_max = size_t{256} << 20;  // of ids that pulls of one session wait with
  size_t rules_max = size_t{1} << 10;          // CONTROLs that wait for their round of one key
  size_t adopt_from_bytes = size_t{64} << 10;  // bodies that are taken over instead of copied
  std::shared_ptr<RowDisk> disk;  // for rows of keys whose memory is bounded; null: there are none
};

// The owner of a body for which there was no memory when it came: its message gets an error.
const std::shared_ptr<void>& NoMemory();

// Told of each new version of a chunk, at once; for checks and traces.
class ShardListener {
 public:
  virtual ~ShardListener() = default;
  virtual void Completed(const class Shard& shard, const ChunkId& id, const Chunk& chunk) = 0;
};

class Shard {
 public:
  Shard(ShardOptions options, BufferPool* pool);

  // The head has welcomed this server.
  void Joined(uint32_t index, uint64_t incarnation) {
    options_.index = index;
    incarnation_ = incarnation;
  }
  // Whether a worker is connected.
  bool has_clients() const {
    return std::ranges::any_of(links_,
                               [](const auto& link) { return link.second.rank != kNoRank; });
  }
  void On(const Epoch& epoch, Effects* effects);
  void Closed(LinkId link);
  // A frame's header: every mutating operation below `low` has been answered to the client.
  void Header(LinkId link, uint64_t low);
  // Whether a body may land; where it is false its bytes are thrown away as they come, and the
  // message is judged without them.
  bool Admit(LinkId link, const Message& message);
  void Received(LinkId link, Message&& message, Effects* effects);
  // What time it is, for those who ask how long something waits.
  void SetNow(Time now) { now_ = now; }
  // What a disk has to read for a message, so that it can be read before: Received reads it where nobody has.
  std::vector<DiskPages::Where> OnDisk(LinkId link, const Message& message) const;

  // ---- for checks and figures; nothing may be changed through them
  static constexpr uint32_t kNoStore = UINT32_MAX;  // of a barrier whose first push did not say it
  struct Key {
    KeyMeta meta;
    RulePtr own;                                     // that no CONTROL changes
    std::vector<std::pair<Rank, uint64_t>> abstain;  // rounds up to which a rank takes no part
    struct Pending {
      uint64_t number = 0;  // in the order of arrival at this shard
      uint64_t from_round = 0;
      RulePtr rule;
    };
    std::vector<Pending> pending;
    std::vector<uint32_t> chunks;  // that are here
    bool is_barrier = false;
    uint32_t store = kNoStore;
    // Births of the same key that a later init has overwritten before the first round: whoever has
    // found one of those goes on with this one.
    std::vector<uint64_t> former_births;

    uint64_t AbstainOf(Rank rank) const;
  };
  using Memory = Listed::Memory;
  const Chunk* FindChunk(const ChunkId& id) const;
  const Key* FindKey(const KeyId& id) const;
  // Returns true if the rank's life has closed a store that another worker has open.
  bool HasClosed(Rank rank, uint32_t store) const;
  void AddListener(ShardListener* listener) { listeners_.push_back(listener); }
  void RemoveListener(ShardListener* listener) { std::erase(listeners_, listener); }
  // Who has the session of a link; nothing: it has none.
  std::optional<SessionId> SessionIdOf(LinkId link) const;
  const Epoch& epoch() const { return epoch_; }
  uint64_t incarnation() const { return incarnation_; }
  Memory MemoryUse() const;
  // Sessions whose `parked` is not the number of pulls and DESCRIBEs that wait for them.
  std::vector<SessionId> Miscounted() const;
  const char* StateFor(LinkId link, const Message& message) const;  // a row of the coverage table

 private:
  friend class StateWriter;  // for checks: compares what machines remember
  struct WaitingHello {
    Message message;
    Hello hello;
  };
  using Waiter = std::pair<SessionId, uint64_t>;  // a session and the number of its operation
  struct KeyGrant {                               // to create a key
    SessionId maker;
    uint64_t number = 0;
    uint32_t store = 0;
  };

  Session* SessionOf(LinkId link);
  void OnHello(LinkId link, const Message& message, Effects* effects);
  void AdmitSession(LinkId link, const Hello& hello, Effects* effects);
  bool Lists(const Hello& hello) const;
  bool IsOver(Role role, const SessionId& id) const;
  void Forget(const SessionId& id, LinkId except);
  void Violation(Session* session, const Message& message, std::string reason, Effects* effects);

  bool MayAsk(const Session& session, const Message& message) const;
  bool MayCreate(const Session& session, const Message& message) const;
  bool Belongs(const KeyMeta& meta, const Message& init) const;
  void Judge(Session* session, Message& message, Effects* effects);
  void Execute(Session* session, Message& message, Effects* effects);
  void Answer(Session* session, const Message& request, Message reply, Effects* effects);
  void AnswerError(Session* session, const Message& request, Code code, std::string text,
                   Effects* effects);
  static bool IsOfAnother(const Key& key, const Message& message);
  void AnswerMadeAnew(Session* session, const Message& message, Effects* effects);
  void AnswerTooMany(Session* session, const Message& message, Effects* effects);
  void RunWaiting(LinkId link, Effects* effects);

  void OnInit(Session* session, Message& message, Effects* effects);
  void OnDescribe(Session* session, Message& message, Effects* effects);
  void OnStatus(Session* session, const Message& message, Effects* effects);
  void OnList(Session* session, const Message& message, Effects* effects);
  Listed::Item ItemOf(const KeyId& id, const Key& key) const;
  void OnPush(Session* session, Message& message, Effects* effects);
  void OnPushSync(Session* session, Message& message, Key* key, Chunk* chunk, Scalars scalars,
                  const PushStep& step, const std::optional<Error>& failure, Effects* effects);
  static void NoteTask(uint8_t flags, const std::optional<Error>& failure, Rank rank, size_t index,
                       Chunk* chunk);
  void OnPushAsync(Session* session, Message& message, Key* key, Chunk* chunk,
                   const Scalars& scalars, Effects* effects);
  void OnPull(Session* session, const Message& message, Effects* effects);
  static void LetGo(Session* session, const ParkedPull& pull);
  static std::optional<Error> TakeIds(const Message& message, const Chunk& chunk, ParkedPull* pull);
  void OnCancel(Session* session, const Message& message, Effects* effects);
  void OnRead(Session* session, const Message& message, Effects* effects);
  void OnReadRows(Session* session, const Message& message, const ChunkCut& cut, Effects* effects);
  void OnReadSomeRows(Session* session, const Message& message, const ChunkCut& cut,
                      Effects* effects);
  void OnRelease(Session* session, const Message& message, Effects* effects);
  void OnRestore(Session* session, Message& message, Effects* effects);
  size_t CutBytes() const;
  std::string WhyNoCut(const SessionId& id) const;
  void DropCuts(const SessionId& id, std::optional<uint32_t> store);
  bool IsLowestRank(Rank rank) const;
  void OnControl(Session* session, const Message& message, Effects* effects);
  void OnWithdraw(Session* session, const Message& message, Effects* effects);
  void OnAbstain(Session* session, const Message& message, Effects* effects);
  void OnDelete(Session* session, const Message& message, Effects* effects);
  void OnClose(Session* session, const Message& message, Effects* effects);
  static std::string StoreIsOver(uint32_t store);
  bool IsAwaited(const Key& key, Rank rank) const;
  bool IsClosedByAll(uint32_t store) const;
  void DropStore(uint32_t store, Effects* effects);
  void LookAtClosedStores(Effects* effects);
  void RecheckStore(uint32_t store, Effects* effects);
  void EraseKey(const KeyId& id, const char* why, Effects* effects);

  bool IsComplete(const Key& key, const Chunk& chunk, Rank arriving) const;
  void TellListeners(const ChunkId& id, const Chunk& chunk) const;
  void CompleteRounds(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects);
  bool IsCommitted(const Rule& rule) const;
  bool IsSettled(const Rule& rule) const;
  void ApplyControls(Key* key, Chunk* chunk);
  Chunk WithDueRule(const Key& key, const Chunk& chunk);
  void AnswerParked(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects);
  bool CanAnswer(const Chunk& chunk, const ParkedPull& pull, const Session& session) const;
  void SendValue(Session* session, const ChunkId& id, const Chunk& chunk, const ParkedPull& pull,
                 Effects* effects);
  bool WaitsForLife(const SessionId& waiting, Rank dead) const;
  std::string WhyNever(const Key& key, const Chunk& chunk, const ParkedPull& pull) const;
  ChunkStatus StatusOf(const Key& key, const Chunk& chunk, Rank rank) const;
  void DropRules(Rank rank, uint64_t incarnation, uint64_t after_generation);
  static UpdateSpec RunningRule(const Chunk& chunk);
  bool AnswerDescribe(const Session& session, const Message& request, Effects* effects);
  void AnswerDescribesOf(const KeyId& key, Effects* effects);
  void ForgetDescribe(Session* session, uint64_t seq);
  void RecheckDescribes(Effects* effects);
  bool MayMake(const SessionId& sender, const Message& init) const;
  Rank MakerOf(uint32_t store) const;
  std::string WhyNoMaker(uint32_t store) const;
  std::optional<uint64_t> Grant(const SessionId& asker, const Message& describe);
  void Unpark(const SessionId& id);

  ShardOptions options_;
  ChunkWorker worker_;
  uint64_t incarnation_ = 0;
  Epoch epoch_;
  size_t member_count_ = 0;
  size_t gone_count_ = 0;  // of the members
  std::set<Rank> came_again_;
  std::map<SessionId, Session> sessions_;
  std::map<LinkId, SessionId> links_;
  std::map<LinkId, WaitingHello> hellos_;
  std::map<Waiter, Message> describes_;         // of keys that rank 0 has not created yet
  std::set<std::pair<KeyId, Waiter>> awaited_;  // the same by key: an INIT looks at its own
  std::map<KeyId, KeyGrant> grants_;  // of keys whose chunk 0 belongs here and is not there yet
  uint64_t grant_count_ = 0;
  // Nodes keep their place when others are inserted.
  boost::unordered_map<KeyId, Key> keys_;
  boost::unordered_map<ChunkId, Chunk> chunks_;
  std::vector<RulePtr> all_;  // CONTROLs in the order of arrival, for keys made later
  uint64_t control_count_ = 0;
  // What one life at a time has cut and not released: at most one version of each chunk.
  std::optional<SessionId> cutter_;
  boost::unordered_map<ChunkId, ChunkCut> cuts_;
  // Stores that some living worker has closed and another one has open, and those that all had closed.
  std::set<uint32_t> half_closed_;
  ClosedStores dropped_;
  size_t held_bytes_ = 0;
  Time now_ = 0;
  Time next_refusal_ = 0;  // from when on one is logged
  std::vector<ShardListener*> listeners_;
};

}  // namespace tkv
