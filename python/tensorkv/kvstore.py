"""Stores: ``mx.kv``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from . import _bootstrap, _core, _life, ticket
from .errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from ._types import Arrays, ArraysOfKeys, Key, Keys
    from .ndarray import NDArray
    from .ticket import Ticket

__all__ = ["KVStore", "KVStoreBase", "create", "create_async"]

_registry: dict[str, type] = {}
A = TypeVar("A")


def _nothing() -> None:
    """Return None, the result of a push."""


def _like(arrays: Any, example: Any) -> Any:
    """Return arrays in the framework of an example."""
    from . import _interop

    return _interop.like(arrays, example)


def _title(verb: str, key: object) -> str:
    """Return verb and key as a ticket shows them; of a list the first key."""
    if not isinstance(key, (list, tuple)):
        return f"{verb} {key!r}"
    return f"{verb} of {len(key)} keys, the first is {key[0]!r}" if key else verb


class _StoreMeta(type):
    """Makes every store an instance of KVStoreBase, whatever its base class."""

    def __instancecheck__(cls, instance):
        return super().__instancecheck__(instance) or (cls is KVStoreBase and isinstance(instance, _core.Store))

    def __subclasscheck__(cls, subclass):
        return super().__subclasscheck__(subclass) or (cls is KVStoreBase and issubclass(subclass, _core.Store))


class KVStoreBase(metaclass=_StoreMeta):
    """The interface that stores of other makes implement: broadcast, pushpull, set_optimizer and a few properties.

    Example:
        >>> @mx.kv.KVStoreBase.register
        ... class MyStore(mx.kv.KVStoreBase):
        ...     pass
        >>> type(mx.kv.create('mystore')).__name__
        'MyStore'
    """

    OPTIMIZER = "optimizer"

    def broadcast(self, key, value, out, priority=0):
        """Give every output the initial value."""
        raise NotImplementedError

    def pushpull(self, key, value, out=None, priority=0):
        """Sum the values and give every output the result."""
        raise NotImplementedError

    def set_optimizer(self, optimizer):
        """Run `optimizer` in the store at each push."""
        raise NotImplementedError

    @staticmethod
    def is_capable(capability):
        """Return whether the store has a capability; the only one defined is ``'optimizer'``."""
        raise NotImplementedError

    def save_optimizer_states(self, fname, dump_optimizer=False):
        """Write the optimizer's states to a file."""
        raise NotImplementedError

    def load_optimizer_states(self, fname):
        """Read the optimizer's states from a file."""
        raise NotImplementedError

    @property
    def type(self):
        """The name of the store's type."""
        raise NotImplementedError

    @property
    def rank(self):
        """The number of this worker."""
        raise NotImplementedError

    @property
    def num_workers(self):
        """The number of workers."""
        raise NotImplementedError

    @staticmethod
    def register(klass):
        """Make `create` find the class `klass` by its name in lower case; return it. A decorator."""
        if not isinstance(klass, type):
            raise InvalidArgumentError(f"register: {klass!r} is no class")
        _registry[klass.__name__.lower()] = klass
        return klass


class KVStore(_core.Store):
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

    def __init__(self, type="local", **options):
        """Make a store; see `create`."""
        super().__init__(type, options)
        if options.get("log") is not None:
            _life.set_level(options["log"])
        self._begin()

    def _begin(self):
        self._updater = None
        self._name = self.type
        _life.opened(self)

    @classmethod
    def _of_cluster(cls, cluster, rank):
        """Return the store of a worker of a `_core.Cluster`."""
        store = cls.__new__(cls)
        _core.Store.__init__(store, cluster, rank)
        store._begin()
        return store

    # ------------------------------------------------------------------------------------------------------- values

    @overload
    def init(self, key: Key, value: Arrays, *, mode: str | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def init(
        self, key: Keys, value: ArraysOfKeys, *, mode: str | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def init(
        self, key: Key | Keys, value: Arrays | ArraysOfKeys, *, mode: str | None = None, async_op: Literal[True]
    ) -> Ticket[None]: ...
    def init(
        self,
        key: Key | Keys,
        value: Arrays | ArraysOfKeys,
        *,
        mode: str | None = None,
        async_op: bool = False,
    ) -> Ticket[None] | None:
        """Create each key with a copy of its value; shape and dtype stay those of the value.

        Args:
            key: an int (64-bit, also NumPy integers) or a str, or a list of them; one kind per store.
            value: an NDArray or any array with DLPack or the buffer protocol, of any shape and dtype; for a list of keys
                a list of the same length.
            mode: ``'sync'`` or ``'async'``, of these keys in a distributed store; default that of the store. A store in one
                process takes it and has one mode.
            async_op: return a Ticket, which is done when the keys are there; until then the values must not change.

        In a distributed store rank 0 creates the key and the others find it: they wait for rank 0, and the shapes and
        dtypes of all ranks have to be equal, as have the modes: every worker makes the same stores in the same order. What
        is wrong with the arguments is found before anything is created; where a server or rank 0 is lost on the way, keys
        of the list that were created before stay (``key in kv`` tells which), and a key that was created in part can be
        tried again.

        Raises:
            AlreadyExistsError: a key is there already, or stands twice in the call. No key of the call was created.
            InvalidArgumentError: int and str keys in one store, lists of different lengths, no array; in a distributed
                store another shape, dtype or mode than rank 0's.
            DeadlineExceededError, UnavailableError: in a distributed store rank 0 or a server did not come, or is dead.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2, 3)))
            >>> kv.init(['a'], [mx.nd.zeros((2,))])
            Traceback (most recent call last):
            tensorkv.errors.InvalidArgumentError: init 'a': a string key, the store has integer keys
        """
        own = "" if mode is None else str(mode)
        if async_op:
            return ticket.in_thread(lambda: self._init(key, value, own), _title("init", key))
        self._init(key, value, own)
        return None

    @overload
    def push(self, key: Key, value: Arrays, priority: int = 0, async_op: Literal[False] = False) -> None: ...
    @overload
    def push(self, key: Keys, value: ArraysOfKeys, priority: int = 0, async_op: Literal[False] = False) -> None: ...
    @overload
    def push(
        self, key: Key | Keys, value: Arrays | ArraysOfKeys, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    def push(
        self, key: Key | Keys, value: Arrays | ArraysOfKeys, priority: int = 0, async_op: bool = False
    ) -> Ticket[None] | None:
        """Sum the values given for each key, from left to right, and hand the sum to the updater (default: assign).

        Args:
            key: a key or a list of keys. A key that stands twice counts as one with all its values.
            value: for one key an array or a list of arrays, each with the key's shape and dtype; for a list of keys a list
                of such. Arrays of other frameworks are read where they are, never copied; strided ones are packed.
            priority: in a distributed store messages that wait for a server leave in the order of their priority, the
                highest first; others ignore it. Pushes of one key keep their order.
            async_op: return a Ticket, which is done when the round is complete. Without it a push of a distributed store
                returns when the arrays may be changed again, and its failure is raised by the next call on the key.

        Returns:
            None, or a Ticket with `async_op`.

        Raises:
            KeyNotFoundError: a key was never initialised.
            InvalidArgumentError: another shape or dtype, an empty list, bool values in a sum.
            DeadlineExceededError: another thread used a key longer than the patience.
            FailedPreconditionError: the store is closed, was made before a fork, or the updater pushes its own key.
            Exception: what the updater raised. In every case no key of the call has changed.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.zeros((2,)))
            >>> kv.push(3, [mx.nd.ones((2,)), mx.nd.ones((2,)) * 2])
            >>> kv.pull(3).asnumpy()
            array([3., 3.], dtype=float32)
        """
        if async_op:
            return ticket.Ticket(self._push_async(key, value, priority), _title("push", key), _nothing)
        self._push(key, value, priority)
        return None

    @overload
    def pull(
        self,
        key: Key,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        like: None = None,
        async_op: Literal[False] = False,
    ) -> NDArray: ...
    @overload
    def pull(
        self,
        key: Keys,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        like: None = None,
        async_op: Literal[False] = False,
    ) -> list[NDArray]: ...
    @overload
    def pull(
        self,
        key: Key | Keys,
        out: Arrays | ArraysOfKeys,
        priority: int = 0,
        ignore_sparse: bool = True,
        like: None = None,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def pull(
        self,
        key: Key,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: Literal[False] = False,
    ) -> A: ...
    @overload
    def pull(
        self,
        key: Keys,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A | list[A],
        async_op: Literal[False] = False,
    ) -> list[A]: ...
    @overload
    def pull(
        self, key: Key, out: None = None, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[True]
    ) -> Ticket[NDArray]: ...
    @overload
    def pull(
        self, key: Keys, out: None = None, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[True]
    ) -> Ticket[list[NDArray]]: ...
    @overload
    def pull(
        self,
        key: Key | Keys,
        out: Arrays | ArraysOfKeys,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        async_op: Literal[True],
    ) -> Ticket[None]: ...
    def pull(
        self,
        key: Key | Keys,
        out: Any = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        like: Any = None,
        async_op: bool = False,
    ) -> Any:
        """Copy the value of each key into its outputs, or return it.

        Args:
            key: a key or a list of keys.
            out: for one key an array or a list of arrays of the key's shape, for a list of keys a list of such: NDArray,
                NumPy, PyTorch or any other writable array. Converts between float dtypes. Where one array stands for
                several keys it holds the last one.
            priority: as push.
            ignore_sparse: accepted; every array is dense.
            like: where there is no `out`, the framework of this array is that of the result.
            async_op: return a Ticket; its wait gives what pull would have given.

        Returns:
            A Ticket with `async_op`; None with `out`; else a new NDArray with the key's shape, dtype and context, a list of
            them for a list of keys.

        Raises:
            KeyNotFoundError: a key was never initialised.
            InvalidArgumentError: another shape, a dtype that does not convert, a read-only output, a JAX array, a tensor
                that requires grad. No output was written.
            DeadlineExceededError, FailedPreconditionError: as push.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> a = np.zeros(2, np.float32)
            >>> kv.pull('w', out=a)
            >>> a
            array([1., 1.], dtype=float32)
        """
        if async_op and like is not None:
            raise InvalidArgumentError("pull: `like` needs the values at once; give `out`")
        fresh = self._fresh("pull", key) if out is None else None
        target = fresh if out is None else out
        if async_op:
            return ticket.Ticket(self._pull_async(key, target, priority), _title("pull", key), lambda: fresh)
        self._pull(key, target, priority)
        return fresh if like is None or fresh is None else _like(fresh, like)

    @overload
    def pushpull(
        self,
        key: Key | Keys,
        value: Arrays | ArraysOfKeys,
        out: Arrays | ArraysOfKeys,
        priority: int = 0,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def pushpull(
        self,
        key: Key | Keys,
        value: Arrays | ArraysOfKeys,
        out: None = None,
        priority: int = 0,
        async_op: Literal[False] = False,
    ) -> Any: ...
    @overload
    def pushpull(
        self,
        key: Key | Keys,
        value: Arrays | ArraysOfKeys,
        out: Arrays | ArraysOfKeys | None = None,
        priority: int = 0,
        *,
        async_op: Literal[True],
    ) -> Ticket[None]: ...
    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0, async_op: bool = False) -> Any:
        """Push, then pull, in one pass over memory. Without `out` the values themselves take the result.

        Args:
            key, value, priority: as push.
            out: as pull.
            async_op: return a Ticket, which is done when the outputs are written.

        Returns:
            None, or a Ticket with `async_op`; for JAX values without `out`, a new JAX array of the key's shape and dtype, a
            list for a list of keys.

        Raises:
            As push and pull; then neither the store nor an output has changed.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.zeros((2,)))
            >>> grads = [mx.nd.ones((2,)), mx.nd.ones((2,))]
            >>> kv.pushpull(3, grads)
            >>> grads[0].asnumpy()
            array([2., 2.], dtype=float32)
        """
        if async_op:
            operation = self._pushpull_async(key, value, out, priority)
            return ticket.Ticket(operation, _title("pushpull", key), _nothing)
        if self._pushpull(key, value, out, priority):
            return None
        # JAX arrays cannot take the result: it comes back as new ones.
        fresh = self._fresh("pushpull", key)
        self._pushpull(key, value, fresh, priority)
        return _like(fresh, value)

    def broadcast(
        self, key: Key | Keys, value: Arrays | ArraysOfKeys, out: Arrays | ArraysOfKeys, priority: int = 0
    ) -> None:
        """Init, then pull of the same keys: every output gets the initial value.

        Args:
            key, value: as init; the keys must be new.
            out: as pull.
            priority: as push, for the pull.

        Raises:
            As init and pull; then no key was created and no output written.

        Example:
            >>> kv = mx.kv.create('local')
            >>> outs = [mx.nd.zeros((2,), mx.cpu(i)) for i in range(2)]
            >>> kv.broadcast('w', mx.nd.ones((2,)), out=outs)
            >>> outs[1].asnumpy()
            array([1., 1.], dtype=float32)
        """
        self._broadcast(key, value, out, priority)

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

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._size()

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

    def set_updater(self, updater):
        """Replace how a push combines the sum with the stored value.

        Args:
            updater: ``f(key, input, stored)``, which changes the NDArray `stored` in place and may use other keys of the
                store; or a `Program`; or an optimizer; or None, which restores assignment.

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

        if isinstance(updater, (optimizer.Optimizer, optimizer.Updater)):
            self.set_optimizer(updater if isinstance(updater, optimizer.Optimizer) else updater.optimizer)
        elif isinstance(updater, _core.Program):
            self._set_optimizer(_core.Optimizer(updater))
            self._updater = None
        elif isinstance(updater, _core.Optimizer):
            self._set_optimizer(updater)
            self._updater = None
        elif updater is None or callable(updater):
            self._set_function(updater)
            self._updater = updater
        else:
            raise InvalidArgumentError(
                f"set_updater: type {type(updater).__name__}; a function, a Program, an optimizer or None is needed"
            )

    _set_updater = set_updater

    def set_optimizer(self, optimizer):
        """Run an optimizer in the store at each push: the stored value is the weight, the sum is the gradient.

        Later changes of its hyperparameters count from the next push on. Setting an optimizer starts with fresh state.

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
            raise InvalidArgumentError(f"set_optimizer: type {type(optimizer).__name__}, an optimizer is needed{hint}")
        native = optimizer._native_for_store()
        updater = opt.get_updater(optimizer)
        if native is not None:
            self._set_optimizer(native)
        else:
            try:
                self._set_function(updater)
            except UnimplementedError:
                raise UnimplementedError(
                    f"set_optimizer: {optimizer._why_not_native()}. The servers run optimizers without Python"
                ) from None
        self._updater = updater

    @staticmethod
    def is_capable(capability):
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
    def barrier(self, async_op: Literal[False] = False) -> None: ...
    @overload
    def barrier(self, async_op: Literal[True]) -> Ticket[None]: ...
    def barrier(self, async_op: bool = False) -> Ticket[None] | None:
        """Wait until every worker has come here; where there is one, it returns at once.

        Args:
            async_op: return a Ticket, which is done when all have come.
        """
        if async_op:
            return ticket.Ticket(self._barrier_async(), "barrier", _nothing)
        self._barrier()
        return None

    @overload
    def close(self, async_op: Literal[False] = False) -> None: ...
    @overload
    def close(self, async_op: Literal[True]) -> Ticket[None]: ...
    def close(self, async_op: bool = False) -> Ticket[None] | None:
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
            self._updater = None
            _life.closed(self)
        return None

    def keys(self) -> list[int | str]:
        """Return the keys in the order of their init."""
        return self._keys()

    def __iter__(self) -> Iterator[int | str]:
        """Iterate over the keys in the order of their init."""
        return iter(self._keys())

    def __enter__(self) -> KVStore:
        """Return the store."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the store."""
        self.close()

    async def __aenter__(self) -> KVStore:
        """Return the store."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the store without blocking the event loop."""
        await self.close(async_op=True)

    def __repr__(self):
        """Return type, worker and number of keys."""
        try:
            return f"<KVStore {self.type!r} rank {self.rank} of {self.num_workers}, {len(self)} keys>"
        except FailedPreconditionError:
            return f"<KVStore {self._name!r} closed>"

    def __reduce__(self):
        """Refuse: a store is memory of this process."""
        raise UnimplementedError("pickle: a KVStore is memory of one process; create one in each")

    # ------------------------------------------------------------------------------------- what this build does not have

    def row_sparse_pull(self, key, out=None, priority=0, row_ids=None):
        """Raise UnimplementedError: row-sparse values are not in this build yet."""
        raise UnimplementedError("row_sparse_pull: row-sparse values are not in this build yet")

    def set_gradient_compression(self, compression_params):
        """Raise UnimplementedError: gradient compression is not in this build yet."""
        raise UnimplementedError("set_gradient_compression: gradient compression is not in this build yet")

    def save_optimizer_states(self, fname, dump_optimizer=False):
        """Raise UnimplementedError: states on disk are not in this build yet."""
        raise UnimplementedError("save_optimizer_states: states on disk are not in this build yet")

    def load_optimizer_states(self, fname):
        """Raise UnimplementedError: states on disk are not in this build yet."""
        raise UnimplementedError("load_optimizer_states: states on disk are not in this build yet")

    def _send_command_to_servers(self, head, body):
        """Raise UnimplementedError: a store in one process has no servers."""
        raise UnimplementedError("_send_command_to_servers: a store in one process has no servers")


@KVStoreBase.register
class TestStore(KVStoreBase):
    """``create('teststore')``: broadcast and pushpull without any state, for tests of code that uses a store.

    Example:
        >>> a = mx.nd.ones((2,))
        >>> mx.kv.create('teststore').pushpull(3, [a, a])
        >>> a.asnumpy()
        array([2., 2.], dtype=float32)
    """

    __test__ = False  # not a test class for pytest

    def broadcast(self, key, value, out, priority=0):
        """Copy `value` into every output."""
        for target in out if isinstance(out, (list, tuple)) else [out]:
            target[:] = value

    def pushpull(self, key, value, out=None, priority=0):
        """Sum the values into the outputs, or back into the values."""
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        total = values[0].copy()
        for other in values[1:]:
            total += other
        out = value if out is None else out
        for target in out if isinstance(out, (list, tuple)) else [out]:
            target[:] = total

    @staticmethod
    def is_capable(capability):
        """Return False for ``'optimizer'``."""
        if str(capability).lower() == "optimizer":
            return False
        raise InvalidArgumentError(f"is_capable: unknown capability {capability!r}; there is 'optimizer'")

    @property
    def type(self):
        """``'teststore'``."""
        return "teststore"

    @property
    def rank(self):
        """0."""
        return 0

    @property
    def num_workers(self):
        """1."""
        return 1


def _with_hints(function):
    """Decorate `create`: an option that it does not know is a TypeError that proposes the nearest name."""

    @functools.wraps(function)
    def checked(*args, **options):
        for name in options:
            if name != "name" and name not in function.__kwdefaults__:
                nearest = _core.nearest(name, list(function.__kwdefaults__))
                raise TypeError(
                    f"create() has no option {name!r}" + (f"; did you mean {nearest!r}?" if nearest else "")
                )
        return function(*args, **options)

    return checked


class _ServerStore(KVStoreBase):
    """What ``create('dist_sync')`` gives in a server or scheduler: it holds no values, `KVStoreServer` serves them."""

    def __init__(self, type, role):
        """Keep the name of the type and what this process is."""
        self._type, self._role = type, role

    @property
    def type(self):
        """The name of the type."""
        return self._type

    @property
    def rank(self):
        """0."""
        return 0

    @property
    def num_workers(self):
        """0: a server is none."""
        return 0

    def __getattr__(self, name):
        """Refuse every other verb."""
        raise FailedPreconditionError(f"{name}: this process is a {self._role} of its job; only workers have stores")

    def _refuse(self, *args, **kwargs):
        """Refuse the verbs of the base class."""
        raise FailedPreconditionError(f"this process is a {self._role} of its job; only workers have stores")

    broadcast = pushpull = set_optimizer = save_optimizer_states = load_optimizer_states = _refuse


@_with_hints
def create(
    name: str = "local",
    *,
    threads: int | None = None,
    patience_ms: int | None = None,
    patience: float | None = None,
    server_patience_ms: int | None = None,
    server_patience: float | None = None,
    bootstrap: object | None = None,
    rank: int | None = None,
    num_workers: int | None = None,
    servers: int | None = None,
    staleness: int | None = None,
    on_death: str | None = None,
    deterministic: bool | None = None,
    window_bytes: int | None = None,
    transport: str | None = None,
    insecure_network: bool | None = None,
    check_values: bool | None = None,
    silence_ms: int | None = None,
    silence: float | None = None,
    failpoints: str | None = None,
    log: str | None = None,
) -> KVStore:
    """Make a store.

    Args:
        name: ``'local'`` (also ``'local_update_cpu'``, ``'local_allreduce_cpu'``), ``'device'`` (also
            ``'local_allreduce_device'``), ``'teststore'``, or the name of a class that KVStoreBase.register knows; in any
            case. All give the same bits; on host memory they are one implementation. ``'dist_sync'``, ``'dist_async'``
            (also ``'dist'``, ``'dist_sync_device'``, ``'dist_device_sync'``, ``'dist_async_device'``, and ``'p3'``, because
            priorities count in all of them): a store of several workers, with the updater on its servers.
            `docs/launching.md` says how its processes are started.
        threads: cores that a large operation may use; default ``TKV_THREADS``, else all that the process may use,
            divided by the workers of a job on this machine.
        patience_ms: longest wait for another thread or worker, in milliseconds; default ``TKV_PATIENCE_MS``, else ten
            minutes.
        patience: the same in seconds.
        server_patience_ms: longest wait for a server or the head, in milliseconds; default ``TKV_SERVER_PATIENCE_MS``, else
            30 seconds.
        server_patience: the same in seconds.
        bootstrap: how the processes of a distributed store find each other. Without it the environment says so: that of
            ``tkv launch``, of MXNet's launcher (``DMLC_*``) or of ``torchrun``. ``'self'`` makes a job of this worker alone,
            with servers in this process. An object with ``set(key, value)``, ``get(key)`` and ``wait([key], timeout)`` that
            the processes share, such as a ``torch.distributed.TCPStore``, makes a job of `num_workers` processes that host
            the servers too; each names its own `rank`. `tensorkv.testing.cluster` makes one among threads.
        rank: of this worker, where `bootstrap` is such an object.
        num_workers: of the job, where `bootstrap` is such an object.
        servers: number of servers where workers host them; default one in each worker, and one with ``'self'``.
        staleness: rounds that a worker may be ahead of the slowest one; default 0, at which a pull gives exactly the round
            of the last push.
        on_death: what a round does without a worker that has died: ``'fail'`` (default), ``'continue'`` without it, or
            ``'wait'`` for its next life. Who starts the job decides: under ``tkv launch`` its ``--on-death``; a worker that asks
            for something else is refused.
        deterministic: add in the order of ranks, so that every run gives the same bits; default False.
        window_bytes: of arrays of other frameworks that a push copies where it cannot leave at once; beyond it the push
            waits; default 64 MiB.
        transport: how the processes talk: ``'auto'`` (default) by shared memory and Unix sockets on one host and by TCP
            between hosts, ``'unix'`` the same without shared memory, ``'tcp'`` by TCP alone.
        insecure_network: TCP without a token of the job, where the network is trusted; default False.
        check_values: what leaves by TCP carries a check of its values (XXH3), beside that of its headers; what does not
            match is sent again. Default False.
        silence_ms: of a process, in milliseconds, after which the head declares it dead; the same in all processes of a
            job, so that the variable ``TKV_SILENCE_MS`` or `tkv launch --silence-ms` suits better; default 5000.
        silence: the same in seconds.
        failpoints: rehearsed failures, as `docs/failures.md` describes them; default none.
        log: the least important of what the logger ``tensorkv`` tells on standard error: ``'off'``, ``'error'``,
            ``'warning'``, ``'info'`` or ``'debug'``; default ``TKV_LOG``, else what the program has configured.

    Every option has an environment variable, which is used where the argument is None; `docs/options.md` lists them.

    Raises:
        InvalidArgumentError: an unknown name, with a list of those there are, never a silent default; an option out of
            its range, or one without effect on such a store.
        TypeError: an option that is none, with the nearest name.
        FailedPreconditionError: a distributed store and no sign of who else takes part.
        UnimplementedError: a store that this build does not have.

    Example:
        >>> mx.kv.create('device')
        <KVStore 'device' rank 0 of 1, 0 keys>
        >>> with mx.kv.create('dist_sync', bootstrap='self') as kv:
        ...     kv.init('w', mx.nd.ones((2,)))
        ...     kv.push('w', mx.nd.ones((2,)) * 3)
        ...     kv.pull('w').asnumpy()
        array([3., 3.], dtype=float32)
    """
    options = {key: value for key, value in locals().items() if key != "name" and value is not None}
    if not isinstance(name, str):
        raise InvalidArgumentError(f"create: type {type(name).__name__}, the name of a store type is needed")
    registered = _registry.get(name.lower())
    if registered is not None:
        if options:
            raise InvalidArgumentError(
                f"create {name!r}: a registered store takes no options, here {', '.join(options)}"
            )
        return registered()
    if _core.is_distributed(name) and bootstrap is None:
        role = _core.role()
        if role in ("server", "head"):
            return cast(KVStore, _ServerStore(name, role))  # its verbs raise, and say why
        if role is None:
            options.update(_bootstrap.from_torchrun(rank, num_workers))
    return KVStore(name, **options)


async def create_async(name: str = "local", **options: Any) -> KVStore:
    """Make a store without blocking the event loop; a task that is cancelled meanwhile does not join the job.

    Args:
        name, options: as `create`.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with await mx.kv.create_async('dist_sync', bootstrap='self') as kv:
        ...         await kv.init('w', mx.nd.ones((2,)), async_op=True)
        ...         return await kv.pull('w', async_op=True)
        >>> asyncio.run(main()).asnumpy()
        array([1., 1.], dtype=float32)
    """
    return await ticket.in_thread(lambda: create(name, **options), f"create {name!r}", KVStore.close)
