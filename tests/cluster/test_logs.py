"""The logs of a job's processes: the life of a server, and which process waits for which."""

import re
import sys

import pytest
from jobs import finish, read_until

WORK = """
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros((2,)))
kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
kv.close()
"""

UNTIL_IT_SAYS = """
def until_it_says(path, words):
    end = time.monotonic() + 60
    while words not in open(path).read():
        assert time.monotonic() < end, f"{path} does not say {words}"
        time.sleep(0.01)
"""

TKV = [sys.executable, "-u", "-m", "tensorkv"]


def events(text):
    """Return the names of the events that a log tells, in their order."""
    return re.findall(r"event=(\w+)", text)


def test_the_log_of_a_server_has_its_life_in_it(processes, tmp_path):
    path = tmp_path / "logs" / "server-1.log"
    # A server that learns of a worker's coming and leaving by one message tells the last of the two.
    text = WORK.replace("kv.close()", f"until_it_says({str(path)!r}, 'worker 1')\nkv.close()")
    status, said = finish(processes.launch(UNTIL_IT_SAYS + text, "--log", str(tmp_path / "logs")))
    assert status == 0 and "event=" not in said, said
    log = path.read_text()
    assert set(events(log)) == {"listening", "joined", "member", "ended"} and events(log)[0] == "listening", log
    assert events(log)[-1] == "ended" and 'because="all workers have left or are dead"' in log, log
    assert re.search(
        r" info tensorkv pid=\d+ role=server rank=1: server 1 event=joined server=1 of=2 workers=2", log
    ), log
    for worker in (0, 1):
        assert re.search(rf'event=member peer="worker {worker}" state=alive incarnation=\d+', log), log
        assert re.search(rf'event=member peer="worker {worker}" state=left incarnation=\d+', log), log


def test_a_server_names_the_worker_that_it_has_lost(processes, tmp_path):
    text = """
    kv = mx.kv.create("dist_sync")
    if kv.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        kv.barrier()
    except mx.errors.UnavailableError:
        pass
    """
    finish(processes.launch(text, "--log", str(tmp_path / "logs"), servers=1))
    log = (tmp_path / "logs" / "server-0.log").read_text()
    assert re.search(r'event=member peer="worker 1" state=dead', log), log


@pytest.mark.parametrize("by", ["variable", "flag"])
def test_a_job_that_is_asked_to_be_silent_says_nothing(processes, tmp_path, by):
    options = ["--log", str(tmp_path / "logs"), *(["--log-level", "off"] if by == "flag" else [])]
    variables = {"TKV_LOG": "off"} if by == "variable" else {}
    status, said = finish(processes.launch(WORK, *options, **variables))
    assert status == 0 and said == "", said
    assert (tmp_path / "logs" / "server-0.log").read_text() == ""


def test_a_job_that_stands_still_says_on_one_line_who_waits_for_whom(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    keys = ["a b"]
    kv.init(keys, [mx.nd.zeros((2,))])
    if kv.rank == 1:
        until_marked("told")
    for key in keys:
        kv.push(key, mx.nd.ones((2,)))
    tickets = [kv.pull("a b", out=mx.nd.zeros((2,)), async_op=True) for _ in range(20)]
    for ticket in tickets:
        ticket.wait()
    kv.close()
    """
    job = processes.launch(text, servers=1, TKV_LOG="warning")
    said = read_until(job, "standing=")
    (processes.folder / "mark-told").touch()
    status, rest = finish(job)
    assert status == 0, said + rest
    assert (said + rest).count("standing=") == 1, said + rest
    line = said.splitlines()[-1]
    fields = (
        r"\[worker 0\] \S+ warning tensorkv pid=\d+ role=worker rank=0: still waiting \d+ s for worker 1 "
        r"\(pull 'a b', round 1\): standing=\d+\.\ds verb=pull key=\"'a b'\" round=1 waits_for=\"worker 1\" "
        r"server=0 link=open last_word=0\.\ds others=19"
    )
    assert re.fullmatch(fields, line), line


def test_a_worker_that_waits_to_join_says_which_servers_are_missing(processes):
    head = processes.start([*TKV, "head", "--workers", "1", "--servers", "2"], TKV_JOB="hand")
    common = {"TKV_HEAD": head.stdout.readline().split()[-1], "TKV_JOB": "hand", "TKV_LOG": "warning"}
    processes.start([*TKV, "server", "--rank", "0"], **common)
    worker = processes.start(
        [sys.executable, "-u", processes.script("mx.kv.create('dist_sync')")], TKV_ROLE="worker", TKV_RANK="0", **common
    )
    said = read_until(worker, "standing=")
    wanted = r"create 'dist_sync': still waiting \d+ s: 1 of 2 servers have come, server 1 is missing: standing=\d+\."
    assert re.search(wanted, said), said
    processes.start([*TKV, "server", "--rank", "1"], **common)
    status, said = finish(worker)
    assert status == 0, said
