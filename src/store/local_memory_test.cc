// Calls of the store of one process whose memory ends at each of their allocations in turn.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/format.h"
#include "tests/arrays.h"
#include "tests/scarce_memory.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

using test::Full;

// Longer than the text that a std::string has in itself.
std::string LongKey(int number) { return Format("a key with a long name, number {}", number); }

std::string BytesOf(const NDArray& array) {
  const NDArray packed = array.Packed();
  return {static_cast<const char*>(packed.HostData()), packed.bytes()};
}

// Returns all that callers can see of a store's keys.
std::string ContentOf(KVStore& store) {
  std::string content;
  for (const Key& key : store.Keys()) {
    const KVStore::KeyInfo info = store.Describe(key.view());
    content += Format("{} round {}: ", key.view().ToString(), store.Round(key.view()));
    if (info.by_rows) {
      const RowsExport rows = store.ExportRows(key.view());
      content += BytesOf(rows.rows.ids) + BytesOf(rows.rows.values);
    } else {
      const NDArray value = NDArray::Empty(info.shape, info.dtype);
      store.Pull(key.view(), value);
      content += BytesOf(value);
    }
    content += "\n";
  }
  const StoreStats stats = store.Stats();
  return content + Format("{} keys, {} rounds, {} bytes, {} pushed", stats.keys.size(),
                          stats.rounds, stats.bytes.init_bytes, stats.bytes.pushed_bytes);
}

// A call, and the store on which it is made.
struct ScarceCall {
  using Step = std::function<void(KVStore&)>;

  Step before;  // makes the store's keys
  Step call;
  Step after;  // has the same effect on two stores with the same keys and states
  const char* type = "local";

  std::unique_ptr<KVStore> Make() const {
    StoreOptions options;
    options.threads = 1;
    auto store = KVStore::Create(type, options);
    before(*store);
    return store;
  }
};

// Expects that a call without memory for one of its allocations has changed nothing.
void ExpectAllOrNothing(const ScarceCall& scarce) {
  const auto untouched = scarce.Make();
  const auto done = scarce.Make();
  scarce.call(*done);
  const std::string nothing = ContentOf(*untouched);
  const std::string all = ContentOf(*done);
  scarce.after(*untouched);
  scarce.after(*done);
  test::Attempt attempt{.ran_out = true};
  for (int allocations = 0; attempt.ran_out; ++allocations) {
    const auto store = scarce.Make();
    attempt = test::WithMemoryFor(allocations, [&] { scarce.call(*store); });
    ASSERT_TRUE(attempt.succeeded || attempt.ran_out);
    ASSERT_EQ(ContentOf(*store), attempt.succeeded ? all : nothing) << allocations;
    const auto failure = test::FailureOf([&] { scarce.after(*store); });
    ASSERT_FALSE(failure.code) << allocations << ": " << failure.message;
    ASSERT_EQ(ContentOf(*store), ContentOf(attempt.succeeded ? *done : *untouched)) << allocations;
  }
}

// The names, arrays and items of a call with several keys.
class ManyKeys {
 public:
  //   begin, end  numbers of the keys
  ManyKeys(int begin, int end, double value) {
    for (int i = begin; i < end; ++i) {
      names_.push_back(LongKey(i));
      arrays_.push_back(Full({3}, value + i));
      outs_.push_back(Full({3}, -1));
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      pointers_.push_back(&arrays_[i]);
      out_pointers_.push_back(&outs_[i]);
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      inits.push_back({KeyView(names_[i]), &arrays_[i]});
      pushes.push_back({KeyView(names_[i]), {&pointers_[i], 1}});
      pulls.push_back({KeyView(names_[i]), {&out_pointers_[i], 1}});
    }
  }
  ManyKeys(const ManyKeys&) = delete;
  ManyKeys& operator=(const ManyKeys&) = delete;

  std::vector<InitItem> inits;
  std::vector<PushItem> pushes;
  std::vector<PullItem> pulls;

 private:
  std::vector<std::string> names_;
  std::vector<NDArray> arrays_, outs_;
  std::vector<const NDArray*> pointers_, out_pointers_;
};

void InitMany(KVStore& store, int begin, int end) { store.Init(ManyKeys(begin, end, 0).inits); }

void PushMany(KVStore& store, int begin, int end) { store.Push(ManyKeys(begin, end, 0.5).pushes); }

void DoNothing(KVStore&) {}

TEST(ScarceMemory, InitCreatesAllKeysOrNone) {
  const ManyKeys keys(0, 40, 0);
  ExpectAllOrNothing({DoNothing, [&](KVStore& store) { store.Init(keys.inits); },
                      [](KVStore& store) {
                        InitMany(store, 100, 105);
                        PushMany(store, 100, 105);
                      }});
  const ManyKeys more(13, 60, 0);
  ExpectAllOrNothing({[](KVStore& store) { InitMany(store, 0, 13); },
                      [&](KVStore& store) { store.Init(more.inits); },
                      [](KVStore& store) { PushMany(store, 0, 13); }});
}

TEST(ScarceMemory, InitCreatesAllKeysThatAreNumbersOrNone) {
  const NDArray value = Full({2}, 1);
  std::vector<InitItem> items;
  for (int64_t key = 0; key < 40; ++key) items.push_back({key, &value});
  ExpectAllOrNothing({DoNothing, [&](KVStore& store) { store.Init(items); },
                      [&](KVStore& store) { store.Init(1000, value); }});
}

TEST(ScarceMemory, InitRowsCreatesAllKeysOrNone) {
  const std::string first = LongKey(1);
  const std::string second = LongKey(2);
  const std::string third = LongKey(3);
  const NDArray value = Full({3}, 1);
  const int64_t ids[] = {1, 5};
  const Rows rows{NDArray::FromBytes(ids, {2}, DType::kI64), Full({2, 3}, 1)};
  const RowsInitItem items[] = {
      {.key = KeyView(first), .row_shape = {3}, .row_count = 100, .rows = &rows},
      {.key = KeyView(second), .row_shape = {2}, .row_count = 50},
      {.key = KeyView(third), .row_shape = {}, .value = &value}};
  ExpectAllOrNothing({DoNothing, [&](KVStore& store) { store.InitRows(items); },
                      [](KVStore& store) { InitMany(store, 100, 105); }});
}

TEST(ScarceMemory, BroadcastCreatesAllKeysOrNone) {
  const ManyKeys keys(0, 20, 0);
  ExpectAllOrNothing({DoNothing, [&](KVStore& store) { store.Broadcast(keys.inits, keys.pulls); },
                      [](KVStore& store) { InitMany(store, 100, 105); }});
}

TEST(ScarceMemory, AFailedDeleteLeavesTheKeyUsableAndCounted) {
  const std::string key = LongKey(3);
  ExpectAllOrNothing({[](KVStore& store) {
                        InitMany(store, 0, 5);
                        PushMany(store, 0, 5);
                      },
                      [&](KVStore& store) { store.Delete(KeyView(key)); },
                      [](KVStore& store) { PushMany(store, 0, 3); }});
}

// A call that waits for a key learns from the key itself that it is deleted.
TEST(ScarceMemory, ACallWaitsForAKeyThatADeleteHasFailedToDelete) {
  const std::string key = LongKey(1);
  test::Attempt attempt{.ran_out = true};
  for (int allocations = 0; attempt.ran_out; ++allocations) {
    const auto store = KVStore::Create("local");
    store->Init(KeyView(key), Full({3}, 1));
    attempt = test::WithMemoryFor(allocations, [&] { store->Delete(KeyView(key)); });
    if (attempt.succeeded) continue;
    // The updater ends when another thread waits for the key.
    std::thread puller;
    test::Failure failure;
    store->SetUpdater([&](const KeyView&, const NDArray&, const NDArray&) {
      puller = std::thread(
          [&] { failure = test::FailureOf([&] { store->Pull(KeyView(key), Full({3}, 0)); }); });
      while (store->Stats().of(Verb::kPull).calls == 0) std::this_thread::yield();
    });
    store->Push(KeyView(key), Full({3}, 2));
    puller.join();
    EXPECT_FALSE(failure.code) << allocations << ": " << failure.message;
  }
}

// The states show in the push that follows.
TEST(ScarceMemory, ALoadPutsEverythingBackOrNothing) {
  const std::string folder = ::testing::TempDir() + Format("tkv-scarce-{}", getpid());
  const std::string states = folder + "-states";
  const std::string table = LongKey(100);
  const int64_t ids[] = {1, 5};
  const Rows rows{NDArray::FromBytes(ids, {2}, DType::kI64), Full({2, 3}, 1)};
  const Rows* const list[] = {&rows};
  const RowsPushItem push_rows{KeyView(table), list};
  const auto push = [&](KVStore& store) {
    PushMany(store, 0, 4);
    store.PushRows({&push_rows, 1});
  };
  const auto before = [&](KVStore& store) {
    InitMany(store, 0, 4);
    const RowsInitItem item{KeyView(table), {3}, DType::kF32, 100};
    store.InitRows({&item, 1});
    store.SetOptimizer(Optimizer::Create("nadam"));
    push(store);
  };
  const auto saved = KVStore::Create("local");
  before(*saved);
  push(*saved);
  saved->Save(folder);
  saved->SaveStates(states);
  ExpectAllOrNothing({before, [&](KVStore& store) { store.Load(folder); }, push});
  ExpectAllOrNothing({before, [&](KVStore& store) { store.LoadStates(states); }, push});
  std::filesystem::remove_all(folder);
  std::filesystem::remove(states);
}

TEST(ScarceMemory, ARestoreThatFailsCanBeRepeated) {
  const std::string folder = ::testing::TempDir() + Format("tkv-scarce-{}", getpid());
  const auto saved = KVStore::Create("local");
  InitMany(*saved, 0, 4);
  const RowsInitItem table{"e", {3}, DType::kF32, 100};
  saved->InitRows({&table, 1});
  saved->SetOptimizer(Optimizer::Create("nadam"));
  PushMany(*saved, 0, 4);
  saved->Save(folder);
  PushMany(*saved, 0, 4);
  const auto values_of = [](KVStore& store) {  // without the counts, which have deleted keys too
    const std::string content = ContentOf(store);
    return content.substr(0, content.rfind('\n'));
  };
  test::Attempt attempt{.ran_out = true};
  for (int allocations = 0; attempt.ran_out; ++allocations) {
    const auto store = KVStore::Create("local");
    attempt = test::WithMemoryFor(allocations, [&] { store->Restore(folder); });
    if (!attempt.succeeded) {
      ASSERT_EQ(store->size(), 0U) << allocations;
      store->Restore(folder);
    }
    PushMany(*store, 0, 4);
    ASSERT_EQ(values_of(*store), values_of(*saved)) << allocations;
  }
  std::filesystem::remove_all(folder);
}

TEST(ScarceMemory, ATracedPushTakesEffectOrFails) {
  const std::string file = ::testing::TempDir() + Format("tkv-scarce-{}.json", getpid());
  const ManyKeys keys(0, 4, 0.5);
  const ScarceCall::Step before = [](KVStore& store) {
    InitMany(store, 0, 4);
    store.StartTrace();
  };
  const ScarceCall::Step push = [&](KVStore& store) { store.Push(keys.pushes); };
  ExpectAllOrNothing({before, push, push});
  test::Attempt attempt{.ran_out = true};
  for (int allocations = 0; attempt.ran_out; ++allocations) {
    const auto store = KVStore::Create("local");
    before(*store);
    attempt = test::WithMemoryFor(allocations, [&] { push(*store); });
    const KVStore::TraceInfo info = store->WriteTrace(file);
    EXPECT_EQ(info.spans + info.lost, attempt.succeeded ? 1U : 0U) << allocations;
  }
  std::filesystem::remove(file);
}

// The optimizer is Nadam, because it has a scalar state.
TEST(ScarceMemory, APushOfRowsChangesAllOrNothing) {
  const int64_t ids[] = {1, 2, 400};
  const Rows rows{NDArray::FromBytes(ids, {3}, DType::kI64), Full({3, 3}, 1)};
  const Rows* const list[] = {&rows};
  const RowsPushItem item{"e", list};
  const auto push = [&](KVStore& store) { store.PushRows({&item, 1}); };
  ExpectAllOrNothing({[](KVStore& store) {
                        const RowsInitItem table{"e", {3}, DType::kF32, 1000};
                        store.InitRows({&table, 1});
                        store.SetOptimizer(Optimizer::Create("nadam"));
                      },
                      push, push});
}

}  // namespace
}  // namespace tkv
