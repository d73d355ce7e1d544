// What the threads of stores have to say, and what a thread that waits looks at.

#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tkv::python {

class Waker;

// Notices are kept until Python asks for them, because no thread of a store takes the GIL.
class Notices {
 public:
  void Add(int level, const std::string& text);
  bool any();
  // Each notice from now on adds `id` to the waker, which calls Forget before it goes.
  void Wake(Waker* waker, uint64_t id);
  void Forget(Waker* waker);
  std::vector<std::pair<int, std::string>> Take();

 private:
  static constexpr size_t kMax = 1000;
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> waiting_;
  std::vector<std::pair<Waker*, uint64_t>> wakers_;
};

// Those of the process; threads may speak until it ends.
Notices& AllNotices();

// Called by a thread of the user's that waits: tells notices, and ends the wait where the handler of
// a signal raises or the call that runs on this thread is cancelled.
void CheckSignals();

}  // namespace tkv::python
