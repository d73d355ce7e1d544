#include "doctor.h"

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
#include "companion.h"
#include "exit_status.h"
#include "host_limits.h"
#include "hosts.h"
#include "look.h"
#include "tkv/config.h"
#include "tkv/error.h"
#include "tkv/job.h"

namespace tkv::cli {
namespace {

using Kind = Finding::Kind;

constexpr std::array kWords = {"good", "note", "BAD"};
constexpr int kFindingsMax = 64;  // of one host

// Prints findings and counts the bad ones.
class Report {
 public:
  explicit Report(Form form) : form_(form) {}

  // Begins the findings about a host; "": this machine.
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
  // Prints the summary.  Returns the exit status.
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

// Compares the package that scripts import with this command.
Finding PackageOfPython() {
  constexpr std::chrono::seconds kPatience{20};
  const char* const given = std::getenv("TKV_PYTHON");  // set if Python has started this command
  const std::string python = given != nullptr && *given != '\0' ? given : "python3";
  // The first entry of the path is the current folder, which may have a folder of that name.
  const char* const script =
      "import sys; sys.path[:1] = []; import tensorkv; print('version', tensorkv.__version__)";
  std::optional<std::string> version;
  try {
    Companion process({.words = {python, "-c", script}}, kPatience);
    while (const auto line = process.Line()) {
      if (line->starts_with("version ")) version = line->substr(8);
    }
  } catch (const Error& error) {
    return {Kind::kNote, "package",
            std::string(error.what()) + "; scripts need a Python with tensorkv", ""};
  }
  if (!version) {
    return {Kind::kNote, "package",
            python + " has no package tensorkv; scripts need a Python with it", ""};
  }
  const std::string text = python + " imports tensorkv " + Printable(*version);
  if (*version == Version()) return {Kind::kGood, "package", text, ""};
  return {Kind::kBad, "package", text + ", and this command is " + Version(),
          "install the same tensorkv for both, or run `" + python + " -m tensorkv`"};
}

// Returns true if the agent greets with this version; adds findings about ssh and the version.
bool IsThere(Companion* agent, const std::string& host, Report* report) {
  const Greeting greeting = AwaitGreeting(agent);
  if (!greeting.version.empty()) {
    report->Add({Kind::kGood, "ssh", "reaches it, and tensorkv starts there", ""});
    if (greeting.version == BuildVersion()) return true;
    report->Add({Kind::kBad, "version", greeting.version + " there, " + BuildVersion() + " here",
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
  report->Add({Kind::kBad, "ssh", WhyNoAgent(host, status, greeting.before),
               status == 255 ? "`ssh " + host +
                                   " true` has to work without a question; "
                                   "options and keys belong into ~/.ssh/config or TKV_SSH"
                             : ""});
  return false;
}

void ExamineRemote(const Ssh& ssh, const std::string& host, const DoctorOptions& options,
                   Report* report) {
  Companion agent({.words = AgentCommand(ssh, host), .input = Stdin::kPipe},
                  std::chrono::seconds(options.patience_seconds));
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
  // If the user gave a token, the other host reads its own copy of the token file.
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
      // Drops control characters, which could move the terminal's cursor.
    } else if (static_cast<unsigned char>(c) >= ' ') {
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
  const size_t jobs_named = form == Form::kJson ? SIZE_MAX : kJobsNamed;
  for (const Finding& finding : ExamineLimits(jobs_named)) report.Add(finding);
  report.Add(PackageOfPython());
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
