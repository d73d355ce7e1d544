#include "group_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tkv::cli {
namespace {

class GroupLimits : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("groups" + std::to_string(getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  GroupFiles Files() const { return {root_.string(), (root_ / "self").string()}; }
  std::filesystem::path root_;
};

TEST_F(GroupLimits, TheLevelWithTheLeastMemoryLeftCounts) {
  Write("self", "0::/a/b\n");
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "900\n");
  Write("a/memory.stat", "anon 10\ninactive_file 300\n");
  Write("a/b/memory.max", "max\n");
  Write("a/b/memory.current", "800\n");
  EXPECT_EQ(MemoryOfGroup(Files()).limit, 1000U);
  EXPECT_EQ(MemoryOfGroup(Files()).left, 400U) << "files that nothing uses can be dropped";
}

TEST_F(GroupLimits, AContainerWithoutThePathHasItsRoot) {
  Write("self", "0::/kubepods/pod/x\n");
  Write("memory.max", "500\n");
  Write("memory.current", "100\n");
  Write("pids.max", "100\n");
  Write("pids.current", "30\n");
  EXPECT_EQ(MemoryOfGroup(Files()).left, 400U);
  EXPECT_EQ(ProcessesOfGroup(Files()).left, 70U);
}

TEST_F(GroupLimits, Version1IsReadFromItsController) {
  Write("self", "4:memory,other:/job\n3:pids:/\n0::/\n");
  Write("memory/job/memory.limit_in_bytes", "1000\n");
  Write("memory/job/memory.usage_in_bytes", "700\n");
  Write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("pids/pids.max", "max\n");
  EXPECT_EQ(MemoryOfGroup(Files()).left, 500U);
  EXPECT_EQ(ProcessesOfGroup(Files()).limit, kUnlimited);
}

TEST_F(GroupLimits, NoFileAndNoLimitMeanNoLimit) {
  EXPECT_EQ(MemoryOfGroup(Files()).left, kUnlimited);
  Write("self", "nonsense\n0::/\n::\n0::x\n");
  Write("memory.max", "max\n");
  EXPECT_EQ(MemoryOfGroup(Files()).left, kUnlimited);
  EXPECT_EQ(ProcessesOfGroup(Files()).left, kUnlimited);
}

}  // namespace
}  // namespace tkv::cli
