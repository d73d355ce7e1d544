// The extension module tensorkv._core: conversions only, no logic.

#include <nanobind/stl/string.h>

#include "bindings.h"
#include "tkv/config.h"

namespace tkv::python {

NB_MODULE(_core, m) {
  m.doc() = "Bindings of the TensorKV core; use the package tensorkv.";
  BindErrors(m);
  BindArray(m);
  BindUpdate(m);
  BindTicket(m);
  BindStore(m);
  BindTesting(m);
  BindJob(m);
  BindOptions(m);
  BindReferences(m);
  // A user's program may still hold objects at exit, for example through JAX's table of classes.
  // Such a leak is no fault of the bindings.
  nb::set_leak_warnings(false);
  m.def("_warn_of_leaks", &nb::set_leak_warnings, nb::arg("warn"), "For tests of the bindings.");
  m.def("version", [] { return std::string(Version()); });
  m.def("config", &ConfigText);
  // An empty call, whose cost the benchmarks measure.
  m.def("_empty_call", [](nb::handle, nb::handle) {}, nb::arg("key"), nb::arg("value"));
}

}  // namespace tkv::python
