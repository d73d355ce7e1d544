// The replies of a shard to its clients, and the end of sessions that break the protocol.
//
// Uses only the core.

#pragma once

#include <string>

#include "server/shard_core.h"

namespace tkv {

// The remedy in errors about a key that was deleted while another worker still used it.
inline constexpr const char* kDeleteRight =
    "; every worker calls delete, between two barriers, before the key is inited again";

// Returns the text of errors about a store that every worker has closed.
std::string StoreIsOver(uint32_t store);

class Replies {
 public:
  // Makes the replies of a shard.  The core must outlive them.
  explicit Replies(ShardCore* core) : core_(*core) {}

  // Sends a reply.  Keeps the reply to a mutating operation, for its repetitions.
  void Answer(Session* session, const Message& request, Message reply, Effects* effects);
  // Answers with an ERROR.  Logs refusals for lack of resources, a few of them.
  void AnswerError(Session* session, const Message& request, Code code, std::string text,
                   Effects* effects);
  // Answers a message that is meant for an earlier key of this name.
  void AnswerMadeAnew(Session* session, const Message& message, Effects* effects);
  // Refuses a message because too many operations of its session wait.
  void AnswerTooMany(Session* session, const Message& message, Effects* effects);
  // Closes the link of a session whose message breaks the protocol.  An observer's session ends.
  void Violation(Session* session, const Message& message, std::string reason, Effects* effects);

 private:
  ShardCore& core_;
};

}  // namespace tkv
