"""The class KVStore."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, cast, overload

from .. import _core, ticket
from .._array.ndarray import NDArray
from .._array.ndarray import empty as nd_empty
from .._array.rows import is_rows
from ..errors import (
    FailedPreconditionError,
    FolderNotFoundError,
    InvalidArgumentError,
    KeyNotFoundError,
    KVError,
    SnapshotNotFoundError,
    UnimplementedError,
)
from . import compression as _compression
from . import helpers as _helpers
from . import life as _life
from . import snapshots as _snapshots
from .base import C, KVStoreBase
from .row_verbs import shape_and_dtype
from .together import called_by_all
from .trace import Session, Trace
from .verbs import KVStoreVerbs, nothing

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._types import AnyUpdater, Key, StoreOptions
    from .._update.functions import Called, Read, UpdaterSteps
    from .._update.running import Running
    from ..optimizer import Optimizer, Program, Updater
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
    "multi_precision": "an argument of the optimizer, mx.optimizer.SGD(multi_precision=True), says so",
    "stop": "servers end by themselves when all workers have left",
    "sync_mode": "the type of the store, or init(..., mode='async'), says so",
    "profiler": "kv.trace(path), or mx.profiler, notes what workers and servers do",
}


def _place(verb: str, path: str | os.PathLike[str]) -> str:
    """Return a path as the core takes it.

    Raises:
        InvalidArgumentError: the path is not valid UTF-8.
    """
    try:
        place = os.fsdecode(path)
        place.encode()
    except (TypeError, UnicodeEncodeError):
        place = ""
    if not place:
        raise InvalidArgumentError(f"{verb}: {path!r}; a path, as text of UTF-8, is needed")
    return place


class KVStore(KVStoreVerbs):
    """A store that maps int or str keys to arrays. Make one with `create`.

    The verbs are `init`, `push`, `pull`, `pushpull` and `broadcast`; each takes one key or a list of keys. Threads may
    share a store. A store is a context manager that closes itself.

    Example:
        >>> with mx.kv.create('local') as kv:
        ...     kv.init('w', mx.nd.ones((2,)))
        ...     'w' in kv, len(kv), list(kv)
        (True, 1, ['w'])
        >>> kv.pull('w')
        Traceback (most recent call last):
        tensorkv.errors.FailedPreconditionError: pull: the store is closed
    """

    __module__ = "tensorkv.kvstore"  # its public name

    OPTIMIZER = "optimizer"
    kv_registry: ClassVar[dict[str, type[Any]]] = KVStoreBase.kv_registry

    _updater: AnyUpdater | None  # kept alive, and for those who look at it
    _function: Called | Read | UpdaterSteps | None
    _native: _core.Optimizer | None  # of a Program
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

    # --------------------------------------------------------------------------------------------------------- keys

    def delete(self, key: Key) -> None:
        """Remove a key; a later init makes it anew.

        In a distributed store every worker calls it, between two barriers.

        Raises:
            KeyNotFoundError: no such key. A call of another thread that waits for the key gets it too.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2,)))
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

    def round(self, key: Key) -> int:
        """Return how often this worker has pushed the key, whether or not the rounds are complete.

        In a ``dist_sync`` store the nth push of each worker is its part of round n, so this is the round of its last
        push. In ``dist_async``, and in one process, each push is an update by itself. A call counts once for a key,
        however many values it gives. The call counts as soon as it is made, unless its arguments are refused.

        A restarted worker continues from the round that its earlier incarnation had reached. For asynchronous keys it
        counts only its own pushes, from 0: `docs/failures.md` says how such a worker knows where it is.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2,)))
            >>> kv.push(3, mx.nd.ones((2,)))
            >>> kv.round(3)
            1
        """
        return self._round(key)

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
            >>> kv = mx.kv.create()
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> trace = kv.trace(os.path.join(tempfile.mkdtemp(), 'run.json'))
            >>> kv.push('w', mx.nd.ones((2,)))
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

    def stats(self) -> dict[str, Any]:
        """Return counters of the store's work and waits since it was made, as a new dict.

        For this store:
            age_seconds: since it was made.
            verbs: for each of init, push, pull, pushpull, broadcast, barrier, delete, set_updater and set_optimizer
                its ``calls``, and how many of them ``failed``: the call itself, or its ticket. A verb that is made of
                others counts as itself only.
            bytes: of the arrays that calls were given, each as large as its key's value: ``init_bytes``,
                ``pushed_bytes``, ``pulled_bytes``.
            rounds: the sum of the rounds of all keys, deleted ones too.
            key_count: how many keys there are.
            keys: for the 100 keys with the most bytes, the largest first, ``rounds`` (as `round`), ``init_bytes``,
                ``pushed_bytes``, ``pulled_bytes``.

        For this process, whose stores share the connections of one worker; zeros and no peers in a store without any:
            operations_under_way: operations (of one key each) that have begun and not ended.
            traffic: ``wire_out_bytes`` and ``wire_in_bytes`` through sockets, with the heads of messages;
                ``shared_out_bytes`` and ``shared_in_bytes`` through shared memory; ``encrypted_out_bytes`` and
                ``encrypted_in_bytes``: those through the socket that TLS has encrypted.
            resends: messages that were sent again after a connection was lost.
            reconnects: connections made again.
            peers: for ``'head'`` and each ``'server N'`` the bytes of `traffic`; ``state`` of the connection (idle,
                dialing, hello, open, dead); ``connections`` that have been open; ``resends``; ``queued_messages`` that
                have not left and the ``queued_bytes`` of their values; ``unanswered_messages``; ``unaccepted_bytes``
                that have left and that the server does not hold yet; ``last_word_seconds`` since it was heard last,
                or None.
            workers, servers: the state of each rank as the head has reported it: awaited, alive, dead or left.

        For both:
            waits: for each cause the ``count`` of waits and the ``wait_seconds`` of those that have ended.
                Calls: ``key`` (another thread uses it), ``array`` (an asynchronous operation uses it), ``accepted``
                (until servers hold a pushed array of another framework), ``answer`` (for its operations to end).
                Operations: ``round`` (the round before a push is not known to be complete), ``pull`` (an earlier pull
                of the key is unanswered), ``order`` (others come first).
                Messages queued for a server: ``link`` (there is no connection), ``credit`` (bytes that it has not
                accepted), ``window`` (operations that it has not answered), ``pull_bytes`` (bytes asked for).

        Idle stores count nothing, and reading the counters changes none.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> kv.push('w', mx.nd.ones((2,)))
            >>> kv.stats()['verbs']['push'], kv.stats()['bytes']['pushed_bytes']
            ({'calls': 1, 'failed': 0}, 8)
        """
        return self._stats()

    def status(self) -> dict[str, Any]:
        """Return the present state of the job, as its head and its servers report it, as a new dict; for observers and
        workers.

        url, job, on_death: its address, its name, and what a round does without a worker that has died.
        epoch: a number that grows with each change of the membership.
        head_is_open: whether this process reaches the head now.
        wrong: problems for an operator: the head is out of reach, a server does not live or does not answer, a worker
            is awaited or dead. Empty: all is well.
        workers: for each rank its ``state`` (awaited, alive, dead, left, lost) and the number of its incarnation
            (``life``), with that incarnation's ``pushes`` (of chunks) to the servers and their ``pushed_bytes``.
        servers: for each ``state``, ``life``, ``address``, ``error`` (why it has not answered; empty: it has), ``chunks``,
            ``value_bytes``, and ``other_bytes`` (optimizers' states, sums of open rounds, kept versions).
        observers: how many processes look at the job.
        keys: for each ``key`` its ``store`` (a number, in the order of `create`), ``shape`` (of one row if it is kept by
            rows), ``dtype``, ``by_rows``, ``row_count``, ``async``, ``chunks`` and ``bytes``. Its ``round`` is the one that all
            chunks have reached, ``newest`` the newest of a chunk, and ``waiting`` counts pulls that wait.
        rounds: that some workers have pushed and others have not, the one that has been open longest first: ``store``,
            ``key`` (as errors show it), ``round``, ``seconds``, ``waits_for`` (ranks, at most 16), ``waits_for_count``.
        slowest: the rank that most of them wait for, or None; with ``slowest_rounds`` and ``slowest_seconds``.

        Raises:
            FailedPreconditionError: a store of one process.

        Example:
            >>> with mx.testing.cluster(workers=2) as job:
            ...     with job.observer() as eye:
            ...         status = eye.status()
            >>> len(status['workers']), status['rounds'], status['slowest']
            (2, [], None)
        """
        import json

        return cast("dict[str, Any]", json.loads(self._status()))

    @property
    def url(self) -> str:
        """The address of the job, for `connect` and ``tkv status``; empty if other processes cannot reach the job."""
        return self._url

    def describe(self, key: Key) -> tuple[tuple[int, ...], str]:
        """Return shape and dtype of a key; of a table, those of one row.

        Raises:
            KeyNotFoundError: no such key.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2, 3)))
            >>> kv.describe('w')
            ((2, 3), 'float32')
        """
        return self._describe("describe", key)

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._size()

    def __bool__(self) -> bool:
        """Return True, without keys too: ``if kv`` asks whether there is a store."""
        return True

    def __contains__(self, key: object) -> bool:
        """Return whether the key exists; False for a value that cannot be a key, such as None."""
        try:
            return self._contains(key)
        except InvalidArgumentError:
            return False

    @property
    def type(self) -> str:
        """The name that the store was created with."""
        return self._type

    @property
    def rank(self) -> int:
        """Number of this worker, from 0; -1 of an observer, which is none."""
        return self._rank

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self._num_workers

    @property
    def rejoined(self) -> bool:
        """True if an earlier incarnation of this worker took part in this job."""
        return self._rejoined

    # ------------------------------------------------------------------------------------------------------ updater

    def set_updater(self, updater: AnyUpdater | None) -> None:
        """Replace how a push combines the sum with the stored value.

        Args:
            updater: ``f(key, input, stored)``, which changes the NDArray `stored` in place; or a `Program`; or an optimizer;
                or None, which restores assignment.

        A store of one process calls a function at each push; there it may use other keys of the store.

        The servers of a distributed store run no Python: each rank reads its function as a program, and that of rank 0
        counts. Reading calls the function twice for each key, of later keys at their init, with arrays that have no
        elements. Reading then calls the function on a few elements and compares the results with those of the program.
        The output of rank 0's first call is shown, all other output of reading is thrown away. A function that changes
        something outside of itself, such as a counter, is refused; `state` keeps arrays from one update to the next.

        Numbers from outside of the function get into the program with their values at that time. A later change of such
        a number counts in a store of one process at once, and on servers when the function is set again (a `Program`
        has `set_param`). If another rank has set a function and rank 0 has not, a round with a push of that rank is an
        error, as with `set_optimizer`. `explain` on rank 0 shows the program that the servers run; docs/programs.md
        says what a function may do.

        A store of one process also takes an object of a class derived from `mx.optimizer.Updater` and calls it, and the
        object keeps the states. A distributed store takes an `mx.optimizer.Updater` itself, and refuses derived classes.
        A function that is called runs on the thread that pushes, once per key, in the order in which the keys first appear
        in the call. If it raises, the exception reaches the caller of push and no key of that call has changed.

        Raises:
            InvalidArgumentError: a function that cannot be read, with the line and the reason; a later init raises it for
                its keys. An async function or a generator function, which updates nothing. The updater before stays.
            UnimplementedError: a class derived from `mx.optimizer.Updater` in a distributed store.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2,)))
            >>> def update(key, input, stored):
            ...     stored += input * 2
            >>> kv.set_updater(update)
            >>> kv.push(3, mx.nd.ones((2,)))
            >>> kv.pull(3).asnumpy()
            array([3., 3.], dtype=float32)
        """
        from .. import optimizer

        if isinstance(updater, optimizer.Optimizer):
            self.set_optimizer(updater)
        elif isinstance(updater, optimizer.Updater):
            self._run_updater(updater)
        elif isinstance(updater, _core.Program):
            self._run_native(updater._native if isinstance(updater, optimizer.Program) else _core.Optimizer(updater))
        elif isinstance(updater, _core.Optimizer):
            self._run_native(updater)
        elif updater is None:
            self._set_function(None)
            self._holds(None, None)
        elif callable(updater):
            from .._update.functions import check_arguments

            check_arguments(updater)
            self._run_function(updater)
        else:
            raise InvalidArgumentError(
                f"set_updater: type {type(updater).__name__}; a function, a Program, an optimizer or None is needed"
            )

    def _holds(
        self, updater: AnyUpdater | None, running: Running | None, function: Called | Read | UpdaterSteps | None = None
    ) -> None:
        """Keep the updater that the store calls or runs from now on."""
        if self._running not in (None, running):
            self._running.optimizer.num_update = self._running.optimizer.num_update  # which is the store's no longer
        self._updater, self._running, self._function, self._native = updater, running, function, None

    def _run_native(self, optimizer: _core.Optimizer) -> None:
        """Run a program."""
        self._set_optimizer(optimizer)
        self._holds(None, None)
        self._native = optimizer

    def _run_function(self, updater: Callable[..., Any]) -> None:
        """Call a function at each push; where no Python can run, read it as a program, which is that of rank 0 for all."""
        from .._update.functions import Called, Read

        now = self._function
        called = now if isinstance(now, Called) and now.function == updater else Called(updater)
        try:
            self._set_function(called)
            self._holds(updater, None, called)
            return
        except UnimplementedError:
            pass
        read = Read(updater, prints=self.rank == 0)
        for key in self.keys():
            read.meet(key, *self._describe("set_updater", key))
        if read.program is not None:
            self._set_optimizer(_core.Optimizer(read.program, lazy=False))
        self._holds(updater, None, read)

    def _read(self) -> Read | None:
        """Return the function that servers run as a program, or None if there is none."""
        if self._function is None:
            return None
        from .._update.functions import Read

        return self._function if isinstance(self._function, Read) else None

    def _meets(self, key: Any, value: Any) -> None:
        """Have a function that servers run read for new keys, before they are made."""
        read = self._read()
        if read is None:
            return
        is_list = isinstance(key, (list, tuple))
        keys, values = (key, value) if is_list else ([key], [value])
        if not isinstance(values, (list, tuple)) or len(keys) != len(values):
            return  # init says what is wrong
        if not self._keys():
            read.free()
        was_read = read.program is not None
        with read.binding():
            for one, array in zip(keys, values, strict=True):
                alone = array[0] if isinstance(array, (list, tuple)) and array else array
                if is_rows(alone):
                    read.meet(one, *shape_and_dtype(alone))
                    continue
                try:
                    view = _core._view_of(NDArray, alone, False)
                except InvalidArgumentError:
                    return  # init says what is wrong
                read.meet(one, view.shape, view.dtype_name)
        if read.program is not None and not was_read:
            self._set_optimizer(_core.Optimizer(read.program, lazy=False))

    def _meets_shape(self, key: Any, shape: tuple[int, ...], dtype: str) -> None:
        """Have a function that servers run read for a new key, before it is made."""
        if self._read() is not None:
            self._meets(key, nd_empty(shape, dtype=dtype))

    def state(self, name: str) -> NDArray:
        """Return an array that a function of `set_updater` keeps for the key that it is called for: zeros at first.

        The array has the key's shape and dtype. For 16-bit floats it is float32, as are the key's arrays that the
        function gets. The function changes it in place. If a push fails because the function raises, the array is as
        before the push. Another updater begins with new states. `save`, `load` and the verbs of optimizer states handle
        them like those of an optimizer.

        Args:
            name: a letter, then letters, digits and ``_``, 64 characters at most. Programs reserve ``sum``, ``value``, ``t``,
                ``n``, ``program``, ``param``, ``state`` and ``scalar``, and in upper and lower case ``inf``, ``infinity`` and
                ``nan``.

        Raises:
            FailedPreconditionError: no function of `set_updater` runs in this thread.
            InvalidArgumentError: a name that is reserved or has other characters.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.zeros((2,)))
            >>> def momentum(key, grad, weight):
            ...     m = kv.state('m')
            ...     m *= 0.5
            ...     m += grad
            ...     weight -= m
            >>> kv.set_updater(momentum)
            >>> kv.push(3, mx.nd.ones((2,)))
            >>> kv.push(3, mx.nd.ones((2,)))
            >>> kv.pull(3).asnumpy()
            array([-2.5, -2.5], dtype=float32)
        """
        from .._update.functions import state

        return state(name)  # type: ignore[no-any-return]  # an array without elements while the function is read

    def explain(self, key: Key) -> None:
        """Print the effect of a push on the key's value, in words and as an update program.

        Ranks other than 0, restarted workers and observers ask the server of the key. The server reports its program
        and the hyperparameters of its last update of the key.

        Raises:
            KeyNotFoundError: no such key.
            DeadlineExceededError, UnavailableError: that server does not answer.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.zeros((2,)))
            >>> kv.explain(3)
            key 3: assignment
              value becomes sum
            where sum is the sum of what was pushed, and value the stored value
        """
        from .._update.explain import explanation

        self._describe("explain", key)
        print(explanation(self, key), end="")

    def _run_updater(self, updater: Updater) -> None:
        """Call an updater, whose states are its own; where no Python can run, run the optimizer of a plain one."""
        from .. import optimizer as opt
        from .._update.functions import UpdaterSteps

        try:
            steps = UpdaterSteps(updater)
            self._set_function(steps)
            self._holds(updater, None, steps)
            return
        except UnimplementedError:
            if type(updater) is not opt.Updater:
                why = f"the updater {type(updater).__name__} is Python code; a mx.Program can say it as data"
            elif updater._held:
                why = "the updater has states, which stay in Python; a new one has none"
            else:
                why = ""
        if why:
            raise UnimplementedError(f"set_updater: {why}. The servers run optimizers without Python")
        self._run_optimizer("set_updater", updater)

    def _run_optimizer(self, verb: str, updater: Updater) -> None:
        """Run the optimizer of an updater: without Python, or, where that cannot be, call the updater."""
        from .._update.functions import UpdaterSteps

        optimizer = updater.optimizer
        running = optimizer._run_in(self)
        if running is not None:
            updater._belongs_to(running)
            self._holds(updater, running)
            return
        steps = UpdaterSteps(updater)
        try:
            self._set_function(steps)
        except UnimplementedError:
            why = optimizer._why_not_native()
            raise UnimplementedError(f"{verb}: {why}. The servers run optimizers without Python") from None
        self._holds(updater, None, steps)

    _set_updater = set_updater

    def set_optimizer(self, optimizer: Optimizer | Program) -> None:
        """Run an optimizer in the store at each push: the stored value is the weight, the sum is the gradient.

        Later changes of its hyperparameters count from the next push on, in each store that runs it. A change is an
        error if a store cannot take it, because it keeps no states for it or runs without Python. Setting an optimizer
        starts with fresh states. If the running optimizer has the same program and hyperparameters, its states stay.

        In a distributed store rank 0 defines it for all workers. Another rank may leave the call out, or make the same
        one. If its hyperparameters differ from those of rank 0, now or later, or if rank 0 has set no optimizer, a
        round of ``dist_sync`` fails on every worker. The error names both workers, and the round updates nothing. In
        ``dist_async`` each push is applied with the hyperparameters of the worker that pushes.

        The rounds of ``dist_sync`` wait for rank 0 by themselves. In ``dist_async`` a push of another rank that arrives
        before the optimizer of rank 0 is assigned, or an error if that rank has called `set_optimizer` too. Therefore
        call `barrier` after `set_optimizer`, or `init` or `init_table`, in which the other ranks wait for rank 0.

        A learning-rate schedule that is Python code is called before each push of this worker, once for each key. Its
        argument is the number of the coming update: the rounds of the key (`round`) since this call, plus
        `begin_num_update`. In a restarted worker, and in a job that continues from a snapshot, all rounds of the key
        count. Pushing threads call the schedule one after the other.

        Args:
            optimizer: of `mx.optimizer`, or a `Program`; in a store of one process also a subclass with an `update` of its own.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
            >>> kv.push('w', mx.nd.ones((2,)))
            >>> kv.pull('w').asnumpy()
            array([0.5, 0.5], dtype=float32)
        """
        from .. import optimizer as opt
        from .._update.base import instance_hint

        if isinstance(optimizer, opt.Program):
            self.set_updater(optimizer)
            return
        if not isinstance(optimizer, opt.Optimizer):
            kind = type(optimizer)
            found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            raise InvalidArgumentError(
                f"set_optimizer: type {found}, one of mx.optimizer is needed{instance_hint(optimizer)}"
            )
        self._run_optimizer("set_optimizer", opt.get_updater(optimizer))

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return whether stores have a capability; ``'optimizer'`` is the only one defined.

        Example:
            >>> mx.kv.KVStore.is_capable('optimizer')
            True
        """
        if str(capability).lower() == "optimizer":
            return True
        raise InvalidArgumentError(f"is_capable: unknown capability {capability!r}; there is 'optimizer'")

    # -------------------------------------------------------------------------------------------------- life and keys

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
        file. The nth calls of all workers form one barrier. A restarted worker continues the count of its earlier
        incarnation: if `rejoined` is true, it must leave out the barriers that were reached before.

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

    # ----------------------------------------------------------------------------------------------------------- on disk

    @overload
    def save(self, path: str | os.PathLike[str], *, async_op: Literal[False] = False) -> str: ...
    @overload
    def save(self, path: str | os.PathLike[str], *, async_op: Literal[True]) -> Ticket[str]: ...
    @overload
    def save(self, path: str | os.PathLike[str], *, async_op: bool) -> Ticket[str] | str: ...
    def save(self, path: str | os.PathLike[str], *, async_op: bool = False) -> Ticket[str] | str:
        """Save all values and the optimizer's states as a new snapshot in the folder `path`.

        A snapshot is a folder ``path/000001`` and so on, of safetensors files with an index that other readers of such
        folders know. A snapshot appears only when it is complete, and each tensor has a checksum. The newest two are
        kept. In ``dist_sync`` every key is saved at the round of this worker's last push, and in ``dist_async`` as it
        is; the other workers continue meanwhile. All ranks may call it: the lowest one that lives writes, on its
        machine.

        Args:
            path: the folder; created if it does not exist.
            async_op: return a Ticket as soon as all keys are fixed at their rounds; a thread writes them while pushes
                continue. The ticket's wait returns the path. The ticket keeps the store until the snapshot is written.
                If neither ticket nor store is kept, two seconds are left to write it, and a warning reports when they
                were too short.

        Returns:
            the path of the snapshot; ``''`` on ranks that do not write.

        Raises:
            ResourceExhaustedError: the disk is full.
            FailedPreconditionError: no permission, or another save is under way there.
            UnavailableError: any other error of the disk, or a server is out of reach. Earlier snapshots are still
                there.

        Example:
            >>> import tempfile
            >>> kv = mx.kv.create()
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> folder = tempfile.mkdtemp()
            >>> kv.save(folder).removeprefix(folder)
            '/000001'
            >>> kv.push('w', mx.nd.zeros((2,)))
            >>> kv.load(folder)
            {'w': 0}
            >>> out = mx.nd.zeros((2,))
            >>> kv.pull('w', out=out)
            >>> out.asnumpy()
            array([1., 1.], dtype=float32)
        """
        _helpers.check_disk(self, "save")
        if async_op:
            operation = self._save_async(_place("save", path))
            return ticket.Ticket(operation, "save", operation.saved_path, self)
        return self._save(_place("save", path))

    def load(self, path: str | os.PathLike[str]) -> dict[int | str, int]:
        """Put values and states back from a snapshot.

        The store needs the same keys, shapes and dtypes as the saved one, and the same optimizer if the snapshot has
        states. The number of servers may differ. Every rank calls it; the lowest one that lives reads. From then on
        `round` of a synchronous key continues, on every rank, from the saved round. The whole snapshot is checked
        before anything changes.

        Args:
            path: a folder of snapshots, of which the newest counts, or one of them.

        Returns:
            `round` of each key.

        Raises:
            SnapshotNotFoundError: there is none.
            DataLossError: it is damaged; names the file and the key.
            InvalidArgumentError: other keys, shapes or dtypes.
            FailedPreconditionError: the states are of another optimizer, or of a newer format. Or this worker was restarted
                while its job went on, or its job goes on from a snapshot: the servers have the values already. Or all is loaded,
                but this rank does not find the snapshot, and a learning-rate schedule in Python needs its counts of updates.
        """
        place = _place("load", path)
        seen = _snapshots.Place(place)
        try:
            with _helpers.loading(self), called_by_all("every worker calls load"):
                rounds = self._load(place)
        except KeyNotFoundError as missing:
            raise SnapshotNotFoundError(str(missing)) from None
        # Rounds of an asynchronous key are each worker's own pushes, and no snapshot has them.
        self._go_on("load", place, seen, None if _core.is_async(self.type) else rounds)
        return rounds

    def save_optimizer_states(self, fname: str | os.PathLike[str], dump_optimizer: bool = False) -> None:
        """Save the optimizer's states as one safetensors file; in a job, the lowest rank writes it.

        Args:
            fname: the file. An existing file is replaced only when the new one is completely on the disk.
            dump_optimizer: MXNet pickles the optimizer if it is True. Here the file always has the optimizer's program
                and its hyperparameters, to look at; a store that loads keeps its own, so that True is an error.

        Raises:
            FailedPreconditionError: there is no optimizer.
            UnimplementedError: an optimizer or updater that is Python code keeps states which are no arrays, numbers, texts,
                None, or lists, tuples or dicts of them.
            FolderNotFoundError: there is no folder for the file.
        """
        if dump_optimizer:
            raise UnimplementedError(
                "save_optimizer_states: dump_optimizer=True; the file names the program and its hyperparameters, and "
                "whoever loads it calls set_optimizer before"
            )
        file = _place("save_optimizer_states", fname)
        try:
            self._save_states(file)
        except KeyNotFoundError as missing:
            if os.path.isdir(os.path.dirname(os.path.abspath(file))):
                raise
            raise FolderNotFoundError(str(missing)) from None

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Restore the optimizer's states from a file of `save_optimizer_states` or a snapshot of `save`; values stay.

        Every rank calls it, after `set_optimizer` with the same optimizer.

        Raises:
            SnapshotNotFoundError, DataLossError, InvalidArgumentError, FailedPreconditionError: as `load`.
        """
        place = _place("load_optimizer_states", fname)
        seen = _snapshots.Place(place)
        try:
            with called_by_all("every worker calls load_optimizer_states"):
                self._load_states(place)
        except KeyNotFoundError as missing:
            raise SnapshotNotFoundError(str(missing)) from None
        self._go_on("load_optimizer_states", place, seen, None)

    def _runs(self) -> list[Running]:
        """Return the optimizers that the store runs without Python."""
        return [running for running in (self._running, *self._own.values()) if running is not None]

    def _go_on(self, verb: str, path: str, seen: _snapshots.Place, rounds: Mapping[Any, int] | None) -> None:
        """Have the optimizers that the store runs count on from the updates of a snapshot, which all ranks have loaded.

        Args:
            verb: for the error.
            path: the path that the verb was given.
            seen: the path as this rank saw it before the load.
            rounds: as of `_snapshots.Place.loaded`.
        """
        all_running = self._runs()
        if not all_running:
            return
        counts, loaded = None, seen.loaded(rounds)
        with contextlib.suppress(KVError):  # this rank cannot read it
            counts = None if loaded is None else self._updates_in(loaded)
        if counts is not None:
            for running in all_running:
                running.go_on(counts)
        elif any(running.asks for running in all_running):
            raise FailedPreconditionError(
                f"{verb} {path}: all is loaded, but the schedule of the learning rate is Python code, which needs the counts of"
                " updates there on every rank. This rank does not find the snapshot that was loaded: it cannot read the path,"
                f" or another snapshot was saved or removed meanwhile; {verb} one snapshot, such as FOLDER/000004, again on"
                " every rank, in a folder that all of them see"
            )

    def keys(self) -> list[int | str]:
        """Return the keys in the order of their init; for an observer the present keys, sorted, numbers first."""
        return self._keys()

    def __iter__(self) -> Iterator[int | str]:
        """Iterate over the keys in the order of their init."""
        return iter(self._keys())

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close the store; with an exception, the other workers see this worker as dead and not as having left.

        If closing then fails too, its error does not hide the exception.
        """
        self._has_failed = _life.is_failure(error)
        with _beside(error):
            self.close()

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """As `__exit__`, without blocking the event loop."""
        self._has_failed = _life.is_failure(error)
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
        raise UnimplementedError("pickle: a KVStore is memory of one process; create one in each")

    # ----------------------------------------------------------------------------------------------------- compression

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
            >>> with mx.kv.create('dist_sync', bootstrap='self') as kv:
            ...     kv.init('w', mx.nd.zeros((3,)))
            ...     kv.set_gradient_compression({'type': '2bit', 'threshold': 0.5})
            ...     kv.push('w', mx.nd.array([0.75, -0.25, -2.0]))
            ...     sent = kv.pull('w').asnumpy()
            ...     kv.push('w', mx.nd.array([0.25, -0.25, 0.0]))
            ...     print(sent, kv.pull('w').asnumpy())
            [ 0.5  0.  -0.5] [ 0.5 -0.5 -0.5]
        """
        kind, numbers = _compression.look(compression_params)
        pattern = _compression.pattern_of(keys)
        _compression.check_meets(pattern, self._keys())
        if kind != "none" and pattern != "*":
            _compression.check_has_dense(pattern, self._keys(), self._is_by_rows)
        self._set_gradient_compression(kind, numbers.get("threshold", 0.5), numbers.get("ratio", 0.01), pattern)

    # -------------------------------------------------------------------------------------------- by MXNet's other names

    @staticmethod
    def register(klass: C) -> C:
        """As KVStoreBase.register."""
        return KVStoreBase.register(klass)

    def send_command_to_servers(self, head: int | str, body: Any = "") -> None:
        """Run a command of MXNet for the servers. Commands are data; none carries code.

        Args:
            head: a name, or MXNet's number of the command.

                - ``'optimizer'`` (0): `body` is one of `mx.optimizer`, or a `Program`: as `set_optimizer`.
                - ``'gradient_compression'`` (4): `body` is a dict: as `set_gradient_compression`.

        Raises:
            UnimplementedError: commands of MXNet that have another way here: ``'multi_precision'`` (1), ``'stop'`` (2),
                ``'sync_mode'`` (3), ``'profiler'`` (5); a pickle as `body`.
            InvalidArgumentError: no such command, with a list of those there are.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.send_command_to_servers('optimizer', mx.optimizer.SGD(learning_rate=0.5))
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

    def num_dead_node(self, node_id: int) -> int:
        """Return how many processes of the job are dead, as far as the head has said; 0 in a store of one process.

        Args:
            node_id: a sum of 1 (the head), 2 (all servers) and 4 (all workers). Or MXNet's number of one process:
                ``8 + 2 * rank`` for a server, ``9 + 2 * rank`` for a worker.

        Raises:
            InvalidArgumentError: no such number.

        Example:
            >>> mx.kv.create('local').num_dead_node(7)
            0
        """
        if not isinstance(node_id, int) or isinstance(node_id, bool) or not 1 <= node_id < 2**31:
            raise InvalidArgumentError(
                f"num_dead_node: {node_id!r}; a sum of 1, 2 and 4, or a number of MXNet's is needed"
            )
        return self._num_dead_node(node_id)

    def set_barrier_before_exit(self, do_barrier: bool = True) -> None:
        """Have `close` wait until every worker has come there, as a `barrier` before it.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.set_barrier_before_exit()
            >>> kv.close()
        """
        self._waits_at_close = bool(do_barrier)
