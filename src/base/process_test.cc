#include "base/process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tests/scarce_memory.h"

namespace tkv {
namespace {

class CgroupQuota : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("cgroup" + std::to_string(getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  double Quota() { return CgroupCpuQuota(root_.string(), (root_ / "self").string()); }
  std::filesystem::path root_;
};

TEST_F(CgroupQuota, TheTightestLevelOfVersion2Counts) {
  Write("self", "0::/a/b\n");
  Write("a/cpu.max", "150000 100000\n");
  Write("a/b/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(Quota(), 1.5);
}

TEST_F(CgroupQuota, Version1IsReadFromItsController) {
  Write("self", "4:cpu,cpuacct:/job\n3:memory:/job\n");
  Write("cpu/job/cpu.cfs_quota_us", "200000\n");
  Write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(Quota(), 2.0);
}

TEST_F(CgroupQuota, NoFileAndNoLimitMeanNoQuota) {
  EXPECT_EQ(Quota(), 0);
  Write("self", "0::/\nnonsense\n");
  Write("cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), 0);
}

TEST(Process, TheStartOfAFileIsWhatIsThere) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("text" + std::to_string(getpid()));
  std::ofstream(path) << "0123456789";
  EXPECT_EQ(StartOf(path.string(), 4), "0123");
  EXPECT_EQ(StartOf(path.string(), 4096), "0123456789");
  std::filesystem::remove(path);
  EXPECT_EQ(StartOf(path.string(), 4096), "");
  EXPECT_EQ(StartOf(testing::TempDir(), 4096), "") << "a folder";
}

TEST(Process, AChildOfForkHasAnotherGeneration) {
  const unsigned before = ForkGeneration();
  const pid_t child = fork();
  if (child == 0) _exit(ForkGeneration() == before + 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ForkGeneration(), before);
}

TEST(Process, TheLimitOfFilesIsRaisedToTheHardOneAndNamedByErrors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto code = std::make_error_code(std::errc::too_many_files_open);
  EXPECT_EQ(SystemText(code), "Too many open files (this process may have 64; ulimit -n)");
  RaiseFileLimit();
  EXPECT_EQ(FileLimit(), std::min<uint64_t>(before.rlim_max, kFilesMax));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(SystemText(std::make_error_code(std::errc::io_error)), "Input/output error");
}

TEST(Process, ThereIsAtLeastOneCoreAndSomeCache) {
  EXPECT_GE(UsableCores(), 1);
  EXPECT_GT(LastLevelCacheBytes(), size_t{1} << 18);
}

// The first call of a process reads files, in a function that must not throw.
TEST(Process, WithoutMemoryNoCoreIsIdle) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process for the first call
  EXPECT_EXIT(
      {
        bool is_idle = true;
        test::WithMemoryFor(0, [&] { is_idle = HasIdleCore(); });
        _exit(is_idle ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tkv
