// Random programs of all verbs, run by a store with arrays on GPUs and by a store on the host,
// which must agree.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tests/gpu/fake/fixture.h"
#include "tests/gpu/same_values.h"
#include "tkv/gpu.h"
#include "tkv/kvstore.h"
#include "tkv/ops.h"

namespace tkv::test {

// Returns the context of a GPU.  On the fake driver it is none of NextIndex's devices, because a
// test may lose these.
inline Context Gpu(int32_t index) {
  const int count = GpuCount();
  return Context::Gpu(count >= 1000 ? 990 + index : index % count);
}

inline NDArray Pulled(KVStore& store, const KeyView& key) {
  const auto info = store.Describe(key);
  const NDArray out = NDArray::Zeros(info.shape, info.dtype);
  store.Pull(key, out);
  return out;
}

// An array of the store under test, and its counterpart on the host.
struct Twin {
  NDArray array;
  NDArray host;
};

// Makes the same calls on two stores: one with arrays on GPUs, one with their counterparts on the
// host.
class StoreProgram {
 public:
  //   gpu, host  two stores of one kind, without keys
  //   folder     for snapshots
  StoreProgram(uint64_t seed, std::filesystem::path folder, KVStore* gpu, KVStore* host)
      : random_(seed), folder_(std::move(folder)), gpu_(gpu), host_(host) {}

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

  static constexpr std::chrono::seconds kPatience{30};

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

  // Returns outputs for the keys of `values`, or for any keys if it is null.
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

  // Run a verb. `how` 0 waits for its ticket, 1 drops the ticket, and another value calls the
  // synchronous verb.  Push never drops a ticket.
  void Push(KVStore& store, const std::vector<PushItem>& items, size_t how) {
    if (how == 0) return void(store.PushAsync(items)->Wait(kPatience));
    store.Push(items);
  }
  void Pull(KVStore& store, const std::vector<PullItem>& items, size_t how) {
    if (how > 1) return store.Pull(items);
    const Ticket ticket = store.PullAsync(items);
    if (how == 0) ticket->Wait(kPatience);
  }
  void PushPull(KVStore& store, const std::vector<PushItem>& items,
                const std::vector<PullItem>& outs, size_t how) {
    if (how > 1) return store.PushPull(items, outs);
    const Ticket ticket = store.PushPullAsync(items, outs);
    if (how == 0) ticket->Wait(kPatience);
  }

  void Both(const std::string& what, const std::function<void(KVStore&, bool)>& action) {
    const auto there = FailureOf([&] { action(*gpu_, true); });
    const auto here = FailureOf([&] { action(*host_, false); });
    EXPECT_EQ(there.code, here.code) << what << ": " << there.message << "; " << here.message;
  }

  void Step() {
    const size_t how = Below(6);
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
          Push(store, Items<PushItem>(call, on_gpu ? call.gpu : call.host), how);
        });
      }
      case 7:
      case 8: {
        const Call call = Outs(nullptr);
        return Both("pull", [&](KVStore& store, bool on_gpu) {
          Pull(store, Items<PullItem>(call, on_gpu ? call.gpu : call.host), how);
        });
      }
      default: {
        const Call values = Values(5);
        const Call outs = Outs(Below(3) == 0 ? nullptr : &values);
        return Both("pushpull", [&](KVStore& store, bool on_gpu) {
          PushPull(store, Items<PushItem>(values, on_gpu ? values.gpu : values.host),
                   Items<PullItem>(outs, on_gpu ? outs.gpu : outs.host), how);
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
    WaitAll();
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

  std::mt19937_64 random_;
  const std::filesystem::path folder_;
  KVStore* const gpu_;
  KVStore* const host_;
  std::vector<Key> keys_;
  int names_ = 0;
};

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Runs program(seed, folder) for many seeds, each with another order of the devices' work.
//   share  runs 1/share of the number of seeds that the environment sets
template <typename F>
void ForSeeds(const char* name, F program, uint64_t share = 1) {
  const uint64_t first = FromEnvironment("TKV_TEST_GPU_SEED", 1);
  const uint64_t count =
      std::max<uint64_t>(1, FromEnvironment("TKV_TEST_GPU_PROGRAMS", 60) / share);
  const auto folder =
      std::filesystem::temp_directory_path() / Format("{}-{}", name, static_cast<int>(getpid()));
  std::filesystem::create_directories(folder);
  for (uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    if (auto* const order = FAKE(fake_seed)) order(seed);
    SCOPED_TRACE(Format("seed {}", seed));
    program(seed, folder);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace tkv::test
