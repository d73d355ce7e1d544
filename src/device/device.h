// A GPU: its primary context, its streams, and the resources that are kept for reuse.
//
// Thread-safe.  Devices live until the process ends.  After an error from which the driver cannot
// recover, the device is lost: every use of it throws kUnavailable with the first error, and
// releases do nothing.  The host and the other devices continue.

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

// A queue of work for a device, which runs in the order in which it was given.
class Stream final {
 public:
  explicit Stream(Device* device);
  // Refers to a foreign stream, a CUstream or one of DLPack's numbers.  Its owner must keep it
  // longer than this object.
  Stream(Device* device, uint64_t stream);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const noexcept { return device_; }
  cuda::StreamHandle handle() const noexcept { return handle_; }
  // True for the per-thread default stream, which is another stream in each calling thread.
  bool is_of_each_thread() const noexcept {
    return reinterpret_cast<uint64_t>(handle_) == cuda::kPerThreadStream;
  }
  bool operator==(const Stream& other) const noexcept {
    return &device_ == &other.device_ && handle_ == other.handle_;
  }
  // Number of events that were recorded on the stream; counted after the driver call has returned.
  std::atomic<uint64_t>& records() noexcept { return records_; }

  // Throws if the stream is being captured into a graph.  Work that such a stream gets does not run
  // yet, and it cannot wait for an event of another stream.
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
  // Returns the device, and opens it at the first call.
  //   throws  kUnimplemented      this machine has no usable driver
  //           kInvalidArgument    it has fewer devices
  //           kUnavailable        the driver does not start; the device is lost
  //           kFailedPrecondition this is a child of fork() of a process that has used GPUs
  static Device& Get(int32_t index);
  // Returns the number of devices; 0 if there is no usable driver.
  static int Count();

  // Opens the device; for Get alone.
  Device(const cuda::Driver* driver, int32_t index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int32_t index() const noexcept { return index_; }
  const std::string& name() const noexcept { return name_; }
  int multiprocessors() const noexcept { return multiprocessors_; }
  cuda::ContextHandle context() const noexcept { return context_; }
  const cuda::Driver& driver() const noexcept { return driver_; }

  // Arithmetic runs on `compute`; the others copy from and to the host.
  Stream& compute() const noexcept { return *compute_; }
  Stream& to_device() const noexcept { return *to_device_; }
  Stream& to_host() const noexcept { return *to_host_; }

  EventPool& events() noexcept { return events_; }
  BlockCache& blocks() noexcept { return blocks_; }
  BlockCache& pinned_blocks() noexcept { return pinned_blocks_; }
  ModuleCache& modules() noexcept { return modules_; }
  Staging& staging_to_device() noexcept { return staging_to_device_; }
  Staging& staging_to_host() noexcept { return staging_to_host_; }

  // Throws if the device is lost or this is a child of fork().
  //   throws  kUnavailable, kFailedPrecondition  as Get
  void CheckUsable() const;
  // Returns false if the device is lost or this is a child of fork(): then the driver must not be
  // called.
  bool is_usable() const noexcept;

  // Returns true if kernels of this device can directly read and write memory of the other device.
  // The first call for a device gives them access if the driver allows it.
  //   throws  kUnavailable, kInternal, kFailedPrecondition (a child of fork)
  bool Reaches(Device* other);

  // Calls a function of the driver with the device's context current, restores the previous
  // context, and returns the function's result.  If the previous context cannot be restored, the
  // device is lost.
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

  // Throws if the result is an error.  An error that makes all later calls fail makes the device
  // lost.
  //   verb    the action that failed: "launch"
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Check(cuda::Result result, const char* verb);
  // Calls a function of the driver if the device is usable.
  //   throws  as CheckUsable and Check
  template <typename... Parameters, typename... Arguments>
  void Do(const char* verb, cuda::Result (*function)(Parameters...), Arguments... arguments) {
    CheckUsable();
    Check(Call(function, arguments...), verb);
  }
  // Makes the device lost.  The first loss is kept as the reason.
  //   verb  a string that is never freed
  void Lose(const char* verb, cuda::Result result) noexcept;

  // Returns the free and the total bytes of the device's memory, as the driver counts them.
  //   throws  as Do
  GpuMemory memory();
  // Checks that the first and the last byte of foreign memory belong to the device; managed memory
  // belongs to every device.
  //   throws  kInvalidArgument  they do not
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
  std::map<int32_t, bool> peers_;                              // by index: true if reached
  std::atomic<cuda::Result> lost_by_{cuda::Result::kSuccess};  // kSuccess: the device is not lost
  std::atomic<const char*> lost_in_{""};                       // the verb of Lose
  std::mutex losing_;
};

}  // namespace tkv
