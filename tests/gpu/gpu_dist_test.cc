// Distributed stores with values and outputs on GPUs, on the fake driver.  The results must equal
// those of a job with arrays on the host, in every order of the devices' work.  No call may wait
// for ever.

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>

#include "dist/gpu_landings.h"
#include "dist/gpu_sums.h"
#include "tests/gpu/fake/fixture.h"
#include "tests/gpu/same_values.h"
#include "tests/gpu/store_program.h"
#include "tests/scarce_memory.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"
#include "tkv/testing.h"

namespace tkv {
namespace {

using test::Failure;
using test::FailureOf;
using test::Full;
using test::Gpu;
using test::NextIndex;
using test::Pulled;
using test::ValuesOf;
using test::WithMemoryFor;

using GpuJobs = test::OnFakeDriver;

testing::ClusterOptions Options(int workers, const char* type = "dist_sync_device") {
  testing::ClusterOptions options;
  options.workers = workers;
  options.servers = 2;
  options.type = type;
  options.store.patience = std::chrono::seconds(30);  // so that a test that fails ends
  // Interpreting a kernel under a sanitizer is slow.
  options.store.silence = std::chrono::seconds(60);
  return options;
}

// A job of one worker.
struct Job {
  explicit Job(const char* type = "dist_sync_device") : cluster(Options(1, type)) {}
  ~Job() { store->Close(); }
  KVStore* operator->() const { return store.get(); }
  KVStore& operator*() const { return *store; }

  testing::Cluster cluster;
  std::unique_ptr<KVStore> store = cluster.Join(0);
};

Ticket PullAsync(KVStore& store, const KeyView& key, std::span<const NDArray> outs) {
  std::vector<const NDArray*> list;
  for (const NDArray& out : outs) list.push_back(&out);
  const PullItem item{key, list};
  return store.PullAsync({&item, 1});
}

TEST_F(GpuJobs, DoWhatJobsOnTheHostDo) {
  test::ForSeeds("tkv-gpu-job", [](uint64_t seed, const std::filesystem::path& folder) {
    const Job gpu, host;
    test::StoreProgram(seed, folder, &*gpu, &*host).Run(30);
  });
}

// Data-parallel training: two workers of two GPUs each, an optimizer on the servers.
TEST_F(GpuJobs, OfSeveralWorkersTrainAsOnTheHost) {
  const auto train = [](bool on_gpus) {
    testing::Cluster cluster(Options(2));
    std::vector<std::vector<float>> results(2);
    std::vector<std::thread> workers;
    workers.reserve(2);
    for (int rank = 0; rank < 2; ++rank) {
      workers.emplace_back([&, rank] {
        const auto store = cluster.Join(rank);
        const auto context = [&](int i) { return on_gpus ? Gpu(2 * rank + i) : Context::Cpu(i); };
        store->Init("w", Full({90000}, 1));
        store->Init("b", Full({3}, 2));
        store->SetOptimizer(Optimizer::Create("adam", {{"learning_rate", 0.1}}));
        std::vector<NDArray> w, b, dw, db;
        for (int i = 0; i < 2; ++i) {
          w.push_back(Full({90000}, 0, DType::kF32, context(i)));
          b.push_back(Full({3}, 0, DType::kF32, context(i)));
          dw.push_back(Full({90000}, 0, DType::kF32, context(i)));
          db.push_back(Full({3}, 0, DType::kF32, context(i)));
        }
        for (int step = 0; step < 4; ++step) {
          for (size_t i = 0; i < 2; ++i) {  // gradients that depend on the weights
            BinaryInto(BinaryOp::kMul, w[i], 0.25 * (rank + 1), dw[i]);
            BinaryInto(BinaryOp::kAdd, b[i], static_cast<double>(i), db[i]);
          }
          store->PushPull("w", dw, w);
          store->Push("b", db);
          PullAsync(*store, "b", b);
        }
        WaitAll();
        results[static_cast<size_t>(rank)] = ValuesOf(w[1]);
        const auto more = ValuesOf(b[0]);
        results[static_cast<size_t>(rank)].insert(results[static_cast<size_t>(rank)].end(),
                                                  more.begin(), more.end());
        store->Close();
      });
    }
    for (std::thread& worker : workers) worker.join();
    EXPECT_TRUE(results[0] == results[1]);
    return results[0];
  };
  const auto there = train(true);
  const auto here = train(false);
  ASSERT_EQ(there.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i) ASSERT_EQ(there[i], here[i]) << i;
}

// Twice 60000 exceeds float16, and 2049 is not representable in it: only the server rounds.
TEST_F(GpuJobs, SumSixteenBitValuesInFloat32) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const double base = dtype == DType::kF16 ? 2048 : 256;
    for (const int64_t size : {3, 70000}) {  // a sum in a shared batch, and one of its own
      const Job job;
      job->Init("w", Full({size}, base, dtype));
      job->Init("large", Full({size}, 0, DType::kF16));
      job->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1}}));
      job->Push("w", std::vector{Full({size}, base, dtype, Gpu(0)), Full({size}, 1, dtype, Gpu(1)),
                                 Full({size}, 1, dtype), Full({size}, -1, dtype, Gpu(0))});
      EXPECT_TRUE(test::SameValues(Pulled(*job, "w"), Full({size}, -1, dtype)));
      const NDArray large = Full({size}, 60000, DType::kF16, Gpu(0));
      job->Push("large", std::vector{large, large, Full({size}, -59968, DType::kF16, Gpu(0))});
      EXPECT_TRUE(test::SameValues(Pulled(*job, "large"), Full({size}, -60032, DType::kF16)));
    }
  }
}

TEST_F(GpuJobs, TakeArraysOfGpusWithEveryVerb) {
  const Job job;
  const NDArray value = Full({4}, 3, DType::kF32, Gpu(0));
  const NDArray out = NDArray::Zeros({4}, DType::kF32, Gpu(1));
  const InitItem init{"w", &value};
  const NDArray* const outs[] = {&out};
  const PullItem pull{"w", outs};
  job->Broadcast({&init, 1}, {&pull, 1});
  EXPECT_EQ(ValuesOf(out), (std::vector<float>(4, 3)));
  EXPECT_EQ(job->Describe("w").context, Context::Cpu());
  job->Push("w", value);
  PullAsync(*job, "w", {&out, 1})->Wait(std::chrono::seconds(30));
  EXPECT_EQ(ValuesOf(out), (std::vector<float>(4, 3)));
}

// Pulls into the array that is pushed: the sum must be read before the array is written.
TEST_F(GpuJobs, MayPullIntoWhatTheyPush) {
  for (const int64_t size : {3, 100000}) {
    const Job job;
    const NDArray array = Full({size}, 2, DType::kF32, Gpu(0));
    job->Init("w", Full({size}, 0));
    job->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", -1}}));
    for (int i = 0; i < 3; ++i) {
      const NDArray* const list[] = {&array};
      const PushItem value{"w", list};
      const PullItem output{"w", list};
      job->PushPullAsync({&value, 1}, {&output, 1});  // w += array; array = w
    }
    EXPECT_EQ(ValuesOf(array), std::vector<float>(static_cast<size_t>(size), 8));
  }
}

TEST_F(GpuJobs, SumAllKeysOfACallInOneLaunchAndBringThemByOneCopy) {
  const Job job;
  std::vector<std::string> names;
  std::vector<NDArray> arrays;
  std::vector<std::vector<const NDArray*>> lists(400);
  std::vector<PushItem> pushes;
  std::vector<PullItem> pulls;
  arrays.reserve(800);
  for (size_t i = 0; i < 400; ++i) {
    names.push_back(Format("k{}", i));
    job->Init(names[i], NDArray::Zeros({7}));
    for (int32_t gpu = 0; gpu < 2; ++gpu) {
      lists[i].push_back(&arrays.emplace_back(Full({7}, 1, DType::kF32, Gpu(gpu))));
    }
  }
  for (size_t i = 0; i < 400; ++i) {
    pushes.push_back({names[i], lists[i]});
    pulls.push_back({names[i], lists[i]});
  }
  job->Push(pushes);  // compiles
  job->Pull(pulls);
  WaitAll();
  const int launches = FAKE(fake_launches)();
  job->Push(pushes);
  EXPECT_EQ(FAKE(fake_launches)() - launches, 1) << "on the first GPU of the lists";
  job->Pull(pulls);
  EXPECT_EQ(FAKE(fake_launches)() - launches, 3) << "and one on each for the outputs";
  EXPECT_EQ(ValuesOf(arrays[799]), std::vector<float>(7, 4));
}

// Shares an output by DLPack: after the wait for the ticket, the memory must be written.
TEST_F(GpuJobs, EndWhenMemoryOfOthersIsWritten) {
  for (const int64_t size : {5, 100000}) {
    const Job job;
    const NDArray out = NDArray::Zeros({size}, DType::kF32, Gpu(0));
    out.storage()->ShareWithoutWaiting();
    job->Init("w", Full({size}, 7));
    for (int i = 0; i < 20; ++i) {
      FAKE(fake_seed)(static_cast<uint64_t>(i));
      const Ticket ticket = PullAsync(*job, "w", {&out, 1});
      std::promise<bool> told;
      ticket->OnEnd([&] { told.set_value(ticket->done()); });
      EXPECT_TRUE(told.get_future().get());
      EXPECT_FALSE(ticket->Cancel());
      ticket->Wait(std::chrono::nanoseconds(0));
      EXPECT_FALSE(out.storage()->IsInUse(Access::kWrite));
      job->Pull("w", out);
      EXPECT_FALSE(out.storage()->IsInUse(Access::kWrite));
    }
  }
}

// A pull ends when its values are on their way to the GPU.  The source of that copy must not be
// reused earlier.
TEST_F(GpuJobs, PullWhileAGpuHasOtherWork) {
  constexpr int64_t kSize = 123457;  // a size of no other test, whose free blocks could be reused
  const Job job;
  job->Init("w", Full(Shape{kSize}, 1));
  const NDArray first = NDArray::Zeros(Shape{kSize}, DType::kF32, Gpu(0));
  const NDArray second = NDArray::Zeros(Shape{kSize}, DType::kF32, Gpu(0));
  WaitAll();
  FAKE(fake_stop)(1);
  job->Pull("w", first);
  job->Push("w", Full(Shape{kSize}, 2));
  job->Pull("w", second);
  FAKE(fake_stop)(0);
  EXPECT_EQ(ValuesOf(first)[0], 1);
  EXPECT_EQ(ValuesOf(second)[0], 2);
}

// Drops the ticket of a pull into GPU outputs and closes the store.
TEST_F(GpuJobs, MayEndWhileACallIsUnderWay) {
  const NDArray out = Full({100000}, 1, DType::kF32, Gpu(0));
  {
    const Job job;
    job->Init("w", Full({100000}, 7));
    PullAsync(*job, "w", {&out, 1});
    job->Push("w", out);
  }
  EXPECT_EQ(ValuesOf(out)[0], 7);
}

TEST_F(GpuJobs, CompressWhatGpusPush) {
  const Job gpu, host;
  for (const Job* job : {&gpu, &host}) {
    (*job)->Init("w", NDArray::Zeros({3000}));
    (*job)->SetOptimizer(Optimizer::Create("sgd", {{"learning_rate", 1}}));
    (*job)->SetGradientCompression(Compression{.type = "2bit", .threshold = 0.5}, "*");
  }
  for (int i = 0; i < 4; ++i) {
    gpu->Push("w", std::vector<NDArray>{Full({3000}, 0.3F, DType::kF32, Gpu(0)),
                                        Full({3000}, 0.1F, DType::kF32, Gpu(1))});
    host->Push("w", std::vector<NDArray>{Full({3000}, 0.3F), Full({3000}, 0.1F)});
  }
  EXPECT_EQ(test::Values(Pulled(*gpu, "w")), test::Values(Pulled(*host, "w")));
}

// -----------------------------------------------------------------------------------------
// failures Calls a verb of each kind.
void CallAll(KVStore& store, const NDArray& a, const NDArray& b) {
  store.Push("small", std::vector<NDArray>{a.Slice(0, 10), b.Slice(0, 10)});
  store.Push("large", b);
  store.PushPull("large", {&a, 1}, {&b, 1});
  store.Pull("small", a.Slice(0, 10));
}

// Makes each driver call fail once.  The verb that fails must name its key, and the job must go on.
TEST_F(GpuJobs, GoOnAfterACallOfTheDriverThatFails) {
  Context first = Context::Gpu(NextIndex());
  Context second = Context::Gpu(NextIndex());
  int failed = 0;
  for (int k = 1;; ++k) {
    const Job job;
    job->Init("small", Full({10}, 0));
    job->Init("large", Full({80000}, 0));
    const NDArray a = Full({80000}, 1, DType::kF32, first);
    const NDArray b = Full({80000}, 2, DType::kF32, second);
    CallAll(*job, a, b);
    FailureOf([] { WaitAll(); });  // reports lost GPUs
    const int before = FAKE(fake_failures)();
    FAKE(fake_fail)(k, test::kOutOfMemory);
    const auto failure = FailureOf([&] { CallAll(*job, a, b); });
    FAKE(fake_fail)(0, 0);
    const bool has_failed = FAKE(fake_failures)() > before;
    const bool are_there =
        !FailureOf([&] { CheckUsable(first), CheckUsable(second); }).code.has_value();
    if (!are_there) {  // the driver may still run work that the library has abandoned
      first = Context::Gpu(NextIndex());
      second = Context::Gpu(NextIndex());
    }
    if (failure.code) {
      ++failed;
      EXPECT_TRUE(failure.message.find("'small'") != std::string::npos ||
                  failure.message.find("'large'") != std::string::npos)
          << k << ": " << failure.message;
    }
    const NDArray host = Full({10}, 5);
    EXPECT_FALSE(FailureOf([&] {
                   job->Push("small", host);
                   job->Pull("small", host);
                 }).code)
        << k << ": " << failure.message;
    EXPECT_EQ(test::Values(host), std::vector<float>(10, 5));
    if (!has_failed) break;
    ASSERT_LT(k, 500);
  }
  EXPECT_GT(failed, 10);
}

// Makes every allocation of sums and landings fail once.  Afterwards no wait for their arrays may
// remain.
TEST_F(GpuJobs, LeaveArraysFreeAfterAnAllocationThatFails) {
  constexpr std::chrono::seconds kPatience{30};
  const NDArray a = Full({80000}, 1, DType::kF32, Gpu(0));
  const NDArray b = Full({80000}, 2, DType::kF32, Gpu(1));
  const NDArray wide = NDArray::Zeros({4, 6}, DType::kF32, Gpu(0));
  const int64_t strides[] = {6, 1};
  const NDArray part =
      NDArray::Wrap(wide.data(), {4, 3}, DType::kF32, Gpu(0), false, wide.storage(), strides);
  const NDArray small[] = {a.Slice(0, 12).Reshape({4, 3}), b.Slice(0, 12).Reshape({4, 3})};
  const NDArray* const both[] = {&a, &b};
  const NDArray* const one[] = {&a};
  const NDArray* const few[] = {small, &small[1]};
  const NDArray other = NDArray::Zeros({4, 3}, DType::kF32, Gpu(1));
  const NDArray* const outs[] = {&other, &part};
  const auto bring = [&] {
    GpuSums sums("push");
    sums.Add("both", both);
    sums.Add("few", few);
    sums.Add("one", one);
    sums.Start(kPatience);
    for (size_t lot = 0; lot < sums.lots(); ++lot) sums.Await(lot, kPatience);
    GpuLandings landings("pull", false);
    landings.Add("few", {4, 3}, DType::kF32, outs);
    landings.Add("one", {80000}, DType::kF32, one);
    landings.Prepare();
    for (size_t i = 0; i < 2; ++i) {
      std::memcpy(landings.OnHost(i).HostData(), sums.OnHost(i + 1).HostData(),
                  landings.OnHost(i).bytes());
    }
    landings.Enter(kPatience);
    std::vector<AwaitedWork> awaited;
    landings.Run(&awaited);
  };
  bring();
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 5000);
    const auto attempt = WithMemoryFor(n, bring);
    for (const NDArray* array : {&a, &b, &part}) array->storage()->WaitWritable(kPatience);
    if (!attempt.ran_out) break;
  }
  EXPECT_EQ(ValuesOf(part), std::vector<float>(12, 3));
}

TEST_F(GpuJobs, OfALostGpuSayWhichKeyAndGoOnWithTheOthers) {
  const Context context = Context::Gpu(NextIndex());
  const Job job;
  for (const char* key : {"here", "there"}) job->Init(key, Full({3}, 0));
  const NDArray there = Full({3}, 1, DType::kF32, context);
  const NDArray here = Full({3}, 2, DType::kF32, Gpu(0));
  WaitAll();
  FAKE(fake_lose)(context.index, test::kIllegalAddress);
  const NDArray* const lists[] = {&here, &there};
  const PushItem items[] = {{"here", {&lists[0], 1}}, {"there", {&lists[1], 1}}};
  const auto failure = FailureOf([&] { job->Push(items); });
  EXPECT_EQ(failure.code, Code::kUnavailable);
  EXPECT_NE(failure.message.find("push 'there': gpu("), std::string::npos) << failure.message;
  EXPECT_EQ(FailureOf([&] { job->Pull("there", there); }).code, Code::kUnavailable);
  EXPECT_EQ(test::Values(Pulled(*job, "here")), std::vector<float>(3, 0)) << "nothing has begun";
  job->Push("here", here);
  EXPECT_EQ(test::Values(Pulled(*job, "here")), std::vector<float>(3, 2));
}

// A GPU stops while it copies.  The push must end in time, and on an interrupt.
TEST_F(GpuJobs, DoNotWaitForEverForAGpu) {
  testing::ClusterOptions options = Options(1);
  options.store.patience = std::chrono::milliseconds(200);
  testing::Cluster cluster(options);
  const auto store = cluster.Join(0);
  store->Init("w", Full({100000}, 0));
  store->Init("on the host", Full({1}, 0));
  const NDArray value = Full({100000}, 1, DType::kF32, Gpu(0));
  const NDArray on_host = Full({1}, 5);
  const NDArray* const lists[] = {&value, &on_host};
  const PushItem items[] = {{"w", {&lists[0], 1}}, {"on the host", {&lists[1], 1}}};
  WaitAll();
  FAKE(fake_stop)(1);
  const auto failure = FailureOf([&] { store->Push(items); });
  FAKE(fake_stop)(0);
  EXPECT_EQ(failure.code, Code::kDeadlineExceeded);
  EXPECT_EQ(failure.message.find("push 'w': "), 0U) << failure.message;
  EXPECT_TRUE(failure.message.ends_with("; what the call has pushed to other keys counts"));
  EXPECT_EQ(test::Values(Pulled(*store, "on the host"))[0], 5) << "it waits for no GPU";
  EXPECT_EQ(test::Values(Pulled(*store, "w"))[0], 0);
  FAKE(fake_stop)(1);
  const auto made = FailureOf([&] { store->Init("new", value); });
  EXPECT_EQ(made.code, Code::kDeadlineExceeded);
  EXPECT_EQ(made.message.find("init 'new': "), 0U) << made.message;
  store->SetGradientCompression(Compression{.type = "fp16"}, "w");
  const auto compressed = FailureOf([&] { store->Push("w", value); });
  EXPECT_EQ(compressed.code, Code::kDeadlineExceeded);
  EXPECT_EQ(compressed.message.find("push 'w': "), 0U) << compressed.message;
  store->SetGradientCompression(Compression{.type = "none"}, "w");
  SetGpuInterrupt([] { throw std::runtime_error("interrupted"); });
  EXPECT_THROW(store->Push("w", value), std::runtime_error);
  SetGpuInterrupt({});
  FAKE(fake_stop)(0);
  store->Push("w", value);
  EXPECT_EQ(test::Values(Pulled(*store, "w"))[0], 1);
  store->Close();
}

// Loses the GPU of a shared output while a pull writes it.
TEST_F(GpuJobs, SayWhoseGpuIsLostBehindAPull) {
  const Context context = Context::Gpu(NextIndex());
  const Job job;
  job->Init("w", Full({5}, 7));
  const NDArray out = NDArray::Zeros({5}, DType::kF32, context);
  out.storage()->ShareWithoutWaiting();
  WaitAll();
  FAKE(fake_stop)(1);
  const Ticket ticket = PullAsync(*job, "w", {&out, 1});
  FAKE(fake_lose)(context.index, test::kIllegalAddress);
  FAKE(fake_stop)(0);
  const auto failure = FailureOf([&] { ticket->Wait(std::chrono::seconds(30)); });
  EXPECT_EQ(failure.code, Code::kUnavailable);
  EXPECT_EQ(failure.message.find("pull 'w': gpu("), 0U) << failure.message;
  EXPECT_TRUE(ticket->failure().has_value());
}

// Loses a GPU that still had to write a value of the sum.
TEST_F(GpuJobs, SendNoSumOfWhatALostGpuHasNotWritten) {
  const Context context = Context::Gpu(NextIndex());
  const Job job;
  job->Init("w", Full({3}, 0));
  const NDArray values[] = {Full({3}, 1, DType::kF32, Gpu(0)), Full({3}, 1, DType::kF32, context)};
  WaitAll();
  FAKE(fake_stop)(1);
  BinaryInto(BinaryOp::kMul, values[1], 10, values[1]);
  Failure failure;
  std::thread pushing([&] { failure = FailureOf([&] { job->Push("w", values); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  FAKE(fake_lose)(context.index, test::kIllegalAddress);
  FAKE(fake_stop)(0);
  pushing.join();
  EXPECT_EQ(failure.code, Code::kUnavailable);
  EXPECT_EQ(failure.message.find(Format("push 'w': gpu({}): lost", context.index)), 0U)
      << failure.message;
  EXPECT_EQ(test::Values(Pulled(*job, "w")), std::vector<float>(3, 0));
}

TEST_F(GpuJobs, SayThatTheStoreIsClosedToWhoWaitsForAGpu) {
  Job job;
  job->Init("w", Full({3}, 0));
  const NDArray value = Full({3}, 1, DType::kF32, Gpu(0));
  WaitAll();
  FAKE(fake_stop)(1);
  Failure failure;
  std::thread pushing([&] { failure = FailureOf([&] { job->Push("w", value); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job->Close();
  FAKE(fake_stop)(0);
  pushing.join();
  EXPECT_EQ(failure.code, Code::kFailedPrecondition) << failure.message;
}

TEST_F(GpuJobs, RefuseRowsFromGpus) {
  const Job job;
  const int64_t ids[] = {1};
  const Rows rows{NDArray::FromBytes(ids, {1}, DType::kI64), Full({1, 2}, 1, DType::kF32, Gpu(0))};
  job->Init("w", Full({4, 2}, 0));
  const Rows* const values[] = {&rows};
  const RowsPushItem item{"w", values};
  EXPECT_FAILS(Code::kUnimplemented, job->PushRows({&item, 1}));
}

}  // namespace
}  // namespace tkv
