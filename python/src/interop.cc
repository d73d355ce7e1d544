// Other frameworks' arrays and Python's keys.

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/format.h"
#include "bindings.h"
#include "gil.h"
#include "numpy_array.h"
#include "raised.h"
#include "tkv/dlpack.h"
#include "tkv/gpu.h"

namespace tkv::python {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kLegacy = "dltensor";

std::string NameOf(nb::handle type) {
  const nb::object module = AttributeOf(type, "__module__");
  const std::string name = TextOf(AttributeOf(type, "__qualname__"));
  // A class may set this attribute to any object.
  if (!module.is_valid() || PyUnicode_Check(module.ptr()) == 0) return name;
  const std::string package = TextOf(module);
  return package == "builtins" ? name : package + "." + name;
}

std::string TypeName(nb::handle object) {
  return NameOf(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
}

enum class Framework : uint8_t { kOther, kNumpy, kMasked, kTorch, kJax, kCupy };

Framework FrameworkNamed(const std::string& type) {
  if (type == "numpy.ndarray") return Framework::kNumpy;
  if (type.starts_with("numpy.ma.")) return Framework::kMasked;
  if (type.starts_with("torch.")) return Framework::kTorch;
  if (type.starts_with("cupy.")) return Framework::kCupy;
  for (const char* const package : {"jaxlib.", "jax.", "jax._src."}) {
    if (type.starts_with(package)) return Framework::kJax;
  }
  return Framework::kOther;
}

// Checks the type itself, because any class may call itself numpy.ndarray.
bool IsNumpyArray(PyTypeObject* type) {
  const nb::object array = nb::module_::import_("numpy").attr("ndarray");
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(array.ptr())) != 0;
}

// Returns the framework of a type or of its nearest base.  A subclass of torch.Tensor needs the
// same treatment as torch.Tensor.
Framework FrameworkOfBases(PyTypeObject* type) {
  const nb::handle object = reinterpret_cast<PyObject*>(type);
  for (nb::handle base : nb::borrow<nb::tuple>(object.attr("__mro__"))) {
    const Framework framework = FrameworkNamed(NameOf(base));
    if (framework == Framework::kNumpy && !IsNumpyArray(type)) return Framework::kOther;
    if (framework != Framework::kOther) return framework;
  }
  return Framework::kOther;
}

// Returns the C functions of a framework for exporting arrays, or null.
const DLPackExchangeAPI* ExchangeOf(PyTypeObject* type) {
  const nb::handle object = reinterpret_cast<PyObject*>(type);
  const nb::object capsule = AttributeOf(object, "__dlpack_c_exchange_api__");
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
  auto* header = static_cast<const DLPackExchangeAPIHeader*>(
      PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (header != nullptr && header->version.major != DLPACK_MAJOR_VERSION) {
    header = header->prev_api;
  }
  return reinterpret_cast<const DLPackExchangeAPI*>(header);
}

struct ArrayType {
  PyTypeObject* type = nullptr;
  Framework framework = Framework::kOther;
  const DLPackExchangeAPI* exchange = nullptr;  // may be null
};

// Returns the framework of an object's type.  Looking up a type's name takes longer than a small
// pushpull, so the few types of frameworks are cached.  A cached type is kept alive so that no
// other type gets its address.  The GIL guards the cache.
ArrayType TypeOf(nb::handle object) {
  static std::array<ArrayType, 16> all{};
  static size_t count = 0;
  PyTypeObject* const type = Py_TYPE(object.ptr());
  for (size_t i = 0; i < count; ++i) {
    if (all[i].type == type) return all[i];
  }
  const Framework framework = FrameworkOfBases(type);
  const ArrayType found{type, framework,
                        framework == Framework::kTorch ? ExchangeOf(type) : nullptr};
  if (framework != Framework::kOther && count < all.size()) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    all[count++] = found;
  }
  return found;
}

// An attribute name, interned once.
class Attribute {
 public:
  explicit Attribute(const char* text) : text_(PyUnicode_InternFromString(text)) {}
  // Returns false if `object` has no such attribute.
  bool IsTrueOf(nb::handle object) const { return IsTrue(Get(object)); }
  bool IsTrueOfCall(nb::handle object) const { return IsTrue(ValueOfCall(object)); }
  bool IsOf(nb::handle object) const { return Get(object).is_valid(); }
  // Returns an invalid object if `object` has no such method or it fails.
  nb::object ValueOfCall(nb::handle object) const {
    const nb::object method = Get(object);
    return method.is_valid() ? Found(PyObject_CallNoArgs(method.ptr())) : nb::object();
  }
  nb::object Get(nb::handle object) const { return Found(PyObject_GetAttr(object.ptr(), text_)); }

 private:
  static nb::object Found(PyObject* fresh) {
    if (fresh == nullptr) ClearError();
    return nb::steal(fresh);
  }
  static bool IsTrue(const nb::object& value) { return value.ptr() == Py_True; }

  PyObject* const text_;  // never freed
};

// Checks a PyTorch tensor for views that DLPack cannot express and for writes that autograd
// forbids.
nb::object CheckedTensor(nb::object tensor, Use use) {
  static const Attribute is_conj("is_conj");
  static const Attribute is_neg("is_neg");
  static const Attribute requires_grad("requires_grad");
  if (is_neg.IsTrueOfCall(tensor) || is_conj.IsTrueOfCall(tensor)) {
    throw Fail(Code::kInvalidArgument,
               "a conjugate or negative view of a tensor; call resolve_conj() or resolve_neg()");
  }
  if (!requires_grad.IsTrueOf(tensor)) return tensor;
  if (use == Use::kWrite) {
    throw Fail(Code::kInvalidArgument,
               "a tensor that requires grad is never written into; pass tensor.data");
  }
  return tensor.attr("detach")();
}

// Returns why a tensor cannot share its memory: our text for known cases, else torch's.
std::string WhyNotShared(nb::handle tensor, const std::string& text) {
  static const Attribute is_meta("is_meta");
  if (is_meta.IsTrueOf(tensor)) {
    return "it is on the device meta, which keeps no elements; give one on the CPU";
  }
  const nb::object layout = AttributeOf(tensor, "layout");
  const std::string name = layout.is_valid() ? TextOf(layout) : "torch.strided";
  if (name != "torch.strided") {
    return Format("its layout is {}; to_dense() makes a dense one", name);
  }
  return text.substr(0, text.find("\nException raised from"));  // without torch's C++ stack trace
}

// Returns why an array of JAX cannot share its memory: our text for known cases, else JAX's.
std::string WhyJaxNotShared(nb::handle array, const std::string& text) {
  const nb::object sharding = AttributeOf(array, "sharding");
  const nb::object devices = sharding.is_valid() ? AttributeOf(sharding, "num_devices") : sharding;
  int count = 0;
  if (!devices.is_valid() || !nb::try_cast(devices, count) || count < 2) return text;
  static const Attribute is_whole("is_fully_addressable");
  return Format("it is on {} devices, and the store takes arrays of one; {}", count,
                is_whole.IsTrueOf(array) ? "numpy.asarray(array) is one on the host"
                                         : "array.addressable_data(0) is a part of this process");
}

bool IsOfGpu(DLDevice device) {
  return device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged;
}

// Returns the GPU of an object, or nullopt if it is not on one or does not say.
std::optional<int32_t> GpuOf(nb::handle object) {
  static const Attribute device("__dlpack_device__");
  const nb::object pair = device.ValueOfCall(object);
  int type = 0, index = 0;
  if (!pair.is_valid() || PyTuple_Check(pair.ptr()) == 0 ||
      PyArg_ParseTuple(pair.ptr(), "ii", &type, &index) == 0) {
    ClearError();
    return {};
  }
  if (!IsOfGpu({static_cast<DLDeviceType>(type), index})) return {};
  return index;
}

// Returns the framework's current stream on a GPU, or nullopt if the framework is unknown.
std::optional<uint64_t> CurrentStreamOf(Framework framework, int32_t gpu) {
  nb::object handle;
  try {
    if (framework == Framework::kTorch) {
      const nb::object cuda = nb::module_::import_("torch").attr("cuda");
      handle = cuda.attr("current_stream")(gpu).attr("cuda_stream");
    } else if (framework == Framework::kCupy) {
      const nb::object cuda = nb::module_::import_("cupy").attr("cuda");
      handle = cuda.attr("get_current_stream")(gpu).attr("ptr");
    }
  } catch (nb::python_error& error) {
    if (LeavesCalls(error)) throw;
  }
  uint64_t stream = 0;
  if (!handle.is_valid() || !nb::try_cast(handle, stream)) return {};
  return stream == 0 ? static_cast<uint64_t>(kLegacyStream) : stream;
}

// Returns true if `__dlpack__` refused the keyword `max_version`, which DLPack 1.0 added.  After
// another error a retry would repeat all work, and nested objects would double it at each level.
bool IsOfOldProtocol(const nb::python_error& error) {
  if (!error.matches(PyExc_TypeError)) return false;
  if (error.matches(nb::module_::import_("tensorkv.errors").attr("KVError"))) return false;
  if (!error.traceback().is_valid()) return true;  // the call failed before a line of it ran
  // A wrapper class may pass the keyword on to an older class.
  return TextOf(error.value()).find("max_version") != std::string::npos;
}

// Returns the DLPack capsule of an object, with the newest protocol version that it supports.
nb::object ExportOf(nb::handle object) {
  static PyObject* const version = nb::make_tuple(1, 1).release().ptr();
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::handle(version));
  } catch (nb::python_error& error) {
    if (!IsOfOldProtocol(error)) throw;
  }
  return object.attr("__dlpack__")();
}

// Returns the capsule of an object on a GPU.  Its memory is ready for later work on `stream`.
nb::object ExportOf(nb::handle object, uint64_t stream) {
  try {
    return object.attr("__dlpack__")(nb::arg("stream") = stream,
                                     nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (nb::python_error& error) {
    if (!IsOfOldProtocol(error)) throw;
  }
  return object.attr("__dlpack__")(nb::arg("stream") = stream);
}

// Throws if a tensor has no memory of its own: it is composed of other tensors, or not yet
// materialised.
void CheckHasMemory(const DLTensor& tensor, nb::handle object) {
  if (tensor.data != nullptr || tensor.shape == nullptr || tensor.ndim < 0) return;
  const std::span shape(tensor.shape, static_cast<size_t>(tensor.ndim));
  if (std::ranges::find(shape, 0) != shape.end()) return;
  const char* remedy = "give the tensor that has its elements";
  if (AttributeOf(object, "to_local").is_valid()) {
    remedy = "to_local() gives the part of this process";
  } else if (AttributeOf(object, "get_data").is_valid()) {
    remedy = "get_data() gives its elements without the mask";
  }
  throw Fail(Code::kInvalidArgument, "a {} that has no memory of its own; {}", TypeName(object),
             remedy);
}

NDArray Consume(const nb::object& capsule, bool legacy_is_read_only, nb::handle object) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    CheckHasMemory(managed->dl_tensor, object);
    NDArray array = FromDLPack(managed);
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return array;
  }
  if (PyCapsule_IsValid(capsule.ptr(), kLegacy) != 0) {
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kLegacy));
    CheckHasMemory(managed->dl_tensor, object);
    NDArray array = FromDLPack(managed, legacy_is_read_only);
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    return array;
  }
  throw Fail(Code::kInvalidArgument,
             "__dlpack__ gave no DLPack capsule, or one that was used before");
}

void Delete(DLManagedTensorVersioned* managed) {
  if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
}

// Returns the framework's current stream on a GPU.
uint64_t CurrentStreamOf(const DLPackExchangeAPI* exchange, DLDevice device) {
  void* stream = nullptr;
  if (exchange->current_work_stream(device.device_type, device.device_id, &stream) != 0) {
    throw nb::python_error();
  }
  return stream == nullptr ? static_cast<uint64_t>(kLegacyStream)
                           : reinterpret_cast<uint64_t>(stream);
}

NDArray Consume(const DLPackExchangeAPI* exchange, const nb::object& object, Life life,
                DLPackLoans* loans) {
  DLManagedTensorVersioned* managed = nullptr;
  if (exchange->managed_tensor_from_py_object_no_sync(object.ptr(), &managed) != 0) {
    throw nb::python_error();
  }
  NDArray array;
  uint64_t current = 0;
  try {
    if (managed != nullptr) CheckHasMemory(managed->dl_tensor, object);
    if (managed == nullptr || !IsOfGpu(managed->dl_tensor.device)) return FromDLPack(managed);
    const DLDevice device = managed->dl_tensor.device;
    current = CurrentStreamOf(exchange, device);
    loans->Follow(device.device_id, current);
    array = loans->Take(managed);
  } catch (...) {
    Delete(managed);
    throw;
  }
  if (life == Life::kCall) array.storage()->SetOwnerStream(current);
  return array;
}

// Imports an array from a GPU.  First checks for a graph capture, because none of our work may be
// captured.
NDArray ConsumeFromGpu(const nb::object& object, int32_t gpu, Framework framework, Life life) {
  const std::optional<uint64_t> current = CurrentStreamOf(framework, gpu);
  if (current) CheckNotCaptured(gpu, *current);
  NDArray array = Consume(ExportOf(object, GpuStream(gpu)), framework == Framework::kJax, object);
  const bool is_there = array.context().kind == DeviceKind::kGpu;
  if (is_there && current && life == Life::kCall) array.storage()->SetOwnerStream(*current);
  return array;
}

// NumPy's DLPack supports neither the floats of ml_dtypes nor foreign byte orders.  Returns the
// ml_dtypes dtype, whose bits are passed as integers.
std::optional<DType> NumpyExtension(nb::handle object) {
  const nb::object dtype = AttributeOf(object, "dtype");
  const nb::object given = dtype.is_valid() ? AttributeOf(dtype, "name") : nb::object();
  if (!given.is_valid()) return {};
  const std::string name = TextOf(given);
  for (const DType type : {DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2}) {
    if (name == Name(type)) return type;
  }
  return {};
}

NDArray FromBits(nb::handle object, DType dtype) {
  const nb::object view = object.attr("view")(ItemSize(dtype) == 2 ? "int16" : "int8");
  const auto bits = std::make_shared<NDArray>(Consume(ExportOf(view), false, view));
  const Strides strides = bits->strides();
  return NDArray::Wrap(bits->data(), bits->shape(), dtype, bits->context(), bits->read_only(), bits,
                       strides);
}

Error NotShared(nb::handle object, const std::string& why) {
  return Fail(Code::kInvalidArgument, "a {} that cannot be shared: {}", TypeName(object), why);
}

NDArray FromBufferOrRefuse(nb::handle object, Use use) {
  nb::object view = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (!view.is_valid()) {
    const nb::python_error error;
    if (LeavesCalls(error)) throw nb::python_error(error);
    if (!error.matches(PyExc_TypeError)) throw NotShared(object, TextOf(error.value()));
    throw Fail(Code::kInvalidArgument,
               "type {}; an NDArray or an object with DLPack or the buffer protocol is needed",
               TypeName(object));
  }
  nb::object array;
  try {
    array = nb::module_::import_("numpy").attr("asarray")(view);
  } catch (nb::python_error& error) {  // a buffer format that NumPy cannot read
    if (LeavesCalls(error)) throw;
    throw NotShared(object, TextOf(error.value()));
  }
  DLPackLoans none;  // a buffer is always on the host
  return ImportForeign(array, use, Life::kLong, std::make_shared<Keeper>(array), &none);
}

}  // namespace

bool IsTorch(nb::handle object) { return TypeOf(object).framework == Framework::kTorch; }

bool IsJax(nb::handle object) { return TypeOf(object).framework == Framework::kJax; }

NDArray ImportForeign(nb::handle object, Use use, Life life,
                      const std::shared_ptr<const void>& keeper, DLPackLoans* loans) {
  static const Attribute dlpack("__dlpack__");
  const ArrayType type = TypeOf(object);
  const Framework framework = type.framework;
  if (framework == Framework::kNumpy) {
    if (auto array = FromNumpy(object, keeper)) return *std::move(array);
  }
  if (framework == Framework::kOther && !dlpack.IsOf(object)) {
    return FromBufferOrRefuse(object, use);
  }
  if (framework == Framework::kMasked) {
    throw Fail(Code::kInvalidArgument,
               "a masked array, whose mask would be lost; pass filled() or data");
  }
  const bool is_jax = framework == Framework::kJax;
  if (is_jax && use == Use::kWrite) {
    throw Fail(Code::kInvalidArgument,
               "a JAX array is immutable and never written into; use the array that is returned");
  }
  try {
    nb::object source = nb::borrow(object);
    if (framework == Framework::kTorch) source = CheckedTensor(source, use);
    if (type.exchange != nullptr) return Consume(type.exchange, source, life, loans);
    if (const auto gpu = GpuOf(source)) return ConsumeFromGpu(source, *gpu, framework, life);
    return Consume(ExportOf(source), is_jax, source);
  } catch (nb::python_error& error) {
    if (LeavesCalls(error)) throw;
    if (framework == Framework::kNumpy) {
      if (const auto dtype = NumpyExtension(object)) return FromBits(object, *dtype);
    }
    // BufferError, RuntimeError ...: the framework's reason for not exporting this array.
    const std::string text = TextOf(error.value());
    if (framework == Framework::kTorch) throw NotShared(object, WhyNotShared(object, text));
    throw NotShared(object, is_jax ? WhyJaxNotShared(object, text) : text);
  }
}

KeyView ParseKey(nb::handle key) {
  PyObject* const object = key.ptr();
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      ClearError();
      throw Fail(Code::kInvalidArgument, "a string key that is no valid Unicode");
    }
    return {std::string_view(text, static_cast<size_t>(size))};
  }
  // Older NumPy accepts its bool as an index.
  if (!PyBool_Check(object) && (PyLong_Check(object) || !TypeName(key).starts_with("numpy.bool"))) {
    nb::object number = PyLong_Check(object) ? nb::borrow(key) : nb::steal(PyNumber_Index(object));
    if (number.is_valid()) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
      if (overflow == 0) return {static_cast<int64_t>(value)};
      constexpr size_t kDigitsMax = 40;
      // "<no text>" for a number of more than 4300 digits.
      const std::string digits = TextOf(number);
      throw Fail(Code::kInvalidArgument, "the key {} does not fit 64 bits",
                 digits.size() > kDigitsMax ? digits.substr(0, kDigitsMax) + "..." : digits);
    }
    ClearError();
  }
  throw Fail(Code::kInvalidArgument, "a key of type {}; int or str is needed", TypeName(key));
}

nb::object ToPython(const KeyView& key) {
  if (key.is_string) return nb::str(key.text.data(), key.text.size());
  return nb::int_(key.number);
}

}  // namespace tkv::python
