// Counts the versions of a table, and says which of its rows have expired.

#pragma once

#include <cstdint>

#include "rows/row_note.h"

namespace tkv {

class RowClock {
 public:
  //   age_max  a row expires if it was last pushed more than so many versions ago; 0: never
  explicit RowClock(uint64_t age_max) : age_max_(age_max) {}

  uint64_t version() const noexcept { return version_; }
  void Advance() noexcept { ++version_; }
  void ContinueFrom(uint64_t version) noexcept { version_ = version; }

  // Returns true if rows may expire.
  bool expires() const noexcept { return age_max_ > 0; }
  bool HasExpired(const RowNote& note) const noexcept {
    return expires() && version_ > note.version && version_ - note.version > age_max_;
  }
  // Returns the note of a row with one more push, which belongs to the next version.
  RowNote Pushed(const RowNote& note) const noexcept { return {version_ + 1, note.count + 1}; }

 private:
  uint64_t age_max_;
  uint64_t version_ = 0;
};

}  // namespace tkv
