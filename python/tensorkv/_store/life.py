"""The life of stores: what is told while they wait, and how they end with the process."""

from __future__ import annotations

import atexit
import collections
import logging
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from .kvstore import KVStore

logger = logging.getLogger("tensorkv")
_handler = logging.StreamHandler()
_who = "".join(
    f" {field}={os.environ['TKV_' + field.upper()]}"
    for field in ("role", "rank")
    if "TKV_" + field.upper() in os.environ
)
_handler.setFormatter(
    logging.Formatter(
        "%(asctime)s.%(msecs)03d %(level)s tensorkv pid=%(process)d" + _who.replace("%", "%%") + ": %(message)s",
        "%Y-%m-%dT%H:%M:%S",
    )
)


def _lower_level(record: logging.LogRecord) -> bool:
    """Give a record its level in lower case, as the options write it."""
    record.level = record.levelname.lower()
    return True


_handler.addFilter(_lower_level)


def set_level(level: str) -> None:
    """Tell on standard error what is at least of this level, 'error' to 'debug'; nothing at all with 'off'."""
    logger.setLevel(logging.CRITICAL + 1 if level == "off" else level.upper())
    if level != "off" and _handler not in logger.handlers:
        logger.addHandler(_handler)
        logger.propagate = False  # once is enough


if os.environ.get("TKV_LOG") in ("off", "error", "warning", "info", "debug"):  # what is none of these, create refuses
    set_level(os.environ["TKV_LOG"])
_open: weakref.WeakSet[KVStore] = weakref.WeakSet()
_newest: weakref.ref[KVStore] | None = None


_untold: collections.deque[tuple[int, str]] = collections.deque()


def tell_notices() -> None:
    """Hand what the stores' threads have to say to the logger `tensorkv`; if a handler raises, the next call goes on."""
    _untold.extend(_core._take_notices())
    while _untold:
        try:
            level, text = _untold.popleft()
        except IndexError:  # another thread has told the last one
            return
        logger.log((level + 1) * 10, text)


def opened(store: KVStore) -> None:
    """Remember a store that has to be closed when the process ends."""
    global _newest
    _open.add(store)
    _newest = weakref.ref(store)
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
    tell_notices()


def is_failure(error: BaseException | None) -> bool:
    """Return whether a program that ends with this exception has failed."""
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None and not isinstance(error, GeneratorExit)


_before_end: list[Callable[[], None]] = []


def before_end(step: Callable[[], None]) -> None:
    """Have a step taken when the process ends, before stores are closed."""
    _before_end.append(step)


def _close_all() -> None:
    """Close what is open: accepted pushes count, workers take their leave; failures nobody saw are printed."""
    failed = False
    uncaught = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for store in _open:
        store._has_failed = is_failure(uncaught)
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
