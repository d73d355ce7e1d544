"""Results in the caller's framework."""

import numpy as np

from .errors import InvalidArgumentError
from .ndarray import NDArray


def _one_like(array, like):
    if isinstance(like, NDArray):
        return array
    module = type(like).__module__.partition(".")[0]
    if module == "torch":
        import torch

        return torch.from_dlpack(array)
    if module in ("jax", "jaxlib"):
        import jax

        return jax.dlpack.from_dlpack(array)
    if isinstance(like, np.ndarray) or hasattr(like, "__buffer__"):
        return np.asarray(array)
    raise InvalidArgumentError(f"like: no arrays of type {type(like).__module__}.{type(like).__qualname__} can be made")


def like(arrays, like):
    """Return NDArrays as arrays of the framework of `like`, sharing their memory; lists match item by item."""
    if not isinstance(arrays, list):
        first = like[0] if isinstance(like, (list, tuple)) else like
        return _one_like(arrays, first)
    if not isinstance(like, (list, tuple)):
        return [_one_like(array, like) for array in arrays]
    if len(like) != len(arrays):
        raise InvalidArgumentError(f"like: {len(like)} examples for {len(arrays)} arrays")
    return [globals()["like"](array, one) for array, one in zip(arrays, like, strict=True)]
