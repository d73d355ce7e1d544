#include "store/checks.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "store/key_hash.h"
#include "tkv/ndarray.h"

namespace tkv {

void CheckValues(std::string_view verb, const PushItem& item, const Shape& shape, DType dtype) {
  if (item.values.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
               item.key.ToString());
  }
  for (const NDArray* value : item.values) {
    if (value->shape() != shape) {
      throw Fail(Code::kInvalidArgument, "{} {}: shape {}, the key has {}", verb,
                 item.key.ToString(), value->shape().ToString(), shape.ToString());
    }
    if (value->dtype() != dtype) {
      throw Fail(Code::kInvalidArgument, "{} {}: dtype {}, the key has {}", verb,
                 item.key.ToString(), Name(value->dtype()), Name(dtype));
    }
  }
}

void CheckOuts(std::string_view verb, const PullItem& item, const Shape& shape, DType dtype) {
  if (item.outs.empty()) {
    throw Fail(Code::kInvalidArgument, "{} {}: the list of outputs is empty", verb,
               item.key.ToString());
  }
  for (const NDArray* out : item.outs) {
    if (out->shape() != shape) {
      throw Fail(Code::kInvalidArgument, "{} {}: the output has shape {}, the key has {}", verb,
                 item.key.ToString(), out->shape().ToString(), shape.ToString());
    }
    if (out->dtype() != dtype && !(IsFloat(out->dtype()) && IsFloat(dtype))) {
      throw Fail(Code::kInvalidArgument,
                 "{} {}: the output is {}, the key has {}; only floats convert", verb,
                 item.key.ToString(), Name(out->dtype()), Name(dtype));
    }
    if (out->read_only()) {
      throw Fail(Code::kInvalidArgument, "{} {}: the output is read-only", verb,
                 item.key.ToString());
    }
  }
}

void CheckBroadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  boost::unordered_flat_map<KeyView, const NDArray*, KeyHash, KeyEqual> values;
  values.reserve(items.size());
  for (const InitItem& item : items) values.emplace(item.key, item.value);
  for (const PullItem& out : outs) {
    const auto found = values.find(out.key);
    if (found == values.end()) {
      throw Fail(Code::kInvalidArgument, "broadcast {}: an output but no value",
                 out.key.ToString());
    }
    CheckOuts("broadcast", out, found->second->shape(), found->second->dtype());
  }
}

void CheckKind(std::string_view verb, const KeyView& key, bool store_has_strings) {
  if (store_has_strings == key.is_string) return;
  throw Fail(Code::kInvalidArgument, "{} {}: {} key, the store has {} keys", verb, key.ToString(),
             key.is_string ? "a string" : "an integer", key.is_string ? "integer" : "string");
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

}  // namespace tkv
