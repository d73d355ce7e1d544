#include "dist/gpu_landings.h"

#include <algorithm>

#include "store/checks.h"
#include "tensor/device_copy.h"

namespace tkv {

size_t GpuLandings::Add(const KeyView& key, const Shape& shape, DType dtype,
                        std::span<const NDArray* const> outs) {
  Landing& landing = landings_.emplace_back(Landing{Key(key), shape, dtype, {}, {}, {}, {}});
  for (const NDArray* out : outs) landing.outs.push_back(*out);
  return landings_.size() - 1;
}

// ---------------------------------------------------------------------------------------- prepare

// Reserves room for a value on each GPU with outputs of it.  A large value is copied directly to
// the first suitable output there.
void GpuLandings::Locate(Landing* landing) {
  const size_t bytes = static_cast<size_t>(landing->shape.size()) * ItemSize(landing->dtype);
  std::vector<Device*> devices;
  for (const NDArray& out : landing->outs) {
    Device* const device = &DeviceOf(out);
    const auto found = std::ranges::find(devices, device);
    const auto at = static_cast<size_t>(found - devices.begin());
    if (found == devices.end()) {
      devices.push_back(device);
      landing->direct.push_back(nullptr);
    }
    const bool is_direct = !shares_ && bytes >= GpuLots::kSmallBytes && out.contiguous() &&
                           out.dtype() == landing->dtype;
    if (is_direct && landing->direct[at] == nullptr) landing->direct[at] = &out;
  }
  landing->slot = lots_.Add(devices, bytes);
  for (size_t i = 0; i < devices.size(); ++i) {
    if (landing->direct[i] != nullptr) lots_.UseInPlace(landing->slot, i, *landing->direct[i]);
  }
}

KeyView GpuLandings::KeyOf(size_t lot) const {
  const auto first = std::ranges::find_if(
      landings_, [&](const Landing& landing) { return landing.slot.lot == lot; });
  return first->key.view();
}

// Returns the entry of a device, after making it if there is none.
template <typename T>
T& GpuLandings::Of(Device* device, std::deque<T>* all) {
  const auto found = std::ranges::find_if(*all, [&](const T& t) { return &t.device == device; });
  return found == all->end() ? all->emplace_back(device) : *found;
}

// Adds the writing of outputs on a landing's n-th device, none of which receives the value
// directly.
void GpuLandings::AddStep(const Landing& landing, size_t device, std::span<const NDArray> outs) {
  const GpuLot& lot = lots_.all()[landing.slot.lot];
  Step& step =
      shares_ ? steps_.emplace_back(lot.devices[device]) : Of(lot.devices[device], &steps_);
  // Values of other dtypes are copied as bytes.
  const bool is_number = IsArithmetic(landing.dtype);
  std::vector<TileJob::Output> outputs;
  for (const NDArray& out : outs) {
    NDArray target = out;
    if (!out.contiguous()) {
      target = NDArray::Empty(out.shape(), out.dtype(), Context::Gpu(step.device.index()));
      step.packed.push_back(target);
      step.strided.push_back(out);
    }
    outputs.push_back({target.data(), is_number ? target.dtype() : DType::kU8});
    step.batch.Writes(target);
  }
  TileJob job;
  job.dtype = is_number ? landing.dtype : DType::kU8;
  job.count = landing.on_host.bytes() / ItemSize(job.dtype);
  job.value = lots_.OnGpu(landing.slot, device);
  job.outputs = outputs;
  step.batch.Names(landing.key.view());
  step.batch.Add(job, {}, 0);
  step.batch.Reads(lot.on_gpu[device]);
}

void GpuLandings::Prepare() {
  for (Landing& landing : landings_) Locate(&landing);
  for (size_t l = 0; l < lots_.all().size(); ++l) {
    NamingKey(verb_, KeyOf(l), [&] { lots_.Allocate(l); });
    const GpuLot& lot = lots_.all()[l];
    for (size_t i = 0; i < lot.devices.size(); ++i) {
      Arrivals& arrivals = Of(lot.devices[i], &arrivals_);
      if (arrivals.to.empty()) arrivals.first_lot = l;
      arrivals.from.push_back(lot.on_host);
      arrivals.to.push_back(lot.on_gpu[i]);
    }
  }
  for (Landing& landing : landings_) {
    landing.on_host = lots_.OnHost(landing.slot, landing.shape, landing.dtype);
    const GpuLot& lot = lots_.all()[landing.slot.lot];
    NamingKey(verb_, landing.key.view(), [&] {
      for (size_t i = 0; i < lot.devices.size(); ++i) {
        std::vector<NDArray> outs;
        for (const NDArray& out : landing.outs) {
          if (&DeviceOf(out) != lot.devices[i] || &out == landing.direct[i]) continue;
          outs.push_back(out);
          if (shares_) AddStep(landing, i, std::span(&out, 1));
        }
        if (!shares_ && !outs.empty()) AddStep(landing, i, outs);
      }
    });
  }
  for (Arrivals& arrivals : arrivals_) {
    NamingKey(verb_, KeyOf(arrivals.first_lot),
              [&] { arrivals.done = std::make_shared<Event>(&arrivals.device); });
  }
  for (Step& step : steps_) {
    step.batch.Naming(verb_, [&] {
      step.batch.Prepare();
      if (!step.strided.empty()) step.done = std::make_shared<Event>(&step.device);
    });
  }
}

// ------------------------------------------------------------------------------------------ enter

void GpuLandings::Enter(std::chrono::nanoseconds patience) {
  std::vector<StreamUse> uses;
  std::vector<std::function<void(StreamUse)>> entered;
  const auto add = [&](StreamUse use, std::function<void(StreamUse)> then) {
    use.is_awaited = false;
    uses.push_back(std::move(use));
    entered.push_back(std::move(then));
  };
  for (Arrivals& one : arrivals_) {
    const auto name = [&] { return Format("{} {}", verb_, KeyOf(one.first_lot).ToString()); };
    add({&one.device.to_device(), StoragesOf(one.from), StoragesOf(one.to), one.done, name},
        [&one](StreamUse use) { one.work.emplace(std::move(use)); });
  }
  for (Step& step : steps_) {
    if (!step.batch.empty()) {
      add(step.batch.Use(verb_), [&step](StreamUse use) { step.batch.Entered(std::move(use)); });
    }
    if (step.strided.empty()) continue;
    const auto name = [&] { return Format("{} {}", verb_, step.batch.KeysText()); };
    add({&step.device.compute(), StoragesOf(step.packed), StoragesOf(step.strided), step.done,
         name},
        [&step](StreamUse use) { step.work.emplace(std::move(use)); });
  }
  EnterTogether(uses, patience);
  for (size_t i = 0; i < uses.size(); ++i) entered[i](std::move(uses[i]));
}

// -------------------------------------------------------------------------------------------- run

void GpuLandings::Run(Arrivals* arrivals) {
  Device& device = arrivals->device;
  GiveParts(arrivals->to.size(), &*arrivals->work, [&](size_t i) {
    device.Do("copy to the device", device.driver().CopyToDevice, AddressOf(arrivals->to[i]),
              static_cast<const void*>(arrivals->from[i].HostData()), arrivals->to[i].bytes(),
              device.to_device().handle());
  });
  if (arrivals->work->done()->Order(&device.compute())) return;
  device.CheckUsable();
  throw Fail(Code::kInternal, "gpu({}): a stream cannot wait for another one", device.index());
}

void GpuLandings::Run(Step* step) {
  step->batch.Run();
  if (!step->work) return;
  GiveParts(step->strided.size(), &*step->work, [&](size_t i) {
    GiveRowCopy(&step->device.compute(), step->packed[i], step->strided[i]);
  });
}

void GpuLandings::Run(std::vector<AwaitedWork>* awaited) {
  for (Arrivals& arrivals : arrivals_) {
    NamingKey(verb_, KeyOf(arrivals.first_lot), [&] { Run(&arrivals); });
    if (arrivals.work->others_left())
      awaited->push_back({arrivals.done, KeyOf(arrivals.first_lot).ToString()});
  }
  for (Step& step : steps_) {
    step.batch.Naming(verb_, [&] { Run(&step); });
    if (step.batch.others_left()) awaited->push_back({step.batch.done(), step.batch.KeysText()});
    if (step.work && step.work->others_left())
      awaited->push_back({step.done, step.batch.KeysText()});
  }
}

std::vector<std::shared_ptr<Storage>> GpuLandings::outputs() const {
  std::vector<std::shared_ptr<Storage>> all;
  for (const Landing& landing : landings_) {
    for (const NDArray& out : landing.outs) all.push_back(out.storage());
  }
  return all;
}

}  // namespace tkv
