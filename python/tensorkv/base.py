"""Names that scripts import from ``mxnet.base``."""

from .errors import KVError, MXNetError

__all__ = ["KVError", "MXNetError", "py_str"]


def py_str(x):
    """Return `x`, bytes or str, as a str.

    Example:
        >>> mx.base.py_str(b'w3')
        'w3'
    """
    return x.decode("utf-8") if isinstance(x, bytes) else x
