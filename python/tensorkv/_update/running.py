"""Optimizers that stores run without Python, and the way in which later changes of an optimizer reach the stores."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from ..errors import FailedPreconditionError, InvalidArgumentError, KeyNotFoundError, KVError

if TYPE_CHECKING:
    from .._store.kvstore import KVStore
    from ..optimizer import Optimizer


class Plan(NamedTuple):
    """The settings of an optimizer at one time, as a store needs them to run it."""

    program: str  # name of the built-in
    text: str  # the program, with what computes its learning rate and its count
    multi_precision: bool
    lazy: bool
    params: dict[str, float]
    multipliers: dict[tuple[str, Any], float]  # by hyperparameter and key
    factors: dict[Any, tuple[Any, Any]]  # lr_mult and wd_mult of the objects of param_dict, by key
    schedule: tuple[Any, ...]  # the current learning-rate schedule; empty without one


# Pairs of programs with the same effect if the momentum is 0.
_GOES_ON = {("momentum", "sgd"), ("nag", "sgd")}


def _rounds_of(store: KVStore) -> dict[Any, int]:
    """Return the rounds of all keys; another thread may delete some meanwhile."""
    rounds: dict[Any, int] = {}
    for key in store.keys():
        with contextlib.suppress(KeyNotFoundError):
            rounds[key] = store.round(key)
    return rounds


class Running:
    """An optimizer that runs in a store. The store holds this object as long as it runs the optimizer."""

    def __init__(self, optimizer: Optimizer, store: KVStore, key: Any = None) -> None:
        """Make the core's optimizer, or keep the one that the store runs now if it asks for the same.

        With a key the optimizer is for that new key alone. A store calls (`asks`) a schedule that is Python code before
        each push; a schedule that is data is computed by the store itself.
        """
        self.optimizer = optimizer
        self.asks = asks = optimizer._schedule_is_code()
        plan = optimizer._plan(asks)
        self.plan: Plan = plan
        self.program = plan.program
        self.multi_precision = plan.multi_precision
        self.lazy = plan.lazy
        self.text = plan.text
        self.key = key
        now = store._running if key is None else None
        before = now if now is not None and now.plan == plan and now.asks == asks else None
        self.goes_on = before is not None
        self.native: _core.Optimizer = (
            before.native if before else _core.Optimizer(_core.Program(plan.text), plan.multi_precision, plan.lazy)
        )
        self.params = frozenset(self.native.program.params)
        self.multipliers: dict[tuple[str, Any], float] = {**before.multipliers} if before else {}
        self._store = weakref.ref(store)
        self._turn = (
            threading.RLock()
        )  # makes pushes that ask the schedule take turns, so that a rate counts for one push
        self._pushes = 0  # the last result of `pushes`
        # The rounds of each key before this optimizer began. A restarted worker continues the optimizer of its former process.
        self._rounds_before: dict[Any, int] = (
            before._rounds_before if before else {} if store.rejoined or key is not None else _rounds_of(store)
        )
        self.factors: dict[Any, tuple[Any, Any]] = {}
        self.schedule: tuple[Any, ...] = ()
        self.named: set[Any] = set()  # keys whose factors by name are set
        self._check_keys(plan)
        self.take(plan)

    def check(self, plan: Plan, name: str) -> None:
        """Raise if the store's states do not fit a plan after a change of an attribute."""
        is_wanting = any(param not in self.params and value != 0 for param, value in plan.params.items())
        is_other = plan.program != self.program and (self.program, plan.program) not in _GOES_ON
        if is_wanting or is_other:
            kept = f"the states of the program {self.program}, not those of {plan.program}"
        elif plan.program == self.program and plan.text != self.text:
            kept = "the form of the schedule and the count that it began with"
        elif plan.multi_precision != self.multi_precision:
            kept = f"{'a' if self.multi_precision else 'no'} float32 master of 16-bit values"
        elif plan.lazy != self.lazy:
            kept = f"lazy_update={self.lazy} of the optimizer that it was given"
        else:
            kept = ""
        if kept:
            raise FailedPreconditionError(f"{name}: the store keeps {kept}; call set_optimizer again after the change")
        if plan.multipliers != self.multipliers:
            self._check_keys(plan)

    @staticmethod
    def _check_keys(plan: Plan) -> None:
        """Raise if a factor is for a value that cannot be a key."""
        trial = _core.Optimizer(_core.Program(plan.text))
        for param, key in plan.multipliers:
            trial.set_multiplier(param, key, 1.0)

    def take(self, plan: Plan) -> None:
        """Go on with a plan from the next push on."""
        for param, value in plan.params.items():
            if param in self.params:
                self.native.set_param(param, value)
        for at in {**self.multipliers, **plan.multipliers}:
            factor = plan.multipliers.get(at, 1.0)
            if factor != self.multipliers.get(at, 1.0):
                self.native.set_multiplier(*at, factor)
        self.multipliers = plan.multipliers
        self.factors = plan.factors
        self.schedule = plan.schedule
        self.plan = plan
        self.named.clear()
        self.is_watching = bool(plan.factors or plan.schedule or self.optimizer._goes_by_name or self.asks)

    def forget(self, key: Any) -> None:
        """Drop the former rounds of a key that was deleted."""
        self._rounds_before.pop(key, None)

    def go_on(self, updates: Mapping[Any, int]) -> None:
        """Set the counts of updates of keys that a store has loaded."""
        store = self._store()
        if store is None:
            return
        # In dist_async each push is an update, and each worker counts its own.
        share = store.num_workers if _core.is_async(store.type) else 1
        self._rounds_before = {key: store.round(key) - count // share for key, count in updates.items()}
        self._pushes = 0

    def _updates(self, store: KVStore, key: Any) -> int:
        """Return how many of this worker's pushes of a key are updates of this optimizer."""
        return store.round(key) - self._rounds_before.get(key, 0)

    def pushes(self) -> int:
        """Return how often this worker has pushed a key, the one with the most, since the store runs the optimizer."""
        store = self._store()
        with contextlib.suppress(FailedPreconditionError, KeyNotFoundError):  # closed or deleted meanwhile: as before
            if store is not None:
                keys = store.keys() if self.key is None else [self.key]
                mine = [key for key in keys if self.key is not None or key not in store._own]
                self._pushes = max([self._pushes, *(self._updates(store, key) for key in mine)])
        return self._pushes

    @contextlib.contextmanager
    def turn(self, keys: Any) -> Iterator[None]:
        """Return a block for a push; before it, take changes since the last push, and ask the schedule for the learning
        rate.

        The schedule and the objects of param_dict for these keys do not report their changes, so they are compared.
        """
        if not self.asks:
            self.look(keys)
            yield
            return
        with self._turn:
            self.look(keys)
            self._ask(keys)
            yield

    def _ask(self, keys: Any) -> None:
        """Take the learning rates of a push of these keys, each by the number of the update that it will be."""
        store, optimizer = self._store(), self.optimizer
        if store is None or "learning_rate" not in self.params:
            return
        try:
            counts = {
                key: self._updates(store, key) + 1
                for key in (keys if isinstance(keys, (list, tuple)) else [keys])
                if store._own.get(key, self) is self
            }
        except (TypeError, KVError):  # the verb says what is wrong with the keys
            return
        rates = {key: optimizer._rate_of(key, optimizer.begin_num_update + count) for key, count in counts.items()}
        for key, rate in rates.items():
            self.native.set_multiplier("learning_rate", key, rate)

    def look(self, keys: Any) -> None:
        """Take a schedule that is data, and the factors of these keys, as they are now."""
        if not self.asks and self.schedule != self.optimizer._schedule_now():
            self.optimizer._changed("lr_scheduler")
        for key in keys if isinstance(keys, (list, tuple)) else [keys]:
            try:
                seen = self.factors.get(key)
                if self.optimizer._goes_by_name and key not in self.named:
                    for param, factor in self.optimizer._factors_by_name(key).items():
                        self.native.set_multiplier(param, key, factor)
                    self.named.add(key)
            except (TypeError, InvalidArgumentError):  # the verb says what is wrong with the key
                return
            if seen is not None and seen != factors_of(self.optimizer.param_dict.get(key)):
                self.optimizer._changed("param_dict")
                return


def factors_of(parameter: Any) -> tuple[Any, Any]:
    """Return the factors of an object of param_dict."""
    return getattr(parameter, "lr_mult", None), getattr(parameter, "wd_mult", None)
