#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;

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
    Begin(Operation::Push{}, "push", priority);
  }
  // Returns the keys of all pushes in the order of leaving.  Accepts each push before the next.
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
  EXPECT_EQ(Leaving(), "acb");  // the first push did not have to wait
}

TEST_F(PriorityTest, EqualOnesKeepTheirOrder) {
  for (const char* const name : {"c", "a", "b"}) Push(name, 7);
  EXPECT_EQ(Leaving(), "cab");
}

TEST_F(PriorityTest, PushesOfOneKeyKeepTheirOrder) {
  Push("a", 0);
  Push("b", 1);
  Push("c", 2);
  Push("b", 3);  // passes c's push, but not the push of its own key
  std::vector<uint64_t> rounds;
  for (auto sent = Sent(); !sent.empty(); sent = Sent()) {
    for (const Message& message : sent) {
      if (message.key == IdOf(CanonicalKey(0, "b"))) rounds.push_back(message.number);
      Answer(message, Type::kAccepted, ++version_);
    }
  }
  EXPECT_EQ(rounds, (std::vector<uint64_t>{1, 2}));
}

// A client whose connection is lost again and again.
class LostLinkTest : public ClientTest {
 protected:
  LostLinkTest() {
    MakeKey();
    Begin(Operation::Push{}, "push");
    Sent();
  }
  // Returns the time until the client dials again.
  Time LoseAndReconnect() {
    client_.Closed(link_, now_);
    const Time lost_at = now_;
    while (effects_.dials.empty()) After(kMillisecond);
    const Time waited = now_ - lost_at;
    EXPECT_FALSE(Sent().empty()) << "what is not answered is sent again";
    return waited;
  }
};

TEST_F(LostLinkTest, OneThatEndsAtOnceIsMadeAgainLaterEachTime) {
  Time last = LoseAndReconnect();
  for (int i = 0; i < 4; ++i) {
    const Time next = LoseAndReconnect();
    EXPECT_EQ(next, 2 * last);
    last = next;
  }
}

TEST_F(LostLinkTest, OneThatHasLastedIsMadeAgainSoon) {
  const Time first = LoseAndReconnect();
  for (int i = 0; i < 3; ++i) {
    After(2 * kSecond);
    EXPECT_EQ(LoseAndReconnect(), first);
  }
}

TEST_F(ClientTest, AServerOfAnotherProtocolIsNamedAndNotDialedAgain) {
  protocol_.version = 3;
  const OpId init = Begin(Operation::Init{}, "init");
  Sent();
  const auto error = FailureOf(init);
  ASSERT_TRUE(error);
  EXPECT_EQ(std::string(error->what()),
            "init 'w': server 0 speaks protocol 3, this process protocol 2; upgrade tensorkv where "
            "this process runs");
  After(60 * kSecond);
  EXPECT_TRUE(effects_.dials.empty());
}

TEST_F(ClientTest, AnObserverThatLosesItsLinkAsksAgain) {
  Welcome welcome;
  welcome.incarnation = 7;
  client_.Joined(Role::kObserver, welcome);
  const OpId open = Begin(Operation::Open{}, "open");
  const auto describe = Sent();
  client_.Closed(link_, now_);
  welcomes_resumed_ = false;  // the server forgets observers
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

TEST_F(ClientTest, AfterALostConnectionTheUnansweredIsSentAgainUnderTheSameNumbers) {
  MakeKey();
  Begin(Operation::Push{}, "push");
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

TEST_F(ClientTest, WhoWaitsForAServerThatCannotBeReachedIsTold) {
  MakeKey();
  client_.Closed(link_, now_);
  Begin(Operation::Pull{}, "pull");
  Begin(Operation::Pull{}, "pull");
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

class SilentServerTest : public ClientTest {
 protected:
  SilentServerTest() : ClientTest(5 * kSecond) {}
};

TEST_F(SilentServerTest, ItsSilenceCountsForThePatience) {
  MakeKey();
  const OpId pull = Begin(Operation::Pull{}, "pull");
  Sent();  // no answer comes, and the next dials fail
  std::optional<Error> error;
  int seconds = 0;
  while (!error && seconds < 60) {
    After(kSecond);
    ++seconds;
    if (!effects_.dials.empty()) client_.Failed(0, now_);
    effects_.Clear();
    client_.Settle(now_, &effects_);
    error = FailureOf(pull);
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(seconds, 30) << error->what();
  EXPECT_EQ(error->code(), Code::kUnavailable);
  EXPECT_NE(std::string(error->what()).find("server 0: out of reach for 30.0 s"), std::string::npos)
      << error->what();
}

// A client that has lost its connection and whose machine has no file descriptor left for another.
class ScarceLinkTest : public ClientTest {
 protected:
  ScarceLinkTest() { MakeKey(); }
  // The next dial, within the longest time between two, finds no descriptor.
  void Lack() {
    for (int i = 0; effects_.dials.empty() && i < 100; ++i) After(kSecond / 10);
    ASSERT_FALSE(effects_.dials.empty());
    effects_.Clear();
    client_.Failed(0, now_);
    client_.LackedResources(0, Error(Code::kResourceExhausted, "Too many open files"), now_,
                            &effects_);
  }
};

TEST_F(ScarceLinkTest, WhatHasNotLeftEndsAtOnce) {
  client_.Closed(link_, now_);
  for (int i = 0; i < 2; ++i) {
    const OpId pull = Begin(Operation::Pull{}, "pull");
    Lack();
    const auto error = FailureOf(pull);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Code::kResourceExhausted);
    EXPECT_STREQ(error->what(), "pull 'w': server 0: Too many open files");
  }
}

TEST_F(ScarceLinkTest, WhatHasLeftWaitsForThePatienceAndSaysWhy) {
  const OpId push = Begin(Operation::Push{}, "push");
  Sent();
  client_.Closed(link_, now_);
  Lack();
  EXPECT_FALSE(FailureOf(push)) << "the server may have it";
  std::optional<Error> error;
  for (int i = 0; !error && i < 10'000; ++i) {
    After(kSecond / 10);
    error = FailureOf(push);
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnavailable);
  EXPECT_NE(std::string(error->what()).find("s: Too many open files"), std::string::npos)
      << error->what();
}

TEST_F(ClientTest, AServerThatStartedAgainIsNamedAndNothingIsRetried) {
  MakeKey();
  const OpId pull = Begin(Operation::Pull{}, "pull");
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

}  // namespace
}  // namespace tkv
