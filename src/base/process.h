// What this process may use and whether it is the one that a resource was made in.

#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tkv {

// Counts forks: grows by one in each child of fork().  A resource with threads or locks keeps the
// number of its birth and refuses work under another one.
unsigned ForkGeneration() noexcept;

// How often a wait looks whether its user has been interrupted.
inline constexpr std::chrono::milliseconds kInterruptEvery{50};

// Cores that this process may keep busy: its CPU affinity, cut to the CPU quota of its control
// group (version 1 or 2), at least 1.
int UsableCores();

// Whether no more threads of the whole machine want to run than this process may keep busy, the
// calling one among them, as of the last few milliseconds: then it harms nobody to spin briefly
// instead of sleeping.  False where the system does not tell.
bool HasIdleCore() noexcept;

// The CPU quota, in cores, that the cgroup file system below `root` gives this process; 0 where
// there is none.
//   source  Linux admin guide, cgroup-v2 `cpu.max`, cgroup-v1 `cpu.cfs_quota_us`
double CgroupCpuQuota(const std::string& root, const std::string& proc_self_cgroup);

// The first bytes of a file, at most so many; none where it cannot be read.  A process that another
// thread starts meanwhile does not inherit the open file, as it does one of a std::ifstream.
std::string StartOf(const std::string& path, size_t bytes_max);

// Bytes of the last-level cache as the system reports it; 32 MiB where it reports none.
size_t LastLevelCacheBytes();

}  // namespace tkv
