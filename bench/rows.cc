// Compares row tables with the limits of memory: rows of 64 float32 on one core, batches of 64 Ki
// ids, by the thread's CPU time.
//
// The limit moves the same bytes of rows at known places.  Its memory is once from malloc and once
// in huge pages, as the table's.  Each row shows the share of the limit, and the speed beside
// std::unordered_map with a row for each id.
//
//   rows [--smoke] [--rows N]          a table, then a line of JSON
//
//   read, sgd        the table alone: ids ascending by mix, sgd each once
//   pull, push       a local store: ids in any order; a push sorts them first
//   zipf             exponent 1.05: a few ids are asked for often
//   longest          event while 100,000 rows are added to the table, 1,000 at a time

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mix.h"
#include "base/random.h"
#include "base/round_up.h"
#include "kernels/kernels.h"
#include "rows/row_memory.h"
#include "rows/row_table.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace): a program of one file

constexpr size_t kElements = 64;
constexpr size_t kRowBytes = kElements * sizeof(float);
constexpr size_t kBatch = size_t{64} << 10;
constexpr int kRuns = 9;
constexpr size_t kMapRowsMax = size_t{4} << 20;  // larger tables are compared with the limit alone

// Returns the CPU time of this thread, because other processes use the machine, too.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const std::function<void()>& f) {
  const double begin = CpuSeconds();
  f();
  return CpuSeconds() - begin;
}

double Median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// Returns uniform ids of a batch, possibly with duplicates.
std::vector<uint64_t> Uniform(Random* random, size_t rows) {
  std::vector<uint64_t> ids(kBatch);
  for (uint64_t& id : ids) id = random->Next() % rows;
  return ids;
}

// Samples by inverting the continuous distribution, which is close enough.
std::vector<uint64_t> Zipf(Random* random, size_t rows) {
  constexpr double kExponent = 1.05;
  const double most = std::pow(static_cast<double>(rows), 1 - kExponent);
  std::vector<uint64_t> ids(kBatch);
  for (uint64_t& id : ids) {
    const double u = static_cast<double>(random->Next() >> 11) * 0x1p-53;
    const double x = std::pow(1 + u * (most - 1), 1 / (1 - kExponent));
    // The frequency of an id does not depend on its order.
    id = Mix(std::min(static_cast<uint64_t>(x), rows - 1)) % rows;
  }
  return ids;
}

// Rows at known places, in memory from malloc or in huge pages like the table's.
struct Limit {
  Limit(size_t count, bool is_huge)
      : memory(NewRowMemory(RoundUp(count * kRowBytes, kHugePage) + (is_huge ? 0 : 64))),
        rows(memory.as<float>()) {
    std::fill_n(rows, count * kElements, 0.0F);
  }
  Block memory;
  float* rows;
  std::vector<uint64_t> places;  // of a batch

  static constexpr size_t kAhead = 16;
  void Prefetch(size_t i) const {
    if (i + kAhead >= places.size()) return;
    const auto* const at = reinterpret_cast<const char*>(rows + places[i + kAhead] * kElements);
    for (size_t line = 0; line < kRowBytes; line += 64) __builtin_prefetch(at + line);
  }
  void Read(float* out) const {
    for (size_t i = 0; i < places.size(); ++i) {
      Prefetch(i);
      std::memcpy(out + i * kElements, rows + places[i] * kElements, kRowBytes);
    }
  }
  void Sgd(const float* sums, std::span<const double> scalars) {
    for (size_t i = 0; i < places.size(); ++i) {
      Prefetch(i);
      kernels::UpdateFused(kernels::Fused::kSgd, DType::kF32, scalars, sums + i * kElements,
                           rows + places[i] * kElements, nullptr, kElements);
    }
  }
};

struct Result {
  std::string name;
  double seconds = 0, limit = 0, huge = 0, map = 0;
};

// Measures four variants in turns, after one turn that is not counted.
Result Compare(std::string name, const std::function<void()>& ours,
               const std::function<void()>& limit, const std::function<void()>& huge,
               const std::function<void()>& map) {
  std::vector<double> of_ours, of_limit, of_huge, of_map;
  for (int run = 0; run <= kRuns; ++run) {
    const double a = Seconds(ours), b = Seconds(limit), c = Seconds(huge), d = Seconds(map);
    if (run == 0) continue;
    of_ours.push_back(a);
    of_limit.push_back(b);
    of_huge.push_back(c);
    of_map.push_back(d);
  }
  return {std::move(name), Median(of_ours), Median(of_limit), Median(of_huge), Median(of_map)};
}

class Bench {
 public:
  explicit Bench(size_t rows)
      : rows_(rows), table_(DType::kF32, kElements, {}), limit_(rows, false), huge_(rows, true) {
    Random random(1);
    if (rows <= kMapRowsMax) map_.reserve(rows);
    std::vector<uint64_t> mixes;
    std::vector<float> values(kBatch * kElements, 1.0F);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97);
    for (size_t begin = 0; begin < rows; begin += kBatch) {
      // Adds the rows in an order independent of their mixes.
      mixes.clear();
      for (size_t id = begin; id < std::min(rows, begin + kBatch); ++id) mixes.push_back(Mix(id));
      ReservedRows reserved;
      std::sort(mixes.begin(), mixes.end());
      table_.Reserve(mixes, &reserved);
      if (rows > kMapRowsMax) continue;
      for (const uint64_t mix : mixes) map_[Unmix(mix)] = std::make_unique<float[]>(kElements);
    }
    out_.resize(kBatch * kElements);
    sums_ = values;
  }

  // Measures the table, then releases it and measures the store, which gets its memory.
  std::vector<Result> Run() {
    std::vector<Result> results;
    for (const bool zipf : {false, true}) {
      Draw(zipf);
      Table(zipf ? " zipf" : "", &results);
    }
    MeasureLongest();
    table_ = RowTable(DType::kF32, kElements, {});
    MakeStore();
    for (const bool zipf : {false, true}) {
      Draw(zipf);
      Store(zipf ? " zipf" : "", &results);
    }
    return results;
  }
  double longest_ms() const { return longest_ms_; }
  double longest_cpu_ms() const { return longest_cpu_ms_; }

 private:
  void Draw(bool zipf) {
    Random random(zipf ? 3 : 2);
    ids_ = zipf ? Zipf(&random, rows_) : Uniform(&random, rows_);
  }

  // Measures by the clock and by the thread's CPU time, which other processes do not affect.
  void MeasureLongest() {
    Random random(9);
    for (int i = 0; i < 100; ++i) {
      std::vector<uint64_t> mixes(1000);
      for (uint64_t& mix : mixes) mix = random.Next();
      std::sort(mixes.begin(), mixes.end());
      ReservedRows reserved;
      const auto begin = std::chrono::steady_clock::now();
      const double seconds = Seconds([&] { table_.Reserve(mixes, &reserved); });
      const std::chrono::duration<double> clock = std::chrono::steady_clock::now() - begin;
      longest_ms_ = std::max(longest_ms_, 1e3 * clock.count());
      longest_cpu_ms_ = std::max(longest_cpu_ms_, 1e3 * seconds);
    }
  }

  // The table alone, ids sorted by mix; updates have each id once.
  void Table(const std::string& suffix, std::vector<Result>* results) {
    std::vector<uint64_t> mixes;
    for (const uint64_t id : ids_) mixes.push_back(Mix(id));
    std::sort(mixes.begin(), mixes.end());
    PlaceLimit(mixes);
    results->push_back(Compare(
        "read" + suffix, [&] { table_.Read(mixes, out_.data()); },
        [&] { limit_.Read(out_.data()); }, [&] { huge_.Read(out_.data()); }, [&] { MapRead(); }));
    mixes.erase(std::unique(mixes.begin(), mixes.end()), mixes.end());
    PlaceLimit(mixes);
    const auto sgd = Optimizer::Create("sgd", {{"learning_rate", 1e-6}});
    const CompiledUpdate update = CompileUpdate(sgd->program(), DType::kF32);
    const auto params = sgd->ParamsFor(KeyView(1));
    const UpdateScalars bound = BindScalars(update, params, {}, 1, 1);
    const std::span<const double> scalars(bound.fused.data(), bound.fused_count);
    std::vector<uint64_t> map_ids;
    for (const uint64_t mix : mixes) map_ids.push_back(Unmix(mix));
    Random random(5);
    for (size_t i = map_ids.size(); i > 1; --i)
      std::swap(map_ids[i - 1], map_ids[random.Next() % i]);
    ReservedRows reserved;
    results->push_back(Compare(
        "sgd" + suffix,
        [&] {
          RowUpdate step(update, DType::kF32, kElements, params, {}, 1, 1);
          table_.Reserve(mixes, &reserved);
          table_.Update(&step, mixes, reserved,
                        {reinterpret_cast<const std::byte*>(sums_.data()), kRowBytes, nullptr});
        },
        [&] { limit_.Sgd(sums_.data(), scalars); }, [&] { huge_.Sgd(sums_.data(), scalars); },
        [&] { MapSgd(map_ids, scalars); }));
  }

  void MakeStore() {
    StoreOptions options;
    options.threads = 1;
    store_ = KVStore::Create("local", options);
    const RowsInitItem init{1, {int64_t{kElements}}, DType::kF32, rows_};
    store_->InitRows({&init, 1});
    for (size_t begin = 0; begin < rows_; begin += kBatch) {
      std::vector<int64_t> ids(std::min(kBatch, rows_ - begin));
      std::iota(ids.begin(), ids.end(), static_cast<int64_t>(begin));
      const auto count = static_cast<int64_t>(ids.size());
      const Rows rows{NDArray::FromBytes(ids.data(), {count}, DType::kI64),
                      NDArray::FromBytes(sums_.data(), {count, int64_t{kElements}}, DType::kF32)};
      const Rows* const list[] = {&rows};
      const RowsPushItem push{1, list};
      store_->PushRows({&push, 1});
    }
    store_->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1e-6}}));
  }

  // A store, with ids in any order.
  void Store(const std::string& suffix, std::vector<Result>* results) {
    std::vector<int64_t> ids(kBatch);
    const auto array_of = [](void* data, const Shape& shape, DType dtype) {
      return NDArray::Wrap(data, shape, dtype, {}, false, nullptr);
    };
    const NDArray id_array = array_of(ids.data(), {int64_t{kBatch}}, DType::kI64);
    const NDArray out = array_of(out_.data(), {int64_t{kBatch}, int64_t{kElements}}, DType::kF32);
    const NDArray sums = array_of(sums_.data(), {int64_t{kBatch}, int64_t{kElements}}, DType::kF32);
    const Rows rows{id_array, sums};
    const Rows* const list[] = {&rows};
    const RowsPushItem push{1, list};
    const RowsPullItem pull{1, &id_array, &out};
    for (size_t i = 0; i < kBatch; ++i) ids[i] = static_cast<int64_t>(ids_[i]);
    std::vector<uint64_t> mixes;
    for (const uint64_t id : ids_) mixes.push_back(Mix(id));
    PlaceLimit(mixes);
    const auto sgd = Optimizer::Create("sgd", {{"learning_rate", 1e-6}});
    const CompiledUpdate update = CompileUpdate(sgd->program(), DType::kF32);
    const UpdateScalars bound = BindScalars(update, sgd->ParamsFor(KeyView(1)), {}, 1, 1);
    const std::span<const double> scalars(bound.fused.data(), bound.fused_count);
    results->push_back(Compare(
        "pull" + suffix, [&] { store_->PullRows({&pull, 1}); }, [&] { limit_.Read(out_.data()); },
        [&] { huge_.Read(out_.data()); }, [&] { MapRead(); }));
    results->push_back(Compare(
        "push" + suffix, [&] { store_->PushRows({&push, 1}); },
        [&] { limit_.Sgd(sums_.data(), scalars); }, [&] { huge_.Sgd(sums_.data(), scalars); },
        [&] { MapSgd(ids_, scalars); }));
  }

  void MapRead() {
    for (size_t i = 0; i < kBatch && !map_.empty(); ++i) {
      std::memcpy(out_.data() + i * kElements, map_.find(ids_[i])->second.get(), kRowBytes);
    }
  }
  void MapSgd(const std::vector<uint64_t>& ids, std::span<const double> scalars) {
    for (size_t i = 0; i < ids.size() && !map_.empty(); ++i) {
      kernels::UpdateFused(kernels::Fused::kSgd, DType::kF32, scalars, sums_.data() + i * kElements,
                           map_.find(ids[i])->second.get(), nullptr, kElements);
    }
  }

  // Uses the same rows, in an order independent of their places.
  void PlaceLimit(const std::vector<uint64_t>& mixes) {
    limit_.places.clear();
    for (const uint64_t mix : mixes) limit_.places.push_back(Unmix(mix));
    huge_.places = limit_.places;
  }

  const size_t rows_;
  RowTable table_;
  Limit limit_, huge_;
  std::unordered_map<uint64_t, std::unique_ptr<float[]>> map_;
  std::vector<float> out_, sums_;
  std::vector<uint64_t> ids_;
  std::unique_ptr<KVStore> store_;
  double longest_ms_ = 0, longest_cpu_ms_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> sizes{size_t{1} << 20, size_t{1} << 24};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--smoke") sizes = {size_t{1} << 17};
    if (word == "--rows" && i + 1 < argc) sizes = {std::strtoull(argv[++i], nullptr, 10)};
  }
  std::string json;
  for (const size_t rows : sizes) {
    Bench bench(rows);
    std::printf("%zu rows\n%-12s %10s %10s %10s %14s\n", rows, "", "us", "of limit", "with huge",
                "unordered_map");
    for (const Result& result : bench.Run()) {
      std::printf("%-12s %10.0f %10.2f %10.2f %13.1fx\n", result.name.c_str(), 1e6 * result.seconds,
                  result.limit / result.seconds, result.huge / result.seconds,
                  result.map / result.seconds);
      std::fflush(stdout);
      char line[256];
      std::snprintf(line, sizeof(line),
                    "%s{\"rows\": %zu, \"name\": \"%s\", \"seconds\": %.9f, \"of_limit\": %.3f, "
                    "\"of_huge\": %.3f, "
                    "\"of_map\": %.2f}",
                    json.empty() ? "" : ", ", rows, result.name.c_str(), result.seconds,
                    result.limit / result.seconds, result.huge / result.seconds,
                    result.map / result.seconds);
      json += line;
    }
    std::printf("longest event of 100,000 new rows: %.2f ms, %.2f of this thread\n\n",
                bench.longest_ms(), bench.longest_cpu_ms());
    char line[128];
    std::snprintf(line, sizeof(line),
                  ", {\"rows\": %zu, \"longest_ms\": %.3f, \"longest_cpu_ms\": %.3f}", rows,
                  bench.longest_ms(), bench.longest_cpu_ms());
    json += line;
  }
  std::printf("[%s]\n", json.c_str());
}
