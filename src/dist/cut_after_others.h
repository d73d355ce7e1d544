// Cuts of a worker that wait for those of other workers: servers keep the versions of one worker at a
// time.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "base/duration.h"
#include "base/wait.h"
#include "tkv/error.h"
#include "wire/message.h"

namespace tkv {

// Returns the result of `cut`, which is called again while a save or export of another worker is in
// its way.  A failed call of `cut` must release the versions that some servers may keep.
//   interrupt  called about every 50 ms; its exception ends the wait
//   blocks     at most the patience, besides the calls
//   throws     errors of `cut`; after the patience the last one that ends with kIsSaving
template <typename Cut>
auto CutAfterOthers(std::chrono::nanoseconds patience, const std::function<void()>& interrupt,
                    Cut cut) {
  std::optional<decltype(cut())> made;
  std::optional<Error> busy;
  const auto is_made = [&] {
    if (made) return true;
    try {
      made = cut();
    } catch (const Error& error) {
      if (!std::string_view(error.what()).ends_with(kIsSaving)) throw;
      busy = error;
    }
    return made.has_value();
  };
  const auto rest = [](std::chrono::nanoseconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  if (!WaitUntil(nullptr, DeadlineAfter(patience), interrupt, is_made, rest)) throw Error(*busy);
  return *made;
}

}  // namespace tkv
