"""States of an updater as bytes: a length, a JSON text, the arrays. No pickle, so that reading runs no code."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from .._array import nd
from .._array.elements import Elements
from .._array.files import PICKLE, is_pickle
from ..context import cpu
from ..errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

_FORMAT = "tensorkv-states 1"
_TEXT_MAX = 1 << 28  # bytes
_DEPTH_MAX = 16
_DTYPES = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "complex64": 8,
}


def _bits(array: nd.NDArray) -> np.ndarray[Any, Any]:
    """Return the elements of an array as bytes."""
    return np.ascontiguousarray(array._numpy_for_reading()).reshape(-1).view(np.uint8)


def pack(states: dict[Any, Any], verb: str = "get_states", owner: str | None = None) -> bytes:
    """Return states, which are arrays (NumPy's too), numbers, texts, None, and lists, tuples and dicts of them.

    Args:
        states: by key.
        verb: begins the message of an error.
        owner: the name of the function that keeps the states.

    Raises:
        UnimplementedError: something else in a state, a key that is neither str nor int, a state whose containers are nested
            more than 16 deep, or texts and numbers of more than 256 MiB.
    """
    arrays: list[np.ndarray[Any, Any]] = []

    def form_of(state: Any, key: object, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise UnimplementedError(f"{verb}: the state of {key!r} is nested more than {_DEPTH_MAX} deep")
        if isinstance(state, nd.NDArray):
            arrays.append(_bits(state))
            return {"array": [state.dtype_name, list(state.shape)]}
        if type(state) is np.ndarray and state.dtype.name in _DTYPES:
            native = state if state.dtype.isnative else state.astype(state.dtype.newbyteorder("="))
            arrays.append(np.ascontiguousarray(native).reshape(-1).view(np.uint8))
            return {"numpy": [state.dtype.name, list(state.shape)]}
        if type(state) is tuple:  # a named one would come back without its names
            return {"tuple": [form_of(one, key, depth + 1) for one in state]}
        if isinstance(state, list):
            return {"list": [form_of(one, key, depth + 1) for one in state]}
        if isinstance(state, dict) and all(isinstance(name, str) for name in state):
            return {"dict": {name: form_of(one, key, depth + 1) for name, one in state.items()}}
        if state is None or isinstance(state, (bool, int, float, str)):
            return {"value": state}
        raise UnimplementedError(f"{verb}: the state of {key!r} has a {type(state).__qualname__} in it")

    forms = []
    for key, state in states.items():
        if isinstance(key, bool) or not isinstance(key, (int, str)):
            raise UnimplementedError(f"{verb}: the key {key!r} is neither int nor str")
        forms.append([key, form_of(state, key, 0)])
    document = {"format": _FORMAT, "states": forms} | ({} if owner is None else {"owner": owner})
    text = json.dumps(document).encode()
    if len(text) > _TEXT_MAX:
        raise UnimplementedError(
            f"{verb}: texts and numbers of the states have {len(text)} bytes, at most {_TEXT_MAX} are saved"
        )
    return b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays)])


def unpack(content: bytes, verb: str = "set_states", owner: str | None = None) -> dict[Any, Any]:
    """Return the states that `pack` made bytes of.

    Raises:
        InvalidArgumentError: other bytes.
        FailedPreconditionError: both name an owner, and it is another one.
    """
    try:
        states, found = _unpack(memoryview(content).cast("B"))
        if owner is None or found is None or found == owner:
            return states
        raise FailedPreconditionError(
            f"{verb}: the states are of the function {found!r}, the store's is {owner!r}; set_updater with {found!r} comes first"
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = str(error) or type(error).__name__
    raise InvalidArgumentError(f"{verb}: not what get_states gives: {why[:200]}")


def _unpack(content: memoryview) -> tuple[dict[Any, Any], str | None]:
    """Return the states, and the name of the function that keeps them."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(len(content) - 8, _TEXT_MAX):
        raise ValueError(PICKLE if is_pickle(bytes(content[:2])) else "cut off")
    document = json.loads(bytes(content[8 : 8 + size]))
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"the format is not {_FORMAT}")
    at = 8 + size

    def state_of(form: Any, depth: int) -> Any:
        nonlocal at
        if depth > _DEPTH_MAX or not isinstance(form, dict) or len(form) != 1:
            raise ValueError("a state that is none")
        ((kind, what),) = form.items()
        if kind == "value" and (what is None or isinstance(what, (bool, int, float, str))):
            return what
        if kind == "tuple":
            return tuple(state_of(one, depth + 1) for one in what)
        if kind == "list":
            return [state_of(one, depth + 1) for one in what]
        if kind == "dict" and isinstance(what, dict):
            return {str(name): state_of(one, depth + 1) for name, one in what.items()}
        if kind not in ("array", "numpy"):
            raise ValueError(f"there is {kind!r} in it")
        dtype, shape = what
        if any(isinstance(extent, bool) or not isinstance(extent, int) or extent < 0 for extent in shape):
            raise ValueError(f"a shape is {shape}")
        count = _DTYPES[dtype] * math.prod(shape)
        if count > len(content) - at:
            raise ValueError("cut off")
        if kind == "numpy":
            array: Any = np.empty(tuple(shape), dtype)
            elements: Any = array
        else:
            array = nd.empty(tuple(shape), cpu(), dtype=dtype)
            elements = array._numpy_for_writing() if count else array
        if count:
            elements.reshape(-1).view(np.uint8)[...] = np.frombuffer(content[at : at + count], np.uint8)
        at += count
        return array

    states: dict[Any, Any] = {}
    for key, form in document["states"]:
        if isinstance(key, bool) or not isinstance(key, (int, str)) or key in states:
            raise ValueError(f"a key is {key!r}")
        states[key] = state_of(form, 0)
    if at != len(content):
        raise ValueError("there is more behind it")
    owner = document.get("owner")
    if owner is not None and not isinstance(owner, str):
        raise ValueError(f"the owner is {owner!r}")
    return states, owner


def in_context(state: Any, context: Any) -> Any:
    """Return a state with its arrays in a context; those that are there are the same arrays."""
    if isinstance(state, Elements):
        return state.as_in_context(context)  # type: ignore[attr-defined]  # every array is an NDArray
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(in_context(one, context) for one in state))
    if isinstance(state, (tuple, list)):
        return type(state)(in_context(one, context) for one in state)
    if isinstance(state, dict):
        return {name: in_context(one, context) for name, one in state.items()}
    return state
