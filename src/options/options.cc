// Options of the environment, kinds of stores, and lines about this build.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/format.h"
#include "base/logfmt.h"
#include "base/nearest.h"
#include "base/process.h"
#include "kernels/targets.h"
#include "options/environment.h"
#include "options/log_line.h"
#include "options/option_table.h"
#include "store/types.h"
#include "tkv/config.h"
#include "tkv/gpu.h"
#include "update/parallel.h"

namespace tkv {
namespace {

constexpr std::array<const char*, 4> kLevels = {"debug", "info", "warning", "error"};

// Returns the local time: "2026-11-22T23:08:01.123".
std::string TimeText() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return Format("{}.{:03}", std::string_view(text, size), now.tv_nsec / 1'000'000);
}

// Returns the part of a log line that names this process, as far as a launcher has set role and
// rank.
std::string WhoIsThis() {
  std::string text = Format("pid={}", getpid());
  if (const char* const role = Variable("TKV_ROLE")) text += Format(" role={}", role);
  if (const char* const rank = Variable("TKV_RANK")) text += Format(" rank={}", rank);
  return text;
}

}  // namespace

const char* Version() noexcept { return TKV_VERSION; }

int Cores() { return UsableCores(); }

bool IsDistributed(std::string_view type) {
  const StoreType* const found = FindStoreType(type);
  return found != nullptr && found->kind == StoreType::Kind::kDistributed;
}

bool IsLocal(std::string_view type) {
  const StoreType* const found = FindStoreType(type);
  return found != nullptr && found->kind != StoreType::Kind::kDistributed;
}

bool IsAsync(std::string_view type) {
  const StoreType* const found = FindStoreType(type);
  return found != nullptr && found->is_async;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> names) {
  const std::string_view nearest = Nearest(word, names);
  return nearest.empty() ? std::string() : Format("; did you mean '{}'?", nearest);
}

StoreOptions OptionsFromEnvironment() {
  StoreOptions options;
  for (const OptionInfo& option : OptionTable()) {
    const char* const text = Variable(option.environment);
    if (text == nullptr) continue;
    const std::string why = TrySetOption(&options, option.name, text);
    if (why.empty()) continue;
    throw Fail(Code::kInvalidArgument, "{}='{}': {} is needed", option.environment, text, why);
  }
  if (options.log_level == "off") return options;
  const auto level = std::find(kLevels.begin(), kLevels.end(), options.log_level) - kLevels.begin();
  options.log = [level, who = WhoIsThis()](int of, const std::string& text) {
    if (of < level) return;
    WriteLogLine(Format("{} {} tensorkv {}: {}", TimeText(), kLevels.at(static_cast<size_t>(of)),
                        who, Escaped(text)));
  };
  return options;
}

std::string ConfigText() {
  const StoreOptions options = OptionsFromEnvironment();
  std::string text;
  const auto line = [&text](const char* name, const auto& value) {
    text += Format("{} = {}\n", name, value);
  };
  const std::string targets = Join(kernels::BuiltTargets(), " ");
  line("version", Version());
  line("instruction_set", kernels::ActiveTarget());
  line("instruction_sets_built", targets);
  line("cores", UsableCores());
  line("last_level_cache_bytes", LastLevelCacheBytes());
  line("gpu", GpuCount());
  line("large_operation_cores", options.threads == 0 ? ThreadsFor(0) : options.threads);
  for (const OptionInfo& option : OptionTable())
    line(option.name, OptionText(options, option.name));
  return text;
}

}  // namespace tkv
