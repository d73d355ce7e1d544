#include "watchdog.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "system.h"

namespace tkv::cli {
namespace {

[[noreturn]] void Watch(int pipe) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  constexpr size_t kGroupsMax = 1 << 14;
  static pid_t groups[kGroupsMax];
  size_t count = 0;
  pid_t message = 0;
  for (;;) {
    const ssize_t got = read(pipe, &message, sizeof(message));
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof(message)) break;
    if (message > 0 && count < kGroupsMax) groups[count++] = message;
    if (message < 0)
      count = static_cast<size_t>(std::remove(groups, groups + count, -message) - groups);
  }
  for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGTERM);
  if (count > 0) sleep(1);
  for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  _exit(0);
}

}  // namespace

Watchdog::Watchdog() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe");
  const pid_t pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    close(ends[1]);
    setsid();  // whoever kills the launcher's process group does not kill its watchdog
    Watch(ends[0]);
  }
  close(ends[0]);
  pipe_ = ends[1];
  pid_ = pid;
}

Watchdog::~Watchdog() {
  close(pipe_);
  waitpid(pid_, nullptr, 0);
}

void Watchdog::Tell(pid_t message) const {
  [[maybe_unused]] const ssize_t told = write(pipe_, &message, sizeof(message));
}

}  // namespace tkv::cli
