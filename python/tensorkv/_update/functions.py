"""The objects with which a store runs a function of ``set_updater``, or an `Updater`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from .. import _core
from .._array.ndarray import NDArray, zeros
from ..errors import FailedPreconditionError, InvalidArgumentError
from . import probe as _probe
from . import reading as _trace
from . import states as _states
from .reading import NARROW, computed_in

if TYPE_CHECKING:
    from .._types import Key
    from ..optimizer import Updater

_local = threading.local()  # `call`: the Call that this thread is in


class Step(Protocol):
    """The update of one key by one push."""

    def run(self, key: Key, input: NDArray, stored: NDArray) -> None:
        """Update the key by the sum of the pushed values, which is float32 if the value has 16-bit floats."""
        ...

    def undo(self) -> None:
        """Restore the states of the key as they were when the step was made; may be called again."""
        ...


class Steps(Protocol):
    """The interface of an updater in a store of one process. The store makes a step for each key of a push, and runs
    it.

    If the push fails or a step is interrupted, the store undoes the steps of the push, the last one first.
    """

    def begin(self, key: Key, stored: NDArray) -> Step:
        """Return the next update of a key; changes nothing."""
        ...

    def forget(self, key: Key) -> None:
        """Drop the states of a key that is deleted."""
        ...

    def pack_states(self) -> bytes | None:
        """Return the states of all keys, for a snapshot; None if there are none."""
        ...

    def put_states(self, content: bytes | None) -> None:
        """Replace the states of all keys by the result of `pack_states`."""
        ...


class UpdaterSteps:
    """An `Updater` in a store of one process; a push that fails leaves its counts and states as they were."""

    def __init__(self, updater: Updater) -> None:
        """Leave the states with the updater."""
        self.updater = updater
        self._loaded: set[Key] = set()  # keys whose states a snapshot had, on the CPU

    def begin(self, key: Key, stored: NDArray) -> Step:
        """Return the next update of a key."""
        if key in self._loaded:
            self._loaded.discard(key)
            held = self.updater.states
            held[key] = _states.in_context(held.get(key), stored.context)
        return UpdaterStep(self.updater, key)

    def forget(self, key: Key) -> None:
        """Drop the state of a key, and its count of updates."""
        self.updater._forget(key)

    def pack_states(self) -> bytes | None:
        """Return the states of the updater and the counts of its optimizer."""
        return self.updater._pack()

    def put_states(self, content: bytes | None) -> None:
        """Replace the states of the updater and the counts of its optimizer."""
        self.updater._unpack(content)
        self._loaded = set(self.updater.__dict__.get("_held", ()))


class UpdaterStep:
    """A call of an updater for one key, which can be undone."""

    __slots__ = ("_undo", "_updater")

    def __init__(self, updater: Updater, key: Key) -> None:
        """Copy the states that the update may change."""
        self._updater = updater
        self._undo: Callable[[], None] = updater._undo_of(key)

    def run(self, key: Key, input: NDArray, stored: NDArray) -> None:
        """Call the updater; it gets 16-bit floats as float32, but for a weight whose master it keeps."""
        if self._updater._keeps_master(stored):
            self._updater(key, input, stored)
        else:
            _run_wide(self._updater, key, input, stored)

    def undo(self) -> None:
        """Give the updater's count and states of the key the content that they had."""
        self._undo()


def _why_late(function: Any) -> str | None:
    """Return why a call of a function does not do its work, such as "an async function, ...", or None if it does."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = getattr(type(function), "__call__", function)  # noqa: B004  # async or not
    if inspect.iscoroutinefunction(function):
        return "an async function, whose call makes a coroutine"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "a generator function, whose call makes an iterator"
    return None


def check_arguments(function: Callable[..., Any]) -> None:
    """Raise if a function does not take the arguments of an updater, or does not run when it is called."""
    late = _why_late(function)
    if late is not None:
        raise InvalidArgumentError(
            f"set_updater: {_trace.title_of(function)} is {late} and updates nothing; write a plain def"
        )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # of what is written in C
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        title = _trace.title_of(function)
        raise InvalidArgumentError(
            f"set_updater: {title} takes {signature}; an updater takes (key, input, stored): the key, the sum of what was"
            " pushed, and the stored value, which it changes in place"
        ) from None


class Called:
    """A function that a store of one process calls at each push, and the states that it has named."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Begin without states."""
        self.function = function
        self.states: dict[Any, dict[str, NDArray]] = {}

    def begin(self, key: Key, stored: NDArray) -> Step:
        """Return the next call for a key."""
        return Call(self, key, stored)

    def forget(self, key: Key) -> None:
        """Drop the states of a key."""
        self.states.pop(key, None)

    def pack_states(self) -> bytes | None:
        """Return the states of all keys, for a snapshot; None: there are none."""
        return _states.pack(dict(self.states), "save", _trace.name_of(self.function)) if self.states else None

    def put_states(self, content: bytes | None) -> None:
        """Replace the states of all keys."""
        states = {} if content is None else _states.unpack(content, "load", _trace.name_of(self.function))
        if any(not isinstance(held, dict) for held in states.values()):
            raise InvalidArgumentError(
                f"load: the states are not those of a function, as {_trace.title_of(self.function)} is; "
                "set_optimizer with the optimizer that was saved comes first"
            )
        self.states = states

    def explain(self, key: Key) -> str:
        """Describe the effect of a push."""
        names = ", ".join(self.states.get(key, ())) or "none yet"
        return f"each push calls the Python function {_trace.title_of(self.function)}; states of this key: {names}\n"


class Call:
    """A call of a function for one key, which can be undone."""

    __slots__ = ("_before", "_called", "_key", "_stored")

    def __init__(self, called: Called, key: Key, stored: NDArray) -> None:
        """Have named no state yet."""
        self._called, self._key, self._stored = called, key, stored
        self._before: dict[str, NDArray | None] | None = None

    def run(self, key: Key, input: NDArray, stored: NDArray) -> None:
        """Call the function, which may ask for states of the key; 16-bit floats are rounded once, after it."""
        _run_wide(self._call, key, input, stored)

    def _call(self, key: Key, input: NDArray, stored: NDArray) -> None:
        outer = getattr(_local, "call", None)
        _local.call = self
        try:
            self._called.function(key, input, stored)
        finally:
            _local.call = outer

    def state(self, name: str) -> NDArray:
        """Return a state of the key, zeros at first; float32 for 16-bit floats, else of the key's dtype."""
        _trace.check_state_name(name)
        states = self._called.states.setdefault(self._key, {})
        if self._before is None:
            self._before = {}
        if name not in self._before:
            held = states.get(name)
            if held is not None and held.context != self._stored.context:  # loaded from a snapshot
                held = states[name] = held.as_in_context(self._stored.context)
            self._before[name] = None if held is None else held.copy()
            if held is None:
                dtype = self._stored.dtype_name
                states[name] = zeros(self._stored.shape, self._stored.context, computed_in(dtype))
        return states[name]

    def undo(self) -> None:
        """Restore the states as they were before the call."""
        states = self._called.states.get(self._key, {})
        for name, content in (self._before or {}).items():
            if content is None:
                states.pop(name, None)
            else:
                states[name] = content


def _called_on(function: Callable[..., Any]) -> _probe.Call:
    """Return a call of the function with states that the caller gives."""
    called = Called(function)

    def call(key: Key, input: NDArray, stored: NDArray, states: dict[str, NDArray]) -> None:
        called.states[key] = states
        wide = input.astype("float32") if input.dtype_name in NARROW else input
        try:
            called.begin(key, stored).run(key, wide, stored)
        finally:
            called.forget(key)  # the states may be large, and the function lives as long as its store

    return call


def _run_wide(update: Callable[[Key, NDArray, NDArray], None], key: Key, input: NDArray, stored: NDArray) -> None:
    """Call an update, which gets 16-bit floats as float32; the result is rounded once, after the update."""
    if stored.dtype_name not in NARROW:
        update(key, input, stored)
        return
    wide = stored.astype("float32")
    update(key, input, wide)
    stored[...] = wide.astype(stored.dtype_name)


class Read:
    """A function that servers run as a program. If ranks give different ones, that of the lowest living rank counts."""

    def __init__(self, function: Callable[..., Any], prints: bool) -> None:
        """Have read nothing yet; the first key is the first to be read for.

        Args:
            prints: the first call of the function may print; without it, no call does.
        """
        self.function = function
        self._reader = _trace.Reader(function, _called_on(function), prints)
        self.program: _core.Program | None = None
        self._first: Key | None = None  # the key that it was read for

    def forget(self, key: Key) -> None:
        """Do nothing: servers keep the states of a program."""

    @contextlib.contextmanager
    def binding(self) -> Iterator[None]:
        """Run a block that reads the function for keys; if it raises, the program is the one before."""
        before = self.program, self._first
        try:
            yield
            self._reader.check_outside()
        except BaseException:
            self.program, self._first = before
            self._reader.begin()
            raise

    def free(self) -> None:
        """Forget the program, because the store has no keys."""
        self.program = self._first = None

    def meet(self, key: Key, shape: tuple[int, ...], dtype: str, is_table: bool = False) -> None:
        """Read the function for a key, which has to give the same program as for the keys before.

        Args:
            is_table: the key is kept by rows; `shape` is ``(1, ...)`` with the shape of a row.

        Raises:
            InvalidArgumentError: the function cannot be read, or does something else for this key.
        """
        program = self._reader.program(key, shape, dtype, is_table)
        if self.program is None:
            self.program, self._first = program, key
        elif program.text != self.program.text:
            raise InvalidArgumentError(
                f"set_updater: {_trace.title_of(self.function)}: for key {key!r} another program than for {self._first!r}; "
                "the servers of a store run one program for all keys. If a number outside of the function has changed since, "
                "set the function again"
            )


def plain_key(key: object) -> int | str | None:
    """Return a key as a store calls a function with it, an int or a str; None for an object that is no key."""
    if isinstance(key, str):
        return str.__str__(key)
    try:
        return int(operator.index(key))  # type: ignore[arg-type]  # raises for others
    except TypeError:
        return None


def state(name: str) -> Any:
    """Return a state of the key that the function which runs now was called for."""
    reading = _trace.current()
    if reading is not None:
        return reading.state(name)
    call = getattr(_local, "call", None)
    if call is None:
        raise FailedPreconditionError(
            f"state {name!r}: a state belongs to the function of set_updater, which asks for it"
        )
    return call.state(name)
