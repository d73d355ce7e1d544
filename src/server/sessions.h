// The begin and the end of sessions: HELLO, and the members that an EPOCH names.
//
// Uses Controls.

#pragma once

#include "server/controls.h"

namespace tkv {

class Sessions {
 public:
  // Makes the sessions of a shard, from the shard's other parts.
  Sessions(ShardCore* core, Controls* controls) : core_(*core), controls_(*controls) {}

  // Opens or resumes a session.  The HELLO of a worker waits for the EPOCH that lists the worker.
  void OnHello(LinkId link, const Message& message, Effects* effects);
  // Notes that a worker leaves, if its ERROR says so.  A null session is permitted.
  static void OnError(Session* session, const Message& message);
  // Notes that the process on the other side of a link has ended.
  void Ended(LinkId link);
  // Answers the waiting HELLOs that need not wait any more after a change of members.
  void RecheckHellos(Effects* effects);
  // Ends the sessions of incarnations that are over.
  void EndOld(Effects* effects);
  // As Shard::HaveLivingEnded and Shard::HaveAllLeft.
  bool HaveLivingEnded() const;
  bool HaveAllLeft() const;

 private:
  // Opens the session of a sender, and welcomes it.
  void OpenSession(LinkId link, const Hello& hello, Effects* effects);
  // Returns the end of the newest incarnation of a rank, as far as it is known without the head.
  Session::End EndOf(size_t rank) const;

  ShardCore& core_;
  Controls& controls_;
};

}  // namespace tkv
