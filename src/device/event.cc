#include "device/event.h"

#include <algorithm>
#include <thread>

#include "base/wait.h"
#include "device/device.h"

namespace tkv {
namespace {

// Most work ends within microseconds; a sleep would be longer.
constexpr int kPolls = 64;
constexpr std::chrono::nanoseconds kRestMax = std::chrono::milliseconds(1);

}  // namespace

cuda::EventHandle EventPool::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cuda::EventHandle event = free_.back();
      free_.pop_back();
      return event;
    }
    ++given_;
    if (free_.capacity() < given_) free_.reserve(2 * given_);
  }
  cuda::EventHandle event = nullptr;
  device_.Do("create an event", device_.driver().EventCreate, &event, cuda::kDisableTiming);
  return event;
}

void EventPool::Give(cuda::EventHandle event) noexcept {
  std::lock_guard lock(mutex_);
  free_.push_back(event);
}

Event::Event(Device* device) : device_(*device), handle_(device->events().Take()) {}

// An event that is under way may be recorded anew: streams that wait for it have taken its earlier
// meaning, and hosts can have no handle on it any more.
Event::~Event() {
  if (device_.is_usable()) device_.events().Give(handle_);
}

void Event::Record(Stream* stream) noexcept {
  const cuda::Result result = device_.Call(device_.driver().EventRecord, handle_, stream->handle());
  stream_.store(stream, std::memory_order_relaxed);
  if (result != cuda::Result::kSuccess) device_.Lose("record an event", result);
  state_.store(State::kRecorded, std::memory_order_release);
}

void Event::Abandon() noexcept {
  State open = State::kOpen;
  state_.compare_exchange_strong(open, State::kDone);
}

// Where the device is lost nothing uses the memory any more.
bool Event::done() const noexcept {
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::kRecorded) return state == State::kDone;
  if (device_.is_usable()) {
    const cuda::Result result = device_.Call(device_.driver().EventQuery, handle_);
    if (result == cuda::Result::kNotReady) return false;
    if (result != cuda::Result::kSuccess) device_.Lose("query an event", result);
  }
  state_.store(State::kDone, std::memory_order_release);
  return true;
}

bool Event::EndsWithin(std::chrono::nanoseconds patience, const std::function<void()>& interrupt) {
  int polls = 0;
  const auto rest = [&](std::chrono::nanoseconds longest) {
    const auto end = std::chrono::steady_clock::now() + longest;
    while (!done() && std::chrono::steady_clock::now() < end) {
      if (++polls <= kPolls) {
        std::this_thread::yield();
      } else {
        const std::chrono::nanoseconds nap = std::chrono::microseconds(10) * (polls - kPolls);
        std::this_thread::sleep_for(std::min(nap, kRestMax));
      }
    }
  };
  return WaitUntil(nullptr, DeadlineAfter(patience), interrupt, [this] { return done(); }, rest);
}

void Event::CheckUsable() const { device_.CheckUsable(); }

void Event::Wait(std::chrono::nanoseconds patience) {
  const bool is_done = EndsWithin(patience, GpuInterrupt());
  device_.CheckUsable();
  if (is_done) return;
  throw Fail(Code::kDeadlineExceeded, "gpu({}): its work has not ended within {} s",
             device_.index(), std::chrono::duration<double>(patience).count());
}

bool Event::Order(Stream* stream) {
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::kRecorded) return state == State::kDone;
  if (stream == stream_.load(std::memory_order_relaxed)) return true;
  Device& device = stream->device();
  return device.is_usable() && device.Call(device.driver().StreamWaitEvent, stream->handle(),
                                           handle_, 0U) == cuda::Result::kSuccess;
}

}  // namespace tkv
