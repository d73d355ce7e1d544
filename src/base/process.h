// The resources that this process may use, and a test whether it has been forked.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

namespace tkv {

// Returns the number of forks that led to this process: each fork() raises it by one in the child.
// A resource with threads or locks remembers the number at its creation, and refuses to work under
// another number.
unsigned ForkGeneration() noexcept;

// The interval at which a wait checks whether its user has interrupted it.
inline constexpr std::chrono::milliseconds kInterruptEvery{50};

// Returns the number of cores that this process may keep busy: its CPU affinity, cut to the CPU
// quota of its control group (version 1 or 2), at least 1.
int UsableCores();

// Returns true if a thread may spin briefly instead of sleeping without taking a core from another
// thread.
// The condition: the machine has at most as many runnable threads, including this one, as this
// process may use cores.  The answer is a few milliseconds old at most.  Returns false with one
// core, or if the system does not report the number of runnable threads.
bool HasIdleCore() noexcept;

// Returns the CPU quota of this process, in cores, from the cgroup file system below `root`; 0 if
// there is none.
//   source  Linux admin guide, cgroup-v2 `cpu.max`, cgroup-v1 `cpu.cfs_quota_us`
double CgroupCpuQuota(const std::string& root, const std::string& proc_self_cgroup);

// Returns the beginning of a file, at most `bytes_max` bytes; nothing if the file cannot be read.
// The descriptor is closed on exec, unlike that of a std::ifstream: a process that another thread
// starts meanwhile does not inherit it.
std::string StartOf(const std::string& path, size_t bytes_max);

// Raises the number of files that this process may have open: the soft limit becomes the hard one,
// at most kFilesMax.  Call it in a process with a connection for each member of a job.
inline constexpr uint64_t kFilesMax = uint64_t{1} << 20;
void RaiseFileLimit() noexcept;

// Returns the number of files that this process may have open.
uint64_t FileLimit() noexcept;

// Returns the system's text for an error.  The text for too many open files names the limit.
std::string SystemText(const std::error_code& error);

// Returns the size of the last-level cache as the system reports it; 32 MiB if it reports none.
size_t LastLevelCacheBytes();

}  // namespace tkv
