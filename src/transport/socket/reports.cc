#include "transport/socket/reports.h"

#include <algorithm>
#include <new>

#include "base/format.h"
#include "base/logfmt.h"
#include "base/process.h"
#include "transport/socket/reactor.h"

namespace tkv {

void Reports::Report(Kind* kind, const char* what, const boost::system::error_code& error) const {
  constexpr int64_t kLeast = 1'000'000'000, kMost = 60'000'000'000;
  const int64_t now = SteadyNow();
  if (now < kind->quiet_until || !tell_) return;
  try {
    tell_(Format("{}: {}: {}", what, SystemText(error),
                 Fields().Add("connections", table_->size()).text()));
  } catch (const std::bad_alloc&) {
    return;  // the next failure may be reported
  }
  const bool is_new = now > kind->quiet_until + kind->quiet;
  kind->quiet = is_new ? kLeast : std::min(2 * kind->quiet, kMost);
  kind->quiet_until = now + kind->quiet;
}

void Reports::ReportWait(Connection* connection, int64_t now) const {
  constexpr int64_t kStepMax = 60'000'000'000;
  const FrameWriter& writer = connection->writer();
  int64_t& next_report = connection->notes().next_report;
  if (connection->stage() != Connection::Stage::kOpen || !writer.is_blocked()) {
    next_report = 0;
    return;
  }
  const int64_t age = writer.BlockedFor(now);
  if (next_report == 0) next_report = first_wait_;
  if (age < next_report || !tell_) return;
  next_report += std::min(age, kStepMax);
  const std::string& who = connection->handshake().peer_who();
  const double seconds = static_cast<double>(age) / 1e9;
  const size_t queued = writer.waiting_head_bytes() + writer.waiting_body_bytes();
  const Fields fields = Fields()
                            .Add("standing", Format("{:.1f}s", seconds))
                            .Add("waits_for", who)
                            .Add("peer", connection->peer().name)
                            .Add("queued_bytes", queued);
  tell_(Format("still waiting {:.0f} s for {} to read: {}", seconds, Escaped(who), fields.text()));
}

}  // namespace tkv
