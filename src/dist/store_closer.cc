#include "dist/store_closer.h"

#include <exception>

#include "base/duration.h"
#include "base/format.h"

namespace tkv {

// Makes the worker leave the job.
void StoreCloser::Leave(const std::optional<Error>& failure) {
  const CallPtr call =
      core_.calls.Start("close", core_.calls.Make(Operation::Leave{failure}, "close", nullptr));
  try {
    core_.calls.Await(call);
  } catch (const Error& failed) {
    // A worker that was declared dead, or that finds no head or server to say goodbye to, is out of
    // the job anyway.
    if (failed.code() != Code::kAborted && failed.code() != Code::kUnavailable) throw;
  }
  // The servers in this process must see that this worker does not need them any more.
  core_.worker->calls().CancelAll(core_.number, "the store is closed");
  core_.worker->Stop();
  core_.worker->AfterLeave();
}

// Asks the servers to free the keys, which they do when every worker has closed the store.
void StoreCloser::FreeKeys() {
  const CallPtr close =
      core_.calls.Start("close", core_.calls.Make(Operation::Close{}, "close", nullptr));
  try {
    core_.calls.Await(close);
  } catch (const Error& failed) {
    if (failed.code() != Code::kAborted && failed.code() != Code::kUnavailable) throw;
  }
}

void StoreCloser::Close(const std::optional<Error>& failure) {
  if (!core_.worker->is_of_this_process()) return;
  std::exception_ptr error = failure ? nullptr : saver_.SaveAtEnd();
  {
    std::lock_guard lock(core_.keys.mutex());
    if (core_.calls.is_closed()) return;
    core_.calls.Close();
  }
  try {
    saver_.EndSaving(core_.options.patience);
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  const bool is_last = core_.worker->stores().Close(core_.number);
  try {
    if (core_.worker->is_observer()) {
      // Nobody waits for an observer, so nobody has to be told.
    } else if (is_last) {
      Leave(failure);
    } else {
      // Pushes under way still count.
      for (const CallPtr& call : core_.worker->calls().Of(core_.number)) {
        call->WaitAccepted(core_.options.patience);
      }
      // After a failure, the next incarnation continues with the keys, unless the program goes on.
      if (failure) {
        core_.worker->stores().NoteFailedClose(core_.number);
      } else {
        FreeKeys();
      }
    }
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  core_.worker->calls().CancelAll(core_.number, "the store is closed");
  if (is_last) core_.worker->Stop();
  {
    std::lock_guard lock(core_.keys.mutex());
    core_.keys.Clear();
  }
  // Throw the first error, above all an interrupt.  Calls that failed only because this close
  // cancelled them would hide the cause.
  if (error) std::rethrow_exception(error);
  core_.calls.RaiseUnseen("close", {});
}

// Logs a warning about a store that is dropped without close(), if there is memory for it.
void StoreCloser::WarnOfDrop(const char* what, const char* why) const noexcept {
  if (!core_.options.log) return;
  try {
    core_.options.log(2, Format("a store was dropped without close(), {}: {}", what, why));
  } catch (const std::exception& failed) {
    static_cast<void>(failed);
  }
}

void StoreCloser::Drop(const std::optional<Error>& failure) noexcept {
  const auto deadline = DeadlineAfter(std::chrono::seconds(2));
  const auto left = [deadline] { return deadline - std::chrono::steady_clock::now(); };
  if (const auto error = saver_.EndSavingUnclosed(left())) {
    WarnOfDrop("while it saved, and there is no snapshot", error->what());
  }
  const bool is_last = core_.worker->stores().Close(core_.number);
  try {
    const auto calls = core_.worker->calls().Of(core_.number);
    const auto help = [this](const std::function<bool()>& done, std::chrono::nanoseconds longest) {
      return core_.worker->PollUntil(done, longest);
    };
    const auto run = [&](Operation::Request request) {
      const auto call = std::make_shared<Call>("close", help, nullptr);
      call->store = core_.number;
      std::vector<Operation> operations;
      operations.push_back(core_.calls.Make(std::move(request), "close", nullptr));
      core_.worker->calls().Launch(call, std::move(operations));
      call->Wait(left());
    };
    if (is_last && !core_.worker->is_observer()) run(Operation::Leave{failure});
    for (const CallPtr& call : calls) call->WaitAccepted(left());
    if (!is_last && !failure) run(Operation::Close{});
    if (!is_last && failure && !core_.worker->is_observer()) {
      core_.worker->stores().NoteFailedClose(core_.number);
    }
  } catch (const std::exception& failed) {
    WarnOfDrop("and not all of its pushes may have been accepted", failed.what());
  }
  core_.worker->calls().CancelAll(core_.number, "the store is gone");
  if (!is_last) return;
  core_.worker->KeepHost();
  core_.worker->Stop();
}

}  // namespace tkv
