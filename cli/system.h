// What the subcommands ask of the operating system in more than one place.

#pragma once

#include <csignal>
#include <initializer_list>
#include <string>

namespace tkv::cli {

//   throws  kUnavailable  "what: " and what errno says
[[noreturn]] void Die(const std::string& what);

// A program that was started without stdin, stdout or stderr would take a socket for them.
void OpenStandardFiles();

// The path of this program.
std::string OwnPath();

class Watchdog;

// A secret in a file that only this user can read, in a folder of its own.  Both are removed with it,
// or by the watchdog if this process is killed.
class TokenFile {
 public:
  //   throws  kUnavailable  what the system says
  TokenFile(const std::string& token, const Watchdog& watchdog);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

// Signals that come by a file as long as it lives, and not by a handler.
class SignalFile {
 public:
  //   throws  kUnavailable  what the system says
  explicit SignalFile(std::initializer_list<int> signals);
  ~SignalFile();
  SignalFile(const SignalFile&) = delete;
  SignalFile& operator=(const SignalFile&) = delete;

  int file() const { return file_; }            // can be read when there is one
  int Take() const;                             // the next one, 0 where there is none
  const sigset_t& old() const { return old_; }  // that were blocked before

 private:
  sigset_t old_{};
  int file_ = -1;
};

}  // namespace tkv::cli
