"""The class KVStore."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, cast, overload

from .. import _core, ticket
from ..errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    KVError,
    UnimplementedError,
)
from . import compression as _compression
from . import life as _life
from .base import C, KVStoreBase
from .disk import KVStoreDisk
from .trace import Session, Trace
from .verbs import nothing

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._types import Key, StoreOptions
    from ..ticket import Ticket

__all__ = ["KVStore"]


@contextlib.contextmanager
def _beside(error: BaseException | None) -> Iterator[None]:
    """Keep an error of closing a store from hiding the failure that is on its way.

    If `error` is a failure, the error of closing becomes a note of it, or with Python 3.10 a line of the logger. If
    nothing has failed, the error of closing is raised.
    """
    try:
        yield
    except KVError as other:
        if not _life.is_failure(error):
            raise
        from .log import logger

        add_note = getattr(error, "add_note", None) or logger.warning
        add_note(str(other))


_COMMANDS: dict[Any, str] = {
    0: "optimizer",
    1: "multi_precision",
    2: "stop",
    3: "sync_mode",
    4: "gradient_compression",
    5: "profiler",
}
_COMMANDS_ELSEWHERE = {
    "multi_precision": "an argument of the optimizer, tkv.optimizer.SGD(multi_precision=True), says so",
    "stop": "servers end by themselves when all workers have left",
    "sync_mode": "the type of the store, or init(..., mode='async'), says so",
    "profiler": "kv.trace(path), or tkv.profiler, notes what workers and servers do",
}


class KVStore(KVStoreDisk):
    """A store that maps int or str keys to arrays. Make one with `create`.

    The verbs are `init`, `push`, `pull`, `pushpull` and `broadcast`; each takes one key or a list of keys. Threads may
    share a store. A store is a context manager that closes itself.

    Example:
        >>> with tkv.kv.create('local') as kv:
        ...     kv.init('w', tkv.nd.ones((2,)))
        ...     'w' in kv, len(kv), list(kv)
        (True, 1, ['w'])
        >>> kv.pull('w')
        Traceback (most recent call last):
        tensorkv.errors.FailedPreconditionError: pull: the store is closed
    """

    __module__ = "tensorkv.kvstore"  # its public name

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type[Any]]] = KVStoreBase.kv_registry
    _name: str
    _waits_at_close = False
    _saves_by_itself = False
    _has_failed = False  # the program whose worker this is
    _session: Session | None = None  # the last trace

    def __init__(self, type: str = "local", **options: Unpack[StoreOptions]) -> None:
        """Make a store; see `create`."""
        super().__init__(type, cast("dict[str, Any]", options))
        level = options.get("log")
        if level is not None:
            from .log import set_level

            set_level(level)
        self._begin()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say what to use in the place of what MXNet's stores have."""
            from ..mxnet import elsewhere

            elsewhere.missing("KVStore", name, self)

    def _begin(self) -> None:
        self._own = {}
        self._holds(None, None)
        self._name = self.type
        _life.opened(self)

    @classmethod
    def _of_cluster(cls, cluster: _core.Cluster, rank: int) -> Self:
        """Return the store of a worker of a `_core.Cluster`."""
        return cls._made(cluster, rank)

    @classmethod
    def _observer(cls, *place: Any) -> Self:
        """Return the store of an observer: of a `_core.Cluster`, or of a URL, options and the number of a store."""
        return cls._made(*place)

    @classmethod
    def _made(cls, *arguments: Any) -> Self:
        store = cls.__new__(cls)
        _core.Store.__init__(store, *arguments)
        store._begin()
        return store

    def delete(self, key: Key) -> None:
        """Remove a key; a later init makes it anew.

        In a distributed store every worker calls it, between two barriers.

        Raises:
            KeyNotFoundError: no such key. A call of another thread that waits for the key gets it too.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.ones((2,)))
            >>> kv.delete(3)
            >>> 3 in kv
            False
        """
        self._delete(key)
        if self._function is not None:
            self._function.forget(key)
        self._own.pop(key, None)
        if self._running is not None:
            self._running.forget(key)

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Begin to note when each push, pull and update of a key begins and how long it takes.

        The file is written when the trace ends: by ``stop()``, or when the store is closed or dropped, the process ends, or
        another trace of the store begins. The file has Chrome's trace event format: chrome://tracing and
        ui.perfetto.dev show it. In a distributed store it covers this worker and all servers, which note their work for
        every worker. Times of servers are converted to this process's clock (``otherData`` says how precisely). The
        newest 262,144 spans of each process are kept. A trace costs a store nothing before it begins and after it has
        ended.

        A worker's span of a push lasts until all servers hold it, and that of a pull until the value has arrived. A
        server's span of a push or a pull lasts from the request to its answer; for a pull this includes the wait for
        its round. A server's span of an update covers adding the last push of a round, and the updater. ``args`` has
        the key, the rank of the worker, the round or version (``number``), the chunk, its bytes, and its ``state``:
        done, failed, or under way when the trace ended. In a store of one process the spans are those of calls.

        Args:
            path: the file.

        Returns:
            a `profiler.Trace`: a context manager, with ``stop()``, ``pause()`` and ``resume()``. The stores of one process
            in one job share their trace.

        Raises:
            UnavailableError: a server is out of reach.

        Example:
            >>> import os, tempfile
            >>> kv = tkv.kv.create()
            >>> kv.init('w', tkv.nd.ones((2,)))
            >>> trace = kv.trace(os.path.join(tempfile.mkdtemp(), 'run.json'))
            >>> kv.push('w', tkv.nd.ones((2,)))
            >>> trace.stop()
            {'spans': 1, 'lost': 0}
        """
        return Trace(self, path)

    def _end_trace(self) -> None:
        """End the trace, if one is under way."""
        session = self._session
        if session is not None and not session.is_over and session.pid == os.getpid():
            session.end(self)

    def __del__(self) -> None:
        """End the trace, as `close` does."""
        try:
            self._end_trace()
        except Exception as error:
            from .log import logger

            logger.warning("a store was dropped, and its trace is not written: %s", error)

    @overload
    def barrier(self, *, async_op: Literal[False] = False) -> None: ...

    @overload
    def barrier(self, *, async_op: Literal[True]) -> Ticket[None]: ...

    @overload
    def barrier(self, *, async_op: bool) -> Ticket[None] | None: ...

    def barrier(self, *, async_op: bool = False) -> Ticket[None] | None:
        """Wait until every worker has called it; with one worker, return at once.

        No barrier is needed after `init`, which waits for the key, nor after `push`, because a pull gives the round of the
        worker's own last push. A barrier is needed around `delete`, and when workers share something else, such as a
        file. The nth calls of all workers form one barrier. If `rejoined` is true, a worker continues the count of its
        earlier incarnation, and must leave out the barriers that were reached before.

        Args:
            async_op: return a Ticket, which is done when all workers have called it.
        """
        if async_op:
            return ticket.Ticket(self._barrier_async(), "barrier", nothing)
        self._barrier()
        return None

    @overload
    def close(self, *, async_op: Literal[False] = False) -> None: ...

    @overload
    def close(self, *, async_op: Literal[True]) -> Ticket[None]: ...

    @overload
    def close(self, *, async_op: bool) -> Ticket[None] | None: ...

    def close(self, *, async_op: bool = False) -> Ticket[None] | None:
        """Leave the job and free all values. Idempotent; every later call raises FailedPreconditionError.

        A trace that is under way ends. A store of several workers waits until its pushes are accepted. Calls of other
        threads that wait for a key end at once. If an earlier call has failed unseen, its failure is raised here, when
        everything is closed.

        Args:
            async_op: return a Ticket, which is done when the store is closed. ``async with`` awaits it.
        """
        if async_op:
            return ticket.in_thread(self.close, "close")
        waits, self._waits_at_close = self._waits_at_close, False
        for running in (self._running, *self._own.values()):
            if running is not None:
                running.pushes()  # for those who ask its optimizer later
        try:
            try:
                if waits:
                    self._barrier()
            finally:
                try:
                    self._end_trace()
                finally:
                    self._close(self._has_failed)
        finally:
            if self._is_closed():
                self._holds(None, None)
                self._session = None
                _life.closed(self)
            else:  # an updater runs, or another thread has held a key for too long
                self._waits_at_close = waits
        return None

    def _is_closed(self) -> bool:
        """Return whether every later call fails."""
        try:
            len(self)
        except FailedPreconditionError:
            return True
        return False

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close the store; with an exception, the other workers see this worker as dead and not as having left.

        If closing then fails too, its error does not hide the exception.
        """
        _life.block_ends(self, error)
        with _beside(error):
            self.close()

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """As `__exit__`, without blocking the event loop."""
        _life.block_ends(self, error)
        with _beside(error):
            await self.close(async_op=True)

    def __repr__(self) -> str:
        """Return type, worker and number of keys."""
        if self._name == "observer":  # whose keys only the servers know
            return f"<KVStore 'observer' of {self.num_workers} workers, store at {self.url!r}>"
        try:
            return f"<KVStore {self.type!r} rank {self.rank} of {self.num_workers}, {len(self)} keys>"
        except FailedPreconditionError:
            return f"<KVStore {self._name!r} closed>"

    def __reduce__(self) -> NoReturn:
        """Refuse: a store is memory of this process."""
        raise UnimplementedError(
            "KVStore: a store is memory of one process and cannot be copied or pickled; create one in each"
        )

    def set_gradient_compression(self, compression_params: Mapping[str, Any], keys: str | int = "*") -> None:
        """Compress this worker's pushes from now on. The error of each compressed push is added to the next push of the
        key.

        Every worker calls it for its own pushes; workers may differ. Values of init and pulls are not compressed.
        Elements that are not finite count as 0, but for fp16 and bf16, which send them; a warning says so once.

        Args:
            compression_params: a dict with the key ``'type'``:

                - ``'2bit'``: `threshold` (0.5, above 0): an element is sent as threshold, 0 or -threshold; a sixteenth of
                  the bytes of float32. MXNet's bits.
                - ``'1bit'``: `threshold` (0.5): 1 for an element above the threshold, else -1; a thirty-second. MXNet's
                  bits.
                - ``'int8'``: whole multiples of the largest of 1,024 elements divided by 127; a fourth.
                - ``'fp16'``, ``'bf16'``: half.
                - ``'topk'``: `ratio` (0.01): that part of the elements, those of largest magnitude, 8 bytes for each.
                - ``'none'``: as they are; an error that is left from compressed pushes is added to the next push.
            keys: a pattern of the keys that it is for, with ``*``, ``?``, ``[a-z]`` and ``[!a-z]`` as in
                `fnmatch.fnmatchcase`. For an int key its digits are matched. The last call whose pattern matches a key
                counts for it, also if the key is created later. Keys that are kept by rows are not compressed; a
                warning says so if the pattern matches no other key yet.

        Raises:
            InvalidArgumentError: no such type, an unknown parameter, a number out of its range. `keys` that are neither
                text nor an int, that name one key that is kept by rows, or that are the name of a key and do not match
                it. A later push of a key that is not float32, float16 or bfloat16.
            FailedPreconditionError: the store sends nothing.

        Example:
            >>> with tkv.kv.create('dist_sync', bootstrap='self') as kv:
            ...     kv.init('w', tkv.nd.zeros((3,)))
            ...     kv.set_gradient_compression({'type': '2bit', 'threshold': 0.5})
            ...     kv.push('w', tkv.nd.array([0.75, -0.25, -2.0]))
            ...     sent = kv.pull('w').asnumpy()
            ...     kv.push('w', tkv.nd.array([0.25, -0.25, 0.0]))
            ...     print(sent, kv.pull('w').asnumpy())
            [ 0.5  0.  -0.5] [ 0.5 -0.5 -0.5]
        """
        kind, numbers = _compression.look(compression_params)
        pattern = _compression.pattern_of(keys)
        _compression.check_meets(pattern, self._keys())
        if kind != "none" and pattern != "*":
            _compression.check_has_dense(pattern, self._keys(), self._is_by_rows)
        self._set_gradient_compression(kind, numbers.get("threshold", 0.5), numbers.get("ratio", 0.01), pattern)

    @staticmethod
    def register(klass: C) -> C:
        """As KVStoreBase.register."""
        return KVStoreBase.register(klass)

    def send_command_to_servers(self, head: int | str, body: Any = "") -> None:
        """Run a command of MXNet for the servers. Commands are data; none carries code.

        Args:
            head: a name, or MXNet's number of the command.

                - ``'optimizer'`` (0): `body` is one of `tkv.optimizer`, or a `Program`: as `set_optimizer`.
                - ``'gradient_compression'`` (4): `body` is a dict: as `set_gradient_compression`.

        Raises:
            UnimplementedError: commands of MXNet that have another way here: ``'multi_precision'`` (1), ``'stop'`` (2),
                ``'sync_mode'`` (3), ``'profiler'`` (5); a pickle as `body`.
            InvalidArgumentError: no such command, with a list of those there are.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.send_command_to_servers('optimizer', tkv.optimizer.SGD(learning_rate=0.5))
            >>> kv.send_command_to_servers('restart')
            Traceback (most recent call last):
            tensorkv.errors.InvalidArgumentError: send_command_to_servers: no command 'restart'; there are optimizer (0), gradient_compression (4)
        """
        name = _COMMANDS.get(head, head) if not isinstance(head, bool) else head
        if name == "optimizer":
            if isinstance(body, (bytes, bytearray)):
                raise UnimplementedError(
                    "send_command_to_servers: the body is a pickle, which is code; give the optimizer itself"
                )
            self.set_optimizer(body)
        elif name == "gradient_compression":
            self.set_gradient_compression(body)
        elif name in _COMMANDS_ELSEWHERE:
            raise UnimplementedError(f"send_command_to_servers: {name}: {_COMMANDS_ELSEWHERE[str(name)]}")
        else:
            raise InvalidArgumentError(
                f"send_command_to_servers: no command {head!r}; there are optimizer (0), gradient_compression (4)"
            )

    _send_command_to_servers = send_command_to_servers

    def set_barrier_before_exit(self, do_barrier: bool = True) -> None:
        """Have `close` wait until every worker has come there, as a `barrier` before it.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.set_barrier_before_exit()
            >>> kv.close()
        """
        self._waits_at_close = bool(do_barrier)
