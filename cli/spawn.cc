#include "spawn.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "system.h"
#include "tkv/error.h"
#include "watchdog.h"

extern char** environ;

namespace tkv::cli {
namespace {

// Both ends of a pipe.  The destructor closes the open ones.
struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) Die("a pipe");
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int Take(int end) { return std::exchange(ends[end], -1); }
  void Close(int end) { close(Take(end)); }

  int ends[2] = {-1, -1};
};

std::vector<char*> PointersTo(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts->size() + 1);
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Turns the child of a fork into the command; only async-signal-safe calls.
void Become(const SpawnOptions& options, const Pipe& input, const Pipe& output, const Pipe& error,
            char* const* words, char* const* variables) {
  setpgid(0, 0);
  if (options.watchdog != nullptr) options.watchdog->Add(getpid());
  if (options.input != Stdin::kOwn) {
    const bool is_pipe = options.input == Stdin::kPipe;
    const int from = is_pipe ? input.ends[0] : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (from < 0 || dup2(from, 0) < 0) return;
  }
  if (dup2(output.ends[1], 1) < 0 || dup2(error.ends[1], 2) < 0) return;
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  RestoreFileLimit();
  sigprocmask(SIG_SETMASK, &options.signals, nullptr);
  execvpe(words[0], words, variables);
}

}  // namespace

Spawned Spawn(SpawnOptions options) {
  const std::vector<char*> words = PointersTo(&options.words);
  const std::vector<char*> variables = PointersTo(&options.variables);
  Pipe input, output, failure;
  std::optional<Pipe> separate;
  if (options.separates_error) separate.emplace();
  Pipe& error_output = separate ? *separate : output;
  const pid_t pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    Become(options, input, output, error_output, words.data(),
           options.inherits ? environ : variables.data());
    [[maybe_unused]] const ssize_t told = write(failure.ends[1], &errno, sizeof(errno));
    _exit(127);
  }
  failure.Close(1);
  int error = 0;
  ssize_t got = 0;
  do {  // until the command runs, or the child reports its error
    got = read(failure.ends[0], &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got != 0) {
    if (options.watchdog != nullptr) options.watchdog->Remove(pid);
    waitpid(pid, nullptr, 0);
    throw Error(Code::kInvalidArgument, options.words[0] + ": " + std::strerror(error));
  }
  Spawned spawned;
  spawned.pid = pid;
  if (options.input == Stdin::kPipe) spawned.input = input.Take(1);
  spawned.output = output.Take(0);
  if (separate) spawned.error = separate->Take(0);
  return spawned;
}

}  // namespace tkv::cli
