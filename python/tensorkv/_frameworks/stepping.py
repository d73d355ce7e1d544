"""Functions that the optimizers for PyTorch and for JAX share: checks of their store, and undoing on failure."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from .._store import together as _together
from ..errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
    UnimplementedError,
)
from ..optimizer import Optimizer, Program

if TYPE_CHECKING:
    from .._store.kvstore import KVStore

_averaged: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # whose rescale_grad has been divided


def refuse_disk(who: str, verb: str, instead: str) -> None:
    """Raise because workers have the parameters, and the store has sums of gradients."""
    raise FailedPreconditionError(
        f"{verb}: {who} of this store keeps the parameters on the workers, and the store has only sums of gradients; {instead}"
    )


def copied(who: str, instead: str) -> UnimplementedError:
    """Return the error for a copy or pickle of an object that belongs to a store.

    Args:
        who: its class.
        instead: the alternative, as an imperative.
    """
    return UnimplementedError(f"{who}: a {who} belongs to a store and cannot be copied; {instead} instead")


def written(who: str, names: list[str]) -> FailedPreconditionError:
    """Return the error for parameters that a script has written without the store's knowledge."""
    more = f" and {len(names) - 1} others" if len(names) > 1 else ""
    return FailedPreconditionError(
        f"{who}: {names[0]!r}{more} changed since the last step, and the store has other values; call assign() after the"
        " change, on every worker, or change parameters before the optimizer is made"
    )


def sum_lacking(kv: KVStore, keys: list[Any], values: list[Any], lacking: list[int]) -> None:
    """Replace values by their sums over the workers; push only the values that this step has not pushed before it failed.

    Args:
        values: one for each key; they receive the sums.
        lacking: the positions of the keys that are to be pushed.
    """
    if len(lacking) == len(keys):
        if keys:
            kv.pushpull(keys, values, values)
        return
    if lacking:
        kv.push([keys[place] for place in lacking], [values[place] for place in lacking])
    kv.pull(keys, out=values)


@contextlib.contextmanager
def equally_often(remedy: str) -> Iterator[None]:
    """Add a remedy to the error of a step that another worker does not make.

    Args:
        remedy: the call by which a worker takes part in a step that it would skip.
    """
    try:
        yield
    except (DeadlineExceededError, UnavailableError) as error:
        if not _together.lacks_remedy(error):
            raise
        raise type(error)(
            f"{error}; every worker makes the same number of steps: a worker that skips a step {remedy}"
        ) from None


def unfreezing(parameters: Collection[Any]) -> contextlib.AbstractContextManager[None]:
    """Return a block that waits for the keys of unfrozen parameters, whose error says that every worker unfreezes them.

    Args:
        parameters: those that this step has unfrozen; if there are none, errors stay as they are.
    """
    if not parameters:
        return contextlib.nullcontext()
    return _together.called_by_all(
        "every worker makes the same number of steps, and unfreezes the same parameters before the same step"
    )


def _has_updater(kv: KVStore) -> bool:
    """Return whether this worker knows of an updater of the store."""
    return kv._updater is not None or kv._native is not None or kv._running is not None


def _runs(kv: KVStore, optimizer: Optimizer | Program) -> bool:
    """Return whether the store runs this very optimizer."""
    if isinstance(optimizer, Program):
        return kv._native is optimizer._native
    return getattr(kv._updater, "optimizer", None) is optimizer


def divisor_of(kv: KVStore, average: bool) -> int:
    """Return the divisor that makes a sum a mean; 1 for an asynchronous store, in which each push is an update."""
    return kv.num_workers if average and not _core.is_async(kv.type) else 1


def keys_there(kv: KVStore, known: Iterable[str]) -> set[str]:
    """Return the keys that the servers have, of the store that has some known keys.

    Raises:
        UnavailableError: a server has not answered.
    """
    stores: dict[int, set[str]] = {}
    status = kv.status()
    for number, server in enumerate(status["servers"]):
        if server["error"]:
            raise UnavailableError(f"server {number} does not say which keys it has: {server['error']}")
    for entry in status["keys"]:
        stores.setdefault(entry["store"], set()).add(entry["key"])
    found = [names for names in stores.values() if names.issuperset(known)]
    return set.intersection(*found) if found else set()


def check_sums(who: str, kv: KVStore, instead: str) -> None:
    """Raise if a store does not give every worker the sums as they are.

    Args:
        who: the class that needs them.
        instead: the alternative for a restarted worker.
    """
    if _core.is_async(kv.type):
        raise FailedPreconditionError(f"{who}: {kv.type} has no sums of all workers; dist_sync has, or use {instead}")
    if kv.rejoined:
        raise FailedPreconditionError(
            f"{who}: this worker has lived before in this job, because it was started again or the job goes on from a snapshot, and"
            " no server has the parameters; start the job without --restore from a checkpoint of the model, or use"
            f" {instead}, with which the servers have them"
        )
    if kv._saves_by_itself:
        raise FailedPreconditionError(
            f"{who}: the store saves snapshots by itself, which would have sums of gradients and no parameters; start the job"
            f" without --snapshot-every and save the model and its optimizer, or use {instead}"
        )
    if _has_updater(kv):
        raise FailedPreconditionError(
            f"{who}: the store has an updater, and the sums are needed as they are; kv.set_updater(None) takes it away"
        )


def check_optimizer(who: str, kv: KVStore, optimizer: Any) -> None:
    """Raise if a store would change no parameters, or would change those of others in another way than before."""
    if optimizer is None:
        if kv.rank == 0 and not _has_updater(kv):
            raise FailedPreconditionError(
                f"{who}: no optimizer, and the store assigns what is pushed; give one of tkv.optimizer"
            )
        return
    if not isinstance(optimizer, (Optimizer, Program)):
        raise InvalidArgumentError(
            f"{who}: optimizer of type {type(optimizer).__qualname__}; one of tkv.optimizer, a Program or None is needed"
        )
    if optimizer in _averaged:
        raise FailedPreconditionError(f"{who}: the optimizer is another KVOptimizer's; make one for each")
    if _has_updater(kv) and not _runs(kv, optimizer):
        raise FailedPreconditionError(
            f"{who}: the store has an updater, with which it changes all its keys; optimizer=None uses that one,"
            " kv.set_updater(None) takes it away, and another store can have another"
        )


@contextlib.contextmanager
def running(kv: KVStore, optimizer: Optimizer | Program | None, divisor: int = 1) -> Iterator[None]:
    """Have a store run an optimizer that divides sums; if the block fails, both are as before."""
    was_running = optimizer is None or _runs(kv, optimizer)
    scale = optimizer.rescale_grad if isinstance(optimizer, Optimizer) else 1.0
    try:
        if isinstance(optimizer, Optimizer):
            if divisor > 1:
                optimizer.rescale_grad = scale / divisor
            kv.set_optimizer(optimizer)
        elif optimizer is not None:
            kv.set_updater(optimizer)
        yield
    except BaseException:
        if not was_running:
            with contextlib.suppress(Exception):  # the first failure is what the caller hears of
                kv.set_updater(None)
        if isinstance(optimizer, Optimizer) and divisor > 1:
            with contextlib.suppress(Exception):
                optimizer.rescale_grad = scale
        raise
    if isinstance(optimizer, Optimizer) and divisor > 1:
        _averaged.add(optimizer)
