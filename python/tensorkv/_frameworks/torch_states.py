"""The states of a store's optimizer as a tensor, for ``torch.save``."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import InvalidArgumentError, SnapshotNotFoundError

if TYPE_CHECKING:
    from .._store.kvstore import KVStore

# Name of the entry of a state_dict.
STORE = "store"


def states_of(kv: KVStore) -> Any:
    """Return the content of a file of `save_optimizer_states` as a tensor of bytes; None on ranks that do not write.

    Raises:
        KVError: as ``kv.save_optimizer_states``.
    """
    with tempfile.TemporaryDirectory(prefix="tkv-states-") as folder:
        file = os.path.join(folder, "states.safetensors")
        kv.save_optimizer_states(file)
        return torch.from_numpy(np.fromfile(file, np.uint8)) if os.path.exists(file) else None


def take_states(who: str, kv: KVStore, state_dict: Any) -> None:
    """Put back the states of a state_dict, on every rank; the lowest one that lives has them.

    Raises:
        InvalidArgumentError: the dict has no states of a store, or those of another rank, which has none.
        KVError: as ``kv.load_optimizer_states``.
    """
    states = state_dict[STORE]
    with tempfile.TemporaryDirectory(prefix="tkv-states-") as folder:
        file = os.path.join(folder, "states.safetensors")
        if states is not None:
            states.cpu().numpy().tofile(file)
        try:
            kv.load_optimizer_states(file)
        except SnapshotNotFoundError:
            raise InvalidArgumentError(
                f"{who}: load_state_dict: the state_dict has no states, because another rank than 0 made it; load that of rank 0"
            ) from None


def check_states(who: str, state_dict: Any) -> None:
    """Raise if a state_dict is not of an optimizer that a store runs."""
    if STORE not in state_dict:
        raise InvalidArgumentError(
            f"{who}: load_state_dict: no entry {STORE!r}; only the state_dict() of a {who} whose store runs the optimizer has"
            " its states"
        )
