"""Distributed stores among the threads of one process, used as by several workers."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import tensorkv as mx
from tensorkv.errors import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    KeyNotFoundError,
    UnavailableError,
)


def run(function, workers=3, servers=2, **options):
    """Return the result of ``function(kv)`` on each worker."""
    with mx.testing.cluster(workers=workers, servers=servers, **options) as job:
        return job.run(function)


def test_every_verb_on_every_worker():
    def work(kv):
        kv.init([1, 2], [mx.nd.zeros((3,)), mx.nd.ones((2, 2))])
        kv.push([1, 2], [[mx.nd.ones((3,))] * 2, mx.nd.ones((2, 2)) * kv.rank])
        first, second = kv.pull([1, 2])
        out = [mx.nd.zeros((3,)), mx.nd.zeros((3,), mx.cpu(1))]
        kv.pushpull(1, mx.nd.ones((3,)) * 5, out=out)
        kv.broadcast(9, mx.nd.ones((2,)) * 7, out=out[:0] or [mx.nd.zeros((2,))])
        kv.barrier()
        return first.asnumpy()[0], second.asnumpy()[0, 0], out[1].asnumpy()[2], kv.pull(9).asnumpy()[0], kv.num_workers

    assert run(work) == [(6, 3, 15, 7, 3)] * 3


def test_numpy_arrays_may_change_after_a_push():
    def work(kv):
        kv.init("w", np.zeros(300_000, np.float32))
        value = np.empty(300_000, np.float32)
        for i in range(1, 6):
            value[:] = i
            kv.push("w", value)
            value[:] = -1
        result = np.empty_like(value)
        kv.pull("w", out=result)
        return set(result.tolist())

    assert run(work, workers=2) == [{10.0}, {10.0}]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_an_optimizer_gives_what_a_local_store_gives(name):
    grads = [np.random.default_rng(i).standard_normal((7, 5)).astype(np.float32) for i in range(4)]
    local = mx.kv.create("local")
    local.init("w", mx.nd.ones((7, 5)))
    local.set_optimizer(mx.optimizer.create(name, learning_rate=0.1))
    for _ in range(6):
        local.push("w", [mx.nd.array(g) for g in grads])

    def work(kv):
        kv.init("w", mx.nd.ones((7, 5)))
        kv.set_optimizer(mx.optimizer.create(name, learning_rate=0.1))
        for _ in range(6):
            kv.push("w", mx.nd.array(grads[kv.rank]))
        return kv.pull("w").asnumpy()

    for result in run(work, workers=4, deterministic=True):
        np.testing.assert_array_equal(result, local.pull("w").asnumpy())


def test_a_changed_learning_rate_counts_from_the_next_push():
    def work(kv):
        kv.init("w", mx.nd.zeros((1,)))
        sgd = mx.optimizer.SGD(learning_rate=1)
        kv.set_optimizer(sgd)
        kv.pushpull("w", mx.nd.ones((1,)), out=(a := mx.nd.zeros((1,))))
        sgd.set_learning_rate(10)
        kv.pushpull("w", mx.nd.ones((1,)), out=(b := mx.nd.zeros((1,))))
        return a.asscalar(), b.asscalar()

    assert run(work, workers=2) == [(-2, -22)] * 2


def test_tickets():
    def work(kv):
        kv.init("w", mx.nd.zeros((4,)))
        pushed = kv.push("w", mx.nd.ones((4,)), async_op=True)
        pulled = kv.pull("w", async_op=True)
        value = pulled.wait(timeout=10).asnumpy()[0]
        pushed.wait()
        assert pushed.done() and pulled.done()

        async def awaited():
            out = mx.nd.zeros((4,))
            await kv.pushpull("w", mx.nd.ones((4,)) * 2, out=out, async_op=True)
            return out.asnumpy()[0]

        return value, asyncio.run(awaited())

    assert run(work, workers=2) == [(2, 4)] * 2


def test_a_ticket_that_is_not_done_in_time():
    with mx.testing.cluster(workers=2) as job:
        first, second = job
        threads = [threading.Thread(target=kv.init, args=("w", mx.nd.zeros((1,)))) for kv in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ticket = first.pushpull("w", mx.nd.ones((1,)), async_op=True)
        with pytest.raises(DeadlineExceededError):
            ticket.wait(timeout=0.05)
        assert not ticket.done()
        second.push("w", mx.nd.ones((1,)))
        ticket.wait()


def test_async_keys_beside_sync_keys():
    def work(kv):
        kv.init("sync", mx.nd.zeros((1,)))
        kv.init("async", mx.nd.zeros((1,)), mode="async")
        kv.set_optimizer(mx.optimizer.create("test"))
        kv.barrier()
        for _ in range(3 + kv.rank):
            kv.push("async", mx.nd.ones((1,)))
        kv.push("sync", mx.nd.ones((1,)))
        kv.barrier()
        return kv.pull("sync").asscalar(), kv.pull("async").asscalar()

    assert run(work, workers=2) == [(2, 7)] * 2
    with mx.testing.cluster(workers=1) as job, pytest.raises(InvalidArgumentError, match="mode 'lazy'"):
        job.store(0).init("w", mx.nd.zeros((1,)), mode="lazy")


def test_a_round_counts_the_pushes_that_wait_for_others():
    has_counted = threading.Event()

    def work(kv):
        kv.init("w", mx.nd.zeros((2,)))
        if kv.rank == 1:
            assert has_counted.wait(20)
        for expected in (1, 2, 3):
            kv.push("w", mx.nd.ones((2,)))
            assert kv.round("w") == expected
        has_counted.set()
        return kv.pull("w").asnumpy().tolist()

    assert run(work, workers=2) == [[2, 2]] * 2


def test_delete_and_init_anew():
    def work(kv):
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)))
        kv.barrier()
        kv.delete("w")
        kv.barrier()
        with pytest.raises(KeyNotFoundError):
            kv.pull("w")
        kv.init("w", mx.nd.ones((3,)) * 4)
        return kv.pull("w").asnumpy().tolist(), kv.round("w")

    assert run(work) == [([4, 4, 4], 0)] * 3


def test_a_mistake_with_delete_costs_that_key_and_nothing_else():
    is_anew = threading.Event()

    def work(kv):
        kv.init(["w", "other"], [np.zeros(2, np.float32), np.zeros(2, np.float32)])
        for _ in range(2):
            kv.pushpull(["w", "other"], [np.ones(2, np.float32)] * 2)
        kv.barrier()
        if kv.rank == 0:  # without the others
            kv.delete("w")
            kv.init("w", np.zeros(3, np.float32))
            is_anew.set()
        else:
            assert is_anew.wait(30)
            with pytest.raises(FailedPreconditionError, match="pull 'w': .*every worker calls delete"):
                kv.pull("w")
            kv.delete("w")
            kv.init("w", np.zeros(3, np.float32))
        kv.push(["w", "other"], [np.ones(3, np.float32), np.ones(2, np.float32)])
        return [value.asnumpy().tolist() for value in kv.pull(["w", "other"])], kv.round("w"), kv.round("other")

    assert run(work, workers=2) == [([[2.0] * 3, [2.0] * 2], 1, 3)] * 2


def test_errors_name_key_and_worker():
    with mx.testing.cluster(workers=2, patience=2) as job:
        first, second = job
        first.init("w", mx.nd.zeros((1,)))
        first.push("w", mx.nd.ones((1,)))
        with pytest.raises(DeadlineExceededError, match=r"pull 'w': waited \d\.\d s for worker 1 \(alive\), round 1"):
            first.pull("w")
        with pytest.raises(InvalidArgumentError, match=r"\(2,\)"):
            second.init("w", mx.nd.zeros((2,)))
        with pytest.raises(AlreadyExistsError):
            first.init("w", mx.nd.zeros((1,)))


def test_a_dead_server_is_named():
    with mx.testing.cluster(workers=1, servers=2, server_patience=0.5) as job:
        kv = job.store(0)
        kv.init(list(range(6)), [mx.nd.zeros((1,))] * 6)
        job.kill_server(0)
        failures = []
        for key in range(6):
            try:
                kv.pull(key)
            except UnavailableError as error:
                failures.append(str(error))
        assert 0 < len(failures) < 6
        assert all("server 0" in text for text in failures)


def test_a_later_life_goes_on(caplog):
    caplog.set_level(logging.INFO, "tensorkv")
    with mx.testing.cluster(workers=2, on_death="wait") as job:
        first, second = job
        for kv in (first, second):
            kv.init("w", mx.nd.zeros((1,)))
        for kv in (first, second):
            kv.push("w", mx.nd.ones((1,)))
        assert first.pull("w").asscalar() == 2
        again = job.restart(1)
        assert again.rejoined and not first.rejoined
        again.init("w", mx.nd.zeros((1,)))
        assert again.round("w") == 1
        again.push("w", mx.nd.ones((1,)) * 3)
        first.push("w", mx.nd.ones((1,)) * 4)
        assert again.pull("w").asscalar() == 7
        with pytest.raises(mx.errors.AbortedError):
            second.pull("w")
        second.close()
    assert any("worker 1 joined" in record.message and "again" in record.message for record in caplog.records)


def test_a_later_life_counts_its_own_pushes_of_asynchronous_keys_and_leaves_passed_barriers_out():
    with mx.testing.cluster(workers=2, mode="dist_async", on_death="wait") as job:
        first, second = job
        for kv in (first, second):
            kv.init("w", mx.nd.zeros((1,)))
            kv.push("w", mx.nd.ones((1,)))
            kv.pull("w")
        ticket = first.barrier(async_op=True)
        second.barrier()
        ticket.wait()
        again = job.restart(1)
        again.init("w", mx.nd.zeros((1,)))
        assert again.rejoined and again.round("w") == 0 and first.round("w") == 1
        ticket = first.barrier(async_op=True)
        again.barrier()  # the second one of both
        ticket.wait()
        second.close()


def test_an_optimizer_that_is_set_before_init_counts_for_the_first_push_of_everybody():
    with mx.testing.cluster(workers=2, servers=2, mode="dist_async") as job:
        first, second = job
        second.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
        ticket = second.init("w", mx.nd.ones((2,)), async_op=True)  # waits for rank 0
        first.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
        first.init("w", mx.nd.ones((2,)))
        ticket.wait()
        second.push("w", mx.nd.ones((2,)))
        assert second.pull("w").asnumpy().tolist() == [0.5, 0.5]


class OnTelling(logging.Handler):
    """Calls a function, on a thread, when the logger tells a text that matches, up to its first colon."""

    def __init__(self, wanted, call):
        super().__init__()
        self.wanted, self.call, self.count = wanted, call, 0

    def emit(self, record):
        if re.fullmatch(self.wanted, record.getMessage().partition(": ")[0]):
            self.count += 1
            threading.Thread(target=self.call).start()

    def __enter__(self):
        logging.getLogger("tensorkv").addHandler(self)
        return self

    def __exit__(self, *exception):
        logging.getLogger("tensorkv").removeHandler(self)


def test_who_is_awaited_is_told():
    with mx.testing.cluster(workers=2, patience=30) as job:
        first, second = job
        first.init("w3", mx.nd.zeros((1,)))
        second.init("w3", mx.nd.zeros((1,)))
        first.push("w3", mx.nd.ones((1,)))
        wanted = r"still waiting \d+ s for worker 1 \(pull 'w3', round 1\)"
        with OnTelling(wanted, lambda: second.push("w3", mx.nd.ones((1,)))) as told:
            first.pull("w3")
        assert told.count == 1


def test_an_event_loop_is_told_while_it_waits(caplog):
    caplog.set_level(logging.INFO, "tensorkv")
    with mx.testing.cluster(workers=3, patience=30) as job:
        first, second, third = job

        async def main():
            await asyncio.gather(*(kv.init("w", mx.nd.zeros((1,)), async_op=True) for kv in job))
            first.push("w", mx.nd.ones((1,)))
            second.push("w", mx.nd.ones((1,)))
            waiting = first.pull("w", async_op=True)
            asyncio.get_running_loop().run_in_executor(None, second._close)  # tells nothing itself
            return await waiting

        # Worker 2 pushes when the loop has told that worker 1 has left, and no sooner.
        with OnTelling("worker 1 left", lambda: third.push("w", mx.nd.ones((1,)))) as told:
            assert asyncio.run(main()).asnumpy() == [3.0]
        assert told.count == 1


def test_another_mode_than_that_of_rank_0_is_an_error():
    with mx.testing.cluster(workers=2) as job:
        first, second = job
        first.init("w", mx.nd.zeros((1,)))
        with pytest.raises(InvalidArgumentError, match="init 'w': async here, sync in the store; every worker"):
            second.init("w", mx.nd.zeros((1,)), mode="async")
        second.init("w", mx.nd.zeros((1,)))
        second.push("w", mx.nd.ones((1,)))
        first.push("w", mx.nd.ones((1,)))
        assert second.pull("w").asscalar() == 2


def told(caplog):
    """Return the messages of the logger `tensorkv`, with their levels."""
    return [(record.levelname, record.message) for record in caplog.records if record.name == "tensorkv"]


def test_leaving_dying_and_losing_servers_and_the_head_are_told(caplog):
    caplog.set_level(logging.INFO, "tensorkv")
    with mx.testing.cluster(workers=3, servers=2, patience=6, server_patience=1) as job:
        first, second, third = job
        for kv in (first, second, third):
            kv.rank  # joins
        third.close()
        again = job.restart(1)  # fences the life before it
        again.rank
        with pytest.raises(AbortedError, match="this life is over"):
            second.barrier()
        job.kill_server(1)
        keys = [str(i) for i in range(8)]
        with pytest.raises(UnavailableError, match="server 1"):
            first.init(keys, [mx.nd.zeros((1,))] * 8)
        job.kill_head()
        with pytest.raises(DeadlineExceededError, match="create 'dist_sync': waited 6000 ms for the head"):
            job.restart(0).rank
    texts = told(caplog)
    assert any(level == "INFO" and text.startswith("worker 2 joined (incarnation ") for level, text in texts)
    assert ("INFO", "worker 2 left") in texts
    assert any(level == "WARNING" and text.startswith("worker 1: this life is over") for level, text in texts)
    assert ("WARNING", "the head is out of reach; data goes on without it") in texts
    assert any(text.startswith("close: left without a word to the others: the head is out") for _, text in texts)


def begun(kv):
    kv.init(["a", "b"], [mx.nd.zeros((3,))] * 2)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    kv.barrier()
    return kv


def test_a_load_that_fails_on_the_rank_that_reads_fails_on_all_at_once(tmp_path):
    def act(kv):
        begun(kv)
        kv.push(["a", "b"], [mx.nd.ones((3,))] * 2)
        begin = time.monotonic()
        with pytest.raises(mx.errors.SnapshotNotFoundError) as caught:
            kv.load(tmp_path / "none")
        kv.save(tmp_path / "some")
        kv.barrier()
        assert kv.load(tmp_path / "some") == {"a": 1, "b": 1}, "it can be tried again"
        return str(caught.value), time.monotonic() - begin

    texts, times = zip(*run(act, patience=60), strict=True)
    why = f"load: {tmp_path / 'none'}: there is no snapshot"
    assert texts == (why, f"load: worker 0: {why}", f"load: worker 0: {why}")
    assert max(times) < 20


def test_a_load_that_fails_on_another_rank_fails_on_all_and_changes_nothing(tmp_path):
    def act(kv):
        begun(kv)
        kv.save(tmp_path)
        kv.init("c", mx.nd.zeros((1,)))
        kv.barrier()
        if kv.rank == 0:
            kv.delete("c")
        kv.barrier()
        if kv.rank != 0:
            failed = kv.push("c", mx.nd.ones((1,)), async_op=True)
            while not failed.done():
                time.sleep(0.01)
        kv.push(["a", "b"], [mx.nd.ones((3,))] * 2)
        with pytest.raises(mx.KVError) as caught:
            kv.load(tmp_path)
        return str(caught.value), kv.pull("a").asnumpy().tolist()

    texts, values = zip(*run(act, workers=2, patience=60), strict=True)
    why = "load: an earlier call failed: push 'c': no such key"
    assert texts == (f"load: worker 1: {why}", why)
    assert values == ([-2.0] * 3,) * 2


def test_a_worker_that_fails_is_dead_and_has_not_left():
    def act(kv):
        kv.init("w", mx.nd.zeros((1,)))
        kv.pushpull("w", mx.nd.ones((1,)), out=mx.nd.zeros((1,)))
        if kv.rank == 1:
            raise ZeroDivisionError
        with pytest.raises(UnavailableError) as caught:
            kv.pushpull("w", mx.nd.ones((1,)), out=mx.nd.zeros((1,)))
        return str(caught.value)

    with mx.testing.cluster(workers=2) as job, pytest.raises(ZeroDivisionError):
        texts = []
        job.run(lambda kv: texts.append(act(kv)))
    assert texts == ["pushpull 'w': worker 1 is dead; round 2 needs it"]


def test_without_a_launcher_the_ways_to_start_are_named():
    with pytest.raises(FailedPreconditionError, match="or 'self' for a job of this worker alone"):
        mx.kv.create("dist_sync")
    with pytest.raises(InvalidArgumentError, match="bootstrap='moon'"):
        mx.kv.create("dist_sync", bootstrap="moon")
    with pytest.raises(InvalidArgumentError, match="on_death='mourn'"):
        mx.kv.create("dist_sync", bootstrap="self", on_death="mourn")
    with pytest.raises(InvalidArgumentError, match="servers='two'"):
        mx.kv.create("dist_sync", bootstrap="self", servers="two")
    with pytest.raises(InvalidArgumentError):
        mx.testing.cluster(workers=0)
    with mx.testing.cluster(workers=2) as job, pytest.raises(InvalidArgumentError, match="rank 2"):
        job.store(2)


class SharedStore:
    """Holds what processes share, with a fault of its own."""

    def set(self, key, value):
        raise RuntimeError("there is no room")

    def wait(self, keys, timeout):
        pass

    def get(self, key):
        return b"\xff\xfe"


def test_what_goes_wrong_in_a_shared_store_is_an_error_of_the_store():
    with pytest.raises(UnavailableError, match=r"bootstrap: set tensorkv/\d+/job: RuntimeError: there is no room"):
        mx.kv.create("dist_sync", bootstrap=SharedStore(), rank=0, num_workers=2)
    with pytest.raises(DeadlineExceededError, match=r"bootstrap: tensorkv/\d+/job: UnicodeDecodeError"):
        mx.kv.create("dist_sync", bootstrap=SharedStore(), rank=1, num_workers=2, patience=0.3)


# ---------------------------------------------------------------------------------------------------- signals and exits

PRELUDE = """
    import os, signal, sys, threading, time
    import tensorkv as mx
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it
    job = mx.testing.cluster(workers=2)
    first, second = job.store(0), job.store(1)
    first.init('w', mx.nd.zeros((1,))); second.init('w', mx.nd.zeros((1,)))
    def wait_until_asleep(thread, inside):
        # Return when the thread is in that function, and has been seen asleep 20 times in a row, 1 ms apart.
        deadline = time.monotonic() + 30
        seen = 0
        while seen < 20:
            assert time.monotonic() < deadline, 'it does not sleep'
            frame = sys._current_frames().get(thread.ident)
            while frame is not None and frame.f_code is not inside.__code__:
                frame = frame.f_back
            with open(f'/proc/self/task/{thread.native_id}/stat') as stat:
                is_asleep = stat.read().rpartition(')')[2].split()[0] == 'S'
            seen = seen + 1 if is_asleep and frame is not None else 0
            time.sleep(0.001)
    def waiting(call):
        call()
    def interrupt():
        wait_until_asleep(threading.main_thread(), waiting)
        global sent
        sent = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)
    def expect_interrupt(call):
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            waiting(call)
        except KeyboardInterrupt:
            took = time.perf_counter() - sent
            if took >= 0.2:
                print('too late:', took, file=sys.stderr)
                os._exit(3)
        else:
            raise AssertionError('not interrupted')
"""


def script(body, timeout=60):
    """Run a script in a process of its own; return the finished process."""
    text = textwrap.dedent(PRELUDE) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-u", "-c", text], capture_output=True, text=True, timeout=timeout, check=False
    )


def interrupted(body):
    """Run a script, and again, three times in all, where only the interrupt came late: other work had the cores."""
    for _ in range(3):
        done = script(body)
        if done.returncode != 3:
            break
    return done


@pytest.mark.parametrize(
    "call",
    [
        "first.push('w', mx.nd.ones((1,))); expect_interrupt(lambda: first.pull('w'))",
        "expect_interrupt(lambda: first.pushpull('w', mx.nd.ones((1,))))",
        "expect_interrupt(lambda: first.push('w', mx.nd.ones((1,)), async_op=True).wait())",
        "expect_interrupt(first.barrier)",
        "expect_interrupt(lambda: second.init('other', mx.nd.zeros((1,))))",
    ],
)
def test_ctrl_c_wakes_every_wait_and_leaves_the_store_usable(call):
    done = interrupted(call + "\nfirst.init('x', mx.nd.ones((1,))); print(first.pull('x').asscalar()); os._exit(0)")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1.0\n"


def test_ctrl_c_wakes_create():
    done = interrupted("""
        job.kill_head()
        expect_interrupt(lambda: job.restart(1).rank)
        print('woken')
        os._exit(0)
    """)
    assert (done.returncode, done.stdout) == (0, "woken\n"), done.stderr


def test_the_level_of_the_log_comes_from_the_environment():
    done = subprocess.run(
        [sys.executable, "-c", "import tensorkv as mx; mx.kv.create('dist_sync', bootstrap='self').close()"],
        env={**os.environ, "TKV_LOG": "info"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "worker 0 joined" in done.stderr
    assert "worker 0 left" in done.stderr


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('oops')", 1),
        (
            "thread = threading.Thread(target=waiting, args=(first.barrier,), daemon=True); "
            "thread.start(); wait_until_asleep(thread, waiting)",
            0,
        ),
        ("del job; keep = first", 0),
    ],
)
def test_every_end_of_a_script_is_an_end(end, status):
    begin = time.monotonic()
    done = script("first.push('w', mx.nd.ones((1,))); second.push('w', mx.nd.ones((1,)))\n" + end)
    assert done.returncode == status, done.stderr
    assert "Fatal" not in done.stderr and "terminate" not in done.stderr
    assert time.monotonic() - begin < 30


def test_a_failure_nobody_saw_makes_the_exit_status_non_zero():
    done = script("""
        second.close()
        first.push('w', mx.nd.ones((1,)))
        ticket = first.push('w', mx.nd.ones((1,)), async_op=True)
        ended = threading.Event()
        ticket.add_done_callback(lambda ticket: ended.set())  # looks at nothing
        assert ended.wait(30)
    """)
    assert done.returncode == 1
    assert "worker 1 left after round 0" in done.stderr


def test_a_store_of_the_parent_is_refused_in_a_fork():
    kv = mx.kv.create("dist_sync", bootstrap="self")
    kv.init("w", mx.nd.zeros((1,)))
    pid = os.fork()
    if pid == 0:
        try:
            kv.pull("w")
        except FailedPreconditionError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    kv.close()
    assert signal.getsignal(signal.SIGINT) is not None
