#include "job/job_status.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/duration.h"
#include "base/format.h"
#include "job/cluster.h"

namespace tkv {
namespace {

bool IsUsers(const std::string& name) { return name != InternalKey(StoreOf(name), "barrier"); }

// A request for a page of a server's keys, under way.
struct Asked {
  uint32_t server = 0;
  CallPtr call;
  std::shared_ptr<std::shared_ptr<const Listing>> answer;
};

Asked Ask(const std::shared_ptr<Worker>& worker, const std::string& verb, uint32_t store,
          Listing::Request request, std::chrono::nanoseconds patience,
          const std::function<void()>& interrupt) {
  Asked asked{request.server, Worker::NewCall(worker, verb, store, interrupt),
              std::make_shared<std::shared_ptr<const Listing>>()};
  asked.call->on_outcome = [answer = asked.answer](const Outcome& outcome) {
    *answer = *outcome.As<std::shared_ptr<const Listing>>();
  };
  Operation list;
  list.request = Operation::List{request};
  list.verb = verb;
  list.store = store;
  list.patience = Saturated(patience).count();
  std::vector<Operation> operations;
  operations.push_back(std::move(list));
  worker->calls().Launch(asked.call, std::move(operations));
  return asked;
}

void AbandonAll(const std::shared_ptr<Worker>& worker, std::span<const Asked> asked) {
  for (const Asked& one : asked) {
    if (!one.call->done()) worker->calls().Abandon(one.call);
  }
}

std::string WhyNot(uint32_t server, const Epoch::Seat& seat) {
  if (seat.state == Epoch::State::kAlive) return {};
  if (seat.state == Epoch::State::kAwaited) return Format("server {} has not come yet", server);
  return Format("server {} {}", server, seat.state == Epoch::State::kLeft ? "has left" : "is dead");
}

std::string Without(std::string_view beginning, std::string_view text) {
  if (text.starts_with(beginning)) text.remove_prefix(beginning.size());
  return std::string(text);
}

// Returns the open rounds.  If several servers have chunks of a key, the round that is open longest
// represents them all.
std::vector<RoundStatus> RoundsOf(const ServerListings& listings) {
  std::vector<RoundStatus> rounds;
  std::map<std::string, size_t> places;
  for (const Listed& server : listings.servers) {
    for (const Listed::Item& item : server.items) {
      if (item.open_for == 0) continue;
      RoundStatus round;
      round.store = StoreOf(item.meta.name);
      round.key = ShownKey(item.meta.name);
      round.round = item.oldest + item.base + 1;
      round.seconds = Seconds(item.open_for);
      round.waits_for.assign(item.missing.begin(), item.missing.end());
      round.waits_for_count = item.missing_count;
      const auto [place, is_new] = places.try_emplace(item.meta.name, rounds.size());
      if (is_new) {
        rounds.push_back(std::move(round));
      } else if (rounds[place->second].seconds < round.seconds) {
        rounds[place->second] = std::move(round);
      }
    }
  }
  std::ranges::stable_sort(rounds, std::greater(), &RoundStatus::seconds);
  return rounds;
}

void FindSlowest(JobStatus* status) {
  struct Held {
    uint64_t rounds = 0;
    double seconds = 0;
  };
  std::map<int, Held> held;
  for (const RoundStatus& round : status->rounds) {
    for (const int rank : round.waits_for) {
      ++held[rank].rounds;
      held[rank].seconds = std::max(held[rank].seconds, round.seconds);
    }
  }
  for (const auto& [rank, by] : held) {
    const auto now = std::pair(status->slowest_rounds, status->slowest_seconds);
    if (std::pair(by.rounds, by.seconds) <= now) continue;
    status->slowest = rank;
    status->slowest_rounds = by.rounds;
    status->slowest_seconds = by.seconds;
  }
}

}  // namespace

ServerListings ListServers(const std::shared_ptr<Worker>& worker, const std::string& verb,
                           uint32_t store, std::chrono::nanoseconds patience,
                           const std::function<void()>& interrupt) {
  ServerListings listings;
  worker->Run([&](ClientNode& node, Time) {
    listings.epoch = node.member().epoch();
    listings.head_is_open = node.member().link() != kNoLink;
  });
  const size_t count = listings.epoch.servers.size();
  listings.servers.resize(count);
  listings.errors.resize(count);
  std::vector<Listing::Request> requests;
  for (uint32_t server = 0; server < count; ++server) {
    listings.errors[server] = WhyNot(server, listings.epoch.servers[server]);
    if (listings.errors[server].empty()) requests.push_back({server, {}});
  }
  const auto deadline = DeadlineAfter(patience);
  while (!requests.empty()) {
    const auto left =
        std::max(std::chrono::nanoseconds(1),
                 std::chrono::nanoseconds(deadline - std::chrono::steady_clock::now()));
    std::vector<Asked> asked;
    asked.reserve(requests.size());
    for (const Listing::Request& request : requests) {
      asked.push_back(Ask(worker, verb, store, request, left, interrupt));
    }
    requests.clear();
    for (Asked& one : asked) {
      try {
        one.call->Wait(left + std::chrono::seconds(5));
      } catch (const Error& error) {
        if (error.code() == Code::kCancelled) {  // the interrupt, or the store was closed
          AbandonAll(worker, asked);
          throw;
        }
        if (!one.call->done()) worker->calls().Abandon(one.call);
        listings.errors[one.server] = Without(verb + ": ", error.what());
        continue;
      } catch (...) {
        AbandonAll(worker, asked);
        throw;
      }
      const Listing& page = **one.answer;
      Listed& whole = listings.servers[one.server];
      if (whole.items.empty()) {
        whole = page.listed;
      } else {
        whole.items.insert(whole.items.end(), page.listed.items.begin(), page.listed.items.end());
      }
      if (page.has_more) requests.push_back({one.server, page.last});
    }
  }
  return listings;
}

std::vector<KeyStatus> ListedKeys(const ServerListings& listings) {
  struct Parts {
    KeyStatus key;
    bool has_first = false;
  };
  std::map<std::string, Parts> found;  // by canonical name
  for (const Listed& server : listings.servers) {
    for (const Listed::Item& item : server.items) {
      const KeyMeta& meta = item.meta;
      if (!IsUsers(meta.name)) continue;
      const uint64_t round = item.oldest + item.base;
      const auto [at, is_new] = found.try_emplace(
          meta.name,
          Parts{KeyStatus{
              .store = StoreOf(meta.name), .key = Key(KeyOf(meta.name)), .round = round}});
      KeyStatus& key = at->second.key;
      at->second.has_first |= item.has_first;
      key.shape = meta.shape;
      key.dtype = meta.dtype;
      key.by_rows = meta.by_rows();
      key.row_count = meta.row_count;
      key.is_async = meta.mode == KeyMeta::Mode::kAsync;
      key.chunks += item.chunks;
      key.bytes += item.bytes;
      key.round = std::min(key.round, round);
      key.newest = std::max(key.newest, item.newest + item.base);
      key.waiting += item.waiting;
    }
  }
  std::vector<KeyStatus> keys;
  for (auto& [name, parts] : found) {
    if (parts.has_first) keys.push_back(std::move(parts.key));
  }
  std::ranges::sort(keys, [](const KeyStatus& a, const KeyStatus& b) {
    return std::tie(a.store, a.key) < std::tie(b.store, b.key);
  });
  return keys;
}

JobStatus StatusOf(const ServerListings& listings) {
  JobStatus status;
  const Epoch& epoch = listings.epoch;
  status.on_death = NameOf(epoch.policy);
  status.epoch = epoch.number;
  status.head_is_open = listings.head_is_open;
  for (const Epoch::Seat& seat : epoch.workers) {
    status.workers.push_back({Name(seat.state), seat.incarnation});
  }
  for (size_t i = 0; i < epoch.servers.size(); ++i) {
    const Epoch::Seat& seat = epoch.servers[i];
    ServerStatus server{Name(seat.state), seat.incarnation, seat.address, listings.errors[i]};
    const Listed& listed = listings.servers[i];
    const Listed::Memory& memory = listed.memory;
    server.value_bytes = memory.values + memory.rows;
    server.other_bytes = memory.state + memory.sums + memory.held + memory.cuts;
    for (const Listed::Item& item : listed.items) server.chunks += item.chunks;
    status.observers = std::max(status.observers, listed.observers);
    for (const Listed::Pushed& pushed : listed.workers) {
      const auto rank = static_cast<size_t>(pushed.rank);
      if (rank >= status.workers.size() || status.workers[rank].life != pushed.incarnation)
        continue;
      status.workers[rank].pushes += pushed.pushes;
      status.workers[rank].pushed_bytes += pushed.bytes;
    }
    status.servers.push_back(std::move(server));
  }
  status.keys = ListedKeys(listings);
  status.rounds = RoundsOf(listings);
  FindSlowest(&status);
  return status;
}

}  // namespace tkv
