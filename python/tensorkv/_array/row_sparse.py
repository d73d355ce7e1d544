"""Row-sparse arrays: the class, and its arithmetic."""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, overload

import numpy as np

from .. import _core
from ..context import Context
from ..errors import InvalidArgumentError, UnimplementedError
from . import host as _host
from . import nd as _functions
from . import ndarray as _nd
from . import rows as _rows
from . import shaping as _shaping
from .arithmetic import ADD, COMPARISONS, DIV, EQ, GE, GT, LE, LT, MUL, NE, SUB, Operation
from .elements import Elements, dtype_name, filled, is_scalar, number, shape_list
from .elements import empty as _empty

if TYPE_CHECKING:
    from types import EllipsisType

    from typing_extensions import Self

    from .._types import DType, DTypeName, Shape, Where
    from .ndarray import NDArray


_CSR = "csr arrays are not here; scipy.sparse has them, and row_sparse_array takes those"
# Functions that give 0 for 0, so that rows that are not there stay so.
_KEEPS_ZEROS = frozenset(
    "abs arcsin arcsinh arctan arctanh cbrt ceil degrees expm1 fix floor log1p negative radians relu rint round sign sin "
    "sinh sqrt square tan tanh trunc".split()
)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}


def check_stype(who: str, stype: object) -> None:
    if stype == "csr":
        raise UnimplementedError(f"{who}: {_CSR}")
    if stype not in ("default", "row_sparse"):
        raise InvalidArgumentError(f"{who}: storage type {stype!r}; there are 'default' and 'row_sparse'")


def is_rows(value: object) -> bool:
    """Return whether a value is a RowSparseNDArray."""
    return isinstance(value, RowSparseNDArray)


def scatter(rows: NDArray, places: np.ndarray[Any, Any], target: NDArray) -> None:
    """Write rows to these places of an array."""
    if rows.size:
        host = target._on_host()
        host._numpy_for_writing()[places] = rows._numpy_for_reading()
        target._from_host(host)


def gather(array: NDArray, places: np.ndarray[Any, Any]) -> NDArray:
    """Return a new array with these rows of another one."""
    result = _core._empty(_nd.NDArray, [len(places), *array.shape[1:]], array.dtype_name, "cpu", 0)
    if result.size:
        np.take(array._numpy_for_reading(), places, axis=0, out=result._numpy_for_writing())
    return result._with_context(*array._context)


def _spread(data: NDArray, places: np.ndarray[Any, Any], rows: int) -> NDArray:
    """Return a new array of so many rows, zeros but for the rows of `data` at these places."""
    result = _core._empty(_nd.NDArray, [rows, *data.shape[1:]], data.dtype_name, "cpu", 0)
    if result.size:
        target = result._numpy_for_writing()
        target[...] = 0
        if data.size:
            target[places] = data._numpy_for_reading()
        del target
    return result._with_context(*data._context)


def _dense(value: Any) -> Any:
    """Return a row-sparse array as a dense one, anything else as it is."""
    return value.tostype("default") if isinstance(value, RowSparseNDArray) else value


class RowSparseNDArray:
    """Some rows of an array of at least one axis, whose other rows are zero. Make one with `row_sparse_array` or `zeros`.

    `indices` are sorted and unique; row i of `data` is row ``indices[i]``. As in MXNet, a sum, a difference or a
    product of two row-sparse arrays is row-sparse. So is a product with or a quotient by a number, and the result of a
    function that gives 0 for 0. Any other result is dense. ``x[:] = values`` and ``+=`` and its kin change the array
    itself, which takes the rows that the result has.

    Example:
        >>> a = tkv.nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2))
        >>> a.asnumpy()
        array([[1., 2.],
               [0., 0.],
               [3., 4.],
               [0., 0.]], dtype=float32)
        >>> (a * 2).indices.asnumpy(), (a + 1).stype
        (array([0, 2]), 'default')
    """

    __module__ = "tensorkv.ndarray.sparse"  # its public name
    __slots__ = ("__weakref__", "_data", "_ids", "_shape")
    _data: NDArray  # (n, ...)
    _ids: np.ndarray[Any, np.dtype[np.int64]]  # (n,), sorted, without repetitions; never changed in place
    _shape: tuple[int, ...]
    _is_row_sparse: ClassVar[bool] = True
    __array_priority__: float = 1001.0  # so that numpy_array * RowSparseNDArray calls this class
    __hash__: ClassVar[None]  # type: ignore[assignment]  # == compares element by element

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Refuse: the functions of this module make arrays."""
        raise InvalidArgumentError(
            "RowSparseNDArray(): arrays are made by tkv.nd.sparse.row_sparse_array() and tkv.nd.sparse.zeros()"
        )

    @classmethod
    def _of(cls, data: NDArray, ids: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Self:
        """Return an array of rows that are known to be right."""
        made = object.__new__(cls)
        made._data, made._ids, made._shape = data, ids, shape
        return made

    def _with(self, data: NDArray) -> Self:
        """Return the same rows with other elements."""
        return type(self)._of(data, self._ids, self._shape)

    def _take(self, other: Any) -> None:
        """Take the rows of another array of the same shape, in the dtype and the context of this one."""
        rows = other if isinstance(other, RowSparseNDArray) else rows_of_dense(other)
        data = rows._data if rows.dtype_name == self.dtype_name else rows._data.astype(self.dtype_name)
        if data.context != self.context:
            data = data.copyto(self.context)
        elif data is getattr(other, "_data", None) and rows is not self:
            data = data.copy()
        self._data, self._ids = data, rows._ids

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, which says how to use a member that only dense arrays have."""
            if not name.startswith("_") and hasattr(_nd.NDArray, name):
                raise AttributeError(
                    f"RowSparseNDArray.{name} is not here: tostype('default').{name} of a dense array (docs/mxnet.md)",
                    name=name,
                    obj=self,
                )
            from ..mxnet import elsewhere

            elsewhere.missing("RowSparseNDArray", name, self)

    # ------------------------------------------------------------------------------------------------------- its parts

    @property
    def indices(self) -> NDArray:
        """A copy of the indices: int64, sorted, without repetitions."""
        return filled(_nd.NDArray, self._ids, self.context, "int64")

    @property
    def data(self) -> NDArray:
        """The rows, shape ``(len(indices), ...)``: the memory itself, until the array takes other rows."""
        return self._data

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, a tuple of int."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements, including the zeros of missing rows."""
        size = 1
        for extent in self._shape:
            size *= extent
        return size

    @property
    def dtype(self) -> DTypeName:
        """The element type as of `NDArray.dtype`."""
        return self._data.dtype

    @property
    def dtype_name(self) -> str:
        """Element type by NumPy's name."""
        return self._data.dtype_name

    @property
    def context(self) -> Context:
        """The context that the array lives in."""
        return self._data.context

    ctx = context

    @property
    def stype(self) -> str:
        """The storage type: ``'row_sparse'``."""
        return "row_sparse"

    def __len__(self) -> int:
        """Return the extent of the first axis."""
        if self._shape[0] > sys.maxsize:
            raise InvalidArgumentError(f"len: {self._shape[0]} rows, which len() cannot return; shape[0] does")
        return self._shape[0]

    def __bool__(self) -> bool:
        """Return the truth of the only element."""
        return bool(self.tostype("default"))

    # ----------------------------------------------------------------------------------------------------- conversions

    @overload
    def tostype(self, stype: Literal["default"]) -> NDArray: ...
    @overload
    def tostype(self, stype: Literal["row_sparse"]) -> Self: ...
    @overload
    def tostype(self, stype: str) -> Self | NDArray: ...
    def tostype(self, stype: str) -> Self | NDArray:
        """Return a copy, dense for ``'default'``, row-sparse for ``'row_sparse'``."""
        check_stype("tostype", stype)
        if stype == "row_sparse":
            return self.copy()
        self._check_dense("tostype")
        return _spread(self._data, self._ids, self._shape[0])

    def _check_dense(self, who: str) -> None:
        """Raise if the array's shape is too large for a dense array, as that of a table without an end is."""
        if self.size >= 2**62:
            raise InvalidArgumentError(
                f"{who}: shape {self._shape} is too large to be dense; data has the rows that are there, indices their ids"
            )

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """Return a dense NumPy array with a copy of the elements."""
        return self.tostype("default").asnumpy()

    def asscipy(self) -> Any:
        """Return a ``scipy.sparse.csr_matrix`` of two axes; needs SciPy."""
        from scipy.sparse import csr_matrix  # type: ignore[import-untyped,import-not-found,unused-ignore]

        if self.ndim != 2:
            raise InvalidArgumentError(f"asscipy: the array has shape {self._shape}, two axes are needed")
        if self._shape[0] >= sys.maxsize:
            raise InvalidArgumentError(
                f"asscipy: {self._shape[0]} rows, more than SciPy counts; data and indices have them"
            )
        rows, columns = self._shape
        counts = np.zeros(rows + 1, np.int64)
        counts[self._ids + 1] = columns
        places = np.tile(np.arange(columns, dtype=np.int64), len(self._ids))
        return csr_matrix((self._data.asnumpy().reshape(-1), places, np.cumsum(counts)), shape=self._shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return a dense NumPy array."""
        if copy is False:
            raise ValueError("a row-sparse array cannot be seen as a dense one without a copy")
        dense = self.asnumpy()
        return dense if dtype is None else dense.astype(dtype)

    def copy(self) -> Self:
        """Return a new array with the same elements."""
        return self._with(self._data.copy())

    @overload
    def copyto(self, other: Context) -> Self: ...
    @overload
    def copyto(self, other: RowSparseNDArray) -> RowSparseNDArray: ...
    @overload
    def copyto(self, other: NDArray) -> NDArray: ...
    def copyto(self, other: Any) -> Any:
        """Copy into another array, dense or row-sparse, converting floats, or into a new one in a Context; return it."""
        if isinstance(other, Context):
            return self._with(self._data.copyto(other))
        if not isinstance(other, (Elements, RowSparseNDArray)):
            raise InvalidArgumentError(
                f"copyto: type {type(other).__name__}, a RowSparseNDArray, an NDArray or a Context is needed"
            )
        _check_shape("copyto", self._shape, other.shape)
        if isinstance(other, RowSparseNDArray):
            other._take(self)
            return other
        return self.tostype("default").copyto(other)

    def as_in_context(self, context: Context) -> Self:
        """Return this array if it is in `context`, else a copy there."""
        return self if self.context == context else self.copyto(context)

    as_in_ctx = as_in_context

    def astype(self, dtype: DType, copy: bool = True) -> Self:
        """Return a copy with another dtype; floats are rounded to nearest even, once."""
        if not copy and dtype_name(dtype) == self.dtype_name:
            return self
        return self._with(self._data.astype(dtype))

    def retain(self, indices: Any) -> Self:
        """Return the rows with these ids, in any order; of one that is not there a row of zeros. See `tkv.nd.sparse.retain`."""
        ids = np.unique(_rows.ids_of("retain", indices))
        _rows.check_ids("retain", ids, self._shape[0], f"the array has shape {self._shape}")
        known = np.isin(ids, self._ids, assume_unique=True)
        found = gather(self._data, np.searchsorted(self._ids, ids[known]))
        return type(self)._of(_spread(found, np.flatnonzero(known), len(ids)), ids, self._shape)

    def wait_to_read(self) -> None:
        """Wait until no operation writes to the array any more."""
        self._data.wait_to_read()

    def check_format(self, full_check: bool = True) -> None:
        """Do nothing: indices are looked at when an array is made."""

    # -------------------------------------------------------------------------------------------------------- elements

    def __getitem__(self, key: builtins.slice | EllipsisType) -> Self:
        """Return the array itself for ``[:]``; rows by index are those of a dense array, or of `retain`."""
        if key is Ellipsis or key == builtins.slice(None):
            return self
        raise InvalidArgumentError(
            f"index {key!r}: a row-sparse array has [:] alone; tostype('default') has rows and slices, retain(ids) some rows"
        )

    def __setitem__(self, key: builtins.slice | EllipsisType, value: Any) -> None:
        """Become a number everywhere, or an array of the same shape: row-sparse, dense or of NumPy."""
        if key is not Ellipsis and key != builtins.slice(None):
            raise InvalidArgumentError(f"assignment to [{key!r}]: a row-sparse array has [:] alone")
        if is_scalar(value):
            rows = self._shape[0] if number(value) != 0 else 0
            data = _empty(_nd.NDArray, (rows, *self._shape[1:]), self.context, self.dtype_name)
            data[:] = value
            self._data, self._ids = data, np.arange(rows, dtype=np.int64)
            return
        if not isinstance(value, (RowSparseNDArray, Elements)):
            value = filled(_nd.NDArray, value, self.context, self.dtype_name)
        _check_shape("assignment", value.shape, self._shape)
        if value is not self:
            self._take(value)

    # ------------------------------------------------------------------------------------------------------ arithmetic

    def _united(self, op: int, other: RowSparseNDArray) -> Self:
        """Return the operation on all rows that one of two arrays has."""
        _check_shape("arithmetic", other._shape, self._shape)
        if np.array_equal(self._ids, other._ids):
            return self._with(_core._binary(_nd.NDArray, op, self._data, other._data))
        ids = np.union1d(self._ids, other._ids)
        left, right = (_spread(x._data, np.searchsorted(ids, x._ids), len(ids)) for x in (self, other))
        return type(self)._of(_core._binary(_nd.NDArray, op, left, right), ids, self._shape)

    def _binary(self, op: Operation, other: Any, swapped: bool = False) -> Any:
        if is_scalar(other):
            if _stays_zero(op, other, swapped):
                return self._with(self._data._binary(op, other, swapped))
        elif isinstance(other, RowSparseNDArray):
            if op in (ADD, SUB, MUL) and isinstance(op, int):
                return self._united(op, other)
            other = other.tostype("default")
        elif not isinstance(other, (Elements, np.ndarray)):
            return NotImplemented
        elif op == MUL and not swapped and other.shape == self._shape:
            dense = other if isinstance(other, Elements) else filled(_nd.NDArray, other, self.context, self.dtype_name)
            return self._with(self._data * gather(dense._as(_nd.NDArray), self._ids))
        return self.tostype("default")._binary(op, other, swapped)

    def _inplace(self, op: Operation, other: Any) -> Self:
        result = self._binary(op, other)
        if result is NotImplemented:
            return result  # type: ignore[no-any-return]
        _check_shape("arithmetic", result.shape, self._shape)
        self._take(result)
        return self

    def _add_into(self, op: int, target: NDArray) -> None:
        """Add the rows to a dense array, or subtract them, in place."""
        _check_shape("arithmetic", self._shape, target.shape)
        rows = _core._binary(_nd.NDArray, op, gather(target._as(_nd.NDArray), self._ids), self._data)
        scatter(rows, self._ids, target)

    def __add__(self, other: Any) -> Any:
        """Return ``self + other``: row-sparse with a row-sparse array, dense with any other one or a number but 0."""
        return self._binary(ADD, other)

    def __radd__(self, other: Any) -> Any:
        """Return ``other + self``."""
        return self._binary(ADD, other, swapped=True)

    def __sub__(self, other: Any) -> Any:
        """Return ``self - other``: row-sparse with a row-sparse array, dense with any other one or a number but 0."""
        return self._binary(SUB, other)

    def __rsub__(self, other: Any) -> Any:
        """Return ``other - self``."""
        return self._binary(SUB, other, swapped=True)

    def __mul__(self, other: Any) -> Any:
        """Return ``self * other``, element by element: row-sparse with a number and with arrays of the same shape."""
        return self._binary(MUL, other)

    def __rmul__(self, other: Any) -> Any:
        """Return ``other * self``: row-sparse with a number, dense with a dense array."""
        return self._binary(MUL, other, swapped=True)

    def __truediv__(self, other: Any) -> Any:
        """Return ``self / other``: row-sparse with a number, else dense; floats only."""
        return self._binary(DIV, other)

    def __rtruediv__(self, other: Any) -> Any:
        """Return ``other / self``, dense; floats only."""
        return self._binary(DIV, other, swapped=True)

    def __iadd__(self, other: Any) -> Self:
        """Add in place."""
        return self._inplace(ADD, other)

    def __isub__(self, other: Any) -> Self:
        """Subtract in place."""
        return self._inplace(SUB, other)

    def __imul__(self, other: Any) -> Self:
        """Multiply in place."""
        return self._inplace(MUL, other)

    def __itruediv__(self, other: Any) -> Self:
        """Divide in place; floats only."""
        return self._inplace(DIV, other)

    def __mod__(self, other: Any) -> Any:
        """Return the remainder of ``self / other``, dense."""
        return self._binary(_host.modulo, other)

    def __rmod__(self, other: Any) -> Any:
        """Return the remainder of ``other / self``, dense."""
        return self._binary(_host.modulo, other, swapped=True)

    def __pow__(self, other: Any) -> Any:
        """Return ``self`` to the power of `other`, dense."""
        return self._binary(_host.power, other)

    def __rpow__(self, other: Any) -> Any:
        """Return `other` to the power of ``self``, dense."""
        return self._binary(_host.power, other, swapped=True)

    def __neg__(self) -> Self:
        """Return ``-self``."""
        return self._with(-self._data)

    def __abs__(self) -> Self:
        """Return the absolute values."""
        return self._with(builtins.abs(self._data))

    def __eq__(self, other: object) -> Any:
        """Compare element by element: 1 and 0 in the array's dtype; dense but where 0 compared with a number is 0."""
        return self._binary(EQ, other)

    def __ne__(self, other: object) -> Any:
        """Compare element by element, as ``==``."""
        return self._binary(NE, other)

    def __lt__(self, other: Any) -> Any:
        """Compare element by element, as ``==``."""
        return self._binary(LT, other)

    def __le__(self, other: Any) -> Any:
        """Compare element by element, as ``==``."""
        return self._binary(LE, other)

    def __gt__(self, other: Any) -> Any:
        """Compare element by element, as ``==``."""
        return self._binary(GT, other)

    def __ge__(self, other: Any) -> Any:
        """Compare element by element, as ``==``."""
        return self._binary(GE, other)

    def _called(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the result of a function of `tkv.nd` with this array among its arguments."""
        out = options.pop("out", None)
        result = self._computed(name, args, options)
        return result if out is None else result.copyto(out)

    def _computed(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        function = getattr(_functions, name)
        if name in _OPERATORS and len(args) == 2 and not options:
            return _OPERATORS[name](*args)
        if name == "add_n" and not options:
            return _sum_of(args)
        if args[0] is self:
            if name in _KEEPS_ZEROS or (
                name == "clip" and function(_zero(self._data), *args[1:], **options).item() == 0
            ):
                return self._with(function(self._data, *args[1:], **options))
            if name == "zeros_like":
                return without_rows(self._shape, self.context, self.dtype_name)
            if name in ("sum", "norm") and len(args) == 1 and not options.keys() - {"ord"}:
                return function(self._data, **options)
        return function(*(_dense(x) for x in args), **{key: _dense(x) for key, x in options.items()})

    # Functions of tkv.nd, whose first argument is the array.
    abs: ClassVar[_host.Function] = _host.abs
    arccos: ClassVar[_host.Function] = _host.arccos
    arccosh: ClassVar[_host.Function] = _host.arccosh
    arcsin: ClassVar[_host.Function] = _host.arcsin
    arcsinh: ClassVar[_host.Function] = _host.arcsinh
    arctan: ClassVar[_host.Function] = _host.arctan
    arctanh: ClassVar[_host.Function] = _host.arctanh
    argmax: ClassVar[_host.Function] = _host.argmax
    argmin: ClassVar[_host.Function] = _host.argmin
    cbrt: ClassVar[_host.Function] = _host.cbrt
    ceil: ClassVar[_host.Function] = _host.ceil
    clip: ClassVar[_host.Function] = _host.clip
    cos: ClassVar[_host.Function] = _host.cos
    cosh: ClassVar[_host.Function] = _host.cosh
    degrees: ClassVar[_host.Function] = _host.degrees
    exp: ClassVar[_host.Function] = _host.exp
    expm1: ClassVar[_host.Function] = _host.expm1
    fix: ClassVar[_host.Function] = _host.fix
    floor: ClassVar[_host.Function] = _host.floor
    log: ClassVar[_host.Function] = _host.log
    log10: ClassVar[_host.Function] = _host.log10
    log1p: ClassVar[_host.Function] = _host.log1p
    log2: ClassVar[_host.Function] = _host.log2
    max: ClassVar[_host.Function] = _host.max
    mean: ClassVar[_host.Function] = _host.mean
    min: ClassVar[_host.Function] = _host.min
    nansum: ClassVar[_host.Function] = _host.nansum
    norm: ClassVar[_host.Function] = _host.norm
    ones_like: ClassVar[_host.Function] = _host.ones_like
    prod: ClassVar[_host.Function] = _host.prod
    radians: ClassVar[_host.Function] = _host.radians
    reciprocal: ClassVar[_host.Function] = _host.reciprocal
    relu: ClassVar[_host.Function] = _host.relu
    rint: ClassVar[_host.Function] = _host.rint
    round: ClassVar[_host.Function] = _host.round
    rsqrt: ClassVar[_host.Function] = _host.rsqrt
    sigmoid: ClassVar[_host.Function] = _host.sigmoid
    sign: ClassVar[_host.Function] = _host.sign
    sin: ClassVar[_host.Function] = _host.sin
    sinh: ClassVar[_host.Function] = _host.sinh
    softmax: ClassVar[_host.Function] = _host.softmax
    sqrt: ClassVar[_host.Function] = _host.sqrt
    square: ClassVar[_host.Function] = _host.square
    sum: ClassVar[_host.Function] = _host.sum
    tan: ClassVar[_host.Function] = _host.tan
    tanh: ClassVar[_host.Function] = _host.tanh
    transpose: ClassVar[_host.Function] = _shaping.transpose
    trunc: ClassVar[_host.Function] = _host.trunc
    zeros_like: ClassVar[_host.Function] = _host.zeros_like

    # ------------------------------------------------------------------------------------------------------- as object

    def __copy__(self) -> Self:
        """Return a copy with memory of its own."""
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with memory of its own."""
        return self.copy()

    def __reduce__(self) -> tuple[Callable[..., RowSparseNDArray], tuple[Any, ...]]:
        """Pickle by value."""
        return _rebuild, (type(self), self._data, self._ids, self._shape)

    def __repr__(self) -> str:
        """Return type, shape and context, as MXNet prints them."""
        dims = "x".join(str(n) for n in self._shape)
        return f"\n<{type(self).__name__} {dims} @{self.context}>"


def _rebuild(
    cls: type[RowSparseNDArray], data: NDArray, ids: np.ndarray[Any, Any], shape: tuple[int, ...]
) -> RowSparseNDArray:
    return checked("unpickle", data, ids, shape, cls)


_rebuild.__module__ = "tensorkv.ndarray.sparse"  # the name in pickles


def without_rows(shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray:
    """Return a row-sparse array of zeros."""
    extents = tuple(shape_list(shape))
    if not extents or not 0 <= extents[0] <= _rows.ROWS_MAX:
        raise InvalidArgumentError(f"sparse.zeros: shape {extents}; a first extent from 0 to 2**63 is needed")
    data = _empty(_nd.NDArray, (0, *extents[1:]), ctx, dtype)
    return RowSparseNDArray._of(data, np.zeros(0, np.int64), extents)


def _zero(data: NDArray) -> NDArray:
    return _nd.zeros((1,), dtype=data.dtype_name)


def _stays_zero(op: Operation, scalar: Any, swapped: bool) -> bool:
    """Return whether an operation with a number gives 0 for 0; always true for ``x * number`` and ``x / number``."""
    if op in (ADD, SUB):
        return number(scalar) == 0 and not (swapped and op == SUB)
    if op in COMPARISONS:
        return not COMPARISONS[op](0, number(scalar))
    return op == MUL or (op == DIV and not swapped)


def _sum_of(arrays: tuple[Any, ...]) -> Any:
    total = arrays[0]
    for one in arrays[1:]:
        total = total + one
    return total.copy() if len(arrays) == 1 else total


def _check_shape(who: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if tuple(found) != tuple(wanted):
        raise InvalidArgumentError(f"{who}: shape {tuple(found)} where {tuple(wanted)} is needed")


def rows_of_dense(array: Any) -> RowSparseNDArray:
    """Return the rows of a dense array that are not zero."""
    array = array._as(_nd.NDArray)
    if array.ndim == 0:
        raise InvalidArgumentError("row_sparse: an array of shape () has no rows")
    raw = array._numpy_for_reading()
    ids = np.flatnonzero(raw.reshape(len(raw), -1).any(axis=1)) if array.size else np.zeros(0, np.int64)
    del raw
    return RowSparseNDArray._of(gather(array, ids), ids.astype(np.int64), array.shape)


def checked(
    who: str, data: Any, ids: np.ndarray[Any, Any], shape: Any, cls: type[RowSparseNDArray] = RowSparseNDArray
) -> RowSparseNDArray:
    """Return an array of rows with their ids in any order, after a look at both."""
    if ids.ndim != 1 or data.ndim < 1 or len(ids) != data.shape[0]:
        raise InvalidArgumentError(
            f"{who}: data of shape {tuple(data.shape)} and indices of shape {ids.shape}; a row for each index is needed"
        )
    if shape is None:
        if not ids.size:
            raise InvalidArgumentError(f"{who}: no rows and no shape; shape= is needed")
        shape = (int(ids.max()) + 1, *data.shape[1:])
    shape = tuple(shape_list(shape))
    if not shape or shape[1:] != tuple(data.shape[1:]) or not all(0 <= n <= _rows.ROWS_MAX for n in shape):
        raise InvalidArgumentError(f"{who}: rows of shape {tuple(data.shape[1:])}, an array of shape {shape}")
    _rows.check_ids(who, ids, shape[0], f"the array has shape {shape}")
    order = _rows.sorted_unique(who, ids)
    if order is not None:
        data, ids = gather(data, order), ids[order]
    return cls._of(data, ids, shape)
