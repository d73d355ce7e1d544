"""Arrays in NumPy's manner: ``mx.np``. The same arrays as `mx.nd`, printed as NumPy prints and with NumPy's indexing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as _np

from . import ndarray as _nd
from .ndarray import NDArray

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import DType, Elements, Scalar, Shape, Where

__all__ = ["arange", "array", "empty", "full", "ndarray", "ones", "zeros"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class ndarray(NDArray):
    """An NDArray that prints as NumPy's arrays do.

    Example:
        >>> mx.np.ones((2, 3)) * -2
        array([[-2., -2., -2.],
               [-2., -2., -2.]])
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return NumPy's form; float32 is the default and not named."""
        body = self.astype("float32") if self.dtype_name == "bfloat16" else self
        text = _np.array2string(body._host(), separator=", ", prefix="array(")
        if self.dtype_name in ("float32", "bool"):
            return f"array({text})"
        return f"array({text}, dtype={self.dtype_name})"

    def __str__(self) -> str:
        """Return the elements alone."""
        return str((self.astype("float32") if self.dtype_name == "bfloat16" else self)._host())

    def __getitem__(self, key: Any) -> Self:
        """Return a view for an int or a slice of the first axis, else a copy; a row of a 1-D array has shape ``()``."""
        row = super().__getitem__(key)
        is_row_of_vector = self.ndim == 1 and not isinstance(key, (slice, tuple)) and _np.ndim(key) == 0
        return row._reshape([]) if is_row_of_vector else row

    def as_nd_ndarray(self) -> NDArray:
        """Return the same memory as an `mx.nd` array."""
        return self._as(NDArray)


def _as_np(result: NDArray) -> ndarray:
    return result._as(ndarray)


def empty(shape: Shape, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an uninitialised array; float32 by default.

    Example:
        >>> mx.np.empty((2, 3)).shape
        (2, 3)
    """
    return _as_np(_nd.empty(shape, ctx, dtype))


def full(shape: Shape, fill_value: Scalar, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an array whose every element is `fill_value`.

    Example:
        >>> mx.np.full((2,), 7)
        array([7., 7.])
    """
    return _as_np(_nd.full(shape, fill_value, ctx, dtype))


def zeros(shape: Shape, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an array of zeros.

    Example:
        >>> mx.np.zeros((2,), dtype='int64')
        array([0, 0], dtype=int64)
    """
    return full(shape, 0, dtype, order, ctx)


def ones(shape: Shape, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an array of ones.

    Example:
        >>> mx.np.ones((2,), ctx=mx.cpu(1))
        array([1., 1.])
    """
    return full(shape, 1, dtype, order, ctx)


def array(object: Elements, dtype: DType = None, ctx: Where = None) -> ndarray:
    """Return a new array with a copy of a list or an array.

    Example:
        >>> mx.np.array([1, 2]) + mx.np.array([10, 20])
        array([11., 22.])
    """
    return _as_np(_nd.array(object, ctx, dtype))


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DType = None, ctx: Where = None) -> ndarray:
    """Return the numbers from `start` (0 if it stands alone) below `stop`.

    Example:
        >>> mx.np.arange(3)
        array([0., 1., 2.])
    """
    return _as_np(_nd.arange(start, stop, step, ctx=ctx, dtype=dtype))
