"""Arrays without elements, with which a function of ``set_updater`` is read as an update program.

Each operation on such an array becomes a statement of the program. `Traced` stands for an NDArray of the key, and
`TracedNumpy` for the array that a function of NumPy makes of one: the operations of both are those of what they stand for.
An operation that a program cannot compute with the same bits is refused.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._array.elements import dtype_name, is_scalar, number
from .._array.ndarray import NDArray
from ..context import Context
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from .reading import Reading

_OURS = tuple(os.path.dirname(str(package)) + os.sep for package in (os.path.dirname(__file__), np.__file__))
local = threading.local()  # `reading`: the Reading that this thread is in

KEPT = "; kv.state('m') keeps an array of the key from one update to the next"
OPERATIONS = (
    "+ - * /, ** 2, ** 0.5, comparisons, abs, sqrt, sign, square, maximum, minimum, clip, where, isnan, isfinite, "
    "logical_and, logical_or, logical_not and [:] ="
)
_HOST = Context("cpu", 0)
BOOL = np.dtype(bool)


def current() -> Reading | None:
    """Return the reading that this thread is in."""
    return getattr(local, "reading", None)


def is_ours(filename: str) -> bool:
    """Return whether a file belongs to this package or to NumPy."""
    return filename.startswith(_OURS)


def here() -> str:
    """Return file and line of the user's code that runs now."""
    frame = sys._getframe()
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]  # the last one is the user's
    return "?"


class Refused(InvalidArgumentError):
    """An operation that a program cannot compute; the message begins with a line of the function."""


def refuse(why: str) -> NoReturn:
    """Raise, and note the refusal in the reading: it is final even if the function catches the exception."""
    refusal = Refused(f"{here()}: {why}")
    reading = current()
    if reading is not None and reading.refusal is None:
        reading.refusal = refusal
    raise refusal


def scalar_text(value: Any, is_float: bool) -> str:
    """Return a number as programs write it, with floats rounded to float64, as arithmetic of arrays takes it."""
    exact = number(value)
    wide = float(exact)
    if math.isnan(wide):
        refuse("a NaN, which no program holds")
    if wide != exact and not is_float:
        refuse(f"{exact} is no float64; programs hold numbers as those")
    return repr(wide) if not math.isinf(wide) else ("inf" if wide > 0 else "-inf")


class Rows:
    """The number of rows of a key that is kept by rows, for code that prints a shape or compares whole shapes."""

    __slots__ = ()
    __class__ = property(lambda self: int)  # pyright: ignore[reportIncompatibleMethodOverride]  # as isinstance finds it in other shapes

    def __repr__(self) -> str:
        """Return a text in the place of the number."""
        return "rows"

    def __getattr__(self, name: str) -> Any:
        """Refuse members of an int."""
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self, *args: Any) -> NoReturn:
        """Refuse."""
        refuse("a number that depends on how many rows the key has; servers update rows alone")

    __bool__ = __index__ = __int__ = __float__ = __complex__ = __hash__ = __round__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = __rpow__ = _refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _refuse
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = _refuse


ROWS = Rows()  # one object, so that a shape equals itself


class Array:
    """The part that `Traced` and `TracedNumpy` share."""

    __array_priority__ = 2000.0
    __slots__ = ("_content", "_reading")
    _content: str
    _reading: Reading

    # ---- known without elements

    @property
    def _type(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements."""
        return self._reading.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the key's value."""
        return self._reading.shape

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
            refuse("an array of shape () has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        """Say that there are no elements."""
        return f"<{self._content} of shape {self.shape}, whose elements are on the servers>"

    # ---- the object as an array

    def _set(self, content: str) -> None:
        """Give the array another content, as an operation in place does."""
        self._reading.check()
        self._content = content

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Array:
        raise NotImplementedError

    def _inplace(self, op: str, other: Any) -> Array:
        raise NotImplementedError

    def copy(self) -> Any:
        """Return another array with this content."""
        raise NotImplementedError

    def __copy__(self) -> Any:
        """Return a copy in the same reading."""
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        """Return a copy in the same reading."""
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse."""
        refuse("a pickle of an array; a function that servers run is read without elements")

    def __getitem__(self, key: Any) -> Any:
        """Return the array itself for ``[:]``."""
        if _is_whole(key):
            return self
        refuse("a part of an array; a program works element by element on whole arrays")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Give the array another content by ``[:] =``."""
        if not _is_whole(key):
            refuse("a part of an array; a program works element by element on whole arrays")
        text = self._reading.operand(value)
        if not isinstance(value, Array):  # the same number for every element
            text = self._reading.add("select", [self._content, text, text])
        self._set(self._converted(text, value))

    def _converted(self, text: str, value: Any) -> str:
        """Return an operand as assignment converts it to the elements' dtype."""
        return text

    # ---- refused: operations that need elements

    def __bool__(self) -> NoReturn:
        """Refuse."""
        refuse(
            "a branch on elements; a function that servers run is read once and without them (`where` chooses for each)"
        )

    def _needs_elements(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse."""
        refuse("a number out of an array; a function that servers run is read once and without elements")

    __float__ = __int__ = __index__ = __complex__ = __iter__ = __contains__ = __round__ = _needs_elements
    __array__ = __dlpack__ = __dlpack_device__ = __buffer__ = _needs_elements
    asnumpy = asscalar = item = tolist = _needs_elements

    def _sums_up(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse."""
        refuse(
            "a number out of an array; a function that servers run is read once and without elements (`reduce_sum` of a tkv.Program"
            " adds up all elements of a key)"
        )

    sum = mean = max = min = norm = prod = dot = any = all = _sums_up

    def _unknown(self, *args: Any) -> NoReturn:
        """Refuse."""
        refuse(f"no operation of update programs; there are {OPERATIONS}")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __rpow__ = __matmul__ = __rmatmul__ = _unknown
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = __invert__ = _unknown
    __ifloordiv__ = __imod__ = __imatmul__ = __iand__ = __ior__ = __ixor__ = __pos__ = _unknown
    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __getattr__(self, name: str) -> Any:
        """Refuse members of arrays that programs do not have, methods when they are called."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if not hasattr(self.__class__, name):  # a function may ask whether there is one
            raise AttributeError(f"{self.__class__.__name__!r} object has no attribute {name!r}")
        if name.startswith("_") or name == "dtype_name":  # as functions of this package use them
            self._unknown()
        why = f"`.{name}` of an array; a function that servers run has {OPERATIONS}{_kept(name)}"
        if not callable(getattr(self.__class__, name)):
            refuse(why)
        return lambda *args, **kwargs: refuse(why)

    # ---- NumPy's functions

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Record one of NumPy's functions of elements."""
        out = kwargs.pop("out", None)
        if method != "__call__" or kwargs:
            refuse(f"np.{ufunc.__name__} with {method} {sorted(kwargs)}; a function that servers run has {OPERATIONS}")
        other = inputs[-1]
        if type(other) is Traced and out is None and ufunc in _OPERATORS and not _names(sys._getframe(1), ufunc):
            return other._binary(_OPERATORS[ufunc], inputs[0], swapped=True)  # as an NDArray after a number of NumPy
        if out is not None and type(out[0]) is not TracedNumpy:
            refuse(f"np.{ufunc.__name__} with an `out` that is no array of NumPy; `w[:] = ...` writes to others")
        return self._reading.numpy(ufunc, inputs, None if out is None else out[0])

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Record np.where, np.clip and their like."""
        make = self._reading.function_of_numpy(function.__name__)
        if make is None:
            refuse(f"np.{function.__name__}; a function that servers run has {OPERATIONS}{_kept(function.__name__)}")
        return make(*args, **kwargs)

    def _called(self, name: str, args: Any, options: dict[str, Any]) -> Any:
        """Record a function of `tkv.nd`."""
        make = self._reading.function_of_nd(name)
        if make is None or "out" in options:
            with_out = " with `out`" if make else ""
            refuse(f"tkv.nd.{name}{with_out}; a function that servers run has {OPERATIONS}{_kept(name)}")
        return make(*args, **options)

    def _called_as_numpy(self, name: str) -> NoReturn:
        """Refuse a function of `tkv.np`."""
        refuse(f"tkv.np.{name}; a function that servers run has those of tkv.nd and of NumPy: {OPERATIONS}")


class Traced(Array):
    """An NDArray without elements: `input`, `stored`, a state, or the result of an operation of NDArrays."""

    __slots__ = ()
    # isinstance gives the result that it gives when the function is called.
    __class__ = property(lambda self: NDArray)  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, reading: Reading, content: str) -> None:
        """Name the statement, or the array of the program, that gives the content."""
        self._reading = reading
        self._content = content

    @property
    def dtype(self) -> Any:
        """The dtype of the key's value; float32 for 16-bit floats, as which servers compute them."""
        return self._reading.dtype

    @property
    def context(self) -> Context:
        """``cpu(0)``: servers have values in host memory."""
        return _HOST

    ctx = context

    @property
    def stype(self) -> str:
        """``'default'``, that is dense."""
        return "default"

    # ---- arithmetic, which NDArrays do in their own dtype

    def _make(self, op: str, *operands: Any) -> Traced:
        return Traced(self._reading, self._reading.make(op, *operands))

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Traced:
        return self._make(op, other, self) if swapped else self._make(op, self, other)

    def _inplace(self, op: str, other: Any) -> Traced:
        self._set(self._binary(op, other)._content)
        return self

    def __neg__(self) -> Traced:
        """Return ``-self``."""
        return self._make("neg", self)

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
        exact = number(exponent) if is_scalar(exponent) else None
        return self.square() if exact == 2 else self.sqrt() if exact == 0.5 else self._unknown()

    def __ipow__(self, exponent: Any) -> Traced:
        """Square in place, or take the square roots."""
        self._set((self**exponent)._content)
        return self

    def clip(self, a_min: Any, a_max: Any, out: Any = None) -> Traced:
        """Return the elements, none below `a_min` or above `a_max`."""
        if out is not None:
            refuse("clip with `out`; `w[:] = ...` writes to an array")
        return Traced(self._reading, self._reading.clipped(self, a_min, a_max))

    # ---- the object as an array

    def copy(self) -> Traced:
        """Return another array with this content."""
        return Traced(self._reading, self._content)

    _copy = copy

    def _as(self, kind: Any) -> Traced:
        """Return the array, which has no other class."""
        return self if kind is NDArray else self._unknown()

    def copyto(self, other: Any) -> Traced:
        """Give another array this content, or return a copy in a context."""
        if isinstance(other, Context):
            return self.as_in_context(other).copy()
        if type(other) is not Traced:
            refuse("copyto out of the function; what it computes stays on the servers")
        other[:] = self
        return other

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        """Return a copy, or the array itself, if the dtype is that of the key."""
        if dtype_name(dtype) != dtype_name(self.dtype):
            refuse(f"astype({dtype!r}); a program computes in the dtype of its key, or in float32 for 16-bit floats")
        return self.copy() if copy else self

    def as_in_context(self, context: Context) -> Traced:
        """Return the array itself, which has no other context."""
        if Context(context) != _HOST:
            refuse(f"as_in_context({context}); servers have values in host memory, cpu(0)")
        return self

    as_in_ctx = as_in_context

    def wait_to_read(self) -> None:
        """Wait for nothing."""


class TracedNumpy(Array):
    """An array of NumPy without elements: the result of one of its functions, with the dtype that NumPy gives it."""

    __slots__ = ("_own_type",)
    __class__ = property(lambda self: np.ndarray)  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, reading: Reading, content: str, type: np.dtype[Any]) -> None:
        """Name the statement that gives the content, and the dtype."""
        self._reading = reading
        self._content = content
        self._own_type = type

    @property
    def _type(self) -> np.dtype[Any]:
        return self._own_type

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements."""
        return self._own_type

    # ---- arithmetic, which NumPy does in the dtype that it promotes to

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Array:
        if type(other) is Traced:  # an NDArray takes the operation over, in its own dtype
            return other._binary(op, self, not swapped)
        return self._ufunc(UFUNCS[op], *((other, self) if swapped else (self, other)))

    def _inplace(self, op: str, other: Any) -> Array:
        if type(other) is Traced:  # an NDArray takes the operation over, and the array stays as it is
            return other._binary(op, self, swapped=True)
        return self._reading.numpy(UFUNCS[op], (self, other), self)

    def _ufunc(self, ufunc: Any, *inputs: Any) -> TracedNumpy:
        return self._reading.numpy(ufunc, inputs)

    def __neg__(self) -> TracedNumpy:
        """Return ``-self``."""
        return self._ufunc(np.negative, self)

    def __pos__(self) -> TracedNumpy:  # type: ignore[override]  # Array refuses
        """Return a copy."""
        return self._ufunc(np.positive, self)

    def __abs__(self) -> TracedNumpy:
        """Return the absolute values."""
        return self._ufunc(np.absolute, self)

    def __invert__(self) -> TracedNumpy:  # type: ignore[override]  # Array refuses
        """Return the mask the other way round."""
        return self._ufunc(np.invert, self)

    def __pow__(self, exponent: Any) -> TracedNumpy:
        """Return the squares, or the square roots; programs have no other powers of arrays."""
        if not is_scalar(exponent) or number(exponent) not in (2, 0.5):
            self._unknown()
        self._reading.check_type("**", (np.ones(1, self._type) ** exponent).dtype, self._reading.type)
        square = number(exponent) == 2
        content = self._reading.make("mul", self, self) if square else self._reading.make("sqrt", self)
        return TracedNumpy(self._reading, content, self._type)

    def __ipow__(self, exponent: Any) -> TracedNumpy:
        """Square in place, or take the square roots."""
        self._set((self**exponent)._content)
        return self

    def clip(self, min: Any = None, max: Any = None, **kwargs: Any) -> TracedNumpy:
        """Return the elements, none below `min` or above `max`."""
        if kwargs:
            refuse(f"clip with {sorted(kwargs)}")
        dummies: list[Any] = [None if one is None else self._reading.dummy(one) for one in (self, min, max)]
        self._reading.check_type("np.clip", np.clip(*dummies).dtype, self._reading.type)
        return TracedNumpy(self._reading, self._reading.clipped(self, min, max), self._reading.type)

    # ---- the object as an array

    def copy(self, order: str = "C") -> TracedNumpy:
        """Return another array with this content."""
        return TracedNumpy(self._reading, self._content, self._type)

    def astype(self, dtype: Any, copy: bool = True) -> TracedNumpy:
        """Return a copy, or the array itself, in a dtype that holds the same numbers."""
        kind = np.dtype(dtype)
        if kind == self._type:
            return self.copy() if copy else self
        is_exact = self._type == BOOL or (kind == self._reading.type and kind.kind == "f")
        if kind == BOOL and self._type == self._reading.type:
            return TracedNumpy(self._reading, self._reading.make("ne", self, 0), kind)
        if not is_exact:
            refuse(f"astype({dtype!r}) of {self._type}; a program computes in {self._reading.type}")
        return TracedNumpy(self._reading, self._content, kind)

    def _converted(self, text: str, value: Any) -> str:
        """Return an operand as assignment converts it to the elements' dtype."""
        if self._type == BOOL and getattr(value, "_type", None) != BOOL:
            return self._reading.add("ne", [text, "0.0"])
        if self._type not in (BOOL, self._reading.type):
            refuse(f"[:] = to an array of {self._type}; a program computes in {self._reading.type}")
        return text


def _kept(name: str) -> str:
    """Return a hint at `kv.state` for functions that make an array like another one."""
    return KEPT if name.endswith("_like") else ""


def _is_whole(key: Any) -> bool:
    return key is Ellipsis or (isinstance(key, slice) and key == slice(None))


def _names(frame: Any, ufunc: Any) -> bool:
    """Return whether a frame may call a function of NumPy by a name.

    If not, the frame is at an operator, such as ``*`` or ``<``, or at a call that uses one, such as ``math.prod``. A function
    of NumPy that is found by no name looks like an operator; its program then gives other bits than the call and is refused.
    """
    import dis

    code = frame.f_code
    if dis.opname[code.co_code[frame.f_lasti]].startswith(("BINARY_", "INPLACE_", "COMPARE_")):
        return False
    scopes = (vars(np), frame.f_globals, frame.f_locals)
    names = [*code.co_names, *(one for one in code.co_consts if isinstance(one, str)), *frame.f_locals]
    if "operator" in names:  # operator.add, too, has the name of a function of NumPy
        names = [name for name in names if name not in vars(operator)]
    return any(scope.get(name) is ufunc for scope in scopes for name in names)


UFUNCS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_OPERATORS = {ufunc: op for op, ufunc in UFUNCS.items()}
_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _operators() -> None:
    """Give the traced arrays the operators of the arrays that they stand for."""

    def forward(op: str, self: Array, other: Any) -> Array:
        return self._binary(op, other)

    def backward(op: str, self: Array, other: Any) -> Array:
        return self._binary(op, other, swapped=True)

    def inplace(op: str, self: Array, other: Any) -> Array:
        return self._inplace(op, other)

    def logic(op: str, self: TracedNumpy, other: Any) -> Array:
        return self._ufunc(_LOGIC[op], self, other)

    def logic_inplace(op: str, self: TracedNumpy, other: Any) -> Array:
        return self._reading.numpy(_LOGIC[op], (self, other), self)

    def give(kind: type, name: str, how: Callable[..., Array], op: str) -> None:
        setattr(kind, name, functools.partialmethod(_apply, how, op))

    for name, op in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}.items():
        give(Array, f"__{name}__", forward, op)
        give(Array, f"__r{name}__", backward, op)
        give(Array, f"__i{name}__", inplace, op)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        give(Array, f"__{name}__", forward, name)
    for name in _LOGIC:
        for prefix in ("", "r"):
            give(TracedNumpy, f"__{prefix}{name}__", logic, name)
        give(TracedNumpy, f"__i{name}__", logic_inplace, name)


def _apply(self: Array, how: Callable[[str, Any, Any], Array], op: str, other: Any) -> Array:
    return how(op, self, other)


_operators()


# The names that messages of Python show, and code that asks for them, are those of the arrays that these stand for.
Traced.__name__ = Traced.__qualname__ = "NDArray"
TracedNumpy.__name__ = TracedNumpy.__qualname__ = "ndarray"


def check_elements(weight: Any) -> None:
    """Refuse an optimizer that runs without servers on an array without elements."""
    if issubclass(type(weight), Array):
        refuse(
            "an optimizer inside of a function, which servers do not run; `set_optimizer` takes the optimizer, and "
            "`set_updater` the updater itself"
        )
