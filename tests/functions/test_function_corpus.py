"""Functions of set_updater give the same bits on servers as where they are called, or servers refuse them."""

import contextlib
import copy
import os
import random

import function_corpus as corpus
import numpy as np
import pytest
import tensorkv as mx

SHAPE = (3, 7)
COUNT = int(os.environ.get("TKV_TEST_FUNCTION_COUNT", 400))  # of random ones
SEED = int(os.environ.get("TKV_TEST_FUNCTION_SEED", 0))
PUSHES = 3


def values(dtype, seed):
    """Return a first value and the pushed values: ordinary numbers, some rows of them, then also zeros and infinities."""
    numbers = np.random.default_rng(seed)
    if dtype.startswith("int"):
        arrays = [numbers.integers(-5, 6, SHAPE) for _ in range(PUSHES + 1)]
    else:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1.0, -1.0])
        arrays = [numbers.normal(size=SHAPE) for _ in range(PUSHES + 1)]
        arrays[-1] = np.where(numbers.random(SHAPE) < 0.5, numbers.choice(special, SHAPE), arrays[-1])
    first, *pushed = (mx.nd.array(one, dtype=dtype) for one in arrays)
    rows = np.flatnonzero(numbers.random(SHAPE[0]) < 0.5)
    pushed[1] = mx.nd.sparse.row_sparse_array(
        (mx.nd.array(arrays[2][rows], dtype=dtype), rows), shape=SHAPE, dtype=dtype
    )
    return [first, *pushed]


def bits_of(array):
    """Return the bytes of an array in which every NaN is the same."""
    wide = array.astype("float32") if array.dtype == np.float16 else array
    return (np.where(wide == wide, wide, np.nan).astype(wide.dtype) if wide.dtype.kind == "f" else wide).tobytes()


def outcome(kv, text, dtype, seed):
    """Return the values after each push, or the error of the call or of the reading."""
    names = {"kv": kv, "mx": mx, "np": np, "copy": copy, "contextlib": contextlib, "random": random}
    exec(text, names)
    first, *pushed = values(dtype, seed)
    kv.set_updater(None)
    kv.push("w", first)
    results = []
    try:
        with np.errstate(all="ignore"):
            kv.set_updater(names["update"])
            for one in pushed:
                kv.push("w", one)
                results.append(kv.pull("w").asnumpy())
    except Exception as error:
        return error
    return results


@contextlib.contextmanager
def pair(dtype):
    with mx.kv.create("local") as called, mx.kv.create("dist_sync", bootstrap="self") as read:
        for kv in (called, read):
            kv.init("w", mx.nd.zeros(SHAPE, dtype=dtype))
        yield called, read


def same_or_refused(stores, text, dtype="float32", seed=1):
    """Check a function; return the error of servers, or None where they run it."""
    called, read = (outcome(kv, text, dtype, seed) for kv in stores)
    if isinstance(read, Exception):
        assert isinstance(read, mx.errors.InvalidArgumentError), f"{text}\n{read!r}"
        by_push = dtype.startswith("int") and str(read).startswith("push 'w': ")  # integers have no division
        assert by_push or "set_updater: update (" in str(read), f"{text}\n{read}"
        return read
    assert not isinstance(called, Exception), f"{text}\ncalled: {called!r}\nread: {read}"
    for mine, theirs in zip(called, read, strict=True):
        assert bits_of(mine) == bits_of(theirs), f"{text}\ncalled {mine}\nread {theirs}"
    return None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_published_optimizers_are_read(dtype):
    with pair(dtype) as stores:
        for name, body in corpus.READ.items():
            error = same_or_refused(stores, corpus.text_of(body), dtype)
            assert error is None, f"{name}: {error}"


def test_optimizers_that_servers_cannot_run_are_refused():
    with pair("float32") as stores:
        for name, body in corpus.REFUSED.items():
            assert same_or_refused(stores, corpus.text_of(body)) is not None, name


@pytest.mark.timeout(600)  # 10 s on an idle core
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_random_functions(dtype):
    part = {"float32": 0.7}.get(dtype, 0.1)
    count = round(COUNT * part)
    refused = 0
    with pair(dtype) as stores:
        for seed in range(SEED, SEED + count):
            body = corpus.Writer(f"{dtype} {seed}", dtype).body()
            refused += same_or_refused(stores, corpus.text_of(body), dtype, seed) is not None
    if count >= 100:
        assert 0.1 * count < refused < 0.8 * count, f"{refused} of {count} refused: the corpus has become empty"
