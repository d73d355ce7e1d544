"""Arrays in NumPy's manner: ``mx.np``. The same arrays as `mx.nd`, printed as NumPy prints and with NumPy's indexing."""

import sys
from typing import TYPE_CHECKING, NoReturn

import numpy as _np

from .mxnet import numpy as _own
from .mxnet import numpy_random as random
from .mxnet.numpy import *  # noqa: F403  # every name

# Dtypes and numbers that scripts name.
bool_ = _np.bool_
e: float = _np.e
euler_gamma: float = _np.euler_gamma
float16 = _np.float16
float32 = _np.float32
float64 = _np.float64
inf: float = _np.inf
int8 = _np.int8
int16 = _np.int16
int32 = _np.int32
int64 = _np.int64
nan: float = _np.nan
newaxis: None = _np.newaxis
pi: float = _np.pi
uint8 = _np.uint8

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
