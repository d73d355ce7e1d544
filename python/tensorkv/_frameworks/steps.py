"""Numbers of an optimizer's steps, so that a restarted worker repeats only the missing pushes of a step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import FailedPreconditionError, KVError

if TYPE_CHECKING:
    from .._store.kvstore import KVStore


class Steps:
    """The number of the step under way, and the keys that this worker has pushed in it before.

    A worker may die between two pushes of a step, or a server may refuse one of them. The worker makes that step again and
    pushes only the other keys, so that each key is pushed once in each step. Servers keep the number of each key's last step
    for a worker that is started again.
    """

    def __init__(self, kv: KVStore) -> None:
        """Begin before the first step of this process."""
        self._kv = kv
        self._lock = threading.Lock()  # hooks of gradients may run in several threads
        self._number: int | None = None  # of the last step, or of that under way; None: not known yet
        self._is_again = False  # the next step has this number, too
        self._size = 0  # keys that the step under way pushes; 0: none is under way
        self._pushed: frozenset[Any] = frozenset()
        self._keys: frozenset[Any] = frozenset()  # of the step under way
        self._before: dict[Any, int] = {}  # the rounds of these keys when it began
        self._kept: frozenset[Any] = frozenset()  # keys that a failed step has pushed, which is made again

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
                self._note(keys)
                return
            number = self._find([*keys, *resting])
            if self._is_again:
                former = {key: self._kv._former_step(key)[0] for key in keys if key in self._kv}
                self._pushed = self._kept.union(key for key, step in former.items() if step == number)
            else:
                self._number = number + 1
            self._is_again = False
            self._kept = frozenset()
            self._size = len(keys)
            self._keys, self._before = frozenset(), {}
            self._note(keys)

    def _note(self, keys: Iterable[Any]) -> None:
        """Note the keys of the step, and their rounds: a step that fails then knows which keys it has pushed.

        In one process a call pushes all of its keys or none, so that one of them stands for all.
        """
        self._keys = self._keys.union(keys)
        noted = self._keys if self._kv.type.startswith("dist") else list(keys)[: not self._before]
        self._before.update((key, self.pushes_of(key)) for key in noted if key not in self._before)

    def _risen(self) -> frozenset[Any]:
        """Return the keys that were pushed since the step began."""
        risen = frozenset(key for key, before in self._before.items() if self.pushes_of(key) > before)
        return risen if len(self._before) == len(self._keys) or not risen else self._keys

    def _find(self, keys: Iterable[Any]) -> int:
        """Return the number of the last step, which may have to be made again.

        For a restarted worker, or after a snapshot, it is the largest number that servers have. If they have none, it is the
        largest round of a key. The step has to be made again if fewer keys have that number than the step pushes.
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
        """Count from the step that the store has loaded, or from its rounds if the snapshot has no step."""
        with self._lock:
            self._number = None
            self._find(keys)
            self._is_again = False
            self._size = 0
            self._pushed = self._kept = frozenset()

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
            if self._size > 0:
                self._is_again, self._kept = True, self._pushed
            self._size = 0
            self._pushed = frozenset()

    def fail(self) -> frozenset[Any]:
        """End the step under way, because one of its calls has failed. Its pushes must have ended.

        If it has not pushed all of its keys, the next step has the same number and pushes the others.

        Returns:
            the keys that it has pushed.
        """
        with self._lock:
            if self._size == 0:
                return frozenset()
            risen = self._keys
            with contextlib.suppress(KVError):  # a store that is closed makes no other step
                risen = self._risen()
            done = self._pushed | risen
            if not done.issuperset(self._keys):
                self._is_again = True
                self._kept = done
            self._size = 0
            self._pushed = frozenset()
            return risen

    @contextlib.contextmanager
    def one(self, keys: Collection[Any], resting: Iterable[Any] = ()) -> Iterator[list[int]]:
        """Make a step in a block that pushes in one call. If the block fails, the next step pushes the keys that it has not pushed.

        Yields:
            the positions of the keys that are to be pushed; there may be none.
        """
        self.begin(keys, resting)
        lacking = [number for number, key in enumerate(keys) if self.lacks(key)]
        try:
            with self.noted():
                yield lacking
        except BaseException:
            self.fail()
            raise
        finally:
            self.end()

    def pushes_of(self, key: Any) -> int:
        """Return how often a key was pushed; 0 for a key that the store does not have."""
        return self._kv.round(key) if key in self._kv else 0
