"""Arrays in NumPy's manner: ``mx.np``. The same arrays as `mx.nd`, printed as NumPy prints and with NumPy's indexing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as _np

from . import _arithmetic, _elements, _indexing
from . import ndarray as _nd
from .errors import InvalidArgumentError
from .ndarray import NDArray

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import DType, Elements, Scalar, Shape, Where

__all__ = ["arange", "array", "empty", "full", "ndarray", "ones", "zeros"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def _check_order(order: str) -> None:
    if order != "C":
        raise InvalidArgumentError(f"order={order!r}: arrays lie in C order")


class ndarray(NDArray):
    """An NDArray that prints, indexes, compares and promotes as NumPy's arrays do.

    Operands of two dtypes meet in the dtype that NumPy promotes them to, and comparisons give bools, which index as masks.

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
        return row._reshape([]) if self.ndim == 1 and _indexing.names_row(key) else row

    def _promoted(self, op: int, other: Any) -> tuple[Self, Any]:
        """Return both operands in the dtype that NumPy would calculate in; Python's numbers take the array's."""
        name = self.dtype_name
        if _elements.is_scalar(other):
            if isinstance(other, (bool, _np.bool_)):
                other = int(other)
            elif name not in _elements.FLOATS and not isinstance(_elements.number(other), int):
                name = "float64"
            elif name == "bool":
                name = "int64"
        elif isinstance(other, (_np.ndarray, NDArray)):
            theirs = other.dtype_name if isinstance(other, NDArray) else other.dtype.name
            if theirs != name:
                try:
                    name = _np.promote_types(_elements.numpy_dtype(name), _elements.numpy_dtype(theirs)).name
                except TypeError as error:
                    raise InvalidArgumentError(f"arithmetic: {error}") from None
        else:
            return self, other
        if op == _arithmetic.DIV and name not in _elements.FLOATS:
            name = "float64"
        if not _elements.is_scalar(other):
            other = _elements.filled(
                type(self), other._host() if isinstance(other, NDArray) else other, self.context, name
            )
        return self.astype(name, copy=False), other

    def _binary(self, op: int, other: object, swapped: bool = False) -> Self:
        if op in _arithmetic.COMPARISONS and (_elements.is_scalar(other) or isinstance(other, (_np.ndarray, NDArray))):
            theirs: Any = other._host() if isinstance(other, NDArray) else other
            try:
                truth = _arithmetic.COMPARISONS[op](self._host(), theirs)
            except ValueError:
                raise InvalidArgumentError(f"arithmetic: shape {self.shape} with {_np.shape(theirs)}") from None
            return _elements.filled(type(self), truth, self.context, "bool")
        this, operand = self._promoted(op, other)
        result: Any = NDArray._binary(this, op, operand, swapped)  # of the class of `this`, or NotImplemented
        return result  # type: ignore[no-any-return]

    def _inplace(self, op: int, other: object) -> Self:
        if _elements.is_scalar(other) or not isinstance(other, (_np.ndarray, NDArray)):
            return super()._inplace(op, other)
        this, operand = self._promoted(op, other)
        if this.dtype_name == self.dtype_name:
            return super()._inplace(op, operand)
        if not _np.can_cast(
            _elements.numpy_dtype(this.dtype_name), _elements.numpy_dtype(self.dtype_name), "same_kind"
        ):
            raise InvalidArgumentError(f"arithmetic: a result of {this.dtype_name} into {self.dtype_name}")
        result = NDArray._binary(this, op, operand)
        if result.shape != self.shape:
            raise InvalidArgumentError(f"arithmetic: the result has shape {result.shape}, the array {self.shape}")
        self[...] = result
        return self

    def _joined(self, join: Any, other: Any) -> Self:
        """Return what NumPy makes of two arrays of bools; other dtypes have no logic."""
        theirs = other._host() if isinstance(other, NDArray) else other
        if self.dtype_name != "bool" or not isinstance(theirs, (bool, _np.bool_, _np.ndarray)):
            return NotImplemented  # type: ignore[no-any-return]
        if _np.asarray(theirs).dtype != bool:
            return NotImplemented  # type: ignore[no-any-return]
        try:
            return _elements.filled(type(self), join(self._host(), theirs), self.context, "bool")
        except ValueError:
            raise InvalidArgumentError(f"arithmetic: shape {self.shape} with {_np.shape(theirs)}") from None

    def __and__(self, other: Any) -> Self:
        """Return which bools are true in both arrays."""
        return self._joined(_np.logical_and, other)

    def __or__(self, other: Any) -> Self:
        """Return which bools are true in one of the arrays."""
        return self._joined(_np.logical_or, other)

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Self:
        """Return the bools the other way round."""
        if self.dtype_name != "bool":
            raise InvalidArgumentError(f"arithmetic: ~ of an array of {self.dtype_name}, bools are needed")
        return _elements.filled(type(self), ~self._host(), self.context, "bool")

    def sum(self, axis: Any = None, *, keepdims: bool = False, out: Any = None) -> Self:
        """Return the sum over some axes as `NDArray.sum`, of all elements with shape ``()``."""
        total, name = self._total(axis, keepdims, out)
        return _elements.filled(type(self), total, self.context, name)

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
    _check_order(order)
    return _as_np(_nd.empty(shape, ctx, dtype))


def full(shape: Shape, fill_value: Scalar, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an array whose every element is `fill_value`.

    Example:
        >>> mx.np.full((2,), 7)
        array([7., 7.])
    """
    _check_order(order)
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
