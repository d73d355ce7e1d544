"""Arrays: ``mx.nd``.

An NDArray is a handle on memory that is shared with whoever holds another handle. Rows and slices of the first axis are
views. Arithmetic is elementwise and runs on the same evaluator as updates; ``+=`` and its kin change the memory itself.
"""

import builtins
import operator
import os
import tempfile

import numpy as np

from . import _core
from .context import Context
from .errors import InvalidArgumentError, OutOfRangeError, UnimplementedError

__all__ = [
    "NDArray",
    "arange",
    "array",
    "empty",
    "from_dlpack",
    "full",
    "load",
    "ones",
    "random_normal",
    "random_uniform",
    "save",
    "sparse",
    "waitall",
    "zeros",
]

_ADD, _SUB, _MUL, _DIV, _MIN, _MAX, _LT, _LE, _GT, _GE, _EQ, _NE = range(_core._BINARY_OPS)
_NEG, _ABS, _SQRT, _SIGN = range(_core._UNARY_OPS)
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _dtype_name(dtype):
    """Return the core's name of a dtype given by name, NumPy type, or framework dtype."""
    if dtype is None:
        return "float32"
    name = dtype if isinstance(dtype, str) else None
    if name is None:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = str(dtype).rpartition(".")[2]  # torch.bfloat16
    return "bool" if name == "bool_" else name


def _numpy_dtype(name):
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise UnimplementedError("bfloat16 as NumPy needs the package ml_dtypes; astype('float32') first") from None
    return np.dtype(ml_dtypes.bfloat16)


def _shape_tuple(shape):
    if isinstance(shape, (builtins.list, tuple)):
        return [operator.index(n) for n in shape]
    return [operator.index(shape)]


def _is_scalar(x):
    return isinstance(x, (int, float, np.number, np.bool_)) or (isinstance(x, np.ndarray) and x.ndim == 0)


def _number(x):
    """Return an integer as an int, which keeps 64 bits, and any other number as a float."""
    try:
        return operator.index(x)
    except TypeError:
        return float(x)


class NDArray(_core.Array):
    """A dense tensor of any shape with a dtype and a context.

    Make one with `array`, `zeros`, `ones`, `full`, `empty` or `arange`.

    Example:
        >>> a = mx.nd.array([[1, 2], [3, 4]])
        >>> a[1] += 10
        >>> a.asnumpy()
        array([[ 1.,  2.],
               [13., 14.]], dtype=float32)
        >>> a.shape, a.context
        ((2, 2), cpu(0))
    """

    __slots__ = ()
    __array_priority__ = 1000.0  # so that numpy_array * NDArray comes here
    __hash__ = None  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------------- properties

    @property
    def dtype(self):
        """The element type as a NumPy type, ``'bfloat16'`` for bfloat16."""
        name = self.dtype_name
        return name if name == "bfloat16" else np.dtype(name).type

    @property
    def context(self):
        """The context that the array lives in."""
        return Context(*self._context)

    ctx = context

    @property
    def stype(self):
        """The storage type: ``'default'``, that is dense."""
        return "default"

    @property
    def T(self):
        """A transposed copy."""
        return array(self.asnumpy().T, ctx=self.context, dtype=self.dtype_name)._as(type(self))

    # ------------------------------------------------------------------------------------------- to other frameworks

    def _as_elements(self, raw):
        return raw.view(_numpy_dtype("bfloat16")) if self.dtype_name == "bfloat16" else raw

    def _host(self):
        """Return the elements as a read-only NumPy array, to be dropped before anything happens to this array."""
        return self._as_elements(self._numpy_for_reading())

    def _view(self):
        """Return the memory as a NumPy array to write to, to be dropped before anything happens to this array."""
        return self._as_elements(self._numpy_for_writing())

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Export by DLPack; the consumer shares the memory."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on {self.context}, device {dl_device} was asked for")
        source = self._copy() if copy else self
        return source._capsule(max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self):
        """Return DLPack's device: ``(1, 0)`` for host memory."""
        return (1, 0)

    def __array__(self, dtype=None, copy=None):
        """Return a NumPy view; a copy only where `dtype` or `copy` ask for one."""
        own = _numpy_dtype(self.dtype_name)
        if dtype is not None and np.dtype(dtype) != own:
            if copy is False:
                raise ValueError(f"an array of {own} cannot be seen as {np.dtype(dtype)} without a copy")
            return self._host().astype(dtype)
        return self._host().copy() if copy else self._as_elements(self._numpy_for_sharing())

    def asnumpy(self):
        """Return a NumPy array with a copy of the elements."""
        return self._host().copy()

    def asscalar(self):
        """Return the only element as a NumPy scalar; InvalidArgumentError where there are more or none."""
        if self.size != 1:
            raise InvalidArgumentError(f"asscalar: the array has shape {self.shape}, one element is needed")
        return self._host().reshape(-1)[0]

    item = asscalar

    def tolist(self):
        """Return the elements as nested lists."""
        return self._host().tolist()

    # ------------------------------------------------------------------------------------------------------- copies

    def copy(self):
        """Return a new array with the same elements."""
        return self._copy()

    def copyto(self, other):
        """Copy into the NDArray `other`, converting floats, or into a new array in the Context `other`; return it."""
        if isinstance(other, Context):
            return self._copy()._with_context(other.device_type, other.device_id)
        if not isinstance(other, _core.Array):
            raise InvalidArgumentError(f"copyto: type {type(other).__name__}, an NDArray or a Context is needed")
        other._assign(self if self.dtype_name == other.dtype_name else self.astype(other.dtype_name))
        return other

    def as_in_context(self, context):
        """Return this array if it is in `context`, else a copy there."""
        return self if self.context == context else self.copyto(context)

    as_in_ctx = as_in_context

    def astype(self, dtype, copy=True):
        """Return a copy with another dtype; floats are rounded to nearest even, once."""
        name = _dtype_name(dtype)
        if name == self.dtype_name:
            return self._copy() if copy else self
        if name in _FLOATS and self.dtype_name in _FLOATS:
            return _core._convert_float(type(self), self, name)
        return array(self._host().astype(_numpy_dtype(name)), ctx=self.context, dtype=name)._as(type(self))

    def reshape(self, *shape, **kwargs):
        """Return a view with another shape of as many elements; one extent may be -1."""
        if kwargs:
            shape = (kwargs.pop("shape"),)
        if len(shape) == 1 and isinstance(shape[0], (builtins.list, tuple)):
            shape = shape[0]
        dims = [operator.index(n) for n in shape]
        if dims.count(-1) == 1:
            rest = int(np.prod([n for n in dims if n != -1], dtype=np.int64))
            if rest == 0 or self.size % rest != 0:
                raise InvalidArgumentError(f"reshape: shape {tuple(dims)} does not fit {self.size} elements")
            dims[dims.index(-1)] = self.size // rest
        return self._reshape(dims)

    def tostype(self, stype):
        """Return this array for ``'default'``; other storage types raise UnimplementedError."""
        if stype != "default":
            raise UnimplementedError(f"tostype: storage type {stype!r} is not in this build yet")
        return self

    def wait_to_read(self):
        """Wait until no operation writes to the array any more, such as ``kv.pull(key, out=array, async_op=True)``.

        A failure of the operation is not raised here: its ticket tells.
        """
        self._wait_to_read()

    def __copy__(self):
        """Return a copy with memory of its own."""
        return self._copy()

    def __deepcopy__(self, memo):
        """Return a copy with memory of its own."""
        return self._copy()

    def __reduce__(self):
        """Pickle by value."""
        kind, index = self._context
        return _rebuild, (type(self), self._numpy_for_reading().copy(), self.dtype_name, kind, index)

    # ----------------------------------------------------------------------------------------------------- indexing

    def __len__(self):
        """Return the extent of the first axis."""
        if self.ndim == 0:
            raise InvalidArgumentError("len: an array of shape () has no rows")
        return self.shape[0]

    def __iter__(self):
        """Iterate over the rows."""
        return (self[i] for i in builtins.range(len(self)))

    def __bool__(self):
        """Return the truth of the only element."""
        return bool(self.asscalar())

    def __int__(self):
        """Return the only element as an int."""
        return int(self.asscalar())

    def __float__(self):
        """Return the only element as a float."""
        return float(self.asscalar())

    def __index__(self):
        """Return the only element of an integer array."""
        return operator.index(self.asscalar())

    @staticmethod
    def _is_row_index(key):
        return not isinstance(key, (tuple, bool, np.ndarray, _core.Array)) and hasattr(key, "__index__")

    def _row(self, index):
        rows = len(self)
        at = index + rows if index < 0 else index
        if not 0 <= at < rows:
            raise OutOfRangeError(f"index {index}: the array has shape {self.shape}")
        return at

    def __getitem__(self, key):
        """Return a view for an int or a slice of the first axis, else a copy.

        A row of a 1-D array has shape ``(1,)``, as in MXNet.
        """
        if isinstance(key, slice):
            begin, end, step = key.indices(len(self))
            if step == 1:
                return self._slice(begin, max(begin, end))
        elif self._is_row_index(key):
            at = self._row(operator.index(key))
            return self._slice(at, at + 1) if self.ndim == 1 else self._at(at)
        try:
            picked = self._host()[_plain_index(key)]
        except IndexError as error:
            raise OutOfRangeError(f"index: {error}; the array has shape {self.shape}") from None
        return array(np.asarray(picked), ctx=self.context, dtype=self.dtype_name)._as(type(self))

    def __setitem__(self, key, value):
        """Write a number, an array or a nested list to the elements that `key` names."""
        if self.read_only:
            raise InvalidArgumentError("assignment: the array is read-only")
        if isinstance(key, slice) and key == slice(None) and self.ndim > 0 and _is_scalar(value):
            self._fill(_number(value))
            return
        if isinstance(value, _core.Array):
            value = value._host()
        try:
            if self._is_row_index(key):
                at = self._row(operator.index(key))
                row = self._slice(at, at + 1)._view()
                row[...] = np.reshape(value, row.shape) if np.size(value) == row.size else value
            else:
                self._view()[_plain_index(key)] = value
        except IndexError as error:
            raise OutOfRangeError(f"index: {error}; the array has shape {self.shape}") from None
        except ValueError as error:
            raise InvalidArgumentError(f"assignment: {error}") from None

    # --------------------------------------------------------------------------------------------------- arithmetic

    def _operand(self, other):
        """Return `other` as the core takes it: a number, or an array of this shape and dtype; None if it is neither."""
        if _is_scalar(other):
            return _number(other)
        if isinstance(other, np.ndarray):
            other = array(other, ctx=self.context, dtype=self.dtype_name)
        if not isinstance(other, _core.Array):
            return None
        if other.shape == self.shape:
            return other
        try:
            shape = np.broadcast_shapes(self.shape, other.shape)
        except ValueError:
            raise InvalidArgumentError(f"arithmetic: shape {self.shape} with {other.shape}") from None
        return _broadcast(other, shape)

    def _binary(self, op, other, swapped=False):
        other = self._operand(other)
        if other is None:
            return NotImplemented
        this = self
        if isinstance(other, _core.Array) and other.shape != self.shape:
            this = _broadcast(self, other.shape)
        pair = (other, this) if swapped else (this, other)
        return _core._binary(type(self), op, *pair)

    def _inplace(self, op, other):
        other = self._operand(other)
        if other is None:
            return NotImplemented
        if isinstance(other, _core.Array) and other.shape != self.shape:
            raise InvalidArgumentError(f"arithmetic: the result has shape {other.shape}, the array {self.shape}")
        _core._binary_into(op, self, other, self)
        return self

    def __add__(self, other):
        """Return ``self + other``."""
        return self._binary(_ADD, other)

    __radd__ = __add__

    def __sub__(self, other):
        """Return ``self - other``."""
        return self._binary(_SUB, other)

    def __rsub__(self, other):
        """Return ``other - self``."""
        return self._binary(_SUB, other, swapped=True)

    def __mul__(self, other):
        """Return ``self * other``, element by element."""
        return self._binary(_MUL, other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        """Return ``self / other``; floats only."""
        return self._binary(_DIV, other)

    def __rtruediv__(self, other):
        """Return ``other / self``; floats only."""
        return self._binary(_DIV, other, swapped=True)

    def __iadd__(self, other):
        """Add in place."""
        return self._inplace(_ADD, other)

    def __isub__(self, other):
        """Subtract in place."""
        return self._inplace(_SUB, other)

    def __imul__(self, other):
        """Multiply in place."""
        return self._inplace(_MUL, other)

    def __itruediv__(self, other):
        """Divide in place; floats only."""
        return self._inplace(_DIV, other)

    def __neg__(self):
        """Return ``-self``."""
        return _core._unary(type(self), _NEG, self)

    def __abs__(self):
        """Return the absolute values."""
        return _core._unary(type(self), _ABS, self)

    def abs(self):
        """Return the absolute values."""
        return abs(self)

    def sqrt(self):
        """Return the square roots; floats only."""
        return _core._unary(type(self), _SQRT, self)

    def sign(self):
        """Return -1, 0 or 1 for each element; floats only."""
        return _core._unary(type(self), _SIGN, self)

    def __eq__(self, other):
        """Compare element by element: 1 and 0 in the array's dtype."""
        return self._binary(_EQ, other)

    def __ne__(self, other):
        """Compare element by element: 1 and 0 in the array's dtype."""
        return self._binary(_NE, other)

    def __lt__(self, other):
        """Compare element by element: 1 and 0 in the array's dtype."""
        return self._binary(_LT, other)

    def __le__(self, other):
        """Compare element by element: 1 and 0 in the array's dtype."""
        return self._binary(_LE, other)

    def __gt__(self, other):
        """Compare element by element: 1 and 0 in the array's dtype."""
        return self._binary(_GT, other)

    def __ge__(self, other):
        """Compare element by element: 1 and 0 in the array's dtype."""
        return self._binary(_GE, other)

    def sum(self):
        """Return the sum of all elements, shape ``(1,)``, computed by NumPy."""
        return array([self._host().sum()], ctx=self.context, dtype=self.dtype_name)._as(type(self))

    def __repr__(self):
        """Return the elements, then shape and context, as MXNet prints them."""
        dims = "x".join(str(n) for n in self.shape)
        body = self.astype("float32") if self.dtype_name == "bfloat16" else self
        return f"\n{body._host()!s}\n<{type(self).__name__} {dims} @{self.context}>"


_core._register_array_class(NDArray)


def _plain_index(key):
    """Return an index with NDArrays as NumPy arrays of integers."""
    if isinstance(key, tuple):
        return tuple(_plain_index(k) for k in key)
    if isinstance(key, _core.Array):
        view = key._host()
        return view.astype(np.int64) if view.dtype.kind == "f" else view
    return key


def _broadcast(a, shape):
    return array(np.ascontiguousarray(np.broadcast_to(a._host(), shape)), ctx=a.context, dtype=a.dtype_name)


def _rebuild(cls, raw, dtype, kind, index):
    result = _core._empty(cls, builtins.list(raw.shape), dtype, kind, index)
    result._numpy_for_writing()[...] = raw
    return result


def _new(cls, shape, ctx, dtype, stype=None):
    if stype not in (None, "default"):
        raise UnimplementedError(f"storage type {stype!r} is not in this build yet; arrays are dense")
    ctx = Context("cpu", 0) if ctx is None else Context(ctx)
    return _core._empty(cls, _shape_tuple(shape), _dtype_name(dtype), ctx.device_type, ctx.device_id)


def empty(shape, ctx=None, dtype=None, stype=None):
    """Return an uninitialised array.

    Args:
        shape: an int or a tuple of ints.
        ctx: the Context, default ``cpu(0)``.
        dtype: float32 by default; a name or a NumPy type.
        stype: None or ``'default'``.

    Raises:
        InvalidArgumentError: a negative extent, a dtype that arrays cannot have.
        ResourceExhaustedError: no such memory.
        UnimplementedError: ``gpu(i)``, a sparse storage type.

    Example:
        >>> mx.nd.empty((2, 3), mx.cpu(1), dtype='float64').shape
        (2, 3)
    """
    return _new(NDArray, shape, ctx, dtype, stype)


def full(shape, val, ctx=None, dtype=None, stype=None):
    """Return an array whose every element is `val`. Arguments and errors as `empty`.

    Example:
        >>> mx.nd.full((2,), 7).asnumpy()
        array([7., 7.], dtype=float32)
    """
    result = _new(NDArray, shape, ctx, dtype, stype)
    result._fill(_number(val))
    return result


def zeros(shape, ctx=None, dtype=None, stype=None):
    """Return an array of zeros. Arguments and errors as `empty`.

    Example:
        >>> mx.nd.zeros((2,)).asnumpy()
        array([0., 0.], dtype=float32)
    """
    return full(shape, 0, ctx, dtype, stype)


def ones(shape, ctx=None, dtype=None, stype=None):
    """Return an array of ones. Arguments and errors as `empty`.

    Example:
        >>> (mx.nd.ones((2,)) * 3).asnumpy()
        array([3., 3.], dtype=float32)
    """
    return full(shape, 1, ctx, dtype, stype)


def array(source_array, ctx=None, dtype=None):
    """Return a new array with a copy of a list, a NumPy array, an NDArray or any array that speaks DLPack.

    Args:
        source_array: the elements, of any shape.
        ctx: the Context, default ``cpu(0)``, or that of an NDArray.
        dtype: default float32, also for NumPy's float64 and int64; that of the source for an NDArray.

    Raises:
        InvalidArgumentError: a ragged list, elements that are no numbers.

    Example:
        >>> mx.nd.array([[1, 2], [3, 4]], dtype='int32').asnumpy()
        array([[1, 2],
               [3, 4]], dtype=int32)
    """
    if isinstance(source_array, _core.Array):
        source = source_array._as(NDArray)
        result = source._copy() if dtype is None else source.astype(dtype)
        return result if ctx is None else result._with_context(Context(ctx).device_type, Context(ctx).device_id)
    if not isinstance(source_array, np.ndarray) and hasattr(source_array, "__dlpack__"):
        source = _core._view_of(NDArray, source_array, False)
        return array(source, ctx, dtype or "float32")
    name = _dtype_name(dtype)
    if isinstance(source_array, (builtins.list, tuple)):
        source_array = _unwrap(source_array)
    try:
        values = np.asarray(source_array, dtype=_numpy_dtype(name))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"array: {error}") from None
    result = _new(NDArray, values.shape, ctx, name)
    if result.size:
        result._view()[...] = values
    return result


def _unwrap(items):
    """Return nested lists with NDArrays as NumPy arrays."""
    return [
        _unwrap(x) if isinstance(x, (builtins.list, tuple)) else (x._host() if isinstance(x, _core.Array) else x)
        for x in items
    ]


def arange(start, stop=None, step=1.0, repeat=1, ctx=None, dtype=None):
    """Return the numbers from `start` (0 if it stands alone) below `stop`, each `repeat` times, shape ``(n,)``.

    Example:
        >>> mx.nd.arange(2, 5).asnumpy()
        array([2., 3., 4.], dtype=float32)
    """
    numbers = np.arange(start) if stop is None else np.arange(start, stop, step)
    return array(np.repeat(numbers, repeat), ctx=ctx, dtype=dtype)


def from_dlpack(x):
    """Return an array that shares the memory of any object with DLPack or the buffer protocol.

    Raises:
        InvalidArgumentError: an object without either, a dtype or device that arrays cannot have.

    Example:
        >>> memory = np.zeros(2, np.float32)
        >>> mx.nd.from_dlpack(memory)[:] = 5
        >>> memory
        array([5., 5.], dtype=float32)
    """
    return _core._view_of(NDArray, x, False)


from_numpy = from_dlpack


def random_uniform(low=0.0, high=1.0, shape=(1,), ctx=None, dtype=None):
    """Return uniform random numbers from `low` to `high`, drawn as `mx.random.uniform` does.

    Example:
        >>> mx.nd.random_uniform(-1, 1, shape=(2,)).shape
        (2,)
    """
    from . import random

    return random.uniform(low, high, shape, ctx=ctx, dtype=dtype)


def random_normal(loc=0.0, scale=1.0, shape=(1,), ctx=None, dtype=None):
    """Return normal random numbers, drawn as `mx.random.normal` does.

    Example:
        >>> mx.nd.random_normal(shape=(2,)).shape
        (2,)
    """
    from . import random

    return random.normal(loc, scale, shape, ctx=ctx, dtype=dtype)


def waitall():
    """Wait until no operation reads or writes an array any more; failures are told by tickets and stores.

    Example:
        >>> mx.nd.waitall()
    """
    _core._wait_all()


def save(fname, data):
    """Write an NDArray, a list or a dict of NDArrays to a file, atomically.

    The format is NumPy's ``.npz`` (no pickle). An existing file is replaced only by a complete one.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'w')
        >>> mx.nd.save(path, {'w': mx.nd.ones((2,))})
        >>> mx.nd.load(path)['w'].asnumpy()
        array([1., 1.], dtype=float32)
    """
    if isinstance(data, _core.Array):
        data = [data]
    named = data.items() if isinstance(data, dict) else enumerate(data)
    prefix = "key:" if isinstance(data, dict) else "item:"
    arrays = {}
    for name, value in named:
        if not isinstance(value, _core.Array):
            raise InvalidArgumentError(f"save: {name!r} has type {type(value).__name__}, an NDArray is needed")
        tag = f"{prefix}{value.dtype_name}:{name}"
        arrays[tag] = value._numpy_for_reading()
    folder = os.path.dirname(os.path.abspath(os.fspath(fname)))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".tensorkv-")
    try:
        with os.fdopen(handle, "wb") as out:
            np.savez(out, **arrays)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, fname)
    except BaseException:
        os.unlink(temporary)
        raise


def load(fname):
    """Read what `save` wrote: a list, or a dict with the names.

    Raises:
        InvalidArgumentError: a file that `save` did not write.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'list')
        >>> mx.nd.save(path, [mx.nd.ones((2,))])
        >>> len(mx.nd.load(path))
        1
    """
    import zipfile

    try:
        with np.load(fname, allow_pickle=False) as files:
            parts = [(tag.split(":", 2), files[tag]) for tag in files.files]
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InvalidArgumentError(f"load {os.fspath(fname)!r}: {error}") from None
    if any(len(tag) != 3 or tag[0] not in ("key", "item") for tag, _ in parts):
        raise InvalidArgumentError(f"load {os.fspath(fname)!r}: not written by save")
    arrays = {tag[2]: _rebuild(NDArray, raw, tag[1], "cpu", 0) for tag, raw in parts}
    if parts and parts[0][0][0] == "key":
        return arrays
    return [arrays[str(i)] for i in builtins.range(len(arrays))]


class sparse:
    """Row-sparse arrays, not in this build yet: every function raises UnimplementedError.

    Example:
        >>> mx.nd.sparse.zeros('row_sparse', (2, 3))
        Traceback (most recent call last):
        tensorkv.errors.UnimplementedError: nd.sparse.zeros: row-sparse arrays are not in this build yet
    """

    @staticmethod
    def zeros(*args, **kwargs):
        """Raise UnimplementedError."""
        raise UnimplementedError("nd.sparse.zeros: row-sparse arrays are not in this build yet")

    @staticmethod
    def row_sparse_array(*args, **kwargs):
        """Raise UnimplementedError."""
        raise UnimplementedError("nd.sparse.row_sparse_array: row-sparse arrays are not in this build yet")
