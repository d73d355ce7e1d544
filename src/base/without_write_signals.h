// Writes that end with an error and not with the process.

#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace tkv {

// While one lives, what this thread writes sends the process no SIGPIPE, where write() has no
// MSG_NOSIGNAL, and no SIGXFSZ, where a file is at the limit of its size: errno says EPIPE or EFBIG.
// The kernel sends these to the thread that writes: they are blocked there, and taken before they are
// let through again, unless one was pending before, which is somebody else's.
class WithoutWriteSignals {
 public:
  WithoutWriteSignals() noexcept {
    sigemptyset(&taken_);
    sigset_t pending{};
    sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) != 1) sigaddset(&taken_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  }
  ~WithoutWriteSignals() {
    const int error = errno;
    const timespec at_once{};
    while (sigtimedwait(&taken_, nullptr, &at_once) > 0 || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  WithoutWriteSignals(const WithoutWriteSignals&) = delete;
  WithoutWriteSignals& operator=(const WithoutWriteSignals&) = delete;

 private:
  sigset_t taken_{}, before_{};
};

}  // namespace tkv
