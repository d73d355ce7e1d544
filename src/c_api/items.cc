#include "c_api/items.h"

namespace tkv::c_api {
namespace {

// Returns the array of a key; the message of an error names the key.
const NDArray* ArrayOfKey(const tkv_array* array, const KeyView& key, const char* verb,
                          const char* what) {
  if (array != nullptr) return &array->core;
  throw Fail(Code::kInvalidArgument, "{} {}: {} is null", verb, key.ToString(), what);
}

}  // namespace

KeyView KeyOf(const tkv_key* key, const char* verb) {
  CheckNotNull(key, verb, "the key");
  return key->text == nullptr ? KeyView(key->number) : KeyView(Text(key->text, verb, "the key"));
}

Items::Items(const tkv_item* items, size_t count, const char* verb)
    : verb_(verb), items_(List(items, count, verb, "the list of items")) {
  keys_.reserve(count);
  arrays_.reserve(count);
  for (const tkv_item& item : items_) {
    keys_.push_back(KeyOf(&item.key, verb));
    const KeyView& key = keys_.back();
    if (item.array_count > 0 && item.arrays == nullptr) {
      throw Fail(Code::kInvalidArgument, "{} {}: the list of arrays is null", verb, key.ToString());
    }
    for (const tkv_array* array : List(item.arrays, item.array_count, verb, "the list of arrays")) {
      arrays_.push_back(ArrayOfKey(array, key, verb, "an array"));
    }
  }
}

SmallVector<InitItem> Items::ForInit() const {
  SmallVector<InitItem> items;
  items.reserve(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    const tkv_item& item = items_[i];
    if (item.array_count != 1) {
      throw Fail(Code::kInvalidArgument, "{} {}: {} values, one is needed", verb_,
                 keys_[i].ToString(), item.array_count);
    }
    const std::string_view mode =
        item.mode == nullptr ? std::string_view() : Text(item.mode, verb_, "the mode");
    items.push_back({keys_[i], arrays_[i], mode});
  }
  return items;
}

RowsItems::RowsItems(const tkv_rows_item* items, size_t count, const char* verb)
    : items_(List(items, count, verb, "the list of items")) {
  keys_.reserve(count);
  rows_.reserve(count);
  pointers_.reserve(count);
  for (const tkv_rows_item& item : items_) {
    keys_.push_back(KeyOf(&item.key, verb));
    const KeyView& key = keys_.back();
    rows_.push_back({*ArrayOfKey(item.ids, key, verb, "the array of ids"),
                     *ArrayOfKey(item.values, key, verb, "the array of values")});
    pointers_.push_back(&rows_.back());
  }
}

SmallVector<RowsPushItem> RowsItems::ForPush() const {
  SmallVector<RowsPushItem> items;
  items.reserve(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    items.push_back({keys_[i], std::span(&pointers_[i], 1), items_[i].priority});
  }
  return items;
}

SmallVector<RowsPullItem> RowsItems::ForPull() const {
  SmallVector<RowsPullItem> items;
  items.reserve(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    items.push_back({keys_[i], &rows_[i].ids, &rows_[i].values, items_[i].priority});
  }
  return items;
}

}  // namespace tkv::c_api
