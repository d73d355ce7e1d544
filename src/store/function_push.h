// A push of a store of one process whose updater is a function of the user.

#pragma once

#include <vector>

#include "store/push_input.h"
#include "tkv/ndarray.h"

namespace tkv {

// A push that calls the user's function once for each key.
//
// The function works on copies, which replace the values after the last key.  The phases are called
// in the order of their declaration, each once.
class FunctionPush final {
 public:
  //   input  must outlive the push
  explicit FunctionPush(const PushInput& input);
  // Tells the user's function how the call has ended: as a failure unless Commit has returned.
  ~FunctionPush();
  FunctionPush(const FunctionPush&) = delete;
  FunctionPush& operator=(const FunctionPush&) = delete;

  // Do nothing: Run makes the sum of a key and enters its work on a GPU just before the function
  // gets it, so that only one sum needs memory.
  void Prepare() {}
  void Enter() {}
  // Sums the values of each key and calls the function with the sum and a copy of the value.
  //   throws  kResourceExhausted, the errors of GPUs, and those of the function; nothing changed
  void Run();
  // Replaces the values by the copies.
  void Commit();

 private:
  NDArray SumOf(size_t group) const;
  void CallFor(const Entry& entry, const NDArray& sum);

  const PushInput& input_;
  const int threads_;
  std::vector<NDArray> updated_;  // after Commit: the values before
  size_t returned_ = 0;           // number of calls of the function that have returned
  bool has_committed_ = false;
};

}  // namespace tkv
