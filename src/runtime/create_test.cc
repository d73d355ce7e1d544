// Checks of a store's options before the store is made.

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/arrays.h"
#include "tkv/config.h"
#include "tkv/kvstore.h"

namespace tkv {
namespace {

TEST(Create, AnOptionWithoutEffectIsRefusedUnlessItIsTheEnvironments) {
  for (const OptionInfo& option : OptionTable()) {
    if (option.scope == OptionInfo::Scope::kAny || option.kind == OptionInfo::Kind::kText) continue;
    SCOPED_TRACE(option.name);
    const char* const other = option.kind == OptionInfo::Kind::kFlag ? "1" : "1000";
    StoreOptions options;
    SetOption(&options, option.name, other);
    EXPECT_FAILS(Code::kInvalidArgument, KVStore::Create("local", options));
    ASSERT_EQ(setenv(option.environment, other, 1), 0);
    EXPECT_NO_THROW(KVStore::Create("local", options));
    EXPECT_NO_THROW(KVStore::Create("local"));
    ASSERT_EQ(unsetenv(option.environment), 0);
  }
  StoreOptions options;
  options.rank = 0;
  EXPECT_FAILS(Code::kInvalidArgument, KVStore::Create("device", options));
}

}  // namespace
}  // namespace tkv
