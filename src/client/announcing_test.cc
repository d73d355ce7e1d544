#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;
using test::Kind;
using test::Of;

TEST_F(ClientTest, AChangeOfTheUpdaterCountsAfterThePushesThatWereGivenBeforeIt) {
  MakeKey();
  Begin(Kind::kPush, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  Begin(Kind::kPush, "push");  // round 2, which waits for version 1
  const auto asked = Sent();
  Begin(Kind::kControl, "set_optimizer");
  Begin(Kind::kPush, "push");  // round 3
  const auto controls = Of(Type::kControl, Sent());
  ASSERT_EQ(controls.size(), 1U);
  ControlRounds::Item item;
  ASSERT_EQ(controls[0].body.size, sizeof item);
  std::memcpy(&item, controls[0].body.data, sizeof item);
  EXPECT_EQ(item.from_round, 3U);
  AnswerAll(asked, Type::kValue, 1);
  const auto pushes = Of(Type::kPush, Sent());
  ASSERT_EQ(pushes.size(), 2U) << "round 2 leaves while the change is under way, round 3 does not";
  EXPECT_EQ(pushes[0].number, 2U);
}

TEST_F(ClientTest, AChangeOfTheUpdaterLeavesAfterEarlierPushesOfAnAsynchronousKey) {
  meta_.mode = KeyMeta::Mode::kAsync;
  MakeKey();
  Begin(Kind::kPush, "push");
  const auto pushes = Sent();
  Begin(Kind::kControl, "set_optimizer");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pushes, Type::kAccepted, 1);
  EXPECT_EQ(Of(Type::kControl, Sent()).size(), 1U);
}

TEST_F(ClientTest, AChangeOfTheUpdaterLeavesAfterAnEarlierInit) {
  Begin(Kind::kInit, "init");
  Begin(Kind::kControl, "set_optimizer");
  const auto rest = Sent();
  EXPECT_TRUE(Of(Type::kControl, rest).empty());
  AnswerAll(rest, Type::kOk);
  AnswerAll(Sent(), Type::kOk);
  EXPECT_EQ(Of(Type::kControl, Sent()).size(), 1U);
}

}  // namespace
}  // namespace tkv
