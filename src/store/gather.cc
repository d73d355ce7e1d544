#include "store/gather.h"

#include "tensor/device_copy.h"

namespace tkv {
namespace {

// Memory of the host with the elements of a value one behind the other.
const void* Packed(const NDArray& value, std::chrono::nanoseconds patience, Sources* sources) {
  if (IsOfDevice(value)) return sources->packed.emplace_back(value.WithContext({})).HostData();
  value.storage()->WaitReadable(patience);
  if (value.contiguous()) return value.HostData();
  return sources->packed.emplace_back(value.Copy()).HostData();
}

// The same to write an output to.
void* PlaceFor(const NDArray& out, std::chrono::nanoseconds patience, Outputs* outputs) {
  const bool is_of_device = IsOfDevice(out);  // whose streams wait for its memory
  if (!is_of_device) out.storage()->WaitWritable(patience);
  if (!is_of_device && out.contiguous()) return out.HostData();
  const size_t number = outputs->outputs.size();
  outputs->stand_ins.push_back({NDArray::Empty(out.shape(), out.dtype()), &out, number});
  return outputs->stand_ins.back().packed.HostData();
}

}  // namespace

Sources Gather(std::span<const PushItem> items, std::span<const size_t> groups, size_t group_count,
               std::chrono::nanoseconds patience) {
  Sources sources;
  sources.ends.assign(group_count, 0);
  for (size_t i = 0; i < items.size(); ++i) sources.ends[groups[i]] += items[i].values.size();
  size_t total = 0;
  for (size_t& end : sources.ends) {  // first the begin of each group; filling moves it to the end
    const size_t count = end;
    end = total;
    total += count;
  }
  sources.pointers.resize(total);
  for (size_t i = 0; i < items.size(); ++i) {
    for (const NDArray* value : items[i].values) {
      sources.pointers[sources.ends[groups[i]]++] = Packed(*value, patience, &sources);
    }
  }
  return sources;
}

Outputs Gather(std::span<const PullItem> items, std::chrono::nanoseconds patience) {
  Outputs outputs;
  outputs.outputs.reserve(items.size());
  outputs.ends.reserve(items.size());
  for (const PullItem& item : items) {
    for (const NDArray* out : item.outs) {
      void* const data = PlaceFor(*out, patience, &outputs);
      outputs.outputs.push_back({data, out->dtype()});
    }
    outputs.ends.push_back(outputs.outputs.size());
  }
  return outputs;
}

}  // namespace tkv
