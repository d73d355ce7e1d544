"""Dropping the output of a thread."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any


class Output:
    """Standard output, or standard error, without the output of the threads in `muted`."""

    def __init__(self, real: Any) -> None:
        """Mute nobody yet; `real` may be None, as `sys.stdout` of a process without one."""
        self.real = real
        self.muted: set[int] = set()

    def write(self, text: str) -> int:
        """Write, or drop."""
        if self.real is None or threading.get_ident() in self.muted:
            return len(text)
        return int(self.real.write(text))

    def __getattr__(self, name: str) -> Any:
        """Be the real one otherwise."""
        return getattr(self.real, name)


_mute = threading.Lock()


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Drop what this thread prints while the block runs; other threads still print."""
    with _muted_stream("stdout"), _muted_stream("stderr"):
        yield


@contextlib.contextmanager
def _muted_stream(name: str) -> Iterator[None]:
    me = threading.get_ident()
    with _mute:
        now: Any = getattr(sys, name)
        output = now if isinstance(now, Output) else Output(now)
        output.muted.add(me)
        setattr(sys, name, output)
    try:
        yield
    finally:
        with _mute:
            output.muted.discard(me)
            if not output.muted and getattr(sys, name) is output:
                setattr(sys, name, output.real)
