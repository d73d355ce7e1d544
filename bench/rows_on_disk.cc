// Measures rows that exceed the memory: a table of rows of 64 float32 and their momentum, of which
// an eighth is in memory.  Compares it with RocksDB with as much memory for its blocks, and with
// the same table in memory.  Batches have 4096 uniform ids, each once, timed by the clock.
//
//   rows_on_disk DIRECTORY [--smoke]
//
//   read     values of the rows of a batch
//   update   momentum of a batch; RocksDB gets, updates and puts the records
//
// The page cache holds the files as far as the machine has room.  The figures are therefore the
// processor's cost per row, not the disk's.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "rows/row_file.h"
#include "rows/row_table.h"
#include "tkv/optimizer.h"

#ifdef TKV_HAS_ROCKSDB
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>
#endif

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace): a program of one file
using Clock = std::chrono::steady_clock;

constexpr size_t kElements = 64;
constexpr size_t kRecord = 2 * kElements * sizeof(float);
constexpr size_t kBatch = 4096;
constexpr int kRuns = 9;

double Median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

std::vector<uint64_t> DrawBatch(Random* random, uint64_t rows) {
  std::vector<uint64_t> mixes(kBatch);
  for (uint64_t& mix : mixes) mix = Mix(random->Next() % rows);
  std::sort(mixes.begin(), mixes.end());
  mixes.erase(std::unique(mixes.begin(), mixes.end()), mixes.end());
  return mixes;
}

class Table {
 public:
  Table(uint64_t memory_max, std::shared_ptr<RowDisk> disk)
      : optimizer_(Optimizer::Create("nag", {{"learning_rate", 0.1}, {"momentum", 0.9}}, false)),
        update_(CompileUpdate(optimizer_->program(), DType::kF32)),
        table_(DType::kF32, kElements, {}, 1, PolicyOf(memory_max), std::move(disk)),
        sums_(kBatch * kElements, 1.0F),
        out_(kBatch * kElements) {
    table_.StartStates(1, false);
  }
  void Read(const std::vector<uint64_t>& mixes) { table_.Read(mixes, out_.data()); }
  void Update(const std::vector<uint64_t>& mixes) {
    RowUpdate run(update_, DType::kF32, kElements, optimizer_->ParamsFor(KeyView(1)), {}, 1, 1);
    ReservedRows reserved;
    table_.Admit(mixes, &reserved);
    table_.Update(
        &run, mixes, reserved,
        {reinterpret_cast<const std::byte*>(sums_.data()), kElements * sizeof(float), nullptr});
    table_.NotePush(mixes, reserved);
    table_.Advance();
  }
  TableStats Stats() const { return table_.Stats(); }

 private:
  static RowPolicy PolicyOf(uint64_t memory_max) {
    RowPolicy policy;
    policy.memory_max = memory_max;
    return policy;
  }
  std::shared_ptr<const Optimizer> optimizer_;
  CompiledUpdate update_;
  RowTable table_;
  std::vector<float> sums_, out_;
};

#ifdef TKV_HAS_ROCKSDB
class Rocks {
 public:
  Rocks(const std::string& path, size_t memory) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.write_buffer_size = memory / 4;
    options.max_write_buffer_number = 3;
    options.IncreaseParallelism(2);
    rocksdb::BlockBasedTableOptions blocks;
    blocks.block_cache = rocksdb::NewLRUCache(memory / 2);
    blocks.block_size = 4096;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
    rocksdb::DestroyDB(path, options);
    rocksdb::DB* db = nullptr;
    const auto status = rocksdb::DB::Open(options, path, &db);
    if (!status.ok()) throw std::runtime_error(status.ToString());
    db_.reset(db);
    unlogged_.disableWAL = true;
  }
  void Read(const std::vector<uint64_t>& mixes) {
    keys_.clear();
    names_.resize(mixes.size());
    for (size_t i = 0; i < mixes.size(); ++i) {
      names_[i] = __builtin_bswap64(mixes[i]);
      keys_.emplace_back(reinterpret_cast<const char*>(&names_[i]), sizeof(uint64_t));
    }
    values_.clear();
    values_.resize(keys_.size());
    states_.resize(keys_.size());
    db_->MultiGet({}, db_->DefaultColumnFamily(), keys_.size(), keys_.data(), values_.data(),
                  states_.data(), true);
  }
  void Update(const std::vector<uint64_t>& mixes) {
    Read(mixes);
    rocksdb::WriteBatch batch;
    std::vector<float> record(kRecord / sizeof(float));
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (states_[i].ok()) {
        std::memcpy(record.data(), values_[i].data(), kRecord);
      } else {
        std::fill(record.begin(), record.end(), 0.0F);
      }
      for (size_t e = 0; e < kElements; ++e) {
        float& momentum = record[kElements + e];
        momentum = 0.9F * momentum + 1.0F;
        record[e] -= 0.1F * (0.9F * momentum + 1.0F);
      }
      batch.Put(keys_[i], {reinterpret_cast<const char*>(record.data()), kRecord});
    }
    const auto status = db_->Write(unlogged_, &batch);
    if (!status.ok()) throw std::runtime_error(status.ToString());
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteOptions unlogged_;
  std::vector<uint64_t> names_;
  std::vector<rocksdb::Slice> keys_;
  std::vector<rocksdb::PinnableSlice> values_;
  std::vector<rocksdb::Status> states_;
};
#endif

struct Side {
  const char* name;
  std::function<void(const std::vector<uint64_t>&)> read, update;
  std::vector<double> reads = {}, updates = {};  // rows a second
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: rows_on_disk DIRECTORY [--smoke]\n");
    return 2;
  }
  const std::string directory = argv[1];
  const bool is_smoke = argc > 2 && std::string(argv[2]) == "--smoke";
  const uint64_t rows = is_smoke ? 20'000 : 2'000'000;
  const int batches = is_smoke ? 2 : 40;  // of one run
  const size_t memory = rows * kRecord / 8;
  Table on_disk(memory, std::make_shared<RowFile>(directory));
  Table in_memory(0, nullptr);
  std::vector<Side> sides;
  const auto add = [&](const char* name, auto* of) {
    sides.push_back({name, [of](const auto& mixes) { of->Read(mixes); },
                     [of](const auto& mixes) { of->Update(mixes); }});
  };
  add("on disk", &on_disk);
  add("in memory", &in_memory);
#ifdef TKV_HAS_ROCKSDB
  Rocks rocks(directory + "/rocksdb", memory);
  add("RocksDB", &rocks);
#endif
  for (Side& side : sides) {  // all rows are there
    std::vector<uint64_t> mixes;
    for (uint64_t first = 0; first < rows; first += kBatch) {
      mixes.clear();
      for (uint64_t id = first; id < std::min(rows, first + kBatch); ++id) mixes.push_back(Mix(id));
      std::sort(mixes.begin(), mixes.end());
      side.update(mixes);
    }
  }
  Random random(1);
  for (int run = 0; run < (is_smoke ? 1 : kRuns); ++run) {
    const auto draw = [&] {
      std::vector<std::vector<uint64_t>> drawn(static_cast<size_t>(batches));
      for (auto& mixes : drawn) mixes = DrawBatch(&random, rows);
      return drawn;
    };
    const auto rate = [](const auto& drawn, const auto& f) {
      size_t count = 0;
      const auto begin = Clock::now();
      for (const auto& mixes : drawn) {
        f(mixes);
        count += mixes.size();
      }
      return static_cast<double>(count) /
             std::chrono::duration<double>(Clock::now() - begin).count();
    };
    const auto updated = draw(), read = draw();  // read other rows than were just updated
    for (Side& side : sides) {
      side.updates.push_back(rate(updated, side.update));
      side.reads.push_back(rate(read, side.read));
    }
  }
  std::printf("%-10s %14s %14s\n", "", "read Mrow/s", "update Mrow/s");
  for (const Side& side : sides) {
    std::printf("%-10s %14.3f %14.3f\n", side.name, Median(side.reads) / 1e6,
                Median(side.updates) / 1e6);
  }
  const TableStats stats = on_disk.Stats();
  std::printf(
      "%llu of %llu rows on disk, %.2f bytes there for each of theirs\n",
      static_cast<unsigned long long>(stats.disk_rows), static_cast<unsigned long long>(stats.rows),
      static_cast<double>(stats.disk_bytes) / static_cast<double>(stats.disk_rows * kRecord));
  return 0;
}
