#include "top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "exit_status.h"
#include "interrupt.h"
#include "rates.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKeysShown = 15;
constexpr size_t kWorkersShown = 16;
constexpr size_t kNameColumns = 28, kNameColumnsMax = 60;
constexpr std::chrono::milliseconds kLookEvery{50};  // the interval of checks for a signal

// Returns the columns of a character on a terminal, at most.  Asian characters and emoji have two.
size_t ColumnsOf(unsigned char first_byte) {
  const bool continues = (first_byte & 0xC0) == 0x80;
  return continues ? 0 : first_byte >= 0xE1 ? 2 : 1;
}

// Returns the characters that fit in `most` columns, padded with blanks to `least`.
std::string Fitted(std::string_view text, size_t least, size_t most) {
  size_t columns = 0, end = 0;
  for (; end < text.size(); ++end) {
    const size_t next = columns + ColumnsOf(static_cast<unsigned char>(text[end]));
    if (next > most) break;
    columns = next;
  }
  return std::string(text.substr(0, end)) + std::string(least - std::min(least, columns), ' ');
}

std::string LineOf(const Rate& rate, const char* unit) {
  char text[160];
  std::snprintf(text, sizeof(text), " %10.1f %s/s %12s/s", rate.per_second, unit,
                BytesText(rate.bytes_per_second).c_str());
  return Fitted(rate.name, kNameColumns, kNameColumnsMax) + text;
}

std::vector<std::string> TableOf(const JobStatus& status, const Rates& rates) {
  std::vector<std::string> lines;
  std::vector<std::string> workers;
  workers.reserve(status.workers.size());
  for (const WorkerStatus& worker : status.workers) workers.push_back(worker.state);
  lines.push_back("job " + status.job + "   workers: " + Counted(workers) +
                  "   keys: " + std::to_string(status.keys.size()) + "   watched by " +
                  std::to_string(status.observers));
  for (size_t i = 0; i < std::min(rates.keys.size(), kKeysShown); ++i) {
    lines.push_back(LineOf(rates.keys[i], "rounds"));
  }
  if (rates.keys.size() > kKeysShown) {
    lines.push_back("and " + std::to_string(rates.keys.size() - kKeysShown) + " more keys");
  }
  for (size_t i = 0; i < std::min(rates.workers.size(), kWorkersShown); ++i) {
    lines.push_back(LineOf(rates.workers[i], "chunks"));
  }
  if (rates.workers.size() > kWorkersShown) {
    lines.push_back("and " + std::to_string(rates.workers.size() - kWorkersShown) +
                    " more workers");
  }
  if (status.slowest >= 0) {
    lines.push_back("slowest: worker " + std::to_string(status.slowest) + ", " +
                    std::to_string(status.slowest_rounds) + " rounds wait for it, the oldest " +
                    SecondsText(status.slowest_seconds));
  }
  return lines;
}

// Prints tables: in place on a terminal, else one below the other.
class Screen {
 public:
  // Prints the lines.  On a terminal only those that fit, because each line must be one row: the
  // cursor moves up by rows.
  void Show(const std::vector<std::string>& lines) {
    const auto [rows, columns] = Size();
    std::string text;
    if (is_terminal_ && shown_ > 0) text = "\x1b[" + std::to_string(shown_) + "A\x1b[J";
    shown_ = std::min(lines.size(), rows - 1);
    for (size_t i = 0; i < shown_; ++i) text += Fitted(lines[i], 0, columns) + '\n';
    if (!is_terminal_) text += '\n';
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

 private:
  // Returns rows and columns.  Unbounded if stdout is no terminal, or the terminal does not report
  // a size.
  std::pair<size_t, size_t> Size() const {
    winsize size{};
    const bool is_known = is_terminal_ && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
                          size.ws_row > 1 && size.ws_col > 0;
    if (!is_known) return {SIZE_MAX, SIZE_MAX};
    return {size.ws_row, size.ws_col};
  }

  const bool is_terminal_ = isatty(STDOUT_FILENO) != 0;
  size_t shown_ = 0;
};

JsonObject ToJson(const JobStatus& status, const Rates& rates, double seconds) {
  const auto objects = [](const std::vector<Rate>& all, const char* unit) {
    std::vector<JsonObject> objects;
    objects.reserve(all.size());
    for (const Rate& rate : all) {
      objects.push_back(JsonObject()
                            .Add("name", rate.name)
                            .Add(unit, rate.per_second)
                            .Add("bytes_per_second", rate.bytes_per_second));
    }
    return objects;
  };
  return JsonObject("rates")
      .Add("seconds", seconds)
      .Add("keys", objects(rates.keys, "rounds_per_second"))
      .Add("workers", objects(rates.workers, "chunks_per_second"))
      .Add("slowest", status.slowest)
      .Add("slowest_seconds", status.slowest_seconds);
}

void Rest(Clock::time_point until) {
  while (Clock::now() < until && SignalThatCame() == 0) {
    std::this_thread::sleep_for(std::min<Clock::duration>(kLookEvery, until - Clock::now()));
  }
}

}  // namespace

int RunTop(const TopOptions& options, Form form) {
  std::signal(SIGPIPE,
              SIG_DFL);  // ends with the pipe's reader; Python, the parent, may ignore it
  return Looking([&] {
    auto store = Observe(options);
    const auto interval = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options.interval_seconds));
    Screen screen;
    JobStatus before = store->Status();
    auto asked = Clock::now();
    for (uint64_t tables = 0; options.count == 0 || tables < options.count; ++tables) {
      Rest(asked + interval);
      if (SignalThatCame() != 0) return 128 + SignalThatCame();
      JobStatus now = store->Status();
      const std::string silent = WhoIsSilent(now);
      if (!silent.empty() && !HasEnded(now) && now.head_is_open) {
        if (form == Form::kJson) {
          Print(JsonObject("silent").Add("text", silent));
        } else {
          screen.Show({silent});
        }
        Rest(Clock::now() + interval);
        continue;
      }
      const auto then = std::exchange(asked, Clock::now());
      const double seconds = std::chrono::duration<double>(asked - then).count();
      const Rates rates = RatesBetween(before, now, seconds);
      if (form == Form::kJson) {
        Print(ToJson(now, rates, seconds));
      } else {
        screen.Show(TableOf(now, rates));
      }
      if (HasEnded(now) || !now.head_is_open) {
        if (form == Form::kText) std::printf("the job has ended, or its head is out of reach\n");
        return kDone;
      }
      if (std::ferror(stdout) != 0) {
        const int error = errno;
        store.reset();
        errno = error;  // reported by the caller
        return kNotDone;
      }
      before = std::move(now);
    }
    return kDone;
  });
}

}  // namespace tkv::cli
