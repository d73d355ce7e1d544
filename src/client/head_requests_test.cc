#include "client/head_requests.h"

#include <gtest/gtest.h>

namespace tkv {
namespace {

class HeadRequestsTest : public testing::Test {
 protected:
  void Send(uint64_t op, Type type) {
    Message request;
    request.type = type;
    request.seq = op;
    requests_.Send(std::move(request), &effects_);
  }
  std::vector<std::pair<uint64_t, Type>> TakeSent() {
    std::vector<std::pair<uint64_t, Type>> sent;
    for (const Message& message : effects_.to_head) sent.emplace_back(message.seq, message.type);
    effects_.Clear();
    return sent;
  }

  Effects effects_;
  HeadRequests requests_{30 * kSecond};
};

using Sent = std::vector<std::pair<uint64_t, Type>>;

TEST_F(HeadRequestsTest, AreSentAgainAfterEachReconnectUntilTheyAreAnswered) {
  Send(7, Type::kGoodbye);
  Send(3, Type::kCommit);
  EXPECT_EQ(TakeSent(), (Sent{{7, Type::kGoodbye}, {3, Type::kCommit}}));
  for (int i = 0; i < 2; ++i) {
    requests_.Closed(5);
    requests_.Opened(&effects_);
    EXPECT_EQ(TakeSent(), (Sent{{3, Type::kCommit}, {7, Type::kGoodbye}}));
  }
  EXPECT_TRUE(requests_.End(3));
  EXPECT_FALSE(requests_.End(3)) << "a repeated answer";
  requests_.Closed(5);
  requests_.Opened(&effects_);
  EXPECT_EQ(TakeSent(), (Sent{{7, Type::kGoodbye}}));
  EXPECT_EQ(requests_.Operations(), std::vector<uint64_t>{7});
}

TEST_F(HeadRequestsTest, GiveUpAfterThePatienceOrWithTheEndOfTheHead) {
  EXPECT_FALSE(requests_.OutOfReach(kNever - 1));
  requests_.Closed(10 * kSecond);
  requests_.Closed(20 * kSecond);
  EXPECT_EQ(requests_.GivesUpAt(), 40 * kSecond) << "from the first loss on";
  EXPECT_FALSE(requests_.OutOfReach(39 * kSecond));
  EXPECT_TRUE(requests_.OutOfReach(40 * kSecond));
  EXPECT_STREQ(requests_.WhyNone(40 * kSecond).what(), "the head is out of reach for 30.0 s");
  requests_.Opened(&effects_);
  EXPECT_FALSE(requests_.OutOfReach(50 * kSecond));
  requests_.Ended(60 * kSecond);
  EXPECT_TRUE(requests_.OutOfReach(60 * kSecond));
  EXPECT_STREQ(requests_.WhyNone(60 * kSecond).what(), "the process of the head has ended");
}

}  // namespace
}  // namespace tkv
