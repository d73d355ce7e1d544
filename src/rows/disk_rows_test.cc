// Rows on a disk: a table with bounded memory equals one with unbounded memory, despite faults of
// the disk; and every disk keeps written blocks.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "rows/checked_policy.h"
#include "rows/memory_disk.h"
#include "rows/row_file.h"
#include "rows/row_memory.h"
#include "rows/row_table.h"
#include "tests/arrays.h"
#include "tkv/optimizer.h"

namespace tkv {
namespace {

using namespace std::chrono_literals;

std::string WhatOf(const std::function<void()>& action) { return test::FailureOf(action).message; }
std::optional<Code> CodeOf(const std::function<void()>& action) {
  return test::FailureOf(action).code;
}

using State = RowDisk::Extent::State;

// -----------------------------------------------------------------------------------------------------------------
// every disk

std::shared_ptr<RowDisk> MakeDisk(const std::string& kind) {
  if (kind == "memory") return std::make_shared<MemoryDisk>();
  return std::make_shared<RowFile>(std::filesystem::temp_directory_path());
}

class Disks : public ::testing::TestWithParam<const char*> {
 protected:
  static Block BlockOf(size_t bytes, uint8_t first) {
    Block block = NewRowMemory(bytes);
    for (size_t i = 0; i < bytes; ++i) block.as<uint8_t>()[i] = static_cast<uint8_t>(first + i * 7);
    return block;
  }
  std::shared_ptr<RowDisk> disk_ = MakeDisk(GetParam());
};

TEST_P(Disks, KeepWhatIsWrittenWhereverPlacesAreUsedAgain) {
  Random random(1);
  struct Piece {
    std::shared_ptr<RowDisk::Extent> extent;
    Block block;
  };
  std::vector<Piece> pieces;
  size_t bytes = 0;
  for (int step = 0; step < 300; ++step) {
    const Block block =
        BlockOf(static_cast<size_t>(random.Between(1, 300'000)), static_cast<uint8_t>(step));
    auto extent = disk_->Write(block);
    ASSERT_NE(extent, nullptr);
    disk_->Flush(10s);
    ASSERT_EQ(extent->state(), State::kWritten);
    pieces.push_back({std::move(extent), block});
    bytes += block.size;
    if (pieces.size() > 20) {
      const auto at = pieces.begin() + random.Between(0, 20);
      bytes -= at->block.size;
      pieces.erase(at);
    }
    EXPECT_EQ(disk_->bytes(), bytes);
    const Piece& some = pieces[static_cast<size_t>(random.Next() % pieces.size())];
    const size_t first = static_cast<size_t>(random.Next() % some.block.size);
    const size_t count = static_cast<size_t>(random.Next() % (some.block.size - first + 1));
    std::vector<std::byte> out(count + 1);
    some.extent->Prefetch(first, count);
    some.extent->Read(first, count, out.data());
    ASSERT_EQ(std::memcmp(out.data(), some.block.data + first, count), 0);
  }
  EXPECT_EQ(disk_->failure(), "");
}

TEST_P(Disks, PiecesOutliveTheirDisk) {
  const Block block = BlockOf(1000, 3);
  const auto extent = disk_->Write(block);
  disk_->Flush(10s);
  disk_.reset();
  std::vector<std::byte> out(1000);
  extent->Read(0, 1000, out.data());
  EXPECT_EQ(std::memcmp(out.data(), block.data, 1000), 0);
}

INSTANTIATE_TEST_SUITE_P(, Disks, ::testing::Values("memory", "file"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RowFile, SaysWhereNoFileCanBe) {
  EXPECT_EQ(WhatOf([] { RowFile file("/nowhere/at/all"); }),
            "rows_dir '/nowhere/at/all': rows cannot be kept there: No such file or directory");
}

// The writer thread exists only in the parent: a child of fork() can still read and destroy the
// file.
TEST(RowFile, CanBeLetGoInAChildOfFork) {
  auto file = std::make_unique<RowFile>(std::filesystem::temp_directory_path());
  const Block block = NewRowMemory(1000);
  std::memset(block.data, 7, block.size);
  const auto extent = file->Write(block);
  file->Flush(10s);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::byte byte{};
    extent->Read(999, 1, &byte);
    file.reset();
    _exit(byte == std::byte{7} ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The file may not grow, and the program does not ignore SIGXFSZ: the write fails, failure() says
// why, and earlier blocks stay.
TEST(RowFile, SaysThatADiskIsFull) {
  RowFile file(std::filesystem::temp_directory_path());
  const Block block = NewRowMemory(size_t{1} << 20);
  std::memset(block.data, 7, block.size);
  const auto first = file.Write(block);
  file.Flush(10s);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = size_t{1} << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  const auto second = file.Write(block);
  file.Flush(10s);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(first->state(), State::kWritten);
  EXPECT_EQ(second->state(), State::kFailed);
  EXPECT_NE(file.failure().find("rows cannot be written there"), std::string::npos);
  std::byte byte{};
  first->Read(block.size - 1, 1, &byte);
  EXPECT_EQ(byte, std::byte{7});
}

// -----------------------------------------------------------------------------------------------------------------
// tables

struct Pair {
  RowTable truth;
  RowTable table;
};

// Calls f; if the disk cannot be read, calls it again without read faults.
template <typename F>
void Insist(MemoryDisk* disk, F f) {
  try {
    return f();
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), Code::kUnavailable) << error.what();
  }
  const double share = std::exchange(disk->faults.read, 0);
  f();
  disk->faults.read = share;
}

// Random programs on a disk that is late, full, or fails to write or read.  They push, put and
// erase rows, change rules, and keep, read and restore copies.
TEST(DiskRows, AreTheSameAsRowsInMemory) {
  uint64_t on_disk = 0, reads = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const DType dtype = random.Chance(0.5) ? DType::kF32 : DType::kBF16;
    const size_t elements = random.Chance(0.2) ? 300 : static_cast<size_t>(random.Between(1, 20));
    RowPolicy policy;
    policy.admit_count = random.Chance(0.3) ? 2 : 1;
    policy.age_max = random.Chance(0.3) ? 6 : 0;
    policy.has_notes = random.Chance(0.3);
    if (random.Chance(0.2)) policy.rows_max = 60;
    RowInitializer initializer;
    initializer.kind = RowInitializer::Kind::kNormal;
    initializer.b = 1;
    initializer.seed = seed;
    RowPolicy bounded = policy;
    bounded.memory_max = static_cast<uint64_t>(random.Between(1, 40)) * elements * 8;
    const auto disk = std::make_shared<MemoryDisk>(seed);
    const bool is_faulty = random.Chance(0.6);
    if (is_faulty) disk->faults = {0.3, 0.2, 0.2, 0.01};
    Pair now{RowTable(dtype, elements, initializer, 1, policy),
             RowTable(dtype, elements, initializer, 1, bounded, disk)};
    std::vector<Pair> copies;
    const auto optimizer =
        Optimizer::Create("nag", {{"learning_rate", 0.1}, {"momentum", 0.9}}, true);
    std::optional<CompiledUpdate> update;
    const uint64_t ids = random.Chance(0.5) ? 60 : 400;
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE(step);
      std::vector<uint64_t> mixes;
      for (int64_t n = random.Between(0, 60); n > 0; --n) mixes.push_back(Mix(random.Next() % ids));
      std::sort(mixes.begin(), mixes.end());
      mixes.erase(std::unique(mixes.begin(), mixes.end()), mixes.end());
      std::vector<float> sums(mixes.size() * elements);
      for (float& sum : sums) sum = static_cast<float>(random.Between(-50, 50));
      const RowSource source{reinterpret_cast<const std::byte*>(sums.data()),
                             elements * sizeof(float), nullptr};
      const int64_t what = random.Between(0, 9);
      if (what == 0) copies.push_back(now);
      if (copies.size() > 2) copies.erase(copies.begin());
      if (what == 1 && !copies.empty()) {  // the table becomes an earlier copy
        now = copies.back();
      } else if (what == 2) {
        now.truth.Erase(mixes);
        now.table.Erase(mixes);
      } else if (what == 3) {
        const bool master = random.Chance(0.5);
        for (RowTable* table : {&now.truth, &now.table}) table->StartStates(1, master);
        update.emplace(CompileUpdate(optimizer->program(), dtype));
      } else {
        for (RowTable* table : {&now.truth, &now.table}) {
          ReservedRows reserved;
          Insist(disk.get(), [&] { table->Admit(mixes, &reserved); });
          if (what == 4) {
            table->TakeBack(mixes, reserved);
            continue;
          }
          if (update && table->state_count() == 1) {
            RowUpdate run(*update, dtype, elements, optimizer->ParamsFor(KeyView(1)), {}, 1, 1);
            table->Update(&run, mixes, reserved, source);
          } else {
            table->Assign(reserved, source, DType::kF32);
          }
          table->NotePush(mixes, reserved);
        }
      }
      for (RowTable* table : {&now.truth, &now.table}) table->Advance();
      on_disk += now.table.Stats().disk_rows;
      const auto is_same = [&](const Pair& pair) {
        ASSERT_EQ(pair.table.size(), pair.truth.size());
        const std::vector<uint64_t> all = pair.truth.Mixes(0, SIZE_MAX);
        ASSERT_EQ(pair.table.Mixes(0, SIZE_MAX), all);
        std::vector<uint64_t> asked = all;
        asked.insert(asked.end(), mixes.begin(), mixes.end());
        const size_t bytes = asked.size() * elements * sizeof(double) + 1;
        std::vector<std::byte> wanted(bytes), got(bytes);
        const auto compare = [&](auto read) {
          read(pair.truth, wanted.data());
          Insist(disk.get(), [&] { read(pair.table, got.data()); });
          ASSERT_EQ(got, wanted);
        };
        compare([&](const RowTable& t, void* out) { t.Read(asked, out); });
        compare([&](const RowTable& t, void* out) { t.ReadMaster(all, out); });
        if (pair.truth.state_count() == 1) {
          compare([&](const RowTable& t, void* out) { t.ReadState(0, all, out); });
        }
        if (policy.age_max > 0 || policy.has_notes) {
          std::vector<RowNote> truths(all.size()), notes(all.size());
          pair.truth.ReadNotes(all, truths.data());
          pair.table.ReadNotes(all, notes.data());
          ASSERT_EQ(notes, truths);
        }
      };
      ASSERT_NO_FATAL_FAILURE(is_same(now));
      if (step % 8 == 0) {
        for (const Pair& copy : copies) ASSERT_NO_FATAL_FAILURE(is_same(copy));
      }
    }
    reads += disk->reads;
    copies.clear();
    now.table = now.table.Emptied();
    disk->Flush(0s);
    EXPECT_EQ(disk->bytes(), 0U) << "places on the disk that nobody has";
  }
  EXPECT_GT(on_disk, 50'000U);
  EXPECT_GT(reads, 100'000U);
}

std::vector<uint64_t> MixesOf(uint64_t first, uint64_t count) {
  std::vector<uint64_t> mixes(count);
  for (uint64_t i = 0; i < count; ++i) mixes[i] = Mix(first + i);
  std::sort(mixes.begin(), mixes.end());
  return mixes;
}

void Push(RowTable* table, std::span<const uint64_t> mixes, float value) {
  const std::vector<float> values(mixes.size() * table->row_elements(), value);
  ReservedRows reserved;
  table->Admit(mixes, &reserved);
  table->Assign(reserved,
                {reinterpret_cast<const std::byte*>(values.data()), table->row_bytes(), nullptr},
                DType::kF32);
  table->NotePush(mixes, reserved);
  table->Advance();
}

// Memory stays within its bound for any number of rows, and the disk within twice the live rows.
TEST(DiskRows, MemoryAndDiskAreBounded) {
  RowPolicy policy;
  policy.memory_max = size_t{1} << 20;
  const auto disk = std::make_shared<MemoryDisk>();
  RowTable table(DType::kF32, 64, {}, 1, policy, disk);
  Random random(3);
  for (int step = 0; step < 600; ++step) {
    std::vector<uint64_t> mixes(200);
    for (uint64_t& mix : mixes) mix = Mix(random.Next() % 40'000);
    std::sort(mixes.begin(), mixes.end());
    mixes.erase(std::unique(mixes.begin(), mixes.end()), mixes.end());
    Push(&table, mixes, static_cast<float>(step));
    const TableStats stats = table.Stats();
    ASSERT_LE(stats.rows - stats.disk_rows, policy.memory_max / 256);
  }
  const TableStats stats = table.Stats();
  EXPECT_GT(stats.disk_rows, 30'000U);
  EXPECT_EQ(disk->bytes(), stats.disk_bytes);
  EXPECT_LT(disk->bytes(), 5 * stats.disk_rows * 264 / 2);
  EXPECT_LT(stats.memory_bytes, 2 * policy.memory_max + 40 * stats.rows + (size_t{2} << 20));
}

// Rows that are pushed often stay in memory, so the disk is read for other rows only.
TEST(DiskRows, WhatIsPushedOftenStaysInMemory) {
  RowPolicy policy;
  policy.memory_max = 1000 * 64;
  const auto disk = std::make_shared<MemoryDisk>();
  RowTable table(DType::kF32, 8, {}, 1, policy, disk);
  const std::vector<uint64_t> hot = MixesOf(0, 100);
  for (uint64_t step = 0; step < 50; ++step) {
    Push(&table, hot, 1);
    Push(&table, MixesOf(1000 + step * 100, 100), 1);
  }
  const size_t before = disk->reads;
  Push(&table, hot, 2);
  EXPECT_EQ(disk->reads, before);
  EXPECT_GT(table.Stats().disk_rows, 3000U);
}

// With a disk that accepts no block, rows stay in memory up to twice the bound.  Then pushes that
// make rows fail with the reason, and no row is lost.
TEST(DiskRows, ADiskThatIsFullEndsPushesNotTheProcess) {
  RowPolicy policy;
  policy.memory_max = 1000 * 25;
  const auto disk = std::make_shared<MemoryDisk>();
  disk->faults.write = 1;
  RowTable table(DType::kF32, 4, {}, 1, policy, disk);
  std::string what;
  uint64_t pushed = 0;
  for (; pushed < 300 && what.empty(); ++pushed) {
    what = WhatOf([&] { Push(&table, MixesOf(pushed * 100, 100), 1); });
  }
  EXPECT_NE(what.find(" rows are in memory, which is for 1000: the disk is full"),
            std::string::npos)
      << what;
  EXPECT_EQ(table.size(), (pushed - 1) * 100);
  // A retried write that is still pending does not count as done: pushes still fail, and no row is
  // lost.
  disk->faults.late = 1;
  for (uint64_t i = 0; i < 20; ++i) {
    test::FailureOf([&] { Push(&table, MixesOf((pushed + i) * 100, 100), 1); });
    table.Settle();
  }
  EXPECT_EQ(table.size(), (pushed - 1) * 100);
  pushed = table.size() / 100;
  disk->faults = {};
  Push(&table, MixesOf(1'000'000, 100), 1);
  EXPECT_EQ(table.size(), (pushed + 1) * 100);
  EXPECT_LE(table.size() - table.Stats().disk_rows, 1000U);
}

// Each import into a copy seals pages with few rows, which are written without their unused space.
TEST(DiskRows, CopiesThatTakeATablesPlaceLeaveNoRoomUnused) {
  RowPolicy policy;
  policy.memory_max = size_t{1} << 20;
  policy.has_notes = true;
  const auto disk = std::make_shared<MemoryDisk>();
  RowTable table(DType::kF32, 16, {}, 1, policy, disk);
  Push(&table, MixesOf(0, 40'000), 1);
  const std::vector<float> values(20 * 16, 2);
  for (uint64_t step = 0; step < 300; ++step) {
    RowTable copy = table;
    const std::vector<uint64_t> mixes = MixesOf(step * 100, 20);
    copy.Erase(mixes);
    ReservedRows reserved;
    copy.Reserve(mixes, &reserved);
    copy.Assign(reserved,
                {reinterpret_cast<const std::byte*>(values.data()), table.row_bytes(), nullptr},
                DType::kF32);
    copy.NoteImport(reserved);
    copy.Settle();
    table = std::move(copy);
  }
  EXPECT_LT(disk->bytes(), 5 * table.Stats().disk_rows * 72 / 2);
}

TEST(DiskRows, WhatCannotBeBounded) {
  RowPolicy policy;
  policy.memory_max = 1 << 20;
  EXPECT_EQ(
      WhatOf([&] { RowTable(DType::kF32, 4, {}, 1, policy); }),
      "memory for rows is bounded, and there is no folder for the others: rows_dir is not set");
  policy.memory_max = UINT64_MAX;
  EXPECT_EQ(CodeOf([&] { CheckedPolicy(policy, DType::kF32); }), Code::kInvalidArgument);
  policy.memory_max = 1 << 20;
  policy.rows_max = 10;
  policy.score = RowPolicy::Score::kNorm;
  EXPECT_EQ(CodeOf([&] { CheckedPolicy(policy, DType::kF32); }), Code::kInvalidArgument);
}

TEST(DiskRows, AnUpdateOfAllRowsIsForTablesInMemory) {
  RowPolicy policy;
  policy.memory_max = 40;
  RowTable table(DType::kF32, 4, {}, 1, policy, std::make_shared<MemoryDisk>());
  Push(&table, MixesOf(0, 1), 1);
  table.ReserveAll();
  Push(&table, MixesOf(0, 10), 1);
  EXPECT_EQ(CodeOf([&] { table.ReserveAll(); }), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tkv
