#include "dist/dist_store.h"

#include <algorithm>

#include "base/duration.h"
#include "base/format.h"
#include "store/checks.h"
#include "store/snapshots.h"
#include "tkv/config.h"

namespace tkv {
namespace {

// Makes a worker that was started again begin as a first life if no key had a push.  Its script
// then loads and passes barriers as the other workers do, or as its earlier lives did.
void BeginAnewIfNothingHasBegun(StoreCore* of) {
  StoreCore& core = *of;
  // The answer to any message comes after the server's WELCOME, which says if the job has begun.
  // Nothing is kept yet that this message could free.
  const CallPtr asked =
      core.calls.Start("create", core.calls.Make(Operation::Release{}, "create", nullptr));
  try {
    core.calls.Await(asked, core.options.server_patience);
  } catch (const Error& unheard) {
    static_cast<void>(unheard);  // later calls say which server is missing
    return;
  }
  const bool has_begun = core.worker->Ask(&Client::HasJobBegun);
  if (!has_begun) core.worker->BeginAnew();
}

// Returns a function that asks a server for its spans.
JobTrace::Ask Asking(const char* verb, StoreCore* of) {
  of->calls.CheckOpen(verb);
  return [&core = *of, verb](Traced::Request request) {
    const CallPtr call = core.calls.New(verb);
    std::shared_ptr<const Traced> traced;
    call->on_outcome = [&](const Outcome& outcome) {
      traced = *outcome.As<std::shared_ptr<const Traced>>();
    };
    std::vector<Operation> operations(1, core.calls.Make(Operation::Trace{request}, verb, nullptr));
    operations[0].patience = Saturated(core.options.server_patience).count();
    core.worker->calls().Launch(call, std::move(operations));
    core.calls.Await(call, core.options.server_patience);
    return traced;
  };
}

}  // namespace

// ---- life ---------------------------------------------------------------------------------------

DistStore::DistStore(std::string type, const StoreOptions& options,
                     const std::shared_ptr<Worker>& worker)
    : DistStore(std::move(type), options, worker,
                ScheduleOf(worker.get(), options.snapshots, options.snapshot_every)) {
  if (core_.worker->rejoined() && core_.number == 0) BeginAnewIfNothingHasBegun(&core_);
}

DistStore::DistStore(std::string type, const StoreOptions& options,
                     const std::shared_ptr<Worker>& worker, std::shared_ptr<SaveSchedule> schedule)
    : DistStore(std::move(type), options, worker, std::move(schedule),
                worker->stores().Open(worker->rank())) {}

DistStore::DistStore(const StoreOptions& options, std::shared_ptr<Worker> observer, uint32_t store)
    : DistStore("observer", options, std::move(observer), nullptr, store) {
  core_.worker->stores().Observe(store);
}

DistStore::DistStore(std::string type, const StoreOptions& options, std::shared_ptr<Worker> worker,
                     std::shared_ptr<SaveSchedule> schedule, uint32_t number)
    : type_(std::move(type)),
      core_(options, std::move(worker), number),
      saver_(&core_, &updater_, std::move(schedule)),
      creator_(IsAsync(type_) ? KeyMeta::Mode::kAsync : KeyMeta::Mode::kSync,
               {&core_, &updater_, &row_encoder_, &builder_, &saver_}) {}

DistStore::~DistStore() {
  if (!core_.worker->is_of_this_process() || core_.calls.is_closed()) return;
  std::optional<Error> failure;
  if (std::uncaught_exceptions() > exceptions_) failure = program_failed_;
  closer_.Drop(failure);
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

// ---- keys ---------------------------------------------------------------------------------------

void DistStore::Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) {
  AsWorker(Verb::kBroadcast, "broadcast", [&] {
    CheckBroadcast(items, outs);
    creator_.Init("broadcast", items);
    core_.calls.Await(transfers_.Pull("broadcast", outs, false));
  });
}

void DistStore::Erase(const KeyView& key) {
  core_.calls.RaiseUnseen("delete", {&key, 1});
  RecordPtr record;
  {
    const auto lock = core_.Lock("delete");
    record = core_.keys.Get("delete", key);
  }
  const CallPtr call =
      core_.calls.Start("delete", core_.calls.Make(Operation::Delete{}, "delete", record.get()));
  core_.calls.Await(call);
  const auto lock = core_.Lock("delete");
  core_.keys.Erase(key);
  saver_.NoteErased(record->rounds());
  deleted_.rounds += call->round();
  deleted_.bytes += record->bytes;
}

uint64_t DistStore::Round(const KeyView& key) const {
  RecordPtr record;
  {
    const auto lock = core_.Lock("round");
    record = core_.keys.Get("round", key);
  }
  return core_.worker->Ask(&Client::PushedOf, record->name);
}

PushStep DistStore::FormerStep(const KeyView& key) const {
  const auto lock = core_.Lock("round");
  return core_.keys.Get("round", key)->former_step;
}

// ---- barrier and end ----------------------------------------------------------------------------

void DistStore::Barrier() {
  AsWorker(Verb::kBarrier, "barrier", [&] { core_.calls.Await(barriers_.Start("barrier")); });
}

void DistStore::GoOnFromHere() {
  core_.calls.Await(barriers_.Start("barrier", {}, Operation::Barrier::Task::kBegins));
}

Ticket DistStore::BarrierAsync() {
  return AsWorker(Verb::kBarrier, "barrier",
                  [&] { return core_.calls.Tracked(barriers_.Start("barrier")); });
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

void DistStore::StartTrace() {
  CheckIsWorker("trace");
  core_.worker->trace().Start(static_cast<size_t>(core_.worker->servers()),
                              Asking("trace", &core_));
  core_.worker->calls().Record(true);
}

void DistStore::PauseTrace() {
  CheckIsWorker("trace");
  const JobTrace::Ask ask = Asking("trace", &core_);
  core_.worker->calls().Record(false);
  core_.worker->trace().Pause(ask);
}

KVStore::TraceInfo DistStore::WriteTrace(const std::string& file) {
  CheckIsWorker("trace");
  const JobTrace::Ask ask = Asking("trace", &core_);
  core_.worker->calls().Record(false);
  return Named("trace", [&] {
    return core_.worker->trace().Write(file, rank(), ask,
                                       [&] { return core_.worker->calls().TakeNoted(); });
  });
}

}  // namespace tkv
