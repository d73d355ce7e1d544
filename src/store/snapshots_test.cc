// Snapshots with right checksums and wrong contents: they must not harm any store.

#include "store/snapshots.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "base/mix.h"
#include "base/random.h"
#include "checkpoint/json.h"
#include "checkpoint/search.h"
#include "tests/arrays.h"

namespace tkv {
namespace {

namespace json = boost::json;

const std::vector<DType> kDTypes = {DType::kF16, DType::kF32, DType::kF64, DType::kI32};

class LyingSnapshots : public ::testing::Test {
 protected:
  LyingSnapshots() {
    std::string name = ::testing::TempDir() + "tkv-XXXXXX";
    folder_ = mkdtemp(name.data());
    for (const char* key : {"a", "b"}) {
      store_->Init(key, test::Full({2, 3}, 1, key[0] == 'a' ? DType::kF16 : DType::kF32));
    }
    const NDArray ids = NDArray::FromBytes(kIds, {3}, DType::kI64);
    const Rows rows{ids, test::Full({3, 2}, 1, DType::kF16)};
    const RowsInitItem item{"r", {2}, DType::kF16, 1000, {.a = 2}, &rows};
    store_->InitRows({&item, 1});
    store_->SetOptimizer(Optimizer::Create("nadam", {}, true));
    Push(store_.get());
  }
  ~LyingSnapshots() override { std::filesystem::remove_all(folder_); }

  static void Push(KVStore* store) {
    for (const Key& key : store->Keys()) {
      const KVStore::KeyInfo info = store->Describe(key.view(), "push");
      if (info.by_rows) {
        PushRows(store, key.view(), info);
        continue;
      }
      store->Push(key.view(), test::Full(info.shape, 0.5, info.dtype));
    }
  }
  static void PushRows(KVStore* store, const KeyView& key, const KVStore::KeyInfo& info) {
    std::vector<int64_t> dims{3};
    dims.insert(dims.end(), info.shape.begin(), info.shape.end());
    const Rows rows{NDArray::FromBytes(kIds, {3}, DType::kI64),
                    test::Full(Shape(dims), 0.5, info.dtype)};
    const Rows* const list[] = {&rows};
    const RowsPushItem item{key, list};
    store->PushRows({&item, 1});
  }
  // Returns true if the action succeeds.  An error of the library is allowed too; in both cases the
  // store stays usable.
  bool Takes(const std::function<void()>& action) {
    const bool is_taken = !test::FailureOf(action).code;
    Push(store_.get());
    return is_taken;
  }

  static constexpr int64_t kIds[] = {0, 1, 999};
  std::string folder_;
  std::unique_ptr<KVStore> store_ = KVStore::Create("local");
  Random random_{20};
};

// ---- the text of the index ----------------------------------------------------------------------

void Collect(json::value* value, std::vector<json::value*>* all) {
  all->push_back(value);
  if (auto* const object = value->if_object()) {
    for (auto& field : *object) Collect(&field.value(), all);
  }
  if (auto* const array = value->if_array()) {
    for (json::value& element : *array) Collect(&element, all);
  }
}

json::value AnyScalar(Random* random) {
  const std::vector<json::value> scalars = {0,
                                            1,
                                            2,
                                            5,
                                            16,
                                            17,
                                            255,
                                            256,
                                            -1,
                                            1.5,
                                            nullptr,
                                            "x",
                                            "",
                                            "float64",
                                            "float16",
                                            "nan",
                                            "inf",
                                            "uniform",
                                            "rows",
                                            "int32",
                                            true,
                                            false,
                                            json::array(),
                                            json::object(),
                                            INT64_MIN,
                                            UINT64_MAX,
                                            uint64_t{1} << 33};
  return scalars[random->Next() % scalars.size()];
}

void ChangeSome(json::value* index, Random* random) {
  std::vector<json::value*> all;
  Collect(index, &all);
  json::value* const one = all[random->Next() % all.size()];
  auto* const object = one->if_object();
  auto* const array = one->if_array();
  if (object != nullptr && !object->empty() && random->Chance(0.5)) {
    object->erase(object->begin() + random->Between(0, static_cast<int64_t>(object->size()) - 1));
  } else if (array != nullptr && !array->empty() && random->Chance(0.7)) {
    auto* const at = array->begin() + random->Between(0, static_cast<int64_t>(array->size()) - 1);
    if (random->Chance(0.5)) {
      array->erase(at);
    } else {
      const json::value again = *at;
      array->insert(at, static_cast<size_t>(random->Between(1, 20)), again);
    }
  } else if (random->Chance(0.3)) {
    const json::value other = *all[random->Next() % all.size()];
    *one = other;
  } else {
    *one = AnyScalar(random);
  }
}

// Returns the text with the checksum that its reader computes.
std::string Sealed(std::string text) {
  const std::string field = R"("check":")";
  const size_t at = text.find(field) + field.size();
  if (at < field.size() || at + 32 > text.size()) return text;
  text.replace(at, 32, std::string(32, '0'));
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return text.replace(at, 32, Format("{:016x}{:016x}", hash.high64, hash.low64));
}

TEST_F(LyingSnapshots, AnIndexOfAnyContentIsLoadedOrRefused) {
  const std::string index = store_->Save(folder_) + "/model.safetensors.index.json";
  std::string text;
  std::getline(std::ifstream(index, std::ios::binary), text);
  ASSERT_EQ(Sealed(text), text);
  int taken = 0;
  for (int i = 0; i < 3'000; ++i) {
    json::value changed = checkpoint::ParseObject(text, index);
    for (int64_t n = random_.Between(1, 3); n > 0; --n) ChangeSome(&changed, &random_);
    std::filesystem::remove(index);  // faster than truncating it
    std::ofstream(index, std::ios::binary) << Sealed(json::serialize(changed));
    taken += static_cast<int>(Takes([&] { store_->Load(folder_); }));
    if (i % 10 != 0) continue;
    const auto restored = KVStore::Create("local");
    Takes([&] { restored->Restore(folder_), Push(restored.get()); });
  }
  EXPECT_GT(taken, 30) << "numbers of rounds and updates say what they like";
  EXPECT_LT(taken, 1'500);
}

TEST_F(LyingSnapshots, AKeyOfAnotherBuildThatIsNoneHereIsRefusedAndShownEscaped) {
  const std::string index = store_->Save(folder_) + "/model.safetensors.index.json";
  std::string text;
  std::getline(std::ifstream(index, std::ios::binary), text);
  const std::string key = R"("key":"b")";
  for (const auto& [other, shown] :
       {std::pair{"\"key\":\"lat\xe9n\"", "the key 'lat\\xe9n' is not UTF-8"},
        std::pair{R"("key":"p\u0000q")", "the key 'p\\x00q' has the character zero"}}) {
    std::string changed = text;
    changed.replace(changed.find(key), key.size(), other);
    std::filesystem::remove(index);
    std::ofstream(index, std::ios::binary) << Sealed(changed);
    const auto failure = test::FailureOf([&] { store_->Load(folder_); });
    EXPECT_EQ(failure.code, Code::kDataLoss);
    EXPECT_NE(failure.message.find(index + ": " + shown), std::string::npos) << failure.message;
  }
}

// ---- files that are what their index says -------------------------------------------------------

class Zeros final : public PartSource {
 public:
  std::span<const std::byte> Next(const checkpoint::Item& item) override {
    bytes_.resize(item.tensor.bytes());
    if (item.part == checkpoint::kIdsPart) {
      ids.resize(bytes_.size() / sizeof(int64_t));
      return std::as_bytes(std::span(ids));
    }
    return bytes_;
  }
  std::vector<int64_t> ids;

 private:
  std::vector<std::byte> bytes_;
};

void ChangeSome(SavedKey* key, Random* random) {
  const auto count = [&] { return static_cast<size_t>(random->Between(0, 20)); };
  switch (random->Between(0, key->by_rows ? 13 : 9)) {
    case 0:
      return key->arrays.resize(count(), "m");
    case 1:
      return key->scalars.resize(random->Chance(0.1) ? 300 : count(), "t");
    case 2:
      key->has_master = !key->has_master;
      return;
    case 3:
      key->updates[0] = random->Next();
      return;
    case 4:
      key->program.text = random->Chance(0.5) ? "" : Optimizer::Create("adam")->program().ToText();
      return;
    case 5:
      key->program.multi_precision = !key->program.multi_precision;
      return;
    case 6:
      return key->program.params.resize(count(), NAN);
    case 7:
      key->dtype = kDTypes[random->Next() % kDTypes.size()];
      return;
    case 8:
      key->shape = {random->Between(0, 6), random->Between(0, 3)};
      return;
    case 10:
      key->rows = static_cast<uint64_t>(random->Between(0, 4));
      return;
    case 11:
      key->row_count = static_cast<uint64_t>(random->Between(0, 2000));
      return;
    case 12:
      key->initializer.a = random->Chance(0.5) ? NAN : 1;
      return;
    case 13:
      key->by_rows = false;
      return;
    default:
      key->chunk_elements = static_cast<uint64_t>(random->Between(1, 6));
      key->updates.assign(
          (static_cast<size_t>(key->shape.size()) + key->chunk_elements - 1) / key->chunk_elements,
          random->Next() % 3);
  }
}

// Returns three ids in the order of a snapshot.
std::vector<int64_t> Sorted(int64_t first, int64_t last) {
  std::vector<int64_t> ids{first, 1, last};
  std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) {
    return Mix(static_cast<uint64_t>(a)) < Mix(static_cast<uint64_t>(b));
  });
  return ids;
}

TEST_F(LyingSnapshots, IdsThatNoStoreWritesAreRefusedAndNothingChanges) {
  store_->Save(folder_ + "/good");
  const std::vector<SavedKey> keys = checkpoint::Open(folder_ + "/good").keys();
  std::vector<int64_t> reversed = Sorted(0, 999);
  std::reverse(reversed.begin(), reversed.end());
  const std::vector<int64_t> sorted = Sorted(0, 999);
  const std::vector<std::vector<int64_t>> lies = {
      reversed, {sorted[0], sorted[1], sorted[1]}, Sorted(0, 1000), Sorted(-1, 999)};
  const auto rows_of = [](KVStore* store) {
    const NDArray ids = NDArray::FromBytes(kIds, {3}, DType::kI64);
    const NDArray out = NDArray::Empty({3, 2}, DType::kF16);
    const RowsPullItem item{"r", &ids, &out};
    store->PullRows({&item, 1});
    return out;
  };
  const NDArray before = rows_of(store_.get());
  for (size_t i = 0; i <= lies.size(); ++i) {
    Zeros zeros;
    zeros.ids = i < lies.size() ? lies[i] : sorted;
    const std::string path = Format("{}/{}", folder_, i);
    WriteSnapshot(path, Parts::kAll, keys, &zeros, {});
    const auto failure = test::FailureOf([&] { store_->Load(path); });
    if (i == lies.size()) {
      EXPECT_FALSE(failure.code) << failure.message;
      EXPECT_FALSE(test::SameBytes(rows_of(store_.get()), before));
      continue;
    }
    EXPECT_EQ(failure.code, Code::kDataLoss) << i;
    EXPECT_NE(failure.message.find(path), std::string::npos) << failure.message;
    EXPECT_NE(failure.message.find("key 'r': id "), std::string::npos) << failure.message;
    EXPECT_TRUE(test::SameBytes(rows_of(store_.get()), before));
  }
}

TEST_F(LyingSnapshots, KeysOfAnyFormAreLoadedOrRefused) {
  const std::string file = folder_ + "/states";
  store_->SaveStates(file);
  const std::vector<SavedKey> as_saved = checkpoint::Open(file).keys();
  const std::vector<int64_t> sorted = Sorted(0, 999);
  int taken = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<SavedKey> keys = as_saved;
    for (int64_t n = random_.Between(1, 3); n > 0; --n) {
      ChangeSome(&keys[random_.Next() % keys.size()], &random_);
    }
    Zeros zeros;
    zeros.ids = sorted;
    WriteSnapshot(file, Parts::kStates, std::move(keys), &zeros, {});
    taken += static_cast<int>(Takes([&] { store_->LoadStates(file); }));
  }
  EXPECT_GT(taken, 10);
  EXPECT_LT(taken, 200);
}

}  // namespace
}  // namespace tkv
