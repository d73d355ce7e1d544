#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/arrays.h"
#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/job.h"
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

TEST(Options, TheEnvironmentIsReadAndChecked) {
  setenv("TKV_THREADS", "3", 1);
  EXPECT_EQ(OptionsFromEnvironment().threads, 3);
  for (const char* wrong : {"-1", "two", "1x"}) {
    setenv("TKV_THREADS", wrong, 1);
    EXPECT_THROW(OptionsFromEnvironment(), Error) << wrong;
  }
  unsetenv("TKV_THREADS");
  EXPECT_EQ(OptionsFromEnvironment().threads, 0);
}

TEST(Options, TheLevelOfTheLogIsReadAndWhatIsAtLeastThatIsTold) {
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

TEST(Options, ALogThatThrowsEndsNothing) {
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

TEST(JobSigns, AreWhatDecidesByItselfInTheOrderInWhichItDoes) {
  using By = JobSign::By;
  const std::map<std::string, std::string> all = {
      {"TKV_ROLE", "worker"},
      {"TKV_HEAD", "tcp:127.0.0.1:1"},
      {"TKV_JOB", "j"},
      {"TKV_RANK", "0"},
      {"DMLC_ROLE", "worker"},
      {"DMLC_PS_ROOT_URI", "127.0.0.1"},
      {"RANK", "0"},
      {"WORLD_SIZE", "1"},
      {"TORCHELASTIC_RUN_ID", "t"},
      {"PMIX_NAMESPACE", "p"},
      {"PMIX_RANK", "0"},
  };
  const auto unset = [&] {
    for (const auto& [name, value] : all) unsetenv(name.c_str());
  };
  struct Case {
    std::vector<const char*> variables;
    std::vector<By> by;
  };
  const std::vector<Case> cases = {
      {{}, {}},
      {{"TKV_ROLE"}, {By::kTensorkv}},
      {{"TKV_HEAD"}, {By::kTensorkv}},
      {{"TKV_JOB", "TKV_RANK"}, {}},
      {{"DMLC_ROLE"}, {By::kMxnet}},
      {{"DMLC_PS_ROOT_URI"}, {}},
      {{"TORCHELASTIC_RUN_ID"}, {By::kTorchrun}},
      {{"RANK", "WORLD_SIZE"}, {}},
      {{"PMIX_NAMESPACE", "PMIX_RANK"}, {By::kPmix}},
      {{"PMIX_RANK"}, {}},
      {{"PMIX_NAMESPACE", "PMIX_RANK", "TORCHELASTIC_RUN_ID", "DMLC_ROLE", "TKV_HEAD"},
       {By::kTensorkv, By::kMxnet, By::kTorchrun, By::kPmix}},
  };
  for (const Case& one : cases) {
    unset();
    for (const char* const name : one.variables) setenv(name, all.at(name).c_str(), 1);
    std::vector<By> by;
    for (const JobSign& sign : JobSigns()) by.push_back(sign.by);
    EXPECT_EQ(by, one.by) << (one.variables.empty() ? "" : one.variables[0]);
    EXPECT_EQ(IsLaunched(), !by.empty() && by[0] <= By::kMxnet);
    EXPECT_EQ(IsInGroup(), !by.empty() && by.back() == By::kPmix);
  }
  unset();
}

// Reads DMLC_PS_ROOT_URI by JobFromEnvironment.
class SchedulerAddress : public ::testing::Test {
 protected:
  SchedulerAddress() {
    for (const auto& [name, value] : kOthers) setenv(name, value, 1);
  }
  ~SchedulerAddress() override {
    for (const auto& [name, value] : kOthers) unsetenv(name);
    unsetenv("DMLC_PS_ROOT_URI");
  }
  static Job JobAt(const char* uri) {
    setenv("DMLC_PS_ROOT_URI", uri, 1);
    return JobFromEnvironment();
  }
  static constexpr std::pair<const char*, const char*> kOthers[] = {
      {"DMLC_ROLE", "worker"},
      {"DMLC_PS_ROOT_PORT", "9091"},
      {"DMLC_NUM_WORKER", "1"},
      {"DMLC_NUM_SERVER", "1"},
  };
};

TEST_F(SchedulerAddress, OfIPv6NeedsNoBrackets) {
  for (const char* const uri : {"::1", "[::1]"}) {
    const Job job = JobAt(uri);
    EXPECT_TRUE(job.head.ends_with(",tcp:[::1]:9091")) << job.head;
    EXPECT_EQ(job.id, "dmlc-::1-9091") << "the same in all processes";
  }
  EXPECT_TRUE(JobAt("scheduler.example").head.ends_with(",tcp:scheduler.example:9091"));
}

TEST_F(SchedulerAddress, ThatIsNoneEndsAtOnceAndNamesTheVariable) {
  for (const char* const uri : {"http://127.0.0.1", "1:2", "a,b", "[::1"}) {
    const auto failure = test::FailureOf([&] { JobAt(uri); });
    EXPECT_EQ(failure.code, Code::kInvalidArgument) << uri;
    EXPECT_TRUE(failure.message.starts_with("DMLC_PS_ROOT_URI='")) << failure.message;
    EXPECT_NE(failure.message.find("tcp:[::1]:7000"), std::string::npos) << failure.message;
  }
}

TEST(Config, NamesTheVersionAndTheInstructionSet) {
  const std::string text = ConfigText();
  EXPECT_NE(text.find(std::string("version = ") + Version()), std::string::npos);
  EXPECT_NE(text.find("instruction_set = "), std::string::npos);
}

}  // namespace
}  // namespace tkv
