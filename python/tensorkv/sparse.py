"""The name that `tensorkv.ndarray.sparse` had before, for scripts and pickles."""

from ._array.row_sparse import _rebuild as _rebuild
from .ndarray import sparse as _own
from .ndarray.sparse import *  # noqa: F403  # every name

__all__: list[str] = []
__all__ += _own.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
