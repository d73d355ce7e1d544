"""Functions of set_updater on stores whose servers run no Python: read as programs, they do what calling them does."""

import array
import asyncio
import builtins
import collections
import contextlib
import copy
import ctypes
import decimal
import email.utils
import functools
import io
import itertools
import mmap
import os
import pathlib
import pickle
import random
import re
import resource
import statistics
import sys
import threading
import time
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorkv as mx
from tensorkv._update import fingerprints as _fingerprints
from tensorkv._update import functions as _functions
from tensorkv._update import muting as _muting
from tensorkv._update import reading as _trace
from tensorkv._update import statements as _statements
from tensorkv._update import states as _states
from tensorkv._update import traced as _traced
from tensorkv._update import watch as _watch

SHAPE = (2, 3)
PROGRAMS = int(os.environ.get("TKV_FUNCTIONS", 150))


def store_of(type):
    return mx.kv.create(type, **({"bootstrap": "self"} if type.startswith("dist") else {}))


@pytest.fixture
def kv():
    with store_of("dist_sync") as store:
        store.init(3, mx.nd.ones(SHAPE))
        yield store


def printed(action):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        action()
    return out.getvalue()


def pushed(kv, key=3, value=1.0):
    kv.push(key, mx.nd.ones(SHAPE) * value)
    return kv.pull(key).asnumpy()


# ------------------------------------------------------------------------------------------------ reading


def test_a_function_is_read_once_with_what_it_prints_and_runs_at_each_push(kv):
    def update(key, input, stored):
        print(f"update on key: {key}")
        stored += input * 2

    assert printed(lambda: kv.set_updater(update)) == "update on key: 3\n"
    assert printed(lambda: pushed(kv)) == ""
    assert (pushed(kv) == 5).all()
    assert printed(lambda: kv.init([5, 7], [mx.nd.zeros(SHAPE)] * 2)) == "update on key: 5\nupdate on key: 7\n"
    assert (pushed(kv, 7) == 2).all()


def test_a_function_that_was_set_before_any_key_is_read_for_the_first_one():
    with store_of("dist_sync") as kv:

        def update(key, input, stored):
            assert input.shape == stored.shape == SHAPE
            assert stored.dtype == np.float32
            assert input.size == 6
            assert input.ndim == len(input) == 2
            stored -= input

        kv.set_updater(update)
        kv.init("w", mx.nd.ones(SHAPE))
        assert (pushed(kv, "w") == 0).all()


def test_broadcast_reads_a_function_for_its_keys():
    with store_of("dist_sync") as kv:
        kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
        kv.broadcast(1, mx.nd.ones(SHAPE), out=mx.nd.zeros(SHAPE))
        assert (pushed(kv, 1) == 2).all()


def test_workers_sum_before_the_function_and_another_rank_than_0_has_no_effect():
    with mx.testing.cluster(workers=2, servers=2) as job:
        stores = [job.store(rank) for rank in range(2)]
        for ticket in [one.init(3, mx.nd.ones(SHAPE), async_op=True) for one in stores]:
            ticket.wait()
        stores[1].set_updater(lambda key, input, stored: stored.__isub__(input))
        stores[0].set_updater(lambda key, input, stored: stored.__iadd__(input * 2))
        for one in stores:
            one.push(3, mx.nd.ones(SHAPE))
        assert [float(one.pull(3).asnumpy()[0, 0]) for one in stores] == [5.0, 5.0]
        assert "value becomes value + sum × 2" in explained(stores[1]), "that of the servers"


def test_a_thread_is_muted_until_the_outermost_block_ends(capsys, monkeypatch):
    with _muting.muted():
        with _muting.muted():
            sys.stdout.writelines(["one", "two"])
        print("three", flush=True)
    print("four")
    assert capsys.readouterr().out == "four\n"
    monkeypatch.setattr(sys, "stdout", None)  # as of pythonw
    with _muting.muted():
        print("five", flush=True)
    assert sys.stdout is None


def test_the_updater_after_a_function_takes_its_place(kv):
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
    kv.set_updater(None)
    assert (pushed(kv, value=7.0) == 7).all()
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    assert (pushed(kv) == 6).all()


def test_code_of_the_user_is_what_is_in_no_folder_of_the_package_or_of_numpy():
    ours, theirs = (pathlib.Path(package.__file__).parent for package in (mx, np))
    for folder in (ours, theirs, theirs / "_core"):
        assert _trace.is_ours(str(folder / "code.py"))
    for folder in (f"{ours}_jobs", f"{theirs}-jobs", "/home/me/numpy", "/home/me/numpy/tensorkv"):
        assert not _trace.is_ours(f"{folder}/train.py")


def test_threads_that_read_at_the_same_time_leave_standard_output_as_it_was():
    output = sys.stdout
    entered, left = {name: os.pipe() for name in "ab"}, os.pipe()  # a pipe holds a byte once the event has been

    def happens(event):
        os.write(event[1], b".")

    def wait(event):
        os.write(event[1], os.read(event[0], 1))

    def act(name):
        def update(key, input, stored):
            if isinstance(sys.stdout, _muting.Output) and threading.get_ident() in sys.stdout.muted:
                happens(entered[name])
                wait(left if name == "b" else entered["b"])
            print(f"read by {name}")
            stored += input

        with store_of("dist_sync") as kv:
            kv.set_updater(update)
            if name == "b":
                wait(entered["a"])
            kv.init(3, mx.nd.ones(SHAPE))
            if name == "a":
                happens(left)

    def both():
        threads = [threading.Thread(target=act, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        wait(entered["b"])
        print("by another thread")
        for thread in threads:
            thread.join()

    assert sorted(printed(both).splitlines()) == ["by another thread", "read by a", "read by b"]
    assert sys.stdout is output


@pytest.mark.parametrize("value", [lambda: [mx.nd.ones(SHAPE)], lambda: (np.ones(SHAPE, np.float32),)])
def test_a_function_is_read_for_a_value_in_a_list(value):
    with store_of("dist_sync") as kv:
        kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
        kv.init(3, value())
        assert (pushed(kv) == 2).all()


@pytest.mark.parametrize("value", [list, lambda: [mx.nd.ones(SHAPE)] * 2, object])
def test_a_wrong_value_is_named_by_init_where_a_function_is_set(value):
    with store_of("dist_sync") as kv:
        kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
        with pytest.raises(mx.errors.InvalidArgumentError, match="^init 3: "):
            kv.init(3, value())


# ------------------------------------------------------------------------------------------------ what cannot be read

count = 0
constant = np.ones(SHAPE, np.float32)


def branches(key, input, stored):
    if input > 0:
        stored += input


def rebinds(key, input, stored):
    stored = stored + input  # noqa: F841


def leaves(key, input, stored):
    pass


def counts(key, input, stored):
    global count
    count += 1
    stored += input * count


def takes_a_number(key, input, stored):
    stored += float(input)


def takes_an_array(key, input, stored):
    stored += input.asnumpy()


def converts(key, input, stored):
    stored += np.asarray(input)


def writes_a_part(key, input, stored):
    stored[0] = 1


def reads_a_part(key, input, stored):
    stored += input[0]


def captures(key, input, stored):
    stored += constant


def raises(key, input, stored):
    raise KeyError("mine")


def calls_another(key, input, stored):
    takes_a_number(key, input, stored)


def powers(key, input, stored):
    stored += input**3


def sums(key, input, stored):
    stored += input.sum()


def exponentiates(key, input, stored):
    stored += np.exp(input)


def asks_for_a_gradient(key, input, stored):
    stored += input.grad


def has_a_nan(key, input, stored):
    stored += float("nan")


def loops(key, input, stored):
    for _ in range(300):
        stored += input


def has_many_states(kv):
    def many(key, input, stored):
        for i in range(20):
            stored += kv.state(f"s{i}")

    return many


def iterates(key, input, stored):
    for row in input:
        stored += row


UNREADABLE = {
    branches: (1, "a branch on elements"),
    rebinds: (1, r"write `stored\[:\] = ...`"),
    leaves: (None, "the stored value is not changed"),
    counts: (2, "a call changes count"),
    takes_a_number: (1, "a number out of an array"),
    takes_an_array: (1, "a number out of an array"),
    converts: (1, "a number out of an array"),
    writes_a_part: (1, "a part of an array"),
    reads_a_part: (1, "a part of an array"),
    captures: (1, r"an array that is not of the key.*kv\.state"),
    raises: (1, "KeyError: 'mine'"),
    powers: (1, "no operation of update programs"),
    sums: (1, "a number out of an array"),
    exponentiates: (1, r"np\.exp"),
    asks_for_a_gradient: (1, "has no attribute 'grad'"),
    has_a_nan: (1, "NaN"),
    loops: (2, "more than 256 operations"),
    iterates: (1, "a number out of an array"),
}


@pytest.mark.parametrize("function", UNREADABLE, ids=lambda function: function.__name__)
def test_what_servers_cannot_run_is_an_error_that_names_the_line_and_changes_nothing(kv, function):
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
    after, why = UNREADABLE[function]
    with pytest.raises(mx.errors.InvalidArgumentError, match=why) as error:
        kv.set_updater(function)
    assert function.__name__ in str(error.value)
    assert "key 3" in str(error.value)
    if after is not None:
        line = function.__code__.co_firstlineno + after
        assert f"{__file__}:{line}" in str(error.value) or f"line {line}" in str(error.value)
    assert (pushed(kv) == 2).all(), "the updater before is in force"


class OwnStates:
    """Keep an array of the key in a dict, made in one way or another."""

    def __init__(self, make):
        self.momentum, self.make = {}, make

    def __call__(self, key, grad, weight):
        momentum = self.make(self.momentum, key, grad) * 0.9 + grad
        self.momentum[key] = momentum
        weight -= momentum


@pytest.mark.parametrize(
    "make",
    [
        lambda states, key, grad: states[key],
        lambda states, key, grad: states.get(key, 0.0),
        lambda states, key, grad: states.setdefault(key, grad.copy()),
        lambda states, key, grad: states.setdefault(key, mx.nd.zeros(grad.shape, grad.context, grad.dtype)),
        lambda states, key, grad: states.setdefault(key, np.zeros(grad.shape, grad.dtype)),
        lambda states, key, grad: states.setdefault(key, mx.nd.zeros_like(grad)),
        lambda states, key, grad: states.setdefault(key, np.zeros_like(grad)),
    ],
)
def test_a_function_with_states_of_its_own_is_told_where_states_are(kv, make):
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"kv\.state\('m'\) keeps an array of the key"):
        kv.set_updater(OwnStates(make))


@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_a_function_may_ask_where_its_arrays_are(type):
    def update(key, input, stored):
        assert input.context == stored.ctx == mx.cpu() and input.stype == "default"
        stored += input.as_in_context(stored.context)

    with store_of(type) as kv:
        kv.init(3, mx.nd.ones(SHAPE))
        kv.set_updater(update)
        assert (pushed(kv) == 2).all()


@pytest.mark.parametrize(("type", "after"), [("local", 0.5), ("dist_sync", 0.0)])
def test_a_number_from_outside_is_frozen_where_servers_run_the_function(type, after):
    rate = [1.0]

    def update(key, input, stored):
        stored -= rate[0] * input

    with store_of(type) as kv:
        kv.init(3, mx.nd.ones(SHAPE) * 2)
        kv.set_updater(update)
        assert (pushed(kv) == 1).all()
        rate[0] = 0.5
        assert (pushed(kv) == after).all()
        kv.set_updater(update)
        assert (pushed(kv) == after - 0.5).all()


def test_the_line_is_that_of_the_function_that_was_called_last(kv):
    with pytest.raises(mx.errors.InvalidArgumentError) as error:
        kv.set_updater(calls_another)
    assert f"{__file__}:{takes_a_number.__code__.co_firstlineno + 1}" in str(error.value)


def test_too_many_states_and_wrong_names_are_errors(kv):
    with pytest.raises(mx.errors.InvalidArgumentError, match="more than 16 states"):
        kv.set_updater(has_many_states(kv))
    for name in ("value", "a b", "", "1", "x" * 65, 3, "param", "state", "scalar", "program", "inf", "NaN"):
        for store in (kv, store_of("local")):
            with pytest.raises(mx.errors.InvalidArgumentError, match=re.escape(f"state {name!r}: ")):
                store.set_updater(lambda key, input, stored, name=name: stored.__iadd__(kv.state(name)))
                store.init(4, mx.nd.ones(SHAPE))
                pushed(store, 4)
    with pytest.raises(mx.errors.FailedPreconditionError, match="set_updater"):
        kv.state("m")


def test_reserved_names_of_states_are_listed_by_the_error_the_docstring_and_the_docs(kv):
    names = (*_trace._TAKEN, *_trace._NUMBERS)
    for name in (*names, "NaN"):
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"none of {', '.join(names)}$"):
            kv.set_updater(lambda key, input, stored, name=name: stored.__iadd__(kv.state(name)))
    page = (pathlib.Path(__file__).parents[2] / "docs" / "programs.md").read_text()
    for text in (mx.kv.KVStore.state.__doc__, page):
        listed = text[text.index("Programs reserve") :].split(".")[0]
        assert sorted(re.findall(r"`+(\w+)`+", listed)) == sorted(names)


def test_another_program_for_another_key_is_an_error_before_the_key_is_made(kv):
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input * key))
    with pytest.raises(mx.errors.InvalidArgumentError, match="for key 4 another program than for 3"):
        kv.init(4, mx.nd.ones(SHAPE))
    assert 4 not in kv
    assert (pushed(kv) == 4).all()


def test_a_number_outside_that_changes_before_the_next_key_is_named_as_a_reason(kv):
    rates = [0.5]
    kv.set_updater(lambda key, grad, weight: weight.__isub__(grad * rates[0]))
    rates[0] = 0.25
    with pytest.raises(mx.errors.InvalidArgumentError, match="a number outside of the function has changed since"):
        kv.init("w", mx.nd.zeros(SHAPE))


def test_keys_that_are_not_made_or_deleted_bind_no_program(kv):
    def update(key, input, stored):
        stored -= input / input.shape[0]

    kv.delete(3)
    kv.set_updater(update)
    with pytest.raises(mx.errors.InvalidArgumentError, match="for key 'b' another program than for 'a'"):
        kv.init(["a", "b"], [mx.nd.ones((3,)), mx.nd.ones((4,))])
    for key, size in (("b", 4), ("a", 2)):
        kv.init(key, mx.nd.ones((size,)))
        kv.push(key, mx.nd.ones((size,)))
        assert (kv.pull(key).asnumpy() == 1 - 1 / size).all()
        kv.delete(key)


def test_a_callable_that_answers_every_name_is_read(kv):
    class Open:
        def __getattr__(self, name):
            return 0.5

        def __call__(self, key, input, stored):
            stored -= self.rate * input

    kv.set_updater(Open())
    assert (pushed(kv) == 0.5).all()


def test_an_integer_key_refuses_a_division(kv):
    kv.init(4, mx.nd.ones(SHAPE, dtype="int32"))
    with pytest.raises(mx.errors.KVError, match="int32"):
        kv.set_updater(lambda key, input, stored: stored.__itruediv__(2))
        kv.push(4, mx.nd.ones(SHAPE, dtype="int32"))
        kv.pull(4)


# ------------------------------------------------------------------------------------------------ called or read


@pytest.mark.parametrize("type", ["local", "dist_sync"])
@pytest.mark.parametrize("sign", [np.sign, mx.nd.sign, lambda grad: grad.sign()])
def test_the_sign_of_a_nan_is_a_nan(type, sign):
    with store_of(type) as kv:
        kv.init(3, mx.nd.zeros((4,)))
        kv.set_updater(lambda key, grad, weight: weight.__isub__(sign(grad)))
        kv.push(3, mx.nd.array([2, -2, 0, np.nan]))
        np.testing.assert_array_equal(kv.pull(3).asnumpy(), [-1, 1, 0, np.nan])


@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_numbers_and_keys_of_shape_nothing_are_taken(type):
    def update(key, grad, weight):
        weight[:] = mx.nd.where(grad > 0, 1, weight)
        weight[:] = mx.nd.where(grad > 9, grad, 0.5) + weight

    with store_of(type) as kv:
        kv.init(3, mx.nd.zeros(()))
        kv.set_updater(update)
        kv.push(3, mx.nd.ones(()))
        assert kv.pull(3).asscalar() == 1.5


@pytest.mark.parametrize("type", ["local", "dist_sync"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_computed_in_float32(type, dtype):
    def momentum(key, grad, weight):
        assert grad.dtype == weight.dtype == kv.state("m").dtype == np.float32
        m = kv.state("m")
        m *= 0.9
        m += np.clip(grad, -1, 1)
        weight -= 0.1 * m

    with store_of(type) as kv:
        kv.init(3, mx.nd.ones((2,), dtype=dtype))
        kv.set_updater(momentum)
        for _ in range(2):
            kv.push(3, mx.nd.ones((2,), dtype=dtype) * 3)
        wide = mx.nd.ones((2,)) - 0.1
        wide = wide.astype(dtype).astype("float32") - 0.1 * mx.nd.array([1.9, 1.9])
        assert (
            kv.pull(3).astype("float32").asnumpy().tolist() == wide.astype(dtype).astype("float32").asnumpy().tolist()
        )


# ------------------------------------------------------------------------------------------------ states


@pytest.mark.parametrize("type", ["local", "device", "dist_sync", "dist_async"])
def test_a_state_is_kept_for_each_key_and_begins_anew_with_an_updater(type):
    with store_of(type) as kv:
        kv.init([1, 2], [mx.nd.zeros(SHAPE)] * 2)

        def momentum(key, grad, weight):
            m = kv.state("m")
            m *= 0.5
            m += grad
            weight -= m

        kv.set_updater(momentum)
        assert (pushed(kv, 1) == -1).all()
        assert (pushed(kv, 1) == -2.5).all()
        assert (pushed(kv, 2) == -1).all()
        kv.set_updater(None)
        kv.set_updater(momentum)
        assert (pushed(kv, 1) == -3.5).all()
        if not type.startswith("dist"):
            kv.delete(2)
            kv.init(2, mx.nd.zeros(SHAPE))
            assert (pushed(kv, 2) == -1).all()


def test_a_function_that_raises_leaves_the_states_of_its_key():
    with store_of("local") as kv:
        kv.init(1, mx.nd.zeros(SHAPE))
        fails = []

        def update(key, grad, weight):
            m = kv.state("m")
            m += grad
            kv.state("other")[:] = 5
            if fails:
                raise fails.pop()
            weight[:] = m

        kv.set_updater(update)
        assert (pushed(kv, 1) == 1).all()
        fails.append(OSError("once"))
        with pytest.raises(OSError, match="once"):
            pushed(kv, 1)
        assert (pushed(kv, 1) == 2).all()


def test_the_state_of_a_16_bit_key_is_float32():
    with store_of("local") as kv:
        kv.init(1, mx.nd.zeros(SHAPE, dtype="float16"))
        seen = []

        def update(key, grad, weight):
            seen.append(kv.state("m").dtype)
            weight += grad

        kv.set_updater(update)
        kv.push(1, mx.nd.ones(SHAPE, dtype="float16"))
        assert seen == [np.float32]


# ------------------------------------------------------------------------------------------------ the same bits

OPERATORS = ["+", "-", "*", "/"]
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]


class Writer:
    """Text of a function with random arithmetic; of integers only what they have."""

    def __init__(self, seed, is_float):
        self.random = random.Random(seed)
        self.is_float = is_float

    def operand(self, depth):
        name = self.random.choice(["input", "stored", "kv.state('m')", "temporary"])
        return self.expression(depth - 1) if depth > 0 and self.random.random() < 0.7 else name

    def number(self):
        return repr(self.random.choice([0.5, -2.0, 3, 0, 1e-3, float(2**30)] if self.is_float else [0, 1, -2, 7]))

    def expression(self, depth):
        a, b = self.operand(depth), self.operand(depth)
        kinds = ["infix", "number", "swapped", "neg", "abs", "compare", "where"]
        kind = self.random.choice([*kinds, "unary", "extreme", "clip"] if self.is_float else kinds)
        operator = self.random.choice(OPERATORS if self.is_float else OPERATORS[:3])
        return {
            "infix": f"({a} {operator} {b})",
            "number": f"({a} {operator} {self.number()})",
            "swapped": f"({self.number()} {operator} {b})",
            "neg": f"(-{a})",
            "abs": f"abs({a})",
            "compare": f"({a} {self.random.choice(COMPARISONS)} {b})",
            "where": f"where({a} > {b}, {b}, {a})",
            "unary": f"({a}{self.random.choice(['.sqrt()', '.sign()', '.abs()', ' ** 2', ' ** 0.5'])})",
            "extreme": f"{self.random.choice(['maximum', 'minimum'])}({a}, {b})",
            "clip": f"maximum(minimum({a}, 2.0), -0.5)",
        }[kind]

    def function(self):
        lines = ["def update(key, input, stored):", "    temporary = input + stored"]
        for _ in range(self.random.randint(1, 4)):
            target = self.random.choice(["temporary", "kv.state('m')", "stored", "input"])
            value = self.expression(2)
            form = self.random.choice(["{}[:] = {}", "{} += {}", "{} -= {}", "{} *= {}", "{0} += {1}; {0} **= 2"])
            if target.startswith("kv"):
                lines.append(f"    m = {target}")
                target = "m"
            lines.append("    " + form.format(target, value))
        lines.append("    stored += temporary")
        return "\n".join(lines)


FUNCTIONS = {name: getattr(mx.nd, name) for name in ("where", "maximum", "minimum")}


def bits_of(array):
    """Return the bytes of an array in which every NaN is the same."""
    return (
        np.where(array == array, array, array.dtype.type(np.nan)).tobytes()
        if array.dtype.kind == "f"
        else array.tobytes()
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "float16", "bfloat16"])
def test_a_random_function_gives_the_same_bits_read_and_called(dtype):
    is_float = "float" in dtype
    for seed in range(PROGRAMS // 4):
        text = Writer(f"{dtype} {seed}", is_float).function()
        results = []
        for type in ("local", "dist_sync"):
            with store_of(type) as kv, np.errstate(all="ignore"):
                data = np.random.default_rng(seed)
                names = {"kv": kv, **FUNCTIONS}
                exec(text, names)

                def draw(data=data):
                    return mx.nd.array(
                        data.normal(size=SHAPE) if is_float else data.integers(-4, 5, SHAPE), dtype=dtype
                    )

                kv.init(1, draw())
                kv.set_updater(names["update"])
                values = []
                for _ in range(3):
                    kv.push(1, draw())
                    values.append(kv.pull(1).asnumpy())
                results.append(values)
        for called, read in zip(*results, strict=True):
            assert bits_of(called) == bits_of(read), f"seed {seed}:\n{text}\ncalled {called}\nread {read}"


# ------------------------------------------------------------------------------------------------ explain


def explained(kv, key=3):
    return printed(lambda: kv.explain(key))


def test_explain_says_what_a_push_does(kv):
    assert "value becomes sum" in explained(kv)
    kv.set_updater(lambda key, input, stored: stored.__iadd__(np.clip(input * 2, -1, 1)))
    text = explained(kv)
    assert "value becomes value + min(1, max(-1, sum × 2))" in text
    assert "value <- " in text
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
    text = explained(kv)
    assert "learning_rate is 0.5" in text
    assert "program sgd" in text
    fast = mx.optimizer.SGD(learning_rate=0.5, param_idx2name={3: "three"})
    fast.set_lr_mult({"three": 5.0})
    kv.set_optimizer(fast)
    assert "learning_rate is 2.5" in explained(kv)
    kv.set_updater(mx.Program("program p\nw = sub value sum\nvalue <- w\n"))
    assert "value becomes value - sum" in explained(kv)
    with pytest.raises(mx.errors.KeyNotFoundError):
        kv.explain(99)


def test_explain_asks_the_servers_what_others_have_set():
    with mx.testing.cluster(workers=2, on_death="wait") as job:
        first, second = job
        for kv in (first, second):
            kv.init(3, mx.nd.ones(SHAPE))
        assert "value becomes sum" in explained(second)
        running = mx.optimizer.SGD(wd=0.125)
        for kv in (first, second):
            kv.set_optimizer(running)
        for rate in (0.5, 0.25):
            running.set_learning_rate(rate)
            for kv in (first, second):
                kv.push(3, mx.nd.ones(SHAPE))
            for kv in (first, second):
                kv.pull(3).wait_to_read()
            assert f"learning_rate is {rate}" in explained(second)
        assert "the program sgd" in explained(second) and "wd is 0.125" in explained(second)
        assert "the program sgd" in explained(first)
        with job.observer() as eye:
            assert "wd is 0.125" in explained(eye)
        again = job.restart(0)
        again.init(3, mx.nd.ones(SHAPE))
        assert "wd is 0.125" in explained(again)
        again.set_optimizer(mx.optimizer.SGD())
        assert "the program sgd" in explained(again)


def test_explain_of_a_local_store_names_the_function():
    with store_of("local") as kv:
        kv.init(3, mx.nd.ones(SHAPE))
        kv.set_updater(leaves)
        assert f"leaves ({__file__}:" in explained(kv)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = sub value sum\nb = sub sum a\nvalue <- b", "value becomes sum - (value - sum)"),
        ("a = add value sum\nb = mul a 2\nvalue <- b", "value becomes (value + sum) × 2"),
        ("a = neg sum\nb = div a value\nvalue <- b", "value becomes -sum / value"),
        ("a = mul sum sum\nb = add a a\nvalue <- b", "value becomes a + a"),
        ("a = select sum value 0\nvalue <- a", "value becomes value where sum else 0"),
        ("a = sqrt sum\nvalue <- a", "value becomes √(sum)"),
    ],
)
def test_programs_read_as_formulas(kv, text, words):
    kv.set_updater(mx.Program(f"program p\n{text}\n"))
    assert words in explained(kv)


@pytest.mark.parametrize("create", [lambda: mx.kv.create(), lambda: mx.kv.create("dist_sync", bootstrap="self")])
def test_a_function_that_takes_something_else_is_refused_before_it_is_called(create):
    def two(key, grad):
        raise AssertionError("called")

    with create() as kv:
        kv.init("w", mx.nd.ones((2,)))
        for function in (two, lambda: None, lambda a, b, c, d: None, functools.partial(two, 1, 2)):
            with pytest.raises(mx.errors.InvalidArgumentError, match=r"an updater takes \(key, input, stored\)"):
                kv.set_updater(function)
        with pytest.raises(TypeError, match=r"two \(.*takes \(key, grad\)"):
            kv.set_updater(two)
        kv.set_updater(lambda *arguments: arguments[2].__iadd__(arguments[1]))
        kv.push("w", mx.nd.ones((2,)))
        assert kv.pull("w").asnumpy().tolist() == [2, 2]


# ------------------------------------------------------------------------------------------------ calls that lie

LOCAL_AND_SERVERS = ("local", "dist_sync")


def outcome(type, make, grads, begin=(1.0, 2.0), dtype="float32", pushes=1):
    """Return the value after some pushes, or the error of a function that is refused."""
    with store_of(type) as kv:
        kv.init("w", mx.nd.array(begin, dtype=dtype))
        try:
            kv.set_updater(make(kv))
        except mx.errors.InvalidArgumentError as error:
            return str(error)
        for _ in range(pushes):
            kv.push("w", mx.nd.array(grads, dtype=dtype))
        return kv.pull("w").asnumpy().tolist()


def is_same_or_refused(make, why, grads=(1.0, 0.25), **options):
    """Check that servers give what a call gives, or refuse the function for a reason; return the value of the call."""
    called, read = (outcome(type, make, grads, **options) for type in LOCAL_AND_SERVERS)
    assert not isinstance(called, str), called
    if why is None:
        assert read == called
    else:
        assert isinstance(read, str), f"called {called}, read {read}"
        assert re.search(why, read), read
        assert __file__ in read
    return called


def catches(refused):
    def function(key, grad, weight):
        try:
            refused(grad, weight)
        except Exception:
            weight -= grad * 100

    return function


def bare(refused):
    def function(key, grad, weight):
        try:
            refused(grad, weight)
        except:  # noqa: E722
            weight -= grad * 100

    return function


def suppresses(refused):
    def function(key, grad, weight):
        with contextlib.suppress(Exception):
            refused(grad, weight)
        weight -= grad

    return function


def returns(refused):
    def function(key, grad, weight):
        weight -= grad
        try:
            refused(grad, weight)
        finally:
            return  # noqa: B012

    return function


def adds_exponential(grad, weight):
    weight += mx.nd.exp(grad)


def adds_constant(grad, weight):
    weight += grad * np.ones(2, np.float32)


def adds_cube(grad, weight):
    weight += grad**3


def adds_to_a_part(grad, weight):
    weight[0] += 1


def divides_by_norm(grad, weight):
    weight -= grad / max(float(mx.nd.norm(grad).asscalar()), 1.0)


def checks(grad, weight):
    if not np.isfinite(grad.asnumpy()).all():
        raise ValueError


@pytest.mark.parametrize("how", [catches, bare, suppresses, returns])
@pytest.mark.parametrize(
    "refused", [adds_exponential, adds_constant, adds_cube, adds_to_a_part, divides_by_norm, checks]
)
def test_a_refusal_is_final_whatever_the_function_catches(how, refused):
    is_same_or_refused(lambda kv: how(refused), rf":{refused.__code__.co_firstlineno + 1}: ")


def test_copies_of_an_array_are_its_own():
    def function(key, grad, weight):
        old = copy.deepcopy(weight)
        other = copy.copy(old)
        old *= 0.5
        weight -= grad
        weight[:] = old + copy.deepcopy({"a": other})["a"] * 0.25

    is_same_or_refused(lambda kv: function, None)


def test_a_pickle_of_an_array_is_refused():
    def function(key, grad, weight):
        weight[:] = pickle.loads(pickle.dumps(grad))

    is_same_or_refused(lambda kv: function, "a pickle of an array")


def anchors(kv):
    first = {}

    def function(key, grad, weight):
        if key not in first:
            first[key] = weight.copy()
        anchor = kv.state("anchor")
        anchor[:] = first[key]
        weight -= grad
        weight += 0.5 * (anchor - weight)

    return function


def copies_to(kv):
    first = {}

    def function(key, grad, weight):
        first.setdefault(key, grad.copy()).copyto(weight)

    return function


def writes_first(kv):
    first = {}

    def function(key, grad, weight):
        weight -= grad
        kept = first.setdefault(key, weight.copy())
        kept *= 0.5

    return function


def has_numpy_first(kv):
    first = {}

    def function(key, grad, weight):
        kept = first.setdefault(key, np.abs(grad))
        np.add(kept, 1, out=kept)
        weight -= kept

    return function


@pytest.mark.parametrize("make", [anchors, copies_to, writes_first, has_numpy_first])
def test_an_array_of_an_earlier_call_is_taken_nowhere(make):
    is_same_or_refused(make, r"an array of an earlier call.*kv\.state|a call changes", pushes=3)


class Warmup:
    step = 0

    def __call__(self, key, grad, weight):
        rate = 1.0 if self.step < 2 else 0.125
        self.step += 1
        weight -= rate * grad


class Owner:
    def __init__(self):
        self.updates, self.history, self.rates = 0, [], itertools.cycle([1.0, 1.0, 0.5])

    def counts(self, key, grad, weight):
        self.updates += 1
        weight -= grad if self.updates % 3 else grad * 2

    def sets(self, key, grad, weight):
        setattr(self, "up" + "dates", self.updates + 1)
        weight -= grad if self.updates < 5 else grad * 2

    def appends(self, key, grad, weight):
        self.history.append(key)
        weight -= grad if len(self.history) < 5 else grad * 2

    def iterates(self, key, grad, weight):
        weight -= grad * next(self.rates)

    def through_helper(self, key, grad, weight):
        weight -= grad * self.rate()

    def rate(self):
        self.updates += 1
        return 1.0 if self.updates < 5 else 0.5


class Slots:
    __slots__ = ("step",)

    def __init__(self):
        self.step = 0

    def __call__(self, key, grad, weight):
        self.step += 1
        weight -= grad if self.step < 5 else grad * 2


updates = 0
rates = {"rate": 1.0}


def counts_in_a_global(key, grad, weight):
    global updates
    updates += 1
    weight -= grad if updates % 7 else grad * 2


def decays_in_a_dict(key, grad, weight):
    rates["rate"] = max(rates["rate"] * 0.999, 0.99)
    weight -= grad if rates["rate"] > 0.99 else grad * 2


def counts_in_a_cell(kv):
    n = 0

    def function(key, grad, weight):
        nonlocal n
        n += 1
        weight -= grad if n < 5 else grad * 2

    return function


def counts_in_a_helpers_cell(kv):
    n = 0

    def rate():
        nonlocal n
        n += 1
        return 1.0 if n < 5 else 0.5

    return lambda key, grad, weight: weight.__isub__(grad * rate())


def counts_in_a_default(key, grad, weight, n=[0]):  # noqa: B006
    n[0] += 1
    weight -= grad if n[0] < 5 else grad * 2


def counts_in_its_attribute(key, grad, weight):
    counts_in_its_attribute.n = getattr(counts_in_its_attribute, "n", 0) + 1
    weight -= grad if counts_in_its_attribute.n < 5 else grad * 2


def counts_in_its_class(kv):
    class Counter:
        n = 0

        def __call__(self, key, grad, weight):
            type(self).n += 1
            weight -= grad if self.n < 5 else grad * 2

    return Counter()


def draws(key, grad, weight):
    weight -= grad * random.choice([1, 1, 1, 1])


def draws_of_numpy(key, grad, weight):
    weight -= grad * float(np.random.randint(1, 1000) > 0)


def draws_in_the_library(key, grad, weight):
    statistics.NormalDist().samples(2)
    weight -= grad


def draws_of_mx(key, grad, weight):
    mx.random.uniform()
    weight -= grad


def draws_by_another_name(kv):
    names = np.random
    return lambda key, grad, weight: weight.__isub__(grad * float(vars(names)["rand"]() < 2))


def draws_of_its_own(kv):
    generator = np.random.default_rng(3)
    return lambda key, grad, weight: weight.__isub__(grad * float(generator.integers(1, 1000) > 0))


def takes_from_a_generator(kv):
    rates = (1.0 for _ in range(10**9))
    return lambda key, grad, weight: weight.__isub__(grad * next(rates))


def reads_a_clock(key, grad, weight):
    weight -= grad * (2.0 if time.monotonic() < 0 else 1.0)


def takes_a_new_generator(key, grad, weight):
    weight -= grad * float(np.random.default_rng().integers(1, 1000) > 0)


def takes_from_the_system(kv):
    numbers = random.SystemRandom()
    return lambda key, grad, weight: weight.__isub__(grad * float(numbers.random() >= 0))


def imports_its_counter(key, grad, weight):
    import counting_module

    counting_module.n += 1
    weight -= grad if counting_module.n < 5 else grad * 2


def asks_for_the_round(kv):
    return lambda key, grad, weight: weight.__isub__(grad if kv.round(key) < 5 else grad * 2)


def asks_for_the_keys(kv):
    return lambda key, grad, weight: weight.__isub__(grad if len(kv.keys()) < 5 else grad * 2)


LOOP = asyncio.SelectorEventLoop()
PANDAS = types.SimpleNamespace(Timestamp=type("Timestamp", (), {"now": lambda: 0, "__init__": lambda *text: None}))


def asks_by(operation):
    """The operation asks the store without a name of one of its members."""

    def make(kv):
        def update(key, grad, weight):
            weight -= float(operation(kv)) * grad

        return update

    return make


def steps(value):
    """Return 1, or 2 once the value is 5 or more."""
    return 1.0 if value < 5 else 2.0


def counts_in_buffer(counts):
    def function(key, grad, weight):
        counts[0] += 1
        weight -= grad * steps(counts[0])

    return lambda kv: function


def counts_in_a_store(kv):
    kv.updates = 0

    def function(key, grad, weight):
        kv.updates += 1
        weight -= grad * steps(kv.updates)

    return function


def reads(clock):
    """Return a function for a table of these, which goes by the day, or by a number that nobody has chosen."""

    def function(key, grad, weight):
        clock()
        weight -= grad

    return lambda kv: function


def counts_beside_a_constant(kv):
    """Return a function whose counter has the name of another module's constant."""
    helpers = types.ModuleType("helpers")
    exec("step = 100\ndef rate(n): return 1.0 if n < 100 * step else 0.5", vars(helpers))
    train = types.ModuleType("train")
    train.rate = helpers.rate
    text = "def update(key, grad, weight):\n    global step\n    step += 1\n    weight -= rate(step) * grad"
    exec(compile("step = 0\n" + text, __file__, "exec"), vars(train))
    return train.update


def counts_in_one_of_two_closures(kv):
    def counter(n, by):
        def count():
            nonlocal n
            n += by
            return n

        return count

    counts, stays = counter(0, 1), counter(0, 0)
    return lambda key, grad, weight: weight.__isub__(grad * (counts() < 10_000) + grad * stays())


class CountsBesideAHelper:
    def __init__(self):
        self.count = 0

    def __call__(self, key, grad, weight):
        self.count += 1
        weight -= grad * FixedHelper().value(self.count)


class FixedHelper:
    def __init__(self):
        self.count = 10_000

    def value(self, count):
        return 1.0 if count < self.count else 0.5


def counts_in_a_series(kv):
    """Return a function that counts in a column of objects, as pandas has them."""

    class Series:
        __slots__ = ("values",)

        def __init__(self):
            self.values = np.array([0, "text"], object)

        def __array__(self, dtype=None, copy=None):
            return self.values

        def add(self):
            getattr(self, "".join(["val", "ues"]))[0] += 1  # in compiled code of pandas nobody sees the name

    series = Series()

    def function(key, grad, weight):
        series.add()
        weight -= grad

    return function


def counts_behind_many_values(kv):
    labels, counts = list(range(200_000)), [0]

    def function(key, grad, weight):
        counts[0] += 1
        weight -= grad / len(labels) * steps(counts[0])

    return function


def counts_in_a_long_list(kv):
    counts = [0] * 200_000

    def function(key, grad, weight):
        counts[50_000] += 1
        weight -= grad * steps(counts[50_000])

    return function


def counts_in_a_large_array(kv):
    counts = np.zeros(40 << 20, np.int16)

    def function(key, grad, weight):
        np.add(counts, 1, out=counts)
        weight -= grad * steps(int(counts[1]))

    return function


def counts_in(add):
    """Return a function that counts by `add`, which returns the new count; the elements change after many calls only."""

    def function(key, grad, weight):
        weight -= grad * (1.0 if add(key) < 10_000 else 2.0)

    return lambda kv: function


def add_to_a_computed_global(key):
    globals()["n_" + key] = globals().get("n_" + key, 0) + 1
    return globals()["n_" + key]


class Counts:
    """A class whose attributes are counters with computed names."""


def add_to_a_computed_attribute(owner):
    def add(key):
        name = "n_" + str(key)
        setattr(owner, name, getattr(owner, name, 0) + 1)
        return getattr(owner, name)

    return add


class Rate(float):
    def __new__(cls, value):
        rate = super().__new__(cls, value)
        rate.updates = 0
        return rate

    def __call__(self, key):
        self.updates += 1
        return self.updates


def add_to_a_function(key):
    steps.n = getattr(steps, "n", 0) + 1
    return steps.n


def add_to_a_module(module):
    def add(key):
        module.updates_of_a_test = getattr(module, "updates_of_a_test", 0) + 1
        return module.updates_of_a_test

    return add


def add_behind_a_pointer():
    pointer = ctypes.pointer(ctypes.c_long(0))

    def add(key):
        pointer.contents.value += 1
        return pointer.contents.value

    return add


def add_to_a_seed():
    seed = np.random.SeedSequence(3)

    def add(key):
        seed.spawn(1)
        return seed.n_children_spawned

    return add


def add_to_a_bit_generator():
    bits = np.random.PCG64(3)
    return lambda key: bits.random_raw() % 2


def add_to_a_partial():
    count = functools.partial(int)
    count.n = 0

    def add(key):
        count.n += 1
        return count.n

    return add


def turn_a_dict(kind):
    turns = kind((i, i) for i in range(300))

    def add(key):
        first = next(iter(turns))
        if kind is dict:
            turns[first] = turns.pop(first)
        else:
            turns.move_to_end(first)
        return first

    return add


def add_to_a_view():
    counts = memoryview(bytearray(2)).cast("H")

    def add(key):
        counts[0] += 1
        return counts[0]

    return add


def add_to_an_exception():
    error = ValueError(0)

    def add(key):
        error.args = (error.args[0] + 1,)
        return error.args[0]

    return add


def add_to_a_text(owner, name):
    def add(key):
        count = int((getattr(owner, name) or "n0")[1:]) + 1
        if name == "__doc__":
            owner.__doc__ = f"n{count}"
        else:
            owner.__name__ = f"n{count}"
        return count

    return add


def add_to_annotations():
    def helper():
        pass

    helper.__annotations__ = {"n": 0}

    def add(key):
        helper.__annotations__["n"] += 1
        return helper.__annotations__["n"]

    return add


def add_to_a_cell():
    count = 0

    def helper():
        return count

    cell = helper.__closure__[0]

    def add(key):
        cell.cell_contents += 1
        return cell.cell_contents

    return add


def add_to_a_context():
    context = decimal.Context(prec=1)

    def add(key):
        context.prec += 1
        return context.prec

    return add


def move_in_an_array():
    places = np.zeros(100_000).flat

    def add(key):
        next(places)
        return places.index

    return add


def named():
    """n0"""


OUTSIDE = {
    "attribute of a partial": (counts_in(add_to_a_partial()), r"changes count\.n"),
    "order of a dict": (counts_in(turn_a_dict(dict)), "changes turns"),
    "order of an OrderedDict": (counts_in(turn_a_dict(collections.OrderedDict)), "changes turns"),
    "view": (counts_in(add_to_a_view()), "changes counts"),
    "exception": (counts_in(add_to_an_exception()), r"changes error\.args"),
    "docstring": (counts_in(add_to_a_text(named, "__doc__")), "changes a function's __doc__"),
    "name of a class": (
        counts_in(add_to_a_text(type("n0", (), {"__doc__": "n0"}), "__name__")),
        "changes a class's __name__",
    ),
    "annotations": (counts_in(add_to_annotations()), "changes a function's __annotations__"),
    "cell object": (counts_in(add_to_a_cell()), "changes cell"),
    "context": (counts_in(add_to_a_context()), r"changes context\.prec"),
    "place in an array": (counts_in(move_in_an_array()), "uses places, which gives something else each time"),
    "global with a computed name": (counts_in(add_to_a_computed_global), "changes n_"),
    "class with computed names": (counts_in(add_to_a_computed_attribute(Counts)), r"changes \w+\.n_"),
    "module with computed names": (
        counts_in(add_to_a_computed_attribute(types.ModuleType("counts"))),
        r"changes owner\.n_",
    ),
    "function with computed names": (counts_in(add_to_a_computed_attribute(steps)), r"changes steps\.n_"),
    "number with attributes": (counts_in(Rate(0.5)), r"changes \w+\.updates"),
    "another function": (counts_in(add_to_a_function), r"changes steps\.n"),
    **{
        f"module {module.__name__}": (counts_in(add_to_a_module(module)), r"changes module\.updates_of_a_test")
        for module in (mx, np, sys, builtins)
    },
    "pointer": (counts_in(add_behind_a_pointer()), "changes pointer"),
    "seed": (counts_in(add_to_a_seed()), "changes seed"),
    "bit generator": (counts_in(add_to_a_bit_generator()), "changes bits"),
    "global beside another module's": (counts_beside_a_constant, ":4: a call changes step;"),
    "cell beside another's": (counts_in_one_of_two_closures, "changes n;"),
    "attribute beside another's": (lambda kv: CountsBesideAHelper(), r"changes self\.count;"),
    "series": (counts_in_a_series, r"changes (series|self)\[0\]"),
    "behind many values": (counts_behind_many_values, r"changes counts\[0\]"),
    "long list": (counts_in_a_long_list, "changes counts;"),
    "large array": (counts_in_a_large_array, "changes counts;"),
    "shuffle of the library": (
        lambda kv: draws_in_the_library,
        r"changes (statistics\.random|Python's random numbers)",
    ),
    "mx.random": (lambda kv: draws_of_mx, "changes the random numbers of tkv.random"),
    "numpy.random by another name": (draws_by_another_name, "changes NumPy's random numbers"),
    **{
        type(one).__name__: (counts_in_buffer(one), r"changes counts(\[0\])?;")
        for one in (array.array("q", [0]), (ctypes.c_long * 1)(), np.zeros(2000, object))
    },
    "attribute of a store": (counts_in_a_store, r"changes kv\.updates"),
    "localtime": (reads(lambda: time.localtime()), r"localtime\(\): a program has no clock"),
    "gmtime": (reads(lambda: time.gmtime()), r"gmtime\(\): a program has no clock"),
    "strftime": (reads(lambda: time.strftime("%j")), r"strftime\(\): a program has no clock"),
    "clock_gettime": (reads(lambda: time.clock_gettime(time.CLOCK_REALTIME)), r"clock_gettime\(\)"),
    "times": (reads(lambda: os.times()), r"times\(\): a program has no clock"),
    "getrandom": (reads(lambda: os.getrandom(1)), r"getrandom\(\): a program has no clock"),
    "getrusage": (reads(lambda: resource.getrusage(resource.RUSAGE_SELF)), r"getrusage\(\): a program has no clock"),
    "loop": (reads(lambda: LOOP.time()), r"time\(\): a program has no clock"),
    "formatdate": (reads(lambda: email.utils.formatdate()), r"formatdate\(\): a program has no clock"),
    "Timestamp": (reads(lambda: PANDAS.Timestamp.now()), r"Timestamp\.now\(\): a program has no clock"),
    "text of a Timestamp": (reads(lambda: PANDAS.Timestamp("now")), r"Timestamp\('now'\): a program has no clock"),
    "datetime64": (reads(lambda: np.datetime64("now")), r"datetime64\('now'\): a program has no clock"),
    "new Random": (reads(lambda: random.Random().random()), r"random\.seed\(\): a program has no clock"),
    "new generator": (lambda kv: takes_a_new_generator, "urandom"),
    "system": (takes_from_the_system, "urandom|uses numbers"),
    "module": (lambda kv: imports_its_counter, r"changes counting_module\.n"),
    "round": (asks_for_the_round, r"kv\.round: servers do not ask the store"),
    "keys": (asks_for_the_keys, r"kv\.keys: servers do not ask the store"),
    "len": (asks_by(len), r"len\(kv\): servers do not ask the store"),
    "in": (asks_by(lambda kv: "frozen" not in kv), "in kv: servers do not ask the store"),
    "iteration": (asks_by(lambda kv: sum(1 for _ in kv)), "an iteration over kv: servers do not ask the store"),
    "repr": (asks_by(lambda kv: "2 keys" in repr(kv)), r"repr\(kv\): servers do not ask the store"),
    "block": (asks_by(lambda kv: kv.__enter__().rank), "with kv: servers do not ask the store"),
    "attribute of a class": (lambda kv: Warmup(), r"changes self\.step"),
    "method": (lambda kv: Owner().counts, r"changes self\.updates"),
    "setattr": (lambda kv: Owner().sets, r"changes self\.updates"),
    "list": (lambda kv: Owner().appends, r"changes self\.history"),
    "iterator": (lambda kv: Owner().iterates, r"uses self\.rates"),
    "helper": (lambda kv: Owner().through_helper, r"changes self\.updates"),
    "slots": (lambda kv: Slots(), r"changes self\.step"),
    "global": (lambda kv: counts_in_a_global, "changes updates"),
    "dict": (lambda kv: decays_in_a_dict, r"changes rates\['rate'\]"),
    "cell": (counts_in_a_cell, "changes n"),
    "cell of a helper": (counts_in_a_helpers_cell, "changes n"),
    "default": (lambda kv: counts_in_a_default, r"changes n\[0\]"),
    "attribute": (lambda kv: counts_in_its_attribute, r"changes counts_in_its_attribute\.n"),
    "class": (counts_in_its_class, r"changes Counter\.n"),
    "partial": (lambda kv: functools.partial(lambda n, *args: (n.append(1), args[2].__isub__(args[1])), []), "changes"),
    "random": (lambda kv: draws, r"changes random\."),
    "numpy.random": (lambda kv: draws_of_numpy, "changes NumPy's random numbers"),
    "generator of numbers": (draws_of_its_own, "changes generator"),
    "generator": (takes_from_a_generator, "uses rates"),
    "clock": (lambda kv: reads_a_clock, r"time\.monotonic|monotonic\(\)"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_change_outside_of_the_function_is_refused_by_name(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "counting_module", types.SimpleNamespace(n=0))
    for module in (mx, np, sys, builtins):
        monkeypatch.setattr(module, "updates_of_a_test", 0, raising=False)
    mx.random.seed(1)
    is_same_or_refused(*OUTSIDE[name])


class Decays:
    """Counts in code that runs from the second call on."""

    def __init__(self):
        self.rates, self.calls = {}, 0

    def decay(self, key):
        self.calls += 1
        if self.calls % 100 == 0:
            self.rates[key] *= 0.5

    def update(self, key, grad, weight):
        if key not in self.rates:
            self.rates[key] = 1.0
        else:
            self.decay(key)
        weight -= self.rates[key] * grad


def test_a_counter_in_code_of_later_calls_is_refused_by_name():
    line = Decays.decay.__code__.co_firstlineno + 1
    is_same_or_refused(lambda kv: Decays().update, rf":{line}: a call changes self\.calls", pushes=101)


def test_code_that_only_later_calls_run_may_leave_all_as_it_is():
    class Reads(Decays):
        def decay(self, key):
            self.last = key

    is_same_or_refused(lambda kv: Reads().update, None, pushes=3)


@pytest.mark.parametrize(
    ("verb", "change"),
    [
        ("push", lambda kv: kv.push(4, mx.nd.ones(SHAPE))),
        ("delete", lambda kv: kv.delete(4)),
        ("init", lambda kv: kv.init(5, mx.nd.ones(SHAPE))),
        ("set_updater", lambda kv: kv.set_updater(None)),
        ("assign", lambda kv: kv.assign(4, mx.nd.ones(SHAPE))),
        ("barrier", lambda kv: kv.barrier()),
        ("close", lambda kv: kv.close()),
    ],
)
def test_a_verb_in_a_function_that_is_refused_has_done_nothing(kv, verb, change):
    def update(key, input, stored):
        stored += input
        for _ in range(3):
            with contextlib.suppress(Exception):
                change(kv)

    kv.init(4, mx.nd.zeros(SHAPE))
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input * 2))
    with pytest.raises(mx.errors.InvalidArgumentError, match=rf"kv\.{verb}: servers do not ask the store"):
        kv.set_updater(update)
    assert kv.keys() == [3, 4] and kv.round(4) == 0
    assert (pushed(kv) == 3).all()


def test_values_outside_of_the_function_that_it_only_reads_are_numbers_of_the_program():
    class Owner:
        def __init__(self):
            self.rate, self.rates, self.cache, self.log = 0.5, {"w": 2.0}, {}, io.StringIO

        def update(self, key, grad, weight):
            rate = self.cache.setdefault(key, self.rate * self.rates[key])  # the first call fills it
            print("update of", key)
            weight -= rate * grad

    is_same_or_refused(lambda kv: Owner().update, None, pushes=3)


def test_an_object_that_each_call_replaces_by_an_equal_one_is_no_change():
    class Holds:
        def update(self, key, grad, weight):
            self.last = {"rates": [1.0, 0.5], "name": str(key)}
            weight -= grad * self.last["rates"][1]

    is_same_or_refused(lambda kv: Holds().update, None)


def test_random_numbers_of_others_are_no_change_of_a_function_that_names_none():
    beta, gamma, f, test = 0.5, 1.0, 2.0, 3.0

    def update(key, grad, weight):
        weight -= beta * gamma * grad * f / test

    watch = _watch.Watch(update)
    with watch.watching():
        update(3, mx.nd.ones(SHAPE), mx.nd.ones(SHAPE))
    before = watch.look()
    random.random()
    np.random.random()
    assert _watch.difference(before, watch.look(), is_known=True) is None


def test_a_look_has_a_bound():
    class Data:
        def __init__(self):
            self.texts = [str(i) for i in range(300_000)]
            self.rows = [[i] for i in range(300_000)]
            self.table = {i: i for i in range(300_000)}

    data = Data()

    def update(key, grad, weight):
        weight -= grad / (len(data.texts) + len(data.rows) + len(data.table))

    watch = _watch.Watch(update)
    with watch.watching():
        update(3, mx.nd.ones(SHAPE), mx.nd.ones(SHAPE))
    before, after = watch.look(), watch.look()
    assert len(before.values) <= 100_001
    assert _watch.difference(before, after, is_known=True) is None


def test_a_large_array_is_compared_without_reading_all_of_it():
    no_reserve = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on
    memory = mmap.mmap(-1, 1 << 36, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    array = np.frombuffer(memory, np.uint8)  # all of it is the page of zeros
    before = _fingerprints.digest(array, is_kept=True)
    assert before == _fingerprints.digest(array, is_kept=True)
    array[-1] = 1
    assert before != _fingerprints.digest(array, is_kept=True)


LARGE = np.zeros(9_000_000)  # 72 MB: compared by a sample


def test_a_large_array_that_stays_is_no_change(kv):
    def adds(key, input, stored):
        stored += input if LARGE is not None else 0

    kv.set_updater(adds)
    assert (pushed(kv) == 2).all()


def test_an_attribute_that_is_made_anew_for_each_reading_is_no_change(kv):
    pattern = re.compile("(?P<half>x)")  # its groupindex is a new view each time

    def adds(key, input, stored):
        stored += input * pattern.groupindex["half"]

    kv.set_updater(adds)
    assert (pushed(kv) == 2).all()


def test_a_large_array_in_the_place_of_another_is_a_change():
    arrays = [np.zeros(9_000_000) for _ in range(2)]
    first, second = (_fingerprints.digest(array, is_kept=True) for array in arrays)
    assert first != second and first == _fingerprints.digest(arrays[0], is_kept=True)


def test_a_closed_file_is_an_argument_like_others(kv):
    file = io.StringIO()
    file.close()

    def rate(file):
        return 2.0

    kv.set_updater(lambda key, input, stored: stored.__iadd__(input * rate(file)))
    assert (pushed(kv) == 3).all()


def test_a_reading_sets_no_trace_function(kv, monkeypatch):
    made = []
    monkeypatch.setattr(sys, "settrace", made.append)
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
    assert made == []


def test_a_comparison_drops_the_states_of_its_call():
    class States(dict):
        pass

    call, states = _functions._called_on(lambda key, input, stored: stored.__iadd__(input)), States()
    dropped = weakref.ref(states)
    call(3, mx.nd.ones(SHAPE), mx.nd.ones(SHAPE), states)
    del states
    assert dropped() is None


class Moments(NamedTuple):
    mean: Any
    variance: Any


def test_states_of_another_byte_order_are_the_same_numbers():
    state = np.array([1.5, -2.0], ">f4")
    loaded = _states.unpack(_states.pack({3: state}))[3]
    assert loaded.dtype == np.float32 and (loaded == state).all()


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (np.ma.array([1.0, 2.0], mask=[0, 1]), "has a MaskedArray in it"),
        (Moments(1.0, 2.0), "has a Moments in it"),
        (functools.reduce(lambda inner, _: [inner], range(18), 1.0), "is nested more than 16 deep"),
    ],
    ids=["masked", "named", "deep"],
)
def test_states_that_would_come_back_as_others_are_not_saved(state, why):
    with pytest.raises(mx.errors.UnimplementedError, match=f"get_states: the state of 3 {why}"):
        _states.pack({3: state})


def test_states_as_deep_as_they_may_be_are_loaded():
    state = functools.reduce(lambda inner, _: [inner], range(16), 1.0)
    assert _states.unpack(_states.pack({3: state})) == {3: state}


def test_a_named_tuple_stays_one_in_another_context():
    moved = _states.in_context(Moments(mx.nd.ones(SHAPE), 2.0), mx.cpu(1))
    assert type(moved) is Moments and moved.mean.context == mx.cpu(1) and moved.variance == 2.0


def test_states_in_dicts_lists_and_tuples_go_to_the_context_of_their_key():
    state = {
        "m": mx.nd.ones(SHAPE),
        "more": [(mx.nd.zeros(SHAPE), {"n": mx.nd.ones(SHAPE)})],
        "t": 3,
        "host": np.ones(2),
    }
    moved = _states.in_context(state, mx.cpu(1))
    arrays = [moved["m"], moved["more"][0][0], moved["more"][0][1]["n"]]
    assert [array.context for array in arrays] == [mx.cpu(1)] * 3
    assert [float(array.asnumpy()[0, 0]) for array in arrays] == [1, 0, 1]
    assert moved["t"] == 3 and moved["host"] is state["host"]


def test_a_profiler_goes_on_after_a_reading(kv):
    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
        seen.clear()
        pushed(kv)
    finally:
        sys.setprofile(None)
    assert seen


# ------------------------------------------------------------------------------------------------ types

TYPES = {
    "weight -= (np.abs(grad) > 0.1) + (np.abs(grad) > 0.5)": None,
    "m = np.abs(grad) > 0.1; m += np.abs(grad) > 0.5; weight -= m": None,
    "m = (np.abs(grad) > 0.1) & ~(np.abs(grad) > 0.5); weight -= m": None,
    "m = (np.abs(grad) > 0.1) | (weight > 1); weight -= m": "TypeError: ufunc 'bitwise_or'",
    "weight -= ((np.abs(grad) > 0.1) + (np.abs(grad) > 0.5)) / 2": "computes in float64",
    "weight -= (np.abs(grad) > 0.1) * 2": "computes in int64",
    "weight -= (np.abs(grad) > 0.1).astype(weight.dtype) * 2": None,
    "weight -= np.greater(grad, np.float64(0.1))": "computes in float64",
    "weight -= np.float64(0.1) * grad": None,
    "import math; weight -= math.prod([np.float64(1 / 3), grad])": None,
    "import operator; weight -= operator.mul(np.float64(1 / 3), grad)": None,
    "import operator; weight -= operator.add(np.float64(1 / 3), grad)": None,
    "import operator; weight -= operator.mul(np.add(np.float64(1 / 3), grad), 2)": "where the function is called",
    "import functools, operator; weight -= functools.reduce(operator.sub, [np.float64(1 / 3), grad])": None,
    "weight -= sum([np.float64(1 / 3), grad])": None,
    "product = np.multiply; weight -= product(np.float64(1 / 3), grad)": "computes in float64",
    "product = getattr(np, 'multi' + 'ply'); weight -= product(np.float64(1 / 3), grad)": "computes in float64",
    "weight -= getattr(np, 'multiply')(np.float64(1 / 3), grad)": "computes in float64",
    "weight -= getattr(np, 'multi'.__add__('ply'))(np.float64(1 / 3), grad)": "where the function is called",
    "weight -= np.where(grad > np.float64(0.1), 1, -1)": None,
    "weight -= np.float64(0.1) < grad": None,
    "weight -= np.multiply(grad, np.float64(1 / 3)) - np.multiply(grad, 1 / 3)": "computes in float64",
    "weight -= mx.nd.multiply(grad, np.float64(1 / 3))": "computes in float64",
    "weight -= mx.nd.multiply(grad, 1 / 3)": None,
    "weight -= 0.1 * np.where(grad > 0.5, 0.3, -0.7)": "computes in float64",
    "weight -= np.where(grad > 0.5, 0.3, -0.7)": None,
    "weight -= np.where(np.isfinite(grad), grad, 0)": None,
    "weight -= grad * 10**23": None,
    "weight -= grad * (2**53 + 1)": None,
    "weight -= np.multiply(grad, 10**23)": None,
    "weight -= mx.nd.minimum(grad, 10**23) + (grad < 10**23)": None,
    "weight[:] = -(10**23)": None,
    "weight -= grad * 10**400": "int too large to convert to float",
    "weight -= np.where(grad > 0.1, True, False) + np.where(grad > 0.5, True, False)": None,
    "weight -= np.where(grad > 0.1, True, False) + (grad > 0.5)": None,
    "weight -= np.where(grad > 0.1, True, False) + True": None,
    "weight -= np.where(grad > 0.1, True, False) + 1": "computes in int64",
    "weight -= np.where(grad > 0.1, True, False) * 0.5": "computes in float64",
    "weight -= np.where(grad > 0.1, True, False) + grad": None,
    "weight -= np.where(grad > 0.1, True, 0.5) + np.where(grad > 0.1, 1, False)": "computes in float64",
    "weight -= ~np.where(grad > 0.1, True, False)": None,
    "weight -= mx.nd.where(grad > 0.5, True, weight) + True": None,
    "weight /= np.maximum(0, grad - 2)": None,
    "weight /= np.maximum(grad - grad, -0.0)": None,
    "weight /= np.clip(grad * -0.0, 0, 1)": None,
    "weight /= np.clip(grad * -0.0, grad - grad, 1)": None,
    "weight -= np.clip(grad, min=-0.5, max=0.5)": None,
    "weight -= np.clip(grad, max=0.5)": None,
    "weight -= np.clip(grad, min=weight * 0.1, max=None)": None,
    "weight -= np.clip(grad, -0.5, 0.5, out=None)": None,
    "weight -= np.clip(np.abs(grad), min=0.25, max=0.5)": None,
    "weight -= np.abs(grad).clip(min=0.25, max=0.5)": None,
    "weight -= np.clip(0.5, weight, grad)": "np.clip of a number between arrays",
    "np.clip(np.abs(grad), 0, 0.5, out=np.abs(weight)); weight -= grad": r"np.clip with \['out'\]",
    "weight -= np.clip(grad, -0.5)": r"TypeError: clip\(\)",
    "weight -= np.clip(grad, -0.5, 0.5, max=1)": "ValueError: Passing",
    "m = np.abs(grad); m += grad; weight -= m": None,
    "m = np.abs(grad); n = m; m += grad; weight -= n": None,
    "m = np.abs(grad); n = m; m += 1; weight -= n": None,
    "m = np.abs(grad); np.add(m, 1, out=m); weight -= m": None,
    "np.add(weight, grad, out=weight)": "TypeError|`out`",
    "weight *= 0.5; w = weight.astype('float32', copy=False); w -= grad": None,
    "weight *= 0.5; w = weight.astype('float32'); w -= grad": None,
    "g = grad.as_in_context(mx.cpu(1)); g *= 2; weight -= grad": r"as_in_context\(cpu\(1\)\)",
    "g = grad.as_in_context(weight.context); g *= 2; weight -= grad": None,
    "g = grad.copyto(mx.cpu()); g *= 2; weight -= grad": None,
    "weight *= 0.5 if isinstance(weight, mx.nd.NDArray) else 1": None,
    "weight *= 0.5 if isinstance(np.abs(grad), np.ndarray) else 1": None,
    "weight *= 0.5 if type(weight) is mx.nd.NDArray else 1": "where the function is called",
    "weight *= 0.5 if type(weight).__name__ == 'NDArray' else 1": None,
    "weight *= 0.5 if type(np.abs(weight)).__name__ == 'ndarray' else 1": None,
    "weight *= 0.5 if hasattr(weight, '_fill') else 1": "no operation",
    "weight -= mx.nd.clip(data=grad, a_min=-0.5, a_max=0.5)": None,
    "weight -= mx.nd.array(grad)": None,
    "weight -= grad ** np.array(2.0)": None,
    "weight -= mx.np.maximum(grad, 0)": r"tkv\.np\.maximum",
    "weight += mx.nd.zeros((2,)) + grad": "an array that is not of the key",
    "weight[:] = mx.nd.where(grad > 0.5, 1, weight)": None,
    "weight -= grad.sum()": "a number out of an array",
}
CALLED_ALONE = {
    "m = (np.abs(grad) > 0.1) | (weight > 1); weight -= m",
    "np.add(weight, grad, out=weight)",
    "weight -= grad * 10**400",
    "weight -= np.clip(grad, -0.5)",
    "weight -= np.clip(grad, -0.5, 0.5, max=1)",
}


@pytest.mark.parametrize("text", [text for text in TYPES if text not in CALLED_ALONE])
def test_types_are_those_of_the_called_function_or_refused(text):
    def make(kv):
        def function(key, grad, weight):
            exec(text, {"mx": mx, "np": np, "grad": grad, "weight": weight})

        return function

    with np.errstate(all="ignore"):
        called, read = (outcome(type, make, (1.0, 0.25), pushes=2) for type in LOCAL_AND_SERVERS)
    if TYPES[text] is None:
        assert not isinstance(read, str), read
        np.testing.assert_array_equal(read, called)
    else:
        assert isinstance(read, str), f"called {called}, read {read}"
        assert re.search(TYPES[text], read), read


@pytest.mark.parametrize("text", sorted(CALLED_ALONE))
def test_an_error_of_the_call_is_an_error_of_the_reading(text):
    def function(key, grad, weight):
        exec(text, {"mx": mx, "np": np, "grad": grad, "weight": weight})

    with pytest.raises((TypeError, ValueError, mx.KVError)):
        outcome("local", lambda kv: function, (1.0, 0.25))
    assert re.search(TYPES[text], outcome("dist_sync", lambda kv: function, (1.0, 0.25)))


def test_functions_that_choose_by_the_type_of_an_argument_choose_alike():
    @functools.singledispatch
    def rate(array):
        return 1

    rate.register(mx.nd.NDArray, lambda array: 0.25)
    rate.register(np.ndarray, lambda array: 0.5)

    def make(kv):
        def update(key, grad, weight):
            m = kv.state("m")
            m += rate(m) * grad
            weight -= rate(grad) * grad + rate(weight) * np.abs(grad) + rate(np.abs(grad)) * m

        return update

    called, read = (outcome(type, make, (1.0, 0.25), pushes=2) for type in LOCAL_AND_SERVERS)
    assert not isinstance(read, str), read
    np.testing.assert_array_equal(read, called)


def refusal_of(function):
    read = outcome("dist_sync", lambda kv: function, (1.0, 0.25))
    assert isinstance(read, str), read
    return read


def within(update):
    def function(key, grad, weight):
        update(key, grad, weight)

    return function


def one_step(optimizer):
    return within(lambda key, grad, weight: optimizer.update(key, weight, grad, None))


@pytest.mark.parametrize(
    "make",
    [
        lambda: within(mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))),
        lambda: within(mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, multi_precision=True))),
        lambda: one_step(mx.optimizer.SGD(learning_rate=0.5)),
    ],
)
def test_an_optimizer_inside_of_a_function_is_refused_by_name(make):
    assert "`set_optimizer` takes the optimizer, and `set_updater` the updater itself" in refusal_of(make())


def test_an_attribute_that_an_array_cannot_have_is_an_error_of_an_array():
    assert "AttributeError: 'NDArray' object has no attribute 'rate'" in refusal_of(
        lambda key, grad, weight: setattr(grad, "rate", 1)
    )


def test_a_positive_sign_is_refused_as_when_it_is_called():
    with pytest.raises(TypeError):
        outcome("local", lambda kv: lambda key, grad, weight: weight.__isub__(+grad), (1.0, 0.25))
    read = outcome("dist_sync", lambda kv: lambda key, grad, weight: weight.__isub__(+grad), (1.0, 0.25))
    assert "no operation of update programs" in read


@pytest.mark.parametrize("type", LOCAL_AND_SERVERS)
def test_functions_that_put_their_work_off_are_refused(type):
    async def waits(key, grad, weight):
        weight -= grad

    def yields(key, grad, weight):
        weight -= grad
        yield

    class Waits:
        async def __call__(self, key, grad, weight):
            weight -= grad

    with store_of(type) as kv:
        kv.init(3, mx.nd.ones(SHAPE))
        for function in (waits, yields, Waits(), functools.partial(waits)):
            with pytest.raises(mx.errors.InvalidArgumentError, match="updates nothing; write a plain def"):
                kv.set_updater(function)


def test_a_plain_function_around_an_async_one_is_called():
    async def waits(key, grad, weight):
        weight -= grad

    @functools.wraps(waits)
    def runs(*arguments):
        with contextlib.suppress(StopIteration):
            waits(*arguments).send(None)

    is_same_or_refused(lambda kv: runs, None)


def test_objects_that_do_not_let_others_look_are_left_alone():
    class Proxy:
        @property
        def __class__(self):
            raise RuntimeError("not here")

    proxy = Proxy()

    def function(key, grad, weight):
        weight -= grad * (proxy is not None)

    is_same_or_refused(lambda kv: function, None)


def test_a_cached_function_is_refused_with_its_name():
    cached = functools.lru_cache(lambda key, grad, weight: weight.__isub__(grad))
    assert "when it is called: TypeError: unhashable type: 'NDArray'" in outcome(
        "dist_sync", lambda kv: cached, (1.0, 0.25)
    )


# ------------------------------------------------------------------------------------------------ verified


def test_a_program_that_gives_other_bits_than_the_call_is_refused(monkeypatch):
    monkeypatch.setattr(
        _traced.Traced, "_binary", lambda self, op, other, swapped=False: self._make("sub", self, other)
    )
    read = outcome("dist_sync", lambda kv: lambda key, grad, weight: weight.__iadd__(grad), (1.0, 0.25))
    assert re.search("for an element .* of the stored value and .* of the sum, the stored value becomes", read), read
    assert "where its program runs" in read


def test_a_state_is_compared_too(monkeypatch):
    def make(kv):
        def function(key, grad, weight):
            kv.state("m")[:] = mx.nd.maximum(grad, 0)
            weight -= grad

        return function

    monkeypatch.setitem(_statements.OF_ND, "maximum", _statements.OF_ND["minimum"])
    assert "state 'm' becomes" in outcome("dist_sync", make, (1.0, 0.25))


def test_a_large_key_is_compared_by_few_elements_unless_its_shape_is_part_of_the_program(monkeypatch):
    shapes = []

    def compare(program, call, key, shape, *others):
        shapes.append(shape)
        compared(program, call, key, shape, *others)

    compared = _trace._probe.compare
    monkeypatch.setattr(_trace._probe, "compare", compare)
    with store_of("dist_sync") as kv:
        kv.init("w", mx.nd.zeros((300, 100)))
        kv.set_updater(lambda key, grad, weight: weight.__isub__(grad))
        kv.set_updater(lambda key, grad, weight: weight.__isub__(grad / grad.shape[0]))
    assert shapes == [(1, 256), (300, 100)]


def test_a_number_of_a_shape_that_is_too_large_to_compare_is_refused():
    reader = _trace.Reader(lambda key, grad, weight: weight.__isub__(grad / grad.shape[0]), None, False)
    with pytest.raises(mx.errors.InvalidArgumentError, match="compute the number outside of the function"):
        reader.program("w", (1 << 20, 1 << 20), "float32")


@pytest.mark.parametrize("dtype", ["bool", "uint16", "float8_e4m3fn", "complex64", "int32"])
def test_a_key_that_a_function_cannot_update_is_stored_beside_others(dtype):
    with store_of("dist_sync") as kv:
        kv.init("w", mx.nd.ones(SHAPE))
        kv.set_updater(lambda key, grad, weight: weight.__isub__(grad / 2))
        kv.init("other", mx.nd.zeros(SHAPE, dtype=dtype))
        assert (pushed(kv, "w") == 0.5).all()
        with pytest.raises(mx.KVError, match="^push 'other': "):
            kv.push("other", mx.nd.zeros(SHAPE, dtype=dtype))


def test_states_are_loaded_by_the_function_that_kept_them_alone(tmp_path):
    def store(name):
        kv = mx.kv.create()
        kv.init("w", mx.nd.zeros((2,)))

        def function(key, grad, weight):
            kept = kv.state("kept")
            kept += grad
            weight -= kept

        function.__name__ = name
        kv.set_updater(function)
        return kv

    kv = store("momentum")
    kv.push("w", mx.nd.ones((2,)))
    kv.save(str(tmp_path / "run"))
    kv.save_optimizer_states(str(tmp_path / "states"))
    for load in (
        lambda kv: kv.load(str(tmp_path / "run")),
        lambda kv: kv.load_optimizer_states(str(tmp_path / "states")),
    ):
        same, other = store("momentum"), store("sums")
        load(same)
        before = same.pull("w").asnumpy()
        same.push("w", mx.nd.ones((2,)))
        assert same.pull("w").asnumpy().tolist() == [before[0] - 2] * 2, "what is kept was 1"
        with pytest.raises(
            mx.errors.FailedPreconditionError, match="states are of the function 'momentum', the store's is 'sums'"
        ):
            load(other)
        other.push("w", mx.nd.ones((2,)))
        assert other.pull("w").asnumpy().tolist() == [-1, -1], "a load that is refused changes nothing"
