// A push of a store of one process whose values are assigned or updated by an optimizer.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/small_vector.h"
#include "store/key_updates.h"
#include "store/push_input.h"
#include "tkv/error.h"
#include "update/gpu_batch.h"
#include "update/tile_driver.h"

namespace tkv {

// The jobs of a push, one for each key with a value, and the pushes of keys kept by rows.
//
// The phases are called in the order of their declaration, each once.  The destructor undoes the
// phases before Run.
class PushJobs final {
 public:
  //   input  must outlive the jobs; Prepare takes the input's rows
  explicit PushJobs(PushInput* input);
  PushJobs(const PushJobs&) = delete;
  PushJobs& operator=(const PushJobs&) = delete;

  // Makes the jobs, and allocates the states and the GPU resources that they need.
  //   blocks  while a driver compiles
  //   throws  kInvalidArgument, kUnimplemented, kResourceExhausted, and the errors of GPUs
  void Prepare();
  // Orders the work of GPUs after earlier uses of its memory.
  //   blocks, throws  as GpuBatches::Enter
  void Enter();
  // Sums the values, and updates or assigns them.  The GPUs begin before the host.
  //   throws  kResourceExhausted, and the errors of GPUs; nothing has changed
  void Run();
  // Stores the states of the updates that have run.
  void Commit();

  // Returns the error of a GPU that was lost after another one had begun, or of the host in that
  // case.  The pushes to other keys have taken effect.
  std::optional<Error>& partial_error() { return partial_error_; }

 private:
  // Rows of keys, which most calls do not push.
  struct RowWork {
    std::vector<std::unique_ptr<RowsPush>> pushes;  // by key; null: the key has a value
    std::vector<TileJob> jobs;  // for rows of keys with a value, and then all `jobs_`; or none
    std::vector<std::unique_ptr<void*[]>> states;  // of `jobs`
  };

  std::span<const TileJob> jobs() const { return {jobs_.data(), jobs_.size()}; }
  inline TileJob& BeginJob(size_t group, const Entry& entry);
  void BeginRows();
  void PrepareRows(size_t group);
  void PrepareRowJobs(size_t group);
  void GiveToGpu(const Entry& entry, const KeyUpdates::KeyState& state,
                 std::span<const double> params, TileJob* job);
  void PrepareGpus();
  void RunOnHost();

  PushInput& input_;
  SmallVector<TileJob, 1> jobs_;  // by key; empty for a key that is not updated as a whole here
  std::optional<KeyUpdates> updates_;  // none: values are assigned
  std::optional<RowWork> rows_;
  GpuBatches gpus_;
  Updated updated_ = Updated::kAll;
  std::optional<Error> partial_error_;
};

}  // namespace tkv
