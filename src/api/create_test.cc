// Checks of a store's options before the store is made.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "tests/arrays.h"
#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/kvstore.h"
#include "tkv/testing.h"

namespace tkv {
namespace {

Code CreateFails(const char* type) {
  try {
    KVStore::Create(type);
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kInternal;
}

TEST(Create, EveryLocalTypeGivesItsNameBack) {
  for (const char* type :
       {"local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"}) {
    EXPECT_EQ(KVStore::Create(type)->type(), type);
  }
  EXPECT_EQ(KVStore::Create("LOCAL")->type(), "local");
}

TEST(Create, AnUnknownTypeIsNeverALocalStore) {
  EXPECT_EQ(CreateFails("loca"), Code::kInvalidArgument);
  EXPECT_EQ(CreateFails(""), Code::kInvalidArgument);
  EXPECT_EQ(CreateFails("dist_sync"), Code::kFailedPrecondition);
  EXPECT_EQ(CreateFails("nccl"), Code::kUnimplemented);  // without a driver
}

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

TEST(Log, TheLevelOfTheLogIsReadAndWhatIsAtLeastThatIsTold) {
  setenv("TKV_LOG", "loud", 1);
  EXPECT_THROW(OptionsFromEnvironment(), Error);
  setenv("TKV_LOG", "info", 1);
  testing::ClusterOptions options;
  options.workers = 1;
  options.store = OptionsFromEnvironment();
  unsetenv("TKV_LOG");
  ::testing::internal::CaptureStderr();
  testing::Cluster(options).Join(0)->Close();
  options.store.log(0, "no news");
  const std::string text = ::testing::internal::GetCapturedStderr();
  const std::string who = " info tensorkv pid=" + std::to_string(getpid()) + ": ";
  EXPECT_NE(text.find(who + "server 0 joined (incarnation "), std::string::npos) << text;
  EXPECT_NE(text.find(who + "worker 0 joined (incarnation "), std::string::npos) << text;
  EXPECT_NE(text.find(who + "worker 0 left"), std::string::npos) << text;
  EXPECT_EQ(text.find("no news"), std::string::npos);
}

TEST(Log, ALogThatThrowsEndsNothing) {
  std::atomic<int> lines = 0;
  testing::ClusterOptions options;
  options.workers = 1;
  options.store.log = [&](int, const std::string&) {
    ++lines;
    throw 1;
  };
  const NDArray one = test::Full({2}, 1);
  testing::Cluster cluster(options);
  const auto store = cluster.Join(0);
  store->Init(3, test::Full({2}, 0));
  store->Push(3, one);
  NDArray out = test::Full({2}, 0);
  store->Pull(3, out);
  EXPECT_TRUE(test::SameBytes(out, one));
  store->Close();
  EXPECT_GT(lines, 0);
}

}  // namespace
}  // namespace tkv
