#include "companion.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "watchdog.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSaidMax = 64 << 10;  // bytes of a line

}  // namespace

Companion::Companion(SpawnOptions options, std::chrono::seconds patience)
    : patience_(patience), watchdog_(options.watchdog), process_(Spawn(std::move(options))) {}

Companion::~Companion() {
  Close();
  close(process_.output);
}

void Companion::Tell(const std::string& text) const {
  [[maybe_unused]] const ssize_t told = write(process_.input, text.data(), text.size());
}

std::optional<std::string> Companion::Line() {
  const auto deadline = Clock::now() + patience_;
  for (;;) {
    const size_t end = said_.find('\n');
    if (end != std::string::npos) {
      std::string line = said_.substr(0, end);
      said_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd file{process_.output, POLLIN, 0};
    if (said_.size() > kSaidMax) return {};
    is_silent_ = left.count() <= 0 || poll(&file, 1, static_cast<int>(left.count())) == 0;
    if (is_silent_) return {};
    if (!Read()) return {};
  }
}

// Reads once.  Returns false at the end.
bool Companion::Read() {
  char bytes[4096];
  const ssize_t got = read(process_.output, bytes, sizeof(bytes));
  if (got > 0) said_.append(bytes, static_cast<size_t>(got));
  return got > 0;
}

int Companion::Close() {
  if (process_.pid < 0) return status_;
  if (process_.input >= 0) close(process_.input);
  int status = 0;
  for (const auto end = Clock::now() + std::chrono::seconds(2);
       waitpid(process_.pid, &status, WNOHANG) == 0;) {
    if (Clock::now() > end) kill(-process_.pid, SIGKILL);
    usleep(10'000);
  }
  kill(-process_.pid, SIGKILL);  // the processes that it has started and that still run
  if (watchdog_ != nullptr) watchdog_->Remove(process_.pid);
  process_.pid = -1;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_;
}

std::string Companion::CloseAndRead() {
  Close();
  for (pollfd file{process_.output, POLLIN, 0};
       said_.size() < kSaidMax && poll(&file, 1, 0) == 1;) {
    if (!Read()) break;
  }
  while (said_.ends_with('\n')) said_.pop_back();
  return said_;
}

}  // namespace tkv::cli
