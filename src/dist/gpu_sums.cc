#include "dist/gpu_sums.h"

#include <algorithm>

#include "store/checks.h"
#include "tensor/device_copy.h"
#include "tensor/device_work.h"
#include "update/gpu_batch.h"

namespace tkv {
namespace {

Device& FirstGpuOf(std::span<const NDArray> values) {
  return DeviceOf(*std::ranges::find_if(values, IsOfDevice));
}

}  // namespace

size_t GpuSums::Add(const KeyView& key, std::span<const NDArray* const> values) {
  Sum& sum = sums_.emplace_back(Sum{Key(key), {}, {}, {}});
  for (const NDArray* value : values) sum.values.push_back(*value);
  return sums_.size() - 1;
}

DType GpuSums::TypeOf(const Sum& sum) {
  const DType dtype = sum.values[0].dtype();
  return sum.values.size() > 1 ? ComputeType(dtype) : dtype;
}

// Returns true if the only value of a sum is large: it is copied from its own memory.
bool GpuSums::IsInPlace(const Sum& sum) const {
  return sum.values.size() == 1 && sum.values[0].bytes() >= GpuLots::kSmallBytes;
}

// Runs f.  Its errors name the first key of the lot.
template <typename F>
void GpuSums::Naming(size_t lot, F f) const {
  const auto first =
      std::ranges::find_if(sums_, [&](const Sum& sum) { return sum.slot.lot == lot; });
  NamingKey(verb_, first->key.view(), f);
}

void GpuSums::Start(std::chrono::nanoseconds patience) {
  for (Sum& sum : sums_) {
    NamingKey(verb_, sum.key.view(), [&] {
      const auto elements = static_cast<size_t>(sum.values[0].size());
      sum.slot = lots_.Add({&FirstGpuOf(sum.values)}, elements * ItemSize(TypeOf(sum)));
      if (IsInPlace(sum)) lots_.UseInPlace(sum.slot, 0, sum.values[0].Packed());
    });
  }
  for (size_t lot = 0; lot < lots(); ++lot) {
    Naming(lot, [&] { lots_.Allocate(lot); });
  }
  for (Sum& sum : sums_) {
    sum.on_host = lots_.OnHost(sum.slot, sum.values[0].shape(), TypeOf(sum));
  }
  SumOnGpus(patience);
  for (size_t lot = 0; lot < lots(); ++lot) {
    Naming(lot, [&] { CopyToHost(lots_.all()[lot], patience); });
  }
}

void GpuSums::SumOnGpus(std::chrono::nanoseconds patience) {
  // Padding between the sums of a lot is copied too, so it must not be uninitialized.
  for (size_t i = 0; i < lots(); ++i) {
    const GpuLot& lot = lots_.all()[i];
    if (lot.is_shared) Naming(i, [&] { ZeroOnDevice(lot.on_gpu[0]); });
  }
  GpuBatches gpus(verb_);
  std::vector<std::vector<const void*>> sources(sums_.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const Sum& sum = sums_[i];
    if (IsInPlace(sum)) continue;
    const GpuLot& lot = lots_.all()[sum.slot.lot];
    GpuBatch& batch = gpus.Of(lot.on_gpu[0]);
    batch.Names(sum.key.view());
    NamingKey(verb_, sum.key.view(), [&] {
      for (const NDArray& value : sum.values) {
        const NDArray there = ReachedBy(lot.devices[0], value);
        sources[i].push_back(there.data());
        batch.Reads(there);
      }
      TileJob job;
      // The kernel does not sum a single value, so its bytes are copied if the dtype has no
      // arithmetic.
      const DType dtype = sum.values[0].dtype();
      job.dtype = IsArithmetic(dtype) ? dtype : DType::kU8;
      job.count = sum.values[0].bytes() / ItemSize(job.dtype);
      job.is_wide = sum.on_host.dtype() != dtype;
      job.sources = sources[i];
      job.value = lots_.OnGpu(sum.slot, 0);
      batch.Add(job, {}, 0);
      batch.Writes(lot.on_gpu[0]);
    });
  }
  gpus.Prepare();
  gpus.Enter(patience);
  gpus.Run();
}

void GpuSums::CopyToHost(const GpuLot& lot, std::chrono::nanoseconds patience) const {
  Device& device = *lot.devices[0];
  DeviceWork work(&device.to_host(), {&lot.on_gpu[0], 1}, {&lot.on_host, 1}, patience);
  device.Do("copy to the host", device.driver().CopyToHost, lot.on_host.HostData(),
            AddressOf(lot.on_gpu[0]), lot.bytes, device.to_host().handle());
  work.Given();
}

void GpuSums::Await(size_t lot, std::chrono::nanoseconds patience) const {
  Naming(lot, [&] { lots_.all()[lot].on_host.storage()->WaitReadable(patience); });
  // The wait also ends if a GPU is lost before it has copied or written a value.  IsInUse asks the
  // driver, and CheckUsable reports the loss.
  for (const Sum& sum : sums_) {
    if (sum.slot.lot != lot) continue;
    NamingKey(verb_, sum.key.view(), [&] {
      for (const NDArray& value : sum.values) {
        if (!IsOfDevice(value)) continue;
        value.storage()->IsInUse(Access::kRead);
        DeviceOf(value).CheckUsable();
      }
    });
  }
}

}  // namespace tkv
