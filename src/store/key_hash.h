// Hash and equality of keys, for tables that are searched with a KeyView without a copy.

#pragma once

#include <boost/container_hash/hash.hpp>
#include <cstddef>

#include "tkv/key.h"

namespace tkv {

struct KeyHash {
  using is_transparent = void;
  size_t operator()(const KeyView& key) const noexcept {
    return key.is_string ? boost::hash<std::string_view>()(key.text)
                         : boost::hash<int64_t>()(key.number);
  }
  size_t operator()(const Key& key) const noexcept { return (*this)(key.view()); }
};

struct KeyEqual {
  using is_transparent = void;
  bool operator()(const Key& a, const Key& b) const noexcept { return a == b; }
  bool operator()(const KeyView& a, const KeyView& b) const noexcept { return a == b; }
  bool operator()(const Key& a, const KeyView& b) const noexcept { return a.view() == b; }
  bool operator()(const KeyView& a, const Key& b) const noexcept { return a == b.view(); }
};

}  // namespace tkv
