// What the files that bind verbs of a store share.

#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "bindings.h"
#include "gil.h"
#include "ticket.h"

namespace tkv::python {

struct Store {
  explicit Store(std::unique_ptr<KVStore> made) : core(std::move(made)) {}
  // A store of several workers takes its leave, which waits for servers.
  ~Store() {
    const Unlocked unlocked;
    core.reset();
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::unique_ptr<KVStore> core;
  // Of its updaters, for the collector; empty where the updater is no more.  Guarded by the GIL.
  std::vector<std::shared_ptr<nb::object>> functions = {};
};

// Verbs of rows.
void BindRows(nb::class_<Store>& store);

// What a signal's handler has raised on this thread while steps of an updater were undone.  Taken once.
std::exception_ptr TakeRaised() noexcept;

// Makes a call that may run steps of an updater, without the GIL.
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
//   tensors  of PyTorch that it writes to, a list, or nothing
template <typename Start>
nb::object Started(Start start, nb::object tensors = {}) {
  Ticket ticket;
  WithSteps([&] { ticket = start(); });
  return ToPython(std::move(ticket), std::move(tensors));
}

}  // namespace tkv::python
