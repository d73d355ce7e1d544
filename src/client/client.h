// A client: the keys that one incarnation of a worker (or an observer) uses, and every rule of
// docs/protocol.md that a client keeps.  A pure state machine.
//
// Terms: a "life" is one incarnation of a worker.  The "head" is the coordinator.  A "patience" is
// a timeout.  An EPOCH is the head's message with the membership.  A CONTROL is the client's
// message to every server that changes the updater.  A "cut" is a version that the servers keep for
// a save.  An operation "starts" when its messages are queued for the servers.  A later life
// "joins" a key: it finds the round from which it goes on.
//
// Operations on one key start in the order in which the user gave them.  Each operation ends
// exactly once, with an Outcome.  No operation waits longer than its patience.

#pragma once

#include <boost/unordered/unordered_map.hpp>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/pooled_table.h"
#include "base/small_vector.h"
#include "client/announcements.h"
#include "client/head_requests.h"
#include "client/operation.h"
#include "client/server_link.h"

namespace tkv {

struct ClientOptions {
  std::string job;
  Time patience = 600 * kSecond;        // for other workers
  Time server_patience = 30 * kSecond;  // for a server, and for the head
  // After an operation's deadline: for the servers to name the workers that it waited for.
  Time answer_grace = 1 * kSecond;
  Time ping_after = 5 * kSecond;        // of silence on a link that owes an answer
  Protocol protocol;                    // the version and features of this process
  Time first_notice = 5 * kSecond;      // until the first "still waiting"; the time then doubles
  Time notice_step_max = 60 * kSecond;  // the longest time between two notices
  size_t pull_bytes_max = size_t{256} << 20;  // of answers under way, per server
  int observer_tries = 8;  // of an observer's pull, to get equal versions of all chunks
};

class Client final : private KnownChunks {
 public:
  explicit Client(ClientOptions options)
      : options_(std::move(options)),
        limits_{options_.server_patience, options_.ping_after, options_.pull_bytes_max},
        head_(options_.server_patience) {}

  // ---- the head
  // Sets the role, rank and incarnation that the head gave.  Call it once, before all else.
  void Joined(Role role, const Welcome& welcome);
  // Takes a newer membership, and ignores an older one.  Fails the operations of servers that are
  // dead or started again.  Fails all operations if this life is over.
  void On(const Epoch& epoch, Time now, Effects* effects);
  // Sends unanswered requests to the head again: the head can be reached (again).
  void HeadOpened(Effects* effects);
  // Notes that the connection to the head is lost.  Operations that need the head fail when the
  // server_patience has passed.  Pushes and pulls go on.
  void HeadClosed(Time now);
  // Notes that the head's process has ended.  Operations that need the head fail at the next Tick.
  void HeadEnded(Time now);
  // Ends the operation whose request to the head this message answers, if it answers one.
  void HeadAnswered(const Message& message, Time now, Effects* effects);
  // Closes the client for good, because the head or a server refused this life or a bug was found.
  // All operations fail with this error, also those that Start gets later.
  void Refused(const Error& error, Effects* effects);

  // ---- the servers
  // Sends HELLO on a new connection, or closes a connection that is not needed any more.
  void Opened(uint32_t server, LinkId link, Time now, Effects* effects);
  // Handles a lost connection: the link dials again after a backoff.  Unknown links are ignored.
  void Closed(LinkId link, Time now);
  // Handles a failed dial: the link dials again after a backoff.
  void Failed(uint32_t server, Time now);
  // Handles a connection for which this machine lacked descriptors or memory.  Fails the server's
  // operations if none of their messages was sent.  Else they wait for the server_patience.
  void LackedResources(uint32_t server, const Error& error, Time now, Effects* effects);
  // Tells the servers that this worker has left, if the head cannot tell them.  Call it last.
  void SayGoodbye(Effects* effects);
  // Gives the server up for good: dialing it again would fail too.  Fails its operations.
  void ServerRefused(uint32_t server, const Error& error, Effects* effects);
  // Returns the memory for the body of this message, or an empty block to drop the body.
  Block Landing(LinkId link, const Message& message);
  // Handles a message.  Call Settle after the last message of a frame.
  void Received(LinkId link, const Message& message, Time now, Effects* effects);
  // Starts every operation and sends every message that no longer has to wait.
  void Settle(Time now, Effects* effects);
  // Returns the sequence number below which every mutating message on this link was answered, or 0
  // for an unknown link.  Each frame to the server carries it: the server then forgets its answers.
  uint64_t Low(LinkId link);

  // ---- time
  // Handles the deadlines, notices, dials and pings that are due.  Call it at `deadline`.
  void Tick(Time now, Effects* effects);
  Time deadline() const { return next_timer_; }

  // ---- operations
  OpId next_op() const { return last_op_ + 1; }  // the id that Start will return
  // Queues an operation.  Call Settle after the last of several.
  OpId Start(Operation operation, Time now);
  // Cancels operations: each fails with this error unless it has ended.  A change of the updater
  // that servers have got is taken back; later pushes of its store wait for that.
  //   ids  ascending
  void Cancel(std::span<const OpId> ids, const Error& error, Time now, Effects* effects);
  // Copies the operations' values as far as messages still need them, unsent or unanswered.  The
  // user may then change that memory.
  //   ids  ascending
  void Detach(std::span<const OpId> ids);
  std::vector<Outcome> TakeOutcomes() { return std::exchange(outcomes_, {}); }
  // Returns true if the head has answered this client's GOODBYE, or cannot be reached any more.
  bool has_left() const { return has_left_; }

  Rank rank() const { return welcome_.rank; }
  uint64_t incarnation() const { return welcome_.incarnation; }
  bool rejoined() const { return welcome_.rejoined; }  // this rank had an earlier life
  // Returns false only if every server has said that no key had a push when this life first
  // connected.  A server that was not reached yet counts as one with pushes.
  bool HasJobBegun() const;
  // Makes this later life run the script from its beginning, because no push of the job was lost.
  // The life counts its barriers from the first one.  A barrier that an earlier life had reached
  // ends as it did then.  Call it before any barrier.
  void BeginAnew() { begins_anew_ = true; }
  // Returns true if an earlier life had reached the barrier that this life would reach next.
  //   barrier  the name of the store's barrier key
  bool HasReachedNext(const std::string& barrier) const;
  const Epoch& epoch() const { return epoch_; }
  // Returns true if this worker is the Sender.
  bool IsSender() const;
  // Returns the rank that sends the CONTROLs for all workers, and its incarnation: the lowest rank
  // that is alive or whose first life is awaited.  Returns kNoRank if there is none.
  std::pair<Rank, uint64_t> Sender() const;
  // Returns the rank that reads snapshots and assigns values for all workers, and its incarnation.
  // Under the policy `continue` this is the Sender.  Under `fail` and `wait` it is the lowest rank
  // that can have another life, also while that rank is dead, because barriers wait for it too.
  std::pair<Rank, uint64_t> SnapshotReader() const;
  // The queries of a key return 0 or its like if this client does not know the key.
  //
  // Returns the round of this worker's last push that has started, as users count: from the
  // restored round on.
  uint64_t RoundOf(const std::string& key) const;
  // Returns the training step of the last push by an earlier life of this worker, or {}.
  PushStep FormerStepOf(const std::string& key) const;
  // Returns the value that RoundOf will have when all queued pushes of the key have started.
  uint64_t PushedOf(const std::string& key) const;
  // Returns the difference between a round as users count and as the servers count.
  uint64_t BaseOf(const std::string& key) const;
  // Returns true if the user has to push the key again: some chunks may have a push that failed or
  // that ended with an earlier life.  Returns false once enough pushes are queued.
  bool MustRepeat(const std::string& key) const;
  // Returns true if a push of this key has failed and this client has not asked all chunks since
  // for their rounds.  An Open of the key asks them.
  bool HasLostPush(const std::string& key) const;
  // Returns the error of a call that needs all chunks at one round, for a key with MustRepeat.
  //   round  the key's RoundOf
  static Error Uneven(uint64_t round);
  std::optional<KeyMeta> MetaOf(const std::string& key) const;  // nullopt: an unknown key
  // Returns true if this client has found the key and no server has since reported it deleted or
  // created anew.
  bool Knows(const std::string& key) const;
  // Returns the first queued Operation::Control, which sends CONTROLs or will do so next, or kNoOp.
  OpId control_under_way() const {
    return announcements_.empty() ? kNoOp : announcements_.front()->op;
  }
  // Returns the round of the first push of the key that the user gave after this operation.
  uint64_t RoundAfter(const std::string& key, OpId op) const;
  // Returns the first round of the key for which control_under_way changes the updater.  Returns
  // nullopt if it does not change the key's, because this later life does not know the key's round.
  std::optional<uint64_t> ControlCountsFrom(const std::string& key) const;
  // Returns the error of Refused, with which every operation fails, or nullopt.
  const std::optional<Error>& closed() const { return closed_; }
  // Returns the bytes of the bodies that were sent in mutating messages and have no answer.
  size_t unaccepted_bytes() const;
  // Adds the client's counters and the number of its operations, and the states of all members.
  void AddStats(Time now, StoreStats* stats) const;
  // Returns a label of the message for a test's table of coverage: the state of the message's link,
  // or "awaited" or "not awaited" on an open link.
  const char* StateFor(LinkId link, const Message& message) const;

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  enum class Creating : uint8_t { kNone, kRest, kFirst };  // which chunks of a key are being made
  // The neighbours of an operation in the list of its verb, and the index of that list.
  struct ListEntry {
    size_t verb = 0;
    OpId older = kNoOp;
    OpId newer = kNoOp;
  };
  struct Op {
    OpId id = kNoOp;
    Operation operation;
    KeyId key;
    Time begin = 0;
    Time deadline = 0;
    Time next_notice = 0;
    Time notice_step = 0;
    bool has_started = false;  // its messages are queued or sent
    uint64_t round = 0;
    uint32_t unaccepted = 0;            // PUSHes (INITs, CONTROLs, DELETEs) without an answer
    uint32_t unpulled = 0;              // PULLs without an answer
    bool is_accepted = false;           // its outcome kAccepted is in outcomes_
    bool expired = false;               // past its deadline; asks which workers are missing
    bool cancelled = false;             // at least one of its pulls has been cancelled
    bool is_reported = false;           // it was cancelled: its failure is in outcomes_ already
    Time grace = kNever;                // once expired: the time at which it fails without answers
    std::vector<Rank> missing;          // workers that it waits for, as a server named them
    SmallVector<uint64_t, 2> versions;  // of the chunks, where an observer pulls
    std::vector<ChunkState> states;     // of the chunks, of a cut
    TableStats table;                   // the sum over the chunks that have answered
    bool owns_value = false;            // no longer reads the user's memory
    int tries = 0;
    Creating creating = Creating::kNone;  // of an init
    uint64_t grant = 0;                   // of an init: permits creating; 0: none
    CurrentWait wait;                     // the reason why it cannot start yet
    ListEntry entry;

    // Returns true if its messages read memory of the user.
    bool LendsValue() const {
      return !owns_value && operation.value() != nullptr && operation.value()->bytes.size > 0;
    }
    Time NextTime() const { return expired ? grace : std::min(deadline, next_notice); }
  };
  // A search for the current round of a key: STATUS of every chunk, then ABSTAIN.
  struct Joining {
    enum class Phase : uint8_t { kNone, kStatus, kAbstain };
    Phase phase = Phase::kNone;
    uint32_t left = 0;  // outstanding answers, also of a search that has failed
    // The oldest and the newest round that this worker's pushes have reached, of all chunks.
    uint64_t oldest = UINT64_MAX;
    uint64_t newest = 0;
    PushStep step = {};  // of the push of the round from which this worker goes on
    bool is_over() const { return phase == Phase::kNone && left == 0; }
  };
  struct KeyState {
    KeyMeta meta;
    bool is_ready = false;
    bool is_stale = false;    // deleted or created anew since this client found it
    OpId opening = kNoOp;     // the init, open, delete or restore that is under way
    bool is_barrier = false;  // the internal key whose rounds are the store's barriers
    bool must_join = false;   // its current round is unknown
    Joining joining;
    uint64_t round = 0;  // of the last push
    // The newest round that a push has reached in some chunk.  Pushes of the rounds from `round` +
    // 1 to this one are repetitions.
    uint64_t repeats_to = 0;
    uint64_t joined_at = 0;  // the round that the last search has found; 0: none
    uint64_t reached = 0;    // of a barrier: the round that earlier lives had reached
    uint64_t lost_from = 0;  // the first round whose push has failed since that search; 0: none
    bool is_uneven() const { return round < repeats_to; }
    bool has_pushed = false;    // a push of this life has got a round
    PushStep former_step = {};  // of the last push of an earlier life
    uint64_t base = 0;          // users count rounds from here, modulo 2^64
    uint64_t listed_in = 0;     // generation of this life's last committed CONTROL with the key
    uint32_t pulls = 0;         // unanswered pulls, for which the next push waits
    uint32_t pushes = 0;        // unanswered pushes
    bool was_tried = false;     // an init of it has failed
    SmallVector<KnownChunk, 1> chunks;
    SmallVector<OpId, 4> queue;
  };

  // The private functions are explained where they are defined.
  //
  // operations.cc
  // Has Settle try to start the key's queued operations.
  void Wake(const KeyId& id) {
    if (ready_.empty() || ready_.back() != id) ready_.push_back(id);
  }
  void WakeAll();
  void ForgetPushes();  // those that are accepted or have failed
  std::vector<KeyId> SortedKeys() const;
  void Advance(const KeyId& id);  // starts as many of the key's operations as can start
  bool TryStart(const KeyId& id, KeyState* key, Op* op);
  void PlaceChunks(const KeyId& id, KeyState* key);  // finds the server of each chunk
  void Finish(Op* op);                               // with success
  void Erase(Op* op);
  void FinishIfDone(Op* op);
  void OwnBodies(std::span<const OpId> ids);  // copies user memory that messages still read
  void PrepareToFail(std::span<const OpId> ids);
  void Fail(Op* op, const Error& error);
  bool TakeBackIfSent(Op* op, const Error& error);
  void FailFirstQueued(KeyState* key, const Error& error);
  void FailAll(const Error& error);
  Op* Find(OpId id) { return ops_.Find(id); }
  std::string Prefix(const Op& op) const;  // verb and key: the beginning of messages
  Error Prefixed(const Op& op, const Error& error) const;
  static Error StoreIsClosed() { return {Code::kCancelled, "the store is closed"}; }

  // pushing.cc
  bool TryPush(const KeyId& id, KeyState* key, Op* op);
  void StartPulls(const KeyId& id, KeyState* key, Op* op);
  void QueuePull(const KeyId& id, KeyState* key, Op* op, uint32_t chunk, uint64_t min_version,
                 bool no_body);
  std::optional<Error> CheckIds(const KeyState& key, const Operation::Pull& pull) const;
  static bool IsAsked(const KeyMeta& meta, const Operation::Pull* pull, uint32_t chunk);
  static codec::Range RangeOf(const KeyMeta& meta, const Operation::Pull& pull, uint32_t chunk);
  // Asks the chunk's server to answer when the chunk has this version; EndAsk notes the end.
  void Ask(const KeyId& id, KeyState* key, uint32_t chunk, uint64_t version);
  bool PullAgain(const KeyId& id, KeyState* key, Op* op);
  void OnPushAnswer(const Outgoing& sent, const Message& reply);
  void LosePush(const KeyId& id, KeyState* key, uint64_t round, const Error& error);
  void FailLostRounds();
  void EndAsk(const Message& ask, uint32_t server);
  void OnPullAnswer(const Outgoing& sent, const Message& reply);
  void OnReadyAnswer(const Outgoing& sent, uint32_t server, const Message& reply);
  static void MarkStaleIfGone(KeyState* key, const Error& error);
  Found ChunkOf(const KeyId& id, uint32_t chunk) override;
  void AskFor(const KeyId& id, uint32_t chunk, uint64_t version) override;

  // creating.cc
  void StartInit(const KeyId& id, KeyState* key, Op* op);
  void StartMaking(const KeyId& id, KeyState* key, Op* op);
  void QueueInits(const KeyId& id, KeyState* key, Op* op);
  void OnInitAnswer(const Outgoing& sent, const Message& reply);
  void StartDelete(const KeyId& id, KeyState* key, Op* op);
  static void Forget(KeyState* key);
  void OnOtherAnswer(const Outgoing& sent, const Message& reply);
  void AdvanceCloses();
  bool IsInUse(uint32_t store, OpId close) const;
  void FailStore(uint32_t store, OpId close);
  void ForgetStore(uint32_t store);

  // snapshots.cc.  A Read reads a cut version, a Pull the current one.
  void StartRead(Op* op);
  static codec::Range PartRange(const Operation::Read& read, uint32_t chunk);
  static bool ReadsRows(const Operation::Read& read);
  static Error CannotSaveRows(uint32_t server);
  static codec::Range RowsRange(const Operation::Read& read, const RowRange& rows, uint64_t at);
  void QueueRead(Op* op, uint32_t chunk, size_t bytes, const RowRange* rows);
  void OnReadAnswer(const Outgoing& sent, const Message& reply);
  void StartRelease(Op* op);
  static bool AddTableStats(const Message& reply, TableStats* table);
  void StartStatus(const KeyId& id, KeyState* key, Op* op);
  void StartRestore(const KeyId& id, KeyState* key, Op* op);

  // listing.cc
  ServerLink* LinkToAsk(Op* op, uint32_t server, uint64_t feature, const char* lacks);
  void StartList(Op* op);
  void OnListAnswer(const Outgoing& sent, const Message& reply);
  void StartDescribe(Op* op);
  void OnDescribed(const Outgoing& sent, const Message& reply);

  // tracing.cc
  void StartTrace(Op* op);
  void OnTraceAnswer(const Outgoing& sent, const Message& reply);

  // joining.cc: the search for the round of a key
  static bool CanJoin(const KeyState& key);
  bool RepeatsPushes(const KeyState& key) const;
  void AddToSearch(const ChunkStatus& chunk, KeyState* key) const;
  void SetRound(KeyState* key) const;
  void StartJoin(const KeyId& id, KeyState* key);
  void NextJoinPhase(const KeyId& id, KeyState* key);
  void FailJoin(KeyState* key, const Error& error);
  void OnJoinAnswer(const Outgoing& sent, const Message& reply);

  // announcing.cc: controls.  A later life repeats its last control for keys that it joins later.
  void AdvanceAnnouncements(Effects* effects);
  bool MayStart(const Announcement& change);
  bool KnowsItsRounds(const Announcement& change);
  bool IsBeingMade(const KeyState& key) const;
  bool IsRepeat(const Op& op) const;
  bool LacksRule(const KeyState& key) const;
  bool RepeatControl(const KeyId& id, const KeyState& key, Time patience);
  void FailPushesFor(uint32_t store, const Error& error);
  void ListKeys(Announcement* change) const;
  void NoteCommitted(const Op& control);
  bool IsInitedBefore(const KeyState& key, OpId control, uint32_t store) const;
  uint64_t QueuedPushes(const KeyState& key, OpId before) const;
  void QueueControl(Op* op, const Announcement& change, Type type);
  void Withdraw(Op* control, const Error& error);

  // links.cc
  LinkTurn Turn(Time now, Effects* effects) {
    return {limits_, role_, now, &next_timer_, this, effects};
  }
  ServerLink* LinkOf(LinkId id);
  void OnWelcome(ServerLink* link, const Message& message, Time now, Effects* effects);
  void OnAnswer(const Outgoing& sent, uint32_t server, const Message& reply, Effects* effects);
  void Queue(uint32_t server, Outgoing outgoing);
  void Pump(ServerLink* link);
  void PumpLink(ServerLink* link, Time now, Effects* effects);
  // Gives the server up for good.
  void Kill(ServerLink* link, const Error& error, Effects* effects);
  // Fails the operations that wait for the server.  Later ones may dial it again.
  void Abandon(ServerLink* link, const Error& error, Effects* effects);
  void TickLink(ServerLink* link, const LinkTurn& turn);

  // deadlines.cc
  void FailRequests(Effects* effects);
  void SetTimer(const Op& op);
  OpId PopTimer();
  std::vector<OpId> TakeDue(Time now);
  void TickOp(Op* op, Time now, Effects* effects);
  bool AskForMissing(Op* op);
  static bool BlocksNextPush(const Message& message);
  void CancelWhere(const std::function<bool(const Outgoing&)>& is_meant, bool asks);
  void CancelPulls(std::span<const OpId> ids, bool asks);
  void OnMissingAnswer(const Outgoing& sent, const Message& reply, Effects* effects);
  void OnCancelAnswer(const Outgoing& sent, uint32_t server, const Message& reply);
  void Expire(Op* op, Time now);
  Error TimeoutOf(const Op& op) const;
  std::string Awaited(const Op& op) const;
  void Rearm(Time at) { next_timer_ = std::min(next_timer_, at); }

  // operations.cc
  void AdvanceLeaves(Effects* effects);
  void AdvanceNewestEpochs(Effects* effects);  // for Operation::NewestEpoch

  // queries.cc: statistics and notices
  void NoteWait(const KeyState& key, Op* op);
  void JoinList(Op* op);
  void LeaveList(Op* op);
  void LogWait(const Op& op, uint64_t round, Effects* effects) const;

  ClientOptions options_;
  LinkLimits limits_;
  Role role_ = Role::kWorker;
  Welcome welcome_;
  bool begins_anew_ = false;
  Epoch epoch_;
  std::optional<Error> closed_;
  bool has_left_ = false;
  HeadRequests head_;
  Time now_ = 0;

  OpId last_op_ = kNoOp;
  PooledTable<Op> ops_;
  std::deque<OpId> pushes_;   // in order; the first push is not accepted yet
  std::set<KeyId> barriers_;  // keys of barriers, which wait for pushes
  boost::unordered_map<KeyId, KeyState> keys_;
  std::vector<ServerLink> links_;
  std::vector<uint32_t> pump_;  // servers whose queues have changed, for Settle

  Announcements announcements_;
  uint64_t birth_count_ = 0;       // of the keys that this life has tried to create
  std::set<OpId> leaving_;         // each Operation::Leave
  std::set<OpId> awaiting_epoch_;  // each Operation::NewestEpoch
  std::set<OpId> closing_;         // each Operation::Close
  std::vector<Outcome> outcomes_;
  std::vector<KeyId> ready_;  // keys whose first operation may be able to start
  struct LostPush {
    uint64_t round = 0;
    Error error;
  };
  // The first push of each synchronous key with unanswered pulls that has failed in this event.
  std::map<KeyId, LostPush> lost_pushes_;
  Time next_timer_ = kNever;
  WaitCounts waits_;
  // A heap, the earliest first: one entry for each operation, and some for ended operations.
  std::vector<std::pair<Time, OpId>> timers_;
  // The operations of one verb that are under way and not expired.
  struct VerbList {
    std::string verb;
    OpId oldest = kNoOp;
    OpId newest = kNoOp;
    size_t count = 0;  // 0: another verb may take the entry
  };
  std::vector<VerbList> verb_lists_;
};

}  // namespace tkv
