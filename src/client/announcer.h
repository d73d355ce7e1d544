// Changes of the updater: the client announces them to all servers, and the head commits them.  A
// later life repeats its last change for keys that it joins later.

#pragma once

#include "client/client_core.h"
#include "client/round_finder.h"

namespace tkv {

class Announcer {
 public:
  Announcer(ClientCore* core, RoundFinder* finder) : core_(*core), finder_(*finder) {}

  // Sends what the first change can send.
  void Advance(Effects* effects);
  // Handles an answer to CONTROL or WITHDRAW, or an ERROR in its place.
  void OnAnswer(Op* op, const Message& reply);
  // Takes a CONTROL back from all servers.  The CONTROL fails with this error when they have
  // answered.
  void Withdraw(Op* control, const Error& error);
  // Withdraws a change that servers have got, and reports its failure at once.
  //   returns  false  the operation is no change, or no server has it
  bool WithdrawIfSent(Op* op, const Error& error);
  // Repeats the last CONTROL of the key's store, for all keys that lack it, unless a repetition is
  // queued.  Returns false if this worker no longer sends the CONTROLs.
  //   patience  0: the client's
  bool Repeat(const KeyId& id, const ClientKey& key, Time patience);
  // As Client::ControlCountsFrom.
  std::optional<uint64_t> CountsFrom(const std::string& key) const;

 private:
  bool MayStart(const Announcement& change);
  bool KnowsItsRounds(const Announcement& change);
  bool IsBeingMade(const ClientKey& key) const;
  bool IsInitedBefore(const ClientKey& key, OpId control, uint32_t store) const;
  void ListKeys(Announcement* change) const;
  void QueueControl(Op* op, const Announcement& change, Type type);

  ClientCore& core_;
  RoundFinder& finder_;
};

}  // namespace tkv
