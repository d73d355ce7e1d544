#include "hosts.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "system.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string OwnFolder() {
  char folder[4096];
  if (getcwd(folder, sizeof(folder)) == nullptr) Die("the current folder");
  return folder;
}

Error NotAHost(const std::string& path, int number, const std::string& line) {
  return {Code::kInvalidArgument, "hosts '" + path + "', line " + std::to_string(number) + ": '" +
                                      line + "' is not the name of one host"};
}

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
    throw Error(Code::kInvalidArgument, "hosts '" + path + "': " + std::strerror(errno));
  }
  std::vector<std::string> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream text(line.substr(0, line.find('#')));
    std::string host, rest;
    if (!(text >> host)) continue;
    // A host that looks like an option would be one to ssh.
    if (text >> rest || host[0] == '-') {
      throw NotAHost(path, number, line);
    }
    hosts.push_back(host);
  }
  if (hosts.empty()) throw Error(Code::kInvalidArgument, "hosts '" + path + "': there are none");
  return hosts;
}

bool IsThisHost(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1";
}

size_t HostOf(int index, int count, size_t hosts) {
  return static_cast<size_t>(index) * hosts / static_cast<size_t>(std::max(1, count));
}

std::string NameOf(const Ssh& ssh, const std::string& host) {
  std::string command;
  for (const std::string& word : ssh) command.append(Quoted(word)).append(" ");
  command += "-G -- " + Quoted(host) + " 2>/dev/null";
  const size_t at = host.rfind('@');
  std::string name = at == std::string::npos ? host : host.substr(at + 1);
  std::FILE* const output = popen(command.c_str(), "re");
  if (output == nullptr) return name;
  char line[1024];
  while (std::fgets(line, sizeof(line), output) != nullptr) {
    std::istringstream text(line);
    std::string option, value;
    if (text >> option >> value && option == "hostname") name = value;
  }
  const int status = pclose(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    throw Error(Code::kInvalidArgument, ssh[0] + ": no such command; TKV_SSH names another one");
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

std::string WhyNoAgent(const std::string& host, int status, const std::string& said) {
  std::string last = said;
  while (!last.empty() && last.back() == '\n') last.pop_back();
  constexpr size_t kShown = 500;  // the end says most
  if (last.size() > kShown) last.replace(0, last.size() - kShown, "...");
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
