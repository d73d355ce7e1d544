// Reports of an endpoint to its user about a lack of descriptors or memory on this side, and about
// peers that do not read.

#pragma once

#include <boost/system/error_code.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "transport/socket/connection.h"
#include "transport/socket/connection_table.h"

namespace tkv {

// Writes reports, each kind at growing intervals.
class Reports {
 public:
  // Without `tell` nothing is reported.  `table` counts the connections.
  //   units  first_wait: nanoseconds until a peer that does not read is reported
  Reports(std::function<void(const std::string&)> tell, int64_t first_wait,
          const ConnectionTable* table)
      : tell_(std::move(tell)), first_wait_(first_wait), table_(table) {}

  // Report a failure.  Later ones of the same kind are reported at growing intervals, at last once
  // a minute.
  void CannotAccept(const boost::system::error_code& error) {
    Report(&accept_, "accepts no connection", error);
  }
  void CannotKeep(const boost::system::error_code& error) {
    Report(&keep_, "ends a connection", error);
  }
  // Reports a peer that does not read, because output waits for it.
  void ReportWait(Connection* connection, int64_t now) const;

 private:
  // The reports of one kind of failure.
  struct Kind {
    int64_t quiet = 0;        // the pause after the last report
    int64_t quiet_until = 0;  // when the next failure may be reported
  };

  void Report(Kind* kind, const char* what, const boost::system::error_code& error) const;

  const std::function<void(const std::string&)> tell_;
  const int64_t first_wait_;
  const ConnectionTable* const table_;
  Kind accept_, keep_;
};

}  // namespace tkv
