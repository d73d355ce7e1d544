#include "job/running_calls.h"

#include <algorithm>
#include <new>
#include <utility>

namespace tkv {
namespace {

// Returns true if a call waits for servers to accept the operation: a push, or the error that a
// worker brings to a barrier.
bool IsAccepted(const Operation& operation) {
  const auto* const barrier = operation.As<Operation::Barrier>();
  const bool brings_error =
      barrier != nullptr && barrier->failure && barrier->task == Operation::Barrier::Task::kNone;
  return operation.push() != nullptr || brings_error;
}

}  // namespace

void RunningCalls::Expect(const CallPtr& call, std::span<const std::vector<Operation>> parts) {
  size_t operations = 0;
  size_t pushes = 0;
  for (const auto& part : parts) {
    operations += part.size();
    pushes += static_cast<size_t>(std::ranges::count_if(part, IsAccepted));
  }
  call->Expect(operations, pushes);
}

void RunningCalls::Launch(const CallPtr& call, std::vector<Operation> operations) {
  Expect(call, {&operations, 1});
  LaunchPart(call, std::move(operations));
}

void RunningCalls::EndPart(const CallPtr& call, const std::vector<Operation>& operations,
                           const Error& error) {
  Run([&](ClientNode&, Time) {
    for (const Operation& operation : operations) {
      call->End(IsAccepted(operation), {0, Outcome::Event::kFailed, error, 0, {}},
                [&] { KeepOwners(call.get()); });
    }
  });
}

void RunningCalls::LaunchPart(const CallPtr& call, std::vector<Operation> operations) {
  Run([&](ClientNode& client, Time now) {
    if (broken_) {  // nothing would ever end them
      for (const Operation& operation : operations) {
        call->End(IsAccepted(operation), {0, Outcome::Event::kFailed, broken_, 0, {}});
      }
      return;
    }
    std::vector<bool> is_push;
    is_push.reserve(operations.size());
    for (const Operation& operation : operations) is_push.push_back(IsAccepted(operation));
    if (noted_.is_recording()) {
      OpId id = client.client().next_op();
      for (const Operation& operation : operations)
        noted_.Began(id++, operation, client.client().rank(), now);
    }
    const OpId first = client.client().next_op();
    try {
      const std::vector<OpId> ids = client.Begin(std::move(operations), now);
      for (size_t i = 0; i < ids.size(); ++i) calls_[ids[i]] = {call, is_push[i]};
      call->ops.insert(call->ops.end(), ids.begin(), ids.end());
    } catch (const std::bad_alloc&) {
      if (client.client().next_op() == first) throw;
      // Some operations have begun, with messages that read the caller's memory.
      thread_->BreakForLack();
      throw Error(thread_->no_memory());
    }
  });
}

void RunningCalls::Abandon(const CallPtr& call) {
  Run([&](ClientNode& client, Time now) {
    try {
      // Detach all operations before the first one ends, because that end may let messages of the
      // others leave.
      client.Detach(call->ops);
      client.Cancel(call->ops, Error(Code::kCancelled, "given up by its caller"), now);
      ReleaseMemory(*call);
    } catch (const std::bad_alloc&) {
      // The memory must return to its user in any case.
      thread_->BreakForLack();
    }
  });
  call->MarkSeen();
}

void RunningCalls::BreakForLack() {
  Run([&](ClientNode&, Time) { thread_->BreakForLack(); });
}

void RunningCalls::Detach(const CallPtr& call) {
  Run([&](ClientNode& client, Time) {
    client.Detach(call->ops);
    for (const Bytes& source : call->sources) thread_->ReleaseSource(source);
  });
}

void RunningCalls::CancelAll(uint32_t store, const char* why) {
  Run([&](ClientNode& client, Time now) {
    try {
      std::vector<OpId> ids;
      for (const auto& [id, running] : calls_) {
        if (running.call->store == store) ids.push_back(id);
      }
      std::ranges::sort(ids);
      client.Cancel(ids, Error(Code::kCancelled, why), now);
    } catch (const std::bad_alloc&) {
      // The calls must end in any case.
      thread_->BreakForLack();
    }
  });
}

std::vector<CallPtr> RunningCalls::Of(uint32_t store) {
  return Run([&](ClientNode&, Time) {
    std::vector<CallPtr> calls;
    for (const auto& [id, running] : calls_) {
      if (running.call->store == store) calls.push_back(running.call);
    }
    return calls;
  });
}

void RunningCalls::Record(bool on) {
  Run([&](ClientNode&, Time) { noted_.Record(on); });
}

WorkerTrace::Noted RunningCalls::TakeNoted() {
  return Run([&](ClientNode&, Time now) { return noted_.Take(now); });
}

// Takes the owners of a call's memory.  Runs under the node's lock, on any thread, so nothing of
// the user is freed here.
void RunningCalls::KeepOwners(Call* call) {
  std::lock_guard lock(mutex_);
  call->finish = nullptr;
  try {
    const size_t needed = ended_owners_.size() + call->sources.size() + call->targets.size();
    const size_t there = ended_owners_.capacity();
    if (needed > there) ended_owners_.reserve(std::max(needed, 2 * there));
  } catch (const std::bad_alloc&) {
    return;  // the call keeps them
  }
  for (auto* const memory : {&call->sources, &call->targets}) {
    for (Bytes& bytes : *memory) ended_owners_.push_back(std::move(bytes.owner));
    memory->clear();
  }
}

std::vector<std::shared_ptr<const void>> RunningCalls::TakeOwners() {
  std::lock_guard lock(mutex_);
  return std::exchange(ended_owners_, {});
}

// Takes the call's memory back from the transport.  Runs under the node's lock.
void RunningCalls::ReleaseMemory(const Call& call) {
  for (const Bytes& source : call.sources) thread_->ReleaseSource(source);
  for (const Bytes& target : call.targets) thread_->ReleaseTarget(target);
}

void RunningCalls::Break(const Error& error) {
  broken_ = error;
  const auto calls = std::exchange(calls_, {});
  for (const auto& [id, running] : calls) {
    try {
      running.call->End(running.is_unaccepted, {id, Outcome::Event::kFailed, error, 0, {}});
    } catch (const std::exception& failed) {
      // A function that waits for the end has failed; the next call ends.
      static_cast<void>(failed);
    }
  }
}

void RunningCalls::Take(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (noted_.is_on()) noted_.Ended(outcome, NodeThread::Now());
    const auto found = calls_.find(outcome.op);
    if (found == calls_.end()) continue;
    Running& running = found->second;
    if (outcome.event == Outcome::Event::kAccepted) {
      if (running.is_unaccepted) running.call->Accepted();
      running.is_unaccepted = false;
      continue;
    }
    const CallPtr call = running.call;
    const bool was_unaccepted = running.is_unaccepted;
    calls_.erase(found);
    if (outcome.error) ReleaseMemory(*call);
    call->End(was_unaccepted, outcome, [&] { KeepOwners(call.get()); });
  }
  thread_->SetBusy(!calls_.empty());
}

}  // namespace tkv
