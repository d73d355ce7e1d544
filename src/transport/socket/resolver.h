// Looks up host names on separate threads, because the system's call may block for any time and
// cannot be cancelled.  Nothing waits for these threads, not even the resolver's destructor.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tkv {

struct LookedUp {
  std::vector<std::string> addresses;  // numeric, the best first
  std::string error;                   // the reason why there are none
};
using LookUp = std::function<LookedUp(const std::string& host)>;

// Looks up a host with the system's resolver.
//   blocks  as long as the system takes
LookedUp LookUpBySystem(const std::string& host);

// A resolver of host names.  Used by one thread.
class Resolver {
 public:
  struct Answer {
    uint64_t asker;
    LookedUp found;
  };

  // Calls `wake` on another thread when answers are ready, until the resolver ends.
  Resolver(LookUp look_up, std::function<void()> wake);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Starts a lookup on a thread of its own.  If one for the same host is running, shares its
  // answer.
  void Ask(uint64_t asker, const std::string& host);
  std::vector<Answer> TakeAnswers();

 private:
  struct State;
  const LookUp look_up_;
  const std::shared_ptr<State> state_;
};

}  // namespace tkv
