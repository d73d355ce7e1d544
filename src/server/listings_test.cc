#include <algorithm>

#include "base/format.h"
#include "tests/shard_fixture.h"

namespace tkv {
namespace {

using test::kLink0;
using test::kLink1;

class ListingTest : public test::ShardTest {
 protected:
  struct Page {
    Listed listed;
    KeyId last;
    bool has_more = false;
  };
  Page List(LinkId link, const KeyId& after = {}) {
    Message list;
    list.type = Type::kList;
    list.seq = ++seq_;
    list.key = after;
    const Message answer = Send(link, list);
    EXPECT_EQ(answer.type, Type::kListed);
    EXPECT_EQ(answer.seq, seq_);
    EXPECT_LE(answer.extra.size(), kListedBytesMax);
    return {DecodeListed(answer.extra), answer.key, answer.number != 0};
  }
  void Observe(LinkId link) {
    Message hello;
    hello.type = Type::kHello;
    hello.extra = Encode(Hello{"", Role::kObserver, kNoRank, 77, 0, ""});
    ASSERT_EQ(Send(link, hello).type, Type::kWelcome);
  }
  void MakeKey(const std::string& name) {
    KeyMeta meta = meta_;
    meta.name = CanonicalKey(0, name);
    Message init = Make(Type::kInit, ++seq_);
    init.key = IdOf(meta.name);
    init.extra = Encode(meta);
    init.body = Floats({0, 0, 0, 0});
    ASSERT_EQ(Send(kLink0, init).type, Type::kOk);
    shard_.Header(kLink0, seq_ + 1);
  }

  uint64_t seq_ = 100;
};

TEST_F(ListingTest, CountsAPushThatWaitsForItsPredecessorOnce) {
  meta_.mode = KeyMeta::Mode::kAsync;
  MakeKey("async");
  key_ = IdOf(CanonicalKey(0, "async"));
  Message waits = Push(++seq_, 1, 1);
  waits.need = seq_ + 1;
  EXPECT_EQ(Send(kLink0, waits).type, Type{}) << "its predecessor has not come";
  EXPECT_EQ(List(kLink1).listed.workers.size(), 2U);
  const uint64_t predecessor = waits.need;
  Send(kLink0, Push(predecessor, 2, 2));
  EXPECT_EQ(effects_.sends.size(), 2U) << "both are accepted";
  const auto listed = List(kLink1).listed.workers;
  const auto of_worker = std::ranges::find(listed, Rank{0}, &Listed::Pushed::rank);
  ASSERT_NE(of_worker, listed.end());
  EXPECT_EQ(of_worker->pushes, 2U);
  EXPECT_EQ(of_worker->bytes, 32U);
}

TEST_F(ListingTest, SaysHowAKeyIsUpdatedToWhomAsks) {
  const auto ask = [&](uint8_t flags) {
    Message describe = Make(Type::kDescribe, ++seq_);
    describe.flags = flags;
    return DecodeKeyMeta(Send(kLink0, describe).extra).own;
  };
  EXPECT_EQ(ask(kNoWait), std::nullopt);
  EXPECT_EQ(ask(kNoWait | kWithRule), UpdateSpec{}) << "it is assigned";
  UpdateSpec spec;
  spec.program = "program p\nparam rate 1\na = mul sum rate\nb = add value a\nvalue <- b\n";
  spec.params = {0.5};
  Message control = Make(Type::kControl, ++seq_);
  control.extra = Encode(spec);
  control.need = 1;
  ASSERT_EQ(Send(kLink0, control).type, Type::kOk);
  Send(kLink0, Push(++seq_, 1, 1));
  Send(kLink1, Push(++seq_, 1, 1));
  EXPECT_EQ(ask(kNoWait), std::nullopt);
  const auto running = ask(kNoWait | kWithRule);
  ASSERT_TRUE(running);
  EXPECT_EQ(running->program, spec.program);
  EXPECT_EQ(running->params, std::vector{0.5});
}

TEST_F(ListingTest, AKeyIsThereWithItsShapeAndItsMemory) {
  Observe(5);
  const Page page = List(5);
  EXPECT_FALSE(page.has_more);
  EXPECT_EQ(page.last, key_);
  EXPECT_EQ(page.listed.observers, 1U);
  EXPECT_EQ(page.listed.memory.values, 16U);
  EXPECT_EQ(page.listed.workers.size(), 2U);
  ASSERT_EQ(page.listed.items.size(), 1U);
  const Listed::Item& item = page.listed.items[0];
  EXPECT_EQ(item.meta, meta_);
  EXPECT_TRUE(item.has_first);
  EXPECT_EQ(item.chunks, 1U);
  EXPECT_EQ(item.bytes, 16U);
  EXPECT_EQ(item.newest, 0U);
  EXPECT_EQ(item.open_for, 0U);
}

TEST_F(ListingTest, ARoundThatIsOpenSaysSinceWhenAndForWhom) {
  shard_.SetNow(1000);
  Send(kLink0, Push(2, 1, 1));
  shard_.SetNow(1700);
  const Listed::Item item = List(kLink1).listed.items.at(0);
  EXPECT_EQ(item.open_for, 700U);
  EXPECT_EQ(item.missing, std::vector<Rank>{1});
  EXPECT_EQ(item.missing_count, 1U);
  Send(kLink1, Push(1, 1, 1));
  const Page page = List(kLink1);
  EXPECT_EQ(page.listed.items.at(0).open_for, 0U);
  EXPECT_EQ(page.listed.items.at(0).oldest, 1U);
  ASSERT_EQ(page.listed.workers.size(), 2U);
  EXPECT_EQ(page.listed.workers[0], (Listed::Pushed{0, 4, 1, 16}));
  EXPECT_EQ(page.listed.workers[1], (Listed::Pushed{1, 5, 1, 16}));
}

TEST_F(ListingTest, PagesHaveEachKeyOnceWhateverComesAndGoesBetweenThem) {
  constexpr int kKeys = 9000;  // three pages
  for (int i = 0; i < kKeys; ++i) MakeKey(Format("k{}", i));
  std::vector<std::string> names;
  KeyId after{};
  for (int pages = 1;; ++pages) {
    const Page page = List(kLink0, after);
    for (const Listed::Item& item : page.listed.items) names.push_back(item.meta.name);
    EXPECT_GT(page.last, after);
    after = page.last;
    EXPECT_EQ(page.listed.workers.empty(), pages > 1);
    if (pages == 1) MakeKey("between");
    if (!page.has_more) {
      EXPECT_GE(pages, 3);
      break;
    }
  }
  std::ranges::sort(names);
  EXPECT_TRUE(std::ranges::adjacent_find(names) == names.end()) << "one is there twice";
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(std::ranges::binary_search(names, CanonicalKey(0, Format("k{}", i)))) << i;
  }
}

TEST_F(ListingTest, OneSessionAsksEightTimesInOneEvent) {
  shard_.SetNow(5);
  for (int i = 0; i < 8; ++i) List(kLink0);
  Message list;
  list.type = Type::kList;
  list.seq = ++seq_;
  const Message refused = Send(kLink0, list);
  EXPECT_EQ(refused.type, Type::kError);
  EXPECT_EQ(ErrorOf(refused).code(), Code::kResourceExhausted);
  List(kLink1);
  shard_.SetNow(6);
  List(kLink0);
}

TEST_F(ListingTest, WhatComesBackIsWhatWasWritten) {
  Listed::Item item;
  item.meta = meta_;
  item.has_own = item.has_first = true;
  item.chunks = 3;
  item.bytes = 4;
  item.oldest = 5;
  item.newest = 6;
  item.base = 7;
  item.waiting = 8;
  item.open_for = 9;
  item.missing_count = 20;
  item.missing = {1, 4095};
  Listed listed{2, {1, 2, 3, 4, 5, 6}, {{3, 4, 5, 6}}, {item, item}};
  const std::string bytes = Encode(listed, 2, Encode(item) + Encode(item));
  EXPECT_EQ(DecodeListed(bytes), listed);
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_THROW(DecodeListed(std::string_view(bytes).substr(0, cut)), Error) << cut;
  }
  EXPECT_THROW(DecodeListed(bytes + "x"), Error);
  item.missing = {-1};
  EXPECT_THROW(DecodeListed(Encode(listed, 1, Encode(item))), Error);
}

}  // namespace
}  // namespace tkv
