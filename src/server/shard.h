// A shard: the chunks of one server thread, the sessions of the workers that use them, and every
// rule of docs/protocol.md that a server enforces.  A pure state machine.
//
// The shard handles a message once all its bytes have arrived.  A message that breaks the protocol
// closes its link with a reason and changes nothing else.

#pragma once

#include <algorithm>
#include <boost/unordered/unordered_map.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/cut_table.h"
#include "server/session_table.h"
#include "server/waiting_describes.h"
#include "wire/listed.h"

namespace tkv {

struct ShardOptions {
  std::string job;
  Protocol protocol;                             // the protocol of this server
  uint32_t index = 0;                            // provisional until Joined
  size_t credit_budget_bytes = size_t{1} << 30;  // incoming pushes of all workers together
  size_t credit_min_bytes = size_t{8} << 20;     // minimum share of each worker
  size_t chunk_bytes_max = size_t{4} << 30;
  size_t hold_bytes_max = size_t{4} << 30;     // pushes that `deterministic` keys hold
  size_t parked_max = size_t{1} << 20;         // waiting operations of one session, 200 bytes each
  size_t asked_bytes_max = size_t{256} << 20;  // ids in waiting pulls of one session
  size_t rules_max = size_t{1} << 10;          // CONTROLs of one key that wait for their round
  size_t adopt_from_bytes = size_t{64} << 10;  // larger bodies become blocks without a copy
  std::shared_ptr<RowDisk> disk;               // for rows of keys with bounded memory; null: none
};

// Returns the owner that marks a body for which there was no memory.  Its message gets an error.
const std::shared_ptr<void>& NoMemory();

// An observer of new chunk versions, for checks and traces.
class ShardListener {
 public:
  virtual ~ShardListener() = default;
  virtual void Completed(const class Shard& shard, const ChunkId& id, const Chunk& chunk) = 0;
  // Returns true if the push of a synchronous key finds no memory.  For checks.
  virtual bool RefusesPush(const class Shard& /*shard*/, const ChunkId& /*id*/) { return false; }
};

// The state machine of one server thread.
class Shard {
 public:
  Shard(ShardOptions options, BufferPool* pool);

  // Sets the index and incarnation that the coordinator (`head`) gave to this server.
  void Joined(uint32_t index, uint64_t incarnation) {
    options_.index = index;
    incarnation_ = incarnation;
  }
  // Returns true if a worker is connected.
  bool has_clients() const { return sessions_.HasWorker(); }
  // Adopts a new membership.  An epoch that is not newer is ignored.
  void On(const Epoch& epoch, Effects* effects);
  // Notes that the process on the other side of a link has ended.  Call Closed afterwards.
  void Ended(LinkId link);
  // Returns true if no worker that lives in the newest EPOCH can connect again: each of them has
  // said that it leaves, or its process has ended.  Returns false if none lives.
  bool HaveLivingEnded() const;
  // Returns true if all workers have left, as the head or they themselves have said.
  bool HaveAllLeft() const;
  // Forgets a link that has closed.  The session of a worker stays, so that it can resume.
  void Closed(LinkId link);
  // Handles a frame's header: the client has the replies of all mutating operations below `low`.
  void Header(LinkId link, uint64_t low);
  // Returns true if the body of a message deserves memory.  Otherwise the transport discards the
  // bytes, and Received gets the message without them.
  bool Admit(LinkId link, const Message& message);
  // Executes a message, or answers a repeated one again.  An ERROR answers one that cannot be
  // executed.
  //   throws  kInvalidArgument (a malformed payload, which the node answers by closing the link)
  void Received(LinkId link, Message&& message, Effects* effects);
  // Sets the current time, from which LIST computes waiting times.
  void SetNow(Time now) { now_ = now; }
  // Returns the ranges on the disk that a message needs, so that the caller can read them ahead.
  // Received reads the others itself.
  std::vector<DiskRange> RangesOnDisk(LinkId link, const Message& message) const;

  // ---- for checks and figures; nothing may be changed through them
  static constexpr uint32_t kNoStore = UINT32_MAX;  // a barrier whose first push named no store
  struct Key {
    KeyMeta meta;
    RulePtr own;                                     // the key's own rule; no CONTROL changes it
    std::vector<std::pair<Rank, uint64_t>> abstain;  // last round in which a rank takes no part
    struct Pending {        // a CONTROL that some chunks of the key have not applied
      uint64_t number = 0;  // in the order of arrival at this shard
      uint64_t from_round = 0;
      RulePtr rule;
    };
    std::vector<Pending> pending;
    std::vector<uint32_t> chunks;  // chunks on this shard
    bool is_barrier = false;
    uint32_t store = kNoStore;
    // Births that a later INIT of the same shape replaced before the first round.  Workers that
    // know one of them may use this key.
    std::vector<uint64_t> former_births;
    // The rounds of a barrier that ended with an error, the last kFailuresMax of them.  A worker
    // that passes its barriers again gets the same errors.
    static constexpr size_t kFailuresMax = 64;
    std::vector<std::pair<uint64_t, Error>> failures;

    uint64_t AbstainOf(Rank rank) const;
  };
  using Memory = Listed::Memory;
  const Chunk* FindChunk(const ChunkId& id) const;
  const Key* FindKey(const KeyId& id) const;
  // Returns true if the rank's newest incarnation has closed a store that another worker has open.
  bool HasClosed(Rank rank, uint32_t store) const;
  void AddListener(ShardListener* listener) { listeners_.push_back(listener); }
  void RemoveListener(ShardListener* listener) { std::erase(listeners_, listener); }
  // Returns the sender whose session uses this link, or nullopt if the link has no session.
  std::optional<SessionId> SessionIdOf(LinkId link) const;
  const Epoch& epoch() const { return epoch_; }
  uint64_t incarnation() const { return incarnation_; }
  Memory MemoryUse() const;
  // Returns the sessions whose `parked` differs from their waiting pulls and DESCRIBEs.
  std::vector<SessionId> Miscounted() const;
  const char* StateFor(LinkId link, const Message& message) const;  // row of the coverage table

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  struct WaitingHello {      // a HELLO that waits for the EPOCH which lists its sender
    Message message;
    Hello hello;
  };
  struct KeyGrant {  // the right to create a key
    SessionId maker;
    uint64_t number = 0;
    uint32_t store = 0;
  };

  // The private functions are explained where they are defined.
  void OnHello(LinkId link, const Message& message, Effects* effects);
  void AdmitSession(LinkId link, const Hello& hello, Effects* effects);
  bool IsListed(const Hello& hello) const;
  bool IsOver(Role role, const SessionId& id) const;
  void EndOldSessions(Effects* effects);
  Session::End EndOf(size_t rank) const;
  void Violation(Session* session, const Message& message, std::string reason, Effects* effects);

  // The sizes that Admit allows, and the valid INITs.
  bool AdmitsIds(const Session& session, const Message& message) const;
  bool AdmitsInit(const Session& session, const Message& message) const;
  bool IsOfThisServer(const KeyMeta& meta, const Message& init) const;
  // Executes a message of the session, unless it is a repetition.
  void ExecuteOnce(Session* session, Message& message, Effects* effects);
  void Execute(Session* session, Message& message, Effects* effects);
  void Answer(Session* session, const Message& request, Message reply, Effects* effects);
  void AnswerError(Session* session, const Message& request, Code code, std::string text,
                   Effects* effects);
  static bool IsOfAnother(const Key& key, const Message& message);
  void AnswerMadeAnew(Session* session, const Message& message, Effects* effects);
  void AnswerTooMany(Session* session, const Message& message, Effects* effects);
  void RunWaiting(LinkId link, Effects* effects);  // asynchronous pushes that wait for another one

  void OnInit(Session* session, Message& message, Effects* effects);
  void OnDescribe(Session* session, Message& message, Effects* effects);
  void OnStatus(Session* session, const Message& message, Effects* effects);
  void OnList(Session* session, const Message& message, Effects* effects);
  Listed::Item ItemOf(const KeyId& id, const Key& key) const;
  void OnPush(Session* session, Message& message, Effects* effects);
  void OnPushSync(Session* session, Message& message, Key* key, Chunk* chunk, Scalars scalars,
                  const PushStep& step, const std::optional<Error>& failure, Effects* effects);
  static void AddBarrierTask(uint8_t flags, const std::optional<Error>& failure, Rank rank,
                             size_t index, Chunk* chunk);
  void OnPushAsync(Session* session, Message& message, Key* key, Chunk* chunk,
                   const Scalars& scalars, Effects* effects);
  void OnPull(Session* session, const Message& message, Effects* effects);
  static void Unpark(Session* session, const ParkedPull& pull);  // counts it no longer
  static std::optional<Error> TakeIds(const Message& message, const Chunk& chunk, ParkedPull* pull);
  void OnCancel(Session* session, const Message& message, Effects* effects);
  void OnRead(Session* session, const Message& message, Effects* effects);
  void OnReadRows(Session* session, const Message& message, const ChunkCut& cut, Effects* effects);
  void OnReadSomeRows(Session* session, const Message& message, const ChunkCut& cut,
                      Effects* effects);
  void OnRelease(Session* session, const Message& message, Effects* effects);
  void OnRestore(Session* session, Message& message, Effects* effects);
  size_t CutBytes() const;
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
  void RecheckClosedStores(Effects* effects);
  void RecheckStore(uint32_t store, Effects* effects);
  void EraseKey(const KeyId& id, const char* why, Effects* effects);

  bool IsComplete(const Key& key, const Chunk& chunk, Rank arriving) const;
  static void KeepFailure(Key* key, const Chunk& chunk);
  const Error* FailureOf(const ChunkId& id, const Chunk& chunk, uint64_t round) const;
  void NotifyListeners(const ChunkId& id, const Chunk& chunk) const;
  void CheckNotRefused(const ChunkId& id) const;
  void CompleteRounds(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects);
  bool IsCommitted(const Rule& rule) const;
  bool IsSettled(const Rule& rule) const;  // it can be withdrawn no longer
  void ApplyControls(Key* key, Chunk* chunk);
  Chunk WithDueRule(const Key& key, const Chunk& chunk);
  void AnswerParked(const ChunkId& id, Key* key, Chunk* chunk, Effects* effects);
  bool CanAnswer(const Chunk& chunk, const ParkedPull& pull, const Session& session) const;
  void SendValue(Session* session, const ChunkId& id, const Chunk& chunk, const ParkedPull& pull,
                 Effects* effects);
  bool WaitsForLife(const SessionId& waiting, Rank dead) const;
  std::string WhyNever(const Key& key, const Chunk& chunk, const ParkedPull& pull) const;
  static uint64_t LastCovered(const Key& key, const Chunk& chunk, Rank rank);
  ChunkStatus StatusOf(const Key& key, const Chunk& chunk, Rank rank) const;
  void DropRules(Rank rank, uint64_t incarnation, uint64_t after_generation);
  static UpdateSpec RunningRule(const Chunk& chunk);
  bool AnswerDescribe(const Session& session, const Message& request, Effects* effects);
  void AnswerDescribesOf(const KeyId& key, Effects* effects);
  void AnswerDescribes(const std::vector<WaitingDescribes::Waiter>& waiters, Effects* effects);
  void ForgetDescribe(Session* session, uint64_t seq);
  void RecheckDescribes(Effects* effects);
  bool MayMake(const SessionId& sender, const Message& init) const;
  Rank MakerOf(uint32_t store) const;
  std::string WhyNoMaker(uint32_t store) const;
  std::optional<uint64_t> Grant(const SessionId& asker, const Message& describe);
  void UnparkAll(Session* session);

  ShardOptions options_;
  ChunkEditor editor_;
  uint64_t incarnation_ = 0;
  Epoch epoch_;
  size_t member_count_ = 0;
  size_t gone_count_ = 0;      // members for which Epoch::IsGone: rounds that lack them fail
  std::set<Rank> came_again_;  // ranks with a second incarnation
  SessionTable sessions_;
  std::map<LinkId, WaitingHello> hellos_;
  WaitingDescribes describes_;
  std::map<KeyId, KeyGrant> grants_;  // for keys whose chunk 0 belongs here and does not exist yet
  uint64_t grant_count_ = 0;
  // unordered_map, not a flat map: references stay valid when other entries are inserted.
  boost::unordered_map<KeyId, Key> keys_;
  boost::unordered_map<ChunkId, Chunk> chunks_;
  // The rules of CONTROLs in the order of arrival, for keys created later.
  std::vector<RulePtr> controls_;
  uint64_t control_count_ = 0;
  CutTable cuts_;
  // Stores that some worker has closed and another one has open, and stores that all have closed.
  std::set<uint32_t> half_closed_;
  ClosedStores dropped_;
  size_t held_bytes_ = 0;
  bool has_begun_ = false;  // a push of a key, or with kBegins, was accepted
  Time now_ = 0;
  Time next_refusal_ = 0;  // time from which the next refusal is logged
  std::vector<ShardListener*> listeners_;
};

}  // namespace tkv
