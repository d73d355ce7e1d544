"""Calls that every worker makes: where one makes them alone, the error says so and names who is missing."""

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
