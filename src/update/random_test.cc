#include "update/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace tkv {
namespace {

// The vectors are from kat_vectors of Random123.
TEST(Random, PhiloxHasTheKnownVectors) {
  using Words = std::array<uint32_t, 4>;
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

std::vector<double> Drawn(const DrawPosition& place, size_t count, const Draw& draw = {0, 1, 0}) {
  std::vector<double> numbers(count);
  DrawNormals(DType::kF64, place, draw, numbers.data(), count);
  return numbers;
}

// The moments of n independent normals are within five of their standard errors.
TEST(Random, TheNumbersHaveTheMomentsOfANormal) {
  constexpr size_t kCount = 1 << 20;
  const std::vector<double> x = Drawn({StreamOf("w"), 0}, kCount, {0, 3, 0});
  const double expected[] = {0, 1, 0, 3, 0, 15};
  const double variance[] = {1, 2, 15, 96, 945, 10170};  // variance of x^k
  for (int k = 1; k <= 6; ++k) {
    double sum = 0;
    for (const double one : x) sum += std::pow(one, k);
    EXPECT_NEAR(sum / kCount, expected[k - 1], 5 * std::sqrt(variance[k - 1] / kCount)) << k;
  }
  double neighbours = 0;
  for (size_t i = 0; i + 1 < kCount; ++i) neighbours += x[i] * x[i + 1];
  EXPECT_NEAR(neighbours / kCount, 0, 5 / std::sqrt(kCount));
  size_t beyond_two = 0;
  for (const double one : x) beyond_two += std::fabs(one) > 2 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(beyond_two) / kCount, 0.0455003, 5 * std::sqrt(0.0435 / kCount));
}

TEST(Random, AnElementHasItsNumberInAnyCut) {
  const uint64_t stream = StreamOf(7);
  const std::vector<double> whole = Drawn({stream, 0}, 100);
  for (const uint64_t begin : {1, 2, 33}) {
    const std::vector<double> part = Drawn({stream, begin}, 20);
    for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[begin + i]);
  }
  std::vector<float> narrow(100);
  DrawNormals(DType::kF32, {stream, 0}, {0, 1, 0}, narrow.data(), 100);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(narrow[i], static_cast<float>(whole[i]));
}

TEST(Random, AnotherKeyRoundSeedOrDrawHasOtherNumbers) {
  const std::set<double> first = {
      Drawn({StreamOf(7), 0}, 1)[0],           Drawn({StreamOf(8), 0}, 1)[0],
      Drawn({StreamOf("7"), 0}, 1)[0],         Drawn({StreamOf(7), 0}, 1, {0, 2, 0})[0],
      Drawn({StreamOf(7), 2}, 1)[0],           Drawn({StreamOf(7), 0}, 1, {1, 1, 0})[0],
      Drawn({StreamOf(7), 0}, 1, {0, 1, 1})[0]};
  EXPECT_EQ(first.size(), 7U);
}

}  // namespace
}  // namespace tkv
