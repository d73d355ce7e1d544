"""For tests of training code: a job of several workers among the threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _core
from ._store.kvstore import KVStore
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._types import ClusterOptions

__all__ = ["Cluster", "cluster"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


T = TypeVar("T")


class Cluster:
    """Servers, head and workers of a job in this process; make one with `cluster`. A context manager.

    Example:
        >>> with tkv.testing.cluster(workers=2, servers=2) as job:
        ...     def train(kv):
        ...         kv.init('w', tkv.nd.zeros((2,)))
        ...         kv.push('w', tkv.nd.ones((2,)) * (kv.rank + 1))
        ...         return kv.pull('w').asnumpy().tolist()
        ...     job.run(train)
        [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(self, workers: int, servers: int, mode: str, options: dict[str, Any]) -> None:
        """Start servers and head; see `cluster`."""
        self._core = _core.Cluster(workers, servers, mode, options)
        self.workers = workers
        self.servers = servers
        self._stores: dict[int, KVStore] = {}
        self._lock = threading.Lock()

    def store(self, rank: int) -> KVStore:
        """Return the store of a worker, which joins at its first call. Each worker uses its own, on its own thread."""
        if not isinstance(rank, int) or not 0 <= rank < self.workers:
            raise InvalidArgumentError(f"store: rank {rank!r}, the job has {self.workers} workers")
        with self._lock:
            if rank not in self._stores:
                self._stores[rank] = KVStore._of_cluster(self._core, rank)
            return self._stores[rank]

    def restart(self, rank: int) -> KVStore:
        """Give a worker a later life, as a launcher does after a crash; return its store."""
        with self._lock:
            self._stores[rank] = KVStore._of_cluster(self._core, rank)
            return self._stores[rank]

    def observer(self) -> KVStore:
        """Return a store that looks at the job from outside, as `tensorkv.kv.connect` gives one."""
        return KVStore._observer(self._core)

    def kill_server(self, index: int) -> None:
        """End a server, as if its process had died."""
        self._core.kill_server(index)

    def kill_head(self) -> None:
        """End the head: data goes on with a warning; nobody joins, is declared dead or changes the optimizer any more."""
        self._core.kill_head()

    def __iter__(self) -> Iterator[KVStore]:
        """Iterate over the stores of all workers."""
        return iter([self.store(rank) for rank in range(self.workers)])

    def run(self, function: Callable[[KVStore], T]) -> list[T]:
        """Call ``function(kv)`` for every worker on a thread of its own; return the results in the order of ranks.

        Each store is closed when its function has returned. The first exception of the lowest rank is raised.
        """
        results: list[T | None] = [None] * self.workers
        errors: list[BaseException | None] = [None] * self.workers

        def work(rank: int) -> None:
            try:
                with self.store(rank) as kv:
                    results[rank] = function(kv)
            except BaseException as error:
                errors[rank] = error

        threads = [threading.Thread(target=work, args=(rank,), name=f"worker-{rank}") for rank in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            if error is not None:
                raise error
        return cast("list[T]", results)

    def close(self) -> None:
        """Close all stores, then end the servers; raise the first failure of a store. Idempotent."""
        with self._lock:
            stores, self._stores = self._stores, {}
        errors: list[Exception] = []

        def close(store: KVStore) -> None:
            try:
                store.close()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=close, args=(store,)) for store in stores.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all stores; their failures do not hide the one that ends the block."""
        try:
            self.close()
        except Exception:
            if error is None:
                raise


def cluster(workers: int = 2, servers: int = 1, mode: str = "dist_sync", **options: Unpack[ClusterOptions]) -> Cluster:
    """Start a job among the threads of this process: real servers, a real head, and a store for each worker.

    Args:
        workers: number of workers; each uses ``store(rank)`` on a thread of its own.
        servers: number of servers, each a thread.
        mode: the type of the stores: ``'dist_sync'``, ``'dist_async'``.
        options: `patience`, `server_patience`, `staleness`, `on_death`, `deterministic` as in `create`.

    Example:
        >>> with tkv.testing.cluster(workers=3) as job:
        ...     job.run(lambda kv: (kv.rank, kv.num_workers))
        [(0, 3), (1, 3), (2, 3)]
    """
    return Cluster(workers, servers, mode, dict(options))
