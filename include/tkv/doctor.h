// Checks for problems that would stop a job on this machine, or between this machine and others.

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
  std::string text;    // the result of the check
  std::string repair;  // the remedy; empty: none is needed
};

// Returns "0.1.0 protocol 1".  All processes of a job must have the same.
TKV_API std::string BuildVersion();

// Tests this machine by doing the same as a job.  Reads its variables and token, and tries Unix
// sockets, shared memory, TCP on the loopback, PMIx and limits.
TKV_API std::vector<Finding> ExamineHost();

// A TCP port on which another process can test its connection, as members of a job connect.  Both
// sides must prove that they know the token and have the same version.  Has its own thread.
class TKV_API Door {
 public:
  // Listens on the interface that faces `towards`, a host or the address of another door; "": on
  // the loopback.
  //   throws  kInvalidArgument, kUnavailable (no route to it)
  static std::unique_ptr<Door> Open(const std::string& towards, const std::string& token);
  virtual ~Door() = default;
  // The address for Knock of other processes: "tcp:10.0.0.1:40123".
  virtual const std::string& address() const = 0;

  struct Answer {
    std::optional<Error> error;
    std::chrono::nanoseconds round_trip{};  // shortest of several small messages
  };
  // Connects to another door with this door's token.
  //   blocks  at most five seconds
  virtual Answer Knock(const std::string& address) = 0;
};

// Returns a finding that describes the answer in words, with a remedy if it is an error.
TKV_API Finding FindingOf(const std::string& what, const Door::Answer& answer);

}  // namespace tkv
