"""A process of a job is stopped for a while (SIGSTOP, SIGCONT).

A server or worker that is stopped for longer than the limit of silence is fenced and named; no other process is. A
stopped head or launcher fences nobody.  Nothing waits beyond its patience.

A pause of 7 s is longer than the limit of 5 s, one of 4 s is not.  The jobs of a test run side by side.  A small part of the
table runs each time, the whole of it where TKV_TEST_PAUSES=all.
"""

import concurrent.futures
import contextlib
import itertools
import os
import re
import signal
import time
from typing import NamedTuple

import pytest
from jobs import finish, pids_of, start_by_hand

LIMIT = 5.0  # seconds of silence
PATIENCE = 20  # seconds
# Rounds until rank 0 has seen the file; every rank pushes once in each, so that all see it in the same one.
WORK = """
rank = int(os.environ["TKV_RANK"])
rounds = 0
begin = time.time()
try:
    stores = [mx.kv.create("dist_sync", server_patience=20, patience=20) for _ in range(int(os.environ["STORES"]))]
    for kv in stores:
        kv.init("w", mx.nd.zeros((1000,)))
        kv.barrier()
    open(os.environ["STOP_FILE"] + f".{rank}.ready", "w").close()
    out = mx.nd.zeros((1000,))
    while out.asnumpy()[0] < 0.5:
        is_over = rank == 0 and os.path.exists(os.environ["STOP_FILE"])
        for kv in stores:
            begin = time.time()
            kv.pushpull("w", mx.nd.full((1000,), float(is_over)), out=out)
        rounds += 1
        time.sleep(0.02)
    for kv in stores:
        kv.close()
    print(f"rank {rank} went on to the end", flush=True)
except mx.KVError as error:
    print(f"rank {rank} FAILED: {type(error).__name__} after {time.time() - begin:.2f} s: {error}", flush=True)
    for number, kv in enumerate(stores):
        begin = time.time()
        try:
            kv.pushpull("w", mx.nd.zeros((1000,)), out=mx.nd.zeros((1000,)))
            kv.pushpull("w", mx.nd.zeros((1000,)), out=mx.nd.zeros((1000,)))
            print(f"rank {rank}: store {number} does not fail", flush=True)
        except mx.KVError as error:
            print(f"rank {rank} FAILED: {type(error).__name__} after {time.time() - begin:.2f} s: {error}", flush=True)
    os._exit(7)
"""


class Case(NamedTuple):
    """The process to stop, for how many seconds, and the form of its job."""

    victim: str  # launcher, head, server or worker
    seconds: float
    workers: int
    transport: str
    stores: int = 1

    @property
    def is_fenced(self):
        return self.victim in ("server", "worker") and self.seconds > LIMIT


FORMS = itertools.product(("launcher", "head", "server", "worker"), (1, 4, 7, 20), (2, 8), ("auto", "tcp"))
ALL = [Case(*parts, stores) for parts, stores in zip(FORMS, itertools.cycle((1, 2, 1, 4, 1)))]
FIFTY = [Case("launcher", 7, 50, "auto")]
SOME = [
    Case("launcher", 7, 2, "auto"),
    Case("head", 7, 2, "tcp"),
    Case("server", 4, 2, "tcp"),
    Case("server", 7, 2, "auto"),
    Case("worker", 7, 3, "auto"),
    Case("server", 7, 2, "auto", stores=2),
    Case("worker", 7, 2, "tcp", stores=4),
]


def start(processes, case, stop_file):
    """Return (processes whose words count, pid to stop; None where it is the launcher or one of its children)."""
    variables = {"TKV_TRANSPORT": case.transport, "TKV_LOG": "info", "STOP_FILE": stop_file, "STORES": case.stores}
    if case.victim == "head":
        variables |= {"TKV_ON_DEATH": "continue"}
        if case.transport == "tcp":
            token = stop_file.with_name(f"{stop_file.name}.token")  # each job its own: they start side by side
            token.touch(mode=0o600)
            token.write_text("a token of this test, long enough")
            variables |= {"TKV_TOKEN_FILE": token, "TKV_HEAD": "tcp:127.0.0.1:0"}
        started = start_by_hand(processes, WORK, workers=case.workers, **variables)
        return list(started.values()), started["head"].pid
    job = processes.launch(WORK, "--on-death", "continue", workers=case.workers, servers=1, **variables)
    return [job], None


def wait_until_ready(started, case, stop_file):
    """Every worker has made its store."""
    ready = [stop_file.with_name(f"{stop_file.name}.{rank}.ready") for rank in range(case.workers)]
    for _ in range(1200):
        if all(path.exists() for path in ready):
            return
        time.sleep(0.05)
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
    said = "".join(process.communicate()[0] for process in started)
    pytest.fail(f"{case}: {[path.exists() for path in ready]} are ready; it said:\n{said}")


def run(processes, case):
    """Run the job of a case and return everything said."""
    stop_file = processes.folder / ("stop." + ".".join(map(str, case)))
    started, victim = start(processes, case, stop_file)
    wait_until_ready(started, case, stop_file)
    if victim is None:
        job = started[0]
        victim = job.pid if case.victim == "launcher" else pids_of(job, case.victim)[-1]
    os.kill(victim, signal.SIGSTOP)
    time.sleep(case.seconds)  # this is what is tested
    with contextlib.suppress(ProcessLookupError):  # a job that has ended meanwhile left nobody
        os.kill(victim, signal.SIGCONT)
    time.sleep(3)  # a wrong verdict comes in the moments after it
    stop_file.touch()
    return "".join(finish(process, timeout=PATIENCE + 30)[1] for process in started)


def check(case, said):
    """The victim alone is named, and only where it was silent for too long."""
    context = f"{case}; it said:\n{said}"
    assert "Traceback" not in said and "does not fail" not in said, context
    went_on = {int(rank) for rank in re.findall(r"rank (\d+) went on", said)}
    failed = {int(rank) for rank in re.findall(r"rank (\d+) FAILED", said)}
    dead = set(re.findall(r"((?:worker|server) \d+) is dead: silent", said))
    waits = [float(wait) for wait in re.findall(r"FAILED: \w+ after ([\d.]+) s", said)]
    assert max(waits, default=0) < PATIENCE + case.seconds + 5, context
    everybody = set(range(case.workers))
    if not case.is_fenced:
        assert not dead and went_on == everybody and not failed, context
    elif case.victim == "worker":
        last = case.workers - 1
        assert dead == {f"worker {last}"} and went_on == everybody - {last} and failed == {last}, context
        assert "this life is over" in said or "is over" in said, context
    else:
        assert dead == {"server 0"} and failed == everybody, context
        assert said.count("server 0 is dead; the job cannot go on") >= case.workers, context


def check_all(processes, cases, at_once):
    """Run the jobs side by side; the first that is wrong fails the test."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for case, said in zip(cases, pool.map(lambda case: run(processes, case), cases)):
            check(case, said)


def test_who_is_silent_for_too_long_is_fenced_and_nobody_else(processes):
    check_all(processes, SOME, at_once=len(SOME))


@pytest.mark.skipif(
    os.environ.get("TKV_TEST_PAUSES") != "all", reason="the whole table takes minutes: TKV_TEST_PAUSES=all"
)
@pytest.mark.parametrize("victim", ["launcher", "head", "server", "worker"])
def test_the_whole_table(processes, victim):
    check_all(processes, [case for case in ALL if case.victim == victim], at_once=4)


@pytest.mark.skipif(os.environ.get("TKV_TEST_PAUSES") != "all", reason="fifty processes: TKV_TEST_PAUSES=all")
def test_a_stopped_launcher_fences_none_of_fifty(processes):
    check_all(processes, FIFTY, at_once=1)


# The program has about 250 instructions, and its result is `value - sum`.
BUSY = """
lines = "".join(f"a{i + 1} = mul a{i} 0.999\\nb{i + 1} = sqrt b{i}\\n" for i in range(120))
ends = "c = add a120 b120\\nd = mul c 0\\ns = add sum d\\nw = sub value s\\nvalue <- w\\n"
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros((32_000_000,)))
kv.set_optimizer(mx.Program("program busy\\na0 = abs sum\\nb0 = abs sum\\n" + lines + ends))
begin = time.time()
kv.push("w", mx.nd.ones((32_000_000,)))
end = kv.pull("w").asnumpy()
print(f"took {time.time() - begin:.2f} s, values {end.min()} to {end.max()}", flush=True)
kv.close()
"""


def test_a_server_that_computes_for_seconds_is_not_held_for_dead(processes):
    options = ("--silence-ms", "1000", "--on-death", "continue")
    status, said = finish(processes.launch(BUSY, *options, servers=1, TKV_THREADS="1"), timeout=120)
    took = [float(seconds) for seconds in re.findall(r"took ([\d.]+) s, values -2.0 to -2.0", said)]
    assert status == 0 and len(took) == 2 and "is dead" not in said, said
    assert max(took) > 1, f"the server has computed for less than the limit of silence: {said}"
