// Makes failed writes return an error instead of killing the process.

#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace tkv {

// A guard: while it lives, writes of this thread raise neither SIGPIPE nor SIGXFSZ.  errno is EPIPE
// or EFBIG instead.  For use with write(), which has no MSG_NOSIGNAL, and for files at their size
// limit.
// The kernel sends both signals to the thread that writes.  The object blocks them in this thread,
// and consumes them before it unblocks them.  A signal that was pending before is left alone: it
// belongs to other code.
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
