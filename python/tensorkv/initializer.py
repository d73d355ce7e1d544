"""First values of parameters: ``tkv.init``, with MXNet's names, arguments and formulas.

An initializer is called as ``init(name, array)`` and fills the array. The end of the name decides: the class fills
``weight``; ``bias``, ``beta`` and running means become 0, ``gamma`` and running variances 1. Random numbers come from
`tkv.random`'s stream.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from . import _core
from ._array import nd
from ._update.checks import number
from .errors import InvalidArgumentError, KeyNotFoundError
from .random import _stream

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Bilinear",
    "Constant",
    "InitDesc",
    "Initializer",
    "LSTMBias",
    "Load",
    "MSRAPrelu",
    "Mixed",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "Xavier",
    "Zero",
    "create",
    "register",
]

I = TypeVar("I", bound="type[Initializer]")  # noqa: E741

_registry: dict[str, type[Initializer]] = {}
_CONSTANTS = {
    **dict.fromkeys(("bias", "beta", "running_mean", "moving_mean", "moving_inv_var", "moving_avg", "min"), 0.0),
    **dict.fromkeys(("gamma", "running_var", "moving_var", "max"), 1.0),
}


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.init", name, sys.modules[__name__])


class InitDesc(str):
    """The name of a parameter, as initializers take it, with attributes; a str does as well.

    Args:
        name: of the parameter.
        attrs: a dict; its ``__init__``, as `Initializer.dumps` gives one, goes before the initializer that is called.
        global_init: kept.

    Example:
        >>> w = tkv.nd.zeros((2,))
        >>> tkv.init.Zero()(tkv.init.InitDesc('fc1_weight', {'__init__': tkv.init.One().dumps()}), w)
        >>> w.asnumpy()
        array([1., 1.], dtype=float32)
    """

    attrs: dict[str, str]
    global_init: Initializer | None

    def __new__(
        cls, name: str, attrs: dict[str, str] | None = None, global_init: Initializer | None = None
    ) -> InitDesc:
        """Return the name with its attributes."""
        made = super().__new__(cls, name)
        made.attrs, made.global_init = attrs or {}, global_init
        return made


def _root_mean_square(arr: nd.NDArray) -> str:
    return str(nd.norm(arr).asscalar() / arr.size**0.5)


class Initializer:
    """Base class; a subclass defines ``_init_weight(name, array)``.

    Example:
        >>> class Two(tkv.init.Initializer):
        ...     def _init_weight(self, name, array):
        ...         array[:] = 2
        >>> w = tkv.nd.zeros((2,))
        >>> Two()('fc1_weight', w)
        >>> w.asnumpy()
        array([2., 2.], dtype=float32)
    """

    _print_func: Callable[[nd.NDArray], str] | None = None

    def __init__(self, **kwargs: Any) -> None:
        """Keep the arguments for `dumps`."""
        self._kwargs = kwargs

    def set_verbosity(self, verbose: bool = False, print_func: Callable[[nd.NDArray], str] | None = None) -> Self:
        """Have the logger `tensorkv` tell at level info of each array that is filled; return the initializer.

        Args:
            verbose: whether it does.
            print_func: the function that describes an array; by default the norm divided by the root of the size.
        """
        self._print_func = (print_func or _root_mean_square) if verbose else None
        return self

    def __call__(self, desc: str, arr: nd.NDArray) -> None:
        """Fill the array of the parameter of this name.

        Raises:
            InvalidArgumentError: a name with another end, an array that is none or has the wrong number of axes.
        """
        if not isinstance(desc, str) or not isinstance(arr, nd.NDArray):
            raise InvalidArgumentError(
                f"{type(self).__name__}: types {type(desc).__name__} and {type(arr).__name__}; a name and an NDArray are needed"
            )
        kind = self._filled(desc, arr)
        if self._print_func is not None:
            logging.getLogger("tensorkv").info("Initialized %s as %s: %s", desc, kind, self._print_func(arr))

    def _filled(self, desc: str, arr: nd.NDArray) -> str:
        """Fill the array and return the kind of its name, or the initializer that the description names."""
        own = desc.attrs.get("__init__") if isinstance(desc, InitDesc) else None
        if own:
            create(own)._init_weight(desc, arr)
            return own
        if desc.lower().endswith("weight"):
            self._init_weight(desc, arr)
            return "weight"
        for ending, value in _CONSTANTS.items():
            if desc.lower().endswith(ending):
                arr[:] = value
                return ending
        raise InvalidArgumentError(
            f"{type(self).__name__}: the name {desc!r} says not what it is; it ends in weight, {', '.join(_CONSTANTS)}"
        )

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        raise InvalidArgumentError(f"{type(self).__name__}: the class defines no _init_weight(name, array)")

    def _fill(self, arr: nd.NDArray, values: Any) -> None:
        arr[:] = nd.array(values, arr.context, arr.dtype_name)

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is of the same class with the same arguments."""
        if not isinstance(other, Initializer):
            return NotImplemented
        return type(self) is type(other) and self._kwargs == other._kwargs

    def __hash__(self) -> int:
        """Hash the class."""
        return hash(type(self))

    def dumps(self) -> str:
        """Return the name and the arguments as JSON, which `create` takes."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])


def register(klass: I) -> I:
    """Make `create` find the class by its name in lower case; return it. A decorator.

    Example:
        >>> @tkv.init.register
        ... class Mine(tkv.init.Normal):
        ...     pass
        >>> type(tkv.init.create('mine')).__name__
        'Mine'
    """
    _registry[klass.__name__.lower()] = klass
    return klass


def create(init: str | Initializer, **kwargs: Any) -> Initializer:
    """Return an initializer by its name, in any case, or by what `dumps` gave; an initializer as it is.

    Raises:
        KeyNotFoundError: no such initializer, with a list of those there are.
        InvalidArgumentError: arguments beside one that has them already.

    Example:
        >>> tkv.init.create('xavier', magnitude=2).dumps()
        '["xavier", {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 2}]'
    """
    is_made = isinstance(init, Initializer)
    name = str(init)
    if kwargs and (is_made or name.startswith("[")):
        made = type(init).__name__ if is_made else name
        raise InvalidArgumentError(
            f"initializer {made}: it has its arguments already; {next(iter(kwargs))!r} comes too late"
        )
    if isinstance(init, Initializer):
        return init
    if name.startswith("["):
        name, kwargs = json.loads(name)
    klass = _registry.get(name.lower())
    if klass is None:
        nearest = _core.nearest(name.lower(), list(_registry))
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        raise KeyNotFoundError(f"initializer {init!r}: there are {', '.join(sorted(_registry))}{hint}")
    return klass(**kwargs)


@register
class Constant(Initializer):
    """Every element is `value`, a number or an array of the parameter's shape.

    Example:
        >>> w = tkv.nd.zeros((2,))
        >>> tkv.init.Constant(0.5)('w_weight', w)
        >>> w.asnumpy()
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, value: Any) -> None:
        """Keep the value."""
        super().__init__(value=value.tolist() if hasattr(value, "tolist") else value)
        self.value = value

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        arr[:] = self.value


@register
class Zero(Constant):
    """Every element is 0.

    Example:
        >>> w = tkv.nd.ones((2,))
        >>> tkv.init.Zero()('w_weight', w)
        >>> w.asnumpy()
        array([0., 0.], dtype=float32)
    """

    def __init__(self) -> None:
        """Take no arguments."""
        super().__init__(0)
        self._kwargs = {}


@register
class One(Constant):
    """Every element is 1.

    Example:
        >>> w = tkv.nd.zeros((2,))
        >>> tkv.init.One()('w_weight', w)
        >>> w.asnumpy()
        array([1., 1.], dtype=float32)
    """

    def __init__(self) -> None:
        """Take no arguments."""
        super().__init__(1)
        self._kwargs = {}


for _alias, _klass in (("zeros", Zero), ("ones", One)):
    _registry[_alias] = _klass


@register
class Uniform(Initializer):
    """Uniform from -scale to scale.

    Example:
        >>> w = tkv.nd.zeros((100,))
        >>> tkv.init.Uniform(0.1)('w_weight', w)
        >>> bool(0.05 < w.max().asscalar() <= 0.1)
        True
    """

    def __init__(self, scale: float = 0.07) -> None:
        """Keep the scale."""
        super().__init__(scale=scale)
        self.scale: float = number("scale", scale)

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        self._fill(arr, _stream().uniform(-self.scale, self.scale, arr.shape))


@register
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`.

    Example:
        >>> w = tkv.nd.zeros((100,))
        >>> tkv.init.Normal(0.1)('w_weight', w)
        >>> bool(w.abs().max().asscalar() > 0.1)
        True
    """

    def __init__(self, sigma: float = 0.01) -> None:
        """Keep the deviation."""
        super().__init__(sigma=sigma)
        self.sigma: float = number("sigma", sigma)

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        self._fill(arr, _stream().normal(0, self.sigma, arr.shape))


@register
class Xavier(Initializer):
    """Glorot and Bengio, 2010: scale ``sqrt(magnitude / factor)``, where the factor counts inputs and outputs.

    Args:
        rnd_type: 'uniform' (from -scale to scale) or 'gaussian' (deviation scale).
        factor_type: 'avg', 'in' or 'out'.
        magnitude: of the numbers.

    Example:
        >>> w = tkv.nd.zeros((3, 3))
        >>> tkv.init.Xavier()('w_weight', w)  # from -1 to 1
        >>> bool(0 < w.abs().max().asscalar() <= 1)
        True
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        """Keep the arguments."""
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        if rnd_type not in ("uniform", "gaussian"):
            raise InvalidArgumentError(f"rnd_type: {rnd_type!r}; there are 'uniform' and 'gaussian'")
        if factor_type not in ("avg", "in", "out"):
            raise InvalidArgumentError(f"factor_type: {factor_type!r}; there are 'avg', 'in' and 'out'")
        self.rnd_type, self.factor_type = rnd_type, factor_type
        self.magnitude: float = number("magnitude", magnitude)

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        if len(arr.shape) < 2:
            raise InvalidArgumentError(
                f"{type(self).__name__}: {name} has shape {arr.shape}; at least two axes are needed"
            )
        around = math.prod(arr.shape[2:])
        fan_in, fan_out = arr.shape[1] * around, arr.shape[0] * around
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = math.sqrt(self.magnitude / factor)
        uniform = self.rnd_type == "uniform"
        self._fill(
            arr, _stream().uniform(-scale, scale, arr.shape) if uniform else _stream().normal(0, scale, arr.shape)
        )


@register
class MSRAPrelu(Xavier):
    """He et al., 2015: Xavier with normal numbers and magnitude ``2 / (1 + slope ** 2)``.

    Example:
        >>> tkv.init.MSRAPrelu(slope=0).magnitude
        2.0
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        """Keep the arguments."""
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Orthogonal(Initializer):
    """Saxe et al., 2013: rows, or columns, that are orthogonal and of length `scale`.

    Args:
        scale: of the vectors.
        rand_type: 'uniform' or 'normal' numbers to begin with.

    Example:
        >>> w = tkv.nd.zeros((2, 2))
        >>> tkv.init.Orthogonal(scale=1)('w_weight', w)
        >>> bool(abs(tkv.nd.dot(w[0], w[1]).asscalar()) < 1e-6)
        True
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        """Keep the arguments."""
        super().__init__(scale=scale, rand_type=rand_type)
        if rand_type not in ("uniform", "normal"):
            raise InvalidArgumentError(f"rand_type: {rand_type!r}; there are 'uniform' and 'normal'")
        self.scale: float = number("scale", scale)
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        shape = (arr.shape[0], math.prod(arr.shape[1:]))
        start = _stream().uniform(-1, 1, shape) if self.rand_type == "uniform" else _stream().normal(0, 1, shape)
        left, _, right = np.linalg.svd(start, full_matrices=False)
        self._fill(arr, self.scale * (left if left.shape == shape else right).reshape(arr.shape))


@register
class Bilinear(Initializer):
    """The weights of an upsampling convolution, shape ``(_, _, h, w)``.

    Example:
        >>> w = tkv.nd.zeros((1, 1, 2, 2))
        >>> tkv.init.Bilinear()('up_weight', w)
        >>> w.asnumpy().tolist()
        [[[[1.0, 0.0], [0.0, 0.0]]]]
    """

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        if len(arr.shape) != 4:
            raise InvalidArgumentError(f"Bilinear: {name} has shape {arr.shape}; four axes are needed")
        half = math.ceil(arr.shape[3] / 2.0)
        centre = (2 * half - 1 - half % 2) / (2.0 * half)
        x = 1 - np.abs(np.arange(arr.shape[3]) / half - centre)
        y = 1 - np.abs(np.arange(arr.shape[2]) / half - centre)
        self._fill(arr, np.broadcast_to(y[:, None] * x, arr.shape))


@register
class LSTMBias(Initializer):
    """0, but `forget_bias` in the second quarter: the forget gates of an LSTM.

    Example:
        >>> b = tkv.nd.ones((4,))
        >>> tkv.init.LSTMBias(2.0)('lstm_weight', b)
        >>> b.asnumpy()
        array([0., 2., 0., 0.], dtype=float32)
    """

    def __init__(self, forget_bias: float = 1.0) -> None:
        """Keep the bias."""
        super().__init__(forget_bias=forget_bias)
        self.forget_bias: float = number("forget_bias", forget_bias)

    def _init_weight(self, name: str, arr: nd.NDArray) -> None:
        quarter = arr.shape[0] // 4
        arr[:] = 0
        arr[quarter : 2 * quarter] = self.forget_bias


class Mixed:
    """The first initializer whose pattern, a regular expression, is found in the name.

    Example:
        >>> init = tkv.init.Mixed(['bias', '.*'], [tkv.init.Zero(), tkv.init.One()])
        >>> w = tkv.nd.zeros((2,))
        >>> init('fc_weight', w)
        >>> w.asnumpy()
        array([1., 1.], dtype=float32)
    """

    def __init__(self, patterns: list[str], initializers: list[Initializer]) -> None:
        """Keep the pairs."""
        if len(patterns) != len(initializers):
            raise InvalidArgumentError(f"Mixed: {len(patterns)} patterns and {len(initializers)} initializers")
        self.map: list[tuple[re.Pattern[str], Initializer]] = [
            (re.compile(pattern), init) for pattern, init in zip(patterns, initializers, strict=True)
        ]

    def __call__(self, name: str, arr: nd.NDArray) -> None:
        """Fill the array; InvalidArgumentError if no pattern is in the name."""
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise InvalidArgumentError(f"Mixed: no pattern for {name!r}; add '.*' at the end")


class Load:
    """The arrays of a file or dict by their names, and for other names another initializer.

    Args:
        param: a dict of arrays, or a file of `tkv.nd.save`; ``arg:`` and ``aux:`` before a name are cut off.
        default_init: for names that are not there; None makes them an error.
        verbose: the logger `tensorkv` tells at level info where each array came from.

    Example:
        >>> init = tkv.init.Load({'arg:fc_weight': tkv.nd.ones((2,))}, default_init=tkv.init.Zero())
        >>> w = tkv.nd.zeros((2,))
        >>> init('fc_weight', w)
        >>> w.asnumpy()
        array([1., 1.], dtype=float32)
    """

    def __init__(
        self, param: dict[str, nd.NDArray] | str, default_init: Initializer | None = None, verbose: bool = False
    ) -> None:
        """Read the arrays."""
        found = nd.load(param) if isinstance(param, str) else param
        if not isinstance(found, dict):
            raise InvalidArgumentError(f"Load: type {type(found).__name__}, a dict of arrays is needed")
        self.param: dict[str, nd.NDArray] = {
            name[4:] if name.startswith(("arg:", "aux:")) else name: array for name, array in found.items()
        }
        self.default_init: Initializer | None = default_init
        self.verbose: bool = verbose

    def __call__(self, name: str, arr: nd.NDArray) -> None:
        """Fill the array of this name.

        Raises:
            InvalidArgumentError: another shape; no array of the name, and no `default_init`.
        """
        saved = self.param.get(name)
        if saved is None:
            if self.default_init is None:
                raise InvalidArgumentError(f"Load: there is no {name!r}, and no default_init")
            self.default_init(name, arr)
        elif saved.shape != arr.shape:
            raise InvalidArgumentError(f"Load: {name!r} has shape {saved.shape}, the array has {arr.shape}")
        else:
            arr[:] = saved
        if self.verbose:
            how = "by default" if saved is None else "by loading"
            logging.getLogger("tensorkv").info("Initialized %s %s", name, how)
