// Queries about a client, and its statistics.

#include <algorithm>

#include "client/client.h"

namespace tkv {

uint64_t Client::RoundOf(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  return key == nullptr ? 0 : key->base + key->round;
}

PushStep Client::FormerStepOf(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  return key == nullptr ? PushStep{} : key->former_step;
}

uint64_t Client::PushedOf(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  if (key == nullptr) return 0;
  return key->base + key->round + core_.QueuedPushes(*key, next_op());
}

uint64_t Client::BaseOf(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  return key == nullptr ? 0 : key->base;
}

bool Client::MustRepeat(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  if (key == nullptr) return false;
  return key->round + core_.QueuedPushes(*key, next_op()) < key->repeats_to;
}

bool Client::HasLostPush(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  return key != nullptr && key->lost_from != 0;
}

std::optional<KeyMeta> Client::MetaOf(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  if (key == nullptr || !key->is_ready) return std::nullopt;
  return key->meta;
}

bool Client::Knows(const std::string& name) const {
  const ClientKey* const key = core_.keys.Find(name);
  return key != nullptr && key->is_ready && !key->is_stale;
}

uint64_t Client::RoundAfter(const std::string& name, OpId op) const {
  const ClientKey* const key = core_.keys.Find(name);
  return key == nullptr ? 1 : key->round + core_.QueuedPushes(*key, op) + 1;
}

std::optional<uint64_t> Client::ControlCountsFrom(const std::string& key) const {
  return announcer_.CountsFrom(key);
}

const char* Client::StateFor(LinkId id, const Message& message) const {
  for (const ServerLink& link : core_.links) {
    if (link.link() != id) continue;
    if (link.state() != ServerLink::State::kOpen) return "greeting";
    return link.Awaits(message.seq) ? "awaited" : "not awaited";
  }
  return "closed";
}

bool Client::HasJobBegun() const {
  return core_.links.empty() || std::ranges::any_of(core_.links, [](const ServerLink& link) {
           return link.dead() || link.has_begun();
         });
}

bool Client::HasReachedNext(const std::string& barrier) const {
  const ClientKey* const key = core_.keys.Find(barrier);
  return key != nullptr && key->round < key->reached;
}

size_t Client::unaccepted_bytes() const {
  size_t bytes = 0;
  for (const ServerLink& link : core_.links) bytes += link.unaccepted_bytes();
  return bytes;
}

void Client::AddStats(Time now, StoreStats* stats) const {
  core_.waits.AddTo(stats);
  stats->operations_under_way += core_.ops.size();
  for (const ServerLink& link : core_.links) link.AddStats(now, stats);
  const auto add_states = [](const std::vector<Epoch::Seat>& seats,
                             std::vector<std::string>* states) {
    for (const Epoch::Seat& seat : seats) states->emplace_back(Name(seat.state));
  };
  add_states(core_.members.epoch.workers, &stats->workers);
  add_states(core_.members.epoch.servers, &stats->servers);
}

}  // namespace tkv
