#include "store/gather.h"

#include "device/device.h"
#include "store/home.h"

namespace tkv {
namespace {

// Returns the GPU on which the jobs of a key run; null if they run on the host.
Device* HomeOf(const Claim& claim, size_t group) {
  const Entry& entry = *claim.entries[group];
  if (!claim.has_gpus || !IsOnGpu(entry)) return nullptr;
  return &Device::Get(entry.value.storage()->memory().index);
}

// Returns the contiguous elements of a value: PackedOnHost in host memory, PackedFor in memory that
// the GPU reaches.
const void* PackedOnHost(const NDArray& value, std::chrono::nanoseconds patience,
                         Sources* sources) {
  if (IsOfDevice(value)) return sources->packed.emplace_back(value.WithContext({})).HostData();
  value.storage()->WaitReadable(patience);
  if (value.contiguous()) return value.HostData();
  return sources->packed.emplace_back(value.Copy()).HostData();
}

const void* PackedFor(Device* home, const NDArray& value, size_t group, Sources* sources) {
  if (IsReachedBy(home, value)) {
    sources->lent.push_back({group, value.storage()});
    return value.data();
  }
  const NDArray there = ReachedBy(home, value);
  sources->lent.push_back({group, there.storage()});
  return there.data();
}

// Returns contiguous memory for an output, like PackedOnHost and PackedFor.
void* PlaceOnHost(const NDArray& out, const Entry& entry, std::chrono::nanoseconds patience,
                  Outputs* outputs) {
  const bool is_of_device = IsOfDevice(out);  // the device's streams wait for its memory
  if (!is_of_device) out.storage()->WaitWritable(patience);
  if (!is_of_device && out.contiguous()) return out.HostData();
  const size_t number = outputs->outputs.size();
  outputs->stand_ins.push_back({NDArray::Empty(out.shape(), out.dtype()), &entry, &out, number});
  return outputs->stand_ins.back().packed.HostData();
}

void* PlaceFor(Device* home, const NDArray& out, const Entry& entry, size_t item,
               std::chrono::nanoseconds patience, Outputs* outputs) {
  if (IsReachedBy(home, out)) {
    outputs->lent.push_back({item, out.storage()});
    return out.data();
  }
  if (!IsOfDevice(out)) out.storage()->WaitWritable(patience);
  const size_t number = outputs->outputs.size();
  NDArray packed;
  if (out.dtype() != entry.dtype()) {
    packed = NDArray::Empty(out.shape(), out.dtype(), Context::Gpu(home->index()));
    outputs->lent.push_back({item, packed.storage()});
  }
  outputs->stand_ins.push_back({packed, &entry, &out, number});
  return packed ? packed.data() : nullptr;
}

}  // namespace

void Sources::Take(std::span<const PushItem> items, const Claim& claim, size_t before) {
  const size_t* const groups = claim.push_groups.data() + before;
  ends.assign(claim.entries.size(), 0);
  for (size_t i = 0; i < items.size(); ++i) ends[groups[i]] += items[i].values.size();
  size_t total = 0;
  // Begins of the groups; the loop below moves each to the group's end.
  for (size_t& end : ends) {
    const size_t count = end;
    end = total;
    total += count;
  }
  pointers.resize(total);
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t group = groups[i];
    NamingKey(claim.verb, items[i].key, [&] {
      Device* const home = HomeOf(claim, group);
      for (const NDArray* value : items[i].values) {
        pointers[ends[group]++] = home == nullptr
                                      ? PackedOnHost(*value, claim.options.patience, this)
                                      : PackedFor(home, *value, group, this);
      }
    });
  }
}

Outputs Gather(std::span<const PullItem> items, const Claim& claim) {
  Outputs outputs;
  outputs.outputs.reserve(items.size());
  outputs.ends.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t group = claim.pull_groups[i];
    const Entry& entry = *claim.entries[group];
    NamingKey(claim.verb, items[i].key, [&] {
      Device* const home = HomeOf(claim, group);
      for (const NDArray* out : items[i].outs) {
        void* const data = home == nullptr
                               ? PlaceOnHost(*out, entry, claim.options.patience, &outputs)
                               : PlaceFor(home, *out, entry, i, claim.options.patience, &outputs);
        outputs.outputs.push_back({data, out->dtype()});
      }
    });
    outputs.ends.push_back(outputs.outputs.size());
  }
  return outputs;
}

}  // namespace tkv
