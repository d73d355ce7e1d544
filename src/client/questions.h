// Questions to servers: which keys they have, how a key is described, and which spans they have
// recorded.  They start at once: no other operation is ordered with one.

#pragma once

#include "client/client_core.h"

namespace tkv {

class Questions {
 public:
  explicit Questions(ClientCore* core) : core_(*core) {}

  void StartList(Op* op);
  void OnListAnswer(const Outgoing& sent, const Message& reply);
  // Asks for a key's meta, and leaves the client's state of the key unchanged.
  void StartDescribe(Op* op);
  void OnDescribeAnswer(const Outgoing& sent, const Message& reply);
  void StartTrace(Op* op);
  void OnTraceAnswer(const Outgoing& sent, const Message& reply);

 private:
  ServerLink* LinkToAsk(Op* op, uint32_t server, uint64_t feature, const char* lacks);
  void Send(Op* op, uint32_t server, Message message);

  ClientCore& core_;
};

}  // namespace tkv
