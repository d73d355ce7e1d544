"""The life of stores: which ones are open, and how they end with the process."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .kvstore import KVStore

if "TKV_LOG" in os.environ:
    from . import log as _log  # noqa: F401  # sets the level of the logger

_open: weakref.WeakSet[KVStore] = weakref.WeakSet()
_newest: weakref.ref[KVStore] | None = None


def opened(store: KVStore) -> None:
    """Remember a store that has to be closed when the process ends."""
    global _newest
    _open.add(store)
    _newest = weakref.ref(store)
    _tell_notices()


def _tell_notices() -> None:
    from .log import tell_notices

    tell_notices()


def newest() -> KVStore | None:
    """Return the store that was made last, if it is open."""
    store = None if _newest is None else _newest()
    return store if store is not None and is_open(store) else None


def is_open(store: KVStore) -> bool:
    """Return whether a store has not been closed."""
    return store in _open


def closed(store: KVStore) -> None:
    """Forget a store that is closed."""
    _open.discard(store)
    _tell_notices()


def is_failure(error: BaseException | None) -> bool:
    """Return whether a program that ends with this exception has failed."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None and not isinstance(error, GeneratorExit)


# The calls of each open store when `sys.exit` with a failure ended a `with` block.
_calls_at_exit: weakref.WeakKeyDictionary[KVStore, int] = weakref.WeakKeyDictionary()


def block_ends(store: KVStore, error: BaseException | None) -> None:
    """Note the end of a store's ``with`` block, by an error or well."""
    store._has_failed = is_failure(error)
    if not store._has_failed or not isinstance(error, SystemExit):
        return
    for other in _open:
        if other is not store:
            _calls_at_exit[other] = _calls_of(other)


def _calls_of(store: KVStore) -> int:
    return sum(verb["calls"] for verb in store.stats()["verbs"].values())


def _exits_with_failure() -> bool:
    """Return whether the process ends by the `sys.exit` that has ended a block: no open store was used since.

    Python does not tell an atexit function the exit status.
    """
    return len(_calls_at_exit) > 0 and all(_calls_at_exit.get(store) == _calls_of(store) for store in _open)


_before_end: list[Callable[[], None]] = []


def before_end(step: Callable[[], None]) -> None:
    """Have a step taken when the process ends, before stores are closed."""
    _before_end.append(step)


def _close_all() -> None:
    """Close all open stores, so that accepted pushes count and workers leave their jobs; print unseen failures."""
    failed = False
    uncaught = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    has_failed = is_failure(uncaught) or _exits_with_failure()
    for store in _open:
        store._has_failed = has_failed
    steps: list[Callable[[], object]] = [*_before_end, *(store.close for store in _open)]
    for step in steps:
        try:
            step()
        except Exception as error:  # the process ends: there is nobody to raise it to
            failed = True
            print(f"tensorkv: {type(error).__name__}: {error}", file=sys.stderr)
    if failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


atexit.register(_close_all)
