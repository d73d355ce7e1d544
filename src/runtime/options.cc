// The only place that reads the environment.

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "base/process.h"
#include "kernels/targets.h"
#include "tkv/config.h"
#include "update/parallel.h"

namespace tkv {
namespace {

constexpr std::array<OptionInfo, 2> kOptions = {{
    {"threads", "TKV_THREADS", "cores", "0",
     "Cores that one large operation may use; 0 means all that the process may use: its CPU "
     "affinity, cut to the "
     "quota of its control group."},
    {"patience_ms", "TKV_PATIENCE_MS", "ms", "600000",
     "Longest wait of an operation for another thread of the same process before it fails with "
     "DeadlineExceeded."},
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

}  // namespace

const char* Version() noexcept { return TKV_VERSION; }

std::span<const OptionInfo> OptionTable() noexcept { return kOptions; }

StoreOptions OptionsFromEnvironment() {
  StoreOptions options;
  options.threads = static_cast<int>(ReadNumber("TKV_THREADS", options.threads, 0));
  options.patience =
      std::chrono::milliseconds(ReadNumber("TKV_PATIENCE_MS", options.patience.count(), 1));
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
  return text;
}

}  // namespace tkv
