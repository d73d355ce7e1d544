// DESCRIBEs that wait for keys that do not exist yet, by their session and by their key.

#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "server/session.h"

namespace tkv {

class WaitingDescribes {
 public:
  using Waiter = std::pair<SessionId, uint64_t>;  // a session and the seq of its DESCRIBE

  void Add(const SessionId& id, Message message) {
    const Waiter waiter{id, message.seq};
    by_key_.insert({message.key, waiter});
    requests_.emplace(waiter, std::move(message));
  }
  // Removes a DESCRIBE.  Returns false if none with this seq waits.
  bool Remove(const Waiter& waiter) {
    const auto found = requests_.find(waiter);
    if (found == requests_.end()) return false;
    by_key_.erase({found->second.key, waiter});
    requests_.erase(found);
    return true;
  }
  void RemoveAllOf(const SessionId& id) {
    const auto first = requests_.lower_bound({id, 0});
    auto last = first;
    for (; last != requests_.end() && last->first.first == id; ++last) {
      by_key_.erase({last->second.key, last->first});
    }
    requests_.erase(first, last);
  }
  const Message& At(const Waiter& waiter) const { return requests_.at(waiter); }
  std::vector<Waiter> Of(const KeyId& key) const {
    std::vector<Waiter> waiters;
    for (auto at = by_key_.lower_bound({key, {}}); at != by_key_.end() && at->first == key; ++at) {
      waiters.push_back(at->second);
    }
    return waiters;
  }
  std::vector<Waiter> All() const {
    std::vector<Waiter> waiters;
    waiters.reserve(requests_.size());
    for (const auto& [waiter, request] : requests_) waiters.push_back(waiter);
    return waiters;
  }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  std::map<Waiter, Message> requests_;
  std::set<std::pair<KeyId, Waiter>> by_key_;
};

}  // namespace tkv
