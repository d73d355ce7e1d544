#include "tensor/strided.h"

#include <array>
#include <cstring>

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

// Whether the blocks that two arrays lie in have bytes in common.
bool MayOverlap(const Storage& a, const Storage& b) {
  const auto* const a_begin = static_cast<const char*>(a.data());
  const auto* const b_begin = static_cast<const char*>(b.data());
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

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
  // Element by element a copy within one block would read what it has written, and the scattering
  // reads its source in order.
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
