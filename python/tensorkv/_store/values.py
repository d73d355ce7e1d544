"""Row-sparse and dense values and outputs of a call, and whether they fit a key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from .._array import nd
from .._array import rows as _rows
from .._array.elements import BITS, FLOATS, dtype_name, is_row_sparse, is_scalar
from .._array.ndarray import NDArray
from .._array.rows import is_rows
from ..errors import InvalidArgumentError
from .arguments import as_list

if TYPE_CHECKING:
    from ..ndarray.sparse import RowSparseNDArray


class KeyForm(NamedTuple):
    """The form of a key."""

    shape: tuple[int, ...]  # of one row if the key is kept by rows
    dtype: str
    rows: int | None  # ids are below it; None: the key is dense

    def whole(self) -> tuple[int, ...]:
        """Return the shape of the value with all rows."""
        return self.shape if self.rows is None else (self.rows, *self.shape)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether a value of that shape fits; of a key without an end any number of rows does."""
        return shape == self.whole() or (self.rows == _rows.ROWS_MAX and shape[1:] == self.shape and len(shape) > 0)


class GivenRows(NamedTuple):
    """The rows of a value: ids may repeat, in any order."""

    ids: np.ndarray[Any, Any]
    values: Any
    shape: tuple[int, ...]


def shape_and_dtype(value: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a row-sparse value."""
    return tuple(value.shape), dtype_name(value.dtype)


def form_of_value(who: str, value: Any, writable: bool) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a dense or a row-sparse value or output."""
    if is_row_sparse(value) or (not writable and is_rows(value)):
        return shape_and_dtype(value)
    view = view_of(who, value, writable)
    return view.shape, view.dtype_name


def rows_given(who: str, value: Any, is_unique: bool = False) -> GivenRows:
    """Return the rows of a row-sparse value, each once with `is_unique`."""
    if is_row_sparse(value):
        return GivenRows(value._ids, value._data, value._shape)
    if _rows.is_of_torch(value):
        return GivenRows(*_rows.rows_of_torch(who, value, is_unique))
    return GivenRows(*_rows.rows_of_scipy(who, value))


def check_rows(who: str, given: GivenRows, info: KeyForm) -> None:
    """Raise if rows are not those of a key."""
    if not info.takes(given.shape):
        raise InvalidArgumentError(f"{who}: shape {given.shape}, the key has {shown_form(info)}")
    check_dtype_of_values(who, given.values, dtype_name(getattr(given.values, "dtype_name", given.values.dtype)), info)


def check_dtype_of_values(who: str, values: Any, found: str, info: KeyForm) -> None:
    """Raise if values are not of the dtype of the key."""
    if found != info.dtype:
        is_of_torch = type(values).__module__.partition(".")[0] == "torch"
        cast = f"to(torch.{info.dtype})" if is_of_torch else f"astype({info.dtype!r})"
        raise InvalidArgumentError(f"{who}: dtype {found}, the key has {info.dtype}; values.{cast} converts")


def check_dtype_of_output(who: str, dtype: str, wanted: str) -> None:
    """Raise if an output of the dtype cannot get a value."""
    if dtype != wanted and not (dtype in FLOATS and wanted in FLOATS):
        raise InvalidArgumentError(f"{who}: the output is {dtype}, the key has {wanted}; only floats convert")


def check_whole(who: str, info: KeyForm) -> None:
    """Raise if all rows of a key are more than an array of them may have."""
    if info.rows is None:
        return
    if info.rows == _rows.ROWS_MAX:
        raise InvalidArgumentError(f"{who}: the key has 2**63 rows; pull_rows(key, ids) gives some")
    row_bytes = math.prod(info.shape) * np.dtype(BITS.get(info.dtype, info.dtype)).itemsize
    if not _core._fit_one_array(info.rows, row_bytes):
        raise InvalidArgumentError(
            f"{who}: the key has {info.rows} rows of {row_bytes} bytes, too many for one array; pull_rows(key, ids) gives some"
        )


def check_range(who: str, ids: np.ndarray[Any, Any], info: KeyForm) -> None:
    rows = info.rows if info.rows is not None else (info.shape[0] if info.shape else 0)
    if not _rows.are_below(ids, rows):
        _rows.check_ids(who, ids, rows, f"the key has {shown_form(info)}")


def shown_form(info: KeyForm) -> str:
    if info.rows is None:
        return f"shape {info.shape}"
    return f"{'2**63' if info.rows == _rows.ROWS_MAX else info.rows} rows of shape {info.shape}"


def has_rows(key: Any, *values: Any) -> bool:
    """Return true if a value or an output of a call is row-sparse; an output may be None."""
    given = [
        one for value in values if value is not None for one in (value if isinstance(key, (list, tuple)) else [value])
    ]
    return any(is_rows(one) for arrays in given for one in as_list(arrays))


def dense_of(value: Any) -> Any:
    """Return a row-sparse value as a dense array."""
    if is_row_sparse(value):
        return value.tostype("default")
    if _rows.is_of_torch(value):
        return _rows.summed(value.detach(), lambda tensor: tensor.to_dense())
    return value.toarray()


def array_of(who: str, given: Any, info: KeyForm) -> NDArray:
    """Return values of any kind as an array: numbers in the dtype of the key, arrays as they are."""
    if isinstance(given, (list, tuple)) or is_scalar(given):
        try:
            return nd.array(given, dtype=info.dtype)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{who}: {error}") from None
    if is_rows(given):
        raise InvalidArgumentError(
            f"{who}: values of type {type(given).__name__} that are row-sparse; a dense array with a row for each id is needed, and "
            "push(key, value) takes row-sparse values, with the ids that they have"
        )
    array = view_of(who, given, False)
    check_dtype_of_values(who, given, array.dtype_name, info)
    return array


def new_array(shape: Sequence[int], dtype: str, like: Any = None) -> NDArray:
    """Return an uninitialised array, in the context of another one."""
    context = like.context if like is not None else None
    kind, index = ("cpu", 0) if context is None else (context.device_type, context.device_id)
    return _core._empty(NDArray, list(shape), dtype, kind, index)


def view_of(who: str, array: Any, writable: bool) -> NDArray:
    """Return an array of any framework as one of this package that shares its memory."""
    if isinstance(array, NDArray):
        return array._as(NDArray)
    try:
        return _core._view_of(NDArray, array, writable)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{who}: {error}") from None


def in_framework_of(arrays: Any, example: Any) -> Any:
    """Return arrays in the framework of an example, if there is one."""
    if example is None:
        return arrays
    from .._array import interop as _interop

    return _interop.like(arrays, example)


def each_in_framework_of(arrays: list[Any], examples: list[Any]) -> list[Any]:
    """Return each array in the framework of its example."""
    return [in_framework_of(array, example) for array, example in zip(arrays, examples, strict=True)]


def empty_like(who: str, array: Any) -> NDArray | RowSparseNDArray:
    """Return a new array with the shape, the dtype and the context of an array of any framework."""
    from ..ndarray import sparse

    if is_row_sparse(array):
        return sparse.zeros("row_sparse", array.shape, array.context, array.dtype_name)
    try:
        view = _core._view_of(NDArray, array, False)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{who}: {error}") from None
    return _core._empty(NDArray, list(view.shape), view.dtype_name, *view._context)
