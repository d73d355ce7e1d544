// The connections of an endpoint, by the endpoint's own numbers and by the user's links.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "transport/socket/connection.h"

namespace tkv {

// A table of connections.  A connection has a number as soon as it is entered, and a link
// if the user knows it.
class ConnectionTable {
 public:
  using Shared = std::shared_ptr<Connection>;

  // Enters a connection under the next number.
  //   throws  std::bad_alloc; the connection is not in the table
  void Enter(const Shared& connection);
  // Makes a connection known by a link, which replaces an earlier connection of that link.
  //   throws  std::bad_alloc; nothing has changed
  void SetLink(uint64_t link, const Shared& connection) { by_link_[link] = connection; }

  // Return the connection, or null.
  Shared Find(uint64_t number) const { return In(by_number_, number); }
  Shared FindLink(uint64_t link) const { return In(by_link_, link); }
  // Returns all connections by number: the oldest first.
  const std::map<uint64_t, Shared>& all() const { return by_number_; }
  size_t size() const { return by_number_.size(); }

  void RemoveLink(uint64_t link) { by_link_.erase(link); }
  // Removes a connection, which ends with its last reference.  Its link stays.
  void Remove(uint64_t number) { by_number_.erase(number); }

 private:
  static Shared In(const std::map<uint64_t, Shared>& map, uint64_t key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : found->second;
  }

  uint64_t last_number_ = 0;
  std::map<uint64_t, Shared> by_number_, by_link_;
};

inline void ConnectionTable::Enter(const Shared& connection) {
  connection->SetNumber(++last_number_);
  by_number_[connection->number()] = connection;
}

}  // namespace tkv
