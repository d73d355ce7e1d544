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

// An Operation.  Autograd hears now, and again from the wait that finds it done, that `tensors` of PyTorch, a list or
// nothing, are written to: what was saved for a backward pass before either is not what it was.
nb::object ToPython(Ticket ticket, nb::object tensors);

}  // namespace tkv::python
