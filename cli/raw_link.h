// A plain connection without a store: the least cost of a push and a pull of the same bytes.

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench_job.h"

namespace tkv::cli {

class RawLink {
 public:
  // Listens at "unix:NAME" or "tcp:HOST:0", and starts a process on `side` that connects and echoes
  // everything.
  //   blocks  at most ten seconds
  //   throws  kUnavailable, kDeadlineExceeded (the process did not connect)
  RawLink(const std::string& address, const OtherSide& side);
  ~RawLink();
  RawLink(const RawLink&) = delete;
  RawLink& operator=(const RawLink&) = delete;

  // Sends the bytes and receives them back.
  //   throws  kUnavailable  the peer has ended, or nothing moved for ten seconds
  void Exchange(const char* source, char* target, size_t bytes) const;

 private:
  int Accept(int listener) const;

  std::unique_ptr<Companion> echo_;
  int file_ = -1;
};

// Runs the peer, `tkv echo ADDRESS SECRET`: echoes messages until the connection ends.  Returns the
// exit status.
int RunEcho(const std::string& address, const std::string& secret);

}  // namespace tkv::cli
