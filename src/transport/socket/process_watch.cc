#include "transport/socket/process_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>
#include <new>

namespace tkv {

ProcessFile::~ProcessFile() {
  if (file_ >= 0) close(file_);
}

ProcessFile ProcessFile::Open(pid_t process) {
  return ProcessFile(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

ProcessFile ProcessFile::Copy() const { return ProcessFile(fcntl(file_, F_DUPFD_CLOEXEC, 0)); }

bool ProcessFile::HasExited() const {
  pollfd waits{file_, POLLIN, 0};
  return file_ >= 0 && poll(&waits, 1, 0) == 1;
}

void ProcessWatch::Keep(const std::string& address, const ProcessFile& process) {
  try {
    answered_[address] = process.Copy();
  } catch (const std::bad_alloc&) {
    return;
  }
  // An address of which nobody asks again would hold a descriptor for ever.
  for (auto at = answered_.begin(); answered_.size() > kKeptMax && at != answered_.end();) {
    const bool goes = at->first != address && at->second.HasExited();
    at = goes ? answered_.erase(at) : std::next(at);
  }
}

bool ProcessWatch::HasEnded(const std::string& address) {
  const auto found = answered_.find(address);
  if (found == answered_.end() || !found->second.HasExited()) return false;
  answered_.erase(found);
  return true;
}

}  // namespace tkv
