"""When pushes, pulls and updates begin and how long they take, on workers and servers: ``mx.profiler``.

`KVStore.trace` is the short way. The functions here have MXNet's names, and are about the store that was made last. A
trace contains this worker and all servers; ``profile_process`` only chooses the file that `dump` writes.
"""

import sys
from typing import TYPE_CHECKING, NoReturn

from .mxnet import profiler as _own
from .mxnet.profiler import *  # noqa: F403  # every name

__all__: list[str] = []
__all__ += _own.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of a class of MXNet."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.profiler", name, sys.modules[__name__])
