// A mutex for users who may interrupt, and for waits that end.

#pragma once

#include <condition_variable>
#include <mutex>

namespace tkv {

class PatientMutex final {
 public:
  // Holds the mutex while it lives.
  class Lock final {
   public:
    //   verb    what for: "copy to a GPU"
    //   blocks  at most kHazardPatience
    //   throws  kDeadlineExceeded, what the interrupt throws
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
};

}  // namespace tkv
