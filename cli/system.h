// Operating system calls that several subcommands share.

#pragma once

#include <sys/types.h>

#include <csignal>
#include <initializer_list>
#include <string>

namespace tkv::cli {

// Throws the system's error of the last call.
//   throws  kUnavailable  "what: " and the text of errno
[[noreturn]] void Die(const std::string& what);

// Opens missing standard files as /dev/null.  Otherwise a socket could become stdin, stdout or
// stderr.
void OpenStandardFiles();

// Lets this process have as many open files as the system permits: a launcher has three for each
// child.  RestoreFileLimit gives a child of fork() the limit from before; it is async-signal-safe.
void RaiseFileLimit();
void RestoreFileLimit() noexcept;

// Sends a signal to a process that leads a group, and to the group.  SIGUSR1 and SIGUSR2 go to the
// process alone, because helpers that it has started would die of them.
void SignalGroup(pid_t leader, int signal);

// Returns the path of this program.
std::string OwnPath();

class Watchdog;

// A secret in a file that only this user can read, in its own folder.  The destructor removes both.
// If this process is killed, the watchdog removes them.
class TokenFile {
 public:
  //   throws  kUnavailable  the system's error
  TokenFile(const std::string& token, const Watchdog& watchdog);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

// Receives signals by a file instead of a handler, as long as the object lives.
class SignalFile {
 public:
  //   throws  kUnavailable  the system's error
  explicit SignalFile(std::initializer_list<int> signals);
  ~SignalFile();
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  int file() const { return file_; }  // readable if a signal is pending
  int Take() const;                   // the next pending signal, or 0
  // Does what the system does by itself at one of the signals: stops this process at SIGTSTP.
  //   blocks  until the process continues
  void TakeDefaultAction(int signal) const;
  const sigset_t& old() const { return old_; }  // the signals blocked before

 private:
  sigset_t old_{};
  int file_ = -1;
};

}  // namespace tkv::cli
