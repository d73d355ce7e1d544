"""A counter is refused wherever a function of `set_updater` keeps it: each kind of counter behind each way to reach it.

A program that servers run would go on with the count of the moment at which the function was read.
"""

import builtins
import collections
import contextvars
import datetime
import enum
import functools
import itertools
import queue
import time
import types
import uuid
import weakref

import numpy as np
import pytest
import tensorkv as mx
from tensorkv._update import heap as _heap


class Box:
    """An object whose attribute counts."""

    n = 0

    def __call__(self):
        self.n += 1
        return self.n

    def tick(self):
        return self()


# Kinds of counters: each makes a function without arguments that returns 1, 2, 3...


def cell():
    n = 0

    def tick():
        nonlocal n
        n += 1
        return n

    return tick


def element():
    counts = [0]

    def tick():
        counts[0] += 1
        return counts[0]

    return tick


def default():
    def tick(counts={"n": 0}):  # noqa: B006  # the subject of the test
        counts["n"] += 1
        return counts["n"]

    return tick


def attribute_of_a_function():
    def tick():
        tick.n += 1
        return tick.n

    tick.n = 0
    return tick


def numbers():
    counts = itertools.count(1)
    return lambda: next(counts)


KINDS = {
    "cell": cell,
    "element": element,
    "default": default,
    "attribute": attribute_of_a_function,
    "iterator": numbers,
    "object": Box,
    "bound method": lambda: Box().tick,
    "next of an iterator": lambda: itertools.count(1).__next__,
}

# Ways to reach a counter: each returns an updater whose rate becomes smaller with the third count.


def rate_of(n):
    return 1.0 if n < 3 else 0.5


def updater(count):
    def update(key, grad, weight):
        weight -= rate_of(count()) * grad

    return update


def by_a_property(tick):
    class Owner:
        count = property(lambda self: tick())

        def update(self, key, grad, weight):
            weight -= rate_of(self.count) * grad

    return Owner().update


def by_a_static_method(tick):
    class Owner:
        count = staticmethod(tick)

        def update(self, key, grad, weight):
            weight -= rate_of(self.count()) * grad

    return Owner().update


def by_a_class_method(tick):
    class Owner:
        @classmethod
        def count(cls):
            return tick()

        def update(self, key, grad, weight):
            weight -= rate_of(self.count()) * grad

    return Owner().update


def by_call(tick):
    class Owner:
        def __call__(self, key, grad, weight):
            weight -= rate_of(tick()) * grad

    return Owner()


def by_a_partial_of_call(tick):
    class Owner:
        def __call__(self, scale, key, grad, weight):
            weight -= scale * rate_of(tick()) * grad

    return functools.partial(Owner(), 2.0)


def by_an_item(tick):
    class Rates:
        def __getitem__(self, key):
            return rate_of(tick())

    rates = Rates()

    def update(key, grad, weight):
        weight -= rates[key] * grad

    return update


def by_a_length(tick):
    class Sized:
        def __len__(self):
            return tick()

    sized = Sized()
    return updater(lambda: len(sized))


def by_a_block(tick):
    class Block:
        def __enter__(self):
            return tick()

        def __exit__(self, *error):
            pass

    block = Block()

    def update(key, grad, weight):
        with block as n:
            weight -= rate_of(n) * grad

    return update


def by_a_factory(tick):
    def update(key, grad, weight):
        missing.clear()
        weight -= rate_of(missing[0]) * grad

    missing = collections.defaultdict(tick)
    return update


def by_a_set(tick):
    held = {tick}

    def update(key, grad, weight):
        for one in held:
            weight -= rate_of(one()) * grad

    return update


def by_the_key_of_a_dict(tick):
    held = {tick: None}

    def update(key, grad, weight):
        for one in held:
            weight -= rate_of(one()) * grad

    return update


def by_a_view(tick):
    held = {"tick": tick}.values()

    def update(key, grad, weight):
        for one in held:
            weight -= rate_of(one()) * grad

    return update


def by_a_read_only_dict(tick):
    held = types.MappingProxyType({"tick": tick})
    return updater(lambda: held["tick"]())


def by_a_context_variable(tick):
    held = contextvars.ContextVar("tick")
    held.set(tick)
    return updater(lambda: held.get()())


def by_a_class_of_exec(tick):
    names = {"tick": tick, "rate_of": rate_of}
    exec("class Owner:\n    def update(self, key, grad, weight):\n        weight -= rate_of(tick()) * grad\n", names)
    return names["Owner"]().update


WAYS = {
    "a name": updater,
    "a partial": lambda tick: updater(functools.partial(tick)),
    "a partial of a partial": lambda tick: functools.partial(updater(functools.partial(tick))),
    "a lambda": lambda tick: updater(lambda: tick()),
    **{
        name.removeprefix("by_").replace("_", " "): one
        for name, one in list(globals().items())
        if name.startswith("by_")
    },
}


def refuses(function):
    """Return the error of a distributed store for a function and a new key."""
    with mx.kv.create("dist_sync", bootstrap="self") as kv, pytest.raises(mx.errors.InvalidArgumentError) as caught:
        kv.set_updater(function)
        kv.init("w", mx.nd.ones((3,)))
    return str(caught.value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_counter_is_refused_by_any_way(kind, way):
    assert "a call changes" in (text := refuses(WAYS[way](KINDS[kind]()))) or "it uses" in text


class Slotted:
    """An object whose slot counts."""

    __slots__ = ("__weakref__", "n")

    def __init__(self):
        self.n = 0


def counts_in(get):
    """Return an updater that counts in the attribute `n` of an object."""

    def update(key, grad, weight):
        one = get()
        one.n += 1
        weight -= rate_of(one.n) * grad

    return update


class Counting(type):
    """A class of classes that counts."""

    n = 0


class Counted(metaclass=Counting):
    """A class whose class counts."""


def class_of_exec():
    names = {}
    exec("class Owner:\n    n = 0\n    __slots__ = ()\n", names)
    return names["Owner"]


KEEP = []  # objects that are only weakly referred to otherwise


def kept(make=Box):
    KEEP.append(make())
    return KEEP[-1]


def holders():
    """Return functions that give an object with a count `n`, by where the object is."""
    box = kept()
    weak, proxy, several = weakref.ref(box), weakref.proxy(box), weakref.WeakSet([box])
    by_name = weakref.WeakValueDictionary(one=box)
    content = contextvars.ContextVar("box")
    content.set(box)
    made = class_of_exec()
    items = {"one": Box()}.items()
    return {
        "weak reference": weak,
        "proxy": lambda: proxy,
        "weak set": lambda: next(iter(several)),
        "weak dict": lambda: by_name["one"],
        "context variable": content.get,
        "element of a set": lambda held={Box()}: next(iter(held)),
        "element of a frozen set": lambda held=frozenset([Box()]): next(iter(held)),
        "items of a dict": lambda: next(iter(items))[1],
        "slot in a set": lambda held={Slotted()}: next(iter(held)),
        "class of a class": lambda: type(Counted),
        "class of exec": lambda: made,
        "attribute of a class of tensorkv": lambda: mx.nd.NDArray.box_of_a_test,
        **{f"object in {module.__name__}": lambda module=module: module.box_of_a_test for module in (mx, np, builtins)},
    }


@pytest.mark.parametrize("where", holders())
def test_a_count_in_an_object_is_refused_wherever_the_object_is(where, monkeypatch):
    for owner in (mx, np, builtins, mx.nd.NDArray):
        monkeypatch.setattr(owner, "box_of_a_test", Box(), raising=False)
    assert "a call changes" in refuses(counts_in(holders()[where]))


class Derived:
    """Objects with a count `n` whose classes derive from one of Python's that has no attributes."""

    class Property(property):
        n = 0

        def __get__(self, owner, kind=None):
            self.n += 1
            return self.n

    class Static(staticmethod):
        n = 0

        def __get__(self, owner, kind=None):
            self.n += 1
            return self.n

    class Reference(weakref.ref):
        n = 0

        def __call__(self):
            self.n += 1
            return self.n

    class Tuple(tuple):
        n = 0

        def count(self):
            self.n += 1
            return self.n

    class Frozen(frozenset):
        n = 0

        def count(self):
            self.n += 1
            return self.n


def ways_to_count():
    """Return functions that move a count of `Derived`, by its class."""
    owner = type("Owner", (), {"rate": Derived.Property(), "static": Derived.Static(rate_of)})()
    return {
        "property": lambda get: get(owner).rate,
        "static method": lambda get: get(owner).static,
        "weak reference": lambda get, made=Derived.Reference(kept()): get(made)(),
        "tuple": lambda get, made=Derived.Tuple(): get(made).count(),
        "frozen set": lambda get, made=Derived.Frozen(): get(made).count(),
    }


@pytest.mark.parametrize("name", ways_to_count())
def test_a_count_in_an_object_of_a_derived_class_is_refused(name):
    count = ways_to_count()[name]
    assert "a call changes" in refuses(updater(lambda: count(lambda one: one)))


@pytest.mark.parametrize("name", ways_to_count())
def test_the_comparison_of_all_objects_sees_a_count_in_a_derived_class(name):
    count = ways_to_count()[name]
    count(lambda one: one)  # the first run makes the dict of an object
    assert _heap.change_of(lambda: count(lambda one: one)) is not None
    assert _heap.change_of(lambda: None) is None


def test_a_look_at_a_derived_weak_reference_does_not_call_it():
    made = Derived.Reference(kept())

    def update(key, grad, weight):
        weight -= (0.5 if made.n == 0 else 0.25) * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.set_updater(update)
        kv.init("w", mx.nd.ones((3,)))
    assert made.n == 0


@pytest.mark.parametrize("name", ["Context", "Token", "hamt"])
def test_a_class_with_the_name_of_one_of_python_is_compared(name):
    made = type(name, (), {"n": 0})()
    assert _heap.change_of(lambda: setattr(made, "n", made.n + 1)) == f"{name}.n"


def test_a_queue_is_refused_as_a_counter():
    waiting = queue.SimpleQueue()
    assert "a call changes" in refuses(updater(lambda: waiting.put(1) or waiting.qsize()))


def test_the_statistics_of_a_cache_are_refused_as_a_counter():
    @functools.lru_cache
    def cached(n):
        return n

    assert "a call changes" in refuses(updater(lambda: cached(1) + cached.cache_info().hits))


class Day(datetime.datetime):
    """A date of a class of one's own."""


CLOCKS = {
    "partial": lambda read=functools.partial(time.time): read(),
    "factory": lambda held=collections.defaultdict(time.time): held[0],
    "derived date": lambda: Day.now().timestamp(),
    "uuid1": lambda: uuid.uuid1().time,
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_is_refused(name):
    text = refuses(updater(CLOCKS[name]))
    assert "a program has no clock" in text or "a call changes" in text, text


# Functions that change nothing outside, though something under the hood of Python does.


def matches(key, grad, weight):
    import re

    weight -= (0.5 if re.match(r".*_bias$", key) else 0.25) * grad


def replaces(key, grad, weight):
    import re

    weight -= (0.5 if re.sub(r"\d+", "", key) == "w" else 0.25) * grad


def fits(key, grad, weight):
    import fnmatch

    weight -= (0.5 if fnmatch.fnmatch(key, "*_bias") else 0.25) * grad


class Mode(enum.Flag):
    """Flags, whose combinations Python makes at their first use."""

    FAST = 1
    EXACT = 2
    LATE = 4


def combines(key, grad, weight):
    mode = Mode.FAST | Mode.LATE
    weight -= (0.5 if mode & Mode.LATE else 0.25) * grad


class Rates:
    """An object that knows itself by a proxy."""

    def __init__(self):
        self.rate = 0.5
        self.me = weakref.proxy(self)

    def update(self, key, grad, weight):
        weight -= self.me.rate * grad


def with_a_rate(function):
    @functools.wraps(function)
    def update(key, grad, weight):
        return function(key, grad, weight, 0.5)

    return update


@with_a_rate
def takes_a_rate(key, grad, weight, rate):
    weight -= rate * grad


@pytest.mark.parametrize("store", ["local", "dist_sync"])
@pytest.mark.parametrize("function", [matches, replaces, fits, combines, Rates().update, takes_a_rate])
def test_a_function_without_a_counter_is_taken_at_once(store, function):
    with mx.kv.create(store, bootstrap="self" if store != "local" else None) as kv:
        kv.set_updater(function)
        kv.init("w_bias", mx.nd.ones((3,)))
        kv.push("w_bias", mx.nd.ones((3,)))
        assert kv.pull("w_bias").asnumpy()[0] == (0.75 if function is replaces else 0.5)


def test_another_closure_of_the_same_factory_may_count():
    counts = updater(itertools.count(1).__next__)
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.set_updater(updater(lambda: 1))
        kv.init("w", mx.nd.ones((3,)))
        kv.push("w", mx.nd.ones((3,)))
        assert kv.pull("w").asnumpy()[0] == 0
    assert counts is not None


def counting(name, wrap=lambda function: function):
    """Return an object whose method of that name counts in its own closure."""
    n = 0

    def method(self=None, *args):
        nonlocal n
        n += 1
        return n

    return type("Counts", (), {name: wrap(method)})()


def in_a_block(counts):
    with counts as n:
        return n


class Block:
    """The end of a block."""

    def __exit__(self, *error):
        """Do nothing."""


def block():
    counts = counting("__enter__")
    type(counts).__exit__ = Block.__exit__
    return lambda: in_a_block(counts)


DIRECT = {
    "call": lambda: counting("__call__"),
    "item": lambda counts=counting("__getitem__"): lambda: counts[0],
    "length": lambda counts=counting("__len__"): lambda: len(counts),
    "sum": lambda counts=counting("__add__"): lambda: counts + 1,
    "block": block,
    "property": lambda counts=counting("n", property): lambda: counts.n,
    "cached property": lambda counts=counting("n", functools.partial(property)): lambda: counts.n,
    "static method": lambda counts=counting("n", staticmethod): lambda: counts.n(),
    "class method": lambda counts=counting("n", classmethod): lambda: counts.n(),
    "partial of an object": lambda: functools.partial(counting("__call__")),
    "factory": lambda: lambda held=collections.defaultdict(counting("__call__")): (held[0], held.clear())[0],
}


@pytest.mark.parametrize("way", DIRECT)
def test_a_function_that_counts_itself_is_refused_however_python_calls_it(way):
    assert "a call changes n;" in refuses(updater(DIRECT[way]()))


def test_a_counter_that_only_a_later_key_has_is_refused():
    n = 0

    class Counting:
        @property
        def n(self):
            nonlocal n
            n += 1
            return n

    box = Counting()

    def update(key, grad, weight):
        weight -= (1.0 if key == "a" or box.n < 200 else 0.5) * grad

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("a", mx.nd.ones((2,)))
        kv.set_updater(update)
        with pytest.raises(mx.errors.InvalidArgumentError, match="a call changes n"):
            kv.init("b", mx.nd.ones((2,)))
