// Declarations that the files with the verbs of a store share.

#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "bindings.h"
#include "gil.h"
#include "ticket.h"

namespace tkv::python {

// Returns true if the calling thread is leaving frames by an exception with which a program fails.
bool IsFailing() noexcept;

struct Store {
  explicit Store(std::unique_ptr<KVStore> made) : core(std::move(made)) {}
  // Closes the store.  A distributed store leaves its job, which waits for servers.  If an exception
  // drops the store, as the first one of `[create(...), create(...)]`, the program fails instead.
  ~Store() { End(std::move(core), IsFailing()); }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::unique_ptr<KVStore> core;
  // Functions of the store's updaters, for the garbage collector; an empty object after an updater
  // is gone.  Guarded by the GIL.
  std::vector<std::shared_ptr<nb::object>> functions = {};

 private:
  // Ends a store without the GIL.  Its errors are dropped: nobody could catch them.
  static void End(std::unique_ptr<KVStore> store, bool has_failed) noexcept;
};

// Adds the verbs for rows.
void BindRows(nb::module_& m, nb::class_<Store>& store);

// Returns the exception of a signal handler that arrived on this thread while an updater's steps
// were being undone.  Returns it once.
std::exception_ptr TakeRaised() noexcept;

// Makes a call without the GIL; the call may run steps of an updater.
template <typename Call>
void WithSteps(Call call) {
  try {
    const Unlocked unlocked;
    call();
  } catch (...) {
    if (const std::exception_ptr raised = TakeRaised()) std::rethrow_exception(raised);
    throw;
  }
  if (const std::exception_ptr raised = TakeRaised()) std::rethrow_exception(raised);
}

// Starts an operation without the GIL.
//   tensors  PyTorch tensors that it writes to, a list, or invalid
template <typename Start>
nb::object Started(Start start, nb::object tensors = {}) {
  Ticket ticket;
  WithSteps([&] { ticket = start(); });
  return ToPython(std::move(ticket), std::move(tensors));
}

}  // namespace tkv::python
