"""Learning rates and weight decays of PyTorch's param groups, for the one optimizer of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgumentError
from ..optimizer import Optimizer

# Options of torch.optim that are an tkv.optimizer's own.
_OTHERS = {"momentum", "dampening", "nesterov", "betas", "eps", "amsgrad", "alpha", "rho", "maximize"}


class GroupRates:
    """The rates that a store's optimizer has taken from the groups.

    The optimizer's learning rate is that of the group with the largest. Keys of other groups have a factor in `lr_mult`. Weight
    decays and `wd_mult` work the same way.
    """

    def __init__(self, optimizer: Optimizer | None) -> None:
        """Take no rate yet.

        Args:
            optimizer: the one that the store runs; None if groups have no rates here.
        """
        self._optimizer = optimizer
        self._taken: list[tuple[float, float]] = []
        if optimizer is not None:
            self._lr_mult, self._wd_mult = _Factors(optimizer.lr_mult), _Factors(optimizer.wd_mult)
            self._lr, self._wd = _rate_of(optimizer), optimizer.wd

    def options(self) -> dict[str, Any]:
        """Return the options that a group may have, with their defaults."""
        base = self._optimizer
        return {"lr": _rate_of(base), "weight_decay": base.wd} if base is not None else {}

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise if a group has an option that the store's single optimizer cannot have for each group."""
        own = self.options()
        for name in group:
            if name != "params" and name not in own:
                wanted = ", ".join(own) if own else "none, because the store has its updater already"
                raise InvalidArgumentError(f"KVOptimizer: option {name!r} of a group; possible: {wanted}")

    def note(self, groups: list[dict[str, Any]]) -> None:
        """Record the groups' rates as applied, without a change of the optimizer."""
        self._taken = self._of(groups)

    def are_taken(self, groups: list[dict[str, Any]]) -> bool:
        """Return whether the optimizer has the rates of the groups."""
        return self._of(groups) == self._taken

    def take(self, groups: list[dict[str, Any]], names: Mapping[Any, str]) -> None:
        """Check the groups, and give the optimizer the rates that a scheduler or the script has changed in them.

        Args:
            groups: param groups.
            names: the keys of the parameters.

        Raises:
            InvalidArgumentError: a group has an option that the optimizer would ignore, or a rate although the optimizer has a
                schedule.
        """
        for name in (name for group in groups for name in group if name in _OTHERS):
            raise InvalidArgumentError(
                f"KVOptimizer: {name!r} of a group has been set, and of groups the store's optimizer takes lr and weight_decay; change"
                f" {name!r} of the tkv.optimizer, or use a torch.optim.Optimizer"
            )
        optimizer = self._optimizer
        if optimizer is None:
            return
        is_changed = self._lr_mult.is_changed(optimizer.lr_mult) or self._wd_mult.is_changed(optimizer.wd_mult)
        if is_changed or not self.are_taken(groups):
            self.apply(groups, names)

    def check(self, groups: list[dict[str, Any]]) -> None:
        """Raise if the optimizer cannot have the rates of the groups.

        Raises:
            InvalidArgumentError: another learning rate, although the optimizer has a schedule.
        """
        if self._optimizer is None:
            return
        lr, _ = _largest(self._of(groups))
        if lr != self._lr and self._optimizer.lr_scheduler is not None:
            raise InvalidArgumentError(
                f"KVOptimizer: a group has lr={lr}, and the optimizer has an lr_scheduler, which decides the learning rate"
            )

    def apply(self, groups: list[dict[str, Any]], names: Mapping[Any, str]) -> None:
        """Give the optimizer the rates of the groups, changed or not: a group may have new parameters.

        A rate or a factor that the script has set in the optimizer itself stays, until the groups have another largest rate.

        Raises:
            InvalidArgumentError: as `check`.
        """
        optimizer = self._optimizer
        if optimizer is None:
            return
        self.check(groups)
        rates = self._of(groups)
        lr, wd = _largest(rates)
        lr_mult, wd_mult = self._lr_mult.own(optimizer.lr_mult), self._wd_mult.own(optimizer.wd_mult)
        for group, (rate, decay) in zip(groups, rates, strict=True):
            for key in (names[parameter] for parameter in group["params"] if parameter in names):
                if rate != lr:
                    lr_mult[key] = lr_mult.get(key, 1.0) * rate / lr
                if decay != wd:
                    wd_mult[key] = wd_mult.get(key, 1.0) * decay / wd
        if lr != self._lr:
            optimizer.set_learning_rate(lr)
        if wd != self._wd:
            optimizer.wd = wd
        optimizer.lr_mult, optimizer.wd_mult = lr_mult, wd_mult
        self._lr_mult.given, self._wd_mult.given = lr_mult, wd_mult
        self._lr, self._wd, self._taken = lr, wd, rates

    def _of(self, groups: list[dict[str, Any]]) -> list[tuple[float, float]]:
        """Return the learning rate and the weight decay of each group."""
        if self._optimizer is None:
            return []
        return [(float(group["lr"]), float(group["weight_decay"])) for group in groups]


class _Factors:
    """Factors by key in `lr_mult` or `wd_mult`: the script's own, and what the groups have made of them."""

    def __init__(self, table: Mapping[Any, float]) -> None:
        """Take all factors of a table as the script's own."""
        self._own = dict(table)
        self.given = dict(table)  # the table's content after the groups' last change

    def is_changed(self, table: Mapping[Any, float]) -> bool:
        """Return whether the script has changed the table since the groups' last change."""
        return table != self.given

    def own(self, table: Mapping[Any, float]) -> dict[Any, float]:
        """Return a copy of the script's own factors, with its changes in the table."""
        kept = {key: factor for key, factor in self._own.items() if key in table}
        changed = {key: factor for key, factor in table.items() if self.given.get(key) != factor}
        self._own = {**kept, **changed}
        return dict(self._own)


def _largest(rates: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the learning rate and the weight decay of the largest absolute value."""
    return max((rate for rate, _ in rates), key=abs), max((decay for _, decay in rates), key=abs)


def _rate_of(optimizer: Optimizer) -> float:
    """Return the learning rate of new groups. With a schedule it is the first rate: the schedule decides later ones."""
    schedule = optimizer.lr_scheduler
    return optimizer.learning_rate if schedule is None else schedule(optimizer.begin_num_update)
