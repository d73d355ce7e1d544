#include "store/checks.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "base/key_text.h"
#include "store/key_hash.h"
#include "tkv/dlpack.h"
#include "tkv/ndarray.h"
#include "tkv/optimizer.h"
#include "update/program_body.h"

namespace tkv {

void CheckMade(std::string_view verb, const KeyView& key, const NDArray* array) {
  if (array != nullptr && *array) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {}, an NDArray is needed", verb, key.ToString(),
             array == nullptr ? "null" : "an NDArray that was never made or was moved from");
}

void CheckOfHost(std::string_view verb, const KeyView& key, const NDArray& array) {
  if (array.context().kind == DeviceKind::kCpu) return;
  throw Fail(Code::kUnimplemented,
             "{} {}: rows on {}; those are on the host so far: copy the array, "
             "as_in_context(tkv.cpu())",
             verb, key.ToString(), array.context().ToString());
}

void CheckOfHost(std::string_view verb, const KeyView& key,
                 std::span<const NDArray* const> arrays) {
  for (const NDArray* array : arrays) CheckOfHost(verb, key, *array);
}

namespace {

void CheckReachable(std::string_view verb, const KeyView& key, const NDArray& array) {
  if (array.context().kind == DeviceKind::kCpu) return;
  NamingKey(verb, key, [&] { CheckUsable(array.context()); });
}

}  // namespace

void CheckOnGpus(std::string_view verb, std::span<const PushItem> items,
                 std::span<const PullItem> outs) {
  const auto check = [&](const KeyView& key, const NDArray* array) {
    CheckMade(verb, key, array);
    if (array->context().kind == DeviceKind::kGpu) return;
    throw Fail(
        Code::kInvalidArgument,
        "{} {}: an array on {}; a store 'nccl' takes those on GPUs, 'device' all; `out` of a "
        "pull says where to",
        verb, key.ToString(), array->context().ToString());
  };
  for (const PushItem& item : items) {
    ForEachOf("value", item.values.size(), [&](size_t i) { check(item.key, item.values[i]); });
  }
  for (const PullItem& item : outs) {
    ForEachOf("output", item.outs.size(), [&](size_t i) { check(item.key, item.outs[i]); });
  }
}

namespace {

// Throws if a value has another shape or dtype than its key, or cannot be reached.
void CheckValue(std::string_view verb, const KeyView& key, const NDArray* value, const Shape& shape,
                DType dtype) {
  CheckMade(verb, key, value);
  CheckReachable(verb, key, *value);
  if (value->shape() != shape) {
    throw Fail(Code::kInvalidArgument, "{} {}: shape {}, the key has {}", verb, key.ToString(),
               value->shape().ToString(), shape.ToString());
  }
  if (value->dtype() != dtype) {
    throw Fail(Code::kInvalidArgument, "{} {}: dtype {}, the key has {}", verb, key.ToString(),
               Name(value->dtype()), Name(dtype));
  }
}

void CheckOut(std::string_view verb, const KeyView& key, const NDArray* out, const Shape& shape,
              DType dtype) {
  CheckMade(verb, key, out);
  CheckReachable(verb, key, *out);
  if (out->shape() != shape) {
    throw Fail(Code::kInvalidArgument, "{} {}: the output has shape {}, the key has {}", verb,
               key.ToString(), out->shape().ToString(), shape.ToString());
  }
  if (out->dtype() != dtype && !(IsFloat(out->dtype()) && IsFloat(dtype))) {
    throw Fail(Code::kInvalidArgument,
               "{} {}: the output is {}, the key has {}; only floats convert", verb, key.ToString(),
               Name(out->dtype()), Name(dtype));
  }
  if (out->read_only() || !out->contiguous()) {
    CheckWritable(*out, Format("{} {}", verb, key.ToString()), "output");
  }
}

}  // namespace

void CheckValues(std::string_view verb, const PushItem& item, const Shape& shape, DType dtype) {
  if (item.values.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
               item.key.ToString());
  }
  ForEachOf("value", item.values.size(),
            [&](size_t i) { CheckValue(verb, item.key, item.values[i], shape, dtype); });
}

void CheckOuts(std::string_view verb, const PullItem& item, const Shape& shape, DType dtype) {
  if (item.outs.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of outputs is empty", verb,
               item.key.ToString());
  }
  ForEachOf("output", item.outs.size(),
            [&](size_t i) { CheckOut(verb, item.key, item.outs[i], shape, dtype); });
}

AssignedValues::AssignedValues(std::string_view verb, std::span<const InitItem> items) {
  if (items.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  boost::unordered_flat_map<KeyView, size_t, KeyHash, KeyEqual> seen;
  values_.reserve(items.size());
  items_.reserve(items.size());
  for (const InitItem& item : items) {
    if (!seen.emplace(item.key, items_.size()).second) {
      throw Fail(Code::kInvalidArgument, "{} {}: the key stands twice in the call", verb,
                 item.key.ToString());
    }
    values_.push_back(item.value);
    items_.push_back({item.key, {&values_.back(), 1}});
  }
}

void CheckAssignable(std::string_view verb, const KeyView& key, bool by_rows) {
  if (!by_rows) return;
  throw Fail(Code::kUnimplemented,
             "{} {}: the key is kept by rows; import_rows gives rows new values", verb,
             key.ToString());
}

bool FitOneArray(uint64_t rows, size_t row_bytes) {
  constexpr uint64_t kBytesMax = uint64_t{4} << 30;
  constexpr uint64_t kRowsMax = uint64_t{1} << 31;
  return rows <= kRowsMax && rows <= kBytesMax / std::max<size_t>(row_bytes, 1);
}

Shape WholeTableShape(std::string_view verb, const KeyView& key, const Shape& row_shape,
                      uint64_t rows, size_t row_bytes) {
  if (!FitOneArray(rows, row_bytes)) {
    throw Fail(Code::kInvalidArgument,
               "{} {}: the key has {} rows of {} bytes, too many for one array; push and pull rows "
               "by their ids",
               verb, key.ToString(), rows, row_bytes);
  }
  std::vector<int64_t> dims = {static_cast<int64_t>(rows)};
  dims.insert(dims.end(), row_shape.begin(), row_shape.end());
  return Shape(dims);
}

void CheckBroadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  if (items.empty() || outs.empty()) {
    throw Fail(Code::kInvalidArgument, "broadcast: the list of {} is empty",
               items.empty() ? "keys" : "outputs");
  }
  boost::unordered_flat_map<KeyView, const NDArray*, KeyHash, KeyEqual> values;
  values.reserve(items.size());
  for (const InitItem& item : items) {
    CheckMade("broadcast", item.key, item.value);
    values.emplace(item.key, item.value);
  }
  for (const PullItem& out : outs) {
    const auto found = values.find(out.key);
    if (found == values.end()) {
      throw Fail(Code::kInvalidArgument, "broadcast {}: an output but no value",
                 out.key.ToString());
    }
    CheckOuts("broadcast", out, found->second->shape(), found->second->dtype());
  }
}

void CheckCallable(const std::function<void()>& ended) {
  if (!ended) throw Fail(Code::kInvalidArgument, "on_end: no function");
}

void CheckKind(std::string_view verb, const KeyView& key, bool store_has_strings) {
  if (store_has_strings == key.is_string) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} key, the store has {} keys", verb, key.ToString(),
             key.is_string ? "a string" : "an integer", key.is_string ? "integer" : "string");
}

void CheckMode(std::string_view verb, const KeyView& key, std::string_view mode) {
  if (mode.empty() || mode == "sync" || mode == "async") return;
  throw Fail(Code::kInvalidArgument, "{} {}: mode '{}'; there are sync and async", verb,
             key.ToString(), mode);
}

void CheckNewKeys(std::string_view verb, std::span<const KeyView> keys,
                  std::optional<bool> store_has_strings,
                  const std::function<bool(const KeyView&)>& is_there) {
  if (keys.empty()) throw Fail(Code::kInvalidArgument, "{}: the list of keys is empty", verb);
  std::vector<Key> sorted;
  sorted.reserve(keys.size());
  for (const KeyView& key : keys) {
    if (key.is_string != keys[0].is_string) {
      throw Fail(Code::kInvalidArgument, "{} {}: integer and string keys in one call", verb,
                 key.ToString());
    }
    if (key.text.size() > kKeyTextBytesMax) {
      throw Fail(Code::kInvalidArgument, "{} {}: a key of {} bytes, at most {} are allowed", verb,
                 key.ToString(), key.text.size(), kKeyTextBytesMax);
    }
    if (const char* const why = WhyNoKey(key.text)) {
      throw Fail(Code::kInvalidArgument,
                 "{} {}: the key {}; keys are UTF-8 without the character zero", verb,
                 key.ToString(), why);
    }
    if (store_has_strings) CheckKind(verb, key, *store_has_strings);
    if (is_there(key)) {
      throw Fail(Code::kAlreadyExists, "{} {}: the key is there already", verb, key.ToString());
    }
    sorted.emplace_back(key);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw Fail(Code::kAlreadyExists, "{} {}: the key stands twice in one call", verb,
               twice->view().ToString());
  }
}

namespace {

// Returns (n, ...): the shape of n rows.
Shape ShapeOfRows(int64_t count, const Shape& row_shape) {
  std::vector<int64_t> dims{count};
  dims.insert(dims.end(), row_shape.begin(), row_shape.end());
  return Shape(dims);
}

void CheckIdArray(std::string_view verb, const KeyView& key, const NDArray* given) {
  CheckMade(verb, key, given);
  const NDArray& ids = *given;
  CheckOfHost(verb, key, ids);
  if (ids.shape().rank() == 1 && ids.dtype() == DType::kI64) return;
  throw Fail(Code::kInvalidArgument, "{} {}: ids are {} of shape {}, a list of int64 is needed",
             verb, key.ToString(), Name(ids.dtype()), ids.shape().ToString());
}

}  // namespace

RowGeometry RowsOfArray(std::string_view verb, const KeyView& key, const Shape& shape,
                        DType dtype) {
  if (shape.rank() == 0) {
    throw Fail(Code::kInvalidArgument, "{} {}: the key has shape (), and no rows", verb,
               key.ToString());
  }
  const Shape row(std::span(shape.begin() + 1, shape.end()));
  return {row, dtype, static_cast<uint64_t>(shape[0])};
}

void CheckRows(std::string_view verb, const KeyView& key, const Rows* given,
               const RowGeometry& geometry) {
  if (given == nullptr) {
    throw Fail(Code::kInvalidArgument, "{} {}: null, Rows are needed", verb, key.ToString());
  }
  const Rows& rows = *given;
  CheckIdArray(verb, key, &rows.ids);
  CheckMade(verb, key, &rows.values);
  CheckOfHost(verb, key, rows.values);
  const Shape wanted = ShapeOfRows(rows.ids.size(), geometry.row_shape);
  if (rows.values.shape() != wanted) {
    throw Fail(Code::kInvalidArgument, "{} {}: values have shape {}, {} ids of this key need {}",
               verb, key.ToString(), rows.values.shape().ToString(), rows.ids.size(),
               wanted.ToString());
  }
  if (rows.values.dtype() != geometry.dtype) {
    throw Fail(Code::kInvalidArgument, "{} {}: dtype {}, the key has {}", verb, key.ToString(),
               Name(rows.values.dtype()), Name(geometry.dtype));
  }
}

void CheckRowsOut(std::string_view verb, const RowsPullItem& item, const RowGeometry& geometry) {
  CheckMade(verb, item.key, item.out);
  CheckOfHost(verb, item.key, *item.out);
  CheckIdArray(verb, item.key, item.ids);
  const Shape wanted = ShapeOfRows(item.ids->size(), geometry.row_shape);
  if (item.out->shape() != wanted) {
    throw Fail(Code::kInvalidArgument, "{} {}: the output has shape {}, {} ids of this key need {}",
               verb, item.key.ToString(), item.out->shape().ToString(), item.ids->size(),
               wanted.ToString());
  }
  const NDArray* const outs[] = {item.out};
  CheckOuts(verb, PullItem{item.key, outs}, wanted, geometry.dtype);
}

void CheckIds(std::string_view verb, const KeyView& key, std::span<const int64_t> ids,
              uint64_t row_count) {
  // As unsigned numbers negative ids are large.
  const auto wrong = std::find_if(
      ids.begin(), ids.end(), [&](int64_t id) { return static_cast<uint64_t>(id) >= row_count; });
  if (wrong == ids.end()) return;
  throw Fail(Code::kOutOfRange, "{} {}: id {} at position {}, the key has ids below {}", verb,
             key.ToString(), *wrong, wrong - ids.begin(), row_count);
}

void CheckByRows(std::string_view verb, const KeyView& key, bool by_rows) {
  if (by_rows) return;
  throw Fail(Code::kInvalidArgument,
             "{} {}: the key is not kept by rows; init it with row_sparse values or as a table",
             verb, key.ToString());
}

void CheckEachOnce(std::string_view verb, const KeyView& key, std::span<const int64_t> ids) {
  std::vector<int64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return;
  throw Fail(Code::kInvalidArgument, "{} {}: id {} stands twice", verb, key.ToString(), *twice);
}

void CheckFilter(std::string_view verb, const KeyView& key, const RowsFilter& filter,
                 const RowPolicy& policy) {
  if (filter.first > filter.end) {
    throw Fail(Code::kInvalidArgument, "{} {}: ids from {} to below {}", verb, key.ToString(),
               filter.first, filter.end);
  }
  if (!filter.since || policy.has_notes) return;
  throw Fail(Code::kInvalidArgument,
             "{} {}: the key does not note when its rows change; init_table(notes=True) makes one "
             "that does",
             verb, key.ToString());
}

void CheckSince(std::string_view verb, const KeyView& key, const RowsFilter& filter,
                uint64_t version) {
  if (!filter.since || *filter.since <= version) return;
  throw Fail(Code::kOutOfRange,
             "{} {}: since={}, and the key is at version {}; after a restore all of it has to be "
             "exported once",
             verb, key.ToString(), *filter.since, version);
}

Rows MakeRows(std::span<const int64_t> ids, const Shape& row_shape, DType dtype) {
  const auto count = static_cast<int64_t>(ids.size());
  Rows rows{NDArray::Empty({count}, DType::kI64),
            NDArray::Empty(ShapeOfRows(count, row_shape), dtype)};
  if (count > 0) std::memcpy(rows.ids.HostData(), ids.data(), ids.size_bytes());
  return rows;
}

void CheckUpdatesRows(std::string_view verb, const KeyView& key, const Optimizer& optimizer,
                      Code code) {
  if (!NeedsWholeValue(optimizer.program())) return;
  throw Fail(code, "{} {}: the key is kept by rows, and the program '{}' needs whole values", verb,
             key.ToString(), optimizer.program().name());
}

void CheckNewRows(std::string_view verb, const RowsInitItem& item) {
  if (item.row_count == 0 || item.row_count > kRowsMax) {
    throw Fail(Code::kInvalidArgument, "{} {}: row_count is {}, from 1 to 2^63 is possible", verb,
               item.key.ToString(), item.row_count);
  }
  if (item.row_shape.rank() == Shape::kRankMax) {
    throw Fail(Code::kInvalidArgument,
               "{} {}: rows of {} axes, at most {} are possible: arrays of rows have one more",
               verb, item.key.ToString(), Shape::kRankMax, Shape::kRankMax - 1);
  }
  const auto elements = static_cast<size_t>(item.row_shape.size());
  if (elements == 0 || elements > kRowBytesMax / ItemSize(item.dtype)) {
    throw Fail(Code::kInvalidArgument, "{} {}: rows of shape {} {}; a row has 1 to {} bytes", verb,
               item.key.ToString(), item.row_shape.ToString(), Name(item.dtype), kRowBytesMax);
  }
  if (item.rows == nullptr) return;
  CheckRows(verb, item.key, item.rows, {item.row_shape, item.dtype, item.row_count});
}

}  // namespace tkv
