#include "numpy_array.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>

#include <array>
#include <utility>

namespace tkv::python {
namespace {

std::optional<DType> DTypeOf(int number) {
  switch (number) {
    case NPY_FLOAT32:
      return DType::kF32;
    case NPY_FLOAT64:
      return DType::kF64;
    case NPY_FLOAT16:
      return DType::kF16;
    case NPY_BOOL:
      return DType::kBool;
    case NPY_COMPLEX64:
      return DType::kC64;
    default:
      break;
  }
  // Maps by size, because two of C's integer types may have the same size.
  constexpr std::array kSigned = {
      std::pair{NPY_BYTE, sizeof(signed char)}, std::pair{NPY_SHORT, sizeof(short)},
      std::pair{NPY_INT, sizeof(int)}, std::pair{NPY_LONG, sizeof(long)},
      std::pair{NPY_LONGLONG, sizeof(long long)}};
  for (const auto& [type, bytes] : kSigned) {
    const bool is_unsigned = number == type + 1;
    if (number != type && !is_unsigned) continue;
    switch (bytes) {
      case 1:
        return is_unsigned ? DType::kU8 : DType::kI8;
      case 2:
        return is_unsigned ? DType::kU16 : DType::kI16;
      case 4:
        return is_unsigned ? DType::kU32 : DType::kI32;
      case 8:
        return is_unsigned ? DType::kU64 : DType::kI64;
      default:
        return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<NDArray> FromNumpy(nb::handle object, std::shared_ptr<const void> keeper) {
  auto* const array = reinterpret_cast<PyArrayObject*>(object.ptr());
  const auto dtype = DTypeOf(PyArray_TYPE(array));
  const int rank = PyArray_NDIM(array);
  if (!dtype || !PyArray_ISNBO(PyArray_DESCR(array)->byteorder) || !PyArray_ISALIGNED(array) ||
      rank > Shape::kRankMax) {
    return std::nullopt;
  }
  const auto axes = static_cast<size_t>(rank);
  const Shape shape(std::span<const int64_t>(PyArray_DIMS(array), axes));
  // Only the first `axes` are set, and only if not dense.
  std::array<int64_t, Shape::kRankMax> strides;
  const auto item = static_cast<int64_t>(ItemSize(*dtype));
  const bool is_dense = PyArray_IS_C_CONTIGUOUS(array);
  for (size_t axis = 0; axis < axes && !is_dense; ++axis) {
    const int64_t bytes = PyArray_STRIDES(array)[axis];
    if (bytes % item != 0) return std::nullopt;
    strides[axis] = bytes / item;
  }
  return NDArray::Wrap(PyArray_DATA(array), shape, *dtype, Context::Cpu(0),
                       !PyArray_ISWRITEABLE(array), std::move(keeper),
                       {strides.data(), is_dense ? 0 : axes});
}

}  // namespace tkv::python
