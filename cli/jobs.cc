#include "jobs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "exit_status.h"
#include "look.h"
#include "tkv/job.h"

namespace tkv::cli {
namespace {

std::string FileOf(int pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the words of a process's command, with spaces between them; "" if there is no such
// process.
std::string CommandOfProcess(int pid) {
  std::string words = FileOf(pid, "cmdline");
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::ranges::replace(words, '\0', ' ');
  return words;
}

// Returns how long a process has lived, or 0 if there is no such process.
double SecondsOfProcess(int pid) {
  // Behind the name of the program, which may have spaces, the start is the 20th word.
  constexpr int kWordsBefore = 19;
  const std::string line = FileOf(pid, "stat");
  std::istringstream words(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string word;
  for (int i = 0; i < kWordsBefore; ++i) words >> word;
  double ticks = 0, up = 0;
  if (!(words >> ticks) || !(std::ifstream("/proc/uptime") >> up)) return 0;
  return std::max(0.0, up - ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

// "12 s", "3 min", "2 h", "5 d"
std::string AgeText(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  char text[32];
  if (seconds < 2 * kMinute) {
    std::snprintf(text, sizeof(text), "%.0f s", seconds);
  } else if (seconds < 2 * kHour) {
    std::snprintf(text, sizeof(text), "%.0f min", seconds / kMinute);
  } else if (seconds < 2 * kDay) {
    std::snprintf(text, sizeof(text), "%.0f h", seconds / kHour);
  } else {
    std::snprintf(text, sizeof(text), "%.0f d", seconds / kDay);
  }
  return text;
}

}  // namespace

int RunJobs(Form form) {
  const std::vector<LocalJob> jobs = LocalJobs();
  if (form == Form::kText && jobs.empty()) {
    std::printf("no job of yours has its head at a Unix socket of this machine\n");
  }
  for (const LocalJob& job : jobs) {
    const std::string command = CommandOfProcess(job.head_pid);
    const double seconds = SecondsOfProcess(job.head_pid);
    if (form == Form::kJson) {
      Print(JsonObject("job")
                .Add("job", job.id)
                .Add("url", job.url)
                .Add("pid", job.head_pid)
                .Add("seconds", seconds)
                .Add("command", command));
    } else {
      constexpr size_t kShown = 120;  // of the command; JSON has all of it
      const std::string shown = Printable(command.substr(0, kShown));
      std::printf("%-28s pid %-8d %7s  %s%s\n", job.id.c_str(), job.head_pid,
                  AgeText(seconds).c_str(), shown.c_str(), command.size() > kShown ? " …" : "");
    }
  }
  std::fflush(stdout);
  return kDone;
}

}  // namespace tkv::cli
