#include "transport/socket/stall_clock.h"

#include <gtest/gtest.h>

namespace tkv {
namespace {

TEST(StallClock, RunsWhileNothingIsTaken) {
  StallClock clock;
  EXPECT_FALSE(clock.is_running());
  EXPECT_EQ(clock.Elapsed(SteadyNow()), 0);
  const int64_t before = SteadyNow();
  clock.Note(true, 0);
  const int64_t after = SteadyNow();
  clock.Note(true, 0);  // does not start it again
  ASSERT_TRUE(clock.is_running());
  EXPECT_GE(clock.Elapsed(after + 1000), 1000);
  EXPECT_LE(clock.Elapsed(after + 1000), after + 1000 - before);
  clock.Note(false, 0);
  EXPECT_FALSE(clock.is_running());
}

TEST(StallClock, StartsAgainWhenThePeerTakesSome) {
  StallClock clock;
  clock.Note(true, 1);
  const int64_t begin = SteadyNow();
  while (SteadyNow() <= begin) continue;
  const int64_t later = SteadyNow();
  clock.Note(true, 2);
  EXPECT_LE(clock.Elapsed(later), 0) << "it was started after this time";
}

}  // namespace
}  // namespace tkv
