// What a call pulls to GPUs: values land in memory of the host that GPUs copy from, and when all have landed
// each is copied to its GPUs once and written to its outputs there, which need nobody to wait.

#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gpu_ends.h"
#include "runtime/gpu_lots.h"
#include "tensor/device_work.h"
#include "tkv/key.h"
#include "update/gpu_batch.h"

namespace tkv {

class GpuLandings final {
 public:
  //   shares  some arrays of the call share memory: outputs are written one behind the other, in their order
  GpuLandings(std::string verb, bool shares) : verb_(std::move(verb)), shares_(shares) {}

  // A key's outputs on GPUs.
  //   returns  the number of the landing
  size_t Add(const KeyView& key, const Shape& shape, DType dtype,
             std::span<const NDArray* const> outs);
  // In this order, each once.  Makes memory and launches; outputs stay.
  //   blocks  while the driver compiles
  //   throws  kResourceExhausted, kUnavailable, kUnimplemented, kInternal
  void Prepare();
  // Where a value is to land.
  const NDArray& OnHost(size_t landing) const { return landings_[landing].on_host; }
  // Who uses the outputs from now on waits for Run, or until this is destroyed.
  //   blocks, throws  as EnterTogether
  void Enter(std::chrono::nanoseconds patience);
  // All values have landed.  Never waits.
  //   awaited  gets the work on memory of others, who do not wait for it themselves
  //   throws   kUnavailable, kResourceExhausted, kInternal; outputs may be old then, or in part
  void Run(std::vector<AwaitedWork>* awaited);

  // Memory that Run writes to.
  std::vector<std::shared_ptr<Storage>> outputs() const;

 private:
  struct Landing {
    Key key;
    Shape shape;
    DType dtype;
    std::vector<NDArray> outs;
    GpuLots::Place place;
    // On each GPU the output that the value is copied to; null: none.
    std::vector<const NDArray*> direct;
    NDArray on_host;
  };
  // Copies from the host to one GPU.
  struct Arrivals {
    explicit Arrivals(Device* on) : device(*on) {}
    Device& device;
    std::vector<NDArray> from, to;
    size_t first_lot = 0;
    std::shared_ptr<Event> done;
    std::optional<DeviceWork> work;
  };
  // Outputs on one GPU that are written together: by launches, and by copies to those with holes.
  struct Step {
    explicit Step(Device* on) : device(*on), batch(on) {}
    Device& device;
    GpuBatch batch;
    std::vector<NDArray> packed, strided;
    std::shared_ptr<Event> done;  // of the copies
    std::optional<DeviceWork> work;
  };

  void Place(Landing* landing);
  KeyView KeyOf(size_t lot) const;  // the first one, for errors
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
