"""Servers of a distributed job, by the names that MXNet's scripts use.

A process whose environment says that it is a server or the scheduler of a job (``TKV_ROLE``, ``DMLC_ROLE``) serves here
until the last worker has left. ``python -m tensorkv.server`` and the command ``tkv server`` do the same without a script.
"""

from . import _core
from .errors import FailedPreconditionError
from .kvstore import KVStoreBase

__all__ = ["KVStoreServer"]


class ServerStore(KVStoreBase):
    """What ``create('dist_sync')`` gives in a server or scheduler: it holds no values, `KVStoreServer` serves them."""

    def __init__(self, type, role):
        """Keep the name of the type."""
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
        """Refuse every verb."""
        raise FailedPreconditionError(f"{name}: this process is a {self._role} of its job; only workers have stores")


class KVStoreServer:
    """Serves the keys of a job.

    Example:
        >>> mx.kvstore_server.KVStoreServer(mx.kv.create('local')).run()
        Traceback (most recent call last):
        tensorkv.errors.FailedPreconditionError: serve: this process is no server of a job
    """

    def __init__(self, kvstore):
        """Serve for the job that `kvstore` belongs to: ``mx.kv.create('dist_sync')`` in a server or scheduler."""
        self.kvstore = kvstore

    def run(self):
        """Serve until the last worker has left.

        Raises:
            FailedPreconditionError: the environment does not make this process a server or the scheduler.
            UnavailableError: the head and all workers have been gone for the patience.
        """
        if _core.role() not in ("server", "head"):
            raise FailedPreconditionError("serve: this process is no server of a job")
        _core.serve()


def _init_kvstore_server_module():
    """Serve and end the process where it is a server or the scheduler of a job; else return at once."""
    if _core.role() in ("server", "head"):
        _core.serve()
        raise SystemExit(0)
