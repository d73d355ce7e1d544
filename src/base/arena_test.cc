#include "base/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/random.h"
#include "tkv/error.h"

namespace tkv {
namespace {

std::shared_ptr<Arena> Open() {
  std::string why;
  auto arena = Arena::Open(&why);
  EXPECT_NE(arena, nullptr) << why;
  return arena;
}

TEST(Arena, ReadersSeeWhatIsWritten) {
  const auto arena = Open();
  const Block block = arena->Allocate(100'000);
  ASSERT_TRUE(block);
  std::memset(block.data, 7, block.size);
  EXPECT_TRUE(arena->Contains(block.data));
  std::string why;
  const auto view = ArenaView::Map(dup(arena->reader_file()), &why);
  ASSERT_NE(view, nullptr) << why;
  const std::byte* const there = view->At(arena->OffsetOf(block.data), block.size);
  EXPECT_EQ(std::memcmp(there, block.data, block.size), 0);
}

TEST(Arena, ReadersCanNeitherWriteNorTakeMemoryAway) {
  const auto arena = Open();
  const Block block = arena->Allocate(4096);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena->reader_file(), 0),
            MAP_FAILED);
  EXPECT_NE(ftruncate(arena->reader_file(), 0), 0);
  const int seals = fcntl(arena->reader_file(), F_GET_SEALS);
  EXPECT_EQ(seals & F_SEAL_SHRINK, F_SEAL_SHRINK);
}

TEST(Arena, BlocksDoNotOverlapAndComeBackFromTheStart) {
  const auto arena = Open();
  Random random(1);
  const Block first = arena->Allocate(1);
  std::vector<Block> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() > 40 || (!blocks.empty() && random.Chance(0.5))) {
      const size_t at =
          static_cast<size_t>(random.Between(0, static_cast<int64_t>(blocks.size()) - 1));
      const std::byte mark = blocks[at].data[0];
      EXPECT_EQ(blocks[at].data[blocks[at].size - 1], mark) << "another block has written there";
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(at));
    } else {
      blocks.push_back(arena->Allocate(static_cast<size_t>(random.Between(1, 1 << 20))));
      ASSERT_TRUE(blocks.back());
      std::memset(blocks.back().data, i & 0xFF, blocks.back().size);
    }
  }
  blocks.clear();
  const Block again = arena->Allocate(size_t{32} << 20);
  EXPECT_EQ(arena->OffsetOf(again.data), arena->OffsetOf(first.data) + 4096)
      << "what was freed is one run again";
}

TEST(Arena, WhatDoesNotFitIsNoBlock) {
  const auto arena = Open();
  EXPECT_FALSE(arena->Allocate(size_t{1} << 60));
  EXPECT_FALSE(arena->Allocate(0));
  EXPECT_TRUE(arena->Allocate(1));
}

TEST(Arena, ABlockThatWouldHoldUpItsCallerIsNoBlock) {
  const auto arena = Open();
  for (const size_t bytes : {Arena::kBlockBytesMax + 1, size_t{256} << 20, size_t{300} << 20}) {
    EXPECT_FALSE(arena->Allocate(bytes)) << bytes;
  }
  EXPECT_EQ(arena->Allocate(Arena::kBlockBytesMax).size, Arena::kBlockBytesMax);
}

// Returns how many bytes of an arena the system backs with memory.
size_t BackedBytes(const Arena& arena) {
  struct stat status{};
  EXPECT_EQ(fstat(arena.reader_file(), &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

TEST(Arena, WhatIsFreeAtItsEndGoesBackToTheSystemInPieces) {
  const auto arena = Open();
  const Block first = arena->Allocate(4096);
  std::vector<Block> blocks;
  for (int i = 0; i < 9; ++i) blocks.push_back(arena->Allocate(Arena::kBlockBytesMax));
  ASSERT_TRUE(blocks.back());
  const size_t all = BackedBytes(*arena);
  blocks.erase(blocks.begin(), blocks.end() - 1);
  EXPECT_EQ(BackedBytes(*arena), all) << "the block at the end is in use";
  blocks.clear();
  EXPECT_EQ(BackedBytes(*arena), all - (size_t{256} << 20)) << "one piece for one block";
  const Block again = arena->Allocate(Arena::kBlockBytesMax);
  ASSERT_TRUE(again);
  EXPECT_EQ(arena->OffsetOf(again.data), 4096U);
}

TEST(Arena, BlocksOutliveIt) {
  auto arena = Open();
  const Block block = arena->Allocate(5000);
  arena.reset();
  std::memset(block.data, 1, block.size);
  EXPECT_EQ(block.data[4999], std::byte{1});
}

TEST(ArenaView, RefusesAFileThatCanShrinkAndOffsetsOutside) {
  const int plain = memfd_create("plain", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(plain, 4096), 0);
  std::string why;
  EXPECT_THROW(ArenaView::Map(plain, &why), Error);
  const int huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(huge, off_t{1} << 44), 0);
  ASSERT_EQ(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THROW(ArenaView::Map(huge, &why), Error) << "more than any machine has";
  const auto arena = Open();
  const auto view = ArenaView::Map(dup(arena->reader_file()), &why);
  EXPECT_THROW(view->At(uint64_t{1} << 60, 1), Error);
  EXPECT_THROW(view->At(0, ~uint64_t{0}), Error);
  EXPECT_THROW(view->At(~uint64_t{0} - 4095, 8192), Error);
}

// Returns a sealed file of that many bytes, as a peer may make one.
int PeerFile(unsigned flags, size_t bytes) {
  const int file = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  EXPECT_GE(file, 0);
  EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  return file;
}

// A machine may have no huge page left: the first read would kill the process.
TEST(ArenaView, RefusesAFileOfHugePages) {
  std::string why;
  EXPECT_THROW(ArenaView::Map(PeerFile(MFD_HUGETLB, size_t{64} << 20), &why), Error);
}

TEST(ArenaView, ReadsNothingWhereItsOwnerHasWrittenNothing) {
  constexpr size_t kMiB = size_t{1} << 20;
  const int file = PeerFile(0, 64 * kMiB);
  const int owner = dup(file);
  std::string why;
  const auto view = ArenaView::Map(file, &why);
  ASSERT_NE(view, nullptr) << why;
  const std::vector<char> written(5 * kMiB, 1);
  ASSERT_EQ(pwrite(owner, written.data(), written.size(), kMiB), ptrdiff_t{5 * kMiB});
  EXPECT_NO_THROW(view->At(kMiB, 5 * kMiB));
  EXPECT_NO_THROW(view->At(3 * kMiB + 64, 100));
  EXPECT_THROW(view->At(kMiB - 64, 5 * kMiB), Error) << "the page before";
  EXPECT_THROW(view->At(kMiB, 5 * kMiB + 1), Error) << "the page behind";
  EXPECT_THROW(view->At(20 * kMiB, 30 * kMiB), Error);
  struct stat status{};
  ASSERT_EQ(fstat(owner, &status), 0);
  EXPECT_EQ(static_cast<size_t>(status.st_blocks) * 512, 5 * kMiB) << "the reader has added none";
  close(owner);
}

// Runs f in a child process, because f changes the limits of its process.
template <typename F>
int InChild(F f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Arena, LowLimitsAreToldAndHarmNobody) {
  const auto with = [](auto which, rlim_t value) {
    return InChild([=] {
      const rlimit limit{value, value};
      setrlimit(which, &limit);
      std::string why;
      const auto arena = Arena::Open(&why);
      return arena == nullptr ? (why.empty() ? 1 : 0) : 2;
    });
  };
  EXPECT_EQ(with(RLIMIT_NOFILE, 3), 0);
  EXPECT_EQ(with(RLIMIT_FSIZE, 4096), 0);
  // The arena is smaller instead.
  EXPECT_EQ(InChild([] {
              const rlimit limit{size_t{64} << 20, size_t{64} << 20};
              setrlimit(RLIMIT_FSIZE, &limit);
              std::string why;
              const auto arena = Arena::Open(&why);
              if (arena == nullptr) return 1;
              const Block first = arena->Allocate(size_t{40} << 20);
              return first && !arena->Allocate(size_t{40} << 20) ? 0 : 2;
            }),
            0);
}

TEST(Arena, AForkedChildDoesNotHaveItsMemoryAndDoesNotHarmIt) {
  auto arena = Open();
  Block block = arena->Allocate(4096);
  block.data[0] = std::byte{5};
  EXPECT_EQ(InChild([&] {
              block = {};
              arena.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(block.data[0], std::byte{5});
}

}  // namespace
}  // namespace tkv
