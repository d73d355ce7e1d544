// tkv launch: the processes of a job, on this machine and on others.

#include "launch.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "agent.h"
#include "child.h"
#include "exit_status.h"
#include "hosts.h"
#include "input.h"
#include "job_output.h"
#include "launch_plan.h"
#include "programs.h"
#include "relay.h"
#include "restore.h"
#include "snapshot_folders.h"
#include "spawn.h"
#include "system.h"
#include "tkv/config.h"
#include "tkv/doctor.h"
#include "tkv/error.h"
#include "tkv/job.h"
#include "tkv/kvstore.h"
#include "variables.h"
#include "watchdog.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kGreetingPatience{30};  // of an agent
constexpr seconds kAliveEvery{5};         // the interval of "alive" to an agent
// The interval of checks for members that the head declared dead.
constexpr seconds kSilentEvery{1};
// The interval of looks for the first of the job's own snapshots.
constexpr seconds kSavedEvery{1};
constexpr std::chrono::milliseconds kLastSeconds{1000};  // for output of a job that was killed
// Bytes kept of a host's output before the greeting.
constexpr size_t kBeforeMax = 64 << 10;

class Launcher {
 public:
  Launcher(const LaunchOptions& options, std::vector<JobProgram> programs, Variables variables,
           Form form)
      : options_(options),
        programs_(std::move(programs)),
        workers_(CountOf(programs_, Job::Role::kWorker)),
        variables_(std::move(variables)),
        output_(form),
        plan_(Rules()) {}
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // A launcher without memory ends the job, because it might miss the end of a process.
  int Run() {
    try {
      return RunJob();
    } catch (const std::bad_alloc&) {
      reserve_.reset();
      throw Error(Code::kResourceExhausted,
                  std::string("launch: no memory to ") + doing_ + "; the job is ended");
    }
  }

 private:
  int RunJob() {
    OpenLog();
    if (!options_.hosts.empty()) hosts_ = ReadHosts(options_.hosts);
    if (!options_.address.empty() && !IsOnSeveralHosts()) {
      throw Error(Code::kInvalidArgument, "launch: --address " + options_.address +
                                              ": all hosts of '" + options_.hosts +
                                              "' are this machine, and nobody has to reach it");
    }
    ChooseInput();
    StartJob();
    while (plan_.IsAnyRunning()) {
      Turn();
      if (plan_.MustBegin()) StartJob();
      LookAtHead();
      LookForSave();
      const bool do_others_live = plan_.AwaitsOthers() && head_->IsAnyWorkerAlive();
      Do([&](LaunchPlan::Actions* out) { plan_.Tick(Clock::now(), do_others_live, out); });
    }
    for (size_t i = 0; i < children_.size(); ++i) relay_.ReadAll(i);
    status_ = plan_.Status();
    output_.End(status_);
    AwaitOutput();
    return status_ == 0 && output_.is_lost() ? kNotDone : status_;
  }

  // A worker on another host can have the text that a user types, and no file or pipe.
  void ChooseInput() {
    input_.Choose(options_.stdin_rank, workers_);
    if (!input_.rank() || input_.is_terminal()) return;
    const std::string host = HostOf(Job::Role::kWorker, *input_.rank());
    if (host.empty()) return;
    if (options_.stdin_rank.empty()) return input_.Choose("none", workers_);
    throw Error(Code::kInvalidArgument, "launch: --stdin " + options_.stdin_rank +
                                            ": that worker is on host '" + host +
                                            "', which only a terminal reaches, no file or pipe");
  }

  LaunchRules Rules() {
    LaunchRules rules;
    rules.workers = workers_;
    rules.servers = options_.servers;
    rules.observers = CountOf(programs_, Job::Role::kObserver);
    rules.host_of = [this](Job::Role role, int rank) { return HostOf(role, rank); };
    rules.restarts = options_.restarts;
    rules.has_snapshots = !options_.restore.empty();
    rules.snapshots = options_.snapshots;
    rules.on_death = OnDeath();
    rules.grace = seconds(options_.grace_seconds);
    return rules;
  }

  std::string OnDeath() const {
    std::string given = OptionsFromEnvironment().on_death;
    if (!given.empty()) return given;
    return options_.restarts > 0 ? "wait" : "fail";
  }

  // Returns the host of a process; "" is this machine.
  std::string HostOf(Job::Role role, int rank) const {
    if (hosts_.empty()) return {};
    const int count = role == Job::Role::kServer ? options_.servers : CountOf(programs_, role);
    const std::string& host = hosts_[cli::HostOf(rank, count, hosts_.size())];
    return IsThisHost(host) ? std::string() : host;
  }

  // Gives the plan an event, and does what it decides.
  template <typename Event>
  void Do(Event event) {
    LaunchPlan::Actions actions;
    event(&actions);
    while (children_.size() < plan_.seats().size()) {
      children_.push_back(std::make_unique<Child>(plan_.seats()[children_.size()]));
    }
    for (const LaunchAction& action : actions) Do(action);
  }

  void Do(const LaunchAction& action) {
    using Kind = LaunchAction::Kind;
    const auto seat = [&]() -> const Seat& { return plan_.seats()[action.seat]; };
    switch (action.kind) {
      case Kind::kStart:
        return Start(children_[action.seat].get());
      case Kind::kSignal:
        if (children_[action.seat]->is_running()) children_[action.seat]->Signal(action.signal);
        return;
      case Kind::kGone:
        return head_->Gone(seat().role, seat().rank, action.has_failed);
      case Kind::kNote:
        return Note(action.tells_variables ? action.text + JoiningVariables(EnvironmentOf(seat()))
                                           : action.text);
      case Kind::kLog:
        return Log(action.text);
    }
  }

  void StartHead() {
    Job job;
    job.role = Job::Role::kHead;
    job.id = NewId();
    job.workers = workers_;
    job.servers = options_.servers;
    const StoreOptions store = OptionsFromEnvironment();
    job.on_death = OnDeath();
    job.lives_return = options_.restarts > 0;
    for (const std::string& sentence : UnknownVariables()) Note(sentence);
    static_cast<NetworkOptions&>(job) = store;
    if (options_.tcp) job.transport = "tcp";
    if (IsOnSeveralHosts()) {
      job.head = OwnAddress();
    } else if (job.transport == "tcp") {
      job.head = "tcp:127.0.0.1:0";
    }
    job.token = Token(!job.head.empty());
    head_ = Service::Start(job, store.log);
    job_ = job;
    job.head = head_->address();
    const std::string url = UrlOf(job);
    const std::string token_file = token_file_ == nullptr ? "" : token_file_->path();
    output_.Begin(url, token_file, !IsAskedToBeSilent());
    Log(WhereItIs(url, token_file));
  }

  // Returns an id that no other job has, so that processes of an earlier one cannot join.
  std::string NewId() const {
    const std::string digits = NewToken().substr(0, 16);
    return options_.name.empty() ? digits : options_.name + "-" + digits;
  }

  // Returns true if the user has chosen the level "off" of the log, which is the default as well.
  static bool IsAskedToBeSilent() {
    const char* const level = std::getenv("TKV_LOG");
    return level != nullptr && std::string_view(level) == "off";
  }

  // Returns the folder of the job's own snapshots if it has any, else the folder of the first one.
  // Returns "" if there is no snapshot.
  std::string FolderToGoOnFrom() const {
    const std::string& own = options_.snapshots;
    const std::string& first = options_.restore;
    if (!own.empty() && own != first && HasSnapshot(options_, "--snapshots", own)) return own;
    return !first.empty() && HasSnapshot(options_, "--restore", first) ? first : std::string();
  }

  // Ends the job if its head can do nothing more.
  void LookAtHead() {
    if (has_head_failed_) return;
    try {
      head_->Wait(std::chrono::milliseconds(0));
    } catch (const Error& error) {
      has_head_failed_ = true;
      Do([&](LaunchPlan::Actions* out) { plan_.HeadFailed(error.what(), Clock::now(), out); });
    }
  }

  // Tells the plan that the job has saved a snapshot.  Without this the launcher could not tell a
  // lost folder from one in which nothing was saved.
  void LookForSave() {
    const auto now = Clock::now();
    if (!plan_.AwaitsSave() || now < looked_for_save_ + kSavedEvery) return;
    looked_for_save_ = now;
    doing_ = "look for a snapshot";
    if (SnapshotsIn(options_.snapshots).empty()) return;
    plan_.Saved();
    Log("there is a snapshot in " + options_.snapshots);
  }

  // Starts the job: the first time, or again after all its processes have ended.
  void StartJob() {
    doing_ = "start the job";
    for (size_t i = 0; i < children_.size(); ++i) relay_.ReadAll(i);
    have_restored_.clear();
    children_.clear();
    head_.reset();
    StartHead();
    restored_ = FolderToGoOnFrom();
    Do([&](LaunchPlan::Actions* out) { plan_.Begin(restored_, Clock::now(), out); });
  }

  // Returns the token of the user's file, so that others can inspect the job.  If there is none and
  // one is needed, returns a new token.  Every start of the job uses the same token.
  std::string Token(bool is_needed) {
    if (token_file_ != nullptr) return job_.token;
    std::string token = TokenFromEnvironment();
    if (token.empty() && is_needed) token = NewToken();
    if (!token.empty()) token_file_ = std::make_unique<TokenFile>(token, watchdog_);
    return token;
  }

  bool IsOnSeveralHosts() const { return !std::all_of(hosts_.begin(), hosts_.end(), IsThisHost); }

  // Returns the address of this machine as seen from the other hosts.
  std::string OwnAddress() const {
    const auto other = std::find_if_not(hosts_.begin(), hosts_.end(), IsThisHost);
    const std::string token = NewToken();  // for a door that nobody uses
    // A pending signal ends the wait; the first turn takes it.
    const SignalFile requests{SIGINT, SIGTERM, SIGHUP};
    const std::string towards =
        options_.address.empty()
            ? NameOf(ssh_, *other, {.watchdog = &watchdog_, .interrupt = requests.file()})
            : options_.address;
    try {
      const std::string door = Door::Open(towards, token)->address();
      return door.substr(0, door.rfind(':')) + ":0";
    } catch (const Error& error) {
      throw Error(error.code(), "launch: host '" + *other + "': " + error.what() +
                                    "; `tkv doctor --hosts " + options_.hosts + "` says more");
    }
  }

  // Returns the number of workers that share the cores of a process's host.
  int WorkersBeside(const Seat& seat) const {
    int count = 0;
    for (int rank = 0; rank < workers_; ++rank) {
      count += static_cast<int>(HostOf(Job::Role::kWorker, rank) == seat.host);
    }
    return std::max(1, count);
  }

  // Returns the environment of a process.  A local one inherits all of this process's variables, one
  // on another host only those of TensorKV.
  std::vector<std::string> EnvironmentOf(const Seat& seat) const {
    Variables variables = OwnVariables(seat.is_far());
    for (const auto& [name, value] : variables_) variables[name] = value;
    variables["TKV_JOB"] = job_.id;
    variables["TKV_HEAD"] = head_->address();
    variables["TKV_ROLE"] = Name(seat.role);
    variables["TKV_RANK"] = std::to_string(seat.rank);
    if (seat.role == Job::Role::kObserver) variables.erase("TKV_RANK");
    variables["TKV_WORKERS"] = std::to_string(workers_);
    variables["TKV_TRANSPORT"] = job_.transport;
    variables["TKV_SERVERS"] = std::to_string(options_.servers);
    variables["TKV_ON_DEATH"] = job_.on_death;
    if (HasEventsInItsFile(seat)) variables["TKV_LOG"] = "info";
    variables.erase("TKV_TOKEN_FILE");
    if (seat.restarts > 0 || plan_.job_restarts() > 0) {
      variables["TKV_FAILPOINTS"] = OfLaterLives(variables["TKV_FAILPOINTS"]);
    }
    if (seat.is_restorer) variables.erase("TKV_FAILPOINTS");
    if (!seat.is_far()) {
      if (token_file_ != nullptr) variables["TKV_TOKEN_FILE"] = token_file_->path();
      // All workers of this machine share its cores.
      const int share = Cores() / WorkersBeside(seat);
      variables.emplace("TKV_THREADS", std::to_string(std::max(1, share)));
    }
    return TextsOf(variables);
  }

  // Returns true if the log file of a process has its lifecycle, which the terminal does not show.
  bool HasEventsInItsFile(const Seat& seat) const {
    const bool has_user_set_level = std::getenv("TKV_LOG") != nullptr;
    return !options_.log_folder.empty() && seat.role == Job::Role::kServer && !has_user_set_level;
  }

  std::vector<std::string> WordsOf(const Seat& seat) const {
    if (seat.is_far()) return AgentCommand(ssh_, seat.host);
    if (seat.role == Job::Role::kServer) return {OwnPath(), "server", "--quiet"};
    if (seat.is_restorer) return {OwnPath(), "restorer", restored_};
    return CommandOf(programs_, seat.role, seat.rank);
  }

  void Start(Child* child) {
    const Seat& seat = child->seat();
    SpawnOptions options;
    options.words = WordsOf(seat);
    options.inherits = seat.is_far();
    if (!options.inherits) options.variables = EnvironmentOf(seat);
    options.signals = signals_.old();
    options.watchdog = &watchdog_;
    child->life_before = head_->LifeOf(seat.role, seat.rank);
    const bool has_input = input_.IsFor(seat);
    if (has_input && !input_.is_terminal()) options.input = Stdin::kOwn;
    child->Start(std::move(options), has_input && input_.is_terminal());
    Log(seat.name() + " started, pid " + std::to_string(child->pid()));
    const bool is_first = seat.restarts == 0 && !seat.is_restorer;
    if (is_first && !options_.log_folder.empty()) {
      child->OpenLog(options_.log_folder, plan_.job_restarts() > 0);
    }
  }

  // ---- agents on other hosts

  // Handles a line of an agent that has not greeted yet.
  void Greeted(size_t index, const std::string& line) {
    Child* const child = children_[index].get();
    const Seat& seat = child->seat();
    if (!line.starts_with(kAgentGreeting)) {
      if (child->before.size() < kBeforeMax) child->before += line;
      return;
    }
    std::string version = line.substr(std::strlen(kAgentGreeting));
    version.resize(version.find_last_not_of("\r\n") + 1);
    if (version != BuildVersion()) {
      child->before = "tensorkv " + version + " there, " + BuildVersion() + " here";
      child->Kill();
      return;
    }
    AgentOrder order;
    order.variables = EnvironmentOf(seat);
    order.token = job_.token;
    order.python = OwnPython();
    order.share = WorkersBeside(seat);
    order.can_type = input_.IsFor(seat);
    if (seat.is_restorer) {
      order.words = {"", "restorer", restored_};
    } else if (seat.role != Job::Role::kServer) {
      order.words = CommandOf(programs_, seat.role, seat.rank);
    }
    const std::string items = Encode(order);
    if (child->Tell(items)) {
      plan_.Greeted(index);
    } else {
      child->before = "the command and its variables of " + std::to_string(items.size()) +
                      " bytes cannot be passed on";
      child->Kill();
    }
  }

  void LookForTheSilent() {
    if (Clock::now() >= looked_at_silent_ + kSilentEvery) JudgeTheSilent();
  }

  // Tells the plan which processes the head counts as dead.
  void JudgeTheSilent() {
    const auto now = Clock::now();
    looked_at_silent_ = now;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (!plan_.IsWatched(i)) continue;
      const Seat& seat = plan_.seats()[i];
      const bool is_silent = head_->IsSilent(seat.role, seat.rank);
      const bool is_over = head_->IsOver();
      Do([&](LaunchPlan::Actions* out) { plan_.Judged(i, is_silent, is_over, now, out); });
    }
  }

  void LookAfterAgents() {
    const auto now = Clock::now();
    const bool is_due = now >= told_alive_ + kAliveEvery;
    if (is_due) told_alive_ = now;
    for (auto& child : children_) {
      const Seat& seat = child->seat();
      if (!seat.is_far() || !child->is_running()) continue;
      if (seat.is_greeted && is_due) child->Tell(AgentItem("alive"));
      if (!seat.is_greeted && now > child->started() + kGreetingPatience) {
        child->before += "no word from it in " + std::to_string(kGreetingPatience.count()) + " s";
        child->Kill();
      }
    }
  }

  // Returns the next signal that asks to end the job, or 0.  Handles the other signals.
  int TakeRequest() {
    while (const int signal = signals_.Take()) {
      if (signal == SIGUSR1 || signal == SIGUSR2) {
        Do([&](LaunchPlan::Actions* out) { plan_.Passed(signal, out); });
      } else if (signal == SIGTSTP) {
        Pause();
      } else if (signal != SIGCHLD && signal != SIGTTIN) {
        return signal;
      }
    }
    return 0;
  }

  // Stops the processes of the job and then this one, until somebody continues it.  The system does
  // not stop this process if no shell could continue it; the others then go on as well.
  void Pause() {
    Do([&](LaunchPlan::Actions* out) { plan_.Paused(SIGTSTP, out); });
    signals_.TakeDefaultAction(SIGTSTP);
    Do([&](LaunchPlan::Actions* out) { plan_.Paused(SIGCONT, out); });
  }

  void Turn() {
    std::vector<pollfd> files = {
        {signals_.file(), POLLIN, 0}, {output_.output().file(), POLLIN, 0}, AwaitedForInput()};
    const size_t own = files.size();
    std::vector<Relay::Source> sources;
    relay_.AddFilesTo(&files, &sources);
    if (poll(files.data(), files.size(), Timeout()) < 0 && errno != EINTR) Die("launch: poll");
    doing_ = "look after the processes";
    LookAfterAgents();
    LookForTheSilent();
    doing_ = "pass on the output of the processes";
    if (files[1].revents != 0) output_.output().Written();
    if (files[2].fd == STDIN_FILENO && files[2].revents != 0) PassInputOn();
    for (size_t i = own; i < files.size(); ++i) {
      if (files[i].revents != 0) relay_.ReadOnce(sources[i - own]);
    }
    relay_.PassOnUnfinishedLines();
    NoteLostOutput();
    doing_ = "note the end of a process";
    while (const int signal = TakeRequest()) {
      Do([&](LaunchPlan::Actions* out) { plan_.Asked(signal, Clock::now(), out); });
    }
    std::vector<std::pair<size_t, int>> ended;
    for (size_t i = 0; i < children_.size(); ++i) {
      int status = 0;
      if (!children_[i]->HasEnded(&status)) continue;
      relay_.ReadAll(i);  // a restorer's last output counts before its end
      if (children_[i]->has_killed_rest()) {
        Note(children_[i]->seat().name() + " has ended; " + kRestWasKilled);
      }
      ended.emplace_back(i, status);
    }
    // A killed process is the cause of the failures of others that are seen to have ended with it.
    std::ranges::stable_partition(ended, [](const auto& end) { return WIFSIGNALED(end.second); });
    for (const size_t index : std::exchange(have_restored_, {})) {
      Do([&](LaunchPlan::Actions* out) { plan_.Restored(index, Clock::now(), out); });
    }
    for (const auto& [index, status] : ended) Ended(index, status);
  }

  // Returns the child to which the user types; null: there is none.
  Child* Typist() {
    for (const auto& child : children_) {
      if (child->CanType()) return child.get();
    }
    return nullptr;
  }

  // Returns the file to wait for before more input can be passed on: the terminal, or the pipe of a
  // worker that has not read enough.  Text that no worker can take stays in the terminal.
  pollfd AwaitedForInput() {
    Child* const child = input_.IsReadable() ? Typist() : nullptr;
    if (child == nullptr) return {-1, 0, 0};
    pollfd pipe{child->typing(), POLLOUT, 0};
    const bool is_full = pipe.fd >= 0 && poll(&pipe, 1, 0) == 0;
    if ((pipe.revents & POLLERR) != 0) {  // the worker has closed its stdin
      child->Type("");
      return {-1, 0, 0};
    }
    return is_full ? pipe : pollfd{STDIN_FILENO, POLLIN, 0};
  }

  void PassInputOn() {
    Child* const child = Typist();
    if (child == nullptr) return;
    const std::optional<std::string> text = input_.Read();
    if (!text) return;
    child->Type(*text);
    if (text->ends_with('\n')) output_.LineIsTyped();
  }

  // Returns the milliseconds until this object has to act.  Output and ends of children wake the
  // poll; only deadlines need a short timeout.
  int Timeout() const {
    using std::chrono::milliseconds;
    milliseconds longest(plan_.is_timed() ? 50 : 1000);
    if (const auto due = relay_.due(); due != Lines::kNever) {
      const auto wait = std::chrono::ceil<milliseconds>(due - Clock::now());
      longest = std::clamp(wait, milliseconds(0), longest);
    }
    return static_cast<int>(longest.count());
  }

  // Handles the lines that are for the launcher, and returns the others.
  std::string WithoutLinesForUs(size_t index, std::string_view lines) {
    const Seat& seat = children_[index]->seat();
    std::string others;
    while (!lines.empty()) {
      const std::string line(lines.substr(0, lines.find('\n') + 1));
      lines.remove_prefix(line.size());
      if (!seat.is_greeted) {
        Greeted(index, line);
      } else if (seat.is_restorer && line == kRestored) {
        have_restored_.push_back(index);
      } else {
        others += line;
      }
    }
    return others;
  }

  void NoteLostOutput() {
    const std::string failure = output_.TakeFailure();
    if (!failure.empty()) Note(failure);
  }

  // Waits until all output is written.  A signal ends the wait.  After a kill of the job it lasts
  // at most kLastSeconds.
  void AwaitOutput() {
    const auto begin = Clock::now();
    while (!output_.output().WaitUntilWritten(std::chrono::milliseconds(100))) {
      const bool is_late = plan_.is_killed() && Clock::now() - begin > kLastSeconds;
      const int signal = TakeRequest();
      if (signal != 0 && status_ == 0) status_ = 128 + signal;
      if (is_late || signal != 0) return;
    }
    NoteLostOutput();
    output_.output().WaitUntilWritten(kLastSeconds);
  }

  // Prints a note and logs it.
  void Note(const std::string& text) {
    output_.Note(text);
    Log(text);
  }

  // Writes a line with the time to FOLDER/launcher.log, if there are logs.
  void Log(const std::string& text) {
    if (log_ == nullptr) return;
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    char time[32];
    std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &parts);
    std::fprintf(log_.get(), "%s %s\n", time, text.c_str());
    std::fflush(log_.get());
  }

  void OpenLog() {
    if (options_.log_folder.empty()) return;
    const std::string path = options_.log_folder + "/launcher.log";
    log_.reset(std::fopen(path.c_str(), "we"));
    if (log_ == nullptr) Die(path);
  }

  void Ended(size_t index, int status) {
    const Child& child = *children_[index];
    const Seat& seat = child.seat();
    watchdog_.Remove(child.pid());
    SeatEnd end;
    end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    const bool has_worker_after = seat.is_restorer && seat.is_greeted && seat.has_restored;
    // A worker may end before it has taken its rank from the restorer.  If it ends well, it leaves.
    const bool has_not_joined =
        end.code == 0 && head_->LifeOf(seat.role, seat.rank) == child.life_before;
    if (!has_worker_after && !has_not_joined) head_->Exited(seat.role, seat.rank);
    end.has_left = head_->HasLeft(seat.role, seat.rank);
    end.job_is_over = head_->IsOver();
    end.how = seat.is_greeted ? HowItEnded(seat, WIFSIGNALED(status), end.code)
                              : WhyNoAgent(seat.host, end.code, child.before);
    if (seat.is_restorer && end.code == kRestorerFindsDamage) {
      end.advice = AdviceOnDamage(restored_, options_.snapshots);
    }
    // Workers fail at once when the head counts a server as dead.  Without this look they would use
    // up their restarts on that server before the job is started again.
    if (end.code != 0) JudgeTheSilent();
    Do([&](LaunchPlan::Actions* out) { plan_.Ended(index, end, Clock::now(), out); });
  }

  // The exit status of an agent is that of its process; 255 is ssh's own.
  static std::string HowItEnded(const Seat& seat, bool by_signal, int code) {
    if (seat.is_far() && code == 255) return "is lost with the connection to " + seat.host;
    constexpr int kSignalMax = 64;
    const bool is_far_signal = seat.is_far() && code > 128 && code <= 128 + kSignalMax;
    const bool is_killed = by_signal || is_far_signal;
    return is_killed ? "was killed by signal " + std::to_string(code - 128)
                     : "ended with status " + std::to_string(code);
  }

  const LaunchOptions& options_;
  const std::vector<JobProgram> programs_;
  const int workers_;
  const Variables variables_;  // of all processes
  Watchdog watchdog_;          // first: it is forked before there are threads
  // SIGTTIN is blocked, so that a read of the terminal fails if a shell has just put this process
  // into the background.
  const SignalFile signals_{SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN};
  JobOutput output_;
  Input input_;
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, CloseFile> log_;  // the launcher's own log; null: none
  Job job_;
  const Ssh ssh_ = SshFromEnvironment();
  std::vector<std::string> hosts_;
  std::unique_ptr<TokenFile> token_file_;
  Clock::time_point told_alive_ = Clock::now();
  Clock::time_point looked_at_silent_ = Clock::now();
  Clock::time_point looked_for_save_ = Clock::now();
  std::unique_ptr<Service> head_;
  std::vector<std::unique_ptr<Child>> children_;
  const Relay relay_{
      &output_,
      &children_,
      {.take_lines_for_launcher =
           [this](size_t index, std::string_view lines) { return WithoutLinesForUs(index, lines); },
       .logs_info_alone = [this](const Seat& seat) { return HasEventsInItsFile(seat); },
       .note = [this](const std::string& text) { Note(text); }}};
  // The snapshot from which the job resumed; empty: it began anew.
  std::string restored_;
  std::vector<size_t> have_restored_;  // restorers that reported in this turn
  LaunchPlan plan_;
  int status_ = 0;
  const char* doing_ = "start";  // the present task, for an error
  // Memory for the launcher's last words.
  std::unique_ptr<char[]> reserve_ = std::make_unique<char[]>(size_t{16} << 10);
  bool has_head_failed_ = false;
};

}  // namespace

int Launch(const LaunchOptions& given, Form form) {
  LaunchOptions options = given;
  std::vector<JobProgram> programs = ProgramsOf(options.command, options.workers);
  if (options.hosts.empty()) {
    for (const JobProgram& program : programs) CheckProgram(program.command[0]);
  }
  if (!options.log_folder.empty() && mkdir(options.log_folder.c_str(), 0777) != 0 &&
      errno != EEXIST) {
    Die(options.log_folder);
  }
  PrepareSnapshotFolders(&options);
  std::signal(SIGPIPE, SIG_IGN);  // an agent may have ended
  std::signal(SIGCHLD, SIG_DFL);  // if SIGCHLD is ignored, waitpid reports no end
  return Launcher(options, std::move(programs), VariablesOfAll(options.variables), form).Run();
}

}  // namespace tkv::cli
