// Compares the CPU time of one piece of work in a small and in a large world.

#pragma once

#include <algorithm>
#include <ctime>

namespace tkv::test {

// Seconds of CPU time of this thread: others that use the machine do not count.
inline double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
double CpuSecondsOf(const Work& work) {
  const double begin = CpuSeconds();
  work();
  return CpuSeconds() - begin;
}

// Returns how many times longer `work(large)` takes than `work(small)`, each measured by itself; the
// shortest of three.
template <typename Work>
double Growth(const Work& work, size_t small, size_t large) {
  const auto shortest = [&](size_t count) {
    return std::min({work(count), work(count), work(count)});
  };
  return shortest(large) / shortest(small);
}

}  // namespace tkv::test
