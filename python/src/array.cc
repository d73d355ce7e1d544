// tensorkv._core.Array, the base class of NDArray, and the operations on arrays.

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/format.h"
#include "bindings.h"
#include "tkv/dlpack.h"
#include "tkv/ops.h"

namespace tkv::python {
namespace {

nb::handle array_class;  // the registered subclass; owned by the package that registered it

DType ParseDType(const std::string& name) {
  const auto dtype = DTypeFromName(name);
  if (!dtype) {
    throw Fail(
        Code::kInvalidArgument,
        "dtype '{}' is not supported; float16/32/64, bfloat16, int8/16/32/64, uint8 and bool are",
        name);
  }
  return *dtype;
}

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

nb::object ExportCapsule(const NDArray& array, bool versioned) {
  if (versioned) {
    return Capsule(ToDLPackVersioned(array), "dltensor_versioned", [](PyObject* capsule) {
      FreeUnused<DLManagedTensorVersioned>(capsule, "dltensor_versioned");
    });
  }
  return Capsule(ToDLPack(array), "dltensor",
                 [](PyObject* capsule) { FreeUnused<DLManagedTensor>(capsule, "dltensor"); });
}

bool Released(const auto& action) {
  nb::gil_scoped_release unlocked;
  action();
  return true;
}

nb::object BinaryOf(nb::handle type, int op, nb::handle a, nb::handle b) {
  NDArray result;
  const auto binary = static_cast<BinaryOp>(op);
  if (!nb::isinstance<NDArray>(a)) {
    const double scalar = nb::cast<double>(a);
    Released([&, &right = AsArray(b)] { result = Binary(binary, scalar, right); });
  } else if (!nb::isinstance<NDArray>(b)) {
    const double scalar = nb::cast<double>(b);
    Released([&, &left = AsArray(a)] { result = Binary(binary, left, scalar); });
  } else {
    Released(
        [&, &left = AsArray(a), &right = AsArray(b)] { result = Binary(binary, left, right); });
  }
  return ToPython(result, type);
}

void BinaryIntoOf(int op, const NDArray& a, nb::handle b, const NDArray& out) {
  const auto binary = static_cast<BinaryOp>(op);
  if (nb::isinstance<NDArray>(b)) {
    Released([&, &right = AsArray(b)] { BinaryInto(binary, a, right, out); });
  } else {
    const double scalar = nb::cast<double>(b);
    Released([&] { BinaryInto(binary, a, scalar, out); });
  }
}

// The bytes of a 16-bit float array as int16, for NumPy, whose DLPack knows no bfloat16.
NDArray Bits16(const NDArray& array) {
  if (ItemSize(array.dtype()) != 2)
    throw Fail(Code::kInvalidArgument, "bits16: {} has no 16 bits", Name(array.dtype()));
  array.storage()->MarkForeign(std::chrono::seconds(600));
  const Strides strides = array.strides();
  return NDArray::Wrap(array.data(), array.shape(), DType::kI16, array.context(), array.read_only(),
                       std::make_shared<NDArray>(array), strides);
}

}  // namespace

NDArray& AsArray(nb::handle object) {
  if (!nb::isinstance<NDArray>(object)) throw Fail(Code::kInvalidArgument, "an NDArray is needed");
  return *nb::inst_ptr<NDArray>(object);
}

nb::object ToPython(const NDArray& array, nb::handle type) {
  nb::object instance = nb::inst_alloc(type);
  new (nb::inst_ptr<NDArray>(instance)) NDArray(array);
  nb::inst_mark_ready(instance);
  return instance;
}

nb::object ToPython(const NDArray& array) {
  return ToPython(array, array_class.is_valid() ? array_class : nb::type<NDArray>());
}

void BindArray(nb::module_& m) {
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
          "data_ptr", [](const NDArray& a) { return reinterpret_cast<uintptr_t>(a.data()); },
          "Address of the first element.")
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
            return ToPython(AsArray(self).Packed().Reshape(ParseShape(dims)), self.type());
          },
          nb::arg("shape"))
      .def("_copy",
           [](nb::handle self) {
             NDArray copy;
             Released([&, &array = AsArray(self)] { copy = array.Copy(); });
             return ToPython(copy, self.type());
           })
      .def(
          "_with_context",
          [](nb::handle self, const std::string& kind, int index) {
            return ToPython(AsArray(self).WithContext(ParseContext(kind, index)), self.type());
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
          "_fill", [](const NDArray& self, double value) { Released([&] { Fill(self, value); }); },
          nb::arg("value"))
      .def("_bits16", [](const NDArray& self) { return nb::cast(Bits16(self)); })
      .def("_capsule", &ExportCapsule, nb::arg("versioned"));

  m.def("_register_array_class", [](nb::handle type) { array_class = type; }, nb::arg("type"));
  m.def(
      "_empty",
      [](nb::handle type, const std::vector<int64_t>& dims, const std::string& dtype,
         const std::string& kind, int index) {
        return ToPython(
            NDArray::Empty(ParseShape(dims), ParseDType(dtype), ParseContext(kind, index)), type);
      },
      nb::arg("type"), nb::arg("shape"), nb::arg("dtype"), nb::arg("kind"), nb::arg("index"));
  m.def(
      "_view_of",
      [](nb::handle type, nb::handle object, bool writable) {
        if (nb::isinstance<NDArray>(object)) return ToPython(AsArray(object), type);
        return ToPython(ImportForeign(object, writable ? Use::kWrite : Use::kRead), type);
      },
      nb::arg("type"), nb::arg("object").none(), nb::arg("writable"));
  m.def("_binary", &BinaryOf, nb::arg("type"), nb::arg("op"), nb::arg("a"), nb::arg("b"));
  m.def("_binary_into", &BinaryIntoOf, nb::arg("op"), nb::arg("a"), nb::arg("b"), nb::arg("out"));
  m.def(
      "_unary",
      [](nb::handle type, int op, const NDArray& a) {
        NDArray result;
        Released([&] { result = Unary(static_cast<UnaryOp>(op), a); });
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
}

}  // namespace tkv::python
