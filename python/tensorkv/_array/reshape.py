"""The shape that `reshape` asks for, in MXNet's codes or as NumPy has it."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator
from typing import NoReturn, SupportsIndex

from ..errors import InvalidArgumentError


class _Coded:
    """Extents that are made from the left, each by a code that takes some of those of an array."""

    def __init__(self, shape: tuple[int, ...], codes: list[int], reverse: bool) -> None:
        """Make all of them."""
        self.shape, self.wanted = shape, codes
        self.source = list(reversed(shape)) if reverse else list(shape)
        self.taken = 0  # how many of `source` belong to the codes before
        self.made: list[int] = []
        rest = iter(reversed(codes) if reverse else codes)
        for code in rest:
            self._make(code, rest)
        if reverse:
            self.made.reverse()

    def _make(self, code: int, rest: Iterator[int]) -> None:
        if code == 0:
            self.made += self._take(1)
        elif code == -2:
            self.made += self._take(max(0, len(self.source) - self.taken))
        elif code == -3:
            self.made.append(math.prod(self._take(2)))
        elif code == -4:
            self.made += self._split(self._take(1)[0], list(itertools.islice(rest, 2)))
        elif code >= -1:
            self.made.append(code)
            self.taken += 1
        else:
            self._refuse(f"there is no code {code}")

    def _take(self, count: int) -> list[int]:
        if self.taken + count > len(self.source):
            self._refuse("the codes take more extents than the array has")
        self.taken += count
        return self.source[self.taken - count : self.taken]

    def _split(self, extent: int, halves: list[int]) -> list[int]:
        known = [half for half in halves if half > 0]
        if len(halves) == 2 and len(known) == 1 and -1 in halves:
            known.insert(halves.index(-1), extent // known[0])
        if len(halves) != 2 or math.prod(known) != extent or len(known) != 2:
            self._refuse(f"-4 splits {extent} into {halves}; two extents with that product are needed, one may be -1")
        return known

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidArgumentError(f"reshape: shape {self.shape} to {tuple(self.wanted)}: {why}")


def _complete(shape: tuple[int, ...], wanted: list[int], extents: list[int]) -> list[int]:
    """Return the extents with -1 replaced by the number that it stands for."""
    if extents.count(-1) > 1:
        raise InvalidArgumentError(f"reshape: shape {tuple(wanted)} has -1 more than once")
    if -1 in extents:
        rest = math.prod(extent for extent in extents if extent != -1)
        size = math.prod(shape)
        if rest == 0 or size % rest != 0:
            raise InvalidArgumentError(f"reshape: shape {tuple(wanted)} does not fit {size} elements")
        extents[extents.index(-1)] = size // rest
    return extents


def of_codes(shape: tuple[int, ...], wanted: Iterable[SupportsIndex], reverse: bool = False) -> list[int]:
    """Return the extents that MXNet's codes ask for of an array of a shape.

    0 takes an extent as it is, -1 what is left of the elements, -2 all the other extents, -3 the product of two extents;
    -4 and two numbers split one. A positive number takes an extent's place. `reverse` goes from the right, codes too.
    """
    codes = [operator.index(code) for code in wanted]
    return _complete(shape, codes, _Coded(shape, codes, reverse).made)


def of_numpy(shape: tuple[int, ...], wanted: Iterable[SupportsIndex]) -> list[int]:
    """Return extents of which one may be -1."""
    extents = [operator.index(extent) for extent in wanted]
    return _complete(shape, list(extents), extents)
