// One GPU: its primary context, its streams and what is kept of it to use again.
//
// Thread-safe.  Devices live until the process ends.  A device on which something has gone wrong that
// the driver does not recover from is lost: every use of it throws kUnavailable with the first error,
// releases do nothing, and the host and the other devices go on.

#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/driver.h"
#include "device/event.h"
#include "device/memory.h"
#include "device/module_cache.h"
#include "device/patient_mutex.h"
#include "device/staging.h"
#include "tkv/gpu.h"
#include "tkv/pending.h"

namespace tkv {

class Device;

// Work of a device, in the order in which it was given.
class Stream final {
 public:
  explicit Stream(Device* device);
  // A stream of somebody else, a CUstream or one of DLPack's numbers, who keeps it as long as this is used.
  Stream(Device* device, uint64_t stream);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const noexcept { return device_; }
  cuda::StreamHandle handle() const noexcept { return handle_; }
  // The default stream of the thread that asks.
  bool is_of_each_thread() const noexcept {
    return reinterpret_cast<uint64_t>(handle_) == cuda::kPerThreadStream;
  }
  bool operator==(const Stream& other) const noexcept {
    return &device_ == &other.device_ && handle_ == other.handle_;
  }
  // Of events, that have returned.
  std::atomic<uint64_t>& records() noexcept { return records_; }

  // Work that a stream gets while a graph is made of it does not run, and an event of elsewhere cannot
  // be waited for.
  //   throws  kFailedPrecondition  it is captured
  //           kUnavailable, kInternal
  void CheckNotCaptured() const;

 private:
  Device& device_;
  const bool is_own_;
  cuda::StreamHandle handle_ = nullptr;
  std::atomic<uint64_t> records_{0};
};

class Device final {
 public:
  // Opens the device where nobody has.
  //   throws  kUnimplemented      this machine has no driver that can be used
  //           kInvalidArgument    it has fewer devices
  //           kUnavailable        the driver does not start; the device is lost
  //           kFailedPrecondition this is a child of fork() of a process that has used GPUs
  static Device& Get(int32_t index);
  // 0 where there is no driver that can be used.
  static int Count();

  Device(const cuda::Driver* driver, int32_t index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int32_t index() const noexcept { return index_; }
  const std::string& name() const noexcept { return name_; }
  int multiprocessors() const noexcept { return multiprocessors_; }
  cuda::ContextHandle context() const noexcept { return context_; }
  const cuda::Driver& driver() const noexcept { return driver_; }

  // Arithmetic runs on `compute`; the others carry what comes from and goes to the host.
  Stream& compute() const noexcept { return *compute_; }
  Stream& to_device() const noexcept { return *to_device_; }
  Stream& to_host() const noexcept { return *to_host_; }

  EventPool& events() noexcept { return events_; }
  BlockCache& blocks() noexcept { return blocks_; }
  BlockCache& pinned_blocks() noexcept { return pinned_blocks_; }
  ModuleCache& modules() noexcept { return modules_; }
  Staging& staging_to_device() noexcept { return staging_to_device_; }
  Staging& staging_to_host() noexcept { return staging_to_host_; }

  //   throws  kUnavailable, kFailedPrecondition  as Get
  void CheckUsable() const;
  // False where it is lost or this is a child of fork(): the driver must not be called.
  bool is_usable() const noexcept;

  // Whether kernels of this device read and write memory of the other one in its place.
  //   throws  kUnavailable, kInternal, kFailedPrecondition (a child of fork)
  bool Reaches(Device* other);

  // Calls a function of the driver with the device's context current, and makes the one that was current
  // before current again.  Where that fails the device is lost, and the function's result is returned.
  template <typename... Parameters, typename... Arguments>
  cuda::Result Call(cuda::Result (*function)(Parameters...), Arguments... arguments) noexcept {
    const cuda::Result before = driver_.ContextPush(context_);
    if (before != cuda::Result::kSuccess) return before;
    const cuda::Result result = function(arguments...);
    cuda::ContextHandle popped = nullptr;
    const cuda::Result after = driver_.ContextPop(&popped);
    if (after != cuda::Result::kSuccess) Lose("leave its context", after);
    return result;
  }

  // The device is lost where the result says so.
  //   verb    what was tried: "launch"
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Check(cuda::Result result, const char* verb);
  template <typename... Parameters, typename... Arguments>
  void Do(const char* verb, cuda::Result (*function)(Parameters...), Arguments... arguments) {
    CheckUsable();
    Check(Call(function, arguments...), verb);
  }
  void Lose(const char* verb, cuda::Result result) noexcept;

  GpuMemory memory();
  // Whether memory of somebody else is the device's, from the first byte to the last; managed memory is
  // every device's.
  //   throws  kInvalidArgument  it is not
  //           kUnavailable, kInternal
  void CheckHolds(cuda::Address address, size_t bytes);

 private:
  void CheckHolds(cuda::Address address);
  cuda::Result AttributeOf(cuda::Address address, int attribute, int* value);

  const cuda::Driver& driver_;
  const int32_t index_;
  const unsigned birth_;
  std::string name_;
  int multiprocessors_ = 1;
  cuda::DeviceHandle handle_ = 0;
  cuda::ContextHandle context_ = nullptr;
  std::unique_ptr<Stream> compute_, to_device_, to_host_;
  EventPool events_{this};
  BlockCache blocks_{this, BlockKind::kDevice};
  BlockCache pinned_blocks_{this, BlockKind::kPinned};
  ModuleCache modules_{this};
  Staging staging_to_device_{this};
  Staging staging_to_host_{this};
  std::mutex peers_mutex_;
  std::map<int32_t, bool> peers_;  // by index: whether they are reached
  std::atomic<cuda::Result> lost_by_{cuda::Result::kSuccess};
  std::atomic<const char*> lost_in_{""};
  std::mutex losing_;
};

}  // namespace tkv
