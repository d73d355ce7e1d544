"""Finding changes that a function of ``set_updater`` makes outside of itself, such as to a counter.

A program cannot hold such a change. While the first call runs, `Watch` collects the names that the running code uses. It
notes the values of these names after the first call, and again after later calls; a difference is a change.
"""

from __future__ import annotations

import array
import contextlib
import contextvars
import ctypes
import datetime
import decimal
import dis
import fractions
import functools
import hashlib
import io
import pickle
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from . import _core
from . import random as _random
from ._elements import Elements
from ._traced import Array, here, is_ours, refuse

_STDLIB = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"], "<frozen ")
_PACKAGES = ("site-packages", "dist-packages")
_CLOCKS = (
    *("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"),
    *("gmtime", "localtime", "ctime", "asctime", "strftime"),
)
_DATES = ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
_VALUES = (  # compared by what they are worth; other objects without attributes by identity
    *(int, float, complex, str, bytes, type(None), np.generic, range, slice),
    *(decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta),
)
_ANY_NAME = {"setattr", "__setattr__", "__dict__", "vars", "exec", "eval"}  # attributes whose names are computed
_CONSTANT = (
    "state",
    "rank",
    "num_workers",
    "type",
    "rejoined",
    "__getattr__",
)  # members of a store that a call may use
_LIBRARIES = ("builtins", "numpy", "tensorkv")  # keep no state that a function reads, but random numbers
_VALUES_MAX = 100_000
_ITERATOR = "an iterator"
_BUFFERS = (array.array, ctypes.Array, ctypes.Structure, ctypes._SimpleCData)  # of elements that no name holds
_SEED = random.Random.seed.__code__


def _is(value: Any, kinds: Any) -> bool:
    """Return whether a value has one of some classes; a proxy is asked nothing."""
    return issubclass(type(value), kinds)


def _is_of_python(filename: str) -> bool:
    return filename.startswith(_STDLIB) and not any(folder in filename for folder in _PACKAGES)


class _Same:
    """An object that is compared by identity, and kept so that no other one gets its address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def _digest(values: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    content = np.ascontiguousarray(values).view(np.uint8) if values.ndim else repr(values)
    data = content.encode() if isinstance(content, str) else content.data
    return str(values.dtype), values.shape, hashlib.blake2b(data, digest_size=16).hexdigest()


def _is_iterator(value: Any) -> bool:
    """Return whether a value has a place that moves and that nobody sees: a file that is read, or an iterator written in C."""
    if _is(value, io.IOBase):
        return bool(value.readable())
    return hasattr(type(value), "__next__") and not _is(type(value).__next__, FunctionType)


def _is_fixed(value: Any) -> bool:
    """Return whether an argument stays as it is, or is new in each call, such as the iterator of a comprehension."""
    return _is(value, _VALUES) or _is_iterator(value)


def line_that_stores(code: CodeType, name: str) -> int | None:
    """Return the first line that gives a name or an attribute another value."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        begun = getattr(instruction, "line_number", instruction.starts_line)  # line_number since Python 3.13
        line = begun or line
        if instruction.opname.startswith("STORE_") and instruction.argval == name:
            return line
    return None


class Watch:
    """The values outside of a function that its code names."""

    def __init__(self, function: Any) -> None:
        """Know the function alone; `watching` finds the code that it runs."""
        self.clock: str | None = None  # the line that reads one, and its name
        self._function = function
        self._codes: set[CodeType] = set()
        self._roots: dict[str, dict[str, Any]] = {}  # of the globals that a name belongs to
        self._locals: list[tuple[str, Any]] = []
        self._names: set[str] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note the code that runs meanwhile in this thread."""
        before: Any = sys.getprofile()
        tracing: Any = sys.gettrace()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.settrace(tracing)
            if hasattr(before, "enable"):  # of cProfile, which sys.setprofile does not take
                before.enable()
            else:
                sys.setprofile(before)

    def _note(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and is_ours(code.co_filename):
            caller = frame.f_back
            if _is(frame.f_locals.get("self"), _core.Store) and code.co_name not in _CONSTANT:
                if caller is not None and code.co_name[0] != "_" and not is_ours(caller.f_code.co_filename):
                    sys.settrace(self._go_on)  # Python ends a profile whose function raises
                    refuse(  # before the verb does anything
                        f"kv.{code.co_name}: servers do not ask the store while they update a key; `kv.state` keeps arrays"
                    )
        elif event == "call" and code is _SEED and frame.f_locals.get("a") is None:
            self._note_clock("random.seed()")
        elif event == "call" and code not in self._codes:
            self._codes.add(code)
            self._names.update(code.co_names, code.co_freevars, (one for one in code.co_consts if _is(one, str)))
            if _is_of_python(code.co_filename):
                return
            if "datetime64" in code.co_names and ("now" in code.co_consts or "today" in code.co_consts):
                self._note_clock("datetime64('now')")
            for name in (*code.co_names, *code.co_consts):
                if _is(name, str) and name in frame.f_globals:
                    self._roots[name] = frame.f_globals
                elif _is(name, str) and name in sys.modules:  # imported inside
                    self._roots.setdefault(name, sys.modules)
            self._locals.extend(one for one in frame.f_locals.items() if not _is_fixed(one[1]))
        elif event == "c_call" and self.clock is None and _is_unsteady(arg):
            is_drawn = arg.__name__ == "urandom"
            if is_drawn or not (is_ours(code.co_filename) or _is_of_python(code.co_filename)):
                self._note_clock(f"{arg.__qualname__}()")

    def _note_clock(self, name: str) -> None:
        if self.clock is None:
            self.clock = f"{here()}: {name}"

    def _go_on(self, frame: Any, event: str, arg: Any) -> None:
        """Watch again, from the first call after a refusal that the function has caught."""
        sys.setprofile(self._note)
        sys.settrace(None)
        self._note(frame, event, arg)

    def size(self) -> int:
        """Return how many pieces of code have run; more of them may have named more values."""
        return len(self._codes)

    def look(self) -> dict[str, Any]:
        """Return what the names stand for now, to be compared with another look."""
        found: dict[str, Any] = {}
        seen: set[int] = set()
        for name, scope in self._roots.items():
            if name in scope:
                self._walk(name, scope[name], found, seen)
        for name, value in self._locals:
            self._walk(name, value, found, seen)
        self._walk("the function", self._function, found, seen)
        drawing = {*dir(random), *dir(np.random)}
        if any(name in drawing or "random" in name for name in self._names):
            found["Python's random numbers"] = random.getstate()
            found["NumPy's random numbers"] = pickle.dumps(np.random.get_state(legacy=False))
            found["the random numbers of mx.random"] = pickle.dumps(_random._generator)
        return found

    def iterator(self, look: dict[str, Any]) -> str | None:
        """Return the name of an iterator, whose place nobody sees."""
        return next((path for path, value in look.items() if value is _ITERATOR), None)

    def line_of(self, path: str) -> str | None:
        """Return file and line of the code that stores to the last name of a path."""
        name = path.partition("[")[0].rpartition(".")[2]
        found = ((code, line_that_stores(code, name)) for code in self._codes)
        return next((f"{code.co_filename}:{line}" for code, line in found if line), None)

    def _walk(self, path: str, value: Any, found: dict[str, Any], seen: set[int]) -> None:
        """Note a value, and the values that it holds."""
        if _is(value, _VALUES):
            found[path] = (type(value), repr(value))
        elif _is(value, (Array, CodeType)) or len(found) >= _VALUES_MAX:
            found[path] = "an array" if _is(value, Array) else _Same(value)
        elif id(value) not in seen:
            seen.add(id(value))
            try:
                found[path] = self._fingerprint(value)
                held = list(self._held(path, value))
            except Exception:  # of an object that does not let others look at it
                found[path], held = _Same(value), []
            for inner, one in held:
                self._walk(inner, one, found, seen)

    def _fingerprint(self, value: Any) -> Any:
        """Return what tells two contents of an object apart, without the values that it holds."""
        if _is(value, random.SystemRandom):
            return _ITERATOR
        if _is(value, random.Random):
            return hash(value.getstate())
        if _is(value, np.random.Generator):
            return pickle.dumps(value.bit_generator.state)
        if _is(value, np.random.RandomState):
            return pickle.dumps(value.get_state(legacy=False))
        if _is(value, contextvars.ContextVar):
            return _Same(value.get(None))
        if _is(value, Elements):
            return _digest(value._host()) if value.size else value.shape
        if _is(value, np.ndarray) and value.dtype == object:
            return value.shape
        if hasattr(type(value), "__array__"):
            try:
                return _digest(np.asarray(value))
            except Exception:  # elements on a device
                return _Same(value)
        if _is(value, (list, tuple, dict, deque, set, frozenset, bytearray)):
            if _is(value, (set, frozenset)):
                return type(value), sorted(map(repr, value))
            return type(value), bytes(value) if _is(value, bytearray) else len(value)
        if _is_iterator(value):
            return _ITERATOR
        if _is(value, _BUFFERS):
            return type(value), bytes(memoryview(value))
        is_kept = hasattr(value, "__dict__") and not _is(value, (type, ModuleType, FunctionType))
        return type(value) if is_kept or _is(value, MethodType) else _Same(value)

    def _held(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Give the values that the code can reach by a name, or by an index, and their paths."""
        if _is(value, np.ndarray) and value.dtype == object:
            value = value.ravel().tolist()
        if _is(value, (list, tuple, deque)):
            yield from ((f"{path}[{i}]", one) for i, one in enumerate(value))
        elif _is(value, dict):
            yield from ((f"{path}[{key!r}]", one) for key, one in list(dict.items(value)))
        if _is(value, BuiltinMethodType):
            yield path, value.__self__
        elif _is(value, MethodType):
            yield path, value.__self__
            yield path, value.__func__
        elif _is(value, FunctionType):
            yield from self._held_by_function(path, value)
        elif _is(value, functools.partial):
            yield from ((path, one) for one in (value.func, value.args, value.keywords))
        elif _is(value, _core.Store):
            added = {name: one for name, one in vars(value).items() if name in self._names and name[0] != "_"}
            yield from ((f"{path}.{name}", one) for name, one in added.items())
        elif value is not sys and not _is(value, (_core.Program, _core.Optimizer)):
            yield from self._attributes(path, value)

    def _held_by_function(self, path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
        if function.__code__ not in self._codes:
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # empty
                yield name, cell.cell_contents
        defaults = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        yield from zip(names[len(names) - len(defaults) :], defaults, strict=True)
        yield from (function.__kwdefaults__ or {}).items()
        yield from ((f"{function.__name__}.{name}", one) for name, one in vars(function).items())

    def _attributes(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if _is(value, ModuleType) and value.__name__.partition(".")[0] in _LIBRARIES:
            return
        is_any = bool(self._names & _ANY_NAME) or type(value).__module__.startswith("tensorkv.")
        owner = "" if path == "the function" else f"{path}."
        for name, one in list(getattr(value, "__dict__", {}).items()):
            is_wanted = is_any and not _is(value, (type, ModuleType)) and not _is_iterator(one)
            if _is(name, str) and (name in self._names or is_wanted):
                yield f"{owner or 'self.'}{name}", one
        kinds = value.__mro__ if _is(value, type) else type(value).__mro__
        for kind in kinds:
            if kind.__module__.partition(".")[0] in _LIBRARIES:
                continue
            for name, one in list(vars(kind).items()):
                if name not in self._names:
                    continue
                if type(one).__name__ == "member_descriptor" and not _is(value, type):  # of __slots__
                    with contextlib.suppress(AttributeError):
                        yield f"{owner or 'self.'}{name}", one.__get__(value)
                elif not _is(one, (property, classmethod, staticmethod)):
                    yield f"{kind.__name__}.{name}", one


def _is_unsteady(called: Any) -> bool:
    """Return whether a function written in C reads a clock, or the random numbers of the system."""
    name = getattr(called, "__qualname__", "")
    if name in _DATES:
        return True
    module = getattr(called, "__module__", None)
    return (module == "time" and name.removesuffix("_ns") in _CLOCKS) or (module == "posix" and name in ("times", "urandom"))


def difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """Return the first name whose value is another one in two looks."""
    for path in (*before, *after):
        missing = object()
        if before.get(path, missing) != after.get(path, missing):
            return path
    return None
