#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/arrays.h"
#include "tkv/error.h"
#include "tkv/job.h"

namespace tkv {
namespace {

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

}  // namespace
}  // namespace tkv
