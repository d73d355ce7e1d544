// tkv launch: the processes of a job on this machine.

#include "launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/signalfd.h>
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
#include <map>
#include <memory>
#include <utility>

#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/job.h"

extern char** environ;

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr size_t kLineBytesMax = size_t{1} << 20;  // a longer line is passed on in pieces

[[noreturn]] void Die(const std::string& what) {
  throw Error(Code::kUnavailable, "launch: " + what + ": " + std::strerror(errno));
}

// Ends the children of a launcher that has died, within two seconds: a process of its own that
// knows their process groups and sees the launcher's end of the pipe close.
class Watchdog {
 public:
  Watchdog() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe");
    const pid_t pid = fork();
    if (pid < 0) Die("fork");
    if (pid == 0) {
      close(ends[1]);
      Watch(ends[0]);
    }
    close(ends[0]);
    pipe_ = ends[1];
    pid_ = pid;
  }
  ~Watchdog() {
    close(pipe_);
    waitpid(pid_, nullptr, 0);
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Add(pid_t group) const { Tell(group); }
  void Remove(pid_t group) const { Tell(-group); }

 private:
  void Tell(pid_t message) const {
    [[maybe_unused]] const ssize_t told = write(pipe_, &message, sizeof(message));
  }
  [[noreturn]] static void Watch(int pipe) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
    constexpr size_t kGroupsMax = 1 << 14;
    static pid_t groups[kGroupsMax];
    size_t count = 0;
    pid_t message = 0;
    for (;;) {
      const ssize_t got = read(pipe, &message, sizeof(message));
      if (got < 0 && errno == EINTR) continue;
      if (got != sizeof(message)) break;
      if (message > 0 && count < kGroupsMax) groups[count++] = message;
      if (message < 0)
        count = static_cast<size_t>(std::remove(groups, groups + count, -message) - groups);
    }
    for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGTERM);
    if (count > 0) sleep(1);
    for (size_t i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
    _exit(0);
  }

  int pipe_ = -1;
  pid_t pid_ = -1;
};

struct Child {
  Job::Role role = Job::Role::kWorker;
  int rank = 0;
  pid_t pid = -1;
  int restarts = 0;
  bool is_running = false;
  int output = -1;   // what it says
  std::string line;  // that is not whole yet
  std::FILE* log = nullptr;
  std::string name() const { return std::string(Name(role)) + " " + std::to_string(rank); }
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    if (sigprocmask(SIG_BLOCK, &signals, &old_signals_) != 0) Die("sigprocmask");
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) Die("signalfd");
  }
  ~Launcher() {
    for (auto& child : children_) {
      if (child->is_running) kill(-child->pid, SIGKILL);
      if (child->log != nullptr) std::fclose(child->log);
    }
    if (signals_ >= 0) close(signals_);
    if (!token_file_.empty()) {
      unlink(token_file_.c_str());
      rmdir(token_folder_.c_str());
    }
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int Run() {
    StartHead();
    for (int i = 0; i < options_.servers; ++i) Add(Job::Role::kServer, i);
    for (int i = 0; i < options_.workers; ++i) Add(Job::Role::kWorker, i);
    while (IsAnyRunning()) {
      Turn();
      EndTheOthers();
    }
    for (auto& child : children_) Drain(child.get());
    return status_;
  }

 private:
  void StartHead() {
    Job job;
    job.role = Job::Role::kHead;
    job.id = NewToken().substr(0, 16);
    job.workers = options_.workers;
    job.servers = options_.servers;
    job.on_death = !options_.on_death.empty() ? options_.on_death
                   : options_.restarts > 0    ? "wait"
                                              : "fail";
    const StoreOptions store = OptionsFromEnvironment();
    job.transport = options_.tcp ? "tcp" : store.transport;
    if (job.transport == "tcp") {
      job.head = "tcp:127.0.0.1:0";
      job.token = WriteToken();
    }
    head_ = Service::Start(job, store.log);
    job_ = job;
  }

  // In a file that only this user can read; never in an argument.
  std::string WriteToken() {
    const char* const temp = std::getenv("TMPDIR");
    std::string folder =
        std::string(temp != nullptr && *temp != '\0' ? temp : "/tmp") + "/tkv-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) Die("a folder for the token");
    token_folder_ = folder;
    token_file_ = folder + "/token";
    const std::string token = NewToken();
    const int file = open(token_file_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    const bool is_written =
        file >= 0 && write(file, token.data(), token.size()) == static_cast<ssize_t>(token.size());
    if (file >= 0) close(file);
    if (!is_written) Die("the token's file");
    return token;
  }

  void Add(Job::Role role, int rank) {
    children_.push_back(std::make_unique<Child>());
    children_.back()->role = role;
    children_.back()->rank = rank;
    Start(children_.back().get());
  }

  std::vector<std::string> EnvironmentOf(const Child& child) const {
    std::map<std::string, std::string> variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=');
      if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
    variables["TKV_JOB"] = job_.id;
    variables["TKV_HEAD"] = head_->address();
    variables["TKV_ROLE"] = Name(child.role);
    variables["TKV_RANK"] = std::to_string(child.rank);
    variables["TKV_WORKERS"] = std::to_string(options_.workers);
    variables["TKV_TRANSPORT"] = job_.transport;
    variables["TKV_SERVERS"] = std::to_string(options_.servers);
    variables["TKV_ON_DEATH"] = job_.on_death;
    variables.erase("TKV_TOKEN_FILE");
    if (!token_file_.empty()) variables["TKV_TOKEN_FILE"] = token_file_;
    // The cores of this machine belong to all of them.
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
      const int share = CPU_COUNT(&cores) / std::max(1, options_.workers);
      variables.emplace("TKV_THREADS", std::to_string(std::max(1, share)));
    }
    std::vector<std::string> texts;
    texts.reserve(variables.size());
    for (const auto& [name, value] : variables) {
      texts.push_back(name);
      texts.back() += '=';
      texts.back() += value;
    }
    return texts;
  }

  void Start(Child* child) {
    std::vector<std::string> words = options_.command;
    if (child->role == Job::Role::kServer) {
      char self[4096];
      const ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
      if (size <= 0) Die("/proc/self/exe");
      words = {std::string(self, static_cast<size_t>(size)), "server", "--quiet"};
    }
    std::vector<char*> arguments, variables;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::vector<std::string> texts = EnvironmentOf(*child);
    for (std::string& text : texts) variables.push_back(text.data());
    variables.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe");
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    posix_spawn_file_actions_adddup2(&files, ends[1], 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);  // so that a signal reaches all that it starts
    posix_spawnattr_setsigmask(&attributes, &old_signals_);
    const int error = posix_spawnp(&child->pid, arguments[0], &files, &attributes, arguments.data(),
                                   variables.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      throw Error(Code::kInvalidArgument, "launch: " + words[0] + ": " + std::strerror(error));
    }
    watchdog_.Add(child->pid);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    if (child->output >= 0) close(child->output);
    child->output = ends[0];
    child->is_running = true;
    if (child->restarts == 0 && !options_.log_folder.empty()) {
      const std::string path = options_.log_folder + "/" + Name(child->role) + "-" +
                               std::to_string(child->rank) + ".log";
      child->log = std::fopen(path.c_str(), "we");
      if (child->log == nullptr) Die(path);
    }
  }

  bool IsAnyRunning() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const auto& child) { return child->is_running; });
  }
  bool IsAnyWorkerRunning() const {
    return std::any_of(children_.begin(), children_.end(), [](const auto& child) {
      return child->is_running && child->role == Job::Role::kWorker;
    });
  }

  void Turn() {
    std::vector<pollfd> files = {{signals_, POLLIN, 0}};
    std::vector<Child*> of = {nullptr};
    for (auto& child : children_) {
      if (child->output < 0) continue;
      files.push_back({child->output, POLLIN, 0});
      of.push_back(child.get());
    }
    if (poll(files.data(), files.size(), 100) < 0 && errno != EINTR) Die("poll");
    for (size_t i = 1; i < files.size(); ++i) {
      if (files[i].revents != 0) Drain(of[i]);
    }
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) AskToEnd(static_cast<int>(info.ssi_signo));
    }
    int status = 0;
    for (auto& child : children_) {
      if (child->is_running && waitpid(child->pid, &status, WNOHANG) == child->pid) {
        Ended(child.get(), status);
      }
    }
  }

  // Passes on whole lines with the name of who says them.
  void Drain(Child* child) {
    char bytes[65536];
    while (child->output >= 0) {
      const ssize_t got = read(child->output, bytes, sizeof(bytes));
      if (got < 0) break;
      if (got == 0) {
        close(child->output);
        child->output = -1;
        if (!child->line.empty()) Say(child, std::exchange(child->line, {}) + "\n");
        break;
      }
      child->line.append(bytes, static_cast<size_t>(got));
      size_t begin = 0;
      for (size_t end = 0; (end = child->line.find('\n', begin)) != std::string::npos;
           begin = end + 1) {
        Say(child, child->line.substr(begin, end + 1 - begin));
      }
      child->line.erase(0, begin);
      if (child->line.size() > kLineBytesMax) Say(child, std::exchange(child->line, {}) + "\n");
    }
    std::fflush(stdout);
  }

  void Say(Child* child, const std::string& line) {
    std::fprintf(stdout, "[%s] ", child->name().c_str());
    std::fwrite(line.data(), 1, line.size(), stdout);
    if (child->log == nullptr) return;
    std::fwrite(line.data(), 1, line.size(), child->log);
    if (std::fflush(child->log) == 0) return;
    Note("the log of " + child->name() + " ends here: " + std::strerror(errno));
    std::fclose(std::exchange(child->log, nullptr));
  }

  void Note(const std::string& text) {
    std::fflush(stdout);
    std::fprintf(stderr, "tkv launch: %s\n", text.c_str());
  }

  void Ended(Child* child, int status) {
    child->is_running = false;
    kill(-child->pid, SIGKILL);  // what it has left behind
    watchdog_.Remove(child->pid);
    Drain(child);
    head_->Exited(child->role, child->rank);
    const bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (is_good || is_ending_) return;
    const std::string how = WIFSIGNALED(status)
                                ? "was killed by signal " + std::to_string(WTERMSIG(status))
                                : "ended with status " + std::to_string(WEXITSTATUS(status));
    if (child->role == Job::Role::kWorker && child->restarts < options_.restarts) {
      ++child->restarts;
      Note(child->name() + " " + how + "; it is started again (" + std::to_string(child->restarts) +
           " of " + std::to_string(options_.restarts) + ")");
      return Start(child);
    }
    Note(child->name() + " " + how);
    if (status_ == 0) {
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      // Under these policies the others go on.
      const bool goes_on = child->role == Job::Role::kWorker && job_.on_death == "continue";
      if (!goes_on) end_at_ = Clock::now() + seconds(options_.grace_seconds);
    }
  }

  // The first time it is a request, and to the workers alone: servers end when these have left. The
  // second time it is an order.
  void AskToEnd(int signal) {
    const bool again = std::exchange(is_ending_, true);
    if (status_ == 0) status_ = 128 + signal;
    if (!again) Note("ending the job; once more kills it");
    for (auto& child : children_) {
      const bool is_meant = again || child->role == Job::Role::kWorker;
      if (child->is_running && is_meant) kill(-child->pid, again ? SIGKILL : signal);
    }
    end_at_ = Clock::now() + seconds(options_.grace_seconds);
  }

  void EndTheOthers() {
    if (!IsAnyWorkerRunning() && workers_done_at_ == Clock::time_point::max()) {
      workers_done_at_ = Clock::now();  // servers see that all have left, and end by themselves
    }
    const bool servers_linger = workers_done_at_ != Clock::time_point::max() &&
                                Clock::now() - workers_done_at_ > seconds(status_ == 0 ? 2 : 0);
    if (!servers_linger && Clock::now() < end_at_) return;
    const bool is_late =
        ended_at_ != Clock::time_point::max() && Clock::now() - ended_at_ > seconds(3);
    if (ended_at_ == Clock::time_point::max()) ended_at_ = Clock::now();
    if (std::exchange(told_, is_late ? SIGKILL : SIGTERM) == (is_late ? SIGKILL : SIGTERM)) return;
    is_ending_ = true;
    for (auto& child : children_) {
      if (child->is_running) kill(-child->pid, told_);
    }
  }

  const LaunchOptions& options_;
  Watchdog watchdog_;  // first: it is forked before there are threads
  sigset_t old_signals_{};
  int signals_ = -1;
  Job job_;
  std::string token_folder_, token_file_;
  std::unique_ptr<Service> head_;
  std::vector<std::unique_ptr<Child>> children_;
  int status_ = 0;
  bool is_ending_ = false;
  int told_ = 0;
  Clock::time_point end_at_ = Clock::time_point::max();
  Clock::time_point ended_at_ = Clock::time_point::max();
  Clock::time_point workers_done_at_ = Clock::time_point::max();
};

}  // namespace

int Launch(const LaunchOptions& options) {
  if (!options.log_folder.empty() && mkdir(options.log_folder.c_str(), 0777) != 0 &&
      errno != EEXIST) {
    Die(options.log_folder);
  }
  return Launcher(options).Run();
}

}  // namespace tkv::cli
