"""The steps of an optimizer whose pushes servers count."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from .kvstore import KVStore


class Steps:
    """The number of the step under way, and the keys that an earlier process of this worker has pushed in it.

    A worker may die between two pushes of a step. Its next process makes that step again and pushes only the other keys, so
    that each key is pushed once in each step. Servers keep the number of each key's last step for this.
    """

    def __init__(self, kv: KVStore) -> None:
        """Begin before the first step."""
        self._kv = kv
        self._number = 0
        self._size = 0  # keys that the step under way pushes; 0: none is under way
        self._pushed: frozenset[Any] = frozenset()

    @property
    def is_under_way(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._size > 0

    def made(self, keys: Iterable[Any]) -> int:
        """Return how many steps this worker has made, by the key that it has pushed most often.

        Args:
            keys: all keys of the optimizer.
        """
        known = [key for key in keys if key in self._kv]
        pushed = self._left_unfinished(known)[1] if self._number == 0 else self._pushed
        return max((self._kv.round(key) - (key in pushed) for key in known), default=0)

    def begin(self, keys: Collection[Any], resting: Iterable[Any] = ()) -> None:
        """Begin the next step, if none is under way.

        Args:
            keys: all keys that this step pushes; the store may lack some, which the step makes.
            resting: other keys of the optimizer, which earlier steps may have pushed.
        """
        if self._size > 0:
            return
        if self._number == 0:
            self._number, self._pushed = self._left_unfinished(key for key in [*keys, *resting] if key in self._kv)
        else:
            self._number += 1
        self._size = len(keys)

    def _left_unfinished(self, keys: Iterable[Any]) -> tuple[int, frozenset[Any]]:
        """Return the number of the first step of this process, and the keys that an earlier process has pushed in it."""
        steps = {key: self._kv._former_step(key) for key in keys} if self._kv.rejoined else {}
        number, size = max(steps.values(), default=(0, 0))
        pushed = frozenset(key for key, step in steps.items() if step[0] == number)
        went_on = any(last > 0 and size == 0 for last, size in steps.values())  # the others, without this worker
        is_unfinished = number > 0 and len(pushed) < size and not went_on
        return (number, pushed) if is_unfinished else (number + 1, frozenset())

    def lacks(self, key: Any) -> bool:
        """Return whether this process has to push a key in the step under way."""
        return key not in self._pushed

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Tell servers the step with each push of this block."""
        before = _core._set_step(self._number, self._size)
        try:
            yield
        finally:
            _core._set_step(*before)

    def end(self) -> None:
        """End the step under way."""
        self._size = 0
        self._pushed = frozenset()

    @contextlib.contextmanager
    def one(self, keys: Collection[Any], resting: Iterable[Any] = ()) -> Iterator[list[int]]:
        """Make a step whose pushes are all in this block.

        Yields:
            the positions of the keys that are to be pushed.
        """
        self.begin(keys, resting)
        try:
            with self.noted():
                yield [number for number, key in enumerate(keys) if self.lacks(key)]
        finally:
            self.end()
