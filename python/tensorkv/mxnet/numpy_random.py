"""Random arrays in NumPy's manner: ``mx.np.random``. The same stream as `mx.random`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as _np

from .. import random as _random
from .._array import host as _host
from ..errors import InvalidArgumentError
from ..random import seed
from . import numpy as _mxnp

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._types import DType, Where

__all__ = [
    "beta",
    "chisquare",
    "choice",
    "exponential",
    "gamma",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "power",
    "rand",
    "randint",
    "randn",
    "rayleigh",
    "seed",
    "shuffle",
    "uniform",
    "weibull",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from . import elsewhere

        elsewhere.missing("mx.np.random", name, sys.modules[__name__])


def _stored(drawn: _mxnp.ndarray, out: Any) -> _mxnp.ndarray:
    return drawn if out is None else _host.stored(drawn, out)


def _drawn(name: str, parameters: int = 1, rest: str = "size ctx out") -> Callable[..., _mxnp.ndarray]:
    """Return the distribution of that name of NumPy's generator.

    Args:
        name: as there.
        parameters: how many positional arguments are parameters of the distribution.
        rest: names of the positional arguments behind them, as MXNet has them.
    """

    def draw(
        *args: Any, size: Any = None, dtype: DType = None, ctx: Where = None, out: Any = None, **kwargs: Any
    ) -> _mxnp.ndarray:
        if len(args) > parameters:
            named = {"size": size, "dtype": dtype, "ctx": ctx, "out": out}
            given = dict(zip(rest.split(), args[parameters:], strict=False))
            twice = [key for key in given if named[key] is not None]
            if twice or len(args) > parameters + len(rest.split()):
                raise InvalidArgumentError(
                    f"{name}: {twice[0]} is given twice" if twice else f"{name}: {len(args)} arguments"
                )
            return draw(*args[:parameters], **{**named, **given}, **kwargs)
        try:
            drawn = getattr(_random._stream(), name)(*args, size=size, **kwargs)
        except ValueError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None
        return _stored(_mxnp.array(drawn, dtype=dtype or "float32", ctx=ctx), out)

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = f"""Return what ``numpy.random.Generator.{name}`` draws, float32 by default.

    Args:
        args, kwargs: as there.
        size: shape of the result; None for one number.
        out: an array of that shape that takes the numbers.

    Example:
        >>> mx.np.random.{name}({_EXAMPLES.get(name, "")}{", " if name in _EXAMPLES else ""}size=(2, 3)).shape
        (2, 3)
    """
    return draw


_TYPED = "size dtype ctx out"
_EXAMPLES = {"beta": "2, 3", "chisquare": "2", "gamma": "2", "pareto": "2", "power": "2", "weibull": "2"}
beta: Callable[..., _mxnp.ndarray] = _drawn("beta", 2, _TYPED)
chisquare: Callable[..., _mxnp.ndarray] = _drawn("chisquare", 1, _TYPED)
exponential: Callable[..., _mxnp.ndarray] = _drawn("exponential")
gamma: Callable[..., _mxnp.ndarray] = _drawn("gamma", 2, _TYPED)
gumbel: Callable[..., _mxnp.ndarray] = _drawn("gumbel", 2)
laplace: Callable[..., _mxnp.ndarray] = _drawn("laplace", 2, _TYPED)
logistic: Callable[..., _mxnp.ndarray] = _drawn("logistic", 2)
lognormal: Callable[..., _mxnp.ndarray] = _drawn("lognormal", 2, _TYPED)
normal: Callable[..., _mxnp.ndarray] = _drawn("normal", 2, _TYPED)
pareto: Callable[..., _mxnp.ndarray] = _drawn("pareto")
poisson: Callable[..., _mxnp.ndarray] = _drawn("poisson")
power: Callable[..., _mxnp.ndarray] = _drawn("power")
rayleigh: Callable[..., _mxnp.ndarray] = _drawn("rayleigh")
uniform: Callable[..., _mxnp.ndarray] = _drawn("uniform", 2, _TYPED)
weibull: Callable[..., _mxnp.ndarray] = _drawn("weibull")


def rand(*size: int, dtype: DType = None, ctx: Where = None) -> _mxnp.ndarray:
    """Return numbers from 0 to 1 in an array whose axes are the arguments.

    Example:
        >>> mx.np.random.rand(2, 3).shape
        (2, 3)
    """
    return uniform(size=size, dtype=dtype, ctx=ctx)


def randn(*size: int, dtype: DType = None, ctx: Where = None) -> _mxnp.ndarray:
    """Return normally distributed numbers in an array whose axes are the arguments.

    Example:
        >>> mx.np.random.randn(2, 3).shape
        (2, 3)
    """
    return normal(size=size, dtype=dtype, ctx=ctx)


def randint(
    low: int,
    high: int | None = None,
    size: Any = None,
    dtype: DType = "int64",
    ctx: Where = None,
    out: _mxnp.ndarray | None = None,
) -> _mxnp.ndarray:
    """Return whole numbers from `low` to below `high`; from 0 to below `low` without `high`. An array `out` takes them.

    Example:
        >>> mx.np.random.randint(5, size=(2,)).dtype.__name__
        'int64'
    """
    try:
        drawn = _random._stream().integers(low, high, size)
    except ValueError as error:
        raise InvalidArgumentError(f"randint: {error}") from None
    return _stored(_mxnp.array(drawn, dtype="int64" if dtype is None else dtype, ctx=ctx), out)


def choice(
    a: Any,
    size: Any = None,
    replace: bool = True,
    p: Any = None,
    ctx: Where = None,
    out: _mxnp.ndarray | None = None,
) -> _mxnp.ndarray:
    """Return elements of an array, or numbers from 0 to below `a`, drawn at random.

    Args:
        replace: whether an element may be drawn twice.
        p: the probability of each element. They sum to 1, as exactly as their dtype allows.
        out: an array of the result's shape that takes the elements.

    Example:
        >>> sorted(mx.np.random.choice(3, size=3, replace=False).asnumpy().tolist())
        [0, 1, 2]
    """
    elements = a if isinstance(a, int) else _np.asarray(a)
    try:
        drawn = _random._stream().choice(elements, size, replace, None if p is None else _np.asarray(p))
    except ValueError as error:
        raise InvalidArgumentError(f"choice: {error}") from None
    return _stored(_mxnp.array(_np.asarray(drawn), ctx=ctx), out)


def permutation(x: Any) -> _mxnp.ndarray:
    """Return an array with its rows in a random order, or the numbers from 0 to below `x`.

    Example:
        >>> sorted(mx.np.random.permutation(3).asnumpy().tolist())
        [0, 1, 2]
    """
    ordered = _random._stream().permutation(x if isinstance(x, int) else _np.asarray(x))
    return _mxnp.array(ordered, dtype=ordered.dtype)


def shuffle(x: _mxnp.ndarray) -> None:
    """Put the rows of an array in a random order, in place.

    Example:
        >>> a = mx.np.arange(4)
        >>> mx.np.random.shuffle(a)
        >>> sorted(a.asnumpy().tolist())
        [0.0, 1.0, 2.0, 3.0]
    """
    x[:] = permutation(x)
