#include "client/client.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tkv {
namespace {

using Kind = Operation::Kind;

// A client, worker 0 of 2, with one server that is played by the test.
class ClientTest : public ::testing::Test {
 protected:
  ClientTest() : client_(Options()) {
    epoch_.number = 1;
    epoch_.workers = {{5, Epoch::State::kAlive}, {6, Epoch::State::kAlive}};
    epoch_.servers = {{9, Epoch::State::kAlive}};
    epoch_.placement = {1, 1, {}};
    Welcome welcome;
    welcome.rank = 0;
    welcome.incarnation = 5;
    client_.Joined(Role::kWorker, welcome);
    client_.On(epoch_, now_, &effects_);
    meta_.name = CanonicalKey(0, "w");
    meta_.chunk_elements = 1024;
    meta_.shape = Shape({2000});  // two chunks
  }
  static ClientOptions Options() {
    ClientOptions options;
    options.ping_after = 10'000 * kSecond;
    return options;
  }

  OpId Begin(Kind kind, const char* verb, int priority = 0) {
    Operation operation;
    operation.kind = kind;
    operation.verb = verb;
    operation.key = meta_.name;
    operation.meta = std::make_shared<const KeyMeta>(meta_);
    operation.priority = priority;
    if (kind == Kind::kInit || kind == Kind::kPush || kind == Kind::kPushPull) {
      operation.value.bytes = {bytes_.data(), bytes_.size(), nullptr};
    }
    if (kind == Kind::kPull || kind == Kind::kPushPull) {
      operation.out = {out_.data(), out_.size(), nullptr};
    }
    const OpId id = client_.Start(std::move(operation), now_);
    client_.Settle(now_, &effects_);
    return id;
  }
  // What the client has sent since the last time, connections made as it asks for them.
  std::vector<Message> Sent() {
    std::vector<Message> messages;
    while (!effects_.dials.empty() || !effects_.sends.empty()) {
      const Effects out = std::exchange(effects_, {});
      for (const Effects::Notice& notice : out.notices) notices_.push_back(notice.text);
      for (size_t i = 0; i < out.dials.size(); ++i) client_.Opened(0, ++link_, now_, &effects_);
      for (const Effects::Sending& sending : out.sends) {
        if (sending.message.type != Type::kHello) {
          messages.push_back(sending.message);
          continue;
        }
        Welcome welcome;
        welcome.server_incarnation = 9;
        welcome.resumed = link_ > 1 && welcomes_resumed_;
        welcome.credit_bytes = credit_bytes_;
        welcome.protocol = protocol_;
        Message answer;
        answer.type = Type::kWelcome;
        answer.extra = Encode(welcome);
        Receive(answer);
      }
    }
    for (const Effects::Notice& notice : effects_.notices) notices_.push_back(notice.text);
    effects_.Clear();
    return messages;
  }
  void Answer(const Message& request, Type type, uint64_t number = 0) {
    Receive(Reply(request, type, number));
  }
  void Receive(const Message& message) {
    client_.Received(link_, message, now_, &effects_);
    client_.Settle(now_, &effects_);
  }
  void AnswerAll(const std::vector<Message>& requests, Type type, uint64_t number = 0) {
    for (const Message& request : requests) Answer(request, type, number);
  }
  void MakeKey() {
    Begin(Kind::kInit, "init");
    AnswerAll(Sent(), Type::kOk);  // the second chunk
    AnswerAll(Sent(), Type::kOk);  // the first, with which the key appears
    ASSERT_EQ(client_.TakeOutcomes().size(), 1u);
  }
  void After(Time time) {
    now_ += time;
    client_.Tick(now_, &effects_);
  }
  std::optional<Error> FailureOf(OpId id) {
    for (const Outcome& outcome : client_.TakeOutcomes()) {
      if (outcome.op == id && outcome.error) return outcome.error;
    }
    return std::nullopt;
  }

  Client client_;
  Epoch epoch_;
  KeyMeta meta_;
  Effects effects_;
  Time now_ = kSecond;
  LinkId link_ = 0;
  bool welcomes_resumed_ = true;
  Protocol protocol_;  // of the server
  size_t credit_bytes_ = size_t{1} << 30;
  std::vector<std::string> notices_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2000 * 4);
  std::vector<std::byte> out_ = std::vector<std::byte>(2000 * 4);
};

TEST_F(ClientTest, AKeyAppearsWithItsFirstChunk) {
  Begin(Kind::kInit, "init");
  const auto rest = Sent();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].chunk, 1u);
  Answer(rest[0], Type::kOk);
  const auto first = Sent();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].chunk, 0u);
}

// ---- priorities ---------------------------------------------------------------------------------

// A client whose server has room for one push at a time, with keys of one chunk.
class PriorityTest : public ClientTest {
 protected:
  PriorityTest() {
    credit_bytes_ = 1;
    meta_.shape = Shape({10});
    meta_.mode = KeyMeta::Mode::kAsync;
    bytes_.resize(40);
    out_.resize(40);
    for (const char* const name : {"a", "b", "c"}) {
      Use(name);
      MakeKey();
    }
  }
  void Use(const char* name) { meta_.name = CanonicalKey(0, name); }
  void Push(const char* name, int priority) {
    Use(name);
    Begin(Kind::kPush, "push", priority);
  }
  // The keys whose pushes leave, each accepted before the next.
  std::string Leaving() {
    std::string names;
    for (auto sent = Sent(); !sent.empty(); sent = Sent()) {
      for (const Message& message : sent) {
        EXPECT_EQ(message.type, Type::kPush);
        for (const char* const name : {"a", "b", "c"}) {
          if (message.key == IdOf(CanonicalKey(0, name))) names += name;
        }
        Answer(message, Type::kAccepted, ++version_);
      }
    }
    return names;
  }
  uint64_t version_ = 0;
};

TEST_F(PriorityTest, WhatWaitsLeavesTheLargerFirst) {
  for (const auto& [name, priority] : {std::pair("a", 0), {"b", -1}, {"c", 5}})
    Push(name, priority);
  EXPECT_EQ(Leaving(), "acb");  // the first one did not have to wait
}

TEST_F(PriorityTest, EqualOnesKeepTheirOrder) {
  for (const char* const name : {"c", "a", "b"}) Push(name, 7);
  EXPECT_EQ(Leaving(), "cab");
}

TEST_F(PriorityTest, PushesOfOneKeyKeepTheirOrder) {
  Push("a", 0);
  Push("b", 1);
  Push("c", 2);
  Push("b", 3);  // passes c's, but not the one of its own key
  std::vector<uint64_t> rounds;
  for (auto sent = Sent(); !sent.empty(); sent = Sent()) {
    for (const Message& message : sent) {
      if (message.key == IdOf(CanonicalKey(0, "b"))) rounds.push_back(message.number);
      Answer(message, Type::kAccepted, ++version_);
    }
  }
  EXPECT_EQ(rounds, (std::vector<uint64_t>{1, 2}));
}

TEST_F(ClientTest, APushOfAnotherSizeTakesNoRoundAndNothingLeaves) {
  MakeKey();
  bytes_.resize(1999 * 4);
  const OpId push = Begin(Kind::kPush, "push");
  EXPECT_TRUE(Sent().empty());
  const auto error = FailureOf(push);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kInvalidArgument);
  EXPECT_EQ(client_.RoundOf(meta_.name), 0U);
}

TEST_F(ClientTest, EachChunkGoesToTheServerThatThePlacementNames) {
  epoch_.number = 2;
  epoch_.servers.push_back({10, Epoch::State::kAlive});
  epoch_.placement = {2, 2, std::vector<uint32_t>(kSlots, 0)};
  epoch_.placement.slots[SlotOf(IdOf(meta_.name), 1)] = 1;
  client_.On(epoch_, now_, &effects_);
  Begin(Kind::kInit, "init");
  ASSERT_EQ(effects_.dials.size(), 1U);
  EXPECT_EQ(effects_.dials[0].index, 1U) << "the second chunk, which leaves first";
}

TEST_F(ClientTest, AServerOfAnotherProtocolIsNamedAndNotDialedAgain) {
  protocol_.version = 3;
  const OpId init = Begin(Kind::kInit, "init");
  Sent();
  const auto error = FailureOf(init);
  ASSERT_TRUE(error);
  EXPECT_EQ(std::string(error->what()),
            "init 'w': server 0 speaks protocol 3, this process protocol 2; upgrade tensorkv where "
            "this process runs");
  After(60 * kSecond);
  EXPECT_TRUE(effects_.dials.empty());
}

// ---- rounds -------------------------------------------------------------------------------------

TEST_F(ClientTest, ARoundLeavesOnlyWhenTheOneBeforeItIsKnownToBeComplete) {
  MakeKey();
  Begin(Kind::kPush, "push");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].number, 1u);
  AnswerAll(first, Type::kAccepted, 0);  // and the other worker has not pushed yet
  Begin(Kind::kPush, "push");
  const auto asked = Sent();
  ASSERT_EQ(asked.size(), 2u);
  for (const Message& message : asked) {
    EXPECT_EQ(message.type, Type::kPull);
    EXPECT_EQ(message.flags, kNoBody | kOfBirth);
    EXPECT_EQ(message.number, 1u);
  }
  Answer(asked[0], Type::kValue, 1);
  EXPECT_TRUE(Sent().empty());
  Answer(asked[1], Type::kValue, 1);
  const auto second = Sent();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].type, Type::kPush);
  EXPECT_EQ(second[0].number, 2u);
}

// Of these messages those of one type.
std::vector<Message> Of(Type type, std::vector<Message> messages) {
  std::erase_if(messages, [&](const Message& message) { return message.type != type; });
  return messages;
}

TEST_F(ClientTest, AChangeOfTheUpdaterCountsAfterThePushesThatWereGivenBeforeIt) {
  MakeKey();
  Begin(Kind::kPush, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  Begin(Kind::kPush, "push");  // round 2, which waits for version 1
  const auto asked = Sent();
  Begin(Kind::kControl, "set_optimizer");
  Begin(Kind::kPush, "push");  // round 3
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
  Begin(Kind::kPush, "push");
  const auto pushes = Sent();
  Begin(Kind::kControl, "set_optimizer");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pushes, Type::kAccepted, 1);
  EXPECT_EQ(Of(Type::kControl, Sent()).size(), 1U);
}

TEST_F(ClientTest, AChangeOfTheUpdaterLeavesAfterAnEarlierInit) {
  Begin(Kind::kInit, "init");
  Begin(Kind::kControl, "set_optimizer");
  const auto rest = Sent();
  EXPECT_TRUE(Of(Type::kControl, rest).empty());
  AnswerAll(rest, Type::kOk);
  AnswerAll(Sent(), Type::kOk);
  EXPECT_EQ(Of(Type::kControl, Sent()).size(), 1U);
}

TEST_F(ClientTest, AKeyThatIsGoneIsFoundAgainByAnInit) {
  MakeKey();
  const OpId push = Begin(Kind::kPush, "push");
  const auto pushes = Sent();
  ASSERT_EQ(pushes.size(), 2U);
  EXPECT_EQ(pushes[0].flags, kOfBirth);
  for (const Message& sent : pushes) {
    Receive(ErrorReply(sent.seq, Code::kFailedPrecondition, "made anew"));
  }
  EXPECT_EQ(FailureOf(push)->code(), Code::kFailedPrecondition);
  const OpId pull = Begin(Kind::kPull, "pull");
  EXPECT_EQ(FailureOf(pull)->code(), Code::kNotFound);
  Begin(Kind::kInit, "init");
  EXPECT_EQ(Of(Type::kInit, Sent()).size(), 1U);
}

TEST_F(ClientTest, AnObserverThatLosesItsLinkAsksAgain) {
  Welcome welcome;
  welcome.incarnation = 7;
  client_.Joined(Role::kObserver, welcome);
  const OpId open = Begin(Kind::kOpen, "open");
  const auto describe = Sent();
  client_.Closed(link_, now_);
  welcomes_resumed_ = false;  // the server keeps nothing of an observer
  After(kSecond);
  const auto again = Sent();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].type, Type::kDescribe);
  Message meta = Reply(again[0], Type::kMeta);
  meta.extra = Encode(meta_);
  Receive(meta);
  EXPECT_EQ(FailureOf(open), std::nullopt);
  EXPECT_TRUE(notices_.empty() || notices_.back().find("lost its values") == std::string::npos);
}

TEST_F(ClientTest, ADeadlineNamesARankThatTheJobDoesNotHave) {
  MakeKey();
  Begin(Kind::kPushPull, "pushpull");
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

TEST_F(ClientTest, AStoreIsClosedAfterItsPushesAreAccepted) {
  MakeKey();
  Begin(Kind::kPush, "push");
  const auto pushes = Sent();
  const OpId close = Begin(Kind::kClose, "close");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pushes, Type::kAccepted, 0);
  const OpId pull = Begin(Kind::kPull, "pull");
  const auto sent = Of(Type::kClose, Sent());
  ASSERT_EQ(sent.size(), 1U);
  client_.TakeOutcomes();
  AnswerAll(sent, Type::kOk);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].op, close);
  EXPECT_FALSE(outcomes[0].error);
  EXPECT_NE(pull, kNoOp);
  EXPECT_EQ(FailureOf(Begin(Kind::kPull, "pull"))->code(), Code::kNotFound);
}

TEST_F(ClientTest, ALaterLifeSaysWhereItJoinsAlsoBeforeTheFirstRound) {
  Welcome welcome;
  welcome.rank = 0;
  welcome.incarnation = 5;
  welcome.rejoined = true;
  client_.Joined(Role::kWorker, welcome);
  Begin(Kind::kInit, "init");
  const auto describe = Sent();
  ASSERT_EQ(describe.size(), 1U);
  Message meta = Reply(describe[0], Type::kMeta);
  meta.extra = Encode(meta_);
  Receive(meta);
  for (const Message& status : Sent()) {
    Message reply = Reply(status, Type::kStatusReply);
    reply.extra = Encode(ChunkStatus{});
    Receive(reply);
  }
  const auto abstain = Sent();
  ASSERT_EQ(abstain.size(), 1U) << "one for each server";
  EXPECT_EQ(abstain[0].type, Type::kAbstain);
  EXPECT_EQ(abstain[0].number, 0U);
}

TEST_F(ClientTest, NoPushOfAKeyLeavesWhileAPullOfItIsUnanswered) {
  MakeKey();
  Begin(Kind::kPull, "pull");
  const auto pulls = Sent();
  Begin(Kind::kPush, "push");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pulls, Type::kValue, 0);
  EXPECT_EQ(Sent().size(), 2u);
}

TEST_F(ClientTest, ThePullAfterAPushAsksForItsRound) {
  MakeKey();
  Begin(Kind::kPush, "push");
  Begin(Kind::kPull, "pull");
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 4u);
  for (const Message& message : sent) EXPECT_EQ(message.number, 1u);
}

TEST_F(ClientTest, TheSourceIsFreeWhenEveryChunkIsAccepted) {
  MakeKey();
  Begin(Kind::kPushPull, "pushpull");
  const auto sent = Sent();
  Answer(sent[0], Type::kAccepted, 0);
  EXPECT_TRUE(client_.TakeOutcomes().empty());
  Answer(sent[0].type == sent[1].type ? sent[1] : sent[2], Type::kAccepted, 0);
  const auto outcomes = client_.TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].event, Outcome::Event::kAccepted);
  EXPECT_EQ(outcomes[0].round, 1u);
}

// The bytes of every message that carries some, for a user who writes 0xAB to his memory as soon
// as it is his again.
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
  credit_bytes_ = 1;  // one chunk leaves, the other one waits
  MakeKey();
  const OpId push = Begin(Kind::kPushPull, "pushpull");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 2u) << "a push and its pull";
  client_.Cancel(push, Error(Code::kDeadlineExceeded, "too late"), now_, &effects_);
  ASSERT_TRUE(FailureOf(push));
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  Answer(first[0], Type::kAccepted);
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, APushThatFailedIsSentAgainFromACopy) {
  MakeKey();
  const OpId push = Begin(Kind::kPush, "push");
  Sent();
  client_.Cancel(push, Error(Code::kDeadlineExceeded, "too late"), now_, &effects_);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  ExpectOldBytes(SentAfterReconnecting());
}

TEST_F(OwnershipTest, AnInitThatFailedIsSentFromACopy) {
  credit_bytes_ = 1;
  meta_.shape = Shape({4000});  // four chunks, of which three leave first
  bytes_.resize(4000 * 4);
  const OpId init = Begin(Kind::kInit, "init");
  const auto first = Sent();
  ASSERT_EQ(first.size(), 1u);
  client_.Cancel(init, Error(Code::kDeadlineExceeded, "too late"), now_, &effects_);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  Answer(first[0], Type::kOk);
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, ADetachedPushIsReadNoMoreBeforeAndAfterItLeaves) {
  MakeKey();
  const OpId first = Begin(Kind::kPush, "push");
  Sent();
  const OpId second = Begin(Kind::kPush, "push");  // waits for the first round
  client_.Detach(first);
  client_.Detach(second);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  const auto again = SentAfterReconnecting();
  ExpectOldBytes(again);
  for (const Message& message : again) {
    Answer(message, message.type == Type::kPush ? Type::kAccepted : Type::kValue, 1);
  }
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, AnInitThatIsDetachedKeepsItsLastChunk) {
  Begin(Kind::kInit, "init");
  client_.Detach(client_.next_op() - 1);
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xAB});
  const auto rest = Sent();
  ASSERT_EQ(rest.size(), 1u);
  Answer(rest[0], Type::kOk);
  ExpectOldBytes(Sent());
}

TEST_F(OwnershipTest, AFencedLifeKeepsNoMemoryOfItsUser) {
  MakeKey();
  auto owner = std::make_shared<int>(0);
  Operation push;
  push.kind = Kind::kPush;
  push.verb = "push";
  push.key = meta_.name;
  push.value.bytes = {bytes_.data(), bytes_.size(), owner};
  client_.Start(std::move(push), now_);
  client_.Settle(now_, &effects_);
  Sent();
  epoch_.number = 2;
  epoch_.workers[0].incarnation = 7;
  client_.On(epoch_, now_, &effects_);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(ClientTest, AfterALostConnectionTheUnansweredIsSentAgainUnderTheSameNumbers) {
  MakeKey();
  Begin(Kind::kPush, "push");
  const auto before = Sent();
  client_.Closed(link_, now_);
  client_.TakeOutcomes();
  After(kSecond);
  const auto after = Sent();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].seq, before[i].seq);
    EXPECT_EQ(after[i].number, before[i].number);
  }
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_EQ(notices_[0], "resumed the session with server 0; unanswered operations sent again: 2");
}

TEST_F(ClientTest, SaysWhomItWaitsForAfter5And10And20And40Seconds) {
  MakeKey();
  Begin(Kind::kPush, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  Begin(Kind::kPull, "pull");
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

TEST_F(ClientTest, ManyOperationsThatStandStillAreOneLineAndOneMoreEachMinuteAtLeast) {
  MakeKey();
  Begin(Kind::kPush, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  for (int i = 0; i < 50; ++i) Begin(Kind::kPull, "pull");
  Sent();
  size_t asked = 0;
  for (int second = 1; second <= 300; ++second) {
    After(kSecond);
    for (const Message& message : Sent())
      asked += static_cast<size_t>(message.type == Type::kStatus);
  }
  EXPECT_EQ(asked, 8u);           // after 5, 10, 20, 40, 80, 140, 200 and 260 s
  EXPECT_TRUE(notices_.empty());  // nobody has answered yet
}

TEST_F(ClientTest, WhoWaitsForAServerThatCannotBeReachedIsTold) {
  MakeKey();
  client_.Closed(link_, now_);
  Begin(Kind::kPull, "pull");
  Begin(Kind::kPull, "pull");
  const auto refuse = [&] {
    effects_.dials.clear();
    client_.Failed(0, now_);
  };
  for (int tick = 1; tick <= 70; ++tick) {
    refuse();
    After(kSecond / 10);
  }
  effects_.dials.clear();
  Sent();
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_EQ(notices_[0],
            "still waiting 5 s for server 0 (pull 'w'): standing=5.0s verb=pull key='w' "
            "waits_for=\"server 0\" server=0 link=idle last_word=5.0s others=1");
}

TEST_F(ClientTest, ADeadlineNamesVerbKeyPeerAndRound) {
  MakeKey();
  Begin(Kind::kPush, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);
  const OpId pull = Begin(Kind::kPull, "pull");
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

TEST_F(ClientTest, AServerThatStartedAgainIsNamedAndNothingIsRetried) {
  MakeKey();
  const OpId pull = Begin(Kind::kPull, "pull");
  Sent();
  epoch_.number = 2;
  epoch_.servers[0].incarnation = 10;
  client_.On(epoch_, now_, &effects_);
  const auto error = FailureOf(pull);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnavailable);
  EXPECT_STREQ(error->what(),
               "pull 'w': server 0 has started again and has lost its values; the job cannot go "
               "on: start it again from your checkpoint");
  Sent();
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_EQ(notices_[0], std::string(error->what()).substr(10));
}

TEST_F(ClientTest, AFencedLifeEndsWithAllItsOperations) {
  MakeKey();
  const OpId pull = Begin(Kind::kPull, "pull");
  Sent();
  epoch_.number = 2;
  epoch_.workers[0].incarnation = 7;
  client_.On(epoch_, now_, &effects_);
  const auto error = FailureOf(pull);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kAborted);
  EXPECT_STREQ(error->what(),
               "pull 'w': worker 0: this life is over (incarnation 5): another one has begun");
  const OpId late = Begin(Kind::kPush, "push");
  EXPECT_EQ(FailureOf(late)->code(), Code::kAborted);
}

TEST_F(ClientTest, TheDeathOfAnotherWorkerIsTold) {
  epoch_.number = 2;
  epoch_.workers[1].state = Epoch::State::kDead;
  client_.On(epoch_, now_, &effects_);
  Sent();
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_EQ(notices_[0], "worker 1 is dead");
}

// ---- for those who look -------------------------------------------------------------------------

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
  Begin(Kind::kPush, "push");
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
  Begin(Kind::kPush, "push");
  AnswerAll(Sent(), Type::kAccepted, 0);  // held; round 1 is not complete
  Begin(Kind::kPush, "push");             // asks whether it is
  const auto asks = Sent();
  ASSERT_EQ(asks.size(), 2u);
  now_ += 2 * kSecond;
  AnswerAll(asks, Type::kValue, 1);
  AnswerAll(Sent(), Type::kAccepted, 1);
  EXPECT_EQ(Stats().of(WaitCause::kRound).count, 1u);
  EXPECT_DOUBLE_EQ(Stats().of(WaitCause::kRound).seconds, 2);
  EXPECT_EQ(Stats().of(WaitCause::kPull).count, 0u);
  Begin(Kind::kPull, "pull");
  const auto pulls = Sent();
  Begin(Kind::kPush, "push");
  now_ += kSecond;
  client_.Closed(link_, now_);                        // it is asked again, and is still one wait
  EXPECT_EQ(Stats().of(WaitCause::kPull).count, 0u);  // it has not ended
  client_.Cancel(client_.next_op() - 1, Error(Code::kCancelled, "given up"), now_, &effects_);
  EXPECT_EQ(Stats().of(WaitCause::kPull).count, 1u);
  EXPECT_DOUBLE_EQ(Stats().of(WaitCause::kPull).seconds, 1);
}

TEST_F(ClientStatsTest, AFullWindowIsCountedAsSuch) {
  meta_.shape = Shape({10});
  meta_.mode = KeyMeta::Mode::kAsync;
  bytes_.resize(40);
  MakeKey();
  std::vector<Message> sent;
  for (uint64_t i = 0; i <= ServerSession::kWindow; ++i) {
    Begin(Kind::kPush, "push");
    for (Message& message : Sent()) sent.push_back(std::move(message));
  }
  ASSERT_EQ(sent.size(), ServerSession::kWindow);
  now_ += kSecond;
  Answer(sent[0], Type::kAccepted, 1);
  EXPECT_EQ(Stats().of(WaitCause::kWindow).count, 1u);
  EXPECT_DOUBLE_EQ(Stats().of(WaitCause::kWindow).seconds, 1);
  EXPECT_EQ(Stats().of(WaitCause::kCredit).count, 0u);
}

TEST_F(ClientStatsTest, ResendsAndReconnectsAreThoseOfAServer) {
  EXPECT_EQ(Stats().peers.at(0).state, "idle");
  EXPECT_EQ(Stats().peers.at(0).last_word_seconds, -1);
  MakeKey();
  EXPECT_EQ(Stats().of(WaitCause::kLink).count, 1u);
  Begin(Kind::kPull, "pull");
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
