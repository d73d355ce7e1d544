#include "dist/row_encoder.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "codec/runs.h"
#include "kernels/kernels.h"
#include "store/checks.h"
#include "tensor/strided.h"

namespace tkv {

RowGeometry GeometryOf(std::string_view verb, const KeyRecord& record) {
  const KVStore::KeyInfo& info = record.info;
  if (info.by_rows) return {info.shape, info.dtype, info.row_count};
  return RowsOfArray(verb, record.key.view(), info.shape, info.dtype);
}

void RowEncoder::EncodeRows(std::string_view verb, std::span<const RowList> lists,
                            PushSource* source) {
  const KeyRecord& record = *source->record;
  const DType dtype = record.info.dtype;
  const auto elements = static_cast<size_t>(record.info.shape.size());
  NamingKey(verb, record.key.view(), [&] {
    const SparseSum sum = SparseSum::Of(lists, record.info.row_count, dtype, elements,
                                        RowOrder::kMix, SparseSum::Memory::kBorrow);
    const RowSource rows = sum.values();
    // The server rounds the sums, so that they are rounded only once.
    const DType type = sum.has_sums() ? sum.dtype() : dtype;
    const size_t row_bytes = elements * ItemSize(type);
    source->array = scratch_.Take(codec::RowsBytes(sum.names(), row_bytes));
    source->is_own = true;
    const auto write = [&](size_t i, std::byte* at) {
      if (sum.dtype() == type) {
        std::memcpy(at, rows.at(i), row_bytes);
      } else {
        kernels::Convert(sum.dtype(), rows.at(i), type, at, elements);
      }
    };
    codec::WriteRows(sum.names(), record.meta->buckets, row_bytes, BlockOf(source->array), write,
                     &source->encoded.emplace(), type == dtype ? 0 : codec::kWideValues);
  });
}

void RowEncoder::EncodeRuns(std::string_view verb, std::span<const RowList> lists,
                            PushSource* source) {
  const KeyRecord& record = *source->record;
  const RowGeometry geometry = GeometryOf(verb, record);
  const auto elements = static_cast<size_t>(geometry.row_shape.size());
  NamingKey(verb, record.key.view(), [&] {
    const SparseSum sum = SparseSum::Of(lists, geometry.row_count, record.info.dtype, elements,
                                        RowOrder::kId, SparseSum::Memory::kBorrow);
    const bool is_wide = sum.has_sums() && sum.dtype() != record.info.dtype;
    const codec::RunWriter runs(*record.meta, elements, sum.names(),
                                is_wide ? codec::kWideValues : 0);
    source->array = scratch_.Take(runs.bytes());
    source->is_own = true;
    const RowSource rows = sum.values();
    runs.Write([&](size_t i) { return static_cast<const std::byte*>(rows.at(i)); },
               BlockOf(source->array), &source->encoded.emplace());
  });
}

void RowEncoder::EncodeAllRows(std::string_view verb, std::span<const NDArray* const> values,
                               PushSource* source) {
  std::vector<int64_t> ids(source->record->info.row_count);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<NDArray> packed;
  std::vector<RowList> lists;
  packed.reserve(values.size());
  lists.reserve(values.size());
  for (const NDArray* value : values) {
    packed.push_back(value->Packed());
    lists.push_back({ids, packed.back().data()});
    source->bytes += value->bytes();
  }
  EncodeRows(verb, lists, source);
}

void RowEncoder::AskForRows(std::span<const int64_t> ids, PullTarget* target) {
  const KeyRecord& record = *target->record;
  target->order = std::make_shared<const codec::IdOrder>(ids);
  const NDArray block = scratch_.Take(target->order->size() * sizeof(uint64_t));
  codec::WriteIds(target->order->mixes(), record.meta->buckets, BlockOf(block), &target->ids);
  target->landing = scratch_.Take(target->order->size() * record.value_bytes);
}

void RowEncoder::AskForAllRows(PullTarget* target) {
  const auto count = static_cast<size_t>(target->record->info.row_count);
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  AskForRows(ids, target);
  target->out_ends.assign(target->outs.size(), count);
  target->is_shared = true;
}

void ScatterRows(const PullTarget& target) {
  const KVStore::KeyInfo& info = target.record->info;
  const size_t row_bytes = target.record->value_bytes;
  const auto elements = static_cast<size_t>(info.shape.size());
  const auto* const landed = static_cast<const std::byte*>(target.landing.HostData());
  const codec::IdOrder& order = *target.order;
  std::vector<NDArray> packed;
  packed.reserve(target.outs.size());
  for (const NDArray& out : target.outs) {
    packed.push_back(out.contiguous() ? out : NDArray::Empty(out.shape(), out.dtype()));
  }
  const auto write = [&](size_t out, size_t row, const std::byte* source) {
    const DType dtype = packed[out].dtype();
    auto* const at = static_cast<std::byte*>(packed[out].data()) + row * elements * ItemSize(dtype);
    if (dtype == info.dtype) {
      std::memcpy(at, source, row_bytes);
    } else {
      kernels::Convert(info.dtype, source, dtype, at, elements);
    }
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const std::byte* const row = landed + i * row_bytes;
    for (const size_t place : order.PositionsOf(i)) {
      if (target.is_shared) {
        for (size_t out = 0; out < packed.size(); ++out) write(out, place, row);
        continue;
      }
      const auto end = std::upper_bound(target.out_ends.begin(), target.out_ends.end(), place);
      const auto out = static_cast<size_t>(end - target.out_ends.begin());
      write(out, place - (out == 0 ? 0 : target.out_ends[out - 1]), row);
    }
  }
  for (size_t out = 0; out < packed.size(); ++out) {
    if (!target.outs[out].contiguous()) CopyElements(packed[out], target.outs[out]);
  }
}

}  // namespace tkv
