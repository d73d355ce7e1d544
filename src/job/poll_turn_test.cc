#include "job/poll_turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "job/steady_time.h"

namespace tkv {
namespace {

constexpr Time kLate = kNever / 2;

TEST(PollTurn, OneCallerHasIt) {
  PollTurn turn([] {});
  EXPECT_TRUE(turn.BeginCaller(kLate));
  EXPECT_TRUE(turn.is_callers());
  EXPECT_FALSE(turn.BeginCaller(kLate));
  turn.EndCaller(false);
  EXPECT_FALSE(turn.is_callers());
  EXPECT_TRUE(turn.BeginCaller(kLate));
  turn.EndCaller(false);
}

TEST(PollTurn, ACallerAwaitsTheEndOfTheOwnTurnAndEndsItsSleep) {
  std::atomic<bool> is_woken = false;
  std::atomic<bool> has_ended = false;
  PollTurn turn([&] { is_woken = true; });
  ASSERT_TRUE(turn.BeginOwn());
  std::thread own([&] {
    while (!is_woken) std::this_thread::yield();
    has_ended = true;
    turn.EndOwn();
  });
  EXPECT_TRUE(turn.BeginCaller(kLate));
  EXPECT_TRUE(has_ended);
  own.join();
  turn.EndCaller(false);
}

TEST(PollTurn, TheOwnThreadRestsBehindACallerUnlessThereIsWork) {
  PollTurn turn([] {});
  for (const bool is_busy : {false, true}) {
    ASSERT_TRUE(turn.BeginCaller(kLate));
    const Time begin = SteadyTime();
    turn.EndCaller(is_busy);
    ASSERT_TRUE(turn.BeginOwn());
    // Without work the rest has 2 ms.  With work there is none, however slow the machine is.
    if (!is_busy) {
      EXPECT_GE(SteadyTime() - begin, 2 * kMillisecond);
    }
    turn.EndOwn();
  }
}

TEST(PollTurn, NobodyRestsWhileAnotherCallerWaits) {
  PollTurn turn([] {});
  ASSERT_TRUE(turn.BeginCaller(kLate));
  ASSERT_FALSE(turn.BeginCaller(SteadyTime() + kSecond));
  turn.EndCaller(false);
  turn.EndRest();  // there is none to end
  ASSERT_TRUE(turn.BeginOwn());
  turn.EndOwn();
}

TEST(PollTurn, AStopEndsEveryWait) {
  PollTurn turn([] {});
  ASSERT_TRUE(turn.BeginCaller(kLate));
  std::atomic<bool> has_begun = true;
  std::thread own([&] { has_begun = turn.BeginOwn(); });
  std::thread stopping([&] { turn.AwaitCaller(); });
  turn.Stop();
  own.join();
  EXPECT_FALSE(has_begun);
  EXPECT_TRUE(turn.stopped());
  turn.EndCaller(true);
  stopping.join();
  EXPECT_FALSE(turn.BeginCaller(kLate));
  EXPECT_FALSE(turn.BeginOwn());
}

}  // namespace
}  // namespace tkv
