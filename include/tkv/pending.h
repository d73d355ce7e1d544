// An operation of the host or of a device that continues after its call has returned.

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "tkv/api.h"

namespace tkv {

class Stream;  // a queue of work for a device

// A running operation that reads or writes memory.
class TKV_API Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const noexcept = 0;
  // Waits for the end of the operation.
  //   blocks  until done, at most `patience`
  //   throws  kDeadlineExceeded, or the operation's own error
  virtual void Wait(std::chrono::nanoseconds patience) = 0;
  // Makes later work of the stream wait for the operation, and returns true.  Returns false if only
  // the host can wait, as for an operation of the host.
  virtual bool Order(Stream* /*stream*/) { return false; }

  // Returns true if the operation is known to be done.  Does not ask the device, because asking
  // takes longer than registering an operation with an array.
  virtual bool is_known_done() const noexcept { return done(); }
  // Returns true if later work of the stream runs after the operation without any further wait.
  virtual bool IsBefore(const Stream* /*stream*/) const noexcept { return false; }
  // Returns true if this operation has ended whenever `later` has.
  virtual bool IsCoveredBy(const Pending& /*later*/) const noexcept { return false; }
};

// The use of a block of memory by an operation.
struct PendingUse {
  std::shared_ptr<Pending> operation;
  bool writes = false;
};

inline bool HaveEnded(const std::vector<PendingUse>& uses) {
  return std::all_of(uses.begin(), uses.end(),
                     [](const PendingUse& use) { return use.operation->done(); });
}

// Longest wait for operations on an array if no store sets a limit.
inline constexpr std::chrono::nanoseconds kHazardPatience = std::chrono::seconds(600);

}  // namespace tkv
