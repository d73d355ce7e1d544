// Compares row tables with std::map: every type, copies, states, and allocations that fail.

#include "rows/row_table.h"
#include "rows/same_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "rows/sparse_sum.h"
#include "tests/arrays.h"
#include "tests/scarce_memory.h"
#include "update/program_body.h"

namespace tkv {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

std::vector<uint64_t> MixesOf(const std::vector<uint64_t>& ids) {
  std::vector<uint64_t> mixes;
  for (const uint64_t id : ids) mixes.push_back(Mix(id));
  std::sort(mixes.begin(), mixes.end());
  mixes.erase(std::unique(mixes.begin(), mixes.end()), mixes.end());
  return mixes;
}

std::vector<uint64_t> DrawMixes(Random* random, size_t count, uint64_t ids) {
  std::vector<uint64_t> drawn;
  for (size_t i = 0; i < count; ++i) drawn.push_back(random->Next() % ids);
  return MixesOf(drawn);
}

// Returns random rows of small numbers, which every type holds exactly.
std::vector<std::byte> DrawRows(Random* random, DType dtype, size_t elements) {
  std::vector<double> numbers(elements);
  for (double& number : numbers) number = static_cast<double>(random->Between(-100, 100));
  std::vector<std::byte> bytes(elements * ItemSize(dtype) + 1);
  for (size_t i = 0; i < elements; ++i) {
    if (dtype == DType::kI32) {
      const auto value = static_cast<int32_t>(numbers[i]);
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else if (dtype == DType::kI64) {
      const auto value = static_cast<int64_t>(numbers[i]);
      std::memcpy(bytes.data() + 8 * i, &value, 8);
    }
  }
  if (IsFloat(dtype)) kernels::Convert(DType::kF64, numbers.data(), dtype, bytes.data(), elements);
  return bytes;
}

RowSource SourceOf(const std::vector<std::byte>& bytes, size_t row_bytes) {
  return {bytes.data(), row_bytes, nullptr};
}

std::vector<std::byte> ReadAll(const RowTable& table, const std::vector<uint64_t>& mixes) {
  std::vector<std::byte> out(mixes.size() * table.row_bytes());
  table.Read(mixes, out.data());
  return out;
}

void AssignRows(RowTable* table, const std::vector<uint64_t>& mixes,
                const std::vector<std::byte>& values) {
  ReservedRows reserved;
  table->Reserve(mixes, &reserved);
  table->Assign(reserved, SourceOf(values, table->row_bytes()), table->dtype());
}

using TableTruth = std::map<uint64_t, std::vector<std::byte>>;

void ExpectSame(const RowTable& table, const TableTruth& truth) {
  ASSERT_EQ(table.size(), truth.size());
  std::vector<uint64_t> mixes;
  std::vector<std::byte> wanted;
  for (const auto& [mix, row] : truth) {
    mixes.push_back(mix);
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  EXPECT_EQ(table.Mixes(0, SIZE_MAX), mixes);
  for (size_t n = 0; n <= mixes.size(); n += 1 + mixes.size() / 5) {
    const size_t end = std::min(mixes.size(), n + 3);
    EXPECT_EQ(table.MixesFrom(n, 3),
              std::vector<uint64_t>(mixes.begin() + static_cast<ptrdiff_t>(n),
                                    mixes.begin() + static_cast<ptrdiff_t>(end)));
  }
  EXPECT_EQ(ReadAll(table, mixes), wanted);
}

TEST(RowTable, IsAsStdMapIsUnderRandomProgramsOfEveryType) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    constexpr DType kTypes[] = {DType::kF32,  DType::kF64, DType::kF16,
                                DType::kBF16, DType::kI32, DType::kI64};
    const DType dtype = kTypes[seed % 6];
    const auto elements = static_cast<size_t>(random.Between(1, 40));
    RowTable table(dtype, elements, {});
    TableTruth truth;
    std::vector<std::pair<RowTable, TableTruth>> copies;
    const uint64_t ids = random.Chance(0.5) ? 300 : uint64_t{1} << 40;
    for (int step = 0; step < 60; ++step) {
      const auto mixes = DrawMixes(&random, static_cast<size_t>(random.Between(0, 200)), ids);
      const int64_t what = random.Between(0, 9);
      if (what < 6) {
        const auto rows = DrawRows(&random, dtype, mixes.size() * elements);
        AssignRows(&table, mixes, rows);
        for (size_t i = 0; i < mixes.size(); ++i) {
          const std::byte* row = rows.data() + i * table.row_bytes();
          truth[mixes[i]].assign(row, row + table.row_bytes());
        }
      } else if (what == 6) {
        table.Erase(mixes);
        for (const uint64_t mix : mixes) truth.erase(mix);
      } else if (what == 7) {
        copies.emplace_back(table, truth);
      } else if (what == 8 && IsFloat(dtype)) {
        table.StartStates(static_cast<size_t>(random.Between(0, 2)), random.Chance(0.5));
      } else {
        const auto out = ReadAll(table, mixes);
        for (size_t i = 0; i < mixes.size(); ++i) {
          const auto found = truth.find(mixes[i]);
          std::vector<std::byte> wanted(table.row_bytes());
          if (found != truth.end()) wanted = found->second;
          ASSERT_EQ(std::memcmp(out.data() + i * wanted.size(), wanted.data(), wanted.size()), 0);
          ASSERT_EQ(table.Contains(mixes[i]), found != truth.end());
        }
      }
    }
    ExpectSame(table, truth);
    for (const auto& [copy, old] : copies) ExpectSame(copy, old);
  }
}

TEST(RowTable, KeepsManyRows) {
  Random random(1);
  RowTable table(DType::kF32, 3, {});
  std::map<uint64_t, float> truth;
  for (int step = 0; step < 20; ++step) {
    const auto mixes = DrawMixes(&random, 20'000, uint64_t{1} << 50);
    std::vector<float> values(mixes.size() * 3, static_cast<float>(step));
    ReservedRows reserved;
    table.Reserve(mixes, &reserved);
    const RowSource source{reinterpret_cast<const std::byte*>(values.data()), 12, nullptr};
    table.Assign(reserved, source, DType::kF32);
    for (const uint64_t mix : mixes) truth[mix] = static_cast<float>(step);
  }
  ASSERT_EQ(table.size(), truth.size());
  EXPECT_LT(table.memory_bytes(), truth.size() * (16 + 41) + (size_t{4} << 20));
  const auto mixes = table.Mixes(0, SIZE_MAX);
  std::vector<float> out(mixes.size() * 3);
  table.Read(mixes, out.data());
  for (size_t i = 0; i < mixes.size(); ++i) ASSERT_EQ(out[3 * i + 2], truth.at(mixes[i]));
}

TEST(RowTable, RowsThatNobodyHasWrittenReadAsTheInitializerHasThem) {
  using Kind = RowInitializer::Kind;
  constexpr size_t kElements = 601;
  for (const DType dtype : kFloats) {
    for (const Kind kind : {Kind::kConstant, Kind::kUniform, Kind::kNormal}) {
      const RowInitializer initializer{kind, 0.25, 1.5, 7};
      RowTable table(dtype, kElements, initializer);
      const auto mixes = MixesOf({0, 1, 5, kRowsMax - 1});
      const auto before = ReadAll(table, mixes);
      EXPECT_EQ(table.size(), 0) << "reading makes nothing";
      EXPECT_EQ(ReadAll(RowTable(dtype, kElements, initializer), mixes), before);
      ReservedRows reserved;
      table.Reserve(mixes, &reserved);
      EXPECT_EQ(table.size(), 4);
      EXPECT_EQ(ReadAll(table, mixes), before) << "a row begins as it was read";
      // Other dtypes have the values of f64, rounded once.
      const auto exact = ReadAll(RowTable(DType::kF64, kElements, initializer), mixes);
      std::vector<std::byte> rounded(before.size());
      kernels::Convert(DType::kF64, exact.data(), dtype, rounded.data(), 4 * kElements);
      EXPECT_EQ(rounded, before);
    }
  }
}

TEST(RowTable, DrawnRowsAreSpreadAsTheInitializerSays) {
  using Kind = RowInitializer::Kind;
  const auto mixes = MixesOf({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  constexpr size_t kElements = 4000;
  std::vector<double> drawn(mixes.size() * kElements);
  RowTable(DType::kF64, kElements, {Kind::kUniform, -1, 3, 1}).Read(mixes, drawn.data());
  double sum = 0;
  for (const double number : drawn) {
    ASSERT_TRUE(number >= -1 && number < 3);
    sum += number;
  }
  EXPECT_NEAR(sum / static_cast<double>(drawn.size()), 1, 0.03);  // 5 times 4 / sqrt(12 * 40000)
  RowTable(DType::kF64, kElements, {Kind::kNormal, 2, 0.5, 1}).Read(mixes, drawn.data());
  double mean = 0, squares = 0;
  for (const double number : drawn) mean += number / static_cast<double>(drawn.size());
  for (const double number : drawn) squares += (number - mean) * (number - mean);
  EXPECT_NEAR(mean, 2, 0.0125);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(drawn.size())), 0.5, 0.01);
  const auto other = RowTable(DType::kF64, 4, {Kind::kNormal, 2, 0.5, 2});
  const auto same = RowTable(DType::kF64, 4, {Kind::kNormal, 2, 0.5, 1});
  EXPECT_NE(ReadAll(other, mixes), ReadAll(same, mixes)) << "the seed counts";
}

TEST(RowTable, InitializersThatDoNotFitAreRefused) {
  using Kind = RowInitializer::Kind;
  const auto make = [](DType dtype, RowInitializer initializer) {
    RowTable(dtype, 4, initializer);
  };
  EXPECT_FAILS(Code::kInvalidArgument, make(DType::kI32, {Kind::kUniform, 0, 1}));
  EXPECT_FAILS(Code::kInvalidArgument, make(DType::kI32, {Kind::kConstant, 0.5}));
  EXPECT_FAILS(Code::kInvalidArgument, make(DType::kF32, {Kind::kUniform, 1, 0}));
  EXPECT_FAILS(Code::kInvalidArgument, make(DType::kF32, {Kind::kNormal, 0, -1}));
  EXPECT_FAILS(Code::kInvalidArgument, make(DType::kF32, {Kind::kNormal, NAN, 1}));
  make(DType::kBool, {Kind::kConstant, 1});
}

// -----------------------------------------------------------------------------------------------------------------
// updates

// The same key as dense arrays, where every row exists.
struct Dense {
  std::vector<std::byte> value;
  std::vector<std::vector<std::byte>> states;
  std::vector<float> master;
};

struct Case {
  const char* optimizer;
  DType dtype;
  size_t elements;
  bool multi_precision;
  bool lazy;
};

// Checks that RowTable updates each row as RunJobs updates the same row of a dense value.
void CompareWithDense(const Case& c, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << c.optimizer << " " << Name(c.dtype) << " x " << c.elements
                                  << (c.multi_precision ? " master" : "")
                                  << (c.lazy ? " lazy" : ""));
  Random random(seed);
  const auto optimizer =
      Optimizer::Create(c.optimizer, {{"learning_rate", 0.1}, {"wd", 0.01}}, c.multi_precision);
  const CompiledUpdate update = CompileUpdate(optimizer->program(), c.dtype);
  const DType compute = ComputeType(c.dtype);
  const size_t arrays = optimizer->program().states().size();
  const size_t kept = optimizer->program().scalar_states().size();
  const size_t wide = c.elements * ItemSize(compute);
  constexpr uint64_t kStream = 77;
  RowTable table(c.dtype, c.elements, {RowInitializer::Kind::kUniform, -1, 1, seed});
  std::map<uint64_t, Dense> truth;
  std::vector<double> scalars;  // scalar states of the table
  std::vector<double> dense_scalars;
  for (const auto& state : optimizer->program().scalar_states()) {
    dense_scalars.push_back(state.initial);
  }
  table.StartStates(arrays, c.multi_precision);
  for (int t = 1; t <= 4; ++t) {
    const auto mixes = DrawMixes(&random, 120, 150);
    const auto sums = DrawRows(&random, compute, mixes.size() * c.elements);
    const std::vector<std::byte> zeros(wide);
    RowUpdate row_update(update, c.dtype, c.elements, optimizer->ParamsFor(KeyView(1)), scalars, t,
                         1, kStream);
    ReservedRows reserved;
    table.Reserve(mixes, &reserved);
    for (const uint64_t mix : mixes) {
      if (truth.contains(mix)) continue;
      Dense& row = truth[mix];
      row.value = ReadAll(table, {mix});
      row.states.assign(arrays, std::vector<std::byte>(wide));
      row.master.resize(c.elements);
      if (compute != c.dtype) {
        kernels::Convert(c.dtype, row.value.data(), compute, row.master.data(), c.elements);
      }
    }
    if (c.lazy) {
      table.Update(&row_update, mixes, reserved, SourceOf(sums, wide));
    } else {
      table.ReserveAll();
      table.UpdateAll(&row_update, mixes, SourceOf(sums, wide));
    }
    scalars = row_update.scalars();
    std::vector<double> next = dense_scalars;
    for (auto& [mix, row] : truth) {
      const auto at = std::lower_bound(mixes.begin(), mixes.end(), mix);
      const bool is_summed = at != mixes.end() && *at == mix;
      if (!is_summed && c.lazy) continue;
      next = dense_scalars;
      std::vector<void*> states;
      for (auto& state : row.states) states.push_back(state.data());
      for (double& scalar : next) states.push_back(&scalar);
      UpdateScalars bound = BindScalars(update, optimizer->ParamsFor(KeyView(1)), states, t, 1);
      TileJob job;
      job.dtype = c.dtype;
      job.count = c.elements;
      job.base =
          is_summed ? sums.data() + static_cast<size_t>(at - mixes.begin()) * wide : zeros.data();
      job.value = row.value.data();
      if (c.multi_precision && compute != c.dtype) job.master = row.master.data();
      job.update = &update;
      job.scalars = &bound;
      job.states = states;
      job.stream = kStream;
      job.begin = Unmix(mix) * c.elements;
      RunJobs({&job, 1}, 1);
      KeepScalars(bound, states);
    }
    dense_scalars = next;
  }
  ASSERT_EQ(scalars.size(), kept);
  EXPECT_EQ(scalars, dense_scalars);
  ASSERT_EQ(table.size(), truth.size());
  for (const auto& [mix, row] : truth) {
    ASSERT_EQ(ReadAll(table, {mix}), row.value);
    std::vector<std::byte> part(wide);
    for (size_t s = 0; s < arrays; ++s) {
      table.ReadState(s, {&mix, 1}, part.data());
      ASSERT_EQ(part, row.states[s]);
    }
    if (!table.has_master()) continue;
    table.ReadMaster({&mix, 1}, part.data());
    ASSERT_EQ(std::memcmp(part.data(), row.master.data(), wide), 0);
  }
}

TEST(RowTable, UpdatesAreThoseOfDenseArraysBitForBit) {
  uint64_t seed = 0;
  for (const char* optimizer :
       {"sgd", "momentum", "adam", "adamw", "ftrl", "rmsprop", "nadam", "sgld"}) {
    for (const DType dtype : kFloats) {
      for (const size_t elements : {1, 7, 64, 2500}) {
        if (elements == 2500 && dtype != DType::kF32) continue;  // several tiles: one type shows it
        for (const bool lazy : {true, false}) {
          CompareWithDense({optimizer, dtype, elements, seed % 3 == 0, lazy}, seed);
          ++seed;
        }
      }
    }
  }
}

TEST(RowTable, ProgramsThatNeedWholeValuesAreRefused) {
  const auto lamb = Optimizer::Create("lamb");
  const CompiledUpdate update = CompileUpdate(lamb->program(), DType::kF32);
  EXPECT_FAILS(Code::kInvalidArgument,
               RowUpdate(update, DType::kF32, 4, lamb->ParamsFor(KeyView(1)), {}, 1, 1));
}

// An update unshares the rows that it writes, and a new rule drops the states of the earlier one.
TEST(RowTable, ACopyKeepsValuesStatesAndMasters) {
  Random random(3);
  const auto optimizer = Optimizer::Create("adam", {}, true);
  const CompiledUpdate update = CompileUpdate(optimizer->program(), DType::kF16);
  RowTable table(DType::kF16, 5, {});
  const auto all = DrawMixes(&random, 3000, 4000);
  AssignRows(&table, all, DrawRows(&random, DType::kF16, all.size() * 5));
  table.StartStates(2, true);
  const auto run = [&](double t) {
    const auto mixes = DrawMixes(&random, 300, 5000);
    const auto sums = DrawRows(&random, DType::kF32, mixes.size() * 5);
    RowUpdate step(update, DType::kF16, 5, optimizer->ParamsFor(KeyView(1)), {}, t, 1);
    ReservedRows reserved;
    table.Reserve(mixes, &reserved);
    table.Update(&step, mixes, reserved, SourceOf(sums, 20));
  };
  std::vector<RowTable> copies;
  std::vector<std::vector<std::byte>> contents;
  const auto contents_of = [](const RowTable& t) {
    const auto mixes = t.Mixes(0, SIZE_MAX);
    std::vector<std::byte> bytes = ReadAll(t, mixes), part(mixes.size() * 20);
    t.ReadMaster(mixes, part.data());
    bytes.insert(bytes.end(), part.begin(), part.end());
    for (size_t s = 0; s < t.state_count(); ++s) {
      t.ReadState(s, mixes, part.data());
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
  };
  for (int i = 0; i < 8; ++i) {
    run(i + 1);
    copies.push_back(table);
    EXPECT_TRUE(copies.back() == table);
    contents.push_back(contents_of(table));
  }
  run(9);
  EXPECT_FALSE(copies.back() == table);
  table.StartStates(2, true);
  std::vector<std::byte> state(20);
  const uint64_t first = table.Mixes(0, 1)[0];
  table.ReadState(0, {&first, 1}, state.data());
  EXPECT_EQ(state, std::vector<std::byte>(20)) << "states of an earlier rule are gone";
  for (size_t i = 0; i < copies.size(); ++i) EXPECT_EQ(contents_of(copies[i]), contents[i]);
}

TEST(RowTable, ASnapshotIsWrittenBackPartByPart) {
  Random random(8);
  const auto optimizer = Optimizer::Create("adam", {}, true);
  const CompiledUpdate update = CompileUpdate(optimizer->program(), DType::kBF16);
  RowTable table(DType::kBF16, 3, {}), loaded = table;
  for (RowTable* one : {&table, &loaded}) one->StartStates(2, true);
  const auto mixes = DrawMixes(&random, 500, 1000);
  const auto sums = DrawRows(&random, DType::kF32, mixes.size() * 3);
  RowUpdate step(update, DType::kBF16, 3, optimizer->ParamsFor(KeyView(1)), {}, 1, 1);
  ReservedRows reserved;
  table.Reserve(mixes, &reserved);
  table.Update(&step, mixes, reserved, SourceOf(sums, 12));
  std::vector<std::byte> part(mixes.size() * 12);
  loaded.Reserve(mixes, &reserved);
  loaded.Assign(reserved, SourceOf(ReadAll(table, mixes), 6), DType::kBF16);
  table.ReadMaster(mixes, part.data());
  loaded.AssignMaster(reserved, SourceOf(part, 12));
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_FALSE(loaded == table);
    table.ReadState(s, mixes, part.data());
    loaded.AssignState(s, reserved, SourceOf(part, 12));
  }
  EXPECT_TRUE(loaded == table);
}

// -----------------------------------------------------------------------------------------------------------------
// memory that ends

TEST(RowTable, WhereMemoryEndsTheTableIsAsItWas) {
  Random random(5);
  RowTable table(DType::kF32, 16, {});
  const auto first = DrawMixes(&random, 3000, 10'000);
  AssignRows(&table, first, DrawRows(&random, DType::kF32, first.size() * 16));
  table.Erase(std::span(first).first(50));
  table.StartStates(1, false);
  const RowTable before = table;  // shares everything, so that each page and segment is copied
  const auto batch = DrawMixes(&random, 4000, 20'000);
  int failed = 0;
  for (int n = 0;; ++n) {
    ReservedRows reserved;
    const auto failure = test::FailureOf([&] {
      test::allocations_left = n;
      table.Reserve(batch, &reserved);
    });
    const bool has_ended = test::allocations_left < 0;
    test::allocations_left = -1;
    if (!failure.code) {
      EXPECT_FALSE(has_ended);
      break;
    }
    ++failed;
    ASSERT_EQ(failure.code, Code::kResourceExhausted);
    ASSERT_TRUE(table == before) << "allocation " << n;
    // A later call succeeds on the unchanged table.
    RowTable copy = table;
    copy.Reserve(batch, &reserved);
    ASSERT_EQ(copy.size(), MixesOf([&] {
                             std::vector<uint64_t> ids;
                             for (const uint64_t mix : before.Mixes(0, SIZE_MAX))
                               ids.push_back(Unmix(mix));
                             for (const uint64_t mix : batch) ids.push_back(Unmix(mix));
                             return ids;
                           }())
                               .size());
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(table.size(), before.size());
  EXPECT_EQ(ReadAll(before, first).size(), first.size() * 64);
}

TEST(RowTable, RowsThatAreEvictedBeforeMemoryEndsAreCounted) {
  constexpr size_t kRows = 200'000;  // of several segments
  Random random(8);
  RowTable table(DType::kF32, 1, {}, 1, {.age_max = 1});
  const auto mixes = DrawMixes(&random, kRows, uint64_t{1} << 60);
  ReservedRows reserved;
  table.Admit(mixes, &reserved);
  table.NotePush(mixes, reserved);
  for (int version = 0; version < 3; ++version) table.Advance();
  const TableStats before = table.Stats();
  int partly = 0;
  for (int n = 0;; ++n) {
    RowTable copy = table;  // shares segments, so that erasing rows of each takes memory
    const auto failure = test::FailureOf([&] {
      test::allocations_left = n;
      copy.Admit(mixes, &reserved);
    });
    test::allocations_left = -1;
    const TableStats after = copy.Stats();
    if (!failure.code) {
      EXPECT_EQ(after.evicted, before.evicted + before.rows);
      break;
    }
    ASSERT_EQ(after.evicted - before.evicted, before.rows - after.rows) << "allocation " << n;
    if (after.rows > 0 && after.rows < before.rows) ++partly;
  }
  EXPECT_GT(partly, 0);
}

TEST(RowTable, ErasedRowsMakeRoomForOthers) {
  Random random(6);
  RowTable table(DType::kF32, 64, {});
  const auto mixes = DrawMixes(&random, 20'000, uint64_t{1} << 60);
  AssignRows(&table, mixes, DrawRows(&random, DType::kF32, mixes.size() * 64));
  const size_t bytes = table.memory_bytes();
  table.Erase(mixes);
  EXPECT_EQ(table.size(), 0);
  const auto others = DrawMixes(&random, 19'000, uint64_t{1} << 60);
  AssignRows(&table, others, DrawRows(&random, DType::kF32, others.size() * 64));
  EXPECT_LE(table.memory_bytes(), bytes + bytes / 4);
  EXPECT_EQ(table.Mixes(0, SIZE_MAX), others);
}

}  // namespace
}  // namespace tkv
