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

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/announcer.h"
#include "client/client_core.h"
#include "client/closing_stores.h"
#include "client/cut_reader.h"
#include "client/head_operations.h"
#include "client/key_maker.h"
#include "client/pusher.h"
#include "client/questions.h"
#include "client/round_finder.h"
#include "client/server_sessions.h"
#include "client/waits.h"

namespace tkv {

class Client {
 public:
  explicit Client(ClientOptions options);
  // Copies the state of another client, for checks of all orders of events.
  Client(const Client& other) : Client(other.core_) {}
  Client& operator=(const Client&) = delete;

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
  Time deadline() const { return core_.next_timer; }

  // ---- operations
  OpId next_op() const { return core_.ops.next(); }  // the id that Start will return
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
  std::vector<Outcome> TakeOutcomes() { return std::exchange(core_.outcomes, {}); }
  // Returns true if the head has answered this client's GOODBYE, or cannot be reached any more.
  bool has_left() const { return core_.has_left; }

  Rank rank() const { return core_.members.welcome.rank; }
  uint64_t incarnation() const { return core_.members.welcome.incarnation; }
  bool rejoined() const { return core_.members.welcome.rejoined; }  // this rank had an earlier life
  // Returns false only if every server has said that no key had a push when this life first
  // connected.  A server that was not reached yet counts as one with pushes.
  bool HasJobBegun() const;
  // Makes this later life run the script from its beginning, because no push of the job was lost.
  // The life counts its barriers from the first one.  A barrier that an earlier life had reached
  // ends as it did then.  Call it before any barrier.
  void BeginAnew() { core_.begins_anew = true; }
  // Returns true if an earlier life had reached the barrier that this life would reach next.
  //   barrier  the name of the store's barrier key
  bool HasReachedNext(const std::string& barrier) const;
  const Epoch& epoch() const { return core_.members.epoch; }
  // As KnownMembers.
  bool IsSender() const { return core_.members.IsSender(); }
  std::pair<Rank, uint64_t> SnapshotReader() const { return core_.members.SnapshotReader(); }
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
  std::optional<KeyMeta> MetaOf(const std::string& key) const;  // nullopt: an unknown key
  // Returns true if this client has found the key and no server has since reported it deleted or
  // created anew.
  bool Knows(const std::string& key) const;
  // Returns the first queued Operation::Control, which sends CONTROLs or will do so next, or kNoOp.
  OpId control_under_way() const {
    const Announcement* const change = core_.announcements.front();
    return change == nullptr ? kNoOp : change->op;
  }
  // Returns the round of the first push of the key that the user gave after this operation.
  uint64_t RoundAfter(const std::string& key, OpId op) const;
  // Returns the first round of the key for which control_under_way changes the updater.  Returns
  // nullopt if it does not change the key's, because this later life does not know the key's round.
  std::optional<uint64_t> ControlCountsFrom(const std::string& key) const;
  // Returns the error of Refused, with which every operation fails, or nullopt.
  const std::optional<Error>& closed() const { return core_.closed; }
  // Returns the bytes of the bodies that were sent in mutating messages and have no answer.
  size_t unaccepted_bytes() const;
  // Adds the client's counters and the number of its operations, and the states of all members.
  void AddStats(Time now, StoreStats* stats) const;
  // Returns a label of the message for a test's table of coverage: the state of the message's link,
  // or "awaited" or "not awaited" on an open link.
  const char* StateFor(LinkId link, const Message& message) const;

 private:
  friend class StateWriter;  // for checks: compares the states of machines

  explicit Client(ClientCore core);

  // client.cc
  void Advance(const KeyId& id);  // starts as many of the key's operations as can start
  bool TryStart(const KeyId& id, ClientKey* key, Op* op);
  bool TryFind(const KeyId& id, ClientKey* key, Op* op);
  void StartAlone(Op* op);
  void Enqueue(Op* op);

  // events.cc
  void OnAnswer(const Outgoing& sent, uint32_t server, const Message& reply, Effects* effects);
  void OnOtherAnswer(const Outgoing& sent, const Message& reply);

  ClientCore core_;  // all of the client's state
  RoundFinder finder_;
  KeyMaker maker_;
  CutReader cuts_;
  Announcer announcer_;
  Pusher pusher_;
  ClosingStores closing_;
  HeadOperations head_;
  Questions questions_;
  Waits waits_;
  ServerSessions sessions_;
};

}  // namespace tkv
