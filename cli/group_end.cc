#include "group_end.h"

#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace tkv::cli {
namespace {

// Returns true if a process of the group runs.  A process that has ended stays a member until its
// parent asks for its status, which the first process of a container may never do.
bool HasRunningMember(pid_t leader) {
  if (kill(-leader, 0) != 0) return false;
  std::error_code error;
  for (std::filesystem::directory_iterator i("/proc", error), end; !error && i != end;
       i.increment(error)) {
    std::ifstream file(i->path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    // "pid (name) state parent group ...", and a name may have brackets and spaces.
    const size_t behind_name = text.rfind(')');
    if (behind_name == std::string::npos) continue;
    std::istringstream fields(text.substr(behind_name + 1));
    char state = 0;
    pid_t parent = 0, group = 0;
    if (!(fields >> state >> parent >> group)) continue;
    if (group == leader && state != 'Z' && state != 'X') return true;
  }
  return static_cast<bool>(error);
}

}  // namespace

std::optional<int> GroupEnd::Poll(pid_t leader) {
  const auto now = std::chrono::steady_clock::now();
  if (!status_) {
    int status = 0;
    if (waitpid(leader, &status, WNOHANG) != leader) return {};
    status_ = status;
    kill_at_ = WIFEXITED(status) ? now + kRestMax : now;
  }
  // The system gives the number of a group to no other process as long as the group has members.
  if (!HasRunningMember(leader)) return status_;
  if (now < kill_at_) return {};
  has_killed_rest_ = WIFEXITED(*status_);
  kill(-leader, SIGKILL);
  return status_;
}

}  // namespace tkv::cli
