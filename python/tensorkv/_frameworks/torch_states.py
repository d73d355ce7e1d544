"""The states of a store's optimizer as a tensor, for ``torch.save``."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
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


def keep_masters(kv: KVStore, state_dict: Any, params: Mapping[str, Any]) -> None:
    """Put the states back once more if the parameters of 16 bits are those of the states: `assign` rounds their float32 masters.

    Every rank calls it with the parameters that the store has now. The rank that reads the states decides for all: without
    a file the load does nothing on any rank.

    Args:
        params: the parameters by their keys.

    Raises:
        KVError: as ``kv.load_optimizer_states``.
    """
    narrow = {key: one.detach() for key, one in params.items() if one.dtype in (torch.float16, torch.bfloat16)}
    if not narrow:
        return
    states = state_dict[STORE]
    masters = {} if states is None else _masters_in(states.cpu().numpy())
    is_theirs = any(key in narrow for key in masters) and all(
        _rounds_to(masters[key], one) for key, one in narrow.items() if key in masters
    )
    with contextlib.suppress(InvalidArgumentError):
        take_states("", kv, state_dict if is_theirs else {STORE: None})


def _masters_in(states: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the float32 masters in the content of a file of states, by their keys; docs/snapshots.md has its form."""
    size = int(states[:8].view("<u8")[0])
    header, data = json.loads(states[8 : 8 + size].tobytes()), states[8 + size :]
    found = {}
    for key in json.loads(header["__metadata__"]["tensorkv"])["keys"]:
        if key["master"]:
            tensor = header[key["parts"][0]["tensor"]]
            begin, end = tensor["data_offsets"]
            found[key["key"]] = torch.from_numpy(data[begin:end].copy().view("<f4").reshape(tensor["shape"]))
    return found


def _rounds_to(master: Any, parameter: Any) -> bool:
    """Return whether a parameter is its float32 master, rounded."""
    value = parameter.cpu()
    rounded = master.to(value.dtype)
    return bool(rounded.shape == value.shape and torch.allclose(rounded, value, rtol=0, atol=0, equal_nan=True))


def check_states(who: str, state_dict: Any) -> None:
    """Raise if a state_dict is not of an optimizer that a store runs."""
    if STORE not in state_dict:
        raise InvalidArgumentError(
            f"{who}: load_state_dict: no entry {STORE!r}; only the state_dict() of a {who} whose store runs the optimizer has"
            " its states"
        )
