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
#include <utility>

#include "agent.h"
#include "child.h"
#include "exit_status.h"
#include "hosts.h"
#include "output.h"
#include "programs.h"
#include "restore.h"
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
constexpr seconds kTermGrace{3};  // between SIGTERM and SIGKILL
// Unanswered per host; sshd drops more connections (MaxStartups).
constexpr int kGreetingsMax = 8;
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
        form_(form) {}
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int Run() {
    OpenLog();
    if (!options_.hosts.empty()) hosts_ = ReadHosts(options_.hosts);
    if (!options_.address.empty() && !IsOnSeveralHosts()) {
      throw Error(Code::kInvalidArgument, "launch: --address " + options_.address +
                                              ": all hosts of '" + options_.hosts +
                                              "' are this machine, and nobody has to reach it");
    }
    StartJob();
    while (IsAnyRunning()) {
      Turn();
      if (is_starting_again_ && !IsAnyRunning()) StartJob();
      EndTheOthers();
    }
    for (auto& child : children_) DrainAll(child.get());
    // An observer that failed because the job had ended does not change the status.
    const bool has_failed_before = observer_failed_at_ + seconds(2) < workers_done_at_;
    if (status_ == 0 && has_failed_before) status_ = observer_status_;
    if (form_ == Form::kJson) {
      output_.Put(STDOUT_FILENO, JsonObject("end").Add("status", status_).ToText() + "\n");
    }
    AwaitOutput();
    return status_ == 0 && is_output_lost_ ? kNotDone : status_;
  }

 private:
  void StartHead() {
    Job job;
    job.role = Job::Role::kHead;
    job.id = NewToken().substr(0, 16);
    job.workers = workers_;
    job.servers = options_.servers;
    const StoreOptions store = OptionsFromEnvironment();
    job.on_death = !store.on_death.empty() ? store.on_death
                   : options_.restarts > 0 ? "wait"
                                           : "fail";
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
    Log("the job is at " + UrlOf(job) +
        (token_file_ == nullptr ? "" : ", its token in " + token_file_->path()));
  }

  // Returns the folder of the job's own snapshots if it has any, else the folder of the first one.
  // Returns "" if there is no snapshot.
  std::string FolderToGoOnFrom() const {
    for (const std::string& folder : {options_.snapshots, options_.restore}) {
      if (!folder.empty() && KVStore::HasSnapshot(folder)) return folder;
    }
    return {};
  }

  // Starts the job: the first time, or again after all its processes have ended.
  void StartJob() {
    is_starting_again_ = false;
    for (auto& child : children_) DrainAll(child.get());
    have_restored_.clear();
    children_.clear();
    head_.reset();
    StartHead();
    restored_ = FolderToGoOnFrom();
    for (int i = 0; i < options_.servers; ++i) Add(Job::Role::kServer, i);
    if (!restored_.empty()) Note("goes on from the snapshot in " + restored_);
    for (int i = 0; i < workers_; ++i) Add(Job::Role::kWorker, i, !restored_.empty());
    for (int i = 0; i < CountOf(programs_, Job::Role::kObserver); ++i) {
      Add(Job::Role::kObserver, i);
    }
  }

  // Ends all processes and then starts the job again.  A server has died with its values, or a
  // restorer has failed.
  void EndToStartAgain(const std::string& why) {
    ++job_restarts_;
    is_starting_again_ = true;
    // A restorer may have failed because the server died.
    status_ = 0;
    end_at_ = workers_done_at_ = Clock::time_point::max();
    are_others_awaited_ = false;
    Note(why + "; the job is started again (" + std::to_string(job_restarts_) + " of " +
         std::to_string(options_.restarts) + ")");
    for (auto& child : children_) {
      child->is_waiting = false;
      if (child->is_running()) child->Signal(SIGKILL);
    }
  }

  // Notes that a restorer has loaded its part.  After the last one the workers start and replace
  // the restorers one by one, so that no rank is ever without a live process.
  void Restored(Child* child) {
    child->has_restored = true;
    if (is_starting_again_ || is_ending_) return;
    const auto is_left = [](const auto& other) {
      return other->is_restorer && !other->has_restored;
    };
    if (std::any_of(children_.begin(), children_.end(), is_left)) return;
    for (int i = 0; i < workers_; ++i) Add(Job::Role::kWorker, i);
  }

  // Handles the end of a restorer.  A restorer that has done its part needs nothing: a worker has
  // its rank, or the job has ended.
  void RestorerEnded(const Child& child, int code) {
    if (child.has_restored || is_ending_) return;
    const std::string how =
        child.name() + " has not restored " + restored_ + ": status " + std::to_string(code);
    // A restorer that reported another error would fail again.
    const bool is_lost = code > 128 || code == kRestorerIsLost;
    if (is_lost && job_restarts_ < options_.restarts) return EndToStartAgain(how);
    Note(how);
    if (status_ == 0) status_ = code != 0 ? code : 1;
    end_at_ = std::min(end_at_, Clock::now() + seconds(options_.grace_seconds));
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

  void Add(Job::Role role, int rank, bool is_restorer = false) {
    std::string host;
    if (!hosts_.empty()) {
      const int count = role == Job::Role::kServer ? options_.servers : CountOf(programs_, role);
      host = hosts_[HostOf(rank, count, hosts_.size())];
      if (IsThisHost(host)) host.clear();
    }
    children_.push_back(std::make_unique<Child>(role, rank, host));
    children_.back()->is_restorer = is_restorer;
    StartInTurn(children_.back().get());
  }

  // Starts a child when its start time has come and fewer than kGreetingsMax agents of its host are
  // still to greet.
  void StartInTurn(Child* child) {
    const auto is_awaited = [&](const auto& other) {
      return other->is_running() && !other->is_greeted && other->host() == child->host();
    };
    child->is_waiting =
        Clock::now() < child->not_before ||
        std::count_if(children_.begin(), children_.end(), is_awaited) >= kGreetingsMax;
    if (!child->is_waiting) Start(child);
  }

  // Returns the number of workers that share the cores of a child's host.
  int WorkersBeside(const Child& child) const {
    if (hosts_.empty()) return workers_;
    int count = 0;
    for (int rank = 0; rank < workers_; ++rank) {
      const std::string& host = hosts_[HostOf(rank, workers_, hosts_.size())];
      count += static_cast<int>((IsThisHost(host) ? "" : host) == child.host());
    }
    return std::max(1, count);
  }

  // Returns a child's environment.  A local child inherits all of this process's variables, a child
  // on another host only those of TensorKV.
  std::vector<std::string> EnvironmentOf(const Child& child) const {
    Variables variables = OwnVariables(child.is_far());
    for (const auto& [name, value] : variables_) variables[name] = value;
    variables["TKV_JOB"] = job_.id;
    variables["TKV_HEAD"] = head_->address();
    variables["TKV_ROLE"] = Name(child.role());
    variables["TKV_RANK"] = std::to_string(child.rank());
    if (child.role() == Job::Role::kObserver) variables.erase("TKV_RANK");
    variables["TKV_WORKERS"] = std::to_string(workers_);
    variables["TKV_TRANSPORT"] = job_.transport;
    variables["TKV_SERVERS"] = std::to_string(options_.servers);
    variables["TKV_ON_DEATH"] = job_.on_death;
    // A server's log contains its lifecycle, unless the user set the log level.
    const bool is_logged_server =
        !options_.log_folder.empty() && child.role() == Job::Role::kServer;
    if (is_logged_server) variables.emplace("TKV_LOG", "info");
    variables.erase("TKV_TOKEN_FILE");
    if (child.restarts > 0 || job_restarts_ > 0) {
      variables["TKV_FAILPOINTS"] = OfLaterLives(variables["TKV_FAILPOINTS"]);
    }
    if (child.is_restorer) variables.erase("TKV_FAILPOINTS");
    if (!child.is_far()) {
      if (token_file_ != nullptr) variables["TKV_TOKEN_FILE"] = token_file_->path();
      // All workers of this machine share its cores.
      const int share = Cores() / WorkersBeside(child);
      variables.emplace("TKV_THREADS", std::to_string(std::max(1, share)));
    }
    return TextsOf(variables);
  }

  std::vector<std::string> WordsOf(const Child& child) const {
    if (child.is_far()) return AgentCommand(ssh_, child.host());
    if (child.role() == Job::Role::kServer) return {OwnPath(), "server", "--quiet"};
    if (child.is_restorer) return {OwnPath(), "restorer", restored_};
    return CommandOf(programs_, child.role(), child.rank());
  }

  void Start(Child* child) {
    SpawnOptions options;
    options.words = WordsOf(*child);
    options.inherits = child->is_far();
    if (!options.inherits) options.variables = EnvironmentOf(*child);
    options.signals = signals_.old();
    options.watchdog = &watchdog_;
    child->Start(std::move(options));
    Log(child->name() + " started, pid " + std::to_string(child->pid()));
    const bool is_first = child->restarts == 0 && !child->is_restorer;
    if (is_first && !options_.log_folder.empty()) {
      child->OpenLog(options_.log_folder, job_restarts_ > 0);
    }
  }

  // ---- agents on other hosts

  // Handles a line of an agent that has not greeted yet.
  void Greeted(Child* child, const std::string& line) {
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
    order.variables = EnvironmentOf(*child);
    order.token = job_.token;
    order.python = OwnPython();
    order.share = WorkersBeside(*child);
    if (child->is_restorer) {
      order.words = {"", "restorer", restored_};
    } else if (child->role() != Job::Role::kServer) {
      order.words = CommandOf(programs_, child->role(), child->rank());
    }
    const std::string items = Encode(order);
    child->is_greeted = child->Tell(items);
    if (!child->is_greeted) {
      child->before = "the command and its variables of " + std::to_string(items.size()) +
                      " bytes cannot be passed on";
      child->Kill();
    }
  }

  // Ends processes that the head has declared dead, as they can do nothing for the job.  Such a
  // process first gets the grace period, then SIGTERM, then SIGKILL.
  void EndTheSilent() {
    const auto now = Clock::now();
    if (now < looked_at_silent_ + kSilentEvery) return;
    looked_at_silent_ = now;
    for (auto& child : children_) {
      if (!child->is_running() || !child->is_greeted || is_starting_again_) continue;
      const bool is_silent = head_->IsSilent(child->role(), child->rank());
      if (!is_silent && child->told == 0) child->is_silent = false;  // its process has joined again
      if (is_silent && !child->is_silent) {
        if (CanStartJobAgain(*child) && !head_->IsOver()) {
          return EndToStartAgain(child->name() + " is silent and counts as dead");
        }
        child->is_silent = true;
        child->end_at = now + seconds(options_.grace_seconds);
        Note(child->name() + " is silent and counts as dead; its process is ended in " +
             std::to_string(options_.grace_seconds) + " s");
      }
      if (!child->is_silent || now < child->end_at) continue;
      const int signal = now < child->end_at + kTermGrace ? SIGTERM : SIGKILL;
      if (std::exchange(child->told, signal) != signal) child->Signal(signal);
    }
  }

  void LookAfterAgents() {
    const auto now = Clock::now();
    const bool is_due = now >= told_alive_ + kAliveEvery;
    if (is_due) told_alive_ = now;
    for (auto& child : children_) {
      if (is_ending_ || end_at_ != Clock::time_point::max()) child->is_waiting = false;
      if (child->is_waiting) StartInTurn(child.get());
      if (!child->is_far() || !child->is_running()) continue;
      if (child->is_greeted && is_due) child->Tell(AgentItem("alive"));
      if (!child->is_greeted && now > child->started() + kGreetingPatience) {
        child->before += "no word from it in " + std::to_string(kGreetingPatience.count()) + " s";
        child->Kill();
      }
    }
  }

  bool IsAnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const auto& child) { return child->is_running() || child->is_waiting; });
  }
  bool IsAnyWorkerRunning() const {
    return std::any_of(children_.begin(), children_.end(), [](const auto& child) {
      const bool is_meant = child->role() == Job::Role::kWorker && !child->has_restored;
      return (child->is_running() || child->is_waiting) && is_meant;
    });
  }

  void Turn() {
    std::vector<pollfd> files = {{signals_.file(), POLLIN, 0}, {output_.file(), POLLIN, 0}};
    std::vector<Child*> of = {nullptr, nullptr};
    for (auto& child : children_) {
      if (child->output() < 0 || child->is_held()) continue;
      files.push_back({child->output(), POLLIN, 0});
      of.push_back(child.get());
    }
    // Output and ends of children wake the poll; only deadlines need a short timeout.
    constexpr auto kNever = Clock::time_point::max();
    const bool is_timed = end_at_ != kNever || ended_at_ != kNever || workers_done_at_ != kNever;
    if (poll(files.data(), files.size(), is_timed ? 50 : 1000) < 0 && errno != EINTR)
      Die("launch: poll");
    LookAfterAgents();
    EndTheSilent();
    if (files[1].revents != 0) output_.Written();
    for (size_t i = 2; i < files.size(); ++i) {
      if (files[i].revents != 0) Drain(of[i]);
    }
    NoteLostOutput();
    while (const int signal = signals_.Take()) {
      if (signal != SIGCHLD) AskToEnd(signal);
    }
    std::vector<std::pair<Child*, int>> ended;
    for (auto& child : children_) {
      int status = 0;
      if (!child->HasEnded(&status)) continue;
      DrainAll(child.get());  // a restorer's last output counts before its end
      ended.emplace_back(child.get(), status);
    }
    for (Child* const child : std::exchange(have_restored_, {})) Restored(child);
    for (const auto& [child, status] : ended) Ended(child, status);
  }

  // Reads once from a child and passes its lines on.  A chatty process thus cannot starve the
  // others.  Returns true if there may be more.
  bool Drain(Child* child) {
    bool is_more = false;
    bool has_restored = false;
    std::string text, logged;
    for (const std::string& line : child->TakeLines(&is_more)) {
      if (!child->is_greeted) {
        Greeted(child, line);
        continue;
      }
      if (child->is_restorer && line == kRestored) {
        has_restored = true;
        continue;
      }
      text += Shown(*child, line);
      logged += line;
    }
    if (has_restored) have_restored_.push_back(child);
    output_.Put(STDOUT_FILENO, std::move(text), child->waiting);
    if (!child->Log(logged)) {
      Note("the log of " + child->name() + " ends here: " + std::strerror(errno));
    }
    return is_more;
  }

  // Returns a line of a process as the launcher prints it.
  std::string Shown(const Child& child, const std::string& line) const {
    if (form_ == Form::kText) return "[" + child.name() + "] " + line;
    const std::string_view text = std::string_view(line).substr(0, line.find_last_not_of('\n') + 1);
    return JsonObject("output").Add("process", child.name()).Add("text", text).ToText() + "\n";
  }

  // Reads the rest of an ended child's output.  Bounded, because a grandchild may hold the pipe
  // open and write for ever.
  void DrainAll(Child* child) {
    constexpr int kReadsMax = 64;
    for (int i = 0; i < kReadsMax && Drain(child); ++i) {
    }
  }

  void NoteLostOutput() {
    const int error = output_.TakeFailure();
    if (error == 0) return;
    is_output_lost_ = is_output_lost_ || error != EPIPE;  // EPIPE: the reader wants no more
    if (std::exchange(is_unheard_, true)) return;
    Note(std::string("what the processes say cannot be passed on: ") + std::strerror(error));
  }

  // Waits until all output is written.  A signal ends the wait.  After a kill of the job it lasts
  // at most kLastSeconds.
  void AwaitOutput() {
    const auto begin = Clock::now();
    while (!output_.WaitUntilWritten(std::chrono::milliseconds(100))) {
      const bool is_late = is_killed_ && Clock::now() - begin > kLastSeconds;
      int signal = signals_.Take();
      while (signal == SIGCHLD) signal = signals_.Take();
      if (signal != 0 && status_ == 0) status_ = 128 + signal;
      if (is_late || signal != 0) return;
    }
    NoteLostOutput();
    output_.WaitUntilWritten(kLastSeconds);
  }

  // Prints a note, to stderr or as an object to stdout, and logs it.
  void Note(const std::string& text) {
    if (form_ == Form::kText) {
      output_.Put(STDERR_FILENO, "tkv launch: " + text + "\n");
    } else {
      output_.Put(STDOUT_FILENO, JsonObject("note").Add("text", text).ToText() + "\n");
    }
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

  // Returns true if rounds wait for a new incarnation of this worker, which somebody else starts.
  bool IsAwaited(const Child& child) const {
    return child.role() == Job::Role::kWorker && options_.restarts == 0 &&
           job_.on_death == "wait" && !is_ending_;
  }

  bool CanStartAgain(const Child& child) const {
    return !is_ending_ && child.role() == Job::Role::kWorker && child.restarts < options_.restarts;
  }

  bool CanStartJobAgain(const Child& child) const {
    return !is_ending_ && child.role() == Job::Role::kServer && !options_.restore.empty() &&
           job_restarts_ < options_.restarts;
  }

  // Restarts a child: at once after a crash; with a growing delay if its host could not be reached.
  void StartAgain(Child* child, const std::string& why) {
    const bool is_unreached = !child->is_greeted;
    ++child->restarts;
    child->is_silent = false;
    child->told = 0;
    const seconds delay{is_unreached ? std::min(1 << std::min(child->restarts, 5), 30) : 0};
    child->not_before = Clock::now() + delay;
    Note(child->name() + (is_unreached ? ": " : " ") + why + "; it is started again" +
         (is_unreached ? " in " + std::to_string(delay.count()) + " s (" : " (") +
         std::to_string(child->restarts) + " of " + std::to_string(options_.restarts) + ")");
    StartInTurn(child);
  }

  void Ended(Child* child, int status) {
    watchdog_.Remove(child->pid());
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (child->is_restorer && child->is_greeted) {
      if (!is_starting_again_) RestorerEnded(*child, code);
      return;
    }
    head_->Exited(child->role(), child->rank());
    if (is_starting_again_) return;
    if (code == 0) Log(child->name() + " ended with status 0");
    // A restart that did not reach its host is a failure of the child.  A first start that did not
    // is a mistake in the list of hosts.
    const bool is_unreached = !child->is_greeted && child->restarts > 0;
    const bool has_failed = is_unreached || (child->is_greeted && code != 0);
    // After the job is over, a new incarnation cannot help a worker that failed.
    const bool is_late = has_failed && head_->IsOver();
    const bool is_restarted = has_failed && !is_late && CanStartAgain(*child);
    const bool is_awaited = code != 0 && child->is_greeted && IsAwaited(*child);
    if (!is_restarted && !is_awaited) head_->Gone(child->role(), child->rank(), code != 0);
    if ((code == 0 && child->is_greeted) || is_ending_) return;
    if (!child->is_greeted) {
      const std::string why = WhyNoAgent(child->host(), code, child->before);
      if (is_restarted) return StartAgain(child, why);
      Note(child->name() + ": " + why);
      if (status_ == 0) status_ = 2;
      end_at_ = Clock::now();
      return;
    }
    // The agent's exit status is that of its process; 255 is ssh's own.
    const bool is_far = child->is_far();
    const bool is_killed = WIFSIGNALED(status) || (is_far && code > 128 && code < 255);
    const std::string how = is_far && code == 255
                                ? "is lost with the connection to " + child->host()
                            : is_killed ? "was killed by signal " + std::to_string(code - 128)
                                        : "ended with status " + std::to_string(code);
    if (is_restarted) return StartAgain(child, how);
    if (!is_late && CanStartJobAgain(*child)) return EndToStartAgain(child->name() + " " + how);
    Note(child->name() + " " + how +
         (is_late && CanStartAgain(*child) ? "; it is not started again, because the job has ended"
                                           : "") +
         (is_awaited ? "; rounds wait for its next life, at most their patience: start it with" +
                           JoiningVariables(EnvironmentOf(*child))
                     : ""));
    if (child->role() == Job::Role::kObserver) {  // no process waits for an observer
      if (observer_status_ == 0) observer_status_ = code;
      if (observer_failed_at_ > Clock::now()) observer_failed_at_ = Clock::now();
      return;
    }
    if (status_ == 0) status_ = code;
    // Under these policies the job continues without the worker.
    const bool continues = child->role() == Job::Role::kWorker && job_.on_death == "continue";
    const bool goes_on = continues || is_awaited;
    are_others_awaited_ |= is_awaited;
    if (!goes_on) end_at_ = std::min(end_at_, Clock::now() + seconds(options_.grace_seconds));
  }

  // Ends the job.  The first call sends the signal to all but the servers, which end after the
  // workers have left.  The second call kills.
  void AskToEnd(int signal) {
    const bool again = std::exchange(is_ending_, true);
    is_starting_again_ = false;
    is_killed_ = again;
    if (status_ == 0) status_ = 128 + signal;
    if (!again) Note("ending the job; once more kills it");
    for (auto& child : children_) {
      const bool is_meant = again || child->role() != Job::Role::kServer;
      if (child->is_running() && is_meant) child->Signal(again ? SIGKILL : signal);
    }
    end_at_ = Clock::now() + seconds(options_.grace_seconds);
  }

  void EndTheOthers() {
    if (is_starting_again_) return;
    if (!IsAnyWorkerRunning() && workers_done_at_ == Clock::time_point::max()) {
      workers_done_at_ = Clock::now();  // servers notice that all workers have left, and end
    }
    const bool may_leave = status_ == 0 || are_others_awaited_;
    const bool servers_linger = workers_done_at_ != Clock::time_point::max() &&
                                Clock::now() - workers_done_at_ > seconds(may_leave ? 2 : 0);
    if (!servers_linger && Clock::now() < end_at_) return;
    const bool is_late =
        ended_at_ != Clock::time_point::max() && Clock::now() - ended_at_ > kTermGrace;
    if (ended_at_ == Clock::time_point::max()) ended_at_ = Clock::now();
    if (std::exchange(told_, is_late ? SIGKILL : SIGTERM) == (is_late ? SIGKILL : SIGTERM)) return;
    is_ending_ = true;
    for (auto& child : children_) {
      if (child->is_running()) child->Signal(told_);
    }
  }

  const LaunchOptions& options_;
  const std::vector<JobProgram> programs_;
  const int workers_;
  const Variables variables_;  // of all processes
  const Form form_;
  Watchdog watchdog_;  // first: it is forked before there are threads
  const SignalFile signals_{SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  Output output_;
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
  std::unique_ptr<Service> head_;
  std::vector<std::unique_ptr<Child>> children_;
  // The snapshot from which the job resumed; empty: it began anew.
  std::string restored_;
  std::vector<Child*> have_restored_;  // restorers that reported in this turn
  int status_ = 0;
  bool is_unheard_ = false;  // some output could not be printed
  bool is_output_lost_ = false;
  bool is_ending_ = false;
  bool is_starting_again_ = false;  // after all have ended
  int observer_status_ = 0;         // of the first observer that failed
  Clock::time_point observer_failed_at_ = Clock::time_point::max() - seconds(2);
  int job_restarts_ = 0;
  bool are_others_awaited_ = false;  // the launcher did not start all live workers
  bool is_killed_ = false;           // by a second signal
  int told_ = 0;
  Clock::time_point end_at_ = Clock::time_point::max();
  Clock::time_point ended_at_ = Clock::time_point::max();
  Clock::time_point workers_done_at_ = Clock::time_point::max();
};

bool HasSnapshotToRestore(const std::string& path) {
  try {
    return KVStore::HasSnapshot(path);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("launch: --restore ") + error.what());
  }
}

// Returns true if a path is one snapshot, and not a folder of them.
bool IsOneSnapshot(const std::string& path) {
  return HasSnapshotToRestore(path) &&
         std::filesystem::exists(std::filesystem::path(path) / "model.safetensors.index.json");
}

// Refuses folders with which the job would not resume as requested.
void CheckPlaces(const LaunchOptions& options) {
  if (!IsOneSnapshot(options.restore)) return;
  const std::string folder = std::filesystem::path(options.restore).parent_path().string();
  if (options.snapshots == options.restore) {
    throw Error(Code::kInvalidArgument,
                "launch: --restore " + options.restore +
                    ": one snapshot takes no later ones; --snapshots PATH says where they go, and "
                    "--restore " +
                    folder + " goes on from the newest one");
  }
  if (options.snapshots == folder) {
    throw Error(Code::kInvalidArgument, "launch: --snapshots " + folder +
                                            ": the job goes on from the newest snapshot there, "
                                            "which --restore " +
                                            options.restore + " may not be; name another folder");
  }
}

// Chooses the folder for snapshots: the one from which the job resumes, unless another is named.
void PrepareFolders(LaunchOptions* options) {
  const bool is_saving = std::getenv("TKV_SNAPSHOT_EVERY") != nullptr;
  // Makes paths absolute, because a script may change its folder before it creates its store.
  for (const char* const name : {"TKV_SNAPSHOTS", "TKV_ROWS_DIR"}) {
    if (const char* const folder = std::getenv(name); folder != nullptr && *folder != 0) {
      setenv(name, std::filesystem::absolute(folder).lexically_normal().c_str(), 1);
    }
  }
  if (options->restore.empty()) {
    if (is_saving && std::getenv("TKV_SNAPSHOTS") == nullptr) {
      throw Error(Code::kInvalidArgument,
                  "launch: --snapshot-every: --restore PATH or --snapshots PATH says where to");
    }
    return;
  }
  options->restore = std::filesystem::absolute(options->restore).lexically_normal().string();
  if (options->restore.ends_with('/')) options->restore.pop_back();
  const bool is_there = HasSnapshotToRestore(options->restore);
  if (is_saving) {
    const char* const named = std::getenv("TKV_SNAPSHOTS");
    options->snapshots = named == nullptr || *named == 0 ? options->restore : named;
    CheckPlaces(*options);
    setenv("TKV_SNAPSHOTS", options->snapshots.c_str(), 1);
  } else if (!is_there) {
    throw Error(Code::kNotFound, "launch: --restore " + options->restore +
                                     ": there is no snapshot; with --snapshot-every the job would "
                                     "begin anew");
  }
}

}  // namespace

int Launch(const LaunchOptions& given, Form form) {
  LaunchOptions options = given;
  std::vector<JobProgram> programs = ProgramsOf(options.command, options.workers);
  if (!options.log_folder.empty() && mkdir(options.log_folder.c_str(), 0777) != 0 &&
      errno != EEXIST) {
    Die(options.log_folder);
  }
  PrepareFolders(&options);
  std::signal(SIGPIPE, SIG_IGN);  // an agent may have ended
  std::signal(SIGCHLD, SIG_DFL);  // if SIGCHLD is ignored, waitpid reports no end
  return Launcher(options, std::move(programs), VariablesOfAll(options.variables), form).Run();
}

}  // namespace tkv::cli
