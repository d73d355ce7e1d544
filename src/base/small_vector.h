// A vector whose first few elements need no allocation: most calls have one key and a handful of
// arrays.

#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>

namespace tkv {

template <typename T, size_t kInline = 4>
using SmallVector = boost::container::small_vector<T, kInline>;

}  // namespace tkv
