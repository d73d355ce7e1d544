// Looks at the arguments of a call before anything changes, for every kind of store.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "tkv/kvstore.h"

namespace tkv {

//   throws  kInvalidArgument  no values, another shape or dtype than the key's
void CheckValues(std::string_view verb, const PushItem& item, const Shape& shape, DType dtype);
//   throws  kInvalidArgument  no outputs, another shape, a dtype that does not convert, read-only
void CheckOuts(std::string_view verb, const PullItem& item, const Shape& shape, DType dtype);
//   throws  kInvalidArgument  an output without a value, or as above
void CheckBroadcast(std::span<const InitItem> items, std::span<const PullItem> outs);
//   throws  kInvalidArgument  an integer key in a store of strings, or the reverse
void CheckKind(std::string_view verb, const KeyView& key, bool store_has_strings);
//   throws  kInvalidArgument  no keys, or keys of two kinds
//           kAlreadyExists    a key is there already, or stands twice in the call
void CheckNewKeys(std::string_view verb, std::span<const KeyView> keys,
                  std::optional<bool> store_has_strings,
                  const std::function<bool(const KeyView&)>& is_there);

}  // namespace tkv
