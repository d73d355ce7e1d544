#include "options/log_line.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <utility>

#include "base/format.h"
#include "base/without_write_signals.h"

namespace tkv {
namespace {

// A pipe takes a line of this size completely or not at all (PIPE_BUF).
constexpr size_t kLineBytesMax = 4096;

std::atomic<uint64_t> lost{0};

bool IsReady(int file) {
  pollfd one{file, POLLOUT, 0};
  return poll(&one, 1, 0) == 1 && one.revents == POLLOUT;  // no POLLERR: the reader is still there
}

// Opens the pipe again for this line, without blocking.  Blocking is a property of an open file,
// and this process shares that of standard error with the process that started it.
ssize_t WriteToPipe(int file, const std::string& line) {
  const std::string path = Format("/proc/self/fd/{}", file);
  const int own = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (own < 0) return IsReady(file) ? WriteWithoutSignal(file, line) : -1;
  const ssize_t wrote = WriteWithoutSignal(own, line);
  close(own);
  return wrote;
}

bool Write(int file, const std::string& line) {
  struct stat status{};
  if (fstat(file, &status) != 0) return false;
  ssize_t wrote = -1;
  if (S_ISFIFO(status.st_mode)) {
    wrote = WriteToPipe(file, line);
  } else if (S_ISSOCK(status.st_mode)) {
    wrote = send(file, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } else if (IsReady(file)) {
    wrote = WriteWithoutSignal(file, line);
  }
  return wrote == static_cast<ssize_t>(line.size());
}

}  // namespace

ssize_t WriteWithoutSignal(int file, std::string_view text) noexcept {
  const WithoutWriteSignals guard;
  return write(file, text.data(), text.size());
}

LogFunction WithoutThrowing(LogFunction log) {
  if (!log) return log;
  return [log = std::move(log)](int level, const std::string& text) {
    try {
      log(level, text);
    } catch (...) {  // no caller could handle it
      return;
    }
  };
}

void WriteLogLine(std::string line, int file) noexcept {
  try {
    const uint64_t before = lost.exchange(0);
    if (before > 0) line = Format("(lines lost, because nobody read them: {}) {}", before, line);
    if (line.size() >= kLineBytesMax) {
      line.resize(kLineBytesMax - 4);
      line += "...";
    }
    line += '\n';
    if (!Write(file, line)) lost += before + 1;
  } catch (const std::exception&) {
    ++lost;  // no memory for the line
  }
}

}  // namespace tkv
