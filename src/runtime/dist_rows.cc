// Rows in a distributed store: how they are sorted into the buckets of their keys on the way out, and
// into the user's order on the way in.

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstring>
#include <numeric>

#include "kernels/kernels.h"
#include "rows/initial_row.h"
#include "runtime/dist_store.h"
#include "store/checks.h"
#include "tensor/strided.h"
#include "update/parallel.h"
#include "update/program_body.h"

namespace tkv {
namespace {

constexpr uint32_t kBucketsPerServer = 4;
constexpr size_t kInitBytesOfBucket = size_t{64} << 20;
constexpr size_t kRowsOfOneThread = 4096;

using Places = boost::unordered_flat_map<const void*, size_t>;

NDArray BytesOf(size_t count) {
  return NDArray::Empty(Shape({static_cast<int64_t>(count)}), DType::kU8);
}

Block BlockOf(const NDArray& array) {
  return {static_cast<std::byte*>(array.HostData()), array.bytes(), array.storage()};
}

RowGeometry GeometryOf(const KVStore::KeyInfo& info) {
  return {info.shape, info.dtype, info.row_count};
}

void CheckByRows(std::string_view verb, const KeyRecord& record) {
  if (record.info.by_rows) return;
  throw Fail(Code::kInvalidArgument,
             "{} {}: the key is not kept by rows; init it with row_sparse values or as a table",
             verb, record.key.view().ToString());
}

void CheckRowTotal(std::string_view verb, const KeyView& key, size_t rows) {
  if (rows < UINT32_MAX) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} rows in one call, at most 2^32 are possible", verb,
             key.ToString(), rows);
}

// What servers would refuse, before anything is sent.
void CheckTable(std::string_view verb, const RowsInitItem& item) {
  CheckNewRows(item);
  const auto elements = static_cast<size_t>(item.row_shape.size());
  if (elements == 0 || elements * ItemSize(item.dtype) > KeyMeta::kRowBytesMax) {
    throw Fail(Code::kInvalidArgument, "{} {}: rows of shape {} {}; a row has 1 to {} bytes", verb,
               item.key.ToString(), item.row_shape.ToString(), Name(item.dtype),
               KeyMeta::kRowBytesMax);
  }
  try {
    const InitialRow initial(item.dtype, elements, item.initializer);
  } catch (const Error& error) {
    throw Fail(error.code(), "{} {}: {}", verb, item.key.ToString(), error.what());
  }
}

std::span<const int64_t> IdsOf(const NDArray& packed) {
  return {static_cast<const int64_t*>(packed.data()), static_cast<size_t>(packed.size())};
}

void AddRowsOf(const NDArray& packed, size_t row_bytes, size_t count,
               std::vector<const std::byte*>* rows) {
  const auto* const data = static_cast<const std::byte*>(packed.data());
  for (size_t i = 0; i < count; ++i) rows->push_back(data + i * row_bytes);
}

uint32_t BucketsFor(int servers, size_t init_bytes) {
  const size_t wanted =
      std::max<size_t>(static_cast<size_t>(servers) * kBucketsPerServer,
                       (init_bytes + kInitBytesOfBucket - 1) / kInitBytesOfBucket);
  return static_cast<uint32_t>(std::min<size_t>(wanted, KeyMeta::kBucketsMax));
}

// The sum of several rows, rounded once.
class RoundedSum {
 public:
  RoundedSum(DType dtype, size_t elements) : dtype_(dtype), compute_(ComputeType(dtype)) {
    if (compute_ != dtype) wide_.resize(elements * ItemSize(compute_));
    count_ = elements;
  }
  void Write(std::span<const void* const> rows, std::byte* target) {
    if (compute_ == dtype_) {
      return kernels::Sum(dtype_, rows, target, count_, kernels::Write::kCached);
    }
    kernels::Sum(dtype_, rows, wide_.data(), count_, kernels::Write::kCached);
    kernels::Convert(compute_, wide_.data(), dtype_, target, count_);
  }

 private:
  DType dtype_, compute_;
  size_t count_ = 0;
  std::vector<std::byte> wide_;
};

}  // namespace

// ---- init ---------------------------------------------------------------------------------------

void DistStore::InitRows(std::span<const RowsInitItem> items) {
  Counted(Verb::kInit, [&] { InitRowsAs("init", items); });
}

void DistStore::InitRowsAs(std::string_view verb, std::span<const RowsInitItem> items) {
  const std::vector<KeyView> keys = KeysOf(items);
  RaiseUnseen(verb, keys);
  std::vector<std::shared_ptr<KeyRecord>> records;
  {
    const auto lock = Lock(verb);
    CheckNewKeys(verb, keys,
                 order_.empty() ? std::nullopt : std::optional(order_.front().is_string()),
                 [&](const KeyView& key) { return keys_.contains(key); });
    for (const RowsInitItem& item : items) {
      CheckTable(verb, item);
      if (optimizer_ != nullptr && NeedsWholeValue(optimizer_->program())) {
        throw Fail(Code::kInvalidArgument,
                   "{} {}: the program '{}' needs whole values, and the key is kept by rows", verb,
                   item.key.ToString(), optimizer_->program().name());
      }
      KeyInfo info{item.row_shape, item.dtype, Context::Cpu(), true, item.row_count};
      records.push_back(NewRecord(verb, item.key, std::move(info), item.mode));
      KeyRecord& record = *records.back();
      record.value_bytes = static_cast<size_t>(item.row_shape.size()) * ItemSize(item.dtype);
      if (item.rows != nullptr) record.bytes.init_bytes = item.rows->values.bytes();
    }
  }
  std::vector<Operation> inits;
  for (size_t i = 0; i < items.size(); ++i) {
    const RowsInitItem& item = items[i];
    const size_t bytes = item.rows == nullptr ? 0 : item.rows->values.bytes();
    auto meta = std::make_shared<KeyMeta>(MetaOf(*records[i]));
    meta->layout = Layout::kRows;
    meta->row_count = item.row_count;
    meta->buckets = BucketsFor(worker_->servers(), bytes);
    meta->initializer = item.initializer;
    Source source{.record = records[i]};
    records[i]->meta = meta;
    NDArray ids;
    NDArray values;
    std::vector<const std::byte*> rows;
    if (item.rows != nullptr) {
      WaitFor(item.rows->ids, Access::kRead);
      WaitFor(item.rows->values, Access::kRead);
      ids = item.rows->ids.Packed();
      values = item.rows->values.Packed();
      AddRowsOf(values, records[i]->value_bytes, static_cast<size_t>(ids.size()), &rows);
    }
    const codec::IdOrder order(item.rows != nullptr ? IdsOf(ids) : std::span<const int64_t>());
    for (size_t r = 0; r < order.size(); ++r) {
      if (order.PlacesOf(r).size() < 2) continue;
      throw Fail(Code::kInvalidArgument, "{} {}: id {} stands twice", verb, item.key.ToString(),
                 Unmix(order.mixes()[r]));
    }
    EncodeRows(order, rows, &source);
    Operation init = Make(Operation::Kind::kInit, std::string(verb), records[i].get());
    init.meta = meta;
    init.value = *source.encoded;
    inits.push_back(std::move(init));
  }
  LaunchInits(std::string(verb), std::move(inits), records);
}

// ---- push ---------------------------------------------------------------------------------------

// A contribution of the rows, each id once.
//   rows  where each row of the order's places lies
void DistStore::EncodeRows(const codec::IdOrder& order, std::span<const std::byte* const> rows,
                           Source* source) {
  const KeyInfo& info = source->record->info;
  const size_t row_bytes = source->record->value_bytes;
  source->array = BytesOf(codec::RowsBytes(order, row_bytes));
  source->is_own = true;
  RoundedSum sum(info.dtype, static_cast<size_t>(info.shape.size()));
  std::vector<const void*> same;
  const auto write = [&](size_t i, std::byte* at) {
    const auto places = order.PlacesOf(i);
    if (places.size() == 1) {
      std::memcpy(at, rows[places[0]], row_bytes);
      return;
    }
    same.clear();
    for (const uint32_t place : places) same.push_back(rows[place]);
    sum.Write(same, at);
  };
  codec::WriteRows(order, source->record->meta->buckets, row_bytes, BlockOf(source->array), write,
                   &source->encoded.emplace());
}

std::vector<DistStore::Source> DistStore::GatherRowSources(std::string_view verb,
                                                           std::span<const RowsPushItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<Source> sources;
  std::vector<std::vector<const Rows*>> values;
  Places places;
  {
    const auto lock = Lock(verb);
    for (const RowsPushItem& item : items) {
      const RecordPtr record = Get(verb, item.key);
      CheckByRows(verb, *record);
      if (item.values.empty()) {
        throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
                   item.key.ToString());
      }
      for (const Rows* rows : item.values) {
        CheckRows(verb, item.key, *rows, GeometryOf(record->info));
      }
      const auto [place, is_new] = places.emplace(record.get(), sources.size());
      if (is_new) {
        CheckUpdate(verb, *record);
        sources.push_back({.record = record, .priority = item.priority});
        values.emplace_back();
        TellParams(item.key, &sources.back());
      }
      Source& source = sources[place->second];
      source.priority = std::max(source.priority, item.priority);
      for (const Rows* rows : item.values) {
        values[place->second].push_back(rows);
        source.bytes += rows->values.bytes();
      }
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<NDArray> packed;
    std::vector<int64_t> ids;
    std::vector<const std::byte*> rows;
    for (const Rows* value : values[i]) {
      WaitFor(value->ids, Access::kRead);
      WaitFor(value->values, Access::kRead);
      const NDArray own_ids = value->ids.Packed();
      packed.push_back(value->values.Packed());
      const auto some = IdsOf(own_ids);
      CheckIds(verb, sources[i].record->key.view(), some, sources[i].record->info.row_count);
      ids.insert(ids.end(), some.begin(), some.end());
      AddRowsOf(packed.back(), sources[i].record->value_bytes, some.size(), &rows);
    }
    CheckRowTotal(verb, sources[i].record->key.view(), ids.size());
    const codec::IdOrder order(ids);
    const bool has_sums = order.size() < ids.size();
    if (has_sums && !IsArithmetic(sources[i].record->info.dtype)) {
      throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
                 sources[i].record->key.view().ToString(), Name(sources[i].record->info.dtype));
    }
    sources[i].values = values[i].size();
    EncodeRows(order, rows, &sources[i]);
  }
  return sources;
}

// A push of whole arrays onto a key by rows: of all its rows.
void DistStore::GatherAllRows(std::span<const NDArray* const> values, Source* source) {
  const KeyRecord& record = *source->record;
  const auto count = static_cast<size_t>(record.info.row_count);
  std::vector<int64_t> ids;
  std::vector<const std::byte*> rows;
  std::vector<NDArray> packed;
  ids.reserve(values.size() * count);
  for (const NDArray* value : values) {
    ids.resize(ids.size() + count);
    std::iota(ids.end() - static_cast<ptrdiff_t>(count), ids.end(), 0);
    packed.push_back(value->Packed());
    AddRowsOf(packed.back(), record.value_bytes, count, &rows);
    source->bytes += value->bytes();
  }
  EncodeRows(codec::IdOrder(ids), rows, source);
}

CallPtr DistStore::PushRowsAs(const std::string& verb, std::span<const RowsPushItem> items,
                              bool until_done) {
  const std::vector<KeyView> keys = KeysOf(items);
  RaiseUnseen(verb, keys);
  SaveIfDue(keys);
  return StartPushes(verb, GatherRowSources(verb, items), until_done);
}

void DistStore::PushRows(std::span<const RowsPushItem> items) {
  Counted(Verb::kPush, [&] { Tracked(PushRowsAs("push", items, false)); });
}

Ticket DistStore::PushRowsAsync(std::span<const RowsPushItem> items) {
  return Counted(Verb::kPush, [&] { return Tracked(PushRowsAs("push", items, true)); });
}

// ---- pull ---------------------------------------------------------------------------------------

// The order of the ids, what is asked for, and where it lands.
void DistStore::AskForRows(std::span<const int64_t> ids, Target* target) {
  const KeyRecord& record = *target->record;
  target->order = std::make_shared<const codec::IdOrder>(ids);
  const NDArray block = BytesOf(target->order->size() * sizeof(uint64_t));
  codec::WriteIds(*target->order, record.meta->buckets, BlockOf(block), &target->ids);
  target->landing = BytesOf(target->order->size() * record.value_bytes);
}

void DistStore::AskForAllRows(Target* target) {
  const auto count = static_cast<size_t>(target->record->info.row_count);
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  AskForRows(ids, target);
  target->out_ends.assign(target->outs.size(), count);
  target->is_shared = true;
}

std::vector<DistStore::Target> DistStore::GatherRowTargets(std::string_view verb,
                                                           std::span<const RowsPullItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<Target> targets;
  std::vector<std::vector<const RowsPullItem*>> readings;
  Places places;
  {
    const auto lock = Lock(verb);
    for (const RowsPullItem& item : items) {
      const RecordPtr record = Get(verb, item.key);
      CheckByRows(verb, *record);
      CheckRowsOut(verb, item, GeometryOf(record->info));
      const auto [place, is_new] = places.emplace(record.get(), targets.size());
      if (is_new) {
        targets.push_back({.record = record, .priority = item.priority});
        readings.emplace_back();
      }
      Target& target = targets[place->second];
      target.priority = std::max(target.priority, item.priority);
      target.bytes += item.out->bytes();
      readings[place->second].push_back(&item);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    Target& target = targets[i];
    std::vector<int64_t> ids;
    for (const RowsPullItem* reading : readings[i]) {
      WaitFor(*reading->ids, Access::kRead);
      WaitFor(*reading->out, Access::kWrite);
      const NDArray packed = reading->ids->Packed();
      const auto some = IdsOf(packed);
      CheckIds(verb, target.record->key.view(), some, target.record->info.row_count);
      ids.insert(ids.end(), some.begin(), some.end());
      target.outs.push_back(*reading->out);
      target.out_ends.push_back(ids.size());
    }
    CheckRowTotal(verb, target.record->key.view(), ids.size());
    AskForRows(ids, &target);
  }
  return targets;
}

// Writes the rows that have landed to where their ids stood.
void DistStore::ScatterRows(const Target& target) {
  const KeyInfo& info = target.record->info;
  const size_t row_bytes = target.record->value_bytes;
  const auto elements = static_cast<size_t>(info.shape.size());
  const auto* const landed = static_cast<const std::byte*>(target.landing.HostData());
  const codec::IdOrder& order = *target.order;
  std::vector<NDArray> packed;
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
    for (const size_t place : order.PlacesOf(i)) {
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

CallPtr DistStore::PullRowsAs(const std::string& verb, std::span<const RowsPullItem> items,
                              bool is_async) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  RaiseUnseen(verb, KeysOf(items));
  return StartPulls(verb, GatherRowTargets(verb, items), is_async);
}

void DistStore::PullRows(std::span<const RowsPullItem> items) {
  Counted(Verb::kPull,
          [&] { Await(PullRowsAs("row_sparse_pull", items, false), options_.patience); });
}

Ticket DistStore::PullRowsAsync(std::span<const RowsPullItem> items) {
  return Counted(Verb::kPull, [&] { return Tracked(PullRowsAs("row_sparse_pull", items, true)); });
}

}  // namespace tkv
