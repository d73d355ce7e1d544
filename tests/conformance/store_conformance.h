// The fixture of the store conformance suite: the store under test.  The rules are in
// store_*_test.cc.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/arrays.h"
#include "tkv/kvstore.h"

namespace tkv {

struct StoreSubject {
  const char* name;
  std::function<std::unique_ptr<KVStore>()> make;
  bool runs_functions = true;  // a C++ function as updater
};

inline void PrintTo(const StoreSubject& subject, std::ostream* out) { *out << subject.name; }

class StoreConformance : public ::testing::TestWithParam<StoreSubject> {
 protected:
  std::unique_ptr<KVStore> store_ = GetParam().make();

  // Returns true if the store cannot run functions, and checks that it refuses one.  The caller
  // then skips the rest of its test.
  bool RefusesFunctions() {
    if (GetParam().runs_functions) return false;
    EXPECT_FAILS(Code::kUnimplemented,
                 store_->SetUpdater([](const KeyView&, const NDArray&, const NDArray&) {}));
    return true;
  }
  std::vector<float> Pulled(const KeyView& key) {
    const NDArray out = NDArray::Empty(store_->Describe(key).shape, store_->Describe(key).dtype);
    store_->Pull(key, out);
    return test::Values(out);
  }
  void InitFloats(const KeyView& key, const std::vector<float>& values) {
    store_->Init(key, test::Floats(values));
  }
};

}  // namespace tkv
