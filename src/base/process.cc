#include "base/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <sstream>

#include "base/format.h"

namespace tkv {
namespace {

std::atomic<unsigned> fork_generation{0};

void CountFork() { fork_generation.fetch_add(1, std::memory_order_relaxed); }

int AffinityCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// The most that is read of one of the kernel's control files.
constexpr size_t kControlBytesMax = 64 << 10;

// Reads "max 100000" or "150000 100000"; 0 without a quota.  In version 1 the quota is -1 if there
// is none.
double ReadQuotaV2(const std::string& file) {
  std::istringstream in(StartOf(file, kControlBytesMax));
  std::string quota;
  double period = 0;
  if (!(in >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

double ReadQuotaV1(const std::string& folder) {
  double quota = -1;
  double period = 0;
  std::istringstream(StartOf(folder + "/cpu.cfs_quota_us", kControlBytesMax)) >> quota;
  std::istringstream(StartOf(folder + "/cpu.cfs_period_us", kControlBytesMax)) >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Returns true if the comma-separated list has `name`.
bool Names(const std::string& list, const std::string& name) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == name) return true;
  }
  return false;
}

double Tighter(double a, double b) {
  if (a <= 0) return b;
  return b <= 0 ? a : std::min(a, b);
}

}  // namespace

unsigned ForkGeneration() noexcept {
  // Registered by the first caller, so that loading the library has no side effect.
  static const int registered = pthread_atfork(nullptr, nullptr, CountFork);
  static_cast<void>(registered);
  return fork_generation.load(std::memory_order_relaxed);
}

double CgroupCpuQuota(const std::string& root, const std::string& proc_self_cgroup) {
  double quota = 0;
  std::istringstream in(StartOf(proc_self_cgroup, kControlBytesMax));
  for (std::string line; std::getline(in, line);) {
    // "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1)
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && !Names(controllers, "cpu")) continue;
    // Any ancestor may have a quota.  Inside of a container the path may not exist; its root does.
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      quota = Tighter(quota, version2 ? ReadQuotaV2(Format("{}{}/cpu.max", root, path))
                                      : ReadQuotaV1(Format("{}/cpu{}", root, path)));
      if (path.empty() || path.rfind('/') == std::string::npos) break;
    }
  }
  return quota;
}

int UsableCores() {
  const int affinity = AffinityCores();
  const double quota = CgroupCpuQuota("/sys/fs/cgroup", "/proc/self/cgroup");
  if (quota <= 0) return affinity;
  return std::clamp(static_cast<int>(std::ceil(quota)), 1, affinity);
}

namespace {

// Returns UsableCores at the first call for which there is memory; before that, 0.
int KnownCores() noexcept {
  try {
    static const int cores = UsableCores();
    return cores;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

bool HasIdleCore() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kFreshNanoseconds = 5'000'000;
  const int cores = KnownCores();
  static const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  static std::atomic<int64_t> looked_at{0};
  static std::atomic<bool> answer{false};
  if (file < 0 || cores < 2) return false;
  const int64_t now = Clock::now().time_since_epoch().count();
  if (now - looked_at.load(std::memory_order_relaxed) < kFreshNanoseconds) {
    return answer.load(std::memory_order_relaxed);
  }
  looked_at.store(now, std::memory_order_relaxed);
  char text[128] = {};
  int running = 0;
  // source  proc(5): the fourth field is running/all
  const bool is_told = pread(file, text, sizeof(text) - 1, 0) > 0 &&
                       std::sscanf(text, "%*s %*s %*s %d/", &running) == 1;
  answer.store(is_told && running <= cores, std::memory_order_relaxed);
  return answer.load(std::memory_order_relaxed);
}

std::string StartOf(const std::string& path, size_t bytes_max) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  text.resize(bytes_max);
  size_t size = 0;
  while (size < bytes_max) {
    const ssize_t got = read(file, text.data() + size, bytes_max - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(file);
  text.resize(size);
  return text;
}

void RaiseFileLimit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, kFilesMax);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t FileLimit() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

std::string SystemText(const std::error_code& error) {
  if (error != std::errc::too_many_files_open) return error.message();
  return Format("{} (this process may have {}; ulimit -n)", error.message(), FileLimit());
}

size_t LastLevelCacheBytes() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<size_t>(bytes) : size_t{32} << 20;
}

}  // namespace tkv
