"""If an update in Python fails, the states of optimizers, updaters and functions are as before the push."""

import copy
import signal

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import nd

KEYS = [1, 2, 3]
STORES = ("local", "device")
HOWS = ("set_optimizer", "set_updater")


class Failing(mx.optimizer.Optimizer):
    """Adds gradients to its state in place, and the state to the weight; fails for `self.failing` after that."""

    failing = None

    def create_state(self, index, weight):
        return {"sum": [nd.zeros(weight.shape), np.zeros(weight.shape, np.float32)], "steps": [0]}

    def update(self, index, weight, grad, state):
        self._update_count(index)
        state["sum"][0] += grad
        state["sum"][1] += grad.asnumpy()
        state["steps"][0] += 1
        state["sum"].append("new")
        weight += state["sum"][0]
        if index == self.failing:
            raise RuntimeError("mine")


def kept(updater):
    """Return the states of an updater and its optimizer, as a text."""
    return repr(
        (
            updater.optimizer.num_update,
            updater.optimizer._index_update_count,
            {
                key: copy.deepcopy(
                    (state["sum"][0].asnumpy().tolist(), state["sum"][1].tolist(), state["sum"][2:], state["steps"])
                )
                for key, state in updater.states.items()
            },
        )
    )


def store_with(kind, how, optimizer):
    store = mx.kv.create(kind)
    store.init(KEYS, [nd.zeros((2,))] * 3)
    if how == "set_optimizer":
        store.set_optimizer(optimizer)
        return store, store._updater
    updater = mx.optimizer.get_updater(optimizer)
    store.set_updater(updater)
    return store, updater


def attempt(store, verb, keys):
    grads = [nd.ones((2,))] * len(keys)
    if verb == "push":
        store.push(keys, grads)
    elif verb == "async push":
        store.push(keys, grads, async_op=True).wait()
    else:
        store.pushpull(keys, grads, out=[nd.zeros((2,)) for _ in keys])


@pytest.mark.parametrize("verb", ["push", "async push", "pushpull"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("failing", KEYS)
def test_a_push_that_fails_leaves_the_counts_and_states_of_all_its_keys(kind, how, verb, failing):
    optimizer = Failing()
    store, updater = store_with(kind, how, optimizer)
    for already in range(3):  # no key, one, all of them have states
        before = kept(updater), [value.asnumpy().tolist() for value in store.pull(KEYS)]
        optimizer.failing = failing
        with pytest.raises(RuntimeError, match="mine"):
            attempt(store, verb, KEYS)
        assert (kept(updater), [value.asnumpy().tolist() for value in store.pull(KEYS)]) == before
        optimizer.failing = None
        attempt(store, verb, KEYS[:1] if already == 0 else KEYS)
    assert [state["steps"] for state in updater.states.values()] == [[3], [2], [2]]
    store.close()


class Refusing(mx.optimizer.SGD):
    """A built-in with momentum that refuses a key."""

    def _get_wd(self, index):
        if index == 2:
            raise RuntimeError("mine")
        return super()._get_wd(index)


@pytest.mark.parametrize("multi_precision", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_the_momentum_and_the_master_of_a_built_in_are_those_of_before(how, multi_precision):
    def made(optimizer):
        store = mx.kv.create("local")
        store.init([1, 2], [nd.ones((2,), dtype="float16")] * 2)
        if how == "set_optimizer":
            store.set_optimizer(optimizer)
        else:
            store.set_updater(mx.optimizer.get_updater(optimizer))
        return store

    arguments = {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": multi_precision}
    store = made(Refusing(**arguments))
    other = made(mx.optimizer.SGD(**arguments))
    grad = nd.ones((2,), dtype="float16")
    for _ in range(3):
        store.push(1, grad)
        other.push(1, grad)
        with pytest.raises(RuntimeError, match="mine"):
            store.push([1, 2], [grad, grad])
        assert store.pull(1).asnumpy().tolist() == other.pull(1).asnumpy().tolist()
    assert store._updater.optimizer._index_update_count == {1: 3}


def test_a_push_that_fails_leaves_the_states_of_the_functions_of_all_its_keys(kv):
    failing = [None]

    def update(key, grad, stored):
        total = kv.state("total")
        total += grad
        stored[:] = total
        if key == failing[0]:
            raise RuntimeError("mine")

    kv.init(KEYS, [nd.zeros((2,))] * 3)
    kv.set_updater(update)
    kv.push(KEYS[:2], [nd.ones((2,))] * 2)
    failing[0] = 3
    for _ in range(2):
        with pytest.raises(RuntimeError, match="mine"):
            kv.push(KEYS, [nd.ones((2,))] * 3)
    failing[0] = None
    kv.push(KEYS, [nd.ones((2,))] * 3)
    assert [value.asnumpy()[0] for value in kv.pull(KEYS)] == [2, 2, 1]


def test_a_push_inside_an_update_that_fails_later_stands(kv):
    """The inner push has succeeded, so its values and states are kept."""

    def update(key, grad, stored):
        total = kv.state("total")
        total += grad
        stored[:] = total
        if key == 1:
            kv.push(3, grad)
        if key == 2:
            raise RuntimeError("mine")

    kv.init(KEYS, [nd.zeros((2,))] * 3)
    kv.set_updater(update)
    for inner in (1, 2, 3):
        with pytest.raises(RuntimeError, match="mine"):
            kv.push([1, 2], [nd.ones((2,))] * 2)
        assert [value.asnumpy()[0] for value in kv.pull(KEYS)] == [0, 0, inner]


def test_a_push_inside_an_update_that_fails_leaves_the_updates_around_it(kv):
    def update(key, grad, stored):
        total = kv.state("total")
        total += grad
        stored[:] = total
        if key == 3:
            raise RuntimeError("mine")
        if key == 2:
            with pytest.raises(RuntimeError, match="mine"):
                kv.push(3, grad)

    kv.init(KEYS, [nd.zeros((2,))] * 3)
    kv.set_updater(update)
    for step in (1, 2, 3):
        kv.push([1, 2], [nd.ones((2,))] * 2)
        assert [value.asnumpy()[0] for value in kv.pull(KEYS)] == [step, step, 0]


class Stop(Exception):
    """An exception that a signal handler raises."""


class Interrupted(dict):
    """A state whose restoration is interrupted by a signal, once."""

    signals = 0

    def clear(self):
        if self.signals > 0:
            self.signals -= 1
            signal.raise_signal(signal.SIGUSR1)
        super().clear()


class InterruptedOptimizer(Failing):
    def create_state(self, index, weight):
        return Interrupted(super().create_state(index, weight))


@pytest.fixture
def stopping():
    def stop(number, frame):
        raise Stop

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("verb", ["push", "async push", "pushpull"])
@pytest.mark.parametrize("interrupted", KEYS)
def test_a_signal_while_a_push_is_undone_is_raised_when_all_is_undone(stopping, interrupted, verb):
    optimizer = InterruptedOptimizer()
    store, updater = store_with("local", "set_optimizer", optimizer)
    attempt(store, "push", KEYS)
    before = kept(updater)
    optimizer.failing = 3
    updater.states[interrupted].signals = 2
    with pytest.raises(Stop):
        attempt(store, verb, KEYS)
    assert kept(updater) == before
    with pytest.raises(RuntimeError, match="mine"):
        attempt(store, verb, KEYS)
    optimizer.failing = None
    attempt(store, verb, KEYS)
    assert [value.asnumpy().tolist() for value in store.pull(KEYS)] == [[3, 3]] * 3
    store.close()


@pytest.mark.parametrize("how", HOWS)
def test_a_key_that_is_made_anew_has_a_fresh_state_and_count(how):
    optimizer = Failing()
    store, updater = store_with("local", how, optimizer)
    attempt(store, "push", KEYS)
    store.delete(2)
    assert (sorted(updater.states), optimizer._index_update_count) == ([1, 3], {1: 1, 3: 1})
    store.init(2, nd.zeros((5,)))
    store.push(2, nd.ones((5,)))
    assert store.pull(2).asnumpy().tolist() == [1] * 5
