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

// A sparse key has as many states as a dense one: the protocol treats buckets as chunks, and an
// empty part as a part.
TEST(ExplorationTest, AKeyByRowsHasTheStatesOfADenseKey) {
  const ExplorationReport dense = Explore("PPL");
  for (const char* const scope : {"PPL-rows", "PPL-rows-admit"}) {
    const ExplorationReport rows = Explore(scope);
    EXPECT_TRUE(rows.passed) << rows.violation;
    EXPECT_EQ(rows.states, dense.states);
    EXPECT_EQ(rows.transitions, dense.transitions);
  }
}

}  // namespace
}  // namespace tkv::testing
