#include "client/server_sessions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"

namespace tkv {

void ServerSessions::OnEpoch(Effects* effects) {
  while (core_.links.size() < core_.members.epoch.servers.size()) {
    core_.links.emplace_back(static_cast<uint32_t>(core_.links.size()));
  }
  for (ServerLink& link : core_.links) {
    const Epoch::Seat& seat = core_.members.epoch.servers[link.server()];
    if (seat.IsOver()) {
      const bool has_left = seat.state == Epoch::State::kLeft;  // after all workers have left
      Kill(&link,
           Error(Code::kUnavailable,
                 has_left ? Format("server {} has left: the job has ended", link.server())
                          : Format("server {} is dead{}", link.server(), kStartAgain)),
           effects);
    } else if (link.incarnation() != 0 && seat.incarnation > link.incarnation()) {
      Kill(&link,
           Error(Code::kUnavailable, Format("server {} has started again and has lost its values{}",
                                            link.server(), kStartAgain)),
           effects);
    }
    core_.Pump(&link);
  }
}

void ServerSessions::Opened(uint32_t server, LinkId id, Time now, Effects* effects) {
  ServerLink& link = core_.links[server];
  if (link.state() != ServerLink::State::kDialing || core_.closed) {
    return effects->Close(id, Code::kCancelled, "not needed any more");
  }
  link.Opened(id, core_.Turn(now, effects));
  Hello hello;
  hello.job = core_.options.job;
  hello.role = core_.members.role;
  hello.rank = core_.members.welcome.rank;
  hello.incarnation = core_.members.welcome.incarnation;
  hello.known = link.incarnation();
  hello.protocol = core_.options.protocol;
  Message message;
  message.type = Type::kHello;
  message.extra = Encode(hello);
  effects->Send(id, std::move(message));
}

void ServerSessions::Closed(LinkId id, Time now) {
  if (ServerLink* const link = core_.LinkOf(id)) link->Lost(core_.Turn(now, nullptr));
}

void ServerSessions::Failed(uint32_t server, Time now) {
  ServerLink& link = core_.links[server];
  if (link.state() == ServerLink::State::kDialing) link.Lost(core_.Turn(now, nullptr));
}

void ServerSessions::Refused(uint32_t server, const Error& error, Effects* effects) {
  Kill(&core_.links[server], Error(error.code(), Format("server {}: {}", server, error.what())),
       effects);
}

// If no message for the server is unanswered, all of its operations fail at once, with the name of
// the missing resource.  Else the server may have done an operation.  All operations then wait for
// a connection until the patience ends.
bool ServerSessions::LackedResources(uint32_t server, const Error& error, Time now,
                                     Effects* effects) {
  ServerLink& link = core_.links[server];
  if (link.dead() || core_.closed) return false;
  core_.now = now;
  link.NoteLack(error.what());
  if (link.has_unanswered()) return false;
  Abandon(&link, Error(error.code(), Format("server {}: {}", server, error.what())), effects);
  return true;
}

void ServerSessions::CloseAll(Effects* effects) {
  for (ServerLink& link : core_.links) {
    link.Close(effects);
    link.NoteWait(core_.now, &core_.waits);
  }
}

void ServerSessions::OnWelcome(ServerLink* link, const Message& message, Time now,
                               Effects* effects) {
  if (link->state() != ServerLink::State::kHello) return;
  const Welcome welcome = DecodeWelcome(message.extra);
  const std::string who = Format("server {}", link->server());
  if (const auto error =
          WhyNotTogether(who, welcome.protocol, "this process", core_.options.protocol)) {
    effects->Close(link->link(), error->code(), error->what());
    return Kill(link, *error, effects);
  }
  const bool is_known = link->incarnation() != 0;
  const bool changed = is_known && welcome.server_incarnation != link->incarnation();
  // A server forgets an observer whose link is lost, so an observer only sends its requests again.
  const bool forgotten =
      !core_.members.is_observer() && is_known && !welcome.resumed && link->has_unanswered();
  if (changed || forgotten) {
    effects->Close(link->link(), Code::kCancelled,
                   "this server is not the one that the client knew");
    const Error error(Code::kUnavailable,
                      Format("{} has started again and has lost its values{}", who, kStartAgain));
    return Kill(link, error, effects);
  }
  link->Welcomed(welcome, core_.Turn(now, effects));
  core_.Pump(link);
}

void ServerSessions::Kill(ServerLink* link, const Error& error, Effects* effects) {
  if (link->dead()) return;
  if (!core_.has_left) effects->Log(Level::kWarning, error.what());
  link->Die(error, effects);
  Abandon(link, error, effects);
}

// Fails everything that waits for this server.
void ServerSessions::Abandon(ServerLink* link, const Error& error, Effects* effects) {
  size_t sent_count = 0;
  const std::vector<Outgoing> outgoing = link->TakeAll(&sent_count);
  std::vector<Outgoing> again;
  for (size_t i = 0; i < outgoing.size(); ++i) {
    const Outgoing& lost = outgoing[i];
    if (i >= sent_count && lost.message.type == Type::kPush) {
      if (KnownChunk* const known = core_.ChunkOf(lost.message.key, lost.message.chunk).chunk) {
        Drop(&known->queued_pushes);
      }
    }
    on_answer_(lost, link->server(), ErrorReply(lost.message.seq, error.code(), error.what()),
               effects);
    const Type type = lost.message.type;
    if ((type == Type::kWithdraw || type == Type::kClose) && !link->dead()) {
      // No push may reach the server before the CONTROL is taken back, and the keys of a closed
      // store have to be freed.  Both messages wait as long as that takes.
      again.push_back(lost);
      again.back().op = kNoOp;
    }
  }
  std::ranges::reverse(again);  // each QueueFirst puts one before those queued so far
  for (Outgoing& message : again) link->QueueFirst(std::move(message));
  link->NoteWait(core_.now, &core_.waits);
}

void ServerSessions::Send(Time now, Effects* effects) {
  for (const uint32_t server : core_.TakePumped()) {
    ServerLink& link = core_.links[server];
    link.Unmark();
    SendOn(&link, now, effects);
    link.NoteWait(core_.now, &core_.waits);
  }
}

void ServerSessions::SendOn(ServerLink* link, Time now, Effects* effects) {
  if (!link->busy()) return;
  if (link->dead()) {
    const Error error = *link->dead();
    return Abandon(link, error, effects);
  }
  const LinkTurn turn = core_.Turn(now, effects);
  link->Connect(turn, core_.members.epoch.servers[link->server()].state == Epoch::State::kAlive);
  link->Send(turn);
}

void ServerSessions::Tick(const LinkTurn& turn) {
  for (ServerLink& link : core_.links) TickLink(&link, turn);
}

void ServerSessions::TickLink(ServerLink* link, const LinkTurn& turn) {
  if (link->dead() || !link->busy()) return;
  if (const auto error = link->OutOfReach(turn)) {
    // Without the head this client may never have heard that the server is there.
    const char* const why = core_.head.is_lost() ? "; the head is out of reach, too" : "";
    return Abandon(link, Error(error->code(), error->what() + std::string(why)), turn.effects);
  }
  if (link->state() == ServerLink::State::kIdle) return core_.Pump(link);
  link->Ping(turn);
}

}  // namespace tkv
