"""Control of the garbage collector while all objects of the process are compared."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def all_in_reach() -> Iterator[None]:
    """Let `gc.get_objects` and `gc.get_referrers` find frozen objects, too.

    Objects that were frozen before are frozen again in the end, and so are all others that exist then.
    """
    if not gc.get_freeze_count():
        yield
        return
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()


@contextlib.contextmanager
def resting() -> Iterator[None]:
    """Collect nothing meanwhile: destructors and callbacks of the collector run wherever it begins."""
    has_collector = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if has_collector:
            gc.enable()
