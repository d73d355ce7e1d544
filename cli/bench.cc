#include "bench.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench_job.h"
#include "chart.h"
#include "exit_status.h"
#include "limits.h"
#include "measure.h"
#include "raw_link.h"
#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/kvstore.h"
#include "tkv/ndarray.h"

namespace tkv::cli {
namespace {

constexpr int64_t kLargeBytes = int64_t{64} << 20;   // of one copy
constexpr int64_t kMediumBytes = int64_t{16} << 20;  // of an array to sum or to send
constexpr int64_t kSmallBytes = 1024;
// The largest share of the cores' time that other processes may use.
constexpr double kQuiet = 0.05;
constexpr int kBarColumns = 24;

NDArray ArrayOf(int64_t bytes, int seed) {
  NDArray array = NDArray::Empty({bytes / static_cast<int64_t>(sizeof(float))});
  auto* const values = static_cast<float*>(array.HostData());
  for (int64_t i = 0; i < array.size(); ++i) values[i] = static_cast<float>((i + seed) % 1021);
  return array;
}

// ---- stores

volatile std::sig_atomic_t asked_to_end = 0;

//   throws  kCancelled
void EndWhenAsked() {
  if (asked_to_end != 0) throw Error(Code::kCancelled, "bench: ended by a signal");
}

// A key of a store, the source of its pushes and the target of its pulls.
class BenchKey {
 public:
  BenchKey(KVStore* store, std::string key, NDArray source, NDArray target)
      : store_(store),
        key_(std::move(key)),
        source_(std::move(source)),
        target_(std::move(target)) {
    store_->Init(key_, NDArray::Zeros(source_.shape()));
  }

  Figure::Run PullRun() const {
    store_->Push(key_, source_);
    return [this](int64_t times) {
      for (int64_t i = 0; i < times; ++i) store_->Pull(key_, target_);
    };
  }
  Figure::Run PushPullRun() const {
    return [this](int64_t times) {
      for (int64_t i = 0; i < times; ++i) store_->PushPull(key_, {&source_, 1}, {&target_, 1});
    };
  }
  Figure::Run PushRun(const Summands& values) const {
    return [this, values](int64_t times) {
      for (int64_t i = 0; i < times; ++i) store_->Push(key_, values);
    };
  }

  // Pulls the key and compares it with its source, each element times `factor`.
  //   throws  kDataLoss
  void Check(float factor) const {
    store_->Pull(key_, target_);
    const auto* const wanted = static_cast<const float*>(source_.HostData());
    const auto* const found = static_cast<const float*>(target_.HostData());
    for (int64_t i = 0; i < source_.size(); ++i) {
      if (found[i] == factor * wanted[i]) continue;
      throw Error(Code::kDataLoss, "bench '" + key_ + "': element " + std::to_string(i) + " is " +
                                       std::to_string(found[i]) + ", " +
                                       std::to_string(factor * wanted[i]) + " was pushed");
    }
  }

 private:
  KVStore* const store_;
  const std::string key_;
  const NDArray source_, target_;
};

StoreOptions OfOneThread() {
  StoreOptions options;
  options.threads = 1;
  return options;
}

// The figures of the benchmark, with the jobs, links and arrays that they measure.
class Bench {
 public:
  Bench(const OtherSide& here, const OtherSide& peer)
      : shared_job_("auto", here, EndWhenAsked),
        tcp_job_("tcp", peer, EndWhenAsked),
        unix_link_("unix:tkv-bench-" + NewToken().substr(0, 16), here),
        tcp_link_("tcp:" + peer.own_name() + ":0", peer),
        tcp_name_(peer.is_far() ? "TCP to the peer" : "TCP, loopback") {}

  std::vector<Figure> Figures() {
    const double large = static_cast<double>(kLargeBytes), medium = kMediumBytes;
    const Summands summands = {medium_source_, medium_source_.Copy(), medium_source_.Copy(),
                               medium_source_.Copy()};
    return {
        {"copy, one core", "memcpy by one thread", 2 * large, 2 * large, one_core_.PullRun(),
         Copies(source_, target_, 1)},
        {"copy, all cores", "memcpy by all threads", 2 * large, 2 * large, all_cores_.PullRun(),
         Copies(source_, target_, cores_)},
        {"sum of 4, all cores", "a loop by all threads", 5 * medium, 5 * medium,
         sum_.PushRun(summands), Sums(summands, medium_target_, cores_)},
        {"shared memory", "memcpy in and out", 2 * medium, medium, shared_.PushPullRun(),
         Copies(medium_source_, medium_target_, 1)},
        {tcp_name_, "raw TCP", 2 * medium, 2 * medium, tcp_.PushPullRun(),
         Exchanges(tcp_link_, medium_source_, medium_target_)},
        {"1 KiB, one process",
         "memcpy in and out",
         0,
         0,
         small_.PushPullRun(),
         {[copy = Copies(small_source_, small_target_, 1)[0]](int64_t times) { copy(2 * times); }}},
        {"1 KiB, shared memory", "raw Unix socket", 0, 0, shared_small_.PushPullRun(),
         Exchanges(unix_link_, small_source_, small_target_)},
        {"1 KiB, " + tcp_name_, "raw TCP", 0, 0, tcp_small_.PushPullRun(),
         Exchanges(tcp_link_, small_source_, small_target_)},
    };
  }

  void Check() const {
    sum_.Check(4);
    for (const BenchKey* const key :
         {&one_core_, &all_cores_, &shared_, &tcp_, &small_, &shared_small_, &tcp_small_}) {
      key->Check(1);
    }
  }

 private:
  const int cores_ = std::max(1, Cores());
  BenchJob shared_job_, tcp_job_;
  RawLink unix_link_, tcp_link_;
  const std::string tcp_name_;
  const std::unique_ptr<KVStore> one_store_ = KVStore::Create("local", OfOneThread());
  const std::unique_ptr<KVStore> all_store_ = KVStore::Create("local");
  const NDArray source_ = ArrayOf(kLargeBytes, 1), target_ = ArrayOf(kLargeBytes, 0);
  const NDArray medium_source_ = ArrayOf(kMediumBytes, 2),
                medium_target_ = ArrayOf(kMediumBytes, 0);
  const NDArray small_source_ = ArrayOf(kSmallBytes, 3), small_target_ = ArrayOf(kSmallBytes, 0);
  const BenchKey one_core_{one_store_.get(), "copy", source_, target_};
  const BenchKey all_cores_{all_store_.get(), "copy", source_, target_};
  const BenchKey sum_{all_store_.get(), "sum", medium_source_, medium_target_};
  const BenchKey small_{all_store_.get(), "small", small_source_, small_target_};
  const BenchKey shared_{shared_job_.store(), "medium", medium_source_, medium_target_};
  const BenchKey shared_small_{shared_job_.store(), "small", small_source_, small_target_};
  const BenchKey tcp_{tcp_job_.store(), "medium", medium_source_, medium_target_};
  const BenchKey tcp_small_{tcp_job_.store(), "small", small_source_, small_target_};
};

// ---- printing

std::string ValueText(bool is_rate, double value) {
  char text[32];
  if (is_rate) {
    std::snprintf(text, sizeof(text), "%.1f GB/s", value / 1e9);
  } else {
    std::snprintf(text, sizeof(text), "%.2f µs", value * 1e6);
  }
  return text;
}

std::string LineText(const Result& result) {
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), "%.2f", result.reached);
  std::string text = std::string(fraction) + "   " + ValueText(result.is_rate, result.value) +
                     " of " + ValueText(result.is_rate, result.limit) + ", " + result.limit_name;
  if (result.others <= kQuiet) return text;
  char others[32];
  std::snprintf(others, sizeof(others), "; others had %.0f %%", 100 * result.others);
  return text + others;
}

double OthersMax(const Measurement& measured) {
  double others = 0;
  for (const Result& result : measured.results) others = std::max(others, result.others);
  return others;
}

std::string Title(const Measurement& measured) {
  return std::string("TensorKV ") + Version() + ", " + std::to_string(Cores()) + " cores, " +
         (measured.rounds == 1 ? "one round"
                               : "medians of " + std::to_string(measured.rounds) + " rounds");
}

void PrintText(const Measurement& measured) {
  std::printf("%s; a full bar is the limit\n\n", Title(measured).c_str());
  for (const Result& result : measured.results) {
    std::printf("  %-22s %s %s\n", result.name.c_str(),
                TextBar(result.reached, kBarColumns).c_str(), LineText(result).c_str());
  }
  std::fputs(OthersMax(measured) <= kQuiet
                 ? "\nThe machine was idle.\n"
                 : "\nThe machine was not idle: others had a share of the cores where it says so. "
                   "Only fractions count.\n",
             stdout);
}

void PrintObjects(const Measurement& measured, double seconds) {
  for (const Result& result : measured.results) {
    Print(JsonObject("figure")
              .Add("name", result.name)
              .Add("unit", result.is_rate ? "bytes/s" : "s")
              .Add("value", result.value)
              .Add("limit", result.limit)
              .Add("limit_name", result.limit_name)
              .Add("reached", result.reached)
              .Add("lowest", result.lowest)
              .Add("highest", result.highest)
              .Add("others", result.others));
  }
  Print(JsonObject("summary")
            .Add("version", Version())
            .Add("cores", Cores())
            .Add("rounds", measured.rounds)
            .Add("seconds", seconds)
            .Add("idle", OthersMax(measured) <= kQuiet));
}

void WriteSvg(std::ofstream* file, const std::string& path, const Measurement& measured) {
  std::vector<Bar> bars;
  bars.reserve(measured.results.size());
  for (const Result& result : measured.results) {
    bars.push_back({result.name, result.reached, LineText(result)});
  }
  *file << Svg(Title(measured), bars);
  file->close();
  if (!*file) Die("bench: --svg '" + path + "'");
}

int MeasureAndSay(const BenchOptions& options, Form form) {
  const auto begin = std::chrono::steady_clock::now();
  std::ofstream svg;
  if (!options.svg.empty()) {  // fail before measuring
    svg.open(options.svg);
    if (!svg) Die("bench: --svg '" + options.svg + "'");
  }
  std::signal(SIGPIPE, SIG_IGN);  // a process of the other side may have ended
  const OtherSide here;
  std::optional<OtherSide> peer;
  if (!options.peer.empty() && !IsThisHost(options.peer)) peer.emplace(options.peer);
  Bench bench(here, peer ? *peer : here);
  const Measurement measured =
      Measure(bench.Figures(), begin + std::chrono::seconds(options.seconds), EndWhenAsked);
  bench.Check();
  if (svg.is_open()) WriteSvg(&svg, options.svg, measured);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (form == Form::kJson) {
    PrintObjects(measured, seconds);
  } else {
    PrintText(measured);
  }
  return kDone;
}

}  // namespace

int RunBench(const BenchOptions& options, Form form) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(signal, [](int which) { asked_to_end = which; });
  }
  try {
    return MeasureAndSay(options, form);
  } catch (const Error&) {
    if (asked_to_end == 0) throw;
    return 128 + asked_to_end;
  }
}

}  // namespace tkv::cli
