// Reports on the keys of a shard, for workers, observers and tools: STATUS, LIST.
//
// Uses Replies.

#pragma once

#include "server/replies.h"
#include "wire/listed.h"

namespace tkv {

class Listings {
 public:
  // Makes the reports on a shard, from the shard's other parts.
  Listings(ShardCore* core, Replies* replies) : core_(*core), replies_(*replies) {}

  // Sends the progress of a chunk.
  void OnStatus(Session* session, const Message& message, Effects* effects);
  // Sends a page of the keys, ascending by their ids.  The first page has the workers and the
  // memory too.
  void OnList(Session* session, const Message& message, Effects* effects);
  // Returns the memory of the shard in bytes, by purpose.
  Listed::Memory MemoryUse() const;

 private:
  Listed::Item ItemOf(const KeyId& id, const StoredKey& key) const;
  // Returns the bytes of the blocks that only cuts hold.  Chunks account for shared blocks.
  size_t CutBytes() const;

  ShardCore& core_;
  Replies& replies_;
};

}  // namespace tkv
