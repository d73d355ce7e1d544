#include "hosts.h"

#include <poll.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "agent.h"
#include "companion.h"
#include "quoted.h"
#include "spawn.h"
#include "system.h"
#include "tkv/config.h"
#include "tkv/error.h"
#include "watchdog.h"

namespace tkv::cli {
namespace {

std::string OwnFolder() {
  char folder[4096];
  if (getcwd(folder, sizeof(folder)) == nullptr) Die("the current folder");
  return folder;
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors begin a file with it
constexpr size_t kHostBytesMax = 320;                        // user@name, of 64 and 255

Error NotAHost(const std::string& path, int number, const std::string& line) {
  const std::string shown = line.size() > kHostBytesMax ? line.substr(0, 64) + "..." : line;
  return {Code::kInvalidArgument, "hosts '" + path + "', line " + std::to_string(number) + ": '" +
                                      shown + "' is not the name of one host" +
                                      (line.find("slots") != std::string::npos
                                           ? "; a host that is in the file twice counts twice"
                                           : "")};
}

// A command whose words are read; its process ends with this.
class Command {
 public:
  enum class End : uint8_t { kOver, kLate, kInterrupted };

  explicit Command(SpawnOptions options)
      : watchdog_(options.watchdog), process_(Spawn(std::move(options))) {}
  ~Command() {
    kill(-process_.pid, SIGKILL);
    waitpid(process_.pid, nullptr, 0);
    if (watchdog_ != nullptr) watchdog_->Remove(process_.pid);
    close(process_.output);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  End Read(std::chrono::seconds patience, int interrupt) {
    using Clock = std::chrono::steady_clock;
    constexpr size_t kSaidMax = size_t{1} << 20;
    const auto deadline = Clock::now() + patience;
    while (said_.size() < kSaidMax) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return End::kLate;
      pollfd files[] = {{process_.output, POLLIN, 0}, {interrupt, POLLIN, 0}};
      if (poll(files, 2, static_cast<int>(left.count())) < 0 && errno != EINTR) Die("ssh: poll");
      if (files[1].revents != 0) return End::kInterrupted;
      if (files[0].revents == 0) continue;
      char bytes[4096];
      const ssize_t got = read(process_.output, bytes, sizeof(bytes));
      if (got <= 0) break;
      said_.append(bytes, static_cast<size_t>(got));
    }
    return End::kOver;
  }
  const std::string& said() const { return said_; }

 private:
  const Watchdog* const watchdog_;
  const Spawned process_;
  std::string said_;
};

std::string AgentProgram() {
  const std::string python = OwnPython();
  return python.empty() ? Quoted(OwnPath()) : Quoted(python) + " -m tensorkv";
}

}  // namespace

Ssh SshFromEnvironment() {
  const char* const given = std::getenv("TKV_SSH");
  std::istringstream text(given != nullptr && *given != '\0' ? given : "ssh");
  Ssh words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> ReadHosts(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    const int error = errno;
    const bool is_list = error == ENOENT && path.find(',') != std::string::npos;
    throw Error(Code::kInvalidArgument,
                "hosts '" + path + "': " + std::strerror(error) +
                    (is_list ? "; a file is needed, with one host in each line" : ""));
  }
  std::vector<std::string> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    if (++number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    std::istringstream text(line.substr(0, line.find('#')));
    std::string host, rest;
    if (!(text >> host)) continue;
    // A host that looks like an option would be one to ssh.
    if (text >> rest || host[0] == '-' || host.size() > kHostBytesMax) {
      throw NotAHost(path, number, line);
    }
    hosts.push_back(host);
  }
  if (hosts.empty()) throw Error(Code::kInvalidArgument, "hosts '" + path + "': there are none");
  return hosts;
}

bool IsThisHost(const std::string& host) {
  return strcasecmp(host.c_str(), "localhost") == 0 || host == "127.0.0.1" || host == "::1";
}

size_t HostOf(int index, int count, size_t hosts) {
  return static_cast<size_t>(index) * hosts / static_cast<size_t>(std::max(1, count));
}

std::string NameOf(const Ssh& ssh, const std::string& host, const NameOptions& options) {
  SpawnOptions command;
  command.words = ssh;
  command.words.insert(command.words.end(), {"-G", "--", host});
  command.watchdog = options.watchdog;
  sigemptyset(&command.signals);
  std::optional<Command> running;
  try {
    running.emplace(std::move(command));
  } catch (const Error& error) {
    if (error.code() != Code::kInvalidArgument) throw;
    throw Error(error.code(), std::string(error.what()) + "; TKV_SSH names another command");
  }
  const size_t at = host.rfind('@');
  std::string name = at == std::string::npos ? host : host.substr(at + 1);
  switch (running->Read(options.patience, options.interrupt)) {
    case Command::End::kInterrupted:
      return name;
    case Command::End::kLate:
      throw Error(Code::kDeadlineExceeded, "host '" + host + "': `" + ssh[0] +
                                               " -G` has not ended in " +
                                               std::to_string(options.patience.count()) + " s");
    case Command::End::kOver:
      break;
  }
  std::istringstream lines(running->said());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream text(line);
    std::string option, value;
    if (text >> option >> value && option == "hostname") name = value;
  }
  return name;
}

std::vector<std::string> AgentCommand(const Ssh& ssh, const std::string& host) {
  std::vector<std::string> words = ssh;
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.insert(
      words.end(),
      {"-T", "--", host, "cd " + Quoted(OwnFolder()) + " && exec " + AgentProgram() + " agent"});
  return words;
}

Greeting AwaitGreeting(Companion* agent) {
  constexpr size_t kBeforeMax = 64 << 10;
  Greeting greeting;
  while (greeting.before.size() < kBeforeMax) {
    const auto line = agent->Line();
    if (!line) break;
    if (line->starts_with(kAgentGreeting)) {
      greeting.version = line->substr(std::strlen(kAgentGreeting));
      break;
    }
    greeting.before.append(*line).append("\n");
  }
  return greeting;
}

std::string WhyNoAgent(const std::string& host, int status, const std::string& said) {
  std::string last = said;
  while (!last.empty() && last.back() == '\n') last.pop_back();
  constexpr size_t kShown = 500, kLinesShown = 5;  // the end says most
  size_t begin = last.size();
  for (size_t lines = 0; lines < kLinesShown && begin != std::string::npos && begin > 0; ++lines) {
    begin = last.rfind('\n', begin - 1);
  }
  begin = begin == std::string::npos ? 0 : begin;
  if (last.size() > kShown) begin = std::max(begin, last.size() - kShown);
  if (begin > 0) last.replace(0, begin, "...");
  last = last.empty() ? "status " + std::to_string(status) : last;
  if (status == 255) return "host '" + host + "' cannot be reached by ssh: " + last;
  const bool no_folder = said.find("cd:") != std::string::npos;
  if (no_folder) {
    return "host '" + host + "' does not have the folder " + OwnFolder() + ": " + last;
  }
  return "host '" + host + "' has no tensorkv that " + AgentProgram() +
         " starts: install tensorkv " + Version() + " there, at the same path: " + last;
}

std::string OwnPython() {
  const char* const python = std::getenv("TKV_PYTHON");
  return python == nullptr ? "" : python;
}

}  // namespace tkv::cli
