// A connection without a store: what a push and a pull of the same bytes cost at least.

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench_job.h"

namespace tkv::cli {

class RawLink {
 public:
  // Listens at "unix:NAME" or "tcp:HOST:0" and has a process connect to it that sends everything back.
  //   blocks  at most ten seconds
  //   throws  kUnavailable, kDeadlineExceeded (it has not come)
  RawLink(const std::string& address, const OtherSide& side);
  ~RawLink();
  RawLink(const RawLink&) = delete;
  RawLink& operator=(const RawLink&) = delete;

  // So many bytes there and back.
  //   throws  kUnavailable  the other side has gone, or moves nothing for ten seconds
  void Exchange(const char* source, char* target, size_t bytes) const;

 private:
  int Accept(int listener) const;

  std::unique_ptr<Companion> echo_;
  int file_ = -1;
};

// The other side, `tkv echo ADDRESS SECRET`: sends everything back until the connection ends.  The
// exit status.
int RunEcho(const std::string& address, const std::string& secret);

}  // namespace tkv::cli
