#include "host_limits.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "group_limits.h"
#include "look.h"
#include "tkv/job.h"

namespace tkv::cli {
namespace {

constexpr Finding::Kind kGood = Finding::Kind::kGood;
constexpr Finding::Kind kNote = Finding::Kind::kNote;
constexpr Finding::Kind kBad = Finding::Kind::kBad;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kDiskWanted = 256 * kMiB;
constexpr uint64_t kMemoryWanted = 256 * kMiB;
constexpr uint64_t kShmOfDocker = 64 * kMiB;  // its default
constexpr uint64_t kProcessesWanted = 256;

std::string Amount(uint64_t bytes) { return BytesText(static_cast<double>(bytes)); }

Finding TemporaryFolder() {
  const char* const given = std::getenv("TMPDIR");
  const std::string folder = given != nullptr && *given != '\0' ? given : "/tmp";
  struct statvfs disk{};
  if (statvfs(folder.c_str(), &disk) != 0 || access(folder.c_str(), W_OK | X_OK) != 0) {
    return {kBad, "temporary", folder + ": " + std::strerror(errno),
            "let TMPDIR name a folder that you can write to"};
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string text = Amount(free) + " free in " + folder;
  if (disk.f_files > 0 && disk.f_favail == 0) {
    return {kNote, "temporary", text + ", and no file more can be made there",
            "delete files there, or let TMPDIR name a folder of another disk"};
  }
  if (free >= kDiskWanted) return {kGood, "temporary", text, ""};
  return {kNote, "temporary", text,
          "delete files there, or let TMPDIR name a folder of another disk"};
}

Finding SharedFolder() {
  struct statvfs disk{};
  if (statvfs("/dev/shm", &disk) != 0) {
    return {kNote, "/dev/shm", "there is none; stores need none, but MPI and PyTorch may",
            "mount -t tmpfs tmpfs /dev/shm"};
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string text =
      Amount(free) + " free of " + Amount(uint64_t{disk.f_blocks} * disk.f_frsize);
  if (free > kShmOfDocker) return {kGood, "/dev/shm", text, ""};
  return {kNote, "/dev/shm", text + "; stores need none, but MPI and PyTorch may",
          "delete files there; in a container: docker run --shm-size=1g"};
}

Finding Processes() {
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  const GroupLimit group = ProcessesOfGroup();
  const uint64_t own = limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
  std::string text =
      own == kUnlimited ? "no limit for this user" : "this user may have " + std::to_string(own);
  if (group.limit != kUnlimited) {
    text += ", " + std::to_string(group.left) + " of " + std::to_string(group.limit) +
            " left in the container";
  }
  const bool is_enough = std::min(own, group.left) >= kProcessesWanted;
  return {is_enough ? kGood : kNote, "processes", text,
          is_enough ? ""
                    : "each thread counts: ulimit -u 4096; in a container: docker run "
                      "--pids-limit=4096"};
}

Finding Memory() {
  const uint64_t free = NumberBehind("/proc/meminfo", "MemAvailable:") * 1024;
  const uint64_t all = NumberBehind("/proc/meminfo", "MemTotal:") * 1024;
  const GroupLimit group = MemoryOfGroup();
  std::string text = Amount(free) + " available of " + Amount(all);
  if (group.limit != kUnlimited) {
    text += ", " + Amount(group.left) + " of " + Amount(group.limit) + " left in the container";
  }
  const bool is_enough = std::min(free, group.left) >= kMemoryWanted;
  return {is_enough ? kGood : kNote, "memory", text,
          is_enough ? "" : "end other processes; in a container: docker run --memory"};
}

Finding Jobs(size_t named) {
  const std::vector<LocalJob> jobs = LocalJobs();
  if (jobs.empty()) return {kGood, "jobs", "none of yours runs on this machine", ""};
  std::string text = std::to_string(jobs.size()) + " of yours on this machine:";
  for (size_t i = 0; i < std::min(jobs.size(), named); ++i) {
    text += ' ' + Printable(jobs[i].id) + " (pid " + std::to_string(jobs[i].head_pid) + ')';
  }
  if (jobs.size() > named) {
    text += " and " + std::to_string(jobs.size() - named) + " more";
  }
  return {kGood, "jobs", text, ""};
}

}  // namespace

std::vector<Finding> ExamineLimits(size_t jobs_named) {
  return {TemporaryFolder(), SharedFolder(), Memory(), Processes(), Jobs(jobs_named)};
}

}  // namespace tkv::cli
