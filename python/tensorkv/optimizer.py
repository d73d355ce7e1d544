"""Optimizers: ``mx.optimizer``. Names, formulas and defaults are those of MXNet 1.9.1.

The built-in ones are update programs that run in the store; a class with a Python ``update`` of its own works too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

from . import _core
from . import ndarray as nd
from .errors import InvalidArgumentError, KeyNotFoundError, UnimplementedError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._types import Hyperparameters, OtherHyperparameters
    from .ndarray import NDArray

__all__ = ["SGD", "Adam", "Optimizer", "Program", "Test", "Updater", "create", "get_updater", "register"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


_INFINITY = float("inf")
O = TypeVar("O", bound="type[Optimizer]")


class Program(_core.Program):
    """An update as data: straight-line elementwise code on `sum`, `value` and states, which servers run without Python.

    Args:
        text: the program, at most 256 operations; docs/programs.md has the grammar.

    Raises:
        InvalidArgumentError: a text that is no program; the message names the line.

    Example:
        >>> program = mx.Program('program add\\nw = add value sum\\nvalue <- w\\n')
        >>> program.name, program.states
        ('add', [])
    """

    def __init__(self, text: str) -> None:
        """Parse the text."""
        super().__init__(text)


class Optimizer:
    """Base class. A subclass may define ``create_state(index, weight)`` and ``update(index, weight, grad, state)``.

    Args:
        rescale_grad: factor of every gradient.
        param_idx2name: dict from integer keys to names, for `set_lr_mult` and `set_wd_mult`.
        wd: weight decay.
        clip_gradient: bound of each element of the rescaled gradient; None does not clip.
        learning_rate: default 0.01.
        lr_scheduler: ``f(num_update)`` that gives the learning rate.
        begin_num_update: the count of updates to start from.
        multi_precision: float16 and bfloat16 weights keep a float32 master.
        param_dict: dict from keys to objects with ``lr_mult`` and ``wd_mult``.
        sym: accepted, unused.

    Example:
        >>> class Halve(mx.optimizer.Optimizer):
        ...     def update(self, index, weight, grad, state):
        ...         weight -= grad * 0.5
        >>> kv = mx.kv.create('local')
        >>> kv.init(0, mx.nd.ones((2,)))
        >>> kv.set_optimizer(Halve())
        >>> kv.push(0, mx.nd.ones((2,)))
        >>> kv.pull(0).asnumpy()
        array([0.5, 0.5], dtype=float32)
    """

    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}
    _program: str | None = None  # name of the built-in that `update` is
    _mapping: ClassVar[dict[str, str]] = {}  # hyperparameter of the program -> attribute

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Mapping[int, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: Callable[[int], float] | None = None,
        sym: object = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        """Keep the hyperparameters."""
        if lr_scheduler is not None and learning_rate is not None:
            lr_scheduler.base_lr = learning_rate  # type: ignore[attr-defined]  # as MXNet gives it to schedulers
        self.lr: float = 0.01 if learning_rate is None else learning_rate
        self.lr_scheduler = lr_scheduler
        self.rescale_grad = rescale_grad
        self.wd = wd
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.begin_num_update = begin_num_update
        self.num_update: int = begin_num_update
        self._index_update_count: dict[Any, int] = {}
        self.idx2name: dict[Any, str] = dict(param_idx2name or {})
        self.param_dict: dict[Any, Any] = dict(param_dict or {})
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    # ------------------------------------------------------------------------------------------------------ registry

    @staticmethod
    def register(klass: O) -> O:
        """Make `create` find the class `klass` by its name in lower case; return it. A decorator.

        Example:
            >>> @mx.optimizer.register
            ... class Mine(mx.optimizer.SGD):
            ...     pass
            >>> type(mx.optimizer.create('mine', learning_rate=1)).__name__
            'Mine'
            >>> del mx.optimizer.Optimizer.opt_registry['mine']
        """
        Optimizer.opt_registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Return an optimizer by name, in any case.

        Raises:
            KeyNotFoundError: no such optimizer, with a list of those there are.

        Example:
            >>> mx.optimizer.Optimizer.create_optimizer('sgd', learning_rate=0.5).learning_rate
            0.5
        """
        klass = Optimizer.opt_registry.get(str(name).lower())
        if klass is None:
            raise KeyNotFoundError(f"optimizer {name!r}: there are {', '.join(sorted(Optimizer.opt_registry))}")
        return klass(**kwargs)

    # ------------------------------------------------------------------------------------------------ hyperparameters

    def __setattr__(self, name: str, value: object) -> None:
        """Pass changes of hyperparameters on to stores that run this optimizer."""
        object.__setattr__(self, name, value)
        native = self.__dict__.get("_native")
        if native is not None and not name.startswith("_"):
            self._push_params(native)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self.lr_scheduler(self.num_update) if self.lr_scheduler is not None else self.lr

    @learning_rate.setter
    def learning_rate(self, lr: float) -> None:
        self.set_learning_rate(lr)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate; stores use it from the next push on."""
        if self.lr_scheduler is not None:
            raise InvalidArgumentError(
                "set_learning_rate: the optimizer has an lr_scheduler, which decides the learning rate"
            )
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Set factors of the learning rate, a dict from keys or names."""
        self.lr_mult = dict(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set factors of the weight decay, a dict from keys or names.

        As in MXNet, named parameters that end neither in ``_weight`` nor in ``_gamma`` start at 0.
        """
        mult: dict[Any, float] = {
            name: 0.0 for name in self.idx2name.values() if not name.endswith(("_weight", "_gamma"))
        }
        mult.update(args_wd_mult)
        self.wd_mult = mult

    def _factor(self, index: Any, table: Mapping[Any, float], attribute: str) -> float:
        if index in self.param_dict:
            return float(getattr(self.param_dict[index], attribute))
        if index in table:
            return table[index]
        return table.get(self.idx2name.get(index), 1.0)

    def _get_lr(self, index: Any) -> float:
        """Return the learning rate for one key."""
        return self.learning_rate * self._factor(index, self.lr_mult, "lr_mult")

    def _get_wd(self, index: Any) -> float:
        """Return the weight decay for one key."""
        return self.wd * self._factor(index, self.wd_mult, "wd_mult")

    def _update_count(self, index: Any) -> None:
        """Count one update of a key."""
        count = self._index_update_count.get(index, self.begin_num_update) + 1
        self._index_update_count[index] = count
        self.num_update = max(count, self.num_update)

    # ---------------------------------------------------------------------------------------------------------- native

    def _program_name(self) -> str:
        return self._program or ""

    def _make_native(self) -> _core.Optimizer:
        native = _core.Optimizer.create(self._program_name(), {}, bool(self.multi_precision))
        self._push_params(native)
        return native

    def _push_params(self, native: _core.Optimizer) -> None:
        names = native.program.params
        for param, attribute in self._mapping.items():
            if param not in names:
                continue
            value = getattr(self, attribute)
            if param == "clip_gradient":
                value = value or _INFINITY
            native.set_param(param, float(value))
        for param, table, attribute in (("learning_rate", self.lr_mult, "lr_mult"), ("wd", self.wd_mult, "wd_mult")):
            if param not in names:
                continue
            for key in {*table, *self.idx2name, *self.param_dict}:
                native.set_multiplier(param, key, float(self._factor(key, table, attribute)))

    def _why_not_native(self) -> str:
        """Return what of this optimizer has to run in Python, with the way to do without; '' if nothing has to."""
        own = type(self)
        builtin: type[Any] = next((c for c in own.__mro__ if "_program" in c.__dict__), Optimizer)
        if self._program is None or own.update is not builtin.update or own.create_state is not builtin.create_state:
            return f"the update of {own.__name__} is Python code; a mx.Program can say it as data"
        if self.lr_scheduler is not None:
            return (
                "it has an lr_scheduler, which is Python code; leave it out, and let rank 0 call "
                "optimizer.set_learning_rate(...) before its push"
            )
        return "begin_num_update is counted in Python" if self.begin_num_update else ""

    def _native_for_store(self) -> _core.Optimizer | None:
        """Return the core's optimizer if the store can run it alone, without calling back into Python."""
        if self._why_not_native():
            return None
        native = self.__dict__["_native"] = self._make_native()
        return native

    # ---------------------------------------------------------------------------------------------------------- update

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """Return the state for one key: for built-ins a list of arrays, for others None."""
        if self._program is None:
            return None
        dtype = "float32" if weight.dtype_name in ("float16", "bfloat16") else weight.dtype_name
        states = _core.Optimizer.create(self._program_name()).program.states
        return [nd.zeros(weight.shape, weight.context, dtype) for _ in states]

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """Return the state for one key, with a float32 master where the optimizer keeps one."""
        state = self.create_state(index, weight)
        if self.multi_precision and weight.dtype_name in ("float16", "bfloat16"):
            return (weight.astype("float32"), state)
        return state

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change `weight` in place by `grad`; subclasses define it."""
        if self._program is None:
            raise UnimplementedError(f"{type(self).__name__}: the class defines no update(index, weight, grad, state)")
        self._apply(index, weight, grad, state, None)

    def update_multi_precision(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """As `update`, through the master where there is one."""
        if self._program is None or not (self.multi_precision and weight.dtype_name in ("float16", "bfloat16")):
            self.update(index, weight, grad, state)
            return
        self._apply(index, weight, grad, state[1], state[0])

    def _apply(self, index: Any, weight: NDArray, grad: NDArray, states: Any, master: NDArray | None) -> None:
        self._update_count(index)
        native = _core.Optimizer.create(self._program_name())
        self._push_params(native)
        if "learning_rate" in native.program.params:
            native.set_param("learning_rate", float(self.learning_rate))
        native.apply(index, self._index_update_count[index], grad, weight, list(states), master)


def register(klass: O) -> O:
    """Make `create` find the class `klass` by its name in lower case; return it. A decorator.

    Example:
        >>> @mx.optimizer.register
        ... class Other(mx.optimizer.Adam):
        ...     pass
        >>> mx.optimizer.create('other').lr
        0.001
        >>> del mx.optimizer.Optimizer.opt_registry['other']
    """
    return Optimizer.register(klass)


@overload
def create(
    name: Literal["sgd"], *, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Unpack[Hyperparameters]
) -> SGD: ...
@overload
def create(
    name: Literal["adam"],
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    lazy_update: bool = True,
    **kwargs: Unpack[Hyperparameters],
) -> Adam: ...
@overload
def create(name: str, **kwargs: Any) -> Optimizer: ...
def create(name: str, **kwargs: Any) -> Optimizer:
    """Return an optimizer by name, in any case; `kwargs` are the arguments of its class.

    Raises:
        KeyNotFoundError: no such optimizer, with a list of those there are.

    Example:
        >>> mx.optimizer.create('sgd', learning_rate=0.5, momentum=0.9).momentum
        0.9
    """
    return Optimizer.create_optimizer(name, **kwargs)


_COMMON = {
    "learning_rate": "lr",
    "wd": "wd",
    "rescale_grad": "rescale_grad",
    "clip_gradient": "clip_gradient",
}


@register
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum where `momentum` is not 0.

    ``weight -= lr * (clip(rescale_grad * grad) + wd * weight)``; with momentum
    ``mom = momentum * mom - lr * (...); weight += mom``.

    Args:
        momentum: factor of the last step.
        lazy_update: accepted; every gradient is dense.
        **kwargs: those of Optimizer.

    Example:
        >>> mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=1e-4).lr
        0.1
    """

    _program = "sgd"
    _mapping = {**_COMMON, "momentum": "momentum"}

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Unpack[Hyperparameters]) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        self.lazy_update = lazy_update
        super().__init__(**kwargs)

    def _program_name(self) -> str:
        return "momentum" if self.momentum != 0 else "sgd"


@register
class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv 1412.6980) in MXNet's form: the bias correction is in the learning rate.

    Args:
        learning_rate: default 0.001.
        beta1: decay of the mean.
        beta2: decay of the variance.
        epsilon: added to the root of the variance.
        lazy_update: accepted; every gradient is dense.
        **kwargs: those of Optimizer.

    Example:
        >>> mx.optimizer.Adam().lr
        0.001
    """

    _program = "adam"
    _mapping = {**_COMMON, "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update
        super().__init__(learning_rate=learning_rate, **kwargs)


@register
class Test(Optimizer):
    """``weight += rescale_grad * grad``, for tests.

    Example:
        >>> mx.optimizer.create('test', rescale_grad=2).rescale_grad
        2
    """

    __test__ = False  # not a test class for pytest
    _program = "test"
    _mapping = {"rescale_grad": "rescale_grad"}


class Updater:
    """What `get_updater` returns: call it as ``updater(index, grad, weight)``.

    Attributes:
        optimizer: the optimizer.
        states: dict from key to state.

    Example:
        >>> updater = mx.optimizer.Updater(mx.optimizer.SGD(learning_rate=1, momentum=0.9))
        >>> updater(0, mx.nd.ones((2,)), mx.nd.ones((2,)))
        >>> len(updater.states)
        1
    """

    def __init__(self, optimizer: Optimizer) -> None:
        """Keep the optimizer; states are made at the first update of each key."""
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Change `weight` in place by `grad`; keys and arrays may be lists."""
        if isinstance(index, (list, tuple)):
            for one in zip(index, grad, weight, strict=True):
                self(*one)
            return
        if index not in self.states:
            self.states[index] = self.optimizer.create_state_multi_precision(index, weight)
        self.optimizer.update_multi_precision(index, weight, grad, self.states[index])


def get_updater(optimizer: Optimizer) -> Updater:
    """Return a function ``updater(index, grad, weight)`` that runs `optimizer` and keeps its state.

    Example:
        >>> updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=1))
        >>> w = mx.nd.ones((2,))
        >>> updater(0, mx.nd.ones((2,)), w)
        >>> w.asnumpy()
        array([0., 0.], dtype=float32)
    """
    return Updater(optimizer)
