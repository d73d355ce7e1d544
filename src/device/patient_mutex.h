// Mutexes for users who may interrupt, and for waits that end.

#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tkv/gpu.h"

namespace tkv {

// What waits of this process ask, as SetGpuInterrupt says; may be empty.
const std::function<void()>& GpuInterrupt();

class PatientMutex final {
 public:
  // Holds the mutex while it lives.
  class Lock final {
   public:
    //   verb    what for: "copy to a GPU"
    //   blocks  at most kHazardPatience
    //   throws  kDeadlineExceeded, what the interrupt throws
    //           kFailedPrecondition  this thread holds it, in whose waits an interrupt runs
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

// Held while work is ordered after what uses its memory and enters itself there: of two threads that
// use the same arrays one is first on all of them.
//   blocks  at most kHazardPatience
//   throws  kDeadlineExceeded, what the interrupt throws
class EnqueueLock final {
 public:
  EnqueueLock();

 private:
  PatientMutex::Lock lock_;
};

}  // namespace tkv
