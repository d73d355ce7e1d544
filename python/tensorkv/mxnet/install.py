"""Lets scripts written for MXNet import this package by that name."""

from __future__ import annotations

import importlib.util
import operator
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import FailedPreconditionError
from .elsewhere import instead

if TYPE_CHECKING:
    from collections.abc import Sequence

_MODULES = {
    "base": "base",
    "context": "context",
    "init": "initializer",
    "initializer": "initializer",
    "kv": "kvstore",
    "kvstore": "kvstore",
    "kvstore.base": "kvstore",
    "kvstore.kvstore": "kvstore",
    "kvstore_server": "kvstore_server",
    "kvstore.kvstore_server": "kvstore_server",
    "lr_scheduler": "lr_scheduler",
    "metric": "metric",
    "nd": "ndarray",
    "ndarray": "ndarray",
    "ndarray.ndarray": "ndarray",
    "ndarray.random": "ndarray.random",
    "ndarray.sparse": "ndarray.sparse",
    "nd.random": "ndarray.random",
    "nd.sparse": "ndarray.sparse",
    "np": "numpy",
    "np.random": "numpy.random",
    "numpy": "numpy",
    "numpy.random": "numpy.random",
    "npx": "npx",
    "numpy_extension": "npx",
    "opt": "optimizer",
    "optimizer": "optimizer",
    "optimizer.optimizer": "optimizer",
    "profiler": "profiler",
    "random": "random",
    "test_utils": "test_utils",
}


class _Loader:
    """Gives a module of this package for a name below mxnet."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)
        self._spec = self._module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module, which is loaded."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is, with the spec of its own name."""
        module.__spec__ = self._spec


def _hint_of(module: str, name: str) -> str | None:
    """Return the text that says what to use in the place of a name that a module of this package has not."""
    if "." not in module:  # the package itself would import what it loads on demand
        return None
    try:
        getattr(sys.modules.get(module), name)
    except AttributeError as error:
        return str(error) if str(error).endswith("(docs/mxnet.md)") else None
    return None


class _Finder:
    """Finds ``mxnet.X`` where this package has an X, which Python would otherwise load a second time by that name."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where the module is; None if Python has to look elsewhere, or this package has no such module."""
        import tensorkv

        top, _, below = name.partition(".")
        why = instead("mx", below.partition(".")[0])
        if top == "tensorkv":
            why = why or _hint_of(*name.rpartition(".")[::2])
            if why:  # from mxnet import gluon, from mxnet.ndarray import Concat
                raise ModuleNotFoundError(why, name=f"mxnet.{below}")
        if top != "mxnet" or not below or sys.modules.get("mxnet") is not tensorkv:
            return None
        own = f"tensorkv.{below}"
        if own not in sys.modules and importlib.util.find_spec(own) is None:
            if why:
                raise ModuleNotFoundError(why, name=name)
            return None
        return ModuleSpec(name, _Loader(own))  # type: ignore[arg-type]  # it has what a loader needs


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
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    for name, ours in _MODULES.items():
        module = sys.modules[f"mxnet.{name}"] = operator.attrgetter(ours)(tensorkv)
        sys.modules.setdefault(f"tensorkv.{name}", module)  # `import mxnet.opt as opt` asks for it by this name
        if not hasattr(module, "__path__"):
            module.__path__ = []  # `from mxnet.random import name` asks the finder then, whose error says what to use
