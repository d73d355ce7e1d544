"""Helpers that test scripts import from ``mxnet.test_utils``."""

from __future__ import annotations

import contextlib
import functools
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
    "default_dtype",
    "environment",
    "list_gpus",
    "rand_ndarray",
    "rand_shape_2d",
    "rand_shape_3d",
    "rand_shape_nd",
    "random_arrays",
    "retry",
    "same",
    "same_array",
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


def almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Return whether two arrays agree to ``atol + rtol * |b|``, which are 1e-20 and 1e-5 by default.

    Example:
        >>> mx.test_utils.almost_equal(mx.nd.ones((2,)), np.ones(2))
        True
    """
    one, other = np.asarray(a), np.asarray(b)
    _check_shapes(one, other, use_broadcast)
    rtol, atol = 1e-5 if rtol is None else rtol, 1e-20 if atol is None else atol
    return np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: float | dict[Any, float] | None = None,
    atol: float | dict[Any, float] | None = None,
    names: tuple[str, str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Raise AssertionError, with the largest difference, where two arrays do not agree to ``atol + rtol * |b|``.

    Args:
        a, b: arrays or numbers.
        rtol, atol: numbers, or dicts from dtype to number. By default the larger of the two dtypes' counts: of float16
            1e-2 and 1e-1, of float32 1e-4 and 1e-3, of float64 1e-5 and 1e-20, of others 0.
        names: of the arrays, for the error.
        equal_nan: whether a NaN equals a NaN.
        use_broadcast: whether the shapes may differ.
        mismatches: has no effect.

    Example:
        >>> mx.test_utils.assert_almost_equal(mx.nd.ones((2,)), mx.nd.full((2,), 1.0005))
    """
    one, other = np.asarray(a), np.asarray(b)
    _check_shapes(one, other, use_broadcast)
    relative, absolute = (max(_tolerance(x, tol, n) for x in (one, other)) for n, tol in enumerate((rtol, atol)))
    one, other = np.broadcast_arrays(one, other)
    np.testing.assert_allclose(
        one,
        other,
        rtol=relative,
        atol=absolute,
        equal_nan=equal_nan,
        err_msg=f"{names[0]} and {names[1]} differ",
    )


# Relative and absolute, by dtype; MXNet has no bfloat16.
_TOLERANCES = {"float16": (1e-2, 1e-1), "bfloat16": (1e-2, 1e-1), "float32": (1e-4, 1e-3), "float64": (1e-5, 1e-20)}


def _tolerance(array: np.ndarray[Any, Any], given: float | dict[Any, float] | None, place: int) -> float:
    if given is not None and not isinstance(given, dict):
        return given
    by_name = {np.dtype(dtype).name: tolerance for dtype, tolerance in (given or {}).items()}
    return by_name.get(array.dtype.name, _TOLERANCES.get(array.dtype.name, (0.0, 0.0))[place])


def _check_shapes(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], use_broadcast: bool) -> None:
    if not use_broadcast and a.shape != b.shape:
        raise AssertionError(f"a.shape = {a.shape} and b.shape = {b.shape} are not equal")


def default_dtype() -> type:
    """Return the dtype that tests use: float32.

    Example:
        >>> mx.test_utils.default_dtype().__name__
        'float32'
    """
    return np.float32


def random_arrays(*shapes: tuple[int, ...]) -> Any:
    """Return a NumPy array of normal random numbers for each shape, in float32; for one shape the array alone.

    Example:
        >>> [array.shape for array in mx.test_utils.random_arrays((2, 3), ())]
        [(2, 3), ()]
    """
    arrays = [np.asarray(random._stream().normal(size=shape), np.float32) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a random shape of two axes, each from 1 (or 0) to its bound.

    Example:
        >>> len(mx.test_utils.rand_shape_2d())
        2
    """
    return _rand_shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a random shape of three axes, each from 1 (or 0) to its bound.

    Example:
        >>> len(mx.test_utils.rand_shape_3d())
        3
    """
    return _rand_shape((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a random shape of `num_dim` axes, each from 1 (or 0) to `dim`.

    Example:
        >>> len(mx.test_utils.rand_shape_nd(4))
        4
    """
    return _rand_shape((dim,) * num_dim, allow_zero_size)


def _rand_shape(bounds: tuple[int, ...], allow_zero_size: bool) -> tuple[int, ...]:
    return tuple(int(random._stream().integers(0 if allow_zero_size else 1, bound + 1)) for bound in bounds)


def same_array(array1: Any, array2: Any) -> bool:
    """Return whether two arrays have the same memory; their elements are changed for a moment.

    Example:
        >>> a = mx.nd.ones((2,))
        >>> mx.test_utils.same_array(a, a[:]), mx.test_utils.same_array(a, a.copy())
        (True, False)
    """
    if not same(array1, array2):
        return False
    array1[:] += 1
    is_same = same(array1, array2)
    array1[:] -= 1
    return is_same


def retry(n: int) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Return a decorator of a test that runs it again, `n` times at most, while it raises AssertionError.

    Example:
        >>> @mx.test_utils.retry(3)
        ... def test():
        ...     assert mx.random.uniform().asscalar() < 2
        >>> test()
    """

    def decorate(test: Callable[..., object]) -> Callable[..., None]:
        @functools.wraps(test)
        def repeated(*args: Any, **kwargs: Any) -> None:
            for left in reversed(range(n)):
                try:
                    test(*args, **kwargs)
                    return
                except AssertionError:
                    if not left:
                        raise

        return repeated

    return decorate


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
