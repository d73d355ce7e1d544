// Operations that wait: their deadlines, their notices, and the search for the worker or the server
// that they wait for.

#pragma once

#include "client/announcer.h"
#include "client/client_core.h"

namespace tkv {

class Waits {
 public:
  Waits(ClientCore* core, Announcer* announcer) : core_(*core), announcer_(*announcer) {}

  // Handles the deadlines and notices that are due.
  void Tick(Time now, Effects* effects);
  // Takes the list of missing workers, for a notice or for the error of a deadline.
  void OnMissingAnswer(const Outgoing& sent, const Message& reply, Effects* effects);
  void OnCancelAnswer(const Outgoing& sent, uint32_t server, const Message& reply);

 private:
  void TickOp(Op* op, Time now, Effects* effects);
  bool AskForMissing(Op* op);
  void AskForMissing(const Op& op, uint32_t server, uint32_t chunk);
  void Expire(Op* op, Time now);
  void LogWait(const Op& op, uint64_t round, Effects* effects) const;

  ClientCore& core_;
  Announcer& announcer_;
};

}  // namespace tkv
