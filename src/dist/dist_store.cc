#include "dist/dist_store.h"

#include <algorithm>

#include "base/duration.h"
#include "base/format.h"
#include "store/checks.h"
#include "store/snapshots.h"
#include "tkv/config.h"

namespace tkv {

// ---- life ---------------------------------------------------------------------------------------

DistStore::DistStore(std::string type, const StoreOptions& options,
                     const std::shared_ptr<Worker>& worker)
    : DistStore(std::move(type), options, worker,
                ScheduleOf(worker.get(), options.snapshots, options.snapshot_every)) {
  if (core_.worker->rejoined() && core_.number == 0) BeginAnewIfNothingHasBegun();
}

// Makes a worker that was started again begin as a first life if no key had a push.  Its script
// then loads and passes barriers as the other workers do, or as its earlier lives did.
void DistStore::BeginAnewIfNothingHasBegun() {
  // The answer to any message comes after the server's WELCOME, which says if the job has begun.
  // Nothing is kept yet that this message could free.
  const CallPtr asked =
      core_.calls.Start("create", core_.calls.Make(Operation::Release{}, "create", nullptr));
  try {
    core_.calls.Await(asked, core_.options.server_patience);
  } catch (const Error& unheard) {
    static_cast<void>(unheard);  // later calls say which server is missing
    return;
  }
  const bool has_begun = core_.worker->Ask(&Client::HasJobBegun);
  if (!has_begun) core_.worker->BeginAnew();
}

DistStore::DistStore(std::string type, const StoreOptions& options,
                     const std::shared_ptr<Worker>& worker, std::shared_ptr<SaveSchedule> schedule)
    : DistStore(std::move(type), options, worker, std::move(schedule), worker->OpenStore()) {}

DistStore::DistStore(const StoreOptions& options, std::shared_ptr<Worker> observer, uint32_t store)
    : DistStore("observer", options, std::move(observer), nullptr, store) {
  core_.worker->ObserveStore(store);
}

DistStore::DistStore(std::string type, const StoreOptions& options, std::shared_ptr<Worker> worker,
                     std::shared_ptr<SaveSchedule> schedule, uint32_t number)
    : type_(std::move(type)),
      mode_(IsAsync(type_) ? KeyMeta::Mode::kAsync : KeyMeta::Mode::kSync),
      core_(options, std::move(worker), number),
      saver_(&core_, &updater_, std::move(schedule)) {}

DistStore::~DistStore() {
  if (!core_.worker->is_of_this_process() || core_.calls.is_closed()) return;
  std::optional<Error> failure;
  if (std::uncaught_exceptions() > exceptions_) failure = program_failed_;
  LeaveUnclosed(failure);
}

// Does the work of Close for a store that is dropped without it, for about two seconds at most.
// The store's save is finished, and its pushes are accepted.  If this was the last store, the
// worker leaves the job.  Otherwise the servers free the store's keys, unless the program has
// failed.  No code of the user runs.
void DistStore::LeaveUnclosed(const std::optional<Error>& failure) noexcept {
  const auto deadline = DeadlineAfter(std::chrono::seconds(2));
  const auto left = [deadline] { return deadline - std::chrono::steady_clock::now(); };
  if (const auto error = saver_.EndSavingUnclosed(left())) {
    WarnOfDrop("while it saved, and there is no snapshot", error->what());
  }
  const bool is_last = core_.worker->CloseStore(core_.number);
  try {
    const auto calls = core_.worker->CallsOf(core_.number);
    const auto help = [this](const std::function<bool()>& done, std::chrono::nanoseconds longest) {
      return core_.worker->PollUntil(done, longest);
    };
    const auto run = [&](Operation::Request request) {
      const auto call = std::make_shared<Call>("close", help, nullptr);
      call->store = core_.number;
      std::vector<Operation> operations;
      operations.push_back(core_.calls.Make(std::move(request), "close", nullptr));
      core_.worker->Launch(call, std::move(operations));
      call->Wait(left());
    };
    if (is_last && !core_.worker->is_observer()) run(Operation::Leave{failure});
    for (const CallPtr& call : calls) call->WaitAccepted(left());
    if (!is_last && !failure) run(Operation::Close{});
    if (!is_last && failure && !core_.worker->is_observer())
      core_.worker->NoteFailedClose(core_.number);
  } catch (const std::exception& failed) {
    WarnOfDrop("and not all of its pushes may have been accepted", failed.what());
  }
  core_.worker->CancelCalls(core_.number, "the store is gone");
  if (!is_last) return;
  core_.worker->KeepHost();
  core_.worker->Stop();
}

// Logs a warning about a store that is dropped without close(), if there is memory for it.
void DistStore::WarnOfDrop(const char* what, const char* why) const noexcept {
  if (!core_.options.log) return;
  try {
    core_.options.log(2, Format("a store was dropped without close(), {}: {}", what, why));
  } catch (const std::exception& failed) {
    static_cast<void>(failed);
  }
}

void DistStore::CheckIsWorker(std::string_view called) const {
  if (!core_.worker->is_observer()) return;
  core_.Lock(called);  // the error that the store is closed comes first
  throw Fail(
      Code::kFailedPrecondition,
      "{}: this store is an observer's, which only reads; create() makes a worker of the job",
      called);
}

// ---- updater ------------------------------------------------------------------------------------

void DistStore::SetUpdater(UpdateFunction updater, UpdateEnd, SumType) {
  AsWorker(Verb::kSetUpdater, "set_updater", [&] {
    core_.calls.CheckOpen("set_updater");
    if (updater) {
      throw Fail(Code::kUnimplemented,
                 "set_updater: a function cannot run on the servers yet; set_optimizer takes an "
                 "optimizer or a program, which can");
    }
    updater_.Clear("set_updater");
  });
}

void DistStore::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  AsWorker(Verb::kSetOptimizer, "set_optimizer", [&] {
    if (optimizer == nullptr) {
      throw Fail(Code::kInvalidArgument, "set_optimizer: there is no optimizer");
    }
    updater_.Set("set_optimizer", std::move(optimizer));
  });
}

void DistStore::SetGradientCompression(const Compression& compression, const std::string& keys) {
  CheckIsWorker("set_gradient_compression");
  core_.calls.CheckOpen("set_gradient_compression");
  compression_.Set(compression, keys);
}

// ---- barrier and end ----------------------------------------------------------------------------

CallPtr DistStore::StartBarrier(const std::string& verb, const std::optional<Error>& failure,
                                Operation::Barrier::Task task) {
  core_.calls.CheckOpen(verb);
  return core_.calls.Start(verb,
                           core_.calls.Make(Operation::Barrier{task, failure}, verb, nullptr));
}

void DistStore::Barrier() {
  AsWorker(Verb::kBarrier, "barrier", [&] { core_.calls.Await(StartBarrier("barrier")); });
}

void DistStore::GoOnFromHere() {
  core_.calls.Await(StartBarrier("barrier", {}, Operation::Barrier::Task::kBegins));
}

bool DistStore::HasReachedNextBarrier() const {
  return core_.worker->Ask(&Client::HasReachedNext, InternalKey(core_.number, "barrier"));
}

Ticket DistStore::BarrierAsync() {
  return AsWorker(Verb::kBarrier, "barrier",
                  [&] { return core_.calls.Tracked(StartBarrier("barrier")); });
}

// ---- status, statistics and traces --------------------------------------------------------------

ServerListings DistStore::ListAll(const std::string& verb) const {
  core_.calls.CheckOpen(verb);
  return ListServers(core_.worker, verb, core_.number, core_.options.server_patience,
                     core_.options.interrupt);
}

std::shared_ptr<Optimizer> DistStore::UpdateOf(const KeyView& key) const {
  const KeyRecord asked{Key(key), CanonicalKey(core_.number, key), {}};
  core_.calls.CheckOpen("explain");
  const Outcome outcome = core_.calls.AwaitOutcome(
      "explain", core_.calls.Make(Operation::Describe{true}, "explain", &asked));
  const UpdateSpec& spec = outcome.As<Outcome::Found>()->meta->own.value();
  if (spec.program.empty()) return nullptr;
  auto optimizer =
      std::make_shared<Optimizer>(Program::Parse(spec.program), spec.multi_precision, spec.lazy);
  const auto& params = optimizer->program().params();
  for (size_t i = 0; i < std::min(params.size(), spec.params.size()); ++i) {
    optimizer->SetParam(params[i].name, spec.params[i]);
  }
  return optimizer;
}

JobStatus DistStore::Status() const {
  JobStatus status = StatusOf(ListAll("status"));
  status.url = core_.worker->url();
  status.job = core_.worker->job();
  return status;
}

StoreStats DistStore::Stats() const {
  StoreStats stats;
  stats.age_seconds = static_cast<double>(NodeThread::Now() - begin_) / kSecond;
  std::vector<KeyStats> keys;
  KeyStats deleted{Key(KeyView(0))};
  std::vector<std::string> names;  // canonical
  {
    const auto lock = core_.Lock("stats");
    for (const RecordPtr& record : core_.keys.Records()) {
      keys.push_back({record->key, 0, record->bytes});
      names.push_back(record->name);
    }
    deleted = deleted_;
  }
  core_.calls.AddCountsTo(&stats);
  const std::vector<uint64_t> rounds = core_.worker->AddStats(names, &stats);
  for (size_t i = 0; i < keys.size(); ++i) keys[i].rounds = rounds[i];
  AddKeys(std::move(keys), deleted, &stats);
  return stats;
}

JobTrace::Ask DistStore::Asking(const char* verb) {
  core_.calls.CheckOpen(verb);
  return [this, verb](Traced::Request request) {
    const CallPtr call = core_.calls.New(verb);
    std::shared_ptr<const Traced> traced;
    call->on_outcome = [&](const Outcome& outcome) {
      traced = *outcome.As<std::shared_ptr<const Traced>>();
    };
    std::vector<Operation> operations(1,
                                      core_.calls.Make(Operation::Trace{request}, verb, nullptr));
    operations[0].patience = Saturated(core_.options.server_patience).count();
    core_.worker->Launch(call, std::move(operations));
    core_.calls.Await(call, core_.options.server_patience);
    return traced;
  };
}

void DistStore::StartTrace() {
  CheckIsWorker("trace");
  core_.worker->trace().Start(static_cast<size_t>(core_.worker->servers()), Asking("trace"));
  core_.worker->Record(true);
}

void DistStore::PauseTrace() {
  CheckIsWorker("trace");
  const JobTrace::Ask ask = Asking("trace");
  core_.worker->Record(false);
  core_.worker->trace().Pause(ask);
}

KVStore::TraceInfo DistStore::WriteTrace(const std::string& file) {
  CheckIsWorker("trace");
  const JobTrace::Ask ask = Asking("trace");
  core_.worker->Record(false);
  return Named("trace", [&] {
    return core_.worker->trace().Write(file, rank(), ask,
                                       [&] { return core_.worker->TakeNoted(); });
  });
}

// Makes the worker leave the job.
void DistStore::Leave(const std::optional<Error>& failure) {
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
  core_.worker->CancelCalls(core_.number, "the store is closed");
  core_.worker->Stop();
  core_.worker->AfterLeave();
}

// Asks the servers to free the keys, which they do when every worker has closed the store.
void DistStore::FreeKeys() {
  const CallPtr close =
      core_.calls.Start("close", core_.calls.Make(Operation::Close{}, "close", nullptr));
  try {
    core_.calls.Await(close);
  } catch (const Error& failed) {
    if (failed.code() != Code::kAborted && failed.code() != Code::kUnavailable) throw;
  }
}

void DistStore::CloseAs(const std::optional<Error>& failure) {
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
  const bool is_last = core_.worker->CloseStore(core_.number);
  try {
    if (core_.worker->is_observer()) {
      // Nobody waits for an observer, so nobody has to be told.
    } else if (is_last) {
      Leave(failure);
    } else {
      // Pushes under way still count.
      for (const CallPtr& call : core_.worker->CallsOf(core_.number))
        call->WaitAccepted(core_.options.patience);
      // After a failure, the next incarnation continues with the keys, unless the program goes on.
      if (failure) {
        core_.worker->NoteFailedClose(core_.number);
      } else {
        FreeKeys();
      }
    }
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  core_.worker->CancelCalls(core_.number, "the store is closed");
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

}  // namespace tkv
