#include "metrics/counters.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace tkv {
namespace {

TEST(Waits, ACurrentWaitIsCountedWithItsTimeWhenItEnds) {
  WaitCounts counts;
  CurrentWait wait;
  wait.For(WaitCause::kCredit, 100, &counts);
  wait.For(WaitCause::kCredit, 200, &counts);  // the same wait continues
  EXPECT_EQ(counts.of(WaitCause::kCredit).count, 0u);
  wait.For(WaitCause::kWindow, 350, &counts);
  wait.ForNothing(400, &counts);
  wait.ForNothing(900, &counts);
  EXPECT_EQ(counts.of(WaitCause::kCredit).count, 1u);
  EXPECT_EQ(counts.of(WaitCause::kCredit).nanoseconds, 250);
  EXPECT_EQ(counts.of(WaitCause::kWindow).count, 1u);
  EXPECT_EQ(counts.of(WaitCause::kWindow).nanoseconds, 50);
}

TEST(Waits, CountsOfAStateMachineAndOfCallsAreAdded) {
  WaitCounts counts;
  counts.of(WaitCause::kRound).Add(2'000'000'000);
  SharedWaitCounts shared;
  shared.Add(WaitCause::kRound, 500'000'000);
  StoreStats stats;
  counts.AddTo(&stats);
  shared.AddTo(&stats);
  EXPECT_EQ(stats.of(WaitCause::kRound).count, 2u);
  EXPECT_DOUBLE_EQ(stats.of(WaitCause::kRound).seconds, 2.5);
}

TEST(Names, AreOnePerCauseAndPerVerb) {
  std::set<std::string_view> causes, verbs;
  for (size_t i = 0; i < kWaitCauses; ++i) causes.insert(Name(static_cast<WaitCause>(i)));
  for (size_t i = 0; i < kVerbs; ++i) verbs.insert(Name(static_cast<Verb>(i)));
  EXPECT_EQ(causes.size(), kWaitCauses);
  EXPECT_EQ(verbs.size(), kVerbs);
  EXPECT_EQ(Name(WaitCause::kPullBytes), "pull_bytes");
  EXPECT_EQ(Name(Verb::kSetOptimizer), "set_optimizer");
}

TEST(Keys, TheHundredWithTheMostBytesAreToldAndAllAreSummed) {
  std::vector<KeyStats> keys;
  for (int i = 0; i < 150; ++i) {
    KeyStats key{Key(KeyView(i))};
    key.rounds = 1;
    key.bytes.pushed_bytes = static_cast<uint64_t>(i % 10 == 0 ? 1000 + i : i);
    keys.push_back(std::move(key));
  }
  StoreStats stats;
  const KeyStats deleted{Key(KeyView("gone")), 7, {0, 10'000, 0}};
  AddKeys(std::move(keys), deleted, &stats);
  EXPECT_EQ(stats.key_count, 150u);
  EXPECT_EQ(stats.rounds, 157u);
  ASSERT_EQ(stats.keys.size(), StoreStats::kKeysMax);
  EXPECT_EQ(stats.keys[0].key.number(), 140);
  EXPECT_EQ(stats.keys[14].key.number(), 0);
  EXPECT_EQ(stats.keys[15].key.number(), 149);
  uint64_t sum = 0;
  for (int i = 0; i < 150; ++i) sum += static_cast<uint64_t>(i % 10 == 0 ? 1000 + i : i);
  EXPECT_EQ(stats.bytes.pushed_bytes, sum + 10'000);
}

}  // namespace
}  // namespace tkv
