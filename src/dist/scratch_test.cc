#include "dist/scratch.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"

namespace tkv {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(Scratch, WhatIsFreeIsTakenAgain) {
  Scratch scratch;
  const void* first = nullptr;
  {
    const NDArray array = scratch.Take(3 * kMiB);
    EXPECT_EQ(array.bytes(), 3 * kMiB);
    first = array.HostData();
    const NDArray other = scratch.Take(3 * kMiB);
    EXPECT_NE(other.HostData(), first);
  }
  EXPECT_EQ(scratch.Take(3 * kMiB - 5).HostData(), first);
  EXPECT_EQ(scratch.kept_bytes(), 6 * kMiB);
  EXPECT_NE(scratch.Take(kMiB).HostData(), nullptr);
}

TEST(Scratch, NobodySharesAnArrayAndLittleIsKept) {
  Random random(1);
  Scratch scratch;
  std::vector<std::pair<NDArray, unsigned char>> taken;
  for (int step = 0; step < 500; ++step) {
    if (taken.size() > 6 || (random.Chance(0.5) && !taken.empty())) {
      const size_t which = random.Next() % taken.size();
      const auto& [array, mark] = taken[which];
      const auto* const data = static_cast<const unsigned char*>(array.HostData());
      for (size_t i = 0; i < array.bytes(); i += 4096) ASSERT_EQ(data[i], mark);
      taken.erase(taken.begin() + static_cast<ptrdiff_t>(which));
      continue;
    }
    const size_t bytes = 1 + random.Next() % (40 * kMiB);
    const auto mark = static_cast<unsigned char>(step);
    const NDArray array = scratch.Take(bytes);
    ASSERT_EQ(array.bytes(), bytes);
    auto* const data = static_cast<unsigned char*>(array.HostData());
    for (size_t i = 0; i < bytes; i += 4096) data[i] = mark;
    taken.emplace_back(array, mark);
    ASSERT_LE(scratch.kept_bytes(), 128 * kMiB);
  }
}

}  // namespace
}  // namespace tkv
