// The lists of a call in the form that the store takes.  They refer to the caller's lists.

#pragma once

#include <span>

#include "base/small_vector.h"
#include "c_api/handles.h"

namespace tkv::c_api {

//   throws  kInvalidArgument  null, or a text that is no UTF-8
KeyView KeyOf(const tkv_key* key, const char* verb);

// A list of keys with arrays.
class Items {
 public:
  //   throws  kInvalidArgument  null where an item, a list of arrays or an array is needed
  Items(const tkv_item* items, size_t count, const char* verb);
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;

  //   throws  kInvalidArgument  a key without one value, or with several
  SmallVector<InitItem> ForInit() const;
  // Returns the list as PushItem or PullItem.
  template <typename Item>
  SmallVector<Item> For() const {
    SmallVector<Item> items;
    items.reserve(items_.size());
    size_t begin = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      const size_t count = items_[i].array_count;
      items.push_back({keys_[i], std::span(arrays_).subspan(begin, count), items_[i].priority});
      begin += count;
    }
    return items;
  }

 private:
  const char* verb_;
  std::span<const tkv_item> items_;
  SmallVector<KeyView> keys_;
  SmallVector<const NDArray*> arrays_;  // of all items
};

// A list of keys with rows.
class RowsItems {
 public:
  RowsItems(const tkv_rows_item* items, size_t count, const char* verb);
  RowsItems(const RowsItems&) = delete;
  RowsItems& operator=(const RowsItems&) = delete;

  SmallVector<RowsPushItem> ForPush() const;
  SmallVector<RowsPullItem> ForPull() const;

 private:
  std::span<const tkv_rows_item> items_;
  SmallVector<KeyView> keys_;
  SmallVector<Rows> rows_;
  SmallVector<const Rows*> pointers_;
};

}  // namespace tkv::c_api
