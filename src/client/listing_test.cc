#include "tests/client_fixture.h"

namespace tkv {
namespace {

class ListingClientTest : public test::ClientTest {
 protected:
  OpId BeginList(Listing::Request request) {
    return Start(Operation::List{std::move(request)}, "status", "");
  }
  OpId BeginDescribe() { return Start(Operation::Describe{true}, "explain", meta_.name); }
};

TEST_F(ListingClientTest, AsksAndHandsOverWhatTheServerHas) {
  protocol_.features = kListFeature;
  const OpId id = BeginList({.server = 0, .after = {1, 2}});
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].type, Type::kList);
  EXPECT_EQ(sent[0].key, (KeyId{1, 2}));
  Listed::Item item;
  item.meta = meta_;
  item.missing = {1};
  item.open_for = 7;
  Message reply = Reply(sent[0], Type::kListed, 1);
  reply.key = {3, 2};
  reply.extra = Encode(Listed{.observers = 4}, 1, Encode(item));
  Receive(reply);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].op, id);
  const auto* const result = outcomes[0].As<std::shared_ptr<const Listing>>();
  ASSERT_NE(result, nullptr);
  const Listing& listing = **result;
  EXPECT_EQ(listing.listed.observers, 4U);
  EXPECT_EQ(listing.listed.items, std::vector{item});
  EXPECT_EQ(listing.last, (KeyId{3, 2}));
  EXPECT_TRUE(listing.has_more);
}

TEST_F(ListingClientTest, AServerThatGoesRoundInCirclesHasNoMore) {
  protocol_.features = kListFeature;
  BeginList({.server = 0, .after = {1, 2}});
  Message reply = Reply(Sent()[0], Type::kListed, 1);
  reply.extra = Encode(Listed{}, 0, "");
  Receive(reply);
  const auto outcomes = client_.TakeOutcomes();
  EXPECT_FALSE((*outcomes[0].As<std::shared_ptr<const Listing>>())->has_more);
}

TEST_F(ListingClientTest, AnOlderServerIsNotAsked) {
  MakeKey();  // the client now knows the features of the server
  const OpId id = BeginList({});
  EXPECT_TRUE(Sent().empty());
  const auto error = FailureOf(id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnimplemented);
  EXPECT_NE(std::string(error->what()).find("server 0 does not list its keys"), std::string::npos);
}

TEST_F(ListingClientTest, AsksHowAKeyIsUpdated) {
  protocol_.features = kRuleFeature;
  BeginDescribe();
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].flags, kNoWait | kWithRule);
  KeyMeta meta = meta_;
  meta.own = UpdateSpec{.program = "program p\n", .params = {2}};
  Message reply = Reply(sent[0], Type::kMeta, 1);
  reply.extra = Encode(meta);
  Receive(reply);
  const auto outcomes = client_.TakeOutcomes();
  EXPECT_EQ(outcomes.at(0).As<Outcome::Found>()->meta->own, meta.own);
}

TEST_F(ListingClientTest, AnOlderServerIsNotAskedHowAKeyIsUpdated) {
  MakeKey();  // the client now knows the features of the server
  const OpId id = BeginDescribe();
  EXPECT_TRUE(Sent().empty());
  const auto error = FailureOf(id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnimplemented);
}

TEST_F(ListingClientTest, AnObserverFindsNoKeyThatIsNotThere) {
  Welcome welcome;
  welcome.incarnation = 5;
  client_.Joined(Role::kObserver, welcome);
  client_.On(epoch_, now_, &effects_);
  const OpId id = Start(Operation::Open{false}, "pull", meta_.name);
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].flags, kNoWait);
  Receive(ErrorReply(sent[0].seq, Code::kNotFound, "no such key"));
  const auto error = FailureOf(id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kNotFound);
  EXPECT_FALSE(client_.Knows(meta_.name));
}

}  // namespace
}  // namespace tkv
