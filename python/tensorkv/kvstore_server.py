"""Servers of a distributed job, by the names that MXNet's scripts use.

A process whose environment says that it is a server or the scheduler of a job (``TKV_ROLE``, ``DMLC_ROLE``) serves here
until the last worker has left. ``python -m tensorkv.server`` and the command ``tkv server`` do the same without a script.
"""

from . import _core
from .errors import FailedPreconditionError

__all__ = ["KVStoreServer"]


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
