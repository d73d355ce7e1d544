// Lets processes find each other by a key-value store that the user gives, such as torch's.

#pragma once

#include "bindings.h"

namespace tkv::python {

// Wraps a Python object with set(key, value), get(key) and wait([key], timeout).
//   throws  kInvalidArgument  the object lacks one of them
std::shared_ptr<Rendezvous> RendezvousOf(nb::handle store);

}  // namespace tkv::python
