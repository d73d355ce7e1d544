#include "device/patient_mutex.h"

#include <utility>

#include "base/format.h"
#include "base/wait.h"
#include "tkv/pending.h"

namespace tkv {
namespace {

PatientMutex& EnqueueMutex() {
  static auto* const mutex = new PatientMutex;
  return *mutex;
}

std::function<void()>& InterruptSlot() {
  static auto* const interrupt = new std::function<void()>;
  return *interrupt;
}

}  // namespace

const std::function<void()>& GpuInterrupt() { return InterruptSlot(); }

void SetGpuInterrupt(std::function<void()> interrupt) { InterruptSlot() = std::move(interrupt); }

EnqueueLock::EnqueueLock() : lock_(&EnqueueMutex(), "give a GPU work") {}

PatientMutex::Lock::Lock(PatientMutex* mutex, const char* verb) : mutex_(*mutex) {
  std::unique_lock lock(mutex_.mutex_);
  if (mutex_.is_held_ && mutex_.holder_ == std::this_thread::get_id()) {
    throw Fail(Code::kFailedPrecondition,
               "{}: this thread is in the midst of it; a signal's handler cannot begin another one",
               verb);
  }
  if (!WaitUntil(&lock, &mutex_.released_, DeadlineAfter(kHazardPatience), GpuInterrupt(),
                 [&] { return !mutex_.is_held_; })) {
    throw Fail(Code::kDeadlineExceeded, "{}: another thread's has not ended within {} s", verb,
               std::chrono::duration<double>(kHazardPatience).count());
  }
  mutex_.is_held_ = true;
  mutex_.holder_ = std::this_thread::get_id();
}

PatientMutex::Lock::~Lock() {
  std::lock_guard lock(mutex_.mutex_);
  mutex_.is_held_ = false;
  mutex_.released_.notify_one();
}

}  // namespace tkv
