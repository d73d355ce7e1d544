"""Results in the caller's framework."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..context import cpu
from ..errors import InvalidArgumentError
from .elements import is_row_sparse
from .ndarray import NDArray

_ON_HOST = (1, 3, 11)  # device types of DLPack: memory of the host, plain or pinned


def _framework_of(array: object) -> str:
    """Return ``'torch'`` for a tensor of PyTorch or of a subclass, ``'jax'`` for an array of JAX, else ``''``."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, getattr(torch, "Tensor", ())):
        return "torch"
    package = str(type(array).__module__).partition(".")[0]  # a class may have anything for its module
    return "jax" if package in ("jax", "jaxlib") else ""


def _is_on_host(tensor: Any) -> bool:
    """Return whether an array of another framework is in host memory."""
    try:
        return int(tensor.__dlpack_device__()[0]) in _ON_HOST
    except (MemoryError, RecursionError):
        raise
    except Exception:  # no framework's tensor, or one that does not say: the conversion to it sees
        return True


def note_written(tensors: list[Any]) -> None:
    """Tell autograd that tensors of PyTorch were written to: a backward pass that has saved one of them raises then."""
    torch = sys.modules.get("torch")
    graph = getattr(getattr(torch, "autograd", None), "graph", None)
    increment = getattr(graph, "increment_version", None)
    if torch is None or increment is None:
        return
    counted = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor) and not tensor.is_inference()]
    if counted:
        increment(counted)


def _of_jax(array: NDArray) -> Any:
    """Return an array of JAX; raise if JAX has no such dtype, which it would convert without a word."""
    import jax

    name = array.dtype_name
    if name in ("int64", "uint64", "float64") and not jax.config.jax_enable_x64:
        raise InvalidArgumentError(
            f"pull: {name}, which JAX makes {name.replace('64', '32')} unless jax_enable_x64 is set: "
            "jax.config.update('jax_enable_x64', True); without `like`, or like NumPy's, the values come whole"
        )
    return jax.dlpack.from_dlpack(array)


def has_framework(array: object) -> bool:
    """Return whether `like` finds the framework of an array."""
    return isinstance(array, (NDArray, np.ndarray)) or is_row_sparse(array) or _framework_of(array) != ""


def _one_like(array: NDArray, like: object) -> Any:
    if isinstance(like, NDArray):
        return array
    if array.context.device_type != "cpu" and _is_on_host(like):
        array = array.as_in_context(cpu())
    if is_row_sparse(like):
        return array.tostype("row_sparse")
    framework = _framework_of(like)
    if framework == "torch":
        import torch

        if getattr(like, "is_meta", False):
            raise InvalidArgumentError(
                "pull: `like` is on the device meta, which keeps no elements;"
                " torch.empty(0) asks for a tensor on the CPU"
            )
        return torch.from_dlpack(array)  # type: ignore[attr-defined,unused-ignore]
    if framework == "jax":
        return _of_jax(array)
    if isinstance(like, np.ndarray) or hasattr(like, "__buffer__"):
        return np.asarray(array)
    raise InvalidArgumentError(
        f"pull: `like` is of type {type(like).__qualname__}; an array is needed, such as np.empty(0) or torch.empty(0)"
    )


def like(arrays: Any, example: Any) -> Any:
    """Return NDArrays as arrays of the framework of `example`, sharing their memory; lists match item by item."""
    is_list = isinstance(example, (list, tuple))
    if is_list and not example:
        raise InvalidArgumentError("like: the list of examples is empty")
    if not isinstance(arrays, list):
        return _one_like(arrays, example[0] if is_list else example)
    if not is_list:
        return [_one_like(array, example) for array in arrays]
    if len(example) != len(arrays):
        raise InvalidArgumentError(f"like: {len(example)} examples for {len(arrays)} arrays")
    return [like(array, one) for array, one in zip(arrays, example, strict=True)]
