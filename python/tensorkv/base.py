"""Names that scripts import from ``mxnet.base``."""

from __future__ import annotations

from .errors import KVError, MXNetError

__all__ = ["KVError", "MXNetError", "py_str"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def py_str(x: bytes | str) -> str:
    """Return `x`, bytes or str, as a str.

    Example:
        >>> mx.base.py_str(b'w3')
        'w3'
    """
    return x.decode("utf-8") if isinstance(x, bytes) else x
