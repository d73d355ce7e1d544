// tensorkv._core.Array, the base class of NDArray, and the operations on arrays.

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/format.h"
#include "bindings.h"
#include "gil.h"
#include "notices.h"
#include "raised.h"
#include "tkv/dlpack.h"
#include "tkv/gpu.h"
#include "tkv/ops.h"

namespace tkv::python {
namespace {

nb::handle array_class;  // the registered subclass; owned by the package that registered it

Shape ParseShape(const std::vector<int64_t>& dims) { return Shape(std::span<const int64_t>(dims)); }

Context ParseContext(const std::string& kind, int index) {
  if (kind != "cpu" && kind != "gpu") {
    throw Fail(Code::kInvalidArgument, "context: device type '{}'; cpu and gpu are possible", kind);
  }
  return kind == "cpu" ? Context::Cpu(index) : Context::Gpu(index);
}

nb::tuple ToTuple(const Shape& shape) {
  nb::list dims;
  for (int64_t dim : shape) dims.append(dim);
  return nb::tuple(dims);
}

// The capsule frees the tensor unless a consumer has renamed it.
template <typename Managed>
nb::object Capsule(Managed* managed, const char* name, PyCapsule_Destructor destructor) {
  nb::object capsule = nb::steal(PyCapsule_New(managed, name, destructor));
  if (!capsule.is_valid()) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return capsule;
}

template <typename Managed>
void FreeUnused(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

// Runs an action that may wait for an operation without the interpreter's lock.  Another thread of
// the program may have to act before the operation can end.
auto Released(const auto& action) {
  const Unlocked unlocked;
  return action();
}

nb::object VersionedCapsule(DLManagedTensorVersioned* managed) {
  return Capsule(managed, "dltensor_versioned", [](PyObject* capsule) {
    FreeUnused<DLManagedTensorVersioned>(capsule, "dltensor_versioned");
  });
}

nb::object ExportCapsule(const NDArray& array, bool versioned, int64_t stream) {
  if (versioned)
    return VersionedCapsule(Released([&] { return ToDLPackVersioned(array, stream); }));
  return Capsule(Released([&] { return ToDLPack(array, stream); }), "dltensor",
                 [](PyObject* capsule) { FreeUnused<DLManagedTensor>(capsule, "dltensor"); });
}

// An object for numpy.from_dlpack.  NumPy's DLPack lacks bfloat16 and 8-bit floats, so their bits
// are passed as integers.
struct Lent {
  NDArray array;
  Access access;
};

enum class ViewFor { kReading, kWriting, kSharing };

// Returns a NumPy view of the memory.  For reading and writing, only the caller may use the view,
// and must drop it before any other use of the array.  For sharing, anybody may keep the view.  For
// reading from a GPU, the view is of a copy on the host.
nb::object NumpyView(const NDArray& array, ViewFor purpose) {
  if (purpose == ViewFor::kReading && array.context().kind == DeviceKind::kGpu) {
    return NumpyView(Released([&] { return array.WithContext(Context::Cpu()); }), purpose);
  }
  if (purpose == ViewFor::kSharing) {
    const Access access = array.read_only() ? Access::kRead : Access::kWrite;
    Released([&] { array.storage()->MarkForeign(access); });
  }
  if (purpose == ViewFor::kWriting) CheckWritable(array, "assignment", "array");
  const Access access = purpose == ViewFor::kReading ? Access::kRead : Access::kWrite;
  return nb::module_::import_("numpy").attr("from_dlpack")(nb::cast(Lent{array, access}));
}

nb::object LentCapsule(const Lent& lent) {
  DLManagedTensorVersioned* const managed =
      Released([&] { return LendByDLPack(lent.array, lent.access); });
  const DType dtype = lent.array.dtype();
  if (dtype == DType::kBF16) managed->dl_tensor.dtype = {kDLInt, 16, 1};
  if (dtype == DType::kF8E4M3FN || dtype == DType::kF8E5M2) {
    managed->dl_tensor.dtype = {kDLInt, 8, 1};
  }
  return VersionedCapsule(managed);
}

BinaryOp BinaryOpOf(int op) {
  if (op < 0 || op >= kBinaryOps)
    throw Fail(Code::kInvalidArgument, "arithmetic: operation {}", op);
  return static_cast<BinaryOp>(op);
}

UnaryOp UnaryOpOf(int op) {
  if (op < 0 || op >= kUnaryOps) throw Fail(Code::kInvalidArgument, "arithmetic: operation {}", op);
  return static_cast<UnaryOp>(op);
}

// Returns the numbers of the operations by name, for Python.
template <typename AnyOp>
nb::dict NumbersByName(int count) {
  nb::dict numbers;
  for (int i = 0; i < count; ++i) {
    numbers[nb::cast(std::string(Name(static_cast<AnyOp>(i))))] = i;
  }
  return numbers;
}

// Returns true if the scalar must stay an integer: the array is int64, and a double may not hold
// every value.
bool IsInteger(nb::handle scalar, DType dtype) {
  return dtype == DType::kI64 && PyLong_Check(scalar.ptr());
}

int64_t IntegerOf(nb::handle scalar) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(scalar.ptr(), &overflow);
  if (overflow == 0) return value;
  throw Fail(Code::kInvalidArgument, "scalar {}: an integer array of 8 bytes cannot hold it",
             TextOf(scalar));
}

double NumberOf(nb::handle scalar) {
  const double value = PyFloat_AsDouble(scalar.ptr());
  if (value != -1.0 || PyErr_Occurred() == nullptr) return value;
  ClearError();
  throw Fail(Code::kInvalidArgument, "a scalar of type {} that no double can hold",
             TextOf(scalar.type()));
}

// Returns the scalar as an array filled with its value, if a double cannot hold it.
std::optional<NDArray> Spread(nb::handle scalar, const NDArray& like) {
  if (!IsInteger(scalar, like.dtype())) return std::nullopt;
  const int64_t value = IntegerOf(scalar);
  if (static_cast<long double>(static_cast<double>(value)) == static_cast<long double>(value)) {
    return std::nullopt;
  }
  return Released([&] {
    NDArray array = NDArray::Empty(like.shape(), like.dtype(), like.context());
    FillInteger(array, value);
    return array;
  });
}

nb::object BinaryOf(nb::handle type, int op, nb::handle a, nb::handle b) {
  NDArray result;
  const BinaryOp binary = BinaryOpOf(op);
  if (!nb::isinstance<NDArray>(a)) {
    if (const auto spread = Spread(a, AsArray(b))) return BinaryOf(type, op, nb::cast(*spread), b);
    const double scalar = NumberOf(a);
    Released([&, &right = AsArray(b)] { result = Binary(binary, scalar, right); });
  } else if (!nb::isinstance<NDArray>(b)) {
    if (const auto spread = Spread(b, AsArray(a))) return BinaryOf(type, op, a, nb::cast(*spread));
    const double scalar = NumberOf(b);
    Released([&, &left = AsArray(a)] { result = Binary(binary, left, scalar); });
  } else {
    Released(
        [&, &left = AsArray(a), &right = AsArray(b)] { result = Binary(binary, left, right); });
  }
  return ToPython(result, type);
}

void BinaryIntoOf(int op, const NDArray& a, nb::handle b, const NDArray& out) {
  const BinaryOp binary = BinaryOpOf(op);
  if (nb::isinstance<NDArray>(b)) {
    Released([&, &right = AsArray(b)] { BinaryInto(binary, a, right, out); });
  } else if (const auto spread = Spread(b, a)) {
    Released([&] { BinaryInto(binary, a, *spread, out); });
  } else {
    const double scalar = NumberOf(b);
    Released([&] { BinaryInto(binary, a, scalar, out); });
  }
}

}  // namespace

DType ParseDType(const std::string& name) {
  const auto dtype = DTypeFromName(name);
  if (!dtype) {
    throw Fail(Code::kInvalidArgument,
               "dtype '{}' is not supported; float16/32/64, bfloat16, float8_e4m3fn, float8_e5m2, "
               "int8/16/32/64, uint8/16/32/64, complex64 and bool are",
               name);
  }
  return *dtype;
}

NDArray& AsArray(nb::handle object) {
  if (!nb::isinstance<NDArray>(object)) throw Fail(Code::kInvalidArgument, "an NDArray is needed");
  if (!nb::inst_ready(object)) {
    throw Fail(Code::kInvalidArgument,
               "an NDArray that was never made; use tkv.nd.array() and others");
  }
  return *nb::inst_ptr<NDArray>(object);
}

nb::object ToPython(const NDArray& array, nb::handle type) {
  const nb::handle base = nb::type<NDArray>();
  if (PyType_Check(type.ptr()) == 0 ||
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()),
                       reinterpret_cast<PyTypeObject*>(base.ptr())) == 0) {
    throw Fail(Code::kInvalidArgument, "a subclass of NDArray is needed");
  }
  nb::object instance = nb::inst_alloc(type);
  new (nb::inst_ptr<NDArray>(instance)) NDArray(array);
  nb::inst_mark_ready(instance);
  return instance;
}

nb::object ToPython(const NDArray& array) {
  return ToPython(array, array_class.is_valid() ? array_class : nb::type<NDArray>());
}

void BindArray(nb::module_& m) {
  SetGpuInterrupt(CheckSignals);
  nb::class_<NDArray>(m, "Array",
                      "A dense tensor: a handle on shared memory. Use tensorkv.ndarray.NDArray.")
      .def_prop_ro(
          "shape", [](const NDArray& a) { return ToTuple(a.shape()); }, "Extents, a tuple of int.")
      .def_prop_ro("size", &NDArray::size, "Number of elements.")
      .def_prop_ro(
          "ndim", [](const NDArray& a) { return a.shape().rank(); }, "Number of dimensions.")
      .def_prop_ro("nbytes", &NDArray::bytes, "Bytes of all elements.")
      .def_prop_ro(
          "dtype_name", [](const NDArray& a) { return std::string(Name(a.dtype())); },
          "Element type by NumPy's name.")
      .def_prop_ro("_context",
                   [](const NDArray& a) {
                     return std::tuple(
                         std::string(a.context().kind == DeviceKind::kCpu ? "cpu" : "gpu"),
                         a.context().index);
                   })
      .def_prop_ro(
          "data_ptr",
          [](const NDArray& a) {
            void* const address = a.data();
            Released([&] { a.storage()->MarkForeign(Access::kWrite); });
            return reinterpret_cast<uintptr_t>(address);
          },
          "Address of the first element; waits until the memory may be written.")
      .def_prop_ro("read_only", &NDArray::read_only,
                   "Whether operations refuse to write into the array.")
      .def_prop_ro("contiguous", &NDArray::contiguous,
                   "Whether the elements lie in C order without holes.")
      .def(
          "_slice",
          [](nb::handle self, int64_t begin, int64_t end) {
            return ToPython(AsArray(self).Slice(begin, end), self.type());
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "_at",
          [](nb::handle self, int64_t index) {
            return ToPython(AsArray(self).At(index), self.type());
          },
          nb::arg("index"))
      .def(
          "_reshape",
          [](nb::handle self, const std::vector<int64_t>& dims) {
            const Shape shape = ParseShape(dims);
            return ToPython(
                Released([&, &array = AsArray(self)] { return array.Packed().Reshape(shape); }),
                self.type());
          },
          nb::arg("shape"))
      .def("_copy",
           [](nb::handle self) {
             return ToPython(Released([&array = AsArray(self)] { return array.Copy(); }),
                             self.type());
           })
      .def(
          "_with_context",
          [](nb::handle self, const std::string& kind, int index) {
            const Context context = ParseContext(kind, index);
            return ToPython(
                Released([&, &array = AsArray(self)] { return array.WithContext(context); }),
                self.type());
          },
          nb::arg("kind"), nb::arg("index"))
      .def(
          "_as", [](nb::handle self, nb::handle type) { return ToPython(AsArray(self), type); },
          nb::arg("type"))
      .def(
          "_assign",
          [](const NDArray& self, const NDArray& source) {
            Released([&] { self.CopyFrom(source); });
          },
          nb::arg("source"))
      .def(
          "_fill",
          [](const NDArray& self, nb::handle value) {
            if (IsInteger(value, self.dtype())) {
              Released([&, integer = IntegerOf(value)] { FillInteger(self, integer); });
            } else {
              Released([&, number = NumberOf(value)] { Fill(self, number); });
            }
          },
          nb::arg("value"))
      .def("_numpy_for_reading",
           [](const NDArray& self) { return NumpyView(self, ViewFor::kReading); })
      .def("_numpy_for_writing",
           [](const NDArray& self) { return NumpyView(self, ViewFor::kWriting); })
      .def("_numpy_for_sharing",
           [](const NDArray& self) { return NumpyView(self, ViewFor::kSharing); })
      .def(
          "_check_writable",
          [](const NDArray& self, const std::string& verb, const std::string& name) {
            CheckWritable(self, verb, name);
          },
          nb::arg("verb"), nb::arg("name"),
          "Raises if nothing may be written; the message begins with `verb` and calls the array by "
          "`name`.")
      .def("_wait_to_read",
           [](const NDArray& self) { Released([&] { self.storage()->WaitReadable(); }); })
      .def(
          "_is_readable",
          [](const NDArray& self) { return !self.storage()->IsInUse(Access::kRead); },
          "Returns false if reading would wait for an operation.")
      .def("_capsule", &ExportCapsule, nb::arg("versioned"), nb::arg("stream"));

  nb::class_<Lent>(m, "_Lent", "Memory that NumPy is about to look at.")
      .def("__dlpack__", [](const Lent& self, const nb::kwargs&) { return LentCapsule(self); })
      .def("__dlpack_device__", [](const Lent&) { return std::tuple(1, 0); });
  m.def("_num_gpus", &GpuCount);
  m.def(
      "_gpu_memory",
      [](int index) {
        const GpuMemory memory = GpuMemoryOf(index);
        return std::tuple(memory.free_bytes, memory.total_bytes);
      },
      nb::arg("index"));
  m.def("_wait_all", [] { Released([] { WaitAll(); }); });
  m.def("_register_array_class", [](nb::handle type) { array_class = type; }, nb::arg("type"));
  m.def(
      "_empty",
      [](nb::handle type, const std::vector<int64_t>& dims, const std::string& dtype,
         const std::string& kind, int index) {
        const Shape shape = ParseShape(dims);
        const DType parsed = ParseDType(dtype);
        const Context context = ParseContext(kind, index);
        if (context.kind == DeviceKind::kCpu) {
          return ToPython(NDArray::Empty(shape, parsed, context), type);
        }
        return ToPython(Released([&] { return NDArray::Empty(shape, parsed, context); }), type);
      },
      nb::arg("type"), nb::arg("shape"), nb::arg("dtype"), nb::arg("kind"), nb::arg("index"));
  m.def(
      "_view_of",
      [](nb::handle type, nb::handle object, bool writable) {
        if (nb::isinstance<NDArray>(object)) return ToPython(AsArray(object), type);
        DLPackLoans loans;
        const NDArray array = ImportForeign(object, writable ? Use::kWrite : Use::kRead,
                                            Life::kLong, std::make_shared<Keeper>(object), &loans);
        loans.End();
        return ToPython(array, type);
      },
      nb::arg("type"), nb::arg("object").none(), nb::arg("writable"));
  m.attr("_BINARY_OPS") = NumbersByName<BinaryOp>(kBinaryOps);
  m.attr("_UNARY_OPS") = NumbersByName<UnaryOp>(kUnaryOps);
  m.def("_binary", &BinaryOf, nb::arg("type"), nb::arg("op"), nb::arg("a"), nb::arg("b"));
  m.def("_binary_into", &BinaryIntoOf, nb::arg("op"), nb::arg("a"), nb::arg("b"), nb::arg("out"));
  m.def(
      "_unary",
      [](nb::handle type, int op, const NDArray& a) {
        NDArray result;
        Released([&, unary = UnaryOpOf(op)] { result = Unary(unary, a); });
        return ToPython(result, type);
      },
      nb::arg("type"), nb::arg("op"), nb::arg("a"));
  m.def(
      "_convert_float",
      [](nb::handle type, const NDArray& a, const std::string& dtype) {
        NDArray result;
        Released([&, wanted = ParseDType(dtype)] { result = ConvertFloat(a, wanted); });
        return ToPython(result, type);
      },
      nb::arg("type"), nb::arg("a"), nb::arg("dtype"));
  m.def(
      "_digests",
      [](const nb::list& arrays) {
        std::vector<NDArray> imported;
        imported.reserve(arrays.size());
        const auto keeper = std::make_shared<Keeper>(arrays);
        DLPackLoans loans;
        for (const nb::handle array : arrays) {
          imported.push_back(ImportForeign(array, Use::kRead, Life::kCall, keeper, &loans));
        }
        loans.End();
        std::vector<uint64_t> digests(imported.size());
        Released(
            [&] { std::transform(imported.begin(), imported.end(), digests.begin(), Digest); });
        return digests;
      },
      nb::arg("arrays"));
}

}  // namespace tkv::python
