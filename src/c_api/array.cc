// tkv_array_*.

#include "c_api/handles.h"
#include "c_api/values.h"
#include "tkv/dlpack.h"
#include "tkv/ops.h"

namespace tkv::c_api {
namespace {

static_assert(TKV_ADD == int(BinaryOp::kAdd) && TKV_SUB == int(BinaryOp::kSub) &&
              TKV_MUL == int(BinaryOp::kMul) && TKV_DIV == int(BinaryOp::kDiv) &&
              TKV_MIN == int(BinaryOp::kMin) && TKV_MAX == int(BinaryOp::kMax) &&
              TKV_LESS == int(BinaryOp::kLess) && TKV_LESS_EQUAL == int(BinaryOp::kLessEqual) &&
              TKV_GREATER == int(BinaryOp::kGreater) &&
              TKV_GREATER_EQUAL == int(BinaryOp::kGreaterEqual) &&
              TKV_EQUAL == int(BinaryOp::kEqual) && TKV_NOT_EQUAL == int(BinaryOp::kNotEqual) &&
              TKV_NOT_EQUAL + 1 == kBinaryOps);

BinaryOp OpOf(tkv_op number) {
  if (number >= 0 && number < kBinaryOps) return static_cast<BinaryOp>(number);
  throw Fail(Code::kInvalidArgument, "compute: op {}, 0 to {} are possible",
             static_cast<int>(number), kBinaryOps - 1);
}

// Returns a view of the caller's bytes with the shape and dtype of `like`.
NDArray Bytes(void* data, size_t bytes, const NDArray& like, bool read_only, const char* verb) {
  if (bytes != like.bytes()) {
    throw Fail(Code::kInvalidArgument, "{}: {} bytes, the array has {}", verb, bytes, like.bytes());
  }
  if (bytes > 0) CheckNotNull(data, verb, "the data");
  return NDArray::Wrap(data, like.shape(), like.dtype(), {}, read_only, nullptr);
}

// Returns a new array with a OP b.
NDArray Computed(BinaryOp op, const tkv_operands& operands) {
  const NDArray& a = ArrayOf(operands.a, "compute");
  if (operands.b != nullptr) {
    const NDArray& b = operands.b->core;
    return operands.reversed != 0 ? Binary(op, b, a) : Binary(op, a, b);
  }
  return operands.reversed != 0 ? Binary(op, operands.number, a) : Binary(op, a, operands.number);
}

void ComputeInto(BinaryOp op, const tkv_operands& operands, const NDArray& out) {
  const NDArray& a = ArrayOf(operands.a, "compute");
  if (operands.b == nullptr && operands.reversed != 0) {
    out.CopyFrom(Binary(op, operands.number, a));
  } else if (operands.b == nullptr) {
    BinaryInto(op, a, operands.number, out);
  } else if (operands.reversed != 0) {
    BinaryInto(op, operands.b->core, a, out);
  } else {
    BinaryInto(op, a, operands.b->core, out);
  }
}

// Makes a view or another array from an array.
template <typename Make>
tkv_code Derive(tkv_array* array, tkv_array** out, tkv_error** error, const char* verb, Make make) {
  return Give(out, error, verb, [&] { return make(ArrayOf(array, verb)); });
}

}  // namespace

}  // namespace tkv::c_api

using namespace tkv::c_api;
using tkv::NDArray;

tkv_array* tkv_array_retain(tkv_array* array) { return Retain(array); }
void tkv_array_release(tkv_array* array) { Release(array); }

tkv_code tkv_array_empty(const int64_t* shape, int32_t rank, tkv_dtype dtype, tkv_context context,
                         tkv_array** array, tkv_error** error) {
  return Give(array, error, "empty", [&] {
    return NDArray::Empty(ShapeOf(shape, rank, "empty"), DTypeOf(dtype, "empty"),
                          ContextOf(context, "empty"));
  });
}

tkv_code tkv_array_full(const int64_t* shape, int32_t rank, tkv_dtype dtype, tkv_context context,
                        double value, tkv_array** array, tkv_error** error) {
  return Give(array, error, "full", [&] {
    const tkv::Shape extents = ShapeOf(shape, rank, "full");
    const tkv::DType type = DTypeOf(dtype, "full");
    if (value == 0) return NDArray::Zeros(extents, type, ContextOf(context, "full"));
    NDArray full = NDArray::Empty(extents, type, ContextOf(context, "full"));
    tkv::Fill(full, value);
    return full;
  });
}

tkv_code tkv_array_from_bytes(const void* data, size_t bytes, const int64_t* shape, int32_t rank,
                              tkv_dtype dtype, tkv_context context, tkv_array** array,
                              tkv_error** error) {
  return Give(array, error, "from_bytes", [&] {
    const char* const verb = "from_bytes";
    NDArray made =
        NDArray::Empty(ShapeOf(shape, rank, verb), DTypeOf(dtype, verb), ContextOf(context, verb));
    made.CopyFrom(Bytes(const_cast<void*>(data), bytes, made, true, verb));
    return made;
  });
}

tkv_code tkv_array_wrap(void* data, const int64_t* shape, const int64_t* strides, int32_t rank,
                        tkv_dtype dtype, tkv_context context, int32_t read_only, void* owner,
                        tkv_free free, tkv_array** array, tkv_error** error) {
  const char* const verb = "wrap";
  return Try(error, [&] {
    CheckNotNull(array, verb, "the place for the result");
    const tkv::Shape extents = ShapeOf(shape, rank, verb);
    if (extents.size() > 0) CheckNotNull(data, verb, "the data");
    std::span<const int64_t> steps;
    if (strides != nullptr) steps = {strides, static_cast<size_t>(rank)};
    const auto memory = std::make_shared<UserContext>(owner);
    *array = new tkv_array(NDArray::Wrap(data, extents, DTypeOf(dtype, verb),
                                         ContextOf(context, verb), read_only != 0, memory, steps));
    memory->Keep(free);
  });
}

tkv_code tkv_array_from_dlpack(void* managed, tkv_array** array, tkv_error** error) {
  return Give(array, error, "from_dlpack", [&] {
    CheckNotNull(managed, "from_dlpack", "the tensor");
    return tkv::FromDLPack(static_cast<DLManagedTensorVersioned*>(managed));
  });
}
tkv_code tkv_array_to_dlpack(tkv_array* array, void** managed, tkv_error** error) {
  return Put(managed, error, "to_dlpack",
             [&] { return tkv::ToDLPackVersioned(ArrayOf(array, "to_dlpack")); });
}

int32_t tkv_array_rank(const tkv_array* array) {
  return array == nullptr ? -1 : array->core.shape().rank();
}
const int64_t* tkv_array_shape(const tkv_array* array) {
  return array == nullptr ? nullptr : array->core.shape().begin();
}
int64_t tkv_array_size(const tkv_array* array) { return array == nullptr ? 0 : array->core.size(); }
size_t tkv_array_bytes(const tkv_array* array) {
  return array == nullptr ? 0 : array->core.bytes();
}
tkv_dtype tkv_array_dtype(const tkv_array* array) {
  return array == nullptr ? TKV_F32 : static_cast<tkv_dtype>(array->core.dtype());
}
tkv_context tkv_array_context(const tkv_array* array) {
  return ToC(array == nullptr ? tkv::Context() : array->core.context());
}
int32_t tkv_array_is_contiguous(const tkv_array* array) {
  return array != nullptr && array->core.contiguous() ? 1 : 0;
}
int32_t tkv_array_is_read_only(const tkv_array* array) {
  return array != nullptr && array->core.read_only() ? 1 : 0;
}

tkv_code tkv_array_strides(const tkv_array* array, int64_t* strides, tkv_error** error) {
  return Try(error, [&] {
    const tkv::Strides steps = ArrayOf(array, "strides").strides();
    if (!steps.empty()) CheckNotNull(strides, "strides", "the place for the result");
    std::copy(steps.begin(), steps.end(), strides);
  });
}

tkv_code tkv_array_data(tkv_array* array, int32_t write, int64_t patience_ms, void** data,
                        tkv_error** error) {
  return Put(data, error, "data", [&] {
    const NDArray& core = ArrayOf(array, "data");
    const auto patience = Patience(patience_ms, "data");
    if (write != 0) tkv::CheckWritable(core, "data", "array");
    void* const address = core.HostData();
    if (write != 0) {
      core.storage()->WaitWritable(patience);
    } else {
      core.storage()->WaitReadable(patience);
    }
    return address;
  });
}

tkv_code tkv_wait_all(int64_t patience_ms, tkv_error** error) {
  return Try(error, [&] { tkv::WaitAll(Patience(patience_ms, "wait_all")); });
}

tkv_code tkv_array_read(tkv_array* array, void* data, size_t bytes, tkv_error** error) {
  return Try(error, [&] {
    const NDArray& core = ArrayOf(array, "read");
    Bytes(data, bytes, core, false, "read").CopyFrom(core);
  });
}
tkv_code tkv_array_write(tkv_array* array, const void* data, size_t bytes, tkv_error** error) {
  return Try(error, [&] {
    const NDArray& core = ArrayOf(array, "write");
    core.CopyFrom(Bytes(const_cast<void*>(data), bytes, core, true, "write"));
  });
}

tkv_code tkv_array_slice(tkv_array* array, int64_t begin, int64_t end, tkv_array** view,
                         tkv_error** error) {
  return Derive(array, view, error, "slice", [&](const NDArray& a) { return a.Slice(begin, end); });
}
tkv_code tkv_array_at(tkv_array* array, int64_t index, tkv_array** view, tkv_error** error) {
  return Derive(array, view, error, "at", [&](const NDArray& a) { return a.At(index); });
}
tkv_code tkv_array_reshape(tkv_array* array, const int64_t* shape, int32_t rank, tkv_array** view,
                           tkv_error** error) {
  return Derive(array, view, error, "reshape",
                [&](const NDArray& a) { return a.Reshape(ShapeOf(shape, rank, "reshape")); });
}
tkv_code tkv_array_with_context(tkv_array* array, tkv_context context, tkv_array** view,
                                tkv_error** error) {
  return Derive(array, view, error, "with_context", [&](const NDArray& a) {
    return a.WithContext(ContextOf(context, "with_context"));
  });
}
tkv_code tkv_array_copy(tkv_array* array, tkv_array** copy, tkv_error** error) {
  return Derive(array, copy, error, "copy", [](const NDArray& a) { return a.Copy(); });
}
tkv_code tkv_array_convert(tkv_array* array, tkv_dtype dtype, tkv_array** converted,
                           tkv_error** error) {
  return Derive(array, converted, error, "convert",
                [&](const NDArray& a) { return tkv::ConvertFloat(a, DTypeOf(dtype, "convert")); });
}
tkv_code tkv_array_copy_from(tkv_array* array, tkv_array* source, tkv_error** error) {
  return Try(error, [&] {
    ArrayOf(array, "copy_from").CopyFrom(Core(source, "copy_from", "the source"));
  });
}
tkv_code tkv_array_fill(tkv_array* array, double value, tkv_error** error) {
  return Try(error, [&] { tkv::Fill(ArrayOf(array, "fill"), value); });
}

tkv_code tkv_array_compute(tkv_op op, const tkv_operands* operands, tkv_array** result,
                           tkv_error** error) {
  return Try(error, [&] {
    const tkv_operands given = Read(operands, "compute", "tkv_operands");
    if (given.out != nullptr) return ComputeInto(OpOf(op), given, given.out->core);
    CheckNotNull(result, "compute", "the place for the result");
    *result = new tkv_array(Computed(OpOf(op), given));
  });
}
