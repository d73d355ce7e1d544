"""Checks of the numbers that users give as hyperparameters."""

from __future__ import annotations

import numbers

from ..errors import InvalidArgumentError


def _real(name: str, value: object) -> float:
    """Return a number as a float; raise unless it is one."""
    if isinstance(value, numbers.Number):
        try:
            return float(value)  # type: ignore[arg-type]  # a complex number raises
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidArgumentError(f"{name}: {value!r} has type {type(value).__name__}, a number is needed")


def number(name: str, value: object) -> float:
    """Return a hyperparameter as a float; raise unless it is a number, which NaN is not."""
    found = _real(name, value)
    if found != found:
        raise InvalidArgumentError(f"{name}: nan, a number is needed")
    return found


def whole(name: str, value: object, least: int) -> int:
    """Return a whole number that is at least `least`."""
    found = _real(name, value)
    if isinstance(value, bool) or not found.is_integer() or found < least:
        raise InvalidArgumentError(f"{name}: {value!r}, a whole number from {least} is needed")
    return int(value) if isinstance(value, numbers.Integral) else int(found)  # a float has 53 bits
