// A check for arrays of one call that share memory, so that the call's keys cannot run together.

#pragma once

#include <cstddef>
#include <vector>

#include "tkv/ndarray.h"

namespace tkv {

// A collection of the arrays that one call reads and writes, by group.
class OverlapCheck {
 public:
  void Reserve(size_t arrays) { ranges_.reserve(arrays); }
  void Reads(size_t group, const NDArray& array) { Add(group, array, false); }
  void Writes(size_t group, const NDArray& array) { Add(group, array, true); }
  void Reads(size_t group, const void* data, size_t bytes) { Add(group, data, bytes, false); }
  void Writes(size_t group, const void* data, size_t bytes) { Add(group, data, bytes, true); }

  // Returns true if a written array shares memory with another array of the call.  Two uses of the
  // same bytes in the same group are allowed.  Examples are an output that is also a value of its
  // key, and a list that has an array twice.
  bool Conflicts();

 private:
  struct Range {
    const char* begin;
    const char* end;
    size_t group;
    bool is_written;

    bool IsSameUseAs(const Range& other) const;  // same bytes and same group
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
