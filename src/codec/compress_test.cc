#include "codec/compress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tkv/error.h"
#include "wire/message.h"

namespace tkv::codec {
namespace {

std::string ErrorOf(const Compression& compression) {
  Compressions compressions;
  try {
    compressions.Set(compression, "*");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(compressions.For("w").encoding, Encoding::kDense) << "nothing has changed";
    return error.what();
  }
  return "";
}

TEST(Compressions, TheLastOneThatMatchesAKeyCounts) {
  Compressions compressions;
  EXPECT_EQ(compressions.For("w").encoding, Encoding::kDense);
  compressions.Set({.type = "2bit", .threshold = 0.25}, "*");
  compressions.Set({.type = "topk", .ratio = 0.5}, "conv?.weight");
  compressions.Set({.type = "none"}, "*.bias");
  compressions.Set({.type = "int8"}, "7");
  EXPECT_EQ(compressions.For("fc").encoding, Encoding::k2Bit);
  EXPECT_EQ(compressions.For("fc").threshold, 0.25F);
  EXPECT_EQ(compressions.For("conv1.weight").encoding, Encoding::kTopK);
  EXPECT_EQ(compressions.For("conv1.bias").encoding, Encoding::kDense);
  EXPECT_EQ(compressions.For(7).encoding, Encoding::kInt8);
  EXPECT_EQ(compressions.For(8).encoding, Encoding::k2Bit);
  compressions.Set({.type = "none"}, "*");
  EXPECT_EQ(compressions.For(7).encoding, Encoding::kDense);
}

TEST(Compressions, AKeyWithANulIsMatchedAsAWhole) {
  Compressions compressions;
  compressions.Set({.type = "2bit"}, "a");
  compressions.Set({.type = "int8"}, std::string("b\0?", 3));
  EXPECT_EQ(compressions.For(std::string_view("a\0b", 3)).encoding, Encoding::kDense);
  EXPECT_EQ(compressions.For(std::string_view("b\0b", 3)).encoding, Encoding::kInt8);
  EXPECT_EQ(compressions.For("b").encoding, Encoding::kDense);
}

TEST(Compressor, TheLargestPartOfTopKIsOneThatAServerTakes) {
  const Compressor all{Encoding::kTopK, 0, 1};
  EXPECT_EQ(all.Most(1000), 1000U);
  // Elements of the largest value of one chunk.
  const size_t largest = kPartBytesMax / sizeof(float);
  EXPECT_LE(all.Most(largest) * 8, kPartBytesMax);
}

TEST(Compressions, WhatCannotBeIsAnErrorThatSaysSo) {
  EXPECT_EQ(
      ErrorOf({.type = "2bits"}),
      "set_gradient_compression: no type '2bits', did you mean '2bit'?; there are none, fp16, "
      "bf16, int8, 2bit, 1bit, topk");
  for (const double wrong : {0.0, -0.5, std::nan(""), 1e39, 1e-50}) {
    EXPECT_NE(ErrorOf({.type = "2bit", .threshold = wrong}).find("above 0"), std::string::npos);
  }
  EXPECT_EQ(ErrorOf({.type = "1bit", .threshold = -3}), "");
  EXPECT_NE(ErrorOf({.type = "1bit", .threshold = std::nan("")}), "");
  for (const double wrong : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_NE(ErrorOf({.type = "topk", .ratio = wrong}).find("at most 1"), std::string::npos);
  }
}

TEST(EncodeRange, SumsTheArraysInTheirOrder) {
  const size_t count = 5000;
  std::vector<float> a(count), b(count), residual(count), decoded(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<float>(i % 7);
    b[i] = static_cast<float>(i % 5) - 2;
  }
  const void* arrays[] = {a.data(), b.data()};
  std::vector<std::byte> bytes(kernels::EncodedBytes(Encoding::kF16, count));
  EncodeRange({Encoding::kF16}, {DType::kF32, arrays}, 0, 2048, residual.data(), bytes.data());
  EncodeRange({Encoding::kF16}, {DType::kF32, arrays}, 2048, count, residual.data(),
              bytes.data() + 2 * 2048);
  kernels::Decode({Encoding::kF16}, bytes.data(), decoded.data(), count, kernels::Into::kWrite);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(decoded[i], a[i] + b[i]) << i;
}

struct Taken {
  std::vector<uint32_t> positions;
  std::vector<float> values;
};

Taken Take(std::vector<float>* residual, size_t most) {
  std::vector<std::byte> bytes(8 * most);
  const size_t taken = TakeLargest(residual->data(), residual->size(), most, bytes.data());
  Taken out{std::vector<uint32_t>(taken), std::vector<float>(taken)};
  if (taken == 0) return out;
  std::memcpy(out.positions.data(), bytes.data(), 4 * taken);
  std::memcpy(out.values.data(), bytes.data() + 4 * taken, 4 * taken);
  return out;
}

TEST(TakeLargest, TakesTheFirstOfEqualOnesAndNoZeros) {
  std::vector<float> residual{0, -3, 2, 3, 0, 3, -2, 1e-40F};
  const Taken taken = Take(&residual, 2);
  EXPECT_EQ(taken.positions, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(taken.values, (std::vector<float>{-3, 3}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 2, 0, 0, 3, -2, 1e-40F}));
  EXPECT_EQ(Take(&residual, 8).positions, (std::vector<uint32_t>{2, 5, 6, 7}));
  EXPECT_TRUE(Take(&residual, 8).positions.empty());
  EXPECT_TRUE(Take(&residual, 0).positions.empty());
}

TEST(TakeLargest, EqualsASortOfRandomResiduals) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t count = 1 + random() % 3000;
    const size_t most = 1 + random() % count;
    std::vector<float> residual(count);
    for (float& value : residual) {
      value = std::ldexp(static_cast<float>(random() % 15) - 7, static_cast<int>(random() % 8) - 4);
    }
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t i, uint32_t j) {
      return std::fabs(residual[i]) > std::fabs(residual[j]);
    });
    order.resize(most);
    std::erase_if(order, [&](uint32_t i) { return residual[i] == 0; });
    std::sort(order.begin(), order.end());
    ASSERT_EQ(Take(&residual, most).positions, order) << trial;
  }
}

}  // namespace
}  // namespace tkv::codec
