"""Optimizers: ``tkv.optimizer``. Names, formulas and defaults are those of MXNet 1.9.1.

The built-in ones are update programs that run in the store; a class with a Python ``update`` of its own works too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from . import _core
from ._update.base import Optimizer, register
from ._update.checks import number
from ._update.norm_optimizers import *  # noqa: F403  # every class
from ._update.norm_optimizers import __all__ as _norm_classes
from ._update.optimizers import *  # noqa: F403  # every class
from ._update.optimizers import SGD, Adam
from ._update.optimizers import __all__ as _plain_classes
from ._update.updater import Updater, get_updater
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._types import HyperparametersBesideLazy

_classes = [*_plain_classes, *_norm_classes]
__all__ = ["Optimizer", "Program", "Updater", "create", "get_updater", "register", *_classes]  # noqa: PLE0604


for _name in ("Optimizer", "Updater", "get_updater", "register", *_classes):
    globals()[_name].__module__ = __name__  # where users find it, and pickles too


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


if not TYPE_CHECKING:  # checkers say themselves that a name is not here

    def __getattr__(name: str) -> NoReturn:
        """Say what to use in the place of what MXNet has."""
        from .mxnet import elsewhere

        elsewhere.missing("mx.optimizer", name, sys.modules[__name__])


class Program(_core.Program):
    """An update as data: straight-line elementwise code on `sum`, `value` and states, which servers run without Python.

    Args:
        text: the program, at most 256 operations; docs/programs.md has the grammar.

    Raises:
        InvalidArgumentError: a text that is no program; the message names the line.

    Example:
        >>> program = tkv.Program('program add\\nw = add value sum\\nvalue <- w\\n')
        >>> program.name, program.states
        ('add', [])

    `set_updater` and `set_optimizer` take programs. `params` has the defaults of the hyperparameters, `param` and `set_param`
    their values now.
    """

    def __init__(self, text: str) -> None:
        """Parse the text."""
        if not isinstance(text, str):
            raise InvalidArgumentError(f"program: type {type(text).__name__}, a str is needed")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"program: the text is no valid Unicode: {error}") from None
        super().__init__(text)
        self._native = _core.Optimizer(self)

    def param(self, name: str) -> float:
        """Return the value of a hyperparameter.

        Raises:
            InvalidArgumentError: the program has no such hyperparameter.

        Example:
            >>> tkv.Program('program p\\nparam rate 0.5\\nw = mul sum rate\\nvalue <- w\\n').param('rate')
            0.5
        """
        return self._native.param(name)

    def set_param(self, name: str, value: float) -> None:
        """Change a hyperparameter: it counts from the next push on, in each store that runs this program.

        In a distributed store rank 0's value counts for all workers.

        Raises:
            InvalidArgumentError: the program has no such hyperparameter, or the value is no number.

        Example:
            >>> program = tkv.Program('program p\\nparam rate 1\\nw = mul sum rate\\nvalue <- w\\n')
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.zeros((1,)))
            >>> kv.set_updater(program)
            >>> program.set_param('rate', 3)
            >>> kv.push('w', tkv.nd.ones((1,)))
            >>> kv.pull('w').asnumpy()
            array([3.], dtype=float32)
        """
        self._native.set_param(name, number(name, value))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the text and the values of the hyperparameters."""
        return type(self), (self.text,), {name: self.param(name) for name in self.params}

    def __setstate__(self, params: dict[str, float]) -> None:
        """Take the values of the hyperparameters."""
        for name, value in params.items():
            self.set_param(name, value)


@overload
def create(
    name: Literal["sgd"],
    *,
    momentum: float = 0.0,
    lazy_update: bool = True,
    **kwargs: Unpack[HyperparametersBesideLazy],
) -> SGD: ...
@overload
def create(
    name: Literal["adam"],
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lazy_update: bool = True,
    **kwargs: Unpack[HyperparametersBesideLazy],
) -> Adam: ...
@overload
def create(name: str, **kwargs: Any) -> Optimizer: ...
def create(name: str, **kwargs: Any) -> Optimizer:
    """Return an optimizer by name, in any case; `kwargs` are the arguments of its class.

    Raises:
        KeyNotFoundError: no such optimizer, with a list of those there are.

    Example:
        >>> tkv.optimizer.create('sgd', learning_rate=0.5, momentum=0.9).momentum
        0.9
    """
    return Optimizer.create_optimizer(name, **kwargs)
