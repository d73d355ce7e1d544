// Pulls to GPUs.  Values arrive in host memory that GPUs can copy from.  When all have arrived,
// each value is copied to its GPUs once and written to its outputs there.  No thread waits for
// these copies.

#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/gpu_lots.h"
#include "job/gpu_ends.h"
#include "tensor/device_work.h"
#include "tkv/key.h"
#include "update/gpu_batch.h"

namespace tkv {

class GpuLandings final {
 public:
  // Makes landings without values.
  //   shares  some arrays of the call share memory: outputs are written one after another, in their
  //           order
  GpuLandings(std::string verb, bool shares) : verb_(std::move(verb)), shares_(shares) {}

  // Adds the outputs on GPUs that a key has.
  //   returns  the number of the landing
  size_t Add(const KeyView& key, const Shape& shape, DType dtype,
             std::span<const NDArray* const> outs);
  // Allocates memory and prepares launches; outputs are unchanged.  Call Prepare, Enter and Run in
  // this order, once each.
  //   blocks  while the driver compiles
  //   throws  kResourceExhausted, kUnavailable, kUnimplemented, kInternal
  void Prepare();
  // Returns the host array that has to receive a value.
  const NDArray& OnHost(size_t landing) const { return landings_[landing].on_host; }
  // Makes later users of the outputs wait for Run, or for the end of this object.
  //   blocks, throws  as EnterTogether
  void Enter(std::chrono::nanoseconds patience);
  // Starts all copies.  Call it when all values have arrived.  Never waits.
  //   awaited  gets the work on memory of other frameworks, which do not wait for it themselves
  //   throws   kUnavailable, kResourceExhausted, kInternal; outputs then may be unchanged, or
  //            partly written
  void Run(std::vector<AwaitedWork>* awaited);

  // Returns the memory that Run writes to.
  std::vector<std::shared_ptr<Storage>> outputs() const;

 private:
  struct Landing {
    Key key;
    Shape shape;
    DType dtype;
    std::vector<NDArray> outs;
    GpuLots::Slot slot;
    // For each GPU, the output that the value is copied to directly; null: none.
    std::vector<const NDArray*> direct;
    NDArray on_host;
  };
  // The copies from the host to one GPU.
  struct Arrivals {
    explicit Arrivals(Device* on) : device(*on) {}
    Device& device;
    std::vector<NDArray> from, to;
    size_t first_lot = 0;
    std::shared_ptr<Event> done;
    std::optional<DeviceWork> work;
  };
  // The outputs on one GPU that are written together: by launches, and by copies for outputs with
  // holes.
  struct Step {
    explicit Step(Device* on) : device(*on), batch(on) {}
    Device& device;
    GpuBatch batch;
    std::vector<NDArray> packed, strided;
    std::shared_ptr<Event> done;  // of the copies
    std::optional<DeviceWork> work;
  };

  void Locate(Landing* landing);
  // Returns the first key of a lot, for errors.
  KeyView KeyOf(size_t lot) const;
  void AddStep(const Landing& landing, size_t device, std::span<const NDArray> outs);
  template <typename T>
  static T& Of(Device* device, std::deque<T>* all);
  static void Run(Arrivals* arrivals);
  static void Run(Step* step);

  const std::string verb_;
  const bool shares_;
  std::vector<Landing> landings_;
  GpuLots lots_;
  std::deque<Arrivals> arrivals_;
  std::deque<Step> steps_;
};

}  // namespace tkv
