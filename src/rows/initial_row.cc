#include "rows/initial_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"
#include "kernels/kernels.h"
#include "tkv/ndarray.h"
#include "tkv/ops.h"
#include "update/random.h"

namespace tkv {
namespace {

using Kind = RowInitializer::Kind;

constexpr double kLargestNormal = 9;  // no draw of DrawNormals is larger: sqrt(-2 log 2^-53) is 8.6
constexpr size_t kPart = 256;         // elements drawn at a time; even, as draws come in pairs

// Returns a number in [0, 1) made of 53 bits of two words.
double Unit(uint32_t low, uint32_t high) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// Returns true if the number, rounded to a float dtype, is finite.
bool IsHeld(DType dtype, double number) {
  double held = 0;
  alignas(double) std::byte rounded[sizeof(double)];
  kernels::Convert(DType::kF64, &number, dtype, rounded, 1);
  kernels::Convert(dtype, rounded, DType::kF64, &held, 1);
  return std::isfinite(held);
}

void Check(DType dtype, const RowInitializer& initializer) {
  if (initializer.kind == Kind::kConstant) {
    if (!std::isfinite(initializer.a) || !std::isfinite(initializer.b)) {
      throw Fail(Code::kInvalidArgument,
                 "the initializer is the constant {}, a finite one is needed", initializer.a);
    }
    if (IsFloat(dtype) && !IsHeld(dtype, initializer.a)) {
      throw Fail(Code::kInvalidArgument,
                 "the initializer is the constant {}, which is infinite as {}; a smaller one is "
                 "needed",
                 initializer.a, Name(dtype));
    }
    return;
  }
  if (!IsFloat(dtype)) {
    throw Fail(Code::kInvalidArgument, "the initializer draws, {} rows begin as a constant",
               Name(dtype));
  }
  const double a = initializer.a, b = initializer.b;
  if (initializer.kind == Kind::kUniform && (!(a <= b) || !std::isfinite(b - a))) {
    throw Fail(Code::kInvalidArgument,
               "the initializer is uniform from {} to {}, two finite ascending ends are needed", a,
               b);
  }
  if (initializer.kind == Kind::kNormal && (!(b >= 0) || !std::isfinite(a) || !std::isfinite(b))) {
    throw Fail(
        Code::kInvalidArgument,
        "the initializer is normal with mean {} and deviation {}, finite ones are needed, and "
        "a deviation of 0 at least",
        a, b);
  }
  const double reach = initializer.kind == Kind::kNormal ? std::abs(a) + kLargestNormal * b : 0;
  if (IsHeld(dtype, a) && IsHeld(dtype, b) && IsHeld(dtype, reach)) return;
  throw Fail(
      Code::kInvalidArgument,
      "the initializer draws numbers up to {:.3g}, some of which are infinite as {}; smaller "
      "ones are needed",
      std::max({std::abs(a), std::abs(b), reach}), Name(dtype));
}

}  // namespace

InitialRow::InitialRow(DType dtype, size_t elements, const RowInitializer& initializer)
    : dtype_(dtype), elements_(elements), initializer_(initializer) {
  Check(dtype, initializer);
  if (initializer.kind != Kind::kConstant || std::bit_cast<uint64_t>(initializer.a) == 0) return;
  const NDArray one = NDArray::Empty({1}, dtype);
  Fill(one, initializer.a);
  const size_t item = ItemSize(dtype);
  std::vector<std::byte> row(elements * item);
  for (size_t i = 0; i < elements; ++i) std::memcpy(row.data() + i * item, one.data(), item);
  constant_ = std::make_shared<const std::vector<std::byte>>(std::move(row));
}

void InitialRow::Write(uint64_t id, void* out) const noexcept {
  auto* const row = static_cast<std::byte*>(out);
  switch (initializer_.kind) {
    case Kind::kConstant:
      if (elements_ == 0) return;
      if (constant_ == nullptr) {
        std::memset(row, 0, elements_ * ItemSize(dtype_));
      } else {
        std::memcpy(row, constant_->data(), constant_->size());
      }
      return;
    case Kind::kUniform:
      return WriteUniform(id, row);
    case Kind::kNormal:
      return WriteNormal(id, row);
  }
}

void InitialRow::WriteUniform(uint64_t id, std::byte* out) const noexcept {
  const double low = initializer_.a, width = initializer_.b - initializer_.a;
  const uint64_t seed = initializer_.seed;
  std::array<double, kPart> drawn;
  for (size_t begin = 0; begin < elements_; begin += kPart) {
    const size_t count = std::min(kPart, elements_ - begin);
    for (size_t i = 0; i < count; i += 2) {
      const uint64_t pair = (begin + i) / 2;
      const auto words = Philox({static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                                 static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32)},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      drawn[i] = low + width * Unit(words[0], words[1]);
      drawn[i + 1] = low + width * Unit(words[2], words[3]);
    }
    kernels::Convert(DType::kF64, drawn.data(), dtype_, out + begin * ItemSize(dtype_), count);
  }
}

// The id replaces the number of updates in the counter, so that each row has a stream of its own.
void InitialRow::WriteNormal(uint64_t id, std::byte* out) const noexcept {
  std::array<double, kPart> drawn;
  for (size_t begin = 0; begin < elements_; begin += kPart) {
    const size_t count = std::min(kPart, elements_ - begin);
    DrawNormals(DType::kF64, {Mix(initializer_.seed), begin},
                {.seed = 0, .count = std::bit_cast<double>(id), .number = 0}, drawn.data(), count);
    for (size_t i = 0; i < count; ++i) drawn[i] = initializer_.a + initializer_.b * drawn[i];
    kernels::Convert(DType::kF64, drawn.data(), dtype_, out + begin * ItemSize(dtype_), count);
  }
}

}  // namespace tkv
