"""Names that scripts import from ``mxnet.base``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from .errors import KVError, MXNetError

__all__ = ["KVError", "MXNetError", "py_str"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.base", name, sys.modules[__name__])


def py_str(x: bytes | str) -> str:
    """Return `x`, bytes or str, as a str.

    Example:
        >>> mx.base.py_str(b'w3')
        'w3'
    """
    return x.decode("utf-8") if isinstance(x, bytes) else x
