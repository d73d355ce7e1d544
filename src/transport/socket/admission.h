// The decision which peers may keep their connections: see budgets.h.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/socket/budgets.h"
#include "transport/socket/connection.h"

namespace tkv {

// Counts the connections of each standing, and compares connections with their budgets.
class Admission {
 public:
  // The budgets have to outlive this object.
  explicit Admission(const SocketBudgets* budgets) : budgets_(*budgets) {}

  // Returns true if a standing has no place left, so that its oldest connection has to go.
  bool IsFull(Standing standing) const;
  // Changes the standing of a connection.
  void Move(Connection* connection, Standing standing);
  // Gives a guest more time after its first frame.  Makes it a member when the node has welcomed it.
  void Promote(Connection* connection, int64_t now);

  // Returns true if too much output waits for a peer that has dialed.  If this side dialed, it asked
  // for its traffic itself.
  bool HasTooMuchOutput(const Connection& connection) const;
  // Returns the reason why a connection has timed out; null: it has not.
  const char* Lateness(const Connection& connection, int64_t now) const;

 private:
  const SocketBudgets& budgets_;
  std::array<ptrdiff_t, 5> counts_{};  // number of connections of each standing
};

}  // namespace tkv
