"""Saving and loading, as users of Python meet them."""

import asyncio
import errno
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import weakref

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import errors


@pytest.fixture(params=["local", "dist_sync", "dist_async"])
def make(request):
    """Return a function that makes a store of the tested type."""
    return lambda **options: mx.kv.create(
        request.param, **({} if request.param == "local" else {"bootstrap": "self"}), **options
    )


def fill(kv, optimizer="adam"):
    kv.init(["w", "b"], [mx.nd.ones((3, 4)), mx.nd.zeros((4,), dtype="float16")])
    if optimizer is not None:
        kv.set_optimizer(mx.optimizer.create(optimizer, learning_rate=0.1, multi_precision=True))


def step(kv, n):
    kv.push(["w", "b"], [mx.nd.ones((3, 4)) * n, mx.nd.ones((4,), dtype="float16") * n])


def values(kv):
    out = [mx.nd.zeros((3, 4)), mx.nd.zeros((4,), dtype="float16")]
    kv.pull(["w", "b"], out=out)
    return [a.asnumpy() for a in out]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_job_that_starts_again_goes_on_where_it_was(make, tmp_path):
    with make() as kv:
        fill(kv)
        for n in range(3):
            step(kv, n)
        path = kv.save(tmp_path / "snapshots")
        assert path == str(tmp_path / "snapshots" / "000001")
        for n in range(3, 6):
            step(kv, n)
        expected = values(kv)
    with make() as kv:
        fill(kv)
        rounds = 0 if kv.type == "dist_async" else 3  # those of asynchronous keys are each worker's own
        assert kv.load(tmp_path / "snapshots") == {"w": rounds, "b": rounds}
        assert kv.round("w") == rounds
        for n in range(3, 6):
            step(kv, n)
        assert same(values(kv), expected)


def test_other_readers_know_the_files(make, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    with make() as kv:
        fill(kv)
        step(kv, 1)
        folder = kv.save(tmp_path)
        stored = values(kv)
        kv.save_optimizer_states(tmp_path / "states")
    with open(os.path.join(folder, "model.safetensors.index.json")) as file:
        index = json.load(file)
    assert index["metadata"]["total_size"] > 0
    tensors = {}
    for name in set(index["weight_map"].values()):
        tensors |= safetensors.load_file(os.path.join(folder, name))
    assert set(tensors) == set(index["weight_map"])
    assert np.array_equal(tensors["w"], stored[0])
    assert np.array_equal(tensors["b"], stored[1])
    assert tensors["b#master"].dtype == np.float32
    states = safetensors.load_file(tmp_path / "states")
    assert "w" not in states
    assert all(np.array_equal(states[name], tensors[name]) for name in states)
    assert len(states) >= 4


def test_states_alone(make, tmp_path):
    with make() as kv:
        fill(kv, "sgd")
        fname = str(tmp_path / "opt.states")
        kv.save_optimizer_states(fname)
        kv.load_optimizer_states(fname)
        with pytest.raises(errors.UnimplementedError, match="dump_optimizer"):
            kv.save_optimizer_states(fname, dump_optimizer=True)
        with pytest.raises(errors.InvalidArgumentError, match="states alone"):
            kv.load(fname)
        with pytest.raises(errors.SnapshotNotFoundError, match="there is no snapshot"):
            kv.load_optimizer_states(tmp_path / "none")


def test_states_of_no_optimizer_are_not_saved(make, tmp_path):
    with make() as kv:
        fill(kv, None)
        with pytest.raises(errors.FailedPreconditionError, match="no optimizer, and so no states; set_optimizer"):
            kv.save_optimizer_states(tmp_path / "states")
        assert os.listdir(tmp_path) == []
        kv.set_optimizer(mx.optimizer.SGD())
        kv.save_optimizer_states(tmp_path / "states")


def test_a_folder_that_is_not_there_is_told_with_the_path_that_was_given(make, tmp_path):
    with make() as kv:
        fill(kv)
        file = str(tmp_path / "no" / "states")
        with pytest.raises(FileNotFoundError) as caught:
            kv.save_optimizer_states(file)
        assert isinstance(caught.value, errors.FolderNotFoundError) and not isinstance(caught.value, KeyError)
        assert str(caught.value) == f"save_optimizer_states: {file}: there is no folder {tmp_path / 'no'}"


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize(
    "place, number, builtin, code",
    [
        ("file/under", errno.ENOTDIR, NotADirectoryError, errors.FailedPreconditionError),
        ("loop/under", errno.ELOOP, OSError, errors.UnavailableError),
        ("n" * 300, errno.ENAMETOOLONG, OSError, errors.UnavailableError),
        ("/proc/xx", errno.ENOENT, FileNotFoundError, errors.FailedPreconditionError),
    ],
    ids=["file", "loop", "long", "proc"],
)
def test_errors_of_files_are_oserrors_too(make, tmp_path, place, number, builtin, code, async_op):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with make() as kv:
        fill(kv)
        with pytest.raises(errors.FileError) as caught:
            path = kv.save(str(tmp_path / place), async_op=async_op)
            if async_op:
                path.wait()
    error = caught.value
    assert error.errno == number and isinstance(error, builtin) and isinstance(error, code)
    assert isinstance(error, OSError) and not isinstance(error, KeyError) and "save: " in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.errno == number


@pytest.mark.parametrize("async_op", [False, True])
def test_a_folder_that_cannot_be_made_is_no_missing_key(make, async_op):
    with make() as kv:
        fill(kv)
        with pytest.raises(errors.FailedPreconditionError, match="save: /proc/none: no folder can be made there"):
            path = kv.save("/proc/none", async_op=async_op)
            path.wait()


def test_the_model_of_another_program_is_not_called_damaged(make, tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": {"w": "model.safetensors"}}))
    with make() as kv:
        fill(kv)
        with pytest.raises(errors.FailedPreconditionError, match="another program has saved these tensors"):
            kv.load(tmp_path)


def test_a_pickle_is_named_as_one_and_never_read(make, tmp_path):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "p").write_bytes(pickle.dumps({"w": list(range(1000))}, protocol))
        with make() as kv:
            fill(kv)
            for load in (kv.load, kv.load_optimizer_states):
                with pytest.raises(errors.FailedPreconditionError, match=r"/p: it looks like a pickle.*is never read"):
                    load(tmp_path / "p")


def test_a_path_with_a_zero_byte_is_refused(make, tmp_path):
    with make() as kv:
        fill(kv)
        path = str(tmp_path / "a\0b")
        for call in (kv.save, kv.load, kv.save_optimizer_states, kv.load_optimizer_states, kv.trace):
            with pytest.raises(errors.InvalidArgumentError):
                call(path)
        assert os.listdir(tmp_path) == []


def test_a_function_without_states_has_none_to_save(tmp_path):
    with mx.kv.create() as kv:
        kv.init("w", mx.nd.ones((2,)))
        kv._set_updater(lambda key, grad, weight: weight.__setitem__(..., weight + grad))
        with pytest.raises(errors.FailedPreconditionError, match="a function that has asked for no state"):
            kv.save_optimizer_states(tmp_path / "states")
        kv.save(tmp_path / "values")
        kv.push("w", mx.nd.ones((2,)))
        kv.load(tmp_path / "values")
        out = mx.nd.zeros((2,))
        kv.pull("w", out=out)
        assert out.asnumpy().tolist() == [1, 1]


class Heavy(mx.optimizer.Optimizer):
    """Momentum whose rate falls with the count, in Python, with states of several kinds."""

    def create_state(self, index, weight):
        return (mx.nd.zeros(weight.shape), {"numpy": np.zeros(weight.shape, "f8"), "nothing": None, "name": str(index)})

    def update(self, index, weight, grad, state):
        self._update_count(index)
        momentum, more = state
        momentum[:] = momentum * 0.5 + grad.astype("float32") / self._index_update_count[index]
        more["numpy"] += grad.asnumpy()
        change = momentum.asnumpy() + more["numpy"] * self._get_lr(index)
        weight -= mx.nd.array(change.astype("f4")).astype(weight.dtype_name)


class Harmonic(mx.lr_scheduler.LRScheduler):
    def __call__(self, num_update):
        return self.base_lr / num_update


def momentum_of(kv):
    def momentum(key, grad, weight):
        m, total = kv.state("m"), kv.state("total")
        m *= 0.5
        m += grad
        total += m
        weight -= m + 0.25 * total

    return momentum


UPDATERS = {
    "function": lambda kv: kv.set_updater(momentum_of(kv)),
    "own optimizer": lambda kv: kv.set_optimizer(Heavy(learning_rate=0.5)),
    "updater": lambda kv: kv.set_updater(mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, momentum=0.5))),
    "own schedule": lambda kv: kv.set_optimizer(mx.optimizer.SGD(momentum=0.5, lr_scheduler=Harmonic(1.0))),
    "schedule": lambda kv: kv.set_optimizer(
        mx.optimizer.Adam(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=1.0))
    ),
}
RATED = ("own optimizer", "updater", "own schedule", "schedule")


def updated(make, updater, start=None):
    """Return a store with an updater, and with values to start from; skip what a job refuses."""
    kv = make()
    if start is None:
        fill(kv, None)
    else:
        kv.init(["w", "b"], start)
    try:
        UPDATERS[updater](kv)
    except errors.UnimplementedError:
        assert updater == "own optimizer"
        pytest.skip("servers run no Python")
    return kv


@pytest.mark.parametrize("updater", UPDATERS)
def test_every_updater_goes_on_where_it_was(make, updater, tmp_path):
    def go_on(kv):
        if updater in RATED:
            optimizer = kv._updater.optimizer
            assert (optimizer.num_update, optimizer.learning_rate) == rate
        step(kv, 5)
        step(kv, -3)
        return values(kv)

    with updated(make, updater) as kv:
        for n in range(4):
            step(kv, n + 1)
        saved, before = kv.save(tmp_path / "all"), values(kv)
        kv.save_optimizer_states(tmp_path / "states")
        if updater in RATED:
            rate = kv._updater.optimizer.num_update, kv._updater.optimizer.learning_rate
        expected = go_on(kv)
        kv.load(saved)
        assert same(values(kv), before) and same(go_on(kv), expected)
    with updated(make, updater) as kv:
        kv.load(saved)
        assert same(values(kv), before) and same(go_on(kv), expected)
    for states in (tmp_path / "states", saved):
        with updated(make, updater, before) as kv:
            kv.load_optimizer_states(states)
            assert same(go_on(kv), expected)


@pytest.fixture
def two_snapshots(make, tmp_path):
    """Return a store, a folder with a snapshot behind each of its pushes 1 and 3, and another with the second one alone."""
    folder, later = tmp_path / "all", tmp_path / "later"
    with updated(make, "own schedule") as kv:
        step(kv, 1)
        kv.save(folder)
        step(kv, 2)
        step(kv, 3)
        kv.save(folder)
    later.mkdir()
    (folder / "000002").rename(later / "000002")
    with updated(make, "own schedule") as kv:
        yield kv, folder, later


@pytest.mark.parametrize("when", ["before", "after"])
def test_counts_are_those_of_the_snapshot_that_was_loaded(two_snapshots, when, monkeypatch):
    """A snapshot appears between a look of this rank at the folder and the look of the rank that reads."""
    kv, folder, later = two_snapshots
    read = kv._load

    def load(path):
        if when == "before":
            (later / "000002").rename(folder / "000002")
        rounds = read(path)
        if when == "after":
            (later / "000002").rename(folder / "000002")
        return rounds

    monkeypatch.setattr(kv, "_load", load)
    if kv.type == "dist_async":  # whose rounds tell nothing
        with pytest.raises(errors.FailedPreconditionError, match="another snapshot was saved"):
            kv.load(folder)
        assert kv._updater.optimizer.num_update == 0
    else:
        kv.load(folder)
        assert kv._updater.optimizer.num_update == (3 if when == "before" else 1)
    monkeypatch.undo()
    kv.load(folder / "000001")
    assert kv._updater.optimizer.num_update == 1
    kv.load(folder)
    assert kv._updater.optimizer.num_update == 3


@pytest.mark.parametrize("saved_by", ["local", "dist_sync", "dist_async"])
def test_counts_are_found_in_snapshots_of_other_types_of_stores(make, saved_by, tmp_path):
    def of(kind):
        return mx.kv.create(kind, **({} if kind == "local" else {"bootstrap": "self"}))

    with updated(lambda: of(saved_by), "own schedule") as kv:
        step(kv, 1)
        kv.save(tmp_path)
        step(kv, 2)
        kv.save(tmp_path)
    with updated(make, "own schedule") as kv:
        kv.load(tmp_path)
        assert kv._updater.optimizer.num_update == 2


@pytest.mark.parametrize("make", ["local", "dist_sync"], indirect=True)
def test_a_rank_that_does_not_find_what_was_loaded_says_so(two_snapshots, monkeypatch):
    """Its folder has another snapshot than that of the rank that reads. Rounds of asynchronous keys tell nothing of it."""
    kv, folder, later = two_snapshots
    read = kv._load
    monkeypatch.setattr(kv, "_load", lambda path: read(str(later)))
    with pytest.raises(
        errors.FailedPreconditionError, match=r"load .*/all: all is loaded, .*; load one snapshot, such as"
    ):
        kv.load(folder)
    assert kv._updater.optimizer.num_update == 3, "its own rounds, and no count of the other snapshot"


def test_a_load_that_fails_leaves_the_counts(two_snapshots):
    kv, folder, later = two_snapshots
    step(kv, 1)
    kv.init("more", mx.nd.zeros((1,)))
    with pytest.raises(errors.InvalidArgumentError, match="more"):
        kv.load(later)
    with pytest.raises(errors.SnapshotNotFoundError):
        kv.load(folder / "000009")
    assert kv._updater.optimizer.num_update == 1


def test_states_that_another_save_may_have_replaced_give_no_counts(two_snapshots, monkeypatch):
    kv, folder, later = two_snapshots
    read = kv._load_states

    def load(path):
        read(path)
        (later / "000002").rename(folder / "000002")

    monkeypatch.setattr(kv, "_load_states", load)
    with pytest.raises(errors.FailedPreconditionError, match="load_optimizer_states .*another snapshot was saved"):
        kv.load_optimizer_states(folder)
    monkeypatch.undo()
    kv.load_optimizer_states(folder / "000002")
    assert kv._updater.optimizer.num_update == 3


def test_a_store_that_loads_owes_nothing_of_later_pushes(make, tmp_path):
    """Residuals of compression are not saved: a store that has gone on is as a new one after a load."""

    def store():
        kv = make()
        if kv.type == "local":
            kv = mx.kv.create("device")
        kv.init("w", mx.nd.zeros((4,)))
        kv.set_gradient_compression({"type": "2bit", "threshold": 1.0})
        return kv

    with store() as kv:
        kv.push("w", mx.nd.full((4,), 1.25))
        kv.push("w", mx.nd.full((4,), 0.75))
        saved = kv.save(tmp_path)
        kv.push("w", mx.nd.full((4,), 0.75))
        kv.load(saved)
        kv.push("w", mx.nd.full((4,), 0.5))
        gone_on = kv.pull("w").asnumpy().tolist()
    with store() as kv:
        kv.load(saved)
        kv.push("w", mx.nd.full((4,), 0.5))
        assert kv.pull("w").asnumpy().tolist() == gone_on == [0] * 4


def test_states_of_python_code_are_for_the_code_that_keeps_them(tmp_path):
    """A store with another updater, or none, refuses them by name and stays as it was."""
    with mx.kv.create() as kv:
        fill(kv, None)
        kv.set_updater(momentum_of(kv))
        step(kv, 1)
        saved = kv.save(tmp_path)
    for make_other in (lambda: mx.kv.create(), lambda: mx.kv.create("dist_sync", bootstrap="self")):
        with make_other() as kv:
            fill(kv, None)
            with pytest.raises(errors.FailedPreconditionError, match="states of an updater that is Python code"):
                kv.load(saved)
    with mx.kv.create() as kv:
        fill(kv, None)
        kv.set_optimizer(Heavy())
        step(kv, 1)
        before = values(kv)
        with pytest.raises(errors.InvalidArgumentError, match="the states are those of a function"):
            kv.load(saved)
        assert same(values(kv), before)


def test_a_snapshot_from_before_the_first_update_takes_the_states_away(tmp_path):
    with mx.kv.create() as kv:
        fill(kv, None)
        kv.set_updater(momentum_of(kv))
        saved = kv.save(tmp_path)
        step(kv, 1)
        expected = values(kv)
        kv.load(saved)
        step(kv, 1)
        assert same(values(kv), expected)


def test_states_that_cannot_be_saved_are_an_error_and_no_snapshot(tmp_path):
    class Odd(Heavy):
        def create_state(self, index, weight):
            return (mx.nd.zeros(weight.shape), {"numpy": np.zeros(weight.shape, "f8"), "odd": object()})

    with mx.kv.create() as kv:
        fill(kv, None)
        kv.set_optimizer(Odd())
        step(kv, 1)
        with pytest.raises(errors.UnimplementedError, match="save: the state of 'w' has a object in it"):
            kv.save(tmp_path)
        assert not list(tmp_path.glob("0*"))


PROGRAM = "program mom\nparam rate 1\nstate m\nx = mul sum rate\nm1 = add m x\ny = add value m1\nm <- m1\nvalue <- y\n"


def test_the_same_update_that_is_set_again_keeps_its_states(make):
    def ends(*between):
        with make() as kv:
            kv.init(["w", "x"], [mx.nd.zeros((1,))] * 2)
            kv.init_table("rows", 1)
            first = mx.Program(PROGRAM)
            kv.set_optimizer(first)
            for n in range(4):
                kv.push(["w", "x"], [mx.nd.ones((1,))] * 2)
                kv.push_rows("rows", [3], np.ones((1, 1), "f4"))
                for act in between if n == 1 else ():
                    act(kv)
            return [kv.pull("w").asscalar(), kv.pull_rows("rows", [3]).asscalar()]

    def program(**params):
        made = mx.Program(PROGRAM)
        for name, value in params.items():
            made.set_param(name, value)
        return made

    straight = ends()
    assert straight == [10, 10]
    assert ends(lambda kv: kv.set_optimizer(program())) == straight
    assert ends(lambda kv: kv.set_updater(program(rate=1))) == straight
    later = program()
    assert ends(lambda kv: kv.set_optimizer(later), lambda kv: later.set_param("rate", 2)) == [1 + 2 + 4 + 6] * 2
    assert ends(lambda kv: kv.set_optimizer(program(rate=2))) == [3 + 2 + 4] * 2  # another one begins anew
    assert ends(lambda kv: kv.set_optimizer(mx.optimizer.Test()), lambda kv: kv.set_optimizer(program())) == [6, 6]


def test_the_same_function_that_is_set_again_keeps_its_states(make):
    def ends(other):
        with make() as kv:
            kv.init("w", mx.nd.zeros((1,)))
            functions = [momentum_of(kv), lambda key, grad, weight: weight.__isub__(grad)]
            kv.set_updater(functions[0])
            for n in range(4):
                kv.push("w", mx.nd.ones((1,)))
                if n == 1:
                    kv.set_updater(functions[other])
            return kv.pull("w").asscalar()

    straight = ends(0)
    with mx.kv.create() as kv:
        kv.init("w", mx.nd.zeros((1,)))
        kv.set_updater(momentum_of(kv))
        for _ in range(4):
            kv.push("w", mx.nd.ones((1,)))
        assert kv.pull("w").asscalar() == straight != ends(1)


def test_pushes_go_on_while_a_thread_writes(make, tmp_path):
    with make() as kv:
        fill(kv)
        step(kv, 1)
        then = values(kv)
        ticket = kv.save(tmp_path, async_op=True)
        for n in range(10):
            step(kv, n)
        ticket.wait()
        kv.load(tmp_path)
        assert same(values(kv), then)


def test_a_ticket_says_which_snapshot_was_saved(make, tmp_path):
    with make() as kv:
        fill(kv)
        paths = [kv.save(tmp_path, async_op=True).wait(), kv.save(tmp_path)]
        assert paths == [str(tmp_path / "000001"), str(tmp_path / "000002")]

        async def save():
            return await kv.save(tmp_path, async_op=True)

        assert asyncio.run(save()) == str(tmp_path / "000003")


def test_a_ticket_keeps_the_store_that_saves_until_it_has_saved(make, tmp_path):
    kv = make()
    kv.init("w", mx.nd.ones((8 << 20,)))
    ticket = kv.save(tmp_path, async_op=True)
    seen = weakref.ref(kv)
    del kv
    ticket.wait()
    gc.collect()
    assert seen() is None, "the ticket keeps it no longer"
    with make() as later:
        later.init("w", mx.nd.zeros((8 << 20,)))
        assert later.load(tmp_path) == {"w": 0}


def test_a_store_that_is_dropped_while_it_saves_finishes_or_says_that_it_did_not(tmp_path, caplog):
    kv = mx.kv.create("dist_sync", bootstrap="self")
    kv.init("w", mx.nd.ones((8 << 20,)))
    kv.save(tmp_path, async_op=True)
    del kv
    gc.collect()
    mx.kv.create().close()  # tells what is to be told
    is_told = "a store was dropped without close() while it saved, and there is no snapshot" in caplog.text
    assert is_told != (tmp_path / "000001").is_dir()


def test_damage_names_the_file_and_the_key(make, tmp_path):
    with make() as kv:
        fill(kv)
        folder = kv.save(tmp_path)
        file = os.path.join(folder, "model-00001-of-00001.safetensors")
        with open(file, "r+b") as opened:
            opened.seek(-1, os.SEEK_END)
            opened.write(b"\x01")
        before = values(kv)
        with pytest.raises(errors.DataLossError) as caught:
            kv.load(tmp_path)
        assert file in str(caught.value)
        assert "'b'" in str(caught.value)
        assert same(values(kv), before)


def test_a_folder_that_cannot_be_made_is_named(make, tmp_path):
    (tmp_path / "file").write_text("x")
    with make() as kv:
        fill(kv)
        with pytest.raises(errors.FailedPreconditionError, match="file"):
            kv.save(tmp_path / "file" / "snapshots")


def test_a_umask_without_any_right_is_an_error_of_that_save_alone(make):
    """A user may not write into the folder that `save` has made so; root may, and is another user here."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder, make() as kv:
        os.chmod(folder, 0o777)
        fill(kv)
        step(kv, 1)
        kv.save(f"{folder}/before")  # another user may be unable to import modules
        user, mask = os.geteuid(), os.umask(0o777)
        try:
            os.seteuid(nobody if user == 0 else user)
            with pytest.raises(errors.FailedPreconditionError, match="save: .*/closed: open: Permission denied"):
                kv.save(f"{folder}/closed")
        finally:
            os.seteuid(user)
            os.umask(mask)
        expected = values(kv)
        kv.save(f"{folder}/after")
        step(kv, 2)
        kv.load(f"{folder}/after")
        assert same(values(kv), expected)


def test_a_relative_folder_is_that_of_the_call(make, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with make() as kv:
        kv.init("w", mx.nd.ones((1 << 20,)))
        ticket = kv.save("here", async_op=True)
        monkeypatch.chdir(tmp_path / "other")
        ticket.wait()
        assert (tmp_path / "here" / "000001").is_dir()
        assert kv.load(os.fsencode(tmp_path / "here")) == {"w": 0}


def test_the_folder_of_a_store_that_saves_by_itself_stays(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with mx.kv.create("dist_sync", bootstrap="self", snapshots="here", snapshot_every="1") as kv:
        monkeypatch.chdir(tmp_path / "other")
        kv.init("w", mx.nd.ones((2,)))
        kv.push("w", mx.nd.ones((2,)))
        kv.pull("w")
        kv.push("w", mx.nd.ones((2,)))
    assert (tmp_path / "here").is_dir() and not (tmp_path / "other" / "here").exists()


@pytest.mark.parametrize("path", [b"\xff", "\udcff", 3, None, ""])
def test_what_is_no_path_is_an_error_of_the_verb(make, path):
    with make() as kv:
        kv.init("w", mx.nd.ones((2,)))
        for verb in ("save", "load", "save_optimizer_states", "load_optimizer_states"):
            with pytest.raises(errors.InvalidArgumentError, match=f"^{verb}: .*a path, as text of UTF-8, is needed"):
                getattr(kv, verb)(path)


def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_snapshot(tmp_path):
    script = textwrap.dedent(
        """
        import sys, tensorkv as mx
        kv = mx.kv.create()
        kv.init("w", mx.nd.zeros((500_000,)))
        for n in range(1, 10_000):
            kv.push("w", mx.nd.ones((500_000,)) * n)
            kv.save(sys.argv[1])
            print(n, flush=True)
        """
    )
    for seen in (1, 3, 4):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if int(line) == seen:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with mx.kv.create() as kv:
            kv.init("w", mx.nd.zeros((500_000,)))
            kv.load(tmp_path)
            out = mx.nd.zeros((500_000,))
            kv.pull("w", out=out)
            found = out.asnumpy()
            assert found.min() == found.max() >= seen


def table_step(kv, n):
    ids = np.array([n, 7, 2**62 + n, 7])
    kv.push_rows("users", ids, np.full((4, 3), n + 1, np.float32))
    kv.push("sparse", mx.nd.sparse.row_sparse_array(([[1.0, 2.0]], [n]), shape=(10, 2)))


def table_values(kv):
    ids = np.array([0, 1, 2, 3, 4, 5, 7, 99, *(2**62 + n for n in range(5))])
    return [kv.pull_rows("users", ids), kv.pull("sparse").asnumpy()]


@pytest.mark.parametrize("lazy", [True, False])
def test_tables_go_on_where_they_were(make, tmp_path, lazy):
    def fill_tables(kv):
        kv.init_table("users", dim=3, initializer=mx.init.Constant(0.5))
        kv.init("sparse", mx.nd.zeros((10, 2), stype="row_sparse"))
        kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.1, lazy_update=lazy))

    with make() as kv:
        fill_tables(kv)
        for n in range(3):
            table_step(kv, n)
        kv.save(tmp_path / "snapshots")
        then = table_values(kv)
        table_step(kv, 3)
        expected = table_values(kv)
        kv.load(tmp_path / "snapshots")
        assert same(table_values(kv), then)
        table_step(kv, 3)
        assert same(table_values(kv), expected)
    with make() as kv:
        fill_tables(kv)
        kv.load(tmp_path / "snapshots")
        assert same(table_values(kv), then)
        table_step(kv, 3)
        assert same(table_values(kv), expected)
        kv.save_optimizer_states(tmp_path / "states")
        kv.load_optimizer_states(tmp_path / "states")
        assert same(table_values(kv), expected)
    with make() as kv:
        kv.init_table("users", dim=3, initializer=mx.init.Constant(1))
        kv.init("sparse", mx.nd.zeros((10, 2), stype="row_sparse"))
        with pytest.raises(errors.InvalidArgumentError, match="rows begin as 0.5 in"):
            kv.load(tmp_path / "snapshots")
    index = json.loads((tmp_path / "snapshots" / "000001" / "model.safetensors.index.json").read_text())
    assert index["format"] == 2 and "users#ids" in index["weight_map"]


@pytest.mark.parametrize("kind", ["local", "dist_sync"])
def test_a_load_into_a_store_that_lacks_keys_says_to_init_them(kind, tmp_path):
    options = {"bootstrap": "self"} if kind == "dist_sync" else {}
    keys = ["a", "b", "c"]
    with mx.kv.create(kind, **options) as kv:
        kv.init(keys, [np.ones(2)] * 3)
        kv.save(tmp_path)
    for had, text in (
        (["a", "c"], "key 'b', which the store does not have; init it first$"),
        (["a"], "key 'b' and 1 others, which the store does not have; init them first$"),
    ):
        with mx.kv.create(kind, **options) as kv:
            kv.init(had, [np.zeros(2)] * len(had))
            with pytest.raises(mx.errors.InvalidArgumentError, match=text):
                kv.load(tmp_path)
            assert kv.pull("a").asnumpy().tolist() == [0, 0]
