"""Functions of `tkv.nd` that NumPy computes on the memory of arrays.

A result is a new array with the class and context of the first array. Floats of 16 and 8 bits are computed in float32
and rounded once; sums are added in float64.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidArgumentError
from .elements import BITS, FLOATS, Elements, dtype_name, filled, is_scalar, number, numpy_dtype

Function = Callable[..., Any]
_NARROW = ("float16", *BITS)


class Typed(NamedTuple):
    """A result whose dtype is not that of the first array."""

    values: Any
    dtype: str


def _read(x: Any) -> Any:
    """Return an array as NumPy's, 16-bit floats as float32; lists and tuples with their arrays so; anything else as it is."""
    if isinstance(x, Elements):
        if x.dtype_name == "complex64":
            raise InvalidArgumentError("complex64 arrays have no arithmetic; asnumpy() gives NumPy's")
        return x._host().astype(np.float32) if x.dtype_name in _NARROW else x._host()
    if isinstance(x, (list, tuple)) and any(isinstance(item, (Elements, list, tuple)) for item in x):
        return type(x)(_read(item) for item in x)
    return x


def _first(x: Any) -> Elements | None:
    """Return the first array among arguments."""
    if isinstance(x, Elements):
        return x
    if isinstance(x, (list, tuple)):
        return next((found for found in map(_first, x) if found is not None), None)
    return None


def without_elements(args: Any, options: dict[str, Any]) -> Any:
    """Return an array of a function that is read for servers, which records the call, or None."""
    return next((x for x in (*args, *options.values()) if hasattr(type(x), "_called")), None)


def _dtypes(x: Any) -> list[str]:
    """Return the dtypes of arrays, before floats of 16 and 8 bits are read as float32."""
    if isinstance(x, (list, tuple)):
        return [name for item in x for name in _dtypes(item)]
    return [x.dtype_name] if isinstance(x, Elements) else [x.dtype.name] if isinstance(x, np.ndarray) else []


def _one_dtype(signature: inspect.Signature, names: tuple[str, ...], args: Any, options: Any) -> str | None:
    """Return the dtype of the arrays among the arguments of these names, which must have one; None if there is none."""
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError:  # the call itself says what is wrong
        return None
    found = sorted({dtype for name in names for dtype in _dtypes(given.get(name))})
    if len(found) > 1:
        raise InvalidArgumentError(f"{' with '.join(found)}; astype() first")
    return found[0] if found else None


def _given(first: Elements, result: Any, dtype: str, out: Any) -> Any:
    """Return a result of NumPy as arrays of a dtype, in `out` if there is one."""
    if isinstance(result, (list, tuple)) and not isinstance(result, Typed):
        if out is not None:
            raise InvalidArgumentError("`out` is not possible with several results; assign them")
        return [_given(first, item, dtype, None) for item in result]
    values, name = result if isinstance(result, Typed) else (result, dtype)
    made = filled(type(first), values, first.context, name)
    return made if out is None else stored(made, out)


def stored(made: Elements, out: Any) -> Any:
    """Return `out` with the elements of an array of the same shape."""
    if not isinstance(out, Elements) or out.shape != made.shape:
        found = f"shape {out.shape}" if isinstance(out, Elements) else f"type {type(out).__name__}"
        raise InvalidArgumentError(f"out: {found}, an array of shape {made.shape} is needed")
    out._assign(made if made.dtype_name == out.dtype_name else made.astype(out.dtype_name))  # type: ignore[attr-defined]
    return out


def host(
    example: str, result: str = "", alike: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator of a function on NumPy's arrays that makes one on arrays of this package.

    Args:
        example: a call, for the docstring.
        result: the result of the call.
        alike: parameters whose arrays have one dtype, which is the dtype of the result.
    """

    def decorate(compute: Callable[..., Any]) -> Callable[..., Any]:
        caller = compute.__name__
        signature = _own_signature(compute)
        places = [one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        is_variadic = any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values())

        @functools.wraps(compute)
        def function(*args: Any, out: Any = None, name: Any = None, **options: Any) -> Any:
            if not is_variadic and len(args) == len(places) + 1 and out is None:
                *args, out = args  # type: ignore[assignment]  # MXNet has `out` behind the last parameter
            reader = without_elements(args, options)
            if reader is not None:
                return reader._called(caller, tuple(args), options if out is None else {**options, "out": out})
            first = _first(args)
            first = _first(list(options.values())) if first is None else first
            if first is None:
                found = type(args[0]).__name__ if args else "nothing"
                raise InvalidArgumentError(f"{caller}: {found}, an NDArray is needed")
            try:
                dtype = _one_dtype(signature, alike, args, options) if alike else None
                with np.errstate(all="ignore"):
                    values = compute(*_read(args), **{key: _read(value) for key, value in options.items()})
                return _given(first, values, dtype or first.dtype_name, out)
            except InvalidArgumentError as error:
                text = str(error)
                raise InvalidArgumentError(text if text.startswith(f"{caller}: ") else f"{caller}: {text}") from None
            except TypeError as error:
                if "argument" in str(error):  # of the call, which says what is wrong
                    from ..mxnet import elsewhere

                    elsewhere.check_arguments(caller, options)
                    raise
                raise InvalidArgumentError(f"{caller}: {error}") from None
            except (ValueError, IndexError, OverflowError) as error:
                raise InvalidArgumentError(f"{caller}: {error}") from None

        function.__signature__ = _with_out(signature)  # type: ignore[attr-defined]
        function.__module__ = "tensorkv.ndarray"
        function.__qualname__ = compute.__qualname__ = caller
        lines = (compute.__doc__ or "").rstrip()
        function.__doc__ = f"{lines}\n\n    Example:\n        >>> {example}\n        {result}\n    "
        return function

    return decorate


@functools.cache
def _signatures() -> dict[Any, inspect.Signature]:
    return {}


def _own_signature(compute: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function; functions of the same code share one."""
    known = _signatures()
    if compute.__code__ not in known:
        known[compute.__code__] = inspect.signature(compute)
    return known[compute.__code__]


def _with_out(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature with an argument `out`; `name`, which has no effect, is not shown."""
    known = _signatures()
    if id(signature) not in known:
        last = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
        known[id(signature)] = signature.replace(parameters=[*signature.parameters.values(), last])
    return known[id(signature)]


def _example(call: str, element: str) -> tuple[str, str]:
    """Return a call and the array of one element that it shows; the last digits depend on the instructions that NumPy finds."""
    is_rounded = len(element.partition(".")[2]) > 1
    return f"{call}.round(4)" if is_rounded else call, f"array([{element}], dtype=float32)"


def _elementwise(
    name: str, compute: Callable[..., Any], text: str, shown: str, floats: bool = True
) -> Callable[..., Any]:
    """Return a function of one array, element by element; of `floats` alone, or of every dtype. For 1 the function returns `shown`."""

    def function(data: Any) -> Any:
        if floats and data.dtype.kind != "f":
            raise InvalidArgumentError(f"{data.dtype} elements; astype('float32') first")
        return compute(data)

    function.__name__ = name
    function.__doc__ = f"Return {text}, element by element{'; floats only' if floats else ''}."
    return host(*_example(f"tkv.nd.{name}(tkv.nd.array([1])).asnumpy()", shown))(function)


def _binary(
    name: str,
    compute: Callable[..., Any],
    text: str,
    shown: str,
    is_truth: bool = False,
    names: tuple[str, str] = ("lhs", "rhs"),
) -> Callable[..., Any]:
    """Return a function of two arrays, or an array and a number, that broadcasts. For 3 and 2 the function returns `shown`."""

    def of_two(lhs: Any, rhs: Any) -> Any:
        arrays = [x for x in (lhs, rhs) if isinstance(x, np.ndarray)]
        if any(not isinstance(x, np.ndarray) and not is_scalar(x) for x in (lhs, rhs)):
            raise InvalidArgumentError(
                f"types {type(lhs).__name__} and {type(rhs).__name__}; arrays or numbers are needed"
            )
        kind = arrays[0].dtype
        if kind.kind == "b" and name in ("modulo", "mod", "power"):
            raise InvalidArgumentError("bool arrays have no arithmetic; astype('int32') first")
        if kind.kind != "f" and (
            name == "divide" or any(is_scalar(x) and not isinstance(number(x), int) for x in (lhs, rhs))
        ):
            raise InvalidArgumentError(f"{kind} elements; astype('float32') first")
        return compute(lhs, rhs).astype(kind)

    def to_a_power(base: Any, exp: Any) -> Any:
        return of_two(base, exp)

    function: Callable[..., Any] = of_two if names[0] == "lhs" else to_a_power
    function.__name__ = name
    ending = ": 1 and 0 in the dtype of the arrays" if is_truth else ""
    function.__doc__ = f"""Return {text}{ending}, of arrays that broadcast, or of an array and a number.

    Raises:
        InvalidArgumentError: two dtypes, shapes that do not broadcast, a fraction beside integers.
    """
    return host(*_example(f"tkv.nd.{name}(tkv.nd.array([3]), 2).asnumpy()", shown), names)(function)


def _axes(data: Any, axis: Any, exclude: bool) -> Any:
    """Return the axes of a reduction as NumPy takes them."""
    axes = None if axis is None or axis == () else axis if isinstance(axis, (list, tuple)) else (axis,)
    if axes is None:
        return None
    there = tuple(n % data.ndim for n in axes if axis_in(data, n))
    return tuple(n for n in range(data.ndim) if n not in there) if exclude else there


def axis_in(data: Any, axis: int) -> bool:
    if not -data.ndim <= axis < data.ndim:
        raise InvalidArgumentError(f"axis {axis} of {data.ndim} axes")
    return True


def _check_no_dtype(dtype: object) -> None:
    if dtype is not None:
        raise InvalidArgumentError("`dtype` is not possible; astype() converts the result")


def _reduction(name: str, compute: Callable[..., Any], text: str, shown: str, floats: bool) -> Callable[..., Any]:
    """Return a function that makes one element of many. For 2 and 4 the function returns `shown`."""

    def function(
        data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False, dtype: object = None
    ) -> Any:
        _check_no_dtype(dtype)
        if floats and data.dtype.kind != "f":
            raise InvalidArgumentError(f"{data.dtype} elements; astype('float32') first")
        wide = data.astype(np.float64) if data.dtype.kind == "f" else data
        return np.atleast_1d(compute(wide, axis=_axes(data, axis, exclude), keepdims=bool(keepdims)))

    function.__name__ = name
    function.__doc__ = f"""Return {text} over some axes, of all elements with shape ``(1,)``.

    Args:
        data: an array.
        axis: one or several; None or () takes all.
        keepdims: keep the axes, with extent 1.
        exclude: take all axes but these.
        dtype: None; it is here because ``numpy.mean`` passes it.
    """
    return host(*_example(f"tkv.nd.{name}(tkv.nd.array([2, 4])).asnumpy()", shown))(function)


def _half_away(x: Any) -> Any:
    return np.trunc(x + np.copysign(0.5, x)) if x.dtype.kind == "f" else x


def _rint(x: Any) -> Any:  # of two that are as near, the one below, as MXNet has it
    return np.ceil(x - np.asarray(0.5, x.dtype)) if x.dtype.kind == "f" else x


def _modulo(x: Any, y: Any) -> Any:
    return np.where(np.equal(y, 0), 0, np.mod(x, y))


exp: Function = _elementwise("exp", np.exp, "e to the power of each element", "2.7183")
expm1: Function = _elementwise("expm1", np.expm1, "exp(x) - 1", "1.7183")
log: Function = _elementwise("log", np.log, "the natural logarithm", "0.")
log10: Function = _elementwise("log10", np.log10, "the logarithm to base 10", "0.")
log2: Function = _elementwise("log2", np.log2, "the logarithm to base 2", "0.")
log1p: Function = _elementwise("log1p", np.log1p, "log(1 + x)", "0.6931")
sqrt: Function = _elementwise("sqrt", np.sqrt, "the square root", "1.")
rsqrt: Function = _elementwise("rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)", "1.")
cbrt: Function = _elementwise("cbrt", np.cbrt, "the cube root", "1.")
reciprocal: Function = _elementwise("reciprocal", lambda x: 1 / x, "1 / x", "1.")
sin: Function = _elementwise("sin", np.sin, "the sine", "0.8415")
cos: Function = _elementwise("cos", np.cos, "the cosine", "0.5403")
tan: Function = _elementwise("tan", np.tan, "the tangent", "1.5574")
arcsin: Function = _elementwise("arcsin", np.arcsin, "the inverse sine", "1.5708")
arccos: Function = _elementwise("arccos", np.arccos, "the inverse cosine", "0.")
arctan: Function = _elementwise("arctan", np.arctan, "the inverse tangent", "0.7854")
sinh: Function = _elementwise("sinh", np.sinh, "the hyperbolic sine", "1.1752")
cosh: Function = _elementwise("cosh", np.cosh, "the hyperbolic cosine", "1.5431")
tanh: Function = _elementwise("tanh", np.tanh, "the hyperbolic tangent", "0.7616")
arcsinh: Function = _elementwise("arcsinh", np.arcsinh, "the inverse hyperbolic sine", "0.8814")
arccosh: Function = _elementwise("arccosh", np.arccosh, "the inverse hyperbolic cosine", "0.")
arctanh: Function = _elementwise("arctanh", np.arctanh, "the inverse hyperbolic tangent", "inf")
degrees: Function = _elementwise("degrees", np.degrees, "degrees of radians", "57.2958")
radians: Function = _elementwise("radians", np.radians, "radians of degrees", "0.0175")
sigmoid: Function = _elementwise("sigmoid", lambda x: 1 / (1 + np.exp(-x)), "1 / (1 + exp(-x))", "0.7311")
softsign: Function = _elementwise("softsign", lambda x: x / (1 + np.abs(x)), "x / (1 + |x|)", "0.5")
abs: Function = _elementwise("abs", np.abs, "the absolute value", "1.", floats=False)
square: Function = _elementwise("square", np.square, "the square", "1.", floats=False)
sign: Function = _elementwise("sign", np.sign, "-1, 0 or 1", "1.", floats=False)
negative: Function = _elementwise("negative", np.negative, "-x", "-1.", floats=False)
relu: Function = _elementwise("relu", lambda x: np.maximum(x, 0), "x or, where it is larger, 0", "1.", floats=False)
floor: Function = _elementwise(
    "floor", lambda x: np.floor(x) if x.dtype.kind == "f" else x, "the whole number below", "1.", floats=False
)
ceil: Function = _elementwise(
    "ceil", lambda x: np.ceil(x) if x.dtype.kind == "f" else x, "the whole number above", "1.", floats=False
)
trunc: Function = _elementwise(
    "trunc", lambda x: np.trunc(x) if x.dtype.kind == "f" else x, "the whole number towards 0", "1.", floats=False
)
fix: Function = _elementwise(
    "fix", lambda x: np.trunc(x) if x.dtype.kind == "f" else x, "the whole number towards 0", "1.", floats=False
)
round: Function = _elementwise("round", _half_away, "the nearest whole number, halves away from 0", "1.", floats=False)
rint: Function = _elementwise("rint", _rint, "the nearest whole number, halves downwards", "1.", floats=False)
logical_not: Function = _elementwise(
    "logical_not", lambda x: (x == 0).astype(x.dtype), "1 where x is 0, else 0", "0.", floats=False
)

add: Function = _binary("add", np.add, "the sum", "5.")
subtract: Function = _binary("subtract", np.subtract, "the difference", "1.")
multiply: Function = _binary("multiply", np.multiply, "the product", "6.")
divide: Function = _binary("divide", np.divide, "the quotient", "1.5")
modulo: Function = _binary("modulo", _modulo, "the remainder, of the sign of the divisor and 0 where that is 0", "1.")
numpy_modulo: Function = _binary("mod", np.mod, "the remainder, as NumPy has it", "1.")
# NumPy's ** squares by one multiplication.
power: Function = _binary("power", operator.pow, "base to the power of exp", "9.", names=("base", "exp"))
maximum: Function = _binary("maximum", np.maximum, "the larger element", "3.")
minimum: Function = _binary("minimum", np.minimum, "the smaller element", "2.")
equal: Function = _binary("equal", np.equal, "lhs == rhs", "0.", is_truth=True)
not_equal: Function = _binary("not_equal", np.not_equal, "lhs != rhs", "1.", is_truth=True)
greater: Function = _binary("greater", np.greater, "lhs > rhs", "1.", is_truth=True)
greater_equal: Function = _binary("greater_equal", np.greater_equal, "lhs >= rhs", "1.", is_truth=True)
lesser: Function = _binary("lesser", np.less, "lhs < rhs", "0.", is_truth=True)
lesser_equal: Function = _binary("lesser_equal", np.less_equal, "lhs <= rhs", "0.", is_truth=True)
logical_and: Function = _binary("logical_and", np.logical_and, "whether both are not 0", "1.", is_truth=True)
logical_or: Function = _binary("logical_or", np.logical_or, "whether one is not 0", "1.", is_truth=True)
logical_xor: Function = _binary("logical_xor", np.logical_xor, "whether exactly one is not 0", "0.", is_truth=True)
broadcast_add: Function = add
broadcast_plus: Function = add
elemwise_add: Function = add
broadcast_sub: Function = subtract
broadcast_minus: Function = subtract
elemwise_sub: Function = subtract
broadcast_mul: Function = multiply
elemwise_mul: Function = multiply
broadcast_div: Function = divide
elemwise_div: Function = divide
broadcast_mod: Function = modulo
broadcast_power: Function = _binary("power", operator.pow, "lhs to the power of rhs", "9.")
broadcast_maximum: Function = maximum
broadcast_minimum: Function = minimum
broadcast_equal: Function = equal
broadcast_not_equal: Function = not_equal
broadcast_greater: Function = greater
broadcast_greater_equal: Function = greater_equal
broadcast_lesser: Function = lesser
broadcast_lesser_equal: Function = lesser_equal

mean: Function = _reduction("mean", np.mean, "the mean", "3.", floats=True)
prod: Function = _reduction("prod", np.prod, "the product", "8.", floats=False)
max: Function = _reduction("max", np.max, "the largest element", "4.", floats=False)
min: Function = _reduction("min", np.min, "the smallest element", "2.", floats=False)
nansum: Function = _reduction("nansum", np.nansum, "the sum of what is not NaN", "6.", floats=False)


@host("tkv.nd.sum(tkv.nd.array([2, 4])).asnumpy()", "array([6.], dtype=float32)")
def sum(data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False, dtype: object = None) -> Any:
    """Return the sum over some axes, of all elements with shape ``(1,)``; of integers and bools in int64.

    Args:
        data: an array.
        axis: one or several; None or () takes all.
        keepdims: keep the axes, with extent 1.
        exclude: take all axes but these.
        dtype: None; it is here because ``numpy.sum`` passes it.
    """
    _check_no_dtype(dtype)
    exact = data.dtype.kind != "f"
    total = np.sum(
        data, axis=_axes(data, axis, exclude), keepdims=bool(keepdims), dtype=np.int64 if exact else np.float64
    )
    return Typed(np.atleast_1d(total), "int64") if exact else np.atleast_1d(total)


@host("tkv.nd.norm(tkv.nd.array([3, 4])).asnumpy()", "array([5.], dtype=float32)")
def norm(data: Any, ord: int = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the 2-norm or, with ``ord=1``, the 1-norm over some axes, of all elements with shape ``(1,)``; floats only."""
    if ord not in (1, 2) or data.dtype.kind != "f":
        raise InvalidArgumentError(f"ord={ord!r} of {data.dtype}; 1 or 2 of floats is possible")
    wide, axes = data.astype(np.float64), _axes(data, axis, False)
    if ord == 1:
        return np.atleast_1d(np.sum(np.abs(wide), axis=axes, keepdims=bool(keepdims)))
    return np.atleast_1d(np.sqrt(np.sum(wide * wide, axis=axes, keepdims=bool(keepdims))))


def _at(find: Callable[..., Any], data: Any, axis: Any, keepdims: bool) -> Any:
    if axis is not None:
        axis_in(data, axis)
    return Typed(np.atleast_1d(find(data, axis=axis, keepdims=bool(keepdims))), "float32")


@host("tkv.nd.argmax(tkv.nd.array([3, 9, 4])).asnumpy()", "array([1.], dtype=float32)")
def argmax(data: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return where the first largest element is, as float32, along an axis or of all elements in order."""
    return _at(np.argmax, data, axis, keepdims)


@host("tkv.nd.argmin(tkv.nd.array([3, 9, 4])).asnumpy()", "array([0.], dtype=float32)")
def argmin(data: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return where the first smallest element is, as float32, along an axis or of all elements in order."""
    return _at(np.argmin, data, axis, keepdims)


@host("tkv.nd.cumsum(tkv.nd.array([1, 2, 3])).asnumpy()", "array([1., 3., 6.], dtype=float32)")
def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Return the running sum along an axis, or of all elements in order; with `dtype`, the elements are cast first."""
    if dtype is None:
        return np.cumsum(a, axis=axis, dtype=np.float64 if a.dtype.kind == "f" else np.int64)
    name = dtype_name(dtype)
    wide = np.float64 if name in FLOATS else numpy_dtype(name)
    return Typed(np.cumsum(a.astype(wide), axis=axis, dtype=wide), name)


@host("tkv.nd.add_n(tkv.nd.ones((2,)), tkv.nd.ones((2,))).asnumpy()", "array([2., 2.], dtype=float32)", ("args",))
def add_n(*args: Any) -> Any:
    """Return the sum of arrays of one shape."""
    return functools.reduce(np.add, args)


# ---- by index


def _indices(x: Any, size: int, mode: str) -> Any:
    if mode not in ("clip", "wrap", "raise"):
        raise InvalidArgumentError(f"mode={mode!r}; there are 'clip', 'wrap' and 'raise'")
    places = np.asarray(x).astype(np.int64)
    if mode == "raise" and places.size and not -size <= places.min() <= places.max() < size:
        raise InvalidArgumentError(f"indices {places.min()} to {places.max()} of {size}")
    return np.mod(places, size) if mode == "wrap" else np.clip(places, 0, size - 1) if mode == "clip" else places


@host("tkv.nd.take(tkv.nd.array([10, 20, 30]), tkv.nd.array([2, 0])).asnumpy()", "array([30., 10.], dtype=float32)")
def take(a: Any, indices: Any, axis: int = 0, mode: str = "clip") -> Any:
    """Return slices of an axis by index; beyond the ends the nearest ('clip'), counted round ('wrap') or an error ('raise')."""
    axis_in(a, axis)
    return np.take(a, _indices(indices, a.shape[axis], mode), axis)


@host("tkv.nd.pick(tkv.nd.array([[1, 2], [3, 4]]), tkv.nd.array([1, 0])).asnumpy()", "array([2., 3.], dtype=float32)")
def pick(data: Any, index: Any, axis: int = -1, keepdims: bool = False, mode: str = "clip") -> Any:
    """Return one element along an axis for each place of the others."""
    axis_in(data, axis)
    places = _indices(index, data.shape[axis], mode)
    places = places if places.ndim == data.ndim else np.expand_dims(places, axis)
    picked = np.take_along_axis(data, places, axis)
    return picked if keepdims else np.squeeze(picked, axis)


@host("tkv.nd.one_hot(tkv.nd.array([1, 0]), 2).asnumpy()", "array([[0., 1.],\n               [1., 0.]], dtype=float32)")
def one_hot(indices: Any, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = "float32") -> Any:
    """Return `on_value` where the last axis, of extent `depth`, is at the index, `off_value` elsewhere."""
    hot = np.asarray(indices).astype(np.int64)[..., None] == np.arange(depth)
    return Typed(np.where(hot, on_value, off_value), dtype_name(dtype))


@host(
    "tkv.nd.where(tkv.nd.array([1, 0]), tkv.nd.ones((2,)), tkv.nd.zeros((2,))).asnumpy()",
    "array([1., 0.], dtype=float32)",
    ("x", "y"),
)
def where(condition: Any, x: Any, y: Any) -> Any:
    """Return elements of `x` where the condition is not 0, of `y` elsewhere; a condition of one axis chooses rows.

    `x` and `y` may be numbers.
    """
    truth = np.asarray(condition) != 0
    arrays = [one for one in (x, y, condition) if isinstance(one, np.ndarray)]
    like = next((one for one in arrays if one.ndim), arrays[0] if arrays else x)
    if like.dtype.kind != "f" and any(is_scalar(one) and not isinstance(number(one), int) for one in (x, y)):
        raise InvalidArgumentError(f"{like.dtype} elements; astype('float32') first")
    x, y = (np.full_like(like, number(one)) if is_scalar(one) else one for one in (x, y))
    if truth.ndim == 1 and x.ndim > 1:
        truth = truth.reshape((-1,) + (1,) * (x.ndim - 1))
    if x.shape != y.shape or truth.shape[: x.ndim] != x.shape[: truth.ndim] and truth.shape[0] != x.shape[0]:
        raise InvalidArgumentError(f"shapes {np.shape(condition)}, {x.shape} and {y.shape}")
    return np.where(truth, x, y)


@host("tkv.nd.clip(tkv.nd.array([-2, 2]), 0, 1).asnumpy()", "array([0., 1.], dtype=float32)")
def clip(data: Any, a_min: float, a_max: float) -> Any:
    """Return the elements, but not below `a_min` nor above `a_max`."""
    return np.clip(data, a_min, a_max)


@host("tkv.nd.sort(tkv.nd.array([3, 1, 2])).asnumpy()", "array([1., 2., 3.], dtype=float32)")
def sort(data: Any, axis: int | None = -1, is_ascend: bool = True) -> Any:
    """Return the elements in order along an axis; None takes all."""
    values = np.sort(data, axis=axis, kind="stable")
    return values if is_ascend else np.flip(values, 0 if axis is None else axis)


def _order(data: Any, axis: int | None, is_ascend: bool) -> Any:
    if is_ascend:
        return np.argsort(data, axis=axis, kind="stable")
    key = -data.astype(np.float64) if data.dtype.kind == "f" else -data.astype(np.int64)
    return np.argsort(key, axis=axis, kind="stable")


@host("tkv.nd.argsort(tkv.nd.array([3, 1, 2])).asnumpy()", "array([1., 2., 0.], dtype=float32)")
def argsort(data: Any, axis: int | None = -1, is_ascend: bool = True, dtype: Any = "float32") -> Any:
    """Return the places of the elements in order along an axis; None takes all."""
    return Typed(_order(data, axis, is_ascend), dtype_name(dtype))


@host("tkv.nd.topk(tkv.nd.array([3, 1, 2]), k=2).asnumpy()", "array([0., 2.], dtype=float32)")
def topk(
    data: Any,
    axis: int | None = -1,
    k: int = 1,
    ret_typ: str = "indices",
    is_ascend: bool = False,
    dtype: Any = "float32",
) -> Any:
    """Return the `k` largest elements along an axis, the smallest with `is_ascend`.

    Args:
        data: an array.
        axis: along which; None takes all elements in order.
        k: how many; all of them below 1.
        ret_typ: 'indices' (of `dtype`), 'value', 'both' (a list: values, indices) or 'mask' (1 at their places).
        is_ascend: the smallest.
        dtype: of indices.
    """
    whole, data, axis = (data, data.reshape(-1), 0) if axis is None else (data, data, axis)
    axis_in(data, axis)
    if k > data.shape[axis]:
        raise InvalidArgumentError(f"k={k} of {data.shape[axis]}")
    places = np.take(_order(data, axis, is_ascend), range(k if k >= 1 else data.shape[axis]), axis)
    values = np.take_along_axis(data, places, axis)
    mask = np.zeros_like(data)
    np.put_along_axis(mask, places, 1, axis)
    mask = mask.reshape(whole.shape)
    at = Typed(places, dtype_name(dtype))
    results = {"indices": at, "value": values, "both": [values, at], "mask": mask}
    if ret_typ not in results:
        raise InvalidArgumentError(f"ret_typ={ret_typ!r}; there are {', '.join(results)}")
    return results[ret_typ]


# ---- matrices and probabilities


def _check_dense(stype: str | None) -> None:
    if stype not in (None, "default"):
        raise InvalidArgumentError(f"forward_stype={stype!r}; the result is dense, and tostype() converts it")


@host("tkv.nd.dot(tkv.nd.ones((2, 3)), tkv.nd.ones((3, 4))).shape", "(2, 4)", ("lhs", "rhs"))
def dot(
    lhs: Any, rhs: Any, transpose_a: bool = False, transpose_b: bool = False, forward_stype: str | None = None
) -> Any:
    """Return the sum of products over the last axis of `lhs` and the first of `rhs`; of two vectors with shape ``(1,)``.

    Args:
        lhs: an array.
        rhs: an array of the same dtype.
        transpose_a: sum over the first axis of `lhs`; its others stay in order.
        transpose_b: sum over the last axis of `rhs`; its others stay in order.
        forward_stype: None or 'default'.
    """
    _check_dense(forward_stype)
    return np.atleast_1d(np.tensordot(lhs, rhs, (0 if transpose_a else -1, -1 if transpose_b else 0)))


@host("tkv.nd.batch_dot(tkv.nd.ones((5, 2, 3)), tkv.nd.ones((5, 3, 4))).shape", "(5, 2, 4)", ("lhs", "rhs"))
def batch_dot(
    lhs: Any, rhs: Any, transpose_a: bool = False, transpose_b: bool = False, forward_stype: str | None = None
) -> Any:
    """Return the matrix product of the last two axes, for each place of the others."""
    _check_dense(forward_stype)
    if lhs.ndim != rhs.ndim or lhs.shape[:-2] != rhs.shape[:-2]:
        raise InvalidArgumentError(f"shapes {lhs.shape} and {rhs.shape}")
    return np.matmul(np.swapaxes(lhs, -1, -2) if transpose_a else lhs, np.swapaxes(rhs, -1, -2) if transpose_b else rhs)


def _logits(data: Any, axis: int, temperature: float | None) -> Any:
    axis_in(data, axis)
    if data.dtype.kind != "f":
        raise InvalidArgumentError(f"{data.dtype} elements; astype('float32') first")
    if temperature == 0:
        raise InvalidArgumentError("temperature: 0, another number is needed")
    scaled = data.astype(np.float64) / (1.0 if temperature is None else temperature)
    return scaled - scaled.max(axis=axis, keepdims=True)


def _as_asked(values: Any, dtype: Any) -> Any:
    return values if dtype is None else Typed(values, dtype_name(dtype))


@host("tkv.nd.softmax(tkv.nd.zeros((2,))).asnumpy()", "array([0.5, 0.5], dtype=float32)")
def softmax(data: Any, axis: int = -1, temperature: float | None = None, dtype: Any = None) -> Any:
    """Return exp(x / temperature), divided by the sum of those along an axis; floats only. `dtype` is the result's."""
    powers = np.exp(_logits(data, axis, temperature))
    return _as_asked(powers / powers.sum(axis=axis, keepdims=True), dtype)


@host("tkv.nd.log_softmax(tkv.nd.zeros((2,))).asnumpy()", "array([-0.6931472, -0.6931472], dtype=float32)")
def log_softmax(data: Any, axis: int = -1, temperature: float | None = None, dtype: Any = None) -> Any:
    """Return the logarithm of the softmax along an axis; floats only. The result may have another `dtype`."""
    logits = _logits(data, axis, temperature)
    return _as_asked(logits - np.log(np.exp(logits).sum(axis=axis, keepdims=True)), dtype)


# ---- new ones like others


@host("tkv.nd.zeros_like(tkv.nd.ones((2,))).asnumpy()", "array([0., 0.], dtype=float32)")
def zeros_like(data: Any) -> Any:
    """Return zeros of the same shape and dtype."""
    return np.zeros_like(data)


@host("tkv.nd.ones_like(tkv.nd.zeros((2,))).asnumpy()", "array([1., 1.], dtype=float32)")
def ones_like(data: Any) -> Any:
    """Return ones of the same shape and dtype."""
    return np.ones_like(data)


@host("tkv.nd.full_like(tkv.nd.zeros((2,)), 7).asnumpy()", "array([7., 7.], dtype=float32)")
def full_like(data: Any, fill_value: float) -> Any:
    """Return an array of the same shape and dtype whose every element is `fill_value`."""
    return np.full_like(data, fill_value)
