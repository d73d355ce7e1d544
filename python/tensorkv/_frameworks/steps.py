"""Numbers of an optimizer's steps, so that a restarted worker repeats only the missing pushes of a step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import FailedPreconditionError

if TYPE_CHECKING:
    from .._store.kvstore import KVStore


class Steps:
    """The number of the step under way, and the keys that an earlier process of this worker has pushed in it.

    A worker may die between two pushes of a step. Its next process makes that step again and pushes only the other keys, so
    that each key is pushed once in each step. Servers keep the number of each key's last step for this.
    """

    def __init__(self, kv: KVStore) -> None:
        """Begin before the first step of this process."""
        self._kv = kv
        self._lock = threading.Lock()  # hooks of gradients may run in several threads
        self._number: int | None = None  # of the last step, or of that under way; None: not known yet
        self._is_again = False  # the next step has this number, too
        self._size = 0  # keys that the step under way pushes; 0: none is under way
        self._pushed: frozenset[Any] = frozenset()

    @property
    def is_under_way(self) -> bool:
        """True from the beginning of a step to its end."""
        return self._size > 0

    def made(self, keys: Iterable[Any]) -> int:
        """Return how many steps this worker has made, those of its earlier processes included.

        Args:
            keys: all keys of the optimizer.

        Raises:
            FailedPreconditionError: the worker has been started again, and the store is asynchronous.
        """
        if self._kv.rejoined and _core.is_async(self._kv.type):
            raise FailedPreconditionError(
                f"steps: {self._kv.type} does not count the steps that this worker made before it was started again; keep their number"
                " in the store"
            )
        with self._lock:
            number = self._find(keys)
            return number - (self._is_again or self._size > 0)

    def begin(self, keys: Collection[Any], resting: Iterable[Any] = ()) -> None:
        """Begin the next step, or raise the number of keys that the step under way pushes.

        Args:
            keys: all keys that this step pushes. The step makes those that the store does not have yet.
            resting: other keys of the optimizer, which earlier steps may have pushed.
        """
        with self._lock:
            if self._size > 0:
                self._size = max(self._size, len(keys))
                return
            number = self._find([*keys, *resting])
            if self._is_again:
                former = {key: self._kv._former_step(key)[0] for key in keys if key in self._kv}
                self._pushed = frozenset(key for key, step in former.items() if step == number)
            else:
                self._number = number + 1
            self._is_again = False
            self._size = len(keys)

    def _find(self, keys: Iterable[Any]) -> int:
        """Return the number of the last step, which may have to be made again.

        For a restarted worker it is the largest number that servers have. If they have none, it is the largest round of a key.
        The step has to be made again if fewer keys have that number than the step pushes.
        """
        if self._number is not None:
            return self._number
        known = [key for key in keys if key in self._kv]
        steps = [self._kv._former_step(key) for key in known]
        number, size = max(steps, default=(0, 0))
        if number == 0:
            number = max((self._kv.round(key) for key in known), default=0)
        self._is_again = sum(step[0] == number for step in steps) < size
        self._number = number
        return number

    def loaded(self, keys: Iterable[Any]) -> None:
        """Count from the rounds that the store has loaded."""
        with self._lock:
            self._number = max((self._kv.round(key) for key in keys if key in self._kv), default=0)
            self._is_again = False
            self._size = 0
            self._pushed = frozenset()

    def lacks(self, key: Any) -> bool:
        """Return whether this process has to push a key in the step under way."""
        return key not in self._pushed

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Tell servers the step with each push of this block."""
        assert self._number is not None
        before = _core._set_step(self._number, self._size)
        try:
            yield
        finally:
            _core._set_step(*before)

    def end(self) -> None:
        """End the step under way."""
        with self._lock:
            self._size = 0
            self._pushed = frozenset()

    def undo(self) -> None:
        """Cancel the step under way. Call it only if this process has pushed nothing in it."""
        with self._lock:
            self._is_again = self._is_again or self._size > 0
            self._size = 0
            self._pushed = frozenset()

    @contextlib.contextmanager
    def one(self, keys: Collection[Any], resting: Iterable[Any] = ()) -> Iterator[list[int]]:
        """Make a step in a block that pushes in one call. If the block fails before them, the step does not count.

        Yields:
            the positions of the keys that are to be pushed; there may be none.
        """
        self.begin(keys, resting)
        lacking = [number for number, key in enumerate(keys) if self.lacks(key)]
        first = list(keys)[lacking[0]] if lacking else None  # a call pushes all of its keys or none
        before = self.pushes_of(first)
        try:
            with self.noted():
                yield lacking
        except BaseException:
            if self.pushes_of(first) == before:
                self.undo()
            raise
        finally:
            self.end()

    def pushes_of(self, key: Any) -> int:
        """Return how often a key was pushed; 0 for a key that the store does not have."""
        return self._kv.round(key) if key is not None and key in self._kv else 0
