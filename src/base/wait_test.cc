#include "base/wait.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace tkv {
namespace {

using Clock = std::chrono::steady_clock;

class WaitTest : public testing::Test {
 protected:
  bool Wait(Clock::duration longest, const std::function<void()>& interrupt) {
    return WaitUntil(&lock_, &changed_, Clock::now() + longest, interrupt, [&] { return is_so_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_lock<std::mutex> lock_{mutex_};
  bool is_so_ = false;
};

TEST_F(WaitTest, WhatHoldsAlreadyIsNotWaitedForEvenAfterTheDeadline) {
  is_so_ = true;
  EXPECT_TRUE(Wait(-std::chrono::seconds(1), {}));
}

TEST_F(WaitTest, ADeadlineThatHasPassedEndsTheWait) {
  EXPECT_FALSE(Wait(std::chrono::milliseconds(1), {}));
  EXPECT_TRUE(lock_.owns_lock());
}

TEST_F(WaitTest, AChangeEndsTheWaitLongBeforeTheDeadline) {
  std::thread other([&] {
    std::lock_guard lock(mutex_);
    is_so_ = true;
    changed_.notify_all();
  });
  EXPECT_TRUE(Wait(std::chrono::hours(1), {}));
  lock_.unlock();
  other.join();
}

TEST_F(WaitTest, TheInterruptRunsWithoutTheLockAndMayMakeTheChange) {
  const auto interrupt = [&] {
    std::unique_lock lock(mutex_, std::try_to_lock);
    ASSERT_TRUE(lock.owns_lock());
    is_so_ = true;
  };
  EXPECT_TRUE(Wait(std::chrono::hours(1), interrupt));
  EXPECT_TRUE(lock_.owns_lock());
}

TEST_F(WaitTest, WhatTheInterruptThrowsEndsTheWaitWithTheLockHeld) {
  const auto interrupt = [] { throw std::runtime_error("Ctrl-C"); };
  EXPECT_THROW(Wait(std::chrono::hours(1), interrupt), std::runtime_error);
  EXPECT_TRUE(lock_.owns_lock());
}

TEST_F(WaitTest, ARestIsNeverLongerThanWhatIsLeftOfTheWait) {
  std::chrono::nanoseconds longest{};
  int rests = 0;
  const bool in_time = WaitUntil(
      nullptr, Clock::now() + std::chrono::hours(1), {}, [&] { return rests == 3; },
      [&](std::chrono::nanoseconds rest) {
        longest = std::max(longest, rest);
        ++rests;
      });
  EXPECT_TRUE(in_time);
  EXPECT_LE(longest, kInterruptEvery);
}

}  // namespace
}  // namespace tkv
