// Snapshots whose checks are right and whose contents are not: no store takes harm.

#include "store/snapshots.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "base/random.h"
#include "checkpoint/json.h"
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
    store_->SetOptimizer(Optimizer::Create("nadam", {}, true));
    Push(store_.get());
  }
  ~LyingSnapshots() override { std::filesystem::remove_all(folder_); }

  static void Push(KVStore* store) {
    for (const Key& key : store->Keys()) {
      const KVStore::KeyInfo info = store->Describe(key.view(), "push");
      store->Push(key.view(), test::Full(info.shape, 0.5, info.dtype));
    }
  }
  // What is loaded can be used; an error of the library is as good.
  bool Takes(const std::function<void()>& action) {
    const bool is_taken = !test::FailureOf(action).code;
    Push(store_.get());
    return is_taken;
  }

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

// The text with the check that its reader computes.
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
  for (int i = 0; i < 10'000; ++i) {
    json::value changed = checkpoint::ParseObject(text, index);
    for (int64_t n = random_.Between(1, 3); n > 0; --n) ChangeSome(&changed, &random_);
    std::filesystem::remove(index);  // faster than to cut it off
    std::ofstream(index, std::ios::binary) << Sealed(json::serialize(changed));
    taken += static_cast<int>(Takes([&] { store_->Load(folder_); }));
    if (i % 10 != 0) continue;
    const auto restored = KVStore::Create("local");
    Takes([&] { restored->Restore(folder_), Push(restored.get()); });
  }
  EXPECT_GT(taken, 100) << "numbers of rounds and updates say what they like";
  EXPECT_LT(taken, 5'000);
}

// ---- files that are what their index says -------------------------------------------------------

class Zeros final : public PartSource {
 public:
  std::span<const std::byte> Next(const checkpoint::Item& item) override {
    bytes_.resize(item.tensor.bytes());
    return bytes_;
  }

 private:
  std::vector<std::byte> bytes_;
};

void ChangeSome(SavedKey* key, Random* random) {
  const auto count = [&] { return static_cast<size_t>(random->Between(0, 20)); };
  switch (random->Between(0, 9)) {
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
    default:
      key->chunk_elements = static_cast<uint64_t>(random->Between(1, 6));
      key->updates.assign(
          (static_cast<size_t>(key->shape.size()) + key->chunk_elements - 1) / key->chunk_elements,
          random->Next() % 3);
  }
}

TEST_F(LyingSnapshots, KeysOfAnyFormAreLoadedOrRefused) {
  const std::string file = folder_ + "/states";
  store_->SaveStates(file);
  const std::vector<SavedKey> as_saved = checkpoint::Reader(file).keys();
  int taken = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<SavedKey> keys = as_saved;
    for (int64_t n = random_.Between(1, 3); n > 0; --n) {
      ChangeSome(&keys[random_.Next() % keys.size()], &random_);
    }
    Zeros zeros;
    WriteSnapshot(file, Parts::kStates, std::move(keys), &zeros, {});
    taken += static_cast<int>(Takes([&] { store_->LoadStates(file); }));
  }
  EXPECT_GT(taken, 10);
  EXPECT_LT(taken, 200);
}

}  // namespace
}  // namespace tkv
