"""Measures of a model: ``mx.metric``, with MXNet's names and results. NumPy computes them in host memory."""

from .mxnet import metric as _own
from .mxnet.metric import *  # noqa: F403  # every name

__all__: list[str] = []
__all__ += _own.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
