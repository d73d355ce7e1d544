// The decisions of a launcher: which processes start, get signals and start again, and with which
// exit status the job ends.  A pure state machine: it has no process and no clock.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tkv/job.h"

namespace tkv::cli {

using LaunchTime = std::chrono::steady_clock::time_point;

struct LaunchRules {
  int workers = 1;
  int servers = 1;
  int observers = 0;
  // The host of a process; "" is this machine.
  std::function<std::string(Job::Role, int rank)> host_of;
  int restarts = 0;  // of each worker, and of the whole job
  // The job has snapshots, from which it can go on after a server was lost.
  bool has_snapshots = false;
  std::string snapshots;  // the folder of its own snapshots; empty: it saves none by itself
  std::string on_death;
  std::chrono::seconds grace{30};  // of the other processes, after one has failed
};

// A process of the job.
struct Seat {
  enum class State : uint8_t { kWaiting, kRunning, kOver };

  Job::Role role{};
  int rank = 0;
  std::string host;          // where its agent runs; empty: this machine
  bool is_restorer = false;  // the first incarnation of its rank, which loads the snapshot

  State state = State::kWaiting;
  LaunchTime not_before;      // the earliest start
  bool is_greeted = true;     // its agent, if it has one, has greeted and got the order
  bool has_restored = false;  // the restorer has loaded its part of the snapshot
  int restarts = 0;
  // The head counts it as dead while its process runs.
  bool is_silent = false;
  LaunchTime end_at;  // if silent: the time of SIGTERM
  int told = 0;       // the last signal that it got because it is silent

  bool is_far() const { return !host.empty(); }
  std::string name() const { return std::string(Name(role)) + " " + std::to_string(rank); }
};

// The end of a process.
struct SeatEnd {
  int code = 0;              // its exit status, or 128 plus the signal that has killed it
  std::string how;           // "was killed by signal 9", or the reason why no agent greeted
  bool job_is_over = false;  // the head says that all workers have left or are dead
  bool has_left = false;     // the head says that the process had left the job before its end
  std::string advice;        // of a restorer that found damage: AdviceOnDamage
};

// A task for the launcher.
struct LaunchAction {
  enum class Kind : uint8_t {
    kStart,   // starts the seat's process
    kSignal,  // sends `signal` to it if it runs
    kGone,    // tells the head that the seat gets no other process
    kNote,    // prints `text`
    kLog,     // writes `text` to the launcher's log alone
  };
  Kind kind{};
  size_t seat = 0;
  int signal = 0;
  bool has_failed = false;  // kGone: the last process has failed
  std::string text;
  bool tells_variables = false;  // kNote: the variables of a process that takes the seat follow
};

class LaunchPlan {
 public:
  using Actions = std::vector<LaunchAction>;

  static constexpr LaunchTime kNever = LaunchTime::max();
  // Agents of one host that have not greeted; sshd drops more connections (MaxStartups).
  static constexpr int kGreetingsMax = 8;
  static constexpr std::chrono::seconds kTermGrace{3};  // between SIGTERM and SIGKILL

  explicit LaunchPlan(LaunchRules rules) : rules_(std::move(rules)) {}

  // ---- events
  // Starts the job: the first time, or again after all its processes have ended.  Ends it instead if
  // its newest snapshot is lost, so that it never silently goes back to an older state.
  //   snapshot  the folder from which it goes on; empty: it begins anew
  void Begin(const std::string& snapshot, LaunchTime now, Actions* out);
  // The folder of the job's own snapshots has one.
  void Saved() { newest_ = rules_.snapshots; }
  void Greeted(size_t seat) { seats_[seat].is_greeted = true; }
  // A restorer has loaded its part.
  void Restored(size_t seat, LaunchTime now, Actions* out);
  void Ended(size_t seat, const SeatEnd& end, LaunchTime now, Actions* out);
  // The head counts a seat that `IsWatched` as dead, or not any more.
  void Judged(size_t seat, bool is_silent, bool job_is_over, LaunchTime now, Actions* out);
  // The user has sent a signal that asks to end the job.
  void Asked(int signal, LaunchTime now, Actions* out);
  // The user has sent a signal for the scripts of the workers: SIGUSR1 or SIGUSR2.
  void Passed(int signal, Actions* out) const;
  // The user stops (SIGTSTP) or continues (SIGCONT) the job.
  void Paused(int signal, Actions* out) const { SignalAll(signal, true, out); }
  // The head can do nothing more, so the job cannot go on.
  void HeadFailed(const std::string& why, LaunchTime now, Actions* out);
  // Time has passed: starts what has waited for it, and ends what has had its time.
  //   do_others_live  while `AwaitsOthers`: the head says that a worker takes part
  void Tick(LaunchTime now, bool do_others_live, Actions* out);

  // ---- state
  const std::deque<Seat>& seats() const { return seats_; }  // references stay valid until Begin
  bool IsAnyRunning() const;
  bool IsWatched(size_t seat) const;
  // Returns true if the job is to be started again and all its processes have ended.
  bool MustBegin() const { return phase_ == Phase::kStartingAgain && !IsAnyRunning(); }
  // Returns true if only workers that somebody else has started may still run.
  bool AwaitsOthers() const {
    return are_others_awaited_ && phase_ == Phase::kRunning && !IsAnyWorkerLeft();
  }
  // Returns true if the job's own snapshots matter and none has been seen yet.
  bool AwaitsSave() const {
    return rules_.has_snapshots && rules_.restarts > 0 && newest_ != rules_.snapshots &&
           !rules_.snapshots.empty();
  }
  bool is_timed() const;                         // Tick has to be called soon
  bool is_killed() const { return is_killed_; }  // by a second signal
  int job_restarts() const { return job_restarts_; }
  // Returns the exit status: that of the first process that has failed, or 0.
  int Status() const;

 private:
  enum class Phase : uint8_t { kRunning, kStartingAgain, kEnding };

  bool IsNewestLost(const std::string& snapshot) const;
  void EndForLackOfSnapshot(const std::string& older, Actions* out);
  void Add(Job::Role role, int rank, bool is_restorer, LaunchTime now, Actions* out);
  void StartInTurn(size_t seat, LaunchTime now, Actions* out);
  void StartAgain(size_t seat, const std::string& why, LaunchTime now, Actions* out);
  void EndToStartAgain(const std::string& why, Actions* out);
  void RestorerEnded(size_t seat, const SeatEnd& end, LaunchTime now, Actions* out);
  void Failed(size_t seat, const SeatEnd& end, bool is_awaited, LaunchTime now, Actions* out);
  void EndTheOthers(LaunchTime now, bool do_others_live, Actions* out);
  void EndSoon(LaunchTime now) {
    grace_end_ = std::min(grace_end_, now + rules_.grace);
    end_at_ = std::min(end_at_, grace_end_);
  }
  void NoteWhoIsLate(int signal, Actions* out) const;
  void KeepStatus(int code) {
    if (status_ == 0) status_ = code;
  }
  bool IsAnyWorkerLeft() const;
  bool IsAwaited(const Seat& seat) const;
  bool CanGoOn() const;
  bool HasRestartLeft(const Seat& seat) const;
  bool CanStartAgain(const Seat& seat) const;
  bool CanStartJobAgain(const Seat& seat) const;
  static void Note(std::string text, Actions* out);
  void SignalAll(int signal, bool servers_too, Actions* out) const;

  const LaunchRules rules_;
  std::deque<Seat> seats_;
  Phase phase_ = Phase::kRunning;
  std::string snapshot_;  // from which the job went on; empty: it began anew
  std::string newest_;    // the folder of its newest snapshot; empty: it has none
  int status_ = 0;
  int job_restarts_ = 0;
  bool are_others_awaited_ = false;  // somebody else starts some of the workers
  bool is_killed_ = false;
  int told_ = 0;                   // the last signal to all
  LaunchTime end_at_ = kNever;     // of what still runs
  LaunchTime grace_end_ = kNever;  // of the grace period
  LaunchTime ended_at_ = kNever;   // the time of the first signal to all
  LaunchTime workers_done_at_ = kNever;
  int observer_status_ = 0;  // of the first observer that has failed
  LaunchTime observer_failed_at_ = kNever;
};

}  // namespace tkv::cli
