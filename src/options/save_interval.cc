#include "options/save_interval.h"

#include <charconv>

namespace tkv {

std::optional<SaveInterval> SaveIntervalOf(std::string_view text) {
  constexpr uint64_t kMost = 1'000'000'000;
  const bool is_time = text.ends_with('s');
  if (is_time) text.remove_suffix(1);
  uint64_t number = 0;
  const char* const begin = text.data();  // NOLINT(bugprone-suspicious-stringview-data-usage)
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end || number == 0 || number > kMost) return std::nullopt;
  return is_time ? SaveInterval{.seconds = number} : SaveInterval{.rounds = number};
}

}  // namespace tkv
