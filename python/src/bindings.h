// Declarations that the files of the extension share.

#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/dlpack.h"
#include "tkv/kvstore.h"
#include "tkv/optimizer.h"

namespace tkv::python {

namespace nb = nanobind;

// Python's object for an optimizer.  Stores hold the optimizer itself and no Python object.
struct PyOptimizer {
  std::shared_ptr<Optimizer> core;
};

// Each function adds its part to the module.
void BindErrors(nb::module_& m);
void BindArray(nb::module_& m);
void BindUpdate(nb::module_& m);
void BindTicket(nb::module_& m);
void BindStore(nb::module_& m);
void BindTesting(nb::module_& m);
void BindJob(nb::module_& m);
void BindReferences(nb::module_& m);

// The functions that a store calls from its threads, and the rendezvous if the bootstrap is an
// object.
struct StoreHooks {
  std::function<void()> interrupt;
  std::function<void(int level, const std::string& text)> log;
  std::shared_ptr<Rendezvous> rendezvous;
};
StoreHooks HooksOf(nb::handle bootstrap);

// Parses the keyword options of create() for a store of that type.  An unknown option is a
// TypeError.  An option without effect on such a store is an InvalidArgumentError.
StoreOptions ParseOptions(const nb::dict& given, const std::string& type);
void BindOptions(nb::module_& m);

// Wraps an array in the registered Python class, tensorkv.ndarray.NDArray.  The package registers
// it when it is imported.
nb::object ToPython(const NDArray& array);
// Wraps an array in `type`, a subclass.
nb::object ToPython(const NDArray& array, nb::handle type);

// Parses a key: an int, a NumPy integer or a str.  The view borrows the text of `key`.
//   throws  kInvalidArgument  another type, bool, an integer beyond 64 bits
KeyView ParseKey(nb::handle key);
nb::object ToPython(const KeyView& key);

//   throws  kInvalidArgument  no dtype has that name; the message lists the dtypes
DType ParseDType(const std::string& name);

// The purpose of a foreign array.
enum class Use { kRead, kWrite };
// The lifetime of an import. kCall: one call, after which the framework continues on its current
// stream. kLong: until the array is dropped; the framework may use any stream then.
enum class Life { kCall, kLong };

// Returns a view of an object that supports DLPack or the buffer protocol.  Never copies. `keeper`
// keeps the object alive as long as the view exists.
//   throws  kInvalidArgument  another object, or (kWrite) one that must not be written: a JAX
//           array, a tensor that requires grad, a conjugate or negative view
//           kFailedPrecondition  (an array on a GPU) its framework captures a CUDA graph
//           and as FromDLPack
//   loans   the caller ends them before the array is used
NDArray ImportForeign(nb::handle object, Use use, Life life,
                      const std::shared_ptr<const void>& keeper, DLPackLoans* loans);

// Returns true for a PyTorch tensor.
bool IsTorch(nb::handle object);

// Returns true for a jax.Array, which is immutable.
bool IsJax(nb::handle object);

//   throws  kInvalidArgument  not an NDArray, or one whose __init__ did not run
NDArray& AsArray(nb::handle object);

}  // namespace tkv::python
