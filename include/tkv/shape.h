// The extents of a tensor: rank 0 to 32, each at least 0, product below 2^62.  A value type.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tkv/api.h"

namespace tkv {

class TKV_API Shape {
 public:
  static constexpr int kRankMax = 32;

  Shape() noexcept : rank_(0) {}
  // throws  kInvalidArgument  more than 32 dimensions, a negative one, or 2^62 elements and more
  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);
  Shape(const Shape& other) noexcept { *this = other; }
  Shape& operator=(const Shape& other) noexcept;

  int rank() const noexcept { return rank_; }
  int64_t operator[](int axis) const noexcept { return dims_[static_cast<size_t>(axis)]; }
  const int64_t* begin() const noexcept { return dims_.data(); }
  const int64_t* end() const noexcept { return dims_.data() + rank_; }
  // Returns the number of elements; 1 for rank 0.
  int64_t size() const noexcept;
  bool operator==(const Shape& other) const noexcept {
    if (rank_ != other.rank_) return false;
    for (int axis = 0; axis < rank_; ++axis) {
      if ((*this)[axis] != other[axis]) return false;
    }
    return true;
  }

  // Returns the shape as Python prints a tuple: "()", "(3,)", "(2, 3)".
  std::string ToString() const;

 private:
  int rank_;
  std::array<int64_t, kRankMax> dims_;  // only the first rank_ are defined
};

}  // namespace tkv
