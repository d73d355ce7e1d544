// The state of a shard, which all parts of it share, and the listeners of its chunks.
//
// Not thread-safe.  A value: a copy of the core is a copy of the shard, because the parts have no
// state of their own.

#pragma once

#include <boost/unordered/unordered_map.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/cut_table.h"
#include "server/grant_table.h"
#include "server/membership.h"
#include "server/session_table.h"
#include "server/stored_key.h"
#include "server/waiting_describes.h"

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

struct ShardCore;

// An observer of new chunk versions, for checks and traces.
class ShardListener {
 public:
  virtual ~ShardListener() = default;
  virtual void Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk) = 0;
  // Returns true if the push of a synchronous key finds no memory.  For checks.
  virtual bool RefusesPush(const ShardCore& /*shard*/, const ChunkId& /*id*/) { return false; }
};

// A HELLO that waits for the EPOCH which lists its sender.
struct WaitingHello {
  Message message;
  Hello hello;
};

struct ShardCore {
  ShardCore(ShardOptions of_shard, BufferPool* pool)
      : options(std::move(of_shard)), editor(pool, options.adopt_from_bytes, options.disk) {}

  const Epoch& epoch() const { return members.epoch(); }
  const Chunk* FindChunk(const ChunkId& id) const;
  const StoredKey* FindKey(const KeyId& id) const;

  // Returns true if the newest incarnation of the rank has closed the store.  CLOSEs are forgotten
  // with the session of their incarnation, so that the next one finds the store open.
  bool HasClosed(Rank rank, uint32_t store) const;
  // Returns true if rounds of the key need the rank.  Under `continue` they need no worker that has
  // left or has closed the key's store.
  bool IsAwaited(const StoredKey& key, Rank rank) const;
  // Returns the progress of a chunk, as a rank asks for it in a STATUS.
  ChunkStatus StatusOf(const StoredKey& key, const Chunk& chunk, Rank rank) const;

  // Removes a waiting DESCRIBE.  Does nothing if none with this seq waits.
  void ForgetDescribe(Session* session, uint64_t seq);
  // Removes the waiting pulls and DESCRIBEs of a session.
  void UnparkAll(Session* session);
  // Forgets a link that has closed.  The session of a worker stays, so that it can resume.
  void CloseLink(LinkId link);

  ShardOptions options;
  ChunkEditor editor;
  uint64_t incarnation = 0;
  Membership members;
  SessionTable sessions;
  std::map<LinkId, WaitingHello> hellos;
  WaitingDescribes describes;
  GrantTable grants;
  // unordered_map, not a flat map: references stay valid when other entries are inserted.
  boost::unordered_map<KeyId, StoredKey> keys;
  boost::unordered_map<ChunkId, Chunk> chunks;
  // The rules of CONTROLs in the order of arrival, for keys created later.
  std::vector<RulePtr> controls;
  uint64_t control_count = 0;
  CutTable cuts;
  std::set<uint32_t> half_closed;  // stores that some worker has closed and another one has open
  ClosedStores dropped;            // stores that all workers have closed
  size_t held_bytes = 0;
  bool has_begun = false;  // a push of a key, or with kBegins, was accepted
  Time now = 0;
  Time next_refusal = 0;  // time from which the next refusal is logged
  std::vector<ShardListener*> listeners;
};

}  // namespace tkv
