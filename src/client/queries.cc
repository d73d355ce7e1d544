// Queries about a client, its statistics, and its notices.

#include <algorithm>

#include "base/format.h"
#include "base/logfmt.h"
#include "client/client.h"

namespace tkv {

uint64_t Client::RoundOf(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? 0 : key->second.base + key->second.round;
}

PushStep Client::FormerStepOf(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? PushStep{} : key->second.former_step;
}

uint64_t Client::PushedOf(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  if (key == keys_.end()) return 0;
  return key->second.base + key->second.round + QueuedPushes(key->second, next_op());
}

uint64_t Client::BaseOf(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key == keys_.end() ? 0 : key->second.base;
}

bool Client::MustRepeat(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  if (key == keys_.end()) return false;
  return key->second.round + QueuedPushes(key->second, next_op()) < key->second.repeats_to;
}

bool Client::HasLostPush(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key != keys_.end() && key->second.lost_from != 0;
}

std::optional<KeyMeta> Client::MetaOf(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  if (key == keys_.end() || !key->second.is_ready) return std::nullopt;
  return key->second.meta;
}

bool Client::Knows(const std::string& name) const {
  const auto key = keys_.find(IdOf(name));
  return key != keys_.end() && key->second.is_ready && !key->second.is_stale;
}

std::pair<Rank, uint64_t> Client::SnapshotReader() const {
  if (epoch_.policy == Epoch::Policy::kContinue) return Sender();
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    if (!epoch_.IsLast(rank)) return {rank, epoch_.workers[static_cast<size_t>(rank)].incarnation};
  }
  return {kNoRank, 0};
}

bool Client::IsSender() const {
  const Rank sender = Sender().first;
  return sender != kNoRank && sender == welcome_.rank;
}

std::pair<Rank, uint64_t> Client::Sender() const {
  for (Rank rank = 0; static_cast<size_t>(rank) < epoch_.workers.size(); ++rank) {
    const Epoch::Seat& seat = epoch_.workers[static_cast<size_t>(rank)];
    if (seat.state == Epoch::State::kAlive || seat.state == Epoch::State::kAwaited) {
      return {rank, seat.incarnation};
    }
  }
  return {kNoRank, 0};
}

const char* Client::StateFor(LinkId id, const Message& message) const {
  for (const ServerLink& link : links_) {
    if (link.link() != id) continue;
    if (link.state() != ServerLink::State::kOpen) return "greeting";
    return link.Awaits(message.seq) ? "awaited" : "not awaited";
  }
  return "closed";
}

bool Client::HasJobBegun() const {
  return links_.empty() || std::ranges::any_of(links_, [](const ServerLink& link) {
           return link.dead() || link.has_begun();
         });
}

bool Client::HasReachedNext(const std::string& barrier) const {
  const auto key = keys_.find(IdOf(barrier));
  return key != keys_.end() && key->second.round < key->second.reached;
}

size_t Client::unaccepted_bytes() const {
  size_t bytes = 0;
  for (const ServerLink& link : links_) bytes += link.unaccepted_bytes();
  return bytes;
}

// Notes why an operation, the first in its key's queue, cannot start.
void Client::NoteWait(const KeyState& key, Op* op) {
  bool asks = false;  // a request for the version that a push needs is under way
  for (const KnownChunk& known : key.chunks) asks |= known.asked;
  const WaitCause cause = asks            ? WaitCause::kRound
                          : key.pulls > 0 ? WaitCause::kPull
                                          : WaitCause::kOrder;
  op->wait.For(cause, now_, &waits_);
}

// Appends the newest operation to the list of its verb.  A notice names only the oldest operation
// of a list.
void Client::JoinList(Op* op) {
  auto list = std::ranges::find(verb_lists_, op->operation.verb, &VerbList::verb);
  if (list == verb_lists_.end()) list = std::ranges::find(verb_lists_, 0U, &VerbList::count);
  if (list == verb_lists_.end()) list = verb_lists_.emplace(list);
  if (list->count == 0) list->verb = op->operation.verb;
  op->entry = {static_cast<size_t>(list - verb_lists_.begin()), list->newest, kNoOp};
  (list->count == 0 ? list->oldest : Find(list->newest)->entry.newer) = op->id;
  list->newest = op->id;
  ++list->count;
}

void Client::LeaveList(Op* op) {
  const ListEntry& entry = op->entry;
  VerbList& list = verb_lists_[entry.verb];
  (entry.older == kNoOp ? list.oldest : Find(entry.older)->entry.newer) = entry.newer;
  (entry.newer == kNoOp ? list.newest : Find(entry.newer)->entry.older) = entry.older;
  --list.count;
}

// Logs a notice that names the waiting operation and the worker or server that it waits for.
//   round  0: none
void Client::LogWait(const Op& op, uint64_t round, Effects* effects) const {
  const double waited = static_cast<double>(now_ - op.begin) / kSecond;
  const std::string who = Awaited(op);
  Fields fields;
  fields.Add("standing", Format("{:.1f}s", waited)).Add("verb", op.operation.verb);
  const bool has_key = !op.operation.key.empty() && !op.operation.Is<Operation::Barrier>();
  if (has_key) fields.Add("key", ShownKey(op.operation.key));
  if (round > 0) fields.Add("round", round);
  fields.Add("waits_for", who);
  const auto busy = std::find_if(links_.begin(), links_.end(),
                                 [](const ServerLink& link) { return link.busy(); });
  if (busy != links_.end()) {
    fields.Add("server", busy->server()).Add("link", NameOf(busy->state()));
    if (const auto age = busy->SinceLastWord(now_)) {
      fields.Add("last_word", Format("{:.1f}s", static_cast<double>(*age) / kSecond));
    }
  }
  const size_t count = verb_lists_[op.entry.verb].count;
  if (count > 1) fields.Add("others", count - 1);
  effects->Log(Level::kWarning,
               Format("still waiting {:.0f} s for {} ({}{}): {}", waited, who, Prefix(op),
                      round > 0 ? Format(", round {}", round) : "", fields.text()));
}

void Client::AddStats(Time now, StoreStats* stats) const {
  waits_.AddTo(stats);
  stats->operations_under_way += ops_.size();
  for (const ServerLink& link : links_) link.AddStats(now, stats);
  const auto add_states = [](const std::vector<Epoch::Seat>& seats,
                             std::vector<std::string>* states) {
    for (const Epoch::Seat& seat : seats) states->emplace_back(Name(seat.state));
  };
  add_states(epoch_.workers, &stats->workers);
  add_states(epoch_.servers, &stats->servers);
}

}  // namespace tkv
