// Promises of the store of one process beyond the conformance suite.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/random.h"
#include "checkpoint/json.h"
#include "store/overlap.h"
#include "store/types.h"
#include "tests/arrays.h"
#include "tests/one_call.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;

// Holds a key of `store` inside an updater until it goes out of scope.
class HeldKey {
 public:
  HeldKey(KVStore& store, int64_t key) {
    store.SetUpdater([this](const KeyView&, const NDArray&, const NDArray&) {
      std::unique_lock lock(mutex_);
      inside_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return released_; });
    });
    pusher_ = std::thread([&store, key] { store.Push(key, Floats({1})); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return inside_; });
  }
  ~HeldKey() {
    {
      std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
    pusher_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool inside_ = false;
  bool released_ = false;
  std::thread pusher_;
};

StoreOptions ShortPatience() {
  StoreOptions options;
  options.patience = std::chrono::milliseconds(20);
  return options;
}

TEST(LocalStore, WaitingForAnotherThreadEndsWithItsPatience) {
  const auto store = KVStore::Create("local", ShortPatience());
  store->Init(1, Floats({0}));
  store->Init(2, Floats({5}));
  HeldKey held(*store, 1);
  EXPECT_FAILS(Code::kDeadlineExceeded, store->Pull(1, Floats({0})));
  EXPECT_FAILS(Code::kDeadlineExceeded, store->Close());
  const NDArray out = Floats({0});
  store->Pull(2, out);
  EXPECT_EQ(test::Values(out)[0], 5) << "other keys go on";
}

TEST(LocalStore, CloseEndsThoseWhoWaitForAKeyAndLetsTheUpdaterFinish) {
  const auto store = KVStore::Create("local");
  store->Init(1, Floats({0}));
  std::thread closer;
  {
    HeldKey held(*store, 1);
    closer = std::thread([&] { store->Close(); });
    const auto pull = test::FailureOf([&] { store->Pull(1, Floats({0})); });
    EXPECT_EQ(pull.code, Code::kFailedPrecondition);
    EXPECT_EQ(pull.message, "pull: the store is closed");
    EXPECT_FAILS(Code::kFailedPrecondition, store->Delete(1));
  }
  closer.join();
  EXPECT_FAILS(Code::kFailedPrecondition, store->size());
}

TEST(LocalStore, AnUpdaterUsesOtherKeysWhileTheStoreIsClosing) {
  const auto store = KVStore::Create("local");
  store->Init(1, Floats({0}));
  store->Init(2, Floats({0}));
  std::thread closer;
  bool has_pushed = false;
  store->SetUpdater([&](const KeyView& key, const NDArray&, const NDArray&) {
    if (key.number == 2) return;
    closer = std::thread([&] { store->Close(); });
    // The store is closing as soon as other threads are refused.
    std::thread([&] {
      while (!test::FailureOf([&] { store->Contains(2); }).code) std::this_thread::yield();
    }).join();
    store->Push(2, Floats({1}));
    has_pushed = true;
  });
  store->Push(1, Floats({1}));
  closer.join();
  EXPECT_TRUE(has_pushed);
}

TEST(LocalStore, WhoWaitsForAKeyThatIsDeletedIsToldSo) {
  std::optional<HeldKey> held;
  std::unique_ptr<KVStore> store;
  StoreOptions options;
  options.patience = std::chrono::seconds(5);
  options.interrupt = [&] {  // runs on the waiting thread, like a signal's handler
    if (!held) return;
    held.reset();
    store->Delete(1);
  };
  store = KVStore::Create("local", options);
  store->Init(1, Floats({0}));
  store->Init(2, Floats({0}));
  held.emplace(*store, 1);
  const auto pull = test::FailureOf([&] { store->Pull(1, Floats({0})); });
  EXPECT_EQ(pull.code, Code::kNotFound);
  EXPECT_EQ(pull.message, "pull 1: the key has been deleted meanwhile");
  EXPECT_EQ(store->size(), 1U);
}

TEST(LocalStore, AnUpdaterIsFreedWithoutTheLockOfTheStore) {
  const auto store = KVStore::Create("local");
  int freed = 0;
  const auto updater_that_looks = [&] {
    // The owner's destructor waits for a thread that uses the store.
    auto owner = std::shared_ptr<void>(nullptr, [&](void*) {
      std::thread([&] { test::FailureOf([&] { store->size(); }); }).join();
      ++freed;
    });
    return [owner = std::move(owner)](const KeyView&, const NDArray&, const NDArray&) {};
  };
  store->SetUpdater(updater_that_looks());
  store->SetUpdater({});
  EXPECT_EQ(freed, 1);
  store->SetUpdater(updater_that_looks());
  store->SetOptimizer(Optimizer::Create("sgd"));
  EXPECT_EQ(freed, 2);
  store->SetUpdater(updater_that_looks());
  store->Close();
  EXPECT_EQ(freed, 3);
}

TEST(LocalStore, AChildOfForkGetsAnErrorAndNeverHangs) {
  const auto store = KVStore::Create("local");
  store->Init(1, Floats({0}));
  HeldKey held(*store, 1);
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = [](const std::function<void()>& action) {
      return test::FailureOf(action).code == Code::kFailedPrecondition;
    };
    const bool ok = refused([&] { store->Push(1, Floats({1})); }) &&
                    refused([&] { store->Keys(); }) &&
                    SameBytes(Binary(BinaryOp::kAdd, Full({200000}, 1), 1), Full({200000}, 2));
    store->Close();
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(LocalStore, KeysOfOneCallHaveScalarsOfTheirOwn) {
  test::CheckThatKeysHaveScalarsOfTheirOwn(Context::Cpu());
}

TEST(LocalStore, LocalAndDeviceHaveTheSameBits) {
  const auto local = KVStore::Create("local");
  const auto device = KVStore::Create("device");
  std::vector<NDArray> values;
  for (int i = 0; i < 7; ++i) values.push_back(Full({100003}, 0.1 * i + 0.3));
  NDArray outs[] = {Full({100003}, 0), Full({100003}, 0)};
  for (KVStore* store : {local.get(), device.get()}) {
    store->Init(1, Full({100003}, 0));
    store->SetOptimizer(Optimizer::Create("adam"));
    store->Push(1, values);
  }
  local->Pull(1, outs[0]);
  device->Pull(1, outs[1]);
  EXPECT_TRUE(SameBytes(outs[0], outs[1]));
}

TEST(LocalStore, SpansOfAPushPullHaveTheKeysOfTheirPart) {
  const auto store = KVStore::Create("local");
  const NDArray a = Full({4}, 1);
  const NDArray b = Full({8}, 1);
  const NDArray c = Full({16}, 1);
  store->Init("a", a);
  store->Init("b", b);
  store->Init("c", c);
  const NDArray* const at_a = &a;
  const NDArray* const at_b = &b;
  const NDArray* const at_c = &c;
  store->StartTrace();
  store->PushPull(std::vector<PushItem>{{"a", {&at_a, 1}}, {"b", {&at_b, 1}}},
                  std::vector<PullItem>{{"b", {&at_b, 1}}});
  store->PushPull(std::vector<PushItem>{{"a", {&at_a, 1}}, {"a", {&at_a, 1}}},
                  std::vector<PullItem>{{"c", {&at_c, 1}}, {"b", {&at_b, 1}}, {"b", {&at_b, 1}}});
  const std::string file = ::testing::TempDir() + "tkv-spans-" + std::to_string(getpid());
  store->WriteTrace(file);
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  std::vector<std::string> found;
  const auto trace = checkpoint::ParseObject(text.str(), file);
  for (const auto& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph") != "X") continue;
    found.push_back(std::string(event.at("name").as_string()) + " " +
                    std::to_string(event.at("args").at("bytes").as_int64()));
  }
  EXPECT_EQ(found, (std::vector<std::string>{"push of 2 keys 48", "pull 'b' 32", "push 'a' 16",
                                             "pull of 2 keys 96"}));
}

// If the work for each key grew with the number of keys, this would take ten seconds.
TEST(LocalStore, VeryManyKeysAreBroadcastAndDeletedOneByOne) {
  constexpr int64_t kMany = 100'000;
  const auto store = KVStore::Create("local");
  const NDArray value = Full({1}, 7);
  const NDArray out = Full({1}, 0);
  const NDArray* const at_out = &out;
  std::vector<InitItem> items;
  std::vector<PullItem> outs;
  for (int64_t key = 0; key < kMany; ++key) {
    items.push_back({key, &value});
    outs.push_back({kMany - 1 - key, {&at_out, 1}});
  }
  store->Broadcast(items, outs);
  EXPECT_TRUE(SameBytes(out, value));
  outs[0].key = kMany;
  EXPECT_FAILS(Code::kInvalidArgument, store->Broadcast(items, outs));
  for (int64_t key = kMany - 1; key >= 0; --key) {
    if (key % 20'000 != 0) store->Delete(key);
  }
  std::vector<Key> left;
  for (int64_t key = 0; key < kMany; key += 20'000) left.emplace_back(KeyView(key));
  EXPECT_EQ(store->Keys(), left) << "in the order in which they were made";
}

TEST(LocalStore, OptionsAreChecked) {
  StoreOptions options;
  options.threads = -1;
  EXPECT_FAILS(Code::kInvalidArgument, KVStore::Create("local", options));
  options = {};
  options.patience = std::chrono::milliseconds(0);
  EXPECT_FAILS(Code::kInvalidArgument, KVStore::Create("local", options));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(LocalStore, AnArrayOfMoreThanTwoGiB) {
  constexpr int64_t kBytes = (int64_t{1} << 31) + 8;
  const auto store = KVStore::Create("local");
  {
    const NDArray value = Full({kBytes}, 1, DType::kU8);
    store->Init(1, value);
    store->Push(1, std::vector{value, value});
  }
  const NDArray out = Full({kBytes}, 0, DType::kU8);
  store->Pull(1, out);
  const auto* data = static_cast<const uint8_t*>(out.data());
  EXPECT_EQ(data[0], 2);
  EXPECT_EQ(data[(int64_t{1} << 31) - 1], 2);
  EXPECT_EQ(data[kBytes - 1], 2);
}
#endif

TEST(Overlap, OnlyWritesThatMeetAnotherArrayConflict) {
  const NDArray memory = Full({10}, 0);
  const auto conflicts = [&](std::vector<std::tuple<size_t, int, int, bool>> ranges) {
    OverlapCheck check;
    for (const auto& [group, begin, end, is_written] : ranges) {
      is_written ? check.Writes(group, memory.Slice(begin, end))
                 : check.Reads(group, memory.Slice(begin, end));
    }
    return check.Conflicts();
  };
  EXPECT_FALSE(conflicts({{0, 0, 5, false}, {1, 0, 5, false}, {2, 3, 8, false}}));
  EXPECT_FALSE(conflicts({{0, 0, 5, true}, {1, 5, 10, true}}));
  EXPECT_FALSE(conflicts({{0, 0, 5, true}, {0, 0, 5, false}, {0, 0, 5, true}}));
  EXPECT_TRUE(conflicts({{0, 0, 5, true}, {1, 0, 5, false}}));
  EXPECT_TRUE(conflicts({{0, 0, 5, false}, {1, 0, 5, false}, {0, 0, 5, true}}));
  EXPECT_TRUE(conflicts({{0, 0, 5, true}, {0, 1, 6, false}}));
  EXPECT_TRUE(conflicts({{0, 0, 10, false}, {1, 1, 2, false}, {1, 8, 9, true}}));
  EXPECT_FALSE(conflicts({{0, 4, 4, true}, {1, 0, 10, false}}));
  EXPECT_TRUE(conflicts({{1, 0, 6, false}, {0, 3, 9, false}, {0, 3, 9, true}}))
      << "the array that is written meets one that does not reach as far as its own other use";
}

// Few positions, so that ranges are often equal, meet or touch.
TEST(Overlap, IsWhatEachPairSays) {
  Random random(1);
  const NDArray memory = Full({6}, 0);
  struct Use {
    size_t group;
    int64_t begin, end;
    bool is_written;
  };
  const auto conflict = [](const Use& a, const Use& b) {
    const bool meet = a.begin < b.end && b.begin < a.end;
    const bool same = a.begin == b.begin && a.end == b.end && a.group == b.group;
    return meet && !same && (a.is_written || b.is_written);
  };
  int found = 0;
  for (int round = 0; round < 50000; ++round) {
    std::vector<Use> uses(static_cast<size_t>(random.Between(2, 6)));
    OverlapCheck check;
    for (Use& use : uses) {
      use = {static_cast<size_t>(random.Between(0, 2)), random.Between(0, 4), 0,
             random.Chance(0.4)};
      use.end = random.Between(use.begin + 1, 6);
      const NDArray part = memory.Slice(use.begin, use.end);
      use.is_written ? check.Writes(use.group, part) : check.Reads(use.group, part);
    }
    bool wanted = false;
    for (size_t i = 0; i < uses.size(); ++i) {
      for (size_t j = 0; j < i; ++j) wanted = wanted || conflict(uses[i], uses[j]);
    }
    ASSERT_EQ(check.Conflicts(), wanted) << round;
    found += static_cast<int>(wanted);
  }
  EXPECT_GT(found, 10000);
  EXPECT_LT(found, 49000);
}

TEST(StoreTypes, AreFoundInAnyCaseAndByTheirWholeName) {
  EXPECT_TRUE(FindStoreType("Dist_Async_P3")->is_async);
  EXPECT_FALSE(FindStoreType("dist_sync")->is_async);
  EXPECT_EQ(FindStoreType("local_allreduce_device")->kind, StoreType::Kind::kDevice);
  EXPECT_EQ(FindStoreType("dist_sync_device")->kind, StoreType::Kind::kDistributed);
  for (const char* const other : {"", "async", "dist_asynchronous", "dist_asyn"}) {
    EXPECT_EQ(FindStoreType(other), nullptr) << other;
  }
}

}  // namespace
}  // namespace tkv
