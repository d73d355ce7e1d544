// The sessions of a client with all servers: when they are dialed, opened and given up, and what is
// sent in them.

#pragma once

#include <functional>
#include <string>

#include "client/client_core.h"

namespace tkv {

class ServerSessions {
 public:
  // Handles the answer to a message, or an ERROR in place of an answer that will not come.
  using OnAnswer = std::function<void(const Outgoing& sent, uint32_t server, const Message& reply,
                                      Effects* effects)>;

  ServerSessions(ClientCore* core, OnAnswer on_answer)
      : core_(*core), on_answer_(std::move(on_answer)) {}

  // Takes a newer membership: adds servers, and gives up those that are dead or started again.
  void OnEpoch(Effects* effects);
  void Opened(uint32_t server, LinkId link, Time now, Effects* effects);
  void Closed(LinkId link, Time now);
  void Failed(uint32_t server, Time now);
  // Handles a dial for which this machine lacked descriptors or memory.  Returns true if it has
  // failed the server's operations, because none of their messages was sent.
  bool LackedResources(uint32_t server, const Error& error, Time now, Effects* effects);
  void Refused(uint32_t server, const Error& error, Effects* effects);
  // Closes all links for good.
  void CloseAll(Effects* effects);
  void OnWelcome(ServerLink* link, const Message& message, Time now, Effects* effects);
  // Gives a server up for good, and fails everything that waits for it.
  void Kill(ServerLink* link, const Error& error, Effects* effects);
  // Sends what the links' queues permit.
  void Send(Time now, Effects* effects);
  // Handles the dials and pings that are due, and abandons servers that are out of reach.
  void Tick(const LinkTurn& turn);

 private:
  void SendOn(ServerLink* link, Time now, Effects* effects);
  void Abandon(ServerLink* link, const Error& error, Effects* effects);
  void TickLink(ServerLink* link, const LinkTurn& turn);

  ClientCore& core_;
  OnAnswer on_answer_;
};

}  // namespace tkv
