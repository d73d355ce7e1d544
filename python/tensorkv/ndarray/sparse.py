"""Row-sparse arrays: ``tkv.nd.sparse``.

A RowSparseNDArray holds some rows of an array, each with its index; the other rows are zero. Gradients of embeddings
have this form, and `kv.row_sparse_pull` fills such arrays.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import numpy as np

from .._array import ndarray as _nd
from .._array import rows as _rows
from .._array.elements import Elements, dtype_name, shape_list
from .._array.host import (
    abs,
    add,
    add_n,
    arcsin,
    arcsinh,
    arctan,
    arctanh,
    cbrt,
    ceil,
    clip,
    cos,
    cosh,
    degrees,
    divide,
    dot,
    exp,
    expm1,
    fix,
    floor,
    log,
    log1p,
    log2,
    log10,
    mean,
    multiply,
    negative,
    norm,
    radians,
    relu,
    rint,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    sum,
    tan,
    tanh,
    trunc,
    where,
    zeros_like,
)
from .._array.row_sparse import (
    RowSparseNDArray,
    check_stype,
    checked,
    rows_of_dense,
    without_rows,
)
from .._array.row_sparse import _rebuild as _rebuild  # which pickles name
from .._array.shaping import concat, slice
from ..context import Context
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from .._array.ndarray import NDArray
    from .._types import DType, Shape, Where

__all__ = [
    "RowSparseNDArray",
    "abs",
    "add",
    "add_n",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "array",
    "cast_storage",
    "cbrt",
    "ceil",
    "clip",
    "concat",
    "cos",
    "cosh",
    "degrees",
    "divide",
    "dot",
    "empty",
    "exp",
    "expm1",
    "fix",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "mean",
    "multiply",
    "negative",
    "norm",
    "radians",
    "relu",
    "retain",
    "rint",
    "round",
    "row_sparse_array",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "slice",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "where",
    "zeros",
    "zeros_like",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from ..mxnet import elsewhere

        elsewhere.missing("mx.nd.sparse", name, sys.modules[__name__])


def row_sparse_array(arg1: Any, shape: Shape | None = None, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray:
    """Return a new row-sparse array.

    Args:
        arg1: ``(data, indices)``: rows of shape ``(n, ...)`` and n whole numbers in any order, in arrays of any framework
            or lists. Or an array, of which the rows are taken that are not zero: a RowSparseNDArray, an NDArray, one of
            NumPy, nested lists, or a matrix of ``scipy.sparse``. Or a ``torch.sparse_coo`` tensor whose first axis is
            sparse; its repeated rows are summed. Or a shape, for an array without rows.
        shape: the shape of the array; by default as many rows as the largest index asks for.
        ctx: the Context, default ``cpu(0)``, or that of an NDArray.
        dtype: by default that of the data if it is an array, float32 if it is a list.

    Raises:
        InvalidArgumentError: an index that stands twice or is no whole number, another number of indices than of rows, rows
            of another shape.
        OutOfRangeError: an index that is negative or not below the first extent.

    Example:
        >>> a = tkv.nd.sparse.row_sparse_array(([[3, 4], [1, 2]], [2, 0]), shape=(3, 2))
        >>> a.indices.asnumpy(), a.data.asnumpy()
        (array([0, 2]), array([[1., 2.],
               [3., 4.]], dtype=float32))
        >>> tkv.nd.sparse.row_sparse_array(([[1.0]], [3]), shape=(2, 1))
        Traceback (most recent call last):
        tensorkv.errors.OutOfRangeError: row_sparse_array: row 3; the array has shape (2, 1)
    """
    who = "row_sparse_array"
    if isinstance(arg1, tuple) and not _is_pair(arg1):
        if len(arg1) and all(isinstance(n, (int, np.integer)) for n in arg1):
            _check_given(who, tuple(arg1), shape)
            return zeros("row_sparse", arg1, ctx, dtype)
        raise InvalidArgumentError(f"{who}: a tuple of {len(arg1)}; (data, indices) or a shape is needed")
    if isinstance(arg1, tuple):
        rows, given = arg1
        return checked(who, _data(rows, ctx, dtype), _rows.ids_of(who, given), shape)
    if isinstance(arg1, RowSparseNDArray):
        made = arg1.copy() if dtype is None else arg1.astype(dtype)
        made = made if ctx is None else made.copyto(Context(ctx))
    elif _rows.is_of_torch(arg1):
        ids, values, found = _rows.rows_of_torch(who, arg1, is_unique=True)
        made = checked(who, _data(values, ctx, dtype), ids, found)
    elif _rows.is_of_scipy(arg1):
        ids, values, found = _rows.rows_of_scipy(who, arg1)
        made = checked(who, _data(values, ctx, dtype), ids, found)
    else:
        made = rows_of_dense(_data(arg1, ctx, dtype))
    _check_given(who, made._shape, shape)
    return made


def _is_pair(given: tuple[Any, ...]) -> bool:
    """Return whether this is data and indices, not a shape."""
    return len(given) == 2 and not all(isinstance(n, (int, np.integer)) for n in given)


def _check_given(who: str, found: tuple[int, ...], shape: Shape | None) -> None:
    if shape is not None and tuple(shape_list(shape)) != found:
        raise InvalidArgumentError(f"{who}: shape {tuple(shape_list(shape))}, the array has {found}")


def _data(values: Any, ctx: Where, dtype: DType) -> NDArray:
    """Return a new array of values, in their dtype if they have one."""
    if dtype is None and not isinstance(values, (list, tuple)):
        own = getattr(values, "dtype_name", getattr(values, "dtype", None))
        dtype = None if own is None else dtype_name(own)
    made: NDArray = _nd.array(values, ctx, dtype)
    return made


def array(source_array: Any, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray:
    """Return a copy of a row-sparse array, or the rows of a matrix of ``scipy.sparse``; of dense ones `row_sparse_array`.

    Example:
        >>> tkv.nd.sparse.array(tkv.nd.sparse.zeros('row_sparse', (3, 2))).shape
        (3, 2)
    """
    if isinstance(source_array, RowSparseNDArray) or _rows.is_of_scipy(source_array):
        return row_sparse_array(source_array, ctx=ctx, dtype=dtype)
    raise InvalidArgumentError(
        f"sparse.array: type {type(source_array).__name__}; tkv.nd.array makes dense arrays, row_sparse_array row-sparse ones"
    )


@overload
def zeros(stype: Literal["row_sparse"], shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray: ...
@overload
def zeros(stype: Literal["default"], shape: Shape, ctx: Where = None, dtype: DType = None) -> NDArray: ...
@overload
def zeros(stype: str, shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray | NDArray: ...
def zeros(stype: str, shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray | NDArray:
    """Return an array of zeros: ``'row_sparse'`` without any rows, ``'default'`` dense.

    The first extent of a row-sparse array may be up to 2**63: no memory is taken for it.

    Example:
        >>> tkv.nd.sparse.zeros('row_sparse', (2**40, 64)).indices.shape
        (0,)
    """
    check_stype("sparse.zeros", stype)
    if stype == "default":
        return _nd.zeros(shape, ctx, dtype)
    return without_rows(shape, ctx, dtype)


@overload
def empty(stype: Literal["row_sparse"], shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray: ...
@overload
def empty(stype: Literal["default"], shape: Shape, ctx: Where = None, dtype: DType = None) -> NDArray: ...
@overload
def empty(stype: str, shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray | NDArray: ...
def empty(stype: str, shape: Shape, ctx: Where = None, dtype: DType = None) -> RowSparseNDArray | NDArray:
    """Return a new array of a storage type; a row-sparse one has no rows.

    Example:
        >>> tkv.nd.sparse.empty('row_sparse', (3, 2)).stype
        'row_sparse'
    """
    return zeros(stype, shape, ctx, dtype)


@overload
def cast_storage(data: RowSparseNDArray | NDArray, stype: Literal["row_sparse"]) -> RowSparseNDArray: ...
@overload
def cast_storage(data: RowSparseNDArray | NDArray, stype: Literal["default"]) -> NDArray: ...
@overload
def cast_storage(data: RowSparseNDArray | NDArray, stype: str) -> RowSparseNDArray | NDArray: ...
def cast_storage(data: RowSparseNDArray | NDArray, stype: str) -> RowSparseNDArray | NDArray:
    """Return a copy with a storage type, ``'default'`` or ``'row_sparse'``: of a dense array the rows that are not zero.

    Example:
        >>> tkv.nd.cast_storage(tkv.nd.array([[0, 0], [1, 2]]), 'row_sparse').indices.asnumpy()
        array([1])
    """
    if not isinstance(data, (RowSparseNDArray, Elements)):
        raise InvalidArgumentError(f"cast_storage: type {type(data).__name__}, an NDArray is needed")
    check_stype("cast_storage", stype)
    if isinstance(data, RowSparseNDArray):
        return data.tostype(stype)
    return data.copy() if stype == "default" else rows_of_dense(data)


def retain(data: RowSparseNDArray, indices: Any) -> RowSparseNDArray:
    """Return the rows with these ids: sorted, each once; a row that is not there is zeros.

    Args:
        data: a row-sparse array.
        indices: whole numbers in any order, of any shape, in an array of any framework or a list.

    Raises:
        OutOfRangeError: an id that is negative or not below the first extent.

    Example:
        >>> a = tkv.nd.sparse.row_sparse_array(([[1.0], [2.0]], [0, 2]), shape=(3, 1))
        >>> tkv.nd.sparse.retain(a, [2, 1]).data.asnumpy()
        array([[0.],
               [2.]], dtype=float32)
    """
    if not isinstance(data, RowSparseNDArray):
        raise InvalidArgumentError(f"retain: type {type(data).__name__}, a RowSparseNDArray is needed")
    return data.retain(indices)


for _one in (array, zeros, empty, cast_storage, retain, row_sparse_array):
    _one.__module__ = "tensorkv.ndarray.sparse"
