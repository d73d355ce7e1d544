"""Names of PyTorch's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .errors import InvalidArgumentError, UnimplementedError


def named_of(params: Any) -> list[tuple[str | None, Any]]:
    """Return (name, parameter) of each; the name is None where there is none.

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
    """Raise where a parameter is in memory that stores do not take."""
    if parameter.device.type not in ("cpu", "cuda"):
        raise UnimplementedError(
            f"{who}: {key!r} is on {parameter.device}; stores take tensors on the CPU and on NVIDIA GPUs"
        )


def form_of(parameter: Any) -> tuple[Any, Any]:
    """Return dtype and shape."""
    return parameter.dtype, parameter.shape


def check_forms(who: str, names: Mapping[Any, str], forms: Mapping[Any, tuple[Any, Any]]) -> None:
    """Raise where a script has given a parameter another dtype or shape than its key has.

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
