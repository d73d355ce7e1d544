#include "spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "system.h"
#include "tkv/error.h"

extern char** environ;

namespace tkv::cli {
namespace {

// Both ends of a pipe; those that are still there are closed with it.
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

  int ends[2] = {-1, -1};
};

std::vector<char*> PointersTo(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts->size() + 1);
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Spawned Spawn(SpawnOptions options) {
  const std::vector<char*> words = PointersTo(&options.words);
  const std::vector<char*> variables = PointersTo(&options.variables);
  Pipe input, output;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (options.has_input) {
    posix_spawn_file_actions_adddup2(&files, input.ends[0], 0);
  } else {
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&files, output.ends[1], 1);
  posix_spawn_file_actions_adddup2(&files, output.ends[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &options.signals);
  sigset_t ignored;
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  Spawned spawned;
  const int error = posix_spawnp(&spawned.pid, words[0], &files, &attributes, words.data(),
                                 options.inherits ? environ : variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    throw Error(Code::kInvalidArgument, options.words[0] + ": " + std::strerror(error));
  }
  if (options.has_input) spawned.input = input.Take(1);
  spawned.output = output.Take(0);
  return spawned;
}

}  // namespace tkv::cli
