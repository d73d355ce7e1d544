"""Schedules of the learning rate: ``tkv.lr_scheduler``, with MXNet's names and arguments.

A schedule is a function of the number of an update, from 1. The classes here are data: a store computes them itself, on its
servers too, with the number of updates of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from . import _core
from ._update.checks import number, whole
from .errors import InvalidArgumentError, UnimplementedError

__all__ = ["CosineScheduler", "FactorScheduler", "LRScheduler", "MultiFactorScheduler", "PolyScheduler"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class LRScheduler:
    """Base class; a subclass defines ``__call__(num_update)``.

    Args:
        base_lr: the learning rate to start from. An optimizer that is given a `learning_rate` too sets it.
        warmup_steps: number of first updates that warm up.
        warmup_begin_lr: the learning rate at which they begin; at most `base_lr`.
        warmup_mode: 'linear' or 'constant' (`warmup_begin_lr` throughout).

    Raises:
        InvalidArgumentError: a number or mode that is none of these.

    Example:
        >>> class Inverse(tkv.lr_scheduler.LRScheduler):
        ...     def __call__(self, num_update):
        ...         return self.base_lr / max(1, num_update)
        >>> Inverse(base_lr=1.0)(4)
        0.25
    """

    # Attributes that are numbers of the schedule's program, and the lines that compute `after` from them and `count`.
    _numbers: ClassVar[tuple[str, ...]] = ()
    _code: ClassVar[str] = ""

    def __init__(
        self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0.0, warmup_mode: str = "linear"
    ) -> None:
        """Keep the arguments."""
        self.base_lr: float = base_lr
        self.warmup_steps: int = whole("warmup_steps", warmup_steps, 0)
        self.warmup_begin_lr: float = number("warmup_begin_lr", warmup_begin_lr)
        self.warmup_mode: str = warmup_mode
        if warmup_mode not in ("linear", "constant"):
            raise InvalidArgumentError(f"warmup_mode: {warmup_mode!r}; there are 'linear' and 'constant'")
        if self.warmup_begin_lr > number("base_lr", base_lr):
            raise InvalidArgumentError(
                f"warmup_begin_lr: {warmup_begin_lr} is more than base_lr, {base_lr}, and a warm-up goes up"
            )

    @property
    def warmup_final_lr(self) -> float:
        """The learning rate at which the warm-up ends: `base_lr`."""
        return self.base_lr

    def get_warmup_lr(self, num_update: int) -> float:
        """Return the learning rate of an update of the warm-up.

        Raises:
            InvalidArgumentError: the warm-up is over by then.

        Example:
            >>> tkv.lr_scheduler.LRScheduler(base_lr=1.0, warmup_steps=4).get_warmup_lr(1)
            0.25
        """
        if not 0 <= num_update < self.warmup_steps:
            raise InvalidArgumentError(f"get_warmup_lr: update {num_update}; the warm-up has {self.warmup_steps} steps")
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        return self.warmup_begin_lr + (self.base_lr - self.warmup_begin_lr) * num_update / self.warmup_steps

    def __call__(self, num_update: int) -> float:
        """Return the learning rate of an update; `num_update` counts from 1."""
        if not self._code:
            raise UnimplementedError(f"{type(self).__name__}: the class defines no __call__(num_update)")
        if num_update < self.warmup_steps and not self._warms_up_as_here():
            return self.get_warmup_lr(num_update)
        text = f"program schedule\n{self._text('t')}w = mul sum scheduled\nvalue <- w\n"
        native = _core.Optimizer(_core.Program(text))
        for name, value in self._params().items():
            native.set_param(name, value)
        return native.scalar("scheduled", num_update)

    def _is_data(self) -> bool:
        """Return whether the schedule is one of this module, unchanged."""
        return bool(self._code) and type(self).__call__ is LRScheduler.__call__ and self._warms_up_as_here()

    def _warms_up_as_here(self) -> bool:
        """Return whether neither the class nor the object has a get_warmup_lr of its own."""
        return getattr(self.get_warmup_lr, "__func__", None) is LRScheduler.get_warmup_lr

    def _lines(self) -> str:
        """Return the code of the class."""
        return self._code

    def _params(self) -> dict[str, float]:
        """Return the numbers of the schedule by the names that its program has for them."""
        names = ("base_lr", "warmup_steps", "warmup_begin_lr", *self._numbers)
        return {f"lr_{name}": number(name, getattr(self, name)) for name in names}

    def _text(self, count: str) -> str:
        """Return params and scalar code that computes `scheduled` from the number of the update, a scalar of this name."""
        params = "".join(f"param {name.removeprefix('lr_')} 0\n" for name in self._params())
        if self.warmup_mode == "constant":
            warm = "warm = add warmup_begin_lr 0\n"
        else:
            warm = (
                "warm_range = sub base_lr warmup_begin_lr\nwarm_part = mul warm_range {count}\n"
                "warm_rise = div warm_part warmup_steps\nwarm = add warmup_begin_lr warm_rise\n"
            )
        code = self._lines() + warm + "is_warm = lt {count} warmup_steps\nscheduled = select is_warm warm after\n"
        lines = [line.split(" ") for line in (params + code.replace("{count}", count)).splitlines()]
        # Names that the code of no optimizer has.
        own = {words[1] if words[0] == "param" else words[0] for words in lines} - {"scheduled"}
        return "".join(" ".join(f"lr_{word}" if word in own else word for word in words) + "\n" for words in lines)


class FactorScheduler(LRScheduler):
    """``base_lr * factor ** floor((num_update - 1) / step)``, but from the first reduction on at least `stop_factor_lr`.

    Args:
        step: number of updates between reductions.
        factor: at most 1.
        stop_factor_lr: the least learning rate.
        base_lr: as in LRScheduler, as are `warmup_steps`, `warmup_begin_lr` and `warmup_mode`.
        warmup_steps: see LRScheduler.
        warmup_begin_lr: see LRScheduler.
        warmup_mode: see LRScheduler.

    Example:
        >>> schedule = tkv.lr_scheduler.FactorScheduler(step=10, factor=0.5, base_lr=1.0)
        >>> [schedule(n) for n in (1, 10, 11, 21)]
        [1.0, 1.0, 0.5, 0.25]
    """

    _numbers = ("step", "factor", "stop_factor_lr")
    _code = (
        "passed = sub {count} 1\nparts = div passed step\nwhole = floor parts\nreductions = max whole 0\n"
        "power = pow factor reductions\nreduced = mul base_lr power\nbounded = max stop_factor_lr reduced\n"
        "after = select reductions bounded base_lr\n"
    )

    def __init__(
        self,
        step: int,
        factor: float = 1.0,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        """Keep the arguments."""
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.step: int = whole("step", step, 1)
        self.factor: float = _factor(factor)
        self.stop_factor_lr: float = number("stop_factor_lr", stop_factor_lr)


class MultiFactorScheduler(LRScheduler):
    """``base_lr * factor ** k``, where `k` counts the steps below `num_update`.

    Args:
        step: increasing numbers of updates, at most 50.
        factor: at most 1.
        base_lr: see LRScheduler.
        warmup_steps: see LRScheduler.
        warmup_begin_lr: see LRScheduler.
        warmup_mode: see LRScheduler.

    Example:
        >>> schedule = tkv.lr_scheduler.MultiFactorScheduler(step=[10, 15], factor=0.1, base_lr=1.0)
        >>> [round(schedule(n), 4) for n in (10, 11, 15, 16)]
        [1.0, 0.1, 0.1, 0.01]
    """

    _numbers = ("factor",)
    _code = "power = pow factor reductions\nafter = mul base_lr power\n"
    _STEPS_MAX: ClassVar[int] = 50

    def __init__(
        self,
        step: Sequence[int],
        factor: float = 1.0,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        """Keep the arguments."""
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, (list, tuple)) or not 1 <= len(step) <= self._STEPS_MAX:
            raise InvalidArgumentError(f"step: {step!r}; a list of 1 to {self._STEPS_MAX} numbers is needed")
        self.step: list[int] = [whole("step", one, 1) for one in step]
        if any(after <= before for before, after in zip(self.step, self.step[1:], strict=False)):
            raise InvalidArgumentError(f"step: {step!r}; the numbers have to increase")
        self.factor: float = _factor(factor)

    def _lines(self) -> str:
        counted = "reductions_0 = add 0 0\n" + "".join(
            f"is_past_{i} = gt {{count}} {one}\nreductions_{i} = add reductions_{i - 1} is_past_{i}\n"
            for i, one in enumerate(self.step, 1)
        )
        return f"{counted}reductions = add reductions_{len(self.step)} 0\n{self._code}"


class PolyScheduler(LRScheduler):
    """``final_lr + (base_lr - final_lr) * (1 - p) ** pwr``, where `p` is the part of `max_update` behind the warm-up.

    Args:
        max_update: number of the update that reaches `final_lr`; more than `warmup_steps`.
        base_lr: see LRScheduler.
        pwr: the power.
        final_lr: the learning rate at the end.
        warmup_steps: see LRScheduler.
        warmup_begin_lr: see LRScheduler.
        warmup_mode: see LRScheduler.

    Example:
        >>> schedule = tkv.lr_scheduler.PolyScheduler(max_update=10, base_lr=1.0)
        >>> [round(schedule(n), 4) for n in (1, 5, 10, 99)]
        [0.81, 0.25, 0.0, 0.0]
    """

    _numbers = ("max_update", "power", "final_lr")
    _code = (
        "last = min {count} max_update\nbehind = sub last warmup_steps\nwhole = sub max_update warmup_steps\n"
        "part = div behind whole\nrest = sub 1 part\nshape = pow rest power\n"
        "range = sub base_lr final_lr\nabove = mul range shape\nafter = add final_lr above\n"
    )

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        """Keep the arguments."""
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.max_update: int = whole("max_update", max_update, self.warmup_steps + 1)
        self.power: float = number("pwr", pwr)
        self.final_lr: float = number("final_lr", final_lr)


class CosineScheduler(LRScheduler):
    """``final_lr + (base_lr - final_lr) * (1 + cos(pi * p)) / 2``, where `p` is the part of `max_update` behind the warm-up.

    Args:
        max_update: number of the update that reaches `final_lr`; more than `warmup_steps`.
        base_lr: see LRScheduler.
        final_lr: the learning rate at the end.
        warmup_steps: see LRScheduler.
        warmup_begin_lr: see LRScheduler.
        warmup_mode: see LRScheduler.

    Example:
        >>> schedule = tkv.lr_scheduler.CosineScheduler(max_update=10, base_lr=1.0)
        >>> [round(schedule(n), 4) for n in (5, 10)]
        [0.5, 0.0]
    """

    _numbers = ("max_update", "final_lr")
    _code = (
        "last = min {count} max_update\nbehind = sub last warmup_steps\nwhole = sub max_update warmup_steps\n"
        "part = div behind whole\nangle = mul part 3.141592653589793\nwave = cos angle\nraised = add wave 1\n"
        "shape = div raised 2\nrange = sub base_lr final_lr\nabove = mul range shape\nafter = add final_lr above\n"
    )

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        """Keep the arguments."""
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.max_update: int = whole("max_update", max_update, self.warmup_steps + 1)
        self.final_lr: float = number("final_lr", final_lr)


def _factor(factor: object) -> float:
    """Return a factor that reduces."""
    value = number("factor", factor)
    if not 0 <= value <= 1:
        raise InvalidArgumentError(f"factor: {factor!r}, from 0 to 1 is needed; the learning rate goes down")
    return value
