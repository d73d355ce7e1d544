#include "device/patient_mutex.h"

#include "base/format.h"
#include "base/wait.h"
#include "device/device.h"

namespace tkv {

PatientMutex::Lock::Lock(PatientMutex* mutex, const char* verb) : mutex_(*mutex) {
  std::unique_lock lock(mutex_.mutex_);
  if (!WaitUntil(&lock, &mutex_.released_, DeadlineAfter(kHazardPatience), GpuInterrupt(),
                 [&] { return !mutex_.is_held_; })) {
    throw Fail(Code::kDeadlineExceeded, "{}: another thread's has not ended within {} s", verb,
               std::chrono::duration<double>(kHazardPatience).count());
  }
  mutex_.is_held_ = true;
}

PatientMutex::Lock::~Lock() {
  std::lock_guard lock(mutex_.mutex_);
  mutex_.is_held_ = false;
  mutex_.released_.notify_one();
}

}  // namespace tkv
