"""Fingerprints of values, by which two looks at the values of a program find a change."""

from __future__ import annotations

import array
import contextvars
import ctypes
import datetime
import decimal
import fractions
import functools
import hashlib
import io
import itertools
import mmap
import pickle
import random
import sys
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .._array.elements import Elements

VALUES = (  # compared by value; other objects without attributes by identity
    *(int, float, complex, str, bytes, type(None), np.generic, range, slice),
    *(decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta),
)
_IDS_OF_VALUES = frozenset(map(id, VALUES))
_PLAIN = frozenset(map(id, (int, str, bytes)))  # classes
VALUES_MAX = 100_000  # in a look; also the first elements of a container that are compared
SHORT = 1000  # elements of a container that are compared one by one
ELEMENTS_MAX = 1_000_000  # of longer containers, in a look
_BYTES_MAX = 64 << 20  # of an array that is compared whole
_SAMPLES = 4096  # elements of a larger array
ITERATOR = "an iterator"
HEAP_TYPE = 1 << 9  # in `__flags__` of a class that Python code has made
_BUFFERS = (
    bytearray,
    array.array,
    ctypes.Array,
    ctypes.Structure,
    ctypes._SimpleCData,
    memoryview,
    mmap.mmap,
)  # of elements that no name holds


def is_a(value: Any, kinds: Any) -> bool:
    """Return whether a value has one of some classes; a proxy is asked nothing."""
    return issubclass(type(value), kinds)


# Attributes of a class. A metaclass may have code of its own under these names; it is not called.
bases_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
name_of_class: Callable[[type], str] = type.__dict__["__name__"].__get__
module_of_class: Callable[[type], Any] = type.__dict__["__module__"].__get__


class Same:
    """An object that is compared by identity, and kept so that no other one gets its address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def digest(values: np.ndarray[Any, Any], is_kept: bool = False) -> tuple[Any, ...]:
    """Return a fingerprint of an array's elements.

    For a large array it is that of a sample, with the array's address if its memory is kept.
    """
    about: tuple[Any, ...] = (str(values.dtype), values.shape)
    if values.nbytes > _BYTES_MAX:
        about += (values.__array_interface__["data"][0] if is_kept else None,)
        at = np.linspace(0, values.size - 1, min(_SAMPLES, values.size)).astype(np.int64)
        values = np.asarray(values)[np.unravel_index(at, values.shape)]
    return *about, _hash(np.ascontiguousarray(values).tobytes())


def is_tensor(kind: type) -> bool:
    """Return whether a class is one of PyTorch's tensors, without an import of PyTorch."""
    return _has_base(kind, "Tensor", "torch") or _has_base(kind, "TensorBase", "torch")


def is_generator_of_torch(kind: type) -> bool:
    """Return whether a class is one of PyTorch's generators of random numbers, without an import of PyTorch."""
    return _has_base(kind, "Generator", "torch._C")


def _has_base(kind: type, name: str, module: str) -> bool:
    return any(name_of_class(one) == name and module_of_class(one) == module for one in bases_of(kind))


def state_of_torch(generator: Any) -> bytes:
    """Return the state of a generator of PyTorch's random numbers."""
    return bytes(sys.modules["torch"]._C.Generator.get_state(generator).numpy())


def tensor_digest(value: Any) -> tuple[Any, ...]:
    """Return a fingerprint of a tensor's elements: also of one with a gradient, and of a dtype that NumPy lacks."""
    torch = sys.modules["torch"]
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(value.element_size(), torch.int64)
    held = value.detach().reshape(-1).view(whole).numpy()
    return str(value.dtype), tuple(value.shape), *digest(held)


def _hash(content: Any) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _bytes_of(value: Any) -> tuple[Any, ...]:
    """Return a fingerprint of a buffer: for a large buffer that of a sample."""
    view = memoryview(value)
    content = bytes(view) if view.nbytes <= _BYTES_MAX else view[:: max(1, len(view) // _SAMPLES)].tobytes()
    return type(value), view.nbytes, _hash(content)


def worth(value: Any) -> tuple[Any, ...]:
    """Return a fingerprint of a value of `VALUES`. A class that a script has derived may show its values in another way."""
    if id(type(value)) in _PLAIN:
        return type(value), value
    kind: Any = next(
        one for one in bases_of(type(value)) if id(one) in _IDS_OF_VALUES or module_of_class(one) == "numpy"
    )
    return type(value), kind.__repr__(value)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Iterate over the items of a dict without methods of its class; an OrderedDict has an order of its own."""
    kind: Any = OrderedDict if is_a(value, OrderedDict) else dict
    return iter(kind.items(value))


def first_of(value: Any) -> list[tuple[str, str, Any]]:
    """Return the first elements of a container, each with a unique step and its part of the path."""
    if is_a(value, dict):
        times: Counter[str] = Counter()  # other keys may look the same
        found = []
        for key, one in itertools.islice(_items(value), VALUES_MAX):
            text = repr(key)
            found.append((f"[{text}]{times[text]}", f"[{text}]", one))
            if not is_a(key, VALUES):
                found.append((f"[{text}]{times[text]} key", f"a key {type(key).__name__}", key))
            times[text] += 1
        return found
    if is_a(value, (set, frozenset)):
        held = itertools.islice(value, VALUES_MAX)  # numbers and texts are in the fingerprint of the set
        return [(f"{{{id(one)}}}", f"an element {type(one).__name__}", one) for one in held if not is_a(one, VALUES)]
    return [(f"[{i}]", f"[{i}]", one) for i, one in enumerate(itertools.islice(value, VALUES_MAX))]


def is_iterator(value: Any) -> bool:
    """Return whether a value has a hidden position that moves: a file that is read, or an iterator written in C."""
    if is_a(value, io.IOBase):
        try:
            return bool(value.readable())
        except Exception:  # of a closed file
            return False
    if is_a(value, weakref.ProxyTypes):
        return False
    return hasattr(type(value), "__next__") and not is_a(type(value).__next__, FunctionType)


def elements_of(value: Any) -> Any:
    """Return a container whose elements are objects, or None."""
    if is_a(value, (list, tuple, deque, dict, set, frozenset)):
        return value
    if hasattr(type(value), "__array__") and not is_a(value, Elements):
        try:
            array = np.asarray(value)
        except Exception:  # elements on a device
            return None
        return array.flat if array.dtype == object else None
    return None


def fingerprint(value: Any, names: set[str]) -> Any:
    """Return a fingerprint of an object's own content, without the values that it holds.

    Args:
        names: those that the watched code uses.
    """
    if is_a(value, random.SystemRandom):
        return ITERATOR
    if is_a(value, random.Random):
        return hash(value.getstate())
    if is_a(value, np.random.Generator):
        return pickle.dumps(value.bit_generator.state)
    if is_a(value, np.random.RandomState):
        return pickle.dumps(value.get_state(legacy=False))
    if is_a(value, np.random.BitGenerator):
        return pickle.dumps(value.state)
    if is_a(value, np.random.SeedSequence):
        return repr(value.state)
    if is_generator_of_torch(type(value)):
        return state_of_torch(value)
    if is_a(value, contextvars.ContextVar):
        return Same(value.get(None))
    if is_a(value, weakref.ref):
        return Same(weakref.ref.__call__(value))  # a derived class may count its calls
    if is_a(value, functools._lru_cache_wrapper):
        return repr(value.cache_info()) if "cache_info" in names else Same(value)
    if is_a(value, np.flatiter):
        return ITERATOR
    if is_a(value, Elements):
        return digest(value._host()) if value.size else value.shape
    if hasattr(type(value), "__array__"):
        try:
            if is_tensor(type(value)):
                return tensor_digest(value)
            array = np.asarray(value)
            return array.shape if array.dtype == object else digest(array, is_kept=is_a(value, np.ndarray))
        except Exception:  # elements on a device
            return Same(value)
    if is_a(value, (set, frozenset)):
        return type(value), len(value), sorted(map(repr, itertools.islice(value, VALUES_MAX)))
    if is_a(value, dict):  # the order counts; that of a longer one is noted with its elements
        return type(value), len(value), [repr(key) for key, _ in itertools.islice(_items(value), SHORT)]
    if is_a(value, (list, tuple, deque)):
        return type(value), len(value)
    if is_iterator(value):
        return ITERATOR
    if is_a(value, _BUFFERS):
        return _bytes_of(value)
    if is_a(value, ctypes._Pointer):
        return _bytes_of(value.contents) if value else type(value)
    has_attributes = hasattr(value, "__dict__") and not is_a(value, (type, ModuleType, FunctionType))
    return type(value) if has_attributes or is_a(value, MethodType) else Same(value)
