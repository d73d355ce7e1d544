// Points in the work of a device that hosts and streams wait for.

#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "device/driver.h"
#include "tkv/pending.h"

namespace tkv {

class Device;

// Events of the driver to use again.  Thread-safe.
class EventPool final {
 public:
  explicit EventPool(Device* device) : device_(*device) {}

  //   throws  kUnavailable, kResourceExhausted, kInternal
  cuda::EventHandle Take();
  void Give(cuda::EventHandle event) noexcept;

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<cuda::EventHandle> free_;  // has room for all: giving needs no memory
  size_t given_ = 0;                     // so many were ever asked of the driver
};

// Work that a call gives to one stream.  It is entered with the memory that it uses before it is given,
// so that nothing can fail between; until it is recorded nobody finds it done.
//
// Thread-safe; the call that has made it records or abandons it.
class Event final : public Pending {
 public:
  //   throws  as EventPool::Take
  explicit Event(Device* device);
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Stands for all that the stream has got so far; an event that is done may be recorded anew.  A
  // device whose driver cannot do it is lost, because nobody would know when the memory is free.
  void Record(Stream* stream) noexcept;
  // Nothing was given to the stream; of no effect on one that is recorded.
  void Abandon() noexcept;

  bool done() const noexcept override;
  //   throws  kDeadlineExceeded, kUnavailable (the device is lost), what the interrupt throws
  void Wait(std::chrono::nanoseconds patience) override;
  bool Order(Stream* stream) override;
  bool is_known_done() const noexcept override;
  bool IsBefore(const Stream* stream) const noexcept override;
  bool IsCoveredBy(const Pending& later) const noexcept override;

  //   throws  kUnavailable  its device is lost: what is done may not have been
  void CheckUsable() const;
  // Waits as Wait does; false where it is not done then.
  //   throws  what the interrupt, which may be empty, throws
  bool EndsWithin(std::chrono::nanoseconds patience, const std::function<void()>& interrupt);

 private:
  enum class State : uint8_t { kOpen, kRecorded, kDone };

  Device& device_;
  cuda::EventHandle handle_;
  std::atomic<Stream*> stream_{nullptr};
  mutable std::atomic<State> state_{State::kOpen};
  // How many records the stream had got for sure before this one, and with it.
  std::atomic<uint64_t> records_before_{0}, records_with_{0};
};

// Abandons the event at the end of the scope unless it was recorded: for a call that may fail before it
// has given anything to a stream.
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
