// The jobs that one call has for GPUs: on each device one launch for those of equal code.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/device_work.h"
#include "update/gpu_jobs.h"
#include "update/gpu_launch.h"

namespace tkv {

// The jobs of one device.
class GpuBatch final {
 public:
  explicit GpuBatch(Device* device) : device_(*device) {}

  // A job whose arrays the device reaches; outputs without data are left out.
  //   params, round  of its program; none where it has no update
  //   throws  kInvalidArgument, kUnimplemented  as GpuCodeOf and GpuEntryOf
  void Add(const TileJob& job, std::span<const double> params, double round);
  // What the jobs use.
  void Reads(const NDArray& array) { reads_.push_back(array); }
  void Writes(const NDArray& array) { writes_.push_back(array); }

  Device& device() const noexcept { return device_; }
  // In this order, each once: makes what the launches need, enters them with the arrays, runs them.
  void Prepare();
  void WaitForOthers() const { tkv::WaitForOthers(reads_, writes_); }
  void Enter(const EnqueueLock& lock);
  //   has_begun  something of the call has changed already: a launch that fails loses the device
  //   returns  whether anything was given to the device
  bool Run(bool has_begun);

 private:
  // What decides the code of a job.
  struct Form {
    const CompiledUpdate* update;
    DType dtype;
    size_t sources;  // beyond Elementwise::kSourcesMax all are alike
    bool has_master;
    std::vector<DType> outputs;
    bool operator==(const Form&) const = default;
  };
  struct Group {
    Form form;
    GpuCode code;
    std::vector<kernels::cuda::Entry> entries;
    std::optional<GpuLaunch> launch;
  };

  Group& GroupOf(const TileJob& job);

  Device& device_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<NDArray> reads_, writes_;
  std::shared_ptr<Event> done_;
  std::optional<DeviceWork> work_;
};

// The jobs of a call, by the devices of their values.
class GpuBatches final {
 public:
  bool empty() const noexcept { return batches_.empty(); }
  //   value  of a key, on a device
  GpuBatch& Of(const NDArray& value);

  // Compiles, allocates, and brings tables to the devices.
  //   blocks  while the driver compiles
  //   throws  kUnimplemented, kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded
  void Prepare();
  // Orders the work after what is in its way.  It has to run then, or to be destroyed, before this
  // thread waits for any of the arrays.
  //   blocks  for what only the host can wait for
  //   throws  kDeadlineExceeded, kUnavailable, what the interrupt throws
  void Enter();
  // Gives the work to the devices.  Where one fails when another one, or the host (`has_begun`), has
  // begun, it is lost: nobody reads what is half done.
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Run(bool has_begun);

 private:
  std::vector<std::unique_ptr<GpuBatch>> batches_;
};

}  // namespace tkv
