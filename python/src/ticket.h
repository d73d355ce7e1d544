// Operations under way, for Python.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings.h"

namespace tkv::python {

// Tells an event loop which operations have ended: they write to a file that the loop watches, for
// no thread of a store takes the GIL.  Operations may outlive the loop.
class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  int file() const { return file_; }
  void Add(uint64_t id) noexcept;
  std::vector<uint64_t> Take();

 private:
  const int file_;
  std::mutex mutex_;
  std::vector<uint64_t> ended_;
};

// Ends what a thread of Python's waits for, from another thread.
struct Interruption {
  std::atomic<bool> is_asked{false};
};

// Throws kCancelled where the call that runs on this thread is to end.
void CheckInterruption();

nb::object ToPython(Ticket ticket);

}  // namespace tkv::python
