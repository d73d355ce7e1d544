// When a store saves a snapshot by itself.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/effects.h"

namespace tkv {

class AutoSave {
 public:
  // Whether this says how often.
  static bool IsInterval(std::string_view every);

  // `every`: "100" rounds or "30s"; both texts empty: never.
  //   throws  kInvalidArgument  another text, or one without the other
  AutoSave(std::string folder, const std::string& every, Time now);

  bool is_on() const { return rounds_ > 0 || span_ > 0; }
  const std::string& folder() const { return folder_; }
  // Whether it is time, after so many rounds of this store.
  bool IsDue(uint64_t rounds, Time now) const {
    return (rounds_ > 0 && rounds >= last_rounds_ + rounds_) || (span_ > 0 && now >= last_ + span_);
  }
  void Begun(uint64_t rounds, Time now) {
    last_rounds_ = rounds;
    last_ = now;
  }

 private:
  std::string folder_;
  uint64_t rounds_ = 0;  // between two; 0: time counts
  Time span_ = 0;
  uint64_t last_rounds_ = 0;
  Time last_;
};

}  // namespace tkv
