"""Names that scripts of ``mx.np`` use beside it: ``mx.npx``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from .context import cpu, current_context, gpu, num_gpus
from .errors import UnimplementedError
from .ndarray import NDArray, save, waitall
from .ndarray import load as _load
from .random import seed

__all__ = [
    "cpu",
    "current_context",
    "gpu",
    "is_np_array",
    "is_np_shape",
    "load",
    "num_gpus",
    "reset_np",
    "save",
    "seed",
    "set_np",
    "waitall",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def load(fname: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Any:
    """Read a file as `mx.nd.load`; its dense arrays are those of `mx.np`.

    Raises:
        InvalidArgumentError, ResourceExhaustedError, OSError: as `mx.nd.load`.

    Example:
        >>> path = os.path.join(tempfile.mkdtemp(), 'arrays')
        >>> mx.npx.save(path, {'w': mx.np.ones((2,))})
        >>> mx.npx.load(path)['w']
        array([1., 1.])
    """
    loaded = _load(fname)

    def of_np(array: Any) -> Any:
        return array.as_np_ndarray() if isinstance(array, NDArray) else array

    if isinstance(loaded, dict):
        return {name: of_np(array) for name, array in loaded.items()}
    return [of_np(array) for array in loaded]


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Do nothing: `mx.np` and `mx.nd` need no switch here.

    Raises:
        UnimplementedError: ``dtype=True``, which would make float64 the default of `mx.np`.

    Example:
        >>> mx.npx.set_np()
    """
    if dtype:
        raise UnimplementedError(
            "set_np: dtype=True; mx.np makes float32 by default, and dtype='float64' says otherwise"
        )


def reset_np() -> None:
    """Do nothing, as `set_np`.

    Example:
        >>> mx.npx.reset_np()
    """


def is_np_array() -> bool:
    """Return True: `mx.np` works at all times.

    Example:
        >>> mx.npx.is_np_array()
        True
    """
    return True


def is_np_shape() -> bool:
    """Return True: shapes ``()`` and ``(0,)`` are possible at all times.

    Example:
        >>> mx.npx.is_np_shape()
        True
    """
    return True


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.npx", name, sys.modules[__name__])
