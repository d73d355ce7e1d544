// A push of a store of one process that assigns thousands of small keys.

#pragma once

#include "store/push_input.h"

namespace tkv {

// An assignment of so many small keys that a list of their jobs would leave the cache before the
// jobs run.  Each job is described just before it runs.
//
// The phases are called in the order of their declaration, each once.
class SmallAssigns final {
 public:
  // Returns true if a push without an optimizer has many small keys, with few values each.
  static bool Suit(const PushInput& input);

  //   input  must outlive the assignment
  explicit SmallAssigns(const PushInput& input) : input_(input) {}

  //   throws  kInvalidArgument  values that cannot be summed
  void Prepare() const;
  void Enter() const {}
  //   throws  std::bad_alloc; nothing has changed
  void Run() const;
  void Commit() const {}

 private:
  const PushInput& input_;
};

}  // namespace tkv
