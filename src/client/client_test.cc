#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;
using test::Of;

TEST_F(ClientTest, AKeyAppearsWithItsFirstChunk) {
  Begin(Operation::Init{}, "init");
  const auto rest = Sent();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].chunk, 1u);
  Answer(rest[0], Type::kOk);
  const auto first = Sent();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].chunk, 0u);
}

TEST_F(ClientTest, WhatBeginsAfterTheLeaveEndsAsWhatACloseOvertakes) {
  MakeKey();
  Begin(Operation::Leave{}, "close");
  ASSERT_EQ(effects_.to_head.size(), 1U);
  client_.HeadAnswered(Reply(effects_.to_head[0], Type::kOk, 0), now_, &effects_);
  ASSERT_TRUE(client_.has_left());
  const Operation::Request requests[] = {Operation::Push{}, Operation::Pull{}};
  for (const Operation::Request& request : requests) {
    const auto error = FailureOf(Begin(request, "call"));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Code::kCancelled);
    EXPECT_STREQ(error->what(), "call 'w': the store is closed");
  }
}

TEST_F(ClientTest, WhoseHeadHasEndedTakesLeaveOfNobodyAndDataGoesOn) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  client_.HeadEnded(now_);
  const OpId leave = Begin(Operation::Leave{}, "close");
  After(kSecond);
  EXPECT_TRUE(client_.TakeOutcomes().empty()) << "the push may still be accepted";
  AnswerAll(Sent(), Type::kAccepted, 0);
  After(kSecond);
  const auto error = FailureOf(leave);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnavailable);
  EXPECT_STREQ(error->what(), "close 'w': the process of the head has ended");
  const auto late = FailureOf(Begin(Operation::Pull{}, "pull"));
  ASSERT_TRUE(late);
  EXPECT_STREQ(late->what(), "pull 'w': the store is closed");
}

TEST_F(ClientTest, NewsEndWhenTheEpochHasArrivedThatTheHeadHasNow) {
  const OpId news = Begin(Operation::NewestEpoch{}, "close");
  ASSERT_EQ(effects_.to_head.size(), 1U);
  const Message ping = effects_.to_head[0];
  EXPECT_EQ(ping.type, Type::kPing);
  EXPECT_EQ(ping.number, 1U);
  client_.HeadAnswered(Reply(ping, Type::kPong, 3), now_, &effects_);
  epoch_.number = 2;
  client_.On(epoch_, now_, &effects_);
  EXPECT_TRUE(client_.TakeOutcomes().empty()) << "the head has a later one";
  epoch_.number = 3;
  client_.On(epoch_, now_, &effects_);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].op, news);
  EXPECT_EQ(outcomes[0].event, Outcome::Event::kDone);
  EXPECT_FALSE(client_.has_left());
}

TEST_F(ClientTest, NewsAreAskedForAgainAndEndWithoutAHead) {
  const OpId news = Begin(Operation::NewestEpoch{}, "close");
  client_.HeadClosed(now_);
  effects_.to_head.clear();
  client_.HeadOpened(&effects_);
  EXPECT_EQ(effects_.to_head.size(), 1U);
  client_.HeadClosed(now_);
  After(kSecond);
  EXPECT_TRUE(client_.TakeOutcomes().empty());
  After(31 * kSecond);
  const auto error = FailureOf(news);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnavailable);
  EXPECT_FALSE(client_.has_left());
}

TEST_F(ClientTest, NewsEndWhereTheHeadEndsBetweenItsAnswerAndItsEpoch) {
  const OpId news = Begin(Operation::NewestEpoch{}, "close");
  client_.HeadAnswered(Reply(effects_.to_head.at(0), Type::kPong, 3), now_, &effects_);
  client_.HeadEnded(now_);
  After(0);
  const auto error = FailureOf(news);
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "close 'w': the process of the head has ended");
}

// The head may have died before it could say that the server is there.
TEST_F(ClientTest, AServerOutOfReachIsNamedWithTheHeadThatIsGoneToo) {
  const OpId init = Begin(Operation::Init{}, "init");
  client_.HeadClosed(now_);
  After(kSecond);
  After(31 * kSecond);
  const auto error = FailureOf(init);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnavailable);
  EXPECT_NE(std::string(error->what()).find("s; the head is out of reach, too"), std::string::npos)
      << error->what();
}

TEST_F(ClientTest, APushOfAnotherSizeTakesNoRoundAndNothingLeaves) {
  MakeKey();
  bytes_.resize(1999 * 4);
  const OpId push = Begin(Operation::Push{}, "push");
  EXPECT_TRUE(Sent().empty());
  const auto error = FailureOf(push);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kInvalidArgument);
  EXPECT_EQ(client_.RoundOf(meta_.name), 0U);
}

TEST_F(ClientTest, EachChunkGoesToTheServerThatThePlacementNames) {
  epoch_.number = 2;
  epoch_.servers.push_back({10, Epoch::State::kAlive});
  epoch_.placement = {2, 2, std::vector<uint32_t>(kSlots, 0)};
  epoch_.placement.slots[SlotOf(IdOf(meta_.name), 1)] = 1;
  client_.On(epoch_, now_, &effects_);
  Begin(Operation::Init{}, "init");
  ASSERT_EQ(effects_.dials.size(), 1U);
  EXPECT_EQ(effects_.dials[0].index, 1U) << "the second chunk, which leaves first";
}

TEST_F(ClientTest, ARoundLeavesOnlyWhenTheOneBeforeItIsKnownToBeComplete) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].number, 1u);
  AnswerAll(first, Type::kAccepted, 0);  // the other worker has not pushed yet
  Begin(Operation::Push{}, "push");
  const auto asked = Sent();
  ASSERT_EQ(asked.size(), 2u);
  for (const Message& message : asked) {
    EXPECT_EQ(message.type, Type::kPull);
    EXPECT_EQ(message.flags, kNoBody | kOfBirth | kAnyway);
    EXPECT_EQ(message.number, 1u);
  }
  Answer(asked[0], Type::kValue, 1);
  EXPECT_TRUE(Sent().empty());
  Answer(asked[1], Type::kValue, 1);
  const auto second = Sent();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].type, Type::kPush);
  EXPECT_EQ(second[0].number, 2u);
}

// Returns the messages of one type.

TEST_F(ClientTest, AKeyThatIsGoneIsFoundAgainByAnInit) {
  MakeKey();
  const OpId push = Begin(Operation::Push{}, "push");
  const auto pushes = Sent();
  ASSERT_EQ(pushes.size(), 2U);
  EXPECT_EQ(pushes[0].flags, kOfBirth);
  for (const Message& sent : pushes) {
    Receive(ErrorReply(sent.seq, Code::kFailedPrecondition, "made anew"));
  }
  EXPECT_EQ(FailureOf(push)->code(), Code::kFailedPrecondition);
  const OpId pull = Begin(Operation::Pull{}, "pull");
  EXPECT_EQ(FailureOf(pull)->code(), Code::kNotFound);
  Begin(Operation::Init{}, "init");
  EXPECT_EQ(Of(Type::kInit, Sent()).size(), 1U);
}

TEST_F(ClientTest, ADeleteTellsTheRoundOfTheLastPushBeforeItThoughThatWaitedItself) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  Begin(Operation::Push{}, "push");  // waits for the first round
  const OpId id = Begin(Operation::Delete{}, "delete");
  EXPECT_EQ(client_.RoundOf(meta_.name), 1U);
  EXPECT_EQ(client_.PushedOf(meta_.name), 2U);
  uint64_t round = 0;
  for (int turn = 0; turn < 10 && round == 0; ++turn) {
    for (const Message& message : Sent()) {
      if (message.type == Type::kPush) Answer(message, Type::kAccepted, message.number);
      if (message.type == Type::kPull) Answer(message, Type::kValue, message.number);
      if (message.type == Type::kDelete) Answer(message, Type::kOk);
    }
    for (const Outcome& outcome : client_.TakeOutcomes()) {
      if (outcome.op == id && outcome.event == Outcome::Event::kDone) round = outcome.round;
    }
  }
  EXPECT_EQ(round, 2U);
}

// Rank 0 may be dead before another worker knows it.
class DeleteTest : public ClientTest, public ::testing::WithParamInterface<Epoch::Policy> {
 protected:
  // Worker 1, which has found the key.
  DeleteTest() {
    protocol_.features = kMakersFeature;
    ++epoch_.number;
    epoch_.policy = GetParam();
    Welcome welcome;
    welcome.rank = 1;
    welcome.incarnation = 6;
    client_.Joined(Role::kWorker, welcome);
    client_.On(epoch_, now_, &effects_);
    meta_.birth = 3;
    Begin(Operation::Init{}, "init");
    for (const Message& describe : Sent()) {
      Message meta = Reply(describe, Type::kMeta);
      meta.extra = Encode(meta_);
      Receive(meta);
    }
    client_.TakeOutcomes();
  }
};

TEST_P(DeleteTest, AWorkerThatMayFollowRankZeroDeletesTheKeyThatItKnows) {
  Begin(Operation::Delete{}, "delete");
  const auto sent = Of(Type::kDelete, Sent());
  if (GetParam() != Epoch::Policy::kContinue) {
    EXPECT_TRUE(sent.empty()) << "rank 0 does";
  } else {
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].flags, kOfBirth);
    EXPECT_EQ(sent[0].need, 3U);
    EXPECT_TRUE(client_.TakeOutcomes().empty());
    AnswerAll(sent, Type::kOk);
  }
  EXPECT_EQ(client_.TakeOutcomes().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Policies, DeleteTest,
                         ::testing::Values(Epoch::Policy::kFail, Epoch::Policy::kWait,
                                           Epoch::Policy::kContinue));

TEST_F(ClientTest, AStoreIsClosedAfterItsPushesAreAccepted) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  const auto pushes = Sent();
  const OpId close = Begin(Operation::Close{}, "close");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pushes, Type::kAccepted, 0);
  const OpId pull = Begin(Operation::Pull{}, "pull");
  const auto sent = Of(Type::kClose, Sent());
  ASSERT_EQ(sent.size(), 1U);
  client_.TakeOutcomes();
  AnswerAll(sent, Type::kOk);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].op, close);
  EXPECT_FALSE(outcomes[0].error);
  EXPECT_NE(pull, kNoOp);
  EXPECT_EQ(FailureOf(Begin(Operation::Pull{}, "pull"))->code(), Code::kNotFound);
}

TEST_F(ClientTest, APushSaysItsStepToAServerThatKeepsSteps) {
  protocol_.features = kStepsFeature;
  MakeKey();
  step_ = {7, 2};
  Begin(Operation::Push{}, "push");
  for (const Message& push : Sent()) {
    EXPECT_NE(push.flags & kInStep, 0);
    EXPECT_EQ(push.extra, Encode(step_));
  }
}

TEST_F(ClientTest, APushSaysNoStepToAnOlderServer) {
  protocol_.features = 0;
  MakeKey();
  step_ = {7, 2};
  Begin(Operation::Push{}, "push");
  for (const Message& push : Sent()) {
    EXPECT_EQ(push.flags & kInStep, 0);
    EXPECT_EQ(push.extra, "");
  }
}

TEST_F(ClientTest, NoPushOfAKeyLeavesWhileAPullOfItIsUnanswered) {
  MakeKey();
  Begin(Operation::Pull{}, "pull");
  const auto pulls = Sent();
  Begin(Operation::Push{}, "push");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pulls, Type::kValue, 0);
  EXPECT_EQ(Sent().size(), 2u);
}

TEST_F(ClientTest, ThePullAfterAPushAsksForItsRound) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  Begin(Operation::Pull{}, "pull");
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 4u);
  for (const Message& message : sent) EXPECT_EQ(message.number, 1u);
}

TEST_F(ClientTest, AFencedLifeEndsWithAllItsOperations) {
  MakeKey();
  const OpId pull = Begin(Operation::Pull{}, "pull");
  Sent();
  epoch_.number = 2;
  epoch_.workers[0].incarnation = 7;
  client_.On(epoch_, now_, &effects_);
  const auto error = FailureOf(pull);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kAborted);
  EXPECT_STREQ(error->what(),
               "pull 'w': worker 0: this life is over (incarnation 5): another one has begun");
  const OpId late = Begin(Operation::Push{}, "push");
  EXPECT_EQ(FailureOf(late)->code(), Code::kAborted);
}

}  // namespace
}  // namespace tkv
