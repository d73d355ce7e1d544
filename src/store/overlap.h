// Whether arrays of one call share memory in a way that forbids running its keys together.

#pragma once

#include <cstddef>
#include <vector>

#include "tkv/ndarray.h"

namespace tkv {

class OverlapCheck {
 public:
  void Reserve(size_t arrays) { ranges_.reserve(arrays); }
  void Reads(size_t group, const NDArray& array) { Add(group, array, false); }
  void Writes(size_t group, const NDArray& array) { Add(group, array, true); }
  void Reads(size_t group, const void* data, size_t bytes) { Add(group, data, bytes, false); }
  void Writes(size_t group, const void* data, size_t bytes) { Add(group, data, bytes, true); }

  // True where an array that is written shares memory with another one of the call, unless both are
  // the same bytes of the same group (an output that is also a value of its key, a list that holds
  // an array twice).
  bool Conflicts();

 private:
  struct Range {
    const char* begin;
    const char* end;
    size_t group;
    bool is_written;

    bool IsSameUseAs(const Range& other) const;  // the same bytes of the same group
  };
  class Furthest;
  void Add(size_t group, const NDArray& array, bool is_written);
  void Add(size_t group, const void* data, size_t bytes, bool is_written) {
    const char* const begin = static_cast<const char*>(data);
    if (bytes > 0) ranges_.push_back({begin, begin + bytes, group, is_written});
  }

  std::vector<Range> ranges_;
};

}  // namespace tkv
