"""Making stores."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast, overload

from .. import _core, ticket
from .._hints import check_names
from ..errors import FailedPreconditionError, InvalidArgumentError
from . import bootstrap as _bootstrap
from .base import KVStoreBase, registered

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from typing_extensions import Unpack

    from .._types import Bootstrap, LogLevel, OnDeath, StoreOptions, Tls, Transport
    from .base import TestStore
    from .kvstore import KVStore

F = TypeVar("F", bound="Callable[..., Any]")


def _with_hints(function: F) -> F:
    """Decorate `create`: an option that it does not know is a TypeError that proposes the nearest name."""

    known = list(function.__kwdefaults__ or ())

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        check_names("create", "option", (name for name in options if name != "name"), known)
        return function(*args, **options)

    return cast(F, checked)


class _ServerStore(KVStoreBase):
    """The store that ``create('dist_sync')`` returns in a server or scheduler; `KVStoreServer` has the values."""

    def __init__(self, type: str, role: str) -> None:
        """Keep the name of the type and the role of this process."""
        self._type, self._role = type, role

    @property
    def type(self) -> str:
        """The name of the type."""
        return self._type

    @property
    def rank(self) -> int:
        """0."""
        return 0

    @property
    def num_workers(self) -> int:
        """0: a server is none."""
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse every other verb."""
        raise FailedPreconditionError(f"{name}: {self._why()}")

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse the verbs of the base class."""
        raise FailedPreconditionError(self._why())

    def _why(self) -> str:
        """Return why it has no verbs, and how its process serves."""
        return (
            f"this process is a {self._role} of its job; only workers have stores. `python -m tensorkv.mxnet SCRIPT` serves"
            f" here instead of running the script, tensorkv.kvstore_server.KVStoreServer(kv).run() does inside of one"
        )

    broadcast = pushpull = set_optimizer = save_optimizer_states = load_optimizer_states = _refuse


@overload
def create(name: Literal["teststore"]) -> TestStore: ...  # type: ignore[overload-overlap]
@overload
def create(name: str = "local", **options: Unpack[StoreOptions]) -> KVStore: ...
@_with_hints
def create(
    name: str = "local",
    *,
    threads: int | None = None,
    patience_ms: int | None = None,
    patience: float | None = None,
    server_patience_ms: int | None = None,
    server_patience: float | None = None,
    url: str | None = None,
    token_file: str | PathLike[str] | None = None,
    bootstrap: Bootstrap | None = None,
    rank: int | None = None,
    num_workers: int | None = None,
    servers: int | None = None,
    staleness: int | None = None,
    on_death: OnDeath | None = None,
    deterministic: bool | None = None,
    window_bytes: int | None = None,
    snapshots: str | PathLike[str] | None = None,
    snapshot_every: str | int | None = None,
    transport: Transport | None = None,
    insecure_network: bool | None = None,
    tls: Tls | None = None,
    check_values: bool | None = None,
    silence_ms: int | None = None,
    silence: float | None = None,
    failpoints: str | None = None,
    rows_dir: str | PathLike[str] | None = None,
    log: LogLevel | None = None,
) -> KVStore | TestStore:
    """Make a store.

    Args:
        name: ``'local'`` (also ``'local_update_cpu'``, ``'local_allreduce_cpu'``), ``'device'`` (also
            ``'local_allreduce_device'``), ``'nccl'`` (the same for arrays of GPUs alone), ``'teststore'``, or the name
            of a class that KVStoreBase.register knows; in any case. All give the same bits; on host memory they are one
            implementation, and ``'device'`` sums and updates arrays of GPUs there (`docs/gpu.md`). ``'dist_sync'``,
            ``'dist_async'`` (also ``'dist'``, ``'dist_sync_device'``, ``'dist_device_sync'``, ``'dist_async_device'``,
            ``'dist_device_async'``, and ``'p3'``, ``'dist_p3'``, ``'dist_sync_p3'``, ``'dist_async_p3'`` and
            ``'p3store_dist'``, because priorities count in all of them): a store of several workers, with the updater
            on its servers. `docs/launching.md` says how its processes are started.
        threads: cores that a large operation may use; default ``TKV_THREADS``, else all that the process may use,
            divided by the workers of a job on this machine.
        patience_ms: longest wait for another thread or worker, in milliseconds; default ``TKV_PATIENCE_MS``, else ten
            minutes.
        patience: the same in seconds.
        server_patience_ms: longest wait for a server or the head, in milliseconds; default ``TKV_SERVER_PATIENCE_MS``, else
            30 seconds.
        server_patience: the same in seconds.
        url: the job that this process is a worker of, ``'tkv://HOST:PORT/JOB'`` as `KVStore.url` says it. Without it the
            environment says which. To look at a job from outside is `connect`.
        token_file: the secret of that job, a file that only this user can read; default ``TKV_TOKEN_FILE``.
        bootstrap: how the processes of a distributed store find each other. Without it the environment says so: that of
            ``tkv launch``, ``mpirun``, ``torchrun`` or MXNet's launcher (``DMLC_*``), or the job that `tensorkv.ray.start` has
            made. ``'self'`` makes a job of this worker alone,
            with servers in this process. An object with ``set(key, value)``, ``get(key)`` and ``wait([key], timeout)`` that
            the processes share, such as a ``torch.distributed.TCPStore``, makes a job of `num_workers` processes that host
            the servers too; each names its own `rank`. `tensorkv.testing.cluster` makes one among threads.
        rank: of this worker, if `bootstrap` is such an object, with `url`, or under Ray; default any that is free.
        num_workers: of the job, if `bootstrap` is such an object.
        servers: number of servers if workers host them; default one in each worker, and one with ``'self'``.
        staleness: rounds that a worker may be ahead of the slowest one; default 0, at which a pull gives exactly the round
            of the last push.
        on_death: what a round does without a worker that has died: ``'fail'`` (default), ``'continue'`` without it, or
            ``'wait'`` for its next incarnation. The launcher decides for the whole job (``tkv launch --on-death``); a
            worker that asks for something else is refused.
        deterministic: add in the order of ranks, so that every run gives the same bits; default False.
        window_bytes: most bytes of other frameworks' arrays that pushes copy because they cannot leave at once. Beyond
            it a push waits; default 64 MiB.
        snapshots: a folder that the store saves snapshots to by itself; with `snapshot_every`. Under ``tkv launch --restore``
            that folder is the default.
        snapshot_every: ``100`` or ``'100'``: every 100 rounds; ``'30s'``: every 30 seconds, between two rounds. The lowest rank
            that lives saves, while all workers continue.
        transport: how the processes talk: ``'auto'`` (default) by shared memory and Unix sockets on one host and by TCP
            between hosts, ``'unix'`` the same without shared memory, ``'tcp'`` by TCP alone.
        insecure_network: TCP without a token of the job, where the network is trusted; default False.
        tls: where TCP is encrypted, by TLS 1.3 with keys that are derived from the token of the job: ``'auto'`` (default)
            between hosts, ``'on'`` on one host, too, ``'off'`` nowhere. The same in all processes of a job; Unix sockets and
            shared memory never leave the host, and are not encrypted.
        check_values: messages over TCP carry a checksum of their values (XXH3), beside that of their headers. A message
            whose checksum does not match is sent again. With TLS each record has a check of its own. Default False.
        silence_ms: milliseconds without a message from a process after which the head declares it dead; default 5000.
            The head's value counts in all processes, so prefer ``TKV_SILENCE_MS`` or `tkv launch --silence-ms`.
        silence: the same in seconds.
        failpoints: rehearsed failures, as `docs/failures.md` describes them; default none.
        rows_dir: a folder on a local disk for rows of tables that memory has no room for: those of `init_table` with `memory`.
            The files there end with the process. If a job's servers are processes of their own, set it for them:
            `tkv launch --rows-dir`.
        log: the lowest level that the logger ``tensorkv`` writes to standard error: ``'off'``, ``'error'``,
            ``'warning'``, ``'info'`` or ``'debug'``; default ``TKV_LOG``, else as the program has configured.

    Every option has an environment variable, which is used if the argument is None; `docs/options.md` lists them.

    Raises:
        InvalidArgumentError: an unknown name, with a list of those there are, never a silent default; an option out of
            its range, or one without effect on such a store.
        TypeError: an option that is none, with the nearest name.
        FailedPreconditionError: a distributed store without a way to find the other processes.
        UnimplementedError: a store that this build does not have.

    Example:
        >>> tkv.kv.create('device')
        <KVStore 'device' rank 0 of 1, 0 keys>
        >>> with tkv.kv.create('dist_sync', bootstrap='self') as kv:
        ...     kv.init('w', tkv.nd.ones((2,)))
        ...     kv.push('w', tkv.nd.ones((2,)) * 3)
        ...     kv.pull('w').asnumpy()
        array([3., 3.], dtype=float32)
    """
    options = {key: value for key, value in locals().items() if key != "name" and value is not None}
    from .kvstore import KVStore

    if not isinstance(name, str):
        raise InvalidArgumentError(f"create: type {type(name).__name__}, the name of a store type is needed")
    made = registered(name)
    if made is not None:
        if options:
            raise InvalidArgumentError(
                f"create {name!r}: a registered store takes no options, here {', '.join(options)}"
            )
        return cast("KVStore", made())
    if token_file is not None:
        options["token_file"] = os.fspath(token_file)
    if _core.is_distributed(name) and bootstrap is None and url is None:
        role = _core.role()
        if role in ("server", "head"):
            return cast("KVStore", _ServerStore(name, role))  # its verbs raise, and say why
        if role == "observer":
            raise FailedPreconditionError(
                f"create {name!r}: this process is an observer of its job; tensorkv.kv.connect() opens a store to look and"
                " to read"
            )
        if role == "worker" and rows_dir is not None:
            raise InvalidArgumentError(
                f"create {name!r}: rows_dir={rows_dir!r} is for the servers of the job: tkv launch --rows-dir or TKV_ROWS_DIR"
            )
        if role is None:
            options = _bootstrap.from_ray(options) or {**options, **_bootstrap.from_torchrun(name, options)}
    store = KVStore(name, **options)
    store._saves_by_itself = bool(options.get("snapshot_every") or os.environ.get("TKV_SNAPSHOT_EVERY"))
    return store


def connect(
    url: str | None = None,
    *,
    token_file: str | PathLike[str] | None = None,
    store: int = 0,
    patience: float | None = None,
    server_patience: float | None = None,
    transport: Transport | None = None,
    insecure_network: bool | None = None,
    tls: Tls | None = None,
    check_values: bool | None = None,
    silence: float | None = None,
    threads: int | None = None,
    log: LogLevel | None = None,
) -> KVStore:
    """Open a store of a running job from outside, to look and to read.

    An observer has no rank, and no round waits for it. Observers may connect and close at any time.

    `KVStore.keys`, `KVStore.describe` and ``in`` find the current keys. `KVStore.pull` and `KVStore.pull_rows` give the
    newest complete round, and `KVStore.round` its number. `KVStore.status` reports the state of the job. For a key that
    was deleted and created again one call is an error; the next call finds the key. The first pull of a key waits for
    its shape and dtype, also with ``async_op=True``. Every call that would change the job raises FailedPreconditionError.

    Args:
        url: ``'tkv://HOST:PORT/JOB'``, as `KVStore.url` says it, or the beginning of a name that ``tkv jobs`` lists.
            Default: the job of ``TKV_HEAD``, else the only one whose head listens at a Unix socket of this machine, as
            that of ``tkv launch`` does.
        token_file: the secret of the job, a file that only this user can read; default ``TKV_TOKEN_FILE``.
        store: which store of the job, in the order in which its workers have made theirs.
        patience: seconds that a pull waits for servers to have one round of all chunks, at most; as in `create`.
        server_patience, transport, insecure_network, tls, check_values, silence, threads, log: as in `create`.

    Raises:
        InvalidArgumentError: no such URL; several jobs run on this machine, and none is named, or several by this name.
        KeyNotFoundError: no job runs on this machine, and none is named.
        DeadlineExceededError: the head or a server is not there.
        UnauthenticatedError: another token; no job of that name there.

    Example:
        >>> from tensorkv.testing import cluster
        >>> with cluster(workers=1) as job:
        ...     kv = job.store(0)
        ...     kv.init('w', tkv.nd.ones((2,)))
        ...     with job.observer() as eye:  # in another process: tkv.kv.connect(kv.url)
        ...         eye.keys(), eye.pull('w').asnumpy()
        (['w'], array([1., 1.], dtype=float32))
    """
    options = {
        key: value for key, value in locals().items() if key not in ("url", "store", "token_file") and value is not None
    }
    if url is not None and not isinstance(url, str):
        raise InvalidArgumentError(f"connect: url {url!r}, a str such as 'tkv://HOST:PORT/JOB' is needed")
    if token_file is not None:
        options["token_file"] = os.fspath(token_file)
    return observer(url or "", options, store)


def observer(url: str, options: dict[str, Any], store: int) -> KVStore:
    """Return the store that `connect` does, with options that may have the secret itself, as ``token``."""
    from .kvstore import KVStore

    if isinstance(store, bool) or not isinstance(store, int) or not 0 <= store < 2**32:
        raise InvalidArgumentError(f"connect: store={store!r}, the number of a store is needed")
    if options.get("log") is not None:
        from .log import set_level

        set_level(options["log"])
    return KVStore._observer(url, options, store)


async def create_async(name: str = "local", **options: Unpack[StoreOptions]) -> KVStore:
    """Make a store without blocking the event loop; a task that is cancelled meanwhile does not join the job.

    Args:
        name, options: as `create`.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     async with await tkv.kv.create_async('dist_sync', bootstrap='self') as kv:
        ...         await kv.init('w', tkv.nd.ones((2,)), async_op=True)
        ...         return await kv.pull('w', async_op=True)
        >>> asyncio.run(main()).asnumpy()
        array([1., 1.], dtype=float32)
    """
    return await ticket.in_thread(lambda: create(name, **options), f"create {name!r}", lambda kv: kv.close())
