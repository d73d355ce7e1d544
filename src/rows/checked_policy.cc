#include "rows/checked_policy.h"

#include "base/format.h"
#include "rows/row_note.h"

namespace tkv {

RowPolicy CheckedPolicy(const RowPolicy& policy, DType dtype) {
  if (policy.admit_count == 0 || policy.admit_count > RowPolicy::kAdmitMax) {
    throw Fail(Code::kInvalidArgument,
               "rows are made by the push of number {}, from 1 to {} is possible",
               policy.admit_count, RowPolicy::kAdmitMax);
  }
  if (policy.age_max >> kVersionBits != 0) {
    throw Fail(Code::kInvalidArgument, "rows stay for {} versions, fewer than 2^48 are possible",
               policy.age_max);
  }
  if (policy.rows_max > 0 && policy.score == RowPolicy::Score::kNorm && !IsFloat(dtype)) {
    throw Fail(Code::kInvalidArgument, "rows of {} have no norm to be kept by", Name(dtype));
  }
  if (policy.rows_max > kRowsMax) {
    throw Fail(Code::kInvalidArgument, "at most {} rows stay, up to 2^63 are possible",
               policy.rows_max);
  }
  if (policy.memory_max > 0 && policy.rows_max > 0 && policy.score == RowPolicy::Score::kNorm) {
    throw Fail(
        Code::kInvalidArgument,
        "rows that stay by their norm are in memory: their number is bounded, memory cannot be");
  }
  if (policy.memory_max > kRowsMax) {
    throw Fail(Code::kInvalidArgument, "{} bytes of memory for rows, up to 2^63 are possible",
               policy.memory_max);
  }
  if (policy.replaces_all && policy.admit_count > 1) {
    throw Fail(Code::kInvalidArgument,
               "a push replaces all rows, so that each push of an id makes its row; that of number "
               "{} cannot be the first",
               policy.admit_count);
  }
  RowPolicy checked = policy;
  const bool needs_notes =
      policy.age_max > 0 || (policy.rows_max > 0 && policy.score != RowPolicy::Score::kNorm);
  checked.has_notes = policy.has_notes || needs_notes;
  return checked;
}

}  // namespace tkv
