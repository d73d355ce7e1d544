#include "programs.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>

#include "other_launchers.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

// The prefix of a program behind a ":": the number of its processes and their role.
struct Times {
  Job::Role role;
  std::string option, text;
  size_t words;  // the number of words of the prefix
};

// Parses "-n 2", "-n2", "--workers 2", "--workers=2", "--observers 2" or "--observers=2".  Returns
// nullopt for another word.
std::optional<Times> TimesOf(std::span<const std::string> words) {
  if (words.empty()) return {};
  for (const std::string option : {"-n", "--workers", "--observers"}) {
    const std::string_view word = words[0];
    if (!word.starts_with(option)) continue;
    const Job::Role role = option == "--observers" ? Job::Role::kObserver : Job::Role::kWorker;
    std::string_view rest = word.substr(option.size());
    if (rest.empty()) return Times{role, option, words.size() > 1 ? words[1] : "", 2};
    const bool is_long = option.starts_with("--");
    if (is_long != rest.starts_with("=")) continue;
    if (const std::string instead = InsteadOf(word); !instead.empty()) {
      throw Error(Code::kInvalidArgument,
                  "launch: instead of '" + std::string(word) + "' use " + instead);
    }
    rest.remove_prefix(is_long ? 1 : 0);
    return Times{role, option, std::string(rest), 1};
  }
  return {};
}

int ParseCount(const Times& times) {
  int count = 0;
  const char* const end = times.text.data() + times.text.size();
  const auto [stop, error] = std::from_chars(times.text.data(), end, count);
  if (error != std::errc() || stop != end || count < 1 || count > kWorkersMax) {
    throw Error(Code::kInvalidArgument, "launch: " + times.option + " " + times.text +
                                            ": a whole number from 1 to " +
                                            std::to_string(kWorkersMax) + " is needed");
  }
  return count;
}

}  // namespace

void CheckProgram(const std::string& word) {
  const auto fail = [&](const std::string& problem, const std::string& advice) {
    throw Error(Code::kInvalidArgument, "launch: '" + word + "' " + problem + advice);
  };
  const bool is_script = word.ends_with(".py") && access(word.c_str(), R_OK) == 0;
  if (word.find('/') != std::string::npos) {
    if (access(word.c_str(), X_OK) == 0) return;
    fail(std::string("cannot be run: ") + std::strerror(errno),
         is_script ? "; is `python " + word + "` meant?" : "");
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(((folder.empty() ? "." : folder) + "/" + word).c_str(), X_OK) == 0) return;
  }
  std::string advice;
  if (is_script) {
    advice = "; is `python " + word + "` meant?";
  } else if (access(word.c_str(), X_OK) == 0) {
    advice = "; is `./" + word + "` meant?";
  } else if (word.find(' ') != std::string::npos) {
    advice = "; the command and its arguments are words of their own, without quotes around all";
  }
  fail("is no program in PATH", advice);
}

std::vector<JobProgram> ProgramsOf(std::span<const std::string> words, int workers) {
  std::vector<JobProgram> programs(1, JobProgram{Job::Role::kWorker, workers, {}});
  for (size_t i = 0; i < words.size(); ++i) {
    const auto times = words[i] == ":" ? TimesOf(words.subspan(i + 1)) : std::optional<Times>();
    if (times) {
      programs.push_back({times->role, ParseCount(*times), {}});
      i += times->words;
    } else {
      programs.back().command.push_back(words[i]);
    }
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::vector<std::string>& command = programs[i].command;
    if (command.empty() || command[0].empty()) {
      throw Error(Code::kInvalidArgument, "launch: there is no command to run");
    }
    if (i > 0 && command[0][0] == '-') {
      throw Error(Code::kInvalidArgument,
                  "launch: behind ':' only -n N or --observers N comes "
                  "before a command, and '" +
                      command[0] + "' is neither");
    }
  }
  if (CountOf(programs, Job::Role::kWorker) > kWorkersMax) {
    throw Error(Code::kInvalidArgument,
                "launch: more than " + std::to_string(kWorkersMax) + " workers");
  }
  return programs;
}

int CountOf(const std::vector<JobProgram>& programs, Job::Role role) {
  int count = 0;
  for (const JobProgram& program : programs) count += program.role == role ? program.count : 0;
  return count;
}

const std::vector<std::string>& CommandOf(const std::vector<JobProgram>& programs, Job::Role role,
                                          int rank) {
  for (const JobProgram& program : programs) {
    if (program.role != role) continue;
    if (rank < program.count) return program.command;
    rank -= program.count;
  }
  return programs[0].command;
}

}  // namespace tkv::cli
