// The transport inside one process: between threads, or between the machines of a simulation with a
// clock of its own.  Bodies are copied once, from the sender's memory to where they land.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace tkv {

// Decides what happens to frames; a simulation derives it from a seed.
class FaultInjector {
 public:
  virtual ~FaultInjector() = default;
  // How long a frame of `bytes` takes from one address to another, in nanoseconds; negative: the
  // connection is lost, with what is under way on it.
  virtual int64_t Delay(const std::string& from, const std::string& to, size_t bytes) = 0;
  // How often it arrives: once, or more.
  virtual int Copies(const std::string& from, const std::string& to) = 0;
  // Whether nothing passes in this direction now; frames wait until it does.
  virtual bool IsCut(const std::string& from, const std::string& to) = 0;
};

struct InprocOptions {
  std::function<int64_t()> clock;   // null: frames arrive at once
  FaultInjector* faults = nullptr;  // null: none
  // Of every so many connections one lends the bodies that travel alone, as shared memory does, and
  // spoils them when they have been received; 0: none does.
  uint64_t lends_every = 0;
};

// Thread-safe.
class InprocNetwork {
 public:
  explicit InprocNetwork(InprocOptions options = {});
  ~InprocNetwork();

  //   throws  kAlreadyExists  the address is taken
  std::unique_ptr<Endpoint> Listen(const std::string& address);

  // The moment of the next arrival at an address, by the clock given; the largest number where
  // there is none.
  int64_t NextArrival(const std::string& address) const;
  // Loses every connection of an address.  With `silently` the other side is not told.
  void Sever(const std::string& address, bool silently);
  void Sever(const std::string& a, const std::string& b);
  // After a cut has ended.
  void Release();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tkv
