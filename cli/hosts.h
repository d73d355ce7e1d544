// The hosts of a job, and how a command gets there.

#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tkv::cli {

class Companion;
class Watchdog;

// How other hosts are reached: the words of the command that ssh is, "ssh" unless TKV_SSH says
// otherwise.
using Ssh = std::vector<std::string>;
Ssh SshFromEnvironment();

// One host a line; blank lines and what follows a # do not count.  A host may be there repeatedly.
//   throws  kInvalidArgument  no file, no host in it, or a line that is none
std::vector<std::string> ReadHosts(const std::string& path);
// Whether it stands for this machine, which needs no ssh: "localhost", "127.0.0.1", "::1".
bool IsThisHost(const std::string& host);
// Which of so many hosts has the process `index` of `count`: neighbours share a host.
size_t HostOf(int index, int count, size_t hosts);
struct NameOptions {
  std::chrono::seconds patience{10};
  const Watchdog* watchdog = nullptr;  // of the ssh
  int interrupt = -1;                  // a file; once it can be read nobody waits any longer
};
// The name behind an alias of ssh's configuration, which the rest of the system does not know.
//   throws  kInvalidArgument   no such command as ssh
//           kDeadlineExceeded  ssh does not say it in time
std::string NameOf(const Ssh& ssh, const std::string& host, const NameOptions& options);
// The words of a command that runs an agent on that host, in this folder, by the Python in use.
std::vector<std::string> AgentCommand(const Ssh& ssh, const std::string& host);
// What an agent says first: its version, "" where none has greeted, behind what its host said before it.
struct Greeting {
  std::string version, before;
};
//   blocks  at most the patience of the companion for each line
Greeting AwaitGreeting(Companion* agent);
// What keeps an agent from greeting, in words for the user; `said` is what it said instead.
std::string WhyNoAgent(const std::string& host, int status, const std::string& said);
// The Python that runs this command, "" where none does.
std::string OwnPython();

}  // namespace tkv::cli
