#include "agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "doctor.h"
#include "group_end.h"
#include "host_limits.h"
#include "system.h"
#include "tkv/config.h"
#include "tkv/doctor.h"
#include "tkv/error.h"
#include "tkv/job.h"
#include "watchdog.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr size_t kItemBytesMax = size_t{1} << 20;
// Longer than a launcher may be suspended; a closed connection is noticed at once.
constexpr seconds kSilence{600};
constexpr size_t kTypedBytesMax = 64 << 10;  // that a process has not read, beside its pipe
constexpr seconds kKillAfter{1};             // between SIGTERM and SIGKILL

// The stdin of the process, if a user types it.
class TypedText {
 public:
  TypedText() = default;
  ~TypedText() {
    CloseTheirs();
    CloseOurs();
  }
  TypedText(const TypedText&) = delete;
  TypedText& operator=(const TypedText&) = delete;

  void Open() {
    std::signal(SIGPIPE, SIG_IGN);  // the process may close its stdin
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Die("agent: pipe");
    theirs_ = ends[0];
    ours_ = ends[1];
    fcntl(ours_, F_SETFL, O_NONBLOCK);
  }
  int theirs() const { return theirs_; }  // -1: nobody types
  void CloseTheirs() { Close(&theirs_); }

  // Adds text; "" is the end.  Text that a process has not read for too long is lost.
  void Add(const std::string& text) {
    is_over_ = is_over_ || text.empty();
    if (text_.size() + text.size() <= kTypedBytesMax) text_ += text;
    Write();
  }
  // Writes as much as the process can take.
  void Write() {
    if (ours_ < 0) return text_.clear();
    while (!text_.empty()) {
      const ssize_t wrote = write(ours_, text_.data(), text_.size());
      if (wrote < 0 && errno == EAGAIN) return;
      if (wrote < 0) return CloseOurs();
      text_.erase(0, static_cast<size_t>(wrote));
    }
    if (is_over_) CloseOurs();
  }

 private:
  static void Close(int* file) {
    if (*file >= 0) close(std::exchange(*file, -1));
  }
  void CloseOurs() { Close(&ours_); }

  int theirs_ = -1, ours_ = -1;
  std::string text_;
  bool is_over_ = false;
};

class Agent {
 public:
  int Run() {
    std::printf("%s%s\n", kAgentGreeting, BuildVersion().c_str());
    std::fflush(stdout);
    while (!status_) {
      pollfd files[] = {{signals_.file(), POLLIN, 0}, {is_over_ ? -1 : 0, POLLIN, 0}};
      typed_.Write();
      if (poll(files, 2, 100) < 0 && errno != EINTR) Die("agent: poll");
      while (const int signal = signals_.Take()) {
        if (signal == SIGUSR1 || signal == SIGUSR2) {
          Signal(signal);
        } else if (signal != SIGCHLD) {
          InputIsOver();
        }
      }
      if (files[1].revents != 0) Read();
      if (Clock::now() - heard_ > kSilence) InputIsOver();
      LookAtChild();
    }
    return *status_;
  }

 private:
  // Reads once.  The file stays in blocking mode, because the process may share it for its output.
  void Read() {
    char bytes[65536];
    const ssize_t got = read(0, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return InputIsOver();
    heard_ = Clock::now();
    input_.append(bytes, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = 0; (end = input_.find('\0', begin)) != std::string::npos; begin = end + 1) {
      Do(input_.substr(begin, end - begin));
    }
    input_.erase(0, begin);
    if (input_.size() > kItemBytesMax) {
      throw Error(Code::kInvalidArgument, "agent: an item of more than 1 MiB");
    }
  }

  void Do(const std::string& item) {
    const size_t space = std::min(item.find(' '), item.size());
    const std::string verb = item.substr(0, space);
    const std::string text = item.substr(std::min(space + 1, item.size()));
    if (verb == "alive") return;
    if (verb == "signal") return Signal(std::atoi(text.c_str()));
    if (verb == "type") return typed_.Add(text);
    if (child_ > 0) throw Error(Code::kInvalidArgument, "agent: '" + verb + "' after go");
    if (verb == "env") {
      const size_t equals = std::min(text.find('='), text.size());
      setenv(text.substr(0, equals).c_str(), text.substr(std::min(equals + 1, text.size())).c_str(),
             1);
    } else if (verb == "token") {
      token_ = text;
    } else if (verb == "python") {
      python_ = text;
    } else if (verb == "share") {
      share_ = std::max(1, std::atoi(text.c_str()));
    } else if (verb == "types") {
      typed_.Open();
    } else if (verb == "word") {
      words_.push_back(text);
    } else if (verb == "go") {
      Start();
    } else if (verb == "probe") {
      Probe(text);
    } else {
      throw Error(Code::kInvalidArgument, "agent: '" + verb + "' is none of its verbs");
    }
  }

  void Start() {
    if (words_.empty()) words_ = {OwnPath(), "server", "--quiet"};
    if (words_[0].empty()) words_[0] = OwnPath();
    if (!token_.empty()) {
      file_ = std::make_unique<TokenFile>(token_, watchdog_);
      setenv("TKV_TOKEN_FILE", file_->path().c_str(), 1);
    }
    std::string path = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin:/bin";
    if (const size_t slash = python_.rfind('/'); slash != std::string::npos) {
      path.insert(0, python_.substr(0, slash) + ":");
      setenv("PATH", path.c_str(), 1);
    }
    setenv("TKV_THREADS", std::to_string(std::max(1, Cores() / share_)).c_str(), 0);
    std::vector<char*> words;
    words.reserve(words_.size() + 1);
    for (std::string& word : words_) words.push_back(word.data());
    words.push_back(nullptr);
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ < 0) Die("agent: fork");
    if (child_ > 0) return typed_.CloseTheirs();
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const int input = typed_.theirs() >= 0 ? typed_.theirs() : open("/dev/null", O_RDONLY);
    dup2(input, 0);
    sigprocmask(SIG_SETMASK, &signals_.old(), nullptr);
    // Python may have started this program, and ignores these signals.
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
    RestoreFileLimit();
    execvp(words[0], words.data());
    std::fprintf(stderr, "tkv: %s: %s\n", words[0], std::strerror(errno));
    _exit(127);
  }

  void Probe(const std::string& address) {
    const std::unique_ptr<Door> door =
        Door::Open(address, token_.empty() ? TokenFromEnvironment() : token_);
    std::printf("address\t%s\n", door->address().c_str());
    for (const auto& findings : {ExamineHost(), ExamineLimits()}) {
      for (const Finding& finding : findings) std::printf("%s\n", Encode(finding).c_str());
    }
    std::printf("%s\n", Encode(FindingOf("way back", door->Knock(address))).c_str());
    std::fflush(stdout);
    // Keeps the door open until the other side closes the input, so that it can still connect.
    pollfd input{0, POLLIN, 0};
    char byte = 0;
    while (poll(&input, 1, static_cast<int>(kSilence.count()) * 1000) == 1 &&
           read(0, &byte, 1) == 1) {
    }
    status_ = 0;
  }

  void Signal(int signal) const {
    if (child_ > 0 && signal > 0) SignalGroup(child_, signal);
  }

  void InputIsOver() {
    if (std::exchange(is_over_, true)) return;
    if (child_ <= 0) {
      status_ = 1;
      return;
    }
    Signal(SIGTERM);
    kill_at_ = Clock::now() + kKillAfter;
  }

  void LookAtChild() {
    if (child_ <= 0) return;
    if (Clock::now() >= kill_at_) Signal(SIGKILL);
    const std::optional<int> status = end_.Poll(child_);
    if (!status) return;
    if (end_.has_killed_rest()) std::fprintf(stderr, "tkv launch: %s\n", kRestWasKilled);
    status_ = WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status);
  }

  const Watchdog watchdog_;  // first: it is forked before there are threads
  const SignalFile signals_{SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGUSR1, SIGUSR2};
  std::string input_, token_, python_;
  std::vector<std::string> words_;
  TypedText typed_;
  std::unique_ptr<TokenFile> file_;
  int share_ = 1;
  pid_t child_ = -1;
  GroupEnd end_;
  bool is_over_ = false;
  Clock::time_point heard_ = Clock::now();
  Clock::time_point kill_at_ = Clock::time_point::max();
  std::optional<int> status_;
};

}  // namespace

std::string AgentItem(const std::string& verb, const std::string& text) {
  std::string item = verb;
  item += ' ';
  item += text;
  item += '\0';
  return item;
}

std::string Encode(const AgentOrder& order) {
  std::string items;
  for (const std::string& variable : order.variables) items += AgentItem("env", variable);
  if (!order.token.empty()) items += AgentItem("token", order.token);
  if (!order.python.empty()) items += AgentItem("python", order.python);
  items += AgentItem("share", std::to_string(order.share));
  if (order.can_type) items += AgentItem("types");
  for (const std::string& word : order.words) items += AgentItem("word", word);
  return items + AgentItem("go");
}

int RunAgent() { return Agent().Run(); }

}  // namespace tkv::cli
