#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::Kind;

class ListingClientTest : public test::ClientTest {
 protected:
  OpId BeginList(Listing::Request request) {
    Operation list;
    list.kind = Kind::kList;
    list.verb = "status";
    list.list = request;
    const OpId id = client_.Start(std::move(list), now_);
    client_.Settle(now_, &effects_);
    return id;
  }
  OpId BeginDescribe() {
    Operation describe;
    describe.kind = Kind::kDescribe;
    describe.verb = "explain";
    describe.key = meta_.name;
    describe.with_rule = true;
    const OpId id = client_.Start(std::move(describe), now_);
    client_.Settle(now_, &effects_);
    return id;
  }
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
  ASSERT_NE(outcomes[0].listing, nullptr);
  const Listing& listing = *outcomes[0].listing;
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
  EXPECT_FALSE(client_.TakeOutcomes()[0].listing->has_more);
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
  EXPECT_EQ(client_.TakeOutcomes().at(0).meta->own, meta.own);
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
  Operation open;
  open.kind = Kind::kOpen;
  open.verb = "pull";
  open.key = meta_.name;
  open.may_wait = false;
  const OpId id = client_.Start(std::move(open), now_);
  client_.Settle(now_, &effects_);
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
