"""Results in the caller's framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._elements import is_row_sparse
from .context import cpu
from .errors import InvalidArgumentError
from .ndarray import NDArray

_ON_HOST = (1, 3, 11)  # device types of DLPack: memory of the host, plain or pinned


def _is_on_host(tensor: Any) -> bool:
    """Return whether an array of another framework lies in memory of the host."""
    try:
        return int(tensor.__dlpack_device__()[0]) in _ON_HOST
    except Exception:  # no framework's tensor, or one that does not say: whoever converts to it sees
        return True


def _one_like(array: NDArray, like: object) -> Any:
    if isinstance(like, NDArray):
        return array
    if array.context.device_type != "cpu" and _is_on_host(like):
        array = array.as_in_context(cpu())
    if is_row_sparse(like):
        return array.tostype("row_sparse")
    module = type(like).__module__.partition(".")[0]
    if module == "torch":
        import torch

        return torch.from_dlpack(array)  # type: ignore[attr-defined,unused-ignore]
    if module in ("jax", "jaxlib"):
        import jax

        return jax.dlpack.from_dlpack(array)
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
