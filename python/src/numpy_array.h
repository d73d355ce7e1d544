// Reads NumPy arrays by NumPy's C API, without calling Python.

#pragma once

#include <memory>
#include <optional>

#include "bindings.h"

namespace tkv::python {

// Returns a view of a NumPy array. `object` is an instance of numpy.ndarray, which `keeper` keeps
// alive.
//   returns  nullopt if the dtype, the byte order or the alignment is not supported
std::optional<NDArray> FromNumpy(nb::handle object, std::shared_ptr<const void> keeper);

}  // namespace tkv::python
