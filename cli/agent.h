// The subcommand agent: one process of a job on another host, for a launcher that talks to it by
// its standard input and output (ssh carries them).
//
// It first says "tkv-agent " and BuildVersion() in a line.  What it is told are items, each a verb,
// a space and a text, with a zero byte behind them:
//
//   env NAME=VALUE    a variable of the process
//   token TEXT        the secret of the job: in a file that only this user can read
//   python PATH       the launcher's: its folder is the first of PATH
//   share N           so many workers share this host's cores
//   word TEXT         a word of the command; none at all: a server; the first one empty: tkv itself
//   go                starts it; what it says is this process's output
//   signal N          for the process and what it has started
//   alive             the launcher is
//   probe ADDRESS     says what `tkv doctor` wants to know of this host, instead of a command
//
// When its input ends, or nothing has come for a minute, it ends the process.

#pragma once

#include <string>
#include <vector>

namespace tkv::cli {

// What a launcher tells an agent.
struct AgentOrder {
  std::vector<std::string> variables;  // NAME=VALUE
  std::string token, python;
  int share = 1;
  std::vector<std::string> words;
};

inline constexpr const char* kAgentGreeting = "tkv-agent ";
// The order with its "go".
std::string Encode(const AgentOrder& order);
std::string AgentItem(const std::string& verb, const std::string& text = {});

// Does what it is told; the exit status of the process, 128 + the number of a signal.
int RunAgent();

}  // namespace tkv::cli
