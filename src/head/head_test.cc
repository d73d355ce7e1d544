#include "head/head.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "head/member.h"
#include "tests/growth.h"

namespace tkv {
namespace {

// A head of a job of two workers and one server.
class HeadTest : public ::testing::Test {
 protected:
  HeadTest() : head_({"job", 2, 1, Epoch::Policy::kFail, 5 * kSecond}, 0) {}

  // Sends HELLO on a new link and returns the WELCOME.  Sets sent_, and sets refused_ to the reason
  // if the head closes the link.
  Welcome Join(Role role, Rank rank, uint64_t incarnation = 0) {
    Hello hello{"job", role, rank, incarnation, ++process_, ""};
    Message message;
    message.type = Type::kHello;
    message.extra = Encode(hello);
    Effects effects;
    head_.Received(++link_, message, now_, &effects);
    Note(effects);
    sent_ = effects.sends;
    refused_.clear();
    for (const auto& closing : effects.closes) refused_ = closing.reason;
    for (const auto& sending : effects.sends) {
      if (sending.message.type == Type::kWelcome) return DecodeWelcome(sending.message.extra);
    }
    return {};
  }
  std::vector<Effects::Sending> Send(LinkId link, Type type, uint64_t number = 0) {
    Message message;
    message.type = type;
    message.number = number;
    Effects effects;
    head_.Received(link, message, now_, &effects);
    Note(effects);
    return effects.sends;
  }
  void Note(const Effects& effects) {
    for (const auto& notice : effects.notices) notices_.push_back(notice.text);
  }

  Head head_;
  Time now_ = 0;
  LinkId link_ = 0;
  uint64_t process_ = 0;
  std::string refused_;
  std::vector<Effects::Sending> sent_;  // by the head, at the last Join
  std::vector<std::string> notices_;
};

TEST_F(HeadTest, WhoSpeaksAnotherProtocolIsToldBothAndWhatToUpgrade) {
  for (const uint32_t version : {1U, 3U}) {
    Hello hello{"job", Role::kWorker, 1, 0, ++process_, ""};
    hello.protocol.version = version;
    hello.protocol.package = "tensorkv 7.8.9";
    std::string payload = Encode(hello);
    // A HELLO of version 1 ends before the fields of the protocol.
    if (version == 1)
      payload.resize(payload.size() - (4 + 8 + 8 + 4 + hello.protocol.package.size()));
    Message message;
    message.type = Type::kHello;
    message.extra = payload;
    Effects effects;
    head_.Received(++link_, message, now_, &effects);
    EXPECT_TRUE(effects.sends.empty());
    ASSERT_EQ(effects.closes.size(), 1U);
    EXPECT_EQ(effects.closes[0].code, Code::kFailedPrecondition);
    EXPECT_EQ(effects.closes[0].reason,
              version == 1
                  ? "HELLO: worker 1 speaks protocol 1, the head protocol 2; upgrade "
                    "tensorkv where worker 1 runs"
                  : "HELLO: worker 1 speaks protocol 3 (tensorkv 7.8.9), the head protocol "
                    "2; upgrade tensorkv where the head runs");
    ASSERT_EQ(effects.notices.size(), 1U) << "the head says so, too";
    EXPECT_EQ(head_.epoch().workers[1].state, Epoch::State::kAwaited);
  }
}

TEST_F(HeadTest, AProcessOfALaterVersionWithAnUnknownRoleIsRefusedByItsVersion) {
  Hello hello{"job", static_cast<Role>(9), kNoRank, 0, ++process_, ""};
  hello.protocol.version = 3;
  Message message;
  message.type = Type::kHello;
  message.extra = Encode(hello);
  Effects effects;
  head_.Received(++link_, message, now_, &effects);
  ASSERT_EQ(effects.closes.size(), 1U);
  EXPECT_EQ(effects.closes[0].code, Code::kFailedPrecondition);
  EXPECT_TRUE(effects.closes[0].reason.starts_with(
      "HELLO: a process of an unknown role speaks protocol 3, the head protocol 2"))
      << effects.closes[0].reason;
}

TEST_F(HeadTest, WhoNeverComesIsDeadOrHasLeftAtOnce) {
  Effects effects;
  head_.Gone(Role::kWorker, 0, true, &effects);
  head_.Gone(Role::kWorker, 1, false, &effects);
  head_.Gone(Role::kServer, 0, true, &effects);
  EXPECT_TRUE(head_.epoch().workers[0].IsDead());
  EXPECT_EQ(head_.epoch().workers[1].state, Epoch::State::kLeft);
  EXPECT_TRUE(head_.epoch().servers[0].IsDead());
}

// A restorer holds the rank until the worker joins, and this worker has ended before that.
TEST_F(HeadTest, AWorkerThatDoesNotTakeOverTheLifeOfItsRestorerHasLeft) {
  const Welcome restorer = Join(Role::kWorker, 0);
  EXPECT_EQ(head_.LifeOf(Role::kWorker, 0), restorer.incarnation);
  EXPECT_EQ(head_.LifeOf(Role::kWorker, 1), 0U);
  Effects effects;
  head_.Gone(Role::kWorker, 0, false, &effects);
  EXPECT_TRUE(head_.HasLeft(Role::kWorker, 0));
}

TEST_F(HeadTest, KnowsIfAWorkerTakesPart) {
  Join(Role::kServer, 0);
  EXPECT_FALSE(head_.IsAnyWorkerAlive());
  const Welcome first = Join(Role::kWorker, 0);
  Join(Role::kWorker, 1);
  Effects effects;
  head_.Exited(Role::kWorker, 0, first.incarnation, &effects);
  EXPECT_TRUE(head_.IsAnyWorkerAlive());
  Send(3, Type::kGoodbye);
  EXPECT_FALSE(head_.IsAnyWorkerAlive());
}

TEST_F(HeadTest, WhoHasJoinedIsNotGoneByThatAlone) {
  Join(Role::kWorker, 0);
  const uint64_t number = head_.epoch().number;
  Effects effects;
  head_.Gone(Role::kWorker, 0, true, &effects);
  EXPECT_EQ(head_.epoch().workers[0].state, Epoch::State::kAlive);
  EXPECT_EQ(head_.epoch().number, number);
}

TEST_F(HeadTest, WhoTakesLeaveBecauseItsProgramHasFailedIsDead) {
  Join(Role::kWorker, 0);
  Join(Role::kWorker, 1);
  Send(1, Type::kGoodbye, 1);
  Send(2, Type::kGoodbye, 0);
  EXPECT_TRUE(head_.epoch().workers[0].IsDead());
  EXPECT_EQ(head_.epoch().workers[1].state, Epoch::State::kLeft);
  EXPECT_EQ(notices_[2], "worker 0 is dead: its program has failed");
}

TEST_F(HeadTest, NobodyWaitsForTheNextLifeOfADeadWorkerThatIsGone) {
  head_ = Head({"job", 2, 1, Epoch::Policy::kWait, 5 * kSecond}, 0);
  const Welcome welcome = Join(Role::kWorker, 1);
  Effects effects;
  head_.Exited(Role::kWorker, 1, welcome.incarnation, &effects);
  EXPECT_FALSE(head_.epoch().IsGone(1));
  head_.Gone(Role::kWorker, 1, true, &effects);
  EXPECT_TRUE(head_.epoch().IsGone(1));
  EXPECT_EQ(head_.epoch().policy, Epoch::Policy::kWait);  // of the other worker
  Join(Role::kWorker, 0);
  EXPECT_FALSE(head_.epoch().IsGone(0));
}

TEST_F(HeadTest, ADeadWorkerReturnsWhereALauncherSaysSoUnderAnyPolicy) {
  for (const auto policy : {Epoch::Policy::kFail, Epoch::Policy::kWait, Epoch::Policy::kContinue}) {
    for (const bool lives_return : {false, true}) {
      HeadOptions options{"job", 2, 1, policy, 5 * kSecond};
      options.lives_return = lives_return;
      head_ = Head(options, 0);
      const Welcome welcome = Join(Role::kWorker, 1);
      Effects effects;
      head_.Exited(Role::kWorker, 1, welcome.incarnation, &effects);
      EXPECT_TRUE(head_.epoch().workers[1].IsDead());
      EXPECT_EQ(head_.epoch().IsGone(1), policy != Epoch::Policy::kWait);
      EXPECT_EQ(head_.epoch().IsLast(1), policy != Epoch::Policy::kWait && !lives_return);
      head_.Gone(Role::kWorker, 1, true, &effects);
      EXPECT_TRUE(head_.epoch().IsLast(1));
    }
  }
}

TEST_F(HeadTest, ASilentMemberIsKnownUntilItsProcessHasEnded) {
  const Welcome silent = Join(Role::kWorker, 1);
  Join(Role::kWorker, 0);
  Send(2, Type::kGoodbye, 1);
  Effects effects;
  now_ = 5 * kSecond;
  head_.Tick(now_, &effects);
  EXPECT_TRUE(head_.IsSilent(Role::kWorker, 1));
  EXPECT_FALSE(head_.IsSilent(Role::kWorker, 0)) << "it has failed, and may take its time to end";
  head_.Exited(Role::kWorker, 1, silent.incarnation, &effects);
  EXPECT_FALSE(head_.IsSilent(Role::kWorker, 1)) << "its next process has not joined yet";
}

TEST_F(HeadTest, AMemberHasLeftUntilItsNextLifeJoins) {
  const Welcome welcome = Join(Role::kWorker, 0);
  Join(Role::kWorker, 1);
  EXPECT_FALSE(head_.HasLeft(Role::kWorker, 0));
  Send(1, Type::kGoodbye);
  Send(2, Type::kGoodbye, 1);
  Effects effects;
  head_.Exited(Role::kWorker, 0, welcome.incarnation, &effects);
  EXPECT_TRUE(head_.HasLeft(Role::kWorker, 0));
  EXPECT_FALSE(head_.HasLeft(Role::kWorker, 1)) << "its program has failed";
  EXPECT_FALSE(head_.HasLeft(Role::kServer, 0)) << "it has not joined yet";
  Join(Role::kWorker, 0);
  EXPECT_FALSE(head_.HasLeft(Role::kWorker, 0));
}

TEST_F(HeadTest, JoiningLeavingAndDyingAreTold) {
  Join(Role::kServer, 0);
  const Welcome first = Join(Role::kWorker, 0);
  Join(Role::kWorker, 1);
  Send(2, Type::kGoodbye);
  now_ = 5 * kSecond;
  Effects effects;
  Send(1, Type::kPing);  // the server lives, worker 1 is silent
  head_.Tick(now_, &effects);
  Note(effects);
  EXPECT_EQ(first.incarnation, 2u);
  const std::vector<std::string> expected = {
      "server 0 joined (incarnation 1)", "worker 0 joined (incarnation 2)",
      "worker 1 joined (incarnation 3)", "worker 0 left", "worker 1 is dead: silent for 5.0 s"};
  EXPECT_EQ(notices_, expected);
}

TEST_F(HeadTest, ALaterLifeFencesTheEarlierOne) {
  const Welcome first = Join(Role::kWorker, 0);
  const LinkId old = link_;
  const Welcome second = Join(Role::kWorker, 0);
  EXPECT_FALSE(first.rejoined);
  EXPECT_TRUE(second.rejoined);
  EXPECT_GT(second.incarnation, first.incarnation);
  EXPECT_TRUE(Send(old, Type::kPing).empty());  // closed, with a reason
  Join(Role::kWorker, 0, first.incarnation);
  EXPECT_EQ(refused_, "HELLO: worker 0 incarnation 1 is over");
}

TEST_F(HeadTest, AProcessThatSaysHelloAgainIsNoSecondLife) {
  const Welcome first = Join(Role::kWorker, 0);
  --process_;
  const Welcome again = Join(Role::kWorker, 0);
  EXPECT_EQ(again.incarnation, first.incarnation);
  EXPECT_TRUE(again.resumed);
}

TEST_F(HeadTest, AnyFreeRankIsGivenOnceAndAFullJobSaysSo) {
  EXPECT_EQ(Join(Role::kWorker, kNoRank).rank, 0);
  EXPECT_EQ(Join(Role::kWorker, kNoRank).rank, 1);
  Join(Role::kWorker, kNoRank);
  EXPECT_EQ(refused_, "HELLO: all 2 workers have joined; connect looks at a job from outside");
  Join(Role::kWorker, 7);
  EXPECT_EQ(refused_, "HELLO: worker 7, the job has 2");
}

TEST_F(HeadTest, AnEpochNamesTheLastCommittedGenerationOfEachLife) {
  const Welcome first = Join(Role::kWorker, 0);
  Send(link_, Type::kCommit, 3);
  EXPECT_EQ(head_.epoch().CommittedBy(0, first.incarnation), 3u);
  EXPECT_EQ(head_.epoch().CommittedBy(0, first.incarnation + 1), 0u);
}

TEST_F(HeadTest, AStrangerIsSentAway) {
  Message ping;
  ping.type = Type::kPing;
  Effects effects;
  head_.Received(77, ping, 0, &effects);
  ASSERT_EQ(effects.closes.size(), 1u);
  EXPECT_EQ(effects.closes[0].code, Code::kUnauthenticated);
}

TEST(HeadGrowthTest, APingCostsTheSameHoweverManyMembersThereAre) {
  const auto ping = [](size_t members) {
    HeadOptions options;
    options.job = "job";
    options.workers = static_cast<int>(members);
    Head head(std::move(options), 0);
    Effects effects;
    for (LinkId link = 1; link <= members; ++link) {
      Message hello;
      hello.type = Type::kHello;
      hello.extra = Encode(Hello{"job", Role::kWorker, static_cast<Rank>(link) - 1, 0, link, ""});
      head.Received(link, hello, 0, &effects);
      effects.Clear();
    }
    Message ping;
    ping.type = Type::kPing;
    ping.number = head.epoch().number;
    constexpr size_t kPings = 20'000;
    const Time step = kSecond / (2 * static_cast<Time>(members));  // each pings twice a second
    Time now = kSecond;
    head.Tick(now, &effects);  // sends the EPOCH of the last joins
    effects.Clear();
    Time last = 0;
    return test::CpuSecondsOf([&] {
      for (size_t i = 0; i < kPings; ++i) {
        now += step;
        head.Received(i % members + 1, ping, now, &effects);
        if (head.deadline() <= now) head.Tick(now, &effects);
        EXPECT_GE(head.deadline(), last) << "members have only been heard since";
        last = head.deadline();
        effects.Clear();
      }
    });
  };
  EXPECT_LT(test::Growth(ping, 64, 4096), 12);
}

TEST_F(HeadTest, AVerdictIsAskedForInTimeAfterEachJoinAndEachWord) {
  Join(Role::kWorker, 0);
  const LinkId first = link_;
  EXPECT_LE(head_.deadline(), 5 * kSecond);
  now_ = 3 * kSecond;
  Join(Role::kWorker, 1);
  Send(first, Type::kPing, head_.epoch().number);
  Effects effects;
  now_ = 5 * kSecond;
  head_.Tick(now_, &effects);
  EXPECT_EQ(head_.deadline(), 8 * kSecond);
  now_ = 8 * kSecond;
  head_.Tick(now_, &effects);
  EXPECT_TRUE(head_.epoch().workers[0].IsDead() && head_.epoch().workers[1].IsDead());
  EXPECT_EQ(head_.deadline(), kNever);
}

TEST_F(HeadTest, TimeInWhichTheHeadDidNotReadIsNobodysSilence) {
  Join(Role::kServer, 0);
  Join(Role::kWorker, 0);
  now_ = 4 * kSecond;
  for (const Time jump : {1 * kSecond, 7 * kSecond, 3600 * kSecond}) {
    now_ += jump;
    head_.WasAway(jump, now_);
    Effects effects;
    head_.Tick(now_, &effects);
    Note(effects);
    EXPECT_EQ(head_.deadline(), now_ + kSecond) << "four of five seconds were silent before";
  }
  EXPECT_EQ(notices_.size(), 2U) << "nobody is dead";
  now_ += kSecond;
  Effects effects;
  head_.Tick(now_, &effects);
  EXPECT_EQ(effects.notices.size(), 2U) << "both are, when the head has listened for five seconds";
}

TEST_F(HeadTest, NobodyHasSpokenInTheFuture) {
  Join(Role::kWorker, 0);
  now_ = 2 * kSecond;
  head_.WasAway(60 * kSecond, now_);
  EXPECT_EQ(head_.deadline(), 7 * kSecond);
}

// A head that waits for at least a second between two EPOCHs, however small they are.
class SlowlyTellingHeadTest : public HeadTest {
 protected:
  SlowlyTellingHeadTest() {
    HeadOptions options{"job", 3, 1, Epoch::Policy::kFail, 5 * kSecond};
    options.epoch_bytes_at_once = 0;
    options.epoch_bytes_per_second = 50;  // the smallest EPOCH has more
    head_ = Head(options, 0);
  }
  static size_t EpochsTo(LinkId link, const std::vector<Effects::Sending>& sends) {
    return static_cast<size_t>(std::ranges::count_if(sends, [&](const auto& sending) {
      return sending.link == link && sending.message.type == Type::kEpoch;
    }));
  }
};

TEST_F(SlowlyTellingHeadTest, ChangesThatComeWhileAnEpochIsPaidForAreToldTogether) {
  Join(Role::kWorker, 0);
  const uint64_t number = head_.epoch().number;
  Join(Role::kWorker, 1);
  EXPECT_EQ(EpochsTo(1, sent_), 0U) << "worker 0 has just been told of itself";
  EXPECT_EQ(EpochsTo(2, sent_), 1U) << "who joins hears at once who is there";
  Join(Role::kWorker, 2);
  Effects effects;
  head_.Exited(Role::kWorker, 1, head_.epoch().workers[1].incarnation, &effects);
  EXPECT_TRUE(effects.sends.empty());
  EXPECT_TRUE(head_.epoch().workers[1].IsDead()) << "the verdict does not wait";
  EXPECT_EQ(EpochsTo(1, Send(1, Type::kPing, number)), 0U) << "a PING asks for no other one";
  now_ = head_.deadline();
  EXPECT_GT(now_, kSecond);
  head_.Tick(now_, &effects);
  for (const LinkId link : {1U, 2U, 3U}) ASSERT_EQ(EpochsTo(link, effects.sends), 1U);
  const Epoch told = DecodeEpoch(number + 3, effects.sends.front().message.extra);
  EXPECT_EQ(effects.sends.front().message.number, number + 3) << "one EPOCH for three changes";
  EXPECT_EQ(told, head_.epoch());
}

TEST_F(SlowlyTellingHeadTest, AChangeAfterTheTimeIsToldAtOnce) {
  Join(Role::kWorker, 0);
  now_ = 4 * kSecond;
  Join(Role::kWorker, 1);
  EXPECT_EQ(EpochsTo(1, sent_), 1U);
}

TEST(Member, TimeInWhichItDidNotReadIsNotTheHeadsSilence) {
  Member member({"job", Role::kWorker, 0, 1});
  Effects effects;
  member.Start(0, &effects);
  member.Opened(1, 0, &effects);
  member.WasAway(19 * kSecond, 20 * kSecond);
  effects.Clear();
  member.Tick(20 * kSecond, &effects);
  EXPECT_TRUE(effects.closes.empty());
  EXPECT_EQ(member.verdict_at(), 24 * kSecond);
  member.Tick(24 * kSecond, &effects);
  EXPECT_EQ(effects.closes.size(), 1U);
}

TEST(Member, TheSilenceThatTheHeadAllowsCounts) {
  Head head({"job", 1, 1, Epoch::Policy::kFail, kSecond / 2}, 0);
  Member member({.job = "job", .rank = 0, .process = 7});
  Effects effects;
  member.Start(0, &effects);
  member.Opened(1, 0, &effects);
  ASSERT_EQ(effects.sends.size(), 1U);
  const Message hello = effects.sends[0].message;
  effects.Clear();
  head.Received(5, hello, 0, &effects);
  const Effects answer = std::exchange(effects, {});
  for (const Effects::Sending& sending : answer.sends) {
    member.Received(1, sending.message, 0, &effects);
  }
  EXPECT_EQ(member.verdict_at(), kSecond / 2);
  ASSERT_EQ(effects.notices.size(), 1U);
  EXPECT_EQ(effects.notices[0].text,
            "silence_ms is 5000 here and 500 at the head, whose value counts");
  effects.Clear();
  member.Tick(kSecond / 20, &effects);
  ASSERT_EQ(effects.sends.size(), 1U) << "ten signs of life are sent in that time";
  EXPECT_EQ(effects.sends[0].message.type, Type::kPing);
}

TEST(Member, AHeadOfAnotherProtocolIsDialedOnce) {
  Member member({.job = "job", .rank = 0, .process = 7});
  Effects effects;
  member.Start(0, &effects);
  member.Opened(1, 0, &effects);
  Welcome welcome;
  welcome.rank = 0;
  welcome.incarnation = 1;
  welcome.protocol.version = 3;
  Message message;
  message.type = Type::kWelcome;
  message.extra = Encode(welcome);
  effects.Clear();
  member.Received(1, message, 0, &effects);
  ASSERT_TRUE(member.refused());
  EXPECT_EQ(
      std::string(member.refused()->what()),
      "the head speaks protocol 3, this process protocol 2; upgrade tensorkv where this process "
      "runs");
  EXPECT_FALSE(member.joined());
  ASSERT_EQ(effects.closes.size(), 1U);
  member.Closed(1, 0, &effects);
  effects.Clear();
  for (Time now = 0; now < 60 * kSecond; now += kSecond) member.Tick(now, &effects);
  EXPECT_TRUE(effects.dials.empty());
}

TEST(Member, ALostHeadIsDialedAgainAndItsReturnIsTold) {
  Member member({"job", Role::kWorker, 0, 1});
  Effects effects;
  member.Start(0, &effects);
  ASSERT_EQ(effects.dials.size(), 1u);
  const auto greet = [&](LinkId link, Time now) {
    member.Opened(link, now, &effects);
    Message welcome;
    welcome.type = Type::kWelcome;
    welcome.extra = Encode(Welcome{.rank = 0, .incarnation = 4});
    member.Received(link, welcome, now, &effects);
  };
  greet(1, 0);
  Epoch epoch;
  epoch.workers = {{4, Epoch::State::kAlive}};
  epoch.servers.resize(1);
  epoch.placement = {1, 1, {}};
  Message news;
  news.type = Type::kEpoch;
  news.number = 1;
  news.extra = Encode(epoch);
  EXPECT_TRUE(member.Received(1, news, 0, &effects));
  EXPECT_FALSE(member.Received(1, news, 0, &effects));  // the same EPOCH again
  effects.Clear();
  member.Closed(1, kSecond, &effects);
  ASSERT_EQ(effects.notices.size(), 1u);
  EXPECT_EQ(effects.notices[0].text, "the head is out of reach; data goes on without it");
  effects.Clear();
  EXPECT_EQ(member.link(), kNoLink);
  member.Tick(2 * kSecond, &effects);
  ASSERT_EQ(effects.dials.size(), 1u);
  greet(2, 2 * kSecond);
  ASSERT_EQ(effects.notices.size(), 1u);
  EXPECT_EQ(effects.notices[0].text, "the head is back");
}

TEST(Member, AHeadThatGoesAfterTheGoodbyeIsNotReported) {
  Member member({.job = "test", .process = 1});
  Effects effects;
  member.Start(0, &effects);
  member.Opened(1, 0, &effects);
  Message welcome;
  welcome.type = Type::kWelcome;
  welcome.extra = Encode(Welcome{.rank = 0, .incarnation = 4});
  member.Received(1, welcome, 0, &effects);
  effects.Clear();
  member.Left();
  member.Closed(1, kSecond, &effects);
  EXPECT_TRUE(effects.notices.empty());
}

class MemberBesideWhomTheHeadEnds : public ::testing::Test {
 protected:
  Member MemberOf(Rank worker, Rank server) {
    Member member({.job = "test",
                   .rank = 1,
                   .process = 1,
                   .worker_beside_head = worker,
                   .server_beside_head = server});
    member.Start(0, &effects_);
    return member;
  }
  void Greet(Member* member, LinkId link) {
    Message welcome;
    welcome.type = Type::kWelcome;
    welcome.extra = Encode(Welcome{.rank = 1, .incarnation = 4});
    member->Opened(link, 0, &effects_);
    member->Received(link, welcome, 0, &effects_);
    Epoch epoch;
    epoch.number = 7;
    epoch.policy = policy_;
    epoch.workers = {{3, worker_0_}, {4, Epoch::State::kAlive}};
    epoch.servers = {{1, Epoch::State::kAlive}, {2, Epoch::State::kAlive}};
    epoch.placement = {1, 2, {}};
    Message news;
    news.type = Type::kEpoch;
    news.number = epoch.number;
    news.extra = Encode(epoch);
    member->Received(link, news, 0, &effects_);
  }
  Epoch::State worker_0_ = Epoch::State::kAlive;
  Epoch::Policy policy_ = Epoch::Policy::kFail;
  Effects effects_;
};

TEST_F(MemberBesideWhomTheHeadEnds, LosesWhoWasInItsProcess) {
  Member member = MemberOf(0, 0);
  Greet(&member, 1);
  EXPECT_TRUE(member.HeadEnded());
  EXPECT_TRUE(member.head_has_ended());
  const Epoch& epoch = member.epoch();
  EXPECT_EQ(epoch.number, 8U);
  EXPECT_EQ(epoch.workers[0].state, Epoch::State::kLost);
  EXPECT_GE(epoch.CommittedBy(0, 3), 1000U) << "of what it has committed nobody may have been told";
  EXPECT_EQ(epoch.workers[1].state, Epoch::State::kAlive);
  EXPECT_EQ(epoch.servers[0].state, Epoch::State::kLost);
  EXPECT_EQ(epoch.servers[1].state, Epoch::State::kAlive);
  EXPECT_FALSE(member.HeadEnded()) << "it is no news any more";
}

TEST_F(MemberBesideWhomTheHeadEnds, KeepsWhoHasLeft) {
  worker_0_ = Epoch::State::kLeft;
  Member member = MemberOf(0, -1);
  Greet(&member, 1);
  EXPECT_FALSE(member.HeadEnded());
  EXPECT_EQ(member.epoch().workers[0].state, Epoch::State::kLeft);
  EXPECT_TRUE(member.head_has_ended());
}

TEST_F(MemberBesideWhomTheHeadEnds, HasLeftBeforeAndLosesNobody) {
  Member member = MemberOf(0, 0);
  Greet(&member, 1);
  member.Left();
  EXPECT_FALSE(member.HeadEnded());
  EXPECT_EQ(member.epoch().workers[0].state, Epoch::State::kAlive);
}

TEST_F(MemberBesideWhomTheHeadEnds, AwaitsNobodyWhoHasStillToCome) {
  worker_0_ = Epoch::State::kAwaited;
  Member awaits = MemberOf(-1, -1);
  Greet(&awaits, 1);
  EXPECT_TRUE(awaits.HeadEnded());
  EXPECT_EQ(awaits.epoch().workers[0].state, Epoch::State::kLost);
  worker_0_ = Epoch::State::kDead;
  for (const auto policy : {Epoch::Policy::kFail, Epoch::Policy::kContinue, Epoch::Policy::kWait}) {
    policy_ = policy;
    Member member = MemberOf(-1, -1);
    Greet(&member, 1);
    EXPECT_TRUE(member.HeadEnded()) << "its next life cannot join";
    EXPECT_TRUE(member.epoch().IsLast(0));
  }
}

TEST_F(MemberBesideWhomTheHeadEnds, KnowsOfNobodyElse) {
  Member member = MemberOf(-1, -1);
  member.HeadEnded();
  EXPECT_FALSE(member.head_has_ended()) << "it has not joined: a head may be on its way";
  Greet(&member, 1);
  EXPECT_FALSE(member.HeadEnded());
  EXPECT_EQ(member.epoch().number, 7U);
  member.Closed(1, kSecond, &effects_);
  EXPECT_TRUE(member.head_has_ended());
  Greet(&member, 2);
  EXPECT_FALSE(member.head_has_ended()) << "another is in its place";
}

}  // namespace
}  // namespace tkv
