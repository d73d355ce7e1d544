"""Helpers that test scripts import from ``mxnet.test_utils``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import random
from ..context import Context, current_context, num_gpus

if TYPE_CHECKING:
    from .._types import DType, Shape, Where

__all__ = [
    "almost_equal",
    "assert_almost_equal",
    "assert_exception",
    "default_context",
    "environment",
    "list_gpus",
    "rand_ndarray",
    "same",
]


def list_gpus() -> list[int]:
    """Return the numbers of the GPUs that arrays can live on.

    Example:
        >>> mx.test_utils.list_gpus()
        []
    """
    return list(range(num_gpus()))


def default_context() -> Context:
    """Return the context that tests use: ``cpu(0)``.

    Example:
        >>> mx.test_utils.default_context()
        cpu(0)
    """
    return current_context()


def same(a: Any, b: Any) -> bool:
    """Return whether two arrays have the same shape and elements.

    Example:
        >>> mx.test_utils.same(mx.nd.ones((2,)), np.ones(2))
        True
    """
    return np.array_equal(np.asarray(a), np.asarray(b))


def almost_equal(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-20, equal_nan: bool = False) -> bool:
    """Return whether two arrays agree to ``atol + rtol * |b|``.

    Example:
        >>> mx.test_utils.almost_equal(mx.nd.ones((2,)), np.ones(2))
        True
    """
    return np.allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: float = 1e-5,
    atol: float = 1e-20,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
) -> None:
    """Raise AssertionError, with the largest difference, where two arrays do not agree to ``atol + rtol * |b|``.

    Example:
        >>> mx.test_utils.assert_almost_equal(mx.nd.ones((2,)), np.ones(2))
    """
    np.testing.assert_allclose(
        np.asarray(a),
        np.asarray(b),
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        err_msg=f"{names[0]} and {names[1]} differ",
    )


def rand_ndarray(
    shape: Shape, stype: str = "default", density: float | None = None, dtype: DType = None, ctx: Where = None
) -> Any:
    """Return an array of uniform random numbers from -1 to 1.

    Args:
        shape: an int or a tuple of ints.
        stype: ``'default'``, or ``'row_sparse'`` with each row there by the chance `density`.
        density: default a random number from 0 to 1.
        dtype: float32 by default.
        ctx: the Context, default ``cpu(0)``.

    Example:
        >>> mx.test_utils.rand_ndarray((2, 3)).shape
        (2, 3)
        >>> mx.test_utils.rand_ndarray((2, 3), 'row_sparse', density=0).indices.shape
        (0,)
    """
    array = random.uniform(-1.0, 1.0, shape, ctx=ctx, dtype=dtype)
    if stype == "default":
        return array
    chances = random.uniform(shape=array.shape[0]).asnumpy()
    chosen = np.flatnonzero(chances < (random.uniform().asscalar() if density is None else density))
    return array.tostype("row_sparse").retain(chosen) if stype == "row_sparse" else array.tostype(stype)


def assert_exception(f: Callable[..., object], exception_type: type[BaseException], *args: Any, **kwargs: Any) -> None:
    """Raise AssertionError unless ``f(*args, **kwargs)`` raises `exception_type`.

    Example:
        >>> mx.test_utils.assert_exception(mx.nd.zeros, mx.MXNetError, (-1,))
    """
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{f!r} did not raise {exception_type.__name__}")


@contextlib.contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Set environment variables, ``(name, value)`` or a dict, for the length of a with block; None unsets.

    Example:
        >>> with mx.test_utils.environment('TKV_THREADS', '1'):
        ...     kv = mx.kv.create('local')
    """
    changes = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {name: os.environ.get(name) for name in changes}

    def apply(values: Mapping[str, object]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = str(value)

    apply(changes)
    try:
        yield
    finally:
        apply(before)
