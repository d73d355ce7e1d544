// How near do row tables come to what memory allows?  Rows of 64 float32 on one core, batches of 64 Ki
// ids: share of the limit, which moves the same bytes of rows whose places are known, and how many
// times as fast as std::unordered_map with a row for each id.
//
//   rows [--smoke] [--rows N[,N]]      a table, then a line of JSON
//
//   read, sgd        the table alone: ids ascending by mix
//   pull, push       LocalStore: ids in any order; a push sorts them first
//   zipf             exponent 1.05: the rows that were asked for first are asked for often
//   longest          event while 100,000 rows are added to the table, 1,000 at a time

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "kernels/kernels.h"
#include "base/mix.h"
#include "rows/row_table.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace): a program of one file

constexpr size_t kElements = 64;
constexpr size_t kRowBytes = kElements * sizeof(float);
constexpr size_t kBatch = size_t{64} << 10;
constexpr int kRuns = 9;

double Seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// Ids of a batch, each once for updates.
std::vector<uint64_t> Uniform(Random* random, size_t rows) {
  std::vector<uint64_t> ids(kBatch);
  for (uint64_t& id : ids) id = random->Next() % rows;
  return ids;
}

// By inversion of the continuous distribution, which is near enough.
std::vector<uint64_t> Zipf(Random* random, size_t rows) {
  constexpr double kExponent = 1.05;
  const double most = std::pow(static_cast<double>(rows), 1 - kExponent);
  std::vector<uint64_t> ids(kBatch);
  for (uint64_t& id : ids) {
    const double u = static_cast<double>(random->Next() >> 11) * 0x1p-53;
    const double x = std::pow(1 + u * (most - 1), 1 / (1 - kExponent));
    // Which ids are asked for often has nothing to do with their order.
    id = Mix(std::min(static_cast<uint64_t>(x), rows - 1)) % rows;
  }
  return ids;
}

// Rows at places that are known.
struct Limit {
  std::vector<float> rows;
  std::vector<uint64_t> places;  // of a batch

  static constexpr size_t kAhead = 16;
  void Prefetch(size_t i) const {
    if (i + kAhead >= places.size()) return;
    const auto* const at =
        reinterpret_cast<const char*>(rows.data() + places[i + kAhead] * kElements);
    for (size_t line = 0; line < kRowBytes; line += 64) __builtin_prefetch(at + line);
  }
  void Read(float* out) const {
    for (size_t i = 0; i < places.size(); ++i) {
      Prefetch(i);
      std::memcpy(out + i * kElements, rows.data() + places[i] * kElements, kRowBytes);
    }
  }
  void Sgd(const float* sums, std::span<const double> scalars) {
    for (size_t i = 0; i < places.size(); ++i) {
      Prefetch(i);
      kernels::UpdateFused(kernels::Fused::kSgd, DType::kF32, scalars, sums + i * kElements,
                           rows.data() + places[i] * kElements, nullptr, kElements);
    }
  }
};

struct Result {
  std::string name;
  double seconds = 0, limit = 0, map = 0;
};

// Three ways in turns, after one that is not counted.
Result Compare(std::string name, const std::function<void()>& ours,
               const std::function<void()>& limit, const std::function<void()>& map) {
  std::vector<double> of_ours, of_limit, of_map;
  for (int run = 0; run <= kRuns; ++run) {
    const double a = Seconds(ours), b = Seconds(limit), c = Seconds(map);
    if (run == 0) continue;
    of_ours.push_back(a);
    of_limit.push_back(b);
    of_map.push_back(c);
  }
  return {std::move(name), Median(of_ours), Median(of_limit), Median(of_map)};
}

class Bench {
 public:
  explicit Bench(size_t rows) : rows_(rows), table_(DType::kF32, kElements, {}) {
    Random random(1);
    map_.reserve(rows);
    limit_.rows.resize(rows * kElements);
    std::vector<uint64_t> mixes;
    std::vector<float> values(kBatch * kElements, 1.0F);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97);
    for (size_t begin = 0; begin < rows; begin += kBatch) {
      // Rows come in no order of their mixes.
      mixes.clear();
      for (size_t id = begin; id < std::min(rows, begin + kBatch); ++id) mixes.push_back(Mix(id));
      RowPlaces places;
      std::sort(mixes.begin(), mixes.end());
      table_.Reserve(mixes, &places);
      for (const uint64_t mix : mixes) map_[Unmix(mix)] = std::make_unique<float[]>(kElements);
    }
    out_.resize(kBatch * kElements);
    sums_ = values;
  }

  std::vector<Result> Run() {
    std::vector<Result> results;
    for (const bool zipf : {false, true}) {
      Random random(zipf ? 3 : 2);
      ids_ = zipf ? Zipf(&random, rows_) : Uniform(&random, rows_);
      const std::string suffix = zipf ? " zipf" : "";
      Table(suffix, &results);
      Store(suffix, &results);
    }
    return results;
  }

  double LongestMillis() {
    double longest = 0;
    Random random(9);
    for (int i = 0; i < 100; ++i) {
      std::vector<uint64_t> mixes(1000);
      for (uint64_t& mix : mixes) mix = random.Next();
      std::sort(mixes.begin(), mixes.end());
      RowPlaces places;
      longest = std::max(longest, Seconds([&] { table_.Reserve(mixes, &places); }));
    }
    return 1e3 * longest;
  }

 private:
  // The table by itself, ids sorted by mix; updates have each id once.
  void Table(const std::string& suffix, std::vector<Result>* results) {
    std::vector<uint64_t> mixes;
    for (const uint64_t id : ids_) mixes.push_back(Mix(id));
    std::sort(mixes.begin(), mixes.end());
    PlaceLimit(mixes);
    results->push_back(Compare(
        "read" + suffix, [&] { table_.Read(mixes, out_.data()); },
        [&] { limit_.Read(out_.data()); },
        [&] {
          for (size_t i = 0; i < mixes.size(); ++i) {
            std::memcpy(out_.data() + i * kElements, map_.find(ids_[i])->second.get(), kRowBytes);
          }
        }));
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
    RowPlaces places;
    results->push_back(Compare(
        "sgd" + suffix,
        [&] {
          RowUpdate step(update, DType::kF32, kElements, params, {}, 1, 1);
          table_.Reserve(mixes, &places);
          table_.Update(&step, mixes, places,
                        {reinterpret_cast<const std::byte*>(sums_.data()), kRowBytes, nullptr});
        },
        [&] { limit_.Sgd(sums_.data(), scalars); }, [&] { MapSgd(map_ids, scalars); }));
  }

  // A store, ids as they come.
  void Store(const std::string& suffix, std::vector<Result>* results) {
    StoreOptions options;
    options.threads = 1;
    const auto store = KVStore::Create("local", options);
    const RowsInitItem init{1, {int64_t{kElements}}, DType::kF32, rows_};
    store->InitRows({&init, 1});
    const std::vector<float> zeros(kBatch * kElements);
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
    for (size_t begin = 0; begin < rows_; begin += kBatch) {
      for (size_t i = 0; i < kBatch; ++i)
        ids[i] = static_cast<int64_t>(std::min(begin + i, rows_ - 1));
      store->PushRows({&push, 1});
    }
    store->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1e-6}}));
    for (size_t i = 0; i < kBatch; ++i) ids[i] = static_cast<int64_t>(ids_[i]);
    std::vector<uint64_t> mixes;
    for (const uint64_t id : ids_) mixes.push_back(Mix(id));
    PlaceLimit(mixes);
    const auto sgd = Optimizer::Create("sgd", {{"learning_rate", 1e-6}});
    const CompiledUpdate update = CompileUpdate(sgd->program(), DType::kF32);
    const UpdateScalars bound = BindScalars(update, sgd->ParamsFor(KeyView(1)), {}, 1, 1);
    const std::span<const double> scalars(bound.fused.data(), bound.fused_count);
    results->push_back(Compare(
        "pull" + suffix, [&] { store->PullRows({&pull, 1}); }, [&] { limit_.Read(out_.data()); },
        [&] {
          for (size_t i = 0; i < kBatch; ++i) {
            std::memcpy(out_.data() + i * kElements, map_.find(ids_[i])->second.get(), kRowBytes);
          }
        }));
    results->push_back(Compare(
        "push" + suffix, [&] { store->PushRows({&push, 1}); },
        [&] { limit_.Sgd(sums_.data(), scalars); }, [&] { MapSgd(ids_, scalars); }));
  }

  void MapSgd(const std::vector<uint64_t>& ids, std::span<const double> scalars) {
    for (size_t i = 0; i < ids.size(); ++i) {
      kernels::UpdateFused(kernels::Fused::kSgd, DType::kF32, scalars, sums_.data() + i * kElements,
                           map_.find(ids[i])->second.get(), nullptr, kElements);
    }
  }

  // The same rows in an order that has nothing to do with where they are.
  void PlaceLimit(const std::vector<uint64_t>& mixes) {
    limit_.places.clear();
    for (const uint64_t mix : mixes) limit_.places.push_back(Unmix(mix));
  }

  const size_t rows_;
  RowTable table_;
  Limit limit_;
  std::unordered_map<uint64_t, std::unique_ptr<float[]>> map_;
  std::vector<float> out_, sums_;
  std::vector<uint64_t> ids_;
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
    std::printf("%zu rows\n%-12s %10s %10s %14s\n", rows, "", "us", "of limit", "unordered_map");
    for (const Result& result : bench.Run()) {
      std::printf("%-12s %10.0f %10.2f %13.1fx\n", result.name.c_str(), 1e6 * result.seconds,
                  result.limit / result.seconds, result.map / result.seconds);
      std::fflush(stdout);
      char line[256];
      std::snprintf(line, sizeof(line),
                    "%s{\"rows\": %zu, \"name\": \"%s\", \"seconds\": %.9f, \"of_limit\": %.3f, "
                    "\"of_map\": %.2f}",
                    json.empty() ? "" : ", ", rows, result.name.c_str(), result.seconds,
                    result.limit / result.seconds, result.map / result.seconds);
      json += line;
    }
    const double longest = bench.LongestMillis();
    std::printf("longest event of 100,000 new rows: %.2f ms\n\n", longest);
    char line[96];
    std::snprintf(line, sizeof(line), ", {\"rows\": %zu, \"longest_ms\": %.3f}", rows, longest);
    json += line;
  }
  std::printf("[%s]\n", json.c_str());
}
