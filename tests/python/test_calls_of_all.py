"""Calls that every worker makes: if one worker makes them alone, the error says so and names the missing workers."""

import contextlib
import re
import threading

import numpy as np
import pytest
import tensorkv as mx
from tensorkv.errors import DeadlineExceededError, UnavailableError

WORKERS = 3


@contextlib.contextmanager
def asked_alone(rank, call, begin=lambda kv: kv.init("w", np.zeros(2)), **options):
    """Have one worker of a job make a call, for which the others do not wait until its error has come; yield the error."""
    errors, has_ended = [], threading.Event()

    def work(kv):
        begin(kv)
        kv.barrier()
        if kv.rank != rank:
            assert has_ended.wait(60)
            return
        try:
            with pytest.raises((DeadlineExceededError, UnavailableError)) as caught:
                call(kv)
            errors.append(caught.value)
        finally:
            has_ended.set()

    with mx.testing.cluster(WORKERS, 1, **({"patience": 2} | options)) as job:
        job.run(work)
        yield errors[0]


def missing_but(rank):
    return ", ".join(rf"worker {other} \(alive\)" for other in range(WORKERS) if other != rank)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("verb", ["assign", "load", "load_optimizer_states"])
def test_a_call_of_one_worker_alone_says_that_every_worker_makes_it(verb, rank, tmp_path):
    calls = {
        "assign": lambda kv: kv.assign("w", np.ones(2)),
        "load": lambda kv: kv.load(tmp_path),
        "load_optimizer_states": lambda kv: kv.load_optimizer_states(tmp_path),
    }

    def begin(kv):
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.5))
        kv.init("w", np.zeros(2))
        kv.pushpull("w", np.ones(2))
        kv.save(tmp_path)

    with asked_alone(rank, calls[verb], begin) as error:
        assert re.match(rf"{verb}: waited \d\.\d s for {missing_but(rank)}", str(error))
        assert str(error).endswith(f"; every worker calls {verb}")
        assert type(error) is DeadlineExceededError


def test_a_call_after_the_others_have_left_says_that_every_worker_makes_it():
    def work(kv):
        kv.init("w", np.zeros(2))
        kv.barrier()
        if kv.rank == 0:
            with pytest.raises(UnavailableError, match=r"assign: worker 1 left .*; every worker calls assign$"):
                kv.assign("w", np.ones(2))

    with mx.testing.cluster(2, 1, patience=60) as job:
        job.run(work)


def test_a_call_that_a_dead_server_ends_says_nothing_of_other_workers():
    with mx.testing.cluster(1, 1, patience=2) as job:
        kv = job.store(0)
        kv.init("w", np.zeros(2))
        job.kill_server(0)
        with pytest.raises((DeadlineExceededError, UnavailableError), match="server 0") as caught:
            kv.assign("w", np.ones(2))
        assert "every worker" not in str(caught.value)
        with contextlib.suppress(mx.errors.KVError):
            kv.close()


def test_a_call_that_waits_for_a_dead_worker_alone_says_nothing_of_it():
    with mx.testing.cluster(2, 1, patience=1, on_death="wait") as job:
        threads = [threading.Thread(target=lambda kv=kv: kv.init("w", np.zeros(2))) for kv in job]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        job.store(1)._has_failed = True
        job.store(1).close()
        with pytest.raises(DeadlineExceededError, match=r"assign: waited .* worker 1 \(dead\), round \d$"):
            job.store(0).assign("w", np.ones(2))


INITS = {
    "init": lambda kv: kv.init("w", np.zeros(2)),
    "init with a ticket": lambda kv: kv.init("w", np.zeros(2), async_op=True).wait(),
    "init_table": lambda kv: kv.init_table("w", 2),
    "broadcast": lambda kv: kv.broadcast("w", np.zeros(2), out=np.zeros(2)),
}


@pytest.mark.parametrize("how", INITS)
@pytest.mark.parametrize("on_death", ["fail", "continue"])
def test_an_init_that_rank_0_has_not_made_says_so(how, on_death):
    verb = how.split()[0]
    with asked_alone(1, INITS[how], lambda kv: None, on_death=on_death) as error:
        who = "worker 0" if on_death == "fail" else "the worker that creates the key"
        assert re.match(rf"{verb} 'w': waited \d\.\d s for {who}; it has not created the key", str(error))
        assert str(error).endswith(f"; every worker calls {verb}")


def test_an_init_that_is_refused_on_rank_0_alone():
    def work(kv):
        if kv.rank == 0:
            with pytest.raises(mx.errors.InvalidArgumentError, match="complex128"):
                kv.init("w", np.zeros(2, np.complex128))
            assert waited.wait(60)
            return
        try:
            with pytest.raises(
                DeadlineExceededError, match=r"has not called init, or its call has failed; every worker"
            ):
                kv.init("w", np.zeros(2))
        finally:
            waited.set()

    waited = threading.Event()
    with mx.testing.cluster(2, 1, patience=1) as job:
        job.run(work)


def test_an_init_after_rank_0_has_left():
    def work(kv):
        if kv.rank == 1:
            assert has_left.wait(60)
            with pytest.raises(
                UnavailableError, match=r"worker 0, which creates keys, has .*; every worker calls init$"
            ):
                kv.init("w", np.zeros(2))

    has_left = threading.Event()
    with mx.testing.cluster(2, 1, patience=60) as job:
        seen = threading.Thread(target=lambda: (job.store(0).close(), has_left.set()))
        seen.start()
        with job.store(1) as kv:
            work(kv)
        seen.join()
