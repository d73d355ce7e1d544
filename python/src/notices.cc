#include "notices.h"

#include "gil.h"
#include "rendezvous.h"
#include "ticket.h"

namespace tkv::python {

void Notices::Add(int level, const std::string& text) {
  std::lock_guard lock(mutex_);
  if (waiting_.size() < kMax) waiting_.emplace_back(level, text);
  for (const auto& [waker, id] : wakers_) waker->Add(id);
}

void Notices::Wake(Waker* waker, uint64_t id) {
  std::lock_guard lock(mutex_);
  wakers_.emplace_back(waker, id);
  if (!waiting_.empty()) waker->Add(id);
}

void Notices::Forget(Waker* waker) {
  std::lock_guard lock(mutex_);
  std::erase_if(wakers_, [waker](const auto& entry) { return entry.first == waker; });
}

bool Notices::any() {
  std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

std::vector<std::pair<int, std::string>> Notices::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

Notices& AllNotices() {
  static auto* const notices = new Notices;
  return *notices;
}

void CheckSignals() {
  CheckInterruption();
  const Locked locked;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (AllNotices().any()) nb::module_::import_("tensorkv._store.log").attr("tell_notices")();
}

StoreHooks HooksOf(nb::handle bootstrap) {
  StoreHooks hooks;
  hooks.interrupt = CheckSignals;
  hooks.log = [](int level, const std::string& text) { AllNotices().Add(level, text); };
  if (bootstrap.is_valid() && !bootstrap.is_none() && !nb::isinstance<nb::str>(bootstrap)) {
    hooks.rendezvous = RendezvousOf(bootstrap);
  }
  return hooks;
}

}  // namespace tkv::python
