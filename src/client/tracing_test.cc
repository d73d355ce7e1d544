#include "tests/client_fixture.h"

namespace tkv {
namespace {

class TracingClientTest : public test::ClientTest {
 protected:
  OpId BeginTrace(Traced::Request request) { return Start(Operation::Trace{request}, "trace", ""); }
};

TEST_F(TracingClientTest, AsksAndHandsOverWhatTheServerHasNoted) {
  protocol_.features = kTraceFeature;
  const OpId id = BeginTrace({.server = 0, .records = true, .from = 7});
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].type, Type::kTrace);
  EXPECT_EQ(sent[0].flags, kRecord);
  EXPECT_EQ(sent[0].number, 7U);
  const Time asked = now_;
  now_ += 100;
  Message reply = Reply(sent[0], Type::kTraced, 9);
  reply.need = 5000;
  reply.extra = EncodeSpans(std::vector<Span>(2));
  Receive(reply);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].op, id);
  const auto* const result = outcomes[0].As<std::shared_ptr<const Traced>>();
  ASSERT_NE(result, nullptr);
  const Traced& traced = **result;
  EXPECT_EQ(traced.spans.size(), 2U);
  EXPECT_EQ(traced.next, 9U);
  EXPECT_EQ(traced.clock, 5000);
  EXPECT_EQ(traced.asked, asked);
  EXPECT_EQ(traced.answered, asked + 100);
}

TEST_F(TracingClientTest, AnOlderServerIsNotAsked) {
  MakeKey();  // the client now knows the features of the server
  const OpId id = BeginTrace({});
  EXPECT_TRUE(Sent().empty());
  const auto error = FailureOf(id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnimplemented);
  EXPECT_NE(std::string(error->what()).find("server 0 cannot be traced"), std::string::npos);
}

TEST_F(TracingClientTest, AnErrorAndAServerThatIsNotThereEndIt) {
  protocol_.features = kTraceFeature;
  const OpId far = BeginTrace({.server = 1});
  EXPECT_EQ(FailureOf(far)->code(), Code::kInvalidArgument);
  const OpId refused = BeginTrace({});
  const auto sent = Sent();
  Receive(ErrorReply(sent[0].seq, Code::kFailedPrecondition, "no"));
  EXPECT_EQ(FailureOf(refused)->code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tkv
