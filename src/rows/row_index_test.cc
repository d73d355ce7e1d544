// Tests the mixing of ids, and compares the index of rows with std::map.

#include "rows/row_index.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "tests/arrays.h"

namespace tkv {
namespace {

using IndexTruth = std::map<uint64_t, uint64_t>;

std::vector<std::pair<uint64_t, uint64_t>> From(const RowIndex& index, uint64_t first) {
  std::vector<std::pair<uint64_t, uint64_t>> found;
  index.ForEach(first, [&](uint64_t mix, uint64_t place) {
    found.emplace_back(mix, place);
    return true;
  });
  return found;
}

void ExpectSame(const RowIndex& index, const IndexTruth& truth, uint64_t first = 0) {
  const std::vector<std::pair<uint64_t, uint64_t>> wanted(truth.lower_bound(first), truth.end());
  EXPECT_EQ(From(index, first), wanted);
}

TEST(Mix, HasAnInverse) {
  Random random(1);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t id = i < 1000 ? static_cast<uint64_t>(i) : random.Next();
    ASSERT_EQ(Unmix(Mix(id)), id);
    ASSERT_EQ(Mix(Unmix(id)), id);
  }
}

TEST(Mix, BucketsAreAscendingPartsOfAboutOneSize) {
  Random random(2);
  for (const uint32_t buckets : {1U, 3U, 8U, 1000U}) {
    EXPECT_EQ(BucketOf(0, buckets), 0);
    EXPECT_EQ(BucketOf(UINT64_MAX, buckets), buckets - 1);
    std::vector<int> counts(buckets);
    for (int i = 0; i < 100'000; ++i) {
      const uint64_t mix = random.Next();
      ++counts[BucketOf(mix, buckets)];
      ASSERT_LE(BucketOf(mix, buckets), BucketOf(mix | 0xFFFF, buckets));
    }
    for (const int count : counts) EXPECT_NEAR(count, 100'000.0 / buckets, 60'000.0 / buckets);
  }
}

TEST(RowIndex, FindsWhatWasInsertedAndNothingElse) {
  Random random(3);
  RowIndex index;
  IndexTruth truth;
  for (uint64_t i = 0; i < 300'000; ++i) {
    const uint64_t mix = i < 3 ? UINT64_MAX - i : random.Next();
    ASSERT_EQ(index.Insert(mix, i), truth.emplace(mix, i).first->second);
  }
  EXPECT_EQ(index.Insert(truth.begin()->first, 7), truth.begin()->second) << "it was there";
  EXPECT_EQ(index.size(), truth.size());
  for (const auto& [mix, place] : truth) ASSERT_EQ(index.Find(mix), place);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t mix = random.Next();
    ASSERT_EQ(index.Find(mix) != RowIndex::kNowhere, truth.contains(mix));
  }
  ExpectSame(index, truth);
  for (int i = 0; i < 20; ++i) ExpectSame(index, truth, random.Next());
}

TEST(RowIndex, IsAsStdMapIsUnderRandomProgramsOfAFewBuckets) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const auto buckets = static_cast<uint32_t>(random.Between(1, 5));
    const auto bucket = static_cast<uint32_t>(random.Between(0, buckets - 1));
    RowIndex index(buckets);
    IndexTruth truth;
    std::vector<uint64_t> used;
    for (int i = 0; i < 20'000; ++i) {
      const bool again = !used.empty() && random.Chance(0.4);
      const uint64_t mix = again ? used[random.Next() % used.size()] : random.Next();
      if (BucketOf(mix, buckets) != bucket) continue;
      if (random.Chance(0.35)) {
        const auto found = truth.find(mix);
        ASSERT_EQ(index.Erase(mix), found == truth.end() ? RowIndex::kNowhere : found->second);
        truth.erase(mix);
      } else {
        used.push_back(mix);
        const auto place = static_cast<uint64_t>(i);
        ASSERT_EQ(index.Insert(mix, place), truth.emplace(mix, place).first->second);
      }
      ASSERT_EQ(index.size(), truth.size());
    }
    for (const uint64_t mix : used) {
      const auto found = truth.find(mix);
      ASSERT_EQ(index.Find(mix), found == truth.end() ? RowIndex::kNowhere : found->second);
    }
    ExpectSame(index, truth);
    ExpectSame(index, truth, used[used.size() / 2]);
  }
}

TEST(RowIndex, ACopyKeepsItsContentsWhileTheOtherChanges) {
  Random random(4);
  RowIndex index;
  IndexTruth truth;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t mix = random.Next();
    index.Insert(mix, i);
    truth.emplace(mix, i);
  }
  const RowIndex copy = index;
  IndexTruth changed = truth;
  for (const auto& [mix, place] : truth) {
    if (place % 2 == 0) {
      index.Erase(mix);
      changed.erase(mix);
    }
  }
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t mix = random.Next();
    index.Insert(mix, i);
    changed.emplace(mix, i);
  }
  ExpectSame(copy, truth);
  ExpectSame(index, changed);
}

// A hostile client may choose ids whose mixes begin alike.
TEST(RowIndex, MixesThatBeginAlikeAreRefusedBeforeMemoryIs) {
  RowIndex index;
  uint64_t count = 0;
  const auto failure = test::FailureOf([&] {
    for (; count < 1'000'000; ++count) index.Insert(count, count);
  });
  EXPECT_EQ(failure.code, Code::kResourceExhausted);
  EXPECT_GT(count, 500);
  EXPECT_LT(index.memory_bytes(), size_t{64} << 20);
  EXPECT_EQ(From(index, 0).size(), count);
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(index.Find(i), i);
  EXPECT_EQ(index.Insert(UINT64_MAX / 2, 5), 5) << "others are taken";
}

}  // namespace
}  // namespace tkv
