"""Helpers that test scripts import from ``mxnet.test_utils``."""

from .mxnet import test_utils as _own
from .mxnet.test_utils import *  # noqa: F403  # every name

__all__: list[str] = []
__all__ += _own.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
