// Measures stores on GPUs.  Prints a line of JSON for each figure, beside the limit of the machine.
//
//   gpu DIVISOR REPETITIONS  sizes are divided by DIVISOR (1 on hardware)
//   gpu first                milliseconds of the first update of a process
//
// Times are the host's, between two moments when the GPU is idle.  Compared figures are measured in
// turn.  Each figure is a median.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/format.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"
#include "tkv/testing.h"

namespace {

using namespace tkv;

const Context kGpu = Context::Gpu(0);
size_t divisor = 1;
int repetitions = 9;

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  WaitAll();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Returns the medians of works that run in turn, after one turn that is not counted.
std::vector<double> InTurn(const std::vector<std::function<void()>>& works) {
  std::vector<std::vector<double>> seconds(works.size());
  for (int i = 0; i <= repetitions; ++i) {
    for (size_t w = 0; w < works.size(); ++w) {
      const double one = Seconds(works[w]);
      if (i > 0) seconds[w].push_back(one);
    }
  }
  std::vector<double> medians;
  medians.reserve(works.size());
  for (auto& all : seconds) medians.push_back(Median(std::move(all)));
  return medians;
}

// Returns the median for calls that take microseconds, of which many are one work.
double OneOf(int calls, const std::function<void()>& call) {
  const auto many = [&] {
    for (int i = 0; i < calls; ++i) call();
  };
  return InTurn({many})[0] / calls;
}

//   wanted  "<= 15", ">= 0.9"; "": no goal
void Say(const std::string& name, double value, const char* unit, const char* wanted) {
  std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"wanted\": \"%s\"}\n",
              name.c_str(), value, unit, wanted);
  std::fflush(stdout);
}

NDArray Ones(int64_t count, DType dtype = DType::kF32, Context context = kGpu) {
  const NDArray array = NDArray::Empty({count}, dtype, context);
  Fill(array, 1);
  return array;
}

// Sums and updates, beside a copy within the GPU that reads and writes each byte once.
void Bandwidth() {
  const auto bytes = static_cast<int64_t>((size_t{256} << 20) / divisor);
  const NDArray from = Ones(bytes / 4), to = Ones(bytes / 4);
  const auto copy = [&] { to.CopyFrom(from); };
  bool has_said = false;
  const auto beside_copy = [&](const std::string& name, double arrays, const char* wanted,
                               const std::function<void()>& work) {
    const auto seconds = InTurn({copy, work});
    const double limit = 2 * static_cast<double>(bytes) / seconds[0];
    if (!has_said) Say("copy within the GPU", limit / 1e9, "GB/s", "");
    has_said = true;
    Say(name, arrays * static_cast<double>(bytes) / seconds[1] / limit, "of the copy", wanted);
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int sources : {2, 4, 8}) {
      const auto store = KVStore::Create("device");
      const int64_t count = bytes / static_cast<int64_t>(ItemSize(dtype));
      store->Init(1, NDArray::Zeros({count}, dtype));
      std::vector<NDArray> values;
      values.reserve(static_cast<size_t>(sources));
      for (int i = 0; i < sources; ++i) values.push_back(Ones(count, dtype));
      beside_copy(Format("sum of {} {}", sources, Name(dtype)), sources + 1,
                  dtype == DType::kF32 ? ">= 0.90" : ">= 0.85", [&] { store->Push(1, values); });
    }
  }
  const auto store = KVStore::Create("device");
  store->Init(1, NDArray::Zeros({bytes / 4}));
  store->SetOptimizer(Optimizer::Create("adam"));
  std::vector<NDArray> gradients;
  gradients.reserve(4);
  for (int i = 0; i < 4; ++i) gradients.push_back(Ones(bytes / 4));
  const NDArray out = Ones(bytes / 4);
  beside_copy("sum of 4, Adam, 1 output", 4 + 6 + 1, ">= 0.85",
              [&] { store->PushPull(1, gradients, {&out, 1}); });
}

// Calls with small arrays: the cost of the host's work.
void SmallCalls() {
  const auto store = KVStore::Create("device");
  store->SetOptimizer(Optimizer::Create("sgd"));
  std::vector<NDArray> arrays;
  std::vector<std::vector<const NDArray*>> lists(400);
  std::vector<PushItem> items;
  arrays.reserve(400);
  for (size_t i = 0; i < 400; ++i) {
    const auto key = static_cast<int64_t>(i);
    store->Init(key, NDArray::Zeros({1024}));
    lists[i].push_back(&arrays.emplace_back(Ones(1024)));
    items.push_back({key, lists[i]});
  }
  const int calls = divisor == 1 ? 100 : 1;
  Say("400 keys of 1,024 f32, one behind the other",
      1e6 * OneOf(calls, [&] { store->Push(items); }), "us", "<= 60");
  Say("400 keys of 1,024 f32, each waited for",
      1e6 * OneOf(calls,
                  [&] {
                    store->Push(items);
                    WaitAll();
                  }),
      "us", "<= 150");
  const PushItem one = items[0];
  Say("one key of 4 KiB, each waited for",
      1e6 * OneOf(10 * calls,
                  [&] {
                    store->Push({&one, 1});
                    WaitAll();
                  }),
      "us", "<= 15");
}

// Copies from and to the host, alone and at once, and pushes of a job.
void Host() {
  const auto count = static_cast<int64_t>(100'000'000 / 4 / divisor);
  const NDArray there = Ones(count), other = Ones(count);
  const NDArray here = Ones(count, DType::kF32, Context::Cpu());
  const NDArray landed = Ones(count, DType::kF32, Context::Cpu());
  const auto to_host = [&] { landed.CopyFrom(there); };
  const auto to_gpu = [&] { other.CopyFrom(here); };
  const auto seconds = InTurn({to_host, to_gpu, [&] {
                                 std::thread up(to_gpu);
                                 to_host();
                                 up.join();
                               }});
  const double bytes = static_cast<double>(there.bytes());
  Say("copy to the host", bytes / seconds[0] / 1e9, "GB/s", "");
  Say("copy to the GPU", bytes / seconds[1] / 1e9, "GB/s", "");
  Say("both at once, beside one way", (seconds[0] + seconds[1]) / seconds[2], "times", ">= 1.6");

  testing::ClusterOptions options;
  options.workers = 1;
  options.servers = 2;
  testing::Cluster cluster(options);
  const auto store = cluster.Join(0);
  constexpr size_t kKeys = 10;
  std::vector<NDArray> on_gpu, on_host, outs;
  std::vector<std::vector<const NDArray*>> lists(3 * kKeys);
  std::vector<PushItem> from_gpu, from_host;
  std::vector<PullItem> to_outs;
  for (auto* const arrays : {&on_gpu, &on_host, &outs}) arrays->reserve(kKeys);
  const int64_t part = count / static_cast<int64_t>(kKeys);
  for (size_t i = 0; i < kKeys; ++i) {
    const auto key = static_cast<int64_t>(i);
    store->Init(key, NDArray::Zeros({part}));
    lists[3 * i].push_back(&on_gpu.emplace_back(Ones(part)));
    lists[3 * i + 1].push_back(&on_host.emplace_back(Ones(part, DType::kF32, Context::Cpu())));
    lists[3 * i + 2].push_back(&outs.emplace_back(Ones(part)));
    from_gpu.push_back({key, lists[3 * i]});
    from_host.push_back({key, lists[3 * i + 1]});
    to_outs.push_back({key, lists[3 * i + 2]});
  }
  const auto pushed = [&](const std::vector<PushItem>& items) {
    return [&] { store->PushAsync(items)->Wait(std::chrono::seconds(60)); };
  };
  const auto jobs = InTurn({pushed(from_gpu), pushed(from_host), to_host,
                            [&] { store->PullAsync(to_outs)->Wait(std::chrono::seconds(60)); }});
  Say("job: push of 100 MB from the GPU, beside copy or push from the host",
      jobs[0] / std::max(jobs[1], jobs[2]), "times", "<= 1.15");
  Say("job: push of 100 MB from the GPU", bytes / jobs[0] / 1e9, "GB/s", "");
  Say("job: push of 100 MB from the host", bytes / jobs[1] / 1e9, "GB/s", "");
  Say("job: pull of 100 MB to the GPU", bytes / jobs[3] / 1e9, "GB/s", "");
  store->Close();
}

void First() {
  const NDArray value = Ones(1024), gradient = Ones(1024);
  WaitAll();
  const auto sgd = Optimizer::Create("sgd");
  std::printf("%.3f\n", 1e3 * Seconds([&] { ApplyUpdate(*sgd, 1, 1, gradient, value, {}, {}); }));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string(argv[1]) == "first") {
      First();
      return 0;
    }
    if (argc > 1) divisor = static_cast<size_t>(std::max(1, std::atoi(argv[1])));
    if (argc > 2) repetitions = std::max(1, std::atoi(argv[2]));
    Bandwidth();
    SmallCalls();
    Host();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
