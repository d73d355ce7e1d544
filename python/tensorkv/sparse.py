"""The name that `tensorkv.ndarray.sparse` had before, for scripts and pickles."""

from .ndarray import sparse as _own
from .ndarray.sparse import *  # noqa: F403  # every name
from .ndarray.sparse import _rebuild as _rebuild

__all__: list[str] = []
__all__ += _own.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
