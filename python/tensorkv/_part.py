"""Classes that are made of parts in files of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

C = TypeVar("C", bound=type)


def part_of(name: str) -> Callable[[C], C]:
    """Return a decorator of a class whose functions are to be known, in errors, as those of the class that users know."""

    def rename(part: C) -> C:
        for member, value in vars(part).items():
            function = getattr(value, "__func__", value)  # of a static or class method
            if isinstance(function, FunctionType):
                function.__qualname__ = f"{name}.{member}"
        return part

    return rename
