"""A process dies, stops or is cut off at a named moment; failpoints rehearse it, so that every run is the same.

Worker r adds r + 1 in each round and the servers add the sums up. After n complete rounds of two workers every element
is 3 n; a successful pull with another value fails the test. In a job with several stores, each step pushes to all of them.
"""

import contextlib
import os
import re
import signal
import sys
import time

import pytest
from jobs import SOON, finish, is_stopped, living, pids_of, read_until, start_by_hand, wait_until

WORK = """
SIZE = 3 * 262_144 + 17  # four chunks
rank = int(os.environ["TKV_RANK"])
begin = time.time()
def now(what):
    global begin, doing
    begin, doing = time.time(), what
def say(error):
    print(f"rank {{rank}} SURVIVED {{doing}}: {{type(error).__name__}} after {{time.time() - begin:.2f}} s: {{error}}", flush=True)
def train(kv, step):
    now(f"step {{step}}")
    kv.push("w", mx.nd.full((SIZE,), rank + 1.0))
    value = kv.pull("w").asnumpy()
    whole = sum(range(1, kv.num_workers + 1)) * step
    assert value.min() == value.max() == whole, f"step {{step}}: {{np.unique(value)}} instead of {{whole}}"
stores = []
try:
    now("connect")
    stores = [mx.kv.create("dist_sync", server_patience={patience}) for _ in range({stores})]
    now("init")
    for kv in stores:
        kv.init("w", mx.nd.zeros((SIZE,)))
    now("control")
    for kv in stores:
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    now("barrier")
    for kv in stores:
        kv.barrier()
    for step in range(1, {steps} + 1):
        for kv in stores:
            train(kv, step)
    now("barrier")
    for kv in stores:
        kv.barrier()
    now("shutdown")
    for kv in stores:
        kv.close()
    print(f"rank {{rank}} went on to the end", flush=True)
except mx.KVError as error:
    say(error)
    for number, kv in enumerate(stores if "step" in doing and len(stores) > 1 else ()):
        now(f"step of store {{number}}")
        try:
            for step in range(kv.round("w") + 1, kv.round("w") + 4):  # a round or two may be whole
                train(kv, step)
            print(f"rank {{rank}}: store {{number}} does not fail", flush=True)
        except mx.KVError as failure:
            say(failure)
    os._exit(7)
"""


def work(steps=6, patience=30, stores=1):
    return WORK.format(steps=steps, patience=patience, stores=stores)


def check(said, survivors, victim, stores=1):
    """Every survivor has gone on, or has a typed error in time that names the victim; in a step each of several stores has one."""
    assert "Assertion" not in said and "Traceback" not in said and "does not fail" not in said, said
    ended = [line for line in said.splitlines() if "SURVIVED" in line or "went on" in line]
    failed = sum(" SURVIVED step " in line for line in ended) if stores > 1 else 0
    assert len(ended) == survivors + failed * stores // (1 + stores), said
    for line in ended:
        if "SURVIVED" in line:
            assert victim in line, said
            assert float(re.search(r"after ([\d.]+) s", line).group(1)) < SOON, said
    return ended


# Which message is the named moment: in the worker that dies, and in the server.
MOMENTS = {
    "connect": ("sent:HELLO:1", "sent:HELLO:1"),
    "init": ("sent:DESCRIBE:1", "received:INIT:1"),
    "control": ("sent:CONTROL:1", "received:CONTROL:1"),
    "commit": ("sent:COMMIT:1", "sent:OK:3"),
    "barrier": ("sent:PUSH:1", "received:PUSH:1"),
    "push half sent": ("sent:PUSH:3", "received:PUSH:3"),
    "round open": ("received:ACCEPTED:4", "received:PUSH:12"),
    "pull parked": ("sent:PULL:3", "received:PULL:4"),
    "value": ("received:VALUE:2", "sent:VALUE:3"),
    "shutdown": ("sent:GOODBYE:1", "sent:GOODBYE:1"),
}
CASES = [(moment, transport, 1) for moment in MOMENTS for transport in ("auto", "tcp")] + [
    (moment, "auto", stores) for moment in ("control", "push half sent", "pull parked") for stores in (2, 4)
]


def failpoint(moment, victim, stores):
    """Return the moment as a failpoint; with several stores it is in the last one, or later."""
    point, _, count = MOMENTS[moment][victim].rpartition(":")
    return f"{point}:{int(count) * stores}:kill"


@pytest.mark.parametrize(("moment", "transport", "stores"), CASES)
def test_a_worker_dies_at(processes, moment, transport, stores):
    rank = 0 if moment in ("control", "commit") else 1  # rank 0 is the one that sends a CONTROL
    dies = f"worker {rank}:{failpoint(moment, 0, stores)}"
    job = processes.launch(work(stores=stores), "--grace", "5", servers=1, TKV_TRANSPORT=transport, TKV_FAILPOINTS=dies)
    status, said = finish(job)
    assert f"worker {rank} was killed by signal 9" in said, said
    assert status == 128 + signal.SIGKILL
    check(said, 1, f"worker {rank}", stores)


@pytest.mark.parametrize(("moment", "transport", "stores"), CASES)
def test_a_server_dies_at(processes, moment, transport, stores):
    dies = f"server 0:{failpoint(moment, 1, stores)}"
    job = processes.launch(
        work(patience=3, stores=stores), "--grace", "6", servers=1, TKV_TRANSPORT=transport, TKV_FAILPOINTS=dies
    )
    status, said = finish(job)
    assert "server 0 was killed by signal 9" in said, said
    assert status == 128 + signal.SIGKILL
    for line in check(said, 2, "server 0", stores):
        if "SURVIVED" in line and "connect" not in line:
            assert "the job cannot go on: start it again from your checkpoint" in line, said


HEAD_MOMENTS = [
    "received:HELLO:2",
    "received:HELLO:3",
    "sent:EPOCH:4",
    "received:COMMIT:1",
    "received:PING:2",
    "received:GOODBYE:1",
]


@pytest.mark.parametrize(("moment", "stores"), [*((moment, 1) for moment in HEAD_MOMENTS), ("received:PING:2", 4)])
def test_the_head_dies_at(processes, moment, stores):
    """Pushes and pulls continue without the head.

    Calls that need the head fail, and so do waits for a worker that never came or is stopped.
    """
    text = work(patience=3, steps=20, stores=stores).replace("server_patience=3", "server_patience=3, patience=4")
    text = text.replace("    whole =", f"    time.sleep({0.1 / stores})\n    whole =")
    started = start_by_hand(
        processes, text, TKV_FAILPOINTS=f"head:{moment}:kill", TKV_SERVER_PATIENCE_MS=3000, TKV_PATIENCE_MS=4000
    )
    said = ""
    for rank in (0, 1):
        status, rest = finish(started[f"worker {rank}"], timeout=30)
        assert status in (0, 7), rest
        said += rest
    assert "Assertion" not in said and "Traceback" not in said, said
    ended = [line for line in said.splitlines() if "SURVIVED" in line or "went on" in line]
    assert len(ended) == 2, said
    for line in ended:
        if "SURVIVED" in line:
            assert re.search("head|worker .* is dead|waited .* s for worker", line), said
            assert float(re.search(r"after ([\d.]+) s", line).group(1)) < 8, said
    assert finish(started["head"])[0] == -signal.SIGKILL
    finish(started["server"], timeout=30)


@pytest.mark.parametrize("end", ["kv.close()", "os._exit(0)"])
def test_a_server_whose_head_was_killed_ends_with_the_last_worker(processes, tmp_path, end):
    text = """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((3,)))
        print("ready", flush=True)
        while not os.path.exists(os.environ["MARK"]):
            time.sleep(0.01)
        kv.push("w", mx.nd.ones((3,)))
        assert kv.pull("w").asnumpy()[0] == 2
        time.sleep(0.2 * kv.rank)
    """
    mark = tmp_path / "mark"
    started = start_by_hand(processes, text + f"    {end}\n", MARK=mark)
    for rank in (0, 1):
        read_until(started[f"worker {rank}"], "ready")
    started["head"].kill()
    finish(started["head"])
    mark.touch()
    for rank in (0, 1):
        status, said = finish(started[f"worker {rank}"])
        assert status == 0, said
    begin = time.monotonic()
    status, said = finish(started["server"])  # its patience is 30 s
    assert time.monotonic() - begin < 5, said
    if end == "kv.close()":
        assert status == 0, said
    else:
        assert status != 0 and "the head and all workers have ended" in said, said


@pytest.mark.parametrize("moment", ["received:HELLO:2", "received:HELLO:3", "sent:EPOCH:4"])
def test_the_launcher_dies_at(processes, moment):
    job = processes.launch(work(steps=10_000), TKV_FAILPOINTS=f"head:{moment}:kill")
    status, _ = finish(job)
    assert status == -signal.SIGKILL  # the fixture sees that nothing is left after two seconds


def test_a_launcher_that_dies_while_it_starts_others_leaves_none(processes):
    """Kills the launcher as soon as one more child has appeared: each child must end, however new it is."""
    for count in range(2, 26):
        command = [sys.executable, "-m", "tensorkv", "launch", "-n", "24", "-s", "1", "sleep", "60"]
        job = processes.start(command)
        while True:
            with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
                if len(file.read().split()) > count:
                    break
            assert job.poll() is None
        job.kill()
        job.wait()


CUTS = [
    "worker 0:sent:INIT:1", "worker 0:sent:CONTROL:1", "worker 1:sent:PUSH:3", "worker 1:sent:PULL:2",
    "worker 0:received:VALUE:3", "worker 0:received:ACCEPTED:5", "worker 1:sent:HELLO:1", "server 0:received:PUSH:7",
    "server 0:sent:VALUE:2", "server 0:sent:ACCEPTED:4", "server 0:received:CONTROL:1", "server 0:received:HELLO:1",
    "head:received:HELLO:2", "head:sent:EPOCH:3", "head:received:PING:1",
]  # fmt: skip


@pytest.mark.parametrize(("transport", "stores"), [("auto", 1), ("unix", 1), ("tcp", 1), ("auto", 2), ("auto", 4)])
def test_connections_that_are_cut_are_made_again_and_nothing_is_done_twice(processes, transport, stores):
    points = ",".join(f"{cut}:cut" for cut in CUTS)
    job = processes.launch(work(steps=12, stores=stores), servers=1, TKV_TRANSPORT=transport, TKV_FAILPOINTS=points)
    status, said = finish(job)
    assert status == 0 and said.count("went on to the end") == 2, said


def test_checks_of_values_change_nothing_but_the_time(processes):
    job = processes.launch(work(), "--tcp", TKV_CHECK_VALUES="1")
    status, said = finish(job)
    assert status == 0 and said.count("went on to the end") == 2, said


@pytest.mark.parametrize(("seconds", "stores"), [(1, 1), (3, 1), (1, 4)])
def test_a_server_that_stops_for_a_while_is_waited_for(processes, seconds, stores):
    variables = {"TKV_FAILPOINTS": f"server 0:received:PUSH:{12 * stores}:stop", "TKV_SILENCE_MS": 3 * 5000}
    job = processes.launch(work(stores=stores), servers=1, **variables)
    server = wait_until(lambda: living(job, "server").get(0))
    wait_until(lambda: is_stopped(server))
    time.sleep(seconds)
    os.kill(server, signal.SIGCONT)
    status, said = finish(job)
    assert status == 0 and said.count("went on to the end") == 2, said


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_slow_server_slows_the_job_and_nothing_else(processes, transport):
    job = processes.launch(
        """
        import resource
        kv = mx.kv.create("dist_async")  # only the server's credit holds a worker back
        kv.init("w", mx.nd.zeros((1 << 20,)))
        kv.set_optimizer(mx.optimizer.create("test"))
        kv.barrier()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for step in range(100):
            kv.push("w", np.ones(1 << 20, np.float32))  # free when the push returns
        kv.barrier()
        value = kv.pull("w").asnumpy()
        assert value.min() == value.max() == 100 * kv.num_workers, value
        print("grown by", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, "KiB", flush=True)
        kv.close()
        """,
        servers=1, TKV_TRANSPORT=transport,
    )  # fmt: skip
    servers = wait_until(lambda: pids_of(job, "server"))
    while job.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(servers[0], signal.SIGSTOP)
            time.sleep(0.027)
            os.kill(servers[0], signal.SIGCONT)
        time.sleep(0.003)
    status, said = finish(job)
    assert status == 0, said
    assert "silent" not in said and "dead" not in said, said
    grown = [int(kib) for kib in re.findall(r"grown by (\d+) KiB", said)]
    assert len(grown) == 2 and max(grown) < 256 << 10, said  # of 400 MiB that each has pushed


def test_a_worker_that_stops_for_half_a_minute_has_another_life_behind_it(processes):
    job = processes.launch(
        """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((1000,)))
        for step in range(200):
            try:
                kv.push("w", mx.nd.ones((1000,)))
                value = kv.pull("w").asnumpy()
            except mx.KVError as error:
                print(f"rank {kv.rank}: {type(error).__name__}: {error}", flush=True)
                os._exit(7)
            assert value.min() == value.max() and value[0] in (1, 2), value
            time.sleep(0.01)
        kv.close()
        print(f"rank {kv.rank} went on to the end", flush=True)
        """,
        "--on-death", "continue", "--grace", "60", servers=1, TKV_FAILPOINTS="worker 1:sent:PUSH:20:stop",
    )  # fmt: skip
    stopped = wait_until(lambda: living(job, "worker").get(1))
    wait_until(lambda: is_stopped(stopped))
    time.sleep(30)
    os.kill(stopped, signal.SIGCONT)
    status, said = finish(job)
    assert "rank 0 went on to the end" in said, said
    assert re.search(r"rank 1: AbortedError: .*this life is over", said), said
    assert status == 7


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_server_that_is_started_again_empty_is_noticed(processes, stores):
    text = work(steps=100_000, patience=5, stores=stores).replace(
        'now("barrier")\n    for kv in stores:\n        kv.barrier()\n    for step', "for step"
    )
    text = text.replace("    whole =", '    if step == 3:\n        print("in step 3", flush=True)\n    whole =')
    started = start_by_hand(processes, text, TKV_SERVER_PATIENCE_MS=2000)
    for rank in (0, 1):
        read_until(started[f"worker {rank}"], "in step 3")
    command = [sys.executable, "-m", "tensorkv", "server", "--rank", "0"]
    with open(f"/proc/{started['worker 0'].pid}/environ", "rb") as file:
        head = next(v[9:].decode() for v in file.read().split(b"\0") if v.startswith(b"TKV_HEAD="))
    again = processes.start(command, TKV_HEAD=head, TKV_JOB="hand")
    for rank in (0, 1):
        status, said = finish(started[f"worker {rank}"])
        assert status == 7, said
        lost = r"SURVIVED step \d+: UnavailableError .*server 0 has started again and has lost its values"
        assert len(re.findall(lost, said)) == (1 + stores if stores > 1 else 1), said
        assert "start it again from your checkpoint" in said
    finish(started["server"])  # its place is taken, and no other process needs it
    for process in (started["head"], again):
        process.terminate()
        finish(process)


def test_a_failpoint_that_cannot_be_read_is_named(processes):
    status, said = finish(processes.launch(work(), TKV_FAILPOINTS="worker 0:sent:PUSH:kill"))
    assert status != 0 and "failpoint 'worker 0:sent:PUSH:kill': not five parts" in said, said
