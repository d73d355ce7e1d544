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
  if (worker_->rejoined() && number_ == 0) BeginAnewIfNothingHasBegun();
}

// Makes a worker that was started again begin as a first life if no key had a push.  Its script
// then loads and passes barriers as the other workers do, or as its earlier lives did.
void DistStore::BeginAnewIfNothingHasBegun() {
  // The answer to any message comes after the server's WELCOME, which says if the job has begun.
  // Nothing is kept yet that this message could free.
  const CallPtr asked =
      calls_.Start("create", calls_.Make(Operation::Release{}, "create", nullptr));
  try {
    calls_.Await(asked, options_.server_patience);
  } catch (const Error& unheard) {
    static_cast<void>(unheard);  // later calls say which server is missing
    return;
  }
  const bool has_begun = worker_->Ask(&Client::HasJobBegun);
  if (!has_begun) worker_->BeginAnew();
}

DistStore::DistStore(std::string type, const StoreOptions& options,
                     const std::shared_ptr<Worker>& worker, std::shared_ptr<SaveSchedule> schedule)
    : DistStore(std::move(type), options, worker, std::move(schedule), worker->OpenStore()) {}

DistStore::DistStore(const StoreOptions& options, std::shared_ptr<Worker> observer, uint32_t store)
    : DistStore("observer", options, std::move(observer), nullptr, store) {
  worker_->ObserveStore(store);
}

DistStore::DistStore(std::string type, const StoreOptions& options, std::shared_ptr<Worker> worker,
                     std::shared_ptr<SaveSchedule> schedule, uint32_t number)
    : type_(std::move(type)),
      options_(options),
      mode_(IsAsync(type_) ? KeyMeta::Mode::kAsync : KeyMeta::Mode::kSync),
      worker_(std::move(worker)),
      number_(number),
      saver_(worker_, number_, options_, &calls_, &keys_, std::move(schedule),
             [this] { return optimizer_ != nullptr; }) {}

DistStore::~DistStore() {
  if (!worker_->is_of_this_process() || calls_.is_closed()) return;
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
  const bool is_last = worker_->CloseStore(number_);
  try {
    const auto calls = worker_->CallsOf(number_);
    const auto help = [this](const std::function<bool()>& done, std::chrono::nanoseconds longest) {
      return worker_->PollUntil(done, longest);
    };
    const auto run = [&](Operation::Request request) {
      const auto call = std::make_shared<Call>("close", help, nullptr);
      call->store = number_;
      std::vector<Operation> operations;
      operations.push_back(calls_.Make(std::move(request), "close", nullptr));
      worker_->Launch(call, std::move(operations));
      call->Wait(left());
    };
    if (is_last && !worker_->is_observer()) run(Operation::Leave{failure});
    for (const CallPtr& call : calls) call->WaitAccepted(left());
    if (!is_last && !failure) run(Operation::Close{});
    if (!is_last && failure && !worker_->is_observer()) worker_->NoteFailedClose(number_);
  } catch (const std::exception& failed) {
    WarnOfDrop("and not all of its pushes may have been accepted", failed.what());
  }
  worker_->CancelCalls(number_, "the store is gone");
  if (!is_last) return;
  worker_->KeepHost();
  worker_->Stop();
}

// Logs a warning about a store that is dropped without close(), if there is memory for it.
void DistStore::WarnOfDrop(const char* what, const char* why) const noexcept {
  if (!options_.log) return;
  try {
    options_.log(2, Format("a store was dropped without close(), {}: {}", what, why));
  } catch (const std::exception& failed) {
    static_cast<void>(failed);
  }
}

void DistStore::CheckIsWorker(std::string_view called) const {
  if (!worker_->is_observer()) return;
  Lock(called);  // the error that the store is closed comes first
  throw Fail(
      Code::kFailedPrecondition,
      "{}: this store is an observer's, which only reads; create() makes a worker of the job",
      called);
}

// ---- updater ------------------------------------------------------------------------------------

bool DistStore::Control(const std::string& verb, UpdateSpec spec) {
  const bool is_sender = worker_->Ask(&Client::IsSender);
  // The lowest rank defines the updater for all.
  if (!is_sender) return false;
  const Operation::Control control{std::move(spec)};
  calls_.Await(calls_.Start(verb, calls_.Make(control, verb, nullptr)));
  return true;
}

void DistStore::SetUpdater(UpdateFunction updater, UpdateEnd, SumType) {
  AsWorker(Verb::kSetUpdater, "set_updater", [&] { SetFunction(updater); });
}

void DistStore::SetOptimizer(std::shared_ptr<const Optimizer> optimizer) {
  AsWorker(Verb::kSetOptimizer, "set_optimizer", [&] { SetProgram(std::move(optimizer)); });
}

void DistStore::SetGradientCompression(const Compression& compression, const std::string& keys) {
  CheckIsWorker("set_gradient_compression");
  calls_.CheckOpen("set_gradient_compression");
  compression_.Set(compression, keys);
}

void DistStore::SetFunction(const UpdateFunction& updater) {
  {
    const auto lock = Lock("set_updater");
    if (updater) {
      throw Fail(Code::kUnimplemented,
                 "set_updater: a function cannot run on the servers yet; set_optimizer takes an "
                 "optimizer or a program, which can");
    }
  }
  Control("set_updater", {});
  const auto lock = Lock("set_updater");
  optimizer_ = nullptr;
}

void DistStore::SetProgram(std::shared_ptr<const Optimizer> optimizer) {
  if (optimizer == nullptr) {
    throw Fail(Code::kInvalidArgument, "set_optimizer: there is no optimizer");
  }
  UpdateSpec spec;
  {
    const auto lock = Lock("set_optimizer");
    spec = SpecOf(*optimizer);
    spec.fresh = optimizer_ != nullptr && optimizer_ != optimizer &&
                 !DoSame(*optimizer_, *optimizer, keys_.order());
  }
  std::vector<double> params = spec.params;
  const bool is_mine = Control("set_optimizer", std::move(spec));
  const auto lock = Lock("set_optimizer");
  is_optimizer_of_other_ = !is_mine;
  ++optimizer_number_;
  optimizer_ = std::move(optimizer);
  committed_params_ = std::move(params);
  compiled_ = {};
}

// ---- barrier and end ----------------------------------------------------------------------------

CallPtr DistStore::StartBarrier(const std::string& verb, const std::optional<Error>& failure,
                                Operation::Barrier::Task task) {
  calls_.CheckOpen(verb);
  return calls_.Start(verb, calls_.Make(Operation::Barrier{task, failure}, verb, nullptr));
}

void DistStore::Barrier() {
  AsWorker(Verb::kBarrier, "barrier", [&] { calls_.Await(StartBarrier("barrier")); });
}

void DistStore::GoOnFromHere() {
  calls_.Await(StartBarrier("barrier", {}, Operation::Barrier::Task::kBegins));
}

bool DistStore::HasReachedNextBarrier() const {
  return worker_->Ask(&Client::HasReachedNext, InternalKey(number_, "barrier"));
}

Ticket DistStore::BarrierAsync() {
  return AsWorker(Verb::kBarrier, "barrier",
                  [&] { return calls_.Tracked(StartBarrier("barrier")); });
}

// ---- status, statistics and traces --------------------------------------------------------------

ServerListings DistStore::ListAll(const std::string& verb) const {
  calls_.CheckOpen(verb);
  return ListServers(worker_, verb, number_, options_.server_patience, options_.interrupt);
}

std::shared_ptr<Optimizer> DistStore::UpdateOf(const KeyView& key) const {
  const KeyRecord asked{Key(key), CanonicalKey(number_, key), {}};
  calls_.CheckOpen("explain");
  const Outcome outcome =
      calls_.AwaitOutcome("explain", calls_.Make(Operation::Describe{true}, "explain", &asked));
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
  status.url = worker_->url();
  status.job = worker_->job();
  return status;
}

StoreStats DistStore::Stats() const {
  StoreStats stats;
  stats.age_seconds = static_cast<double>(NodeThread::Now() - begin_) / kSecond;
  std::vector<KeyStats> keys;
  KeyStats deleted{Key(KeyView(0))};
  std::vector<std::string> names;  // canonical
  {
    const auto lock = Lock("stats");
    for (const RecordPtr& record : keys_.Records()) {
      keys.push_back({record->key, 0, record->bytes});
      names.push_back(record->name);
    }
    deleted = deleted_;
  }
  calls_.AddCountsTo(&stats);
  const std::vector<uint64_t> rounds = worker_->AddStats(names, &stats);
  for (size_t i = 0; i < keys.size(); ++i) keys[i].rounds = rounds[i];
  AddKeys(std::move(keys), deleted, &stats);
  return stats;
}

JobTrace::Ask DistStore::Asking(const char* verb) {
  calls_.CheckOpen(verb);
  return [this, verb](Traced::Request request) {
    const CallPtr call = calls_.New(verb);
    std::shared_ptr<const Traced> traced;
    call->on_outcome = [&](const Outcome& outcome) {
      traced = *outcome.As<std::shared_ptr<const Traced>>();
    };
    std::vector<Operation> operations(1, calls_.Make(Operation::Trace{request}, verb, nullptr));
    operations[0].patience = Saturated(options_.server_patience).count();
    worker_->Launch(call, std::move(operations));
    calls_.Await(call, options_.server_patience);
    return traced;
  };
}

void DistStore::StartTrace() {
  CheckIsWorker("trace");
  worker_->trace().Start(static_cast<size_t>(worker_->servers()), Asking("trace"));
  worker_->Record(true);
}

void DistStore::PauseTrace() {
  CheckIsWorker("trace");
  const JobTrace::Ask ask = Asking("trace");
  worker_->Record(false);
  worker_->trace().Pause(ask);
}

KVStore::TraceInfo DistStore::WriteTrace(const std::string& file) {
  CheckIsWorker("trace");
  const JobTrace::Ask ask = Asking("trace");
  worker_->Record(false);
  return Named("trace", [&] {
    return worker_->trace().Write(file, rank(), ask, [&] { return worker_->TakeNoted(); });
  });
}

// Makes the worker leave the job.
void DistStore::Leave(const std::optional<Error>& failure) {
  const CallPtr call =
      calls_.Start("close", calls_.Make(Operation::Leave{failure}, "close", nullptr));
  try {
    calls_.Await(call);
  } catch (const Error& failed) {
    // A worker that was declared dead, or that finds no head or server to say goodbye to, is out of
    // the job anyway.
    if (failed.code() != Code::kAborted && failed.code() != Code::kUnavailable) throw;
  }
  // The servers in this process must see that this worker does not need them any more.
  worker_->CancelCalls(number_, "the store is closed");
  worker_->Stop();
  worker_->AfterLeave();
}

// Asks the servers to free the keys, which they do when every worker has closed the store.
void DistStore::FreeKeys() {
  const CallPtr close = calls_.Start("close", calls_.Make(Operation::Close{}, "close", nullptr));
  try {
    calls_.Await(close);
  } catch (const Error& failed) {
    if (failed.code() != Code::kAborted && failed.code() != Code::kUnavailable) throw;
  }
}

void DistStore::CloseAs(const std::optional<Error>& failure) {
  if (!worker_->is_of_this_process()) return;
  std::exception_ptr error = failure ? nullptr : saver_.SaveAtEnd();
  {
    std::lock_guard lock(keys_.mutex());
    if (calls_.is_closed()) return;
    calls_.Close();
  }
  try {
    saver_.EndSaving(options_.patience);
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  const bool is_last = worker_->CloseStore(number_);
  try {
    if (worker_->is_observer()) {
      // Nobody waits for an observer, so nobody has to be told.
    } else if (is_last) {
      Leave(failure);
    } else {
      // Pushes under way still count.
      for (const CallPtr& call : worker_->CallsOf(number_)) call->WaitAccepted(options_.patience);
      // After a failure, the next incarnation continues with the keys, unless the program goes on.
      if (failure) {
        worker_->NoteFailedClose(number_);
      } else {
        FreeKeys();
      }
    }
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  worker_->CancelCalls(number_, "the store is closed");
  if (is_last) worker_->Stop();
  {
    std::lock_guard lock(keys_.mutex());
    keys_.Clear();
  }
  // Throw the first error, above all an interrupt.  Calls that failed only because this close
  // cancelled them would hide the cause.
  if (error) std::rethrow_exception(error);
  calls_.RaiseUnseen("close", {});
}

}  // namespace tkv
