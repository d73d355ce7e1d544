#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;
using test::Of;

TEST_F(ClientTest, AChangeOfTheUpdaterCountsAfterThePushesThatWereGivenBeforeIt) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  Begin(Operation::Push{}, "push");  // round 2, which waits for version 1
  const auto asked = Sent();
  Begin(Operation::Control{}, "set_optimizer");
  Begin(Operation::Push{}, "push");  // round 3
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
  Begin(Operation::Push{}, "push");
  const auto pushes = Sent();
  Begin(Operation::Control{}, "set_optimizer");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pushes, Type::kAccepted, 1);
  EXPECT_EQ(Of(Type::kControl, Sent()).size(), 1U);
}

TEST_F(ClientTest, AChangeOfTheUpdaterLeavesAfterAnEarlierInit) {
  Begin(Operation::Init{}, "init");
  Begin(Operation::Control{}, "set_optimizer");
  const auto rest = Sent();
  EXPECT_TRUE(Of(Type::kControl, rest).empty());
  AnswerAll(rest, Type::kOk);
  AnswerAll(Sent(), Type::kOk);
  EXPECT_EQ(Of(Type::kControl, Sent()).size(), 1U);
}

// Servers that have a CONTROL use its rule for later rounds, also if nobody waits for the call.
class CancelledChangeTest : public ClientTest, public testing::WithParamInterface<bool> {};

TEST_P(CancelledChangeTest, IsTakenBack) {
  const bool is_committing = GetParam();
  MakeKey();
  const OpId change = Begin(Operation::Control{}, "set_optimizer");
  const auto controls = Of(Type::kControl, Sent());
  ASSERT_EQ(controls.size(), 1U);
  if (is_committing) AnswerAll(controls, Type::kOk);
  const OpId ids[] = {change};
  for (int again = 0; again < 2; ++again) {
    client_.Cancel(ids, Error(Code::kCancelled, "given up by its caller"), now_, &effects_);
  }
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U) << "the caller hears of it at once, and once";
  EXPECT_STREQ(outcomes[0].error->what(), "set_optimizer 'w': given up by its caller");
  Begin(Operation::Push{}, "push");
  if (!is_committing) AnswerAll(controls, Type::kOk);
  const auto sent = Sent();
  const auto withdraws = Of(Type::kWithdraw, sent);
  ASSERT_EQ(withdraws.size(), 1U);
  EXPECT_EQ(withdraws[0].number, controls[0].number);
  EXPECT_TRUE(Of(Type::kPush, sent).empty()) << "it waits until the servers lack the rule";
  AnswerAll(withdraws, Type::kOk);
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
  EXPECT_TRUE(client_.TakeOutcomes().empty());
}

INSTANTIATE_TEST_SUITE_P(Phases, CancelledChangeTest, testing::Bool());

TEST_F(ClientTest, AChangeOfTheUpdaterThatIsCancelledBeforeItLeavesIsNotSent) {
  meta_.mode = KeyMeta::Mode::kAsync;
  MakeKey();
  Begin(Operation::Push{}, "push");
  const auto pushes = Sent();
  const OpId ids[] = {Begin(Operation::Control{}, "set_optimizer")};
  client_.Cancel(ids, Error(Code::kCancelled, "given up by its caller"), now_, &effects_);
  AnswerAll(pushes, Type::kAccepted, 1);
  EXPECT_TRUE(Sent().empty());
}

// A client of a later life.  The test answers its requests while it joins.
class LaterLifeTest : public ClientTest {
 protected:
  LaterLifeTest() {
    epoch_.number = 2;
    epoch_.workers[0].incarnation = 7;
    Rejoin(7);
    client_.On(epoch_, now_, &effects_);
  }
  // Answers until the client sends no more requests; the key is at `round`.  Returns CONTROLs and
  // PUSHes unanswered.
  std::vector<Message> AnswerJoining(uint64_t round) {
    std::vector<Message> rest;
    for (std::vector<Message> asked = Sent(); !asked.empty(); asked = Sent()) {
      for (const Message& request : asked) {
        if (request.type == Type::kDescribe) {
          Message reply = Reply(request, Type::kMeta);
          reply.extra = Encode(meta_);
          Receive(reply);
        } else if (request.type == Type::kStatus) {
          Message reply = Reply(request, Type::kStatusReply);
          ChunkStatus status;
          status.version = status.last_arrived = round;
          reply.extra = Encode(status);
          Receive(reply);
        } else if (request.type == Type::kAbstain) {
          Answer(request, Type::kOk);
        } else if (request.type == Type::kPull) {
          Answer(request, Type::kValue, round);
        } else {
          rest.push_back(request);
        }
      }
    }
    return rest;
  }
  void Commit(const std::vector<Message>& controls) {
    AnswerAll(controls, Type::kOk);
    const auto commits = std::exchange(effects_.to_head, {});
    ASSERT_EQ(commits.size(), 1U);
    ASSERT_EQ(commits[0].type, Type::kCommit);
    client_.HeadAnswered(Reply(commits[0], Type::kOk), now_, &effects_);
  }
  static std::vector<uint64_t> Rounds(const Message& control) {
    std::vector<ControlRounds::Item> items(control.body.size / sizeof(ControlRounds::Item));
    if (!items.empty()) std::memcpy(items.data(), control.body.data, control.body.size);
    std::vector<uint64_t> rounds;
    for (const auto& item : items) rounds.push_back(item.from_round);
    return rounds;
  }
};

TEST_F(LaterLifeTest, SaysAChangeOfTheUpdaterAgainBeforeTheFirstPushOfAKeyThatItJoinsLater) {
  Begin(Operation::Control{}, "set_optimizer");
  auto controls = Of(Type::kControl, Sent());
  ASSERT_EQ(controls.size(), 1U);
  EXPECT_EQ(controls[0].flags, kOnlyListed);
  EXPECT_EQ(Rounds(controls[0]), std::vector<uint64_t>());
  Commit(controls);
  Begin(Operation::Init{}, "init");
  EXPECT_TRUE(AnswerJoining(4).empty()) << "nobody has pushed";
  const size_t told = client_.TakeOutcomes().size();
  EXPECT_EQ(told, 2U) << "set_optimizer and init";
  const OpId push = Begin(Operation::Push{}, "push");
  controls = AnswerJoining(4);
  ASSERT_EQ(controls.size(), 1U);
  ASSERT_EQ(controls[0].type, Type::kControl);
  EXPECT_EQ(Rounds(controls[0]), std::vector<uint64_t>{5});
  Commit(controls);
  const auto pushes = Sent();
  ASSERT_EQ(Of(Type::kPush, pushes).size(), 2U);
  EXPECT_EQ(pushes[0].number, 5U);
  AnswerAll(pushes, Type::kAccepted, 5);
  Begin(Operation::Push{}, "push");
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U) << "once is enough";
  for (const Outcome& outcome : client_.TakeOutcomes()) {
    EXPECT_FALSE(outcome.error.has_value());
    EXPECT_EQ(outcome.op, push) << "no user has given the second change";
  }
}

TEST_F(LaterLifeTest, AnotherChangeFollowsTheOneThatPushesBeforeItWaitFor) {
  Begin(Operation::Control{}, "set_optimizer");
  Commit(Of(Type::kControl, Sent()));
  Begin(Operation::Init{}, "init");
  AnswerJoining(4);
  Begin(Operation::Push{}, "push");
  Begin(Operation::Control{}, "set_optimizer");
  Begin(Operation::Push{}, "push");
  auto controls = AnswerJoining(4);
  ASSERT_EQ(controls.size(), 1U);
  EXPECT_EQ(Rounds(controls[0]), std::vector<uint64_t>{5});
  EXPECT_EQ(controls[0].number, 2U);
  Commit(controls);
  auto sent = AnswerJoining(4);
  ASSERT_EQ(sent.size(), 3U) << "a push in two chunks, and the second change";
  const auto second = Of(Type::kControl, sent);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(Rounds(second[0]), std::vector<uint64_t>{6});
  AnswerAll(Of(Type::kPush, sent), Type::kAccepted, 5);
  EXPECT_TRUE(Sent().empty()) << "the last push follows the second change";
  Commit(second);
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
}

TEST_F(LaterLifeTest, APushFailsWithWhatItsKeyCannotBeTold) {
  Begin(Operation::Control{}, "set_optimizer");
  Commit(Of(Type::kControl, Sent()));
  Begin(Operation::Init{}, "init");
  AnswerJoining(4);
  const OpId push = Begin(Operation::Push{}, "push");
  const auto controls = AnswerJoining(4);
  ASSERT_EQ(controls.size(), 1U);
  Receive(ErrorReply(controls[0].seq, Code::kResourceExhausted, "no room"));
  AnswerAll(Of(Type::kWithdraw, Sent()), Type::kOk);
  const auto error = FailureOf(push);
  ASSERT_TRUE(error.has_value());
  EXPECT_STREQ(error->what(), "push 'w': set_optimizer: no room");
  Begin(Operation::Push{}, "push");
  EXPECT_EQ(Of(Type::kControl, AnswerJoining(4)).size(), 1U) << "the next one tries again";
}

// Other workers may be able to complete the rounds of one key only when this life has pushed
// another key.
TEST_F(LaterLifeTest, JoinsWithoutAWaitForTheRoundsOfItsEarlierLife) {
  const OpId init = Begin(Operation::Init{}, "init");
  Message reply = Reply(Sent()[0], Type::kMeta);
  reply.extra = Encode(meta_);
  Receive(reply);
  ChunkStatus status;
  status.version = 3;
  status.last_arrived = 4;
  for (const Message& request : Of(Type::kStatus, Sent())) {
    reply = Reply(request, Type::kStatusReply);
    reply.extra = Encode(status);
    Receive(reply);
  }
  const auto abstains = Of(Type::kAbstain, Sent());
  ASSERT_EQ(abstains.size(), 1U);
  EXPECT_EQ(abstains[0].number, 4U);
  AnswerAll(abstains, Type::kOk);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].op, init);
  EXPECT_EQ(outcomes[0].event, Outcome::Event::kDone);
  Begin(Operation::Pull{}, "pull");
  const auto pulls = Of(Type::kPull, Sent());
  ASSERT_EQ(pulls.size(), 2U);
  EXPECT_EQ(pulls[0].number, 4U) << "who pulls waits";
}

TEST_F(LaterLifeTest, MakesAKeyWhollyBeforeAChangeOfTheUpdaterOrWhollyAfterIt) {
  Begin(Operation::Init{}, "init");
  const auto describe = Sent();
  EXPECT_EQ(describe[0].flags, kMayMake);
  Receive(Reply(describe[0], Type::kOk, 7));
  const auto rest = Sent();
  ASSERT_EQ(Of(Type::kInit, rest).size(), 1U) << "the second chunk";
  EXPECT_EQ(rest[0].number, 7U) << "with the grant";
  Begin(Operation::Control{}, "set_optimizer");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(rest, Type::kOk);
  AnswerAll(Sent(), Type::kOk);
  const auto controls = Of(Type::kControl, Sent());
  ASSERT_EQ(controls.size(), 1U);
  EXPECT_EQ(Rounds(controls[0]), std::vector<uint64_t>{1});
  meta_.name = CanonicalKey(0, "v");
  Begin(Operation::Init{}, "init");
  EXPECT_TRUE(Sent().empty());
  Commit(controls);
  EXPECT_EQ(Of(Type::kDescribe, Sent()).size(), 1U);
}

}  // namespace
}  // namespace tkv
