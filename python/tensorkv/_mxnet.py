"""Lets scripts written for MXNet import this package by that name."""

import sys

from .errors import FailedPreconditionError

_MODULES = {
    "base": "base",
    "context": "context",
    "kv": "kvstore",
    "kvstore": "kvstore",
    "kvstore.base": "kvstore",
    "kvstore.kvstore": "kvstore",
    "kvstore_server": "kvstore_server",
    "kvstore.kvstore_server": "kvstore_server",
    "nd": "ndarray",
    "ndarray": "ndarray",
    "ndarray.ndarray": "ndarray",
    "np": "numpy",
    "numpy": "numpy",
    "opt": "optimizer",
    "optimizer": "optimizer",
    "optimizer.optimizer": "optimizer",
    "random": "random",
    "test_utils": "test_utils",
}


def install_as_mxnet() -> None:
    """Make ``import mxnet``, ``from mxnet import cpu, kv, np`` and ``import mxnet.ndarray`` give this package.

    Idempotent. Scripts need no change; ``python -m tensorkv.mxnet SCRIPT`` calls it before it runs SCRIPT.

    Raises:
        FailedPreconditionError: the real MXNet is loaded already.

    Example:
        >>> mx.install_as_mxnet()
        >>> import mxnet
        >>> mxnet.nd.ones((2,)).shape
        (2,)
    """
    import tensorkv

    loaded = sys.modules.get("mxnet")
    if loaded is not None and loaded is not tensorkv:
        raise FailedPreconditionError(
            f"install_as_mxnet: another mxnet is loaded already, from {getattr(loaded, '__file__', 'somewhere')}"
        )
    sys.modules["mxnet"] = tensorkv
    for name, ours in _MODULES.items():
        sys.modules[f"mxnet.{name}"] = getattr(tensorkv, ours)
