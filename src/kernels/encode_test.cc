// Compares every encoding on every instruction set of this machine with the oracle and its
// promises.

#include "kernels/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace tkv::kernels {
namespace {

constexpr Encoding kTiled[] = {Encoding::kF16, Encoding::kBf16, Encoding::kInt8, Encoding::k2Bit,
                               Encoding::k1Bit};
// Counts around the words of 16 and 32 elements, the lanes of every target and the blocks of 1,024.
constexpr size_t kEncodedCounts[] = {0, 1, 5, 15, 16, 17, 31, 32, 33, 100, 1023, 1024, 1025, 5001};

class EncodingsOnEveryTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { ChosenTargets().Update(GetParam()); }
  void TearDown() override {
    int64_t all = 0;
    for (const int64_t target : HostTargets()) all |= target;
    ChosenTargets().Update(all);
  }
};

enum class Values : uint8_t { kOrdinary, kHard };

std::vector<float> Random(size_t count, Values values, std::mt19937_64& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kHard[] = {
      0.0F,     -0.0F,     kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
      3.4e38F,  -3.4e38F,  1e-45F,    -1e-45F,    1e-39F,
      65504.0F, 65519.99F, 65520.0F,  -65536.0F,  0.5F,
      -0.5F,    0x1p-24F,  0x1p-25F,  1e-37F};
  std::vector<float> out(count);
  for (float& value : out) {
    value =
        std::ldexp(static_cast<float>(random() % 4001) - 2000, static_cast<int>(random() % 9) - 14);
    if (values == Values::kHard && random() % 3 == 0) value = kHard[random() % std::size(kHard)];
  }
  return out;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;  // payloads are not promised
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

TEST_P(EncodingsOnEveryTarget, BytesAndResidualsEqualTheOracle) {
  std::mt19937_64 random(1);
  for (const Encoding encoding : kTiled) {
    for (const size_t count : kEncodedCounts) {
      for (const Values values : {Values::kOrdinary, Values::kHard}) {
        const Coding coding{encoding, 0.25F};
        const std::vector<float> gradient = Random(count, values, random);
        std::vector<float> residual = Random(count, Values::kOrdinary, random);
        std::vector<float> expected_residual = residual;
        std::vector<std::byte> bytes(EncodedBytes(encoding, count) + 1, std::byte{0xEE});
        std::vector<std::byte> expected(bytes);
        const size_t lost = Encode(coding, gradient.data(), residual.data(), bytes.data(), count);
        ASSERT_EQ(lost, reference::Encode(coding, gradient.data(), expected_residual.data(),
                                          expected.data(), count));
        ASSERT_TRUE(SameBits(residual, expected_residual))
            << static_cast<int>(encoding) << " count " << count;
        const bool has_nan =
            lost > 0 && (encoding == Encoding::kF16 || encoding == Encoding::kBf16);
        if (!has_nan) {
          ASSERT_EQ(bytes, expected) << static_cast<int>(encoding) << " " << count;
        }
        ASSERT_EQ(bytes.back(), std::byte{0xEE});
        for (const Into into : {Into::kWrite, Into::kAdd}) {
          std::vector<float> decoded = Random(count, Values::kOrdinary, random);
          std::vector<float> expected_decoded = decoded;
          Decode(coding, bytes.data(), decoded.data(), count, into);
          reference::Decode(coding, bytes.data(), expected_decoded.data(), count, into);
          ASSERT_TRUE(SameBits(decoded, expected_decoded)) << static_cast<int>(encoding);
        }
      }
    }
  }
}

TEST_P(EncodingsOnEveryTarget, AnyBytesCanBeRead) {
  std::mt19937_64 random(3);
  for (const Encoding encoding : kTiled) {
    const size_t count = 2100;
    std::vector<std::byte> bytes(EncodedBytes(encoding, count));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const Coding coding{encoding, 0.75F};
    std::vector<float> decoded(count), expected(count);
    Decode(coding, bytes.data(), decoded.data(), count, Into::kWrite);
    reference::Decode(coding, bytes.data(), expected.data(), count, Into::kWrite);
    EXPECT_TRUE(SameBits(decoded, expected)) << static_cast<int>(encoding);
  }
}

TEST_P(EncodingsOnEveryTarget, Float32IsReadAsItIs) {
  std::mt19937_64 random(6);
  for (const size_t count : kEncodedCounts) {
    const std::vector<float> source = Random(count, Values::kHard, random);
    ASSERT_EQ(EncodedBytes(Encoding::kF32, count), 4 * count);
    for (const Into into : {Into::kWrite, Into::kAdd}) {
      std::vector<float> decoded = Random(count, Values::kOrdinary, random);
      std::vector<float> expected = decoded;
      Decode({Encoding::kF32}, source.data(), decoded.data(), count, into);
      reference::Decode({Encoding::kF32}, source.data(), expected.data(), count, into);
      ASSERT_TRUE(SameBits(decoded, expected)) << count;
    }
  }
}

TEST_P(EncodingsOnEveryTarget, PartsThatBeginAtAMultipleOf1024AreReadByThemselves) {
  std::mt19937_64 random(4);
  const size_t count = 5000;
  for (const Encoding encoding : kTiled) {
    const Coding coding{encoding, 0.5F};
    const std::vector<float> gradient = Random(count, Values::kOrdinary, random);
    std::vector<float> residual(count), whole(count), part(count);
    std::vector<std::byte> bytes(EncodedBytes(encoding, count));
    Encode(coding, gradient.data(), residual.data(), bytes.data(), count);
    Decode(coding, bytes.data(), whole.data(), count, Into::kWrite);
    for (size_t at = 0; at < count; at += kEncodedElements) {
      Decode(coding, bytes.data() + EncodedBytes(encoding, at), part.data() + at,
             std::min<size_t>(kEncodedElements, count - at), Into::kWrite);
    }
    EXPECT_TRUE(SameBits(whole, part)) << static_cast<int>(encoding);
  }
}

// The vectors follow from the formulas of MXNet's gradient compression.
TEST_P(EncodingsOnEveryTarget, TwoBitsAndOneBitAreThoseOfMXNet) {
  const std::vector<float> gradient{0.5F, -0.5F, 0.25F, -0.75F, 1.25F};
  std::vector<float> residual(5);
  uint8_t bytes[4];
  Encode({Encoding::k2Bit, 0.5F}, gradient.data(), residual.data(), bytes, 5);
  EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + 4), (std::vector<uint8_t>{0xE2, 0xC0, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 0.25F, -0.25F, 0.75F}));
  Encode({Encoding::k2Bit, 0.5F}, gradient.data(), residual.data(), bytes, 5);
  EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + 4), (std::vector<uint8_t>{0xEE, 0xC0, 0, 0}));

  std::vector<float> other(5);
  Encode({Encoding::k1Bit, 0.3F}, gradient.data(), other.data(), bytes, 5);
  EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + 4), (std::vector<uint8_t>{0x88, 0, 0, 0}));
  EXPECT_EQ(other, (std::vector<float>{-0.5F, 0.5F, 1.25F, 0.25F, 0.25F}));
  const float below = -1;  // above the threshold, but padding bits are still 0
  Encode({Encoding::k1Bit, -2.0F}, &below, other.data(), bytes, 1);
  EXPECT_EQ(bytes[0], 0x80);
}

TEST_P(EncodingsOnEveryTarget, WhatIsSentAndTheResidualAreTheSumOfAllGradients) {
  std::mt19937_64 random(5);
  const size_t count = 1500;
  for (const Encoding encoding : kTiled) {
    const Coding coding{encoding, 0.5F};
    std::vector<double> given(count), sent(count), size(count);
    std::vector<float> residual(count), decoded(count);
    std::vector<std::byte> bytes(EncodedBytes(encoding, count));
    for (int push = 0; push < 300; ++push) {
      std::vector<float> gradient(count);
      for (size_t i = 0; i < count; ++i) {
        gradient[i] = static_cast<float>(random() % 2001) / 1000 - 1;
        given[i] += static_cast<double>(gradient[i]);
        size[i] += std::fabs(static_cast<double>(gradient[i]));
      }
      Encode(coding, gradient.data(), residual.data(), bytes.data(), count);
      Decode(coding, bytes.data(), decoded.data(), count, Into::kWrite);
      for (size_t i = 0; i < count; ++i) sent[i] += static_cast<double>(decoded[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(sent[i] + static_cast<double>(residual[i]), given[i], 1e-6 * size[i])
          << static_cast<int>(encoding) << " element " << i;
    }
  }
}

TEST_P(EncodingsOnEveryTarget, AGradientThatIsNotFiniteCountsAsNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Encoding encoding : {Encoding::kInt8, Encoding::k2Bit}) {
    std::vector<float> gradient(40, 0.0F), residual(40, 0.125F), decoded(40);
    gradient[3] = nan;
    gradient[38] = std::numeric_limits<float>::infinity();
    std::vector<std::byte> bytes(EncodedBytes(encoding, 40));
    const Coding coding{encoding, 0.5F};
    EXPECT_EQ(Encode(coding, gradient.data(), residual.data(), bytes.data(), 40), 2U);
    Decode(coding, bytes.data(), decoded.data(), 40, Into::kWrite);
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(decoded[i] + residual[i], 0.125F);
  }
}

// If the residual becomes much larger than an encoding can send at once, it ends at the largest
// float32.
TEST_P(EncodingsOnEveryTarget, ManyLargeFiniteGradientsStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const Encoding encoding : kTiled) {
    for (const size_t count : {4, 100}) {
      const Coding coding{encoding, 0.5F};
      std::vector<float> gradient(count, kMax), residual(count), decoded(count);
      for (size_t i = 0; i < count; i += 2) gradient[i] = -kMax;
      std::vector<float> expected_residual = residual;
      std::vector<std::byte> bytes(EncodedBytes(encoding, count)), expected(bytes);
      for (int push = 0; push < 4; ++push) {
        EXPECT_EQ(Encode(coding, gradient.data(), residual.data(), bytes.data(), count), 0U);
        reference::Encode(coding, gradient.data(), expected_residual.data(), expected.data(),
                          count);
        ASSERT_EQ(bytes, expected) << static_cast<int>(encoding);
        ASSERT_TRUE(SameBits(residual, expected_residual)) << static_cast<int>(encoding);
        Decode(coding, bytes.data(), decoded.data(), count, Into::kWrite);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_TRUE(std::isfinite(decoded[i]) && std::isfinite(residual[i]))
              << static_cast<int>(encoding) << ": push " << push;
          ASSERT_EQ(std::signbit(decoded[i]), i % 2 == 0) << static_cast<int>(encoding);
        }
      }
      EXPECT_EQ(AddToResidual(gradient.data(), residual.data(), count), 0U);
      for (const float rest : residual) ASSERT_TRUE(std::isfinite(rest));
    }
  }
}

TEST_P(EncodingsOnEveryTarget, TheLargestFiniteGradientsStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const Encoding encoding : kTiled) {
    const Coding coding{encoding, 0.5F};
    for (float largest = kMax; largest > 0.999F * kMax; largest *= 1 - 0x1p-14F) {
      const std::vector<float> gradient{largest, 1, -largest, kMax / 2};
      std::vector<float> residual(4), decoded(4), expected_residual(4), expected(4);
      std::vector<std::byte> bytes(EncodedBytes(encoding, 4));
      EXPECT_EQ(Encode(coding, gradient.data(), residual.data(), bytes.data(), 4), 0U);
      Decode(coding, bytes.data(), decoded.data(), 4, Into::kWrite);
      for (size_t i = 0; i < 4; ++i) {
        ASSERT_TRUE(std::isfinite(decoded[i]) && std::isfinite(residual[i]))
            << static_cast<int>(encoding) << ": " << gradient[i];
      }
      reference::Encode(coding, gradient.data(), expected_residual.data(), bytes.data(), 4);
      reference::Decode(coding, bytes.data(), expected.data(), 4, Into::kWrite);
      EXPECT_TRUE(SameBits(decoded, expected) && SameBits(residual, expected_residual));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EncodingsOnEveryTarget, testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace tkv::kernels
