#include "tkv/dlpack.h"

#include <array>
#include <cstdint>
#include <utility>

#include "base/format.h"
#include "tensor/device_copy.h"
#include "tensor/device_work.h"
#include "tensor/strided.h"

namespace tkv {
namespace {

constexpr std::array<DLDataType, 16> kDLTypes = {{{kDLFloat, 32, 1},
                                                  {kDLFloat, 64, 1},
                                                  {kDLFloat, 16, 1},
                                                  {kDLBfloat, 16, 1},
                                                  {kDLInt, 8, 1},
                                                  {kDLUInt, 8, 1},
                                                  {kDLInt, 16, 1},
                                                  {kDLInt, 32, 1},
                                                  {kDLInt, 64, 1},
                                                  {kDLBool, 8, 1},
                                                  {kDLFloat8_e4m3fn, 8, 1},
                                                  {kDLFloat8_e5m2, 8, 1},
                                                  {kDLUInt, 16, 1},
                                                  {kDLUInt, 32, 1},
                                                  {kDLUInt, 64, 1},
                                                  {kDLComplex, 64, 1}}};

// Returns "uint32", "complex64"; the numbers if DLPack's type has no common name.
std::string DescribeType(DLDataType type) {
  constexpr std::array<const char*, 7> kKinds = {"int",    "uint",    "float", "handle",
                                                 "bfloat", "complex", "bool"};
  const std::string lanes = type.lanes == 1 ? "" : Format(" x {}", type.lanes);
  if (type.code < kKinds.size()) return Format("{}{}{}", kKinds[type.code], type.bits, lanes);
  return Format("of DLPack code {} with {} bits{}", type.code, type.bits, lanes);
}

DType FromDLType(DLDataType type) {
  for (size_t i = 0; i < kDLTypes.size(); ++i) {
    if (kDLTypes[i].code == type.code && kDLTypes[i].bits == type.bits && type.lanes == 1) {
      return static_cast<DType>(i);
    }
  }
  throw Fail(Code::kInvalidArgument,
             "dtype {} is not supported; float16/32/64, bfloat16, float8_e4m3fn, float8_e5m2, "
             "int8/16/32/64, uint8/16/32/64, complex64 and bool are",
             DescribeType(type));
}

Context FromDLDevice(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return Context::Cpu(0);
    case kDLCUDA:
    case kDLCUDAManaged:
      return Context::Gpu(device.device_id);
    default:
      throw Fail(Code::kUnimplemented, "dlpack: device type {} is not supported; cpu and cuda are",
                 static_cast<int>(device.device_type));
  }
}

NDArray Import(const DLTensor& tensor, bool read_only, std::shared_ptr<const void> owner) {
  if (tensor.ndim < 0 || tensor.ndim > Shape::kRankMax || (tensor.ndim > 0 && !tensor.shape)) {
    throw Fail(Code::kInvalidArgument, "dlpack: rank {}, 0 to {} is possible", tensor.ndim,
               Shape::kRankMax);
  }
  const auto rank = static_cast<size_t>(tensor.ndim);
  const Shape shape(std::span<const int64_t>(tensor.shape, rank));
  std::span<const int64_t> strides;
  if (tensor.strides != nullptr) strides = {tensor.strides, rank};
  char* data = static_cast<char*>(tensor.data);
  if (data != nullptr) {
    if (tensor.byte_offset > UINTPTR_MAX - reinterpret_cast<uintptr_t>(data)) {
      throw Fail(Code::kInvalidArgument, "dlpack: a byte offset of {}, beyond all memory",
                 tensor.byte_offset);
    }
    data += tensor.byte_offset;
  }
  return NDArray::Wrap(data, shape, FromDLType(tensor.dtype), FromDLDevice(tensor.device),
                       read_only, std::move(owner), strides);
}

// Imports first and takes ownership last, so that a refused tensor still belongs to the caller.
template <typename Managed>
NDArray Consume(Managed* managed, bool read_only) {
  struct Owner {
    Managed* managed = nullptr;
    ~Owner() {
      if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
    }
  };
  auto owner = std::make_shared<Owner>();
  NDArray array = Import(managed->dl_tensor, read_only, owner);
  owner->managed = managed;
  return array;
}

template <typename Managed>
struct Exported {
  NDArray array;
  std::vector<int64_t> shape;
  Strides strides;
  Managed managed;
};

// Hands over the memory to a receiver that continues on that stream.
void ShareOnDevice(const NDArray& array, Access access, int64_t stream) {
  if (stream == 0 || stream < kNoStream) {
    throw Fail(Code::kInvalidArgument,
               "dlpack: stream {}; 1 is the legacy default stream, 2 that of each thread, a larger "
               "number a CUstream, and -1 none",
               stream);
  }
  Device& device = Device::Get(array.context().index);
  device.CheckUsable();
  if (stream == kNoStream) return array.storage()->ShareWithoutWaiting();
  Stream consumer(&device, static_cast<uint64_t>(stream));
  consumer.CheckNotCaptured();
  array.storage()->ShareWith(&consumer, access);
}

void Share(const NDArray& array, Access access, int64_t stream) {
  if (IsOfDevice(array)) return ShareOnDevice(array, access, stream);
  array.storage()->MarkForeign(access);
}

template <typename Managed>
Exported<Managed>* Describe(const NDArray& array) {
  auto* exported = new Exported<Managed>();
  exported->array = array;
  exported->shape.assign(array.shape().begin(), array.shape().end());
  exported->strides = array.strides();
  Managed& managed = exported->managed;
  managed.manager_ctx = exported;
  managed.deleter = [](Managed* self) {
    delete static_cast<Exported<Managed>*>(self->manager_ctx);
  };
  managed.dl_tensor = {.data = array.data(),
                       .device = ToDLDevice(array.context()),
                       .ndim = array.shape().rank(),
                       .dtype = kDLTypes[static_cast<size_t>(array.dtype())],
                       .shape = exported->shape.data(),
                       .strides = exported->strides.data(),
                       .byte_offset = 0};
  return exported;
}

}  // namespace

void CheckWritable(const NDArray& array, std::string_view verb, std::string_view name) {
  if (array.read_only()) throw Fail(Code::kInvalidArgument, "{}: the {} is read-only", verb, name);
  if (array.contiguous() || !HasSharedElements(array.shape(), array.strides().data())) return;
  throw Fail(Code::kInvalidArgument,
             "{}: more than one element of the {} refers to one memory location; give a contiguous "
             "array",
             verb, name);
}

DLDevice ToDLDevice(const Context& context) {
  if (context.kind == DeviceKind::kGpu) return {kDLCUDA, context.index};
  return {kDLCPU, 0};
}

NDArray FromDLPack(DLManagedTensorVersioned* managed) {
  if (managed == nullptr) throw Fail(Code::kInvalidArgument, "dlpack: no tensor");
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    throw Fail(Code::kInvalidArgument, "dlpack: version {}.{}, this build reads {}.x",
               managed->version.major, managed->version.minor, DLPACK_MAJOR_VERSION);
  }
  return Consume(managed, (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
}

NDArray FromDLPack(DLManagedTensor* managed, bool read_only) {
  if (managed == nullptr) throw Fail(Code::kInvalidArgument, "dlpack: no tensor");
  return Consume(managed, read_only);
}

namespace {

DLManagedTensorVersioned* DescribeVersioned(const NDArray& array, Access access) {
  auto* exported = Describe<DLManagedTensorVersioned>(array);
  // This struct needs version 1.1.  A higher number would make some readers refuse it needlessly.
  exported->managed.version = {1, 1};
  exported->managed.flags = access == Access::kRead ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return &exported->managed;
}

}  // namespace

DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array, int64_t stream) {
  const Access access = array.read_only() ? Access::kRead : Access::kWrite;
  Share(array, access, stream);
  return DescribeVersioned(array, access);
}

DLManagedTensorVersioned* LendByDLPack(const NDArray& array, Access access) {
  array.storage()->CheckOfHost();
  if (access == Access::kRead) {
    array.storage()->WaitReadable();
  } else {
    array.storage()->WaitWritable();
  }
  return DescribeVersioned(array, array.read_only() ? Access::kRead : access);
}

DLManagedTensor* ToDLPack(const NDArray& array, int64_t stream) {
  if (array.read_only()) {
    throw Fail(Code::kInvalidArgument,
               "dlpack: the array is read-only, which needs DLPack 1.0 or later");
  }
  Share(array, Access::kWrite, stream);
  return &Describe<DLManagedTensor>(array)->managed;
}

}  // namespace tkv
