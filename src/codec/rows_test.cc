#include "codec/rows.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/random.h"

namespace tkv::codec {
namespace {

constexpr size_t kRowBytes = 4;

// Compares each id's positions in the input with a simple computation.
void ExpectRightOrder(const std::vector<int64_t>& ids) {
  std::map<uint64_t, std::vector<uint32_t>> wanted;
  for (size_t i = 0; i < ids.size(); ++i) {
    wanted[Mix(static_cast<uint64_t>(ids[i]))].push_back(static_cast<uint32_t>(i));
  }
  const IdOrder order(ids);
  ASSERT_EQ(order.size(), wanted.size());
  size_t i = 0;
  for (const auto& [mix, places] : wanted) {
    ASSERT_EQ(order.mixes()[i], mix);
    const auto found = order.PositionsOf(i++);
    ASSERT_EQ(std::vector<uint32_t>(found.begin(), found.end()), places);
  }
}

TEST(Mix, IsABijection) {
  Random random(1);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t id = random.Next();
    ASSERT_EQ(Unmix(Mix(id)), id);
  }
  EXPECT_EQ(Unmix(Mix(0)), 0u);
  EXPECT_EQ(Unmix(Mix(UINT64_MAX)), UINT64_MAX);
}

TEST(IdOrder, SortsAndKeepsPlaces) {
  Random random(7);
  for (const size_t count : {0, 1, 2, 7, 64, 1000, 40'000}) {
    for (const uint64_t below : {uint64_t{1}, uint64_t{5}, uint64_t{1000}, kRowsMax}) {
      std::vector<int64_t> ids(count);
      for (int64_t& id : ids) id = static_cast<int64_t>(random.Next() % below);
      ExpectRightOrder(ids);
    }
  }
}

TEST(WriteRows, EachBucketHasItsIdsAndThenItsRows) {
  constexpr uint32_t kBuckets = 5;
  std::vector<int64_t> ids = {3, 9, 3, 100, 7, 12, 55};
  const IdOrder order(ids);
  BufferPool pool;
  const Block block = pool.Allocate(RowsBytes(order.mixes(), kRowBytes));
  Contribution rows;
  const auto write = [&](size_t i, std::byte* at) {
    const auto id = static_cast<uint32_t>(Unmix(order.mixes()[i]));
    std::memcpy(at, &id, sizeof(id));
  };
  WriteRows(order.mixes(), kBuckets, kRowBytes, block, write, &rows);
  size_t found = 0;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    const Bucket bucket{1000, b, kBuckets, kRowBytes};
    const Bytes part = rows.PartOf(b);
    const size_t count = bucket.RowsIn(part.size);
    ASSERT_EQ(count * (sizeof(uint64_t) + kRowBytes), part.size);
    const std::vector<uint64_t> mixes = MixesOf(bucket, part.data, count);
    for (size_t i = 0; i < count; ++i, ++found) {
      uint32_t value;
      std::memcpy(&value, part.data + count * sizeof(uint64_t) + i * kRowBytes, sizeof(value));
      EXPECT_EQ(Mix(value), mixes[i]);
    }
  }
  EXPECT_EQ(found, order.size());
}

TEST(WriteIds, HasTheIdsAlone) {
  const std::vector<int64_t> ids = {3, 9, 100};
  const IdOrder order(ids);
  BufferPool pool;
  Contribution asked;
  WriteIds(order.mixes(), 2, pool.Allocate(order.size() * sizeof(uint64_t)), &asked);
  EXPECT_EQ(asked.ends.back(), 24u);
  const Bucket second{1000, 1, 2, 0};
  const Bytes part = asked.PartOf(1);
  EXPECT_EQ(MixesOf(second, part.data, part.size / 8).size(), part.size / 8);
}

std::string WhyNot(const Bucket& bucket, const std::vector<uint64_t>& ids) {
  try {
    MixesOf(bucket, reinterpret_cast<const std::byte*>(ids.data()), ids.size());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MixesOf, IdsOfOthersAreRefused) {
  const Bucket all{100, 0, 1, kRowBytes};
  EXPECT_EQ(WhyNot(all, {100}), "id 100, the key has ids below 100");
  EXPECT_EQ(WhyNot(all, {kRowsMax}), "id 9223372036854775808, the key has ids below 100");
  EXPECT_EQ(WhyNot(all, {7, 7}), "id 7 comes after id 7: rows ascend by the mix of ids");
  const std::vector<uint64_t> rising =
      Mix(7) < Mix(8) ? std::vector<uint64_t>{7, 8} : std::vector<uint64_t>{8, 7};
  EXPECT_EQ(WhyNot(all, rising), "");
  EXPECT_NE(WhyNot(all, {rising[1], rising[0]}), "");
  const uint32_t its = BucketOf(Mix(7), 4);
  EXPECT_EQ(WhyNot({100, its, 4, kRowBytes}, {7}), "");
  EXPECT_NE(WhyNot({100, (its + 1) % 4, 4, kRowBytes}, {7}), "");
}

KeyMeta RowsMeta() {
  KeyMeta meta;
  meta.name.assign(1, 'x');
  meta.dtype = DType::kF32;
  meta.shape = Shape({2});
  meta.layout = Layout::kRows;
  meta.row_count = 100;
  meta.buckets = 4;
  return meta;
}

TEST(JudgeOfRows, OnlyRowsFitAKeyByRows) {
  const KeyMeta meta = RowsMeta();
  EXPECT_FALSE(Judge(meta, 0, Encoding::kRows, 0, 0));
  EXPECT_FALSE(Judge(meta, 0, Encoding::kRows, 0, 48));
  EXPECT_TRUE(Judge(meta, 0, Encoding::kRows, 0, 47));
  EXPECT_TRUE(Judge(meta, 0, Encoding::kRows, 1, 48));
  EXPECT_TRUE(Judge(meta, 0, Encoding::kDense, 0, 0));
  KeyMeta dense;
  dense.dtype = DType::kF32;
  dense.shape = Shape({100});
  EXPECT_TRUE(Judge(dense, 0, Encoding::kRows, 0, 0));
}

TEST(JudgeOfRows, SumsOf16BitRowsAreFloat32) {
  KeyMeta meta = RowsMeta();
  EXPECT_TRUE(Judge(meta, 0, Encoding::kRows, kWideValues, 48));
  meta.dtype = DType::kBF16;
  EXPECT_FALSE(Judge(meta, 0, Encoding::kRows, 0, 36));
  EXPECT_FALSE(Judge(meta, 0, Encoding::kRows, kWideValues, 48));
  EXPECT_TRUE(Judge(meta, 0, Encoding::kRows, kWideValues, 36));
  EXPECT_TRUE(Judge(meta, 0, Encoding::kRows, 2, 48));
  const Bucket bucket = BucketOfKey(meta, 0);
  EXPECT_EQ(bucket.RowsIn(36), 3U);
  EXPECT_EQ(bucket.RowsIn(48, kWideValues), 3U);
}

}  // namespace
}  // namespace tkv::codec
