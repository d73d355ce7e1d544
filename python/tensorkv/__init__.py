"""TensorKV: one object that devices and machines share, where each pushes tensors in and pulls tensors out by key.

Example:
    >>> import tensorkv as mx
    >>> kv = mx.kv.create('local')
    >>> kv.init(3, mx.nd.ones((2, 3)))
    >>> kv.push(3, [mx.nd.ones((2, 3))] * 4)
    >>> kv.pull(3).asnumpy()
    array([[4., 4., 4.],
           [4., 4., 4.]], dtype=float32)
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from . import context, errors, kvstore, lr_scheduler, ndarray, optimizer, random, ticket
from . import kvstore as kv
from . import ndarray as nd
from . import optimizer as opt
from ._core import version as _version
from .context import Context, cpu, current_context, gpu, num_gpus
from .errors import KVError, MXNetError
from .kvstore import KVStore, create, create_async
from .ndarray import NDArray
from .optimizer import Program
from .ticket import Ticket

if TYPE_CHECKING:
    from . import base, initializer, kvstore_server, metric, numpy, profiler, test_utils, testing
    from . import initializer as init
    from . import numpy as np
    from .mxnet.install import install_as_mxnet

__version__ = _version()

__all__ = [
    "Context",
    "KVError",
    "KVStore",
    "MXNetError",
    "NDArray",
    "Program",
    "Ticket",
    "base",
    "context",
    "cpu",
    "create",
    "create_async",
    "current_context",
    "errors",
    "gpu",
    "init",
    "initializer",
    "install_as_mxnet",
    "kv",
    "kvstore",
    "kvstore_server",
    "lr_scheduler",
    "metric",
    "nd",
    "ndarray",
    "np",
    "num_gpus",
    "numpy",
    "opt",
    "optimizer",
    "profiler",
    "random",
    "test_utils",
    "testing",
    "ticket",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]


if not TYPE_CHECKING:  # checkers say themselves that a name is not here
    _loaded_on_demand = {
        **{name: name for name in ("base", "kvstore_server", "metric", "profiler", "test_utils", "testing")},
        **dict.fromkeys(("init", "initializer"), "initializer"),
        **dict.fromkeys(("np", "numpy"), "numpy"),
        "install_as_mxnet": "mxnet.install",
    }

    def __getattr__(name: str) -> Any:
        """Load what few scripts use, and say what to use in the place of what MXNet has."""
        if name in _loaded_on_demand:
            module = importlib.import_module(f".{_loaded_on_demand[name]}", __name__)
            globals()[name] = found = getattr(module, name, module)
            return found
        if name in ("torch", "jax", "ray"):
            raise AttributeError(f"mx.{name} is there from `import tensorkv.{name}` on", name=name)
        from .mxnet import elsewhere

        elsewhere.missing("mx", name, sys.modules[__name__])
