// Asynchronous operations, for Python.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings.h"

namespace tkv::python {

// Reports ended operations to an event loop by a file that the loop watches, because no thread of a
// store takes the GIL.  Operations may outlive the loop.
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

// A request of another thread to end a Python thread's wait.
struct Interruption {
  std::atomic<bool> is_asked{false};
};

// Throws kCancelled if this thread's current call was interrupted.
void CheckInterruption();

// Wraps an operation that writes to PyTorch `tensors`, a list or invalid.  Notifies autograd of the
// writes now, and again when a wait finds the operation done.  Tensors saved for a backward pass
// before either moment are thus detected as modified.
nb::object ToPython(Ticket ticket, nb::object tensors);

}  // namespace tkv::python
