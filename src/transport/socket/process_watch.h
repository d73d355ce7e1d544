// Processes of this host, watched by descriptors (pidfds) that become readable when they end.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace tkv {

// A pidfd: a descriptor of a process of this host.  Empty if there is none.
class ProcessFile {
 public:
  ProcessFile() = default;
  ~ProcessFile();
  ProcessFile(ProcessFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  ProcessFile& operator=(ProcessFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }

  // Opens the descriptor of a process.  The result is empty if the system gives none.
  static ProcessFile Open(pid_t process);
  // Returns a second descriptor of the same process.
  ProcessFile Copy() const;

  bool is_empty() const { return file_ < 0; }
  bool HasExited() const;

 private:
  explicit ProcessFile(int file) : file_(file) {}

  int file_ = -1;
};

// The processes whose connections have ended, by the address at which they answered.  A later dial
// of the address can then report that the process has ended.
class ProcessWatch {
 public:
  // Keeps a process.  Without memory nothing is kept, and a later dial says less.
  void Keep(const std::string& address, const ProcessFile& process);
  void Forget(const std::string& address) { answered_.erase(address); }
  // Returns true, once, if the process that last answered at an address has ended.
  bool HasEnded(const std::string& address);

  size_t size() const { return answered_.size(); }

  // If there are more, those whose processes have ended are forgotten.
  static constexpr size_t kKeptMax = 32;

 private:
  std::map<std::string, ProcessFile> answered_;
};

}  // namespace tkv
