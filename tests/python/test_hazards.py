"""Arrays that a store reads and writes while the program continues: no foreign bytes are sent, and none are lost.

Worker 1 of these jobs pushes when the test permits it. Until then the second push of worker 0 waits in worker 0's own
arrays, and its pulls wait for their values: operations stay under way for as long as the test wants.
"""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorkv as mx
from hazard_arrays import NEUTRAL, READERS, WRITERS
from hazard_partners import NoPartner, ThreadPartner
from hazard_programs import LATE_PATIENCE, Wrong, check_programs
from tensorkv.errors import DeadlineExceededError

pytestmark = pytest.mark.edges
COUNT = 1000
PROGRAMS = int(os.environ.get("TKV_TEST_HAZARD_PROGRAMS", 500))
PER_JOB = 25


class Held:
    """A job whose worker 0 is the test's and whose worker 1 pushes 100 in each round, when it is let."""

    def __init__(self, **options):
        self.job = mx.testing.cluster(workers=2, **options)
        self.kv, self.other = self.job.store(0), None
        self.sums = []
        self._wanted = threading.Semaphore(0)
        self._is_over = False
        self._thread = threading.Thread(target=self._push_when_let)
        self._thread.start()

    def _push_when_let(self):
        self.other = self.job.store(1)
        value = mx.nd.full((COUNT,), 100)
        self.other.init("w", mx.nd.zeros((COUNT,)))
        while True:
            self._wanted.acquire()
            if self._is_over:
                return
            out = mx.nd.zeros((COUNT,))
            self.other.pushpull("w", value, out=out)
            self.sums.append(out.asnumpy())

    def let(self, rounds):
        """Let worker 1 push so many rounds."""
        for _ in range(rounds):
            self._wanted.release()

    def hold(self, array=None):
        """Push once, so that what follows waits for worker 1; then push the array."""
        self.kv.push("w", mx.nd.ones((COUNT,)))
        if array is not None:
            self.kv.push("w", array)

    def during(self, action, rounds):
        """Run an action that may have to wait for `rounds` rounds; let them pass once it waits or has returned."""
        result = []
        thread = threading.Thread(target=lambda: result.append(action()))
        thread.start()
        thread.join(0.05)  # an action that does not wait when it has to is done by now
        self.let(rounds)
        thread.join(30)
        assert not thread.is_alive() and result, "the action has not come to its end"
        return result[0]

    def close(self):
        """End worker 1 and the job."""
        self._is_over = True
        self._wanted.release()
        self._thread.join()
        self.job.close()


@pytest.fixture
def held():
    """A held job with the key w."""
    held = Held(patience=30)
    held.kv.init("w", mx.nd.zeros((COUNT,)))
    yield held
    held.close()


def set_by_address(a):
    """Write by the address alone."""
    memory = (ctypes.c_float * COUNT).from_address(a.data_ptr)
    memory[:] = [777.0] * COUNT


def by_torch(a):
    """Write through PyTorch."""
    import torch

    torch.from_dlpack(a).fill_(777)


def in_place(a):
    """Write by arithmetic."""
    a *= 0
    a += 777


def set_all(a):
    """Write one number to all elements."""
    a[:] = 777


def set_each(a):
    """Write to single elements and rows."""
    for i in range(COUNT):
        a[i] = 777


def set_array(a):
    """Write another array."""
    a[:] = mx.nd.full((COUNT,), 777)


def set_view(a):
    """Write to a view of the memory."""
    a.reshape(10, 100)[:] = 777


def set_numpy(a):
    """Write through NumPy."""
    np.asarray(a)[:] = 777


def set_dlpack(a):
    """Write through DLPack."""
    np.from_dlpack(a)[...] = 777


def copy_to(a):
    """Write by a copy."""
    mx.nd.full((COUNT,), 777).copyto(a)


WRITES = [set_all, set_each, set_array, set_view, set_numpy, set_dlpack, set_by_address, in_place, copy_to]
WRITES.append(pytest.param(by_torch, marks=pytest.mark.framework))


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
class TestAnArrayThatIsPushed:
    def test_is_sent_as_it_was(self, held, write):
        a = mx.nd.full((COUNT,), 10)
        held.hold(a)
        held.during(lambda: (write(a), True), 2)
        assert held.kv.pull("w").asnumpy().tolist() == [110] * COUNT
        assert a.asnumpy().tolist() == [777] * COUNT

    def test_is_sent_as_it_was_by_an_asynchronous_pushpull(self, held, write):
        a, out = mx.nd.full((COUNT,), 10), mx.nd.zeros((COUNT,))
        held.hold()
        ticket = held.kv.pushpull("w", a, out=out, async_op=True)
        held.during(lambda: (write(a), True), 2)
        assert out.asnumpy().tolist() == [110] * COUNT
        ticket.wait()

    def test_is_nobody_elses_until_a_pull_has_filled_it(self, held, write):
        a = mx.nd.full((COUNT,), 10)
        held.hold()
        ticket = held.kv.pull("w", out=a, async_op=True)
        held.during(lambda: (write(a), True), 1)
        ticket.wait()
        assert a.asnumpy().tolist() == [777] * COUNT


READS = {
    "asnumpy": lambda a: a.asnumpy(),
    "arithmetic": lambda a: (a + 0).asnumpy(),
    "copy": lambda a: a.copy().asnumpy(),
    "astype": lambda a: a.astype("float64").asnumpy(),
    "astype_int": lambda a: a.astype("int32").asnumpy(),
    "numpy": lambda a: np.array(a),
    "dlpack": lambda a: np.from_dlpack(a).copy(),
    "list": lambda a: a.tolist(),
    "rows": lambda a: [float(row) for row in a],
    "view": lambda a: a.reshape(10, 100)[0:10].reshape(COUNT).asnumpy(),
    "copyto": lambda a: a.copyto(mx.nd.zeros((COUNT,))).asnumpy(),
    "sum": lambda a: [a.sum().asscalar() / COUNT] * COUNT,
    "mean": lambda a: [a.mean().asscalar()] * COUNT,
    "function": lambda a: mx.nd.abs(a).asnumpy(),
    "wait_to_read": lambda a: (a.wait_to_read(), a.asnumpy())[1],
    "waitall": lambda a: (mx.nd.waitall(), a.asnumpy())[1],
    "item": lambda a: [a[0].item()] * COUNT,
    "setitem": lambda a: [mx.nd.zeros((COUNT,)).__setitem__(slice(None), a)] and a.tolist(),
}


@pytest.mark.parametrize("how", READS)
def test_reading_waits_for_an_asynchronous_pull(held, how):
    a = mx.nd.full((COUNT,), 10)
    held.hold()
    ticket = held.kv.pull("w", out=a, async_op=True)
    assert list(held.during(lambda: READS[how](a), 1)) == [101] * COUNT
    ticket.wait()


@pytest.mark.parametrize("how", ["wait_to_read", "waitall"])
def test_when_a_wait_has_returned_the_pull_is_done(held, how):
    a = mx.nd.full((COUNT,), 10)
    held.hold()
    ticket = held.kv.pull("w", out=a, async_op=True)
    wait = a.wait_to_read if how == "wait_to_read" else mx.nd.waitall
    assert held.during(lambda: (wait(), ticket.done())[1], 1)


def test_strided_outputs_are_waited_for_too(held):
    memory = np.zeros(2 * COUNT, np.float32)
    a = mx.nd.from_numpy(memory[::2])
    held.hold()
    ticket = held.kv.pull("w", out=a, async_op=True)
    assert held.during(lambda: a.tolist(), 1) == [101] * COUNT
    ticket.wait()
    assert not memory[1::2].any()


@pytest.mark.parametrize("verb", ["push", "pushpull"])
@pytest.mark.parametrize("is_async", [False, True])
def test_arrays_of_others_are_free_when_the_call_returns(held, verb, is_async):
    if verb == "pushpull" and not is_async:
        pytest.skip("waits for its end")
    a, out = np.full(COUNT, 10, np.float32), np.zeros(COUNT, np.float32)
    held.hold()
    outs = {"out": out} if verb == "pushpull" else {}
    ticket = getattr(held.kv, verb)("w", a, async_op=is_async, **outs)
    a[:] = 777
    held.let(2)
    if ticket is not None:
        ticket.wait()
    assert held.kv.pull("w").asnumpy().tolist() == [110] * COUNT


def test_an_exported_array_is_free_when_a_push_returns(held):
    a = mx.nd.full((COUNT,), 10)
    view = np.asarray(a)
    held.hold(a)
    view[:] = 777
    held.let(2)
    assert held.kv.pull("w").asnumpy().tolist() == [110] * COUNT


def test_a_look_at_the_elements_does_not_make_an_array_foreign(held):
    a = mx.nd.full((COUNT,), 10)
    a[3] = 10
    a.asnumpy()
    assert str(a) and a.tolist()
    held.hold(a)
    held.during(lambda: (a.__setitem__(3, 777), True), 2)
    assert held.kv.pull("w").asnumpy().tolist() == [110] * COUNT


@pytest.mark.parametrize("kind", ["nd", "numpy"])
@pytest.mark.parametrize("has_left", [True, False])
def test_a_pushpull_that_has_failed_reads_and_writes_nothing_any_more(kind, has_left):
    make = mx.nd.array if kind == "nd" else np.array
    a, out = make(np.full(COUNT, 10, np.float32)), make(np.full(COUNT, 5, np.float32))
    with contextlib.closing(Held(patience=2)) as held:
        held.kv.init("w", mx.nd.zeros((COUNT,)))
        if not has_left:
            held.hold()
        with pytest.raises(DeadlineExceededError):
            held.kv.pushpull("w", a, out=out)
        a[:] = 777
        out[:] = 3
        held.let(held.kv.round("w"))
        held.kv.pull("w")
    assert held.sums[-1].tolist() == [110 if has_left else 101] * COUNT
    assert np.asarray(out).tolist() == [3] * COUNT


# ---------------------------------------------------------------------------------------------------- random programs


def test_every_public_member_of_an_array_is_in_the_tables():
    own = {name for cls in mx.nd.NDArray.__mro__[:-1] for name in vars(cls)}
    public = {name for name in own if not name.startswith("_") or (name.startswith("__") and name.endswith("__"))}
    ignored = {
        "__init__",
        "__new__",
        "__annotations__",
        "__nb_signature__",
        "__firstlineno__",
        "__static_attributes__",
        "__weakref__",
    }
    assert public - ignored - set(WRITERS) - set(READERS) - NEUTRAL == set()
    assert set(WRITERS) | set(READERS) <= public


def seeds(share, offset):
    """Return the seeds of a kind of store, in parts of one job each."""
    count = max(int(PROGRAMS * share), 1)
    return [range(offset + at, offset + min(at + PER_JOB, count)) for at in range(0, count, PER_JOB)]


def test_programs_among_threads():
    for part in seeds(0.55, 0):
        with mx.testing.cluster(workers=2, patience=20) as job:
            check_programs(part, job.store(0), ThreadPartner(job.store(1)))


@pytest.mark.parametrize("servers", [1, 3])
def test_programs_whose_calls_fail(servers):
    for part in seeds(0.02, servers << 20):
        with mx.testing.cluster(workers=2, servers=servers, patience=LATE_PATIENCE) as job:
            check_programs(part, job.store(0), ThreadPartner(job.store(1)), is_late=True)


def test_programs_of_a_local_store():
    for part in seeds(0.2, 1 << 30):
        with mx.kv.create("local") as kv:
            check_programs(part, kv, NoPartner())


def test_programs_of_a_job_of_one():
    for part in seeds(0.1, 2 << 30):
        with mx.kv.create("dist_sync", bootstrap="self", servers=2) as kv:
            check_programs(part, kv, NoPartner())


@pytest.mark.parametrize("kind", ["auto", "tcp", "late"])
def test_programs_among_processes(kind, tmp_path):
    share = {"auto": 0.07, "tcp": 0.05, "late": 0.01}[kind]
    offset = {"auto": 3, "tcp": 4, "late": 5}[kind] << 30
    count = max(int(PROGRAMS * share), 1)
    command = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "1", *(["--tcp"] if kind == "tcp" else [])]
    script = [sys.executable, str(pathlib.Path(__file__).with_name("hazard_job.py"))]
    arguments = [str(tmp_path / "partner"), str(offset), str(count), *(["late"] if kind == "late" else [])]
    run = subprocess.run([*command, *script, *arguments], capture_output=True, text=True, timeout=60 + count)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{count} programs" in run.stdout


def test_a_program_that_is_wrong_is_told_with_its_seed_and_its_shortest_form(monkeypatch):
    monkeypatch.setitem(READERS, "asnumpy", lambda a: a.asnumpy() + 1)
    for name in READERS:
        monkeypatch.setitem(READERS, name, READERS["asnumpy"])
    with mx.kv.create("local") as kv, pytest.raises(Wrong, match=r"seed \d+: [\s\S]*shortest program") as wrong:
        check_programs(range(20), kv, NoPartner())
    assert str(wrong.value).count("\n    (") == 1
