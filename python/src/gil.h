// Leaving and taking the GIL.
//
// Until Python 3.14 a thread that wants the GIL while the interpreter is being finalised is ended by
// unwinding its stack.  Frames of C++ that must not throw would abort the process on the way, so the
// thread sleeps here instead until the process has ended.

#pragma once

#include <unistd.h>

#include "bindings.h"

namespace tkv::python {

template <typename Take>
auto TakeOrSleep(Take take) {
  try {
    return take();
  } catch (...) {  // the unwinding: it has to be stopped, and must not be gone on with
    for (;;) pause();
  }
}

// Gives the GIL away until the end of the scope.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    TakeOrSleep([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

// Takes the GIL until the end of the scope, on a thread that may have it or not.
class Locked {
 public:
  Locked() : state_(TakeOrSleep([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Keeps an object alive; whoever drops it last lets the object go, on any thread.
class Keeper {
 public:
  explicit Keeper(nb::handle object) : object_(object.ptr()) { Py_INCREF(object_); }
  ~Keeper() {
    if (Py_IsInitialized() == 0) return;  // the object goes with the process
    const Locked locked;
    Py_DECREF(object_);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  PyObject* const object_;
};

}  // namespace tkv::python
