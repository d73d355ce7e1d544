// Translates a tkv::Error to the exception class of tensorkv.errors with the same code, which is an
// OSError, too, where a call on a file has failed.

#include <exception>
#include <new>

#include "bindings.h"
#include "tkv/error.h"

namespace tkv::python {

void BindErrors(nb::module_& m) {
  m.def("_error_codes", [] {
    nb::dict codes;
    for (int code = 1; code <= 16; ++code) {
      const std::string_view name = Name(static_cast<Code>(code));
      if (name != "Unknown") codes[nb::str(name.data(), name.size())] = code;
    }
    return codes;
  });
  m.def("_code_of_system_error",
        [](int error) { return static_cast<int>(CodeOfSystemError(error)); });
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    const auto raise = [](const Error& error) {
      nb::object errors = nb::module_::import_("tensorkv.errors");
      const int code = static_cast<int>(error.code());
      // A name given as bytes may not be UTF-8: invalid bytes are replaced, so that decoding never
      // fails.
      const std::string_view text = error.what();
      nb::object message = nb::steal(
          PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
      if (error.system_error() != 0) {
        nb::object made = errors.attr("_file_error")(code, error.system_error(), message);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
        return;
      }
      nb::object type = errors.attr("_BY_CODE")[nb::int_(code)];
      PyErr_SetObject(type.ptr(), message.ptr());
    };
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error);
    } catch (const std::bad_alloc&) {
      raise(Error(Code::kResourceExhausted, "the system has no memory for a call of tensorkv"));
    }
  });
}

}  // namespace tkv::python
