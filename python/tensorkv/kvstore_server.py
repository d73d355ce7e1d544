"""Servers of a distributed job, by the names that MXNet's scripts use.

A process whose environment says that it is a server or the scheduler of a job (``TKV_ROLE``, ``DMLC_ROLE``), or that an MPI
launcher has started, serves here until the last worker has left. ``python -m tensorkv.server`` and the command ``tkv server`` do the same without a script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from .errors import FailedPreconditionError

if TYPE_CHECKING:
    from ._store.base import KVStoreBase
    from ._store.kvstore import KVStore

__all__ = ["KVStoreServer"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class KVStoreServer:
    """Serves the keys of a job.

    Example:
        >>> tkv.kvstore_server.KVStoreServer(tkv.kv.create('local')).run()
        Traceback (most recent call last):
        tensorkv.errors.FailedPreconditionError: serve: this process is no server of a job
    """

    def __init__(self, kvstore: KVStore | KVStoreBase | None) -> None:
        """Serve for the job that `kvstore` belongs to: ``tkv.kv.create('dist_sync')`` in a server or scheduler.

        Under an MPI launcher, if a store would make a worker of this process, `kvstore` is None.
        """
        self.kvstore = kvstore

    def run(self) -> None:
        """Serve until the last worker has left.

        Raises:
            FailedPreconditionError: the environment does not make this process a server or the scheduler.
            UnavailableError: the head and all workers have been gone for the patience.
        """
        if not self._may_serve():
            raise FailedPreconditionError("serve: this process is no server of a job")
        _core.serve()

    def _may_serve(self) -> bool:
        """Return whether this process is a server or the scheduler, or may become a server of its MPI group."""
        role = _core.role()
        return role in ("server", "head") or (role is None and self.kvstore is None and _core.is_in_group())


def _init_kvstore_server_module() -> None:
    """Serve and end the process where it is a server or the scheduler of a job; else return at once."""
    if _core.role() in ("server", "head"):
        _core.serve()
        raise SystemExit(0)
