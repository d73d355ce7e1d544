"""Another framework on the pretended GPUs of tests/gpu/fake: tensors of float32 that it writes late, on streams of its own.

A process imports this module after it has asked TensorKV for a GPU, so that the driver is loaded and initialized.
"""

import ctypes
import math

CUDA = ctypes.CDLL("libcuda.so.1")
GPU = 2  # DLPack's number of a CUDA device
NOT_READY = 600


def call(name, *arguments):
    result = getattr(CUDA, name)(*arguments)
    assert result == 0, f"{name} returns {result}"


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class Framework:
    """A framework that works on one stream of one device."""

    def __init__(self, index=0, stream=None):
        self.index = index
        self._context = ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), index)
        if stream is None:
            made = ctypes.c_void_p()
            self._call("cuStreamCreateWithPriority", ctypes.byref(made), 1, 0)
            stream = made.value
        self.stream = stream
        self._end = self._event()
        self._writes = False  # since the last wait

    def _call(self, name, *arguments):
        """Call with the context of the device, which is current no longer than that."""
        call("cuCtxPushCurrent_v2", self._context)
        try:
            call(name, *arguments)
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _event(self):
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 2)
        return event

    def let_wait(self, stream):
        """Have a stream wait for all that this framework's stream has got."""
        event = self._event()
        self._call("cuEventRecord", event, ctypes.c_void_p(self.stream))
        self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        self._call("cuEventDestroy_v2", event)

    def allocate(self, count):
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * count))
        return address.value

    def _pinned(self, count):
        data = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(data), ctypes.c_size_t(4 * count), 1)
        return data, (ctypes.c_float * count).from_address(data.value)

    def write(self, address, values):
        """Write in the order of the stream, which may be late."""
        data, floats = self._pinned(len(values))
        floats[:] = values
        self._writes = True
        self._call(
            "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(4 * len(values)), self.stream_arg
        )

    def read(self, address, count):
        """Return the content of the memory when the stream reaches this point, without any other wait."""
        data, floats = self._pinned(count)
        self._call("cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(4 * count), self.stream_arg)
        self._wait()
        return list(floats)

    def _wait(self):
        self._call("cuEventRecord", self._end, self.stream_arg)
        self._writes = False
        call("cuCtxPushCurrent_v2", self._context)
        while (result := CUDA.cuEventQuery(self._end)) == NOT_READY:
            pass
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        assert result == 0

    def free(self, address):
        """Free memory that the framework no longer uses; if another user is left, the pretended driver detects it."""
        if self._writes:
            self._wait()
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    @property
    def stream_arg(self):
        return ctypes.c_void_p(self.stream)


class Tensor:
    """A tensor that frees its memory when its last reference ends."""

    def __init__(self, framework, values, shape=None, strides=None):
        self.framework = framework
        self.count = len(values)
        self.address = framework.allocate(self.count)
        self.shape = shape or (self.count,)
        self.strides = strides
        self.exports = {}  # by the address of the description: exports in use
        self.asked = []  # the streams that consumers have given
        self.says = GPU, framework.index
        self.write(values)

    def write(self, values):
        self.framework.write(self.address, values)

    def read(self):
        return self.framework.read(self.address, self.count)

    def __dlpack_device__(self):
        return self.says

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if self.says[0] == GPU:
            assert type(stream) is int and stream > 2 and max_version >= (1, 0)
            self.asked.append(stream)
            self.framework.let_wait(stream)
        return capsule(_managed_of(self), b"dltensor_versioned")

    def _let_go(self, managed):
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self.exports.pop(managed)))

    def __del__(self):
        self.framework.free(self.address)


def _managed_of(tensor):
    """Return the address of a description of a tensor, which its consumer lets go."""
    managed = _Managed(1, 1, None, _DELETER(tensor._let_go), 0)
    rank = len(tensor.shape)
    extents = (ctypes.c_int64 * rank)(*tensor.shape)
    steps = (ctypes.c_int64 * rank)(*(tensor.strides or tensor.shape))
    strides = steps if tensor.strides else None
    managed.tensor = _Tensor(tensor.address, *tensor.says, rank, 2, 32, 1, extents, strides, 0)
    tensor.exports[ctypes.addressof(managed)] = export = managed, extents, steps, tensor
    # The consumer's reference. Without it the garbage collector sees a ring that nobody holds, and frees an export in use.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(export))
    return ctypes.addressof(managed)


_EXPORT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class _Exchange(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("before", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("to_managed", _EXPORT),
        ("from_managed", ctypes.c_void_p),
        ("to_tensor", ctypes.c_void_p),
        ("current_stream", _STREAM),
    ]


def exchange_api(current, tensor_of=lambda tensor: tensor):
    """Return the functions by which a framework exports without Python, of DLPack 1.3; `current`: its streams by GPU.

    These functions do not synchronize: the consumer of a tensor waits for the stream.
    """

    @_EXPORT
    def to_managed(address, out):
        out[0] = _managed_of(tensor_of(ctypes.cast(address, ctypes.py_object).value))
        return 0

    @_STREAM
    def current_stream(kind, index, out):
        assert kind == GPU
        out[0] = current[index]
        return 0

    return _Exchange(1, 3, None, None, to_managed, None, None, current_stream)


def capsule(address, name):
    """Return a capsule of an object that lives at least as long as the capsule."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, name, None)


class Received:
    """An array as a framework receives it: the address from DLPack."""

    def __init__(self, framework, array, stream="own", **options):
        stream = framework.stream if stream == "own" else stream
        self.framework = framework
        self.capsule = array.__dlpack__(stream=stream, max_version=(1, 1), **options)
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.tensor = _Managed.from_address(get(self.capsule, b"dltensor_versioned")).tensor
        self.count = math.prod(self.tensor.shape[: self.tensor.ndim])

    def read(self):
        return self.framework.read(self.tensor.data, self.count)


def torch_on_gpus():
    """Return a class of PyTorch's tensors that say that they are on pretended GPUs, and a list of addresses given.

    PyTorch computes with their elements in host memory. A store gets an address on the GPU, to which the elements are
    written late, as a kernel would. Elements that the store has written are read back when it tells autograd.
    """
    import contextlib
    import types

    import torch

    current, given = {}, []
    exports = exchange_api(current, lambda tensor: tensor.written())
    version_changed, plain_empty, plain_to = torch.autograd.graph.increment_version, torch.empty, torch.Tensor.to
    plain_grad = torch.Tensor.grad

    class OnGpu(torch.Tensor):
        """A tensor of float32; `memory` is a Tensor of this module."""

        api = exports  # kept by the class
        __torch_function__ = torch._C._disabled_torch_function_impl  # what PyTorch computes is plain
        __dlpack_c_exchange_api__ = capsule(ctypes.addressof(exports), b"dlpack_exchange_api")

        @classmethod
        def of(cls, framework, elements, requires_grad=False, memory=None):
            made = cls._make_subclass(cls, elements, requires_grad)
            made.framework, made.gradient = framework, (None, None)
            made.memory = memory or Tensor(framework, made.elements(), tuple(elements.shape))
            made.clean = [made._version] if memory is None else [None]
            current[framework.index] = framework.stream
            return made

        @property
        def device(self):
            return torch.device("cuda", self.framework.index)

        @property
        def grad(self):
            real, seen = plain_grad.__get__(self), self.gradient
            if real is not None and seen[0] is not real:
                self.gradient = real, OnGpu.of(self.framework, real)
            return None if real is None else self.gradient[1]

        @grad.setter
        def grad(self, value):
            plain_grad.__set__(self, value)

        def elements(self):
            return torch.Tensor.detach(self).as_subclass(torch.Tensor).reshape(-1).tolist()

        def detach(self):
            made = OnGpu.of(self.framework, torch.Tensor.detach(self), memory=self.memory)
            made.clean = self.clean
            return made

        def written(self):
            """Return the memory, with the elements of PyTorch in it if they have changed."""
            if self.clean != [self._version]:
                self.memory.write(self.elements())
                self.clean[:] = [self._version]
            given.append(self.memory.address)
            return self.memory

        def read_back(self):
            values = torch.tensor(self.memory.read()).reshape(self.shape)
            self.data.as_subclass(torch.Tensor).copy_(values)
            self.clean[:] = [self._version]

    def increment_version(tensors):
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        # An operation that a backward pass has begun may write at any time. The wait for it tells autograd again.
        is_in_backward = torch._C._current_graph_task_id() != -1
        for tensor in tensors:
            if isinstance(tensor, OnGpu) and not is_in_backward:
                tensor.read_back()
        version_changed(tensors)
        for tensor in tensors:
            if isinstance(tensor, OnGpu):
                tensor.clean[:] = [tensor._version]

    def is_gpu(place):
        return getattr(place, "type", place) == "cuda"

    torch.autograd.graph.increment_version = increment_version
    torch.empty = lambda *sizes, pin_memory=False, **options: plain_empty(*sizes, **options)
    torch.Tensor.to = lambda self, place, *rest, **options: (
        self if is_gpu(place) else plain_to(self, place, *rest, **options)
    )
    torch.cuda.device = lambda place: contextlib.nullcontext()
    torch.cuda.Event = lambda: types.SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    return OnGpu, given
