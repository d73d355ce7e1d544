// Ends calls when copies to memory of others on GPUs have ended, where nobody can be told to wait for them: on a
// thread of its own, which the first such call of the process makes.

#pragma once

#include <memory>
#include <string>

namespace tkv {

class Call;
class Event;

// Work of a call that is to end before the call does.
struct AwaitedWork {
  std::shared_ptr<Event> done;
  std::string of;  // its keys, for errors
};

// Calls Complete when all that the call awaits has ended, or has not within kHazardPatience.
void CompleteAfterGpus(const std::shared_ptr<Call>& call);

}  // namespace tkv
