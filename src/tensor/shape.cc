#include "tkv/shape.h"

#include <algorithm>

#include "base/format.h"

namespace tkv {

namespace {

std::string Text(std::span<const int64_t> dims) {
  if (dims.size() == 1) return Format("({},)", dims[0]);
  return Format("({})", Join(dims, ", "));
}

}  // namespace

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kRankMax) {
    throw Fail(Code::kInvalidArgument, "shape: {} dimensions, at most {} are possible", dims.size(),
               kRankMax);
  }
  constexpr int64_t kSizeMax = int64_t{1} << 62;
  int64_t size = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) {
      throw Fail(Code::kInvalidArgument, "shape: dimension {} is {}, at least 0 is needed", i,
                 dims[i]);
    }
    // A zero in another dimension does not excuse an overflow, because strides are products, too.
    if (__builtin_mul_overflow(size, std::max<int64_t>(dims[i], 1), &size) || size > kSizeMax) {
      throw Fail(Code::kInvalidArgument, "shape: {} has 2^62 elements or more", Text(dims));
    }
    dims_[i] = dims[i];
  }
}

Shape& Shape::operator=(const Shape& other) noexcept {
  rank_ = other.rank_;
  for (int i = 0; i < rank_; ++i) dims_[static_cast<size_t>(i)] = other[i];
  return *this;
}

int64_t Shape::size() const noexcept {
  int64_t size = 1;
  for (int64_t dim : *this) size *= dim;
  return size;
}

std::string Shape::ToString() const { return Text({begin(), end()}); }

}  // namespace tkv
