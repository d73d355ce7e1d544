// The limits of the control groups around this process, as of a container.

#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace tkv::cli {

// Returns the number behind a word at the beginning of a line; 0 if no line has it.
uint64_t NumberBehind(const std::string& path, const std::string& word);

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The files in which the system reports the control groups of this process.  Tests have their own.
struct GroupFiles {
  std::string root = "/sys/fs/cgroup";
  std::string self = "/proc/self/cgroup";
};

// A limit of a control group.
struct GroupLimit {
  uint64_t limit = kUnlimited;
  uint64_t left = kUnlimited;  // of it
};

// Return the limit of the group around this process with the least left, in version 1 or 2.
//   units  bytes, without files in the page cache that nothing has used for long; processes
//   source  Linux admin guide, cgroup-v2 and cgroup-v1
GroupLimit MemoryOfGroup(const GroupFiles& files = {});
GroupLimit ProcessesOfGroup(const GroupFiles& files = {});

}  // namespace tkv::cli
