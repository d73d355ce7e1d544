// The DESCRIBEs of a shard, which wait until their key exists, and the grants that let a worker
// create a missing key.
//
// Uses Replies.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/replies.h"

namespace tkv {

class Describes {
 public:
  // Makes the DESCRIBEs of a shard, from the shard's other parts.
  Describes(ShardCore* core, Replies* replies) : core_(*core), replies_(*replies) {}

  // Answers a DESCRIBE, or lets it wait.
  void OnDescribe(Session* session, Message& message, Effects* effects);
  // Answers the DESCRIBEs that wait for one key.
  void AnswerAllOf(const KeyId& key, Effects* effects);
  // Answers the DESCRIBEs that need not wait any more after a change of members or stores.
  void Recheck(Effects* effects);
  // Removes the grants of workers that have ended.
  void DropGrants();
  // Returns true if the sender of an INIT may create the key: rank 0, or a worker with a grant.  A
  // grant is checked only for chunk 0, because the server of chunk 0 has issued the grant, and the
  // key exists once its chunk 0 does.
  bool MayMake(const SessionId& sender, const Message& init) const;

 private:
  void AnswerAll(const std::vector<WaitingDescribes::Waiter>& waiters, Effects* effects);
  // Answers a DESCRIBE.  Returns false if it has to wait until another worker creates the key.
  bool Answer(const Session& session, const Message& request, Effects* effects);
  // Lets a worker create a missing key, unless another worker is creating it.  Returns the number
  // of the grant.  If several grants exist for a key, the largest number wins.
  std::optional<uint64_t> Grant(const SessionId& asker, const Message& describe);
  // Returns the rank that creates the keys of a store: rank 0, or under `continue` the lowest rank
  // that is alive or awaited and has the store open.  Returns kNoRank if there is no such rank.
  Rank MakerOf(uint32_t store) const;
  // Says why rank 0 creates no key of the store any more.
  std::string WhyNoMaker(uint32_t store) const;

  ShardCore& core_;
  Replies& replies_;
};

}  // namespace tkv
