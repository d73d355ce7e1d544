// A store of the user's, in Python, by which processes find each other.

#pragma once

#include "bindings.h"

namespace tkv::python {

// Of an object with set(key, value), get(key) and wait([key], timeout).
//   throws  kInvalidArgument  an object that lacks one of them
std::shared_ptr<Rendezvous> RendezvousOf(nb::handle store);

}  // namespace tkv::python
