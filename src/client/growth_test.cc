// The cost of an operation does not grow with the number of operations under way.

#include "tests/growth.h"

#include "base/format.h"
#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::ClientTest;
using test::CpuSecondsOf;
using test::Of;

constexpr size_t kFew = 500;
constexpr size_t kMany = 32 * kFew;
// The allowed growth.  Tables that fit no cache make an operation a few times more expensive.  A
// scan of all other operations would make it 32 times more expensive.
constexpr double kMost = 8;

// A client that has made many keys of one chunk each.
class Crowd : public ClientTest {
 public:
  explicit Crowd(size_t count, size_t pull_bytes_max = ClientOptions().pull_bytes_max)
      : ClientTest(10'000 * kSecond, pull_bytes_max), count_(count) {
    meta_.shape = Shape({10});
    bytes_.resize(40);
    out_.resize(40);
    BeginAll(Operation::Init{});
    for (auto sent = Sent(); !sent.empty(); sent = Sent()) AnswerAll(sent, Type::kOk);
    EXPECT_EQ(client_.TakeOutcomes().size(), count);
  }
  // Begins one operation on each key.
  std::vector<OpId> BeginAll(const Operation::Request& request) {
    std::vector<OpId> ids;
    for (size_t i = 0; i < count_; ++i) {
      meta_.name = CanonicalKey(0, Format("k{}", i));
      ids.push_back(Begin(request, "verb"));
    }
    return ids;
  }
  using ClientTest::After;
  using ClientTest::AnswerAll;
  using ClientTest::Sent;
  // Begins one operation on each key, evenly spread over a time.  No timer is due before its end.
  std::vector<OpId> BeginSpread(const Operation::Request& request, Time time) {
    std::vector<OpId> ids;
    for (size_t i = 0; i < count_; ++i) {
      meta_.name = CanonicalKey(0, Format("k{}", i));
      ids.push_back(Begin(request, "verb"));
      now_ += time / static_cast<Time>(count_);
    }
    return ids;
  }
  // Calls Tick at each time that the client's deadline names.
  void PassTime(Time time) {
    const Time end = now_ + time;
    for (Time next = client_.deadline(); next <= end; next = client_.deadline()) {
      After(std::max<Time>(0, next - now_));
    }
    now_ = end;
  }
  void Detach(std::span<const OpId> ids) { client_.Detach(ids); }
  void Cancel(std::span<const OpId> ids) {
    client_.Cancel(ids, Error(Code::kCancelled, "given up"), now_, &effects_);
  }
  size_t TakeOutcomes() { return client_.TakeOutcomes().size(); }

 private:
  void TestBody() override {}

  size_t count_;
};

// Measures `work(crowd, ids)` on operations that have left, one for each key.  Returns how many times
// longer it takes for each of many operations than for each of few.
template <typename Work>
double GrowthOf(const Operation::Request& request, const Work& work) {
  return test::Growth(
      [&](size_t count) {
        Crowd crowd(count);
        const std::vector<OpId> ids = crowd.BeginAll(request);
        crowd.Sent();
        return CpuSecondsOf([&] { work(&crowd, ids); }) / static_cast<double>(count);
      },
      kFew, kMany);
}

TEST(ClientGrowthTest, PushesAreDetachedInOnePass) {
  EXPECT_LT(GrowthOf(Operation::Push{}, [](Crowd* crowd, const auto& ids) { crowd->Detach(ids); }),
            kMost);
}

TEST(ClientGrowthTest, PushesAreCancelledInOnePass) {
  const auto cancel = [](Crowd* crowd, const auto& ids) {
    crowd->Cancel(ids);
    EXPECT_EQ(crowd->TakeOutcomes(), ids.size());
  };
  EXPECT_LT(GrowthOf(Operation::Push{}, cancel), kMost);
}

TEST(ClientGrowthTest, PullsAreCancelledInOnePass) {
  const auto cancel = [](Crowd* crowd, const auto& ids) {
    crowd->Cancel(ids);
    EXPECT_EQ(crowd->TakeOutcomes(), ids.size());
    EXPECT_EQ(Of(Type::kCancel, crowd->Sent()).size(), ids.size());
  };
  EXPECT_LT(GrowthOf(Operation::Pull{}, cancel), kMost);
}

TEST(ClientGrowthTest, PullsThatAreTooLateAskInOnePassWhoIsMissing) {
  const auto expire = [](Crowd* crowd, const auto& ids) {
    crowd->After(600 * kSecond);
    EXPECT_EQ(Of(Type::kCancel, crowd->Sent()).size(), ids.size());
  };
  EXPECT_LT(GrowthOf(Operation::Pull{}, expire), kMost);
}

// Answers pulls with this version until all have ended.
void AnswerPulls(Crowd* crowd, uint64_t version) {
  for (auto sent = crowd->Sent(); !sent.empty(); sent = crowd->Sent()) {
    crowd->AnswerAll(sent, Type::kValue, version);
  }
}

TEST(ClientGrowthTest, PullsBeyondTheLimitOfBytesCostTheSameHoweverManyWait) {
  const auto pull = [](size_t count) {
    Crowd crowd(count, 1000);
    const double seconds = CpuSecondsOf([&] {
      crowd.BeginAll(Operation::Pull{});
      AnswerPulls(&crowd, 0);
    });
    EXPECT_EQ(crowd.TakeOutcomes(), count);
    return seconds / static_cast<double>(count);
  };
  EXPECT_LT(test::Growth(pull, kFew, kMany), kMost);
}

TEST(ClientGrowthTest, PullsBeyondTheLimitThatWaitForARoundCostTheSameHoweverManyWait) {
  const auto pull = [](size_t count) {
    Crowd crowd(count, 1000);
    crowd.BeginAll(Operation::Push{});
    for (auto sent = crowd.Sent(); !sent.empty(); sent = crowd.Sent()) {
      crowd.AnswerAll(sent, Type::kAccepted, 0);  // other workers have not pushed
    }
    crowd.TakeOutcomes();
    const double seconds = CpuSecondsOf([&] {
      crowd.BeginAll(Operation::Pull{});
      AnswerPulls(&crowd, 1);
    });
    EXPECT_EQ(crowd.TakeOutcomes(), count);
    return seconds / static_cast<double>(count);
  };
  EXPECT_LT(test::Growth(pull, kFew, kMany), kMost);
}

TEST(ClientGrowthTest, ANoticeCostsTheSameHoweverManyOthersWait) {
  const auto pass = [](size_t count) {
    Crowd crowd(count);
    crowd.BeginSpread(Operation::Pull{}, 4 * kSecond);
    crowd.Sent();
    const double seconds = CpuSecondsOf([&] { crowd.PassTime(60 * kSecond); });
    EXPECT_FALSE(crowd.Sent().empty()) << "servers are asked for whom the pulls wait";
    return seconds / static_cast<double>(count);
  };
  EXPECT_LT(test::Growth(pass, kFew, kMany), kMost);
}

TEST(ClientGrowthTest, PushesThatAreTooLateAskWhoIsMissingWithoutALookAtAll) {
  const auto expire = [](Crowd* crowd, const auto& ids) {
    crowd->BeginAll(Operation::Push{});  // each waits for its key's previous round
    crowd->Sent();
    crowd->After(600 * kSecond);
    EXPECT_EQ(Of(Type::kStatus, crowd->Sent()).size(), ids.size());
  };
  EXPECT_LT(GrowthOf(Operation::Push{}, expire), kMost);
}

}  // namespace
}  // namespace tkv
