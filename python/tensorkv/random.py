"""Random arrays: ``tkv.random``. Drawn by NumPy's generator, one stream per process."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, SupportsIndex, TypeAlias, overload

import numpy as np

from ._array import ndarray as _nd
from ._array.elements import is_scalar, shape_list
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from ._types import DType, Shape, Where

__all__ = [
    "exponential",
    "gamma",
    "generalized_negative_binomial",
    "multinomial",
    "negative_binomial",
    "normal",
    "poisson",
    "randint",
    "randn",
    "seed",
    "shuffle",
    "uniform",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.random", name, sys.modules[__name__])


_generator: np.random.Generator | None = None


def _stream() -> np.random.Generator:
    global _generator
    if _generator is None:
        _generator = np.random.default_rng()
    return _generator


def _given(values: Any, dtype: DType, ctx: Where, out: _nd.NDArray | None) -> _nd.NDArray:
    """Return numbers as an array, or in `out`."""
    if out is None:
        return _nd.array(values, ctx=ctx, dtype=dtype)
    if out.shape != np.shape(values):
        raise InvalidArgumentError(f"out: shape {out.shape}, {np.shape(values)} is needed")
    out[:] = _nd.array(values, dtype=out.dtype_name)
    return out


Parameter: TypeAlias = "float | _nd.NDArray"


def _sampled(
    who: str,
    draw: Callable[..., Any],
    parameters: tuple[Any, ...],
    shape: Shape | None,
    dtype: DType,
    ctx: Where,
    out: _nd.NDArray | None,
) -> _nd.NDArray:
    """Return draws of a distribution, `shape` of them for each element of parameters that are arrays.

    Args:
        who: the name of the function.
        draw: draws numbers, given the parameters and the shape of all of them.
        parameters: numbers, or arrays of one shape.
        shape: None is one draw: shape ``(1,)``, of arrays theirs, with `out` that of `out`.
        dtype: of the result.
        ctx: of the result; with arrays it is theirs.
        out: an array that takes the result.
    """
    are_arrays = {isinstance(one, _nd.NDArray) for one in parameters}
    if len(are_arrays) > 1 or not (True in are_arrays or all(map(is_scalar, parameters))):
        found = ", ".join(type(one).__name__ for one in parameters)
        raise InvalidArgumentError(
            f"{who}: parameters of type {found}; numbers alone or arrays of tkv.nd alone are needed"
        )
    if True in are_arrays:
        shapes = {one.shape for one in parameters}
        if len(shapes) > 1:
            raise InvalidArgumentError(f"{who}: parameters of shapes {' and '.join(map(str, shapes))}; one is needed")
        own, extents = parameters[0].shape, [] if shape is None else shape_list(shape)
        ctx = parameters[0].context
        parameters = tuple(one.asnumpy().astype(np.float64).reshape(own + (1,) * len(extents)) for one in parameters)
        extents = [*own, *extents]
    elif shape is None:
        extents = [1] if out is None else list(out.shape)
    else:
        extents = shape_list(shape)
    try:
        drawn = draw(*parameters, extents)
    except ValueError as error:
        raise InvalidArgumentError(f"{who}: {error}") from None
    return _given(drawn, dtype, ctx, out)


def seed(seed_state: SupportsIndex, ctx: object = "all") -> None:
    """Start the stream again from `seed_state`, an int.

    Example:
        >>> tkv.random.seed(1); a = tkv.random.uniform(shape=(2,))
        >>> tkv.random.seed(1); (a == tkv.random.uniform(shape=(2,))).asnumpy()
        array([1., 1.], dtype=float32)
    """
    global _generator
    _generator = np.random.default_rng(operator.index(seed_state))


def uniform(
    low: Parameter = 0.0,
    high: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return numbers from `low` to `high`, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.uniform(-1, 1, shape=(2, 3)).shape
        (2, 3)
    """
    return _sampled("uniform", _stream().uniform, (low, high), shape, dtype, ctx, out)


def normal(
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return normally distributed numbers, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.normal(shape=(4,)).shape
        (4,)
    """
    return _sampled("normal", _stream().normal, (loc, scale), shape, dtype, ctx, out)


def randint(
    low: int,
    high: int,
    shape: Shape | None = None,
    dtype: DType = "int32",
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return whole numbers from `low` to below `high`, int32 by default.

    Example:
        >>> tkv.random.randint(0, 10, shape=(2,)).dtype.__name__
        'int32'
    """
    low, high = operator.index(low), operator.index(high)
    if low >= high:
        raise InvalidArgumentError(f"randint: no number from {low} to below {high}")
    extents = shape_list(shape) if shape is not None else [1] if out is None else out.shape
    return _given(_stream().integers(low, high, extents), "int32" if dtype is None else dtype, ctx, out)


def randn(
    *shape: SupportsIndex,
    loc: Parameter = 0.0,
    scale: Parameter = 1.0,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return normally distributed numbers in an array whose axes are the arguments, float32 by default.

    Example:
        >>> tkv.random.randn(2, 3).shape
        (2, 3)
    """
    return normal(loc, scale, shape or None, dtype, ctx, out)


def exponential(
    scale: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return exponentially distributed numbers of the mean `scale`, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.exponential(2, shape=(4,)).shape
        (4,)
    """
    return _sampled("exponential", _stream().exponential, (scale,), shape, dtype, ctx, out)


def gamma(
    alpha: Parameter = 1.0,
    beta: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return numbers of the gamma distribution with shape `alpha` and scale `beta`, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.gamma(9, 0.5, shape=(4,)).shape
        (4,)
    """
    return _sampled("gamma", _stream().gamma, (alpha, beta), shape, dtype, ctx, out)


def poisson(
    lam: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return numbers of the Poisson distribution with mean `lam`, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.poisson(4, shape=(2, 2)).shape
        (2, 2)
    """
    return _sampled("poisson", _stream().poisson, (lam,), shape, dtype, ctx, out)


def negative_binomial(
    k: Parameter = 1,
    p: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return numbers of failures before `k` successes of probability `p`, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.negative_binomial(3, 0.5, shape=(4,)).shape
        (4,)
    """
    return _sampled("negative_binomial", _stream().negative_binomial, (k, p), shape, dtype, ctx, out)


def generalized_negative_binomial(
    mu: Parameter = 1.0,
    alpha: Parameter = 1.0,
    shape: Shape | None = None,
    dtype: DType = None,
    ctx: Where = None,
    out: _nd.NDArray | None = None,
) -> _nd.NDArray:
    """Return numbers of mean `mu` and variance ``mu + alpha * mu ** 2``, float32 by default.

    For parameters that are arrays, each element has numbers of its own: the shape is theirs, and then `shape`.

    Example:
        >>> tkv.random.generalized_negative_binomial(2, 0.5, shape=(4,)).shape
        (4,)
    """

    def draw(mean: Any, spread: Any, extents: list[int]) -> Any:
        is_spread = np.not_equal(spread, 0)
        some = np.where(is_spread, spread, 1.0)
        rates = np.where(is_spread, _stream().gamma(1 / some, mean * some, extents), mean)
        return _stream().poisson(rates)

    return _sampled("generalized_negative_binomial", draw, (mu, alpha), shape, dtype, ctx, out)


@overload
def multinomial(
    data: _nd.NDArray,
    shape: Shape = (),
    get_prob: Literal[False] = False,
    out: _nd.NDArray | None = None,
    dtype: DType = "int32",
) -> _nd.NDArray: ...
@overload
def multinomial(
    data: _nd.NDArray,
    shape: Shape = (),
    get_prob: bool = ...,
    out: _nd.NDArray | None = None,
    dtype: DType = "int32",
) -> _nd.NDArray | list[_nd.NDArray]: ...
def multinomial(
    data: _nd.NDArray,
    shape: Shape = (),
    get_prob: bool = False,
    out: _nd.NDArray | None = None,
    dtype: DType = "int32",
) -> _nd.NDArray | list[_nd.NDArray]:
    """Return classes drawn with given probabilities, int32 by default.

    Args:
        data: probabilities of the classes, which sum to 1, of shape ``(k,)``, or ``(n, k)`` for n draws of their own.
        shape: of the draws for each; ``()`` is one draw. A draw of one row alone has shape ``(1,)``.
        get_prob: return also the logarithms of the drawn values' probabilities, in an array of the same shape.
        out: an array that takes the classes.

    Example:
        >>> tkv.random.multinomial(tkv.nd.array([[0, 1], [1, 0]])).asnumpy()
        array([1, 0], dtype=int32)
    """
    chances = data.asnumpy().astype(np.float64)
    if chances.ndim not in (1, 2) or (chances < 0).any() or not np.allclose(chances.sum(axis=-1), 1, atol=1e-4):
        raise InvalidArgumentError(
            f"multinomial: probabilities of shape {data.shape}; one or two axes that sum to 1 are needed"
        )
    lengths = shape_list(shape)
    rows = chances.reshape(-1, chances.shape[-1])
    drawn = [np.searchsorted((row / row.sum()).cumsum()[:-1], _stream().random(lengths), side="right") for row in rows]
    axes = chances.shape[:-1] + tuple(lengths) or (1,)
    classes = _given(np.reshape(drawn, axes), dtype, data.context, out)
    if not get_prob:
        return classes
    likely = [np.log(row[one]) for row, one in zip(rows, drawn, strict=True)]
    return [classes, _nd.array(np.reshape(likely, axes), ctx=data.context)]


def shuffle(data: _nd.NDArray) -> _nd.NDArray:
    """Return an array with its rows in a random order.

    Example:
        >>> sorted(tkv.random.shuffle(tkv.nd.arange(4)).asnumpy().tolist())
        [0.0, 1.0, 2.0, 3.0]
    """
    return _nd.array(_stream().permutation(data.asnumpy()), ctx=data.context, dtype=data.dtype_name)
