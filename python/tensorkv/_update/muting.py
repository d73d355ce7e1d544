"""Dropping the output of a thread."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any


class Output:
    """Standard output, or standard error, without the text of the threads in `muted`; bytes to its `buffer` pass."""

    def __init__(self, real: Any) -> None:
        """Mute nobody yet; `real` may be None, as `sys.stdout` of a process without one."""
        self.real = real
        self.muted: Counter[int] = Counter()  # blocks of `muted` in which a thread is

    def write(self, text: str) -> int:
        """Write, or drop."""
        if self._drops():
            return len(text)
        return int(self.real.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write, or drop."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the real stream, if there is one."""
        if self.real is not None:
            self.real.flush()

    def _drops(self) -> bool:
        return self.real is None or threading.get_ident() in self.muted

    def __getattr__(self, name: str) -> Any:
        """Return what the real stream has."""
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
        output.muted[me] += 1
        setattr(sys, name, output)
    try:
        yield
    finally:
        with _mute:
            output.muted -= Counter([me])  # drops a count of 0
            if not output.muted and getattr(sys, name) is output:
                setattr(sys, name, output.real)
