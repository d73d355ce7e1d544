"""Random arrays: ``mx.random``. Drawn by NumPy's generator, one stream per process."""

import numpy as np

from . import ndarray as _nd

__all__ = ["normal", "seed", "uniform"]

_generator = None


def _stream():
    global _generator
    if _generator is None:
        _generator = np.random.default_rng()
    return _generator


def seed(seed_state, ctx="all"):
    """Start the stream again from `seed_state`, an int.

    Example:
        >>> mx.random.seed(1); a = mx.random.uniform(shape=(2,))
        >>> mx.random.seed(1); (a == mx.random.uniform(shape=(2,))).asnumpy()
        array([1., 1.], dtype=float32)
    """
    global _generator
    _generator = np.random.default_rng(int(seed_state))


def _shape(shape):
    return tuple(shape) if isinstance(shape, (list, tuple)) else (int(shape),)


def uniform(low=0.0, high=1.0, shape=(1,), ctx=None, dtype=None):
    """Return numbers from `low` to `high`, float32 by default.

    Example:
        >>> mx.random.uniform(-1, 1, shape=(2, 3)).shape
        (2, 3)
    """
    return _nd.array(_stream().uniform(low, high, _shape(shape)), ctx=ctx, dtype=dtype)


def normal(loc=0.0, scale=1.0, shape=(1,), ctx=None, dtype=None):
    """Return normally distributed numbers, float32 by default.

    Example:
        >>> mx.random.normal(shape=(4,)).shape
        (4,)
    """
    return _nd.array(_stream().normal(loc, scale, _shape(shape)), ctx=ctx, dtype=dtype)
