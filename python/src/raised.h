// Errors raised by Python code within a call, such as the user's `__dlpack__` and `__index__`.
//
// Every function needs the GIL.

#pragma once

#include <string>

#include "bindings.h"

namespace tkv::python {

// Returns true for an error that must pass through every call unchanged: MemoryError,
// RecursionError, and every exception that is no Exception, such as KeyboardInterrupt and
// SystemExit.
bool LeavesCalls(const nb::python_error& error);

// Clears Python's current error, if any.
//   throws  the error, if it leaves calls
void ClearError();

// Returns an attribute, or an invalid object if `object` has none.
//   throws  an error that leaves calls; any other error counts as no attribute
nb::object AttributeOf(nb::handle object, const char* name);

// Returns str(object) in UTF-8 with unpaired surrogates escaped, or "<no text>" if str() fails.
//   throws  an error that leaves calls
std::string TextOf(nb::handle object);

}  // namespace tkv::python
