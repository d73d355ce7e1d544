"""Reading a function of ``set_updater`` as an update program, for stores whose servers run no Python.

The function is called with arrays that have no elements: each operation on them becomes a statement of the program. An
operation that a program does not have, such as a branch on elements, is an error that names the line of the function.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import _core
from .._array.elements import BITS, Elements, is_scalar
from ..errors import InvalidArgumentError, KVError
from . import probe as _probe
from . import statements as _statements
from . import traced as _traced
from .heap import change_of
from .muting import muted
from .probe import NARROW, computed_in
from .traced import KEPT, Refused, Traced, TracedNumpy, current, here, is_ours, refuse, scalar_text
from .watch import Look, Watch, difference, line_that_stores

if TYPE_CHECKING:
    from .._types import Key

__all__ = ["NARROW", "Refused", "computed_in", "current", "is_ours"]

_SEEDS_OF_TORCH = ("_lazy_seed_tracker", "_LazySeedTracker")  # of its GPUs, which `torch.manual_seed` notes


def _line_of(traceback: TracebackType | None) -> str | None:
    """Return file and line of the user's innermost code in a traceback."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_ours(code.co_filename):
            found = f"{code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


_TAKEN = ("sum", "value", "t", "n", "program", "param", "state", "scalar")
_NUMBERS = ("inf", "infinity", "nan")
_READS_MAX = 8  # behind the first
_NO_ERRORS_OF_NUMPY = (
    "; servers raise no FloatingPointError and give no warnings of NumPy (np.seterr, warnings): `with np.errstate(all='ignore'):`"
    " in the function leaves them out, and `np.where` chooses for each element"
)


def check_state_name(name: object) -> None:
    """Raise for a name that a state of a program cannot have."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise InvalidArgumentError(f"state {name!r}: a name is a letter, then letters, digits and _, 64 at most")
    if name in _TAKEN or name.lower() in _NUMBERS:
        raise InvalidArgumentError(
            f"state {name!r}: programs call something else by that name; another one is needed, and none of"
            f" {', '.join((*_TAKEN, *_NUMBERS))}"
        )


class Reading:
    """A call of a function with arrays that have no elements."""

    def __init__(self, shape: tuple[int, ...], dtype: str, is_table: bool) -> None:
        """Keep the shape and the dtype that a function may ask for; a table has a shape without a number of rows."""
        dtype = computed_in(dtype)
        self.shape: tuple[Any, ...] = (_traced.ROWS, *shape[1:]) if is_table else shape
        self.dtype: Any = dtype if dtype in BITS else np.dtype(dtype).type
        self.type: np.dtype[Any] = np.dtype(BITS.get(dtype, dtype))  # as NumPy's functions see it
        self.refusal: Refused | None = None  # the first one, also if the function has caught it
        self.statements: list[str] = []
        self.lines: list[str] = []  # of the function, one for each statement
        self.states: dict[str, Traced] = {}
        self.input = Traced(self, "sum")
        self.stored = Traced(self, "value")

    def check(self) -> None:
        """Refuse an array of an earlier call."""
        if current() is not self:
            refuse(f"an array of an earlier call{KEPT}")

    def operand(self, value: Any) -> str:
        """Return the word of a statement for a value."""
        if isinstance(value, _traced.Array):
            value._reading.check()
            return value._content
        if isinstance(value, Elements) or (isinstance(value, np.ndarray) and value.ndim > 0):
            refuse(f"an array that is not of the key, of shape {value.shape}; only numbers are part of a program{KEPT}")
        if not is_scalar(value):
            refuse(f"arithmetic with {type(value).__name__}")
        return scalar_text(value, self.type.kind == "f")

    def make(self, op: str, *operands: Any) -> str:
        """Append a statement on values; return its name."""
        return self.add(op, [self.operand(one) for one in operands])

    def numpy(self, ufunc: Any, inputs: tuple[Any, ...], out: TracedNumpy | None = None) -> TracedNumpy:
        """Record one of NumPy's functions of elements, which may write to one of its arrays."""
        self.check_axes(f"np.{ufunc.__name__}")
        content, made = _statements.record(self, ufunc, inputs)
        if out is None:
            return TracedNumpy(self, content, made)
        ufunc(*[self.dummy(one) for one in inputs], out=np.ones(1, out._type))  # raises if NumPy does not cast
        out._set(content)
        return out

    def function_of_numpy(self, name: str) -> Callable[..., Any] | None:
        """Return a function of NumPy on arrays without elements, or None: programs do not have it."""
        return _statements.OF_NUMPY.get(name)

    def function_of_nd(self, name: str) -> Callable[..., Any] | None:
        """Return a function of `tkv.nd` on arrays without elements, or None: programs do not have it."""
        return _statements.OF_ND.get(name)

    def clipped(self, array: _traced.Array, low: Any, high: Any) -> str:
        """Append the statements of a clip; return the name of the last one."""
        return _statements.clipped(self, array, low, high)

    def dummy(self, value: Any) -> Any:
        """Return an operand for a trial with NumPy: a number itself, or for a traced array one element of its dtype."""
        self.operand(value)
        return np.ones(1, value._type) if isinstance(value, _traced.Array) else value

    def check_type(self, who: str, found: np.dtype[Any], *wanted: np.dtype[Any]) -> None:
        """Refuse a computation of NumPy in another dtype than the program's."""
        if found not in wanted:
            refuse(
                f"{who} computes in {found}, and the program of this key in {self.type}; "
                "write float(x) for a number of NumPy, and .astype(weight.dtype) for masks"
            )

    def check_axes(self, who: str) -> None:
        """Refuse NumPy's functions of a key of shape (), for which they return a number and no array."""
        if not self.shape:
            refuse(f"{who} of a key of shape (), which makes a number; functions of tkv.nd make arrays")

    def add(self, op: str, operands: list[str]) -> str:
        """Append a statement; return its name."""
        self.check()
        if len(self.statements) == _core.Program.INSTRUCTIONS_MAX:
            refuse(f"more than {_core.Program.INSTRUCTIONS_MAX} operations; a loop over elements?")
        name = f"_{len(self.statements) + 1}"
        self.statements.append(f"{name} = {op} {' '.join(operands)}")
        self.lines.append(here())
        return name

    def state(self, name: str) -> Traced:
        """Return the state of that name."""
        check_state_name(name)
        if name not in self.states:
            if len(self.states) == _core.Program.STATES_MAX:
                refuse(f"more than {_core.Program.STATES_MAX} states")
            self.states[name] = Traced(self, name)
        return self.states[name]

    def text(self, name: str) -> str:
        """Return the program that the call amounts to."""
        stores = [f"{state} <- {array._content}" for state, array in self.states.items() if array._content != state]
        lines = [f"program {name}", *(f"state {state}" for state in self.states), *self.statements, *stores]
        return "\n".join([*lines, f"value <- {self.stored._content}", ""])


@contextlib.contextmanager
def _entered(reading: Reading) -> Iterator[None]:
    _traced.local.reading = reading
    try:
        yield
    finally:
        _traced.local.reading = None


def _read(function: Callable[..., Any], key: Key, shape: tuple[int, ...], dtype: str, is_table: bool) -> Reading:
    reading = Reading(shape, dtype, is_table)
    try:
        with _entered(reading):
            function(key, reading.input, reading.stored)
    except Exception:
        if reading.refusal is None:
            raise
    if reading.refusal is not None:  # final, even if the function has caught it
        raise reading.refusal
    return reading


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def name_of(function: Any) -> str:
    """Return the name of a function, or the class of an object that is called."""
    function = _inner(function)
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def title_of(function: Any) -> str:
    """Return the name of a function and the place of its definition."""
    function = _inner(function)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):  # an object may answer every name
        code = getattr(type(function).__call__, "__code__", None)
    name = name_of(function)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _program_name(function: Any) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", name_of(function))[:64]
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"[:64]


def _rebound(function: Any) -> str:
    """Return a hint if the function gives its last parameter's name to another object."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code.co_argcount < 3:
        return ""
    name = code.co_varnames[code.co_argcount - 1]
    line = line_that_stores(code, name)
    if line is not None:
        return f"; line {line} gives the name {name} to another array: write `{name}[:] = ...`"
    return f"; write `{name}[:] = ...` or `{name} += ...`"


class Reader:
    """Reads one function for the keys of a store."""

    def __init__(self, function: Callable[..., Any], call: _probe.Call, prints: bool) -> None:
        """Have read nothing yet.

        Args:
            call: calls the function with elements.
            prints: the first call may print; without it, no call does.
        """
        self._function = function
        self._call = call
        self._prints = prints
        self._compared: set[tuple[str, str]] = set()  # programs and dtypes
        self._name = _program_name(function)
        self._functions: dict[CodeType, list[FunctionType]] = {}  # whose code has run
        self.begin()

    def begin(self) -> None:
        """Forget the noted values, because the script may change them before it creates the next key."""
        self._watch = Watch(self._function, self._functions)
        self._before: Look | None = (
            None  # the values outside of the function before the calls that have not been checked
        )
        self._where = ""  # the last of these calls, for messages
        self._reads: list[tuple[Key, tuple[int, ...], str, bool]] = []  # the keys of these calls

    def program(self, key: Key, shape: tuple[int, ...], dtype: str, is_table: bool = False) -> _core.Program:
        """Read the function for one key as a program.

        The function is called twice without elements, and again while a call runs code that no call before it has run. All
        calls have to amount to the same. The function is then called with elements, for which the program has to give the
        same bits. Only the first call may print, and only if `prints`. `check_outside` follows the last key.

        Args:
            is_table: the key is kept by rows, and `shape` is ``(1, ...)`` with the shape of a row. The function cannot ask for
                the number of rows.

        Raises:
            InvalidArgumentError: servers cannot run the function; the message names the line.
        """
        where_ = self._where = f"set_updater: {title_of(self._function)} for key {key!r}"
        watch, name = self._watch, self._name
        size = watch.size()
        self._reads.append((key, shape, dtype, is_table))
        with watch.watching(), contextlib.nullcontext() if self._prints else muted():
            first = self._read(where_, key, shape, dtype, is_table)
        self._check_clock(where_)
        text = first.text(name)
        if self._before is None:
            self._before = self._look(where_)
        else:
            self._note_new_code(size)
        for _ in range(_READS_MAX):
            size = watch.size()
            with watch.watching(), muted():
                second = self._read(where_, key, shape, dtype, is_table)
            self._check_clock(where_)
            is_known = watch.size() == size
            if text != second.text(name):
                self._check(is_known)
                self._refuse_divergence(first, second)
            if is_known:
                break
            self._note_new_code(size)
        if first.stored._content == "value":
            raise InvalidArgumentError(f"{where_}: the stored value is not changed{_rebound(self._function)}")
        program = _core.Program(text)
        try:
            with muted():
                self._compare(where_, program, list(first.states), key, shape, dtype, is_table)
        except InvalidArgumentError:
            self._check(is_known=True)  # a counter is the better reason
            raise
        if (text, dtype) not in self._compared:
            self._check_heap(where_, first, key, shape, dtype, is_table)
        self._compared.add((text, dtype))
        return program

    def _check_heap(
        self, where_: str, first: Reading, key: Key, shape: tuple[int, ...], dtype: str, is_table: bool
    ) -> None:
        """Raise if calls change any object of the process. This takes a while, so it is done once for each program."""
        with muted():
            self._read(where_, key, shape, dtype, is_table)  # changes that are made once
            changed = change_of(lambda: self._read(where_, key, shape, dtype, is_table))
            last = self._read(where_, key, shape, dtype, is_table)
        if changed is not None:
            self._check(is_known=True)  # knows better names
            self._refuse_change(changed)
        if last.text(self._name) != first.text(self._name):  # of a counter that has reached its end meanwhile
            self._check(is_known=True)
            self._refuse_divergence(first, last)

    def check_outside(self) -> None:
        """Raise if calls for the last keys have changed a value outside of the function."""
        if self._before is None:
            return
        try:
            if difference(self._before, self._watch.look(), is_known=True) is not None:
                # The first call for a key may have filled a dict.
                self._before = self._watch.look()
                with muted():
                    for key, shape, dtype, is_table in self._reads:
                        self._read(self._where, key, shape, dtype, is_table)
                self._check(is_known=True)
        finally:
            self.begin()

    def _note_new_code(self, size: int) -> None:
        """If the last call ran new code, check the values noted so far, and note them again with the names of that code.

        Args:
            size: the size of the watch before that call.
        """
        if self._watch.size() != size:
            self._check(is_known=False)
            self._before = self._look(self._where)

    def _read(self, where_: str, key: Key, shape: tuple[int, ...], dtype: str, is_table: bool) -> Reading:
        try:
            return _read(self._function, key, shape, dtype, is_table)
        except Refused as refusal:
            raise InvalidArgumentError(f"{where_}: {refusal}") from None
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where_}: {_line_of(error.__traceback__)}: {error}") from None
        except (KVError, MemoryError, RecursionError):
            raise
        except Exception as error:
            line = _line_of(error.__traceback__) or "when it is called"
            kept = KEPT if isinstance(error, KeyError) else ""
            raise InvalidArgumentError(
                f"{where_}: {line}: {type(error).__name__}: {error}; servers run no Python: the function is read as a program{kept}"
            ) from error

    def _check_clock(self, where_: str) -> None:
        if self._watch.clock is not None:
            raise InvalidArgumentError(f"{where_}: {self._watch.clock}: a program has no clock and nothing random")

    def _look(self, where_: str) -> Look:
        """Return the values outside of the function; raise if one of them cannot be seen, or is another one each time."""
        values = self._watch.look()
        self._check_clock(where_)
        iterator = values.iterator()
        if iterator is not None:
            raise InvalidArgumentError(
                f"{where_}: it uses {iterator}, which gives something else each time; a program holds no iterator"
            )
        return values

    def _check(self, is_known: bool) -> None:
        """Raise if a call has changed a value outside of the function, or made one without running new code."""
        assert self._before is not None
        changed = difference(self._before, self._watch.look(), is_known)
        if changed is not None:
            self._refuse_change(changed)

    def _refuse_divergence(self, first: Reading, other: Reading) -> NoReturn:
        raise InvalidArgumentError(
            f"{self._where}: {_line_of_divergence(first, other)}: a second call gives another program; a program "
            "holds no counter and nothing random (`kv.state` keeps arrays between updates)"
        )

    def _refuse_change(self, changed: str) -> None:
        if any(name in changed for name in _SEEDS_OF_TORCH):
            changed = (
                "PyTorch's random numbers by torch.manual_seed (torch.Generator().manual_seed(n) makes some of its own)"
            )
        line = self._watch.line_of(changed)
        raise InvalidArgumentError(
            f"{self._where}: {f'{line}: ' if line else ''}a call changes {changed}; a program holds no counter, no schedule and "
            "nothing random (`kv.state` keeps arrays between updates, and a rate that changes is a param of a tkv.Program)"
        )

    def _compare(
        self,
        where_: str,
        program: _core.Program,
        states: list[str],
        key: Key,
        shape: tuple[int, ...],
        dtype: str,
        is_table: bool,
    ) -> None:
        """Raise if the program gives other bits than the function."""
        if math.prod(shape) > _probe.OWN_SHAPE_MAX:
            small = _probe.small_shape(shape)
            with contextlib.suppress(Exception):  # a function may ask for the shape
                if _read(self._function, key, small, dtype, is_table).text(program.name) == program.text:
                    shape = small
        if math.prod(shape) > _probe.LARGEST:
            raise InvalidArgumentError(
                f"{where_}: a number of the program depends on the shape {shape}, which is too large to compare the program "
                "with the function; compute the number outside of the function"
            )
        is_thorough = (program.text, dtype) not in self._compared

        def compare(call: _probe.Call) -> None:
            with np.errstate(all="ignore"):
                _probe.compare(program, call, key, shape, dtype, states, is_thorough)

        try:
            compare(_with_errors_of_numpy(self._call))
        except MemoryError:
            raise
        except Exception as error:
            advice = ""
            with contextlib.suppress(Exception):
                compare(self._call)
                advice = _NO_ERRORS_OF_NUMPY
            if isinstance(error, _probe.Difference):
                advice = (
                    advice or "; use the operations of docs/programs.md on arrays of the key's dtype, or a tkv.Program"
                )
                raise InvalidArgumentError(f"{where_}: {error}{advice}") from None
            line = _line_of(error.__traceback__)
            at = f"{line}: called with elements it raises " if line else ""
            kind = "" if isinstance(error, KVError) else f"{type(error).__name__}: "
            raise InvalidArgumentError(f"{where_}: {at}{kind}{error}{advice}") from error


def _with_errors_of_numpy(call: _probe.Call) -> _probe.Call:
    """Return a call under the error state of NumPy that this thread has now, but without what NumPy itself prints."""
    state: dict[str, Any] = {kind: "ignore" if how == "print" else how for kind, how in np.geterr().items()}

    def called(*arguments: Any) -> None:
        with np.errstate(**state):
            call(*arguments)

    return called


def _line_of_divergence(first: Reading, second: Reading) -> str:
    """Return the line of the function at which two readings begin to differ."""
    for mine, other, line in zip(first.statements, second.statements, first.lines, strict=False):
        if mine != other:
            return line
    lines = max(first.lines, second.lines, key=len)
    at = min(len(first.lines), len(second.lines))
    return lines[at] if at < len(lines) else "at its end"
