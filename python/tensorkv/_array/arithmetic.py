"""Arithmetic of arrays: elementwise, on the evaluator that runs updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from .. import _core
from .._part import part_of
from ..errors import InvalidArgumentError
from . import host as _host
from .elements import Elements, filled, is_row_sparse, is_scalar, number
from .indexing import Indexed

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._types import Operand

ADD, SUB, MUL, DIV = (_core._BINARY_OPS[name] for name in ("add", "sub", "mul", "div"))
LT, LE, GT, GE, EQ, NE = (_core._BINARY_OPS[name] for name in ("lt", "le", "gt", "ge", "eq", "ne"))
_NEG, _ABS, _SQRT = (_core._UNARY_OPS[name] for name in ("neg", "abs", "sqrt"))

Operation: TypeAlias = "int | _host.Function"

# NumPy's comparison of each operation that compares.
COMPARISONS: dict[Operation, Any] = {
    LT: np.less,
    LE: np.less_equal,
    GT: np.greater,
    GE: np.greater_equal,
    EQ: np.equal,
    NE: np.not_equal,
}

EXACT = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


def _broadcast(a: Elements, shape: tuple[int, ...]) -> Elements:
    return filled(type(a), np.broadcast_to(a._host(), shape), a.context, a.dtype_name)


@part_of("NDArray")
class Arithmetic(Indexed):
    """The part of NDArray that calculates."""

    __slots__ = ()
    _modulo: ClassVar[_host.Function] = staticmethod(_host.modulo)
    __array_priority__: float = 1000.0  # so that numpy_array * NDArray calls this class
    __hash__: ClassVar[None]  # type: ignore[assignment]  # == compares element by element

    def _met(self, other: np.ndarray[Any, Any]) -> Self:
        """Return an array of NumPy in this array's dtype; an error where an integer dtype cannot hold its values."""
        met = filled(type(self), other, self.context, self.dtype_name)
        if np.dtype(other.dtype).kind != "b" and self.dtype_name in EXACT and not np.array_equal(met._host(), other):
            raise InvalidArgumentError(
                f"arithmetic: {self.dtype_name} cannot hold the values of the {other.dtype} operand; astype() first"
            )
        return met

    def _operand(self, other: Any) -> float | Elements | None:
        """Return `other` as the core takes it: a number, or an array of this shape and dtype; None if it is neither."""
        if is_scalar(other):
            return number(other)
        if isinstance(other, np.ndarray):
            other = self._met(other)
        if type(other) is not type(self) and not issubclass(
            type(other), Elements
        ):  # an array without elements is neither
            return None
        if other.shape == self.shape:
            return other  # type: ignore[no-any-return]  # an Elements
        try:
            shape = np.broadcast_shapes(self.shape, other.shape)
        except ValueError:
            raise InvalidArgumentError(f"arithmetic: shape {self.shape} with {other.shape}") from None
        return _broadcast(other, shape)

    def _binary(self, op: Operation, other: object, swapped: bool = False) -> Self:
        operand = self._operand(other)
        if operand is None:
            return NotImplemented  # type: ignore[no-any-return]
        this: Elements = self
        if isinstance(operand, Elements) and operand.shape != self.shape:
            this = _broadcast(self, operand.shape)
        lhs, rhs = (operand, this) if swapped else (this, operand)
        if not isinstance(op, int):
            return op(lhs, rhs)  # type: ignore[no-any-return]  # of the class of its first array, as is what _operand makes
        return _core._binary(type(self), op, lhs, rhs)

    def _inplace(self, op: Operation, other: Any) -> Self:
        if is_row_sparse(other):
            if op in (ADD, SUB) and other.dtype_name == self.dtype_name:
                other._add_into(op, self)
                return self
            other = other.tostype("default")
        operand = self._operand(other)
        if operand is None:
            return NotImplemented  # type: ignore[no-any-return]
        if isinstance(operand, Elements) and operand.shape != self.shape:
            raise InvalidArgumentError(f"arithmetic: the result has shape {operand.shape}, the array {self.shape}")
        if isinstance(op, int):
            _core._binary_into(op, self, operand, self)
        else:
            op(self, operand, out=self)
        return self

    def __add__(self, other: Operand) -> Self:
        """Return ``self + other``."""
        return self._binary(ADD, other)

    def __radd__(self, other: Operand) -> Self:
        """Return ``other + self``."""
        return self._binary(ADD, other)

    def __sub__(self, other: Operand) -> Self:
        """Return ``self - other``."""
        return self._binary(SUB, other)

    def __rsub__(self, other: Operand) -> Self:
        """Return ``other - self``."""
        return self._binary(SUB, other, swapped=True)

    def __mul__(self, other: Operand) -> Self:
        """Return ``self * other``, element by element."""
        return self._binary(MUL, other)

    def __rmul__(self, other: Operand) -> Self:
        """Return ``other * self``, element by element."""
        return self._binary(MUL, other)

    def __truediv__(self, other: Operand) -> Self:
        """Return ``self / other``; floats only."""
        return self._binary(DIV, other)

    def __rtruediv__(self, other: Operand) -> Self:
        """Return ``other / self``; floats only."""
        return self._binary(DIV, other, swapped=True)

    def __iadd__(self, other: Operand) -> Self:
        """Add in place."""
        return self._inplace(ADD, other)

    def __isub__(self, other: Operand) -> Self:
        """Subtract in place."""
        return self._inplace(SUB, other)

    def __imul__(self, other: Operand) -> Self:
        """Multiply in place."""
        return self._inplace(MUL, other)

    def __itruediv__(self, other: Operand) -> Self:
        """Divide in place; floats only."""
        return self._inplace(DIV, other)

    def __mod__(self, other: Operand) -> Self:
        """Return the remainder of ``self / other``, with the sign of `other`.

        For a divisor of 0 it is 0, and in `tkv.np` NumPy's result.
        """
        return self._binary(self._modulo, other)

    def __rmod__(self, other: Operand) -> Self:
        """Return the remainder of ``other / self``, with the sign of `self`.

        For a divisor of 0 it is 0, and in `tkv.np` NumPy's result.
        """
        return self._binary(self._modulo, other, swapped=True)

    def __imod__(self, other: Operand) -> Self:
        """Leave the remainder in place."""
        return self._inplace(self._modulo, other)

    def __pow__(self, other: Operand) -> Self:
        """Return ``self`` to the power of `other`, element by element."""
        return self._binary(_host.power, other)

    def __rpow__(self, other: Operand) -> Self:
        """Return `other` to the power of ``self``, element by element."""
        return self._binary(_host.power, other, swapped=True)

    def __ipow__(self, other: Operand) -> Self:
        """Raise to a power in place."""
        return self._inplace(_host.power, other)

    def __neg__(self) -> Self:
        """Return ``-self``."""
        return _core._unary(type(self), _NEG, self)

    def __abs__(self) -> Self:
        """Return the absolute values."""
        return _core._unary(type(self), _ABS, self)

    def abs(self) -> Self:
        """Return the absolute values."""
        return _core._unary(type(self), _ABS, self)

    def sqrt(self) -> Self:
        """Return the square roots; floats only."""
        return _core._unary(type(self), _SQRT, self)

    def sign(self, *, out: Elements | None = None) -> Self:
        """Return -1, 0 or 1 for each element."""
        return _host.sign(self, out=out)  # type: ignore[no-any-return]  # of this class

    def sum(
        self,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        dtype: None = None,
        out: Elements | None = None,
    ) -> Self:
        """Return the sum over some axes: of floats in their dtype, added in float64; of integers and bools in int64.

        Args:
            axis: one or several; None and () sum all elements, which gives shape ``(1,)``, in `tkv.np` ``()``.
            keepdims: keep the axes, with extent 1.
            exclude: sum over all axes but these.
            dtype: None; it stands here because ``numpy.sum`` passes it.
            out: an array that takes the result.

        Raises:
            InvalidArgumentError: no such axis, a `dtype`.
        """
        return _host.sum(self, axis, keepdims, exclude, dtype, out=out)  # type: ignore[no-any-return]  # of this class

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        """Compare element by element: 1 and 0 in the array's dtype, in `tkv.np` bools."""
        return self._binary(EQ, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        """Compare element by element: 1 and 0 in the array's dtype, in `tkv.np` bools."""
        return self._binary(NE, other)

    def __lt__(self, other: Operand) -> Self:
        """Compare element by element: 1 and 0 in the array's dtype, in `tkv.np` bools."""
        return self._binary(LT, other)

    def __le__(self, other: Operand) -> Self:
        """Compare element by element: 1 and 0 in the array's dtype, in `tkv.np` bools."""
        return self._binary(LE, other)

    def __gt__(self, other: Operand) -> Self:
        """Compare element by element: 1 and 0 in the array's dtype, in `tkv.np` bools."""
        return self._binary(GT, other)

    def __ge__(self, other: Operand) -> Self:
        """Compare element by element: 1 and 0 in the array's dtype, in `tkv.np` bools."""
        return self._binary(GE, other)
