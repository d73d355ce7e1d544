// The subcommand agent: starts and supervises one process of a job on another host.  The launcher
// talks to the agent by its standard input and output, which ssh carries.
//
// The agent first prints a line with "tkv-agent " and BuildVersion().  Then it reads items.  Each
// item is a verb, a space and a text, ended by a zero byte:
//
//   env NAME=VALUE    a variable of the process
//   token TEXT        the job's secret; the agent writes it to a file that only this user can read
//   python PATH       the launcher's Python; the agent puts its folder first in PATH
//   share N           the number of workers that share this host's cores
//   word TEXT         a word of the command; without any: a server; an empty first word: tkv itself
//   types             the stdin of the process is the text of the items `type`, not empty
//   go                starts the process, whose output is the agent's output
//   signal N          sends a signal to the process, as SignalGroup does
//   type TEXT         text for the stdin of the process; without a text: its end
//   alive             shows that the launcher is alive
//   probe ADDRESS     prints `tkv doctor`'s findings about this host, instead of a command
//
// The agent ends the process when its input ends, or when nothing has arrived for ten minutes.

#pragma once

#include <string>
#include <vector>

namespace tkv::cli {

// The order of a launcher to an agent: the process to start, and its environment.
struct AgentOrder {
  std::vector<std::string> variables;  // NAME=VALUE
  std::string token, python;
  int share = 1;
  bool can_type = false;  // the user's typing is the process's stdin
  std::vector<std::string> words;
};

inline constexpr const char* kAgentGreeting = "tkv-agent ";
// Returns the order as items, with "go" at the end.
std::string Encode(const AgentOrder& order);
std::string AgentItem(const std::string& verb, const std::string& text = {});

// Runs an agent until its process has ended.  Returns the process's exit status, or 128 + N after
// signal N.
int RunAgent();

}  // namespace tkv::cli
