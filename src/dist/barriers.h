// The barriers of a store, and tasks between two of them.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "dist/store_core.h"

namespace tkv {

// A task of one worker for which all workers wait.
struct Meeting {
  const char* task;  // in messages: "worker 0, which TASK, has not ended the VERB"
  const char* verb;
  // The worker with the task, and its incarnation.
  std::pair<Rank, uint64_t> worker = {kNoRank, 0};
};

class Barriers {
 public:
  // Makes the barriers of a store, which must outlive them.
  explicit Barriers(StoreCore* core) : core_(*core) {}

  // Begins a barrier.
  //   failure  the error of the work before the barrier, as in Operation: all workers that come
  //            receive it
  CallPtr Start(const std::string& verb, const std::optional<Error>& failure = {},
                Operation::Barrier::Task task = Operation::Barrier::Task::kNone);
  // Returns true if an earlier life of this worker had reached the barrier that comes next.
  bool HasReachedNext() const {
    return core_.worker->Ask(&Client::HasReachedNext, InternalKey(core_.number, "barrier"));
  }
  // Runs f, and waits until every worker has done so.  An error of one worker is the error of all,
  // and the worker whose f fails waits for no other.  An interrupt and a lack of memory count, too.
  // If the worker with the task dies on the way, all others receive an error that names the undone
  // work.
  //   left  the state that an unfinished task leaves, in the words of that error
  void Meet(const std::string& verb, const Meeting& meeting, const char* left,
            const std::function<void()>& f);

 private:
  void AwaitEndOf(const Meeting& meeting);

  StoreCore& core_;
};

}  // namespace tkv
