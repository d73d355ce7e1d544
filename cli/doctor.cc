#include "doctor.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "agent.h"
#include "exit_status.h"
#include "hosts.h"
#include "spawn.h"
#include "tkv/error.h"
#include "tkv/job.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Finding::Kind;

constexpr std::array kWords = {"good", "note", "BAD"};
constexpr size_t kSaidMax = 64 << 10;  // bytes of a line, and of what precedes a greeting
constexpr int kFindingsMax = 64;       // of one host

// Prints findings and counts what is bad.
class Report {
 public:
  explicit Report(Form form) : form_(form) {}

  // What follows is of another host; "": this machine.
  void Begin(const std::string& host) {
    host_ = host;
    if (form_ == Form::kJson) return;
    std::printf("%s\n", host.empty() ? "this machine" : ("\n" + host).c_str());
  }
  void Add(const Finding& finding) {
    const bool is_bad = finding.kind == Kind::kBad;
    bad_ += is_bad;
    if (form_ == Form::kJson) {
      Print(JsonObject("finding")
                .Add("host", host_)
                .Add("kind", is_bad ? "bad" : kWords.at(static_cast<size_t>(finding.kind)))
                .Add("what", finding.what)
                .Add("text", finding.text)
                .Add("repair", finding.repair));
      return;
    }
    std::printf("  %-4s  %-14s %s\n", kWords.at(static_cast<size_t>(finding.kind)),
                finding.what.c_str(), finding.text.c_str());
    if (!finding.repair.empty())
      std::printf("  %-4s  %-14s -> %s\n", "", "", finding.repair.c_str());
    std::fflush(stdout);
  }
  // The exit status.
  int End() const {
    if (form_ == Form::kJson) {
      Print(JsonObject("summary").Add("bad", bad_));
    } else if (bad_ == 0) {
      std::printf("\nnothing stands in the way of a job\n");
    } else {
      std::printf("\n%d thing%s to repair\n", bad_, bad_ == 1 ? "" : "s");
    }
    return bad_ == 0 ? kDone : kBadAnswer;
  }

 private:
  const Form form_;
  std::string host_;
  int bad_ = 0;
};

// An agent on another host; what it says comes line by line.
class RemoteAgent {
 public:
  RemoteAgent(std::vector<std::string> command, int patience_seconds)
      : patience_(patience_seconds),
        agent_(Spawn({.words = std::move(command), .has_input = true})) {}
  ~RemoteAgent() {
    Close();
    close(agent_.output);
  }
  RemoteAgent(const RemoteAgent&) = delete;
  RemoteAgent& operator=(const RemoteAgent&) = delete;

  void Tell(const std::string& items) const {
    [[maybe_unused]] const ssize_t told = write(agent_.input, items.data(), items.size());
  }
  // Nothing where it has ended or says nothing more in time.
  std::optional<std::string> Line() {
    const auto deadline = Clock::now() + patience_;
    for (;;) {
      const size_t end = said_.find('\n');
      if (end != std::string::npos) {
        std::string line = said_.substr(0, end);
        said_.erase(0, end + 1);
        return line;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd file{agent_.output, POLLIN, 0};
      if (said_.size() > kSaidMax) return {};
      is_silent_ = left.count() <= 0 || poll(&file, 1, static_cast<int>(left.count())) == 0;
      if (is_silent_) return {};
      char bytes[4096];
      const ssize_t got = read(agent_.output, bytes, sizeof(bytes));
      if (got <= 0) return {};
      said_.append(bytes, static_cast<size_t>(got));
    }
  }
  // Whether it has said nothing for the whole patience, so that the last line did not come.
  bool is_silent() const { return is_silent_; }
  std::chrono::seconds patience() const { return patience_; }  // for a line
  // Ends it; its exit status.
  int Close() {
    if (agent_.pid < 0) return status_;
    close(agent_.input);
    int status = 0;
    for (const auto end = Clock::now() + std::chrono::seconds(2);
         waitpid(agent_.pid, &status, WNOHANG) == 0;) {
      if (Clock::now() > end) kill(-agent_.pid, SIGKILL);
      usleep(10'000);
    }
    kill(-agent_.pid, SIGKILL);  // the processes that the agent started and that still run
    agent_.pid = -1;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return status_;
  }

 private:
  const std::chrono::seconds patience_;
  Spawned agent_;
  int status_ = 0;
  std::string said_;
  bool is_silent_ = false;
};

// The agent's greeting and its version.
bool IsThere(RemoteAgent* agent, const std::string& host, Report* report) {
  std::string said;
  while (said.size() < kSaidMax) {
    const auto line = agent->Line();
    if (!line) break;
    if (!line->starts_with(kAgentGreeting)) {
      said += *line + "\n";
      continue;
    }
    report->Add({Kind::kGood, "ssh", "reaches it, and tensorkv starts there", ""});
    const std::string version = line->substr(std::strlen(kAgentGreeting));
    if (version == BuildVersion()) return true;
    report->Add({Kind::kBad, "version", version + " there, " + BuildVersion() + " here",
                 "install the same tensorkv on both"});
    return false;
  }
  if (agent->is_silent()) {
    report->Add(
        {Kind::kBad, "ssh",
         "host '" + host + "' says nothing for " + std::to_string(agent->patience().count()) + " s",
         "`ssh " + host + " true` has to come back at once"});
    return false;
  }
  const int status = agent->Close();
  report->Add({Kind::kBad, "ssh", WhyNoAgent(host, status, said),
               status == 255 ? "`ssh " + host +
                                   " true` has to work without a question; "
                                   "options and keys belong into ~/.ssh/config or TKV_SSH"
                             : ""});
  return false;
}

void ExamineRemote(const Ssh& ssh, const std::string& host, const DoctorOptions& options,
                   Report* report) {
  RemoteAgent agent(AgentCommand(ssh, host), options.patience_seconds);
  if (!IsThere(&agent, host, report)) return;
  const std::string given = TokenFromEnvironment();
  const std::string token = given.empty() ? NewToken() : given;
  const std::string name =
      options.address.empty()
          ? NameOf(ssh, host, {.patience = std::chrono::seconds(options.patience_seconds)})
          : options.address;
  std::unique_ptr<Door> door;
  try {
    door = Door::Open(name, token);
  } catch (const Error& error) {
    return report->Add({Kind::kBad, "address", error.what(),
                        "name the host in /etc/hosts or DNS, or by HostName in ~/.ssh/config"});
  }
  report->Add({Kind::kGood, "address", name + " is reached from " + door->address(), ""});
  // With a token of the user's own the other host looks at its own file.
  if (given.empty()) {
    agent.Tell(AgentItem("token", token));
  } else {
    agent.Tell(AgentItem("env", std::string("TKV_TOKEN_FILE=") + std::getenv("TKV_TOKEN_FILE")));
  }
  agent.Tell(AgentItem("probe", door->address()));
  for (int i = 0; i < kFindingsMax; ++i) {
    const auto line = agent.Line();
    if (!line) break;
    if (line->starts_with("address\t")) {
      report->Add(FindingOf("way there", door->Knock(line->substr(8))));
      continue;
    }
    const std::optional<Finding> finding = DecodeFinding(*line);
    if (!finding) {
      report->Add({Kind::kBad, "agent", *line, ""});
      continue;
    }
    report->Add(*finding);
    if (finding->what == "way back") return;
  }
  report->Add({Kind::kBad, "way back", "the other host has not said whether it gets here", ""});
}

}  // namespace

std::string Encode(const Finding& finding) {
  std::string line = kWords.at(static_cast<size_t>(finding.kind));
  for (std::string part : {finding.what, finding.text, finding.repair}) {
    for (const char separator : {'\n', '\t'})
      std::replace(part.begin(), part.end(), separator, ' ');
    line.append("\t").append(part);
  }
  return line;
}

std::optional<Finding> DecodeFinding(const std::string& line) {
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == '\t') {
      parts.emplace_back();
    } else if (static_cast<unsigned char>(c) >= ' ') {  // nothing that moves a terminal's cursor
      parts.back() += c;
    }
  }
  const auto word = std::find(kWords.begin(), kWords.end(), parts[0]);
  if (parts.size() != 4 || word == kWords.end()) return {};
  return Finding{static_cast<Kind>(word - kWords.begin()), parts[1], parts[2], parts[3]};
}

int RunDoctor(const DoctorOptions& options, Form form) {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> hosts;
  if (!options.hosts.empty()) hosts = ReadHosts(options.hosts);
  Report report(form);
  report.Begin("");
  for (const Finding& finding : ExamineHost()) report.Add(finding);
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  const Ssh ssh = SshFromEnvironment();
  for (const std::string& host : hosts) {
    if (IsThisHost(host)) continue;
    report.Begin(host);
    try {
      ExamineRemote(ssh, host, options, &report);
    } catch (const Error& error) {
      report.Add({Kind::kBad, "ssh", error.what(), "install ssh, or name it by TKV_SSH"});
    }
  }
  return report.End();
}

}  // namespace tkv::cli
