// Local stores with values, outputs and keys on GPUs, on the fake driver.  The results must equal
// those of a store on the host in every order of the devices' work.  A call must need only one
// launch.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/gpu/fake/fixture.h"
#include "tests/gpu/same_values.h"
#include "tests/gpu/store_program.h"
#include "tests/one_call.h"
#include "tests/scarce_memory.h"
#include "tkv/kvstore.h"
#include "update/gpu_batch.h"

namespace tkv {
namespace {

using test::FailureOf;
using test::Floats;
using test::Full;
using test::Gpu;
using test::NextIndex;
using test::Pulled;
using test::ValuesOf;
using test::WithMemoryFor;

using GpuStores = test::OnFakeDriver;

TEST_F(GpuStores, DoWhatStoresOnTheHostDo) {
  test::ForSeeds("tkv-gpu-store", [](uint64_t seed, const std::filesystem::path& folder) {
    const auto gpu = KVStore::Create("device");
    const auto host = KVStore::Create("device");
    test::StoreProgram(seed, folder, gpu.get(), host.get()).Run(30);
  });
}

// ------------------------------------------------------------------------------------------ homes
TEST_F(GpuStores, KeysAreAtHomeWhereTheirValuesAreTheLargestFirst) {
  const auto store = KVStore::Create("device");
  const std::vector<int64_t> sizes = {10, 400, 300, 90};
  std::vector<NDArray> values;
  std::vector<std::vector<const NDArray*>> lists(sizes.size());
  std::vector<PushItem> items;
  values.reserve(3 * sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    store->Init(static_cast<int64_t>(i), NDArray::Zeros({sizes[i]}));
    for (const int32_t gpu : {1, 0, 2}) {
      values.push_back(Full({sizes[i]}, 1, DType::kF32, Gpu(gpu)));
      lists[i].push_back(&values.back());
    }
    items.push_back({static_cast<int64_t>(i), lists[i]});
  }
  const auto home = [&](int64_t key) { return store->Describe(key).context; };
  EXPECT_EQ(home(0), Context::Cpu());
  store->Push(items);
  EXPECT_EQ(home(1), Gpu(0));  // 400 on the first of three empty GPUs
  EXPECT_EQ(home(2), Gpu(1));  // 300
  EXPECT_EQ(home(3), Gpu(2));  // 90
  EXPECT_EQ(home(0), Gpu(2));  // 10, on the GPU with 90
  store->Push(0, Full({10}, 1, DType::kF32, Gpu(0)));
  EXPECT_EQ(home(0), Gpu(2)) << "a home stays";
  store->Delete(1);
  store->Init(1, NDArray::Zeros({400}));
  store->Push(1, std::vector<NDArray>(values.begin() + 3, values.begin() + 6));
  EXPECT_EQ(home(1), Gpu(0)) << "what is deleted does not count";
}

TEST_F(GpuStores, ABroadcastToTheHostCreatesNothingInAStoreOfGpus) {
  const auto store = KVStore::Create("nccl");
  const NDArray value = Full({3}, 5, DType::kF32, Gpu(0));
  const NDArray on_host = Full({3}, 0);
  const NDArray on_gpu = Full({3}, 0, DType::kF32, Gpu(0));
  const NDArray* const outs[] = {&on_host, &on_gpu};
  const InitItem item{"w", &value};
  const PullItem refused{"w", {outs, 1}};
  const PullItem taken{"w", {outs + 1, 1}};
  EXPECT_FAILS(Code::kInvalidArgument, store->Broadcast({&item, 1}, {&refused, 1}));
  EXPECT_EQ(store->size(), 0U);
  store->Broadcast({&item, 1}, {&taken, 1});
  EXPECT_EQ(ValuesOf(on_gpu), ValuesOf(value));
}

TEST_F(GpuStores, GiveFunctionsTheSumsOfSixteenBitValuesInFloat32) {
  const auto store = KVStore::Create("device");
  for (const int64_t size : {3, 5000}) {
    store->Init(size, Full({size}, 0, DType::kF16));
    NDArray seen;
    store->SetUpdater([&](const KeyView&, const NDArray& sum, const NDArray&) { seen = sum; }, {},
                      SumType::kWide);
    const NDArray value = Full({size}, 60000, DType::kF16, Gpu(0));
    store->Push(size, std::vector{value, value});
    EXPECT_EQ(seen.dtype(), DType::kF32);
    EXPECT_EQ(seen.context(), Gpu(0));
    EXPECT_EQ(ValuesOf(seen), std::vector<float>(static_cast<size_t>(size), 120000));
  }
}

TEST_F(GpuStores, OfTheKindLocalKeepAllOnTheHost) {
  const auto store = KVStore::Create("local");
  store->Init(1, Floats({1, 2}));
  store->Push(1, Full({2}, 3, DType::kF32, Gpu(0)));
  EXPECT_EQ(store->Describe(1).context, Context::Cpu());
  const NDArray out = NDArray::Zeros({2}, DType::kF32, Gpu(1));
  store->Pull(1, out);
  EXPECT_EQ(ValuesOf(out), (std::vector<float>{3, 3}));
}

// --------------------------------------------------------------------------------------- launches
// Keys on two GPUs.  Each has a value and an output on either GPU.
struct Many {
  explicit Many(size_t count) {
    std::vector<NDArray>* const all[] = {&grads, &outs};
    for (size_t i = 0; i < count; ++i) {
      names.push_back(Format("k{}", i));
      for (int32_t gpu = 0; gpu < 2; ++gpu) {
        for (auto* const arrays : all) arrays->push_back(Full({7}, 1, DType::kF32, Gpu(gpu)));
      }
      store->Init(names[i], NDArray::Zeros({7}));
    }
    store->SetOptimizer(Optimizer::Create("adam"));
    for (size_t i = 0; i < count; ++i) {
      grad_lists.push_back({&grads[2 * i], &grads[2 * i + 1]});
      out_lists.push_back({&outs[2 * i], &outs[2 * i + 1]});
    }
    for (size_t i = 0; i < count; ++i) {
      pushes.push_back({names[i], grad_lists[i]});
      pulls.push_back({names[i], out_lists[i]});
    }
  }
  std::unique_ptr<KVStore> store = KVStore::Create("device");
  std::vector<std::string> names;
  std::vector<NDArray> grads, outs;
  std::vector<std::vector<const NDArray*>> grad_lists, out_lists;
  std::vector<PushItem> pushes;
  std::vector<PullItem> pulls;
};

TEST_F(GpuStores, UpdateAllKeysOfACallInOneLaunchOfEachGpu) {
  Many many(400);
  many.store->PushPull(many.pushes, many.pulls);  // assigns the homes
  const int before = FAKE(fake_launches)();
  many.store->PushPull(many.pushes, many.pulls);
  EXPECT_EQ(FAKE(fake_launches)() - before, 2);
  many.store->Push(many.pushes);
  EXPECT_EQ(FAKE(fake_launches)() - before, 4);
  many.store->Pull(many.pulls);
  EXPECT_EQ(FAKE(fake_launches)() - before, 6);
  EXPECT_EQ(ValuesOf(many.outs[0]), ValuesOf(many.outs[799]));
}

// --------------------------------------------------------------------------------------- failures
TEST_F(GpuStores, UpdateKeysOfACallWithScalarsOfTheirOwn) {
  test::CheckThatKeysHaveScalarsOfTheirOwn(Gpu(0));
}

TEST_F(GpuStores, AreAsTheyWereAfterACallThatFails) {
  for (const bool pulls : {false, true}) {
    int32_t gpu = NextIndex();
    const int calls = test::ForEachCall(test::kOperatingSystem, [&](int k) {
      FAKE(fake_fail)(0, 0);
      const auto store = KVStore::Create("device");
      store->Init("a", Floats({1, 2, 3}));
      store->Init("b", Full({3}, 1, DType::kF64));  // needs a launch of its own
      const NDArray grad = Full({3}, 1, DType::kF32, Context::Gpu(gpu));
      const NDArray wide = Full({3}, 1, DType::kF64, Context::Gpu(gpu));
      const NDArray out = Full({3}, 7, DType::kF32, Context::Gpu(gpu));
      store->SetOptimizer(Optimizer::Create("adam", {{"learning_rate", 0.5}}));
      if (k % 2 == 0) store->Push("a", grad);
      const auto before = test::Values(Pulled(*store, "a"));
      const auto round = store->Round("a");
      const NDArray* const grads[] = {&grad};
      const NDArray* const outs[] = {&out};
      const NDArray* const wide_grads[] = {&wide};
      const PushItem pushed[] = {{"a", grads}, {"b", wide_grads}};
      const PullItem pulled[] = {{"a", outs}};
      FailureOf([] { WaitAll(); });  // reports lost GPUs
      FAKE(fake_fail)(k, test::kOperatingSystem);
      const auto failure =
          FailureOf([&] { pulls ? store->PushPull(pushed, pulled) : store->Push(pushed); });
      FAKE(fake_fail)(0, 0);
      if (FailureOf([&] { CheckUsable(Context::Gpu(gpu)); }).code == Code::kUnavailable) {
        gpu = NextIndex();
        return;
      }
      // A pull that is refused after its push reports that the push counts.
      if (failure.code && !failure.message.ends_with("what the call has pushed counts")) {
        EXPECT_EQ(test::Values(Pulled(*store, "a")), before) << k << ": " << failure.message;
        EXPECT_EQ(store->Round("a"), round);
        store->Push(pushed);
      }
      EXPECT_NE(test::Values(Pulled(*store, "a")), before) << k;
      EXPECT_EQ(store->Round("b"), 1U);
    });
    EXPECT_GT(calls, 10);
  }
}

TEST_F(GpuStores, AreAsTheyWereAfterAnAllocationThatFails) {
  bool has_enough = false;
  for (int allocations = 0; !has_enough; ++allocations) {
    const auto store = KVStore::Create("device");
    store->Init("a", Floats({1, 2, 3}));
    store->SetOptimizer(Optimizer::Create("adam", {{"learning_rate", 0.5}}));
    const NDArray grad = Full({3}, 1, DType::kF32, Gpu(0));
    const NDArray out = Full({3}, 7, DType::kF32, Gpu(1));
    std::string text;  // which needs no memory of its own
    text.reserve(1000);
    const std::vector grads = {grad};
    const std::vector outs = {out};
    const auto attempt = WithMemoryFor(allocations, [&] {
      try {
        store->PushPull("a", grads, outs);
      } catch (const Error& error) {
        text = error.what();
        throw;
      }
    });
    has_enough = !attempt.ran_out;
    const auto value = test::Values(Pulled(*store, "a"));
    const bool counts = attempt.succeeded || text.ends_with("what the call has pushed counts");
    EXPECT_EQ(value != std::vector<float>({1, 2, 3}), counts) << allocations << ": " << text;
  }
}

// Such a push may fail after the values have moved; then the homes stay.
TEST_F(GpuStores, GiveHomesToAllKeysOfAPushWithoutMemoryOrToNone) {
  std::vector<NDArray> values;
  std::vector<const NDArray*> pointers;
  std::vector<PushItem> pushes;
  for (int32_t i = 0; i < 3; ++i) values.push_back(Full({3}, 1, DType::kF32, Gpu(i)));
  for (const NDArray& value : values) pointers.push_back(&value);
  for (size_t i = 0; i < 3; ++i) pushes.push_back({static_cast<int64_t>(i), {&pointers[i], 1}});
  bool has_enough = false;
  for (int allocations = 0; !has_enough; ++allocations) {
    const auto store = KVStore::Create("device");
    for (int64_t key = 0; key < 3; ++key) store->Init(key, Floats({1, 2, 3}));
    const auto attempt = WithMemoryFor(allocations, [&] { store->Push(pushes); });
    has_enough = !attempt.ran_out;
    const bool has_homes = store->Describe(0).context != Context::Cpu();
    EXPECT_GE(has_homes, attempt.succeeded);
    for (int64_t key = 0; key < 3; ++key) {
      store->Push(key, Floats({1, 2, 3}));  // a value on the host gives no home
      const Context home = has_homes ? Gpu(static_cast<int32_t>(key)) : Context::Cpu();
      EXPECT_EQ(store->Describe(key).context.ToString(), home.ToString()) << allocations;
    }
  }
}

TEST_F(GpuStores, WithoutRoomOnTheGpuSayForWhichKeyAndGoOn) {
  const auto store = KVStore::Create("device");
  const Context context = Context::Gpu(NextIndex());  // has 64 MiB
  store->Init("small", NDArray::Zeros({4}));
  store->Init("large", NDArray::Zeros({12 << 20}));
  const NDArray grad = Full({12 << 20}, 1, DType::kF32, context);
  const auto failure = FailureOf([&] { store->Push("large", grad); });
  EXPECT_EQ(failure.code, Code::kResourceExhausted);
  EXPECT_NE(failure.message.find("push 'large': "), std::string::npos) << failure.message;
  EXPECT_EQ(store->Describe("large").context, Context::Cpu());
  store->Push("large", Full({12 << 20}, 2));
  EXPECT_EQ(test::Values(Pulled(*store, "large"))[5], 2);
  store->Push("small", Full({4}, 3, DType::kF32, context));
  EXPECT_EQ(store->Describe("small").context, context);
}

TEST_F(GpuStores, OfALostGpuSayWhichKeyAndGoOnWithTheOthers) {
  const auto store = KVStore::Create("device");
  const Context lost = Context::Gpu(NextIndex());
  for (const char* key : {"there", "elsewhere", "host"}) store->Init(key, Floats({1, 2}));
  store->SetOptimizer(Optimizer::Create("momentum"));
  store->Push("there", Full({2}, 1, DType::kF32, lost));
  store->Push("elsewhere", Full({2}, 1, DType::kF32, Gpu(0)));
  const auto folder = std::filesystem::temp_directory_path() /
                      Format("tkv-gpu-lost-{}", static_cast<int>(getpid()));
  store->Save(folder);
  FAKE(fake_lose)(lost.index, test::kIllegalAddress);
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { store->Push("there", Full({2}, 1)); }, [&] { Pulled(*store, "there"); },
           [&] { store->Push("there", Full({2}, 1, DType::kF32, Gpu(0))); }}) {
    const auto failure = FailureOf(use);
    EXPECT_EQ(failure.code, Code::kUnavailable) << failure.message;
    EXPECT_NE(failure.message.find("there"), std::string::npos) << failure.message;
  }
  store->Push("elsewhere", Full({2}, 1));
  store->Push("host", Full({2}, 1));
  store->Load(folder);  // the lost values are restored, on the host
  std::filesystem::remove_all(folder);
  const auto value = test::Values(Pulled(*store, "there"));
  EXPECT_EQ(value, test::Values(Pulled(*store, "elsewhere")));
  store->Push("there", Full({2}, 1, DType::kF32, Gpu(1)));
  EXPECT_EQ(store->Describe("there").context, Gpu(1));
  store->Delete("there");
  store->Init("there", Floats({5, 5}));
}

// Keys on two GPUs and on the host.  The second GPU refuses its launch.  Fails each driver call in
// turn until it is that launch.
TEST_F(GpuStores, OfAGpuThatRefusesAfterAnotherHasBegunLoseItAndUpdateTheRest) {
  const NDArray on_host = Full({3}, 1);
  const auto push = [](KVStore& to, const NDArray& a, const NDArray& b, const NDArray& h) {
    const NDArray* const lists[] = {&a, &b, &h};
    const PushItem items[] = {
        {"aa", {&lists[0], 1}}, {"bb", {&lists[1], 1}}, {"hh", {&lists[2], 1}}};
    to.Push(items);
  };
  const auto make = [&](const NDArray& a, const NDArray& b) {
    auto store = KVStore::Create("device");
    for (const char* key : {"aa", "bb", "hh"}) store->Init(key, Floats({1, 2, 3}));
    store->SetOptimizer(Optimizer::Create("momentum", {{"learning_rate", 0.5}}));
    push(*store, a, b, on_host);
    return store;
  };
  Context first = Context::Gpu(NextIndex());
  Context second = Context::Gpu(NextIndex());
  for (int k = 1;; ++k) {
    ASSERT_LT(k, 100);
    const NDArray a = Full({3}, 1, DType::kF32, first);
    const NDArray b = Full({3}, 1, DType::kF32, second);
    const auto store = make(a, b);
    WaitAll();
    FAKE(fake_fail)(k, test::kOutOfMemory);
    const auto failure = FailureOf([&] { push(*store, a, b, on_host); });
    FAKE(fake_fail)(0, 0);
    if (FailureOf([&] {
          CheckUsable(first);
        }).code) {  // a context could not be popped, for example
      first = Context::Gpu(NextIndex());
      continue;
    }
    if (!failure.message.ends_with("what the call has pushed to other keys counts")) {
      if (FailureOf([&] { CheckUsable(second); }).code) second = Context::Gpu(NextIndex());
      continue;
    }
    EXPECT_EQ(failure.message.find("push 'bb': gpu("), 0U) << failure.message;
    EXPECT_FAILS(Code::kUnavailable, CheckUsable(second));
    EXPECT_FAILS(Code::kUnavailable, Pulled(*store, "bb"));
    const auto twin = make(on_host, on_host);
    push(*twin, on_host, on_host, on_host);
    for (const char* key : {"aa", "hh"}) {
      EXPECT_TRUE(test::SameBytes(Pulled(*store, key), Pulled(*twin, key))) << key;
      EXPECT_EQ(store->Round(key), twin->Round(key));
      store->Push(key, on_host);  // with the states of the value
      twin->Push(key, on_host);
      EXPECT_TRUE(test::SameBytes(Pulled(*store, key), Pulled(*twin, key))) << key;
    }
    return;
  }
}

// Refuses the second launch of a call while no memory is left for reporting it.  Memory that the
// first launch uses must still count as in use.
TEST_F(GpuStores, KnowWhatALaunchUsesWhereTheNextOneIsRefused) {
  const auto make = [](DType dtype, Context context) { return Full({10}, 1, dtype, context); };
  for (int n = 0; n < 12; ++n) {
    const Context context = Context::Gpu(NextIndex());
    const NDArray values[] = {make(DType::kF32, context), make(DType::kF64, context)};
    const NDArray sources[] = {make(DType::kF32, context), make(DType::kF64, context)};
    WaitAll();
    GpuBatches gpus("push");
    GpuBatch& batch = gpus.Of(values[0]);
    for (size_t i = 0; i < 2; ++i) {
      const void* const source = sources[i].data();
      TileJob job;
      job.dtype = values[i].dtype();
      job.count = 10;
      job.sources = {&source, 1};
      job.value = values[i].data();
      batch.Names("k");
      batch.Add(job, {}, 0);
      batch.Reads(sources[i]);
      batch.Writes(values[i]);
    }
    gpus.Prepare();
    gpus.Enter();
    FAKE(fake_stop)(1);
    FAKE(fake_fail)(5, test::kOutOfMemory);  // push the context, launch, pop it; push, launch
    const auto attempt = WithMemoryFor(n, [&] { gpus.Run(); });
    FAKE(fake_fail)(0, 0);
    EXPECT_FALSE(attempt.succeeded);
    EXPECT_TRUE(gpus.has_begun());
    EXPECT_TRUE(values[0].storage()->IsInUse(Access::kWrite)) << n;
    FAKE(fake_stop)(0);
    EXPECT_EQ(ValuesOf(values[0])[0], 1);
  }
}

TEST_F(GpuStores, NameTheKeyWhoseGpuItIs) {
  const Context lost = Context::Gpu(NextIndex());
  const auto store = KVStore::Create("device");
  for (const char* key : {"a", "b"}) store->Init(key, Floats({1, 2}));
  store->Push("a", Full({2}, 1, DType::kF32, lost));
  store->Push("b", Full({2}, 1, DType::kF32, Gpu(0)));
  FAKE(fake_lose)(lost.index, test::kIllegalAddress);
  const NDArray value = Full({2}, 1);
  const NDArray* const values[] = {&value};
  const PushItem items[] = {{"b", values}, {"a", values}};
  EXPECT_EQ(FailureOf([&] { store->Push(items); }).message.find("push 'a': "), 0U);
  const auto folder = std::filesystem::temp_directory_path() /
                      Format("tkv-gpu-name-{}", static_cast<int>(getpid()));
  const auto failure = FailureOf([&] { store->Save(folder); });
  EXPECT_NE(failure.message.find("'a': gpu("), std::string::npos) << failure.message;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

// A call must decide once whether it compresses.
TEST_F(GpuStores, MayBeToldToCompressWhileAnotherThreadPushes) {
  const auto store = KVStore::Create("device");
  store->Init("w", NDArray::Zeros({3000}));
  const NDArray value = Full({3000}, 1, DType::kF32, Gpu(0));
  std::atomic<bool> is_done = false;
  std::thread telling([&] {
    while (!is_done) {
      store->SetGradientCompression(Compression{.type = "2bit", .threshold = 0.5}, "*");
      store->SetGradientCompression(Compression{.type = "none"}, "*");
    }
  });
  for (int i = 0; i < 300; ++i) store->Push("w", value);
  is_done = true;
  telling.join();
  store->Push("w", value);  // sends the residual, too
  EXPECT_GE(test::Values(Pulled(*store, "w"))[2999], 1);
}

// Threads with their own keys on the same two GPUs, which exchange arrays.
TEST_F(GpuStores, OfSeveralThreadsDoNotWaitForEachOtherForEver) {
  const auto store = KVStore::Create("device");
  const NDArray shared[] = {Full({600}, 1, DType::kF32, Gpu(0)),
                            Full({600}, 1, DType::kF32, Gpu(1))};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string names[] = {Format("a{}", t), Format("b{}", t)};
      const NDArray grads[] = {Full({600}, 1, DType::kF32, Gpu(t % 2)),
                               Full({600}, 1, DType::kF32, Gpu(1 - t % 2))};
      const NDArray outs[] = {Full({600}, 0, DType::kF32, Gpu(1)), shared[t % 2]};
      for (const std::string& name : names) store->Init(name, NDArray::Zeros({600}));
      for (int i = 0; i < 20; ++i) {
        const NDArray* const first[] = {&grads[0], &shared[1 - t % 2]};
        const NDArray* const second[] = {&grads[1]};
        const NDArray* const first_out[] = {&outs[0]};
        const NDArray* const second_out[] = {&outs[1]};
        const PushItem pushes[] = {{names[0], first}, {names[1], second}};
        const PullItem pulls[] = {{names[0], first_out}, {names[1], second_out}};
        store->PushPull(pushes, pulls);
      }
      EXPECT_EQ(test::Values(Pulled(*store, names[1]))[599], 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tkv
