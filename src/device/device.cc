#include "device/device.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/process.h"

namespace tkv {
namespace {

// The driver, if it can be loaded, and the devices that are open.
class Devices {
 public:
  Devices() {
    try {
      driver_ = cuda::LoadDriver();
      Count();
    } catch (const Error& error) {
      absent_ = error;
    }
  }

  int count() const noexcept { return static_cast<int>(open_.size()); }
  // A child of fork() cannot use any.
  int usable_count() const noexcept { return birth_ == ForkGeneration() ? count() : 0; }

  Device& Get(int32_t index) {
    Check(index);
    std::atomic<Device*>& slot = open_[static_cast<size_t>(index)];
    if (Device* const device = slot.load(std::memory_order_acquire)) return *device;
    std::lock_guard lock(mutex_);
    if (slot.load(std::memory_order_relaxed) == nullptr) {
      // Never destroyed: arrays may be used until the process ends.
      slot.store(new Device(&*driver_, index), std::memory_order_release);
    }
    return *slot.load(std::memory_order_relaxed);
  }

 private:
  void Count() {
    int count = 0;
    const cuda::Result result = driver_->DeviceGetCount(&count);
    if (result != cuda::Result::kSuccess) {
      throw Fail(Code::kUnavailable, "the NVIDIA driver does not count its GPUs: {}",
                 driver_->Describe(result));
    }
    open_ = std::vector<std::atomic<Device*>>(static_cast<size_t>(count));
  }

  void Check(int32_t index) const {
    if (absent_) {
      throw Fail(absent_->code(), "context gpu({}): {}; cpu(i) is host memory", index,
                 absent_->what());
    }
    if (birth_ != ForkGeneration()) {
      throw Fail(
          Code::kFailedPrecondition,
          "context gpu({}): this process was forked from one that has used the NVIDIA driver, "
          "which does not work in both; use the method 'spawn', or GPUs in the child alone",
          index);
    }
    if (index < 0 || index >= count()) {
      throw Fail(Code::kInvalidArgument, "context gpu({}): this machine has {}", index,
                 count() == 0 ? std::string("no GPU that this process may use")
                              : Format("{} GPUs, from gpu(0) on", count()));
    }
  }

  const unsigned birth_ = ForkGeneration();
  std::optional<cuda::Driver> driver_;
  std::optional<Error> absent_;
  std::vector<std::atomic<Device*>> open_;
  std::mutex mutex_;
};

Devices& AllDevices() {
  static Devices* const all = new Devices;
  return *all;
}

}  // namespace

// ----------------------------------------------------------------------------------------- stream
Stream::Stream(Device* device) : device_(*device), is_own_(true) {
  device_.Do("create a stream", device_.driver().StreamCreate, &handle_, cuda::kNonBlocking, 0);
}

Stream::Stream(Device* device, uint64_t stream)
    : device_(*device),
      is_own_(false),
      handle_(reinterpret_cast<cuda::StreamHandle>(stream)) {}  // NOLINT(performance-no-int-to-ptr)

Stream::~Stream() {
  if (is_own_) device_.Call(device_.driver().StreamDestroy, handle_);
}

void Stream::CheckNotCaptured() const {
  int status = 0;
  device_.CheckUsable();
  const cuda::Result result = device_.Call(device_.driver().StreamIsCapturing, handle_, &status);
  if (result != cuda::Result::kCaptureImplicit) device_.Check(result, "look at a stream");
  if (result == cuda::Result::kSuccess && status == 0) return;
  throw Fail(Code::kFailedPrecondition,
             "gpu({}): a stream is being captured into a CUDA graph, where no array can be handed "
             "over; do so before or after the capture",
             device_.index());
}

// ----------------------------------------------------------------------------------------- device
Device& Device::Get(int32_t index) { return AllDevices().Get(index); }

int Device::Count() { return AllDevices().usable_count(); }

Device::Device(const cuda::Driver* driver, int32_t index)
    : driver_(*driver), index_(index), birth_(ForkGeneration()) {
  std::array<char, 128> name{};
  Check(driver_.DeviceGet(&handle_, index), "open it");
  Check(driver_.DeviceGetName(name.data(), static_cast<int>(name.size()), handle_), "name it");
  Check(driver_.DeviceGetAttribute(&multiprocessors_, cuda::kMultiprocessorCount, handle_),
        "count its multiprocessors");
  name_ = name.data();
  Check(driver_.PrimaryContextRetain(&context_, handle_), "make its context");
  try {
    for (auto* const stream : {&compute_, &to_device_, &to_host_}) {
      *stream = std::make_unique<Stream>(this);
    }
  } catch (...) {
    compute_.reset();
    to_device_.reset();
    driver_.PrimaryContextRelease(handle_);
    throw;
  }
}

bool Device::is_usable() const noexcept {
  return lost_by_.load(std::memory_order_acquire) == cuda::Result::kSuccess &&
         birth_ == ForkGeneration();
}

void Device::CheckUsable() const {
  if (is_usable()) return;
  if (birth_ != ForkGeneration()) {
    throw Fail(Code::kFailedPrecondition,
               "gpu({}): it belongs to the process that this one was forked from", index_);
  }
  throw Fail(Code::kUnavailable, "gpu({}): lost: {}: {}", index_,
             lost_in_.load(std::memory_order_relaxed),
             driver_.Describe(lost_by_.load(std::memory_order_relaxed)));
}

void Device::Lose(const char* verb, cuda::Result result) noexcept {
  std::lock_guard lock(losing_);
  if (lost_by_.load(std::memory_order_relaxed) != cuda::Result::kSuccess) return;
  lost_in_.store(verb, std::memory_order_relaxed);
  lost_by_.store(result, std::memory_order_release);
}

void Device::Check(cuda::Result result, const char* verb) {
  if (result == cuda::Result::kSuccess) return;
  if (cuda::IsSticky(result)) {
    Lose(verb, result);
    CheckUsable();
  }
  const Code code =
      result == cuda::Result::kOutOfMemory ? Code::kResourceExhausted : Code::kInternal;
  throw Fail(code, "gpu({}): {}: {}", index_, verb, driver_.Describe(result));
}

bool Device::Reaches(Device* other) {
  if (other == this) return true;
  std::lock_guard lock(peers_mutex_);
  const auto found = peers_.find(other->index_);
  if (found != peers_.end()) return found->second;
  other->CheckUsable();
  int can = 0;
  Do("look for its peers", driver_.DeviceCanAccessPeer, &can, handle_, other->handle_);
  if (can != 0) {
    CheckUsable();
    const cuda::Result result = Call(driver_.ContextEnablePeerAccess, other->context_, 0U);
    if (cuda::IsSticky(result)) Check(result, "reach its peer");
    // If the driver refuses (a device has too many peers), data of the other device is copied from
    // now on.
    can = result == cuda::Result::kSuccess || result == cuda::Result::kPeerAccessAlreadyEnabled;
  }
  return peers_.emplace(other->index_, can != 0).first->second;
}

GpuMemory Device::memory() {
  GpuMemory memory;
  Do("look at its memory", driver_.MemGetInfo, &memory.free_bytes, &memory.total_bytes);
  return memory;
}

cuda::Result Device::AttributeOf(cuda::Address address, int attribute, int* value) {
  CheckUsable();
  const cuda::Result result =
      Call(driver_.PointerGetAttribute, static_cast<void*>(value), attribute, address);
  if (result != cuda::Result::kInvalidValue) Check(result, "look at memory");
  return result;
}

void Device::CheckHolds(cuda::Address address) {
  int is_managed = 0, kind = 0, ordinal = 0;
  const bool is_known =
      AttributeOf(address, cuda::kIsManaged, &is_managed) == cuda::Result::kSuccess;
  if (is_known && is_managed != 0) return;
  if (!is_known || AttributeOf(address, cuda::kMemoryKind, &kind) != cuda::Result::kSuccess ||
      kind != cuda::kOfDevice) {
    throw Fail(Code::kInvalidArgument, "array: its memory is the host's, and not that of gpu({})",
               index_);
  }
  if (AttributeOf(address, cuda::kDeviceOrdinal, &ordinal) != cuda::Result::kSuccess ||
      ordinal != index_) {
    throw Fail(Code::kInvalidArgument, "array: its memory is that of gpu({}), and not of gpu({})",
               ordinal, index_);
  }
}

void Device::CheckHolds(cuda::Address address, size_t bytes) {
  CheckHolds(address);
  CheckHolds(address + bytes - 1);
}

// ----------------------------------------------------------------------------------------- public
int GpuCount() { return Device::Count(); }

GpuMemory GpuMemoryOf(int32_t index) { return Device::Get(index).memory(); }

uint64_t GpuStream(int32_t index) {
  return reinterpret_cast<uint64_t>(Device::Get(index).compute().handle());
}

void CheckNotCaptured(int32_t index, uint64_t stream) {
  Stream(&Device::Get(index), stream).CheckNotCaptured();
}

}  // namespace tkv
