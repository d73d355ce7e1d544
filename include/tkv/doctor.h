// What stands in the way of a job on this machine, and between this machine and others.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tkv/api.h"
#include "tkv/error.h"

namespace tkv {

struct Finding {
  enum class Kind { kGood, kNote, kBad };

  Kind kind = Kind::kGood;
  std::string what;    // "shared memory"
  std::string text;    // what was found
  std::string repair;  // what to do about it; empty: nothing
};

// "0.1.0 protocol 1": processes of one job must have the same.
TKV_API std::string BuildVersion();

// Looks at this process's machine by doing what a job does there: its variables and token, Unix
// sockets, shared memory, TCP at the loopback, PMIx, limits.
TKV_API std::vector<Finding> ExamineHost();

// A TCP port where another process can knock, as members of a job do: it is let in when both sides
// prove that they know the token and speak the same version.  Has a thread of its own.
class TKV_API Door {
 public:
  // At the interface that faces a host, or the address of another door; "": at the loopback.
  //   throws  kInvalidArgument, kUnavailable (no way there)
  static std::unique_ptr<Door> Open(const std::string& towards, const std::string& token);
  virtual ~Door() = default;
  // Where others knock: "tcp:10.0.0.1:40123".
  virtual const std::string& address() const = 0;

  struct Answer {
    std::optional<Error> error;
    std::chrono::nanoseconds round_trip{};  // the shortest of several small messages
  };
  // Knocks at another door with the token of this one.
  //   blocks  at most five seconds
  virtual Answer Knock(const std::string& address) = 0;
};

// The answer in words.
TKV_API Finding FindingOf(const std::string& what, const Door::Answer& answer);

}  // namespace tkv
