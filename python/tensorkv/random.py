"""Random arrays: ``mx.random``. Drawn by NumPy's generator, one stream per process."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from . import ndarray as _nd
from ._elements import shape_list

if TYPE_CHECKING:
    from ._types import DType, Shape, Where

__all__ = ["normal", "seed", "uniform"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


_generator: np.random.Generator | None = None


def _stream() -> np.random.Generator:
    global _generator
    if _generator is None:
        _generator = np.random.default_rng()
    return _generator


def seed(seed_state: SupportsIndex, ctx: object = "all") -> None:
    """Start the stream again from `seed_state`, an int.

    Example:
        >>> mx.random.seed(1); a = mx.random.uniform(shape=(2,))
        >>> mx.random.seed(1); (a == mx.random.uniform(shape=(2,))).asnumpy()
        array([1., 1.], dtype=float32)
    """
    global _generator
    _generator = np.random.default_rng(operator.index(seed_state))


def uniform(
    low: float = 0.0, high: float = 1.0, shape: Shape = (1,), ctx: Where = None, dtype: DType = None
) -> _nd.NDArray:
    """Return numbers from `low` to `high`, float32 by default.

    Example:
        >>> mx.random.uniform(-1, 1, shape=(2, 3)).shape
        (2, 3)
    """
    return _nd.array(_stream().uniform(low, high, shape_list(shape)), ctx=ctx, dtype=dtype)


def normal(
    loc: float = 0.0, scale: float = 1.0, shape: Shape = (1,), ctx: Where = None, dtype: DType = None
) -> _nd.NDArray:
    """Return normally distributed numbers, float32 by default.

    Example:
        >>> mx.random.normal(shape=(4,)).shape
        (4,)
    """
    return _nd.array(_stream().normal(loc, scale, shape_list(shape)), ctx=ctx, dtype=dtype)
