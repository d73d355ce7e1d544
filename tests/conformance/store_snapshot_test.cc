// Conformance of every store: saving and loading.

#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "store/snapshots.h"
#include "tests/conformance/store_conformance.h"

namespace tkv {
namespace {

class StoreSnapshots : public StoreConformance {
 protected:
  StoreSnapshots() {
    std::string name = ::testing::TempDir() + "tkv-XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/snapshots";
  }
  ~StoreSnapshots() override { std::filesystem::remove_all(folder_); }

  static constexpr int kElements = 5;
  static NDArray Array(DType dtype, double first) {
    std::vector<float> values;
    for (int i = 0; i < kElements; ++i) values.push_back(static_cast<float>(first + 0.25 * i));
    const NDArray array = NDArray::Empty({kElements}, dtype);
    CopyTo(test::Floats(values), array);
    return array;
  }
  static void CopyTo(const NDArray& from, const NDArray& to) {
    const auto store = KVStore::Create("local");
    store->Init(0, from);
    store->Pull(0, to);
  }
  static void Make(KVStore* store, const char* optimizer, bool multi_precision = false) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kF64}) {
      store->Init(static_cast<int>(dtype), Array(dtype, 1));
    }
    if (optimizer != nullptr) {
      store->SetOptimizer(Optimizer::Create(optimizer, {{"learning_rate", 0.1}}, multi_precision));
    }
  }
  static void Step(KVStore* store, int step) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kF64}) {
      store->Push(static_cast<int>(dtype), Array(dtype, step * 0.5));
    }
  }
  static std::vector<float> All(KVStore* store) {
    std::vector<float> all;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kF64}) {
      const NDArray out = NDArray::Empty({kElements}, DType::kF32);
      store->Pull(static_cast<int>(dtype), out);
      const std::vector<float> values = test::Values(out);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::string folder_;
  std::string path_;
};

TEST_P(StoreSnapshots, ALoadedStoreGoesOnAsIfNothingHadBeen) {
  for (const char* optimizer : {"sgd", "momentum", "adam", "nadam"}) {
    for (const bool multi_precision : {false, true}) {
      auto store = GetParam().make();
      Make(store.get(), optimizer, multi_precision);
      for (int step = 1; step <= 3; ++step) Step(store.get(), step);
      const std::string saved = store->Save(path_);
      const std::vector<float> then = All(store.get());
      for (int step = 4; step <= 6; ++step) Step(store.get(), step);
      const std::vector<float> expected = All(store.get());
      store->Load(path_);
      EXPECT_EQ(All(store.get()), then);
      for (int step = 4; step <= 6; ++step) Step(store.get(), step);
      EXPECT_EQ(All(store.get()), expected) << optimizer << " in the same store";
      store->Close();
      auto other = GetParam().make();
      Make(other.get(), optimizer, multi_precision);
      const auto info = other->Load(path_);
      EXPECT_EQ(info.path, saved);
      ASSERT_EQ(info.rounds.size(), 3U);
      // Asynchronous keys count rounds per worker, and a new store begins at 0.
      const bool is_async = other->type() == "dist_async";
      EXPECT_EQ(info.rounds[0].second, is_async ? 0U : 3U);
      EXPECT_EQ(other->Round(0), info.rounds[0].second);
      for (int step = 4; step <= 6; ++step) Step(other.get(), step);
      EXPECT_EQ(All(other.get()), expected) << optimizer << " in a new store";
    }
  }
}

TEST_P(StoreSnapshots, StatesAloneLeaveTheValues) {
  Make(store_.get(), "momentum");
  for (int step = 1; step <= 3; ++step) Step(store_.get(), step);
  const std::string file = folder_ + "/states";
  store_->SaveStates(file);
  const std::vector<float> then = All(store_.get());
  Step(store_.get(), 4);
  const std::vector<float> expected = All(store_.get());
  store_->Close();
  auto other = GetParam().make();
  Make(other.get(), "momentum");
  EXPECT_FAILS(Code::kInvalidArgument, other->Load(file));
  other->LoadStates(file);
  EXPECT_EQ(All(other.get())[0], 1.0F);
  Step(other.get(), 4);
  // The same step from other values must add the same amount.
  EXPECT_NEAR(All(other.get())[0] - 1, expected[0] - then[0], 1e-6);
}

TEST_P(StoreSnapshots, ALargeKeyIsManyChunks) {
  constexpr int64_t kMany = 600'000;
  const NDArray value = NDArray::Empty({kMany}, DType::kF32);
  for (int64_t i = 0; i < kMany; ++i)
    static_cast<float*>(value.data())[i] = static_cast<float>(i % 1000);
  store_->Init("w", value);
  store_->SetOptimizer(Optimizer::Create("adam"));
  store_->Push("w", value);
  store_->Save(path_);
  const std::vector<float> saved = Pulled("w");
  store_->Push("w", value);
  const std::vector<float> next = Pulled("w");
  store_->Load(path_);
  EXPECT_EQ(Pulled("w"), saved);
  store_->Push("w", value);
  EXPECT_EQ(Pulled("w"), next);
}

TEST_P(StoreSnapshots, AnAsynchronousSaveHasTheValuesOfItsCall) {
  Make(store_.get(), "momentum");
  Step(store_.get(), 1);
  const std::vector<float> then = All(store_.get());
  const Ticket ticket = store_->SaveAsync(path_);
  for (int step = 2; step < 20; ++step) Step(store_.get(), step);
  ticket->Wait(std::chrono::seconds(60));
  EXPECT_TRUE(ticket->done());
  store_->Load(path_);
  EXPECT_EQ(All(store_.get()), then);
}

TEST_P(StoreSnapshots, ASaveIsCancelledOrDoneAsItsTicketSays) {
  Make(store_.get(), "momentum");
  Step(store_.get(), 1);
  for (int i = 0; i < 40; ++i) {
    const std::string folder = path_ + std::to_string(i);
    const Ticket ticket = store_->SaveAsync(folder);
    std::this_thread::sleep_for(i * std::chrono::microseconds(250));
    const bool is_cancelled = ticket->Cancel();
    const auto failure = test::FailureOf([&] { ticket->Wait(std::chrono::seconds(60)); });
    EXPECT_EQ(is_cancelled, failure.code == Code::kCancelled) << failure.message;
    EXPECT_TRUE(is_cancelled || !failure.code) << failure.message;
    EXPECT_EQ(KVStore::HasSnapshot(folder), !is_cancelled);
    EXPECT_FALSE(ticket->Cancel());
  }
}

TEST_P(StoreSnapshots, OfTwoThreadsThatSaveOneMayBeRefusedAndNoneFails) {
  Make(store_.get(), "momentum");
  Step(store_.get(), 1);
  const std::vector<float> then = All(store_.get());
  std::atomic<int> saves = 0;
  const auto save_often = [&](const std::string& folder) {
    for (int i = 0; i < 50; ++i) {
      const auto failure = test::FailureOf([&] { store_->Save(folder); });
      if (!failure.code) {
        ++saves;
        continue;
      }
      EXPECT_EQ(failure.code, Code::kFailedPrecondition) << failure.message;
      EXPECT_EQ(failure.message,
                "save: an earlier save or export of this store is under way; begin the next one "
                "after it");
    }
  };
  std::thread other(save_often, folder_ + "/other");
  save_often(path_);
  other.join();
  EXPECT_GE(saves, 2);
  for (const std::string& path : {path_, folder_ + "/other"}) {
    if (!KVStore::HasSnapshot(path)) continue;  // each save there was refused
    store_->Load(path);
    EXPECT_EQ(All(store_.get()), then);
  }
}

TEST_P(StoreSnapshots, CloseFinishesASaveThatIsUnderWay) {
  Make(store_.get(), "momentum");
  const Ticket ticket = store_->SaveAsync(path_);
  store_->Close();
  EXPECT_TRUE(ticket->done());
  EXPECT_FALSE(ticket->failure());
}

TEST_P(StoreSnapshots, WhatDoesNotFitIsRefusedAndChangesNothing) {
  Make(store_.get(), "momentum");
  Step(store_.get(), 1);
  EXPECT_FAILS(Code::kNotFound, store_->Load(path_));
  store_->Save(path_);
  const auto refuses = [&](KVStore* store, Code code) {
    const std::vector<float> before = All(store);
    EXPECT_FAILS(code, store->Load(path_));
    EXPECT_EQ(All(store), before);
  };
  {
    auto other = GetParam().make();
    Make(other.get(), nullptr);
    refuses(other.get(), Code::kFailedPrecondition);
    other->SetOptimizer(Optimizer::Create("adam"));
    refuses(other.get(), Code::kFailedPrecondition);
    other->SetOptimizer(Optimizer::Create("momentum", {}, true));
    refuses(other.get(), Code::kFailedPrecondition);
    other->SetOptimizer(Optimizer::Create("momentum"));
    other->Init(77, test::Floats({1}));
    refuses(other.get(), Code::kInvalidArgument);
    other->Delete(77);
    other->Delete(0);
    EXPECT_FAILS(Code::kInvalidArgument, other->Load(path_));
    other->Init(0, test::Floats({1, 2}));
    EXPECT_FAILS(Code::kInvalidArgument, other->Load(path_));
    other->Close();
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  refuses(store_.get(), Code::kDataLoss);
}

// A source of parts that are zeros.
class Zeros final : public PartSource {
 public:
  std::span<const std::byte> Next(const checkpoint::Item& item) override {
    bytes_.resize(item.tensor.bytes());
    return bytes_;
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST_P(StoreSnapshots, StatesThatDoNotFitTheirProgramAreRefused) {
  const auto optimizer = Optimizer::Create("nadam", {}, true);  // two arrays and a scalar
  const auto with_masters = [&](DType dtype) {
    SavedKey key;
    key.key = Key(KeyView("w"));
    key.dtype = dtype;
    key.shape = {kElements};
    key.updates = {1};
    key.has_master = true;
    DescribeProgram(optimizer->program(), true, optimizer->ParamsFor("w"), &key);
    return key;
  };
  const auto refuses = [&](DType dtype, const std::function<void(SavedKey*)>& change) {
    const auto tried = GetParam().make();
    tried->Init("w", Array(dtype, 1));
    tried->SetOptimizer(optimizer);
    tried->Push("w", Array(dtype, 1));
    SavedKey key = with_masters(dtype);
    change(&key);
    Zeros zeros;
    WriteSnapshot(path_, Parts::kAll, {key}, &zeros, {});
    key.has_value = false;
    WriteSnapshot(folder_ + "/states", Parts::kStates, {key}, &zeros, {});
    for (const bool is_whole : {true, false}) {
      const std::string path = is_whole ? path_ : folder_ + "/states";
      const auto failure = test::FailureOf(
          [&] { is_whole ? static_cast<void>(tried->Load(path)) : tried->LoadStates(path); });
      EXPECT_EQ(failure.code, Code::kDataLoss) << failure.message;
      EXPECT_NE(failure.message.find(path), std::string::npos) << failure.message;
      EXPECT_NE(failure.message.find("key 'w'"), std::string::npos) << failure.message;
      tried->Push("w", Array(dtype, 1));
    }
    const auto restored = GetParam().make();
    EXPECT_EQ(test::FailureOf([&] { restored->Restore(path_); }).code, Code::kDataLoss);
    EXPECT_EQ(restored->size(), 0U);
  };
  {
    store_->Init("w", Array(DType::kF16, 1));
    store_->SetOptimizer(optimizer);
    Zeros zeros;
    WriteSnapshot(path_, Parts::kAll, {with_masters(DType::kF16)}, &zeros, {});
    store_->Load(path_);
    store_->Push("w", Array(DType::kF16, 1));
  }
  const auto as_it_is = [](SavedKey*) {};
  refuses(DType::kF32, as_it_is);  // a key without a master
  const auto refuses_f16 = [&](const std::function<void(SavedKey*)>& change) {
    refuses(DType::kF16, change);
  };
  refuses_f16([](SavedKey* key) { key->has_master = false; });
  refuses_f16([](SavedKey* key) { key->arrays.pop_back(); });
  refuses_f16([](SavedKey* key) { key->arrays[0] = "x"; });
  refuses_f16([](SavedKey* key) { std::swap(key->arrays[0], key->arrays[1]); });
  refuses_f16([](SavedKey* key) { key->scalars.clear(); });
  refuses_f16([](SavedKey* key) { key->scalars[0] = "x"; });
  refuses_f16([](SavedKey* key) { key->arrays.clear(), key->scalars.clear(); });
  refuses_f16([](SavedKey* key) { key->program.text = "x"; });
  refuses_f16([](SavedKey* key) { key->program = {}; });
  for (const size_t count : {17, 300}) {
    refuses_f16([&](SavedKey* key) { key->arrays.resize(count, "m"); });
    refuses_f16([&](SavedKey* key) { key->scalars.resize(count, "t"); });
  }
}

TEST_P(StoreSnapshots, ARestoreThatFailsLeavesNeitherKeysNorAnOptimizer) {
  Make(store_.get(), "adam");
  Step(store_.get(), 1);
  const std::string saved = store_->Save(path_);
  store_->SaveStates(folder_ + "/states");
  const std::vector<float> then = All(store_.get());
  store_->Close();
  const auto flip_last_bit = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(saved)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-1, std::ios::end);
      const char last = static_cast<char>(file.get() ^ 1);
      file.seekp(-1, std::ios::end);
      file.put(last);
    }
  };
  flip_last_bit();
  const auto restored = GetParam().make();
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_FAILS(Code::kDataLoss, restored->Restore(path_));
    EXPECT_FAILS(Code::kInvalidArgument, restored->Restore(folder_ + "/states"));
    ASSERT_EQ(restored->size(), 0U);
  }
  const auto assigns = [&] {
    restored->Init(100, test::Floats({1}));
    restored->Push(100, test::Floats({5}));
    const NDArray out = test::Floats({0});
    restored->Pull(100, out);
    restored->Delete(100);
    return test::Values(out)[0] == 5;
  };
  EXPECT_TRUE(assigns());
  flip_last_bit();
  restored->Restore(path_);
  EXPECT_EQ(All(restored.get()), then);
  EXPECT_FALSE(assigns()) << "the optimizer is that of the snapshot";
}

TEST_P(StoreSnapshots, AKeysMultipliersAreNotThoseOfARestoredStore) {
  const auto optimizer = Optimizer::Create("sgd", {{"learning_rate", 0.5}, {"wd", 0.5}});
  optimizer->SetMultiplier("wd", "a", 0);
  optimizer->SetMultiplier("learning_rate", "a", 3);
  store_->SetOptimizer(optimizer);
  for (const char* key : {"a", "b"}) {
    store_->Init(key, test::Floats({1}));
    store_->Push(key, test::Floats({0}));
  }
  EXPECT_EQ(Pulled("a"), std::vector<float>{1});
  EXPECT_EQ(Pulled("b"), std::vector<float>{0.75});
  store_->Save(path_);
  store_->Close();
  store_ = GetParam().make();
  store_->Restore(path_);
  for (const char* key : {"a", "b"}) store_->Push(key, test::Floats({0}));
  EXPECT_EQ(Pulled("b"), std::vector<float>{0.75 * 0.75});
  EXPECT_EQ(Pulled("a"), std::vector<float>{0.75});
}

TEST_P(StoreSnapshots, WhatCannotBeWrittenIsAnErrorAndTheStoreGoesOn) {
  Make(store_.get(), "momentum");
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_FAILS(Code::kFailedPrecondition, store_->Save(folder_ + "/file/snapshots"));
  EXPECT_FAILS(Code::kInvalidArgument, store_->Save(""));
  const Ticket ticket = store_->SaveAsync(path_);
  ticket->Wait(std::chrono::seconds(60));
  Step(store_.get(), 1);
  store_->Save(path_);
  EXPECT_EQ(store_->Stats().verbs[static_cast<size_t>(Verb::kSave)].failed, 2U);
}

TEST_P(StoreSnapshots, ErrorsBeginWithTheVerbWhateverThePathBeginsWith) {
  const auto text_of = [](const std::function<void()>& action) {
    return test::FailureOf(action).message;
  };
  EXPECT_EQ(text_of([&] { store_->Load("load_dir/none"); }),
            "load: load_dir/none: there is no snapshot");
  EXPECT_EQ(text_of([&] { store_->LoadStates("load_optimizer_states_of/none"); }),
            "load_optimizer_states: load_optimizer_states_of/none: there is no snapshot");
  EXPECT_EQ(text_of([&] { store_->Restore("restored/none"); }),
            "restore: restored/none: there is no snapshot");
  store_->SetOptimizer(Optimizer::Create("adam"));
  EXPECT_TRUE(text_of([&] {
                store_->SaveStates("save_optimizer_states_of/none/x");
              }).starts_with("save_optimizer_states: save_optimizer_states_of/none/"));
  store_->Close();
  EXPECT_EQ(text_of([&] { store_->Save("x"); }), "save: the store is closed");
}

TEST_P(StoreSnapshots, AStoreWithoutKeysIsSavedAndLoaded) {
  store_->Save(path_);
  EXPECT_TRUE(store_->Load(path_).rounds.empty());
}

TEST_P(StoreSnapshots, AStringKeyMayHaveAnyName) {
  for (const char* key : {"a/b", "a", "a#momentum", "__metadata__", "\xc3\xa4 \"x\"\n"}) {
    store_->Init(key, test::Floats({1, 2}));
  }
  store_->SetOptimizer(Optimizer::Create("momentum"));
  store_->Push("a", test::Floats({1, 2}));
  const std::vector<float> saved = Pulled("a");
  store_->Save(path_);
  store_->Push("a", test::Floats({1, 2}));
  store_->Load(path_);
  EXPECT_EQ(Pulled("a"), saved);
}

// A table of several blocks; every second id may exist.
class TableStore {
 public:
  static constexpr int64_t kIds = 3000, kWidth = 700;

  TableStore(std::unique_ptr<KVStore> store, DType dtype, const char* optimizer, bool lazy)
      : store_(std::move(store)), dtype_(dtype) {
    const RowsInitItem item{"e", {kWidth}, dtype, kIds, {RowInitializer::Kind::kUniform, -1, 1, 7}};
    store_->InitRows({&item, 1});
    store_->Init("dense", test::Full({3}, 1));
    if (optimizer != nullptr) {
      store_->SetOptimizer(Optimizer::Create(optimizer, {}, true, lazy));
    }
  }
  TableStore(std::unique_ptr<KVStore> store, DType dtype)
      : store_(std::move(store)), dtype_(dtype) {}

  KVStore* operator->() { return store_.get(); }
  void Step(int number) {
    std::vector<int64_t> ids;
    for (int64_t id = number % 3; id < kIds; id += 3) ids.push_back(id);
    const auto count = static_cast<int64_t>(ids.size());
    const Rows rows{NDArray::FromBytes(ids.data(), {count}, DType::kI64),
                    test::Full({count, kWidth}, 0.25 * number, dtype_)};
    const Rows* const list[] = {&rows};
    const RowsPushItem item{"e", list};
    store_->PushRows({&item, 1});
    store_->Push("dense", test::Full({3}, 0.5));
  }
  NDArray All() {
    const NDArray all = NDArray::Empty({kIds, kWidth}, dtype_);
    store_->Pull("e", all);
    return all;
  }

 private:
  std::unique_ptr<KVStore> store_;
  DType dtype_;
};

TEST_P(StoreSnapshots, RowsAndTheirStatesAreSaved) {
  const std::pair<const char*, DType> kinds[] = {
      {"", DType::kF32}, {"momentum", DType::kF16}, {"nadam", DType::kF32}};
  for (const auto& [optimizer, dtype] : kinds) {
    const bool lazy = dtype == DType::kF32;
    const char* const set = *optimizer == '\0' ? nullptr : optimizer;
    TableStore store(GetParam().make(), dtype, set, lazy);
    for (const int step : {1, 2}) store.Step(step);
    store->Save(path_);
    const NDArray then = store.All();
    store.Step(4);
    const NDArray expected = store.All();
    EXPECT_FALSE(test::SameBytes(then, expected));
    const auto goes_on = [&](TableStore& other) {
      EXPECT_TRUE(test::SameBytes(other.All(), then)) << optimizer << " " << Name(dtype);
      other.Step(4);
      EXPECT_TRUE(test::SameBytes(other.All(), expected)) << optimizer << " " << Name(dtype);
    };
    store.Step(6);
    store->Load(path_);
    goes_on(store);
    store->Close();
    TableStore restored(GetParam().make(), dtype);
    restored->Restore(path_);
    goes_on(restored);
    if (set == nullptr) continue;
    restored->SaveStates(folder_ + "/states");
    const NDArray before = restored.All();
    restored.Step(5);
    restored->LoadStates(folder_ + "/states");
    restored->Save(path_);
    TableStore again(GetParam().make(), dtype);
    again->Restore(path_);
    restored.Step(3), again.Step(3);
    EXPECT_TRUE(test::SameBytes(restored.All(), again.All()));
    EXPECT_FALSE(test::SameBytes(restored.All(), before));
  }
}

TEST_P(StoreSnapshots, RowsThatAreWrittenDuringASaveAreSavedAsTheyWere) {
  TableStore store(GetParam().make(), DType::kF32, "momentum", true);
  store.Step(1);
  const NDArray then = store.All();
  const Ticket ticket = store->SaveAsync(path_);
  for (int step = 2; step < 6; ++step) store.Step(step);
  ticket->Wait(std::chrono::seconds(60));
  TableStore restored(GetParam().make(), DType::kF32);
  restored->Restore(path_);
  EXPECT_TRUE(test::SameBytes(restored.All(), then));
}

TEST_P(StoreSnapshots, ATableWithoutRowsAndOneRowAreSaved) {
  for (const int64_t rows : {0, 1}) {
    const auto store = GetParam().make();
    const RowsInitItem item{"e", {2}, DType::kF64, 100, {.a = 3}};
    store->InitRows({&item, 1});
    const int64_t id = 42;
    const NDArray ids = NDArray::FromBytes(&id, {1}, DType::kI64);
    const Rows one{ids, test::Full({1, 2}, 5, DType::kF64)};
    const Rows* const list[] = {&one};
    const RowsPushItem push{"e", list};
    if (rows > 0) store->PushRows({&push, 1});
    store->Save(path_);
    const auto restored = GetParam().make();
    restored->Restore(path_);
    const NDArray out = NDArray::Empty({1, 2}, DType::kF64);
    const RowsPullItem pull{"e", &ids, &out};
    restored->PullRows({&pull, 1});
    EXPECT_EQ(test::Values<double>(out), (std::vector<double>(2, rows > 0 ? 5 : 3)));
  }
}

TEST_P(StoreSnapshots, AKeyWhoseRowsAreReplacedIsStillOneAfterARestore) {
  const auto store = GetParam().make();
  const auto push = [](KVStore* to, int64_t id) {
    const Rows one{NDArray::FromBytes(&id, {1}, DType::kI64), test::Full({1, 1}, 1)};
    const Rows* const list[] = {&one};
    const RowsPushItem items[] = {{"w", list}, {"t", list}};
    to->PushRows(items);
  };
  const auto rows = [](KVStore* of, const char* key) {
    const NDArray out = NDArray::Empty({4, 1}, DType::kF32);
    of->Pull(key, out);
    return test::Values(out);
  };
  RowsInitItem tables[] = {{"w", {1}, DType::kF32, 4}, {"t", {1}, DType::kF32, 4}};
  tables[0].policy.replaces_all = true;
  store->InitRows(tables);
  push(store.get(), 0);
  store->Save(path_);
  push(store.get(), 1);
  const auto restored = GetParam().make();
  restored->Restore(path_);
  store->Load(path_);
  for (KVStore* const one : {store.get(), restored.get()}) {
    EXPECT_EQ(rows(one, "w"), (std::vector<float>{1, 0, 0, 0}));
    push(one, 2);
    EXPECT_EQ(rows(one, "w"), (std::vector<float>{0, 0, 1, 0}));
    EXPECT_EQ(rows(one, "t"), (std::vector<float>{1, 0, 1, 0}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreSnapshots,
    ::testing::Values(StoreSubject{"local", [] { return KVStore::Create("local"); }},
                      StoreSubject{"dist_sync",
                                   [] {
                                     StoreOptions options;
                                     options.bootstrap = "self";
                                     options.servers = 2;
                                     return KVStore::Create("dist_sync", options);
                                   },
                                   false},
                      StoreSubject{"dist_async",
                                   [] {
                                     StoreOptions options;
                                     options.bootstrap = "self";
                                     return KVStore::Create("dist_async", options);
                                   },
                                   false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tkv
