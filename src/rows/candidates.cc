#include "rows/candidates.h"

#include <algorithm>

#include "base/format.h"
#include "base/mix.h"
#include "tkv/rows.h"

namespace tkv {

std::vector<Candidate> Candidates::From(uint64_t number, size_t count_max) const {
  std::vector<Candidate> some;
  if (number >= size() || count_max == 0) return some;
  some.reserve(std::min<size_t>(count_max, size() - number));
  ForEach(index_.MixAt(number), [&](uint64_t mix, const RowNote& note) {
    some.push_back({mix, note});
    return some.size() < count_max;
  });
  return some;
}

void Candidates::Put(const Candidate& candidate) {
  const RowNote& note = candidate.note;
  if (note.count > RowPolicy::kAdmitMax || note.version >> kVersionBits != 0) {
    throw Fail(Code::kInvalidArgument, "id {} has been pushed {} times, last in version {}",
               Unmix(candidate.mix), note.count, note.version);
  }
  Reserve(candidate.mix, note.version);
  Set(candidate.mix, note);
}

}  // namespace tkv
