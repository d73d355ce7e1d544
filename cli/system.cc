#include "system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tkv/error.h"
#include "watchdog.h"

namespace tkv::cli {
namespace {

constexpr const char* kTokenName = "token";
constexpr rlim_t kFilesMax = rlim_t{1} << 20;

rlimit files_before{};
bool has_raised_files = false;

}  // namespace

void Die(const std::string& what) {
  throw Error(Code::kUnavailable, what + ": " + std::strerror(errno));
}

void OpenStandardFiles() {
  int file = 0;
  while ((file = open("/dev/null", O_RDWR)) >= 0 && file <= STDERR_FILENO) {
  }
  if (file >= 0) close(file);
}

void RaiseFileLimit() {
  if (getrlimit(RLIMIT_NOFILE, &files_before) != 0) return;
  rlimit raised = files_before;
  raised.rlim_cur = std::max(raised.rlim_cur, std::min(raised.rlim_max, kFilesMax));
  has_raised_files = setrlimit(RLIMIT_NOFILE, &raised) == 0;
}

void RestoreFileLimit() noexcept {
  if (has_raised_files) setrlimit(RLIMIT_NOFILE, &files_before);
}

void SignalGroup(pid_t leader, int signal) {
  const bool is_users = signal == SIGUSR1 || signal == SIGUSR2;
  kill(is_users ? leader : -leader, signal);
}

std::string OwnPath() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (size <= 0) Die("/proc/self/exe");
  return {path, static_cast<size_t>(size)};
}

TokenFile::TokenFile(const std::string& token, const Watchdog& watchdog) {
  const char* const temp = std::getenv("TMPDIR");
  folder_ = std::string(temp != nullptr && *temp != '\0' ? temp : "/tmp") + "/tkv-XXXXXX";
  if (mkdtemp(folder_.data()) == nullptr) Die("a folder for the token");
  watchdog.Guard(folder_, kTokenName);
  path_ = folder_ + "/" + kTokenName;
  // Sets the modes explicitly, independent of the umask.
  chmod(folder_.c_str(), 0700);
  const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  const bool is_written =
      file >= 0 && fchmod(file, 0600) == 0 &&
      write(file, token.data(), token.size()) == static_cast<ssize_t>(token.size());
  const int error = errno;
  if (file >= 0) close(file);
  if (is_written) return;
  unlink(path_.c_str());
  rmdir(folder_.c_str());
  errno = error;
  Die("the token's file");
}

TokenFile::~TokenFile() {
  unlink(path_.c_str());
  rmdir(folder_.c_str());
}

SignalFile::SignalFile(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    struct sigaction action{};
    // Leaves alone what `nohup`, or a shell, made this process ignore.  A blocked signal would be
    // read although it is ignored.
    const bool may_be_ignored = signal == SIGHUP || signal == SIGTSTP;
    if (may_be_ignored && sigaction(signal, nullptr, &action) == 0 &&
        action.sa_handler == SIG_IGN) {
      continue;
    }
    sigaddset(&set, signal);
  }
  if (sigprocmask(SIG_BLOCK, &set, &old_) != 0) Die("sigprocmask");
  file_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (file_ < 0) Die("signalfd");
}

SignalFile::~SignalFile() { close(file_); }

int SignalFile::Take() const {
  signalfd_siginfo info{};
  return read(file_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

void SignalFile::TakeDefaultAction(int signal) const {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  kill(getpid(), signal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  sigprocmask(SIG_BLOCK, &one, nullptr);
}

}  // namespace tkv::cli
