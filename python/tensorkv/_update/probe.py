"""Comparing a program with the function that it was read from, on arrays with elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._array.elements import FLOATS, filled, numpy_dtype
from .._array.ndarray import NDArray, zeros
from ..context import cpu
from ..errors import KVError

if TYPE_CHECKING:
    from .._types import Key

NARROW = ("float16", "bfloat16")
LARGEST = 1 << 26  # elements of a key whose own shape is needed
OWN_SHAPE_MAX = 4096  # elements; a larger key is compared with fewer, if the function gives the same program for them
_ELEMENTS = 256
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.1, -0.5, 2.0, 3.0, math.inf, -math.inf, math.nan)

# Calls the function: key, arrays of the sum and of the stored value, and the states by their names.
Call = Callable[["Key", NDArray, NDArray, dict[str, NDArray]], None]


def computed_in(dtype: str) -> str:
    """Return the dtype that a function sees of a key, and that its states have."""
    return "float32" if dtype in NARROW else dtype


def small_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with as many axes and few elements."""
    return (*(1 for _ in shape[1:]), _ELEMENTS)


def _zeros_are_ordered() -> bool:
    """Return whether NumPy's maximum takes the second one of two equal zeros, as programs do; it is not so everywhere."""
    zeros = np.zeros(_ELEMENTS, np.float32)
    return bool(np.signbit(np.maximum(zeros, -zeros)).all() and not np.signbit(np.maximum(-zeros, zeros)).any())


class Draws:
    """Values of a dtype: ordinary ones and special ones, the same in each process."""

    def __init__(self, dtype: str, shape: tuple[int, ...], has_extremes: bool) -> None:
        """Make the generator.

        Args:
            has_extremes: the program uses max or min. Then -0.0 is left out if NumPy on this machine does not take the second
                of two equal zeros.
        """
        self._random = np.random.Generator(np.random.PCG64(20))
        self._dtype = dtype
        self._shape = shape
        self._size = math.prod(shape)
        self._has_negative_zero = not has_extremes or _zeros_are_ordered()

    def ordinary(self, dtype: str | None = None) -> NDArray:
        """Return random values, as gradients and weights are."""
        if self._dtype in FLOATS:
            scale = 10.0 ** self._random.integers(-2, 2, self._size)
            return self._array(self._random.normal(size=self._size) * scale, dtype)
        low, high = (0, 9) if self._dtype.startswith(("u", "b")) else (-9, 9)
        return self._array(self._random.integers(low, high, self._size), dtype)

    def special(self, dtype: str | None = None) -> NDArray:
        """Return values of which most are limits of the dtype, infinite, a NaN or a zero."""
        return self._array(self._random.choice(self._specials(), self._size), dtype)

    def _specials(self) -> np.ndarray[Any, Any]:
        if self._dtype == "bool":
            return np.array([False, True])
        if self._dtype not in FLOATS:
            whole = np.iinfo(self._dtype)
            return np.array([0, 1, 2, 3, whole.min, whole.max, whole.max - 1], np.dtype(self._dtype))
        info = np.finfo("float32" if self._dtype == "bfloat16" else self._dtype)
        tiny = float(info.smallest_subnormal) * (2.0**16 if self._dtype == "bfloat16" else 1)
        limits = [tiny, -tiny, float(info.tiny), float(info.max) / 2, -float(info.max) / 2]
        values = [
            one for one in (*_SPECIAL, *limits) if self._has_negative_zero or one != 0 or math.copysign(1, one) > 0
        ]
        return np.array(values)

    def _array(self, values: np.ndarray[Any, Any], dtype: str | None) -> NDArray:
        return filled(NDArray, values.reshape(self._shape), cpu(), dtype or self._dtype)


class Difference(Exception):
    """An element for which calling the function gives another value than its program."""


def compare(
    program: _core.Program,
    call: Call,
    key: Key,
    shape: tuple[int, ...],
    dtype: str,
    states: list[str],
    is_thorough: bool,
) -> None:
    """Call the function and run its program on the same values, several times, and compare all bits.

    Raises:
        Difference: the message has both values.
        Exception: the function raised it.
    """
    wide = computed_in(dtype)
    native = _core.Optimizer(program, False, False)
    try:
        given, stored = (zeros(shape, cpu(), dtype) for _ in range(2))
        native.apply(key, 1, given, stored, [zeros(shape, cpu(), wide) for _ in states], None)  # type: ignore[arg-type]  # any key
    except KVError as error:
        if _is_called(call, key, shape, dtype, {name: zeros(shape, cpu(), wide) for name in states}):
            raise Difference(f"servers cannot run it for a key of {dtype}: {error}") from None
        return  # a push fails, as it does in one process
    size = math.prod(shape)
    draws = Draws(dtype, shape, " max " in program.text or " min " in program.text)
    rounds = max(2, min(24, math.ceil(_ELEMENTS / max(size, 1)))) if is_thorough else 1
    trials = [draws.special, draws.ordinary] if is_thorough else [draws.special]
    for draw in trials:
        begin = [draw(wide) for _ in states] if draw == draws.special else [zeros(shape, cpu(), wide) for _ in states]
        stored = draw()
        mine, theirs = (_Copy(stored, dict(zip(states, begin, strict=True))) for _ in range(2))
        for i in range(rounds):
            if draw == draws.special and i > 0:  # NaNs do not go away
                mine, theirs = (_Copy(one, mine.states) for one in [draw()] * 2)
            given = draw()
            before = mine.stored.copy()
            native.apply(key, i + 1, given.copy(), mine.stored, list(mine.states.values()), None)  # type: ignore[arg-type]  # any key
            call(key, given.copy(), theirs.stored, theirs.states)
            _compare(mine, theirs, before, given)


def _is_called(call: Call, key: Key, shape: tuple[int, ...], dtype: str, states: dict[str, NDArray]) -> bool:
    """Return whether a call of the function ends well."""
    try:
        call(key, zeros(shape, cpu(), dtype), zeros(shape, cpu(), dtype), states)
    except Exception:
        return False
    return True


class _Copy:
    """A stored value and its states."""

    def __init__(self, stored: NDArray, states: dict[str, NDArray]) -> None:
        self.stored = stored.copy()
        self.states = {name: array.copy() for name, array in states.items()}

    def items(self) -> Iterator[tuple[str, NDArray]]:
        yield "the stored value", self.stored
        yield from ((f"state {name!r}", array) for name, array in self.states.items())


def _compare(program: _Copy, called: _Copy, before: NDArray, given: NDArray) -> None:
    if set(called.states) - set(program.states):
        raise Difference(f"called with arrays it asks for the states {sorted(called.states)}")
    for (who, one), (_, other) in zip(program.items(), called.items(), strict=True):
        mine, theirs = _host(one), _host(other)
        differs = mine.view(f"u{mine.itemsize}") != theirs.view(f"u{theirs.itemsize}")
        if mine.dtype.kind == "f":
            differs &= ~(np.isnan(mine) & np.isnan(theirs))
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            stored, pushed = _host(before)[at], _host(given)[at]
            raise Difference(
                f"for an element {stored} of the stored value and {pushed} of the sum, {who} becomes {theirs[at]} "
                f"where the function is called, and {mine[at]} where its program runs"
            )


def _host(array: NDArray) -> np.ndarray[Any, Any]:
    """Return the elements in one axis, 16-bit floats as float32."""
    wide = array.astype("float32") if array.dtype_name in NARROW else array
    return np.asarray(wide.asnumpy(), numpy_dtype(wide.dtype_name)).reshape(-1)
