"""KeyboardInterrupt and its like leave every call as themselves: each hook that a call runs raises one, and nothing has changed."""

import builtins
import logging
import pickle
import sys
import threading

import numpy as np
import pytest
import tensorkv as mx
from tensorkv._store import log as _log

S = (2, 3)


class Stop(BaseException):
    """A program's own exception that nobody is to catch."""


ERRORS = [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RecursionError, Stop]
if hasattr(builtins, "BaseExceptionGroup"):
    ERRORS.append(lambda: builtins.BaseExceptionGroup("several", [KeyboardInterrupt()]))


@pytest.fixture(params=ERRORS, ids=lambda make: getattr(make, "__name__", "group"))
def error(request):
    """An exception that has to arrive as this object."""
    return request.param()


class Raises:
    """A function, a descriptor and a number that raises."""

    def __init__(self, error):
        self.error = error

    def __call__(self, *args, **kwargs):
        raise self.error

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        raise self.error


def made(error, **members):
    """Return an object of a class with these members."""
    return type("Hooked", (), members)()


def exporting(error):
    """Return arrays, one for each hook of DLPack and of NumPy that raises."""
    good = np.ones(S, np.float32)

    def method(self, *args, **kwargs):
        raise error

    def export(self, **options):
        return good.__dlpack__(**options)

    def on_host(self):
        return (1, 0)

    index = made(error, __index__=method)
    arrays = {
        "dlpack": made(error, __dlpack__=method, __dlpack_device__=on_host),
        "dlpack attribute": made(error, __dlpack__=Raises(error), __dlpack_device__=on_host),
        "device": made(error, __dlpack__=export, __dlpack_device__=method),
        "device attribute": made(error, __dlpack__=export, __dlpack_device__=Raises(error)),
        "device index": made(error, __dlpack__=export, __dlpack_device__=lambda self: (index, 0)),
    }
    if sys.version_info >= (3, 12):
        arrays["buffer"] = made(error, __buffer__=method)
    return arrays


HOOKS = list(exporting(None))


def check_raises(error, call, *args, **options):
    with pytest.raises(type(error)) as caught:
        call(*args, **options)
    assert caught.value is error


@pytest.mark.parametrize("store", ["local", "dist_sync"])
@pytest.mark.parametrize("hook", HOOKS)
def test_of_an_array_in_every_verb(store, hook, error):
    array = exporting(error)[hook]
    options = {} if store == "local" else {"bootstrap": "self"}
    with mx.kv.create(store, **options) as kv:
        good, out = np.ones(S, np.float32), np.zeros(S, np.float32)
        kv.init("w", good)
        kv.init_table("t", 3)
        kv.push_rows("t", [1], np.ones((1, 3), np.float32))
        calls = {
            "init": lambda: kv.init("new", array),
            "init of a list": lambda: kv.init(["new", "other"], [good, array]),
            "init of a tree": lambda: kv.init({"new": {"a": good, "b": array}}),
            "push": lambda: kv.push("w", array),
            "push of a list": lambda: kv.push("w", [good, array]),
            "push of a ticket": lambda: kv.push("w", array, async_op=True),
            "pull": lambda: kv.pull("w", out=[out, array]),
            "pull of a ticket": lambda: kv.pull("w", out=[out, array], async_op=True),
            "pushpull": lambda: kv.pushpull("w", array, out=out),
            "pushpull out": lambda: kv.pushpull("w", good, out=array),
            "pushpull of a ticket": lambda: kv.pushpull("w", good, out=array, async_op=True),
            "broadcast": lambda: kv.broadcast("new", array, out=out),
            "broadcast out": lambda: kv.broadcast("new", good, out=array),
            "push_rows": lambda: kv.push_rows("t", [0, 1], array),
            "pull_rows out": lambda: kv.pull_rows("t", [0, 1], out=array),
            "from_dlpack": lambda: mx.nd.from_dlpack(array),
        }
        for call in calls.values():
            check_raises(error, call)
        assert kv.keys() == ["w", "t"] and kv.round("w") == 0
        assert kv.pull("w").asnumpy().tolist() == good.tolist() and out.max() == 0
        assert kv.pull_rows("t", [0, 1]).asnumpy().tolist() == [[0] * 3, [1] * 3]


def test_of_what_numpy_makes_an_array_of(error):
    def method(self, *args, **kwargs):
        raise error

    for name, member in (("__array__", method), ("__array_interface__", Raises(error)), ("__float__", method)):
        check_raises(error, mx.nd.array, [made(error, **{name: member})])


def test_of_ids(kv, error):
    kv.init_table("t", 3)
    array = exporting(error)["dlpack"]
    row = np.ones((1, 3), np.float32)
    for call in (lambda: kv.pull_rows("t", array), lambda: kv.push_rows("t", array, row)):
        check_raises(error, call)


def test_of_keys(kv, error):
    def method(self, *args):
        raise error

    good = np.ones(S, np.float32)
    kv.init(1, good)
    key = made(error, __index__=method)
    out = np.zeros(S, np.float32)
    for call in (
        lambda: kv.init(key, good),
        lambda: kv.push(key, good),
        lambda: kv.push([1, key], [good, good]),
        lambda: kv.pull(key),
        lambda: kv.pull(key, out=out),
        lambda: kv.pushpull(key, good, out=out),
        lambda: kv.broadcast(key, good, out=out),
        lambda: kv.round(key),
        lambda: key in kv,
        lambda: kv.delete(key),
    ):
        check_raises(error, call)
    assert kv.keys() == [1] and kv.round(1) == 0 and out.max() == 0


@pytest.mark.parametrize("name", ["__hash__", "__eq__"])
def test_of_keys_that_python_looks_up(kv, name, error):
    class Odd(int):
        def __hash__(self):
            return self._raise() if name == "__hash__" else int.__hash__(self)

        def __eq__(self, other):
            return self._raise() if name == "__eq__" else int.__eq__(self, other)

        def _raise(self):
            raise error

    kv.init(7, mx.nd.ones(S))
    kv.set_optimizer(mx.optimizer.SGD(param_dict={7: _Parameter()}))
    check_raises(error, kv.push, Odd(7), mx.nd.ones(S))
    assert kv.round(7) == 0 and kv.pull(7).asnumpy().max() == 1


class _Parameter:
    lr_mult, wd_mult = 1.0, 1.0


def test_of_numbers_in_calls(kv, error, tmp_path):
    def method(self, *args):
        raise error

    index, real, path = made(error, __index__=method), made(error, __float__=method), made(error, __fspath__=method)
    good = np.ones(S, np.float32)
    kv.init("w", good)
    ticket = kv.pull("w", async_op=True)
    for call in (
        lambda: kv.push("w", good, priority=index),
        lambda: kv.pull("w", priority=index),
        lambda: kv.pushpull("w", good, good.copy(), priority=index),
        lambda: ticket.wait(timeout=real),
        lambda: mx.kv.create("local", patience=real),
        lambda: mx.kv.create("dist_sync", bootstrap=object(), rank=index, num_workers=1),
        lambda: mx.kv.create("dist_sync", rows_dir=path),
        lambda: mx.nd.ones((index,)),
        lambda: mx.nd.ones(S)[index],
    ):
        check_raises(error, call)
    assert kv.round("w") == 0


def test_of_updaters_and_what_they_ask(kv, error):
    class Schedule(mx.lr_scheduler.LRScheduler):
        def __call__(self, num_update):
            raise error

    class Failing(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            return None

        def update(self, index, weight, grad, state):
            weight += grad
            raise error

    class Beginning(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            raise error

    def function(key, grad, weight):
        weight += grad
        raise error

    class Owner:
        lr_mult, wd_mult = Raises(error), 1.0

    kv.init("w", np.ones(S, np.float32))
    grad = np.ones(S, np.float32)
    for begin in (
        lambda: kv.set_updater(function),
        lambda: kv.set_optimizer(Failing()),
        lambda: kv.set_optimizer(Beginning()),
        lambda: kv.set_optimizer(mx.optimizer.SGD(lr_scheduler=Schedule())),
        lambda: kv.set_updater(mx.optimizer.get_updater(Failing())),
    ):
        begin()
        rounds = kv.round("w")
        for call in (lambda: kv.push("w", grad), lambda: kv.pushpull("w", grad, out=grad.copy())):
            check_raises(error, call)
        assert kv.round("w") == rounds and kv.pull("w").asnumpy().max() == 1
    check_raises(error, lambda: kv.set_optimizer(mx.optimizer.SGD(param_dict={"w": Owner()})))


def test_of_a_function_that_is_read_for_servers():
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", np.ones(S, np.float32))
        for make in (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, Stop):
            error = make()
            check_raises(error, kv.set_updater, _raising(error))
            check_raises(error, kv.set_updater, _raising(error, where_it_is_compared=True))
        assert kv.pull("w").asnumpy().max() == 1


def _raising(error, where_it_is_compared=False):
    """Return a function that raises: in each call, or only where it is called with elements, beside its program."""

    def function(key, grad, weight):
        if not where_it_is_compared or type(grad) is mx.nd.NDArray:
            raise error
        weight += grad

    return function


def test_of_initializers(error):
    class Mine(mx.init.Initializer):
        def _init_weight(self, name, array):
            raise error

    array = mx.nd.ones(S)
    check_raises(error, Mine(), "a_weight", array)
    assert array.asnumpy().max() == 1


class _Bootstrap:
    """A store of keys whose one method raises."""

    def __init__(self, failing, error):
        self.failing, self.error, self.values = failing, error, {}

    def _may_fail(self, name):
        if name == self.failing:
            raise self.error

    def set(self, key, value):
        self._may_fail("set")
        self.values[key] = value

    def get(self, key):
        self._may_fail("get")
        return self.values[key]

    def wait(self, keys, timeout):
        self._may_fail("wait")
        if any(key not in self.values for key in keys):
            raise KeyError(keys)


@pytest.mark.parametrize("failing", ["set", "get", "wait"])
def test_of_a_bootstrap_object(failing, error):
    rank = 0 if failing == "set" else 1
    bootstrap = _Bootstrap(failing, error)
    if failing == "get":
        bootstrap.wait = lambda keys, timeout: None
    check_raises(error, mx.kv.create, "dist_sync", bootstrap=bootstrap, rank=rank, num_workers=2)
    with mx.kv.create("local") as kv:
        kv.init("w", mx.nd.ones(S))


def test_of_a_registered_store_and_of_the_function_of_a_metric(error, monkeypatch):
    monkeypatch.setattr("tensorkv._store.base._registry", {"hooked": Raises(error)})
    check_raises(error, mx.kv.create, "hooked")
    metric = mx.metric.CustomMetric(lambda label, pred: 2.0 if label[0] else Raises(error)(), name="hooked")
    metric.update([np.ones(1)], [np.ones(1)])
    check_raises(error, metric.update, [np.ones(1), np.zeros(1)], [np.ones(1), np.ones(1)])
    assert metric.get() == ("hooked", 2.0)


def test_of_a_log_handler(error):
    told = []

    class Handler(logging.Handler):
        def emit(self, record):
            if not told:
                told.append(None)
                raise error
            told.append(record.getMessage())

    handler = Handler()
    _log.logger.addHandler(handler)
    try:
        _log._untold.extend([(2, "the first"), (2, "the second")])
        check_raises(error, mx.kv.create, "local")
        mx.kv.create("local").close()
    finally:
        _log.logger.removeHandler(handler)
    assert told == [None, "the second"]


def test_of_a_callback_of_a_ticket_the_thread_of_callbacks_goes_on(kv, error, caplog):
    kv.init("w", mx.nd.ones(S))
    called = threading.Event()
    ticket = kv.pull("w", async_op=True)
    ticket.add_done_callback(Raises(error))
    ticket.add_done_callback(lambda _: called.set())
    assert called.wait(30) and ticket.wait().asnumpy().max() == 1


def test_of_what_is_pickled(error):
    class Held:
        lr_mult, wd_mult = 1.0, 1.0

        def __reduce__(self):
            raise error

    optimizer = mx.optimizer.SGD(param_dict={0: Held()})
    check_raises(error, pickle.dumps, optimizer)


# ------------------------------------------------------------------------------------------------ __dlpack__ is asked once


class Nested:
    """An array whose export pushes another one, down to one that fails."""

    calls = 0

    def __init__(self, kv, depth, wrong):
        self.kv, self.depth, self.wrong = kv, depth, wrong

    def __dlpack__(self, **options):
        Nested.calls += 1
        if self.depth:
            self.kv.push("w", Nested(self.kv, self.depth - 1, self.wrong))
        raise self.wrong("of mine")

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("wrong", [TypeError, BufferError])
def test_an_export_that_fails_is_asked_once_at_every_depth(kv, wrong):
    kv.init("w", mx.nd.ones(S))
    for depth in (0, 1, 8, 40):
        Nested.calls = 0
        with pytest.raises(mx.errors.InvalidArgumentError, match="cannot be shared: .*of mine"):
            kv.push("w", Nested(kv, depth, wrong))
        assert Nested.calls == depth + 1


def test_an_export_without_end_is_a_recursion_error(kv):
    class Endless:
        def __dlpack__(self, **options):
            kv.push("w", Endless())

        def __dlpack_device__(self):
            return (1, 0)

    kv.init("w", mx.nd.ones(S))
    with pytest.raises(RecursionError):
        kv.push("w", Endless())
    assert kv.round("w") == 0


def test_exports_of_the_old_protocol_are_asked_without_the_keyword(kv):
    class Old:
        def __init__(self):
            self.memory = np.ones(S, np.float32)

        def __dlpack__(self, stream=None):
            return self.memory.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    class PassesOn(Old):
        def __dlpack__(self, **options):
            return Old.__dlpack__(self, **options)

    class NoKeywords(Old):
        def __dlpack__(self):
            return self.memory.__dlpack__()

    for make in (Old, PassesOn, NoKeywords):
        kv.init(make.__name__, make())
        assert kv.pull(make.__name__).asnumpy().max() == 1
