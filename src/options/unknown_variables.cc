// Warnings of variables of the environment that have no effect.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/format.h"
#include "options/environment.h"
#include "tkv/config.h"

namespace tkv {
namespace {

// A variable of MXNet or ps-lite without effect here, and a hint at the replacement.
struct OtherVariable {
  std::string_view name, instead;
};
constexpr std::string_view kSums =
    "sums are added in one way, with the same bits on any number of threads";
constexpr std::string_view kAddresses = "processes use the address of their route to the head";
constexpr std::array<OtherVariable, 22> kVariablesOfMxnet = {{
    {"MXNET_KVSTORE_REDUCTION_NTHREADS", "TKV_THREADS says how many cores an operation may use"},
    {"MXNET_KVSTORE_BIGARRAY_BOUND", "large values are cut into chunks by their size"},
    {"MXNET_KVSTORE_SLICE_THRESHOLD", "large values are cut into chunks by their size"},
    {"MXNET_KVSTORE_SERIAL_PUSH", kSums},
    {"MXNET_KVSTORE_USETREE", kSums},
    {"MXNET_KVSTORE_LOGTREE", kSums},
    {"MXNET_KVSTORE_TREE_ARRAY_BOUND", kSums},
    {"MXNET_KVSTORE_TREE_BACKTRACK", kSums},
    {"MXNET_KVSTORE_TREE_LINK_USAGE_PENALTY", kSums},
    {"MXNET_CPU_PRIORITY_NTHREADS", "TKV_THREADS says how many cores an operation may use"},
    {"MXNET_UPDATE_AGGREGATION_SIZE", "a call takes any number of keys"},
    {"PS_VERBOSE", "TKV_LOG=info or TKV_LOG=debug tells what happens"},
    {"PS_RESEND", "what a lost connection had under way is sent again, and counts once"},
    {"PS_RESEND_TIMEOUT", "what a lost connection had under way is sent again, and counts once"},
    {"PS_DROP_MSG", "TKV_FAILPOINTS rehearses failures"},
    {"PS_HEARTBEAT_INTERVAL", "TKV_SILENCE_MS says after how long a silent process is dead"},
    {"PS_HEARTBEAT_TIMEOUT", "TKV_SILENCE_MS says after how long a silent process is dead"},
    {"DMLC_PS_VAN_TYPE", "TKV_TRANSPORT says how processes talk, and priorities always count"},
    {"DMLC_PS_WATER_MARK", "queues are bounded by themselves"},
    {"DMLC_LOCAL", "processes of one host use Unix sockets and shared memory by themselves"},
    {"DMLC_NODE_HOST", kAddresses},
    {"DMLC_INTERFACE", kAddresses},
}};

}  // namespace

std::vector<std::string> UnknownVariables() {
  // Variables besides those of options.  The prefixes TKV_TEST_ and TKV_FUZZ_ below belong to tests
  // and tools.
  constexpr std::array<std::string_view, 10> kOthers = {
      "TKV_ROLE",    "TKV_HEAD",       "TKV_JOB", "TKV_RANK",   "TKV_WORKERS",
      "TKV_SERVERS", "TKV_TOKEN_FILE", "TKV_SSH", "TKV_PYTHON", "TKV_RAY_JOB"};
  std::vector<std::string_view> known(kOthers.begin(), kOthers.end());
  for (const OptionInfo& option : OptionTable()) known.emplace_back(option.environment);
  std::vector<std::string> sentences;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry, std::strcspn(*entry, "="));
    const bool is_ours = variable.starts_with("TKV_") && !variable.starts_with("TKV_TEST_") &&
                         !variable.starts_with("TKV_FUZZ_");
    if (!is_ours || std::find(known.begin(), known.end(), variable) != known.end()) continue;
    sentences.push_back(
        Format("nothing reads the variable {}{}", variable, DidYouMean(variable, known)));
  }
  for (const auto& [name, instead] : kVariablesOfMxnet) {
    if (Variable(std::string(name).c_str()) == nullptr) continue;
    sentences.push_back(Format("the variable {} of MXNet has no effect: {}", name, instead));
  }
  return sentences;
}

}  // namespace tkv
