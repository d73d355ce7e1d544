"""Stores: ``mx.kv``."""

import functools

from . import _bootstrap, _core, _life
from .errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

__all__ = ["KVStore", "KVStoreBase", "create"]

_registry: dict[str, type] = {}


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
            raise InvalidArgumentError(f"set_optimizer: type {type(optimizer).__name__}, an optimizer is needed")
        native = optimizer._native_for_store()
        updater = opt.get_updater(optimizer)
        if native is not None:
            self._set_optimizer(native)
        else:
            self._set_function(updater)
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

    def barrier(self):
        """Wait until every worker has come here; where there is one, it returns at once."""
        self._barrier()

    def close(self):
        """Leave the job and free all values. Idempotent; every later call raises FailedPreconditionError.

        A store of several workers first waits until its pushes are accepted. A failure of an earlier call that nobody
        has seen is raised here, when everything is closed.
        """
        try:
            self._close()
        finally:
            self._updater = None
            _life.closed(self)

    def keys(self):
        """Return the keys in the order of their init."""
        return self._keys()

    def __iter__(self):
        """Iterate over the keys in the order of their init."""
        return iter(self._keys())

    def __enter__(self):
        """Return the store."""
        return self

    def __exit__(self, *exception):
        """Close the store."""
        self.close()

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
    name="local",
    *,
    threads=None,
    patience_ms=None,
    patience=None,
    server_patience_ms=None,
    server_patience=None,
    bootstrap=None,
    rank=None,
    num_workers=None,
    servers=None,
    staleness=None,
    on_death=None,
    deterministic=None,
    window_bytes=None,
    transport=None,
    insecure_network=None,
    check_values=None,
    silence_ms=None,
    silence=None,
    failpoints=None,
    log=None,
):
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
            return _ServerStore(name, role)
        if role is None:
            options.update(_bootstrap.from_torchrun(rank, num_workers))
    return KVStore(name, **options)
