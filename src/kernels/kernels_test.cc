// Compares every kernel on every instruction set of this machine with the oracle and with the
// others.

#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cpu/dispatch.h"
#include "kernels/half.h"
#include "kernels/operation.h"
#include "kernels/reference/reference.h"
#include "kernels/targets.h"

namespace tkv::kernels {
namespace {

constexpr DType kArithmetic[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                                 DType::kU8,  DType::kI16, DType::kI32, DType::kI64};
constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
// Counts 0, 1, around the lanes of every target, odd, and above one block of the many-source path.
constexpr size_t kCounts[] = {0,  1,  3,  7,  8,  9,  15,  16,   17,
                              31, 33, 48, 63, 64, 65, 200, 2048, 5001};

class OnEveryTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { ChosenTargets().Update(GetParam()); }
  void TearDown() override {
    int64_t all = 0;
    for (const int64_t target : HostTargets()) all |= target;
    ChosenTargets().Update(all);
  }
};

// Bytes of random elements that starts `skew` elements past an aligned address.
class Buffer {
 public:
  Buffer(DType dtype, size_t count, size_t skew)
      : memory_((count + skew + 16) * ItemSize(dtype) + 64), skew_(skew * ItemSize(dtype)) {}
  void* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64 + skew_;
  }

 private:
  std::vector<char> memory_;
  size_t skew_;
};

void FillRandom(DType dtype, void* data, size_t count, std::mt19937_64& random) {
  for (size_t i = 0; i < count; ++i) {
    const double value =
        std::ldexp(static_cast<double>(random() % 4001) - 2000, static_cast<int>(random() % 9) - 6);
    switch (dtype) {
      case DType::kF32:
        static_cast<float*>(data)[i] = static_cast<float>(value * 1.1);
        break;
      case DType::kF64:
        static_cast<double*>(data)[i] = value * 1.1;
        break;
      case DType::kF16:
        static_cast<uint16_t*>(data)[i] = F16FromF32(static_cast<float>(value));
        break;
      case DType::kBF16:
        static_cast<uint16_t*>(data)[i] = BF16FromF32(static_cast<float>(value));
        break;
      default: {
        const uint64_t bits = random();
        std::memcpy(static_cast<char*>(data) + i * ItemSize(dtype), &bits, ItemSize(dtype));
      }
    }
  }
}

TEST_P(OnEveryTarget, SumEqualsTheOracleBitForBit) {
  std::mt19937_64 random(1);
  for (DType dtype : kArithmetic) {
    for (size_t n : {1, 2, 3, 4, 5, 7, 8, 9, 17}) {
      for (size_t count : kCounts) {
        std::vector<Buffer> inputs;
        std::vector<const void*> sources;
        for (size_t k = 0; k < n; ++k) {
          inputs.emplace_back(dtype, count, k % 3);
        }
        for (Buffer& input : inputs) {
          FillRandom(dtype, input.data(), count, random);
          sources.push_back(input.data());
        }
        const DType wide = ComputeType(dtype);
        Buffer expected(wide, count, 0);
        reference::Sum(dtype, sources, expected.data(), count);
        for (Write write : {Write::kCached, Write::kStreaming}) {
          Buffer actual(wide, count, 1);
          Sum(dtype, sources, actual.data(), count, write);
          ASSERT_EQ(std::memcmp(actual.data(), expected.data(), count * ItemSize(wide)), 0)
              << Name(dtype) << " n=" << n << " count=" << count;
        }
      }
    }
  }
}

TEST_P(OnEveryTarget, ReduceSumEqualsTheOracleBitForBit) {
  std::mt19937_64 random(7);
  for (DType dtype : {DType::kF32, DType::kF64}) {
    for (size_t count : kCounts) {
      for (size_t skew : {0, 1, 5}) {
        Buffer array(dtype, count, skew);
        FillRandom(dtype, array.data(), count, random);
        const double sum = ReduceSum(dtype, array.data(), count);
        EXPECT_EQ(sum, reference::ReduceSum(dtype, array.data(), count)) << count;
        EXPECT_EQ(sum == 0, count == 0) << count;
      }
    }
  }
}

// A sum in f32 would lose the small elements.
TEST_P(OnEveryTarget, ReduceSumAddsInF64) {
  std::vector<float> array(4097, 1);
  array[0] = std::ldexp(1.0F, 30);
  EXPECT_EQ(ReduceSum(DType::kF32, array.data(), array.size()), std::ldexp(1.0, 30) + 4096);
}

TEST_P(OnEveryTarget, CopyMovesEveryByteAndNoMore) {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{1000}, size_t{70001}}) {
    for (size_t skew : {0, 1, 63}) {
      for (Write write : {Write::kCached, Write::kStreaming}) {
        std::vector<uint8_t> source(bytes);
        for (size_t i = 0; i < bytes; ++i) source[i] = static_cast<uint8_t>(i * 7);
        std::vector<uint8_t> target(skew + bytes + 1, 0xEE);
        Copy(source.data(), target.data() + skew, bytes, write);
        EXPECT_TRUE(
            std::equal(source.begin(), source.end(), target.begin() + static_cast<long>(skew)));
        EXPECT_EQ(target.back(), 0xEE);
        for (size_t i = 0; i < skew; ++i) ASSERT_EQ(target[i], 0xEE);
      }
    }
  }
}

bool SameFloat(DType dtype, const void* a, const void* b, size_t i) {
  const size_t item = ItemSize(dtype);
  if (std::memcmp(static_cast<const char*>(a) + i * item, static_cast<const char*>(b) + i * item,
                  item) == 0)
    return true;
  double wide[2];
  reference::Convert(dtype, static_cast<const char*>(a) + i * item, DType::kF64, &wide[0], 1);
  reference::Convert(dtype, static_cast<const char*>(b) + i * item, DType::kF64, &wide[1], 1);
  return std::isnan(wide[0]) && std::isnan(wide[1]);  // payloads are not promised
}

// Every 16-bit pattern as a source; all exponents, ties and specials as f32 and f64 sources.
std::vector<double> HardValues() {
  std::vector<double> values = {
      0.0,    -0.0,  INFINITY, -INFINITY, NAN,     65504,   65519.99,  65520,   65536,      3.4e38,
      3.5e38, 1e-45, 5e-324,   1e308,     0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-14, 0x1.ffcp-15};
  std::mt19937_64 random(2);
  for (int exponent = -160; exponent <= 130; ++exponent) {
    for (int i = 0; i < 40; ++i) {
      // Short fractions hit the ties of every format; one extra low bit breaks them.
      const double fraction = 1 + static_cast<double>(random() % 4096) / 4096;
      const double nudge = i % 3 == 0 ? 0 : std::ldexp(i % 3 == 1 ? 1.0 : -1.0, -40);
      values.push_back((i % 2 == 0 ? 1 : -1) * std::ldexp(fraction + nudge, exponent));
    }
  }
  return values;
}

TEST_P(OnEveryTarget, ConversionsRoundOnceToNearestEven) {
  const std::vector<double> hard = HardValues();
  for (DType from : kFloats) {
    const bool half = ItemSize(from) == 2;
    const size_t count = half ? 65536 : hard.size();
    std::vector<char> source(count * ItemSize(from));
    for (size_t i = 0; i < count; ++i) {
      if (half) {
        reinterpret_cast<uint16_t*>(source.data())[i] = static_cast<uint16_t>(i);
      } else if (from == DType::kF32) {
        reinterpret_cast<float*>(source.data())[i] = static_cast<float>(hard[i]);
      } else {
        reinterpret_cast<double*>(source.data())[i] = hard[i];
      }
    }
    for (DType to : kFloats) {
      std::vector<char> actual(count * ItemSize(to));
      std::vector<char> expected(count * ItemSize(to));
      Convert(from, source.data(), to, actual.data(), count);
      reference::Convert(from, source.data(), to, expected.data(), count);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(SameFloat(to, actual.data(), expected.data(), i))
            << Name(from) << " to " << Name(to) << " element " << i;
      }
    }
  }
}

TEST_P(OnEveryTarget, FusedOptimizersEqualTheOracleBitForBit) {
  std::mt19937_64 random(3);
  const std::vector<double> scalars = {0.5, 3.0, 0.01, 0.1, 0.9, 0.1, 0.999, 0.001, 1e-8, 0.03};
  for (DType dtype : {DType::kF32, DType::kF64}) {
    for (Fused kind :
         {Fused::kSgd, Fused::kMomentum, Fused::kAdam, Fused::kAdamW, Fused::kAdaGrad}) {
      for (size_t count : kCounts) {
        Buffer grad(dtype, count, 1), value(dtype, count, 0), first(dtype, count, 2),
            second(dtype, count, 0);
        FillRandom(dtype, grad.data(), count, random);
        FillRandom(dtype, value.data(), count, random);
        std::memset(first.data(), 0, count * ItemSize(dtype));
        std::memset(second.data(), 0, count * ItemSize(dtype));
        Buffer value2 = value, first2 = first, second2 = second;
        std::memcpy(value2.data(), value.data(), count * ItemSize(dtype));
        std::memset(first2.data(), 0, count * ItemSize(dtype));
        std::memset(second2.data(), 0, count * ItemSize(dtype));
        void* states[] = {first.data(), second.data()};
        void* states2[] = {first2.data(), second2.data()};
        for (int round = 0; round < 3; ++round) {
          UpdateFused(kind, dtype, scalars, grad.data(), value.data(), states, count);
          reference::UpdateFused(kind, dtype, scalars, grad.data(), value2.data(), states2, count);
        }
        ASSERT_EQ(std::memcmp(value.data(), value2.data(), count * ItemSize(dtype)), 0);
        ASSERT_EQ(std::memcmp(first.data(), first2.data(), count * ItemSize(dtype)), 0);
        ASSERT_EQ(std::memcmp(second.data(), second2.data(), count * ItemSize(dtype)), 0);
      }
    }
  }
}

TEST_P(OnEveryTarget, ANanGradientIsNotClippedAway) {
  float grad[3] = {NAN, 100, -100};
  float value[3] = {1, 1, 1};
  UpdateFused(Fused::kSgd, DType::kF32, std::vector<double>{1, 2, 0, 1}, grad, value, nullptr, 3);
  EXPECT_TRUE(std::isnan(value[0]));
  EXPECT_EQ(value[1], -1);
  EXPECT_EQ(value[2], 3);
}

TEST_P(OnEveryTarget, OperationsAgreeWithTheirDefinition) {
  const float a[5] = {1, -2, 0.5F, NAN, 8};
  const float b[5] = {2, -3, 0.5F, 1, NAN};
  float out[5];
  ResolveOp(Op::kMin, DType::kF32, 0)(a, b, nullptr, out, 5);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[3], 1) << "a NaN in a goes";
  EXPECT_TRUE(std::isnan(out[4])) << "a NaN in b stays";
  ResolveOp(Op::kDiv, DType::kF32, 2)(a, b, nullptr, out, 5);
  EXPECT_EQ(out[4], 4);
  ResolveOp(Op::kLess, DType::kF32, 1)(a, b, nullptr, out, 5);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[4], 0);
  ResolveOp(Op::kSign, DType::kF32, 0)(a, nullptr, nullptr, out, 5);
  EXPECT_EQ(out[1], -1);
  EXPECT_TRUE(std::isnan(out[3])) << "a NaN stays";
  const int8_t small[2] = {127, -128};
  int8_t wrapped[2];
  ResolveOp(Op::kAdd, DType::kI8, 0)(small, small, nullptr, wrapped, 2);
  EXPECT_EQ(wrapped[0], -2);
  EXPECT_EQ(wrapped[1], 0);
  const int64_t big[1] = {std::numeric_limits<int64_t>::min()};
  int64_t result[1];
  ResolveOp(Op::kAbs, DType::kI64, 0)(big, nullptr, nullptr, result, 1);
  EXPECT_EQ(result[0], big[0]);
  EXPECT_EQ(ResolveOp(Op::kDiv, DType::kI32, 0), nullptr);
  EXPECT_EQ(ResolveOp(Op::kAdd, DType::kBool, 0), nullptr);
  EXPECT_EQ(ResolveOp(Op::kAdd, DType::kF32, 3), nullptr);
  EXPECT_EQ(ResolveOp(Op::kPow, DType::kF32, 0), nullptr);
}

// The results must have the same bits on each target, in place and not, for every operation, type
// and mask.
TEST_P(OnEveryTarget, OperationsAreTheSameOnEveryTargetAndInPlace) {
  std::mt19937_64 random(4);
  constexpr size_t kCount = 77;
  for (DType dtype : kArithmetic) {
    if (ComputeType(dtype) != dtype) continue;
    Buffer a(dtype, kCount, 1), b(dtype, kCount, 0), c(dtype, kCount, 2);
    for (Buffer* buffer : {&a, &b, &c}) FillRandom(dtype, buffer->data(), kCount, random);
    for (int op = 0; op < kOpCount; ++op) {
      for (ScalarMask mask = 0; mask < 7; ++mask) {
        ChosenTargets().Update(GetParam());
        const OpFunction run = ResolveOp(static_cast<Op>(op), dtype, mask);
        if (run == nullptr) continue;
        Buffer out(dtype, kCount, 0), baseline(dtype, kCount, 0), inplace(dtype, kCount, 1);
        run(a.data(), b.data(), c.data(), out.data(), kCount);
        std::memcpy(inplace.data(), a.data(), kCount * ItemSize(dtype));
        run(inplace.data(), b.data(), c.data(), inplace.data(), kCount);
        ChosenTargets().Update(HWY_STATIC_TARGET);
        ResolveOp(static_cast<Op>(op), dtype, mask)(a.data(), b.data(), c.data(), baseline.data(),
                                                    kCount);
        ASSERT_EQ(std::memcmp(out.data(), baseline.data(), kCount * ItemSize(dtype)), 0)
            << op << Name(dtype);
        if ((mask & 1) == 0) {
          ASSERT_EQ(std::memcmp(out.data(), inplace.data(), kCount * ItemSize(dtype)), 0)
              << op << Name(dtype);
        }
      }
    }
  }
}

TEST(Targets, TheBestOneOfThisProcessorRuns) {
  EXPECT_EQ(ActiveTarget(), hwy::TargetName(HostTargets().front()));
  const int64_t other = HostTargets().back();
  ChosenTargets().Update(other);
  EXPECT_EQ(ActiveTarget(), hwy::TargetName(other));
  ChosenTargets().Update(HostTargets().front());
}

INSTANTIATE_TEST_SUITE_P(Targets, OnEveryTarget, testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace tkv::kernels
