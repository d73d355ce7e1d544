// Conformance of every store: sums of 16-bit values are computed in float32 and rounded once.

#include <gtest/gtest.h>

#include <random>

#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;

constexpr DType kNarrow[] = {DType::kF16, DType::kBF16};
constexpr int64_t kSeveralTiles = 70000;  // and several chunks

// Returns the smallest power of two that does not change in this dtype when one is added.
double BaseOf(DType dtype) { return dtype == DType::kF16 ? 2048 : 256; }

Rows RowsOf(const std::vector<int64_t>& ids, const NDArray& values) {
  return {NDArray::FromBytes(ids.data(), {static_cast<int64_t>(ids.size())}, DType::kI64), values};
}

// Pushes several values of one row by every method.
class NarrowSums {
 public:
  NarrowSums(KVStore* store, DType dtype, int64_t width)
      : store_(store), dtype_(dtype), width_(width) {}

  // Makes all keys, with rows of `value`.
  void Init(double value) {
    RowInitializer initializer;
    initializer.a = value;
    const RowsInitItem tables[] = {{"table", {width_}, dtype_, 1000, initializer},
                                   {"rows", {width_}, dtype_, 1, initializer}};
    store_->InitRows(tables);
    for (const char* key : {"list", "both", "dense"}) {
      store_->Init(key, Full({1, width_}, value, dtype_));
    }
  }

  // Pushes the rows to each key, which must get their sum.
  void Push(const std::vector<NDArray>& rows) {
    store_->Push("list", rows);
    store_->Push("rows", rows);
    std::vector<const NDArray*> pointers;
    for (const NDArray& row : rows) pointers.push_back(&row);
    const PushItem push{"both", pointers};
    const NDArray out = NDArray::Empty({1, width_}, dtype_);
    const NDArray* const outs[] = {&out};
    const PullItem pull{"both", outs};
    store_->PushPull({&push, 1}, {&pull, 1});
    PushRows("dense", rows);
    PushRows("table", rows);
  }

  // Returns the row of each key.
  std::vector<NDArray> Pull() {
    std::vector<NDArray> all;
    for (const char* key : {"list", "both", "dense", "rows"}) {
      all.push_back(NDArray::Empty({1, width_}, dtype_));
      store_->Pull(key, all.back());
    }
    all.push_back(NDArray::Empty({1, width_}, dtype_));
    const int64_t id = 0;
    const NDArray ids = NDArray::FromBytes(&id, {1}, DType::kI64);
    const RowsPullItem pull{"table", &ids, &all.back()};
    store_->PullRows({&pull, 1});
    return all;
  }

 private:
  // Pushes all rows but the last as repetitions of an id in one value, and the last row as another
  // value.
  void PushRows(const KeyView& key, const std::vector<NDArray>& rows) {
    const auto repeated = static_cast<int64_t>(rows.size()) - 1;
    const NDArray values = NDArray::Empty({repeated, width_}, dtype_);
    for (int64_t i = 0; i < repeated; ++i) {
      values.Slice(i, i + 1).CopyFrom(rows[static_cast<size_t>(i)]);
    }
    const Rows first = RowsOf(std::vector<int64_t>(static_cast<size_t>(repeated), 0), values);
    const Rows last = RowsOf({0}, rows.back());
    const Rows* const both[] = {&first, &last};
    const RowsPushItem push{key, both};
    store_->PushRows({&push, 1});
  }

  KVStore* const store_;
  const DType dtype_;
  const int64_t width_;
};

TEST_P(StoreConformance, SixteenBitSumsReachAnOptimizerUnrounded) {
  for (const bool has_master : {false, true}) {
    for (const DType dtype : kNarrow) {
      store_ = GetParam().make();
      const double base = BaseOf(dtype);
      NarrowSums sums(store_.get(), dtype, 3);
      sums.Init(base);
      store_->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1.0}}, has_master));
      sums.Push({Full({1, 3}, base, dtype), Full({1, 3}, 1, dtype), Full({1, 3}, 1, dtype),
                 Full({1, 3}, -1, dtype)});
      for (const NDArray& row : sums.Pull()) {
        EXPECT_TRUE(SameBytes(row, Full({1, 3}, -1, dtype))) << Name(dtype) << has_master;
      }
    }
  }
}

TEST_P(StoreConformance, ASumThatSixteenBitsCannotHoldIsFiniteForAnOptimizer) {
  for (const bool has_master : {false, true}) {
    store_ = GetParam().make();
    NarrowSums sums(store_.get(), DType::kF16, 2);
    sums.Init(0);
    store_->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 0.01}}, has_master));
    sums.Push({Full({1, 2}, 60000, DType::kF16), Full({1, 2}, 60000, DType::kF16)});
    for (const NDArray& row : sums.Pull()) {
      EXPECT_TRUE(SameBytes(row, Full({1, 2}, -1200, DType::kF16))) << has_master;
    }
  }
}

TEST_P(StoreConformance, SixteenBitSumsAreRoundedOnceWhereNothingUpdates) {
  for (const DType dtype : kNarrow) {
    store_ = GetParam().make();
    const double base = BaseOf(dtype);
    NarrowSums sums(store_.get(), dtype, 2);
    sums.Init(0);
    sums.Push({Full({1, 2}, base, dtype), Full({1, 2}, 1, dtype), Full({1, 2}, 1, dtype)});
    for (const NDArray& row : sums.Pull()) {
      EXPECT_TRUE(SameBytes(row, Full({1, 2}, base + 2, dtype))) << Name(dtype);
    }
  }
}

NDArray Drawn(int64_t width, DType dtype, std::mt19937_64* random) {
  std::vector<float> values(static_cast<size_t>(width));
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(*random);
  const NDArray row = NDArray::FromBytes(values.data(), {1, width}, DType::kF32);
  return ConvertFloat(row, dtype);
}

TEST_P(StoreConformance, SixteenBitSumsHaveTheBitsOfALocalStore) {
  for (const bool has_master : {false, true}) {
    for (const DType dtype : kNarrow) {
      store_ = GetParam().make();
      const auto local = KVStore::Create("local");
      NarrowSums here(local.get(), dtype, kSeveralTiles), there(store_.get(), dtype, kSeveralTiles);
      const auto optimizer =
          Optimizer::Create("momentum", {{"learning_rate", 0.1}, {"momentum", 0.9}}, has_master);
      std::mt19937_64 random(7);
      here.Init(0.5);
      there.Init(0.5);
      local->SetOptimizer(optimizer);
      store_->SetOptimizer(optimizer);
      for (int push = 0; push < 2; ++push) {
        std::vector<NDArray> rows;
        for (int i = 0; i < 3; ++i) rows.push_back(Drawn(kSeveralTiles, dtype, &random));
        here.Push(rows);
        there.Push(rows);
      }
      const std::vector<NDArray> expected = here.Pull(), got = there.Pull();
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(SameBytes(got[i], expected[i])) << Name(dtype) << has_master << " way " << i;
        EXPECT_TRUE(SameBytes(got[i], expected[0])) << Name(dtype) << has_master << " way " << i;
      }
    }
  }
}

// Returns multiples of 1/64 below 32, rounded to the dtype.  Sums of several are exact in float32.
NDArray DrawnExactly(int64_t width, DType dtype, std::mt19937_64* random) {
  std::vector<float> values(static_cast<size_t>(width));
  std::uniform_int_distribution<int> numbers(-2000, 2000);
  for (float& value : values) value = static_cast<float>(numbers(*random)) / 64;
  return ConvertFloat(NDArray::FromBytes(values.data(), {1, width}, DType::kF32), dtype);
}

// Returns first - rate * (sum of the rows), computed in float64 and rounded once to the dtype.
NDArray Truth(double first, double rate, const std::vector<NDArray>& rows, DType dtype) {
  const auto width = static_cast<size_t>(rows[0].size());
  std::vector<double> sums(width);
  for (const NDArray& row : rows) {
    const NDArray wide = ConvertFloat(row, DType::kF32);
    const auto* const values = static_cast<const float*>(wide.data());
    for (size_t i = 0; i < width; ++i) sums[i] += values[i];
  }
  std::vector<float> truth(width);
  for (size_t i = 0; i < width; ++i) truth[i] = static_cast<float>(first - rate * sums[i]);
  return ConvertFloat(
      NDArray::FromBytes(truth.data(), {1, static_cast<int64_t>(width)}, DType::kF32), dtype);
}

TEST_P(StoreConformance, SixteenBitSumsAreThoseOfFloat64RoundedOnce) {
  std::mt19937_64 random(11);
  for (const DType dtype : kNarrow) {
    std::vector<NDArray> rows;
    for (int i = 0; i < 4; ++i) rows.push_back(DrawnExactly(kSeveralTiles, dtype, &random));
    store_ = GetParam().make();
    NarrowSums assigned(store_.get(), dtype, kSeveralTiles);
    assigned.Init(0);
    assigned.Push(rows);
    for (const NDArray& row : assigned.Pull()) {
      EXPECT_TRUE(SameBytes(row, Truth(0, -1, rows, dtype))) << Name(dtype);
    }
    for (const bool has_master : {false, true}) {
      store_ = GetParam().make();
      NarrowSums updated(store_.get(), dtype, kSeveralTiles);
      updated.Init(0.5);
      store_->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 0.125}}, has_master));
      updated.Push(rows);
      for (const NDArray& row : updated.Pull()) {
        EXPECT_TRUE(SameBytes(row, Truth(0.5, 0.125, rows, dtype))) << Name(dtype) << has_master;
      }
    }
  }
}

TEST_P(StoreConformance, AFunctionMayHaveTheSumsOfSixteenBitValuesUnrounded) {
  if (RefusesFunctions()) GTEST_SKIP() << "runs no functions of the caller";
  store_->Init("h", Full({2}, 0, DType::kF16));
  store_->Init("i", Full({2}, 0, DType::kI32));
  store_->Init("b", Full({2}, 0, DType::kBool));
  std::vector<NDArray> seen;
  const UpdateFunction look = [&](const KeyView&, const NDArray& sum, const NDArray& stored) {
    seen.push_back(sum);
    EXPECT_TRUE(stored.shape() == sum.shape());
  };
  const NDArray large = Full({2}, 60000, DType::kF16), whole = Full({2}, 3, DType::kI32);
  for (const SumType type : {SumType::kWide, SumType::kOfKey}) {
    store_->SetUpdater(look, {}, type);
    store_->Push("h", std::vector{large, large});
    store_->Push("h", large);
    store_->Push("i", std::vector{whole, whole});
    store_->Push("b", Full({2}, 1, DType::kBool));
  }
  ASSERT_EQ(seen.size(), 8U);
  EXPECT_TRUE(SameBytes(seen[0], Floats({120000, 120000})));
  EXPECT_TRUE(SameBytes(seen[1], Floats({60000, 60000})));
  EXPECT_TRUE(SameBytes(seen[4], Full({2}, std::numeric_limits<double>::infinity(), DType::kF16)));
  EXPECT_TRUE(SameBytes(seen[5], large));
  for (const size_t i : {2, 6}) EXPECT_TRUE(SameBytes(seen[i], Full({2}, 6, DType::kI32)));
  for (const size_t i : {3, 7}) EXPECT_TRUE(SameBytes(seen[i], Full({2}, 1, DType::kBool)));
}

}  // namespace
}  // namespace tkv
