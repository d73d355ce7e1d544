// Looks host names up on threads of their own, because the system's call may block for as long as
// it likes and cannot be cancelled.  Nobody waits for such a thread, its owner's end neither.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tkv {

struct LookedUp {
  std::vector<std::string> addresses;  // in digits, the best first
  std::string error;                   // why there are none
};
using LookUp = std::function<LookedUp(const std::string& host)>;

// Asks the system.
//   blocks  as long as the system likes
LookedUp LookUpBySystem(const std::string& host);

// Used by one thread.
class Resolver {
 public:
  struct Answer {
    uint64_t asker;
    LookedUp found;
  };

  // `wake` is called on another thread when there is something to take, until the resolver ends.
  Resolver(LookUp look_up, std::function<void()> wake);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // One thread for each host: whoever asks while one is at it shares its answer.
  void Ask(uint64_t asker, const std::string& host);
  std::vector<Answer> TakeAnswers();

 private:
  struct State;
  const LookUp look_up_;
  const std::shared_ptr<State> state_;
};

}  // namespace tkv
