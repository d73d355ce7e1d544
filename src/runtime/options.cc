// The only place that reads the environment.

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "base/process.h"
#include "kernels/targets.h"
#include "tkv/config.h"
#include "update/parallel.h"

namespace tkv {
namespace {

constexpr std::array<OptionInfo, 9> kOptions = {{
    {"threads", "TKV_THREADS", "cores", "0",
     "Cores that one large operation may use; 0 means all that the process may use: its CPU "
     "affinity, cut to the "
     "quota of its control group."},
    {"patience_ms", "TKV_PATIENCE_MS", "ms", "600000",
     "Longest wait of an operation for another thread of the same process, or for other workers, "
     "before it fails with DeadlineExceeded."},
    {"server_patience_ms", "TKV_SERVER_PATIENCE_MS", "ms", "30000",
     "Longest wait of a distributed store for a server or the head before what needs it fails with "
     "Unavailable."},
    {"servers", "TKV_SERVERS", "servers", "1", "Servers of a job that a store makes for itself."},
    {"staleness", "TKV_STALENESS", "rounds", "0",
     "Rounds that a worker may be ahead of the slowest one; 0 makes every pull exact."},
    {"on_death", "TKV_ON_DEATH", "", "fail",
     "What a round does without a worker that has died: fail, continue, wait."},
    {"deterministic", "TKV_DETERMINISTIC", "", "0",
     "1: sums are added in the order of ranks, so that every run gives the same bits."},
    {"window_bytes", "TKV_WINDOW_BYTES", "bytes", "67108864",
     "Arrays of other frameworks that a push copies where it cannot leave at once; beyond it the "
     "call waits."},
    {"log", "TKV_LOG", "", "off",
     "What is told on standard error of joining, leaving, deaths and long waits: off, error, "
     "warning, info, debug. From Python it is the level of the logger tensorkv."},
}};

int64_t ReadNumber(const char* variable, int64_t fallback, int64_t low) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return fallback;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low) {
    throw Fail(Code::kInvalidArgument, "{}='{}': a whole number of at least {} is needed", variable,
               text, low);
  }
  return value;
}

constexpr std::array<const char*, 4> kLevels = {"debug", "info", "warning", "error"};

// The lowest level that is told; kLevels.size() where nothing is.
size_t ReadLevel() {
  const char* const text = std::getenv("TKV_LOG");
  if (text == nullptr || *text == '\0' || std::string_view(text) == "off") return kLevels.size();
  for (size_t i = 0; i < kLevels.size(); ++i) {
    if (std::string_view(text) == kLevels[i]) return i;
  }
  throw Fail(Code::kInvalidArgument, "TKV_LOG='{}'; there are off, error, warning, info and debug",
             text);
}

}  // namespace

const char* Version() noexcept { return TKV_VERSION; }

std::span<const OptionInfo> OptionTable() noexcept { return kOptions; }

StoreOptions OptionsFromEnvironment() {
  StoreOptions options;
  options.threads = static_cast<int>(ReadNumber("TKV_THREADS", options.threads, 0));
  options.patience =
      std::chrono::milliseconds(ReadNumber("TKV_PATIENCE_MS", options.patience.count(), 1));
  options.server_patience = std::chrono::milliseconds(
      ReadNumber("TKV_SERVER_PATIENCE_MS", options.server_patience.count(), 1));
  options.servers = static_cast<int>(ReadNumber("TKV_SERVERS", options.servers, 1));
  options.staleness = static_cast<int>(ReadNumber("TKV_STALENESS", options.staleness, 0));
  const char* const on_death = std::getenv("TKV_ON_DEATH");
  if (on_death != nullptr && *on_death != '\0') options.on_death = on_death;
  options.deterministic = ReadNumber("TKV_DETERMINISTIC", 0, 0) != 0;
  options.window_bytes = static_cast<size_t>(
      ReadNumber("TKV_WINDOW_BYTES", static_cast<int64_t>(options.window_bytes), 0));
  if (const size_t level = ReadLevel(); level < kLevels.size()) {
    options.log = [level](int of, const std::string& text) {
      const auto at = static_cast<size_t>(of);
      if (at >= level) std::fprintf(stderr, "tensorkv %s: %s\n", kLevels.at(at), text.c_str());
    };
  }
  return options;
}

std::string ConfigText() {
  const StoreOptions options = OptionsFromEnvironment();
  std::string text;
  const auto line = [&text](const char* name, const auto& value) {
    text += format("{} = {}\n", name, value);
  };
  const std::string targets = format("{}", fmt::join(kernels::BuiltTargets(), " "));
  line("version", Version());
  line("instruction_set", kernels::ActiveTarget());
  line("instruction_sets_built", targets);
  line("cores", UsableCores());
  line("last_level_cache_bytes", LastLevelCacheBytes());
  line("gpu", "not built");
  line("threads",
       format("{} ({})", options.threads, options.threads == 0 ? ThreadsFor(0) : options.threads));
  line("patience_ms", options.patience.count());
  line("server_patience_ms", options.server_patience.count());
  line("servers", options.servers);
  line("staleness", options.staleness);
  line("on_death", options.on_death);
  line("deterministic", options.deterministic ? 1 : 0);
  line("window_bytes", options.window_bytes);
  line("log", ReadLevel() < kLevels.size() ? kLevels.at(ReadLevel()) : "off");
  return text;
}

}  // namespace tkv
