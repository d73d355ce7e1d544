// The sessions of a shard, and the links that they use.

#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "server/session.h"

namespace tkv {

class SessionTable {
 public:
  struct Opened {
    Session* session = nullptr;
    bool is_new = false;
    LinkId replaced = kNoLink;  // another link that the session has used until now
  };
  // Returns the session of a sender, which uses this link from now on.
  Opened Open(const SessionId& id, Role role, LinkId link) {
    const auto [at, is_new] = sessions_.try_emplace(id);
    Session& session = at->second;
    session.id = id;
    session.role = role;
    LinkId replaced = kNoLink;
    if (session.link != kNoLink && session.link != link) {
      replaced = session.link;
      links_.erase(replaced);
    }
    session.link = link;
    links_[link] = id;
    return {&session, is_new, replaced};
  }
  // Takes a link from its session.  A worker's session stays, so that it can resume.
  void Close(LinkId link) {
    Session* const session = Of(link);
    if (session == nullptr) return;
    links_.erase(link);
    session->link = kNoLink;
    if (session->role == Role::kObserver) sessions_.erase(SessionId(session->id));
  }
  void Erase(const SessionId& id) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    if (found->second.link != kNoLink) links_.erase(found->second.link);
    sessions_.erase(found);
  }

  // Returns the session that uses a link, or null.
  Session* Of(LinkId link) {
    const auto found = links_.find(link);
    return found == links_.end() ? nullptr : &sessions_.at(found->second);
  }
  const Session* Of(LinkId link) const { return const_cast<SessionTable*>(this)->Of(link); }
  const Session* Find(const SessionId& id) const {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : &found->second;
  }
  Session& At(const SessionId& id) { return sessions_.at(id); }
  // Returns true if a worker is connected.
  bool HasWorker() const {
    return std::ranges::any_of(links_,
                               [](const auto& link) { return link.second.rank != kNoRank; });
  }
  // The sessions, ascending by the ids of their senders.
  const std::map<SessionId, Session>& all() const { return sessions_; }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  std::map<SessionId, Session> sessions_;
  std::map<LinkId, SessionId> links_;
};

}  // namespace tkv
