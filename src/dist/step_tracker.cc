#include "dist/step_tracker.h"

#include <algorithm>
#include <utility>

namespace tkv {

// A script may push with and without numbers in a step, in any order: a step then ends before the
// next push of the kind that began it.
bool StepTracker::Begins(bool* has_mine, bool* has_other) {
  const bool begins = *has_mine || !*has_other;
  if (begins) *has_other = false;
  *has_mine = true;
  return begins;
}

// Returns true if one of the keys was pushed with a smaller number in the step under way, and no key
// with this number: another optimizer has begun that step, and this one has ended its part.
bool StepTracker::IsNextOfItsOptimizer(std::span<const KeyRecord* const> keys,
                                       uint32_t number) const {
  if (numbers_.contains(number)) return false;
  return std::ranges::any_of(keys, [&](const KeyRecord* key) {
    const auto pushed = keys_.find(key);
    return pushed != keys_.end() && pushed->second < number;
  });
}

bool StepTracker::PushNumbered(std::span<const KeyRecord* const> keys, uint32_t number) {
  const bool is_next = number > last_ || IsNextOfItsOptimizer(keys, number);
  if (is_next) {
    last_ = number;
    keys_.clear();
    numbers_.clear();
  }
  for (const KeyRecord* key : keys) keys_[key] = number;
  numbers_.insert(number);
  return is_next && Begins(&has_numbered_, &has_plain_);
}

bool StepTracker::PushPlain() { return Begins(&has_plain_, &has_numbered_); }

void StepTracker::ContinueAfter(uint32_t number) { last_ = std::max(last_, number); }

void StepTracker::ForgetNumbers() {
  last_ = 0;
  keys_.clear();
  numbers_.clear();
}

}  // namespace tkv
