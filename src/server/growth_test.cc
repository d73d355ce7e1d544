// The cost of a message does not depend on the number of waiting operations.

#include "tests/growth.h"

#include "base/format.h"
#include "tests/shard_fixture.h"

namespace tkv {
namespace {

using test::CpuSecondsOf;
using test::kLink0;
using test::kLink1;
using test::ShardTest;

constexpr size_t kFew = 1000;
constexpr size_t kMany = 32 * kFew;
constexpr size_t kMeasured = 500;
// Tables larger than the caches cost a few times more.  Work on every waiting operation would cost
// 32 times as much.
constexpr double kMost = 8;

// A shard with waiting operations of worker 1.
class Crowd : public ShardTest {
 public:
  Crowd() : ShardTest(RoomyOptions()) { effects_.Clear(); }

  // Sends DESCRIBEs of keys that do not exist.
  void WaitForKeys(size_t count) {
    for (size_t i = 0; i < count; ++i) Describe(i);
    effects_.Clear();
  }
  // Sends PULLs of one incomplete round.
  void WaitForRound(size_t count) {
    Send(kLink0, Push(2, 1, 1));
    for (size_t i = 0; i < count; ++i) Pull();
    effects_.Clear();
  }
  void Describe(size_t i) {
    Message describe = Make(Type::kDescribe, ++seq_);
    describe.key = IdOf(NameOf(i));
    shard_.Received(kLink1, std::move(describe), &effects_);
  }
  void Pull() { shard_.Received(kLink1, Make(Type::kPull, ++seq_, 1), &effects_); }
  void Cancel(uint64_t seq) {
    Message cancel = Make(Type::kCancel, ++seq_, seq);
    cancel.key = IdOf(NameOf(seq));
    shard_.Received(kLink1, std::move(cancel), &effects_);
  }
  void Init(size_t i) {
    const uint64_t seq = i + 2;
    shard_.Header(kLink0, seq);
    KeyMeta meta = meta_;
    meta.name = NameOf(i);
    Message init = Make(Type::kInit, seq);
    init.key = IdOf(meta.name);
    init.extra = Encode(meta);
    init.body = Floats({0, 0, 0, 0});
    shard_.Received(kLink0, std::move(init), &effects_);
  }
  size_t sent() const { return effects_.sends.size(); }
  bool is_well_counted() const { return shard_.Miscounted().empty(); }

 private:
  static ShardOptions RoomyOptions() {
    ShardOptions options = Options();
    options.parked_max = ShardOptions().parked_max;
    return options;
  }
  static std::string NameOf(size_t i) { return CanonicalKey(0, Format("k{}", i)); }
  void TestBody() override {}

  uint64_t seq_ = 0;
};

// Returns how many times longer `measured(crowd)` takes with many waiting operations than with few.
template <typename Prepare, typename Measured>
double GrowthOf(const Prepare& prepare, const Measured& measured) {
  return test::Growth(
      [&](size_t count) {
        Crowd crowd;
        prepare(&crowd, count);
        const double seconds = CpuSecondsOf([&] { measured(&crowd); });
        EXPECT_TRUE(crowd.is_well_counted());
        return seconds;
      },
      kFew, kMany);
}

TEST(ServerGrowthTest, ADescribeCostsTheSameHoweverManyWait) {
  const auto more = [](Crowd* crowd) {
    for (size_t i = 0; i < kMeasured; ++i) crowd->Describe(kMany + i);
    EXPECT_EQ(crowd->sent(), 0U) << "none is refused";
  };
  EXPECT_LT(GrowthOf([](Crowd* crowd, size_t count) { crowd->WaitForKeys(count); }, more), kMost);
}

TEST(ServerGrowthTest, AnInitAnswersThoseThatWaitForItsKeyAndLooksAtNoOthers) {
  const auto init = [](Crowd* crowd) {
    for (size_t i = 0; i < kMeasured; ++i) crowd->Init(i);
    EXPECT_EQ(crowd->sent(), 2 * kMeasured) << "each creates a key and answers one DESCRIBE";
  };
  EXPECT_LT(GrowthOf([](Crowd* crowd, size_t count) { crowd->WaitForKeys(count); }, init), kMost);
}

TEST(ServerGrowthTest, ACancelCostsTheSameHoweverManyWait) {
  const auto cancel = [](Crowd* crowd) {
    for (size_t i = 0; i < kMeasured; ++i) crowd->Cancel(i + 1);
    EXPECT_EQ(crowd->sent(), kMeasured) << "each is answered";
  };
  EXPECT_LT(GrowthOf([](Crowd* crowd, size_t count) { crowd->WaitForKeys(count); }, cancel), kMost);
}

TEST(ServerGrowthTest, APullCostsTheSameHoweverManyWaitForTheRound) {
  const auto pull = [](Crowd* crowd) {
    for (size_t i = 0; i < kMeasured; ++i) crowd->Pull();
    EXPECT_EQ(crowd->sent(), 0U) << "none is refused";
  };
  EXPECT_LT(GrowthOf([](Crowd* crowd, size_t count) { crowd->WaitForRound(count); }, pull), kMost);
}

TEST(ServerGrowthTest, AHundredThousandKeysMayBeWaitedFor) {
  Crowd crowd;
  for (size_t i = 0; i < 100'000; ++i) crowd.Describe(i);
  EXPECT_EQ(crowd.sent(), 0U) << "none is refused";
}

}  // namespace
}  // namespace tkv
