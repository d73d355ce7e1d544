"""TensorKV: one object that devices and machines share, where each pushes tensors in and pulls tensors out by key.

Example:
    >>> import tensorkv as tkv
    >>> kv = tkv.kv.create('local')
    >>> kv.init(3, tkv.nd.ones((2, 3)))
    >>> kv.push(3, [tkv.nd.ones((2, 3))] * 4)
    >>> kv.pull(3).asnumpy()
    array([[4., 4., 4.],
           [4., 4., 4.]], dtype=float32)
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from . import context, errors, kvstore, ndarray, random, ticket
from . import kvstore as kv
from . import ndarray as nd
from ._core import version as _version
from .context import Context, cpu, current_context, gpu, num_gpus
from .errors import KVError, MXNetError
from .kvstore import KVStore, create, create_async
from .ndarray import NDArray
from .ticket import Ticket

if TYPE_CHECKING:
    from . import (
        base,
        initializer,
        kvstore_server,
        lr_scheduler,
        metric,
        npx,
        numpy,
        optimizer,
        profiler,
        test_utils,
        testing,
    )
    from . import initializer as init
    from . import numpy as np
    from . import optimizer as opt
    from .mxnet.install import install_as_mxnet
    from .optimizer import Program

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
    "npx",
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
    _on_demand = {
        **{name: name for name in ("base", "initializer", "kvstore_server", "lr_scheduler", "metric", "numpy")},
        **{name: name for name in ("npx", "optimizer", "profiler", "sparse", "test_utils", "testing")},
        **{"init": "initializer", "np": "numpy", "opt": "optimizer"},
        **{"Program": "optimizer", "install_as_mxnet": "mxnet.install"},
    }

    def __getattr__(name: str) -> Any:
        """Load what few scripts use, and say what to use in the place of what MXNet has."""
        if name in _on_demand:
            module = importlib.import_module(f".{_on_demand[name]}", __name__)
            globals()[name] = found = getattr(module, name) if name in ("Program", "install_as_mxnet") else module
            return found
        if name in ("torch", "jax", "ray"):
            raise AttributeError(f"mx.{name} is there from `import tensorkv.{name}` on", name=name)
        from .mxnet import elsewhere

        elsewhere.missing("mx", name, sys.modules[__name__])
