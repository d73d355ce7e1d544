#include "dist/step_tracker.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dist/key_record.h"

namespace tkv {
namespace {

// Pushes keys, which are letters, and returns the pushes that began a step.
class StepTrackerTest : public ::testing::Test {
 protected:
  // Pushes the keys one by one with the number of their optimizer's step.
  void Push(const std::string& keys, uint32_t number) {
    for (const char name : keys) {
      const KeyRecord* const key = &records_[static_cast<size_t>(name - 'a')];
      if (steps_.PushNumbered({&key, 1}, number)) begun_ += Named(name, number);
    }
  }
  std::string TakeBegun() { return std::exchange(begun_, {}); }
  static std::string Named(char key, uint32_t number) {
    return std::string(1, key) + std::to_string(number) + " ";
  }

  StepTracker steps_;

 private:
  std::vector<KeyRecord> records_ = std::vector<KeyRecord>(6, KeyRecord{Key(KeyView(0)), "", {}});
  std::string begun_;
};

TEST_F(StepTrackerTest, TheFirstPushOfEachStepBeginsIt) {
  for (uint32_t step = 1; step <= 3; ++step) Push("abc", step);
  EXPECT_EQ(TakeBegun(), "a1 a2 a3 ");
}

TEST_F(StepTrackerTest, LayersThatAreFrozenInSomeStepsBeginNoneInTheMiddle) {
  Push("abc", 1);
  Push("bc", 2);
  Push("cab", 3);
  EXPECT_EQ(TakeBegun(), "a1 b2 c3 ");
}

TEST_F(StepTrackerTest, TwoOptimizersOfOneLoopBeginOneStepTogether) {
  for (uint32_t step = 1; step <= 3; ++step) {
    Push("ab", step);
    Push("cd", step);
  }
  EXPECT_EQ(TakeBegun(), "a1 a2 a3 ");
}

TEST_F(StepTrackerTest, AnOptimizerThatIsMadeLaterTakesOverAfterItsFirstStep) {
  for (uint32_t step = 1; step <= 60; ++step) Push("ab", step);
  TakeBegun();
  for (uint32_t step = 1; step <= 4; ++step) Push("cd", step);
  EXPECT_EQ(TakeBegun(), "c2 c3 c4 ");
}

TEST_F(StepTrackerTest, OneWhoseLayersChangeTakesOverWhenAStepBeginsWithAKeyOfBefore) {
  for (uint32_t step = 1; step <= 60; ++step) Push("ab", step);
  TakeBegun();
  Push("cd", 1);
  Push("ec", 2);  // e comes first: with c, the step is already under way
  EXPECT_EQ(TakeBegun(), "");
  Push("cd", 3);
  Push("dc", 4);
  EXPECT_EQ(TakeBegun(), "c3 d4 ");
}

TEST_F(StepTrackerTest, OptimizersMayTakeTurnsAgainAndAgain) {
  uint32_t first = 0;
  uint32_t second = 0;
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < 5; ++i) Push("ab", ++first);
    for (int i = 0; i < 3; ++i) Push("cd", ++second);
    const std::string begun = TakeBegun();
    EXPECT_NE(begun.find(Named('a', first)), std::string::npos) << begun;
    EXPECT_NE(begun.find(Named('c', second)), std::string::npos) << begun;
  }
}

TEST_F(StepTrackerTest, ARepeatedPushBeginsNoStep) {
  Push("ab", 1);
  Push("ab", 1);
  EXPECT_EQ(TakeBegun(), "a1 ");
}

TEST_F(StepTrackerTest, PushesWithoutNumbersAndWithThemMakeOneStep) {
  EXPECT_TRUE(steps_.PushPlain());
  Push("ab", 1);
  EXPECT_EQ(TakeBegun(), "");
  EXPECT_TRUE(steps_.PushPlain());
  Push("ab", 2);
  EXPECT_EQ(TakeBegun(), "");
}

TEST_F(StepTrackerTest, ALaterLifeGoesOnAfterTheStepsOfEarlierOnes) {
  steps_.ContinueAfter(7);
  Push("ab", 7);
  EXPECT_EQ(TakeBegun(), "");
  Push("ab", 8);
  EXPECT_EQ(TakeBegun(), "a8 ");
  steps_.Reset();
  Push("ab", 3);
  EXPECT_EQ(TakeBegun(), "a3 ");
}

}  // namespace
}  // namespace tkv
