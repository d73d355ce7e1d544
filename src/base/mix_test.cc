// The disk and the wire hold rows in the order of their mixes, and in buckets of them: every
// version must compute the same mixes.

#include "base/mix.h"

#include <gtest/gtest.h>

namespace tkv {
namespace {

struct MixCase {
  uint64_t id, mix;
  uint32_t of_8, of_4096;  // buckets
};

// Computed by another program, after the paper.
constexpr MixCase kCases[] = {
    {0, 0, 0, 0},
    {1, 0x5692161D100B05E5, 2, 1385},
    {2, 0xDBD238973A2B148A, 6, 3517},
    {3, 0x1E535EEDE31428F0, 0, 485},
    {1000, 0xC1936642EBA4EAD7, 6, 3097},
    {uint64_t{1} << 32, 0xD820B7E910B0F93F, 6, 3458},
    {(uint64_t{1} << 53) + 1, 0x709CF374E67C56AA, 3, 1801},
    {INT64_MAX, 0x5A682AFE7965DEBD, 2, 1446},
    {UINT64_MAX, 0xB4D055FCF2CBBD7B, 5, 2893},
};

TEST(Mix, OfAnIdIsTheSameInEveryVersion) {
  for (const MixCase& c : kCases) {
    EXPECT_EQ(Mix(c.id), c.mix) << c.id;
    EXPECT_EQ(Unmix(c.mix), c.id);
  }
}

TEST(Mix, IsInTheSameBucketInEveryVersion) {
  for (const MixCase& c : kCases) {
    EXPECT_EQ(BucketOf(c.mix, 1), 0u);
    EXPECT_EQ(BucketOf(c.mix, 8), c.of_8) << c.id;
    EXPECT_EQ(BucketOf(c.mix, 4096), c.of_4096) << c.id;
  }
  EXPECT_EQ(BucketOf(UINT64_MAX, UINT32_MAX), UINT32_MAX - 1);
}

}  // namespace
}  // namespace tkv
