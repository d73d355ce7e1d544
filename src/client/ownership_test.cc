#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;

TEST_F(ClientTest, TheSourceIsFreeWhenEveryChunkIsAccepted) {
  MakeKey();
  Begin(Operation::PushPull{}, "pushpull");
  const auto sent = Sent();
  Answer(sent[0], Type::kAccepted, 0);
  EXPECT_TRUE(client_.TakeOutcomes().empty());
  Answer(sent[0].type == sent[1].type ? sent[1] : sent[2], Type::kAccepted, 0);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].event, Outcome::Event::kAccepted);
  EXPECT_EQ(outcomes[0].round, 1u);
}

// A client whose user writes 0xAB to a value's memory as soon as the client has released it.  Each
// message with a body still has to carry the old bytes.
class OwnershipTest : public ClientTest {
 protected:
  void ExpectOldBytes(const std::vector<Message>& messages) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
    size_t bodies = 0;
    for (const Message& message : messages) {
      if (message.body.size == 0) continue;
      ++bodies;
      EXPECT_EQ(message.body.data[0], std::byte{0}) << "of chunk " << message.chunk;
    }
    EXPECT_GT(bodies, 0u);
  }
  std::vector<Message> SentAfterReconnecting() {
    client_.Closed(link_, now_);
    After(kSecond);
    return Sent();
  }
};

TEST_F(OwnershipTest, APushThatFailedIsSentFromACopy) {
  credit_bytes_ = 1;  // one chunk leaves, the other chunk waits
  MakeKey();
  const OpId push = Begin(Operation::PushPull{}, "pushpull");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 2u) << "a push and its pull";
  client_.Cancel({&push, 1}, Error(Code::kDeadlineExceeded, "too late"), now_, &effects_);
  ASSERT_TRUE(FailureOf(push));
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  Answer(first[0], Type::kAccepted);
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, APushThatFailedIsSentAgainFromACopy) {
  MakeKey();
  const OpId push = Begin(Operation::Push{}, "push");
  Sent();
  client_.Cancel({&push, 1}, Error(Code::kDeadlineExceeded, "too late"), now_, &effects_);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  ExpectOldBytes(SentAfterReconnecting());
}

TEST_F(OwnershipTest, AnInitThatFailedIsSentFromACopy) {
  credit_bytes_ = 1;
  meta_.shape = Shape({4000});  // four chunks, of which three leave first
  bytes_.resize(4000 * 4);
  const OpId init = Begin(Operation::Init{}, "init");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 1u);
  client_.Cancel({&init, 1}, Error(Code::kDeadlineExceeded, "too late"), now_, &effects_);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  Answer(first[0], Type::kOk);
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, ADetachedPushIsReadNoMoreBeforeAndAfterItLeaves) {
  MakeKey();
  const OpId first = Begin(Operation::Push{}, "push");
  Sent();
  const OpId second = Begin(Operation::Push{}, "push");  // waits for the first round
  client_.Detach(std::vector{first, second});
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  const auto again = SentAfterReconnecting();
  ExpectOldBytes(again);
  for (const Message& message : again) {
    Answer(message, message.type == Type::kPush ? Type::kAccepted : Type::kValue, 1);
  }
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, AnInitThatIsDetachedKeepsItsLastChunk) {
  const OpId init = Begin(Operation::Init{}, "init");
  client_.Detach({&init, 1});
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  const auto rest = Sent();
  ASSERT_EQ(rest.size(), 1u);
  Answer(rest[0], Type::kOk);
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, AFencedLifeKeepsNoMemoryOfItsUser) {
  MakeKey();
  auto owner = std::make_shared<int>(0);
  Operation::Push push;
  push.value.bytes = {bytes_.data(), bytes_.size(), owner};
  Start(std::move(push), "push", meta_.name);
  Sent();
  epoch_.number = 2;
  epoch_.workers[0].incarnation = 7;
  client_.On(epoch_, now_, &effects_);
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace tkv
