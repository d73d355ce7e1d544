// A shard: the chunks of one server thread, the sessions of the workers that use them, and every
// rule of docs/protocol.md that a server enforces.  A pure state machine.
//
// The shard handles a message once all its bytes have arrived.  A message that breaks the protocol
// closes its link with a reason and changes nothing else.
//
// ShardCore holds the state.  Each part has the rules for some types of messages, and uses only the
// core and the parts above it in the list of members.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/controls.h"
#include "server/describes.h"
#include "server/key_catalog.h"
#include "server/listings.h"
#include "server/pulls.h"
#include "server/replies.h"
#include "server/rounds.h"
#include "server/sessions.h"
#include "server/shard_core.h"
#include "server/snapshots.h"
#include "server/store_removal.h"
#include "wire/listed.h"

namespace tkv {

// Returns the owner that marks a body for which there was no memory.  Its message gets an error.
const std::shared_ptr<void>& NoMemory();

// The state machine of one server thread.
class Shard {
 public:
  Shard(ShardOptions options, BufferPool* pool) : core_(std::move(options), pool) {}
  // Copies the state.  The parts of the copy refer to its own core.
  Shard(const Shard& other) : core_(other.core_) {}
  Shard& operator=(const Shard&) = delete;

  // Sets the index and incarnation that the coordinator (`head`) gave to this server.
  void Joined(uint32_t index, uint64_t incarnation) {
    core_.options.index = index;
    core_.incarnation = incarnation;
  }
  // Returns true if a worker is connected.
  bool has_clients() const { return core_.sessions.HasWorker(); }
  // Adopts a new membership.  An epoch that is not newer is ignored.
  void On(const Epoch& epoch, Effects* effects);
  // Notes that the process on the other side of a link has ended.  Call Closed afterwards.
  void Ended(LinkId link) { sessions_.Ended(link); }
  // Returns true if no worker that lives in the newest EPOCH can connect again: each of them has
  // said that it leaves, or its process has ended.  Returns false if none lives.
  bool HaveLivingEnded() const { return sessions_.HaveLivingEnded(); }
  // Returns true if all workers have left, as the head or they themselves have said.
  bool HaveAllLeft() const { return sessions_.HaveAllLeft(); }
  // Forgets a link that has closed.  The session of a worker stays, so that it can resume.
  void Closed(LinkId link) { core_.CloseLink(link); }
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
  void SetNow(Time now) { core_.now = now; }
  // Returns the ranges on the disk that a message needs, so that the caller can read them ahead.
  // Received reads the others itself.
  std::vector<DiskRange> RangesOnDisk(LinkId link, const Message& message) const;

  // ---- for checks and figures; nothing may be changed through them
  using Memory = Listed::Memory;
  const ShardCore& core() const { return core_; }
  const Chunk* FindChunk(const ChunkId& id) const { return core_.FindChunk(id); }
  const StoredKey* FindKey(const KeyId& id) const { return core_.FindKey(id); }
  void AddListener(ShardListener* listener) { core_.listeners.push_back(listener); }
  void RemoveListener(ShardListener* listener) { std::erase(core_.listeners, listener); }
  // Returns the sender whose session uses this link, or nullopt if the link has no session.
  std::optional<SessionId> SessionIdOf(LinkId link) const;
  const Epoch& epoch() const { return core_.epoch(); }
  uint64_t incarnation() const { return core_.incarnation; }
  Memory MemoryUse() const { return listings_.MemoryUse(); }
  // Returns the sessions whose `parked` differs from their waiting pulls and DESCRIBEs.
  std::vector<SessionId> Miscounted() const;
  const char* StateFor(LinkId link, const Message& message) const;  // row of the coverage table

 private:
  // Executes a message of the session, unless it is a repetition.
  void ExecuteOnce(Session* session, Message& message, Effects* effects);
  // Hands a message to the part that its type belongs to.
  void Execute(Session* session, Message& message, Effects* effects);
  // Executes the asynchronous pushes whose predecessor is done now.  They do not run inside another
  // operation, because it holds references to objects that a push may change.
  void RunWaiting(LinkId link, Effects* effects);

  ShardCore core_;
  Replies replies_{&core_};
  Controls controls_{&core_, &replies_};
  Snapshots snapshots_{&core_, &replies_, &controls_};
  Pulls pulls_{&core_, &replies_, &controls_};
  Rounds rounds_{&core_, &replies_, &controls_, &pulls_};
  Listings listings_{&core_, &replies_};
  Describes describes_{&core_, &replies_};
  KeyCatalog catalog_{&core_, &replies_, &describes_};
  StoreRemoval removal_{&core_, &replies_, &pulls_, &rounds_, &describes_, &catalog_};
  Sessions sessions_{&core_, &controls_};
};

}  // namespace tkv
