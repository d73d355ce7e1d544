"""Processes of a job that start late: the others wait for them with their patience, and name them after five seconds.

`server_patience` is shorter here than a process is late: that clock is for a server that was there before.
"""

import os
import subprocess
import sys
import time

import pytest
from jobs import FILE_STORE, finish, read_until

LATE = 7  # seconds, if a line after five of them is looked for
PORT = 12_091 + os.getpid() % 1000 * 3
CLOCKS = {"TKV_SERVER_PATIENCE_MS": 1000}
BRIEFLY = 1.2  # seconds, otherwise
BRIEF_CLOCKS = {"TKV_SERVER_PATIENCE_MS": 500, "LATE": BRIEFLY}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]

# A worker that says its sum; the one whose variable argv[1] is argv[2] is late.
TRAIN = f"""
if sys.argv[1:] and os.environ[sys.argv[1]] == sys.argv[2]:
    time.sleep(float(os.environ.get("LATE", {LATE})))
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros((2,)))
kv.push("w", mx.nd.ones((2,)) * (kv.rank + 1))
os.write(1, f"sum {{kv.pull('w').asnumpy()[0]}}\\n".encode())
kv.close()
"""


def trained(said):
    return said.count("sum 3.0") == 2


@pytest.mark.parametrize("late", [0, 1])
def test_tkv_launch_waits_for_a_worker_that_is_late(processes, late):
    command = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", sys.executable, "-u"]
    status, said = finish(processes.start([*command, processes.script(TRAIN), "TKV_RANK", str(late)], **BRIEF_CLOCKS))
    assert status == 0 and trained(said), said


# Runs a command with names that are in a file of hosts alone.
WITH_HOSTS = """
mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"
"""


def test_a_head_whose_name_is_known_late_is_awaited(processes, tmp_path):
    """The head's address is a name that a server and two workers cannot look up at first."""
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode != 0:
        pytest.skip("a file of hosts of the test's own takes the right to mount it")
    hosts, order = tmp_path / "hosts", tmp_path / "nsswitch.conf"
    hosts.touch()
    order.write_text("hosts: files\n")
    command = [sys.executable, "-u", "-m", "tensorkv"]
    common = {"TKV_JOB": "named", "TKV_INSECURE_NETWORK": 1, "TKV_LOG": "warning", **BRIEF_CLOCKS}
    words = ["head", "--head", "tcp:127.0.0.1:0", "--workers", "2", "--servers", "1"]
    head = processes.start([*command, *words], **common)
    port = read_until(head, "head listens at").split()[-1].rpartition(":")[2]

    def start(*command, **variables):
        inside = ["unshare", "-m", "sh", "-c", WITH_HOSTS, hosts, order, *command]
        return processes.start(inside, TKV_HEAD=f"tcp:late-head:{port}", **common, **variables)

    started = [start(*command, "server", "--rank", "0")]
    script = processes.script(TRAIN)
    started += [start(sys.executable, script, TKV_RANK=rank, TKV_ROLE="worker") for rank in range(2)]
    time.sleep(BRIEFLY)
    hosts.write_text("127.0.0.1 late-head\n")
    ends = [finish(process) for process in [*started, head]]
    said = "".join(text for _, text in ends)
    assert [status for status, _ in ends] == [0] * 4 and trained(said), said


BY_OBJECT = """
rank = int(sys.argv[1])
if rank == int(os.environ["WHO"]):
    time.sleep(float(os.environ["LATE"]))
kv = mx.kv.create("dist_sync", bootstrap=FileStore(sys.argv[2]), rank=rank, num_workers=2)
kv.init("w", mx.nd.zeros((2,)))
kv.push("w", mx.nd.ones((2,)) * (kv.rank + 1))
os.write(1, f"sum {kv.pull('w').asnumpy()[0]}\\n".encode())
kv.close()
"""


@pytest.mark.parametrize("late", [0, 1])
def test_a_bootstrap_object_waits_for_a_worker_that_is_late(processes, tmp_path, late):
    command = [sys.executable, "-u", processes.script(FILE_STORE + BY_OBJECT)]
    started = [processes.start([*command, rank, tmp_path], WHO=late, **BRIEF_CLOCKS) for rank in ("0", "1")]
    ends = [finish(process) for process in started]
    said = "".join(text for _, text in ends)
    assert [status for status, _ in ends] == [0, 0] and trained(said), said


def test_mpirun_waits_for_whom_is_late(processes):
    """The first worker, another one, and a server: three jobs side by side."""
    worker = [sys.executable, processes.script(TRAIN)]
    late_server = ["sh", "-c", f"sleep {LATE}; exec {sys.executable} -m tensorkv server"]
    jobs = {
        2: [processes.start([*MPIRUN, "-n", "2", *worker, "PMIX_RANK", str(late)], **CLOCKS) for late in (0, 1)],
        3: [processes.start([*MPIRUN, "-n", "2", *worker, ":", "-n", "1", *late_server], **CLOCKS)],
    }
    for count, started in jobs.items():
        for job in started:
            status, said = finish(job)
            assert status == 0 and trained(said), said
            assert f"still waiting 5 s for processes of the group of {count}" in said, said


@pytest.mark.framework
@pytest.mark.parametrize(
    ("late", "named"),
    [
        (0, "still waiting 5 s for the head, which worker 0 has"),
        (1, "still waiting 5 s: 1 of 2 servers have come, server 1 is missing"),
    ],
)
def test_torchrun_waits_for_a_worker_that_is_late(processes, late, named):
    pytest.importorskip("torch")
    script = processes.script(TRAIN)
    status, said = finish(processes.start([*TORCHRUN, script, "RANK", str(late)], **CLOCKS), timeout=120)
    assert status == 0 and trained(said), said
    assert named in said, said


ROLES = ("scheduler", "server", "worker", "worker")
# The words of the other workers on a role that is late.
NAMED = {
    "scheduler": "still waiting 5 s for the head: ",
    "server": "still waiting 5 s: 0 of 1 servers have come, server 0 is missing",
    "worker": "still waiting 5 s for worker 1 (not yet joined)",
}


def variables_of(number):
    return {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": PORT + number,
        "DMLC_NUM_WORKER": 2,
        "DMLC_NUM_SERVER": 1,
        **CLOCKS,
    }


def test_mxnets_variables_wait_for_a_role_that_is_late(processes):
    """Three jobs side by side."""
    command = [sys.executable, "-u", "-m", "tensorkv.mxnet", processes.script(TRAIN)]
    start = lambda role, number: processes.start(command, DMLC_ROLE=role, **variables_of(number))  # noqa: E731
    jobs = {}
    for number, late in enumerate(NAMED):
        others = list(ROLES)
        others.remove(late)
        jobs[late] = [(role, start(role, number)) for role in others]
    time.sleep(LATE)
    for number, (late, started) in enumerate(jobs.items()):
        started.append((late, start(late, number)))
    for late, started in jobs.items():
        said = ""
        for role, process in started:
            status, words = finish(process)
            assert status == 0, (late, role, words)
            said += words
        assert trained(said) and NAMED[late] in said, (late, said)


@pytest.mark.parametrize("address", ["http://127.0.0.1", "127.0.0.1:9000"])
@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_a_malformed_address_in_mxnets_variables_is_not_waited_for(processes, role, address):
    command = [sys.executable, "-m", "tensorkv.mxnet", processes.script("mx.kv.create('dist_sync')")]
    begin = time.monotonic()
    variables = {**variables_of(0), "DMLC_ROLE": role, "DMLC_PS_ROOT_URI": address}
    status, said = finish(processes.start(command, **variables))
    assert status != 0 and f"DMLC_PS_ROOT_URI='{address}'" in said, said
    assert time.monotonic() - begin < LATE


def test_under_mxnets_variables_another_token_is_not_waited_for(processes, tmp_path):
    """The scheduler has one token, and a worker has another one."""
    for name in ("one", "two"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(f"the secret {name} of this test\n")
    command = [sys.executable, "-u", "-m", "tensorkv.mxnet", processes.script("mx.kv.create('dist_sync')")]
    variables = {**variables_of(0), "TKV_TRANSPORT": "tcp"}
    scheduler = processes.start(command, DMLC_ROLE="scheduler", TKV_TOKEN_FILE=tmp_path / "one", **variables)
    begin = time.monotonic()
    status, said = finish(processes.start(command, DMLC_ROLE="worker", TKV_TOKEN_FILE=tmp_path / "two", **variables))
    assert status != 0 and "UnauthenticatedError" in said, said
    assert time.monotonic() - begin < LATE
    scheduler.terminate()
    finish(scheduler)
