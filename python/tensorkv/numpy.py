"""Arrays in NumPy's manner: ``mx.np``. The same arrays as `mx.nd`, printed as NumPy prints and with NumPy's indexing."""

import sys
from typing import TYPE_CHECKING, NoReturn

from .mxnet import numpy as _own
from .mxnet import numpy_random as random
from .mxnet.numpy import *  # noqa: F403  # every name

__all__: list[str] = []
__all__ += _own.__all__
__all__ += ["random"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.np", name, sys.modules[__name__])
