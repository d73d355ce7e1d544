#include "other_launchers.h"

#include <array>
#include <utility>

namespace tkv::cli {
namespace {

constexpr const char* kCount = "-n N";
constexpr const char* kHosts = "--hosts FILE, a file with one host in each line";
constexpr const char* kFolder =
    "`cd FOLDER` before `tkv launch`, or `env -C FOLDER` before the command";
constexpr const char* kNotNeeded = "nothing: it is not needed";
constexpr const char* kCores = "`taskset` or `numactl` before the command";

// Without dashes: mpirun takes one or two.
constexpr std::array<std::pair<std::string_view, const char*>, 27> kOptions = {{
    {"np", kCount},
    {"nproc-per-node", "-n N, for all hosts together"},
    {"nproc_per_node", "-n N, for all hosts together"},
    {"nnodes", kHosts},
    {"hostfile", kHosts},
    {"machinefile", kHosts},
    {"host", kHosts},
    {"H", kHosts},
    {"wdir", kFolder},
    {"wd", kFolder},
    {"tag-output", "nothing: each line begins with the name of its process"},
    {"tee", "nothing: each line begins with the name of its process"},
    {"output-filename", "--log FOLDER"},
    {"log-dir", "--log FOLDER"},
    {"timeout", "`timeout SECONDS tkv launch ...`"},
    {"stdin", "--stdin RANK"},
    {"q", "--log-level off"},
    {"quiet", "--log-level off"},
    {"max-restarts", "--restart N"},
    {"bind-to", kCores},
    {"bind-to-core", kCores},
    {"map-by", kCores},
    {"rank-by", kCores},
    {"oversubscribe", kNotNeeded},
    {"allow-run-as-root", kNotNeeded},
    {"standalone", kNotNeeded},
    {"mca", kNotNeeded},
}};

}  // namespace

std::string InsteadOf(std::string_view word) {
  const bool is_long = word.starts_with("--");
  if (!is_long && !word.starts_with("-")) return {};
  const std::string_view name = word.substr(is_long ? 2 : 1, word.find('=') - (is_long ? 2 : 1));
  for (const auto& [option, instead] : kOptions) {
    if (name == option) return instead;
  }
  return {};
}

}  // namespace tkv::cli
