#include "checkpoint/snapshot_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <vector>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "checkpoint/file.h"
#include "checkpoint/index.h"

namespace tkv::checkpoint {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

std::string NameOfNumber(uint64_t number) { return Format("{:06}", number); }

// Returns the number of a snapshot with this name; none if no snapshot has such a name.
std::optional<uint64_t> NumberOfName(std::string_view name) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_ours = error == std::errc() && number < UINT64_MAX && name == NameOfNumber(number);
  return is_ours ? std::optional(number) : std::nullopt;
}

// Returns true if a folder has an index, or may have one: this user has no permission to look.
bool MayHaveIndex(const std::string& folder) {
  try {
    return Exists(IndexIn(folder));
  } catch (const Error& error) {
    if (error.code() != Code::kFailedPrecondition) throw;
    return true;
  }
}

// Returns the snapshots of a folder, the oldest first.  A folder with the name of a snapshot and
// without an index is none.  A folder that cannot be entered counts as one, and opening it fails.
std::vector<uint64_t> NumbersIn(const std::string& folder) {
  std::vector<uint64_t> numbers;
  for (const std::string& name : Names(folder)) {
    const auto number = NumberOfName(name);
    if (number && MayHaveIndex(Format("{}/{}", folder, name))) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Returns the stores whose keys a snapshot has; none if the index is damaged or not TensorKV's.
// Other tools use the same file name.
std::optional<std::set<uint32_t>> StoresIfRead(const std::string& snapshot) {
  try {
    return StoresOf(ReadIndex(snapshot));
  } catch (const Error& error) {
    if (error.code() != Code::kDataLoss && error.code() != Code::kFailedPrecondition) throw;
    return std::nullopt;
  }
}

}  // namespace

std::string IndexIn(const std::string& folder) { return Format("{}/{}", folder, kIndexName); }

std::string FileName(size_t file, size_t count) {
  return Format("model-{:05}-of-{:05}.safetensors", file + 1, count);
}

Index ReadIndex(const std::string& snapshot) {
  const std::string path = IndexIn(snapshot);
  const File file = File::Open(path);
  const uint64_t size = file.Size();
  if (size > kIndexBytesMax) {
    throw Fail(Code::kDataLoss, "{}: {} bytes, an index has at most {}", path, size,
               kIndexBytesMax);
  }
  std::string text(size, '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return IndexOf(text, path);
}

std::vector<std::string> SnapshotsIn(const std::string& folder) {
  std::vector<std::string> snapshots;
  for (const uint64_t number : NumbersIn(folder)) {
    snapshots.push_back(Format("{}/{}", folder, NameOfNumber(number)));
  }
  std::ranges::reverse(snapshots);
  return snapshots;
}

std::optional<std::string> NewestIn(const std::string& folder) {
  const std::vector<std::string> snapshots = SnapshotsIn(folder);
  return snapshots.empty() ? std::nullopt : std::optional(snapshots.front());
}

std::string NewNameIn(const std::string& folder) {
  const std::vector<uint64_t> numbers = NumbersIn(folder);
  uint64_t number = numbers.empty() ? 1 : numbers.back() + 1;
  while (Exists(Format("{}/{}", folder, NameOfNumber(number)))) ++number;
  return NameOfNumber(number);
}

std::string NameMeanwhile(const std::string& name) { return Format(".{}.tmp", name); }

bool IsLeftOver(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(".tmp") || name.size() < 5) return false;
  return NumberOfName(name.substr(1, name.size() - 5)).has_value();
}

void Prune(const std::string& folder, size_t kept) {
  const std::vector<uint64_t> numbers = NumbersIn(folder);
  if (numbers.size() <= kept) return;
  std::map<std::set<uint32_t>, size_t> counted;  // newer snapshots, by their stores
  // A snapshot is renamed first, so that a half-removed folder never counts as one.
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    const std::string name = NameOfNumber(*number);
    const std::string old = Format("{}/{}", folder, name);
    const auto stores = StoresIfRead(old);
    if (!stores || counted[*stores]++ < kept) continue;
    const std::string gone = Format("{}/{}", folder, NameMeanwhile(name));
    Rename(old, gone);
    RemoveAll(gone);
  }
}

}  // namespace tkv::checkpoint
