#include "rows/row_eviction.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/kernels.h"
#include "rows/row_index.h"

namespace tkv {
namespace {

// If there are too many rows, 1/16 of the maximum is removed as well.
constexpr uint64_t kTrimmed = 16;

// Returns the sum of the squares of `count` values.
double SquaredNorm(DType dtype, const std::byte* values, size_t count) noexcept {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double x = dtype == DType::kF64 ? reinterpret_cast<const double*>(values)[i]
                                          : reinterpret_cast<const float*>(values)[i];
    sum += x * x;
  }
  return sum;
}

}  // namespace

std::vector<uint64_t> RowEviction::ExpiredOf(std::span<const uint64_t> mixes,
                                             const RowStorage& rows, const RowClock& clock) const {
  std::vector<uint64_t> expired;
  rows.index().FindAll(
      mixes,
      [&](uint64_t place) {
        if (place != RowIndex::kNowhere && !RowSpill::IsOnDisk(place)) {
          __builtin_prefetch(rows.pages().NoteAt(place));
        }
        return place;
      },
      [&](size_t i, uint64_t place) {
        if (place != RowIndex::kNowhere && clock.HasExpired(rows.NoteOf(place))) {
          expired.push_back(mixes[i]);
        }
      });
  return expired;
}

std::vector<uint64_t> RowEviction::NextExpired(const RowStorage& rows, const RowClock& clock,
                                               size_t count) {
  std::vector<uint64_t> expired;
  next_.Next(rows.index(), count, [&](uint64_t mix, uint64_t place) {
    if (clock.HasExpired(rows.NoteOf(place))) expired.push_back(mix);
  });
  return expired;
}

std::vector<uint64_t> RowEviction::Surplus(const RowStorage& rows, const RowClock& clock) const {
  std::vector<uint64_t> surplus;
  if (rows_max_ == 0 || rows.size() <= rows_max_) return surplus;
  std::vector<std::pair<double, uint64_t>> scores;
  scores.reserve(rows.size());
  std::vector<std::byte> wide(rows.pages().wide_bytes());
  const bool expires = clock.expires();
  rows.index().ForEach(0, [&](uint64_t mix, uint64_t place) {
    if (expires && clock.HasExpired(rows.NoteOf(place))) {
      surplus.push_back(mix);
    } else {
      scores.emplace_back(ScoreOf(rows, place, wide.data()), mix);
    }
    return true;
  });
  if (scores.size() > rows_max_) {
    const size_t count = scores.size() - rows_max_ + rows_max_ / kTrimmed;
    const auto end = scores.begin() + static_cast<ptrdiff_t>(count);
    std::nth_element(scores.begin(), end, scores.end());
    for (auto at = scores.begin(); at != end; ++at) surplus.push_back(at->second);
    std::sort(surplus.begin(), surplus.end());
  }
  return surplus;
}

// Returns the score of a row; rows with low scores are removed first.
//   wide  memory for a row in the compute type
double RowEviction::ScoreOf(const RowStorage& rows, uint64_t place,
                            std::byte* wide) const noexcept {
  switch (score_) {
    case RowPolicy::Score::kAge:
      return static_cast<double>(rows.NoteOf(place).version);
    case RowPolicy::Score::kCount:
      return static_cast<double>(rows.NoteOf(place).count);
    case RowPolicy::Score::kNorm:
      break;
  }
  const RowPages& pages = rows.pages();
  kernels::Convert(pages.dtype(), pages.At(place), pages.compute(), wide, pages.elements());
  const double norm = SquaredNorm(pages.compute(), wide, pages.elements());
  return std::isnan(norm) ? -1 : norm;  // a row with NaN is removed first
}

}  // namespace tkv
