"""The elements of an array: their type, the memory that they lie in, and NumPy's and DLPack's views of it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _core
from .._part import part_of
from ..context import Context, cpu, current_context
from ..errors import InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from typing_extensions import CapsuleType, Self

    from .._types import DType, DTypeName, Scalar, Shape, Where

FLOATS = ("float16", "bfloat16", "float32", "float64")
BITS = {  # floats that NumPy does not know, and NumPy's type of the same size
    "bfloat16": "int16",
    "float8_e4m3fn": "int8",
    "float8_e5m2": "int8",
}
CONVERTED = (*FLOATS, "float8_e4m3fn", "float8_e5m2")  # each into each by the core, rounded once
NO_NUMBERS = ("float8_e4m3fn", "float8_e5m2", "complex64")  # stored and assigned only

E = TypeVar("E", bound="Elements")


def dtype_name(dtype: DType) -> str:
    """Return the core's name of a dtype given by name, NumPy type, or framework dtype."""
    if dtype is None:
        return "float32"
    name = dtype if isinstance(dtype, str) else None
    if name is None:
        try:
            name = np.dtype(dtype).name  # type: ignore[arg-type]  # one of another framework raises TypeError
        except TypeError:
            name = str(dtype).rpartition(".")[2]  # torch.bfloat16
    return "bool" if name == "bool_" else name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of a name of the core."""
    if name not in BITS:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise UnimplementedError(f"{name} as NumPy needs the package ml_dtypes; astype('float32') first") from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def shape_list(shape: Shape) -> list[int]:
    """Return the extents of a shape; a single number is a shape of one axis."""
    if isinstance(shape, (list, tuple)):
        return [operator.index(n) for n in shape]
    return [operator.index(shape)]  # type: ignore[arg-type]  # another sequence raises TypeError


def is_scalar(x: object) -> bool:
    """Return whether `x` is a real number of Python or NumPy."""
    if isinstance(x, np.ndarray):
        return x.ndim == 0 and x.dtype.kind != "c"
    return isinstance(x, (int, float, np.number, np.bool_)) and not isinstance(x, np.complexfloating)


def is_row_sparse(x: object) -> bool:
    """Return whether `x` is a RowSparseNDArray."""
    return getattr(type(x), "_is_row_sparse", False)


def number(x: Scalar | np.ndarray[Any, Any]) -> float:
    """Return an integer as an int, which keeps 64 bits, and any other number as a float."""
    try:
        return operator.index(x)  # type: ignore[arg-type]  # what has no index raises TypeError
    except TypeError:
        return float(x)


def empty(cls: type[E], shape: Shape, ctx: Where, dtype: DType, stype: str | None = None) -> E:
    """Return a new array of that class, uninitialised."""
    if stype not in (None, "default"):
        raise UnimplementedError(
            f"storage type {stype!r}; here are dense arrays, and tkv.nd.zeros and tkv.nd.empty make 'row_sparse' ones too"
        )
    ctx = current_context() if ctx is None else Context(ctx)
    extents, name = shape_list(shape), dtype_name(dtype)
    try:
        return _core._empty(cls, extents, name, ctx.device_type, ctx.device_id)
    except TypeError:
        if all(-(2**63) <= extent < 2**63 for extent in extents):
            raise
    raise InvalidArgumentError(f"shape: {tuple(extents)} has an extent beyond 64 bits")


def _numbers(elements: object, name: str) -> np.ndarray[Any, Any]:
    """Return the elements as a NumPy array of numbers without a mask, which are real unless `name` is complex."""
    if isinstance(elements, np.ma.MaskedArray):
        raise InvalidArgumentError("array: a masked array, whose mask would be lost; pass filled() or data")
    values = np.asarray(elements)
    if values.dtype.kind == "c" and name == "complex64":
        return values
    if values.dtype.kind in "SUMmc" or values.dtype.names:
        raise InvalidArgumentError(f"array: elements of dtype {values.dtype}, real numbers are needed")
    if values.dtype.kind == "O":
        for x in values.flat:
            if not hasattr(x, "__float__") and not hasattr(x, "__index__"):
                raise InvalidArgumentError(f"array: an element of type {type(x).__name__}, real numbers are needed")
    return values


def converted(elements: object, name: str) -> np.ndarray[Any, Any]:
    """Return numbers as a NumPy array of that dtype of the core, rounded once.

    NumPy's arrays are cast as NumPy casts them; a Python integer that the dtype cannot hold is an error.
    """
    try:
        values = _numbers(elements, name)
        wanted = numpy_dtype(name)
        if name in BITS and values.dtype.kind in "iuf" and values.dtype.itemsize > 2:
            # ml_dtypes goes by float32, which would round twice.
            wide = filled(Elements, values, cpu(), "float64")
            return _core._convert_float(Elements, wide, name)._host()
        is_python = not isinstance(elements, (np.ndarray, np.generic))
        return np.asarray(elements if is_python else values, dtype=wanted)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"array: {error}") from None


def filled(cls: type[E], elements: object, ctx: Where, name: str) -> E:
    """Return a new array of that class and dtype with a copy of any value that NumPy can make an array of."""
    values = converted(elements, name)
    result = empty(cls, values.shape, ctx, name)
    if values.size:
        result._write(..., values)
    return result


@part_of("NDArray")
class Elements(_core.Array):
    """The part of NDArray that reads and writes memory."""

    __slots__ = ()

    @property
    def dtype(self) -> DTypeName:
        """The element type as a NumPy type, or its name for bfloat16, float8_e4m3fn and float8_e5m2."""
        name = self.dtype_name
        return name if name in BITS else np.dtype(name).type  # type: ignore[return-value]  # one of the literals

    @property
    def context(self) -> Context:
        """The context that the array lives in."""
        return Context(*self._context)

    ctx = context

    @property
    def stype(self) -> str:
        """The storage type: ``'default'``, that is dense."""
        return "default"

    def _as_elements(self, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return raw.view(numpy_dtype(self.dtype_name)) if self.dtype_name in BITS else raw

    def _set_all(self, value: Scalar) -> None:
        """Write one number to every element; one that the dtype cannot hold is an error."""
        name = self.dtype_name
        if name == "uint64" and isinstance(number(value), int):  # the core takes a double
            self._write(..., converted(value, name))
        else:
            self._fill(number(value))

    def _host(self) -> np.ndarray[Any, Any]:
        """Return the elements as a read-only NumPy array, to be dropped before anything happens to this array."""
        return self._as_elements(self._numpy_for_reading())

    def _on_host(self) -> Self:
        """Return this array if its memory is the host's, else a copy there."""
        return self if self._context[0] == "cpu" else self._with_context("cpu", 0)

    def _from_host(self, host: Self) -> None:
        """Take over what `_on_host` has given and the caller has written to."""
        if host is not self:
            self._assign(host)

    def _write(self, key: Any, values: Any) -> None:
        """Write values to the elements that a NumPy index names; on a GPU by way of the host."""
        is_whole = key is Ellipsis and self._context[0] != "cpu"  # nothing of it needs to be read
        host = empty(type(self), self.shape, cpu(), self.dtype_name) if is_whole else self._on_host()
        host._as_elements(host._numpy_for_writing())[key] = values
        self._from_host(host)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Export by DLPack; the consumer shares the memory.

        For an array on a GPU, `stream` is the stream that the consumer uses next; it waits for pending work on the
        array. The values 1 and None mean CUDA's legacy default stream, 2 the default stream of each thread, and a
        larger number is a CUstream. With -1 nothing waits. ``dl_device=(1, 0)`` gives a copy on the host.
        FailedPreconditionError: the stream is captured into a graph.
        """
        here = self.__dlpack_device__()
        wanted = here if dl_device is None else tuple(dl_device)
        if wanted != here and (wanted != (1, 0) or copy is False):
            raise BufferError(f"the array is on {self.context}, device {dl_device} was asked for")
        if wanted != here:
            source = self._on_host()
        else:
            source = self._copy() if copy else self
        return source._capsule(max_version is not None and max_version[0] >= 1, 1 if stream is None else stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device: ``(1, 0)`` for host memory, ``(2, i)`` for ``gpu(i)``."""
        kind, index = self._context
        return (1, 0) if kind == "cpu" else (2, index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return a NumPy view; a copy only where `dtype` or `copy` ask for one, or the array is on a GPU."""
        own = numpy_dtype(self.dtype_name)
        if dtype is not None and np.dtype(dtype) != own:
            if copy is False:
                raise ValueError(f"an array of {own} cannot be seen as {np.dtype(dtype)} without a copy")
            return np.array(self._host(), dtype)
        if self._context[0] == "cpu":
            return self._host().copy() if copy else self._as_elements(self._numpy_for_sharing())
        if copy is False:
            raise ValueError(f"an array on {self.context} cannot be seen by NumPy without a copy")
        return self.asnumpy()

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """Return a NumPy array with a copy of the elements."""
        host = self._on_host()
        if host is not self:  # nobody else has the copy
            return host._as_elements(host._numpy_for_sharing())
        copied: np.ndarray[Any, Any] = self._host().copy()
        return copied

    def asscalar(self) -> Any:
        """Return the only element as a NumPy scalar; InvalidArgumentError if there are more or none."""
        if self.size != 1:
            raise InvalidArgumentError(f"asscalar: the array has shape {self.shape}, one element is needed")
        return self._host().reshape(-1)[0]

    item = asscalar

    def tolist(self) -> Any:
        """Return the elements as nested lists; the only one of an array of shape () as a number."""
        return self._host().tolist()

    def wait_to_read(self) -> None:
        """Wait until no operation writes to the array any more, such as ``kv.pull(key, out=array, async_op=True)``.

        A failure of the operation is not raised here: its ticket tells.
        """
        self._wait_to_read()
