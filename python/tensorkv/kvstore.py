"""Stores: ``mx.kv``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, overload

from . import _core, _life, ticket
from ._create import create, create_async
from ._store_base import KVStoreBase, TestStore
from ._verbs import KVStoreVerbs, nothing
from .errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._running import Running
    from ._types import AnyUpdater, Key, StoreOptions
    from .optimizer import Optimizer, Updater
    from .ticket import Ticket

__all__ = ["KVStore", "KVStoreBase", "TestStore", "create", "create_async"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class KVStore(KVStoreVerbs):
    """A store that maps int or str keys to arrays. Make one with `create`.

    The verbs are `init`, `push`, `pull`, `pushpull` and `broadcast`; each takes one key or a list of keys. Threads may
    share a store. It is a context manager that closes itself.

    Example:
        >>> with mx.kv.create('local') as kv:
        ...     kv.init('w', mx.nd.ones((2,)))
        ...     'w' in kv, len(kv), list(kv)
        (True, 1, ['w'])
        >>> kv.pull('w')
        Traceback (most recent call last):
        tensorkv.errors.FailedPreconditionError: pull: the store is closed
    """

    OPTIMIZER = "optimizer"

    _updater: AnyUpdater | None  # kept alive, and for those who look at it
    _name: str

    def __init__(self, type: str = "local", **options: Unpack[StoreOptions]) -> None:
        """Make a store; see `create`."""
        super().__init__(type, cast("dict[str, Any]", options))
        level = options.get("log")
        if level is not None:
            _life.set_level(level)
        self._begin()

    def _begin(self) -> None:
        self._holds(None, None)
        self._name = self.type
        _life.opened(self)

    @classmethod
    def _of_cluster(cls, cluster: _core.Cluster, rank: int) -> Self:
        """Return the store of a worker of a `_core.Cluster`."""
        store = cls.__new__(cls)
        _core.Store.__init__(store, cluster, rank)
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

    def round(self, key: Key) -> int:
        """Return how often this worker has pushed the key: the number of its last round.

        A worker that has been started again goes on from the round that its earlier life had reached.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2,)))
            >>> kv.push(3, mx.nd.ones((2,)))
            >>> kv.round(3)
            1
        """
        return self._round(key)

    def stats(self) -> dict[str, Any]:
        """Return what the store has done and what it waits for, counted since it was made, as a new dict.

        Of this store:
            age_seconds: since it was made.
            verbs: for each of init, push, pull, pushpull, broadcast, barrier, delete, set_updater and set_optimizer
                its ``calls``, and how many of them ``failed``: the call itself, or its ticket. A verb that is made of
                others counts as itself only.
            bytes: of the arrays that calls were given, each as large as its key's value: ``init_bytes``,
                ``pushed_bytes``, ``pulled_bytes``.
            rounds: the sum of the rounds of all keys, deleted ones too.
            key_count: how many keys there are.
            keys: of the 100 keys with the most bytes, the largest first, ``rounds`` (as `round`), ``init_bytes``,
                ``pushed_bytes``, ``pulled_bytes``.

        Of this process, whose stores share the connections of one worker; zeros and no peers in a store without any:
            operations_under_way: operations (of one key each) that have begun and not ended.
            traffic: ``wire_out_bytes`` and ``wire_in_bytes`` through sockets, with the heads of messages;
                ``shared_out_bytes`` and ``shared_in_bytes`` through shared memory.
            resends: messages that were sent again after a connection was lost.
            reconnects: connections made again.
            peers: for ``'head'`` and each ``'server N'`` the bytes of `traffic`; ``state`` of the connection (idle,
                dialing, hello, open, dead); ``connections`` that have been open; ``resends``; ``queued_messages`` that
                have not left and the ``queued_bytes`` of their values; ``unanswered_messages``; ``unaccepted_bytes``
                that have left and that the server does not hold yet; ``last_word_seconds`` since it was heard last,
                or None.

        Of both:
            waits: for each cause the ``count`` of waits and the ``wait_seconds`` of those that have ended.
                Of calls: ``key`` (another thread uses it), ``array`` (an asynchronous operation uses it), ``accepted``
                (until servers hold a pushed array of another framework), ``answer`` (for its operations to end).
                Of operations: ``round`` (the one before a push is not known to be complete), ``pull`` (an earlier one
                of the key is unanswered), ``order`` (others come first).
                Of what is queued for a server: ``link`` (there is no connection), ``credit`` (bytes that it has not
                accepted), ``window`` (operations that it has not answered), ``pull_bytes`` (bytes asked for).

        Nothing is counted while nobody works, and looking changes nothing.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> kv.push('w', mx.nd.ones((2,)))
            >>> kv.stats()['verbs']['push'], kv.stats()['bytes']['pushed_bytes']
            ({'calls': 1, 'failed': 0}, 8)
        """
        return self._stats()

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._size()

    def __bool__(self) -> bool:
        """Return True, without keys too: ``if kv`` asks whether there is a store."""
        return True

    def __contains__(self, key: object) -> bool:
        """Return whether the key is there."""
        return self._contains(key)

    @property
    def type(self) -> str:
        """The name that the store was created with."""
        return self._type

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return self._rank

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self._num_workers

    @property
    def rejoined(self) -> bool:
        """Whether this worker has lived before in this job."""
        return self._rejoined

    # ------------------------------------------------------------------------------------------------------ updater

    def set_updater(self, updater: AnyUpdater | None) -> None:
        """Replace how a push combines the sum with the stored value.

        Args:
            updater: ``f(key, input, stored)``, which changes the NDArray `stored` in place and may use other keys of the
                store; or a `Program`; or an optimizer; or None, which restores assignment. A distributed store takes no
                function, because its servers run no Python.

        A subclass of `mx.optimizer.Updater`, and in a store of one process any, is such a function, and keeps the states.
        A function runs on the thread that pushes, once per key, in the order in which the keys first appear in the call.
        If it raises, the exception reaches the caller of push and no key of that call has changed.

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
        from . import optimizer

        if isinstance(updater, optimizer.Optimizer):
            self.set_optimizer(updater)
        elif isinstance(updater, optimizer.Updater):
            self._run_updater(updater)
        elif isinstance(updater, _core.Program):
            self._set_optimizer(_core.Optimizer(updater))
            self._holds(None, None)
        elif isinstance(updater, _core.Optimizer):
            self._set_optimizer(updater)
            self._holds(None, None)
        elif updater is None or callable(updater):
            self._set_function(updater)
            self._holds(updater, None)
        else:
            raise InvalidArgumentError(
                f"set_updater: type {type(updater).__name__}; a function, a Program, an optimizer or None is needed"
            )

    def _holds(self, updater: AnyUpdater | None, running: Running | None) -> None:
        """Keep what the store calls, or runs, from now on."""
        self._updater, self._running = updater, running

    def _run_updater(self, updater: Updater) -> None:
        """Call an updater, whose states are its own; where no Python can run, run the optimizer of a plain one."""
        from . import optimizer as opt

        try:
            self._set_function(updater)
            self._holds(updater, None)
            return
        except UnimplementedError:
            if type(updater) is not opt.Updater:
                why = f"the updater {type(updater).__name__} is Python code; a mx.Program can say it as data"
            elif updater.states:
                why = "the updater has states, which stay in Python; a new one has none"
            else:
                why = ""
        if why:
            raise UnimplementedError(f"set_updater: {why}. The servers run optimizers without Python")
        self._run_optimizer("set_updater", updater)

    def _run_optimizer(self, verb: str, updater: Updater) -> None:
        """Run the optimizer of an updater: without Python, or, where that cannot be, call the updater."""
        optimizer = updater.optimizer
        running = optimizer._run_in(self._set_optimizer)
        if running is not None:
            updater._belongs_to(running)
        else:
            try:
                self._set_function(updater)
            except UnimplementedError:
                why = optimizer._why_not_native()
                raise UnimplementedError(f"{verb}: {why}. The servers run optimizers without Python") from None
        self._holds(updater, running)

    _set_updater = set_updater

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Run an optimizer in the store at each push: the stored value is the weight, the sum is the gradient.

        Later changes of its hyperparameters count from the next push on, in each store that runs it. A change that a store
        cannot take, because it keeps no states for it or runs without Python, is an error. Setting an optimizer starts with
        fresh state.

        In a distributed store rank 0 defines it for all workers, and a call of another rank has no effect. The rounds of
        ``dist_sync`` wait for rank 0 by themselves; in ``dist_async`` a push of another rank that arrives before it is
        assigned, so that a `barrier` belongs behind this call.

        Args:
            optimizer: of `mx.optimizer`, also a subclass with an `update` of its own.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
            >>> kv.push('w', mx.nd.ones((2,)))
            >>> kv.pull('w').asnumpy()
            array([0.5, 0.5], dtype=float32)
        """
        from . import optimizer as opt

        if not isinstance(optimizer, opt.Optimizer):
            hint = f"; mx.optimizer.create({optimizer!r}) makes one" if isinstance(optimizer, str) else ""
            kind = type(optimizer)
            found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            raise InvalidArgumentError(f"set_optimizer: type {found}, one of mx.optimizer is needed{hint}")
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
        """Wait until every worker has come here; where there is one, it returns at once.

        No barrier is needed after `init`, which waits for the key, nor after `push`, because a pull gives the round of the
        worker's own last push; one is needed around `delete`, and where workers share something else, such as a file.

        Args:
            async_op: return a Ticket, which is done when all have come.
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

        A store of several workers first waits until its pushes are accepted. Calls of other threads that wait for a key
        end at once. A failure of an earlier call that nobody has seen is raised here, when everything is closed.

        Args:
            async_op: return a Ticket, which is done when the store is closed. ``async with`` awaits it.
        """
        if async_op:
            return ticket.in_thread(self.close, "close")
        try:
            self._close()
        finally:
            self._holds(None, None)
            _life.closed(self)
        return None

    def keys(self) -> list[int | str]:
        """Return the keys in the order of their init."""
        return self._keys()

    def __iter__(self) -> Iterator[int | str]:
        """Iterate over the keys in the order of their init."""
        return iter(self._keys())

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the store."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the store without blocking the event loop."""
        await self.close(async_op=True)

    def __repr__(self) -> str:
        """Return type, worker and number of keys."""
        try:
            return f"<KVStore {self.type!r} rank {self.rank} of {self.num_workers}, {len(self)} keys>"
        except FailedPreconditionError:
            return f"<KVStore {self._name!r} closed>"

    def __reduce__(self) -> NoReturn:
        """Refuse: a store is memory of this process."""
        raise UnimplementedError("pickle: a KVStore is memory of one process; create one in each")

    # ------------------------------------------------------------------------------------- what this build does not have

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> NoReturn:
        """Raise UnimplementedError: row-sparse values are not in this build yet."""
        raise UnimplementedError("row_sparse_pull: row-sparse values are not in this build yet")

    def set_gradient_compression(self, compression_params: Any) -> NoReturn:
        """Raise UnimplementedError: gradient compression is not in this build yet."""
        raise UnimplementedError("set_gradient_compression: gradient compression is not in this build yet")

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> NoReturn:
        """Raise UnimplementedError: states on disk are not in this build yet."""
        raise UnimplementedError("save_optimizer_states: states on disk are not in this build yet")

    def load_optimizer_states(self, fname: Any) -> NoReturn:
        """Raise UnimplementedError: states on disk are not in this build yet."""
        raise UnimplementedError("load_optimizer_states: states on disk are not in this build yet")

    def _send_command_to_servers(self, head: Any, body: Any) -> NoReturn:
        """Raise UnimplementedError: commands of MXNet are pickled code."""
        raise UnimplementedError(
            "_send_command_to_servers: no code travels to servers; set_optimizer sends an optimizer or a program to them"
        )
