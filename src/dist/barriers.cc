#include "dist/barriers.h"

#include <string_view>
#include <thread>

#include "base/duration.h"
#include "base/format.h"
#include "base/memory_error.h"
#include "base/wait.h"

namespace tkv {

CallPtr Barriers::Start(const std::string& verb, const std::optional<Error>& failure,
                        Operation::Barrier::Task task) {
  core_.calls.CheckOpen(verb);
  return core_.calls.Start(verb,
                           core_.calls.Make(Operation::Barrier{task, failure}, verb, nullptr));
}

void Barriers::Meet(const std::string& verb, const Meeting& meeting, const char* left,
                    const std::function<void()>& f) {
  using Task = Operation::Barrier::Task;
  try {
    f();
  } catch (...) {
    // Wait until the error is accepted.  Otherwise this worker could leave the job before the
    // others learn the reason.
    const CallPtr told = Start(verb, ErrorNow(verb));
    core_.worker->GoOn();
    try {
      told->WaitAccepted(core_.options.server_patience);
    } catch (const Error& unheard) {
      static_cast<void>(unheard);  // the others end by their own patience
    }
    throw;
  }
  if (meeting.worker.first == core_.worker->rank()) {
    return core_.calls.Await(Start(verb, {}, Task::kDone));
  }
  const Error undone = Fail(Code::kAborted,
                            "worker {}, which {}, has not ended the {}: it is dead, or has called "
                            "something else; {}: {} again, on every rank that lives",
                            meeting.worker.first, meeting.task, meeting.verb, left, verb);
  try {
    core_.calls.Await(Start(verb, undone, Task::kOfAnother));
  } catch (const Error& error) {
    // Another text names an earlier worker, whose death this worker knew already.
    if (std::string_view(error.what()).ends_with(undone.what())) AwaitEndOf(meeting);
    throw;
  }
}

// Waits until this worker also knows of the death of the worker with the task, and at most
// `server_patience`.  Servers may learn of it earlier.  Without this wait, the worker would not
// know that the next turn to read is its own.
void Barriers::AwaitEndOf(const Meeting& meeting) {
  constexpr std::chrono::milliseconds kStep(1);
  const auto is_over = [&] {
    return core_.worker->Ask([&](const Client& client) {
      return client.SnapshotReader() != meeting.worker || client.closed();
    });
  };
  core_.worker->GoOn();
  WaitUntil(nullptr, DeadlineAfter(core_.options.server_patience), core_.options.interrupt, is_over,
            [&](std::chrono::nanoseconds) { std::this_thread::sleep_for(kStep); });
}

}  // namespace tkv
