#include "tkv/ops.h"

#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tensor/device_copy.h"
#include "tensor/float8.h"
#include "tensor/strided.h"
#include "tkv/dlpack.h"
#include "update/evaluator.h"
#include "update/gpu_arrays.h"
#include "update/op_names.h"
#include "update/parallel.h"

namespace tkv {
namespace {

using kernels::Op;

constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(600);
constexpr size_t kParallelElements = size_t{64} << 10;
constexpr size_t kGrainTiles = 16;

// Row i belongs to the BinaryOp with value i.
constexpr std::pair<BinaryOp, Op> kBinary[] = {
    {BinaryOp::kAdd, Op::kAdd},         {BinaryOp::kSub, Op::kSub},
    {BinaryOp::kMul, Op::kMul},         {BinaryOp::kDiv, Op::kDiv},
    {BinaryOp::kMin, Op::kMin},         {BinaryOp::kMax, Op::kMax},
    {BinaryOp::kLess, Op::kLess},       {BinaryOp::kLessEqual, Op::kLessEqual},
    {BinaryOp::kGreater, Op::kGreater}, {BinaryOp::kGreaterEqual, Op::kGreaterEqual},
    {BinaryOp::kEqual, Op::kEqual},     {BinaryOp::kNotEqual, Op::kNotEqual}};
constexpr std::pair<UnaryOp, Op> kUnary[] = {{UnaryOp::kNeg, Op::kNeg},
                                             {UnaryOp::kAbs, Op::kAbs},
                                             {UnaryOp::kSqrt, Op::kSqrt},
                                             {UnaryOp::kSign, Op::kSign}};

consteval bool HasAllInOrder(const auto& rows, int count) {
  for (size_t i = 0; i < std::size(rows); ++i) {
    if (static_cast<size_t>(rows[i].first) != i) return false;
  }
  return std::size(rows) == static_cast<size_t>(count);
}
static_assert(HasAllInOrder(kBinary, kBinaryOps) && HasAllInOrder(kUnary, kUnaryOps));

Op ToOp(BinaryOp op) { return kBinary[static_cast<size_t>(op)].second; }
Op ToOp(UnaryOp op) { return kUnary[static_cast<size_t>(op)].second; }

void CheckAlike(const NDArray& a, const NDArray& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    throw Fail(Code::kInvalidArgument, "arithmetic: {} {} with {} {}", Name(a.dtype()),
               a.shape().ToString(), Name(b.dtype()), b.shape().ToString());
  }
  if (a.storage()->memory() != b.storage()->memory()) {
    throw Fail(Code::kInvalidArgument,
               "arithmetic: an array on {} with one on {}; copy one of them: as_in_context",
               a.context().ToString(), b.context().ToString());
  }
}

// Returns the elements of a tile in the compute type: in place, or converted into `wide`.
const void* Widened(const NDArray& array, size_t begin, size_t count, float* wide) {
  const DType dtype = array.dtype();
  const auto* source = static_cast<const std::byte*>(array.HostData()) + begin * ItemSize(dtype);
  if (ComputeType(dtype) == dtype) return source;
  kernels::Convert(dtype, source, DType::kF32, wide, count);
  return wide;
}

void RunRange(const TileCode& code, const void* scalars, std::span<const NDArray> inputs,
              const NDArray& out, size_t begin, size_t end) {
  alignas(64) float wide[3][kTileElements];
  const DType dtype = out.dtype();
  for (size_t at = begin; at < end; at += kTileElements) {
    const size_t count = std::min(kTileElements, end - at);
    const void* operands[2] = {};
    for (size_t i = 0; i < inputs.size(); ++i) operands[i] = Widened(inputs[i], at, count, wide[i]);
    auto* target = static_cast<std::byte*>(out.HostData()) + at * ItemSize(dtype);
    void* result = ComputeType(dtype) == dtype ? static_cast<void*>(target) : wide[2];
    RunTile(code, scalars, operands, &result, nullptr, count);
    if (result == wide[2]) kernels::Convert(DType::kF32, result, dtype, target, count);
  }
}

NDArray Like(const NDArray& array) {
  return NDArray::Empty(array.shape(), array.dtype(), array.context());
}

void RunOnDevice(Op op, kernels::ScalarMask mask, std::span<const std::byte> scalar,
                 std::span<const NDArray> inputs, const NDArray& out) {
  const NDArray target = out.contiguous() ? out : Like(out);
  std::array<NDArray, 2> packed;
  for (size_t i = 0; i < inputs.size(); ++i) packed[i] = inputs[i].Packed();
  ApplyOnDevice(op, mask, scalar, std::span(packed).first(inputs.size()), target);
  if (!out.contiguous()) out.CopyFrom(target);
}

// Computes out = op(inputs, scalar).  All arrays have one shape and dtype.
void Run(Op op, kernels::ScalarMask mask, double scalar, std::span<const NDArray> inputs,
         const NDArray& out) {
  const TileCode code = CompileOne(op, out.dtype(), mask);
  std::vector<std::byte> scalars;
  if (mask != 0) scalars = RoundScalars({&scalar, 1}, code.compute);
  for (const NDArray& input : inputs) CheckAlike(input, out);
  CheckWritable(out, "arithmetic", "output");
  if (IsOfDevice(out)) return RunOnDevice(op, mask, scalars, inputs, out);
  for (const NDArray& input : inputs) input.storage()->WaitReadable(kPatience);
  out.storage()->WaitWritable(kPatience);
  const NDArray target =
      out.contiguous() ? out : NDArray::Empty(out.shape(), out.dtype(), out.context());
  std::array<NDArray, 2> packed;
  for (size_t i = 0; i < inputs.size(); ++i) packed[i] = PackedBeside(inputs[i], target);
  const auto count = static_cast<size_t>(out.size());
  const int threads = count >= kParallelElements ? ThreadsFor(0) : 1;
  const size_t tiles = (count + kTileElements - 1) / kTileElements;
  ParallelFor(threads, tiles, kGrainTiles, [&](size_t, size_t begin, size_t end) {
    RunRange(code, scalars.data(), std::span(packed).first(inputs.size()), target,
             begin * kTileElements, std::min(count, end * kTileElements));
  });
  if (!out.contiguous()) out.CopyFrom(target);
}

}  // namespace

std::string_view Name(BinaryOp op) { return Name(ToOp(op)); }
std::string_view Name(UnaryOp op) { return Name(ToOp(op)); }

NDArray Binary(BinaryOp op, const NDArray& a, const NDArray& b) {
  CheckAlike(a, b);
  const NDArray out = Like(a);
  Run(ToOp(op), 0, 0, std::array{a, b}, out);
  return out;
}

NDArray Binary(BinaryOp op, const NDArray& a, double b) {
  const NDArray out = Like(a);
  Run(ToOp(op), 2, b, std::array{a}, out);
  return out;
}

NDArray Binary(BinaryOp op, double a, const NDArray& b) {
  const NDArray out = Like(b);
  Run(ToOp(op), 1, a, std::array{b}, out);
  return out;
}

NDArray Unary(UnaryOp op, const NDArray& a) {
  const NDArray out = Like(a);
  Run(ToOp(op), 0, 0, std::array{a}, out);
  return out;
}

void BinaryInto(BinaryOp op, const NDArray& a, const NDArray& b, const NDArray& out) {
  Run(ToOp(op), 0, 0, std::array{a, b}, out);
}

void BinaryInto(BinaryOp op, const NDArray& a, double b, const NDArray& out) {
  Run(ToOp(op), 2, b, std::array{a}, out);
}

namespace {

// Sets every element to the same bytes.
void FillBytes(const NDArray& array, const std::byte* one) {
  const NDArray target = array.contiguous() ? array : Like(array);
  if (IsOfDevice(array)) {
    FillOnDevice(target, one);
    if (!array.contiguous()) array.CopyFrom(target);
    return;
  }
  array.storage()->WaitWritable(kPatience);
  const size_t item = ItemSize(array.dtype());
  auto* data = static_cast<std::byte*>(target.HostData());
  const size_t bytes = target.bytes();
  if (bytes > 0) std::memcpy(data, one, item);
  for (size_t filled = item; filled < bytes;
       filled *= 2) {  // doubles the filled part; the last copy may be shorter
    std::memcpy(data + filled, data, std::min(filled, bytes - filled));
  }
  if (!array.contiguous()) array.CopyFrom(target);
}

const Float8Format* Float8Of(DType dtype) {
  if (dtype == DType::kF8E4M3FN) return &kE4M3FN;
  return dtype == DType::kF8E5M2 ? &kE5M2 : nullptr;
}

}  // namespace

void FillInteger(const NDArray& array, int64_t value) {
  if (array.dtype() != DType::kI64) return Fill(array, static_cast<double>(value));
  CheckWritable(array, "fill", "array");
  std::byte one[sizeof value];
  std::memcpy(one, &value, sizeof value);
  FillBytes(array, one);
}

void Fill(const NDArray& array, double value) {
  CheckWritable(array, "fill", "array");
  const DType dtype = array.dtype();
  std::vector<std::byte> one(8);
  if (dtype == DType::kBool) {
    one[0] = static_cast<std::byte>(value != 0);
  } else if (const Float8Format* const format = Float8Of(dtype)) {
    one[0] = static_cast<std::byte>(ToFloat8(value, *format));
  } else if (dtype == DType::kC64) {
    const auto real = static_cast<float>(value);
    std::memcpy(one.data(), &real, sizeof real);
  } else {
    const DType compute = IsFloat(dtype) ? DType::kF64 : dtype;
    one = RoundScalars({&value, 1}, compute);
    if (IsFloat(dtype)) {
      std::vector<std::byte> narrow(8);
      kernels::Convert(DType::kF64, one.data(), dtype, narrow.data(), 1);
      one = narrow;
    }
  }
  FillBytes(array, one.data());
}

namespace {

// Converts between dense arrays of one shape, at least one of them of an 8-bit float.  The
// conversion passes through a dtype that holds all values of both.
void ConvertFloat8(const NDArray& from, const NDArray& to) {
  const auto count = static_cast<size_t>(from.size());
  if (const Float8Format* const format = Float8Of(from.dtype())) {
    const auto* const bits = static_cast<const uint8_t*>(from.HostData());
    std::vector<float> wide(count);
    for (size_t i = 0; i < count; ++i) wide[i] = FromFloat8(bits[i], *format);
    const NDArray exact = NDArray::FromBytes(wide.data(), from.shape(), DType::kF32);
    if (Float8Of(to.dtype()) != nullptr) return ConvertFloat8(exact, to);
    kernels::Convert(DType::kF32, exact.HostData(), to.dtype(), to.HostData(), count);
    return;
  }
  std::vector<double> wide(count);
  kernels::Convert(from.dtype(), from.HostData(), DType::kF64, wide.data(), count);
  auto* const bits = static_cast<uint8_t*>(to.HostData());
  const Float8Format& format = *Float8Of(to.dtype());
  for (size_t i = 0; i < count; ++i) bits[i] = ToFloat8(wide[i], format);
}

}  // namespace

NDArray ConvertFloat(const NDArray& array, DType dtype) {
  const bool has_float8 = Float8Of(array.dtype()) != nullptr || Float8Of(dtype) != nullptr;
  const auto converts = [](DType type) { return IsFloat(type) || Float8Of(type) != nullptr; };
  if (!converts(array.dtype()) || !converts(dtype)) {
    throw Fail(Code::kInvalidArgument, "convert: {} to {}, both must be floats",
               Name(array.dtype()), Name(dtype));
  }
  if (IsOfDevice(array) && has_float8) {  // no kernel supports 8-bit floats
    return ConvertFloat(array.WithContext({}), dtype).WithContext(array.context());
  }
  const NDArray out = NDArray::Empty(array.shape(), dtype, array.context());
  if (IsOfDevice(array)) {
    ConvertOnDevice(array.Packed(), out);
    return out;
  }
  array.storage()->WaitReadable(kPatience);
  const NDArray packed = array.Packed();
  if (has_float8) {
    ConvertFloat8(packed, out);
  } else {
    kernels::Convert(array.dtype(), packed.HostData(), dtype, out.HostData(),
                     static_cast<size_t>(array.size()));
  }
  return out;
}

}  // namespace tkv
