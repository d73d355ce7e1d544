// A later life that looks for its place in the rounds of a key of two chunks.

#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;
using test::Of;

class JoiningTest : public ClientTest {
 protected:
  // Begins the later life, which finds the key.  Returns its questions about the chunks.
  std::vector<Message> FindKey(Epoch::Policy policy = Epoch::Policy::kWait) {
    epoch_.policy = policy;
    ++epoch_.number;
    Rejoin();
    client_.On(epoch_, now_, &effects_);
    Begin(Operation::Init{}, "init");
    Message meta = Reply(Sent().at(0), Type::kMeta);
    meta.extra = Encode(meta_);
    Receive(meta);
    return Of(Type::kStatus, Sent());
  }
  // Answers a question about a chunk: this worker's pushes up to that round have arrived there.
  void Tell(const Message& question, uint64_t round, std::optional<PushStep> step = {}) {
    Message reply = Reply(question, Type::kStatusReply);
    ChunkStatus status;
    status.last_arrived = round;
    status.version = round;
    status.step = step;
    reply.extra = Encode(status);
    Receive(reply);
  }
  // Joins a key of which the first chunk has one push more than the second.
  void JoinUneven(Epoch::Policy policy = Epoch::Policy::kWait) {
    const auto asked = FindKey(policy);
    ASSERT_EQ(asked.size(), 2U);
    for (const Message& question : asked) Tell(question, question.chunk == 0 ? 5 : 4);
    abstains_ = Of(Type::kAbstain, Sent());
    AnswerAll(abstains_, Type::kOk);
    client_.TakeOutcomes();
  }
  std::vector<Message> Pushed() {
    Begin(Operation::Push{}, "push");
    return Of(Type::kPush, Sent());
  }

  std::vector<Message> abstains_;
};

TEST_F(JoiningTest, ALaterLifeSaysWhereItJoinsAlsoBeforeTheFirstRound) {
  for (const Message& question : FindKey()) Tell(question, 0);
  const auto abstain = Sent();
  ASSERT_EQ(abstain.size(), 1U) << "one for each server";
  EXPECT_EQ(abstain[0].type, Type::kAbstain);
  EXPECT_EQ(abstain[0].number, 0U);
}

TEST_F(JoiningTest, ALaterLifeLearnsTheNewestStepOfItsKey) {
  protocol_.features = kStepsFeature;
  const auto asked = FindKey();
  ASSERT_EQ(asked.size(), 2U) << "one for each chunk";
  for (const Message& question : asked) {
    EXPECT_EQ(question.flags, kInStep);
    Tell(question, 0, PushStep{question.chunk == 0 ? 4U : 3U, 2});
  }
  AnswerAll(Sent(), Type::kOk);
  EXPECT_EQ(client_.FormerStepOf(meta_.name), (PushStep{4, 2}));
}

TEST_F(JoiningTest, ALaterLifeThatBeginsAnewPassesEveryBarrierAgain) {
  protocol_.features = kBegunFeature;
  Rejoin();
  Begin(Operation::Release{}, "create");
  EXPECT_TRUE(client_.HasJobBegun()) << "the server has not been heard yet";
  AnswerAll(Sent(), Type::kOk);
  EXPECT_FALSE(client_.HasJobBegun());
  client_.BeginAnew();
  const std::string barrier = InternalKey(0, "barrier");
  for (const uint64_t round : {1U, 2U, 3U}) {
    Begin(Operation::Barrier{}, "barrier");
    if (round == 1) {
      const auto asked = Of(Type::kStatus, Sent());
      ASSERT_EQ(asked.size(), 1U);
      Tell(asked[0], 2);
      AnswerAll(Of(Type::kAbstain, Sent()), Type::kOk);
    }
    EXPECT_EQ(client_.HasReachedNext(barrier), round < 2) << "behind barrier " << round;
    const auto sent = Sent();
    const auto pushes = Of(Type::kPush, sent);
    ASSERT_EQ(pushes.size(), 1U);
    EXPECT_EQ(pushes[0].number, round);
    AnswerAll(sent, Type::kAccepted, 2);
    client_.TakeOutcomes();
  }
}

TEST_F(JoiningTest, ABarrierFromWhichOnTheJobHasBegunIsPulledAsAnyOther) {
  protocol_.features = kBegunFeature;
  Start(Operation::Barrier{Operation::Barrier::Task::kBegins, {}}, "barrier", "");
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].type, Type::kPush);
  EXPECT_EQ(sent[0].flags & kBegins, kBegins);
  EXPECT_EQ(sent[1].type, Type::kPull);
}

// A server that knows the store of a barrier knows who has closed it.
TEST_F(JoiningTest, ABarrierNamesItsStore) {
  for (const uint32_t store : {0U, 3U}) {
    Operation operation;
    operation.verb = "barrier";
    operation.store = store;
    operation.request = Operation::Barrier{};
    client_.Start(std::move(operation), now_);
    client_.Settle(now_, &effects_);
    const auto pushes = Of(Type::kPush, Sent());
    ASSERT_EQ(pushes.size(), 1U);
    EXPECT_EQ(pushes[0].key, IdOf(InternalKey(store, "barrier")));
    EXPECT_EQ(pushes[0].need, store);
    EXPECT_EQ(pushes[0].flags & kOfBirth, 0);
  }
}

TEST_F(JoiningTest, APushThatHasNotReachedAllChunksIsRepeated) {
  JoinUneven();
  ASSERT_EQ(abstains_.size(), 1U);
  EXPECT_EQ(abstains_[0].number, 4U);
  EXPECT_EQ(client_.RoundOf(meta_.name), 4U);
  EXPECT_TRUE(client_.MustRepeat(meta_.name));
  const auto pushes = Pushed();
  ASSERT_EQ(pushes.size(), 2U);
  for (const Message& push : pushes) EXPECT_EQ(push.number, 5U);
  EXPECT_FALSE(client_.MustRepeat(meta_.name));
}

TEST_F(JoiningTest, AKeyOfWhichAChunkLacksTheStepHasTheStepBefore) {
  protocol_.features = kStepsFeature;
  for (const bool reversed : {false, true}) {
    auto asked = FindKey();
    if (reversed) std::swap(asked[0], asked[1]);
    for (const Message& question : asked) {
      const bool has_it = question.chunk == 0;
      Tell(question, has_it ? 5 : 4, PushStep{has_it ? 9U : 8U, 2});
    }
    AnswerAll(Sent(), Type::kOk);
    EXPECT_EQ(client_.FormerStepOf(meta_.name), (PushStep{8, 2}));
    client_.TakeOutcomes();
    AnswerAll((Begin(Operation::Delete{}, "delete"), Sent()), Type::kOk);
  }
}

TEST_F(JoiningTest, UnderContinueRoundsGoOnWithoutTheDeadSoThatNothingIsRepeated) {
  JoinUneven(Epoch::Policy::kContinue);
  ASSERT_EQ(abstains_.size(), 1U);
  EXPECT_EQ(abstains_[0].number, 5U);
  EXPECT_EQ(client_.RoundOf(meta_.name), 5U);
  EXPECT_FALSE(client_.MustRepeat(meta_.name));
}

TEST_F(JoiningTest, APushThatOneChunkHasRefusedIsRepeated) {
  JoinUneven();
  auto pushes = Pushed();
  ASSERT_EQ(pushes.size(), 2U);
  AnswerAll(pushes, Type::kAccepted, 5);
  EXPECT_EQ(client_.RoundOf(meta_.name), 5U);
  pushes = Pushed();
  ASSERT_EQ(pushes.size(), 2U);
  Answer(pushes[0], Type::kAccepted, 5);
  Receive(ErrorReply(pushes[1].seq, Code::kResourceExhausted, "memory ends"));
  EXPECT_EQ(client_.RoundOf(meta_.name), 5U);
  EXPECT_TRUE(client_.MustRepeat(meta_.name));
  client_.TakeOutcomes();
  Begin(Operation::Pull{}, "pull");
  for (const Message& question : Of(Type::kStatus, Sent())) {
    Tell(question, question.chunk == 0 ? 6 : 5);
  }
  const auto abstains = Of(Type::kAbstain, Sent());
  ASSERT_EQ(abstains.size(), 1U);
  EXPECT_EQ(abstains[0].number, 5U);
  EXPECT_TRUE(client_.MustRepeat(meta_.name));
}

TEST_F(JoiningTest, APushThatIsGivenUpIsRepeatedAlsoWhereAllChunksHaveIt) {
  JoinUneven();
  AnswerAll(Pushed(), Type::kAccepted, 5);
  client_.TakeOutcomes();
  const auto given_up = Pushed();  // the server takes it, and its answers are lost
  ASSERT_EQ(given_up.size(), 2U);
  EXPECT_EQ(given_up[0].number, 6U);
  client_.Closed(link_, now_);
  for (int i = 0; i < 80 && client_.RoundOf(meta_.name) == 6; ++i) {
    After(kSecond);
    effects_.dials.clear();
    client_.Failed(0, now_);
  }
  EXPECT_EQ(client_.RoundOf(meta_.name), 5U);
  client_.TakeOutcomes();
  Sent();
  Begin(Operation::Push{}, "push");
  for (int i = 0; i < 5; ++i) After(kSecond);
  const auto questions = Of(Type::kStatus, Sent());
  ASSERT_EQ(questions.size(), 2U);
  for (const Message& question : questions) Tell(question, 6);
  AnswerAll(Of(Type::kAbstain, Sent()), Type::kOk);
  const auto again = Of(Type::kPush, Sent());
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].number, 6U);
}

TEST_F(JoiningTest, APushThatAllChunksHaveRefusedIsNotInTheWayOfARestore) {
  JoinUneven();
  AnswerAll(Pushed(), Type::kAccepted, 5);
  for (const Message& push : Pushed()) {
    Receive(ErrorReply(push.seq, Code::kResourceExhausted, "memory ends"));
  }
  client_.TakeOutcomes();
  EXPECT_TRUE(client_.HasLostPush(meta_.name));
  const OpId restore = Begin(Operation::Restore{}, "assign");
  const auto questions = Of(Type::kStatus, Sent());
  ASSERT_EQ(questions.size(), 2U) << "the restore finds out whether parts have the push";
  for (const Message& question : questions) Tell(question, 5);
  EXPECT_FALSE(FailureOf(restore));
  EXPECT_FALSE(client_.MustRepeat(meta_.name));
  EXPECT_FALSE(client_.HasLostPush(meta_.name));
}

TEST_F(JoiningTest, WhatWaitsForARefusedPushEndsWithIt) {
  JoinUneven();
  AnswerAll(Pushed(), Type::kAccepted, 5);
  Begin(Operation::Push{}, "push");
  const OpId wait = Begin(Operation::Wait{}, "push");
  const OpId next = Begin(Operation::Push{}, "push");  // asks for the round before it
  const auto sent = Sent();
  const auto pushes = Of(Type::kPush, sent);
  ASSERT_EQ(pushes.size(), 2U);
  const auto pulls = Of(Type::kPull, sent);
  ASSERT_FALSE(pulls.empty());
  Answer(pushes[0], Type::kAccepted, 5);
  Receive(ErrorReply(pushes[1].seq, Code::kResourceExhausted, "memory ends"));
  const auto error = FailureOf(wait);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kResourceExhausted);
  EXPECT_STREQ(error->what(),
               "push 'w': round 6 lacks this worker's push, which has failed: memory ends");
  const auto cancels = Of(Type::kCancel, Sent());
  EXPECT_EQ(cancels.size(), pulls.size());
  AnswerAll(cancels, Type::kOk);
  for (const Message& question : Of(Type::kStatus, Sent())) {
    Tell(question, question.chunk == 0 ? 6 : 5);
  }
  AnswerAll(Of(Type::kAbstain, Sent()), Type::kOk);
  const auto repeated = Of(Type::kPush, Sent());
  ASSERT_EQ(repeated.size(), 2U) << "the push that has waited takes the round";
  for (const Message& push : repeated) EXPECT_EQ(push.number, 6U);
  EXPECT_FALSE(FailureOf(next));
}

TEST_F(JoiningTest, UnderContinueRoundsThatWereJoinedWithoutPushesStayBehind) {
  JoinUneven(Epoch::Policy::kContinue);
  Begin(Operation::Push{}, "push");
  const auto asked = Of(Type::kPull, Sent());
  ASSERT_EQ(asked.size(), 1U);
  Answer(asked[0], Type::kValue, 5);
  const auto pushes = Of(Type::kPush, Sent());
  ASSERT_EQ(pushes.size(), 2U);
  Answer(pushes[0], Type::kAccepted, 5);
  Receive(ErrorReply(pushes[1].seq, Code::kResourceExhausted, "memory ends"));
  Begin(Operation::Pull{}, "pull");
  for (const Message& question : Of(Type::kStatus, Sent())) {
    Tell(question, question.chunk == 0 ? 6 : 4);
  }
  EXPECT_EQ(client_.RoundOf(meta_.name), 5U);
}

TEST_F(JoiningTest, AKeyOfTwoRoundsIsNotSavedNorReplacedBeforeThePushIsRepeated) {
  JoinUneven();
  const Operation::Request requests[] = {Operation::Cut{}, Operation::Restore{}};
  for (const Operation::Request& request : requests) {
    const auto error = FailureOf(Begin(request, "call"));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Code::kFailedPrecondition);
    EXPECT_STREQ(error->what(),
                 "call 'w': the push of round 5 by this worker has failed, or was ended with its "
                 "process, and parts of this key have it; push the key again first");
    EXPECT_TRUE(Sent().empty());
  }
  AnswerAll(Pushed(), Type::kAccepted, 5);
  Begin(Operation::Cut{}, "save");
  EXPECT_EQ(Of(Type::kPull, Sent()).size(), 2U);
}

TEST_F(JoiningTest, AnUpdaterCountsAfterThePushesThatAreRepeated) {
  JoinUneven();
  Begin(Operation::Control{}, "set_optimizer");
  const auto controls = Of(Type::kControl, Sent());
  ASSERT_EQ(controls.size(), 1U);
  ASSERT_EQ(controls[0].body.size, sizeof(ControlRounds::Item));
  ControlRounds::Item item;
  std::memcpy(&item, controls[0].body.data, sizeof item);
  EXPECT_EQ(item.from_round, 6U);
}

// The answers to a search whose operation has ended come for a key without chunks.
TEST_F(JoiningTest, ASearchThatIsCancelledIsMadeAgain) {
  const auto asked = FindKey();
  ASSERT_EQ(asked.size(), 2U);
  const OpId cancelled = client_.next_op() - 1;
  client_.Cancel({&cancelled, 1}, Error(Code::kCancelled, "Ctrl-C"), now_, &effects_);
  EXPECT_TRUE(FailureOf(cancelled));
  for (const Message& question : asked) Tell(question, 3);
  EXPECT_TRUE(Sent().empty());
  Begin(Operation::Pull{}, "pull");
  const auto again = Of(Type::kStatus, Sent());
  ASSERT_EQ(again.size(), 2U);
  for (const Message& question : again) Tell(question, 3);
  AnswerAll(Of(Type::kAbstain, Sent()), Type::kOk);
  EXPECT_EQ(client_.RoundOf(meta_.name), 3U);
}

}  // namespace
}  // namespace tkv
