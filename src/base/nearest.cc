#include "base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tkv {
namespace {

// Returns the optimal string alignment distance.  Both words are short names.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last, row;
  for (size_t j = 0; j <= b.size(); ++j) row.push_back(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, std::exchange(row, std::vector<size_t>(b.size() + 1)));
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + static_cast<size_t>(a[i - 1] != b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view Nearest(std::string_view word, std::span<const std::string_view> names) {
  constexpr size_t kWordMax = 64;
  // Shorter parts say too little about the intended name.
  constexpr size_t kPartMin = 4;
  if (word.size() > kWordMax) return {};
  std::string_view nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string_view name : names) {
    const size_t edits = name.size() > kWordMax ? least : Edits(word, name);
    if (edits >= least) continue;
    least = edits;
    nearest = name;
  }
  if (!nearest.empty() || word.size() < kPartMin) return nearest;
  for (const std::string_view name : names) {
    const bool has_it = name.find(word) != std::string_view::npos;
    if (has_it && (nearest.empty() || name.size() < nearest.size())) nearest = name;
  }
  return nearest;
}

}  // namespace tkv
