#include "runtime/auto_save.h"

#include <charconv>
#include <utility>

#include "base/format.h"
#include "store/snapshots.h"
#include "tkv/error.h"

namespace tkv {
namespace {

// Returns the number in "100" or "30s", or 0 for another text.
uint64_t NumberOf(std::string_view every) {
  constexpr uint64_t kMost = 1'000'000'000;
  if (every.ends_with('s')) every.remove_suffix(1);
  uint64_t number = 0;
  const char* const begin = every.data();
  const char* const end = begin + every.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end && number <= kMost ? number : 0;
}

}  // namespace

bool AutoSave::IsInterval(std::string_view every) { return NumberOf(every) > 0; }

AutoSave::AutoSave(std::string folder, const std::string& every, Time now)
    : folder_(std::move(folder)), last_(now) {
  if (folder_.empty() && every.empty()) return;
  if (folder_.empty() || every.empty()) {
    throw Fail(Code::kInvalidArgument,
               "create: snapshots='{}', snapshot_every='{}': both are needed", folder_, every);
  }
  // An absolute path, so that the folder stays the same when the process changes its directory.
  folder_ = PlaceOf(folder_);
  if (every.ends_with('s')) {
    span_ = static_cast<Time>(NumberOf(every)) * kSecond;
  } else {
    rounds_ = NumberOf(every);
  }
}

}  // namespace tkv
