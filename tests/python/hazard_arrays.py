"""The arrays of hazard programs: of this library and of others, each with its mirror, and all that reads or changes one."""

import ctypes
import functools
import importlib
import pickle

import numpy as np
import tensorkv as mx


@functools.cache
def framework(name):
    """Import a framework, or return None where it is not installed; a partner needs none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Slot:
    """An array of a program, its mirror, and the operations that still write to it."""

    def __init__(self, kind, obj, mirror, raw=None):
        self.kind = kind
        self.obj = obj
        self.mirror = mirror
        self.raw = raw  # a view of its memory that NDArray knows nothing of

    @property
    def is_ours(self):
        """Return whether the object is an NDArray, which knows the operations under way on it."""
        return isinstance(self.obj, mx.nd.NDArray)

    def read(self):
        """Return the elements."""
        if self.is_ours:
            return self.obj.asnumpy()
        return self.obj.numpy().copy() if self.kind == "torch" else self.obj.copy()


def make_slots(rng, count):
    """Return the arrays of a program, each of `count` float32."""

    def fresh():
        return np.float32(rng.randrange(1000)) + np.zeros(count, np.float32)

    slots = []
    for _ in range(2):
        values = fresh()
        slots.append(Slot("nd", mx.nd.array(values), values))
    both = np.concatenate([fresh(), fresh()])
    base = mx.nd.array(both)
    half = count // 2
    slots.append(Slot("slice", base[0:count], both[0:count]))
    slots.append(Slot("slice", base[half : half + count], both[half : half + count]))
    rows = np.stack([fresh(), fresh()])
    slots.append(Slot("row", mx.nd.array(rows)[1], rows[1]))
    values = fresh()
    slots.append(Slot("reshaped", mx.nd.array(values).reshape(1, count).reshape(count), values))
    values = fresh()
    exported = mx.nd.array(values)
    slots.append(Slot("exported", exported, values, np.asarray(exported)))
    values = fresh()
    memory = values.copy()
    slots.append(Slot("wrapped", mx.nd.from_numpy(memory), values, memory))
    values = fresh()
    slots.append(Slot("numpy", values.copy(), values))
    values = fresh()
    slots.append(Slot("strided", np.repeat(values, 2)[::2], values))
    if framework("torch") is not None:
        values = fresh()
        slots.append(Slot("torch", framework("torch").tensor(values), values))
    rng.shuffle(slots)
    return slots


# Functions that change an NDArray, by the public member that they use. Each takes the array, its mirror, a small number
# and a place, and changes both arrays alike.


def _item(a, m, x, i):
    a[i] = x
    m[i] = x


def _last(a, m, x, i):
    a[-1 - i] = np.float32(x)
    m[-1 - i] = x


def _rows(a, m, x, i):
    a[i : i + 3] = x
    m[i : i + 3] = x


def _steps(a, m, x, i):
    a[i::2] = np.float32(x)
    m[i::2] = x


def _fancy(a, m, x, i):
    a[[i, 0]] = [x, x + 1]
    m[[i, 0]] = [x, x + 1]


def _by_array(a, m, x, i):
    a[mx.nd.array([i, 0], dtype="int32")] = x
    m[[i, 0]] = x


def _mask(a, m, x, i):
    mask = m > x
    a[mask] = x
    m[mask] = x


def _all_scalar(a, m, x, i):
    a[:] = x
    m[:] = x


def _all_ellipsis(a, m, x, i):
    a[...] = x
    m[...] = x


def _all_array(a, m, x, i):
    a[:] = mx.nd.full(m.shape, x)
    m[:] = x


def _all_numpy(a, m, x, i):
    a[:] = np.full(m.shape, x, np.float32)
    m[:] = x


def _row_view(a, m, x, i):
    a[i][:] = x
    m[i] = x


def _slice_view(a, m, x, i):
    view = a[i : i + 2]
    view[:] = x
    view += 1
    m[i : i + 2] = x + 1


def _reshaped_view(a, m, x, i):
    a.reshape(1, -1)[0][i] = x
    m[i] = x


def _np_view(a, m, x, i):
    a.as_in_context(a.context)._as(mx.np.ndarray)[i] = x
    m[i] = x


def _iadd(a, m, x, i):
    a += x
    m += x


def _isub(a, m, x, i):
    a -= mx.nd.full(m.shape, x)
    m -= x


def _imul(a, m, x, i):
    a *= -1
    m *= -1


def _itruediv(a, m, x, i):
    a /= -1
    m /= -1


def _imod(a, m, x, i):
    a %= 7
    m %= 7


def _ipow(a, m, x, i):
    a %= mx.nd.full(m.shape, 3)  # so that values do not grow to infinity
    a **= 2
    m %= 3
    m **= 2


def _copyto(a, m, x, i):
    mx.nd.full(m.shape, x).copyto(a)
    m[:] = x


def _copyto_converted(a, m, x, i):
    mx.nd.full(m.shape, x, dtype="float64").copyto(a)
    m[:] = x


def _asarray(a, m, x, i):
    np.asarray(a)[:] = x
    m[:] = x


def _from_dlpack(a, m, x, i):
    np.from_dlpack(a)[i] = x
    m[i] = x


def _torch_fill(a, m, x, i):
    if framework("torch") is None:
        return _from_dlpack(a, m, x, i)
    framework("torch").from_dlpack(a).fill_(x)
    m[:] = x


def _nd_from_dlpack(a, m, x, i):
    mx.nd.from_dlpack(a)[i] = x
    m[i] = x


def _address(a, m, x, i):
    ctypes.c_float.from_address(a.data_ptr + 4 * i).value = x
    m[i] = x


WRITERS = {
    "__setitem__": [
        _item,
        _last,
        _rows,
        _steps,
        _fancy,
        _by_array,
        _mask,
        _all_scalar,
        _all_ellipsis,
        _all_array,
        _all_numpy,
        _row_view,
        _slice_view,
        _reshaped_view,
        _np_view,
    ],
    "__iadd__": [_iadd],
    "__isub__": [_isub],
    "__imul__": [_imul],
    "__itruediv__": [_itruediv],
    "__imod__": [_imod],
    "__ipow__": [_ipow],
    "copyto": [_copyto, _copyto_converted],
    "__array__": [_asarray],
    "__dlpack__": [_from_dlpack, _torch_fill, _nd_from_dlpack],
    "data_ptr": [_address],
}
ALL_WRITERS = [writer for writers in WRITERS.values() for writer in writers]

READERS = {
    "asnumpy": lambda a: a.asnumpy(),
    "copy": lambda a: a.copy().asnumpy(),
    "__copy__": lambda a: a.__copy__().asnumpy(),
    "__deepcopy__": lambda a: a.__deepcopy__({}).asnumpy(),
    "astype": lambda a: a.astype("float64").astype("float32").asnumpy(),
    "as_in_context": lambda a: a.as_in_context(mx.cpu(1)).asnumpy(),
    "as_in_ctx": lambda a: a.as_in_ctx(mx.cpu(1)).asnumpy(),
    "tolist": lambda a: a.tolist(),
    "T": lambda a: a.T.asnumpy(),
    "__add__": lambda a: (a + 0).asnumpy(),
    "__radd__": lambda a: (0 + a).asnumpy(),
    "__sub__": lambda a: (a - 0).asnumpy(),
    "__rsub__": lambda a: -(0 - a).asnumpy(),
    "__mul__": lambda a: (a * mx.nd.ones(a.shape)).asnumpy(),
    "__rmul__": lambda a: (1 * a).asnumpy(),
    "__truediv__": lambda a: (a / 1).asnumpy(),
    "__mod__": lambda a: _same((a % 2)[0].asscalar(), a, lambda m: np.mod(m[0], 2)),
    "__rmod__": lambda a: _same((3 % (a * 0 + 2))[0].asscalar(), a, lambda m: 1),
    "__pow__": lambda a: (a**1).asnumpy(),
    "__rpow__": lambda a: _same((2 ** (a * 0))[0].asscalar(), a, lambda m: 1),
    "__neg__": lambda a: (-a).asnumpy() * -1,
    "__abs__": lambda a: abs(a).asnumpy() * np.sign(a.asnumpy()),
    "abs": lambda a: a.abs().asnumpy() * a.sign().asnumpy(),
    "sign": lambda a: a.abs().asnumpy() * a.sign().asnumpy(),
    "diag": lambda a: _same(
        a[:9].diag().sum().asscalar(), a, lambda m: m[:9].sum()
    ),  # of all, it would fill the memory
    "sum": lambda a: _same(a.sum().asscalar(), a),
    "sqrt": lambda a: _same((a * a).sqrt()[0].asscalar(), a, lambda m: abs(m[0])),
    "asscalar": lambda a: [row.asscalar() for row in a[0:3]] + a[3:].tolist(),
    "item": lambda a: [row.item() for row in a[0:3]] + a[3:].tolist(),
    "__getitem__": lambda a: a[::-1].asnumpy()[::-1],
    "__iter__": lambda a: np.concatenate([row.asnumpy() for row in a]) if len(a) <= 1000 else a.asnumpy(),
    "__float__": lambda a: [float(a[0])] + a[1:].tolist(),
    "__int__": lambda a: [int(a[0])] + a[1:].tolist(),
    "__bool__": lambda a: _same(bool(a[0]), a, lambda m: bool(m[0])),
    "__eq__": lambda a: (a * (a == a)).asnumpy(),
    "__ne__": lambda a: (a * (a != a) + a).asnumpy(),
    "__lt__": lambda a: ((a < a) + a).asnumpy(),
    "__le__": lambda a: (a * (a <= a)).asnumpy(),
    "__gt__": lambda a: ((a > a) + a).asnumpy(),
    "__ge__": lambda a: (a * (a >= a)).asnumpy(),
    "reshape": lambda a: a.reshape(1, -1)[0].asnumpy(),
    "reshape_like": lambda a: a.reshape_like(mx.nd.ones((1, *a.shape)))[0].asnumpy(),
    "as_nd_ndarray": lambda a: a.as_nd_ndarray().asnumpy(),
    "as_np_ndarray": lambda a: a.as_np_ndarray().asnumpy(),
    "tostype": lambda a: a.tostype("default").asnumpy(),
    "wait_to_read": lambda a: (a.wait_to_read(), a.asnumpy())[1],
    "__reduce__": lambda a: pickle.loads(pickle.dumps(a)).asnumpy(),
    "__array__": lambda a: np.array(a),
    "__dlpack__": lambda a: np.from_dlpack(a).copy(),
    "copyto": lambda a: a.copyto(mx.nd.zeros(a.shape, dtype="float64")).asnumpy(),
    "__repr__": lambda a: (repr(a), a.asnumpy())[1],
}


def _as_of_a_copy(name, arguments):
    """Return a reader that gives the elements where a function makes the same of the array as of a copy of them."""

    def read(a):
        if a.size == 0:
            return a.asnumpy()
        given = arguments(a) if callable(arguments) else arguments
        made = getattr(a, name)(*given).asnumpy()
        elements = a.asnumpy()
        wanted = getattr(mx.nd.array(elements), name)(*given).asnumpy()
        return elements if np.array_equal(made, wanted, equal_nan=True) else [f"{name}: {made}, not {wanted}"]

    return read


FUNCTIONS = "arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort cbrt ceil cos cosh degrees exp expm1 fix flatten"
FUNCTIONS += " floor log log10 log1p log2 log_softmax max mean min nansum norm ones_like prod radians reciprocal relu rint round rsqrt"
FUNCTIONS += " sigmoid sin sinh softmax sort square squeeze tan tanh topk transpose trunc zeros_like"
ARGUMENTS = {
    **dict.fromkeys(FUNCTIONS.split(), ()),
    "broadcast_like": lambda a: (mx.nd.ones((2, *a.shape)),),
    "broadcast_to": lambda a: ((2, *a.shape),),
    "clip": (-1, 1),
    "expand_dims": (0,),
    "flip": (0,),
    "one_hot": (3,),
    "pick": lambda a: (mx.nd.zeros((1,)),),
    "repeat": (2,),
    "slice": ((0,), (1,)),
    "slice_axis": (0, 0, 1),
    "slice_like": lambda a: (mx.nd.ones((1,)),),
    "split": (1, 0),
    "swapaxes": (0, 0),
    "take": lambda a: (mx.nd.zeros((1,)),),
    "tile": (2,),
}
READERS.update({name: _as_of_a_copy(name, arguments) for name, arguments in ARGUMENTS.items()})

# Members that look at no element.
NEUTRAL = {
    "context", "contiguous", "ctx", "dtype", "dtype_name", "nbytes", "ndim", "read_only", "shape", "size", "stype",
    "__array_priority__", "__dlpack_device__", "__getattr__", "__len__", "__rtruediv__", "__index__", "__hash__", "__slots__",
    "__module__", "__doc__",
}  # fmt: skip


def _same(value, a, of=lambda m: np.float32(m.sum())):
    """Return the elements if a figure of them is right, else a text that shows the difference."""
    elements = a.asnumpy()
    return elements if np.isclose(float(value), float(of(elements)), rtol=1e-4) else [f"{value}, not {of(elements)}"]
