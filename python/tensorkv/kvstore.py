"""Stores: ``tkv.kv``."""

from typing import TYPE_CHECKING, Any

from ._store.base import KVStoreBase, TestStore
from ._store.create import connect, create, create_async
from ._store.kvstore import KVStore

if TYPE_CHECKING:
    from . import kvstore_server
    from .kvstore_server import KVStoreServer

__all__ = [
    "KVStore",
    "KVStoreBase",
    "KVStoreServer",
    "TestStore",
    "connect",
    "create",
    "create_async",
    "kvstore_server",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load what scripts of MXNet look for here."""
        if name not in ("KVStoreServer", "kvstore_server"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        from . import kvstore_server

        return kvstore_server if name == "kvstore_server" else kvstore_server.KVStoreServer
