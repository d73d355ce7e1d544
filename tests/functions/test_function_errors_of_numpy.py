"""Functions of `set_updater` that meet NumPy's errors and warnings: servers have neither, so they refuse what depends on them."""

import contextlib
import warnings

import numpy as np
import pytest
import tensorkv as mx


@contextlib.contextmanager
def stores():
    with mx.kv.create("local") as called, mx.kv.create("dist_sync", bootstrap="self") as read:
        for kv in (called, read):
            kv.init("w", mx.nd.array([-1, 4]))
        yield called, read


def refusal(make):
    """Return the error with which servers refuse a function that a store of one process takes."""
    with stores() as (called, read):
        called.set_updater(make())
        with pytest.raises(mx.errors.InvalidArgumentError) as error:
            read.set_updater(make())
    return str(error.value)


def same(make):
    """Check that servers take a function, and do what a call does."""
    with stores() as (called, read):
        for kv in (called, read):
            kv.set_updater(make())
            kv.push("w", mx.nd.array([1, 1]))
        np.testing.assert_array_equal(called.pull("w").asnumpy(), read.pull("w").asnumpy())


def catches():
    def update(key, grad, weight):
        try:
            step = np.sqrt(weight)
        except (FloatingPointError, RuntimeWarning):
            step = 0.125 * grad
        weight -= step

    return update


def takes_the_root():
    def update(key, grad, weight):
        weight -= np.sqrt(weight)

    return update


def records():
    def update(key, grad, weight):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            step = np.sqrt(weight)
        if seen:
            step = 0.125 * grad
        weight -= step

    return update


def raises_within():
    def update(key, grad, weight):
        try:
            with np.errstate(invalid="raise"):
                step = np.sqrt(weight)
        except FloatingPointError:
            step = 0.125 * grad
        weight -= step

    return update


class Monitor:
    """A handler of NumPy's errors that counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, kind, flag):
        self.count += 1

    def write(self, message):
        self.count += 1


def counts():
    monitor = np.geterrcall()

    def update(key, grad, weight):
        step = np.sqrt(weight)
        weight -= mx.nd.where(step == step, step, grad) * (1.0 if monitor.count == 0 else 0.5)

    return update


def ignores_within():
    def update(key, grad, weight):
        with np.errstate(all="ignore"):
            root = np.sqrt(weight)
        weight -= np.where(np.isfinite(root), root, 0.125 * grad)

    return update


@pytest.mark.parametrize("make", [catches, takes_the_root])
@pytest.mark.parametrize("are_warnings", [False, True])
def test_a_call_that_raises_an_error_of_numpy_is_refused(make, are_warnings):
    with warnings.catch_warnings(), np.errstate(all="warn" if are_warnings else "raise"):
        if are_warnings:
            warnings.simplefilter("error")
        read = refusal(make)
    assert "servers raise no FloatingPointError and give no warnings of NumPy" in read, read
    assert make is catches or f"{__file__}:{make.__code__.co_firstlineno + 2}: called with elements it raises" in read


def test_a_function_that_looks_for_warnings_of_numpy_is_refused():
    assert "servers raise no FloatingPointError and give no warnings of NumPy" in refusal(records)


def test_a_function_that_catches_errors_which_it_asks_for_itself_is_refused():
    assert "where its program runs" in refusal(raises_within)


@pytest.mark.parametrize("how", ["call", "log"])
def test_a_function_that_counts_errors_of_numpy_is_refused(how):
    former = np.seterrcall(Monitor())
    try:
        with np.errstate(all=how):
            assert "a call changes monitor.count" in refusal(counts)
    finally:
        np.seterrcall(former)


@pytest.mark.parametrize("how", ["ignore", "warn", "print", "raise", "error"])
def test_a_function_that_ignores_errors_of_numpy_is_taken_whatever_the_process_does_with_them(how):
    with warnings.catch_warnings(), np.errstate(all="warn" if how == "error" else how):
        if how == "error":
            warnings.simplefilter("error")
        same(ignores_within)


def test_a_comparison_shows_no_warnings(capfd):
    with stores() as (_, read), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *about, **more: print(message)
        for how in ("warn", "print"):
            with np.errstate(all=how):
                read.set_updater(takes_the_root())
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
