// Collects the jobs of one call for GPUs: each device runs one launch for all jobs of equal code.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "tensor/device_work.h"
#include "tkv/key.h"
#include "update/gpu_jobs.h"
#include "update/gpu_launch.h"

namespace tkv {

// The jobs of one device.
class GpuBatch final {
 public:
  explicit GpuBatch(Device* device) : device_(*device) {}

  // Sets the key of the next jobs, for errors.  The key must outlive the batch.
  void Names(const KeyView& key);
  // Adds a job whose arrays the device can access; outputs without data are skipped.
  //   params, round  of the job's program; ignored if it has no update
  //   throws  kInvalidArgument, kUnimplemented  as GpuCodeOf and GpuEntryOf
  void Add(const TileJob& job, std::span<const double> params, double round);
  // Registers memory that the jobs read or write.
  void Reads(std::shared_ptr<Storage> storage) { reads_.push_back(std::move(storage)); }
  void Writes(std::shared_ptr<Storage> storage) { writes_.push_back(std::move(storage)); }
  void Reads(const NDArray& array) { Reads(array.storage()); }
  void Writes(const NDArray& array) { Writes(array.storage()); }

  Device& device() const noexcept { return device_; }
  bool empty() const noexcept { return groups_.empty(); }
  // Call these once each, in this order.  Prepare makes the launches, Use returns the memory that
  // they use, Entered takes that use after it was entered, and Run launches.
  void Prepare();
  StreamUse Use(std::string_view verb) {
    return {&device_.compute(), std::move(reads_), std::move(writes_), done_,
            [this, verb] { return NameOf(verb); }};
  }
  void Entered(StreamUse use) noexcept { work_.emplace(std::move(use)); }
  // Launches all jobs.  If a launch is refused, the earlier ones are still recorded.
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Run();
  // Returns true if some launch was given to the device.
  bool has_begun() const noexcept { return has_begun_; }
  // Returns the event that ends the work, and whether others may use the memory before it.
  const std::shared_ptr<Event>& done() const noexcept { return done_; }
  bool others_left() const noexcept { return work_ && work_->others_left(); }

  // Calls f, whose errors then begin with the verb and the keys.
  template <typename F>
  void Naming(std::string_view verb, F f) const {
    NamedBy([&] { return NameOf(verb); }, f);
  }
  // Returns the keys as text: "'w' and 3 more".
  std::string KeysText() const;

 private:
  // The properties of a job that determine its code.
  struct Form {
    const CompiledUpdate* update;
    DType dtype;
    size_t sources;  // all numbers above Elementwise::kSourcesMax count as equal
    bool has_master;
    bool is_wide;
    std::vector<DType> outputs;

    static size_t SourcesOf(const TileJob& job);
    bool IsOf(const TileJob& job) const;
  };
  struct Group {
    Form form;
    GpuCode code;
    kernels::cuda::LaunchTable table;
    // The params, round and scalars of the previous key, to be reused.  No round is kept if the
    // program has scalar states.
    std::vector<double> params;
    std::optional<double> round;
    kernels::cuda::Scalars scalars;

    const kernels::cuda::Scalars& ScalarsOf(const TileJob& job, std::span<const double> of_params,
                                            double of_round);
    std::optional<GpuLaunch> launch;
  };

  Group& GroupOf(const TileJob& job);
  std::string NameOf(std::string_view verb) const {
    return key_count_ == 0 ? "" : Format("{} {}", verb, KeysText());
  }

  Device& device_;
  KeyView first_key_ = 0;
  size_t key_count_ = 0;
  bool has_begun_ = false;
  std::vector<std::unique_ptr<Group>> groups_;
  Storages reads_, writes_;
  std::shared_ptr<Event> done_;
  std::optional<DeviceWork> work_;
};

// The jobs of a call, grouped by the devices of their values.
class GpuBatches final {
 public:
  //   verb  for errors
  explicit GpuBatches(std::string_view verb) : verb_(verb) {}

  // Returns true if some launch was given to a device.
  bool has_begun() const noexcept;
  // Returns the batch of the device that has the value.
  //   value  of a key, on a device
  GpuBatch& Of(const NDArray& value);

  // Compiles code, allocates memory, and copies tables to the devices.
  //   blocks  while the driver compiles
  //   throws  kUnimplemented, kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded
  void Prepare();
  // Orders the work after earlier uses of its memory.  The caller must run or destroy the work
  // before this thread waits for any of the arrays.
  //   blocks  for earlier uses that only the host can wait for
  //   throws  kDeadlineExceeded, kUnavailable, and the exception of the interrupt
  void Enter(std::chrono::nanoseconds patience = kHazardPatience);
  // Launches the work of a call that changes no key.  The first refused launch ends it.
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Run();
  // Launches updates, so that no reader sees half of one.  If the very first launch is refused,
  // nothing changed, and Update throws as Run.  If a later launch is refused, its device is lost,
  // and other devices continue.
  //   returns  the error of the first device that was lost
  std::optional<Error> Update();

 private:
  std::string_view verb_;
  std::vector<std::unique_ptr<GpuBatch>> batches_;
};

}  // namespace tkv
