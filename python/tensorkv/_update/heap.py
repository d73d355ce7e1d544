"""Finding changes that a call makes to any object of the process.

`Watch` finds changes to values that the running code names. Code may also reach values without names of its own: by computed
names, through the code of libraries, in other threads. `Heap` therefore compares the objects that the garbage collector tracks,
small contents that are hidden from it, and settings of the process, before and after a call.
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import ctypes
import decimal
import functools
import gc
import io
import itertools
import operator
import os
import random
import re
import struct
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from .. import _core
from .._array.elements import Elements
from . import collector
from .fingerprints import (
    HEAP_TYPE,
    VALUES,
    Same,
    digest,
    fingerprint,
    is_a,
    is_generator_of_torch,
    is_tensor,
    name_of_class,
    tensor_digest,
    worth,
)
from .traced import Array

_ELEMENTS_MAX = 512  # of the largest array that is compared; the largest buffer has as many bytes
# Seconds of pauses, at least. Each is longer, to see a thread that changes something now and then.
_PAUSES = (0.02, 0.1, 0.4)
_DIFFERENT_AFTER = 10_000  # pairs of objects, after which two values count as different
_BUFFERS = (bytearray, array.array, ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData)
# Iterators that know how many elements are left.
_SEQUENCES: tuple[Any, ...] = ((), [], "", "\u0100", b"", bytearray(), range(0), range(1 << 70), set())
_REVERSIBLE: tuple[Any, ...] = ([], {}, {}.values(), {}.items(), collections.deque())
_COUNTED = (
    *(type(one) for one in (*map(iter, (*_SEQUENCES, *_REVERSIBLE)), *map(reversed, _REVERSIBLE))),
    type(struct.iter_unpack("b", b"")),
)
# Iterators that give their position to `pickle`. Python 3.14 no longer does so for those of itertools.
_PICKLED: tuple[Any, ...] = (
    *(enumerate, reversed, type(iter(np.empty(0))), type(iter(array.array("b")))),
    *(itertools.cycle, itertools.islice, itertools.product, itertools.permutations),
    *(itertools.combinations, itertools.combinations_with_replacement, type(itertools.tee(())[0])),
)
# Iterators that show their position nowhere but in their own memory. The last one is that of `re.finditer`.
_IN_MEMORY = (type(iter(memoryview(b""))), type(re.compile("").scanner("")))  # type: ignore[attr-defined]
_OF_NUMPY = (np.flatiter, np.broadcast)
_GENERATORS = (np.random.BitGenerator, np.random.RandomState, np.random.SeedSequence)
_STREAMS: tuple[Any, ...] = (io.StringIO, io.BytesIO)
# Classes that are not compared: their references do not change between calls, or each call makes them anew. Objects of a class
# that derives from one may have attributes, and are compared.
_SKIPPED = (
    *(FrameType, CodeType, TracebackType, BuiltinFunctionType, weakref.ref, property, staticmethod, classmethod),
    *(
        GetSetDescriptorType,
        MemberDescriptorType,
        MethodDescriptorType,
        WrapperDescriptorType,
        ClassMethodDescriptorType,
    ),
)
# Classes whose own references stay.  The objects that they refer to are compared, and the parts of functions.
_FIXED = (tuple, frozenset, FunctionType, type)
_PARTS = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")  # of a function: these may be replaced
# Contexts and their parts, whose variables are compared by themselves. The classes of the parts have no public names.
_CONTEXTS = (contextvars.Context, contextvars.Token)
_PARTS_OF_CONTEXTS = ("hamt", "hamt_bitmap_node", "hamt_array_node", "hamt_collision_node")


def _settings() -> dict[Any, Any]:
    """Return settings of the process and the thread that no Python object holds, by name or context variable."""
    return {
        "sys.getrecursionlimit()": sys.getrecursionlimit(),
        "decimal.getcontext()": repr(decimal.getcontext()),
        "np.geterr()": repr(np.geterr()),
        "os.getcwd()": _current_folder(),
        "os.umask()": _umask(),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        "sys.get_int_max_str_digits()": sys.get_int_max_str_digits(),
        "gc.get_threshold()": gc.get_threshold(),
        "socket.getdefaulttimeout()": sys.modules["socket"].getdefaulttimeout() if "socket" in sys.modules else None,
        **contextvars.copy_context(),
    }


def _current_folder() -> str | None:
    with contextlib.suppress(OSError):  # a folder that was deleted
        return os.getcwd()
    return None


def _content_of(value: Any) -> Any:
    """Return a value that changes with content that is hidden from the garbage collector: elements, bytes, a version, a state.

    None: the content is too large or cannot be read, and is not compared.
    """
    try:
        if is_a(value, np.ndarray):
            if value.dtype == object:
                return [worth(one) if is_a(one, VALUES) else Same(one) for one in _objects_in(value)]
            return digest(np.asarray(value)) if value.size <= _ELEMENTS_MAX else None
        if is_a(value, Elements):
            is_small = 0 < value.size <= _ELEMENTS_MAX and value._context[0] == "cpu"
            return digest(value._host()) if is_small and value._is_readable() else None
        if is_a(value, _BUFFERS):
            view = memoryview(value)
            return bytes(view) if view.nbytes <= _ELEMENTS_MAX else None
        if is_a(value, _core.Program):
            return [(name, value.param(name)) for name in value.params]
        if is_a(value, GeneratorType):
            return None if value.gi_running or value.gi_frame is None else value.gi_frame.f_lasti
        if is_a(value, random.Random):
            return None if is_a(value, random.SystemRandom) else value.getstate()
        if is_a(value, _GENERATORS) or is_generator_of_torch(type(value)):
            return fingerprint(value, set())
        if is_tensor(type(value)):
            return _content_of_tensor(value)
        if is_a(value, (*_COUNTED, *_PICKLED)):
            return _position(value)
        if is_a(value, _IN_MEMORY):
            header = object.__basicsize__  # has the count of references
            return ctypes.string_at(id(value) + header, type(value).__basicsize__ - header)
        if is_a(value, _OF_NUMPY):
            return value.index
        if is_a(value, np.nditer):
            return value.iterindex
        if is_a(value, _STREAMS):
            kind = next(one for one in _STREAMS if is_a(value, one))
            content = kind.getvalue(value)
            return kind.tell(value), len(content), content[:_ELEMENTS_MAX]
    except Exception:  # the object refuses to be read
        return None
    return repr(value)  # itertools.count and itertools.repeat


def _umask() -> str | None:
    """Return the umask as the system shows it; `os.umask` would change it for a moment."""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:  # no such file outside of Linux
        return next((line for line in status if line.startswith("Umask:")), None)
    return None


def _objects_in(array: np.ndarray[Any, Any]) -> list[Any]:
    """Return the elements of an array of objects, none of a large array. The garbage collector does not know them."""
    is_small = array.dtype == object and array.size <= _ELEMENTS_MAX
    return list(np.asarray(array).flat) if is_small else []


def _content_of_tensor(value: Any) -> Any:
    """Return the elements of a small tensor, and the version counter of others. A write to `tensor.data` leaves the counter."""
    torch = sys.modules["torch"]
    is_plain = type(value) is torch.Tensor or type(value) is torch.nn.Parameter  # others may call code of their own
    if is_plain and value.device.type == "cpu" and value.numel() <= _ELEMENTS_MAX:
        with contextlib.suppress(Exception):  # a sparse tensor has no such elements
            return tensor_digest(value)
    return value._version


def _position(value: Any) -> Any:
    """Return numbers that change when an iterator moves; the iterator stays where it is."""
    if is_a(value, _COUNTED):
        return value.__length_hint__()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.12 and 3.13
        kind = next(one for one in _PICKLED if is_a(value, one))
        return _numbers(kind.__reduce__(value))


def _numbers(value: Any) -> Any:
    """Return the numbers and positions in the description of an iterator for `pickle`."""
    if type(value) is tuple:
        return tuple(map(_numbers, value[:_ELEMENTS_MAX]))
    if is_a(value, _COUNTED):
        return value.__length_hint__()
    return value if type(value) is int or type(value) is bool else None


def _has_content(kind: type) -> bool:
    """Return whether `_content_of` knows objects of a class."""
    kinds = (np.ndarray, Elements, _core.Program, GeneratorType, random.Random, itertools.count, itertools.repeat)
    iterators = (*_COUNTED, *_PICKLED, *_IN_MEMORY, *_OF_NUMPY, np.nditer, *_STREAMS, *_GENERATORS)
    return issubclass(kind, (*kinds, *_BUFFERS, *iterators)) or is_tensor(kind) or is_generator_of_torch(kind)


def _is_one_of(kind: type, kinds: Sequence[Any]) -> bool:
    """Return whether a class is exactly one of some classes, without a call of its metaclass."""
    return any(kind is one for one in kinds)


def _is_fixed(kind: type) -> bool:
    return _is_one_of(kind, _FIXED) or issubclass(kind, type)


def _is_skipped(kind: type) -> bool:
    is_part = name_of_class(kind) in _PARTS_OF_CONTEXTS and not kind.__flags__ & HEAP_TYPE
    is_own = issubclass(kind, (Heap, _core.References))
    return is_own or is_part or _is_fixed(kind) or _is_one_of(kind, (*_SKIPPED, *_CONTEXTS))


def _by_identity(kinds: list[type]) -> dict[int, type]:
    """Return classes by their identity. The hash of a class may be code of its metaclass."""
    return dict(zip(map(id, kinds), kinds, strict=True))


def _of_kinds(values: list[Any], kinds: Sequence[type]) -> list[Any]:
    """Return the values whose exact class is in `kinds`; fast enough for a million values."""
    wanted = set(map(id, kinds))
    return list(itertools.compress(values, map(wanted.__contains__, map(id, map(type, values)))))


def _unique(values: list[Any]) -> list[Any]:
    return list(dict(zip(map(id, values), values, strict=True)).values())


def _is_array(kind: type) -> bool:
    return issubclass(kind, np.ndarray)


def _untracked_in(notes: _core.References, seen: dict[int, Any]) -> list[Any]:
    """Return new containers, to which notes refer, that the collector does not track. They hold only numbers, texts and arrays.

    The elements of an array of objects are in a list.

    Args:
        seen: containers that earlier calls have returned, by their identity; the new ones are added.
    """
    arrays = notes.of_kinds(list(filter(_is_array, notes.kinds())))
    found = []
    for one in (*arrays, *itertools.filterfalse(gc.is_tracked, notes.of_kinds([dict, tuple]))):
        if id(one) not in seen:
            seen[id(one)] = one
            found.append(_objects_in(one) if is_a(one, np.ndarray) else one)
    return found


class Heap:
    """The references of the objects of the process, small contents and settings, as they are when it is made.

    The references of classes, and of plain properties and weak references, are not compared.
    """

    def __init__(self) -> None:
        """Note them."""
        for generator in _of_kinds(gc.get_objects(), [GeneratorType]):
            generator.gi_frame  # noqa: B018  # Python makes the frame now; made later, it would be a change
        objects = gc.get_objects()
        kinds = _by_identity(list(map(type, objects)))
        fixed = list(filter(_is_fixed, kinds.values()))
        noted = _core.References(objects, list(itertools.filterfalse(_is_skipped, kinds.values())))
        of_fixed = _core.References(objects, fixed)
        self._references = [noted]
        everything = [noted, of_fixed]
        seen: dict[int, Any] = {}
        for notes in everything:
            kinds.update(_by_identity(notes.kinds()))
            untracked = _untracked_in(notes, seen)
            if untracked:
                of_dicts = _core.References(untracked, [dict])
                self._references.append(of_dicts)
                everything += [of_dicts, _core.References(untracked, [tuple, list])]
        functions = _of_kinds(objects, [FunctionType])
        self._parts: list[tuple[Any, Any]] = list(zip(functions, map(_PARTS, functions), strict=True))
        hidden = list(filter(_has_content, kinds.values()))
        found = _of_kinds(objects, hidden)
        for notes in everything:  # no closure here: its cell would be a change
            found += notes.of_kinds(hidden)
        found = _unique(found)
        self._contents = list(zip(found, map(_content_of, found), strict=True))
        self._settings = _settings()
        contexts = _of_kinds(objects, [contextvars.Context])
        self._contexts = list(zip(contexts, map(dict, contexts), strict=True))

    def _noted_referents_of(self, one: Any) -> list[Any] | None:
        found = (notes.referents_of(one) for notes in self._references)
        return next((referents for referents in found if referents is not None), None)

    @functools.cached_property
    def _noted_contents(self) -> dict[int, Any]:
        """The noted content of each object that hides some, by its identity."""
        return {id(one): content for one, content in self._contents}

    def changes(self) -> dict[int, tuple[Any, Any]]:
        """Return the objects that have changed since this Heap was made, by their identity.

        Each comes with its first new value. A changed setting stands under its name.
        """
        changed: dict[int, tuple[Any, Any]] = {}
        for one in itertools.chain.from_iterable(notes.changed() for notes in self._references):
            after = gc.get_referents(one)
            at = self._first_difference(self._noted_referents_of(one) or [], after)
            if at is not None:
                changed[id(one)] = (one, after[at] if at < len(after) else None)
        for function, parts in self._parts:
            if not all(map(operator.is_, parts, now := _PARTS(function))) and not self._is_alike(parts, now):
                changed[id(function)] = (function, None)
        for one, content in self._contents:
            if content is not None and _content_of(one) != content:
                changed[id(one)] = (one, None)
        settings = _settings()
        for setting in {**self._settings, **settings}:
            is_kept = setting in self._settings and setting in settings
            if not is_kept or not self._is_alike(self._settings[setting], settings[setting]):
                changed[id(setting)] = (setting, None)
        for context, variables in self._contexts:
            if not self._is_alike(variables, dict(context)):
                changed[id(context)] = (context, None)
        return changed

    def _first_difference(self, before: list[Any], after: list[Any]) -> int | None:
        before, after = _alive(before), _alive(after)
        for i, (one, other) in enumerate(zip(before, after, strict=False)):
            if not self._is_alike(one, other):
                return i
        return None if len(before) == len(after) else min(len(before), len(after))

    def _is_alike(self, one: Any, other: Any) -> bool:
        """Return whether an old and a new value are the same object or have equal content."""
        pairs = [(one, other)]
        seen: set[tuple[int, int]] = set()
        while pairs:
            one, other = pairs.pop()
            if one is other or (id(one), id(other)) in seen:
                continue
            seen.add((id(one), id(other)))
            if len(seen) > _DIFFERENT_AFTER:
                return False
            if is_a(one, Array) and is_a(other, Array):  # of an earlier call, which a later one refuses
                continue
            if type(one) is not type(other):
                return False
            if is_a(one, VALUES):
                if worth(one) != worth(other):
                    return False
                continue
            if _has_content(type(one)):
                content = self._noted_contents.get(id(one)) or _content_of(one)
                if content is None or content != _content_of(other):
                    return False
            noted = self._noted_referents_of(one)
            before = _alive(gc.get_referents(one) if noted is None else noted)
            after = _alive(gc.get_referents(other))
            if len(before) != len(after):
                return False
            pairs += zip(before, after, strict=True)
        return True


def _alive(values: list[Any]) -> list[Any]:
    """Return values without weak references to objects that are gone."""
    return [one for one in values if not (type(one) is weakref.ref and one() is None)]


def _attributes_of(value: Any) -> Any:
    """Return the `__dict__` of an object, or None, without a call of its own code."""
    with contextlib.suppress(AttributeError):
        return object.__getattribute__(value, "__dict__")
    return None


def _name_of(owner: Any, value: Any) -> str:
    """Return a name for messages of a value that an object holds now."""
    if is_a(owner, str):
        return str(owner)
    if is_generator_of_torch(type(owner)):
        return "PyTorch's random numbers"
    if is_a(owner, contextvars.ContextVar):
        return f"the context variable {owner.name}"
    attributes = owner if is_a(owner, dict) else _attributes_of(owner)
    names = [name for name, one in list(dict.items(attributes)) if one is value] if is_a(attributes, dict) else []
    if not is_a(owner, dict):
        return (
            f"{name_of_class(type(owner))}.{names[0]}" if names else f"an object of class {name_of_class(type(owner))}"
        )
    if not names:
        return "a dict"
    for holder in gc.get_referrers(owner):
        if is_a(holder, type):
            return f"{name_of_class(holder)}.{names[0]}"
        if _attributes_of(holder) is owner:
            return (
                f"{dict.get(owner, '__name__') if is_a(holder, ModuleType) else name_of_class(type(holder))}.{names[0]}"
            )
    return f"[{names[0]!r}] of a dict"


def change_of(call: Callable[[], object]) -> str | None:
    """Return the name of an object that each of several runs of a call changes, or None.

    Call it after a first run, because changes that are made once do not count. Other threads change objects, too. So an object
    does not count if it also changes during a pause without a call. The garbage collector rests meanwhile.
    """
    with collector.resting(), collector.all_in_reach():
        heap = None
        try:
            heap = Heap()
            begin = time.monotonic()
            call()
            seconds = time.monotonic() - begin
            found = heap.changes()
            for pause in _PAUSES:
                if not found:
                    return None
                heap = None  # drops its objects before the next ones are noted
                heap = Heap()
                time.sleep(max(seconds, pause))
                others = heap.changes()
                heap = None
                heap = Heap()
                call()
                changed = heap.changes()
                found = {one: changed[one] for one in found if one in changed and one not in others}
            return next((_name_of(*change) for change in found.values()), None)
        finally:
            heap = None  # the traceback of an error holds this frame, and the heap holds all objects
