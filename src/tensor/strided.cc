#include "tensor/strided.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace tkv {
namespace {

// Calls visit(offset in elements) for the start of each innermost row, in C order.
template <typename Visit>
void ForEachRow(const Shape& shape, const int64_t* strides, Visit visit) {
  std::array<int64_t, Shape::kRankMax> index{};
  int64_t offset = 0;
  while (true) {
    visit(offset);
    int axis = shape.rank() - 2;
    for (; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      offset += strides[axis];
      if (++index[a] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[a] = 0;
    }
    if (axis < 0) return;
  }
}

template <typename CopyRow>
void CopyRows(const Shape& shape, const int64_t* strides, size_t item, CopyRow copy_row) {
  if (shape.size() == 0) return;
  const int last = shape.rank() - 1;
  const int64_t count = last < 0 ? 1 : shape[last];
  const int64_t step = last < 0 ? 1 : strides[last];
  size_t packed = 0;
  ForEachRow(shape, strides, [&](int64_t offset) {
    copy_row(offset * static_cast<int64_t>(item), packed, count, step * static_cast<int64_t>(item));
    packed += static_cast<size_t>(count) * item;
  });
}

// Returns true if the memory blocks of two arrays have bytes in common.
bool MayOverlap(const Storage& a, const Storage& b) {
  const auto* const a_begin = static_cast<const char*>(a.data());
  const auto* const b_begin = static_cast<const char*>(b.data());
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

// Searches for two indices whose elements have one address: steps along the axes, not all 0, whose
// distances add up to 0.
class SharedElementSearch {
 public:
  SharedElementSearch(const Shape& shape, const int64_t* strides) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] > 1) axes_[count_++] = {std::abs(strides[axis]), shape[axis] - 1};
    }
    std::sort(axes_.begin(), axes_.begin() + static_cast<ptrdiff_t>(count_), std::greater());
    for (size_t k = count_; k > 0; --k) {
      reach_[k - 1] = reach_[k] + axes_[k - 1].stride * axes_[k - 1].steps_max;
    }
  }

  bool Finds() { return !IsNested() && FindsFrom(0, 0, false); }

 private:
  struct Axis {
    int64_t stride;
    int64_t steps_max;  // in either direction
    auto operator<=>(const Axis&) const = default;
  };

  // Returns true for most layouts: one step along an axis leads beyond the reach of all smaller
  // strides.
  bool IsNested() const {
    for (size_t k = 0; k < count_; ++k) {
      if (axes_[k].stride <= reach_[k + 1]) return false;
    }
    return true;
  }

  // Searches steps along the axes from `k` on that undo `distance`.  The first step that is not 0
  // goes forward, because the opposite steps would give the same pair.
  bool FindsFrom(size_t k, int64_t distance, bool has_moved) {
    if (k == count_) return has_moved && distance == 0;
    const auto [stride, steps_max] = axes_[k];
    const int64_t rest = reach_[k + 1];
    const int64_t last = std::min(steps_max, FloorOf(rest - distance, stride));
    int64_t step = has_moved ? std::max(-steps_max, -FloorOf(rest + distance, stride)) : 0;
    for (; step <= last; ++step) {
      if (--tries_ < 0) return false;
      if (FindsFrom(k + 1, distance + step * stride, has_moved || step != 0)) return true;
    }
    return false;
  }

  static int64_t FloorOf(int64_t number, int64_t divisor) {
    return number / divisor - (number % divisor < 0 ? 1 : 0);
  }

  std::array<Axis, Shape::kRankMax> axes_{};  // axes with several elements, largest stride first
  std::array<int64_t, Shape::kRankMax + 1> reach_{};  // reach of the axes from an index on
  size_t count_ = 0;
  int tries_ = 1 << 16;
};

NDArray PackedCopy(const NDArray& array) {
  const NDArray packed = NDArray::Empty(array.shape(), array.dtype(), array.context());
  PackStrided(array.HostData(), array.shape(), array.strides().data(), ItemSize(array.dtype()),
              packed.HostData());
  return packed;
}

}  // namespace

void PackStrided(const void* source, const Shape& shape, const int64_t* strides, size_t item,
                 void* target) {
  const char* in = static_cast<const char*>(source);
  char* out = static_cast<char*>(target);
  CopyRows(shape, strides, item, [=](int64_t at, size_t packed, int64_t count, int64_t step) {
    if (step == static_cast<int64_t>(item)) {
      std::memcpy(out + packed, in + at, static_cast<size_t>(count) * item);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + packed + static_cast<size_t>(i) * item, in + at + i * step, item);
    }
  });
}

void ScatterStrided(const void* source, void* target, const Shape& shape, const int64_t* strides,
                    size_t item) {
  const char* in = static_cast<const char*>(source);
  char* out = static_cast<char*>(target);
  CopyRows(shape, strides, item, [=](int64_t at, size_t packed, int64_t count, int64_t step) {
    if (step == static_cast<int64_t>(item)) {
      std::memcpy(out + at, in + packed, static_cast<size_t>(count) * item);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + at + i * step, in + packed + static_cast<size_t>(i) * item, item);
    }
  });
}

void CopyElements(const NDArray& source, const NDArray& target) {
  if (target.size() == 0) return;
  if (source.contiguous() && target.contiguous()) {
    std::memmove(target.HostData(), source.HostData(), target.bytes());
    return;
  }
  // Within one block, an element-wise copy would read elements that it has just written.
  // Scattering needs a source in C order.
  const bool is_staged = MayOverlap(*source.storage(), *target.storage()) ||
                         !(source.contiguous() || target.contiguous());
  const NDArray packed = is_staged ? PackedCopy(source) : source;
  const size_t item = ItemSize(target.dtype());
  if (target.contiguous()) {
    PackStrided(packed.HostData(), target.shape(), packed.strides().data(), item,
                target.HostData());
  } else {
    ScatterStrided(packed.HostData(), target.HostData(), target.shape(), target.strides().data(),
                   item);
  }
}

NDArray PackedBeside(const NDArray& source, const NDArray& target) {
  if (!source.contiguous()) return PackedCopy(source);
  const auto* const read = static_cast<const char*>(source.HostData());
  const auto* const written = static_cast<const char*>(target.HostData());
  const bool overlap = read < written + target.bytes() && written < read + source.bytes();
  const bool are_same = read == written && source.dtype() == target.dtype();
  return overlap && !are_same ? PackedCopy(source) : source;
}

bool IsContiguous(const Shape& shape, const int64_t* strides) {
  if (shape.size() == 0) return true;
  int64_t expected = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

bool HasSharedElements(const Shape& shape, const int64_t* strides) {
  if (shape.size() <= 1) return false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] > 1 && strides[axis] == 0) return true;
  }
  const StridedExtent extent = ExtentOf(shape, strides);
  return shape.size() > extent.high - extent.low || SharedElementSearch(shape, strides).Finds();
}

std::optional<PitchedRows> RowsOf(const Shape& shape, const int64_t* strides) {
  PitchedRows rows;
  int axis = shape.rank() - 1;
  for (; axis >= 0 && (shape[axis] == 1 || strides[axis] == rows.length); --axis) {
    rows.length *= shape[axis];
  }
  rows.pitch = rows.length;
  for (; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    if (rows.count == 1) rows.pitch = strides[axis];
    if (strides[axis] != rows.pitch * rows.count) return {};
    rows.count *= shape[axis];
  }
  if (rows.pitch < rows.length) return {};
  return rows;
}

StridedExtent ExtentOf(const Shape& shape, const int64_t* strides) {
  StridedExtent extent;
  if (shape.size() == 0) return extent;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t reach = (shape[axis] - 1) * strides[axis];
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  ++extent.high;
  return extent;
}

}  // namespace tkv
