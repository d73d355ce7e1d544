// The jobs that one call has for GPUs: on each device one launch for those of equal code.

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

  // The key that the next jobs are of, for errors; it stays while the batch does.
  void Names(const KeyView& key);
  // A job whose arrays the device reaches; outputs without data are left out.
  //   params, round  of its program; none where it has no update
  //   throws  kInvalidArgument, kUnimplemented  as GpuCodeOf and GpuEntryOf
  void Add(const TileJob& job, std::span<const double> params, double round);
  // What the jobs use.
  void Reads(std::shared_ptr<Storage> storage) { reads_.push_back(std::move(storage)); }
  void Writes(std::shared_ptr<Storage> storage) { writes_.push_back(std::move(storage)); }
  void Reads(const NDArray& array) { Reads(array.storage()); }
  void Writes(const NDArray& array) { Writes(array.storage()); }

  Device& device() const noexcept { return device_; }
  bool empty() const noexcept { return groups_.empty(); }
  // In this order, each once: makes what the launches need; tells what they use, which has been entered
  // when Entered is called; runs them.
  void Prepare();
  StreamUse Use(std::string_view verb) {
    return {&device_.compute(), std::move(reads_), std::move(writes_), done_,
            [this, verb] { return NameOf(verb); }};
  }
  void Entered(StreamUse use) noexcept { work_.emplace(std::move(use)); }
  // What was given is recorded also where a later launch is refused.
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Run();
  // Whether anything was given to the device.
  bool has_begun() const noexcept { return has_begun_; }
  // Of the work: its end, and whether others may use the memory before.
  const std::shared_ptr<Event>& done() const noexcept { return done_; }
  bool others_left() const noexcept { return work_ && work_->others_left(); }

  // Errors of f begin with the verb and the keys.
  template <typename F>
  void Naming(std::string_view verb, F f) const {
    NamedBy([&] { return NameOf(verb); }, f);
  }
  // "'w' and 3 more"
  std::string KeysText() const;

 private:
  // What decides the code of a job.
  struct Form {
    const CompiledUpdate* update;
    DType dtype;
    size_t sources;  // beyond Elementwise::kSourcesMax all are alike
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
    // Of the key before, and what they were made of; not known where the program has scalar states.
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

// The jobs of a call, by the devices of their values.
class GpuBatches final {
 public:
  //   verb  for errors
  explicit GpuBatches(std::string_view verb) : verb_(verb) {}

  // Whether anything was given to a device.
  bool has_begun() const noexcept;
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
  void Enter(std::chrono::nanoseconds patience = kHazardPatience);
  // Gives the work of a call that changes no key to the devices; the first launch that is refused ends it.
  //   throws  kUnavailable, kResourceExhausted, kInternal
  void Run();
  // The same of updates, of which nobody may read a half.  Where the very first launch is refused nothing
  // has changed, and it throws as Run.  Later the device of a refused launch is lost, and the others go on.
  //   returns  the error of a device that was lost so
  std::optional<Error> Update();

 private:
  std::string_view verb_;
  std::vector<std::unique_ptr<GpuBatch>> batches_;
};

}  // namespace tkv
