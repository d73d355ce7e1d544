"""A job in front of its user: stdin, the two outputs, unfinished lines, and the signals of a shell and of a scheduler."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from jobs import finish, is_stopped, living, pids_of, read_until, wait_until

TKV = [sys.executable, "-m", "tensorkv"]


def command_of(processes, text, *options, workers=2, name="script.py"):
    """Return the words that launch a script."""
    words = [*TKV, "launch", "-n", str(workers), "-s", "1", *options]
    return [*words, sys.executable, "-u", processes.script(text, name)]


# ---- stdin

STOPS = """
kv = mx.kv.create("dist_sync")
answer = None
if kv.rank == {rank}:
    breakpoint()
kv.barrier()
if kv.rank == {rank}:
    print(f"rank {{kv.rank}} has {{answer}}", flush=True)
"""


@pytest.mark.parametrize(
    "workers, rank, options", [(1, 0, []), (2, 0, []), (3, 2, ["--stdin", "2"])], ids=["alone", "rank 0", "rank 2"]
)
def test_a_breakpoint_answers_at_a_terminal(processes, workers, rank, options):
    job = processes.start_on_terminal(command_of(processes, STOPS.format(rank=rank), *options, workers=workers))
    job.read_until("(Pdb) ")
    job.type("answer = 40 + 2\n")
    job.read_until("(Pdb) ", count=2)
    job.type("p answer * 2\n")
    job.read_until("(Pdb) ", count=3)
    job.type("c\n")
    status, shown = job.finish()
    assert status == 0 and f"[worker {rank}] rank {rank} has 42\r\n" in shown, shown
    assert f"[worker {rank}] (Pdb) p answer * 2\r\n[worker {rank}] 84\r\n[worker {rank}] (Pdb) c\r\n" in shown, shown


def test_the_end_of_input_at_a_terminal_reaches_the_worker(processes):
    job = processes.start_on_terminal(command_of(processes, "print('read', sys.stdin.read().split())", workers=1))
    job.type("a\nb\n")
    job.type("\x04")
    status, shown = job.finish()
    assert status == 0 and "[worker 0] read ['a', 'b']" in shown, shown


READS = "print(f'rank {os.environ[\"TKV_RANK\"]} reads {sys.stdin.buffer.read(1 << 24)[-9:]}', flush=True)"


@pytest.mark.parametrize(
    "rank, options", [(0, []), (0, ["--stdin", "0"]), (1, ["--stdin", "1"]), (None, ["--stdin", "none"])]
)
def test_stdin_is_that_of_one_worker_and_the_others_find_it_empty(processes, tmp_path, rank, options):
    (tmp_path / "in").write_bytes(b"x" * (1 << 21) + b"the end\0\n")
    with open(tmp_path / "in") as file:
        status, said = finish(processes.start(command_of(processes, READS, *options), stdin=file))
    assert status == 0, said
    for one in range(2):
        assert f"rank {one} reads {bytes(b'the end' + bytes(1) + bytes([10])) if one == rank else b''}" in said, said


def test_a_pipe_is_passed_on_and_nobody_waits_for_its_end(processes):
    text = "line = input() if os.environ['TKV_RANK'] == '0' else None; print('rank has', line, flush=True)"
    ours, theirs = os.pipe()
    try:
        job = processes.start(command_of(processes, text), stdin=ours)
        os.write(theirs, b"a line\n")
        status, said = finish(job)
    finally:
        os.close(ours)
        os.close(theirs)
    assert status == 0 and "[worker 0] rank has a line" in said and "[worker 1] rank has None" in said, said


def test_a_later_life_of_a_worker_reads_on(processes):
    text = """
    print("has", input(), flush=True)
    if not os.path.exists(sys.argv[0] + ".again"):
        open(sys.argv[0] + ".again", "w").close()
        sys.exit(3)
    """
    job = processes.start_on_terminal(command_of(processes, text, "--restart", "1", workers=1))
    job.type("first\n")
    job.read_until("it is started again (1 of 1)")
    job.type("second\n")
    status, shown = job.finish()
    assert status == 0 and "has first" in shown and "has second" in shown, shown


def test_a_terminal_whose_worker_does_not_read_holds_up_nothing(processes):
    job = processes.start_on_terminal(command_of(processes, "until_marked('go'); print('went', flush=True)", workers=1))
    wait_until(lambda: pids_of(job.process, "worker"))
    for _ in range(500):  # a pipe holds 32 of these lines
        if not job.type("x" * 2000 + "\n"):
            break
        job.read(0.02)
    else:
        pytest.fail("nobody knows where a megabyte of typed text is")
    (processes.folder / "mark-go").touch()
    status, shown = job.finish()
    assert status == 0 and "[worker 0] went" in shown, shown[-500:]


@pytest.mark.parametrize("rank", ["2", "-1", "first"])
def test_a_rank_for_stdin_that_is_none_is_refused(processes, rank):
    status, said = finish(processes.start(command_of(processes, "", f"--stdin={rank}")))
    assert status == 2 and "--stdin" in said, said


# ---- stdout and stderr


def test_what_a_worker_says_on_stderr_is_on_stderr(processes, tmp_path):
    text = "print('to out', flush=True); print('to err', file=sys.stderr, flush=True); sys.exit(4)"
    with open(tmp_path / "err.txt", "w") as err:
        status, said = finish(processes.start(command_of(processes, text, workers=1), stderr=err))
    assert status == 4 and said == "[worker 0] to out\n", said
    told = (tmp_path / "err.txt").read_text()
    assert "[worker 0] to err\n" in told and "to out" not in told, told
    assert told.endswith("tkv launch: worker 0 ended with status 4\n"), told


def test_json_names_the_stream_of_a_line_and_has_whole_lines(processes, tmp_path):
    text = """
    os.write(1, b"be")
    time.sleep(0.4)
    os.write(1, b"gun\\r 50%\\r100%\\n")
    os.write(2, b"to err")
    """
    with open(tmp_path / "err.txt", "w") as err:
        status, said = finish(processes.start(command_of(processes, text, "--json", workers=1), stderr=err))
    found = [json.loads(line) for line in said.splitlines()]
    outputs = [one for one in found if one["event"] == "output"]
    assert status == 0 and (tmp_path / "err.txt").read_text() == "", said
    assert {"event": "output", "process": "worker 0", "stream": "stdout", "text": "begun\r 50%\r100%"} in outputs, said
    assert {"event": "output", "process": "worker 0", "stream": "stderr", "text": "to err"} in outputs, said
    assert len(outputs) == 2, said


def test_a_progress_bar_is_seen_before_its_line_ends(processes):
    text = """
    for done in (0, 50, 100):
        os.write(2, f"\\r{done:3}%|".encode())
        until_marked(f"seen {done}")
    os.write(2, b"\\n")
    """
    job = processes.start_on_terminal(command_of(processes, text, workers=1))
    for done in (0, 50, 100):
        job.read_until(f"{done:3}%|")
        (processes.folder / f"mark-seen {done}").touch()
    status, shown = job.finish()
    assert status == 0 and "[worker 0]   0%|\r[worker 0]  50%|\r[worker 0] 100%|\r\n" in shown, shown


def test_a_frame_that_ends_in_a_carriage_return_is_seen_at_once(processes):
    job = processes.launch("os.write(1, b'frame 1\\r'); until_marked('seen')", workers=1, servers=1)
    said = b""
    while b"frame 1\r" not in said:
        said += os.read(job.stdout.fileno(), 1 << 16)
    (processes.folder / "mark-seen").touch()
    status, _ = finish(job)
    assert status == 0


def test_an_unfinished_line_is_glued_to_no_line_of_another_stream_or_rank(processes):
    text = """
    rank = os.environ["TKV_RANK"]
    if rank == "0":
        os.write(1, b"unfinished")
        until_marked("one is seen")
        os.write(2, b"a line on stderr\\n")
        until_marked("two is seen")
        mark("begins")
        until_marked("three is seen")
        os.write(1, b" and its end\\n")
    else:
        until_marked("begins")
        os.write(1, b"a line of another\\n")
    """
    job = processes.start_on_terminal(command_of(processes, text))
    for number, word in (("one", "unfinished"), ("two", "a line on stderr"), ("three", "a line of another")):
        job.read_until(word)
        (processes.folder / f"mark-{number} is seen").touch()
    status, shown = job.finish()
    assert status == 0
    lines = [line for line in shown.split("\r\n") if line.startswith("[")]
    assert lines == [
        "[worker 0] unfinished",
        "[worker 0] a line on stderr",
        "[worker 1] a line of another",
        "[worker 0]  and its end",
    ], shown


def test_the_log_of_a_process_has_both_streams_and_glues_no_lines(processes, tmp_path):
    text = "os.write(1, b'unfinished'); time.sleep(0.5); os.write(2, b'an error\\n'); time.sleep(0.5); os.write(1, b'end\\n')"
    status, said = finish(processes.launch(text, "--log", str(tmp_path / "logs"), workers=1, servers=1))
    assert status == 0, said
    assert (tmp_path / "logs" / "worker-0.log").read_text() == "unfinished\nan error\nend\n"


def test_a_prompt_costs_the_launcher_no_turns(processes):
    """An unfinished line that has been passed on is not looked at again and again."""
    job = processes.launch("os.write(1, b'name: '); until_marked('seen')", workers=1, servers=1)
    said = b""
    while b"name: " not in said:
        said += os.read(job.stdout.fileno(), 1 << 16)

    def ticks():
        with open(f"/proc/{job.pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

    before = ticks()
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(timeout=1)
    assert ticks() - before < 20, "of 100 in a second"
    (processes.folder / "mark-seen").touch()
    assert finish(job)[0] == 0


# ---- signals

HANDLES = """
got = set()
for name in ("SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), lambda number, frame: got.add(number))
rank = os.environ["TKV_RANK"]
mark("ready " + rank)
while len(got) < 2:
    time.sleep(0.01)
print(f"rank {rank} got {sorted(got)}", flush=True)
"""


def test_user_signals_reach_the_handlers_of_workers_and_kill_nobody(processes):
    job = processes.launch(HANDLES, workers=2, servers=1)
    wait_until(lambda: all((processes.folder / f"mark-ready {rank}").exists() for rank in range(2)))
    job.send_signal(signal.SIGUSR1)
    job.send_signal(signal.SIGUSR2)
    status, said = finish(job)
    assert status == 0, said
    for rank in range(2):
        assert f"[worker {rank}] rank {rank} got [10, 12]" in said, said


def test_user_signals_reach_no_process_that_a_worker_has_started(processes):
    text = """
    import subprocess
    helper = subprocess.Popen(["sleep", "600"])
    got = []
    signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
    mark("ready")
    while not got:
        time.sleep(0.01)
    time.sleep(0.2)
    print("the helper's status is", helper.poll(), flush=True)
    """
    job = processes.launch(text, workers=1, servers=1)
    wait_until((processes.folder / "mark-ready").exists)
    job.send_signal(signal.SIGUSR1)
    status, said = finish(job)
    assert status == 0 and "the helper's status is None" in said, said


def test_user_signals_to_every_process_of_a_job_kill_no_part_of_the_launcher(processes):
    """A scheduler such as Slurm sends them to each process of a step."""
    job = processes.launch(HANDLES, workers=1, servers=1)
    wait_until((processes.folder / "mark-ready 0").exists)
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
        others = [int(pid) for pid in file.read().split()]
    assert len(others) == 3, "the watchdog, a server and a worker"
    for pid in [*others, job.pid]:
        os.kill(pid, signal.SIGUSR1)
    wait_until(lambda: all(os.path.exists(f"/proc/{pid}") for pid in others))
    job.send_signal(signal.SIGUSR2)
    status, said = finish(job)
    assert status == 0 and "rank 0 got [10, 12]" in said, said


COUNTS = """
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros((2,)))
out = mx.nd.zeros((2,))
mark(f"ready {kv.rank}")
while not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-end")) or kv.round("w") < 20:
    kv.pushpull("w", mx.nd.ones((2,)), out=out)
    if kv.round("w") > 20:
        break
    time.sleep(0.02)
until_marked("end")
print(f"rank {kv.rank} ends", flush=True)
"""


def launcher_under(shell):
    """Return the launcher that a shell has started; None: it has not yet."""
    with open(f"/proc/{shell.pid}/task/{shell.pid}/children") as file:
        for pid in file.read().split():
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                if b"launch" in command.read():
                    return int(pid)
    return None


class Job:
    def __init__(self, pid):
        self.pid = pid


@pytest.mark.parametrize("seconds", [0.5, 7], ids=["short", "longer than the limit of silence"])
def test_ctrl_z_stops_the_whole_job_and_fg_continues_it(processes, seconds):
    shell = processes.start_on_terminal(["bash", "--norc", "--noprofile", "-i"], PS1="ready> ")
    words = " ".join(f"'{word}'" for word in command_of(processes, COUNTS))
    shell.type(words + "\n")
    wait_until(lambda: all((processes.folder / f"mark-ready {rank}").exists() for rank in range(2)))
    job = Job(launcher_under(shell.process))
    workers = list(living(job, "worker").values())
    assert len(workers) == 2
    shell.type("\x1a")
    wait_until(lambda: is_stopped(job.pid) and all(map(is_stopped, workers)))
    shell.read_until("Stopped")
    with pytest.raises(subprocess.TimeoutExpired):
        shell.process.wait(timeout=seconds)  # this is what is tested
    assert all(map(is_stopped, [job.pid, *workers]))
    shell.type("fg\n")
    wait_until(lambda: not any(map(is_stopped, [job.pid, *workers])))
    (processes.folder / "mark-end").touch()
    for rank in range(2):
        shell.read_until(f"[worker {rank}] rank {rank} ends")
    shell.read_until("ready> ", count=3)  # the launcher would pass on what is typed before
    shell.type("echo status $?\nexit\n")
    _, shown = shell.finish()
    assert "status 0" in shown and "dead" not in shown, shown


def test_a_stop_that_the_launcher_does_not_take_stops_no_worker_for_good(processes):
    """No shell can continue a process whose group is an orphan, so the system does not stop it by this signal."""
    job = processes.launch(COUNTS, workers=2, servers=1)
    wait_until(lambda: all((processes.folder / f"mark-ready {rank}").exists() for rank in range(2)))
    job.send_signal(signal.SIGTSTP)
    (processes.folder / "mark-end").touch()
    status, said = finish(job)
    assert status == 0 and "rank 0 ends" in said and "rank 1 ends" in said, said


# ---- the launcher's own words


def test_the_launcher_says_at_the_start_where_the_job_is(processes):
    job = processes.launch("until_marked('seen')", workers=1, servers=1)
    said = read_until(job, "tkv launch: the job is at tkv://")
    url = re.search(r"the job is at (tkv://\S+)", said)[1]
    status, seen = finish(processes.start([*TKV, "status", url]))
    assert status == 0 and "server 0" in seen, seen
    (processes.folder / "mark-seen").touch()
    assert finish(job)[0] == 0


def test_a_process_that_does_not_end_in_its_grace_period_is_named(processes, tmp_path):
    text = """
    if os.environ["TKV_RANK"] == "1":
        mark("ready")
        time.sleep(600)
    until_marked("stopped")
    sys.exit(5)
    """
    options = ["--grace", "1", "--log", str(tmp_path / "logs")]
    job = processes.launch(text, *options, workers=2, servers=1)
    wait_until((processes.folder / "mark-ready").exists)
    os.kill(pids_of(job, "worker")[1], signal.SIGSTOP)
    (processes.folder / "mark-stopped").touch()
    status, said = finish(job)
    assert status == 5, said
    for text in (said, (tmp_path / "logs" / "launcher.log").read_text()):
        assert "worker 1 still runs after the grace period of 1 s; it is ended" in text, text
        assert "worker 1 does not end; it is killed" in text, text
