"""A function of `set_updater` that changes an object is refused, also where no name of its code leads to that object."""

import array
import collections
import concurrent.futures
import contextvars
import cProfile
import csv
import ctypes
import decimal
import gc
import importlib
import io
import itertools
import operator
import os
import re
import socket
import struct
import sys
import threading
import types
import weakref

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import _core
from tensorkv._update import heap as _heap


class Mine(mx.optimizer.Optimizer):
    def update(self, index, weight, grad, state):
        self._update_count(index)
        weight -= self._get_lr(index) * grad


class MyUpdater(mx.optimizer.Updater):
    def __call__(self, key, grad, weight):
        self.optimizer._update_count(key)
        weight -= self.optimizer._get_lr(key) * grad


class MyLoss(mx.metric.Loss):
    pass


class Percent(float):
    def __repr__(self):
        return f"{float(self):.0%}"


class Numbers(ctypes.Union):
    _fields_ = [("n", ctypes.c_int64)]


def rate(n):
    return 1.0 if n < 200 else 0.5


def counting(tick):
    """A function whose rate is decided by a counter that `tick` moves and returns."""

    def update(key, grad, weight):
        weight -= rate(tick(key)) * grad

    return update


# Each makes a function for a store.


def derived_optimizer(kv):
    scheduler = mx.lr_scheduler.FactorScheduler(step=100, factor=0.5, base_lr=1.0)
    opt = Mine(lr_scheduler=scheduler)
    return lambda key, grad, weight: opt.update(key, weight, grad, None)


def updater_of_a_derived_optimizer(kv):
    updater = mx.optimizer.get_updater(Mine(lr_scheduler=rate))
    return lambda key, grad, weight: updater(key, grad, weight)


def derived_updater(kv):
    updater = MyUpdater(Mine(lr_scheduler=rate))
    return lambda key, grad, weight: updater(key, grad, weight)


def derived_metric(kv):
    loss = MyLoss()

    def tick(key):
        loss.update(None, mx.nd.ones((1,)))
        return loss.num_inst

    return counting(tick)


def computed_attribute(kv):
    box = types.SimpleNamespace(pushes_w=[0])

    def tick(key):
        count = getattr(box, f"pushes_{key}")
        count[0] += 1
        return count[0]

    return counting(tick)


def names_in_a_tuple(kv):
    box = types.SimpleNamespace(pushes=[0], skips=[0])

    def tick(key):
        for name in ("pushes", "skips"):
            getattr(box, name)[0] += 1
        return box.__dict__["pushes"][0]

    return counting(tick)


def attrgetter(kv):
    top = types.SimpleNamespace(config=types.SimpleNamespace(count=[0]))
    get = operator.attrgetter("config.count")

    def tick(key):
        get(top)[0] += 1
        return get(top)[0]

    return counting(tick)


def imported_module(kv):
    module = types.ModuleType(f"counts_{id(kv)}")
    module.steps = 0
    sys.modules[name := module.__name__] = module

    def tick(key):
        found = importlib.import_module(name)
        found.steps += 1
        return found.steps

    return counting(tick)


def tuple_in_globals(kv):
    globals()["state_w"] = (0,)

    def tick(key):
        (n,) = globals()["state_" + key]
        globals()["state_" + key] = (n + 1,)
        return n

    return counting(tick)


def bound_setattr(kv):
    box = types.SimpleNamespace(n_w=0)
    put = box.__setattr__

    def tick(key):
        put("n_" + key, getattr(box, "n_" + key) + 1)
        return getattr(box, "n_" + key)

    return counting(tick)


def attribute_of_a_class_without_objects(kv):
    class Counts:
        __slots__ = ()
        n_w = 0

    classes = {"w": Counts}

    def tick(key):
        setattr(classes[key], f"n_{key}", getattr(classes[key], f"n_{key}") + 1)
        return getattr(classes[key], f"n_{key}")

    return counting(tick)


def defaults_of_a_function(kv):
    globals()["count_w"] = lambda n=0: n

    def tick(key):
        count, name = globals()["count_" + key], f"__{'defaults'}__"
        setattr(count, name, (getattr(count, name)[0] + 1,))
        return getattr(count, name)[0]

    return counting(tick)


def private_name_of_the_store(kv):
    kv._steps = 0

    def tick(key):
        kv._steps += 1
        return kv._steps

    return counting(tick)


def library(where):
    def make(kv):
        names = {"mx": mx, "np": np, "rate": rate}
        text = f"{where}.calls = 0\ndef update(key, grad, weight):\n"
        exec(f"{text}    {where}.calls += 1\n    weight -= rate({where}.calls) * grad", names)
        return names["update"]

    return make


def polynomial(kv):
    p = np.polynomial.Polynomial([0.0])

    def tick(key):
        nonlocal p
        p = p + 1
        return p(0)

    return counting(tick)


def mask(kv):
    done = np.ma.masked_array(np.zeros(400), mask=np.zeros(400, bool))

    def tick(key):
        n = int(done.mask.sum())
        done.mask[n] = True
        return n

    return counting(tick)


def counting_in_an_array(kind):
    """The element of an array of objects is replaced, or counts itself."""

    def make(kv):
        made = {
            "number": 0,
            "array": np.zeros(1),
            "array of objects": np.array([0], object),
            "dict": {"n": 0},
            "list": [0],
        }
        counts = np.empty(1, object)
        counts[0] = made[kind]
        box = types.SimpleNamespace(counts_w=counts)

        def tick(key):
            held, at = getattr(box, f"counts_{key}"), 0
            if kind != "number":
                held, at = held[0], "n" if kind == "dict" else 0
            held[at] += 1
            return held[at]

        return counting(tick)

    make.__name__ = f"{kind} in an array".replace(" ", "_")
    return make


def param_of_a_program(kv):
    program = mx.Program("program q\nparam r 0\nw = mul sum r\nvalue <- w\n")

    def tick(key):
        program.set_param("r", program.param("r") + 1)
        return program.param("r")

    return counting(tick)


def number_with_a_short_repr(kv):
    done = Percent(0)

    def tick(key):
        nonlocal done
        done = Percent(done + 1e-5)
        return done * 1e5

    return counting(tick)


def number_with_few_digits_printed(kv):
    done = np.array(0.0)

    def tick(key):
        done[...] += 1e-5
        return done * 1e5

    return counting(tick)


def attribute_of_the_thread(kv):
    threading.current_thread().steps = 0

    def tick(key):
        me = threading.current_thread()
        me.steps += 1
        return me.steps

    return counting(tick)


def another_thread(kv):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    n = 0

    def count():
        nonlocal n
        n += 1
        return n

    return counting(lambda key: pool.submit(count).result())


def under_a_profile(kv):
    names = {}
    exec("n = 0\ndef tick():\n    global n\n    n += 1\n    return n", names)
    tick, profile = names["tick"], cProfile.Profile()

    def update(key, grad, weight):
        with profile:
            n = tick()
        weight -= rate(n) * grad

    return update


def equal_code_in_two_modules(kv):
    text = "def tick():\n    global n\n    n += step\n    return n"
    constant, counts = {"n": 0, "step": 0}, {"n": 0, "step": 1}
    exec(text, constant)
    exec(text, counts)
    return counting(lambda key: sum(names["tick"]() for names in (constant, counts)))


def equal_special_methods(kv):
    def length(step):
        n = 0

        def count(self):
            nonlocal n
            n += step
            return n

        return count

    a, b = (type("Sized", (), {"__len__": length(step)})() for step in (0, 1))
    return counting(lambda key: len(a) + len(b))


def union_of_ctypes(kv):
    numbers = Numbers()

    def tick(key):
        numbers.n += 1
        return numbers.n

    return counting(tick)


def precision_of_decimals(kv):
    def tick(key):
        decimal.getcontext().prec += 1
        return decimal.getcontext().prec

    return counting(tick)


def recursion_limit(kv):
    def tick(key):
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)
        return sys.getrecursionlimit()

    return counting(tick)


def counting_in_a_setting(get, put):
    """The function adds one to a setting of the process."""

    def make(kv):
        def tick(key):
            put(get() + 1)
            return get()

        return counting(tick)

    make.__name__ = get.__name__
    return make


def umask(mask=None):
    """Return the umask; the system changes it by the same call."""
    now = os.umask(0 if mask is None else mask)
    if mask is None:
        os.umask(now)
    return now


def threshold():
    return gc.get_threshold()[0]


def timeout():
    return socket.getdefaulttimeout() or 0


SETTINGS = [
    (umask, umask),
    (threshold, gc.set_threshold),
    (sys.getswitchinterval, lambda seconds: sys.setswitchinterval(seconds - 0.999)),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (timeout, socket.setdefaulttimeout),
]


def context_variable(kv):
    variable = {"steps": contextvars.ContextVar("steps", default=0)}

    def tick(key):
        [found] = variable.values()
        found.set(found.get() + 1)
        return found.get()

    return counting(tick)


def context_of_its_own(kv):
    count = contextvars.ContextVar("count", default=0)
    box = types.SimpleNamespace(context_w=contextvars.copy_context())

    def move():
        count.set(count.get() + 1)
        return count.get()

    return counting(lambda key: getattr(box, f"context_{key}").run(move))


CHANGES = [
    *(derived_optimizer, updater_of_a_derived_optimizer, derived_updater, derived_metric),
    *(computed_attribute, names_in_a_tuple, attrgetter, imported_module, tuple_in_globals, bound_setattr),
    *(attribute_of_a_class_without_objects, defaults_of_a_function),
    *(private_name_of_the_store, library("mx.optimizer"), library("mx.optimizer.SGD"), library("np.linalg")),
    *map(counting_in_an_array, ("number", "array", "array of objects", "dict", "list")),
    *(polynomial, mask, param_of_a_program, number_with_a_short_repr, number_with_few_digits_printed),
    *(attribute_of_the_thread, another_thread, under_a_profile, equal_code_in_two_modules, equal_special_methods),
    *(counting_in_a_setting(*setting) for setting in SETTINGS),
    *(union_of_ctypes, precision_of_decimals, recursion_limit, context_variable, context_of_its_own),
]


@pytest.fixture(autouse=True)
def settings():
    """Undo what functions change in the process. Texts of arrays show two digits."""
    limit, precision = sys.getrecursionlimit(), decimal.getcontext().prec
    mask, thresholds, interval = umask(), gc.get_threshold(), sys.getswitchinterval()
    digits, seconds = sys.get_int_max_str_digits(), socket.getdefaulttimeout()
    with np.printoptions(precision=2, suppress=True):
        yield
    gc.unfreeze()
    sys.setrecursionlimit(limit)
    decimal.getcontext().prec = precision
    umask(mask)
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)
    sys.set_int_max_str_digits(digits)
    socket.setdefaulttimeout(seconds)
    for owner in (mx.optimizer, mx.optimizer.SGD, np.linalg):
        vars(owner).get("calls") is not None and delattr(owner, "calls")


@pytest.mark.parametrize("is_frozen", [False, True], ids=["", "frozen"])
@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
def test_a_change_of_any_object_is_refused(make, is_frozen):
    """A script may have frozen its objects, which `gc.get_objects` then leaves out."""
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        function = make(kv)
        if is_frozen:
            gc.freeze()
        with pytest.raises(mx.errors.InvalidArgumentError, match="a call changes"):
            kv.set_updater(function)
        assert (gc.get_freeze_count() > 0) == is_frozen
        kv.set_updater(lambda key, grad, weight: weight.__isub__(grad))
        kv.push("w", mx.nd.ones((4,)))
        assert kv.pull("w").asnumpy().tolist() == [0, 0, 0, 0]


class Keeper:
    error: Exception | None = None


def test_the_error_of_a_call_keeps_no_other_object():
    """The keeper of the error is among the objects that were compared."""

    def call():
        raise ValueError("of the call")

    keeper = Keeper()
    alive = weakref.ref(keeper)
    try:
        _heap.change_of(call)
    except ValueError as error:
        keeper.error = error
    assert keeper.error is not None
    del keeper
    gc.collect()
    assert alive() is None


def test_notes_of_references_that_an_object_holds_are_collected():
    keeper = Keeper()
    keeper.notes = _core.References([keeper], [Keeper])
    assert keeper.notes.changed() == [keeper]  # it has an attribute more
    alive = weakref.ref(keeper)
    del keeper
    gc.collect()
    assert alive() is None


def test_what_a_call_changes_back_or_fills_once_is_no_change():
    seen, scale, last = set(), {}, types.SimpleNamespace(key=None, parts=None)

    def update(key, grad, weight):
        seen.add(key)
        last.key, last.parts = key, [len(key), (key, 0.5)]
        with decimal.localcontext() as context, np.errstate(all="ignore"):
            context.prec = 5
            weight -= scale.setdefault(key, 0.5) * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init(["a", "b", "c"], [mx.nd.ones((4,))] * 3)
        kv.set_updater(update)
        kv.init(["d", "e"], [mx.nd.ones((4,))] * 2)
        kv.push("e", mx.nd.ones((4,)))
        assert kv.pull("e").asnumpy().tolist() == [0.5] * 4


def test_a_context_in_which_a_call_sets_an_equal_value_is_no_change():
    rates, context = contextvars.ContextVar("rates"), contextvars.copy_context()
    context.run(rates.set, [0.5])
    assert _heap.change_of(lambda: context.run(rates.set, [0.5])) is None


def test_changes_that_another_thread_makes_are_not_those_of_the_function():
    counts, is_over = {"n": [0]}, threading.Event()

    def work():
        while not is_over.wait(0.001):
            counts["n"][0] += 1
            counts[counts["n"][0]] = counts["n"][0]

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            kv.init("w", mx.nd.ones((4,)))
            kv.set_updater(lambda key, grad, weight: weight.__isub__(0.5 * grad))
            kv.push("w", mx.nd.ones((4,)))
            assert kv.pull("w").asnumpy().tolist() == [0.5] * 4
    finally:
        is_over.set()
        worker.join()


def test_a_change_that_another_thread_makes_now_and_then_is_not_one_of_the_function(monkeypatch):
    """The thread changes the object during each call, and not during the first pause."""
    counts, pauses = types.SimpleNamespace(n=0), [0]

    def pause(seconds):
        pauses[0] += 1
        if pauses[0] > 1:
            counts.n += 1

    def call():
        counts.n += 1

    with monkeypatch.context() as patch:
        patch.setattr(_heap.time, "sleep", pause)
        assert _heap.change_of(call) is None
    assert _heap.change_of(call) == "SimpleNamespace.n"


def test_a_counter_that_ends_while_all_objects_are_compared_is_refused():
    """The counter stops before the last call, and the program of the first call is no longer that of the function."""
    counts = types.SimpleNamespace(n_w=[0])
    ends = 0

    def update(key, grad, weight):
        count = getattr(counts, f"n_{key}")
        count[0] = min(count[0] + 1, ends)
        weight -= (0.5 if count[0] == ends else 1.0) * grad

    for ends in range(50, 58):  # about as many calls come before that comparison
        counts.n_w = [0]
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            kv.init("w", mx.nd.ones((4,)))
            with pytest.raises(mx.errors.InvalidArgumentError):
                kv.set_updater(update)


def metaclass_with_equality():
    class Meta(type):
        def __eq__(cls, other):
            return cls is other

    return Meta


def metaclass_that_raises():
    def refuse(*arguments):
        raise RuntimeError("code of the metaclass")

    names = ("__hash__", "__getattribute__", "__eq__", "__subclasscheck__", "__instancecheck__")
    return type("Meta", (type,), {name: refuse for name in names})


def metaclass_with_properties():
    def refuse(cls):
        raise RuntimeError("code of the metaclass")

    return type("Meta", (type,), {name: property(refuse) for name in ("__mro__", "__name__", "__dict__", "__module__")})


@pytest.mark.parametrize("make", [metaclass_with_equality, metaclass_that_raises, metaclass_with_properties])
def test_code_of_a_metaclass_is_not_called(make):
    """An object elsewhere in the process has such a class; another object with such a class is changed."""
    kind = types.new_class("Odd", (), {"metaclass": make()})
    number = types.new_class("OddNumber", (float,), {"metaclass": make()})
    kept = [object.__new__(kind), number(1)]

    def tick():
        vars(kept[0])["n"] = [number(vars(kept[0]).get("n", [0])[0] + 1)]

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        kv.set_updater(lambda key, grad, weight: weight.__isub__(grad))
    tick()
    assert _heap.change_of(tick) == "Odd.n"


def cycle_of(values):
    """An iterator that has returned each value once."""
    cycle = itertools.cycle(values)
    for _ in values:
        next(cycle)
    return cycle


def second_tee(values):
    """An iterator whose twin has already returned all values."""
    ahead, behind = itertools.tee(values)
    list(ahead)
    return behind


ITERATORS = {  # makes each from some numbers
    "list": lambda counts: iter(counts),
    "reversed list": lambda counts: reversed(counts),
    "tuple": lambda counts: iter(tuple(counts)),
    "str": lambda counts: map(ord, "".join(map(chr, counts))),
    "bytes": lambda counts: iter(bytes(5000)),
    "range": lambda counts: iter(range(1, 5000)),
    "long range": lambda counts: iter(range(1 << 70, (1 << 70) + 5000)),
    "set": lambda counts: iter(set(counts)),
    "dict": lambda counts: iter(dict.fromkeys(counts)),
    "items of a dict": lambda counts: (n for n, _ in dict.fromkeys(counts).items()),
    "deque": lambda counts: iter(collections.deque(counts)),
    "array": lambda counts: iter(array.array("i", counts)),
    "elements of NumPy": lambda counts: iter(np.arange(5000)),
    "flat": lambda counts: np.arange(5000).flat,
    "nditer": lambda counts: np.nditer(np.arange(5000)),
    "map": lambda counts: map(abs, counts),
    "filter": lambda counts: filter(None, counts),
    "zip": lambda counts: map(min, zip(counts, itertools.repeat(1 << 20), strict=False)),
    "enumerate": lambda counts: map(min, enumerate(itertools.repeat(1 << 20))),
    "bare enumerate": lambda counts: enumerate(itertools.repeat(1.0)),
    "chain": lambda counts: itertools.chain(counts, counts),
    "accumulate": lambda counts: itertools.accumulate(itertools.repeat(1)),
    "islice": lambda counts: itertools.islice(itertools.repeat(1), 5000),
    "cycle": lambda counts: cycle_of(counts),
    "tee": lambda counts: second_tee(counts),
    "product": lambda counts: map(sum, itertools.product(range(20), repeat=3)),
    "combinations": lambda counts: map(sum, itertools.combinations(range(30), 3)),
    "permutations": lambda counts: map(sum, itertools.permutations(range(30), 3)),
    "StringIO": lambda counts: io.StringIO("\n".join(map(str, counts))),
    "BytesIO": lambda counts: io.BytesIO(b"1\n" * 5000),
    "memoryview": lambda counts: iter(memoryview(bytes(5000))),
    "iter_unpack": lambda counts: struct.iter_unpack("i", bytes(20000)),
    "finditer": lambda counts: re.finditer("a", "a" * 5000),
    "csv": lambda counts: csv.reader(map(str, counts)),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_behind_a_computed_name_is_refused(name):
    box = types.SimpleNamespace(rates_w=ITERATORS[name](list(range(1, 5000))))

    def update(key, grad, weight):
        next(getattr(box, f"rates_{key}"))
        weight -= 0.5 * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match="a call changes"):
            kv.set_updater(update)


def test_a_comparison_moves_no_iterator():
    """The comparison reads positions, of iterators that stay where they are as well."""
    makers = {
        "list": lambda: iter([1, 2, 3]),
        "set": lambda: iter({1, 2, 3}),
        "dict": lambda: iter({1: 1, 2: 2}),
        "cycle": lambda: cycle_of([1, 2, 3]),
        "islice": lambda: itertools.islice(iter([1, 2, 3]), 2),
        "product": lambda: itertools.product([1, 2], [3]),
        "tee": lambda: second_tee([1, 2, 3]),
        "enumerate": lambda: enumerate([1, 2, 3]),
        "flat": lambda: np.arange(3).flat,
        "memoryview": lambda: iter(memoryview(b"abc")),
        "iter_unpack": lambda: struct.iter_unpack("b", b"abc"),
        "finditer": lambda: map(str, re.finditer("a", "aaa")),
        "StringIO": lambda: io.StringIO("1\n2\n"),
    }
    kept = {name: make() for name, make in makers.items()}
    assert _heap.change_of(lambda: None) is None
    for name, make in makers.items():
        assert list(itertools.islice(kept[name], 10)) == list(itertools.islice(make(), 10)), name


def test_an_iterator_that_each_call_makes_anew_is_no_change():
    last = types.SimpleNamespace(it=None)

    def call():
        last.it = iter([1, 2, 3])
        next(last.it)

    call()
    assert _heap.change_of(call) is None


def test_an_array_of_objects_that_holds_itself_is_compared():
    holder = types.SimpleNamespace(array=np.empty(3, object), n=0)
    holder.array[0], holder.array[1] = holder.array, {"n": 0}

    def call():
        holder.array[1]["n"] += 1

    assert _heap.change_of(lambda: None) is None
    assert _heap.change_of(call) == "['n'] of a dict"


@pytest.mark.parametrize(
    ("random", "name"),
    [
        (np.random.default_rng(1), "random"),
        (np.random.RandomState(1), "standard_normal"),
        (np.random.PCG64(1), "random_raw"),
        (np.random.SeedSequence(1), "spawn"),
    ],
    ids=lambda one: None if isinstance(one, str) else type(one).__name__,
)
def test_a_generator_of_random_numbers_behind_a_computed_name_is_refused(random, name):
    box = types.SimpleNamespace(random_w=random)

    def update(key, grad, weight):
        found = getattr(box, f"random_{key}")
        getattr(found, name)(1)
        weight -= 0.5 * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.ones((4,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match="a call changes"):
            kv.set_updater(update)
