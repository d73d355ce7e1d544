#include "node/server_trace.h"

#include <gtest/gtest.h>

namespace tkv {
namespace {

Message Request(Type type, uint64_t seq, uint8_t flags = 0, uint64_t number = 0) {
  Message message;
  message.type = type;
  message.seq = seq;
  message.flags = flags;
  message.number = number;
  return message;
}

class ServerTraceTest : public ::testing::Test {
 protected:
  ServerTraceTest() {
    trace_.SetClock([this] { return clock_ += 10; });
  }
  std::vector<Span> Ask(LinkId link, uint8_t flags, uint64_t from = 0) {
    answer_ = trace_.Answer(link, Request(Type::kTrace, 1, flags, from), clock_);
    EXPECT_EQ(answer_.type, Type::kTraced);
    return DecodeSpans(answer_.extra);
  }
  // A push of worker 3 that is answered at once.
  void Push(LinkId link, uint64_t seq, Type answer = Type::kAccepted) {
    Message push = Request(Type::kPush, seq, 0, 5);
    push.key = {1, 2};
    push.chunk = 4;
    push.body.size = 64;
    trace_.Received(link, {3, 1}, push, clock_);
    const std::vector<Effects::Sending> sends = {{link, Reply(push, answer)}};
    trace_.Sent(sends);
  }

  Time clock_ = 1000;
  ServerTrace trace_;
  Message answer_;
};

TEST_F(ServerTraceTest, IsOffUntilSomebodyAsks) {
  EXPECT_FALSE(trace_.is_on());
  EXPECT_TRUE(Ask(1, kRecord).empty());
  EXPECT_TRUE(trace_.is_on());
  EXPECT_EQ(answer_.need, 1010U) << "the clock";
}

TEST_F(ServerTraceTest, ARequestIsASpanUntilItsAnswer) {
  Ask(1, kRecord);
  Push(2, 9);
  Push(2, 10, Type::kError);
  const auto spans = Ask(1, kRecord);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].kind, Span::Kind::kPush);
  EXPECT_EQ(spans[0].rank, 3);
  EXPECT_EQ(spans[0].key_low, 1U);
  EXPECT_EQ(spans[0].key_high, 2U);
  EXPECT_EQ(spans[0].number, 5U);
  EXPECT_EQ(spans[0].chunk, 4U);
  EXPECT_EQ(spans[0].bytes, 64U);
  EXPECT_EQ(spans[0].nanoseconds, 10);
  EXPECT_EQ(spans[0].state, Span::State::kDone);
  EXPECT_EQ(spans[1].state, Span::State::kFailed);
  EXPECT_EQ(answer_.number, 2U) << "the next one";
  EXPECT_TRUE(Ask(1, kRecord, 2).empty()) << "only what is newer";
}

TEST_F(ServerTraceTest, APullWaitsForItsOwnAnswer) {
  Ask(1, kRecord);
  const Message pull = Request(Type::kPull, 7);
  trace_.Received(2, {0, 1}, pull, clock_);
  Message other = Reply(Request(Type::kPull, 8), Type::kValue, 3);
  std::vector<Effects::Sending> sends = {{2, other}};
  sends.push_back({5, Reply(pull, Type::kValue)});  // the same number, of another session
  trace_.Sent(sends);
  EXPECT_TRUE(Ask(1, kRecord).empty());
  Message value = Reply(pull, Type::kValue, 6);
  value.body.size = 40;
  sends = {{2, value}};
  trace_.Sent(sends);
  const auto spans = Ask(1, kRecord);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].kind, Span::Kind::kPull);
  EXPECT_EQ(spans[0].number, 6U);
  EXPECT_EQ(spans[0].bytes, 40U);
}

TEST_F(ServerTraceTest, APullThatIsCancelledHasFailed) {
  Ask(1, kRecord);
  trace_.Received(2, {0, 1}, Request(Type::kPull, 7), clock_);
  trace_.Received(2, {0, 1}, Request(Type::kCancel, 8, 0, 7), clock_);
  const auto spans = Ask(1, kRecord);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].state, Span::State::kFailed);
}

TEST_F(ServerTraceTest, GoesOnWhileAnyOfTwoWantsItAndForgetsWithTheLast) {
  Ask(1, kRecord);
  Ask(2, kRecord);
  Push(3, 1);
  EXPECT_EQ(Ask(1, 0).size(), 1U) << "paused by one";
  EXPECT_TRUE(trace_.is_on());
  Ask(2, kForget);
  EXPECT_FALSE(trace_.is_on());
  EXPECT_EQ(Ask(1, 0).size(), 1U) << "still kept for the other";
  Ask(1, kForget);
  EXPECT_TRUE(Ask(1, 0).empty());
}

TEST_F(ServerTraceTest, ASessionThatEndsWantsNothingMore) {
  Ask(1, kRecord);
  Push(1, 1);
  trace_.Closed(1);
  EXPECT_FALSE(trace_.is_on());
  EXPECT_TRUE(Ask(2, kRecord).empty()) << "nothing was kept for nobody";
}

TEST_F(ServerTraceTest, WithoutAClockSpansAreThoseOfEvents) {
  trace_.SetClock({});
  clock_ = 77;
  Ask(1, kRecord);
  Push(2, 1);
  const auto spans = Ask(1, kRecord);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].begin, 77);
  EXPECT_EQ(spans[0].nanoseconds, 0);
}

TEST_F(ServerTraceTest, OneAnswerHasAtMostWhatItsMessageMay) {
  Ask(1, kRecord);
  const size_t most = kTracedBytesMax / kSpanBytes;
  for (size_t i = 0; i < most + 5; ++i) Push(2, i + 1);
  EXPECT_EQ(Ask(1, kRecord).size(), most);
  EXPECT_LE(answer_.extra.size(), kTracedBytesMax);
  EXPECT_EQ(Ask(1, kRecord, answer_.number).size(), 5U);
}

}  // namespace
}  // namespace tkv
