#include "dist/store_calls.h"

#include <algorithm>
#include <functional>
#include <new>

#include "base/duration.h"
#include "dist/gpu_sums.h"

namespace tkv {
void StoreCalls::CheckProcess(std::string_view verb) const {
  if (!worker_->is_of_this_process()) {
    throw Fail(Code::kFailedPrecondition,
               "{}: this store was made before fork() in another process; create one in this "
               "process",
               verb);
  }
}

void StoreCalls::CheckOpen(std::string_view verb) const {
  CheckProcess(verb);
  if (is_closed_) throw Fail(Code::kFailedPrecondition, "{}: the store is closed", verb);
}

void StoreCalls::AddCountsTo(StoreStats* stats) {
  {
    std::lock_guard lock(mutex_);
    for (const CallPtr& call : unreported_) {
      if (call->done()) CountEnd(call);
    }
  }
  counts_.verbs.AddTo(stats);
  counts_.waits.AddTo(stats);
}

// Counts the failure of a call that has ended, if no verb has thrown it.  Call with the mutex.
void StoreCalls::CountEnd(const CallPtr& call) {
  if (std::exchange(call->is_counted, true) || !call->failure()) return;
  for (size_t i = 0; i < kVerbs; ++i) {
    const auto verb = static_cast<Verb>(i);
    if (Name(verb) == call->verb()) counts_.verbs.Failed(verb);
  }
}

Operation StoreCalls::Make(Operation::Request request, const std::string& verb,
                           const KeyRecord* record) const {
  Operation operation;
  operation.request = std::move(request);
  operation.verb = verb;
  operation.store = store_;
  operation.patience = Saturated(options_.patience).count();
  if (record != nullptr) operation.key = record->name;
  return operation;
}

CallPtr StoreCalls::Start(const std::string& verb, Operation operation) {
  const CallPtr call = New(verb);
  std::vector<Operation> operations;
  operations.push_back(std::move(operation));
  worker_->calls().Launch(call, std::move(operations));
  return call;
}

void StoreCalls::CloseFailedStores() noexcept {
  try {
    for (const uint32_t store : worker_->stores().TakeFailedCloses()) {
      std::vector<Operation> operations(1, Make(Operation::Close{}, "close", nullptr));
      operations[0].store = store;
      worker_->calls().Launch(Worker::NewCall(worker_, "close", store, {}), std::move(operations));
      worker_->GoOn();
    }
  } catch (const std::exception& error) {
    static_cast<void>(error);  // the others end by their own patience
  }
}

RecordPtr StoreCalls::FirstToRepeat(const std::string& verb, std::span<const RecordPtr> records) {
  for (;;) {
    bool is_lost = false;
    const RecordPtr first = worker_->Ask([&](const Client& client) -> RecordPtr {
      for (const RecordPtr& record : records) {
        if (!client.MustRepeat(record->name)) continue;
        is_lost = client.HasLostPush(record->name);
        return record;
      }
      return nullptr;
    });
    if (first == nullptr || !is_lost) return first;
    AwaitOutcome(verb, Make(Operation::Open{}, verb, first.get()));
  }
}

Outcome StoreCalls::AwaitOutcome(const std::string& verb, Operation operation) {
  const CallPtr call = New(verb);
  const auto reported = std::make_shared<Outcome>();
  call->on_outcome = [reported](const Outcome& outcome) { *reported = outcome; };
  const auto add_source = [&](const Bytes& read) {
    if (read.size > 0) call->sources.push_back(read);
  };
  if (const auto* const value = operation.value()) add_source(value->bytes);
  if (const Operation::Pull* const pull = operation.pull()) {
    add_source(pull->ids.bytes);
    if (pull->out.size > 0) call->targets.push_back(pull->out.bytes());
  }
  std::vector<Operation> operations;
  operations.push_back(std::move(operation));
  worker_->calls().Launch(call, std::move(operations));
  Await(call, options_.patience);
  return std::move(*reported);
}

void StoreCalls::Launch(const CallPtr& call, std::vector<Part> parts) {
  std::shared_ptr<GpuSums> gpus;
  for (const Part& part : parts) {
    if (part.source != nullptr && part.source->gpus != nullptr) gpus = part.source->gpus;
  }
  std::vector<std::vector<Operation>> lots(gpus == nullptr ? 1 : 1 + gpus->lots());
  for (Part& part : parts) {
    const bool is_of_gpu = part.source != nullptr && part.source->gpus != nullptr;
    const size_t lot = is_of_gpu ? 1 + gpus->LotOf(part.source->gpu_sum) : 0;
    lots[lot].push_back(std::move(part.operation));
  }
  if (gpus == nullptr) return worker_->calls().Launch(call, std::move(lots[0]));
  RunningCalls::Expect(call, lots);
  size_t next = 0;
  bool has_begun = false;
  const auto end = [&](const Error& error) {
    for (; next < lots.size(); ++next) worker_->calls().EndPart(call, lots[next], error);
    Abandon(call);
  };
  try {
    for (; next < lots.size(); ++next) {
      if (lots[next].empty()) continue;
      if (next > 0) {
        Timed(WaitCause::kArray, [&] { gpus->Await(next - 1, options_.patience); });
      }
      // Another thread may have closed the store meanwhile.
      CheckOpen(call->verb());
      worker_->calls().LaunchPart(call, std::exchange(lots[next], {}));
      has_begun = true;
    }
  } catch (const Error& error) {
    end(error);
    if (!has_begun) throw;
    throw Fail(error.code(), "{}; what the call has pushed to other keys counts", error.what());
  } catch (...) {  // interrupted
    end(Error(Code::kCancelled, "given up by its caller"));
    throw;
  }
}

std::chrono::nanoseconds StoreCalls::LongestWait(std::chrono::nanoseconds patience) const {
  return Saturated(patience) + Saturated(options_.server_patience) + std::chrono::seconds(5);
}

void StoreCalls::Await(const CallPtr& call, std::chrono::nanoseconds patience) {
  try {
    Timed(WaitCause::kAnswer, [&] { call->Wait(LongestWait(patience)); });
    // Frees memory on the user's thread.
    const auto ended = worker_->calls().TakeOwners();
  } catch (...) {
    if (!call->done()) worker_->calls().Abandon(call);
    const auto ended = worker_->calls().TakeOwners();
    ResendParams(*call);
    throw;
  }
}

void StoreCalls::Abandon(const CallPtr& call) {
  worker_->calls().Abandon(call);
  ResendParams(*call);
}

// Forgets which hyperparameters were sent for the keys of a failed call.  If the round failed because
// the servers have no optimizer, the next push must send them again, so that it fails too instead of
// being assigned.
void StoreCalls::ResendParams(const Call& call) {
  for (const RecordPtr& record : call.keys) std::atomic_ref(record->params_sent_for).store(0);
}

Ticket StoreCalls::Tracked(const CallPtr& call) {
  worker_->GoOn();
  try {
    std::lock_guard lock(mutex_);
    unreported_.push_back(call);
  } catch (const std::bad_alloc&) {  // no later verb could report its error
    Await(call);
  }
  return call;
}

void StoreCalls::RaiseUnseen(std::string_view verb, std::span<const KeyView> keys) {
  // Frees memory on the user's thread.
  const auto ended = worker_->calls().TakeOwners();
  std::optional<Error> error;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(unreported_, [&](const CallPtr& call) {
      if (!call->done()) return false;
      CountEnd(call);
      if (call->failure()) ResendParams(*call);
      const std::optional<Error> unseen = call->UnseenError();
      if (!unseen) return true;
      // Only the ticket of a call reports that close has cancelled it, unless a push is lost.
      if (is_closed_ && unseen->code() == Code::kCancelled && !call->has_lost_push()) return true;
      const bool concerns =
          keys.empty() || std::any_of(keys.begin(), keys.end(), [&](const KeyView& key) {
            return std::any_of(call->keys.begin(), call->keys.end(),
                               [&](const RecordPtr& of) { return of->key.view() == key; });
          });
      if (!concerns || error) return false;
      call->MarkSeen();
      error = unseen;
      return true;
    });
  }
  if (error) {
    throw error->WithMessage(Format("{}: an earlier call failed: {}", verb, error->what()));
  }
}

void StoreCalls::WaitFor(const NDArray& array, Access access) {
  Storage& storage = *array.storage();
  if (!storage.IsInUse(access)) return;
  Timed(WaitCause::kArray, [&] {
    if (access == Access::kRead) {
      storage.WaitReadable(options_.patience);
    } else {
      storage.WaitWritable(options_.patience);
    }
  });
}

}  // namespace tkv
