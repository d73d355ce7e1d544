#include "server/sessions.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/format.h"
#include "wire/hello.h"

namespace tkv {

void Sessions::OnHello(LinkId link, const Message& message, Effects* effects) {
  const auto read = ReadHello(link, message, core_.options.job, core_.options.protocol,
                              Format("server {}", core_.options.index), effects);
  if (!read) return;
  const Hello& hello = *read;
  if (hello.role == Role::kServer || hello.incarnation == 0 ||
      (hello.role == Role::kWorker) != (hello.rank != kNoRank)) {
    return effects->Close(link, Code::kInvalidArgument, "HELLO: not a worker and not an observer");
  }
  const SessionId id{hello.rank, hello.incarnation};
  if (core_.members.IsOver(hello.role, id)) {
    return effects->Close(
        link, Code::kAborted,
        Format("HELLO: worker {} incarnation {} is over", id.rank, id.incarnation));
  }
  // The EPOCH that lists the sender may not be here yet.
  if (core_.incarnation == 0 || !core_.members.IsListed(hello)) {
    core_.hellos[link] = {message, hello};
    return;
  }
  OpenSession(link, hello, effects);
}

void Sessions::OnError(Session* session, const Message& message) {
  const bool leaves = message.seq == 0 && ErrorOf(message).code() == Code::kAborted;
  if (session != nullptr && leaves) session->end = Session::End::kLeft;
}

void Sessions::Ended(LinkId link) {
  Session* const session = core_.sessions.Of(link);
  // A worker that has said that it leaves may have ended before its link is seen to close.
  if (session == nullptr || session->end == Session::End::kLeft) return;
  session->end = Session::End::kEnded;
}

void Sessions::RecheckHellos(Effects* effects) {
  for (auto at = core_.hellos.begin(); at != core_.hellos.end();) {
    const auto [link, waiting] = *at;
    const SessionId id{waiting.hello.rank, waiting.hello.incarnation};
    if (core_.members.IsOver(waiting.hello.role, id)) {
      effects->Close(link, Code::kAborted,
                     Format("HELLO: worker {} incarnation {} is over", id.rank, id.incarnation));
    } else if (core_.incarnation != 0 && core_.members.IsListed(waiting.hello)) {
      OpenSession(link, waiting.hello, effects);
    } else {
      ++at;
      continue;
    }
    at = core_.hellos.erase(at);
  }
}

void Sessions::EndOld(Effects* effects) {
  std::vector<SessionId> over;
  for (const auto& [id, session] : core_.sessions.all()) {
    if (core_.members.IsOver(session.role, id)) over.push_back(id);
  }
  for (const SessionId& id : over) {
    Session& session = core_.sessions.At(id);
    core_.UnparkAll(&session);
    if (session.link != kNoLink) {
      const Epoch::Seat& seat = core_.epoch().workers[static_cast<size_t>(id.rank)];
      const bool has_left = seat.state == Epoch::State::kLeft && seat.incarnation == id.incarnation;
      if (has_left) {
        effects->Close(session.link, Code::kCancelled, "the worker has left");
      } else {
        effects->Close(
            session.link, Code::kAborted,
            Format("worker {}: this life is over (incarnation {})", id.rank, id.incarnation));
      }
    }
    controls_.DropRules(id.rank, id.incarnation,
                        core_.epoch().CommittedBy(id.rank, id.incarnation));
    core_.cuts.Drop(id, std::nullopt);
    core_.sessions.Erase(id);
  }
}

bool Sessions::HaveLivingEnded() const {
  bool is_any = false;
  for (size_t rank = 0; rank < core_.epoch().workers.size(); ++rank) {
    if (core_.epoch().IsLast(static_cast<Rank>(rank))) continue;
    if (EndOf(rank) == Session::End::kNone) return false;
    is_any = true;
  }
  return is_any;
}

bool Sessions::HaveAllLeft() const {
  for (size_t rank = 0; rank < core_.epoch().workers.size(); ++rank) {
    const bool has_left = core_.epoch().workers[rank].state == Epoch::State::kLeft;
    if (!has_left && EndOf(rank) != Session::End::kLeft) return false;
  }
  return true;
}

void Sessions::OpenSession(LinkId link, const Hello& hello, Effects* effects) {
  const SessionId id{hello.rank, hello.incarnation};
  const SessionTable::Opened opened = core_.sessions.Open(id, hello.role, link);
  if (opened.replaced != kNoLink) {
    effects->Close(opened.replaced, Code::kCancelled, "another connection has taken over");
  }
  opened.session->end = Session::End::kNone;
  if (!opened.is_new) core_.UnparkAll(opened.session);
  Welcome welcome;
  welcome.server_incarnation = core_.incarnation;
  welcome.resumed = !opened.is_new;
  welcome.credit_bytes = std::max(
      core_.options.credit_min_bytes,
      core_.options.credit_budget_bytes / std::max<size_t>(1, core_.epoch().workers.size()));
  welcome.rank = id.rank;
  welcome.incarnation = id.incarnation;
  welcome.rejoined = core_.has_begun;
  welcome.protocol = core_.options.protocol;
  Message reply;
  reply.type = Type::kWelcome;
  reply.extra = Encode(welcome);
  effects->Send(link, std::move(reply));
}

Session::End Sessions::EndOf(size_t rank) const {
  const SessionId id{static_cast<Rank>(rank), core_.epoch().workers[rank].incarnation};
  const Session* const session = core_.sessions.Find(id);
  return session == nullptr ? Session::End::kNone : session->end;
}

}  // namespace tkv
