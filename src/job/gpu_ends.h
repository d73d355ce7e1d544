// Ends calls after their copies to GPU memory of other frameworks, which cannot be made to wait for
// the copies.  The waiting is done on a thread that the first such call of the process starts.

#pragma once

#include <memory>
#include <string>

namespace tkv {

class Call;
class Event;

// Work on a GPU that has to end before its call does.
struct AwaitedWork {
  std::shared_ptr<Event> done;
  std::string of;  // the keys of the work, for errors
};

// Completes the call when all work that it awaits has ended.  After kHazardPatience the call fails
// instead.  Without a thread or memory for that, the calling thread waits.
void CompleteAfterGpus(const std::shared_ptr<Call>& call);

}  // namespace tkv
