// Points in the work of a device for which hosts and streams can wait.

#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "device/driver.h"
#include "tkv/pending.h"

namespace tkv {

class Device;

// A pool of driver events for reuse.  Thread-safe.
class EventPool final {
 public:
  explicit EventPool(Device* device) : device_(*device) {}

  //   throws  kUnavailable, kResourceExhausted, kInternal
  cuda::EventHandle Take();
  void Give(cuda::EventHandle event) noexcept;

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<cuda::EventHandle> free_;  // has room for all, so that Give needs no memory
  size_t given_ = 0;                     // number of events that the driver ever created
};

// The end of work that a call gives to one stream.  The call registers the event with the memory
// before it gives the work, so that registering cannot fail afterwards.  Until Record, the event
// counts as not done.
//
// Thread-safe.  The call that created the event must record or abandon it.
class Event final : public Pending {
 public:
  //   throws  as EventPool::Take
  explicit Event(Device* device);
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Makes the event stand for all work that the stream has received so far; an event that is done
  // may be recorded again.  If the driver fails, the device is lost, because the end of the work is
  // unknown.
  void Record(Stream* stream) noexcept;
  // Marks the event as done because no work was given; has no effect after Record.
  void Abandon() noexcept;

  bool done() const noexcept override;
  //   throws  kDeadlineExceeded, kUnavailable (the device is lost), what the interrupt throws
  void Wait(std::chrono::nanoseconds patience) override;
  bool Order(Stream* stream) override;
  bool is_known_done() const noexcept override;
  bool IsBefore(const Stream* stream) const noexcept override;
  bool IsCoveredBy(const Pending& later) const noexcept override;

  //   throws  kUnavailable  its device is lost; then an event that is done may not have completed
  void CheckUsable() const;
  // Waits as Wait does; returns false if the work is not done within `patience`.
  //   throws  exceptions of `interrupt`, which may be empty
  bool EndsWithin(std::chrono::nanoseconds patience, const std::function<void()>& interrupt);

 private:
  enum class State : uint8_t { kOpen, kRecorded, kDone };

  Device& device_;
  cuda::EventHandle handle_;
  std::atomic<Stream*> stream_{nullptr};
  mutable std::atomic<State> state_{State::kOpen};
  // Records that the stream surely had received before this one, and their number with this one.
  std::atomic<uint64_t> records_before_{0}, records_with_{0};
};

// Abandons the event at the end of the scope unless it was recorded.  For a call that may fail
// before it has given any work to a stream.
class AbandonUnlessRecorded final {
 public:
  explicit AbandonUnlessRecorded(Event* event) noexcept : event_(event) {}
  ~AbandonUnlessRecorded() { event_->Abandon(); }
  AbandonUnlessRecorded(const AbandonUnlessRecorded&) = delete;
  AbandonUnlessRecorded& operator=(const AbandonUnlessRecorded&) = delete;

 private:
  Event* const event_;
};

}  // namespace tkv
