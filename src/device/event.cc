#include "device/event.h"

#include <algorithm>
#include <thread>

#include "base/wait.h"
#include "device/device.h"

namespace tkv {
namespace {

// A sleep takes 50 us longer than requested.  So the first one comes when that is short compared to
// the time already waited.
constexpr std::chrono::nanoseconds kAwake = std::chrono::milliseconds(1);
constexpr std::chrono::nanoseconds kNapMax = std::chrono::milliseconds(1);

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

// The driver's event may be recorded again while its work still runs.  Streams that wait for it
// keep waiting for the earlier record, and no host can still wait through this object.
Event::~Event() {
  if (device_.is_usable()) device_.events().Give(handle_);
}

void Event::Record(Stream* stream) noexcept {
  records_before_.store(stream->records().load());
  const cuda::Result result = device_.Call(device_.driver().EventRecord, handle_, stream->handle());
  records_with_.store(stream->records().fetch_add(1) + 1);
  stream_.store(stream, std::memory_order_relaxed);
  if (result != cuda::Result::kSuccess) device_.Lose("record an event", result);
  state_.store(State::kRecorded, std::memory_order_release);
}

void Event::Abandon() noexcept {
  State open = State::kOpen;
  state_.compare_exchange_strong(open, State::kDone);
}

// A lost device no longer uses the memory, so its events are done.
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
  const auto begin = std::chrono::steady_clock::now();
  const auto rest = [&](std::chrono::nanoseconds longest) {
    auto now = std::chrono::steady_clock::now();
    for (const auto end = now + longest; !done() && now < end;
         now = std::chrono::steady_clock::now()) {
      if (now - begin < kAwake) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::min((now - begin) / 16, kNapMax));
      }
    }
  };
  return WaitUntil(nullptr, DeadlineAfter(patience), interrupt, [this] { return done(); }, rest);
}

bool Event::is_known_done() const noexcept {
  return state_.load(std::memory_order_acquire) == State::kDone;
}

bool Event::IsBefore(const Stream* stream) const noexcept {
  const State state = state_.load(std::memory_order_acquire);
  return state == State::kDone ||
         (state == State::kRecorded && stream_.load(std::memory_order_relaxed) == stream);
}

// Unknown for two threads that record at the same time: then neither event covers the other.
bool Event::IsCoveredBy(const Pending& later) const noexcept {
  const auto* const event = dynamic_cast<const Event*>(&later);
  if (event == nullptr || event->state_.load(std::memory_order_acquire) != State::kRecorded ||
      state_.load(std::memory_order_acquire) != State::kRecorded) {
    return false;
  }
  return stream_.load(std::memory_order_relaxed) ==
             event->stream_.load(std::memory_order_relaxed) &&
         records_with_.load() <= event->records_before_.load();
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
  if (IsBefore(stream)) return true;
  Device& device = stream->device();
  return device.is_usable() && device.Call(device.driver().StreamWaitEvent, stream->handle(),
                                           handle_, 0U) == cuda::Result::kSuccess;
}

}  // namespace tkv
