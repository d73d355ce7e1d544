#include "base/pooled_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace tkv {
namespace {

TEST(PooledTable, FindsWhatWasAddedUntilItIsErased) {
  PooledTable<std::string> table;
  EXPECT_EQ(table.Find(7), nullptr);
  table.Add(7) = "seven";
  ASSERT_NE(table.Find(7), nullptr);
  EXPECT_EQ(*table.Find(7), "seven");
  table.Erase(7);
  table.Erase(7);
  EXPECT_EQ(table.Find(7), nullptr);
  EXPECT_TRUE(table.empty());
}

TEST(PooledTable, AnEntryStaysWhereItIsWhileOthersComeAndGo) {
  PooledTable<std::string> table;
  const std::string* const first = &table.Add(1);
  for (uint64_t id = 2; id < 1000; ++id) table.Add(id);
  for (uint64_t id = 2; id < 1000; id += 2) table.Erase(id);
  EXPECT_EQ(table.Find(1), first);
  EXPECT_EQ(table.size(), 500u);
}

TEST(PooledTable, TheNextOneTakesTheFreedEntryAndFindsItFresh) {
  PooledTable<std::string> table;
  std::string* const old = &table.Add(1);
  *old = "old";
  table.Erase(1);
  EXPECT_EQ(&table.Add(2), old);
  EXPECT_EQ(*table.Find(2), "");
}

TEST(PooledTable, AnErasedEntryLetsGoOfWhatItHeld) {
  PooledTable<std::shared_ptr<int>> table;
  const auto held = std::make_shared<int>(3);
  table.Add(1) = held;
  table.Erase(1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(PooledTable, EachIsVisitedOnce) {
  PooledTable<int> table;
  for (int id = 0; id < 10; ++id) table.Add(static_cast<uint64_t>(id)) = id;
  table.Erase(4);
  std::vector<int> seen;
  table.ForEach([&](uint64_t id, int value) {
    EXPECT_EQ(static_cast<int>(id), value);
    seen.push_back(value);
  });
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 5, 6, 7, 8, 9}));
}

}  // namespace
}  // namespace tkv
