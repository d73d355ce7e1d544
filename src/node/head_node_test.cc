// A head that lacks memory loses the peer whose message needed it, and goes on.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "node/node.h"
#include "tests/frames.h"
#include "tests/scarce_memory.h"

namespace tkv {
namespace {

constexpr Time kSoon = 10 * kMillisecond;

// The head of a job of two workers, of which worker 0 has joined.
class ScarceHeadTest : public ::testing::Test {
 protected:
  ScarceHeadTest() {
    HeadOptions options;
    options.job = "job";
    options.workers = 2;
    node_.emplace(options, &pool_, 0);
    first_ = node_->Accept();
    Say(first_, Hello(0));
    Deliver();
  }

  static std::string Hello(Rank rank, uint64_t process = 0) {
    const tkv::Hello hello{"job", Role::kWorker, rank, 0, process + 100, "an address that is long"};
    return FrameText({MessageOf(Type::kHello, Encode(hello))});
  }
  // Hands a frame to the head, as the thread of the node does.
  void Say(LinkId link, const std::string& frame) {
    node_->Land(link, std::as_bytes(std::span(frame)));
    node_->Received(link, now_);
  }
  // Lets another life of worker 1 join.  Returns its link.
  LinkId Join(uint64_t process) {
    const LinkId link = node_->Accept();
    Say(link, Hello(1, process));
    return link;
  }
  // Sends what the head has to send.  Notes the newest EPOCH of the first worker.
  void Deliver() {
    sent_.clear();
    for (const NodeOutput::Send& send : node_->TakeOutput().sends) {
      const auto head = std::as_bytes(std::span(send.frame.head));
      std::vector<Message> messages;
      DecodeMessages(DecodeHeader(head, {}), head, &messages);
      for (const Message& message : messages) {
        sent_.emplace_back(send.link, message.type);
        if (message.type != Type::kEpoch || send.link != first_) continue;
        epoch_ = DecodeEpoch(message.number, message.extra);
      }
    }
  }
  bool HasHeard(LinkId link, Type type) const {
    return std::ranges::find(sent_, std::pair(link, type)) != sent_.end();
  }
  // Gives the head its memory back, and lets the first worker send a PING.
  void GoOn() {
    now_ += kSoon;
    node_->Tick(now_);
    Deliver();
    Message ping = MessageOf(Type::kPing);
    ping.number = epoch_.number;
    Say(first_, FrameText({ping}));
    Deliver();
    EXPECT_TRUE(HasHeard(first_, Type::kPong));
    EXPECT_EQ(epoch_.number, node_->head().epoch().number);
    EXPECT_TRUE(epoch_.workers == node_->head().epoch().workers);
  }

  BufferPool pool_;
  std::optional<HeadNode> node_;
  Time now_ = 0;
  LinkId first_ = 0;
  Epoch epoch_;
  std::vector<std::pair<LinkId, Type>> sent_;
};

TEST_F(ScarceHeadTest, AWorkerForWhichThereIsNoMemoryJoinsAtItsNextTry) {
  int failed = 0;
  for (int allocations = 0; failed == allocations; ++allocations) {
    ASSERT_LT(allocations, 1000);
    const LinkId link = node_->Accept();
    const std::string hello = Hello(1, static_cast<uint64_t>(allocations));
    if (!test::WithMemoryFor(allocations, [&] { Say(link, hello); }).succeeded) {
      ++failed;
      EXPECT_TRUE(node_->Forget(link));
      EXPECT_FALSE(node_->IsWelcome(link));
    }
    GoOn();
    const LinkId again = node_->Accept();
    Say(again, hello);
    Deliver();
    EXPECT_TRUE(HasHeard(again, Type::kWelcome)) << allocations;
    EXPECT_EQ(node_->head().epoch().workers[1].state, Epoch::State::kAlive);
    GoOn();
    node_->Closed(again, now_);
  }
  EXPECT_GT(failed, 10);
}

TEST_F(ScarceHeadTest, ADeathIsToldWhenMemoryIsBack) {
  int lacked = 0;
  for (int allocations = 0; lacked == allocations; ++allocations) {
    ASSERT_LT(allocations, 1000);
    const LinkId link = Join(static_cast<uint64_t>(allocations));
    const uint64_t life = node_->head().epoch().workers[1].incarnation;
    const test::Attempt attempt =
        test::WithMemoryFor(allocations, [&] { node_->Exited(Role::kWorker, 1, life); });
    EXPECT_TRUE(attempt.succeeded) << allocations;
    if (attempt.ran_out) ++lacked;
    EXPECT_TRUE(node_->head().epoch().workers[1].IsDead());
    GoOn();
    node_->Closed(link, now_);
  }
  EXPECT_GT(lacked, 5);
}

TEST_F(ScarceHeadTest, AVerdictIsToldWhenMemoryIsBack) {
  int failed = 0;
  for (int allocations = 0; failed == allocations; ++allocations) {
    ASSERT_LT(allocations, 1000);
    const LinkId link = Join(static_cast<uint64_t>(allocations));
    now_ += 4 * kSecond;
    GoOn();
    now_ += 2 * kSecond;
    if (!test::WithMemoryFor(allocations, [&] { node_->Tick(now_); }).succeeded) {
      ++failed;
      EXPECT_TRUE(node_->Forget(kNoLink));
    }
    GoOn();
    EXPECT_TRUE(node_->head().epoch().workers[1].IsDead());
    EXPECT_EQ(node_->head().epoch().workers[0].state, Epoch::State::kAlive);
    node_->Closed(link, now_);
  }
  EXPECT_GT(failed, 5);
}

}  // namespace
}  // namespace tkv
