"""The class ndarray, and the functions of ``mx.np``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as _np

from .._array import arithmetic as _arithmetic
from .._array import elements as _elements
from .._array import host as _host
from .._array import indexing as _indexing
from .._array import ndarray as _nd
from .._array import reshape as _reshape
from .._array.ndarray import NDArray
from ..errors import InvalidArgumentError, OutOfRangeError

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._types import DType, Elements, Scalar, Shape, Where

__all__ = [
    "abs",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "array",
    "broadcast_to",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cumsum",
    "divide",
    "dot",
    "empty",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "eye",
    "flip",
    "floor",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "isfinite",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "multiply",
    "ndarray",
    "negative",
    "not_equal",
    "ones",
    "ones_like",
    "outer",
    "power",
    "prod",
    "repeat",
    "reshape",
    "rint",
    "round",
    "sign",
    "sin",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "tanh",
    "tile",
    "transpose",
    "var",
    "where",
    "zeros",
    "zeros_like",
]


def _check_numbers(name: str) -> None:
    if name in _elements.NO_NUMBERS:
        raise InvalidArgumentError(f"{name} arrays have no arithmetic")


def _check_order(order: str) -> None:
    if order != "C":
        raise InvalidArgumentError(f"order={order!r}: arrays lie in C order")


class ndarray(NDArray):
    """An NDArray that prints, indexes, compares and promotes as NumPy's arrays do.

    Operands of two dtypes meet in the dtype that NumPy promotes them to, and comparisons give bools, which index as masks.

    Example:
        >>> mx.np.ones((2, 3)) * -2
        array([[-2., -2., -2.],
               [-2., -2., -2.]])
    """

    __slots__ = ()
    _modulo = staticmethod(_host.numpy_modulo)

    def __repr__(self) -> str:
        """Return NumPy's form; float32 is the default and not named."""
        body = self.astype("float32") if self.dtype_name in _elements.BITS else self
        text = _np.array2string(body._host(), separator=", ", prefix="array(")
        if self.dtype_name in ("float32", "bool"):
            return f"array({text})"
        return f"array({text}, dtype={self.dtype_name})"

    def __str__(self) -> str:
        """Return the elements alone."""
        return str((self.astype("float32") if self.dtype_name in _elements.BITS else self)._host())

    @property
    def dtype(self) -> Any:
        """The element type as a ``numpy.dtype``, or its name for bfloat16, float8_e4m3fn and float8_e5m2."""
        name = self.dtype_name
        return name if name in _elements.BITS else _np.dtype(name)

    def __format__(self, form: str) -> str:
        """Return the only element of an array of shape ``()`` in a form such as ``.2f``."""
        return format(self.item(), form) if form and self.ndim == 0 else super().__format__(form)

    def __getitem__(self, key: Any) -> Self:
        """Return a view for an int or a slice of the first axis, else a copy; a row of a 1-D array has shape ``()``."""
        row = super().__getitem__(key)
        return row._reshape([]) if self.ndim == 1 and _indexing.names_row(key) else row

    def reshape(self, *dims: Any, order: str = "C", **named: Any) -> Self:
        """Return a view with another shape of as many elements, one of whose extents may be -1; `order` is ``'C'``."""
        _check_order(order)
        return super().reshape(*dims, **named)

    def copy(self, order: str = "C") -> Self:
        """Return a new array with the same elements; `order` is ``'C'``."""
        _check_order(order)
        return super().copy()

    def astype(  # type: ignore[override]  # NumPy's order
        self, dtype: DType, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Self:
        """Return a copy with another dtype, which `casting` must allow as ``numpy.can_cast`` has it, in C order."""
        if order not in ("K", "A"):
            _check_order(order)
        own, wanted = (_elements.numpy_dtype(_elements.dtype_name(one)) for one in (self.dtype, dtype))
        if casting != "unsafe" and not _np.can_cast(own, wanted, casting):  # type: ignore[arg-type]  # or NumPy refuses
            raise InvalidArgumentError(f"astype: {own} to {wanted} is not casting={casting!r}")
        return super().astype(dtype, copy)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Self:
        """Return the elements, but not below `min` nor above `max`."""
        return clip(self, min, max, out=out)  # type: ignore[no-any-return]

    def flatten(self, order: str = "C") -> Self:
        """Return a copy of the elements with one axis; `order` says in which order, as NumPy's."""
        flat = self._host().flatten(order)  # type: ignore[arg-type]  # or NumPy refuses
        return _elements.filled(type(self), flat, self.context, self.dtype_name)

    def item(self, *at: Any) -> Any:
        """Return one element as a number of Python: the only one, or that at an index."""
        if not at:
            return self.asscalar().item()
        try:
            return self._host().item(*at)
        except IndexError as error:
            raise OutOfRangeError(f"item: {error}; the array has shape {self.shape}") from None
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"item: {error}") from None

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> None:
        """Put the elements in order along an axis, in place, as NumPy does."""
        self[...] = sort(self, axis, kind=kind, order=order)

    def _extents(self, wanted: tuple[Any, ...], reverse: bool) -> list[int]:
        if reverse:
            raise InvalidArgumentError("reshape: reverse=True; the codes that it is for are those of mx.nd")
        return _reshape.of_numpy(self.shape, wanted)

    def _promoted(self, op: _arithmetic.Operation, other: Any) -> tuple[Self, Any]:
        """Return both operands in the dtype that NumPy would calculate in; Python's numbers take the array's."""
        name = self.dtype_name
        _check_numbers(name)
        if _elements.is_scalar(other):
            if isinstance(other, (bool, _np.bool_)):
                other = int(other)
            elif name not in _elements.FLOATS and not isinstance(_elements.number(other), int):
                name = "float64"
            elif name == "bool":
                name = "int64"
        elif isinstance(other, (_np.ndarray, NDArray)):
            theirs = other.dtype_name if isinstance(other, NDArray) else other.dtype.name
            _check_numbers(theirs)
            if theirs != name:
                try:
                    name = _np.promote_types(_elements.numpy_dtype(name), _elements.numpy_dtype(theirs)).name
                except TypeError as error:
                    raise InvalidArgumentError(f"arithmetic: {error}") from None
        else:
            return self, other
        if op == _arithmetic.DIV and name not in _elements.FLOATS:
            name = "float64"
        if not _elements.is_scalar(other):
            other = _elements.filled(
                type(self), other._host() if isinstance(other, NDArray) else other, self.context, name
            )
        return self.astype(name, copy=False), other

    def _binary(self, op: _arithmetic.Operation, other: object, swapped: bool = False) -> Self:
        if op in _arithmetic.COMPARISONS and (_elements.is_scalar(other) or isinstance(other, (_np.ndarray, NDArray))):
            theirs: Any = other._host() if isinstance(other, NDArray) else other
            try:
                truth = _arithmetic.COMPARISONS[op](self._host(), theirs)
            except ValueError:
                raise InvalidArgumentError(f"arithmetic: shape {self.shape} with {_np.shape(theirs)}") from None
            return _elements.filled(type(self), truth, self.context, "bool")
        this, operand = self._promoted(op, other)
        result: Any = NDArray._binary(this, op, operand, swapped)  # of the class of `this`, or NotImplemented
        return result  # type: ignore[no-any-return]

    def _inplace(self, op: _arithmetic.Operation, other: object) -> Self:
        if _elements.is_scalar(other) or not isinstance(other, (_np.ndarray, NDArray)):
            return super()._inplace(op, other)
        this, operand = self._promoted(op, other)
        if this.dtype_name == self.dtype_name:
            return super()._inplace(op, operand)
        if not _np.can_cast(
            _elements.numpy_dtype(this.dtype_name), _elements.numpy_dtype(self.dtype_name), "same_kind"
        ):
            raise InvalidArgumentError(f"arithmetic: a result of {this.dtype_name} into {self.dtype_name}")
        return self._take(NDArray._binary(this, op, operand))

    def _take(self, result: NDArray) -> Self:
        """Write a result of this shape to the memory."""
        if result.shape != self.shape:
            raise InvalidArgumentError(f"arithmetic: the result has shape {result.shape}, the array {self.shape}")
        self[...] = result
        return self

    def __matmul__(self, other: Any) -> Self:
        """Return the matrix product, as ``numpy.matmul``."""
        return matmul(self, other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any) -> Self:
        """Return the matrix product of `other` and this array."""
        return matmul(other, self)  # type: ignore[no-any-return]

    def __imatmul__(self, other: Any) -> Self:
        """Leave the matrix product in place."""
        return self._take(self @ other)

    def _joined(self, join: Any, other: Any) -> Self:
        """Return NumPy's result for two arrays of bools; other dtypes have no logic."""
        theirs = other._host() if isinstance(other, NDArray) else other
        if self.dtype_name != "bool" or not isinstance(theirs, (bool, _np.bool_, _np.ndarray)):
            return NotImplemented  # type: ignore[no-any-return]
        if _np.asarray(theirs).dtype != bool:
            return NotImplemented  # type: ignore[no-any-return]
        try:
            return _elements.filled(type(self), join(self._host(), theirs), self.context, "bool")
        except ValueError:
            raise InvalidArgumentError(f"arithmetic: shape {self.shape} with {_np.shape(theirs)}") from None

    def __and__(self, other: Any) -> Self:
        """Return which bools are true in both arrays."""
        return self._joined(_np.logical_and, other)

    def __or__(self, other: Any) -> Self:
        """Return which bools are true in one of the arrays."""
        return self._joined(_np.logical_or, other)

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Self:
        """Return the bools the other way round."""
        if self.dtype_name != "bool":
            raise InvalidArgumentError(f"arithmetic: ~ of an array of {self.dtype_name}, bools are needed")
        return _elements.filled(type(self), ~self._host(), self.context, "bool")

    def sum(  # type: ignore[override]  # NumPy's order
        self, axis: Any = None, dtype: DType = None, out: Any = None, keepdims: bool = False
    ) -> Self:
        """Return the sum over some axes, of all elements with shape ``()``.

        Floats are added in float64 and given in their dtype, complex numbers in theirs; integers and bools in int64.

        Args:
            axis: one or several; None sums all elements.
            dtype: of the result.
            out: an array of the result's shape that takes it.
            keepdims: keep the axes, with extent 1.
        """
        name = "int64" if self.dtype_name in _arithmetic.EXACT else self.dtype_name
        name = name if dtype is None else _elements.dtype_name(dtype)
        wide = _np.float64 if name in _elements.CONVERTED else _elements.numpy_dtype(name)
        try:
            total = self._host().sum(axis=axis, keepdims=keepdims, dtype=wide)
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"sum: {error}") from None
        made = _elements.filled(type(self), total, self.context, name)
        return made if out is None else _given("sum", made._host(), out)


_PARAMETERS = {  # of NumPy's functions that are no ufuncs; further ones reach NumPy too
    **dict.fromkeys(("mean", "prod"), "a, axis=None, dtype=None, out=None, keepdims=False"),
    **dict.fromkeys(("std", "var"), "a, axis=None, dtype=None, out=None, ddof=0, keepdims=False"),
    "sum": "a, axis=None, dtype=None, out=None, keepdims=False, initial=0",
    **dict.fromkeys(("max", "min", "any", "all"), "a, axis=None, out=None, keepdims=False"),
    **dict.fromkeys(("argmax", "argmin"), "a, axis=None, out=None, *, keepdims=False"),
    **dict.fromkeys(("sort", "argsort"), "a, axis=-1, kind=None, order=None"),
    "concatenate": "seq, axis=0, out=None",
    "stack": "arrays, axis=0, out=None",
    **dict.fromkeys(("dot", "outer", "matmul"), "a, b, out=None"),
    **dict.fromkeys(("zeros_like", "ones_like"), "a, dtype=None, order='C', ctx=None, out=None"),
    "full_like": "a, fill_value, dtype=None, order='C', ctx=None, out=None",
    "cumsum": "a, axis=None, dtype=None, out=None",
    "round": "x, decimals=0, out=None",
    "split": "ary, indices_or_sections, axis=0",
    "reshape": "a, newshape, order='C', out=None",
    "transpose": "a, axes=None",
    "swapaxes": "a, axis1, axis2",
    "expand_dims": "a, axis",
    "squeeze": "a, axis=None, out=None",
    "tile": "A, reps",
    "repeat": "a, repeats, axis=None",
    "flip": "m, axis=None, out=None",
    "broadcast_to": "array, shape",
    "where": "condition, x=None, y=None",
    "take": "a, indices, axis=None, out=None, mode='raise'",
    "clip": "a, a_min=None, a_max=None, out=None",
}
_NONE = inspect.Parameter.empty
_WITHOUT_OUT = ("flip", "full_like", "ones_like", "reshape", "squeeze", "zeros_like")  # in NumPy; in MXNet they have it


def _signature(name: str) -> inspect.Signature:
    """Return the parameters of one of NumPy's functions, the same with every NumPy."""
    inputs = getattr(getattr(_np, name), "nin", 0)
    text = _PARAMETERS.get(name) or ("x, out=None" if inputs == 1 else "x1, x2, out=None")
    signature = inspect.signature(eval(f"lambda {text}: None"))
    parameters = [one.replace(annotation="Any") for one in signature.parameters.values()]
    return inspect.Signature(parameters, return_annotation="ndarray" if name != "split" else "list[ndarray]")


def _given(name: str, result: Any, out: Any) -> Any:
    """Return `out` with a result of NumPy, which must have its shape and a dtype that it can hold."""
    _check_out(name, out)
    if result.shape != out.shape:
        raise InvalidArgumentError(f"{name}: out has shape {out.shape}, {result.shape} is needed")
    if not _np.can_cast(result.dtype, _elements.numpy_dtype(out.dtype_name), "same_kind"):
        raise InvalidArgumentError(f"{name}: out has dtype {out.dtype_name}, the result {result.dtype}")
    out[...] = result
    return out


def _check_out(name: str, out: Any) -> None:
    if not isinstance(out, NDArray):
        raise InvalidArgumentError(f"{name}: out has type {type(out).__name__}, an array is needed")


def _of_numpy(name: str, arguments: str, shown: str) -> Callable[..., Any]:
    """Return NumPy's function of this name for arrays of this package, with an example."""
    compute = getattr(_np, name)
    signature = _signature(name)
    names = list(signature.parameters)
    by_place = names if name == "where" else [one for one in names if signature.parameters[one].default is _NONE]

    def arranged(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments that NumPy takes by position; `options` keeps those that it takes by name."""
        at = names.index("out") if "out" in names else len(args)
        options.update(zip(names[at:], args[at:], strict=False))
        args = args[:at]
        for one in by_place[len(args) :]:
            if one in options:
                args = (*args, options.pop(one))
        return args

    def made(result: Any, ctx: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return type(result)(made(item, ctx) for item in result)
        return _elements.filled(ndarray, result, ctx, _np.asarray(result).dtype.name)

    def function(*args: Any, **options: Any) -> Any:
        reader = _host.without_elements(args, options)
        if reader is not None:
            reader._called_as_numpy(name)
        args = arranged(args, options)
        out = options.pop("out", None)
        first = _host._first([*args, *options.values()])
        if first is None:
            raise InvalidArgumentError(f"{name}: type {type(args[0]).__name__ if args else None}, an array is needed")
        ctx = options.pop("ctx", None) or first.context
        options = {key: _raw(value) for key, value in options.items()}
        written = None
        if out is not None and name not in _WITHOUT_OUT:
            _check_out(name, out)
            options["out"] = written = out.asnumpy()  # `where` leaves some of its elements
        try:
            with _np.errstate(all="ignore"):
                result = compute(*_raw(args), **options)
        except TypeError as error:
            if "argument" in str(error):  # of the call, which says what is wrong
                raise
            raise InvalidArgumentError(f"{name}: {error}") from None
        except (ValueError, IndexError, OverflowError) as error:
            text = str(error).removeprefix(f"{name}: ")
            raise InvalidArgumentError(f"{name}: {text}") from None
        if out is not None:
            return _given(name, result if written is None else written, out)
        return made(result, ctx)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = f"""Return what ``numpy.{name}`` gives, with its arguments, as a new array.

    Example:
        >>> mx.np.{name}({arguments})
        {shown}
    """
    return function


def _raw(x: Any) -> Any:
    """Return an array as NumPy's, and lists and tuples with their arrays so."""
    if isinstance(x, (list, tuple)):
        return type(x)(_raw(item) for item in x)
    return x._host() if isinstance(x, _elements.Elements) else x


def _as_np(result: NDArray) -> ndarray:
    return result._as(ndarray)


def empty(shape: Shape, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an uninitialised array; float32 by default.

    Example:
        >>> mx.np.empty((2, 3)).shape
        (2, 3)
    """
    _check_order(order)
    return _as_np(_nd.empty(shape, ctx, dtype))


def full(
    shape: Shape,
    fill_value: Scalar,
    dtype: DType = None,
    order: str = "C",
    ctx: Where = None,
    out: NDArray | None = None,
) -> ndarray:
    """Return an array whose every element is `fill_value`: float32 by default, and bools for a bool.

    Example:
        >>> mx.np.full((2,), 7)
        array([7., 7.])
    """
    _check_order(order)
    if dtype is None and isinstance(fill_value, (bool, _np.bool_)):
        dtype = "bool"
    made = _nd.full(shape, fill_value, ctx, dtype)
    return _as_np(made) if out is None else _host.stored(made, out)


def zeros(shape: Shape, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an array of zeros.

    Example:
        >>> mx.np.zeros((2,), dtype='int64')
        array([0, 0], dtype=int64)
    """
    return full(shape, 0, dtype, order, ctx)


def ones(shape: Shape, dtype: DType = None, order: str = "C", ctx: Where = None) -> ndarray:
    """Return an array of ones.

    Example:
        >>> mx.np.ones((2,), ctx=mx.cpu(1))
        array([1., 1.])
    """
    return full(shape, 1, dtype, order, ctx)


def array(object: Elements, dtype: DType = None, ctx: Where = None) -> ndarray:
    """Return a new array with a copy of a list or an array.

    Args:
        object: the elements, of any shape.
        dtype: that of an array, or of a NumPy scalar, by default; float32 for lists and for Python's numbers.
        ctx: the Context, default `mx.current_context()`, or that of an array of this package.

    Example:
        >>> mx.np.array([1, 2]) + mx.np.array([10, 20])
        array([11., 22.])
        >>> mx.np.array(np.array([1, 2]))
        array([1, 2], dtype=int64)
    """
    return _as_np(_nd.array(object, ctx, _own_dtype(object) if dtype is None else dtype))


def _own_dtype(given: Any) -> DType:
    """Return the dtype that an array has; None for anything else."""
    if isinstance(given, _elements.Elements) or not hasattr(given, "dtype"):
        return None
    if not isinstance(given, (_np.ndarray, _np.generic)) and hasattr(given, "__dlpack__"):
        return given.dtype  # type: ignore[no-any-return]  # of a framework
    dtype = _np.asarray(given).dtype
    return None if dtype.kind == "O" else dtype


def arange(start: float, stop: float | None = None, step: float = 1, dtype: DType = None, ctx: Where = None) -> ndarray:
    """Return the numbers from `start` (0 if it stands alone) below `stop`.

    Example:
        >>> mx.np.arange(3)
        array([0., 1., 2.])
    """
    return _as_np(_nd.arange(start, stop, step, ctx=ctx, dtype=dtype))


abs: _host.Function = _of_numpy("abs", "mx.np.array([-1])", "array([1.])")
exp: _host.Function = _of_numpy("exp", "mx.np.zeros((1,))", "array([1.])")
expm1: _host.Function = _of_numpy("expm1", "mx.np.zeros((1,))", "array([0.])")
log: _host.Function = _of_numpy("log", "mx.np.ones((1,))", "array([0.])")
log2: _host.Function = _of_numpy("log2", "mx.np.ones((1,))", "array([0.])")
log10: _host.Function = _of_numpy("log10", "mx.np.ones((1,))", "array([0.])")
log1p: _host.Function = _of_numpy("log1p", "mx.np.zeros((1,))", "array([0.])")
sqrt: _host.Function = _of_numpy("sqrt", "mx.np.array([4])", "array([2.])")
square: _host.Function = _of_numpy("square", "mx.np.array([3])", "array([9.])")
sign: _host.Function = _of_numpy("sign", "mx.np.array([-3])", "array([-1.])")
sin: _host.Function = _of_numpy("sin", "mx.np.zeros((1,))", "array([0.])")
cos: _host.Function = _of_numpy("cos", "mx.np.zeros((1,))", "array([1.])")
tanh: _host.Function = _of_numpy("tanh", "mx.np.zeros((1,))", "array([0.])")
floor: _host.Function = _of_numpy("floor", "mx.np.array([1.5])", "array([1.])")
ceil: _host.Function = _of_numpy("ceil", "mx.np.array([1.5])", "array([2.])")
round: _host.Function = _of_numpy("round", "mx.np.array([1.5])", "array([2.])")
rint: _host.Function = _of_numpy("rint", "mx.np.array([1.5])", "array([2.])")
isnan: _host.Function = _of_numpy("isnan", "mx.np.ones((1,))", "array([False])")
isfinite: _host.Function = _of_numpy("isfinite", "mx.np.ones((1,))", "array([ True])")
logical_not: _host.Function = _of_numpy("logical_not", "mx.np.ones((1,))", "array([False])")
negative: _host.Function = _of_numpy("negative", "mx.np.ones((1,))", "array([-1.])")
add: _host.Function = _of_numpy("add", "mx.np.ones((1,)), 2", "array([3.])")
subtract: _host.Function = _of_numpy("subtract", "mx.np.ones((1,)), 2", "array([-1.])")
multiply: _host.Function = _of_numpy("multiply", "mx.np.ones((1,)), 2", "array([2.])")
divide: _host.Function = _of_numpy("divide", "mx.np.ones((1,)), 2", "array([0.5])")
mod: _host.Function = _of_numpy("mod", "mx.np.ones((1,)), 2", "array([1.])")
power: _host.Function = _of_numpy("power", "mx.np.ones((1,)), 2", "array([1.])")
maximum: _host.Function = _of_numpy("maximum", "mx.np.ones((1,)), 2", "array([2.])")
minimum: _host.Function = _of_numpy("minimum", "mx.np.ones((1,)), 2", "array([1.])")
equal: _host.Function = _of_numpy("equal", "mx.np.ones((1,)), 2", "array([False])")
not_equal: _host.Function = _of_numpy("not_equal", "mx.np.ones((1,)), 2", "array([ True])")
less: _host.Function = _of_numpy("less", "mx.np.ones((1,)), 2", "array([ True])")
less_equal: _host.Function = _of_numpy("less_equal", "mx.np.ones((1,)), 2", "array([ True])")
greater: _host.Function = _of_numpy("greater", "mx.np.ones((1,)), 2", "array([False])")
greater_equal: _host.Function = _of_numpy("greater_equal", "mx.np.ones((1,)), 2", "array([False])")
logical_and: _host.Function = _of_numpy("logical_and", "mx.np.ones((1,)), 2", "array([ True])")
logical_or: _host.Function = _of_numpy("logical_or", "mx.np.ones((1,)), 2", "array([ True])")
dot: _host.Function = _of_numpy("dot", "mx.np.ones((2,)), mx.np.ones((2,))", "array(2.)")
matmul: _host.Function = _of_numpy("matmul", "mx.np.ones((2, 2)), mx.np.ones((2,))", "array([2., 2.])")
outer: _host.Function = _of_numpy("outer", "mx.np.ones((2,)), mx.np.ones((1,))", "array([[1.],\n               [1.]])")
concatenate: _host.Function = _of_numpy("concatenate", "[mx.np.ones((1,)), mx.np.zeros((1,))]", "array([1., 0.])")
stack: _host.Function = _of_numpy(
    "stack", "[mx.np.ones((1,)), mx.np.zeros((1,))]", "array([[1.],\n               [0.]])"
)
split: _host.Function = _of_numpy("split", "mx.np.ones((2,)), 2", "[array([1.]), array([1.])]")
reshape: _host.Function = _of_numpy("reshape", "mx.np.ones((2,)), (2, 1)", "array([[1.],\n               [1.]])")
transpose: _host.Function = _of_numpy("transpose", "mx.np.ones((2, 1))", "array([[1., 1.]])")
swapaxes: _host.Function = _of_numpy("swapaxes", "mx.np.ones((2, 1)), 0, 1", "array([[1., 1.]])")
expand_dims: _host.Function = _of_numpy("expand_dims", "mx.np.ones((1,)), 0", "array([[1.]])")
squeeze: _host.Function = _of_numpy("squeeze", "mx.np.ones((1, 1))", "array(1.)")
tile: _host.Function = _of_numpy("tile", "mx.np.ones((1,)), 2", "array([1., 1.])")
repeat: _host.Function = _of_numpy("repeat", "mx.np.ones((1,)), 2", "array([1., 1.])")
flip: _host.Function = _of_numpy("flip", "mx.np.array([1, 2])", "array([2., 1.])")
broadcast_to: _host.Function = _of_numpy("broadcast_to", "mx.np.ones((1,)), (2,)", "array([1., 1.])")
where: _host.Function = _of_numpy("where", "mx.np.ones((1,)), mx.np.ones((1,)), mx.np.zeros((1,))", "array([1.])")
take: _host.Function = _of_numpy("take", "mx.np.array([1, 2]), mx.np.array([1], dtype='int64')", "array([2.])")
clip: _host.Function = _of_numpy("clip", "mx.np.array([5]), 0, 1", "array([1.])")
sum: _host.Function = _of_numpy("sum", "mx.np.ones((2,))", "array(2.)")
mean: _host.Function = _of_numpy("mean", "mx.np.ones((2,))", "array(1.)")
max: _host.Function = _of_numpy("max", "mx.np.ones((2,))", "array(1.)")
min: _host.Function = _of_numpy("min", "mx.np.ones((2,))", "array(1.)")
prod: _host.Function = _of_numpy("prod", "mx.np.ones((2,))", "array(1.)")
std: _host.Function = _of_numpy("std", "mx.np.ones((2,))", "array(0.)")
var: _host.Function = _of_numpy("var", "mx.np.ones((2,))", "array(0.)")
argmax: _host.Function = _of_numpy("argmax", "mx.np.ones((2,))", "array(0, dtype=int64)")
argmin: _host.Function = _of_numpy("argmin", "mx.np.ones((2,))", "array(0, dtype=int64)")
cumsum: _host.Function = _of_numpy("cumsum", "mx.np.ones((2,))", "array([1., 2.])")
sort: _host.Function = _of_numpy("sort", "mx.np.array([2, 1])", "array([1., 2.])")
argsort: _host.Function = _of_numpy("argsort", "mx.np.array([2, 1])", "array([1, 0], dtype=int64)")
any: _host.Function = _of_numpy("any", "mx.np.ones((2,))", "array(True)")
all: _host.Function = _of_numpy("all", "mx.np.ones((2,))", "array(True)")
zeros_like: _host.Function = _of_numpy("zeros_like", "mx.np.ones((1,))", "array([0.])")
ones_like: _host.Function = _of_numpy("ones_like", "mx.np.ones((1,))", "array([1.])")
full_like: _host.Function = _of_numpy("full_like", "mx.np.ones((1,)), 7", "array([7.])")

for _name in ("mean", "max", "min", "prod", "std", "var", "argmax", "argmin", "cumsum", "any", "all"):
    setattr(ndarray, _name, globals()[_name])
for _name in ("squeeze", "dot", "repeat", "take", "swapaxes", "argsort", "round"):
    setattr(ndarray, _name, globals()[_name])


def eye(N: int, M: int | None = None, k: int = 0, dtype: DType = None, ctx: Where = None) -> ndarray:
    """Return a matrix with ones on a diagonal.

    Example:
        >>> mx.np.eye(2)
        array([[1., 0.],
               [0., 1.]])
    """
    return _as_np(_nd.array(_nd._by_numpy("eye", _np.eye, N, M, k), ctx, dtype))


@overload
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: DType = None,
    axis: int = 0,
    ctx: Where = None,
) -> ndarray: ...
@overload
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: DType = None,
    axis: int = 0,
    ctx: Where = None,
) -> tuple[ndarray, float]: ...
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DType = None,
    axis: int = 0,
    ctx: Where = None,
) -> ndarray | tuple[ndarray, float]:
    """Return `num` numbers at equal distances from `start` to `stop`, without `stop` where `endpoint` is False.

    With `retstep` the result is a tuple of them and of the distance.

    Example:
        >>> mx.np.linspace(0, 1, 3)
        array([0. , 0.5, 1. ])
    """
    compute: Any = functools.partial(_np.linspace, retstep=True, axis=axis)
    numbers, step = _nd._by_numpy("linspace", compute, _raw(start), _raw(stop), num, endpoint)
    made = array(numbers, "float32" if dtype is None else dtype, ctx)
    return (made, step) if retstep else made
