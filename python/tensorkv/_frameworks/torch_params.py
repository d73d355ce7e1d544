"""Parameters of PyTorch: their names and keys, their gradients, and checks of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InvalidArgumentError, UnimplementedError
from . import stepping as _stepping

if TYPE_CHECKING:
    from .._store.kvstore import KVStore


def named_of(params: Any) -> list[tuple[str | None, Any]]:
    """Return (name, parameter) of each; the name is None if there is none.

    Args:
        params: what ``model.named_parameters()`` gives, a dict of names and parameters, parameters, or one.
    """
    if isinstance(params, torch.nn.Module):
        raise InvalidArgumentError("params: a module; model.named_parameters() is needed")
    if isinstance(params, torch.Tensor):
        params = [params]
    listed = list(params.items()) if isinstance(params, dict) else list(params)
    named: list[tuple[str | None, Any]] = [
        one if isinstance(one, tuple) and len(one) == 2 else (None, one) for one in listed
    ]
    for number, (name, parameter) in enumerate(named):
        if not isinstance(parameter, torch.Tensor):
            raise InvalidArgumentError(
                f"params: {number if name is None else name!r} has type {type(parameter).__qualname__}, a tensor is needed"
            )
    return named


def groups_of(params: Any) -> list[dict[str, Any]]:
    """Return param groups whose ``params`` are (name, parameter)."""
    if isinstance(params, (torch.Tensor, torch.nn.Module)):
        kind = "a tensor" if isinstance(params, torch.Tensor) else "a module"
        raise InvalidArgumentError(f"params: {kind}; model.named_parameters() is needed")
    listed = params if isinstance(params, dict) else list(params)
    if isinstance(listed, list) and listed and all(isinstance(one, dict) for one in listed):
        return [{**group, "params": named_of(group["params"])} for group in listed]
    return [{"params": named_of(listed)}]


def check_place(who: str, key: str, parameter: Any) -> None:
    """Raise if a parameter is in memory that stores do not take."""
    if parameter.device.type not in ("cpu", "cuda"):
        raise UnimplementedError(
            f"{who}: {key!r} is on {parameter.device}; stores take tensors on the CPU and on NVIDIA GPUs"
        )


def form_of(parameter: Any) -> tuple[Any, Any]:
    """Return dtype and shape."""
    return parameter.dtype, parameter.shape


def make_keys(kv: KVStore, params: Mapping[str, Any], unread: dict[str, Any]) -> None:
    """Make the keys of parameters, and give the parameters the values of rank 0.

    If the second part fails, the same call can be repeated: it takes keys in `unread` as made, and only reads them.

    Args:
        kv: the store.
        params: parameters by key.
        unread: the caller's record of parameters whose keys are made and whose values have not been read.

    Raises:
        AlreadyExistsError: the store has such a key, and the record does not.
    """
    new = {key: parameter for key, parameter in params.items() if unread.get(key) is not parameter or key not in kv}
    if new:
        kv.init(list(new), [parameter.detach() for parameter in new.values()])
        unread.update(new)
    values = [parameter.detach() for parameter in params.values()]
    kv.pull(list(params), out=values)
    torch.autograd.graph.increment_version(values)
    for key in params:
        unread.pop(key)


def read_trained(kv: KVStore, frozen: Mapping[str, Any], known: Iterable[str], unread: dict[str, Any]) -> None:
    """Give frozen parameters the store's values, if this worker has been started again and they have been trained
    before.

    The script unfreezes them in its first step, whose forward pass computes with these values.

    Args:
        kv: the store.
        frozen: parameters by key; those that are read count as made from then on, as in `make_keys`.
        known: keys that the store has.
        unread: as of `make_keys`.
    """
    if not frozen or not kv.rejoined:
        return
    there = _stepping.keys_there(kv, known)
    trained = {key: parameter for key, parameter in frozen.items() if key in there}
    if trained:
        make_keys(kv, trained, unread)
        unread.update(trained)


def check_forms(who: str, names: Mapping[Any, str], forms: Mapping[Any, tuple[Any, Any]]) -> None:
    """Raise if a script has given a parameter another dtype or shape than its key has.

    Args:
        who: the class that trains the parameters.
        names: their keys.
        forms: dtypes and shapes of the keys.
    """
    for parameter, (dtype, shape) in forms.items():
        if parameter.dtype != dtype:
            found, wanted = f"is {parameter.dtype}", f"{dtype}"
        elif parameter.shape != shape:
            found, wanted = f"has shape {tuple(parameter.shape)}", f"{tuple(shape)}"
        else:
            continue
        found, wanted = found.replace("torch.", ""), wanted.replace("torch.", "")
        raise InvalidArgumentError(
            f"{who}: {names[parameter]!r} {found} now, and its key {wanted}; make a new {who} behind such a change, with other"
            " names or another store"
        )


def gradient_of(where: str, who: str, key: str, parameter: Any) -> Any:
    """Return the gradient of a parameter as stores take it; zeros if there is none.

    Args:
        where: the beginning of the error.
        who: the class that trains the parameter.
        key: of the parameter.
        parameter: a tensor.
    """
    grad = parameter.grad
    if grad is None:
        return torch.zeros_like(parameter, requires_grad=False)
    if grad.is_sparse:
        raise UnimplementedError(
            f"{where}: the gradient of {key!r} is sparse, which {who} does not take; kv.push does (docs/sparse.md), and"
            " torch.nn.Embedding(sparse=False) gives a dense one"
        )
    return grad.detach()


def check_closure(local: Any) -> None:
    """Raise if an optimizer computes gradients by itself, which no store would average."""
    closure = inspect.signature(type(local).step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise UnimplementedError(
            f"KVOptimizer: {type(local).__name__} calls its closure for gradients several times in a step, and needs those of all"
            " workers each time; call step of the optimizer itself, and kv.pushpull of gradients and loss inside of the closure"
        )


def check_same(groups: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Raise if the local optimizer has other parameters."""
    mine = {p for group in groups for p in group["params"] if p.requires_grad}
    others = {p for group in theirs for p in group["params"] if p.requires_grad}
    if mine != others:
        raise InvalidArgumentError(
            f"KVOptimizer: {len(mine)} parameters, of which {len(mine & others)} are among the {len(others)} of the optimizer;"
            " the same are needed"
        )
