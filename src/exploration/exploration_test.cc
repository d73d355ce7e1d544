#include <gtest/gtest.h>

#include "tkv/exploration.h"

namespace tkv::testing {
namespace {

TEST(ExplorationTest, EveryOrderOfTwoPushpullsKeepsEveryGuarantee) {
  const ExplorationReport report = Explore("XX");
  EXPECT_TRUE(report.passed) << report.violation;
  EXPECT_GT(report.states, 1000u);
  EXPECT_GT(report.ends, 0u);
}

TEST(ExplorationTest, TheSameScopeHasTheSameStates) {
  const ExplorationReport first = Explore("PPL");
  const ExplorationReport second = Explore("PPL");
  EXPECT_EQ(first.states, second.states);
  EXPECT_EQ(first.transitions, second.transitions);
  EXPECT_EQ(first.depth, second.depth);
}

}  // namespace
}  // namespace tkv::testing
