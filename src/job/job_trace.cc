#include "job/job_trace.h"

#include <utility>

#include "base/format.h"
#include "store/trace_file.h"

namespace tkv {
namespace {

constexpr int kExchanges = 5;  // to compare the clocks

}  // namespace

// ---- the worker ---------------------------------------------------------------------------------

void WorkerTrace::Began(OpId id, const Operation& operation, Rank rank, Time now) {
  Span span;
  if (const auto* const push = operation.push()) {
    span.kind = Span::Kind::kPush;
    span.bytes = push->value.bytes.size;
  } else if (const auto* const pull = operation.As<Operation::Pull>()) {
    span.kind = Span::Kind::kPull;
    span.bytes = pull->out.size;
  } else if (!operation.Is<Operation::Init, Operation::Barrier, Operation::Delete,
                           Operation::Control>()) {
    return;
  }
  span.begin = now;
  span.rank = rank;
  if (!operation.key.empty()) {
    const KeyId key = IdOf(operation.key);
    span.key_low = key.low;
    span.key_high = key.high;
    if (names_.size() < Recorder::kSpansMax) names_.try_emplace(key, ShownKey(operation.key));
  }
  waiting_[id] = {span, operation.Is<Operation::PushPull>()};
}

void WorkerTrace::Ended(const Outcome& outcome, Time now) {
  const auto found = waiting_.find(outcome.op);
  if (found == waiting_.end()) return;
  Span& span = found->second.span;
  span.nanoseconds = now - span.begin;
  span.number = outcome.round;
  if (outcome.event == Outcome::Event::kFailed) span.state = Span::State::kFailed;
  recorder_.Add(span);
  if (found->second.is_pushpull && outcome.event == Outcome::Event::kAccepted) {
    span.kind = Span::Kind::kPull;  // the pull goes on
    span.begin = now;
  } else {
    waiting_.erase(found);
  }
}

WorkerTrace::Noted WorkerTrace::Take(Time now) {
  Noted noted;
  noted.lost = recorder_.first() > taken_ ? recorder_.first() - taken_ : 0;
  noted.spans = recorder_.From(taken_, Recorder::kSpansMax);
  for (const auto& [id, waiting] : std::exchange(waiting_, {})) {
    Span span = waiting.span;
    span.nanoseconds = now - span.begin;
    span.state = Span::State::kUnderWay;
    noted.spans.push_back(span);
  }
  noted.names = std::exchange(names_, {});
  taken_ = recorder_.next();
  recorder_.Clear();
  return noted;
}

// ---- the job ------------------------------------------------------------------------------------

void JobTrace::Exchange(size_t server, Traced::Request request, const Ask& ask) {
  Server& of = servers_[server];
  request.server = static_cast<uint32_t>(server);
  request.from = of.next;
  const std::shared_ptr<const Traced> traced = ask(request);
  const Time trip = traced->answered - traced->asked;
  if (of.best_trip < 0 || trip < of.best_trip) {
    of.best_trip = trip;
    of.ahead = traced->clock - (traced->asked + trip / 2);
  }
  const uint64_t first = traced->next - traced->spans.size();
  if (of.next != Traced::kNewest && first > of.next) of.lost += first - of.next;
  of.spans.insert(of.spans.end(), traced->spans.begin(), traced->spans.end());
  of.next = traced->next;
  if (of.spans.size() <= Recorder::kSpansMax) return;
  const size_t old = of.spans.size() - Recorder::kSpansMax;
  of.spans.erase(of.spans.begin(), of.spans.begin() + static_cast<ptrdiff_t>(old));
  of.lost += old;
}

void JobTrace::Start(size_t servers, const Ask& ask) {
  std::lock_guard lock(mutex_);
  const bool is_new = servers_.empty();
  servers_.resize(servers);
  try {
    for (size_t s = 0; s < servers; ++s) {
      Traced::Request request;
      request.records = true;
      for (int i = 0; i < kExchanges; ++i) Exchange(s, request, ask);
    }
  } catch (...) {
    if (is_new) Forget(ask);
    throw;
  }
}

// Makes the servers that can be reached stop recording and drop their records.  Other servers do so
// when the session ends.
void JobTrace::Forget(const Ask& ask) {
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (servers_[s].is_missing || servers_[s].best_trip < 0) continue;
    Traced::Request request;
    request.forgets = true;
    try {
      Exchange(s, request, ask);
    } catch (const Error& error) {
      static_cast<void>(error);
    }
  }
  servers_.clear();
}

void JobTrace::Pause(const Ask& ask) {
  std::lock_guard lock(mutex_);
  for (size_t s = 0; s < servers_.size(); ++s) Exchange(s, {}, ask);
}

// Fetches all that the servers have recorded.  Afterwards they record nothing more for this worker.
void JobTrace::Collect(const Ask& ask) {
  for (size_t s = 0; s < servers_.size(); ++s) {
    try {
      for (size_t before = SIZE_MAX; before != servers_[s].spans.size();) {
        before = servers_[s].spans.size();
        Exchange(s, {}, ask);
      }
    } catch (const Error& error) {
      if (error.code() != Code::kUnavailable) throw;
      servers_[s].is_missing = true;
    }
  }
}

KVStore::TraceInfo JobTrace::Write(const std::string& file, int rank, const Ask& ask,
                                   const std::function<WorkerTrace::Noted()>& take) {
  std::lock_guard lock(mutex_);
  if (servers_.empty()) throw Fail(Code::kFailedPrecondition, "no trace has begun");
  Collect(ask);
  WorkerTrace::Noted newest = take();
  noted_.spans.insert(noted_.spans.end(), newest.spans.begin(), newest.spans.end());
  noted_.lost += newest.lost;
  noted_.names.merge(newest.names);
  std::vector<TracedProcess> processes(1);
  processes[0].name = Format("worker {}", rank);
  processes[0].lost = noted_.lost;
  processes[0].spans = noted_.spans;
  for (size_t s = 0; s < servers_.size(); ++s) {
    TracedProcess& process = processes.emplace_back();
    const Server& of = servers_[s];
    process.name = Format("server {}{}", s, of.is_missing ? " (out of reach)" : "");
    process.ahead = of.ahead;
    process.clock_error = static_cast<uint64_t>(of.best_trip) / 2;
    process.lost = of.lost;
    process.spans = of.spans;
  }
  const auto key_of = [&](const Span& span) -> std::string {
    const auto found = noted_.names.find(KeyId{span.key_low, span.key_high});
    if (found != noted_.names.end()) return found->second;
    return span.key_low == 0 ? "" : Format("#{:016x}", span.key_low);
  };
  const KVStore::TraceInfo info = WriteTraceFile(file, processes, key_of);
  noted_ = {};
  Forget(ask);
  return info;
}

}  // namespace tkv
