// The rights to create keys whose chunk 0 belongs to this server and does not exist yet.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "server/session.h"

namespace tkv {

// The right of one incarnation of a worker to create a key.
struct KeyGrant {
  SessionId maker;
  uint64_t number = 0;  // larger than those of earlier grants; an INIT has the number of its grant
  uint32_t store = 0;
};

class GrantTable {
 public:
  size_t size() const { return grants_.size(); }
  bool Has(const KeyId& key) const { return grants_.contains(key); }
  // Returns the grant of a key, or null.
  const KeyGrant* Find(const KeyId& key) const {
    const auto found = grants_.find(key);
    return found == grants_.end() ? nullptr : &found->second;
  }
  // Gives the right to create a key to a worker, and takes it from any other.
  const KeyGrant& Give(const KeyId& key, const SessionId& maker, uint32_t store) {
    return grants_[key] = {maker, ++count_, store};
  }
  void Drop(const KeyId& key) { grants_.erase(key); }
  void DropStore(uint32_t store) {
    std::erase_if(grants_, [&](const auto& grant) { return grant.second.store == store; });
  }
  // Removes the grants of the workers for which `is_over` is true.
  template <typename IsOver>
  void DropMakers(IsOver is_over) {
    std::erase_if(grants_, [&](const auto& grant) { return is_over(grant.second.maker); });
  }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  std::map<KeyId, KeyGrant> grants_;
  uint64_t count_ = 0;
};

}  // namespace tkv
