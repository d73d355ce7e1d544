#include "options/log_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <string>

namespace tkv {
namespace {

class LogLineTest : public ::testing::Test {
 protected:
  LogLineTest() { EXPECT_EQ(pipe(files_.data()), 0); }
  ~LogLineTest() override {
    for (const int file : files_) close(file);
  }
  std::string ReadAll() const {
    std::string all(size_t{1} << 20, '\0');
    fcntl(files_[0], F_SETFL, O_NONBLOCK);
    size_t bytes = 0;
    for (;;) {
      const ssize_t got = read(files_[0], all.data() + bytes, all.size() - bytes);
      if (got <= 0) break;
      bytes += static_cast<size_t>(got);
    }
    all.resize(bytes);
    return all;
  }
  std::array<int, 2> files_{};
};

TEST_F(LogLineTest, ALineIsWrittenWhole) {
  WriteLogLine("one", files_[1]);
  WriteLogLine("two", files_[1]);
  EXPECT_EQ(ReadAll(), "one\ntwo\n");
}

TEST_F(LogLineTest, APipeThatNobodyReadsBlocksNobodyAndTheLossIsTold) {
  const std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) WriteLogLine(line, files_[1]);  // more than a pipe can hold
  EXPECT_FALSE(fcntl(files_[1], F_GETFL) & O_NONBLOCK) << "others' opening is as it was";
  const std::string before = ReadAll();
  const size_t written = before.size() / (line.size() + 1);
  EXPECT_LT(written, 1000U);
  EXPECT_EQ(before.size(), written * (line.size() + 1)) << "no line is cut";
  WriteLogLine("after", files_[1]);
  EXPECT_EQ(ReadAll(), "(lines lost, because nobody read them: " + std::to_string(1000 - written) +
                           ") after\n");
  WriteLogLine("well", files_[1]);
  EXPECT_EQ(ReadAll(), "well\n");
}

TEST_F(LogLineTest, AReaderThatGoesBeforeTheWriteEndsNoProcess) {
  ASSERT_NE(signal(SIGPIPE, SIG_DFL), SIG_ERR);
  close(files_[0]);
  EXPECT_EQ(WriteWithoutSignal(files_[1], "line"), -1);
  EXPECT_EQ(errno, EPIPE);
  sigset_t pending{};
  sigset_t blocked{};
  sigpending(&pending);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
  files_[0] = open("/dev/null", O_RDONLY);
}

TEST_F(LogLineTest, ASignalOfSomebodyElsesStaysPending) {
  sigset_t pipe{};
  sigset_t before{};
  sigset_t pending{};
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  pthread_kill(pthread_self(), SIGPIPE);
  close(files_[0]);
  EXPECT_EQ(WriteWithoutSignal(files_[1], "line"), -1);
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 1);
  const timespec now{};
  EXPECT_EQ(sigtimedwait(&pipe, nullptr, &now), SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  files_[0] = open("/dev/null", O_RDONLY);
}

TEST_F(LogLineTest, AVeryLongLineIsCut) {
  WriteLogLine(std::string(100'000, 'y'), files_[1]);
  const std::string line = ReadAll();
  EXPECT_EQ(line.size(), 4096U);
  EXPECT_TRUE(line.ends_with("y...\n"));
}

}  // namespace
}  // namespace tkv
