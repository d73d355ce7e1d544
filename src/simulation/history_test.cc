#include "simulation/history.h"

#include <gtest/gtest.h>

#include <functional>

namespace tkv::simulation {
namespace {

using Kind = HistoryEvent::Kind;

Lanes L(int64_t value) {
  Lanes lanes{};
  lanes[0] = value;
  return lanes;
}

HistoryEvent Push(uint64_t worker, uint64_t begin, uint64_t end, uint64_t round, int64_t value) {
  return {Kind::kPush, worker, 1, begin, end, false, round, L(value)};
}

HistoryEvent Pull(uint64_t worker, uint64_t begin, uint64_t end, uint64_t round, int64_t value) {
  return {Kind::kPull, worker, 1, begin, end, false, round, L(value)};
}

// Returns a correct history: two workers and three rounds of assignment; both workers read every
// value.
History Good() {
  History history;
  history.lanes = 1;
  history.initial = {{1, L(7)}};
  history.events = {
      Pull(1, 1, 2, 0, 7),      Push(1, 3, 4, 1, 10),     Push(2, 5, 6, 1, 20),
      Pull(1, 7, 8, 1, 30),     Pull(2, 9, 10, 1, 30),    Push(1, 11, 12, 2, 100),
      Push(2, 13, 14, 2, 200),  Pull(1, 15, 16, 2, 300),  Pull(2, 17, 18, 2, 300),
      Push(1, 19, 20, 3, 1000), Push(2, 21, 22, 3, 2000), Pull(1, 23, 24, 3, 3000),
      Pull(2, 25, 26, 3, 3000),
  };
  return history;
}

TEST(History, AGoodOneIsGood) { EXPECT_EQ(JudgeHistory(Good()), ""); }

TEST(History, AnUpdaterThatAddsIsGood) {
  History history = Good();
  history.events[7].value = history.events[8].value = L(330);
  history.events[11].value = history.events[12].value = L(3330);
  EXPECT_EQ(JudgeHistory(history), "");
}

TEST(History, APushThatFailedMayCountOrNot) {
  for (const int64_t seen : {30, 10}) {
    History history = Good();
    history.events[2].failed = true;
    history.events[2].round = 0;
    history.events[3].value = history.events[4].value = L(seen);
    EXPECT_EQ(JudgeHistory(history), "") << seen;
  }
}

// A later incarnation of worker 2 repeats its push of round 1, which the object has got already.
TEST(History, ARepeatedPushCountsOnce) {
  for (const auto& [seen, is_good] : {std::pair(30, true), {20, false}, {20 + 30, false}}) {
    History history = Good();
    history.events[2].failed = true;
    history.events[2].round = 0;
    history.events[2].end = 0;
    history.events[2].rank = 1;
    HistoryEvent again = Push(3, 6, 7, 1, 10 + 20);
    again.rank = 1;
    history.events.insert(history.events.begin() + 3, again);
    history.events[4].value = history.events[5].value = L(seen);
    EXPECT_EQ(JudgeHistory(history).empty(), is_good) << seen;
  }
}

TEST(History, EveryPlantedFaultIsFound) {
  const std::vector<std::pair<const char*, std::function<void(History*)>>> faults = {
      {"a push is lost", [](History* h) { h->events[3].value = h->events[4].value = L(10); }},
      {"the other push is lost",
       [](History* h) { h->events[3].value = h->events[4].value = L(20); }},
      {"a push counts twice", [](History* h) { h->events[3].value = h->events[4].value = L(40); }},
      {"both count twice", [](History* h) { h->events[3].value = h->events[4].value = L(60); }},
      {"nothing counts", [](History* h) { h->events[3].value = h->events[4].value = L(0); }},
      {"the old value stays", [](History* h) { h->events[7].value = h->events[8].value = L(30); }},
      {"two see different sums", [](History* h) { h->events[4].value = L(20); }},
      {"one sees the sum without himself", [](History* h) { h->events[3].value = L(20); }},
      {"a push counts a round early",
       [](History* h) { h->events[3].value = h->events[4].value = L(130); }},
      {"a push counts a round late",
       [](History* h) { h->events[7].value = h->events[8].value = L(320); }},
      {"a worker does not read its write",
       [](History* h) {
         h->events[7].round = 1;
         h->events[7].value = L(30);
       }},
      {"a worker reads the initial value after its push",
       [](History* h) {
         h->events[3].round = 0;
         h->events[3].value = L(7);
       }},
      {"a worker reads backwards",
       [](History* h) { h->events.push_back(Pull(1, 30, 31, 2, 300)); }},
      {"another worker reads backwards",
       [](History* h) { h->events.push_back(Pull(2, 30, 31, 1, 30)); }},
      {"a round is given twice", [](History* h) { h->events[5].round = 1; }},
      {"rounds go backwards", [](History* h) { h->events[9].round = 1; }},
      {"the initial value is another", [](History* h) { h->events[0].value = L(8); }},
      {"a value comes from nowhere",
       [](History* h) { h->events[11].value = h->events[12].value = L(123456); }},
      {"an updater adds twice",
       [](History* h) { h->events[7].value = h->events[8].value = L(360); }},
      {"a failed push counts twice",
       [](History* h) {
         h->events[2].failed = true;
         h->events[2].round = 0;
         h->events[3].value = h->events[4].value = L(50);
       }},
      {"a push of nobody is in the sum",
       [](History* h) { h->events[11].value = h->events[12].value = L(3001); }},
  };
  ASSERT_GE(faults.size(), 20U);
  for (const auto& [name, plant] : faults) {
    History history = Good();
    plant(&history);
    EXPECT_NE(JudgeHistory(history), "") << name;
  }
}

}  // namespace
}  // namespace tkv::simulation
