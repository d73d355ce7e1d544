#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;
using test::Of;

TEST_F(ClientTest, ADeadlineNamesARankThatTheJobDoesNotHave) {
  MakeKey();
  Begin(Operation::PushPull{}, "pushpull");
  const auto sent = Sent();
  AnswerAll(Of(Type::kPush, sent), Type::kAccepted, 0);
  After(601 * kSecond);
  for (const Message& cancel : Of(Type::kCancel, Sent())) {
    Message reply = Reply(cancel, Type::kOk);
    reply.extra = Encode(ChunkStatus{0, 0, {4000}});
    Receive(reply);
  }
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_FALSE(outcomes.empty());
  EXPECT_NE(std::string(outcomes.back().error->what()).find("worker 4000"), std::string::npos);
}

TEST_F(ClientTest, SaysWhomItWaitsForAfter5And10And20And40Seconds) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  Begin(Operation::Pull{}, "pull");
  Sent();
  for (int second = 1; second <= 45; ++second) {
    After(kSecond);
    for (const Message& message : Sent()) {
      if (message.type != Type::kStatus) continue;
      ChunkStatus status;
      status.missing = {1};
      Message answer = Reply(message, Type::kStatusReply, 0);
      answer.extra = Encode(status);
      client_.Received(link_, answer, now_, &effects_);
    }
  }
  Sent();
  std::vector<std::string> expected;
  for (const char* const seconds : {"5", "10", "20", "40"}) {
    expected.push_back(std::string("still waiting ") + seconds +
                       " s for worker 1 (pull 'w', round 1): standing=" + seconds +
                       ".0s verb=pull key='w' round=1 waits_for=\"worker 1\" server=0 link=open "
                       "last_word=0.0s");
  }
  EXPECT_EQ(notices_, expected);
}

TEST_F(ClientTest, ANoticeCountsRoundsFromTheRestoredOne) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  Begin(Operation::Pull{}, "pull");
  Sent();
  After(5 * kSecond);
  for (const Message& question : Of(Type::kStatus, Sent())) {
    ChunkStatus status;
    status.missing = {1};
    status.base = 6;
    Message answer = Reply(question, Type::kStatusReply, 0);
    answer.extra = Encode(status);
    Receive(answer);
  }
  Sent();
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_NE(notices_[0].find("(pull 'w', round 7)"), std::string::npos) << notices_[0];
}

TEST_F(ClientTest, ManyOperationsThatStandStillAreOneLineAndOneMoreEachMinuteAtLeast) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  for (int i = 0; i < 50; ++i) Begin(Operation::Pull{}, "pull");
  Sent();
  size_t asked = 0;
  for (int second = 1; second <= 300; ++second) {
    After(kSecond);
    for (const Message& message : Sent())
      asked += static_cast<size_t>(message.type == Type::kStatus);
  }
  EXPECT_EQ(asked, 8u);           // after 5, 10, 20, 40, 80, 140, 200 and 260 s
  EXPECT_TRUE(notices_.empty());  // no server has answered yet
}

TEST_F(ClientTest, ADeadlineNamesVerbKeyPeerAndRound) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  const OpId pull = Begin(Operation::Pull{}, "pull");
  Sent();
  client_.TakeOutcomes();
  now_ += 599 * kSecond;
  After(kSecond);
  for (const Message& message : Sent()) {
    if (message.type != Type::kCancel) continue;
    ChunkStatus status;
    status.missing = {1};
    Message answer = Reply(message, Type::kOk);
    answer.extra = Encode(status);
    client_.Received(link_, answer, now_, &effects_);
  }
  const auto error = FailureOf(pull);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kDeadlineExceeded);
  EXPECT_STREQ(error->what(), "pull 'w': waited 600.0 s for worker 1 (alive), round 1");
}

TEST_F(ClientTest, TheDeathOfAnotherWorkerIsTold) {
  epoch_.number = 2;
  epoch_.workers[1].state = Epoch::State::kDead;
  client_.On(epoch_, now_, &effects_);
  Sent();
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_EQ(notices_[0], "worker 1 is dead");
}

class ClientStatsTest : public ClientTest {
 protected:
  StoreStats Stats() const {
    StoreStats stats;
    client_.AddStats(now_, &stats);
    return stats;
  }
};

TEST_F(ClientStatsTest, WhatWaitsForCreditIsCountedWithItsTime) {
  credit_bytes_ = 1;  // one message with a body at a time
  MakeKey();
  const uint64_t before = Stats().of(WaitCause::kCredit).count;
  const double seconds_before = Stats().of(WaitCause::kCredit).seconds;
  Begin(Operation::Push{}, "push");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 1u);  // of two chunks
  const PeerStats waiting = Stats().peers.at(0);
  EXPECT_EQ(waiting.queued_messages, 1u);
  EXPECT_EQ(waiting.queued_bytes, 976u * 4);
  EXPECT_EQ(waiting.unanswered_messages, 1u);
  EXPECT_EQ(waiting.unaccepted_bytes, 1024u * 4);
  now_ += 3 * kSecond;
  Answer(first[0], Type::kAccepted, 1);
  AnswerAll(Sent(), Type::kAccepted, 1);
  const StoreStats after = Stats();
  EXPECT_EQ(after.of(WaitCause::kCredit).count, before + 1);
  EXPECT_DOUBLE_EQ(after.of(WaitCause::kCredit).seconds, seconds_before + 3);
  EXPECT_EQ(after.operations_under_way, 0u);
  EXPECT_EQ(after.peers.at(0).queued_messages, 0u);
}

TEST_F(ClientStatsTest, APushThatWaitsForItsRoundIsCountedApartFromOneBehindAPull) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);  // held; round 1 is not complete
  Begin(Operation::Push{}, "push");       // asks for version 1
  const auto asks = Sent();
  ASSERT_EQ(asks.size(), 2u);
  now_ += 2 * kSecond;
  AnswerAll(asks, Type::kValue, 1);
  AnswerAll(Sent(), Type::kAccepted, 1);
  EXPECT_EQ(Stats().of(WaitCause::kRound).count, 1u);
  EXPECT_DOUBLE_EQ(Stats().of(WaitCause::kRound).seconds, 2);
  EXPECT_EQ(Stats().of(WaitCause::kPull).count, 0u);
  Begin(Operation::Pull{}, "pull");
  const auto pulls = Sent();
  Begin(Operation::Push{}, "push");
  now_ += kSecond;
  client_.Closed(link_, now_);                        // the pull is sent again: still one wait
  EXPECT_EQ(Stats().of(WaitCause::kPull).count, 0u);  // the wait has not ended
  const OpId last = client_.next_op() - 1;
  client_.Cancel({&last, 1}, Error(Code::kCancelled, "given up"), now_, &effects_);
  EXPECT_EQ(Stats().of(WaitCause::kPull).count, 1u);
  EXPECT_DOUBLE_EQ(Stats().of(WaitCause::kPull).seconds, 1);
}

TEST_F(ClientStatsTest, AFullWindowIsCountedAsSuch) {
  meta_.shape = Shape({10});
  meta_.mode = KeyMeta::Mode::kAsync;
  bytes_.resize(40);
  MakeKey();
  std::vector<Message> sent;
  for (uint64_t i = 0; i <= ServerLink::kWindow; ++i) {
    Begin(Operation::Push{}, "push");
    for (Message& message : Sent()) sent.push_back(std::move(message));
  }
  ASSERT_EQ(sent.size(), ServerLink::kWindow);
  now_ += kSecond;
  Answer(sent[0], Type::kAccepted, 1);
  EXPECT_EQ(Stats().of(WaitCause::kWindow).count, 1u);
  EXPECT_DOUBLE_EQ(Stats().of(WaitCause::kWindow).seconds, 1);
  EXPECT_EQ(Stats().of(WaitCause::kCredit).count, 0u);
}

// A client with a push that has waited for credit for a second.
class EndedWaitTest : public ClientStatsTest {
 protected:
  EndedWaitTest() {
    credit_bytes_ = 1;
    MakeKey();
    before_ = Stats().of(WaitCause::kCredit).count;
    Begin(Operation::Push{}, "push");
    EXPECT_EQ(Sent().size(), 1u);  // of two chunks
    now_ += kSecond;
  }
  uint64_t Ended() const { return Stats().of(WaitCause::kCredit).count - before_; }
  uint64_t before_ = 0;
};

TEST_F(EndedWaitTest, TheWaitOfALinkEndsWhenItsServerRefuses) {
  EXPECT_EQ(Ended(), 0u);
  client_.ServerRefused(0, Error(Code::kUnavailable, "no"), &effects_);
  EXPECT_EQ(Ended(), 1u);
}

TEST_F(EndedWaitTest, TheWaitOfALinkEndsWithTheSessionThatItsServerCloses) {
  Message error = ErrorReply(0, Code::kInvalidArgument, "violation");
  client_.Received(link_, error, now_, &effects_);
  EXPECT_EQ(Ended(), 1u);
}

TEST_F(EndedWaitTest, TheWaitOfALinkEndsWithTheClient) {
  client_.Refused(Error(Code::kAborted, "this life is over"), &effects_);
  EXPECT_EQ(Ended(), 1u);
}

TEST_F(ClientStatsTest, ResendsAndReconnectsAreThoseOfAServer) {
  EXPECT_EQ(Stats().peers.at(0).state, "idle");
  EXPECT_EQ(Stats().peers.at(0).last_word_seconds, -1);
  MakeKey();
  EXPECT_EQ(Stats().of(WaitCause::kLink).count, 1u);
  Begin(Operation::Pull{}, "pull");
  ASSERT_EQ(Sent().size(), 2u);
  client_.Closed(link_, now_);
  After(kSecond);
  EXPECT_EQ(Sent().size(), 2u);  // of both chunks, again
  const StoreStats stats = Stats();
  EXPECT_EQ(stats.resends, 2u);
  EXPECT_EQ(stats.reconnects, 1u);
  EXPECT_EQ(stats.operations_under_way, 1u);
  EXPECT_EQ(stats.peers.at(0).resends, 2u);
  EXPECT_EQ(stats.peers.at(0).connections, 2u);
  EXPECT_EQ(stats.peers.at(0).name, "server 0");
  EXPECT_EQ(stats.peers.at(0).state, "open");
  EXPECT_DOUBLE_EQ(stats.peers.at(0).last_word_seconds, 0);
}

}  // namespace
}  // namespace tkv
