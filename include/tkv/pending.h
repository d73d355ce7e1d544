// An operation that goes on after its call has returned, of the host or of a device.

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "tkv/api.h"

namespace tkv {

class Stream;  // work of a device, in order

// An operation under way that reads or writes memory.
class TKV_API Pending {
 public:
  virtual ~Pending() = default;
  virtual bool done() const noexcept = 0;
  //   blocks  until done, at most `patience`
  //   throws  kDeadlineExceeded, or the operation's own error
  virtual void Wait(std::chrono::nanoseconds patience) = 0;
  // True where work that the stream gets from now on waits for the operation by itself; false where
  // the host has to wait, as it has for an operation of the host.
  virtual bool Order(Stream* /*stream*/) { return false; }

  // What is known without asking a device, which takes longer than to enter an operation with an array.
  virtual bool is_known_done() const noexcept { return done(); }
  // Work that the stream gets from now on comes after the operation, without a wait.
  virtual bool IsBefore(const Stream* /*stream*/) const noexcept { return false; }
  // It has ended when the later one has.
  virtual bool IsCoveredBy(const Pending& /*later*/) const noexcept { return false; }
};

// An operation's use of a block of memory.
struct PendingUse {
  std::shared_ptr<Pending> operation;
  bool writes = false;
};

inline bool HaveEnded(const std::vector<PendingUse>& uses) {
  return std::all_of(uses.begin(), uses.end(),
                     [](const PendingUse& use) { return use.operation->done(); });
}

// Longest wait for operations on an array where no store says how long.
inline constexpr std::chrono::nanoseconds kHazardPatience = std::chrono::seconds(600);

}  // namespace tkv
