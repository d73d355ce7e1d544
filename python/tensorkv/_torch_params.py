"""Names of PyTorch's parameters."""

from __future__ import annotations

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
