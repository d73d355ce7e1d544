"""Reading a function of ``set_updater`` as an update program, for stores whose servers run no Python.

The function is called with arrays that have no elements: each operation on them becomes a statement of the program. What
a program cannot say, a branch on elements for one, is an error that names the line of the function.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import _core
from ._elements import BITS, Elements, is_scalar, number
from .context import Context
from .errors import InvalidArgumentError, KVError

if TYPE_CHECKING:
    from ._types import Key

_OURS = tuple(os.path.dirname(str(package)) + os.sep for package in (__file__, np.__file__))
NARROW = ("float16", "bfloat16")
_local = threading.local()  # `reading`: the Reading that this thread is in


def computed_in(dtype: str) -> str:
    """Return the dtype that a function sees of a key, and that its states have."""
    return "float32" if dtype in NARROW else dtype


def current() -> Reading | None:
    """Return what this thread reads now."""
    return getattr(_local, "reading", None)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)


def _here() -> str:
    """Return file and line of the user's code that runs now."""
    frame = sys._getframe()
    while frame is not None:
        if not _is_ours(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]  # the last one is the user's
    return "?"


def _line_of(traceback: TracebackType | None) -> str | None:
    """Return file and line of the user's innermost code in a traceback."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not _is_ours(code.co_filename):
            found = f"{code.co_filename}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found


class Refused(Exception):
    """What a program cannot say; the message begins with a line of the function."""


def _refuse(why: str) -> NoReturn:
    raise Refused(f"{_here()}: {why}")


def _scalar_text(value: Any) -> str:
    """Return a number as programs write it."""
    exact = number(value)
    wide = float(exact)
    if math.isnan(wide):
        _refuse("a NaN, which no program holds")
    if wide != exact:
        _refuse(f"{exact} is no float64; programs hold numbers as those")
    return repr(wide) if not math.isinf(wide) else ("inf" if wide > 0 else "-inf")


class Traced:
    """An array without elements: `input`, `stored`, a state, or what was made of them.

    It has what an NDArray has of arithmetic. In-place operations give the object another content, as they do to an array.
    """

    __array_priority__ = 2000.0
    __slots__ = ("_content", "_reading")

    def __init__(self, reading: Reading, content: str) -> None:
        """Name the statement, or the array of the program, that gives the content."""
        self._reading = reading
        self._content = content

    # ---- what is known without elements

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the key's value."""
        return self._reading.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the key's value; float32 for 16-bit floats, as which servers compute them."""
        return self._reading.dtype

    @property
    def context(self) -> Context:
        """``cpu(0)``: servers have values in host memory."""
        return Context("cpu", 0)

    ctx = context

    @property
    def stype(self) -> str:
        """``'default'``, that is dense."""
        return "default"

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        """Return the extent of the first axis."""
        if not self.shape:
            _refuse("an array of shape () has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        """Say that there are no elements."""
        return f"<{self._content} of shape {self.shape}, whose elements are on the servers>"

    # ---- arithmetic

    def _make(self, op: str, *operands: Any) -> Traced:
        texts = [self._reading.operand(one) for one in operands]
        return Traced(self._reading, self._reading.add(op, texts))

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Traced:
        return self._make(op, other, self) if swapped else self._make(op, self, other)

    def _inplace(self, op: str, other: Any) -> Traced:
        self._content = self._binary(op, other)._content
        return self

    def __neg__(self) -> Traced:
        """Return ``-self``."""
        return self._make("neg", self)

    def __pos__(self) -> Traced:
        """Return a copy."""
        return self.copy()

    def abs(self) -> Traced:
        """Return the absolute values."""
        return self._make("abs", self)

    __abs__ = abs

    def sqrt(self) -> Traced:
        """Return the square roots."""
        return self._make("sqrt", self)

    def sign(self) -> Traced:
        """Return -1, 0 or 1 for each element."""
        return self._make("sign", self)

    def square(self) -> Traced:
        """Return the squares."""
        return self._make("mul", self, self)

    def __pow__(self, exponent: Any) -> Traced:
        """Return the squares, or the square roots; programs have no other powers of arrays."""
        root_or_square = {2: self.square, 0.5: self.sqrt}.get(exponent) if is_scalar(exponent) else None
        return root_or_square() if root_or_square else self._unknown()

    def __ipow__(self, exponent: Any) -> Traced:
        """Square in place, or take the square roots."""
        self._content = (self**exponent)._content
        return self

    def _extreme(self, op: str, other: Any) -> Traced:
        """Return the larger or smaller ones as NumPy does: a NaN of either side stays, which `op` keeps of `other` alone."""
        return self._make("select", self._make("ne", self, self), self, self._make(op, self, other))

    def maximum(self, other: Any) -> Traced:
        """Return the larger of two, element by element."""
        return self._extreme("max", other)

    def minimum(self, other: Any) -> Traced:
        """Return the smaller of two, element by element."""
        return self._extreme("min", other)

    def clip(self, a_min: Any = None, a_max: Any = None) -> Traced:
        """Return the elements, none below `a_min` or above `a_max`."""
        result = self.copy() if a_min is None else self.maximum(a_min)
        return result if a_max is None else result.minimum(a_max)

    # ---- the object as an array

    def copy(self) -> Traced:
        """Return another array with this content."""
        return Traced(self._reading, self._content)

    def copyto(self, other: Any) -> Traced:
        """Give another array this content."""
        if not isinstance(other, Traced):
            _refuse("copyto out of the function; what it computes stays on the servers")
        other[:] = self
        return other

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        """Return a copy, where the dtype is that of the key."""
        from ._elements import dtype_name

        if dtype_name(dtype) != dtype_name(self.dtype):
            _refuse(f"astype({dtype!r}); a program computes in the dtype of its key, or in float32 for 16-bit floats")
        return self.copy()

    def as_in_context(self, context: Context) -> Traced:
        """Return the array itself, which has no other context."""
        if Context(context).device_type != "cpu":
            _refuse(f"as_in_context({context}); servers have values in host memory")
        return self

    as_in_ctx = as_in_context

    def wait_to_read(self) -> None:
        """Wait for nothing."""

    def __getitem__(self, key: Any) -> Traced:
        """Return the array itself for ``[:]``."""
        if _is_whole(key):
            return self
        _refuse("a part of an array; a program works element by element on whole arrays")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Give the array another content by ``[:] =``."""
        if not _is_whole(key):
            _refuse("a part of an array; a program works element by element on whole arrays")
        if isinstance(value, Traced):
            self._content = value._content
        else:  # the same number for every element
            text = self._reading.operand(value)
            self._content = self._reading.add("select", [self._content, text, text])

    # ---- what needs elements

    def __bool__(self) -> NoReturn:
        """Refuse."""
        _refuse(
            "a branch on elements; a function that servers run is read once and without them (`where` chooses for each)"
        )

    def _needs_elements(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse."""
        _refuse("a number out of an array; a function that servers run is read once and without elements")

    __float__ = __int__ = __index__ = __complex__ = __iter__ = __contains__ = __round__ = _needs_elements
    __array__ = __dlpack__ = __dlpack_device__ = __buffer__ = _needs_elements
    asnumpy = asscalar = item = tolist = _needs_elements
    sum = mean = max = min = norm = prod = dot = _needs_elements

    def _unknown(self, *args: Any) -> NoReturn:
        """Refuse."""
        _refuse(f"no operation of update programs; there are {OPERATIONS}")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __rpow__ = __matmul__ = __rmatmul__ = _unknown
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = __invert__ = _unknown
    __ifloordiv__ = __imod__ = __imatmul__ = __iand__ = __ior__ = __ixor__ = _unknown
    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what arrays have and programs do not."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        _refuse(f"`.{name}` of an array; a function that servers run has {OPERATIONS}{_kept(name)}")

    # ---- NumPy's functions

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Record one of NumPy's functions of elements."""
        make = _UFUNCS.get(ufunc.__name__)
        out = kwargs.pop("out", None)
        if make is None or method != "__call__" or kwargs:
            _refuse(f"np.{ufunc.__name__}; a function that servers run has {OPERATIONS}")
        result = make(self, *inputs)
        if out is None:
            return result
        if not isinstance(out[0], Traced):
            _refuse("`out` is not an array of the function")
        out[0]._content = result._content
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Record np.where, np.clip and their like."""
        make = _FUNCTIONS.get(function.__name__)
        if make is None:
            _refuse(f"np.{function.__name__}; a function that servers run has {OPERATIONS}{_kept(function.__name__)}")
        return make(*args, **kwargs)

    def _called(self, name: str, args: Any, options: dict[str, Any]) -> Any:
        """Record a function of `mx.nd`."""
        of_elements = _UFUNCS.get(_OTHER_NAMES.get(name, name))
        make = _FUNCTIONS.get(name) or (of_elements and functools.partial(of_elements, self))
        if make is None or "out" in options:
            what = f"mx.nd.{name}{' with `out`' if make else ''}"
            _refuse(f"{what}; a function that servers run has {OPERATIONS}{_kept(name)}")
        return make(*args, **options)


_KEPT = "; kv.state('m') keeps an array of the key from one update to the next"
OPERATIONS = "+ - * /, ** 2, ** 0.5, comparisons, abs, sqrt, sign, square, maximum, minimum, clip, where and [:] ="


def _kept(name: str) -> str:
    """Return where a function finds what it makes an array like its own for."""
    return _KEPT if name.endswith("_like") else ""


def _is_whole(key: Any) -> bool:
    return key is Ellipsis or (isinstance(key, slice) and key == slice(None))


def _operators() -> None:
    """Give Traced the operators of NDArray."""

    def forward(op: str, self: Traced, other: Any) -> Traced:
        return self._binary(op, other)

    def backward(op: str, self: Traced, other: Any) -> Traced:
        return self._binary(op, other, swapped=True)

    def inplace(op: str, self: Traced, other: Any) -> Traced:
        return self._inplace(op, other)

    for name, op in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}.items():
        setattr(Traced, f"__{name}__", functools.partialmethod(_apply, forward, op))
        setattr(Traced, f"__r{name}__", functools.partialmethod(_apply, backward, op))
        setattr(Traced, f"__i{name}__", functools.partialmethod(_apply, inplace, op))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Traced, f"__{name}__", functools.partialmethod(_apply, forward, name))


def _apply(self: Traced, how: Callable[[str, Traced, Any], Traced], op: str, other: Any) -> Traced:
    return how(op, self, other)


_operators()


def _traced(*operands: Any) -> Traced:
    return next(one for one in operands if isinstance(one, Traced))


def _made(op: str) -> Callable[..., Traced]:
    return lambda self, *inputs: self._make(op, *inputs)


def _extreme(op: str) -> Callable[..., Traced]:
    def make(self: Traced, a: Any, b: Any) -> Traced:
        return a._extreme(op, b) if isinstance(a, Traced) else b._extreme(op, a)

    return make


_UFUNCS: dict[str, Callable[..., Traced]] = {
    **{
        name: _made(op)
        for name, op in {
            "add": "add",
            "subtract": "sub",
            "multiply": "mul",
            "divide": "div",
            "true_divide": "div",
            "negative": "neg",
            "absolute": "abs",
            "fabs": "abs",
            "sqrt": "sqrt",
            "sign": "sign",
            "less": "lt",
            "less_equal": "le",
            "greater": "gt",
            "greater_equal": "ge",
            "equal": "eq",
            "not_equal": "ne",
        }.items()
    },
    "square": lambda self, a: self._make("mul", a, a),
    "positive": lambda self, a: a.copy(),
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
}


# Functions of `mx.nd` by NumPy's names.
_OTHER_NAMES = {"abs": "absolute", "lesser": "less", "lesser_equal": "less_equal"}


def where(condition: Any, x: Any, y: Any) -> Traced:
    """Return `x` where the condition is not 0, else `y`."""
    return _traced(condition, x, y)._make("select", condition, x, y)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **kwargs: Any) -> Traced:
    if kwargs or not isinstance(a, Traced):
        _refuse(f"np.clip of {type(a).__name__} with {sorted(kwargs)}")
    return a.clip(a_min, a_max)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": where,
    "clip": _clip,
    "shape": operator.attrgetter("shape"),
    "size": operator.attrgetter("size"),
    "ndim": operator.attrgetter("ndim"),
    "copy": lambda a: a.copy(),
}


_TAKEN = ("sum", "value", "t", "n", "program", "param", "state", "scalar")
_NUMBERS = ("inf", "infinity", "nan")


def check_state_name(name: object) -> None:
    """Refuse what no program can call a state."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise InvalidArgumentError(f"state {name!r}: a name is a letter, then letters, digits and _, 64 at most")
    if name in _TAKEN or name.lower() in _NUMBERS:
        raise InvalidArgumentError(f"state {name!r}: programs call something else by that name")


class Reading:
    """One call of a function with arrays that have no elements."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        """Know what a function may ask of its arrays."""
        dtype = computed_in(dtype)
        self.shape = shape
        self.dtype: Any = dtype if dtype in BITS else np.dtype(dtype).type
        self.statements: list[str] = []
        self.lines: list[str] = []  # of the function, one for each statement
        self.states: dict[str, Traced] = {}
        self.input = Traced(self, "sum")
        self.stored = Traced(self, "value")

    def operand(self, value: Any) -> str:
        """Return what stands in a statement for a value."""
        if isinstance(value, Traced):
            if value._reading is not self:
                _refuse(f"an array of an earlier call{_KEPT}")
            return value._content
        if isinstance(value, Elements) or (isinstance(value, np.ndarray) and value.ndim > 0):
            _refuse(
                f"an array that is not of the key, of shape {value.shape}; only numbers are part of a program{_KEPT}"
            )
        if not is_scalar(value):
            _refuse(f"arithmetic with {type(value).__name__}")
        return _scalar_text(value)

    def add(self, op: str, operands: list[str]) -> str:
        """Append a statement; return its name."""
        if len(self.statements) == _core.Program.INSTRUCTIONS_MAX:
            _refuse(f"more than {_core.Program.INSTRUCTIONS_MAX} operations; a loop over elements?")
        name = f"_{len(self.statements) + 1}"
        self.statements.append(f"{name} = {op} {' '.join(operands)}")
        self.lines.append(_here())
        return name

    def state(self, name: str) -> Traced:
        """Return the state of that name."""
        check_state_name(name)
        if name not in self.states:
            if len(self.states) == _core.Program.STATES_MAX:
                _refuse(f"more than {_core.Program.STATES_MAX} states")
            self.states[name] = Traced(self, name)
        return self.states[name]

    def text(self, name: str) -> str:
        """Return the program that the call amounts to."""
        stores = [f"{state} <- {array._content}" for state, array in self.states.items() if array._content != state]
        lines = [f"program {name}", *(f"state {state}" for state in self.states), *self.statements, *stores]
        return "\n".join([*lines, f"value <- {self.stored._content}", ""])


@contextlib.contextmanager
def _entered(reading: Reading) -> Iterator[None]:
    _local.reading = reading
    try:
        yield
    finally:
        _local.reading = None


def _read(function: Callable[..., Any], key: Key, shape: tuple[int, ...], dtype: str) -> Reading:
    reading = Reading(shape, dtype)
    with _entered(reading):
        function(key, reading.input, reading.stored)
    return reading


class _Output:
    """Standard output, which drops what the threads in `muted` write."""

    def __init__(self, real: Any) -> None:
        """Mute nobody yet; `real` may be None, as `sys.stdout` of a process without one."""
        self.real = real
        self.muted: set[int] = set()

    def write(self, text: str) -> int:
        """Write, or drop."""
        if self.real is None or threading.get_ident() in self.muted:
            return len(text)
        return int(self.real.write(text))

    def __getattr__(self, name: str) -> Any:
        """Be the real one otherwise."""
        return getattr(self.real, name)


_mute = threading.Lock()


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    """Throw away what this thread writes to standard output, and nothing of what others do."""
    me = threading.get_ident()
    with _mute:
        now: Any = sys.stdout
        output = now if isinstance(now, _Output) else _Output(now)
        output.muted.add(me)
        sys.stdout = output
    try:
        yield
    finally:
        with _mute:
            output.muted.discard(me)
            if not output.muted and sys.stdout is output:
                sys.stdout = output.real


def title_of(function: Any) -> str:
    """Return the name of a function and where it stands."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _program_name(function: Any) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", getattr(function, "__name__", type(function).__name__))[:64]
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"[:64]


def _rebound(function: Any) -> str:
    """Return a hint where the function gives its last parameter's name to another object."""
    import dis

    code = getattr(function, "__code__", None)
    if code is None or code.co_argcount < 3:
        return ""
    name = code.co_varnames[code.co_argcount - 1]
    line = None
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.opname.startswith("STORE_") and instruction.argval == name:
            return f"; line {line} gives the name {name} to another array: write `{name}[:] = ...`"
    return f"; write `{name}[:] = ...` or `{name} += ...`"


def program_of(
    function: Callable[..., Any], key: Key, shape: tuple[int, ...], dtype: str, prints: bool = True
) -> _core.Program:
    """Read a function for one key as a program.

    The function is called twice, the second time with what it prints thrown away, the first time where it does not print;
    both calls have to amount to the same.

    Raises:
        InvalidArgumentError: what servers cannot run; the message names the line.
    """
    where_ = f"set_updater: {title_of(function)} for key {key!r}"
    try:
        with contextlib.nullcontext() if prints else _muted():
            first = _read(function, key, shape, dtype)
        with _muted():
            second = _read(function, key, shape, dtype)
    except Refused as refusal:
        raise InvalidArgumentError(f"{where_}: {refusal}") from None
    except (KVError, MemoryError):
        raise
    except Exception as error:
        line = _line_of(error.__traceback__)
        kept = _KEPT if isinstance(error, KeyError) else ""
        raise InvalidArgumentError(
            f"{where_}: {line}: {type(error).__name__}: {error}; servers run no Python: the function is read as a program{kept}"
        ) from error
    name = _program_name(function)
    text = first.text(name)
    if text != second.text(name):
        raise InvalidArgumentError(
            f"{where_}: {_difference(first, second)}: a second call gives another program; a program "
            "holds no counter and nothing random (`kv.state` keeps arrays between updates)"
        )
    if first.stored._content == "value":
        raise InvalidArgumentError(f"{where_}: the stored value is not changed{_rebound(function)}")
    return _core.Program(text)


def _difference(first: Reading, second: Reading) -> str:
    """Return the line of the function where two readings part."""
    for mine, other, line in zip(first.statements, second.statements, first.lines, strict=False):
        if mine != other:
            return line
    lines = max(first.lines, second.lines, key=len)
    at = min(len(first.lines), len(second.lines))
    return lines[at] if at < len(lines) else "at its end"
