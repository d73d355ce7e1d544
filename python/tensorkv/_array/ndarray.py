"""The class NDArray, and the functions that make arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, SupportsIndex, TypeVar, overload

import numpy as np

from .. import _core
from ..context import Context
from ..errors import InvalidArgumentError
from . import host as _host
from . import reshape as _reshape
from . import shaping as _shaping
from .arithmetic import Arithmetic
from .elements import BITS, CONVERTED, Elements, dtype_name, filled, is_row_sparse, numpy_dtype
from .elements import empty as _empty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

    from .._types import DenseArray, DType, Scalar, Shape, Where
    from .._types import Elements as Values
    from ..mxnet.numpy import ndarray
    from ..ndarray.sparse import RowSparseNDArray

A = TypeVar("A", bound=Elements)


class NDArray(Arithmetic):
    """A dense tensor of any shape with a dtype and a context.

    Dtypes are float16/32/64, bfloat16, int8/16/32/64, uint8 and bool; and float8_e4m3fn, float8_e5m2, uint16/32/64 and
    complex64, which are stored, assigned and converted, and have no arithmetic: a sum or an update of them is an error.

    Make one with `array`, `zeros`, `ones`, `full`, `empty` or `arange`.

    Example:
        >>> a = tkv.nd.array([[1, 2], [3, 4]])
        >>> a[1] += 10
        >>> a.asnumpy()
        array([[ 1.,  2.],
               [13., 14.]], dtype=float32)
        >>> a.shape, a.context
        ((2, 2), cpu(0))
    """

    __slots__ = ()
    __module__ = "tensorkv.ndarray"  # its public name, also in pickles

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Refuse: the functions of this module make arrays."""
        raise InvalidArgumentError(
            f"{type(self).__name__}(): arrays are made by tkv.nd.array(), tkv.nd.zeros() and others"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to use in the place of what MXNet's arrays have."""
            from ..mxnet import elsewhere

            elsewhere.missing("NDArray", name, self)

    @property
    def T(self) -> Self:
        """A transposed copy."""
        return filled(type(self), self._host().T, self.context, self.dtype_name)

    def copy(self) -> Self:
        """Return a new array with the same elements."""
        return self._copy()

    @overload
    def copyto(self, other: Context) -> Self: ...
    @overload
    def copyto(self, other: A) -> A: ...
    @overload
    def copyto(self, other: RowSparseNDArray) -> RowSparseNDArray: ...
    def copyto(self, other: Any) -> Any:
        """Copy into the array `other`, converting floats, or into a new array in the Context `other`; return it."""
        if isinstance(other, Context):
            shares = self.context == other or self.context.device_type == other.device_type == "cpu"
            return (self._copy() if shares else self)._with_context(other.device_type, other.device_id)
        if is_row_sparse(other):
            other[:] = self
            return other
        if not isinstance(other, Elements):
            raise InvalidArgumentError(f"copyto: type {type(other).__name__}, an NDArray or a Context is needed")
        other._assign(self if self.dtype_name == other.dtype_name else self.astype(other.dtype_name))
        return other

    def as_in_context(self, context: Context) -> Self:
        """Return this array if it is in `context`, else a copy there."""
        return self if self.context == context else self.copyto(context)

    as_in_ctx = as_in_context

    def astype(self, dtype: DType, copy: bool = True) -> Self:
        """Return a copy with another dtype; floats are rounded to nearest even, once."""
        name = dtype_name(dtype)
        if name == self.dtype_name:
            return self._copy() if copy else self
        if name in CONVERTED and self.dtype_name in CONVERTED:
            return _core._convert_float(type(self), self, name)
        if self.dtype_name == "complex64":
            raise InvalidArgumentError(f"astype: complex64 to {name} would drop the imaginary parts")
        return filled(type(self), self._host().astype(numpy_dtype(name)), self.context, name)

    @overload
    def reshape(self, *dims: SupportsIndex, reverse: bool = False) -> Self: ...
    @overload
    def reshape(self, dims: Sequence[SupportsIndex], /, *, reverse: bool = False) -> Self: ...
    @overload
    def reshape(self, *, shape: Shape, reverse: bool = False) -> Self: ...
    def reshape(self, *dims: Any, shape: Any = None, reverse: bool = False) -> Self:
        """Return a view with another shape of as many elements.

        An array that is not `contiguous`, such as one shared from a NumPy slice with steps, is copied.

        Args:
            dims: the extents, or one list or tuple of them. An extent of -1 is computed from the number of elements. MXNet's
                codes work in `tkv.nd`. The code 0 keeps the extent of that place, -2 keeps all that follow, and -3 multiplies two
                extents. The code -4 splits an extent into the two numbers after it, one of which may be -1.
            shape: the same by name.
            reverse: in `tkv.nd`, match extents and codes from the right; the two numbers of -4 then stand before it.

        Raises:
            InvalidArgumentError: a shape of another number of elements, `shape` beside `dims`, codes that do not fit.

        Example:
            >>> a = tkv.nd.zeros((2, 3, 4))
            >>> a.reshape((0, -1)).shape, a.reshape((-3, 0)).shape, a.reshape((-4, 1, 2, -2)).shape
            ((2, 12), (6, 4), (1, 2, 3, 4))
            >>> a.reshape((-1, 0), reverse=True).shape
            (6, 4)
        """
        if shape is not None:
            if dims:
                raise InvalidArgumentError(f"reshape: {dims} and shape={shape!r}, one of them is needed")
            dims = (shape,)
        if len(dims) == 1 and isinstance(dims[0], (list, tuple)):
            dims = tuple(dims[0])
        return self._reshape(self._extents(dims, reverse))

    def _extents(self, wanted: tuple[Any, ...], reverse: bool) -> list[int]:
        return _reshape.of_codes(self.shape, wanted, reverse)

    # Functions of this module, whose first argument is the array.
    arccos: ClassVar[_host.Function] = _host.arccos
    arccosh: ClassVar[_host.Function] = _host.arccosh
    arcsin: ClassVar[_host.Function] = _host.arcsin
    arcsinh: ClassVar[_host.Function] = _host.arcsinh
    arctan: ClassVar[_host.Function] = _host.arctan
    arctanh: ClassVar[_host.Function] = _host.arctanh
    argmax: ClassVar[_host.Function] = _host.argmax
    argmin: ClassVar[_host.Function] = _host.argmin
    argsort: ClassVar[_host.Function] = _host.argsort
    broadcast_like: ClassVar[_host.Function] = _shaping.broadcast_like
    broadcast_to: ClassVar[_host.Function] = _shaping.broadcast_to
    cbrt: ClassVar[_host.Function] = _host.cbrt
    ceil: ClassVar[_host.Function] = _host.ceil
    clip: ClassVar[_host.Function] = _host.clip
    cos: ClassVar[_host.Function] = _host.cos
    cosh: ClassVar[_host.Function] = _host.cosh
    degrees: ClassVar[_host.Function] = _host.degrees
    diag: ClassVar[_host.Function] = _shaping.diag
    exp: ClassVar[_host.Function] = _host.exp
    expand_dims: ClassVar[_host.Function] = _shaping.expand_dims
    expm1: ClassVar[_host.Function] = _host.expm1
    fix: ClassVar[_host.Function] = _host.fix
    flatten: ClassVar[_host.Function] = _shaping.flatten
    flip: ClassVar[_host.Function] = _shaping.flip
    floor: ClassVar[_host.Function] = _host.floor
    log: ClassVar[_host.Function] = _host.log
    log10: ClassVar[_host.Function] = _host.log10
    log1p: ClassVar[_host.Function] = _host.log1p
    log2: ClassVar[_host.Function] = _host.log2
    log_softmax: ClassVar[_host.Function] = _host.log_softmax
    max: ClassVar[_host.Function] = _host.max
    mean: ClassVar[_host.Function] = _host.mean
    min: ClassVar[_host.Function] = _host.min
    nansum: ClassVar[_host.Function] = _host.nansum
    norm: ClassVar[_host.Function] = _host.norm
    one_hot: ClassVar[_host.Function] = _host.one_hot
    ones_like: ClassVar[_host.Function] = _host.ones_like
    pick: ClassVar[_host.Function] = _host.pick
    prod: ClassVar[_host.Function] = _host.prod
    radians: ClassVar[_host.Function] = _host.radians
    reciprocal: ClassVar[_host.Function] = _host.reciprocal
    relu: ClassVar[_host.Function] = _host.relu
    repeat: ClassVar[_host.Function] = _shaping.repeat
    reshape_like: ClassVar[_host.Function] = _shaping.reshape_like
    rint: ClassVar[_host.Function] = _host.rint
    round: ClassVar[_host.Function] = _host.round
    rsqrt: ClassVar[_host.Function] = _host.rsqrt
    sigmoid: ClassVar[_host.Function] = _host.sigmoid
    sin: ClassVar[_host.Function] = _host.sin
    sinh: ClassVar[_host.Function] = _host.sinh
    slice: ClassVar[_host.Function] = _shaping.slice
    slice_axis: ClassVar[_host.Function] = _shaping.slice_axis
    slice_like: ClassVar[_host.Function] = _shaping.slice_like
    softmax: ClassVar[_host.Function] = _host.softmax
    sort: ClassVar[_host.Function] = _host.sort
    split: ClassVar[_host.Function] = _shaping.split
    square: ClassVar[_host.Function] = _host.square
    squeeze: ClassVar[_host.Function] = _shaping.squeeze
    swapaxes: ClassVar[_host.Function] = _shaping.swapaxes
    take: ClassVar[_host.Function] = _host.take
    tan: ClassVar[_host.Function] = _host.tan
    tanh: ClassVar[_host.Function] = _host.tanh
    tile: ClassVar[_host.Function] = _shaping.tile
    topk: ClassVar[_host.Function] = _host.topk
    transpose: ClassVar[_host.Function] = _shaping.transpose
    trunc: ClassVar[_host.Function] = _host.trunc
    zeros_like: ClassVar[_host.Function] = _host.zeros_like

    def as_nd_ndarray(self) -> NDArray:
        """Return the same memory as a `tkv.nd` array."""
        return self._as(NDArray)

    def as_np_ndarray(self) -> ndarray:
        """Return the same memory as a `tkv.np` array."""
        from ..mxnet.numpy import ndarray

        return self._as(ndarray)

    @overload
    def tostype(self, stype: Literal["default"]) -> Self: ...
    @overload
    def tostype(self, stype: Literal["row_sparse"]) -> RowSparseNDArray: ...
    @overload
    def tostype(self, stype: str) -> Self | RowSparseNDArray: ...
    def tostype(self, stype: str) -> Self | RowSparseNDArray:
        """Return this array for ``'default'``, for ``'row_sparse'`` a copy of its rows that are not zero."""
        if stype == "default":
            return self
        from ..ndarray import sparse

        return sparse.cast_storage(self, stype)  # type: ignore[return-value]  # of another type than 'default'

    def __copy__(self) -> Self:
        """Return a copy with memory of its own."""
        return self._copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with memory of its own."""
        return self._copy()

    def __reduce__(self) -> tuple[Callable[..., NDArray], tuple[Any, ...]]:
        """Pickle by value."""
        kind, index = self._context
        return _rebuild, (type(self), self._numpy_for_reading().copy(), self.dtype_name, kind, index)

    def __repr__(self) -> str:
        """Return the elements, then shape and context, as MXNet prints them."""
        dims = "x".join(str(n) for n in self.shape)
        body = self.astype("float32") if self.dtype_name in BITS else self
        return f"\n{body._host()!s}\n<{type(self).__name__} {dims} @{self.context}>"


_core._register_array_class(NDArray)


def _rebuild(cls: type[A], raw: np.ndarray[Any, Any], dtype: str, kind: str, index: int) -> A:
    """Return an array with a copy of memory that a pickle or a file holds."""
    result = _core._empty(cls, list(raw.shape), dtype, "cpu", 0)
    result._numpy_for_writing()[...] = raw
    return result._with_context(kind, index)


_rebuild.__module__ = "tensorkv.ndarray"  # its name in pickles


@overload
def empty(shape: Shape, ctx: Where = None, dtype: DType = None, stype: Literal["default"] | None = None) -> NDArray: ...
@overload
def empty(
    shape: Shape, ctx: Where = None, dtype: DType = None, *, stype: Literal["row_sparse"]
) -> RowSparseNDArray: ...
def empty(shape: Shape, ctx: Where = None, dtype: DType = None, stype: str | None = None) -> NDArray | RowSparseNDArray:
    """Return an uninitialised array.

    Args:
        shape: an int or a tuple of ints.
        ctx: the Context, default `tkv.current_context()`.
        dtype: float32 by default; a name or a NumPy type.
        stype: None or ``'default'``; of `empty` and `zeros` also ``'row_sparse'``, which gives a RowSparseNDArray without rows.

    Raises:
        InvalidArgumentError: a negative extent, a dtype that arrays cannot have.
        ResourceExhaustedError: no such memory.
        UnimplementedError: ``gpu(i)`` on a machine without GPUs, another storage type.

    Example:
        >>> tkv.nd.empty((2, 3), tkv.cpu(1), dtype='float64').shape
        (2, 3)
    """
    if stype == "row_sparse":
        from ..ndarray import sparse

        return sparse.zeros(stype, shape, ctx, dtype)
    return _empty(NDArray, shape, ctx, dtype, stype)


def full(
    shape: Shape,
    val: Scalar,
    ctx: Where = None,
    dtype: DType = None,
    stype: str | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Return an array whose every element is `val`, or fill `out`. Arguments and errors as `empty`.

    Example:
        >>> tkv.nd.full((2,), 7).asnumpy()
        array([7., 7.], dtype=float32)
    """
    result = _empty(NDArray, shape, ctx, dtype, stype)
    result._set_all(val)
    return result if out is None else _host.stored(result, out)


@overload
def zeros(shape: Shape, ctx: Where = None, dtype: DType = None, stype: Literal["default"] | None = None) -> NDArray: ...
@overload
def zeros(
    shape: Shape, ctx: Where = None, dtype: DType = None, *, stype: Literal["row_sparse"]
) -> RowSparseNDArray: ...
def zeros(shape: Shape, ctx: Where = None, dtype: DType = None, stype: str | None = None) -> NDArray | RowSparseNDArray:
    """Return an array of zeros. Arguments and errors as `empty`.

    Example:
        >>> tkv.nd.zeros((2,)).asnumpy()
        array([0., 0.], dtype=float32)
    """
    if stype == "row_sparse":
        from ..ndarray import sparse

        return sparse.zeros(stype, shape, ctx, dtype)
    return full(shape, 0, ctx, dtype, stype)


def ones(shape: Shape, ctx: Where = None, dtype: DType = None, stype: str | None = None) -> NDArray:
    """Return an array of ones. Arguments and errors as `empty`.

    Example:
        >>> (tkv.nd.ones((2,)) * 3).asnumpy()
        array([3., 3.], dtype=float32)
    """
    return full(shape, 1, ctx, dtype, stype)


def array(source_array: Values, ctx: Where = None, dtype: DType = None) -> NDArray:
    """Return a new array with a copy of a list, a NumPy array, an NDArray or any array that speaks DLPack.

    As in MXNet, a RowSparseNDArray gives a RowSparseNDArray.

    Args:
        source_array: the elements, of any shape.
        ctx: the Context, default `tkv.current_context()`, or that of an NDArray.
        dtype: default float32, also for NumPy's float64 and int64; that of the source for an NDArray.

    Raises:
        InvalidArgumentError: a ragged list, elements that are no real numbers, a masked array.

    Example:
        >>> tkv.nd.array([[1, 2], [3, 4]], dtype='int32').asnumpy()
        array([[1, 2],
               [3, 4]], dtype=int32)
    """
    if isinstance(source_array, Elements):
        source = source_array._as(NDArray)
        result = source._copy() if dtype is None else source.astype(dtype)
        return result if ctx is None else result._with_context(Context(ctx).device_type, Context(ctx).device_id)
    if is_row_sparse(source_array):
        from ..ndarray import sparse

        return sparse.array(source_array, ctx, dtype)  # type: ignore[return-value]  # MXNet's exception
    if not isinstance(source_array, np.ndarray) and hasattr(source_array, "__dlpack__"):
        return array(_core._view_of(NDArray, source_array, False), ctx, dtype or "float32")
    return filled(NDArray, _unwrapped(source_array), ctx, dtype_name(dtype))


def _unwrapped(items: Any) -> Any:
    """Return nested lists with NDArrays as NumPy arrays; anything else as it is."""
    if isinstance(items, (list, tuple)):
        return [_unwrapped(x) for x in items]
    return items._host() if isinstance(items, Elements) else items


def _by_numpy(name: str, make: Callable[..., np.ndarray[Any, Any]], *args: Any) -> np.ndarray[Any, Any]:
    """Return the result of a NumPy function for a user's arguments to `name`."""
    try:
        return make(*args)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: object = None,
    ctx: Where = None,
    dtype: DType = None,
) -> NDArray:
    """Return the numbers from `start` (0 if it stands alone) below `stop`, each `repeat` times, shape ``(n,)``.

    `infer_range` has no effect, as in MXNet.

    Raises:
        InvalidArgumentError: a number that an integer dtype cannot hold; a `step` of 0, a negative `repeat`.

    Example:
        >>> tkv.nd.arange(2, 5).asnumpy()
        array([2., 3., 4.], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    # An integer times 1.0 would be a double, which does not hold all of 64 bits.
    if step == 1:
        step = 1
    numbers = _by_numpy("arange", np.arange, start, stop, step)
    name = dtype_name(dtype)
    if numbers.size and name not in (*CONVERTED, "bool", "complex64"):
        info = np.iinfo(numpy_dtype(name))
        if numbers.min() < info.min or numbers.max() > info.max:
            raise InvalidArgumentError(f"arange: {numbers[0]} to {numbers[-1]}, {name} holds {info.min} to {info.max}")
    return array(_by_numpy("arange", np.repeat, numbers, repeat), ctx=ctx, dtype=dtype)


def eye(N: int, M: int = 0, k: int = 0, ctx: Where = None, dtype: DType = None) -> NDArray:
    """Return a matrix of N rows and M columns (0: N) with ones on a diagonal.

    Example:
        >>> tkv.nd.eye(2).asnumpy()
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    return array(_by_numpy("eye", np.eye, N, M or N, k), ctx, dtype)


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, ctx: Where = None, dtype: DType = None
) -> NDArray:
    """Return `num` numbers at equal distances from `start` to `stop`, without `stop` where `endpoint` is False.

    Example:
        >>> tkv.nd.linspace(0, 1, 3).asnumpy()
        array([0. , 0.5, 1. ], dtype=float32)
    """
    return array(_by_numpy("linspace", np.linspace, start, stop, num, endpoint), ctx, dtype)


def cast(data: NDArray, dtype: DType, out: NDArray | None = None, name: object = None) -> NDArray:
    """Return ``data.astype(dtype)``, in `out` if there is one.

    Example:
        >>> tkv.nd.cast(tkv.nd.ones((2,)), 'int32').asnumpy()
        array([1, 1], dtype=int32)
    """
    made = data.astype(dtype)
    return made if out is None else _host.stored(made, out)


def from_dlpack(x: DenseArray) -> NDArray:
    """Return an array that shares the memory of any object with DLPack or the buffer protocol.

    Raises:
        InvalidArgumentError: an object without either, a dtype or device that arrays cannot have.

    Example:
        >>> memory = np.zeros(2, np.float32)
        >>> tkv.nd.from_dlpack(memory)[:] = 5
        >>> memory
        array([5., 5.], dtype=float32)
    """
    return _core._view_of(NDArray, x, False)


def from_numpy(ndarray: DenseArray, zero_copy: bool = True) -> NDArray:
    """Return an array that shares the memory of NumPy's, as `from_dlpack`; with ``zero_copy=False`` a copy.

    Example:
        >>> memory = np.zeros(2, np.float32)
        >>> tkv.nd.from_numpy(memory)[:] = 5
        >>> memory
        array([5., 5.], dtype=float32)
    """
    shared = from_dlpack(ndarray)
    return shared if zero_copy else shared._copy()


def random_uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: Shape | None = None,
    ctx: Where = None,
    dtype: DType = None,
    out: NDArray | None = None,
    name: object = None,
) -> NDArray:
    """Return uniform random numbers from `low` to `high`, drawn as `tkv.random.uniform` does.

    Example:
        >>> tkv.nd.random_uniform(-1, 1, shape=(2,)).shape
        (2,)
    """
    from .. import random

    return random.uniform(low, high, shape, ctx=ctx, dtype=dtype, out=out)


def random_normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: Shape | None = None,
    ctx: Where = None,
    dtype: DType = None,
    out: NDArray | None = None,
    name: object = None,
) -> NDArray:
    """Return normal random numbers, drawn as `tkv.random.normal` does.

    Example:
        >>> tkv.nd.random_normal(shape=(2,)).shape
        (2,)
    """
    from .. import random

    return random.normal(loc, scale, shape, ctx=ctx, dtype=dtype, out=out)


def waitall() -> None:
    """Wait until no operation reads or writes an array any more; failures are told by tickets and stores.

    Example:
        >>> tkv.nd.waitall()
    """
    _core._wait_all()
