#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tkv {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"threads", "staleness", "rank", "launch"};

TEST(Nearest, IsTheNameWithTheFewestEdits) {
  EXPECT_EQ(Nearest("lauch", kNames), "launch");
  EXPECT_EQ(Nearest("treads", kNames), "threads");
  EXPECT_EQ(Nearest("stalenes", kNames), "staleness");
  EXPECT_EQ(Nearest("rnak", kNames), "rank");
}

TEST(Nearest, IsElseTheShortestNameThatHasTheWordInIt) {
  constexpr std::array<std::string_view, 3> names = {"local_workers", "num_workers", "rank"};
  EXPECT_EQ(Nearest("worker", names), "num_workers");
  EXPECT_EQ(Nearest("num", names), "");
}

TEST(Nearest, IsNothingWhereNoNameIsNear) {
  EXPECT_EQ(Nearest("xyz", kNames), "");
  EXPECT_EQ(Nearest("", kNames), "");
  EXPECT_EQ(Nearest(std::string(10'000, 'x'), kNames), "");
  EXPECT_EQ(Nearest("rank", {}), "");
}

}  // namespace
}  // namespace tkv
