// Mutexes whose waits are bounded and can be interrupted by the user.

#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tkv/gpu.h"

namespace tkv {

// Returns the function that waiting threads call, as set by SetGpuInterrupt; may be empty.
const std::function<void()>& GpuInterrupt();

class PatientMutex final {
 public:
  // Holds the mutex while it lives.
  class Lock final {
   public:
    //   verb    the purpose: "copy to a GPU"
    //   blocks  at most kHazardPatience
    //   throws  kDeadlineExceeded, what the interrupt throws
    //           kFailedPrecondition  this thread already holds it and runs an interrupt while it
    //                                waits
    Lock(PatientMutex* mutex, const char* verb);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    PatientMutex& mutex_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_held_ = false;
  std::thread::id holder_;
};

// A lock that a thread holds while it orders work after earlier uses of its memory and registers
// the work there.  So if two threads use the same arrays, one of them is first on all arrays.
//   blocks  at most kHazardPatience
//   throws  kDeadlineExceeded, what the interrupt throws
class EnqueueLock final {
 public:
  EnqueueLock();

 private:
  PatientMutex::Lock lock_;
};

}  // namespace tkv
