"""Arrays: ``tkv.nd``.

An NDArray is a handle on memory that is shared with whoever holds another handle. Rows and slices of the first axis are
views. Arithmetic is elementwise and runs on the same evaluator as updates; ``+=`` and its kin change the memory itself.
"""

import sys
from typing import TYPE_CHECKING, NoReturn

from .. import random
from .._array import nd as _own
from .._array.nd import *  # noqa: F403  # every name
from .._array.ndarray import _rebuild as _rebuild
from . import sparse
from .sparse import RowSparseNDArray, cast_storage

__all__: list[str] = []
__all__ += _own.__all__
__all__ += ["RowSparseNDArray", "cast_storage", "random", "sparse"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from ..mxnet import elsewhere

        elsewhere.missing("mx.nd", name, sys.modules[__name__])
