"""Finding changes that a function of ``set_updater`` makes outside of itself, such as to a counter.

A program cannot hold such a change. While the first call runs, `Watch` collects the names that the running code uses.
`Watch` notes the values of these names after the first call, and again after later calls; a difference is a change.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import dis
import functools
import gc
import hashlib
import os
import pickle
import random
import sys
import sysconfig
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from .. import _core
from .. import random as _random
from . import collector
from .fingerprints import (
    ELEMENTS_MAX,
    HEAP_TYPE,
    ITERATOR,
    SHORT,
    VALUES,
    VALUES_MAX,
    Same,
    elements_of,
    fingerprint,
    first_of,
    is_a,
    is_generator_of_torch,
    is_iterator,
    worth,
)
from .traced import Array, here, is_ours, refuse

_STDLIB = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"], "<frozen ")
_PACKAGES = ("site-packages", "dist-packages")
_CLOCKS = (
    *("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"),
    *("gmtime", "localtime", "ctime", "asctime", "strftime"),
)
_UNSTEADY = {("posix", "times"), ("posix", "urandom"), ("posix", "getrandom"), ("resource", "getrusage")}
_DATES = ("now", "utcnow", "today")
_OF_PANDAS = {"Timestamp", "to_datetime"}  # functions written in C, which a profile does not see
_NOW = {"now", "today"}  # texts that make a time of the clock
# Functions of Python's library that return the time, each with the argument by which it does not.
_CLOCKS_OF_PYTHON = {"formatdate": "timeval", "localtime": "dt", "make_msgid": "", "time": ""}
_ANY_NAME = {"setattr", "__setattr__", "__dict__", "vars", "exec", "eval"}  # attributes whose names are computed
_ANY_GLOBAL = {"globals", "f_globals", "exec", "eval"}  # global variables whose names are computed
_ALLOWED = (
    "state",
    "rank",
    "num_workers",
    "type",
    "rejoined",
    "__getattr__",
)  # members of a store that a call may use
_OPERATIONS = {  # members of a store that Python calls by themselves
    "__len__": "len(kv)",
    "__contains__": "in kv",
    "__iter__": "an iteration over kv",
    "__repr__": "repr(kv)",
    "__enter__": "with kv",
}
_LIBRARIES = ("builtins", "numpy", "tensorkv")  # keep no state that a function reads, but random numbers
_IMPORTS = ("modules", "path_importer_cache")  # names of `sys`, which every import changes
_OF_SLOTS = (MemberDescriptorType, GetSetDescriptorType)  # of `__slots__`, and of classes written in C
_OF_FUNCTIONS = ("__annotations__", "__defaults__", "__doc__", "__kwdefaults__", "__name__", "__qualname__")
_OF_CLASSES = ("__name__", "__qualname__", "__bases__")  # those that are in no `__dict__`
_SEED = random.Random.seed.__code__
_PYTHONS = random.random.__self__  # type: ignore[attr-defined]  # the generator behind the functions of `random`
_DRAWS: dict[str, Callable[[], Any]] = {  # the state of a generator that all code of the process shares
    "Python's random numbers": random.getstate,
    "NumPy's random numbers": lambda: pickle.dumps(np.random.get_state(legacy=False)),
    "the random numbers of tkv.random": lambda: pickle.dumps(_random._generator),
}
_OF_PYTHON, _OF_NUMPY, _OF_MXNET = _DRAWS


def _is_of_python(filename: str) -> bool:
    return filename.startswith(_STDLIB) and not any(folder in filename for folder in _PACKAGES)


def _keeps_nothing(value: Any) -> bool:
    """Return whether an argument carries nothing from call to call: it never changes, or each call makes it anew."""
    return is_a(value, VALUES) or is_iterator(value)


def line_that_stores(code: CodeType, name: str) -> int | None:
    """Return the first line that gives a name or an attribute another value."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        begun = getattr(instruction, "line_number", instruction.starts_line)  # line_number since Python 3.13
        line = begun or line
        if instruction.opname.startswith("STORE_") and instruction.argval == name:
            return line
    return None


class Look:
    """The noted values at one time. A unique route to each value leads to its printed path and its fingerprint."""

    def __init__(self) -> None:
        """Have seen nothing yet."""
        self.values: dict[str, tuple[str, Any]] = {}
        self.elements = 0  # of long containers
        self.is_cut = False  # there are more values

    def iterator(self) -> str | None:
        """Return the path of an iterator with a hidden position, or None."""
        return next((path for path, noted in self.values.values() if noted is ITERATOR), None)


class Watch:
    """The values outside of a function that its code names."""

    def __init__(self, function: Any, functions: dict[CodeType, list[FunctionType]] | None = None) -> None:
        """Have seen no code yet; `watching` collects the code that runs.

        Args:
            functions: those that earlier watches of this function have found, by their code; a search takes a while.
        """
        self.clock: str | None = None  # place and name of the first clock that was read
        self._known = {} if functions is None else functions
        self._function = function
        self._codes: set[CodeType] = set()
        self._unsearched: set[CodeType] = set()  # code of the user without variables of a closure, to be searched for
        self._functions: list[FunctionType] = []  # whose code ran, also those that no name leads to
        self._roots: dict[tuple[int, str], dict[str, Any]] = {}  # the globals that a name belongs to, also by their id
        self._scopes: dict[int, dict[str, Any]] = {}  # globals that code uses by computed names, by their id
        self._locals: list[tuple[str, Any]] = []
        self._names: set[str] = set()
        self._names_random = False  # the code of the user has the name `random`
        self._draws: set[str] = set()  # the generators of `_DRAWS` that were used

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note the code that runs meanwhile in this thread."""
        with collector.resting():  # its callbacks read clocks
            before: Any = sys.getprofile()
            tracing: Any = sys.gettrace()
            sys.setprofile(self._note)
            try:
                yield
            finally:
                sys.setprofile(None)
                if sys.gettrace() is not tracing:  # debuggers warn of every call of settrace
                    sys.settrace(tracing)
                if hasattr(before, "enable"):  # of cProfile, which sys.setprofile does not take
                    before.enable()
                else:
                    sys.setprofile(before)

    def _note(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and is_ours(code.co_filename):
            caller = frame.f_back
            if code in _STREAM:
                self._draws.add(_OF_MXNET)
            if is_a(frame.f_locals.get("self"), _core.Store) and code.co_name not in _ALLOWED:
                is_verb = code.co_name[0] != "_" or code.co_name in _OPERATIONS
                if caller is not None and is_verb and not is_ours(caller.f_code.co_filename):
                    sys.settrace(self._go_on)  # Python ends a profile whose function raises
                    title = _OPERATIONS.get(code.co_name, f"kv.{code.co_name}")
                    refuse(  # before the verb does anything
                        f"{title}: servers do not ask the store while they update a key; `kv.state` keeps arrays"
                    )
        elif event == "call" and code is _SEED and frame.f_locals.get("a") is None:
            self._note_clock("random.seed()")
        elif event == "call" and code.co_name in _CLOCKS_OF_PYTHON and _is_clock_for_user(frame):
            self._note_clock(f"{code.co_qualname}()")
        elif event == "call" and code not in self._codes:
            self._codes.add(code)
            self._names.update(code.co_names, code.co_freevars, (one for one in code.co_consts if is_a(one, str)))
            if _is_of_python(code.co_filename):
                if code.co_name == "uuid1":
                    self._note_clock("uuid1()")
                return
            clock = _clock_in(code)
            if clock is not None:
                self._note_clock(clock)
            if code.co_freevars:
                self._find_closure(frame)
            else:
                self._unsearched.add(code)
            self._names_random |= "random" in code.co_names or "random" in code.co_consts
            for name in (*code.co_names, *code.co_consts):
                if is_a(name, str) and name in frame.f_globals:
                    self._roots[id(frame.f_globals), name] = frame.f_globals
                elif is_a(name, str) and name in sys.modules and _is_imported(code, name):
                    self._roots[id(sys.modules), name] = sys.modules
            if not _ANY_GLOBAL.isdisjoint(code.co_names):
                self._scopes[id(frame.f_globals)] = frame.f_globals
            self._locals.extend(one for one in frame.f_locals.items() if not _keeps_nothing(one[1]))
        elif event == "c_call" and getattr(arg, "__self__", None) is _PYTHONS:
            if arg.__name__ != "getstate":
                self._draws.add(_OF_PYTHON)
        elif event == "c_call" and self.clock is None and _is_unsteady(arg):
            is_drawn = arg.__name__ in ("urandom", "getrandom")
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
        """Return the number of code objects that have run; new ones may name more values."""
        return len(self._codes)

    def look(self) -> Look:
        """Return the present values of the names, to be compared with another look."""
        look = Look()
        self._find_functions()
        waiting: deque[tuple[str, str, Any]] = deque()  # values that fewer steps lead to are noted first
        for (scope_id, name), scope in self._roots.items():
            if name in scope:
                waiting.append((f"{scope_id}:{name}", name, scope[name]))
        for scope_id, scope in self._scopes.items():
            waiting.extend(
                (f"{scope_id}:{name}", name, one) for name, one in list(scope.items()) if _is_counter(name, one)
            )
        for i, (name, value) in enumerate(self._locals):
            waiting.append((f"{i}:{name}", name, value))
        waiting.append(("the function", "the function", self._function))
        waiting.extend((f"function {i}", one.__name__, one) for i, one in enumerate(self._functions))
        seen: set[int] = set()
        long: deque[tuple[str, str, Any]] = deque()  # containers, whose elements are noted after all other values
        while waiting or long:
            if len(look.values) >= VALUES_MAX:
                look.is_cut = True
                break
            if waiting:
                self._note_value(look, *waiting.popleft(), seen, waiting, long)
            else:
                self._note_elements(look, *long.popleft(), waiting)
        for draws in sorted(self._draws):
            look.values[draws] = (draws, _DRAWS[draws]())
        return look

    # Python calls some functions without a name, such as `__call__` and those of a property. So functions are searched for by
    # the code that runs.

    def _find_closure(self, frame: Any) -> None:
        """Find the function that a frame runs; others with the same code have other values in their cells."""
        code, values = frame.f_code, frame.f_locals
        known = self._known.setdefault(code, [])
        found = [one for one in known if _has_values(one, values)]
        if not found:
            found = [one for one in _functions_with({code}) if _has_values(one, values)]
            known += found
        self._functions += found

    def _find_functions(self) -> None:
        """Find the functions without a closure whose code ran: they have defaults and attributes."""
        new = self._unsearched.difference(self._known)
        if new:
            self._known.update({code: [] for code in new})
            for one in _functions_with(new):
                self._known[one.__code__].append(one)
        for code in self._unsearched:
            self._functions += self._known[code]
        self._unsearched.clear()

    def line_of(self, path: str) -> str | None:
        """Return file and line of the code that stores to the last name of a path."""
        name = path.partition("[")[0].rpartition(".")[2]
        codes = sorted(
            self._codes, key=lambda code: _is_of_python(code.co_filename)
        )  # the script's before Python's own
        found = ((code, line_that_stores(code, name)) for code in codes)
        return next((f"{code.co_filename}:{line}" for code, line in found if line), None)

    def _note_value(
        self, look: Look, steps: str, path: str, value: Any, seen: set[int], waiting: deque[Any], long: deque[Any]
    ) -> None:
        """Note a value, and let the values that it holds wait."""
        if is_a(value, VALUES):
            look.values[steps] = (path, worth(value))
            if hasattr(value, "__dict__") and id(value) not in seen:  # of a class that a script has derived
                seen.add(id(value))
                waiting.extend([(f"{steps}|{step}", inner, one) for step, inner, one in self._held(path, value)])
        elif value is sys.stdout or value is sys.stderr:
            look.values[steps] = (path, Same(value))
        elif is_a(value, (Array, CodeType)):
            look.values[steps] = (path, "an array" if is_a(value, Array) else Same(value))
        elif id(value) not in seen:
            seen.add(id(value))
            try:
                look.values[steps] = (path, fingerprint(value, self._names))
                elements = elements_of(value)
                if elements is not None and len(elements) > SHORT:
                    long.append((steps, path, elements))
                elif elements is not None:
                    waiting.extend((steps + step, path + part, one) for step, part, one in first_of(elements))
                waiting.extend([(f"{steps}|{step}", inner, one) for step, inner, one in self._held(path, value)])
            except Exception:  # of an object that does not let others look at it
                look.values[steps] = (path, Same(value))
        if is_a(value, ModuleType):
            self._note_random(look, value)

    def _note_random(self, look: Look, module: ModuleType) -> None:
        """Note the state of NumPy's generator if the code names its functions; a profile does not see these."""
        name = module.__name__
        if name.startswith("numpy.random") or (name.partition(".")[0] == "numpy" and self._names_random):
            look.values[_OF_NUMPY] = (_OF_NUMPY, _DRAWS[_OF_NUMPY]())

    def _note_elements(self, look: Look, steps: str, path: str, value: Any, waiting: deque[Any]) -> None:
        """Note the first elements of a long container: numbers and texts together, other objects one by one."""
        look.elements += min(len(value), VALUES_MAX)
        if look.elements > ELEMENTS_MAX:
            look.is_cut = True
            return
        total = hashlib.blake2b(digest_size=16)
        try:
            for step, part, one in first_of(value):
                if is_a(one, VALUES):
                    total.update(f"{step} {type(one).__name__} {one!r}\n".encode(errors="surrogatepass"))
                elif len(waiting) < VALUES_MAX:
                    waiting.append((steps + step, path + part, one))
        except Exception:  # of a container that another thread changes, or of a key that does not let others look at it
            return
        look.values[f"{steps}|elements"] = (path, total.hexdigest())

    def _held(self, path: str, value: Any) -> Iterator[tuple[str, str, Any]]:
        """Yield the values that the code can reach by a name, each with a step of its own and its path."""
        if is_a(value, BuiltinMethodType):
            yield "self", path, value.__self__
        elif is_a(value, MethodType):
            yield "self", path, value.__self__
            yield "function", path, value.__func__
        elif is_a(value, FunctionType):
            yield from self._held_by_function(value)
        elif is_a(value, functools.partial):
            self._note_clock_in(path, value.func)
            yield from (("function", path, value.func), ("args", path, value.args), ("keywords", path, value.keywords))
            yield from self._attributes(path, value)
        elif is_a(value, (staticmethod, classmethod)):
            yield "function", path, value.__func__
            yield from self._attributes(path, value)
        elif is_a(value, property):
            yield from ((name, path, getattr(value, name)) for name in ("fget", "fset", "fdel"))
            yield from self._attributes(path, value)
        elif is_a(value, weakref.ref):
            yield "referent", path, weakref.ref.__call__(value)
            yield from self._attributes(path, value)
        elif is_a(value, weakref.ProxyTypes):
            yield "referent", path, value.__repr__.__self__
        elif is_a(value, contextvars.ContextVar):
            yield "content", f"{path}.get()", value.get(None)
        elif is_a(value, CellType):
            with contextlib.suppress(ValueError):  # empty
                yield "contents", path, value.cell_contents
        elif is_a(value, BaseException):
            yield "args", f"{path}.args", value.args
            yield from self._attributes(path, value)
        elif is_a(value, _core.Store):
            added = {name: one for name, one in vars(value).items() if name in self._names and name[0] != "_"}
            yield from ((name, f"{path}.{name}", one) for name, one in added.items())
        elif not is_a(value, (_core.Program, _core.Optimizer)):
            if is_a(value, defaultdict):
                self._note_clock_in(path, value.default_factory)
                yield "factory", f"{path}.default_factory", value.default_factory
            if _is_opaque(value):
                held = [one for one in gc.get_referents(value) if not is_a(one, (type, ModuleType))]
                yield from ((f"{i}", path, one) for i, one in enumerate(held))
            yield from self._attributes(path, value)

    def _note_clock_in(self, path: str, function: Any) -> None:
        """Note a clock that is called by an object written in C, which a profile does not see."""
        if self.clock is None and is_a(function, BuiltinMethodType) and _is_unsteady(function):
            self.clock = f"{path}: {function.__qualname__}()"

    def _held_by_function(self, function: FunctionType) -> Iterator[tuple[str, str, Any]]:
        for name, one in vars(function).items():
            if name in self._names or (self._computes_names() and _is_counter(name, one)):
                yield f"attribute {name}", f"{function.__name__}.{name}", one
        for name in self._names.intersection(_OF_FUNCTIONS):
            yield f"attribute {name}", f"a function's {name}", getattr(function, name)
        if function.__code__ not in self._codes:
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # empty
                yield f"cell {name}", name, cell.cell_contents
        defaults = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        for name, one in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            yield f"default {name}", name, one
        for name, one in (function.__kwdefaults__ or {}).items():
            yield f"default {name}", name, one

    def _computes_names(self) -> bool:
        """Return whether the code may use attributes without naming them."""
        return not self._names.isdisjoint(_ANY_NAME)

    def _attributes(self, path: str, value: Any) -> Iterator[tuple[str, str, Any]]:
        is_any = self._computes_names() or type(value).__module__.startswith("tensorkv.")
        owner = "" if path == "the function" else f"{path}."
        is_library = is_a(value, ModuleType) and value.__name__.partition(".")[0] in (*_LIBRARIES, "sys")
        is_of_python = _is_of_stdlib(getattr(value, "__name__" if is_a(value, ModuleType) else "__module__", None))
        for name, one in list(getattr(value, "__dict__", {}).items()):
            if is_library and not _is_of_user(name, one):
                continue
            if is_of_python and is_a(value, (type, ModuleType)) and _is_private(name):
                continue
            if is_a(value, (type, ModuleType)):
                is_wanted = is_any and _is_counter(name, one) and not is_library
            else:
                is_wanted = is_any and not is_iterator(one)
            if is_a(name, str) and (name in self._names or is_wanted):
                yield name, f"{owner or 'self.'}{name}", one
        kinds = (*value.__mro__, *type(value).__mro__) if is_a(value, type) else type(value).__mro__
        for i, kind in enumerate(kinds):
            if _is_of_library(kind):
                yield from self._added_to(kind, i)
                continue
            for name in self._names.intersection(_OF_CLASSES):
                yield f"class {i} {name}", f"a class's {name}", type.__getattribute__(kind, name)
            for name, one in list(vars(kind).items()):
                if name not in self._names and not (is_any and _is_counter(name, one)):
                    continue
                if _is_private(name) and _is_of_stdlib(kind.__module__):
                    continue
                if is_a(one, _OF_SLOTS) and not is_a(value, type):
                    with contextlib.suppress(Exception):  # of a slot that is empty, or refuses
                        held = one.__get__(value)
                        if is_a(one, MemberDescriptorType) or is_a(held, VALUES):  # code in C may make others anew
                            yield f"slot {i} {name}", f"{owner or 'self.'}{name}", held
                else:
                    yield f"class {i} {name}", f"{kind.__name__}.{name}", one

    def _added_to(self, kind: type, number: int) -> Iterator[tuple[str, str, Any]]:
        """Yield the values that a script has added to a class of a library."""
        for name, one in list(vars(kind).items()) if kind.__flags__ & HEAP_TYPE else ():
            if name in self._names and _is_of_user(name, one):
                yield f"class {number} {name}", f"{kind.__name__}.{name}", one


def _functions_with(codes: set[CodeType]) -> list[FunctionType]:
    """Return all functions of the process that run one of some pieces of code."""
    with collector.all_in_reach():
        found = gc.get_referrers(*codes)
    return [one for one in found if is_a(one, FunctionType) and one.__code__ in codes]


def _has_values(function: FunctionType, values: dict[str, Any]) -> bool:
    """Return whether the cells of a closure have these values, by their names; an empty cell has none."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            if name not in values or cell.cell_contents is not values[name]:
                return False
        except ValueError:
            if name in values:
                return False
    return True


def _is_of_library(kind: type) -> bool:
    """Return whether a class is one of a library; `exec` makes classes whose module is said to be `builtins`."""
    module = kind.__module__.partition(".")[0]
    return module in _LIBRARIES and not (module == "builtins" and kind.__flags__ & HEAP_TYPE)


def _is_of_stdlib(module: object) -> bool:
    return is_a(module, str) and str(module).partition(".")[0] in sys.stdlib_module_names


def _is_private(name: Any) -> bool:
    return not is_a(name, str) or name.startswith("_")


def _is_of_user(name: Any, value: Any) -> bool:
    """Return whether a value under a name of a library may be one that a script has put there."""
    if is_a(value, VALUES):
        return True
    if _is_private(name) or name in _IMPORTS:
        return False
    return is_a(value, (list, dict, set, deque)) or not (
        _is_of_library(type(value)) or _is_of_stdlib(type(value).__module__)
    )


def _is_opaque(value: Any) -> bool:
    """Return whether an object is written in C and has no attributes: only the garbage collector knows what it holds."""
    if hasattr(value, "__dict__") or is_a(value, (list, tuple, dict, set, frozenset, deque, *VALUES, type)):
        return False
    return not any("__slots__" in vars(kind) for kind in type(value).__mro__)


_STREAM = (_random._stream.__code__, _random.seed.__code__)  # run by every function of tkv.random and tkv.np.random


def _is_counter(name: Any, value: Any) -> bool:
    """Return whether a variable may be a counter: a number, a text or a container under a name that Python does not use itself."""
    is_own = is_a(name, str) and not (name.startswith("__") and name.endswith("__"))
    return is_own and is_a(value, (*VALUES, list, dict, set, deque, np.ndarray)) and not is_a(value, type(None))


def _is_imported(code: CodeType, name: str) -> bool:
    """Return whether code imports a module, or computes with its name."""
    names = (one.argval for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME")
    return name in code.co_consts or name in names


def _is_unsteady(called: Any) -> bool:
    """Return whether a function written in C reads a clock, or the random numbers of the system."""
    name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return True
    if name == "seed" and is_generator_of_torch(type(owner)):  # draws a seed from the system
        return True
    module = getattr(called, "__module__", None)
    return (module == "time" and name.removesuffix("_ns") in _CLOCKS) or ((module, name) in _UNSTEADY)


def _is_clock_for_user(frame: Any) -> bool:
    """Return whether a frame, which runs a function of `_CLOCKS_OF_PYTHON`, returns the time to code outside of the library."""
    code, caller = frame.f_code, frame.f_back
    is_called = caller is not None and not _is_of_python(caller.f_code.co_filename)
    is_now = frame.f_locals.get(_CLOCKS_OF_PYTHON[code.co_name]) is None
    return is_called and is_now and _is_of_python(code.co_filename)


def _clock_in(code: CodeType) -> str | None:
    """Return a clock that code names and a profile does not see, or None: those of NumPy and pandas."""
    if f"{os.sep}pandas{os.sep}" in code.co_filename:
        return None
    texts = {one for one in code.co_consts if is_a(one, str)}
    made = next((name for name in code.co_names if name == "datetime64" or name in _OF_PANDAS), None)
    if made is not None and not _NOW.isdisjoint(texts):
        return f"{made}('now')"
    is_method = "Timestamp" in code.co_names and not set(_DATES).isdisjoint(code.co_names)
    return "Timestamp.now()" if is_method else None


def difference(before: Look, after: Look, is_known: bool) -> str | None:
    """Return the path of the first value that differs between two looks.

    A value that only one look has counts if neither is cut.

    Args:
        is_known: no new code has run between the looks. Without it, a value that only one has is no difference.
    """
    for steps, (path, noted) in before.values.items():
        if steps in after.values and after.values[steps][1] != noted:
            return path
    if not is_known or before.is_cut or after.is_cut:
        return None
    for one, other in ((before, after), (after, before)):
        for steps, (path, _) in one.values.items():
            if steps not in other.values:
                return path
    return None
