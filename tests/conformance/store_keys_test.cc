// Conformance of every store: creation, deletion and names of keys.

#include <gtest/gtest.h>

#include <limits>

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;
using test::Values;

TEST_P(StoreConformance, PullGivesWhatInitStored) {
  InitFloats(3, {1, 2});
  EXPECT_EQ(Pulled(3), (std::vector<float>{1, 2}));
}

TEST_P(StoreConformance, InitCopiesItsValue) {
  const NDArray value = Floats({1, 2});
  store_->Init("w", value);
  Fill(value, 9);
  EXPECT_EQ(Pulled("w"), (std::vector<float>{1, 2}));
}

TEST_P(StoreConformance, ASecondInitIsAnErrorAndChangesNothing) {
  InitFloats(3, {1});
  EXPECT_FAILS(Code::kAlreadyExists, InitFloats(3, {2}));
  EXPECT_EQ(Pulled(3), (std::vector<float>{1}));
}

TEST_P(StoreConformance, InitOfRowsAndValuesIsAllOrNothing) {
  const NDArray value = Floats({5});
  const RowsInitItem with_value{.key = 1, .value = &value};
  const RowsInitItem too_long{.key = 2, .row_shape = Shape({1 << 23})};
  const RowsInitItem refused[] = {with_value, too_long};
  EXPECT_FAILS(Code::kInvalidArgument, store_->InitRows(refused));
  EXPECT_EQ(store_->size(), 0U);
  const RowsInitItem taken[] = {{.key = 3, .row_shape = Shape({2})}, with_value};
  store_->InitRows(taken);
  EXPECT_TRUE(store_->Describe(3).by_rows);
  EXPECT_EQ(store_->Keys(), (std::vector<Key>{Key(KeyView(3)), Key(KeyView(1))}));
  EXPECT_EQ(Pulled(1), (std::vector<float>{5}));
}

TEST_P(StoreConformance, AModeThatThereIsNotIsRefused) {
  const NDArray value = Floats({5});
  const InitItem items[] = {{1, &value, "async"}, {2, &value, "often"}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->Init(items));
  const RowsInitItem rows[] = {{.key = 3, .row_shape = Shape({2}), .mode = "often"}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->InitRows(rows));
  EXPECT_EQ(store_->size(), 0U);
  store_->Init(std::span(items, 1));
  EXPECT_EQ(Pulled(1), (std::vector<float>{5}));
}

TEST_P(StoreConformance, InitOfAListIsAllOrNothing) {
  InitFloats(2, {1});
  const NDArray value = Floats({5});
  const InitItem items[] = {{1, &value}, {2, &value}};
  EXPECT_FAILS(Code::kAlreadyExists, store_->Init(items));
  EXPECT_FALSE(store_->Contains(1));
  const InitItem twice[] = {{7, &value}, {8, &value}, {7, &value}};
  EXPECT_FAILS(Code::kAlreadyExists, store_->Init(twice));
  EXPECT_EQ(store_->size(), 1U);
  EXPECT_FAILS(Code::kInvalidArgument, store_->Init(std::span<const InitItem>()));
}

TEST_P(StoreConformance, AssignReplacesValuesAndKeepsStatesAndRounds) {
  store_->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 1}, {"momentum", 0.5}}));
  InitFloats(1, {0, 0});
  InitFloats(2, {5});
  store_->Push(1, Full({2}, 1));  // the value is -1, the momentum 1
  const NDArray value = Floats({10, 20});
  const InitItem items[] = {{1, &value}};
  store_->Assign(items);
  Fill(value, 0);  // the store has a copy
  EXPECT_EQ(Pulled(1), (std::vector<float>{10, 20}));
  EXPECT_EQ(Pulled(2), (std::vector<float>{5}));
  EXPECT_EQ(store_->Round(1), 1U);
  store_->Push(1, Full({2}, 1));  // 0.5 of the momentum, and 1
  EXPECT_EQ(Pulled(1), (std::vector<float>{8.5, 18.5}));
}

TEST_P(StoreConformance, AssignGivesA16BitKeyANewMaster) {
  store_->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1.0 / 4096}}, true));
  const NDArray one = Full({1}, 1, DType::kF16);
  store_->Init(1, Full({1}, 3, DType::kF16));
  store_->Push(1, one);
  const InitItem items[] = {{1, &one}};
  store_->Assign(items);
  for (int i = 0; i < 2; ++i) store_->Push(1, one);  // each alone is lost in 16 bits, both are not
  const NDArray out = NDArray::Empty({1}, DType::kF32);
  store_->Pull(1, out);
  EXPECT_EQ(Values(out), (std::vector<float>{1 - 2.0F / 4096}));
}

TEST_P(StoreConformance, AnAssignThatFailsChangesNoKey) {
  InitFloats(1, {1, 2});
  InitFloats(2, {3, 4});
  const RowsInitItem rows[] = {{.key = 3, .row_shape = Shape({2})}};
  store_->InitRows(rows);
  const NDArray good = Floats({7, 8});
  const NDArray longer = Floats({7, 8, 9});
  const NDArray halves = Full({2}, 1, DType::kF16);
  const NDArray row = Full({2}, 1);
  const auto fails = [&](const InitItem& second, Code code) {
    const InitItem items[] = {{1, &good}, second};
    EXPECT_FAILS(code, store_->Assign(items));
  };
  fails({2, &longer}, Code::kInvalidArgument);
  fails({2, &halves}, Code::kInvalidArgument);
  fails({1, &good}, Code::kInvalidArgument);
  fails({9, &good}, Code::kNotFound);
  EXPECT_FAILS(Code::kInvalidArgument, store_->Assign({}));
  const InitItem table[] = {{3, &row}};
  EXPECT_ANY_THROW(store_->Assign(table));
  EXPECT_EQ(Pulled(1), (std::vector<float>{1, 2}));
  EXPECT_EQ(Pulled(2), (std::vector<float>{3, 4}));
}

TEST_P(StoreConformance, EveryKeyIsAKeyOfItsOwn) {
  const int64_t keys[] = {0,
                          -1,
                          1,
                          int64_t{1} << 32,
                          std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max()};
  float value = 0;
  for (int64_t key : keys) InitFloats(key, {++value});
  value = 0;
  for (int64_t key : keys) EXPECT_EQ(Pulled(key), (std::vector<float>{++value}));
}

TEST_P(StoreConformance, ATextThatNotEveryLanguageHoldsIsRefusedAsAKeyAndShownEscaped) {
  const NDArray value = Floats({1});
  for (const auto& [text, shown] : std::vector<std::pair<std::string, std::string>>{
           {"lat\xe9n", "lat\\xe9n"},
           {"\xff\xfe", "\\xff\\xfe"},
           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // an unpaired surrogate
           {"\xc0\x80", "\\xc0\\x80"},
           {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
           {"\xe2\x82", "\\xe2\\x82"},
           {std::string("p\0q", 3), "p\\x00q"},
           {std::string("\0", 1), "\\x00"}}) {
    const InitItem items[] = {{"good", &value}, {text, &value}};
    const auto failure = test::FailureOf([&] { store_->Init(items); });
    EXPECT_EQ(failure.code, Code::kInvalidArgument);
    EXPECT_EQ(failure.message.find("init '" + shown + "': the key "), 0U) << failure.message;
    const RowsInitItem rows[] = {{.key = text, .row_shape = Shape({2})}};
    EXPECT_FAILS(Code::kInvalidArgument, store_->InitRows(rows));
  }
  EXPECT_EQ(store_->size(), 0U);
}

TEST_P(StoreConformance, AKeyThatIsTooLongIsNamedByItsBeginning) {
  const std::string longest(kKeyTextBytesMax, 'k');
  InitFloats(longest, {1});
  EXPECT_EQ(Pulled(longest), (std::vector<float>{1}));
  // The 64th byte is the second one of a character.
  const std::string longer = std::string(63, 'k') + "\u00e9" + std::string(kKeyTextBytesMax, 'k');
  try {
    InitFloats(longer, {1});
    FAIL() << "it has been made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(std::string(error.what()), "init '" + std::string(63, 'k') +
                                             "...': a key of 1084 bytes, at most 1019 are allowed");
  }
}

TEST_P(StoreConformance, StringKeysMayBeAnyUtf8) {
  float value = 0;
  const std::string keys[] = {"", "w", "3", "ключ/重み", std::string(1000, 'x')};
  for (const std::string& key : keys) InitFloats(key, {++value});
  value = 0;
  for (const std::string& key : keys) EXPECT_EQ(Pulled(key), (std::vector<float>{++value}));
}

TEST_P(StoreConformance, IntegerAndStringKeysDoNotMix) {
  const NDArray value = Floats({1});
  const InitItem both[] = {{1, &value}, {"1", &value}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->Init(both));
  InitFloats(3, {1});
  EXPECT_FAILS(Code::kInvalidArgument, InitFloats("3", {1}));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Push("3", value));
}

TEST_P(StoreConformance, AnUnknownKeyIsNamedAndNotCreated) {
  InitFloats("a", {1});
  const auto failure = test::FailureOf([&] { store_->Push("w3", Floats({1})); });
  EXPECT_EQ(failure.code, Code::kNotFound);
  EXPECT_EQ(failure.message, "push 'w3': no such key, init it first");
  EXPECT_FAILS(Code::kNotFound, store_->Pull("w3", Floats({1})));
  InitFloats("w3", {1});
}

TEST_P(StoreConformance, ShapesOfRankZeroAndSizeZero) {
  store_->Init(1, Full({}, 5));
  store_->Init(2, Full({3, 0}, 5));
  store_->Push(1, Full({}, 7));
  store_->Push(2, Full({3, 0}, 7));
  EXPECT_EQ(Pulled(1), (std::vector<float>{7}));
  EXPECT_EQ(Pulled(2), (std::vector<float>{}));
}

TEST_P(StoreConformance, EveryDTypeIsStoredAndAssigned) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    store_->Init(i, Full({5}, 0, dtype));
    store_->Push(i, Full({5}, 1, dtype));
    const NDArray out = Full({5}, 0, dtype);
    store_->Pull(i, out);
    EXPECT_TRUE(SameBytes(out, Full({5}, 1, dtype))) << Name(dtype);
  }
}

TEST_P(StoreConformance, KeysComeInTheOrderOfInit) {
  for (const char* key : {"b", "a", "c"}) InitFloats(key, {0});
  std::string order;
  for (const Key& key : store_->Keys()) order += key.text();
  EXPECT_EQ(order, "bac");
  EXPECT_EQ(store_->size(), 3U);
  EXPECT_TRUE(store_->Contains("a"));
  EXPECT_FALSE(store_->Contains("d"));
}

TEST_P(StoreConformance, BroadcastInitsAndPullsOrDoesNothing) {
  const NDArray value = Floats({5});
  const NDArray good = Floats({0});
  const NDArray bad = Floats({0, 0});
  const NDArray* pointers[] = {&good, &bad};
  const InitItem item{1, &value};
  const PullItem fails{1, {pointers, 2}};
  const PullItem other{2, {pointers, 1}};
  EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({&item, 1}, {&fails, 1}));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({&item, 1}, {&other, 1}));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Broadcast({&item, 1}, {}));
  EXPECT_FALSE(store_->Contains(1));
  const PullItem works{1, {pointers, 1}};
  store_->Broadcast({&item, 1}, {&works, 1});
  EXPECT_EQ(Values(good)[0], 5);
  EXPECT_FAILS(Code::kAlreadyExists, store_->Broadcast({&item, 1}, {&works, 1}));
}

TEST_P(StoreConformance, ADeletedKeyCanBeMadeAnew) {
  InitFloats(1, {1, 2});
  store_->Push(1, Floats({3, 4}));
  store_->Delete(1);
  EXPECT_FALSE(store_->Contains(1));
  EXPECT_FAILS(Code::kNotFound, Pulled(1));
  EXPECT_FAILS(Code::kNotFound, store_->Delete(1));
  InitFloats(1, {5});
  EXPECT_EQ(Pulled(1), (std::vector<float>{5}));
}

}  // namespace
}  // namespace tkv
