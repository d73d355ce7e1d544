// The state of a client, the messages that its operations queue for servers, and their outcomes.
//
// The parts have no state of their own.  Each begins some kinds of operations and handles the
// answers to them.  A part uses the core, and parts above it in the list of Client's members.
// ServerSessions hands answers back to Client.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "client/announcements.h"
#include "client/client_keys.h"
#include "client/client_options.h"
#include "client/head_requests.h"
#include "client/known_members.h"
#include "client/op_table.h"
#include "client/operation.h"
#include "client/server_link.h"

namespace tkv {

class ClientCore final : private KnownChunks {
 public:
  explicit ClientCore(ClientOptions given)
      : options(std::move(given)),
        limits{options.server_patience, options.ping_after, options.pull_bytes_max},
        head(options.server_patience),
        ops({options.patience, options.first_notice}) {}

  // ---- state
  const ClientOptions options;
  const LinkLimits limits;
  KnownMembers members;
  std::optional<Error> closed;  // the error of Client::Refused, with which every operation fails
  bool has_left = false;        // the head has answered GOODBYE, or cannot be reached any more
  bool begins_anew = false;     // see Client::BeginAnew
  HeadRequests head;
  Time now = 0;
  Time next_timer = kNever;
  OpTable ops;
  ClientKeys keys;
  std::deque<OpId> pushes;  // in order; the first push is not accepted yet
  struct LostPush {
    uint64_t round = 0;
    Error error;
  };
  // The first push of each synchronous key with unanswered pulls that has failed in this event.
  std::map<KeyId, LostPush> lost_pushes;
  uint64_t birth_count = 0;  // of the keys that this life has tried to create
  std::vector<ServerLink> links;
  Announcements announcements;
  std::set<OpId> leaves;         // each Operation::Leave
  std::set<OpId> newest_epochs;  // each Operation::NewestEpoch
  std::set<OpId> closes;         // each Operation::Close
  std::vector<Outcome> outcomes;
  WaitCounts waits;

  // ---- messages to servers
  // Queues a message.  Client::Settle sends it.
  void Queue(uint32_t server, Outgoing outgoing);
  // Has Settle look at a link.
  void Pump(ServerLink* link) {
    if (link->Mark()) pump_.push_back(link->server());
  }
  bool has_pumped() const { return !pump_.empty(); }
  std::vector<uint32_t> TakePumped();  // in ascending order
  ServerLink* LinkOf(LinkId id);
  LinkTurn Turn(Time at, Effects* effects) {
    return {limits, members.role, at, &next_timer, this, effects};
  }
  void Rearm(Time at) { next_timer = std::min(next_timer, at); }
  // Finds the server of each chunk.
  void PlaceChunks(const KeyId& id, ClientKey* key) const;
  Found ChunkOf(const KeyId& id, uint32_t chunk) override;
  // Asks the chunk's server to answer when the chunk has this version.
  void AskFor(const KeyId& id, uint32_t chunk, uint64_t version) override;
  // Notes that the request of AskFor is over.
  void EndAsk(const Message& ask, uint32_t server);

  // ---- operations
  // Adds an operation that begins at this time.
  Op& Add(Operation operation, Time begin);
  // Ends an operation with success.
  void Finish(Op* op);
  void FinishIfDone(Op* op);  // if all answers are there
  // Ends an operation with success and this result.
  void FinishWith(Op* op, Outcome::Result result);
  // Ends an operation with an error.  Its pushes are still sent.
  void Fail(Op* op, const Error& error);
  // Fails the first operation in the key's queue that has not started.
  void FailFirstQueued(ClientKey* key, const Error& error);
  void FailAll(const Error& error);
  // Reports the failure of an operation that ends later.
  void ReportFailure(Op* op, const Error& error);
  // Prepares operations to fail: cancels their pulls, and stops reading the user's memory.
  //   ids  ascending
  void PrepareToFail(std::span<const OpId> ids);
  // Copies user memory that messages of these operations still read.
  //   ids  ascending
  void OwnBodies(std::span<const OpId> ids);
  // Copies the operations' values as far as messages still need them, unsent or unanswered.
  //   ids  ascending
  void Detach(std::span<const OpId> ids);
  // Cancels the pulls of these operations.
  //   ids   ascending
  //   asks  the operations wait for the answers, which name the missing workers
  void CancelPulls(std::span<const OpId> ids, bool asks);
  // Cancels the matching pulls, in one pass over all messages under way.
  //   asks  as for CancelPulls
  void CancelWhere(const std::function<bool(const Outgoing&)>& is_meant, bool asks);
  // Returns the error of an operation whose deadline is over.
  Error TimeoutOf(const Op& op) const;
  // Names the workers, the server or the head that an operation waits for.
  std::string Awaited(const Op& op) const;
  // Counts the key's pushes that have no round yet and that the user gave before this operation.
  uint64_t QueuedPushes(const ClientKey& key, OpId before) const;

  // ---- changes of the updater
  // Returns true if this later life has changed the updater and the key has not got that change,
  // because the life joined the key's rounds afterwards.
  bool LacksRule(const ClientKey& key) const;

 private:
  friend class StateWriter;  // for checks: compares the states of machines

  // Returns true if the client itself repeats a change.
  bool IsRepeat(const Op& op) const;
  void Erase(Op* op);
  void ForgetPushes();
  void FailPushesFor(uint32_t store, const Error& error);
  void NoteCommitted(const Op& control);

  std::vector<uint32_t> pump_;  // servers whose queues have changed, for Settle
};

// Returns true if the next push of the key has to wait for the answer to this message.
bool BlocksNextPush(const Message& message);
// Returns true if the operation is a push or a barrier.
bool HasRound(const Operation& operation);
Error StoreIsClosed();

}  // namespace tkv
