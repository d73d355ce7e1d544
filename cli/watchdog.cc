#include "watchdog.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>

#include "system.h"

namespace tkv::cli {
namespace {

// The data behind a message with the value 0.
struct Guarded {
  char folder[1024];
  char file[64];
};

bool ReadAll(int pipe, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(pipe, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void RemoveGuarded(const Guarded& guarded) {
  const int folder = open(guarded.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  unlinkat(folder, guarded.file, 0);
  rmdir(guarded.folder);
}

[[noreturn]] void Watch(int pipe) {
  // Schedulers send SIGUSR1 and SIGUSR2 to every process.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    std::signal(signal, SIG_IGN);
  }
  constexpr size_t kGroupsMax = 1 << 14;
  static pid_t groups[kGroupsMax];
  size_t count = 0;
  static Guarded guarded;
  for (pid_t message = 0; ReadAll(pipe, &message, sizeof(message));) {
    if (message == 0 && !ReadAll(pipe, &guarded, sizeof(guarded))) break;
    if (message > 0 && count < kGroupsMax) groups[count++] = message;
    if (message < 0)
      count = static_cast<size_t>(std::remove(groups, groups + count, -message) - groups);
  }
  if (guarded.folder[0] != '\0') RemoveGuarded(guarded);
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
    setsid();  // a kill of the launcher's process group does not reach the watchdog
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

void Watchdog::Guard(const std::string& folder, const std::string& file) const {
  struct {
    pid_t message = 0;
    Guarded guarded{};
  } told;  // written at once, so that no other message comes between
  static_assert(sizeof(told) <= PIPE_BUF);
  if (folder.size() >= sizeof(told.guarded.folder) || file.size() >= sizeof(told.guarded.file)) {
    errno = ENAMETOOLONG;
    Die(folder);
  }
  folder.copy(told.guarded.folder, folder.size());
  file.copy(told.guarded.file, file.size());
  if (write(pipe_, &told, sizeof(told)) != sizeof(told)) Die("the watchdog's pipe");
}

void Watchdog::Tell(pid_t message) const {
  [[maybe_unused]] const ssize_t told = write(pipe_, &message, sizeof(message));
}

}  // namespace tkv::cli
