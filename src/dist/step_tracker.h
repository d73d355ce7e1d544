// Finds the pushes that begin a step of a training script.

#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>

namespace tkv {

struct KeyRecord;

// The pushes of a worker in the step under way.  Pushes of an optimizer have the number of its
// step, and other pushes have none.  Several optimizers may take part in each step, or take turns.
class StepTracker {
 public:
  // Notes a push with a number.
  //   returns  true if it begins a step: no push has had this number or a larger one, or its
  //            optimizer, which counts its own steps, has made a step in the one under way
  bool PushNumbered(std::span<const KeyRecord* const> keys, uint32_t number);
  // Notes a push without a number that gives a key more pushes than any key has.
  //   returns  true if it begins a step
  bool PushPlain();
  // Returns true if the step under way has a push with a number.
  bool has_numbered() const { return has_numbered_; }
  // Continues after a push with this number.
  void ContinueAfter(uint32_t number);
  // Forgets the numbers, because the keys that had them may have been removed.
  void ForgetNumbers();
  // Forgets all pushes.
  void Reset() { *this = StepTracker(); }

 private:
  bool IsNextOfItsOptimizer(std::span<const KeyRecord* const> keys, uint32_t number) const;
  bool Begins(bool* has_mine, bool* has_other);

  // The largest number.  If an optimizer with smaller numbers takes over, its numbers count.
  uint32_t last_ = 0;
  // The step under way: its keys, each with the number of its push, and all of these numbers.
  std::unordered_map<const KeyRecord*, uint32_t> keys_;
  std::set<uint32_t> numbers_;
  // The step under way has pushes with a number, or pushes without one that PushPlain has noted.
  bool has_numbered_ = false;
  bool has_plain_ = false;
};

}  // namespace tkv
