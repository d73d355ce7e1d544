// The hosts of a job, and commands that run on them by ssh.

#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tkv::cli {

class Companion;
class Watchdog;

// The words of the ssh command: "ssh", unless TKV_SSH names another command.
using Ssh = std::vector<std::string>;
Ssh SshFromEnvironment();

// Reads one host per line.  Blank lines and text behind a # are ignored.  A host may be listed
// repeatedly.
//   throws  kInvalidArgument  no file, no host in it, or a line that is not one host
std::vector<std::string> ReadHosts(const std::string& path);
// Returns true if the name means this machine, which needs no ssh: "localhost", "127.0.0.1", "::1".
bool IsThisHost(const std::string& host);
// Returns the host of process `index` of `count`.  Neighbouring processes share a host.
size_t HostOf(int index, int count, size_t hosts);
struct NameOptions {
  std::chrono::seconds patience{10};
  const Watchdog* watchdog = nullptr;  // of the ssh process
  int interrupt = -1;                  // a file descriptor; the wait ends once it is readable
};
// Returns the host name behind an alias of ssh's configuration, which only ssh knows.  Returns the
// given name if the wait was interrupted.
//   throws  kInvalidArgument   no such command as ssh
//           kDeadlineExceeded  ssh did not answer in time
std::string NameOf(const Ssh& ssh, const std::string& host, const NameOptions& options);
// Returns the command that runs an agent on the host, in this folder, with the Python in use.
std::vector<std::string> AgentCommand(const Ssh& ssh, const std::string& host);
// The greeting of an agent: its version ("" if it did not greet), and the host's output before
// that.
struct Greeting {
  std::string version, before;
};
// Reads lines until the agent greets.
//   blocks  at most the companion's patience for each line
Greeting AwaitGreeting(Companion* agent);
// Returns why an agent did not greet, as a text for the user. `said` is the host's output.
std::string WhyNoAgent(const std::string& host, int status, const std::string& said);
// Returns the Python that runs this command, or "" if none does.
std::string OwnPython();

}  // namespace tkv::cli
