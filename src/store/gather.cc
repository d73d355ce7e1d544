#include "store/gather.h"

namespace tkv {

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
      value->storage()->WaitReadable(patience);
      const void* data = value->HostData();
      if (!value->contiguous()) data = sources.packed.emplace_back(value->Copy()).data();
      sources.pointers[sources.ends[groups[i]]++] = data;
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
      out->storage()->WaitWritable(patience);
      void* data = out->HostData();
      if (!out->contiguous()) {
        outputs.stand_ins.push_back(
            {NDArray::Empty(out->shape(), out->dtype()), out, outputs.outputs.size()});
        data = outputs.stand_ins.back().packed.data();
      }
      outputs.outputs.push_back({data, out->dtype()});
    }
    outputs.ends.push_back(outputs.outputs.size());
  }
  return outputs;
}

}  // namespace tkv
