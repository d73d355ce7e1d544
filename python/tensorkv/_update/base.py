"""The base class of optimizers: hyperparameters, the stores that learn of their changes, and updates in Python."""

from __future__ import annotations

import functools
import inspect
import numbers
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from .. import _core
from .._array import nd
from .._hints import check_names
from ..context import cpu
from ..errors import FailedPreconditionError, InvalidArgumentError, KeyNotFoundError, UnimplementedError
from ..lr_scheduler import LRScheduler
from .checks import number, whole
from .reporting_dict import ReportingDict
from .running import Plan, Running, factors_of
from .traced import check_elements

if TYPE_CHECKING:
    from .._array.ndarray import NDArray
    from .._store.kvstore import KVStore

_INFINITY = float("inf")
_MISSING = object()
_INSTEAD = (
    "set_updater reads a function of (key, input, stored) as a program, and a tkv.Program says the update as data"
)
_HOOKS_OF_MXNET = ("_update_impl", "_get_lrs", "_get_wds", "fused_step")
_DICTS = ("lr_mult", "wd_mult", "idx2name", "param_dict")
_ARGUMENTS = {"lr": "learning_rate", "float_stable_eps": "eps"}  # attributes that an argument of another name sets
O = TypeVar("O", bound="type[Optimizer]")
F = TypeVar("F", bound=Callable[..., None])


def _parts(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return the lines of a program: its name and params, its states, its code."""
    lines = text.splitlines()
    params = [line for line in lines if line.startswith(("program ", "param "))]
    states = [line for line in lines if line.startswith(("state ", "scalar "))]
    return params, states, lines[len(params) + len(states) :]


def _joined(params: list[str], states: list[str], code: list[str]) -> str:
    return "\n".join([*params, *states, *code, ""])


def _with_count(text: str) -> str:
    """Return a program whose updates are counted from another number on."""
    params, states, code = _parts(text)
    counted = [" ".join("count" if word == "t" else word for word in line.split(" ")) for line in code]
    return _joined([*params, "param begin_num_update 0"], states, ["count = add t begin_num_update", *counted])


def _with_schedule(text: str, schedule: str) -> str:
    """Return a program whose learning rate is `scheduled`, the result of a schedule, times the key's factor."""
    params, states, code = _parts(text)
    of_schedule, _, lines = _parts(schedule)
    kept = [line for line in params if not line.startswith("param learning_rate ")]
    computed = [*lines, "learning_rate = mul scheduled lr_mult"]
    if code[0].startswith("count = "):  # which the schedule may use
        computed = [code.pop(0), *computed]
    return _joined([*kept, "param lr_mult 1", *of_schedule], states, [*computed, *code])


def bound(name: str, value: object) -> float:
    """Return a bound of elements; None, 0 and negative ones do not bind."""
    if isinstance(value, numbers.Real) and value != value:
        raise InvalidArgumentError(f"{name}: nan is no bound; None does not clip")
    found = _INFINITY if value is None else number(name, value)
    return found if found > 0 else _INFINITY


def _hyperparameter(name: str, value: object) -> float:
    """Return an attribute that is a hyperparameter, as the number that programs have for it."""
    is_bound = name.startswith("clip_") or name.endswith("_bound")
    return (bound if is_bound else number)(_ARGUMENTS.get(name, name), value)


def _with_hints(init: F) -> F:
    """Decorate ``Optimizer.__init__``: a name that it does not know is a TypeError that proposes the nearest one there is."""

    def names_of(function: Callable[..., Any]) -> list[str]:
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [p.name for p in inspect.signature(function).parameters.values() if p.kind not in kinds]

    own = frozenset(names_of(init))

    @functools.wraps(init)
    def checked(self: Optimizer, *args: Any, **options: Any) -> None:
        if not own.issuperset(options):
            known = [name for klass in type(self).__mro__[:-1] for name in names_of(klass)]
            check_names(type(self).__name__, "argument", options.keys() - own, known)
        init(self, *args, **options)

    return cast(F, checked)


class Optimizer:
    """Base class. A subclass may define ``create_state(index, weight)`` and ``update(index, weight, grad, state)``.

    Args:
        rescale_grad: factor of every gradient.
        param_idx2name: dict from integer keys to names, for `set_lr_mult` and `set_wd_mult`.
        wd: weight decay.
        clip_gradient: bound of each element of the rescaled gradient; None, 0 and negative ones do not clip.
        learning_rate: default 0.01, or the `base_lr` of `lr_scheduler`.
        lr_scheduler: ``f(num_update)`` that gives the learning rate.
        begin_num_update: the count of updates to start from.
        multi_precision: float16 and bfloat16 weights keep a float32 master.
        param_dict: dict from keys to objects with ``lr_mult`` and ``wd_mult``.
        lazy_update: of a row-sparse gradient update the rows that it has, and leave the others with their states. False:
            update all rows, those that it has not by a gradient of 0, so that momentum and weight decay go on.
        sym: accepted, unused.

    `lr_mult`, `wd_mult`, `idx2name` and `param_dict` are copies of the dicts that were given. A store that runs the optimizer
    sees each later change at its next push, in place or by assignment; a change that it cannot take is an error and leaves
    the optimizer as it was. A subclass with methods or properties of its own in the place of a built-in's runs as Python,
    which distributed stores refuse.

    Example:
        >>> class Halve(tkv.optimizer.Optimizer):
        ...     def update(self, index, weight, grad, state):
        ...         weight -= grad * 0.5
        >>> kv = tkv.kv.create('local')
        >>> kv.init(0, tkv.nd.ones((2,)))
        >>> kv.set_optimizer(Halve())
        >>> kv.push(0, tkv.nd.ones((2,)))
        >>> kv.pull(0).asnumpy()
        array([0.5, 0.5], dtype=float32)
    """

    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}
    _program: str | None = None  # name of the built-in that `update` is
    _mapping: ClassVar[dict[str, str]] = {}  # hyperparameter of the program -> attribute
    _numbers: ClassVar[frozenset[str]] = frozenset(("lr", "wd", "rescale_grad", "clip_gradient"))
    _learning_rate: ClassVar[float] = 0.01  # where none is given
    _goes_by_name = False  # whether hyperparameters depend on the name of a key

    @_with_hints
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
        lazy_update: bool = True,
    ) -> None:
        """Keep the hyperparameters."""
        self._check_hooks()
        if lr_scheduler is not None and not callable(lr_scheduler):
            kind = type(lr_scheduler).__name__
            raise InvalidArgumentError(f"lr_scheduler: type {kind}, a function of the number of the update is needed")
        self.lr: float = self._learning_rate if learning_rate is None else learning_rate
        if lr_scheduler is not None and learning_rate is not None:
            lr_scheduler.base_lr = learning_rate  # type: ignore[attr-defined]  # as MXNet gives it to schedulers
        self.lr_scheduler = lr_scheduler
        self.rescale_grad = rescale_grad
        self.wd = wd
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.lazy_update = lazy_update
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self._index_update_count: dict[Any, int] = {}
        self.idx2name: dict[Any, str] = param_idx2name or {}  # type: ignore[assignment]  # a copy, as are the others
        self.param_dict: dict[Any, Any] = param_dict or {}  # type: ignore[assignment]
        self.lr_mult: dict[Any, float] = {}
        self.wd_mult: dict[Any, float] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    def _check_hooks(self) -> None:
        """Raise if a class defines what only the update of MXNet's classes calls, and inherits the update of this package."""
        own = type(self)
        if not str(own.update.__module__).startswith("tensorkv."):
            return
        for name in _HOOKS_OF_MXNET:
            if getattr(own, name, None) is not getattr(Optimizer, name, None):
                raise UnimplementedError(
                    f"{own.__name__}: no update calls {name} here; define update, or _get_lr and _get_wd of one key"
                )

    # ------------------------------------------------------------------------------------------------------ registry

    @staticmethod
    def register(klass: O) -> O:
        """Make `create` find the class `klass` by its name in lower case; return it. A decorator.

        Example:
            >>> @tkv.optimizer.register
            ... class Mine(tkv.optimizer.SGD):
            ...     pass
            >>> type(tkv.optimizer.create('mine', learning_rate=1)).__name__
            'Mine'
            >>> del tkv.optimizer.Optimizer.opt_registry['mine']
        """
        Optimizer.opt_registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Return an optimizer by name, in any case.

        Raises:
            KeyNotFoundError: no such optimizer, with a list of those there are.

        Example:
            >>> tkv.optimizer.Optimizer.create_optimizer('sgd', learning_rate=0.5).learning_rate
            0.5
        """
        klass = Optimizer.opt_registry.get(str(name).lower())
        if klass is None:
            known = sorted(Optimizer.opt_registry)
            nearest = _core.nearest(str(name).lower(), known)
            hint = f"did you mean {nearest!r}? There" if nearest else "there"
            raise KeyNotFoundError(f"optimizer {name!r}: {hint} are {', '.join(known)}")
        return klass(**kwargs)

    # ------------------------------------------------------------------------------------------------ hyperparameters

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; stores that run this optimizer see it at their next push, or it stays as it was."""
        if name in _DICTS:
            value = ReportingDict(self, name, value)  # type: ignore[arg-type]  # it raises if the value is no dict
        elif name == "begin_num_update":
            value = whole(name, value, 0)
        elif name in self._numbers:
            _hyperparameter(name, value)  # it raises if the value is none
        before = self.__dict__.get(name, _MISSING)
        object.__setattr__(self, name, value)
        self._tell(name, before)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute; as `__setattr__`."""
        before = self.__dict__.get(name, _MISSING)
        object.__delattr__(self, name)
        self._tell(name, before)

    def _tell(self, name: str, before: object) -> None:
        """Pass a change of an attribute on, or take it back and raise."""
        try:
            self._changed(name)
        except BaseException:
            if before is not _MISSING:
                self.__dict__[name] = before
            else:
                self.__dict__.pop(name, None)
            raise

    def _is_watched(self) -> bool:
        """Return whether a store runs this optimizer without Python."""
        return bool(self.__dict__.get("_stores"))

    def _changed(self, name: str) -> None:
        """Have all stores that run this optimizer without Python take a change, or raise before any has."""
        stores = list(self.__dict__.get("_stores", ()))
        if not stores or name in ("num_update", "_index_update_count"):
            return
        plans = {}
        for asks in {store.asks for store in stores}:
            why = self._why_not_native(asks)
            if why:
                raise FailedPreconditionError(
                    f"{name}: a store runs this optimizer without Python, and now {why}; or call set_optimizer again"
                )
            plans[asks] = self._plan(asks)
        for store in stores:
            store.check(plans[store.asks], name)
        for store in stores:
            store.take(plans[store.asks])

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickle and copy; stores that run the original do not run the copy."""
        return {name: value for name, value in self.__dict__.items() if name != "_stores"} | {
            "num_update": self.num_update
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes, with dicts of its own."""
        for name, value in state.items():
            self.__dict__[name] = ReportingDict(self, name, value) if name in _DICTS else value

    @property
    def num_update(self) -> int:
        """How often the key with the most updates has been updated, from `begin_num_update` on.

        If a store runs the optimizer without Python, each push of this worker since `set_optimizer` counts as an
        update. After the store has loaded a snapshot, the count continues from that of the snapshot. The pushes of
        other workers in ``dist_async`` do not count, because this worker does not learn of them.
        """
        stores: list[Running] = list(self.__dict__.get("_stores", ()))
        own: int = self.__dict__["num_update"]
        return max([own, *(self.begin_num_update + store.pushes() for store in stores)])

    @num_update.setter
    def num_update(self, count: int) -> None:
        self.__dict__["num_update"] = count

    @property
    def learning_rate(self) -> float:
        """The learning rate now: of a schedule that of update `num_update`, the last one.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.ones((2,)))
            >>> schedule = tkv.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0)
            >>> optimizer = tkv.optimizer.SGD(lr_scheduler=schedule)
            >>> kv.set_optimizer(optimizer)
            >>> for _ in range(3):
            ...     kv.push('w', tkv.nd.ones((2,)))
            >>> optimizer.num_update, optimizer.learning_rate
            (3, 0.5)
        """
        return self._rate(self.num_update)

    @learning_rate.setter
    def learning_rate(self, lr: float) -> None:
        self.set_learning_rate(lr)

    def _rate(self, count: int) -> float:
        """Return the learning rate of an update.

        Raises:
            InvalidArgumentError: the schedule gives no number.
        """
        if self.lr_scheduler is None:
            return self.lr
        given: Any = self.lr_scheduler(count)
        try:
            if getattr(given, "ndim", 0) == 0 and not isinstance(given, (str, bytes, bytearray)):
                return float(given)
        except (TypeError, ValueError, OverflowError):
            pass
        from .reading import title_of

        raise InvalidArgumentError(
            f"lr_scheduler: {title_of(self.lr_scheduler)} gives {given!r} for update {count}, a number is needed"
        )

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate; stores use it from the next push on."""
        if self.lr_scheduler is not None:
            raise InvalidArgumentError(
                "set_learning_rate: the optimizer has an lr_scheduler, which decides the learning rate"
            )
        self.lr = lr

    def set_lr_scale(self, args_lrscale: Mapping[Any, float]) -> NoReturn:
        """Refuse, as MXNet does: `set_lr_mult` took its place."""
        raise UnimplementedError("set_lr_scale: MXNet has given it up; set_lr_mult sets factors of the learning rate")

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Set factors of the learning rate, a dict from keys or names."""
        self.lr_mult = args_lr_mult  # type: ignore[assignment]  # a copy

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set factors of the weight decay, a dict from keys or names.

        As in MXNet, named parameters that end neither in ``_weight`` nor in ``_gamma`` start at 0.
        """
        mult: dict[Any, float] = {
            name: 0.0 for name in self.idx2name.values() if not name.endswith(("_weight", "_gamma"))
        }
        self.wd_mult = {**mult, **ReportingDict(self, "wd_mult", args_wd_mult)}

    def _factor(self, index: Any, table: Mapping[Any, float], attribute: str) -> float:
        name = f"{attribute} of {index!r}"
        if index in self.param_dict:
            return number(name, getattr(self.param_dict[index], attribute))
        if index in table:
            return number(name, table[index])
        return number(name, table.get(self.idx2name.get(index), 1.0))

    def _rate_of(self, index: Any, count: int | None = None) -> float:
        """Return the learning rate for one key, in one of its updates or now."""
        try:
            rate = number("learning_rate", self.learning_rate if count is None else self._rate(count))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"key {index!r}: {error}") from None
        return rate * self._factor(index, self.lr_mult, "lr_mult")

    def _get_lr(self, index: Any) -> float:
        """Return the learning rate for one key."""
        return self._rate_of(index)

    def _get_wd(self, index: Any) -> float:
        """Return the weight decay for one key."""
        return self.wd * self._factor(index, self.wd_mult, "wd_mult")

    def _get_lrs(self, indices: Sequence[Any]) -> list[float]:
        """Return the learning rate for each of these keys."""
        return [self._get_lr(index) for index in indices]

    def _get_wds(self, indices: Sequence[Any]) -> list[float]:
        """Return the weight decay for each of these keys."""
        return [self._get_wd(index) for index in indices]

    def _update_count(self, index: Any) -> None:
        """Count one update of a key, or of each key of a list."""
        if isinstance(index, (list, tuple)):
            for one in index:
                self._update_count(one)
            return
        count = self._index_update_count.get(index, self.begin_num_update) + 1
        self._index_update_count[index] = count
        self.num_update = max(count, self.num_update)

    # ---------------------------------------------------------------------------------------------------------- native

    def _program_name(self, states: list[NDArray] | None = None) -> str:
        """Return the name of the program that updates weights with these states, which starts with the right ones."""
        return self._program or ""

    def _params(self) -> dict[str, float]:
        """Return the hyperparameters of the program."""
        return {param: _hyperparameter(name, getattr(self, name)) for param, name in self._mapping.items()}

    def _factors_by_name(self, index: Any) -> dict[str, float]:
        """Return factors of hyperparameters that depend on the name of a key."""
        return {}

    def _schedule(self) -> LRScheduler | None:
        """Return the schedule of the learning rate, if that is data."""
        schedule = self.lr_scheduler
        return schedule if isinstance(schedule, LRScheduler) and schedule._is_data() else None

    def _schedule_is_code(self) -> bool:
        """Return whether there is a schedule of the learning rate which only Python can compute."""
        return self.lr_scheduler is not None and self._schedule() is None

    def _schedule_now(self) -> tuple[Any, ...]:
        """Return the values that the schedule computes with; () without a schedule."""
        schedule = self._schedule()
        if schedule is None:
            return ()
        return (type(schedule), schedule.warmup_mode, schedule._lines(), *schedule._params().values())

    def _plan(self, asks: bool = False) -> Plan:
        """Return the settings with which stores run this optimizer.

        With `asks` a store takes the learning rate before each push.
        """
        name, params, schedule = self._program_name(), self._params(), None if asks else self._schedule()
        text = _core.Optimizer.create(name).program.text
        rate = "learning_rate"
        count = "t"
        if self.begin_num_update:
            count = "count"
            params["begin_num_update"] = float(self.begin_num_update)
            text = _with_count(text)
        if schedule is not None and rate in params:
            del params[rate]
            rate = "lr_mult"
            params.update({rate: 1.0, **schedule._params()})
            text = _with_schedule(text, schedule._text(count))
        if asks and rate in params:
            params[rate] = 1.0
        multipliers: dict[tuple[str, Any], float] = {}
        for param, table, attribute in ((rate, self.lr_mult, "lr_mult"), ("wd", self.wd_mult, "wd_mult")):
            if param in params and not (asks and param == rate):
                for key in {**table, **self.idx2name, **self.param_dict}:
                    multipliers[param, key] = self._factor(key, table, attribute)
        factors = {key: factors_of(parameter) for key, parameter in self.param_dict.items()}
        now = () if asks else self._schedule_now()
        return Plan(name, text, bool(self.multi_precision), bool(self.lazy_update), params, multipliers, factors, now)

    def _why_not_native(self, asks: bool = False) -> str:
        """Return the part of this optimizer that has to run in Python, with a remedy; '' if no part has to.

        With `asks` a schedule that is Python code is no reason, because the store calls it before each push.
        """
        own = type(self)
        known = _behaviour_of(own)
        changed = None if known is None else next((n for n in known if self._is_changed(n, known[n])), None)
        if known is None or changed == "update":
            return f"the update of {own.__name__} is Python code; {_INSTEAD}"
        if changed is not None:
            return f"{own.__name__} has a {changed} of its own, which is Python code; {_INSTEAD}"
        if not asks and self._schedule_is_code():
            return "it has an lr_scheduler which is Python code; those of tkv.lr_scheduler are data"
        return ""

    def _is_changed(self, name: str, known: object) -> bool:
        """Return whether a class, or this object, has put something in the place of a method of the built-in."""
        return _found(type(self), name) is not known or (known is not None and name in self.__dict__)

    def _run_in(
        self, store: KVStore, key: Any = None, start: Callable[[_core.Optimizer], None] | None = None
    ) -> Running | None:
        """Make a store run this optimizer for as long as the store holds the result; return None if updates need
        Python.

        If the optimizer that the store runs now asks for the same, its states stay. With `key` the optimizer is for
        that key alone, which `start` creates.
        """
        if self._why_not_native(asks=True):
            return None
        running = Running(self, store, key)
        stores = self.__dict__.setdefault("_stores", weakref.WeakSet())
        stores.add(running)
        try:
            (start or store._set_optimizer)(running.native)
        except BaseException:
            stores.discard(running)
            raise
        if not running.goes_on:  # earlier counts of the store do not count here
            self.num_update = max(self._index_update_count.values(), default=self.begin_num_update)
        return running

    # ---------------------------------------------------------------------------------------------------------- update

    def create_state(self, index: Any, weight: NDArray) -> Any:
        """Return the state for one key: for built-ins a list of arrays, for others None."""
        if self._program is None:
            return None
        check_elements(weight)
        dtype = "float32" if weight.dtype_name in ("float16", "bfloat16") else weight.dtype_name
        program = _core.Optimizer.create(self._program_name()).program
        arrays = [nd.zeros(weight.shape, weight.context, dtype) for _ in program.states]
        context = weight.context if weight.context.device_type == "cpu" else cpu()  # the host computes scalars
        return arrays + [nd.full((1,), start, context, "float64") for start in program.scalar_states.values()]

    def create_state_multi_precision(self, index: Any, weight: NDArray) -> Any:
        """Return the state for one key, with a float32 master if the optimizer keeps one."""
        if not self._has_master(weight):
            return self.create_state(index, weight)
        master = weight.astype("float32")
        return (master, self.create_state(index, master))

    def _has_master(self, weight: NDArray) -> bool:
        if not self.multi_precision:
            return False
        check_elements(weight)
        return weight.dtype_name in ("float16", "bfloat16")

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change `weight` in place by `grad`; subclasses define it. Lists are updated entry by entry."""
        if isinstance(index, (list, tuple)):
            for one in zip(index, weight, grad, state, strict=True):
                self.update(*one)
            return
        if self._program is None:
            raise UnimplementedError(f"{type(self).__name__}: the class defines no update(index, weight, grad, state)")
        self._apply(index, weight, grad, state, None)

    def update_multi_precision(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        """As `update`, through the master if there is one; a store gives it sums of 16-bit values as float32."""
        if isinstance(index, (list, tuple)):
            for one in zip(index, weight, grad, state, strict=True):
                self.update_multi_precision(*one)
            return
        if not self._has_master(weight):
            self.update(index, weight, grad, state)
            return
        master, inner = state
        known = _behaviour_of(type(self))
        is_native = known is not None and not self._is_changed("update", known["update"])
        if is_native and grad.dtype_name == weight.dtype_name:
            self._apply(index, weight, grad, inner, master)
            return
        self.update(index, master, grad.astype("float32"), inner)
        weight[:] = master.astype(weight.dtype_name)

    def _apply(self, index: Any, weight: NDArray, grad: NDArray, states: Any, master: NDArray | None) -> None:
        """Change the weight by the program of a built-in; a failure counts no update."""
        check_elements(weight)
        arrays: list[NDArray] = [] if states is None else [states] if isinstance(states, nd.NDArray) else list(states)
        count = self._count_of(index)
        try:
            self._update_count(index)
            native = _core.Optimizer.create(self._program_name(arrays))
            known = native.program.params
            for param, value in self._params().items():
                if param in known:
                    native.set_param(param, value)
            for param, get in (("learning_rate", self._get_lr), ("wd", self._get_wd)):
                if param in known:
                    native.set_param(param, number(param, get(index)))
            for param, factor in self._factors_by_name(index).items():
                native.set_multiplier(param, index, factor)
            _apply_native(
                native, index, self._index_update_count[index], grad, weight, arrays, master, self.lazy_update
            )
        except BaseException:
            self._set_count(index, count)
            raise

    def _count_of(self, index: Any) -> tuple[Any, Any]:
        """Return the counts that an update of a key changes; None if there is none."""
        counts: dict[Any, int] = self.__dict__.get("_index_update_count", {})
        return self.__dict__.get("num_update"), counts.get(index)

    def _counts(self) -> dict[Any, int]:
        """Return how often each key has been updated here, from `begin_num_update` on."""
        return dict(self.__dict__.get("_index_update_count", {}))

    def _set_counts(self, counts: dict[Any, int]) -> None:
        """Go on from the counts of a snapshot."""
        self.__dict__["_index_update_count"] = counts
        self.num_update = max(counts.values(), default=self.begin_num_update)

    def _set_count(self, index: Any, count: tuple[Any, Any]) -> None:
        """Set the counts back."""
        if count[0] is not None:
            self.num_update = count[0]
        counts: dict[Any, int] = self.__dict__.get("_index_update_count", {})
        if count[1] is None:
            counts.pop(index, None)
        else:
            counts[index] = count[1]


def register(klass: O) -> O:
    """Make `create` find the class `klass` by its name in lower case; return it. A decorator.

    Example:
        >>> @tkv.optimizer.register
        ... class Other(tkv.optimizer.Adam):
        ...     pass
        >>> tkv.optimizer.create('other').lr
        0.001
        >>> del tkv.optimizer.Optimizer.opt_registry['other']
    """
    return Optimizer.register(klass)


def _apply_native(
    native: _core.Optimizer,
    index: Any,
    count: int,
    grad: Any,
    weight: NDArray,
    states: list[NDArray],
    master: NDArray | None,
    is_lazy: bool,
) -> None:
    """Update a weight, or the rows of it that a row-sparse gradient has."""
    from .._array import row_sparse

    if not row_sparse.is_rows(grad):
        native.apply(index, count, grad, weight, states, master)
        return
    if not is_lazy or "reduce_sum" in native.program.text:  # which needs a weight whole
        native.apply(index, count, grad.tostype("default"), weight, states, master)
        return
    if grad.shape != weight.shape:
        raise InvalidArgumentError(
            f"update of {index!r}: a gradient of shape {grad.shape}, the weight has {weight.shape}"
        )
    whole = [array for array in (weight, *states, master) if array is not None and array.shape == weight.shape]
    rows = [row_sparse.gather(array, grad._ids) for array in whole]
    part = {id(array): picked for array, picked in zip(whole, rows, strict=True)}
    if not len(grad._ids):
        return
    native.apply(
        index,
        count,
        grad._data,
        part[id(weight)],
        [part.get(id(state), state) for state in states],
        None if master is None else part[id(master)],
    )
    for array, picked in zip(whole, rows, strict=True):
        row_sparse.scatter(picked, grad._ids, array)


def _found(klass: type[Any], name: str) -> object:
    """Return the attribute of a class as its defining class holds it; None if there is none."""
    return next((c.__dict__[name] for c in klass.__mro__ if name in c.__dict__), None)


# The methods and attributes of each built-in optimizer as they were when the package was loaded. A class with another
# value under one of these names, or with one of these attributes as a property, has to run in Python at each update.
_BEHAVIOUR: dict[type[Any], dict[str, object]] = {}
_NAMES = (
    *("update", "update_multi_precision", "create_state", "create_state_multi_precision", "_update_count"),
    *("learning_rate", "_get_lr", "_get_wd", "_factor", "_params", "_plan", "_apply", "_program", "_program_name"),
    *("_goes_by_name", "_factors_by_name", "lower_bound", "upper_bound"),
    *(
        "lr_scheduler",
        "begin_num_update",
        "multi_precision",
        "lazy_update",
        "__getattr__",
        "__getattribute__",
        "__setattr__",
    ),
    *("_mapping", *_DICTS),
)


def builtin(klass: O) -> O:
    """Register a class whose updates need no Python, and whose hyperparameters are numbers. A decorator."""
    klass._numbers = klass._numbers.union(klass._mapping.values())
    _BEHAVIOUR[klass] = {name: _found(klass, name) for name in (*_NAMES, *klass._mapping.values())}
    return register(klass)


def instance_hint(given: object) -> str:
    """Return how the name or the class of an optimizer becomes one, as the end of an error; of anything else nothing."""
    if isinstance(given, str):
        return f"; tkv.optimizer.create({given!r}) makes one"
    if isinstance(given, type) and issubclass(given, Optimizer):
        return f"; {given.__name__}() makes one"
    return ""


def _behaviour_of(klass: type[Any]) -> dict[str, object] | None:
    """Return the `_BEHAVIOUR` of the nearest built-in among a class and its bases."""
    return next((_BEHAVIOUR[c] for c in klass.__mro__ if c in _BEHAVIOUR), None)
