// The functions of libcuda.so.1 that TensorKV calls, for the pretended machine.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/machine.h"

namespace tkv::fake {
namespace {

constexpr Number kSuccess = 0;
constexpr Number kInvalidValue = 1;
constexpr Number kOutOfMemory = 2;
constexpr Number kNotInitialized = 3;
constexpr Number kInvalidDevice = 101;
constexpr Number kInvalidContext = 201;
constexpr Number kInvalidPtx = 218;
constexpr Number kInvalidHandle = 400;
constexpr Number kNotFound = 500;
constexpr Number kNotReady = 600;
constexpr Number kPeerAccessAlreadyEnabled = 704;
constexpr Number kCaptureUnsupported = 900;
constexpr Number kCaptureImplicit = 906;

constexpr std::pair<Number, const char*> kNames[] = {
    {kSuccess, "CUDA_SUCCESS"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"},
    {kNotReady, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
    {999, "CUDA_ERROR_UNKNOWN"}};

// The failures that a test has requested.
struct Plan {
  int calls = 0;
  int fails_at = 0;
  int failures = 0;
  Number fails_by = 0;
  int waits = 0;
  int leaves_out = 0;
  bool is_stopped = false;
  pid_t process = 0;  // the process that called cuInit
};
Plan plan;

// The stack of current contexts; the last is in use.  A device represents its primary context.
// Usable until the process ends, because it is constant-initialised and has no destructor.
class Contexts {
 public:
  bool empty() const { return count_ == 0; }
  Device* back() const { return all_[count_ - 1]; }
  void push_back(Device* device) { all_.at(count_++) = device; }
  void pop_back() { --count_; }

 private:
  std::array<Device*, 1024> all_{};  // spare room, as a failed pop leaves its context behind
  size_t count_ = 0;
};
thread_local constinit Contexts contexts{};

Number NumberFrom(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

enum class Needs { kNothing, kContext };

// Runs a driver function, after the checks and failures common to all functions.
template <typename Body>
Number Call(Needs needs, Body body) {
  Machine& machine = Machine::Get();
  std::lock_guard lock(machine.mutex);
  if (++plan.calls == plan.fails_at) {
    ++plan.failures;
    return plan.fails_by;
  }
  if (plan.process != 0 && plan.process != getpid()) {
    machine.Report(-1, {kNotInitialized, "called in a child of fork()"});
    return kNotInitialized;
  }
  if (!plan.is_stopped) machine.Turn();
  if (needs == Needs::kContext) {
    if (contexts.empty()) return kInvalidContext;
    if (contexts.back()->error != 0) return contexts.back()->error;
  }
  return body(machine);
}

enum class Whose { kCurrent, kAny };  // the device whose streams a function accepts

// Runs a function on a stream, after its handle was replaced by the stream.
template <Whose whose = Whose::kCurrent, typename Body>
Number OnStream(Stream*& stream, Body body) {
  return Call(Needs::kContext, [&](Machine& machine) {
    stream = machine.StreamOf(stream, contexts.back());
    const bool is_current = stream->device == contexts.back()->number;
    if (whose == Whose::kCurrent && !is_current) return kInvalidHandle;
    if (machine.IsDisturbed(*stream)) {
      machine.Report(-1, {kCaptureUnsupported, "work for a stream that is captured into a graph"});
      return kCaptureUnsupported;
    }
    return body(machine);
  });
}

}  // namespace
}  // namespace tkv::fake

using namespace tkv::
    fake;  // NOLINT(google-build-using-namespace): every line below names some of it

#pragma GCC visibility push(default)
extern "C" {

// ------------------------------------------------------------------------------------------ tests
void fake_seed(uint64_t seed) {
  std::lock_guard lock(Machine::Get().mutex);
  Machine::Get().Seed(seed);
}

void fake_fail(int k, int result) {
  std::lock_guard lock(Machine::Get().mutex);
  plan.fails_at = k == 0 ? 0 : plan.calls + k;
  plan.fails_by = result;
}

void fake_leave_out(int k) {
  std::lock_guard lock(Machine::Get().mutex);
  plan.leaves_out = k == 0 ? 0 : plan.waits + k;
}

void fake_stop(int stops) {
  std::lock_guard lock(Machine::Get().mutex);
  plan.is_stopped = stops != 0;
}

void fake_capture(void* stream, int captures) {
  std::lock_guard lock(Machine::Get().mutex);
  static_cast<Stream*>(stream)->is_captured = captures != 0;
}

int fake_calls() { return plan.calls; }
int fake_failures() { return plan.failures; }
int fake_launches() { return Machine::Get().launches; }
int fake_violations() { return Machine::Get().violations; }

void fake_lose(int device, int result) {
  std::lock_guard lock(Machine::Get().mutex);
  Machine::Get().devices.at(static_cast<size_t>(device))->error = result;
}

// ----------------------------------------------------------------------------------------- driver
Number cuInit(unsigned) {
  return Call(Needs::kNothing, [](Machine&) {
    plan.process = getpid();
    return NumberFrom("FAKE_INIT", kSuccess);
  });
}

Number cuDriverGetVersion(int* version) {
  *version = NumberFrom("FAKE_VERSION", 12'090);
  return kSuccess;
}

Number cuGetErrorName(Number result, const char** name) {
  for (const auto& [number, text] : kNames) {
    if (number != result) continue;
    *name = text;
    return kSuccess;
  }
  return kInvalidValue;
}

Number cuGetErrorString(Number result, const char** text) { return cuGetErrorName(result, text); }

Number cuDeviceGetCount(int* count) {
  return Call(Needs::kNothing, [&](Machine& machine) {
    *count = static_cast<int>(machine.devices.size());
    return kSuccess;
  });
}

Number cuDeviceGet(int* device, int index) {
  return Call(Needs::kNothing, [&](Machine& machine) {
    *device = index;
    return index >= 0 && index < static_cast<int>(machine.devices.size()) ? kSuccess
                                                                          : kInvalidDevice;
  });
}

Number cuDeviceGetName(char* name, int bytes, int) {
  return Call(Needs::kNothing, [&](Machine&) {
    std::strncpy(name, "Pretended GPU", static_cast<size_t>(bytes));
    return kSuccess;
  });
}

Number cuDeviceGetAttribute(int* value, int attribute, int) {
  return Call(Needs::kNothing, [&](Machine&) {
    if (attribute != 16) return kInvalidValue;
    *value = 2;  // multiprocessors
    return kSuccess;
  });
}

Number cuDevicePrimaryCtxRetain(Device** context, int device) {
  return Call(Needs::kNothing, [&](Machine& machine) {
    *context = machine.devices.at(static_cast<size_t>(device)).get();
    return (*context)->error;
  });
}

Number cuDevicePrimaryCtxRelease(int) {
  return Call(Needs::kNothing, [](Machine&) { return kSuccess; });
}

Number cuCtxPushCurrent_v2(Device* context) {
  return Call(Needs::kNothing, [&](Machine&) {
    contexts.push_back(context);
    return kSuccess;
  });
}

Number cuCtxPopCurrent_v2(Device** context) {
  return Call(Needs::kNothing, [&](Machine&) {
    if (contexts.empty()) return kInvalidContext;
    *context = contexts.back();
    contexts.pop_back();
    return kSuccess;
  });
}

Number cuDeviceCanAccessPeer(int* can, int, int) {
  return Call(Needs::kNothing, [&](Machine& machine) {
    *can = machine.can_reach_peers ? 1 : 0;
    return kSuccess;
  });
}

Number cuCtxEnablePeerAccess(Device* peer, unsigned) {
  return Call(Needs::kContext, [&](Machine& machine) {
    if (!machine.can_reach_peers) return kInvalidDevice;
    auto reaches = contexts.back()->reaches.begin() + peer->number;
    if (*reaches) return kPeerAccessAlreadyEnabled;
    *reaches = true;
    return kSuccess;
  });
}

// ----------------------------------------------------------------------------------------- memory
Number cuMemGetInfo_v2(size_t* free, size_t* total) {
  return Call(Needs::kContext, [&](Machine& machine) {
    *total = machine.device_bytes;
    *free = machine.device_bytes - contexts.back()->used_bytes;
    return kSuccess;
  });
}

Number cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  return Call(Needs::kContext, [&](Machine& machine) {
    *address = machine.Allocate(contexts.back(), bytes);
    return *address == 0 ? kOutOfMemory : kSuccess;
  });
}

Number cuMemAllocManaged(uint64_t* address, size_t bytes, unsigned) {
  return Call(Needs::kContext, [&](Machine& machine) {
    *address = machine.Allocate(contexts.back(), bytes);
    if (*address == 0) return kOutOfMemory;
    machine.Find(*address)->is_managed = true;
    return kSuccess;
  });
}

Number cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  return Call(Needs::kContext, [&](Machine& machine) {
    const Block* const block = machine.Find(address);
    if (block == nullptr) return kInvalidValue;  // the driver does not know memory of others
    switch (attribute) {
      case 2:  // the kind of memory: the host's or a device's
        *static_cast<unsigned*>(value) = block->device < 0 ? 1 : 2;
        return kSuccess;
      case 8:
        *static_cast<unsigned*>(value) = block->is_managed ? 1 : 0;
        return kSuccess;
      case 9:
        *static_cast<int*>(value) = std::max(block->device, 0);
        return kSuccess;
      default:
        return kInvalidValue;
    }
  });
}

Number cuMemFree_v2(uint64_t address) {
  return Call(Needs::kContext,
              [&](Machine& machine) { return machine.Free(address) ? kSuccess : kInvalidValue; });
}

Number cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  return Call(Needs::kContext, [&](Machine& machine) {
    *data = machine.AllocatePinned(bytes);
    return *data == nullptr ? kOutOfMemory : kSuccess;
  });
}

Number cuMemFreeHost(void* data) {
  return Call(Needs::kContext, [&](Machine& machine) {
    return machine.Free(reinterpret_cast<uint64_t>(data)) ? kSuccess : kInvalidValue;
  });
}

Number cuMemcpyHtoDAsync_v2(uint64_t target, const void* source, size_t bytes, Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    machine.Copy(stream, "copy to the device", target, reinterpret_cast<uint64_t>(source), bytes);
    return kSuccess;
  });
}

Number cuMemcpyDtoHAsync_v2(void* target, uint64_t source, size_t bytes, Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    machine.Copy(stream, "copy to the host", reinterpret_cast<uint64_t>(target), source, bytes);
    return kSuccess;
  });
}

Number cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t bytes, Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    machine.Copy(stream, "copy within the device", target, source, bytes);
    return kSuccess;
  });
}

// Works without peer access, as the driver copies by another way.
Number cuMemcpyPeerAsync(uint64_t target, Device*, uint64_t source, Device*, size_t bytes,
                         Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    machine.CopyToPeer(stream, target, source, bytes);
    return kSuccess;
  });
}

Number cuMemcpy2DAsync_v2(const PlaneCopy* copy, Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    constexpr size_t kPitchMax = INT32_MAX;
    for (const Plane& plane : {copy->source, copy->target}) {
      const bool is_wide = plane.x_bytes + copy->width_bytes > plane.pitch;
      if (plane.kind != 2 || is_wide || plane.pitch > kPitchMax) return kInvalidValue;
    }
    machine.CopyPlane(stream, *copy);
    return kSuccess;
  });
}

Number cuMemsetD8Async(uint64_t target, unsigned char value, size_t bytes, Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    machine.Fill(stream, target, std::byte{value}, bytes);
    return kSuccess;
  });
}

// ---------------------------------------------------------------------------------------- streams
Number cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) {
  return Call(Needs::kContext, [&](Machine& machine) {
    if (flags > 1) return kInvalidValue;
    *stream = machine.NewStream(contexts.back()->number,
                                flags == 1 ? StreamKind::kNonBlocking : StreamKind::kBlocking);
    return kSuccess;
  });
}

Number cuStreamDestroy_v2(Stream* stream) {
  return Call(Needs::kContext,
              [&](Machine& machine) { return machine.Delete(stream) ? kSuccess : kInvalidHandle; });
}

Number cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  return OnStream<Whose::kAny>(stream, [&](Machine& machine) {
    if (++plan.waits == plan.leaves_out) return kSuccess;
    Operation wait;
    wait.name = "wait";
    if (event->last != nullptr) wait.waits_for = {event->last};
    machine.Give(stream, std::move(wait));
    return kSuccess;
  });
}

Number cuStreamIsCapturing(Stream* handle, int* status) {
  return Call(Needs::kContext, [&](Machine& machine) {
    const Stream& stream = *machine.StreamOf(handle, contexts.back());
    *status = stream.is_captured ? 1 : 0;
    return !stream.is_captured && machine.IsDisturbed(stream) ? kCaptureImplicit : kSuccess;
  });
}

Number cuEventCreate(Event** event, unsigned) {
  return Call(Needs::kContext, [&](Machine& machine) {
    auto made = std::make_unique<Event>();
    *event = made.get();
    machine.events[*event] = std::move(made);
    return kSuccess;
  });
}

Number cuEventDestroy_v2(Event* event) {
  return Call(Needs::kContext, [&](Machine& machine) {
    return machine.events.erase(event) == 1 ? kSuccess : kInvalidHandle;
  });
}

Number cuEventRecord(Event* event, Stream* stream) {
  return OnStream(stream, [&](Machine& machine) {
    event->last = std::make_shared<Record>();
    Operation record;
    record.name = "record";
    record.records = {event->last};
    machine.Give(stream, std::move(record));
    return kSuccess;
  });
}

// Lets time pass, because a host may poll in a loop.
Number cuEventQuery(Event* event) {
  return Call(Needs::kContext, [&](Machine& machine) {
    if (event->last == nullptr) return kSuccess;
    if (!event->last->has_happened) {
      if (plan.is_stopped) return kNotReady;
      if (!machine.Step()) {
        machine.Report(contexts.back()->number, {kNotReady, "nothing can go on: a deadlock"});
      }
      return kNotReady;
    }
    machine.HostSees(*event->last);
    return kSuccess;
  });
}

// ---------------------------------------------------------------------------------------- kernels
Number cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* names,
                          void** values) {
  return Call(Needs::kContext, [&](Machine& machine) {
    try {
      auto made = std::make_unique<Module>(tkv::test::PtxKernel(static_cast<const char*>(image)));
      *module = made.get();
      machine.modules[*module] = std::move(made);
      return kSuccess;
    } catch (const tkv::test::PtxError& error) {
      char* log = nullptr;
      size_t bytes = 0;
      for (unsigned i = 0; i < count; ++i) {
        if (names[i] == 5) log = static_cast<char*>(values[i]);
        if (names[i] == 6) bytes = reinterpret_cast<size_t>(values[i]);
      }
      if (log != nullptr && bytes > 0) std::strncpy(log, error.what(), bytes - 1);
      return kInvalidPtx;
    }
  });
}

Number cuModuleUnload(Module* module) {
  return Call(Needs::kContext, [&](Machine& machine) {
    return machine.modules.erase(module) == 1 ? kSuccess : kInvalidHandle;
  });
}

Number cuModuleGetFunction(Module** function, Module* module, const char* name) {
  return Call(Needs::kContext, [&](Machine&) {
    *function = module;  // which has one
    return module->kernel.name() == name ? kSuccess : kNotFound;
  });
}

Number cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Module*, int threads, size_t) {
  return Call(Needs::kContext, [&](Machine&) {
    *blocks = 2048 / threads;
    return kSuccess;
  });
}

Number cuLaunchKernel(Module* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                      Stream* stream, void** parameters, void**) {
  return OnStream(stream, [&](Machine& machine) {
    if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != 256 || block_y != 1 ||
        block_z != 1) {
      return kInvalidValue;
    }
    const auto* const bytes = static_cast<const std::byte*>(parameters[0]);
    machine.Launch(stream, function, grid_x, {bytes, bytes + function->kernel.parameter_bytes()});
    return kSuccess;
  });
}

}  // extern "C"
#pragma GCC visibility pop
