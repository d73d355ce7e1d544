#include "transport/socket/admission.h"

namespace tkv {

bool Admission::IsFull(Standing standing) const {
  if (standing == Standing::kNone || standing == Standing::kMember) return false;
  const bool is_guest = standing == Standing::kGuest;
  const size_t max = is_guest ? budgets_.guests_max : budgets_.strangers_max;
  return static_cast<size_t>(counts_[static_cast<size_t>(standing)]) >= max;
}

void Admission::Move(Connection* connection, Standing standing) {
  Standing& present = connection->notes().standing;
  --counts_[static_cast<size_t>(present)];
  ++counts_[static_cast<size_t>(standing)];
  present = standing;
}

void Admission::Promote(Connection* connection, int64_t now) {
  const bool is_guest = connection->notes().standing == Standing::kGuest;
  if (!is_guest || connection->stage() != Connection::Stage::kOpen) return;
  if (connection->reader().is_welcome()) {
    connection->SetDeadline(0);
    return Move(connection, Standing::kMember);
  }
  if (!connection->reader().has_said_hello() || connection->notes().has_more_time) return;
  connection->notes().has_more_time = true;
  connection->SetDeadline(now + budgets_.welcome_nanoseconds);
}

bool Admission::HasTooMuchOutput(const Connection& connection) const {
  if (connection.is_dialer() || connection.stage() != Connection::Stage::kOpen) return false;
  return connection.writer().waiting_head_bytes() > budgets_.head_bytes_max ||
         connection.writer().waiting_body_bytes() > budgets_.body_bytes_max;
}

const char* Admission::Lateness(const Connection& connection, int64_t now) const {
  const bool is_open = connection.stage() == Connection::Stage::kOpen;
  const bool reads_nothing = is_open && !connection.is_dialer() &&
                             connection.writer().BlockedFor(now) > budgets_.unread_nanoseconds;
  if (reads_nothing) return "it has read nothing";
  if (!connection.IsLate(now)) return nullptr;
  if (connection.stage() == Connection::Stage::kDialing) return "no connection";
  if (!is_open) return "no answer";
  return connection.reader().has_said_hello() ? "it was not welcomed" : "no HELLO";
}

}  // namespace tkv
