#include "client/announcements.h"

#include <gtest/gtest.h>

#include <vector>

namespace tkv {
namespace {

constexpr uint32_t kStore = 2;

class AnnouncementsTest : public testing::Test {
 protected:
  // Returns the operations in the order of their turns, and empties the queue.
  std::vector<OpId> Turns() {
    std::vector<OpId> turns;
    for (; !changes_.empty(); changes_.Pop()) turns.push_back(changes_.front()->op);
    return turns;
  }
  void Leave(OpId op) { changes_.Find(op)->phase = Announcement::Phase::kSending; }

  Announcements changes_;
};

TEST_F(AnnouncementsTest, RepetitionsComeBehindWhatHasLeftAndBeforeTheRest) {
  changes_.Add(1, kStore);
  changes_.Add(2, kStore);
  changes_.AddRepeat(3, kStore);
  EXPECT_EQ(Turns(), (std::vector<OpId>{3, 1, 2}));
  changes_.Add(1, kStore);
  changes_.Add(2, kStore);
  Leave(1);
  changes_.AddRepeat(3, kStore);
  changes_.AddRepeat(4, kStore + 1);
  EXPECT_EQ(Turns(), (std::vector<OpId>{1, 4, 3, 2}));
}

TEST_F(AnnouncementsTest, UsersChangesHoldLaterPushesUntilTheirTurnIsOver) {
  EXPECT_FALSE(changes_.Holds(9));
  changes_.AddRepeat(1, kStore);
  EXPECT_FALSE(changes_.Holds(9)) << "a repetition holds only the pushes of keys that lack it";
  changes_.Add(5, kStore);
  EXPECT_FALSE(changes_.Holds(4));
  EXPECT_TRUE(changes_.Holds(9));
  changes_.End(5);
  EXPECT_TRUE(changes_.Holds(9));
  changes_.Pop();
  changes_.Pop();
  EXPECT_FALSE(changes_.Holds(9));
}

TEST_F(AnnouncementsTest, InitsOfALaterLifeAreWhollyBeforeOrAfterChangesOfTheirStore) {
  changes_.Add(5, kStore);
  EXPECT_TRUE(changes_.MayInit(4, kStore));
  EXPECT_FALSE(changes_.MayInit(6, kStore));
  EXPECT_TRUE(changes_.MayInit(6, kStore + 1));
  Leave(5);
  EXPECT_FALSE(changes_.MayInit(4, kStore)) << "its CONTROLs name the keys already";
  EXPECT_TRUE(changes_.IsInUse(kStore, 6));
  changes_.End(5);
  EXPECT_TRUE(changes_.MayInit(6, kStore));
  EXPECT_FALSE(changes_.IsInUse(kStore, 6));
}

TEST_F(AnnouncementsTest, AKeyIsRepeatedOnceUnlessTheRepetitionHasLeftWithoutIt) {
  const KeyId key{7, 8};
  EXPECT_FALSE(changes_.IsRepeated(kStore, key));
  changes_.AddRepeat(1, kStore);
  EXPECT_TRUE(changes_.IsRepeated(kStore, key)) << "it will name all keys";
  EXPECT_FALSE(changes_.IsRepeated(kStore + 1, key));
  Leave(1);
  EXPECT_FALSE(changes_.IsRepeated(kStore, key));
  changes_.Find(1)->listed.push_back({key, 3});
  EXPECT_TRUE(changes_.IsRepeated(kStore, key));
  changes_.End(1);
  EXPECT_FALSE(changes_.IsRepeated(kStore, key));
}

}  // namespace
}  // namespace tkv
