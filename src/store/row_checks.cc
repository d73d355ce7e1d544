#include "store/row_checks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kRowBytesMax = size_t{16} << 20;

void CheckIdArray(std::string_view verb, const KeyView& key, const NDArray& ids) {
  if (ids.dtype() != DType::kI64 || ids.shape().rank() != 1) {
    throw Fail(Code::kInvalidArgument, "{} {}: ids of shape {} {}; a list of int64 is needed", verb,
               key.ToString(), ids.shape().ToString(), Name(ids.dtype()));
  }
}

// Whether the shape is that of so many rows.
bool IsOfRows(const Shape& shape, int64_t count, const Shape& row) {
  return shape.rank() == row.rank() + 1 && shape[0] == count &&
         std::equal(row.begin(), row.end(), shape.begin() + 1);
}

std::string RowsShape(int64_t count, const Shape& row) {
  std::vector<int64_t> dims = {count};
  dims.insert(dims.end(), row.begin(), row.end());
  return Shape(dims).ToString();
}

void CheckRows(std::string_view verb, const KeyView& key, const Rows& rows, const Shape& row,
               DType dtype) {
  CheckIdArray(verb, key, rows.ids);
  const int64_t count = rows.ids.size();
  if (!IsOfRows(rows.values.shape(), count, row)) {
    throw Fail(Code::kInvalidArgument, "{} {}: {} ids and rows of shape {}; {} is needed", verb,
               key.ToString(), count, rows.values.shape().ToString(), RowsShape(count, row));
  }
  if (rows.values.dtype() != dtype) {
    throw Fail(Code::kInvalidArgument, "{} {}: dtype {}, the key has {}", verb, key.ToString(),
               Name(rows.values.dtype()), Name(dtype));
  }
}

void CheckByRows(std::string_view verb, const KeyView& key, const KVStore::KeyInfo& info) {
  if (info.by_rows) return;
  throw Fail(Code::kInvalidArgument,
             "{} {}: the key is not kept by rows; init it with a row_sparse array or as a table",
             verb, key.ToString());
}

void CheckInitializer(std::string_view verb, const RowsInitItem& item) {
  const RowInitializer& initializer = item.initializer;
  if (!std::isfinite(initializer.a) || !std::isfinite(initializer.b)) {
    throw Fail(Code::kInvalidArgument, "{} {}: an initializer with {} and {}", verb,
               item.key.ToString(), initializer.a, initializer.b);
  }
  const bool draws = initializer.kind != RowInitializer::Kind::kConstant;
  if (draws && !IsFloat(item.dtype)) {
    throw Fail(Code::kInvalidArgument, "{} {}: random rows are of floats, the key has {}", verb,
               item.key.ToString(), Name(item.dtype));
  }
  if (initializer.kind == RowInitializer::Kind::kUniform && !(initializer.a <= initializer.b)) {
    throw Fail(Code::kInvalidArgument, "{} {}: uniform from {} to {}", verb, item.key.ToString(),
               initializer.a, initializer.b);
  }
  if (initializer.kind == RowInitializer::Kind::kNormal && !(initializer.b >= 0)) {
    throw Fail(Code::kInvalidArgument, "{} {}: normal with a standard deviation of {}", verb,
               item.key.ToString(), initializer.b);
  }
}

}  // namespace

void CheckRowsInit(std::string_view verb, const RowsInitItem& item) {
  const size_t row_bytes = static_cast<size_t>(item.row_shape.size()) * ItemSize(item.dtype);
  if (row_bytes == 0 || row_bytes > kRowBytesMax || item.row_shape.rank() >= Shape::kRankMax) {
    throw Fail(Code::kInvalidArgument, "{} {}: rows of shape {} {}; a row has 1 to {} bytes", verb,
               item.key.ToString(), item.row_shape.ToString(), Name(item.dtype), kRowBytesMax);
  }
  if (item.row_count == 0 || item.row_count > kRowsMax) {
    throw Fail(Code::kInvalidArgument, "{} {}: {} rows; a key by rows has 1 to 2^63", verb,
               item.key.ToString(), item.row_count);
  }
  CheckInitializer(verb, item);
  if (item.rows == nullptr) return;
  CheckRows(verb, item.key, *item.rows, item.row_shape, item.dtype);
}

void CheckRowsPush(std::string_view verb, const RowsPushItem& item, const KVStore::KeyInfo& info) {
  CheckByRows(verb, item.key, info);
  if (item.values.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
               item.key.ToString());
  }
  for (const Rows* rows : item.values) CheckRows(verb, item.key, *rows, info.shape, info.dtype);
}

void CheckRowsPull(std::string_view verb, const RowsPullItem& item, const KVStore::KeyInfo& info) {
  CheckByRows(verb, item.key, info);
  CheckIdArray(verb, item.key, *item.ids);
  const NDArray& out = *item.out;
  if (!IsOfRows(out.shape(), item.ids->size(), info.shape)) {
    throw Fail(Code::kInvalidArgument, "{} {}: {} ids and an output of shape {}; {} is needed",
               verb, item.key.ToString(), item.ids->size(), out.shape().ToString(),
               RowsShape(item.ids->size(), info.shape));
  }
  if (out.dtype() != info.dtype && !(IsFloat(out.dtype()) && IsFloat(info.dtype))) {
    throw Fail(Code::kInvalidArgument,
               "{} {}: the output is {}, the key has {}; only floats convert", verb,
               item.key.ToString(), Name(out.dtype()), Name(info.dtype));
  }
  if (out.read_only()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the output is read-only", verb, item.key.ToString());
  }
}

void CheckRowIds(std::string_view verb, const KeyView& key, std::span<const int64_t> ids,
                 uint64_t row_count) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<uint64_t>(ids[i]) < row_count) continue;  // negative ones are large
    throw Fail(Code::kOutOfRange, "{} {}: id {} at position {}, the key has ids from 0 to {}", verb,
               key.ToString(), ids[i], i, row_count - 1);
  }
}

void CheckRowTotal(std::string_view verb, const KeyView& key, size_t rows) {
  if (rows < UINT32_MAX) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} rows in one call, at most 2^32 are allowed", verb,
             key.ToString(), rows);
}

}  // namespace tkv
