#include "tkv/ndarray.h"

#include <algorithm>

#include "base/format.h"
#include "tensor/device_copy.h"
#include "tensor/device_loan.h"
#include "tensor/strided.h"
#include "tkv/dlpack.h"

namespace tkv {
namespace {

// Returns the strides of C order.
Strides DenseStrides(const Shape& shape) {
  Strides strides(static_cast<size_t>(shape.rank()));
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  return strides;
}

// Strides come from other frameworks.  A reach beyond 2^62 elements would overflow the arithmetic
// below.
void CheckStrides(const Shape& shape, std::span<const int64_t> strides) {
  bool fits = strides.size() == static_cast<size_t>(shape.rank());
  for (int axis = 0; fits && axis < shape.rank(); ++axis) {
    const int64_t limit = (int64_t{1} << 56) / std::max<int64_t>(shape[axis], 1);
    const int64_t stride = strides[static_cast<size_t>(axis)];
    fits = shape.size() == 0 || shape[axis] == 1 || (-limit <= stride && stride <= limit);
  }
  if (!fits) {
    throw Fail(Code::kInvalidArgument, "array: strides ({}) do not fit shape {}",
               Join(strides, ", "), shape.ToString());
  }
}

size_t CheckedBytes(const Shape& shape, DType dtype) {
  if (dtype > kLastDType) {
    throw Fail(Code::kInvalidArgument, "array: there is no dtype {}", static_cast<int>(dtype));
  }
  const auto count = static_cast<size_t>(shape.size());
  if (count > (size_t{1} << 62) / ItemSize(dtype)) {
    throw Fail(Code::kResourceExhausted, "array: {} elements of {} are more than 2^62 bytes", count,
               Name(dtype));
  }
  return count * ItemSize(dtype);
}

}  // namespace

NDArray NDArray::Empty(const Shape& shape, DType dtype, Context context) {
  CheckUsable(context);
  NDArray array;
  array.storage_ = Storage::Allocate(CheckedBytes(shape, dtype), MemoryOf(context));
  array.data_ = static_cast<char*>(array.storage_->data());
  array.dtype_ = dtype;
  array.context_ = context;
  array.shape_ = shape;
  array.size_ = shape.size();
  return array;
}

NDArray NDArray::Zeros(const Shape& shape, DType dtype, Context context) {
  NDArray array = Empty(shape, dtype, context);
  if (IsOfDevice(array)) {
    ZeroOnDevice(array);
  } else {
    std::memset(array.HostData(), 0, array.bytes());
  }
  return array;
}

NDArray NDArray::FromBytes(const void* values, const Shape& shape, DType dtype, Context context) {
  NDArray array = Empty(shape, dtype, context);
  if (array.bytes() == 0) return array;
  if (IsOfDevice(array)) {
    CopyToDevice(values, array);
  } else {
    std::memcpy(array.HostData(), values, array.bytes());
  }
  return array;
}

NDArray NDArray::Wrap(void* data, const Shape& shape, DType dtype, Context context, bool read_only,
                      std::shared_ptr<const void> owner, std::span<const int64_t> strides) {
  DLPackLoans* const loans = LoansOfThread();
  CheckUsable(context);
  size_t bytes = CheckedBytes(shape, dtype);
  size_t offset = 0;  // of the first element from the lowest address that the strides reach
  NDArray array;
  if (!strides.empty()) {
    CheckStrides(shape, strides);
    if (!IsContiguous(shape, strides.data())) {
      array.strides_ = std::make_shared<const Strides>(strides.begin(), strides.end());
      const StridedExtent extent = ExtentOf(shape, strides.data());
      offset = static_cast<size_t>(-extent.low) * ItemSize(dtype);
      bytes = static_cast<size_t>(extent.high - extent.low) * ItemSize(dtype);
      // Memory that would wrap around the address space cannot exist.
      const auto address = reinterpret_cast<uintptr_t>(data);
      if (offset > address || bytes > UINTPTR_MAX - address) {
        throw Fail(Code::kInvalidArgument, "array: strides ({}) leave the address space",
                   Join(strides, ", "));
      }
    }
  }
  if (data == nullptr && bytes > 0) {
    throw Fail(Code::kInvalidArgument, "array: no memory behind shape {}", shape.ToString());
  }
  array.storage_ = Storage::Adopt(static_cast<char*>(data) - offset, bytes, read_only,
                                  std::move(owner), MemoryOf(context));
  array.data_ = static_cast<char*>(data);
  array.dtype_ = dtype;
  array.context_ = context;
  array.shape_ = shape;
  array.size_ = shape.size();
  if (IsOfDevice(array) && array.size_ > 0) BeginLoan(array, loans);
  return array;
}

NDArray NDArray::OfStorage(std::shared_ptr<Storage> storage, size_t begin_bytes, const Shape& shape,
                           DType dtype) {
  const size_t bytes = CheckedBytes(shape, dtype);
  if (begin_bytes > storage->bytes() || bytes > storage->bytes() - begin_bytes ||
      begin_bytes % ItemSize(dtype) != 0) {
    throw Fail(Code::kInvalidArgument, "array: {} bytes of {} from byte {} on, of {}", bytes,
               Name(dtype), begin_bytes, storage->bytes());
  }
  NDArray array;
  if (storage->memory().kind == Memory::Kind::kDevice) {
    array.context_ = Context::Gpu(storage->memory().index);
  }
  array.data_ = static_cast<char*>(storage->data()) + begin_bytes;
  array.storage_ = std::move(storage);
  array.dtype_ = dtype;
  array.shape_ = shape;
  array.size_ = shape.size();
  return array;
}

Strides NDArray::strides() const { return strides_ ? *strides_ : DenseStrides(shape_); }

NDArray NDArray::Slice(int64_t begin, int64_t end) const {
  if (shape_.rank() == 0)
    throw Fail(Code::kInvalidArgument, "slice: an array of shape () has no rows");
  if (begin < 0 || end < begin || end > shape_[0]) {
    throw Fail(Code::kOutOfRange, "slice: rows {} to {}, the array has shape {}", begin, end,
               shape_.ToString());
  }
  std::array<int64_t, Shape::kRankMax> dims{};
  std::copy(shape_.begin(), shape_.end(), dims.begin());
  dims[0] = end - begin;
  NDArray view = *this;
  view.shape_ = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(shape_.rank())));
  view.size_ = view.shape_.size();
  if (size_ > 0) {
    view.data_ += begin * strides()[0] * static_cast<int64_t>(ItemSize(dtype_));
  }
  return view;
}

NDArray NDArray::At(int64_t index) const {
  if (shape_.rank() == 0)
    throw Fail(Code::kInvalidArgument, "at: an array of shape () has no rows");
  if (index < 0 || index >= shape_[0]) {
    throw Fail(Code::kOutOfRange, "at: row {}, the array has shape {}", index, shape_.ToString());
  }
  NDArray row = Slice(index, index + 1);
  const auto rest = static_cast<size_t>(shape_.rank() - 1);
  if (strides_ != nullptr) {
    row.strides_ = std::make_shared<const Strides>(strides_->begin() + 1, strides_->end());
  }
  row.shape_ = Shape(std::span<const int64_t>(shape_.begin() + 1, rest));
  row.size_ = row.shape_.size();
  if (row.strides_ != nullptr && IsContiguous(row.shape_, row.strides_->data()))
    row.strides_.reset();
  return row;
}

NDArray NDArray::Reshape(const Shape& shape) const {
  if (shape.size() != size_) {
    throw Fail(Code::kInvalidArgument,
               "reshape: shape {} has {} elements, the array of shape {} has {}", shape.ToString(),
               shape.size(), shape_.ToString(), size_);
  }
  if (!contiguous()) throw Fail(Code::kInvalidArgument, "reshape: the array is not contiguous");
  NDArray view = *this;
  view.shape_ = shape;
  return view;
}

NDArray NDArray::WithContext(Context context) const {
  CheckUsable(context);
  NDArray view = *this;
  if (MemoryOf(context) != MemoryOf(context_)) {
    if (context.kind == DeviceKind::kCpu) return CopyOnHost(*this, context);
    view = Empty(shape_, dtype_, context);
    view.CopyFrom(*this);
  }
  view.context_ = context;
  return view;
}

NDArray NDArray::Copy() const {
  NDArray copy = Empty(shape_, dtype_, context_);
  copy.CopyFrom(*this);
  return copy;
}

void NDArray::CopyFrom(const NDArray& source) const {
  if (source.shape_ != shape_ || source.dtype_ != dtype_) {
    throw Fail(Code::kInvalidArgument, "copy: {} {} into {} {}", Name(source.dtype_),
               source.shape_.ToString(), Name(dtype_), shape_.ToString());
  }
  CheckWritable(*this, "copy", "target");
  if (IsOfDevice(source) || IsOfDevice(*this)) return CopyByDevice(source, *this);
  source.storage_->WaitReadable();
  storage_->WaitWritable();
  CopyElements(source, *this);
}

}  // namespace tkv
