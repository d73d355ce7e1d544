// What the files of the extension share.

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

// What Python holds of an optimizer; stores hold the optimizer itself, and nothing of Python's.
struct PyOptimizer {
  std::shared_ptr<Optimizer> core;
};

// Each adds its part to the module.
void BindErrors(nb::module_& m);
void BindArray(nb::module_& m);
void BindUpdate(nb::module_& m);
void BindTicket(nb::module_& m);
void BindStore(nb::module_& m);
void BindTesting(nb::module_& m);
void BindJob(nb::module_& m);

// What a store calls from its threads, and a bootstrap that is an object.
struct StoreHooks {
  std::function<void()> interrupt;
  std::function<void(int level, const std::string& text)> log;
  std::shared_ptr<Rendezvous> rendezvous;
};
StoreHooks HooksOf(nb::handle bootstrap);

// The options of a store of that type, by their names in create(); one that is not in the table is a
// TypeError, one that has no effect on such a store an InvalidArgumentError.
StoreOptions ParseOptions(const nb::dict& given, const std::string& type);
void BindOptions(nb::module_& m);

// The Python class that arrays made here get: tensorkv.ndarray.NDArray, registered when the package
// is imported.
nb::object ToPython(const NDArray& array);
// The same as an instance of `type`, a subclass.
nb::object ToPython(const NDArray& array, nb::handle type);

// int and NumPy integers, or str.  The view borrows the text of `key`.
//   throws  kInvalidArgument  another type, bool, an integer beyond 64 bits
KeyView ParseKey(nb::handle key);
nb::object ToPython(const KeyView& key);

//   throws  kInvalidArgument  no dtype has that name; there are those that it lists
DType ParseDType(const std::string& name);

// What a foreign array is wanted for.
enum class Use { kRead, kWrite };
// How long: within one call, after which its framework goes on on its current stream, or until somebody
// drops it, on whatever stream that framework works then.
enum class Life { kCall, kLong };

// A view of any object that speaks DLPack or the buffer protocol, never a copy.
//   throws  kInvalidArgument  no such object, or (kWrite) one that must not be written: a JAX
//                             array, a tensor that requires grad, a conjugate or negative view
//           kFailedPrecondition  (an array on a GPU) its framework captures a CUDA graph
//           and as FromDLPack
// `keeper` keeps the object alive as long as it lives.
//   loans  end before the array is used
NDArray ImportForeign(nb::handle object, Use use, Life life,
                      const std::shared_ptr<const void>& keeper, DLPackLoans* loans);

// Returns true of a tensor of PyTorch.
bool IsTorch(nb::handle object);

// Whether `object` is a jax.Array, which nothing may write into.
bool IsJax(nb::handle object);

//   throws  kInvalidArgument  no NDArray, or one that was never made
NDArray& AsArray(nb::handle object);

}  // namespace tkv::python
