"""Random programs that run the same steps on arrays of `mx.np` and of NumPy: values, shapes and dtypes are equal."""

import operator
import random
import re
import warnings

import numpy as np
import pytest
import tensorkv as mx
from tensorkv.errors import InvalidArgumentError

PROGRAMS = 300
STEPS = 25
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
SHAPES = ((), (1,), (7,), (3, 4), (4, 1), (2, 3, 4), (0,), (2, 0))
ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "**": operator.pow,
}
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
IN_PLACE = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "%": operator.imod,
    "**": operator.ipow,
}
NUMBERS = (0, 1, -1, 2, 127, 128, 255, 300, -129, 60000, True, 0.5, 2.0, -1.5)

# Calls that NumPy accepts and mx.np refuses on purpose: the text of the error, and why.
DIFFERENCES = {
    r"holds|cannot hold|not a whole|does not hold|out of range|no value": "an assigned number is not cut to fit a dtype",
    r"bool arrays have no arithmetic": "a sum of bools is more often an error than an or",
}

# Calls that NumPy refuses and mx.np accepts on purpose.
ALLOWED = {
    r"same_kind": "2.0 is a whole number, which integers in place take as 2",
    r"setting an array element with a sequence": "an array of one element is a number",
}


def _values(rng, shape, dtype):
    size = int(np.prod(shape))
    if dtype == "bool":
        flat = [rng.random() < 0.5 for _ in range(size)]
    elif dtype.startswith("float"):
        flat = [rng.randint(-64, 64) / 4 for _ in range(size)]
    else:
        info = np.iinfo(dtype)
        flat = [rng.choice((info.min, info.max, 0, 1, 2, 3, rng.randint(0, 100))) for _ in range(size)]
    return np.array(flat, dtype).reshape(shape)


def _ours(values):
    return mx.np.array(values, dtype=values.dtype.name)


def _slice(rng, extent):
    ends = [None, *range(-extent - 1, extent + 2)]
    return slice(rng.choice(ends), rng.choice(ends), rng.choice((None, 1, 2, 3, -1, -2)))


def _axis_key(rng, extent):
    """Return two keys of one axis, for mx.np and for NumPy; now and then one that is out of range."""
    kind = rng.randrange(4)
    if kind == 0:
        at = rng.randint(-extent - (rng.random() < 0.1), max(extent - 1, 0))
        return at, at
    if kind == 1 and extent:
        rows = np.array([rng.randint(-extent, extent - 1) for _ in range(rng.randint(0, 4))], "int64")
        return (_ours(rows) if rng.random() < 0.5 else rows), rows
    if kind == 2:
        mask = _values(rng, (extent,), "bool")
        return (_ours(mask) if rng.random() < 0.5 else mask), mask
    key = _slice(rng, extent)
    return key, key


def _key(rng, theirs):
    """Return a key for mx.np and the same one for NumPy."""
    kind = rng.randrange(6)
    if kind == 0:
        key = rng.choice((..., None, (), (..., None), (None, ...)))
        return key, key
    if kind == 1:
        mask = _values(rng, theirs.shape, "bool")
        return _ours(mask), mask
    if theirs.ndim == 0:
        return ..., ...
    if kind < 4:
        return _axis_key(rng, theirs.shape[0])
    keys = [_axis_key(rng, extent) for extent in theirs.shape[: rng.randint(1, theirs.ndim)]]
    if rng.random() < 0.3:
        keys.append((..., ...))
    if rng.random() < 0.2:
        keys.insert(0, (None, None))
    return tuple(k for k, _ in keys), tuple(k for _, k in keys)


def _operand(rng, pairs, shape):
    """Return an operand for mx.np and the same one for NumPy: a number of Python, or an array that often broadcasts."""
    if rng.random() < 0.3:
        number = rng.choice(NUMBERS)
        return number, number
    if rng.random() < 0.2:
        return rng.choice(pairs)
    shape = rng.choice((shape, shape, shape[1:], (1,) * len(shape), rng.choice(SHAPES)))
    values = _values(rng, shape, rng.choice(DTYPES))
    return _ours(values), values


def _run(step, *args):
    """Return the result of a step, or the error that it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return step(*args), None
    except (TypeError, ValueError, IndexError, OverflowError, mx.KVError) as error:
        return None, error


def _is_listed(error, table):
    return any(re.search(text, str(error)) for text in table)


class Program:
    """Pairs of arrays that are to stay equal, and the steps that they have taken."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.seed, self.log, self.pairs = seed, [], []
        for _ in range(2):
            values = _values(self.rng, self.rng.choice(SHAPES), self.rng.choice(DTYPES))
            self.pairs.append((_ours(values), values))

    def fail(self, text):
        raise AssertionError(f"seed {self.seed}: {text}\n" + "\n".join(self.log[-4:]))

    def same(self, ours, theirs):
        theirs = np.asarray(theirs)
        mine = ours.asnumpy()
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            self.fail(f"{mine.dtype} {mine.shape}, NumPy {theirs.dtype} {theirs.shape}")
        if not np.array_equal(mine, theirs, equal_nan=theirs.dtype.kind == "f"):
            self.fail(f"{mine!r}, NumPy {theirs!r}")

    def compare(self, step, mine, theirs):
        """Return the result of a step on both sides, None if it is refused; differences must be in a table."""
        ours, error = _run(step, *mine)
        expected, refusal = _run(step, *theirs)
        if error is None and refusal is None:
            return ours, expected
        if error is None:
            if not _is_listed(refusal, ALLOWED):
                self.fail(f"gave {ours!r}, NumPy raises {refusal!r}")
            theirs[0][...] = mine[0].asnumpy()
            return ours, theirs[0]
        if refusal is None and not _is_listed(error, DIFFERENCES):
            self.fail(f"raised {error!r}, NumPy gives {expected!r}")
        return None

    def step(self):
        kind = self.rng.choice(
            ("get", "set", "set", "arithmetic", "arithmetic", "compare", "in place", "overlap", "sum")
        )
        ours, theirs = self.rng.choice(self.pairs)
        self.log.append(f"{kind}: {theirs.dtype} {theirs.shape}")
        getattr(self, "_" + kind.replace(" ", "_"))(ours, theirs)
        for pair in self.pairs:
            self.same(*pair)

    def keep(self, given):
        if given is None:
            return
        ours, theirs = given
        self.same(ours, theirs)
        # A copy of each: which keys give views is no matter of these programs, except in `overlap`.
        self.pairs = [*self.pairs[-3:], (ours.copy(), np.array(theirs))]

    def _get(self, ours, theirs):
        mine, key = _key(self.rng, theirs)
        self.log[-1] += f"[{key!r}]"
        self.keep(self.compare(operator.getitem, (ours, mine), (theirs, key)))

    def _set(self, ours, theirs):
        mine, key = _key(self.rng, theirs)
        # NumPy writes to an array of its own, which is dropped where mx.np refuses.
        trial = theirs.copy()
        shape = np.shape(_run(operator.getitem, theirs, key)[0])
        value, same_value = _operand(self.rng, self.pairs, shape)
        self.log[-1] += f"[{key!r}] = {same_value!r}"
        if self.compare(operator.setitem, (ours, mine, value), (trial, key, same_value)) is not None:
            theirs[...] = trial

    def _arithmetic(self, ours, theirs):
        value, same_value = _operand(self.rng, self.pairs, theirs.shape)
        sign = self.rng.choice(list(ARITHMETIC))
        self.log[-1] += f" {sign} {same_value!r}"
        mine, right = (ours, value), (theirs, same_value)
        if self.rng.random() < 0.3:
            mine, right = mine[::-1], right[::-1]
        self.keep(self.compare(ARITHMETIC[sign], mine, right))

    def _compare(self, ours, theirs):
        value, same_value = _operand(self.rng, self.pairs, theirs.shape)
        self.log[-1] += f" with {same_value!r}"
        self.keep(self.compare(self.rng.choice(COMPARISONS), (ours, value), (theirs, same_value)))

    def _in_place(self, ours, theirs):
        value, same_value = _operand(self.rng, self.pairs, theirs.shape)
        sign = self.rng.choice(list(IN_PLACE))
        self.log[-1] += f" {sign}= {same_value!r}"
        trial = theirs.copy()
        if self.compare(IN_PLACE[sign], (ours, value), (trial, trial if same_value is theirs else same_value)):
            theirs[...] = trial

    def _overlap(self, ours, theirs):
        if theirs.ndim == 0 or theirs.shape[0] < 2 or theirs.dtype == "bool":
            return
        sign = self.rng.choice("+-*")
        first, second = self.rng.choice(((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))))
        self.log[-1] += f"[{first}] {sign}= [{second}]"
        self.compare(IN_PLACE[sign], (ours[first], ours[second]), (theirs[first], theirs[second]))

    def _sum(self, ours, theirs):
        axis = self.rng.choice((None, 0, -1, 1, (0, 1)))
        keepdims = self.rng.random() < 0.3
        # NumPy adds float16 in float16, and unsigned integers and bools in other dtypes than int64.
        wide = "float64" if theirs.dtype.kind == "f" else "int64"
        narrow = theirs.dtype if theirs.dtype.kind == "f" else "int64"
        self.log[-1] += f" axis {axis}"
        total = _run(lambda: ours.sum(axis, keepdims=keepdims))
        expected = _run(lambda: theirs.sum(axis, keepdims=keepdims, dtype=wide))
        if (total[1] is None) != (expected[1] is None):
            self.fail(f"{total!r}, NumPy {expected!r}")
        if total[1] is None:
            with np.errstate(all="ignore"):
                self.keep((total[0], np.asarray(expected[0]).astype(narrow)))


def test_programs_of_mx_np_and_of_numpy_agree():
    ran = 0
    for seed in range(PROGRAMS):
        program = Program(seed)
        for _ in range(STEPS):
            program.step()
            ran += 1
    assert ran == PROGRAMS * STEPS


def test_numbers_that_a_dtype_cannot_hold_are_refused_where_numpy_cuts_them():
    for dtype, number in (("uint8", 0.5), ("int32", 1.5), ("uint8", 300), ("uint8", -1), ("int64", 2**63)):
        a = mx.np.zeros(3, dtype=dtype)
        for key in (0, slice(None), slice(0, 2), [0, 1], ...):
            with pytest.raises(InvalidArgumentError):
                a[key] = number
        assert a.tolist() == [0, 0, 0]


def test_bools_are_joined_and_select():
    a = mx.np.arange(6)
    theirs = a.asnumpy()
    assert a[(a > 0) & ~(a == 2)].tolist() == theirs[(theirs > 0) & ~(theirs == 2)].tolist() == [1, 3, 4, 5]
    assert ((a < 1) | (theirs > 4)).tolist() == (False | (a < 1) | (a > 4)).tolist() == [True, *[False] * 4, True]
    for wrong in (lambda: ~a, lambda: a & a, lambda: (a > 0) & a, lambda: (a > 0) | 1, lambda: (a > 0) & (a[:2] > 0)):
        with pytest.raises(TypeError):  # InvalidArgumentError is one
            wrong()
