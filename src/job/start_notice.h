// Regular log lines about the processes for which a starting process waits.

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include "base/format.h"
#include "base/logfmt.h"

namespace tkv {

class StartNotice {
 public:
  using Log = std::function<void(int level, const std::string& text)>;
  using Clock = std::chrono::steady_clock;

  // Makes a notice.  `doing` begins its lines: "create 'dist_sync'".
  StartNotice(std::string doing, Log log) : doing_(std::move(doing)), log_(std::move(log)) {}

  Clock::time_point begun() const { return begun_; }
  // Returns the time of the next line.  The first is due after 5 s.  The intervals then double, up
  // to a minute.
  Clock::time_point next() const { return next_; }
  // Writes a line if one is due.
  //   for_whom  returns the text after the waiting time: " for the head: ..."
  template <typename ForWhom>
  void Tell(const ForWhom& for_whom) {
    const auto now = Clock::now();
    if (now < next_) return;
    step_ = std::min(2 * step_, std::chrono::seconds(60));
    next_ = now + step_;
    if (!log_) return;
    const double waited = std::chrono::duration<double>(now - begun_).count();
    const Fields fields = Fields().Add("standing", Format("{:.1f}s", waited)).Add("verb", doing_);
    constexpr int kWarning = 2;
    log_(kWarning,
         Format("{}: still waiting {:.0f} s{}: {}", doing_, waited, for_whom(), fields.text()));
  }

 private:
  const std::string doing_;
  const Log log_;
  const Clock::time_point begun_ = Clock::now();
  std::chrono::seconds step_{5};
  Clock::time_point next_ = begun_ + step_;
};

}  // namespace tkv
