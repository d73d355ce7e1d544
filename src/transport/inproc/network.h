// The transport inside one process: between threads, or between the nodes of a simulation with its
// own clock.  Bodies are copied once, from the sender's memory to their destination.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace tkv {

// A source of faults; a simulation derives them from a seed.
class FaultInjector {
 public:
  virtual ~FaultInjector() = default;
  // Returns the nanoseconds that a frame of `bytes` takes from one address to another.  A negative
  // result: the connection is lost, with every frame under way on it.
  virtual int64_t Delay(const std::string& from, const std::string& to, size_t bytes) = 0;
  // Returns how often a frame arrives: once, or more.
  virtual int Copies(const std::string& from, const std::string& to) = 0;
  // Returns true if nothing passes in this direction now.  Frames wait until the cut ends.
  virtual bool IsCut(const std::string& from, const std::string& to) = 0;
};

struct InprocOptions {
  std::function<int64_t()> clock;   // null: frames arrive immediately
  FaultInjector* faults = nullptr;  // null: none
  // Every n-th connection lends the body of a frame with one body, as shared memory does, and
  // overwrites it after Received. 0: no connection does.
  uint64_t lends_every = 0;
};

// A network of addresses in one process.  Thread-safe.
class InprocNetwork {
 public:
  explicit InprocNetwork(InprocOptions options = {});
  ~InprocNetwork();

  // Returns an endpoint that listens at an address.
  //   throws  kAlreadyExists  the address is taken
  std::unique_ptr<Endpoint> Listen(const std::string& address);

  // Returns the time of the next arrival at an address, by the given clock; the largest number if
  // there is none.
  int64_t NextArrival(const std::string& address) const;
  // Breaks every connection of an address.  With `silently` the other side gets no Closed.
  void Sever(const std::string& address, bool silently);
  void Sever(const std::string& a, const std::string& b);
  // Delivers the frames that a cut has held; call it after a cut has ended.
  void Release();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tkv
