// What NumPy's C API says of an array, without a call.

#pragma once

#include <memory>
#include <optional>

#include "bindings.h"

namespace tkv::python {

// A view of an array of NumPy.  `object` is an instance of numpy.ndarray, which `keeper` keeps alive.
//   returns  nothing where the array has another dtype, byte order or alignment than ours
std::optional<NDArray> FromNumpy(nb::handle object, std::shared_ptr<const void> keeper);

}  // namespace tkv::python
