#include "group_limits.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace tkv::cli {
namespace {

// Returns the number in a file; nullopt for "max", and if there is no such file.
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return {};
  return number;
}

struct Group {
  std::string folder;
  bool is_version2 = false;
};

// Returns the groups around this process that may limit a resource, the innermost first.
//   controller  the name of version 1, which is the name of a folder, too
std::vector<Group> GroupsAround(const GroupFiles& files, const std::string& controller) {
  std::vector<Group> groups;
  std::ifstream self(files.self);
  for (std::string line; std::getline(self, line);) {
    // "0::/path" (version 2) or "4:memory:/path" (version 1)
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool is_version2 = names == ",,";
    if (!is_version2 && names.find(',' + controller + ',') == std::string::npos) continue;
    const std::string root = files.root + (is_version2 ? "" : '/' + controller);
    std::string path = line.substr(second + 1);
    // Inside of a container the path may not exist; its root does.
    while (!path.empty()) {
      if (path != "/") groups.push_back({root + path, is_version2});
      const size_t slash = path.rfind('/');
      path.erase(slash == std::string::npos ? 0 : slash);
    }
    groups.push_back({root, is_version2});
  }
  return groups;
}

void Tighten(std::optional<uint64_t> limit, uint64_t used, GroupLimit* least) {
  // Version 1 writes a number near the largest one if there is no limit.
  if (!limit || *limit >= (uint64_t{1} << 60)) return;
  const uint64_t left = *limit - std::min(*limit, used);
  if (left < least->left) *least = {*limit, left};
}

}  // namespace

uint64_t NumberBehind(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    uint64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return 0;
}

GroupLimit MemoryOfGroup(const GroupFiles& files) {
  GroupLimit least;
  for (const auto& [folder, is_version2] : GroupsAround(files, "memory")) {
    const char* const limit = is_version2 ? "/memory.max" : "/memory.limit_in_bytes";
    const char* const used = is_version2 ? "/memory.current" : "/memory.usage_in_bytes";
    const char* const cached = is_version2 ? "inactive_file" : "total_inactive_file";
    const uint64_t all = NumberIn(folder + used).value_or(0);
    const uint64_t freed = NumberBehind(folder + "/memory.stat", cached);
    Tighten(NumberIn(folder + limit), all - std::min(all, freed), &least);
  }
  return least;
}

GroupLimit ProcessesOfGroup(const GroupFiles& files) {
  GroupLimit least;
  for (const auto& [folder, is_version2] : GroupsAround(files, "pids")) {
    Tighten(NumberIn(folder + "/pids.max"), NumberIn(folder + "/pids.current").value_or(0), &least);
  }
  return least;
}

}  // namespace tkv::cli
