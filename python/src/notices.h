// Log lines of stores' threads, and the checks that a waiting Python thread makes.

#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tkv::python {

class Waker;

// Keeps notices until Python takes them, because no thread of a store takes the GIL.
class Notices {
 public:
  void Add(int level, const std::string& text);
  bool any();
  // Makes each notice add `id` to the waker from now on.  The waker calls Forget before its
  // destruction.
  void Wake(Waker* waker, uint64_t id);
  void Forget(Waker* waker);
  std::vector<std::pair<int, std::string>> Take();

 private:
  static constexpr size_t kMax = 1000;
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> waiting_;
  std::vector<std::pair<Waker*, uint64_t>> wakers_;
};

// Returns the notices of the process.  Never destroyed, because threads may add notices until the
// process ends.
Notices& AllNotices();

// Called by a waiting thread of the user.  Passes on notices.  Throws if a signal handler raised,
// or if this thread's call was cancelled.
void CheckSignals();

}  // namespace tkv::python
