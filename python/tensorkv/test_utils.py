"""Helpers that test scripts import from ``mxnet.test_utils``."""

import sys
from typing import TYPE_CHECKING, NoReturn

from .mxnet import test_utils as _own
from .mxnet.test_utils import *  # noqa: F403  # every name

__all__: list[str] = []
__all__ += _own.__all__


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.test_utils", name, sys.modules[__name__])
