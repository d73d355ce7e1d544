#include "raised.h"

namespace tkv::python {

bool LeavesCalls(const nb::python_error& error) {
  return !error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError) ||
         error.matches(PyExc_RecursionError);
}

void ClearError() {
  if (PyErr_Occurred() == nullptr) return;
  const nb::python_error error;
  if (LeavesCalls(error)) throw nb::python_error(error);
}

nb::object AttributeOf(nb::handle object, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (!found.is_valid()) ClearError();
  return found;
}

std::string TextOf(nb::handle object) {
  nb::object bytes = nb::steal(PyObject_Str(object.ptr()));
  if (bytes.is_valid()) {
    bytes = nb::steal(PyUnicode_AsEncodedString(bytes.ptr(), "utf-8", "backslashreplace"));
  }
  if (!bytes.is_valid()) {
    ClearError();
    return "<no text>";
  }
  return {PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr()))};
}

}  // namespace tkv::python
