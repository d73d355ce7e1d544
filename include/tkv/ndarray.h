// A dense tensor: a handle on shared storage.
//
// Copying the handle shares the storage.  A handle is a value: two threads may use two handles on
// one storage.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tkv/api.h"
#include "tkv/context.h"
#include "tkv/dtype.h"
#include "tkv/shape.h"
#include "tkv/storage.h"

namespace tkv {

using Strides = std::vector<int64_t>;  // elements between neighbours, one per axis

class TKV_API NDArray {
 public:
  NDArray() = default;  // no array: `operator bool` is false, everything else is undefined

  // Returns a new array on `context`; the elements of Empty are uninitialised.
  //   throws  kResourceExhausted, and as CheckUsable
  static NDArray Empty(const Shape& shape, DType dtype = DType::kF32, Context context = {});
  static NDArray Zeros(const Shape& shape, DType dtype = DType::kF32, Context context = {});
  // Copies `values`, which has shape.size() elements of the C++ type that `dtype` names.
  static NDArray FromBytes(const void* values, const Shape& shape, DType dtype,
                           Context context = {});
  // Returns a view of foreign memory, never a copy.  Memory of a GPU is first handed over to the
  // stream GpuStream(): work that the stream gets afterwards may read and write it.
  //   strides  in elements, one per axis, any sign; empty means contiguous in C order; on a GPU
  //            only those of rows, in C order without holes, at one distance from each other
  //   owns     keeps `owner` until the last handle is destroyed and no GPU uses the memory any more
  //   throws   kInvalidArgument  a shape, strides or an address that describe no memory, memory
  //                              that is not the context's
  //            kUnimplemented    other strides on a GPU
  //            kFailedPrecondition  GpuStream() is captured into a graph
  //            and as CheckUsable
  static NDArray Wrap(void* data, const Shape& shape, DType dtype, Context context, bool read_only,
                      std::shared_ptr<const void> owner, std::span<const int64_t> strides = {});

  // Returns a contiguous view of a storage, from a byte on.
  //   throws  kInvalidArgument  beyond the memory, or not at a multiple of the size of an element
  static NDArray OfStorage(std::shared_ptr<Storage> storage, size_t begin_bytes, const Shape& shape,
                           DType dtype);

  explicit operator bool() const noexcept { return storage_ != nullptr; }
  const Shape& shape() const noexcept { return shape_; }
  DType dtype() const noexcept { return dtype_; }
  Context context() const noexcept { return context_; }
  int64_t size() const noexcept { return size_; }
  size_t bytes() const noexcept { return static_cast<size_t>(size_) * ItemSize(dtype_); }
  // An address in host or device memory.  Code that reads or writes elements itself uses HostData.
  void* data() const noexcept { return data_; }
  //   throws  kFailedPrecondition  the memory is not the host's
  void* HostData() const {
    storage_->CheckOfHost();
    return data_;
  }
  const std::shared_ptr<Storage>& storage() const noexcept { return storage_; }
  bool read_only() const noexcept { return storage_->read_only(); }
  bool contiguous() const noexcept { return strides_ == nullptr; }
  // Returns the elements between neighbours along each axis.
  Strides strides() const;

  // Return views that share the storage.
  //   throws  kOutOfRange, kInvalidArgument (rank 0, another number of elements, not contiguous)
  NDArray Slice(int64_t begin, int64_t end) const;  // rows [begin, end) of the first axis
  NDArray At(int64_t index) const;                  // row `index` without its axis
  NDArray Reshape(const Shape& shape) const;
  // Returns a view if the context has the same kind of memory, else a copy there.
  NDArray WithContext(Context context) const;

  // Returns a new contiguous array with the same elements.
  NDArray Copy() const;
  // Returns this array if it is contiguous, else a contiguous copy.
  NDArray Packed() const { return contiguous() ? *this : Copy(); }
  // Copies the elements of `source`, which has the same shape and dtype, into this array, on
  // whatever devices the two are.  A write on a device may still be running when the call returns.
  //   blocks  for operations that the host has to wait for first; if the target is on the host,
  //           until it is written
  void CopyFrom(const NDArray& source) const;

 private:
  // Members that calls with many small arrays read come first, so that they fit one or two cache
  // lines.
  std::shared_ptr<Storage> storage_;
  char* data_ = nullptr;  // of the first element
  int64_t size_ = 0;
  std::shared_ptr<const Strides> strides_;  // null: contiguous in C order
  Context context_;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

}  // namespace tkv
