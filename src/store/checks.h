// Checks of a call's arguments before anything changes, for every kind of store.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/format.h"
#include "tkv/kvstore.h"

namespace tkv {

// Runs f and adds the verb and the key to its errors, which do not name them.
template <typename F>
std::invoke_result_t<F&> NamingKey(std::string_view verb, const KeyView& key, F f) {
  return NamedBy([&] { return Format("{} {}", verb, key.ToString()); }, f);
}

// Calls check(i) for each element of a list.  The error of a list of several says which one it is.
//   what  the word for an element
template <typename F>
void ForEachOf(const char* what, size_t count, F check) {
  for (size_t i = 0; i < count; ++i) {
    try {
      check(i);
    } catch (const Error& error) {
      if (count == 1) throw;
      throw error.WithMessage(
          Format("{} ({} {} of {}, counted from 0)", error.what(), what, i, count));
    }
  }
}

//   throws  kInvalidArgument  null, or an NDArray that was never made or was moved from
void CheckMade(std::string_view verb, const KeyView& key, const NDArray* array);
//   throws  kUnimplemented  the array is on a device
void CheckOfHost(std::string_view verb, const KeyView& key, const NDArray& array);
void CheckOfHost(std::string_view verb, const KeyView& key, std::span<const NDArray* const> arrays);
//   throws  kInvalidArgument  an array on the host, in a store that takes only arrays on GPUs
void CheckOnGpus(std::string_view verb, std::span<const PushItem> items,
                 std::span<const PullItem> outs);
//   throws  kInvalidArgument  no values, null, or another shape or dtype than the key's
//           kUnavailable      the device of a value is lost
void CheckValues(std::string_view verb, const PushItem& item, const Shape& shape, DType dtype);
//   throws  kInvalidArgument  no outputs, another shape, a dtype that does not convert, read-only,
//           elements that share memory
//           kUnavailable      the device of an output is lost
void CheckOuts(std::string_view verb, const PullItem& item, const Shape& shape, DType dtype);
//   throws  kInvalidArgument  no keys, no outputs, an output without a value, or as above
void CheckBroadcast(std::span<const InitItem> items, std::span<const PullItem> outs);
// Returns the shape of all rows of a table as one array.
//   throws  kInvalidArgument  they do not fit one array
Shape WholeTableShape(std::string_view verb, const KeyView& key, const Shape& row_shape,
                      uint64_t rows, size_t row_bytes);
// The values of an assign as items of a push; each key has one value.
class AssignedValues {
 public:
  //   throws  kInvalidArgument  no keys, or the same key twice
  AssignedValues(std::string_view verb, std::span<const InitItem> items);
  std::span<const PushItem> items() const { return items_; }

 private:
  std::vector<const NDArray*> values_;
  std::vector<PushItem> items_;
};
//   throws  kUnimplemented  a key that is kept by rows
void CheckAssignable(std::string_view verb, const KeyView& key, bool by_rows);
//   throws  kInvalidArgument  an integer key in a store of strings, or the reverse
void CheckKind(std::string_view verb, const KeyView& key, bool store_has_strings);
//   throws  kInvalidArgument  no keys, or keys of two kinds
//           kAlreadyExists    a key exists already, or appears twice in the call
void CheckNewKeys(std::string_view verb, std::span<const KeyView> keys,
                  std::optional<bool> store_has_strings,
                  const std::function<bool(const KeyView&)>& is_there);
//   throws  kInvalidArgument  the mode is none of "", "sync" and "async"
void CheckMode(std::string_view verb, const KeyView& key, std::string_view mode);

//   throws  kInvalidArgument  an empty function as the callback of an operation's end
void CheckCallable(const std::function<void()>& ended);

// ---- rows
// The shape of a key's rows, for keys kept by rows and for keys with a value.
struct RowGeometry {
  Shape row_shape;
  DType dtype{};
  uint64_t row_count = 0;  // ids are below it
  size_t row_bytes() const { return static_cast<size_t>(row_shape.size()) * ItemSize(dtype); }
};

// Returns the geometry of a key with a value: its rows are the slices along the first axis.
//   throws  kInvalidArgument  the value has no axis
RowGeometry RowsOfArray(std::string_view verb, const KeyView& key, const Shape& shape, DType dtype);
// Returns the ids in a packed array.
inline std::span<const int64_t> IdsOf(const NDArray& packed) {
  return {static_cast<const int64_t*>(packed.HostData()), static_cast<size_t>(packed.size())};
}

//   throws  kInvalidArgument  null, ids that are no list of int64, values with another shape or
//           dtype than the key's rows, or another number of values than ids
void CheckRows(std::string_view verb, const KeyView& key, const Rows* rows,
               const RowGeometry& geometry);
//   throws  kInvalidArgument  as CheckRows and CheckOuts
void CheckRowsOut(std::string_view verb, const RowsPullItem& item, const RowGeometry& geometry);
//   throws  kOutOfRange  an id is below 0 or not below `row_count`; the message names the first
void CheckIds(std::string_view verb, const KeyView& key, std::span<const int64_t> ids,
              uint64_t row_count);
//   throws  kInvalidArgument  the key is not kept by rows
void CheckByRows(std::string_view verb, const KeyView& key, bool by_rows);
//   throws  kInvalidArgument  an id appears twice; the message names it
void CheckEachOnce(std::string_view verb, const KeyView& key, std::span<const int64_t> ids);
//   throws  kInvalidArgument  no id can pass, or the filter has `since` and the key records no
//           versions
void CheckFilter(std::string_view verb, const KeyView& key, const RowsFilter& filter,
                 const RowPolicy& policy);
//   throws  kOutOfRange  the filter's `since` is later than `version`, the key's version
void CheckSince(std::string_view verb, const KeyView& key, const RowsFilter& filter,
                uint64_t version);
// Returns arrays for rows with these ids.
//   shape  ids: (n,); values: (n, ...), not filled
Rows MakeRows(std::span<const int64_t> ids, const Shape& row_shape, DType dtype);
//   throws  `code`  the optimizer needs whole values, and rows are updated one by one
void CheckUpdatesRows(std::string_view verb, const KeyView& key, const Optimizer& optimizer,
                      Code code);
//   throws  kInvalidArgument  no rows, or an initializer or rows that do not fit
void CheckNewRows(std::string_view verb, const RowsInitItem& item);

}  // namespace tkv
