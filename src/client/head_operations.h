// Operations that the head ends: the leave of a worker, the wait for the newest EPOCH, and the
// commit of a change.

#pragma once

#include "client/announcer.h"
#include "client/client_core.h"

namespace tkv {

class HeadOperations {
 public:
  HeadOperations(ClientCore* core, Announcer* announcer) : core_(*core), announcer_(*announcer) {}

  // Sends the requests that no longer have to wait, and ends the waits for an EPOCH that is there.
  void Advance(Effects* effects);
  // Ends the operation whose request this message answers.  Returns false if there is none.
  bool TakeAnswer(const Message& message);
  // Ends the operations whose requests no head can answer.
  void FailRequests(Effects* effects);

 private:
  void AdvanceLeaves(Effects* effects);
  void AdvanceNewestEpochs(Effects* effects);

  ClientCore& core_;
  Announcer& announcer_;
};

}  // namespace tkv
