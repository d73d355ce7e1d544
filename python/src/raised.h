// Errors that Python code raises in the midst of a call: hooks of the user's such as `__dlpack__` and `__index__`.
//
// Every function needs the GIL.

#pragma once

#include <string>

#include "bindings.h"

namespace tkv::python {

// Returns true for an error that leaves every call as it is: KeyboardInterrupt, SystemExit and all that is no Exception,
// MemoryError, and RecursionError.
bool LeavesCalls(const nb::python_error& error);

// Clears the error that Python has set, if any.
//   throws  that error, if it leaves calls
void ClearError();

// Returns an attribute, or an invalid object if `object` has none.
//   throws  an error that leaves calls; with others there is no attribute
nb::object AttributeOf(nb::handle object, const char* name);

// Returns str(object) in UTF-8, half characters as escapes, and "<no text>" if str() fails.
//   throws  an error that leaves calls
std::string TextOf(nb::handle object);

}  // namespace tkv::python
