// For tests: the comparison of two tables.

#pragma once

#include <cstring>
#include <vector>

#include "rows/row_table.h"

namespace tkv {

// Returns true if both tables have the same rows, with the same values, masters, states and notes,
// and the same dtype, initializer and policy.  Candidates and versions are not compared.
//   blocks, throws  as RowTable::Read
inline bool operator==(const RowTable& one, const RowTable& other) {
  if (one.dtype() != other.dtype() || one.row_elements() != other.row_elements() ||
      one.size() != other.size() || one.state_count() != other.state_count() ||
      one.has_master() != other.has_master() || one.initializer() != other.initializer() ||
      one.policy() != other.policy()) {
    return false;
  }
  constexpr size_t kRows = 1024;
  const size_t wide_bytes = one.row_elements() * ItemSize(ComputeType(one.dtype()));
  std::vector<std::byte> mine(kRows * wide_bytes + 1), theirs(mine.size());
  uint64_t first = 0;
  for (;;) {
    const std::vector<uint64_t> mixes = one.Mixes(first, kRows);
    if (mixes != other.Mixes(first, kRows)) return false;
    if (mixes.empty()) return true;
    const auto is_same = [&](size_t bytes) {
      return std::memcmp(mine.data(), theirs.data(), mixes.size() * bytes) == 0;
    };
    one.Read(mixes, mine.data());
    other.Read(mixes, theirs.data());
    if (!is_same(one.row_bytes())) return false;
    if (one.policy().has_notes) {
      std::vector<RowNote> noted(mixes.size()), others(mixes.size());
      one.ReadNotes(mixes, noted.data());
      other.ReadNotes(mixes, others.data());
      if (noted != others) return false;
    }
    for (size_t s = 0; s < one.state_count() + (one.has_master() ? 1 : 0); ++s) {
      if (s == one.state_count()) {
        one.ReadMaster(mixes, mine.data());
        other.ReadMaster(mixes, theirs.data());
      } else {
        one.ReadState(s, mixes, mine.data());
        other.ReadState(s, mixes, theirs.data());
      }
      if (!is_same(wide_bytes)) return false;
    }
    if (mixes.back() == UINT64_MAX) return true;
    first = mixes.back() + 1;
  }
}

}  // namespace tkv
