// Compares sums of rows with std::map.

#include "rows/sparse_sum.h"

#include <gtest/gtest.h>

#include <limits>

#include <cstring>
#include <map>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "tests/arrays.h"
#include "tkv/rows.h"

namespace tkv {
namespace {

struct Batch {
  std::vector<int64_t> ids;
  std::vector<float> values;
  RowList list() const { return {ids, values.data()}; }
};

Batch Draw(Random* random, size_t count, int64_t ids, size_t elements) {
  Batch batch;
  for (size_t i = 0; i < count; ++i) {
    batch.ids.push_back(random->Between(0, ids - 1));
    for (size_t e = 0; e < elements; ++e) {
      batch.values.push_back(static_cast<float>(random->Between(-1000, 1000)) / 7);
    }
  }
  return batch;
}

using SumTruth = std::map<uint64_t, std::vector<float>>;

void AddTo(SumTruth* truth, const Batch& batch, size_t elements, RowOrder order) {
  for (size_t i = 0; i < batch.ids.size(); ++i) {
    const auto id = static_cast<uint64_t>(batch.ids[i]);
    const float* row = batch.values.data() + i * elements;
    const auto [at, is_new] = truth->try_emplace(order == RowOrder::kMix ? Mix(id) : id,
                                                 std::vector<float>(row, row + elements));
    for (size_t e = 0; e < elements && !is_new; ++e) at->second[e] += row[e];
  }
}

void ExpectSame(const SparseSum& sum, const SumTruth& truth, size_t elements) {
  ASSERT_EQ(sum.size(), truth.size());
  size_t i = 0;
  for (const auto& [name, row] : truth) {
    ASSERT_EQ(sum.names()[i], name);
    ASSERT_EQ(std::memcmp(sum.values().at(i), row.data(), elements * sizeof(float)), 0);
    ++i;
  }
}

TEST(SparseSum, AddsRowsOfOneIdFromLeftToRight) {
  Random random(1);
  for (const size_t count : {0, 1, 5, 63, 64, 65, 1000, 30'000}) {
    for (const int64_t ids : {int64_t{1}, int64_t{40}, int64_t{100'000}, INT64_MAX}) {
      for (const RowOrder order : {RowOrder::kMix, RowOrder::kId}) {
        const size_t elements = static_cast<size_t>(random.Between(1, 5));
        const Batch a = Draw(&random, count, ids, elements);
        const Batch b = Draw(&random, count / 2, ids, elements);
        SumTruth truth;
        AddTo(&truth, a, elements, order);
        AddTo(&truth, b, elements, order);
        const RowList lists[] = {a.list(), b.list()};
        for (const auto memory : {SparseSum::Memory::kOwn, SparseSum::Memory::kBorrow}) {
          const auto sum = SparseSum::Of(lists, kRowsMax, DType::kF32, elements, order, memory);
          ExpectSame(sum, truth, elements);
          EXPECT_EQ(sum.has_sums(), truth.size() < a.ids.size() + b.ids.size());
        }
      }
    }
  }
}

TEST(SparseSum, MergesTwo) {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const auto ids = random.Between(1, 60);
    const Batch a = Draw(&random, static_cast<size_t>(random.Between(0, 50)), ids, 3);
    const Batch b = Draw(&random, static_cast<size_t>(random.Between(0, 50)), ids, 3);
    const RowList list_a = a.list(), list_b = b.list();
    const auto sum_a = SparseSum::Of({&list_a, 1}, kRowsMax, DType::kF32, 3, RowOrder::kMix);
    const auto sum_b = SparseSum::Of({&list_b, 1}, kRowsMax, DType::kF32, 3, RowOrder::kMix);
    SumTruth truth, other;
    AddTo(&truth, a, 3, RowOrder::kMix);
    AddTo(&other, b, 3, RowOrder::kMix);
    for (const auto& [name, row] : other) {
      const auto [at, is_new] = truth.emplace(name, row);
      for (size_t e = 0; e < 3 && !is_new; ++e) at->second[e] += row[e];
    }
    const auto merged = SparseSum::Merge(sum_a, sum_b);
    ExpectSame(merged, truth, 3);
    EXPECT_EQ(merged.has_sums(), truth.size() < a.ids.size() + b.ids.size());
  }
}

TEST(SparseSum, SumsOf16BitFloatsAreRoundedByNobody) {
  const std::vector<int64_t> ids{5, 5, 5, 7};
  const float wide[] = {1, 0x1p-9F, 0x1p-9F, 3};
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    uint16_t values[4];
    kernels::Convert(DType::kF32, wide, dtype, values, 4);
    const RowList list{ids, values};
    const auto sum =
        SparseSum::Of({&list, 1}, kRowsMax, dtype, 1, RowOrder::kId, SparseSum::Memory::kBorrow);
    EXPECT_EQ(sum.dtype(), DType::kF32);
    ASSERT_EQ(sum.size(), 2);
    float first = 0;
    std::memcpy(&first, sum.values().at(0), sizeof(first));
    EXPECT_EQ(first, 1 + 0x1p-8F);
  }
}

TEST(SparseSum, ValuesThatCannotBeSummedStandOnceEach) {
  const std::vector<int64_t> once{4, 2}, twice{4, 4};
  const uint8_t values[] = {1, 0};
  const RowList fine{once, values}, wrong{twice, values};
  EXPECT_EQ(SparseSum::Of({&fine, 1}, kRowsMax, DType::kBool, 1, RowOrder::kId).size(), 2);
  EXPECT_FAILS(Code::kInvalidArgument,
               SparseSum::Of({&wrong, 1}, kRowsMax, DType::kBool, 1, RowOrder::kId));
}

// Each id is checked when it is read: a thread that changes ids during the call causes an error,
// not an access to other memory.
TEST(SparseSum, AnIdIsLookedAtWhereItIsRead) {
  const std::vector<float> values(3);
  for (const int64_t wrong : {int64_t{10}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    const std::vector<int64_t> ids = {3, wrong, 4};
    const RowList list{ids, values.data()};
    for (const RowOrder order : {RowOrder::kMix, RowOrder::kId}) {
      EXPECT_FAILS(Code::kOutOfRange, SparseSum::Of({&list, 1}, 10, DType::kF32, 1, order));
    }
  }
}

}  // namespace
}  // namespace tkv
