#include "launch_plan.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "exit_status.h"
#include "restore.h"

namespace tkv::cli {

using std::chrono::seconds;
using Kind = LaunchAction::Kind;
using State = Seat::State;

void LaunchPlan::Note(std::string text, Actions* out) {
  out->push_back({.kind = Kind::kNote, .text = std::move(text)});
}

void LaunchPlan::SignalAll(int signal, bool servers_too, Actions* out) const {
  for (size_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].state != State::kRunning) continue;
    if (!servers_too && seats_[i].role == Job::Role::kServer) continue;
    out->push_back({.kind = Kind::kSignal, .seat = i, .signal = signal});
  }
}

// ---- beginnings ---------------------------------------------------------------------------------

void LaunchPlan::Begin(const std::string& snapshot, LaunchTime now, Actions* out) {
  seats_.clear();
  if (IsNewestLost(snapshot)) return EndForLackOfSnapshot(snapshot, out);
  phase_ = Phase::kRunning;
  snapshot_ = newest_ = snapshot;
  const bool restores = !snapshot.empty();
  for (int i = 0; i < rules_.servers; ++i) Add(Job::Role::kServer, i, false, now, out);
  if (restores) {
    Note("goes on from the snapshot in " + snapshot, out);
  } else if (job_restarts_ > 0) {
    Note("there is no snapshot yet; the job begins anew", out);
  }
  for (int i = 0; i < rules_.workers; ++i) Add(Job::Role::kWorker, i, restores, now, out);
  for (int i = 0; i < rules_.observers; ++i) Add(Job::Role::kObserver, i, false, now, out);
}

// Returns true if the job had a newer snapshot than the one that is found now.
bool LaunchPlan::IsNewestLost(const std::string& snapshot) const {
  if (newest_.empty() || snapshot == newest_) return false;
  return snapshot.empty() || snapshot != rules_.snapshots;
}

void LaunchPlan::EndForLackOfSnapshot(const std::string& older, Actions* out) {
  phase_ = Phase::kEnding;
  KeepStatus(kNotDone);
  std::string text = "the job cannot go on: there is no snapshot in " + newest_ +
                     " any more; put it back and give the same command again";
  if (!older.empty()) {
    text += ", which otherwise goes on from the older one in " + older;
  } else if (!rules_.snapshots.empty()) {
    text += ", which otherwise begins anew";
  }
  Note(std::move(text), out);
}

void LaunchPlan::Add(Job::Role role, int rank, bool is_restorer, LaunchTime now, Actions* out) {
  Seat seat;
  seat.role = role;
  seat.rank = rank;
  seat.host = rules_.host_of(role, rank);
  seat.is_restorer = is_restorer;
  seats_.push_back(std::move(seat));
  StartInTurn(seats_.size() - 1, now, out);
}

// Starts a process when its start time has come and fewer than kGreetingsMax agents of its host are
// still to greet.
void LaunchPlan::StartInTurn(size_t index, LaunchTime now, Actions* out) {
  Seat& seat = seats_[index];
  seat.state = State::kWaiting;
  const auto is_awaited = [&](const Seat& other) {
    return other.state == State::kRunning && !other.is_greeted && other.host == seat.host;
  };
  if (now < seat.not_before || std::ranges::count_if(seats_, is_awaited) >= kGreetingsMax) return;
  seat.state = State::kRunning;
  seat.is_greeted = !seat.is_far();
  out->push_back({.kind = Kind::kStart, .seat = index});
}

// Starts a process again: at once after a crash; with a growing delay if its host could not be
// reached.
void LaunchPlan::StartAgain(size_t index, const std::string& why, LaunchTime now, Actions* out) {
  Seat& seat = seats_[index];
  const bool is_unreached = !seat.is_greeted;
  ++seat.restarts;
  seat.is_silent = false;
  seat.told = 0;
  const seconds delay{is_unreached ? std::min(1 << std::min(seat.restarts, 5), 30) : 0};
  seat.not_before = now + delay;
  Note(seat.name() + (is_unreached ? ": " : " ") + why + "; it is started again" +
           (is_unreached ? " in " + std::to_string(delay.count()) + " s (" : " (") +
           std::to_string(seat.restarts) + " of " + std::to_string(rules_.restarts) + ")",
       out);
  StartInTurn(index, now, out);
}

// Ends all processes, so that the job can be started again.  A server has died with its values, or
// a restorer has failed.
void LaunchPlan::EndToStartAgain(const std::string& why, Actions* out) {
  ++job_restarts_;
  phase_ = Phase::kStartingAgain;
  // Every process is started again, also those that have failed.
  status_ = observer_status_ = 0;
  end_at_ = grace_end_ = workers_done_at_ = observer_failed_at_ = kNever;
  are_others_awaited_ = false;
  Note(why + "; the job is started again (" + std::to_string(job_restarts_) + " of " +
           std::to_string(rules_.restarts) + ")",
       out);
  for (Seat& seat : seats_) {
    if (seat.state == State::kWaiting) seat.state = State::kOver;
  }
  SignalAll(SIGKILL, true, out);
}

// After the last restorer the workers start and replace the restorers one by one, so that no rank
// is ever without a live process.
void LaunchPlan::Restored(size_t index, LaunchTime now, Actions* out) {
  seats_[index].has_restored = true;
  if (phase_ != Phase::kRunning) return;
  const auto is_left = [](const Seat& other) { return other.is_restorer && !other.has_restored; };
  if (std::ranges::any_of(seats_, is_left)) return;
  for (int i = 0; i < rules_.workers; ++i) Add(Job::Role::kWorker, i, false, now, out);
}

// ---- ends ---------------------------------------------------------------------------------------

// Returns true if rounds wait for a new incarnation of this worker, which somebody else starts.
bool LaunchPlan::IsAwaited(const Seat& seat) const {
  return seat.role == Job::Role::kWorker && rules_.restarts == 0 && rules_.on_death == "wait" &&
         CanGoOn();
}

// Returns false if the job is ending, or a server is lost with its values.  A server that the head
// counts as dead does not come back, though its process may still run.
bool LaunchPlan::CanGoOn() const {
  const auto is_lost = [](const Seat& seat) {
    return seat.role == Job::Role::kServer && (seat.is_silent || seat.state == State::kOver);
  };
  return phase_ != Phase::kEnding && std::ranges::none_of(seats_, is_lost);
}

bool LaunchPlan::HasRestartLeft(const Seat& seat) const {
  return seat.role == Job::Role::kWorker && seat.restarts < rules_.restarts;
}

bool LaunchPlan::CanStartAgain(const Seat& seat) const { return CanGoOn() && HasRestartLeft(seat); }

bool LaunchPlan::CanStartJobAgain(const Seat& seat) const {
  return phase_ != Phase::kEnding && seat.role == Job::Role::kServer && rules_.has_snapshots &&
         job_restarts_ < rules_.restarts;
}

void LaunchPlan::Ended(size_t index, const SeatEnd& end, LaunchTime now, Actions* out) {
  Seat& seat = seats_[index];
  seat.state = State::kOver;
  if (seat.is_restorer && seat.is_greeted) return RestorerEnded(index, end, now, out);
  if (phase_ == Phase::kStartingAgain) return;
  if (end.code == 0) {
    out->push_back({.kind = Kind::kLog, .text = seat.name() + " ended with status 0"});
  }
  // A restart that did not reach its host is a failure of the process.  A first start that did not
  // is a mistake in the list of hosts.
  const bool is_unreached = !seat.is_greeted && seat.restarts > 0;
  const bool has_failed = is_unreached || (seat.is_greeted && end.code != 0);
  // Nobody waits for a process that had left, and the job may end before its next incarnation
  // joins.  After the job is over, no incarnation can join.
  const bool is_late = has_failed && (end.has_left || end.job_is_over);
  const bool is_restarted = has_failed && !is_late && CanStartAgain(seat);
  const bool is_awaited = has_failed && !is_late && seat.is_greeted && IsAwaited(seat);
  if (!is_restarted && !is_awaited) {
    out->push_back({.kind = Kind::kGone, .seat = index, .has_failed = end.code != 0});
  }
  if ((end.code == 0 && seat.is_greeted) || phase_ == Phase::kEnding) return;
  if (is_restarted) return StartAgain(index, end.how, now, out);
  if (!seat.is_greeted) {
    Note(seat.name() + ": " + end.how, out);
    KeepStatus(2);
    end_at_ = now;
    return;
  }
  if (!is_late && CanStartJobAgain(seat)) return EndToStartAgain(seat.name() + " " + end.how, out);
  Failed(index, end, is_awaited, now, out);
}

// Handles the end of a process that has failed and is not started again.
void LaunchPlan::Failed(size_t index, const SeatEnd& end, bool is_awaited, LaunchTime now,
                        Actions* out) {
  const Seat& seat = seats_[index];
  std::string text = seat.name() + " " + end.how;
  if (HasRestartLeft(seat)) {
    text += "; it is not started again, because ";
    text += end.has_left      ? "it had left the job"
            : end.job_is_over ? "the job has ended"
                              : "the job cannot go on";
  }
  if (is_awaited) {
    text += "; rounds wait for its next life, at most their patience: start it with";
  }
  out->push_back(
      {.kind = Kind::kNote, .seat = index, .text = std::move(text), .tells_variables = is_awaited});
  if (seat.role == Job::Role::kObserver) {  // no process waits for an observer
    if (observer_status_ == 0) observer_status_ = end.code;
    observer_failed_at_ = std::min(observer_failed_at_, now);
    return;
  }
  KeepStatus(end.code);
  are_others_awaited_ |= is_awaited;
  const bool continues =
      rules_.on_death == "continue" || (rules_.on_death == "wait" && end.has_left);
  if (seat.role == Job::Role::kWorker && (continues || is_awaited)) return;
  EndSoon(now);
}

// Handles the end of a restorer.  A restorer that has done its part needs nothing: a worker has its
// rank, or the job has ended.
void LaunchPlan::RestorerEnded(size_t index, const SeatEnd& end, LaunchTime now, Actions* out) {
  const Seat& seat = seats_[index];
  if (seat.has_restored || phase_ != Phase::kRunning) return;
  const bool is_damaged = end.code == kRestorerFindsDamage;
  std::string how = seat.name() + " has not restored " + snapshot_ + ": ";
  how += is_damaged ? "it is damaged" : "status " + std::to_string(end.code);
  // A restorer that reported another error would fail again.
  const bool is_lost = end.code > 128 || end.code == kRestorerIsLost;
  if (is_lost && job_restarts_ < rules_.restarts) return EndToStartAgain(how, out);
  // The others wait for it in vain.
  out->push_back({.kind = Kind::kGone, .seat = index, .has_failed = true});
  const bool is_first = status_ == 0;
  Note(is_first ? how + end.advice : how, out);
  KeepStatus(is_damaged ? kNotDone : end.code != 0 ? end.code : 1);
  EndSoon(now);
}

bool LaunchPlan::IsWatched(size_t index) const {
  const Seat& seat = seats_[index];
  return seat.state == State::kRunning && seat.is_greeted && phase_ != Phase::kStartingAgain;
}

// A process that the head counts as dead can do nothing for the job.  The grace period comes first,
// then SIGTERM, then SIGKILL.
void LaunchPlan::Judged(size_t index, bool is_silent, bool job_is_over, LaunchTime now,
                        Actions* out) {
  if (!IsWatched(index)) return;
  Seat& seat = seats_[index];
  if (!is_silent && seat.told == 0) seat.is_silent = false;  // its process has joined again
  if (is_silent && !seat.is_silent) {
    const std::string what = seat.name() + " is silent and counts as dead";
    if (CanStartJobAgain(seat) && !job_is_over) return EndToStartAgain(what, out);
    seat.is_silent = true;
    seat.end_at = now + rules_.grace;
    Note(what + "; its process is ended in " + std::to_string(rules_.grace.count()) + " s", out);
  }
  if (!seat.is_silent || now < seat.end_at) return;
  const int signal = now < seat.end_at + kTermGrace ? SIGTERM : SIGKILL;
  if (std::exchange(seat.told, signal) == signal) return;
  out->push_back({.kind = Kind::kSignal, .seat = index, .signal = signal});
}

// The first signal goes to all but the servers, which end after the workers have left.  The second
// one kills.
void LaunchPlan::Asked(int signal, LaunchTime now, Actions* out) {
  const bool again = std::exchange(phase_, Phase::kEnding) == Phase::kEnding;
  is_killed_ = again;
  KeepStatus(128 + signal);
  if (!again) Note("ending the job; once more kills it", out);
  SignalAll(again ? SIGKILL : signal, again, out);
  end_at_ = grace_end_ = now + rules_.grace;
}

// A restorer runs no script.  An agent that has not greeted has not started it.
void LaunchPlan::Passed(int signal, Actions* out) const {
  for (size_t i = 0; i < seats_.size(); ++i) {
    const Seat& seat = seats_[i];
    const bool runs_script = seat.role == Job::Role::kWorker && !seat.is_restorer &&
                             seat.state == State::kRunning && seat.is_greeted;
    if (runs_script) out->push_back({.kind = Kind::kSignal, .seat = i, .signal = signal});
  }
}

void LaunchPlan::HeadFailed(const std::string& why, LaunchTime now, Actions* out) {
  phase_ = Phase::kEnding;
  KeepStatus(kNotDone);
  Note("the job ends: " + why, out);
  end_at_ = now;
}

void LaunchPlan::Tick(LaunchTime now, bool do_others_live, Actions* out) {
  const bool is_ending = phase_ == Phase::kEnding || end_at_ != kNever;
  for (size_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].state != State::kWaiting) continue;
    if (is_ending) {
      seats_[i].state = State::kOver;
    } else {
      StartInTurn(i, now, out);
    }
  }
  if (phase_ != Phase::kStartingAgain) EndTheOthers(now, do_others_live, out);
}

// Ends what still runs after all workers have left, or after the grace period of a failure.
void LaunchPlan::EndTheOthers(LaunchTime now, bool do_others_live, Actions* out) {
  if (AwaitsOthers() && do_others_live) {
    workers_done_at_ = kNever;  // a worker that somebody has started needs the servers
  } else if (!IsAnyWorkerLeft() && workers_done_at_ == kNever) {
    workers_done_at_ = now;  // servers notice that all workers have left, and end
  }
  const bool may_leave = status_ == 0 || are_others_awaited_;
  const bool servers_linger =
      workers_done_at_ != kNever && now - workers_done_at_ > seconds(may_leave ? 2 : 0);
  if (!servers_linger && now < end_at_) return;
  if (ended_at_ == kNever) ended_at_ = now;
  const int signal = now - ended_at_ > kTermGrace ? SIGKILL : SIGTERM;
  if (std::exchange(told_, signal) == signal) return;
  phase_ = Phase::kEnding;
  const bool is_late = signal == SIGKILL || (now >= grace_end_ && !servers_linger);
  if (is_late && status_ != 0 && rules_.grace > seconds(0)) NoteWhoIsLate(signal, out);
  SignalAll(signal, true, out);
}

// Names the processes that get a signal because they have not ended in time after a failure.
void LaunchPlan::NoteWhoIsLate(int signal, Actions* out) const {
  constexpr int kNamed = 8;
  // A server ends by itself after the workers only, and is not late before that.
  const bool may_servers_run = signal == SIGTERM;
  std::string names;
  int count = 0;
  for (const Seat& seat : seats_) {
    if (seat.state != State::kRunning) continue;
    if (seat.role == Job::Role::kServer && may_servers_run) continue;
    if (++count <= kNamed) names += (count > 1 ? ", " : "") + seat.name();
  }
  if (count == 0) return;
  if (count > kNamed) names += " and " + std::to_string(count - kNamed) + " more";
  const std::string they_are = count == 1 ? "; it is " : "; they are ";
  if (signal == SIGTERM) {
    Note(names + (count == 1 ? " still runs" : " still run") + " after the grace period of " +
             std::to_string(rules_.grace.count()) + " s" + they_are + "ended",
         out);
  } else {
    Note(names + (count == 1 ? " does" : " do") + " not end" + they_are + "killed", out);
  }
}

// ---- state --------------------------------------------------------------------------------------

bool LaunchPlan::IsAnyRunning() const {
  return std::ranges::any_of(seats_, [](const Seat& seat) { return seat.state != State::kOver; });
}

bool LaunchPlan::IsAnyWorkerLeft() const {
  return std::ranges::any_of(seats_, [](const Seat& seat) {
    return seat.state != State::kOver && seat.role == Job::Role::kWorker && !seat.has_restored;
  });
}

bool LaunchPlan::is_timed() const {
  return end_at_ != kNever || ended_at_ != kNever || workers_done_at_ != kNever;
}

int LaunchPlan::Status() const {
  // An observer that failed because the job had ended does not change the status.
  const bool has_failed_before = observer_status_ != 0 && workers_done_at_ != kNever &&
                                 workers_done_at_ - observer_failed_at_ > seconds(2);
  return status_ == 0 && has_failed_before ? observer_status_ : status_;
}

}  // namespace tkv::cli
