#include "output.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "system.h"

namespace tkv::cli {
namespace {

struct Text {
  int file = 1;
  std::string bytes;
  Output::Waiting waiting;
};

// Writes the whole text.  Returns 0 or the errno of the failure.
int WriteAll(const Text& text) {
  size_t done = 0;
  while (done < text.bytes.size()) {
    const ssize_t wrote = write(text.file, text.bytes.data() + done, text.bytes.size() - done);
    if (wrote >= 0) {
      done += static_cast<size_t>(wrote);
    } else if (errno == EAGAIN) {  // another process that shares the file made it non-blocking
      pollfd file{text.file, POLLOUT, 0};
      poll(&file, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

struct Output::State {
  State() : event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event < 0) Die("eventfd");
  }
  ~State() { close(event); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void WriteUntilEnd() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return is_ending || !texts.empty(); });
      if (is_ending) return;
      const Text text = std::move(texts.front());
      texts.pop_front();
      lock.unlock();
      const int error = WriteAll(text);
      if (text.waiting != nullptr) *text.waiting -= text.bytes.size();
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t told = write(event, &one, sizeof(one));
      lock.lock();
      if (failure == 0) failure = error;
      is_idle = texts.empty();
      if (is_idle) changed.notify_all();
    }
  }

  const int event;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Text> texts;
  bool is_idle = true;  // nothing is queued or being written
  bool is_ending = false;
  int failure = 0;
};

Output::Output() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { state->WriteUntilEnd(); }).detach();
}

Output::~Output() {
  WaitUntilWritten(std::chrono::seconds(1));
  std::lock_guard lock(state_->mutex);
  state_->is_ending = true;
  state_->changed.notify_all();
}

void Output::Put(int file, std::string text, const Waiting& waiting) {
  if (text.empty()) return;
  const size_t bytes = text.size();
  std::lock_guard lock(state_->mutex);
  state_->texts.push_back({file, std::move(text), waiting});
  if (waiting != nullptr) *waiting += bytes;  // only what is queued, and before it is written
  state_->is_idle = false;
  state_->changed.notify_all();
}

int Output::file() const { return state_->event; }

void Output::Written() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(state_->event, &count, sizeof(count));
}

bool Output::WaitUntilWritten(std::chrono::milliseconds longest) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, longest, [this] { return state_->is_idle; });
}

int Output::TakeFailure() {
  std::lock_guard lock(state_->mutex);
  return std::exchange(state_->failure, 0);
}

}  // namespace tkv::cli
