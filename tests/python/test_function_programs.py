"""Random calls of functions: those of `mx.np` give what NumPy's give, those of `mx.nd` what MXNet's have given.

TKV_TEST_NP_CALLS=100000 makes more calls of `mx.np` than the default, and TKV_TEST_ND_PROGRAMS names a file of
nd_programs.py with more calls of `mx.nd`.
"""

import json
import os
import pathlib
import random

import numpy as np
import pytest
import tensorkv as mx
from nd_programs import program, result

CALLS = int(os.environ.get("TKV_TEST_NP_CALLS", "3000"))
DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")
SHAPES = ((), (1,), (4,), (2, 3), (3, 2), (2, 1, 3), (0,), (2, 0))
UNARY = "abs exp expm1 log log2 log10 log1p sqrt square sign sin cos tanh floor ceil rint isnan isfinite logical_not negative"
BINARY = "add subtract multiply divide mod power maximum minimum equal not_equal less less_equal greater greater_equal"
BINARY += " logical_and logical_or dot matmul outer"
REDUCTIONS = "sum mean max min prod std var any all argmax argmin"
METHODS = (
    "mean max min prod std var any all argmax argmin cumsum argsort round flatten squeeze clip repeat take swapaxes"
)


class Call:
    """A random call, as text, and the arrays that it names."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.arrays = {}
        kind = self.rng.choice(("unary", "binary", "reduction", "shaping", "method"))
        self.text = getattr(self, f"_{kind}")()

    def _array(self, shape=None):
        shape = self.rng.choice(SHAPES) if shape is None else shape
        numbers = np.random.default_rng(self.rng.randrange(1 << 30)).integers(-8, 9, shape)
        dtype = self.rng.choice(DTYPES)
        values = np.abs(numbers) if dtype.startswith("u") else numbers / 4 if dtype.startswith("f") else numbers
        name = "xyz"[len(self.arrays)]
        self.arrays[name] = np.asarray(values).astype(dtype)
        return name

    def _axis(self, options=(None, 0, 1, -1, 2, (0, 1))):
        return f"axis={self.rng.choice(options)!r}"

    def _unary(self):
        return f"n.{self.rng.choice(UNARY.split())}({self._array()})"

    def _binary(self):
        first = self._array()
        shape = self.rng.choice((self.arrays[first].shape, self.arrays[first].shape[1:], self.rng.choice(SHAPES)))
        other = self.rng.choice((self._array(shape), "2", "0.5", "True", "-1"))
        pair = [first, other] if self.rng.random() < 0.7 else [other, first]
        return f"n.{self.rng.choice(BINARY.split())}({', '.join(pair)})"

    def _reduction(self):
        name = self.rng.choice(REDUCTIONS.split())
        axes = (None, 0, 1, -1, 2) if name.startswith("arg") else (None, 0, 1, -1, 2, (0, 1))
        options = [self._axis(axes)] + (["keepdims=True"] if self.rng.random() < 0.3 else [])
        if name in ("sum", "prod", "mean", "std", "var") and self.rng.random() < 0.3:
            options.append(f"dtype={self.rng.choice(('float32', 'float64'))!r}")
        return f"n.{name}({self._array()}, {', '.join(options)})"

    def _shaping(self):
        x = self._array()
        same = self._array(self.arrays[x].shape)
        return self.rng.choice(
            (
                f"n.concatenate([{x}, {same}], {self._axis((None, 0, 1, -1))})",
                f"n.stack([{x}, {same}], {self._axis((0, 1, -1))})",
                f"n.where({same}, {x}, {self.rng.choice((x, same, '1.5', '0'))})",
                f"n.where({x})",
                f"n.sort({x}, {self._axis((None, 0, 1, -1))})",
                f"n.argsort({x}, {self._axis((None, 0, -1))}, kind='stable')",
                f"n.cumsum({x}, {self._axis((None, 0, 1))})",
                f"n.flip({x}, {self._axis((None, 0, 1))})",
                f"n.tile({x}, {self.rng.choice((2, (2, 1)))})",
                f"n.repeat({x}, 2, {self._axis((None, 0, 1))})",
                f"n.reshape({x}, {self.rng.choice((-1, (2, 3), (3, -1), (6,)))})",
                f"n.transpose({x})",
                f"n.expand_dims({x}, {self._axis((0, 1, -1))})",
                f"n.squeeze({x}, {self._axis((None, 0, 1))})",
                f"n.broadcast_to({x}, (2, 2, 3))",
                f"n.split({x}, {self.rng.choice((1, 2, [1]))}, {self._axis((0, 1))})",
                f"n.take({x}, [0, 1], {self._axis((None, 0, 1))}, mode={self.rng.choice(('raise', 'clip', 'wrap'))!r})",
                f"n.clip({x}, 0, 1)",
                f"n.round({x}, {self.rng.choice((0, 1, -1))})",
                f"n.{self.rng.choice(('zeros_like', 'ones_like'))}({x})",
                f"n.full_like({x}, 1)",
            )
        )

    def _method(self):
        name = self.rng.choice(METHODS.split())
        arguments = {
            "argsort": "kind='stable'",
            "round": self.rng.choice(("", "1")),
            "clip": self.rng.choice(("0, 1", "max=1", "min=0")),
            "repeat": "2",
            "take": "[0, 0]",
            "swapaxes": "0, 1",
            "flatten": "",
            "squeeze": "",
        }.get(name, self._axis((None, 0, 1, -1)))
        return f"{self._array()}.{name}({arguments})"

    def run(self, module, make):
        """Return the results, or None for an error."""
        arrays = {name: make(values) for name, values in self.arrays.items()}
        with np.errstate(all="ignore"):
            try:
                found = eval(self.text, {"n": module, **arrays})
            except (TypeError, ValueError, IndexError, OverflowError):
                return None
        return list(found) if isinstance(found, (list, tuple)) else [found]


def difference(call):
    """Return how the results of a call differ, or None."""
    ours = call.run(mx.np, lambda values: mx.np.array(values))
    theirs = call.run(np, np.array)
    if ours is None or theirs is None:
        return None if ours is theirs else f"mx.np {ours}, NumPy {theirs}"
    if len(ours) != len(theirs):
        return f"{len(ours)} results, NumPy {len(theirs)}"
    for mine, wanted in zip(ours, map(np.asarray, theirs), strict=True):
        if not isinstance(mine, mx.np.ndarray):
            return f"type {type(mine).__name__}"
        found = mine.asnumpy()
        if found.dtype != wanted.dtype or found.shape != wanted.shape:
            return f"{found.dtype} {found.shape}, NumPy {wanted.dtype} {wanted.shape}"
        if not np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"):
            return f"{found!r}, NumPy {wanted!r}"
    return None


def found_in(seeds):
    for seed in seeds:
        call = Call(seed)
        why = difference(call)
        if why is not None:
            arrays = "".join(f"\n  {name} = {values!r}" for name, values in call.arrays.items())
            return f"seed {seed}: {call.text}: {why}{arrays}"
    return None


@pytest.mark.filterwarnings("ignore")
def test_random_calls_of_mx_np_and_of_numpy_agree():
    assert found_in(range(CALLS)) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sort", lambda *args, **options: mx.np.flip(np.sort(args[0].asnumpy()))),
        ("where", lambda *args: list(map(mx.np.array, np.where(*(np.asarray(one) for one in args))))[::-1]),
        ("mean", lambda *args, **options: mx.np.sum(*args, **options)),
    ],
)
def test_the_calls_find_a_function_that_is_wrong(monkeypatch, name, wrong):
    monkeypatch.setattr(mx.np, name, wrong)
    assert f".{name}(" in (found_in(range(CALLS)) or "")


MXNETS = json.loads(
    pathlib.Path(
        os.environ.get("TKV_TEST_ND_PROGRAMS", pathlib.Path(__file__).with_name("nd_programs.json"))
    ).read_text()
)


def nd_difference(seed, wanted):
    """Return how a call of `mx.nd` differs from MXNet's, or None; differences that docs/mxnet.md lists are none."""
    text, arrays = program(seed)
    dtypes = {values.dtype.name for name, values in arrays.items() if name in text.replace("axis", "")}
    found = result(mx.nd, seed)
    if wanted is None:  # MXNet fails also at some calls that have a sense, such as `dot` of float16
        return None if found is None or len(dtypes) == 1 else f"{text} of {dtypes}: {found}, MXNet refuses it"
    if found is None:
        return f"{text} of {dtypes}: an error, MXNet {wanted}"
    dtype, shape, elements = wanted
    if "argmax" in text:
        dtype = "float32"
    elif "sum(" in text and dtype == "int32" and "nansum" not in text:
        dtype = "int64"
    if found[:2] != [dtype, shape]:
        return f"{text} of {dtypes}: {found[:2]}, MXNet {wanted[:2]}"
    size = 4e-3 if dtype == "float16" else 1e-5
    is_near = np.allclose(found[2], elements, size, size, equal_nan=True)
    return None if is_near else f"{text} of {dtypes}: {found[2]}, MXNet {elements}"


def nd_found():
    return [why for seed, wanted in enumerate(MXNETS) if (why := nd_difference(seed, wanted)) is not None]


def test_random_calls_of_mx_nd_and_of_mxnet_agree():
    assert nd_found() == []


@pytest.mark.parametrize("name", ["maximum", "topk", "dot", "round"])
def test_the_programs_find_a_function_of_mx_nd_that_is_wrong(monkeypatch, name):
    right = getattr(mx.nd, name)
    monkeypatch.setattr(mx.nd, name, lambda *args, **options: -right(*args, **options))
    assert any(f".{name}(" in why for why in nd_found())
