#include "rows/row_admission.h"

#include <vector>

namespace tkv {

// Returns the candidate's note, or an empty note if there is none or it has expired.
RowNote RowAdmission::NoteOf(uint64_t mix, const RowClock& clock) const noexcept {
  const RowNote note = candidates_.NoteOf(mix);
  return clock.HasExpired(note) ? RowNote{} : note;
}

RowAdmission::Decision RowAdmission::Decide(uint64_t mix, const RowClock& clock) {
  if (NoteOf(mix, clock).count + 1 >= admit_count_) {
    candidates_.MakeWritable(mix);
    return Decision::kRow;
  }
  const bool is_new = candidates_.Reserve(mix, clock.version());
  return is_new ? Decision::kNewCandidate : Decision::kCandidate;
}

void RowAdmission::Count(uint64_t mix, const RowClock& clock) noexcept {
  candidates_.Set(mix, clock.Pushed(NoteOf(mix, clock)));
}

void RowAdmission::RemoveExpired(const RowClock& clock, size_t count) {
  std::vector<uint64_t> expired;
  next_.Next(candidates_, count, [&](uint64_t mix, const RowNote& note) {
    if (clock.HasExpired(note)) expired.push_back(mix);
  });
  for (const uint64_t mix : expired) candidates_.Erase(mix);
}

}  // namespace tkv
