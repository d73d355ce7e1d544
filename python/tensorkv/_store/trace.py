"""A trace of a store: its file, and the call that writes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import FailedPreconditionError, FolderNotFoundError, InvalidArgumentError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from .kvstore import KVStore


class Session:
    """The path of a store's trace and its state, so that the store can end a trace whose `Trace` object was dropped."""

    __slots__ = ("is_over", "path", "pid")

    def __init__(self, path: str) -> None:
        """Be under way in this process, which alone writes the file."""
        self.path: str = path
        self.pid: int = os.getpid()
        self.is_over: bool = False

    def end(self, store: KVStore) -> tuple[int, int]:
        """Write the file. If that fails, the trace goes on."""
        written = store._trace_write(self.path)
        self.is_over = True
        return written


class Trace:
    """A running trace of a store, made by `KVStore.trace`. As a context manager it ends with the block.

    A store that is closed ends its trace.

    Example:
        >>> import json, os, tempfile
        >>> kv = tkv.kv.create()
        >>> kv.init('w', tkv.nd.ones((2,)))
        >>> file = os.path.join(tempfile.mkdtemp(), 'run.json')
        >>> with kv.trace(file):
        ...     kv.push('w', tkv.nd.ones((2,)))
        >>> [event['name'] for event in json.load(open(file))['traceEvents'] if event['ph'] == 'X']
        ["push 'w'"]
    """

    def __init__(self, store: KVStore, path: str | os.PathLike[str]) -> None:
        """Begin a trace; see `KVStore.trace`."""
        self._store = store
        file = os.fspath(path)
        if not isinstance(file, str) or not file or "\0" in file:
            raise InvalidArgumentError(f"trace: {path!r} is no path of a file")
        place = os.path.abspath(file)  # the process may be elsewhere when the trace ends
        folder = os.path.dirname(place)
        if not os.path.isdir(folder):
            raise FolderNotFoundError(f"trace {file}: there is no folder {folder}")
        store._end_trace()
        store._trace_start()
        self._session = store._session = Session(place)

    def __repr__(self) -> str:
        """Return where it goes, and whether it has ended."""
        return f"<trace to {self._session.path!r}, {'ended' if self._session.is_over else 'under way'}>"

    def pause(self) -> None:
        """Note nothing more until `resume`."""
        self._check()
        self._store._trace_pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._check()
        self._store._trace_start()

    def stop(self) -> dict[str, int]:
        """End the trace and write its file.

        Returns:
            ``spans``: how many there are in the file, and ``lost``: how many older ones were not kept.

        Raises:
            FailedPreconditionError: the trace has ended, as it does with its store.
            ResourceExhaustedError: the disk is full. The trace can be stopped again.
        """
        self._check()
        spans, lost = self._session.end(self._store)
        return {"spans": spans, "lost": lost}

    def _check(self) -> None:
        if self._session.is_over:
            raise FailedPreconditionError(f"trace {self._session.path}: it has ended")

    def __enter__(self) -> Self:
        """Return the trace, which is under way."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the trace, where that has not been done."""
        if self._session.is_over:
            return
        try:
            self.stop()
        except Exception:
            if error is None:  # else the first one says more
                raise
