"""Rows, slices and elements of arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from .. import _core
from .._part import part_of
from ..context import cpu
from ..errors import InvalidArgumentError, OutOfRangeError
from .elements import Elements, converted, empty, filled, is_row_sparse, is_scalar

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import Self

    from .._types import Elements as Values
    from .._types import Index


def _plain(key: Any) -> Any:
    """Return an index with NDArrays as NumPy arrays of integers."""
    if isinstance(key, tuple):
        return tuple(_plain(k) for k in key)
    if isinstance(key, Elements):
        view = key._host()
        if view.dtype.kind in "biu":
            return view
        whole = view.astype(np.float64)
        if not np.array_equal(whole, np.trunc(whole)) or not np.isfinite(whole).all():
            raise InvalidArgumentError("index: an array of floats that are no whole numbers")
        return whole.astype(np.int64)
    return key


def names_row(key: object) -> TypeGuard[SupportsIndex]:
    return not isinstance(key, (tuple, bool, np.bool_, np.ndarray, _core.Array)) and hasattr(key, "__index__")


@part_of("NDArray")
class Indexed(Elements):
    """The part of NDArray that looks its elements up."""

    __slots__ = ()

    def __len__(self) -> int:
        """Return the extent of the first axis."""
        if self.ndim == 0:
            raise InvalidArgumentError("len: an array of shape () has no rows")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """Iterate over the rows."""
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        """Return the truth of the only element."""
        if self.size != 1:
            raise InvalidArgumentError(f"bool: an array of shape {self.shape}; one element is needed")
        return bool(self.asscalar())

    def __int__(self) -> int:
        """Return the only element as an int."""
        return int(self.asscalar())

    def __float__(self) -> float:
        """Return the only element as a float."""
        return float(self.asscalar())

    def __index__(self) -> int:
        """Return the only element of an integer array."""
        return operator.index(self.asscalar())

    def _row(self, index: int) -> int:
        rows = len(self)
        at = index + rows if index < 0 else index
        if not 0 <= at < rows:
            raise OutOfRangeError(f"index {index}: the array has shape {self.shape}")
        return at

    def __getitem__(self, key: Index) -> Self:
        """Return a view for an int, a slice of the first axis or ``...``, else a copy.

        A row of a 1-D array has shape ``(1,)``, as in MXNet.
        """
        if key is Ellipsis:
            return self._as(type(self))
        if isinstance(key, slice):
            begin, end, step = key.indices(len(self))
            if step == 1:
                return self._slice(begin, max(begin, end))
        elif names_row(key):
            at = self._row(operator.index(key))
            return self._slice(at, at + 1) if self.ndim == 1 else self._at(at)
        try:
            picked = self._host()[_plain(key)]
        except IndexError as error:
            raise OutOfRangeError(f"index: {error}; the array has shape {self.shape}") from None
        return filled(type(self), picked, self.context, self.dtype_name)

    def __setitem__(self, key: Index, value: Values) -> None:
        """Write a number, an array or a nested list to the elements that `key` names.

        A number that the dtype cannot hold, such as 300 or 0.5 in uint8, is an error; arrays are cast as NumPy casts.
        """
        self._check_writable("assignment", "array")
        if isinstance(key, slice) and key == slice(None):
            if is_scalar(value):
                self._set_all(value)  # type: ignore[arg-type]  # is_scalar has looked
                return
            key = Ellipsis  # which an array of shape () has too
        if is_row_sparse(value):
            value = value.tostype("default")  # type: ignore[union-attr]  # it is none of the others
        elements: Any = value._host() if isinstance(value, Elements) else value
        if is_scalar(elements):
            one = empty(Elements, (), cpu(), self.dtype_name)
            one._set_all(elements)
            elements = one._host()
        else:
            elements = converted(elements, self.dtype_name)
        try:
            if names_row(key):
                at = self._row(operator.index(key))
                row = self._slice(at, at + 1)
                row._write(..., np.reshape(elements, row.shape) if self.ndim == np.size(elements) == 1 else elements)
            else:
                self._write(_plain(key), elements)
        except IndexError as error:
            raise OutOfRangeError(f"index: {error}; the array has shape {self.shape}") from None
        except ValueError as error:
            raise InvalidArgumentError(f"assignment: {error}") from None
