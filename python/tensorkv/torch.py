"""The store as an optimizer of PyTorch, and as a Trainer with MXNet's names: ``tensorkv.torch``.

This module needs PyTorch; ``import tensorkv`` does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._frameworks.torch_optimizer import KVOptimizer
from ._frameworks.torch_trainer import Trainer
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .ndarray.sparse import RowSparseNDArray

__all__ = ["KVOptimizer", "Trainer", "sparse_tensor"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def sparse_tensor(array: RowSparseNDArray) -> Any:
    """Return a row-sparse array as a ``torch.sparse_coo`` tensor, whose rows share the memory of ``array.data``.

    The first axis of the tensor is sparse; the other way is `tkv.nd.sparse.row_sparse_array`, and verbs take such tensors as
    they are.

    Args:
        array: a RowSparseNDArray.

    Raises:
        InvalidArgumentError: a shape of 2**63 elements or more, such as that of a table without an end.

    Example:
        >>> rows = tkv.nd.sparse.row_sparse_array(([[1, 2]], [3]), shape=(4, 2))
        >>> tkv.torch.sparse_tensor(rows).to_dense().tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0]]
    """
    if array.size >= 2**63:
        raise InvalidArgumentError(
            f"sparse_tensor: shape {array.shape}; PyTorch has fewer than 2**63 elements, and indices and data have the rows"
        )
    indices = torch.from_dlpack(array.indices).reshape(1, -1)  # type: ignore[attr-defined,unused-ignore]
    rows = torch.from_dlpack(array.data)  # type: ignore[attr-defined,unused-ignore]
    return torch.sparse_coo_tensor(indices, rows, array.shape, is_coalesced=True)
