// Releases and takes the GIL.
//
// Until Python 3.14, a thread that requests the GIL during the interpreter's finalisation is ended
// by unwinding its stack.  This aborts the process if a noexcept C++ frame is on the stack.  The
// thread therefore sleeps here until the process ends.

#pragma once

#include <unistd.h>

#include "bindings.h"

namespace tkv::python {

template <typename Take>
auto TakeOrSleep(Take take) {
  try {
    return take();
  } catch (...) {  // the unwinding must stop here and cannot be resumed normally
    for (;;) pause();
  }
}

// Releases the GIL until the end of the scope.
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

// Takes the GIL until the end of the scope, whether or not the thread has it already.
class Locked {
 public:
  Locked() : state_(TakeOrSleep([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Keeps an object alive.  The destructor may run on any thread.
class Keeper {
 public:
  explicit Keeper(nb::handle object) : object_(object.ptr()) { Py_INCREF(object_); }
  ~Keeper() {
    if (Py_IsInitialized() == 0) return;  // the process ends; the object is left alone
    const Locked locked;
    Py_DECREF(object_);
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  PyObject* const object_;
};

}  // namespace tkv::python
