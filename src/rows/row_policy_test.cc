// Compares the rows that a table keeps with a simple model: random programs of pushes under every
// kind of policy, with copies, pushes that are taken back, and versions without a push.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "rows/row_table.h"
#include "tests/arrays.h"

namespace tkv {
namespace {

constexpr size_t kElements = 3;

// A simple model of a table: it computes everything at once, and ignores time and memory.
class PolicyTruth {
 public:
  explicit PolicyTruth(const RowPolicy& policy) : policy_(policy) {}

  struct Row {
    std::vector<float> value;
    RowNote note;
  };

  bool Keeps(const RowNote& note) const {
    return policy_.age_max == 0 || now_ <= note.version || now_ - note.version <= policy_.age_max;
  }
  const Row* Find(uint64_t id) const {
    const auto row = rows_.find(id);
    return row != rows_.end() && Keeps(row->second.note) ? &row->second : nullptr;
  }
  void Push(uint64_t id, const std::vector<float>& value) {
    if (Find(id) == nullptr) {
      rows_.erase(id);
      RowNote& candidate = candidates_[id];
      if (!Keeps(candidate)) candidate = {};
      if (++candidate.count < policy_.admit_count) {
        candidate.version = now_ + 1;
        return;
      }
      candidates_.erase(id);
    }
    Row& row = rows_[id];
    row.value = value;
    row.note = {now_ + 1, row.note.count + 1};
  }
  void Advance() {
    ++now_;
    std::erase_if(rows_, [&](const auto& entry) { return !Keeps(entry.second.note); });
    if (policy_.rows_max == 0 || rows_.size() <= policy_.rows_max) return;
    std::vector<std::pair<double, uint64_t>> scores;
    for (const auto& [id, row] : rows_) scores.emplace_back(ScoreOf(row), Mix(id));
    std::sort(scores.begin(), scores.end());
    scores.resize(rows_.size() - policy_.rows_max + policy_.rows_max / 16);
    for (const auto& [score, mix] : scores) rows_.erase(Unmix(mix));
  }
  const std::map<uint64_t, Row>& rows() const { return rows_; }
  uint64_t now() const { return now_; }

 private:
  double ScoreOf(const Row& row) const {
    if (policy_.score == RowPolicy::Score::kAge) return static_cast<double>(row.note.version);
    if (policy_.score == RowPolicy::Score::kCount) return static_cast<double>(row.note.count);
    double sum = 0;
    for (const float x : row.value) sum += static_cast<double>(x) * x;
    return std::isnan(sum) ? -1 : sum;
  }

  const RowPolicy policy_;
  std::map<uint64_t, Row> rows_;
  std::map<uint64_t, RowNote> candidates_;
  uint64_t now_ = 0;
};

RowPolicy DrawPolicy(Random* random) {
  RowPolicy policy;
  policy.has_notes = true;
  if (random->Chance(0.5)) policy.admit_count = static_cast<uint32_t>(random->Between(1, 4));
  if (random->Chance(0.5)) policy.age_max = static_cast<uint64_t>(random->Between(1, 12));
  if (random->Chance(0.4)) policy.rows_max = static_cast<uint64_t>(random->Between(1, 60));
  policy.score = static_cast<RowPolicy::Score>(random->Between(0, 2));
  return policy;
}

void ExpectSame(const RowTable& table, const PolicyTruth& truth, uint64_t ids) {
  for (uint64_t id = 0; id < ids; ++id) {
    const uint64_t mix = Mix(id);
    const PolicyTruth::Row* const wanted = truth.Find(id);
    ASSERT_EQ(table.Contains(mix), wanted != nullptr) << "id " << id << ", version " << truth.now();
    std::vector<float> row(kElements);
    table.Read({&mix, 1}, row.data());
    if (wanted == nullptr) {
      ASSERT_EQ(row, std::vector<float>(kElements, 7)) << "id " << id;
      continue;
    }
    for (size_t i = 0; i < kElements; ++i) {
      const bool both_nan = std::isnan(row[i]) && std::isnan(wanted->value[i]);
      ASSERT_TRUE(both_nan || row[i] == wanted->value[i]) << "id " << id;
    }
    RowNote note;
    table.ReadNotes({&mix, 1}, &note);
    ASSERT_EQ(note, wanted->note) << "id " << id;
  }
  ASSERT_EQ(table.version(), truth.now());
  ASSERT_GE(table.size(), truth.rows().size());
}

TEST(RowPolicy, IsAPlainTruthUnderRandomPrograms) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const RowPolicy policy = DrawPolicy(&random);
    RowInitializer seven;
    seven.a = 7;
    RowTable table(DType::kF32, kElements, seven, 1, policy);
    PolicyTruth truth(policy);
    const uint64_t ids = random.Chance(0.5) ? 20 : 200;
    std::vector<RowTable> copies;  // copies that share pages and segments
    for (int step = 0; step < 80; ++step) {
      std::map<uint64_t, std::vector<float>> pushed;  // by mix
      for (int64_t n = random.Between(0, 30); n > 0; --n) {
        auto& row = pushed[Mix(random.Next() % ids)];
        for (size_t i = 0; i < kElements; ++i) {
          row.push_back(static_cast<float>(random.Between(-50, 50)));
        }
        row.resize(kElements);
        if (random.Chance(0.01)) row[0] = NAN;
      }
      std::vector<uint64_t> mixes;
      std::vector<float> values;
      for (const auto& [mix, row] : pushed) {
        mixes.push_back(mix);
        values.insert(values.end(), row.begin(), row.end());
      }
      if (random.Chance(0.2)) copies.push_back(table);
      if (copies.size() > 3) copies.erase(copies.begin());
      ReservedRows reserved;
      if (random.Chance(0.2)) {
        table.Admit(mixes, &reserved);
        table.TakeBack(mixes, reserved);
        ASSERT_NO_FATAL_FAILURE(ExpectSame(table, truth, ids));
      }
      table.Admit(mixes, &reserved);
      table.Assign(reserved,
                   {reinterpret_cast<const std::byte*>(values.data()), table.row_bytes(), nullptr},
                   DType::kF32);
      table.NotePush(mixes, reserved);
      table.Advance();
      for (const auto& [mix, row] : pushed) truth.Push(Unmix(mix), row);
      truth.Advance();
      ASSERT_NO_FATAL_FAILURE(ExpectSame(table, truth, ids));
    }
  }
}

// Evicted rows are counted, and later rows reuse their memory.
TEST(RowPolicy, ATableThatIsPushedForEverStaysSmall) {
  RowPolicy policy;
  policy.age_max = 10;
  policy.admit_count = 2;
  RowTable table(DType::kF32, kElements, {}, 1, policy);
  ReservedRows reserved;
  size_t most = 0, most_bytes = 0;
  const std::vector<float> values(2 * 100 * kElements, 1);
  for (uint64_t version = 0; version < 3000; ++version) {
    std::vector<uint64_t> mixes;
    for (uint64_t i = 0; i < 100; ++i) {
      mixes.push_back(Mix(version / 2 * 100 + i));                    // pushed in two versions
      mixes.push_back(Mix((uint64_t{1} << 40) + version * 100 + i));  // pushed in one version
    }
    std::sort(mixes.begin(), mixes.end());
    table.Admit(mixes, &reserved);
    table.Assign(reserved,
                 {reinterpret_cast<const std::byte*>(values.data()), table.row_bytes(), nullptr},
                 DType::kF32);
    table.NotePush(mixes, reserved);
    table.Advance();
    if (version < 100) continue;
    most = std::max(most, table.size() + table.candidates().size());
    if (version == 1000) most_bytes = table.memory_bytes();
  }
  EXPECT_LT(most, 10'000U);  // 11 versions of 150 to 200 ids are kept
  EXPECT_LE(table.memory_bytes(), 2 * most_bytes);
  EXPECT_GT(table.Stats().evicted, 140'000U);
}

// Two rows are imported, and the policy keeps one.  The other has to be admitted again: its earlier
// pushes no longer count.
TEST(RowPolicy, WhatWasCountedBeforeAnImportCountsNoMore) {
  RowPolicy policy;
  policy.admit_count = 3;
  policy.rows_max = 1;
  RowTable table(DType::kF32, kElements, {}, 1, policy);
  std::vector<uint64_t> mixes{Mix(1), Mix(2)};
  std::sort(mixes.begin(), mixes.end());
  ReservedRows reserved;
  const auto push = [&](std::span<const uint64_t> pushed) {
    table.Admit(pushed, &reserved);
    table.NotePush(pushed, reserved);
    table.Advance();
  };
  push(mixes);
  push(mixes);
  EXPECT_EQ(table.candidates().size(), 2U);

  table.Erase(mixes);
  table.Reserve(mixes, &reserved);
  table.NoteImport(reserved);
  table.Advance();
  EXPECT_EQ(table.candidates().size(), 0U);
  EXPECT_FALSE(table.Contains(mixes[0]));

  push({mixes.data(), 1});
  EXPECT_FALSE(table.Contains(mixes[0]));
  EXPECT_EQ(table.candidates().size(), 1U);
}

TEST(RowPolicy, WhatCannotBeIsRefused) {
  const auto make = [](const RowPolicy& policy, DType dtype = DType::kF32) {
    const RowTable table(dtype, kElements, {}, 1, policy);
  };
  RowPolicy policy;
  policy.admit_count = 0;
  EXPECT_FAILS(Code::kInvalidArgument, make(policy));
  policy.admit_count = RowPolicy::kAdmitMax + 1;
  EXPECT_FAILS(Code::kInvalidArgument, make(policy));
  policy.admit_count = RowPolicy::kAdmitMax;
  make(policy);
  policy.age_max = uint64_t{1} << 48;
  EXPECT_FAILS(Code::kInvalidArgument, make(policy));
  policy = {};
  policy.rows_max = 3;
  policy.score = RowPolicy::Score::kNorm;
  make(policy);
  EXPECT_FAILS(Code::kInvalidArgument, make(policy, DType::kI32));
  policy = {};
  policy.replaces_all = true;
  make(policy);
  policy.admit_count = 2;
  EXPECT_FAILS(Code::kInvalidArgument, make(policy));
}

}  // namespace
}  // namespace tkv
