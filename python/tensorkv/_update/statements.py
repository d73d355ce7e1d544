"""Functions of NumPy and of `tkv.nd` on arrays without elements: the statements of a program that they become."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .traced import BOOL, OPERATIONS, UFUNCS, Array, Traced, TracedNumpy, refuse

if TYPE_CHECKING:
    from .reading import Reading


def reading_of(*operands: Any) -> Reading:
    """Return the reading of the first array among operands."""
    found: Array = next(one for one in operands if isinstance(one, Array))
    return found._reading


def _is_mask(operand: Any) -> bool:
    return isinstance(operand, Array) and bool(operand._type == BOOL)


def _truth(reading: Reading, a: Any) -> Any:
    """Return an operand that is 1 or 0 for a true or false one."""
    if isinstance(a, Array):
        return a if _is_mask(a) else Traced(reading, reading.make("ne", a, 0))
    return int(bool(a))


def _extreme(op: str) -> Callable[..., str]:
    """Return a function that records np.maximum or np.minimum. The operation `op` alone loses a NaN of `a`."""

    def make(reading: Reading, a: Any, b: Any) -> str:
        made = reading.make(op, a, b)
        if not isinstance(a, Array) or a._type.kind != "f":
            return made
        return reading.add("select", [reading.make("ne", a, a), reading.operand(a), made])

    return make


def clipped(reading: Reading, a: Array, low: Any, high: Any) -> str:
    """Return `a` limited to the bounds. For +0 and -0 NumPy takes the element if both bounds are numbers, else the bound."""
    if low is None or high is None or isinstance(low, Array) or isinstance(high, Array):
        content = reading.operand(a)
        for op, bound in (("max", low), ("min", high)):
            if bound is not None:
                content = _extreme(op)(reading, Traced(reading, content), bound)
        return content
    return reading.make("min", high, Traced(reading, reading.make("max", low, a)))


def _simple(op: str) -> Callable[..., str]:
    return lambda reading, *inputs: reading.make(op, *inputs)


def _logical(op: str) -> Callable[..., str]:
    return lambda reading, a, b: reading.make(op, _truth(reading, a), _truth(reading, b))


def _is_false(reading: Reading, a: Any) -> str:
    return reading.make("eq", a, 0)


def _is_finite(reading: Reading, a: Any) -> str:
    return reading.make("lt", Traced(reading, reading.make("abs", a)), math.inf)


def _is_infinite(reading: Reading, a: Any) -> str:
    return reading.make("eq", Traced(reading, reading.make("abs", a)), math.inf)


_RECORDS: dict[str, Callable[..., str]] = {
    **{ufunc.__name__: _simple(op) for op, ufunc in UFUNCS.items()},
    "negative": _simple("neg"),
    "absolute": _simple("abs"),
    "fabs": _simple("abs"),
    "sqrt": _simple("sqrt"),
    "sign": _simple("sign"),
    "square": lambda reading, a: reading.make("mul", a, a),
    "positive": lambda reading, a: reading.operand(a),
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
    "isnan": lambda reading, a: reading.make("ne", a, a),
    "isfinite": _is_finite,
    "isinf": _is_infinite,
    "logical_and": _logical("mul"),
    "logical_or": _logical("max"),
    "logical_xor": _logical("ne"),
    "logical_not": _is_false,
}
# Functions of two masks, or of a mask, which NumPy computes as logic.
_MASK_RECORDS: dict[str, Callable[..., str]] = {
    "add": _simple("max"),
    "multiply": _simple("mul"),
    "bitwise_and": _simple("mul"),
    "bitwise_or": _simple("max"),
    "bitwise_xor": _simple("ne"),
    "invert": _is_false,
}


def record(reading: Reading, ufunc: Any, inputs: tuple[Any, ...]) -> tuple[str, np.dtype[Any]]:
    """Append the statements of one of NumPy's functions of elements. Return the result's name and NumPy's dtype of it.

    The function is called with arrays of one element, so that it raises the same errors as on arrays of these dtypes. A
    program computes in the dtype of the key, so NumPy has to do that, too.
    """
    name = ufunc.__name__
    if name not in _RECORDS and name not in _MASK_RECORDS:
        refuse(f"np.{name}; a function that servers run has {OPERATIONS}")
    dummies = [reading.dummy(one) for one in inputs]
    with np.errstate(all="ignore"):
        made = ufunc(*dummies).dtype
    computed = np.result_type(*dummies) if made == BOOL else made
    reading.check_type(f"np.{name}", computed, reading.type, BOOL)
    records = _MASK_RECORDS if computed == BOOL and name in _MASK_RECORDS else _RECORDS
    if name not in records:
        refuse(f"np.{name} of {computed}; a function that servers run has {OPERATIONS}")
    return records[name](reading, *inputs), made


def _where(condition: Any, x: Any = None, y: Any = None) -> TracedNumpy:
    """Return `x` where the condition is not 0, else `y`."""
    if x is None or y is None:
        refuse("np.where without what it chooses from")
    reading = reading_of(condition, x, y)
    reading.check_axes("np.where")
    made = np.where(*[reading.dummy(one) for one in (condition, x, y)]).dtype
    return TracedNumpy(reading, reading.make("select", condition, x, y), made)


def _clip(a: Any, a_min: Any = ..., a_max: Any = ..., out: Any = None, **kwargs: Any) -> Any:
    """Return what np.clip returns; new versions of NumPy call the bounds `min` and `max`, too."""
    kwargs.update({} if out is None else {"out": out})
    unknown = sorted(set(kwargs) - {"min", "max"})
    if unknown:
        refuse(f"np.clip with {unknown}; `w[:] = ...` writes to an array")
    if not isinstance(a, Array):
        refuse("np.clip of a number between arrays; np.minimum and np.maximum take both")
    bounds = {"a_min": a_min, "a_max": a_max, **kwargs}
    given = {name: one for name, one in bounds.items() if one is not ...}
    dummies: dict[str, Any] = {name: None if one is None else 1 for name, one in given.items()}
    np.clip(np.ones(1), **dummies)  # raises what NumPy raises
    return a.clip(given.get("a_min", given.get("min")), given.get("a_max", given.get("max")))


def _copy(a: Any) -> TracedNumpy:
    a._reading.check_axes("np.copy")
    return TracedNumpy(a._reading, a._content, a._type)


OF_NUMPY: dict[str, Callable[..., Any]] = {
    "where": _where,
    "clip": _clip,
    "shape": operator.attrgetter("shape"),
    "size": operator.attrgetter("size"),
    "ndim": operator.attrgetter("ndim"),
    "copy": _copy,
}


# ---- functions of `tkv.nd`, which NumPy computes and which give NDArrays


def _check_of_nd(reading: Reading, *operands: Any) -> None:
    """Refuse operands that the functions of `tkv.nd` do not take."""
    arrays = [one for one in operands if isinstance(one, Array)]
    if all(type(one) is TracedNumpy for one in arrays):
        refuse("a function of tkv.nd without an NDArray; NumPy has functions of its arrays")
    for one in arrays:
        reading.check_type("a function of tkv.nd", one._type, reading.type)


def _nd_unary(ufunc: Any) -> Callable[[Any], Traced]:
    def make(data: Any) -> Traced:
        reading = reading_of(data)
        _check_of_nd(reading, data)
        return Traced(reading, record(reading, ufunc, (data,))[0])

    return make


def _nd_binary(ufunc: Any) -> Callable[[Any, Any], Traced]:
    def make(lhs: Any, rhs: Any) -> Traced:
        reading = reading_of(lhs, rhs)
        _check_of_nd(reading, lhs, rhs)
        return Traced(reading, record(reading, ufunc, (lhs, rhs))[0])

    return make


def _nd_where(condition: Any, x: Any, y: Any) -> Traced:
    reading = reading_of(condition, x, y)
    arrays = [one for one in (x, y) if isinstance(one, Array)]
    for one in arrays:
        reading.check_type("tkv.nd.where", one._type, reading.type)
    if not any(type(one) is Traced for one in (condition, *arrays)):
        refuse("tkv.nd.where without an NDArray; np.where takes NumPy's arrays")
    return Traced(reading, reading.make("select", condition, x, y))


def _nd_clip(data: Any, a_min: Any, a_max: Any) -> Traced:
    reading = reading_of(data, a_min, a_max)
    if not isinstance(data, Array):
        refuse(f"tkv.nd.clip of {type(data).__name__}")
    _check_of_nd(reading, data, a_min, a_max)
    return Traced(reading, clipped(reading, data, a_min, a_max))


OF_ND: dict[str, Callable[..., Traced]] = {
    **{name: _nd_unary(getattr(np, name)) for name in ("abs", "sqrt", "sign", "square", "negative", "logical_not")},
    **{
        name: _nd_binary(getattr(np, name))
        for name in (
            *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
            *("equal", "not_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor"),
        )
    },
    "lesser": _nd_binary(np.less),
    "lesser_equal": _nd_binary(np.less_equal),
    "where": _nd_where,
    "clip": _nd_clip,
}
