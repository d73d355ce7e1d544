// Stores of one process with values, outputs and keys on GPUs, on the pretended driver: what a store on the
// host does, whatever the order in which the devices work, and one launch for a call.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/gpu/fake/fixture.h"
#include "tests/gpu/same_values.h"
#include "tests/scarce_memory.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

using test::FailureOf;
using test::Floats;
using test::Full;
using test::NextIndex;
using test::OnHost;
using test::SameValues;
using test::ValuesOf;
using test::WithMemoryFor;

using Random = std::mt19937_64;
using GpuStores = test::OnFakeDriver;

// Not those that NextIndex has: no test loses them.
constexpr int32_t kFirstGpu = 990;
Context Gpu(int32_t index) { return Context::Gpu(kFirstGpu + index); }

NDArray Pulled(KVStore& store, const KeyView& key) {
  const auto info = store.Describe(key);
  const NDArray out = NDArray::Zeros(info.shape, info.dtype);
  store.Pull(key, out);
  return out;
}

// ----------------------------------------------------------------------------------- random calls

// An array of the store under test, and one of the host that has to be the same.
struct Twin {
  NDArray array;
  NDArray host;
};

// Two stores that get the same calls: one with arrays on GPUs, one with their twins.
class Program {
 public:
  Program(uint64_t seed, std::filesystem::path folder)
      : random_(seed), folder_(std::move(folder)) {}

  void Run(int steps) {
    for (int i = 0; i < 4; ++i) Init();
    for (int i = 0; i < steps; ++i) {
      Step();
      if (Below(4) == 0) Compare();
    }
    Compare();
  }

 private:
  struct Key {
    std::string name;
    Shape shape;
    DType dtype;
    std::vector<Twin> arrays;  // of its shape and dtype, some of which overlap
    std::vector<Twin> others;  // outputs of other dtypes
  };
  struct Call {
    std::vector<std::vector<const NDArray*>> gpu, host;  // of each key
    std::vector<size_t> keys;
  };

  size_t Below(size_t end) { return random_() % end; }

  Context AnyContext() {
    const size_t i = Below(6);
    return i < 2 ? Context::Cpu(static_cast<int32_t>(i)) : Gpu(static_cast<int32_t>(i - 2));
  }

  Twin Make(const Shape& shape, DType dtype) {
    const NDArray host = NDArray::Empty(shape, dtype);
    for (int64_t i = 0; i < host.size(); ++i) {
      const auto value =
          static_cast<float>(Below(64)) / (IsFloat(dtype) ? 16 : 1) - (IsFloat(dtype) ? 2 : 0);
      if (dtype == DType::kBool) {
        static_cast<bool*>(host.HostData())[i] = Below(2) != 0;
      } else {
        kernels::Convert(
            DType::kF32, &value, dtype,
            static_cast<char*>(host.HostData()) + i * static_cast<int64_t>(ItemSize(dtype)), 1);
      }
    }
    return {host.WithContext(AnyContext()), host.Copy()};
  }

  void Init() {
    constexpr DType kTypes[] = {DType::kF32,  DType::kF32, DType::kF64, DType::kF16,
                                DType::kBF16, DType::kI32, DType::kU8,  DType::kBool};
    const int64_t sizes[] = {0, 1, 5, 1030, 2500};
    const auto n = sizes[Below(5)];
    Key key{Format("k{}", names_++),
            Below(3) == 0 ? Shape{n, 2} : Shape{n},
            kTypes[Below(std::size(kTypes))],
            {},
            {}};
    for (int i = 0; i < 4; ++i) key.arrays.push_back(Make(key.shape, key.dtype));
    const Twin large = Make({n + 3, 2}, key.dtype);  // of which two slices overlap
    for (const int64_t begin : {0, 2}) {
      const auto part = [&](const NDArray& array) {
        const NDArray rows = array.Slice(begin, begin + n);
        return key.shape.rank() == 2 ? rows : rows.Reshape({2 * n}).Slice(0, n);
      };
      key.arrays.push_back({part(large.array), part(large.host)});
    }
    if (IsFloat(key.dtype)) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
        key.others.push_back(Make(key.shape, dtype));
      }
    }
    const Twin& value = key.arrays[Below(4)];
    gpu_->Init(key.name, value.array);
    host_->Init(key.name, value.host);
    keys_.push_back(std::move(key));
  }

  const Twin& Any(const std::vector<Twin>& twins) { return twins[Below(twins.size())]; }

  Call Values(size_t most) {
    Call call;
    for (size_t i = 0; i < 1 + Below(4); ++i) {
      const size_t k = Below(keys_.size());
      const Key& key = keys_[k];
      if (std::ranges::find(call.keys, k) != call.keys.end()) continue;
      call.keys.push_back(k);
      auto& gpu = call.gpu.emplace_back();
      auto& host = call.host.emplace_back();
      const size_t count = key.dtype == DType::kBool ? 1 : 1 + Below(Below(4) == 0 ? 12 : most);
      for (size_t n = 0; n < count; ++n) {
        const Twin& twin = Any(key.arrays);
        gpu.push_back(&twin.array);
        host.push_back(&twin.host);
      }
    }
    return call;
  }

  // Outputs for the keys of a call of values, or for any.
  Call Outs(const Call* values) {
    Call call = values == nullptr ? Values(2) : *values;
    for (size_t i = 0; i < call.keys.size(); ++i) {
      const Key& key = keys_[call.keys[i]];
      call.gpu[i].clear();
      call.host[i].clear();
      for (size_t n = 0; n < 1 + Below(3); ++n) {
        const Twin& twin = !key.others.empty() && Below(4) == 0 ? Any(key.others) : Any(key.arrays);
        call.gpu[i].push_back(&twin.array);
        call.host[i].push_back(&twin.host);
      }
    }
    return call;
  }

  template <typename Item>
  std::vector<Item> Items(const Call& call,
                          const std::vector<std::vector<const NDArray*>>& arrays) {
    std::vector<Item> items;
    for (size_t i = 0; i < call.keys.size(); ++i) {
      items.push_back({keys_[call.keys[i]].name, arrays[i]});
    }
    return items;
  }

  void Both(const std::string& what, const std::function<void(KVStore&, bool)>& action) {
    const auto there = FailureOf([&] { action(*gpu_, true); });
    const auto here = FailureOf([&] { action(*host_, false); });
    EXPECT_EQ(there.code, here.code) << what << ": " << there.message << "; " << here.message;
  }

  void Step() {
    switch (Below(12)) {
      case 0:
        if (keys_.size() < 12) return Init();
        return Delete();
      case 1:
        return Update();
      case 2:
        return SaveAndLoad();
      case 3:
        return PushRows();
      case 4:
      case 5:
      case 6: {
        const Call call = Values(5);
        return Both("push", [&](KVStore& store, bool on_gpu) {
          store.Push(Items<PushItem>(call, on_gpu ? call.gpu : call.host));
        });
      }
      case 7:
      case 8: {
        const Call call = Outs(nullptr);
        return Both("pull", [&](KVStore& store, bool on_gpu) {
          store.Pull(Items<PullItem>(call, on_gpu ? call.gpu : call.host));
        });
      }
      default: {
        const Call values = Values(5);
        const Call outs = Outs(Below(3) == 0 ? nullptr : &values);
        return Both("pushpull", [&](KVStore& store, bool on_gpu) {
          store.PushPull(Items<PushItem>(values, on_gpu ? values.gpu : values.host),
                         Items<PullItem>(outs, on_gpu ? outs.gpu : outs.host));
        });
      }
    }
  }

  void Delete() {
    const auto key = keys_.begin() + static_cast<ptrdiff_t>(Below(keys_.size()));
    Both("delete", [&](KVStore& store, bool) { store.Delete(key->name); });
    keys_.erase(key);
  }

  void Update() {
    switch (Below(8)) {
      case 0:
        return Both("set_updater", [](KVStore& store, bool) {
          store.SetUpdater([](const KeyView&, const NDArray& sum, const NDArray& stored) {
            BinaryInto(BinaryOp::kAdd, stored, Binary(BinaryOp::kMul, sum, 2), stored);
          });
        });
      case 1:
        return Both("set_gradient_compression", [](KVStore& store, bool) {
          store.SetGradientCompression(Compression{.type = "2bit", .threshold = 0.5}, "k1*");
        });
      default: {
        constexpr const char* kNames[] = {"sgd", "adam", "lamb", "nag", "rmsprop"};
        const char* const name = kNames[Below(std::size(kNames))];
        const bool has_masters = Below(2) == 0;
        return Both("set_optimizer", [&](KVStore& store, bool) {
          store.SetOptimizer(
              Optimizer::Create(name, {{"multi_precision", has_masters ? 1.0 : 0.0}}));
        });
      }
    }
  }

  void SaveAndLoad() {
    const bool states = Below(2) == 0;
    const Call call = Values(2);
    Both("save and load", [&](KVStore& store, bool on_gpu) {
      const std::string path = folder_ / (on_gpu ? "gpu" : "host");
      std::filesystem::remove_all(path);
      states ? store.SaveStates(path) : void(store.Save(path));
      store.Push(Items<PushItem>(call, on_gpu ? call.gpu : call.host));
      states ? store.LoadStates(path) : void(store.Load(path));
    });
  }

  void PushRows() {
    const Key& key = keys_[Below(keys_.size())];
    if (key.shape.rank() != 2 || key.shape[0] < 5) return;
    const int64_t ids[] = {1, 4};
    const Rows rows{NDArray::FromBytes(ids, {2}, DType::kI64), Full({2, 2}, 1, key.dtype)};
    const Rows* const values[] = {&rows};
    Both("push_rows", [&](KVStore& store, bool) {
      const RowsPushItem item{key.name, values};
      store.PushRows({&item, 1});
    });
  }

  void Compare() {
    for (const Key& key : keys_) {
      for (const auto* twins : {&key.arrays, &key.others}) {
        for (const Twin& twin : *twins) {
          ASSERT_TRUE(SameValues(OnHost(twin.array), twin.host.Packed())) << key.name;
        }
      }
      ASSERT_TRUE(SameValues(Pulled(*gpu_, key.name), Pulled(*host_, key.name))) << key.name;
      ASSERT_EQ(gpu_->Round(key.name), host_->Round(key.name));
    }
  }

  Random random_;
  const std::filesystem::path folder_;
  std::unique_ptr<KVStore> gpu_ = KVStore::Create("device");
  std::unique_ptr<KVStore> host_ = KVStore::Create("device");
  std::vector<Key> keys_;
  int names_ = 0;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST_F(GpuStores, DoWhatStoresOnTheHostDo) {
  const uint64_t first = FromEnvironment("TKV_TEST_GPU_SEED", 1);
  const auto folder = std::filesystem::temp_directory_path() /
                      Format("tkv-gpu-store-{}", static_cast<int>(getpid()));
  std::filesystem::create_directories(folder);
  for (uint64_t seed = first; seed < first + FromEnvironment("TKV_TEST_GPU_PROGRAMS", 60); ++seed) {
    FAKE(fake_seed)(seed);
    SCOPED_TRACE(Format("seed {}", seed));
    Program(seed, folder).Run(30);
    if (HasFailure()) break;
  }
  std::filesystem::remove_all(folder);
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
  EXPECT_EQ(home(1), Gpu(0));  // 400 on the first of three that have nothing
  EXPECT_EQ(home(2), Gpu(1));  // 300
  EXPECT_EQ(home(3), Gpu(2));  // 90
  EXPECT_EQ(home(0), Gpu(2));  // 10, where there are 90
  store->Push(0, Full({10}, 1, DType::kF32, Gpu(0)));
  EXPECT_EQ(home(0), Gpu(2)) << "a home stays";
  store->Delete(1);
  store->Init(1, NDArray::Zeros({400}));
  store->Push(1, std::vector<NDArray>(values.begin() + 3, values.begin() + 6));
  EXPECT_EQ(home(1), Gpu(0)) << "what is deleted does not count";
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
// So many keys on two GPUs, each with a value on either and an output there.
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
  many.store->PushPull(many.pushes, many.pulls);  // finds the homes
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
      FailureOf([] { WaitAll(); });  // of those that are lost
      FAKE(fake_fail)(k, test::kOperatingSystem);
      const auto failure =
          FailureOf([&] { pulls ? store->PushPull(pushed, pulled) : store->Push(pushed); });
      FAKE(fake_fail)(0, 0);
      if (FailureOf([&] { CheckUsable(Context::Gpu(gpu)); }).code == Code::kUnavailable) {
        gpu = NextIndex();
        return;
      }
      // A pull that is refused after its push says so.
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
  store->Load(folder);  // what was lost is there again, on the host
  std::filesystem::remove_all(folder);
  const auto value = test::Values(Pulled(*store, "there"));
  EXPECT_EQ(value, test::Values(Pulled(*store, "elsewhere")));
  store->Push("there", Full({2}, 1, DType::kF32, Gpu(1)));
  EXPECT_EQ(store->Describe("there").context, Gpu(1));
  store->Delete("there");
  store->Init("there", Floats({5, 5}));
}

// Keys on two GPUs and on the host, of which the second GPU refuses its launch: each call of the driver in
// turn until it is that one.
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
        }).code) {  // for a context that is not left, for example
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
      store->Push(key, on_host);  // with the states that belong to the value
      twin->Push(key, on_host);
      EXPECT_TRUE(test::SameBytes(Pulled(*store, key), Pulled(*twin, key))) << key;
    }
    return;
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

// A call decides once whether it compresses.
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
  store->Push("w", value);  // what is owed comes along
  EXPECT_GE(test::Values(Pulled(*store, "w"))[2999], 1);
}

// Threads with keys of their own on the same two GPUs, which give each other arrays.
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
