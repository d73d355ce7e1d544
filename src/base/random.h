// Repeatable random numbers: the same seed gives the same numbers on every machine.

#pragma once

#include <cstdint>

namespace tkv {

// A generator of random numbers.
//   source  SplitMix64, Steele, Lea and Flood 2014
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    return Mix(state_);
  }
  // Returns a number from low to high, both included, each about equally likely.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }
  static uint64_t Mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace tkv
