"""Jobs of processes on one host, as their users start them, and the errors that they get when a process dies."""

import os
import re
import signal
import socket
import sys
import textwrap
import time

import pytest
from jobs import FILE_STORE, SOON, children_of_this_test, finish, pids_of, read_until, wait_until

TRAIN = """
kv = mx.kv.create("dist_sync")
kv.init(["w", "b"], [mx.nd.zeros((300, 1000)), mx.nd.ones((3,))])
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
for step in range(20):
    kv.push(["w", "b"], [mx.nd.ones((300, 1000)) * (kv.rank + 1), mx.nd.ones((3,))])
    out = kv.pull(["w", "b"])
print(f"weights {out[0].asnumpy()[-1, -1]} {out[1].asnumpy()[0]}", flush=True)
kv.close()
"""


@pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["unix", "tcp"])
def test_every_rank_sees_the_sums_of_all(processes, options):
    status, said = finish(processes.launch(TRAIN, *options, workers=3))
    assert status == 0, said
    assert said.count("weights -60.0 -29.0") == 3, said


def test_stores_of_one_process_share_its_rank(processes):
    text = """
    one, two = mx.kv.create("dist_sync"), mx.kv.create("dist_async")
    assert one.rank == two.rank and two.num_workers == 2
    one.init(3, mx.nd.zeros((2,)))
    two.init(3, mx.nd.ones((5,)))
    one.push(3, mx.nd.ones((2,)))
    two.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    two.barrier()
    two.push(3, mx.nd.ones((5,)))
    two.barrier()
    assert one.pull(3).asnumpy().tolist() == [2, 2], one.pull(3)
    two.barrier()
    assert two.pull(3).asnumpy()[0] == -1, two.pull(3)
    two.close()
    one.push(3, mx.nd.ones((2,)) * 5)
    assert one.pull(3).asnumpy()[0] == 10
    one.close()
    print("good")
    """
    status, said = finish(processes.launch(text))
    assert status == 0 and said.count("good") == 2, said


@pytest.mark.parametrize("end", ["kv.close()", "del kv"])
def test_servers_free_the_keys_of_a_store_that_all_have_closed_or_dropped(processes, end):
    text = """
    def server_bytes():
        total = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                status = open(f"/proc/{pid}/status").read()
                command = open(f"/proc/{pid}/cmdline").read().split("\\0")
            except OSError:
                continue
            if f"PPid:\\t{os.getppid()}\\n" in status and "server" in command:
                total += int(status.split("VmRSS:")[1].split()[0]) << 10
        assert total > 1 << 20
        return total

    first = mx.kv.create("dist_sync")
    sizes = []
    for _ in range(5):
        kv = mx.kv.create("dist_sync")
        kv.init("w", np.ones(8 << 20, np.float32))
        kv.pushpull("w", np.ones(8 << 20, np.float32))
        END
        first.barrier()
        sizes.append(server_bytes() >> 20)
        first.barrier()
    assert sizes[4] < sizes[1] + 24, sizes
    first.close()
    print("good", sizes)
    """
    status, said = finish(processes.launch(text.replace("END", end)))
    assert status == 0 and said.count("good") == 2, said


def test_the_first_failure_gives_the_exit_status(processes):
    status, said = finish(processes.launch("sys.exit(3 if os.environ['TKV_RANK'] == '1' else 0)"))
    assert status == 3
    assert "worker 1 ended with status 3" in said


def test_a_command_that_is_none_is_named(processes):
    status, said = finish(processes.start([sys.executable, "-m", "tensorkv", "launch", "no-such-command"]))
    assert status != 0 and "no-such-command" in said


# The script of every survivor: it works until it fails, and prints the error and how long the failing call took.
SURVIVOR = """
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros((1000,)))
def work(steps, doomed=None, at=10, how=signal.SIGKILL):
    for step in range(steps):
        if kv.rank == doomed and step == at:
            os.kill(os.getpid(), how)
        begin = time.time()
        try:
            kv.push("w", mx.nd.ones((1000,)))
            value = kv.pull("w").asnumpy()
        except mx.KVError as error:
            print(f"rank {kv.rank} step {step}: {type(error).__name__}: {error} (after {time.time() - begin:.2f} s)")
            sys.exit(7)
        assert (value == value[0]).all() and value[0] == kv.num_workers, value
        if step == 20:
            print("under way", flush=True)
        time.sleep(0.005)
"""


def seconds_of(said):
    return [float(s) for s in re.findall(r"\(after ([\d.]+) s\)", said)]


def test_a_killed_worker_is_named_at_once(processes):
    status, said = finish(processes.launch(SURVIVOR + "work(100_000, doomed=1)", workers=3))
    assert status == 128 + signal.SIGKILL, said
    assert "worker 1 was killed by signal 9" in said
    for rank in (0, 2):
        assert re.search(rf"rank {rank} step \d+: UnavailableError: .*'w'.*worker 1", said), said
    assert all(s < SOON for s in seconds_of(said)), said


def test_a_silent_worker_is_dead_after_five_seconds(processes):
    job = processes.launch(SURVIVOR + "work(100_000, doomed=1, how=signal.SIGSTOP)", "--grace", "1")
    status, said = finish(job)
    assert re.search(r"rank 0 step \d+: UnavailableError: .*worker 1", said), said
    assert status == 7
    assert all(s < 7 for s in seconds_of(said)), said


def test_a_worker_that_pauses_goes_on(processes):
    text = (
        SURVIVOR
        + """
if kv.rank == 1:
    kv.barrier()
    pid = os.fork()
    if pid == 0:
        while " T " not in open(f"/proc/{os.getppid()}/stat").read():
            time.sleep(0.01)
        time.sleep(1.5)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(pid, 0)
else:
    kv.barrier()
work(20)
print("went on")
"""
    )
    status, said = finish(processes.launch(text))
    assert status == 0 and said.count("went on") == 2, said


def test_a_killed_server_is_named_at_once(processes):
    text = (
        SURVIVOR
        + """
if kv.rank == 0:
    mine = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = open(f"/proc/{pid}/environ").read()
        except OSError:
            continue
        if "TKV_JOB=" + os.environ["TKV_JOB"] in variables and "TKV_ROLE=server" in variables:
            mine.append(int(pid))
    kv.barrier()
    until_marked("past the barrier")
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
else:
    kv.barrier()
    mark("past the barrier")
work(100_000)
"""
    )
    status, said = finish(processes.launch(text, "--grace", "2", servers=1))
    assert status == 128 + signal.SIGKILL, said
    assert "server 0 was killed by signal 9" in said
    for rank in (0, 1):
        assert re.search(rf"rank {rank} step \d+: UnavailableError: .*server 0", said), said
    assert all(s < SOON for s in seconds_of(said)), said


def test_children_of_a_killed_launcher_end(processes):
    job = processes.launch("kv = mx.kv.create('dist_sync'); print('here', flush=True); time.sleep(100)")
    read_until(job, "here")
    os.kill(job.pid, signal.SIGKILL)
    job.wait()  # the fixture sees that nothing is left


def test_children_end_where_the_whole_group_of_the_launcher_is_killed(processes):
    job = processes.launch("kv = mx.kv.create('dist_sync'); print('here', flush=True); time.sleep(100)")
    read_until(job, "here")
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    wait_until(lambda: not children_of_this_test(), 10)


def test_a_launcher_whose_parent_ignores_the_ends_of_children_ends(processes):
    command = ["env", "--ignore-signal=CHLD", sys.executable, "-m", "tensorkv", "launch", "-n", "1", "-s", "1", "true"]
    status, said = finish(processes.start(command), timeout=30)
    assert status == 0, said


def test_a_hangup_that_nohup_has_had_ignored_ends_nothing(processes):
    command = ["env", "--ignore-signal=HUP", sys.executable, "-m", "tensorkv", "launch", "-n", "1", "-s", "1"]
    job = processes.start(
        [
            *command,
            sys.executable,
            "-u",
            processes.script("""
    print("here", flush=True)
    until_marked("go")
    """),
        ]
    )
    read_until(job, "here")
    os.kill(job.pid, signal.SIGHUP)
    (processes.folder / "mark-go").touch()
    status, said = finish(job)
    assert status == 0, said


def test_a_server_that_dies_after_a_worker_has_failed_ends_the_job(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((4,)))
    kv.barrier()
    if kv.rank == 1:
        os._exit(3)
    print("computes", flush=True)
    time.sleep(100)
    """
    job = processes.launch(text, "--on-death", "continue", "--grace", "1", servers=1)
    said = read_until(job, "ended with status 3")
    os.kill(pids_of(job, "server")[0], signal.SIGKILL)
    status, rest = finish(job, timeout=30)
    assert status == 3, said + rest


def test_a_signal_to_the_launcher_reaches_all(processes):
    job = processes.launch(
        "kv = mx.kv.create('dist_sync'); print('here', flush=True); kv.init(1, mx.nd.ones((2,)))\n"
        "if kv.rank == 0: time.sleep(100)\nkv.barrier()"
    )
    read_until(job, "here", 2)
    begin = time.time()
    os.kill(job.pid, signal.SIGINT)
    status, said = finish(job)
    assert status == 128 + signal.SIGINT
    assert "KeyboardInterrupt" in said, said
    assert time.time() - begin < 10


@pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["unix", "tcp"])
def test_ctrl_c_in_close_is_not_hidden_by_what_close_gives_up(processes, options):
    text = """
    kv = mx.kv.create("dist_sync")
    big = mx.nd.ones((1 << 22,))
    kv.init("w", big)
    print("here", flush=True)
    until_marked("stopped")
    pushes = [kv.push("w", big, async_op=True) for _ in range(3)]
    try:
        print("closes", flush=True)
        kv.close()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    job = processes.launch(text, *options, workers=1, servers=1)
    read_until(job, "here")
    (server,), (worker,) = pids_of(job, "server"), pids_of(job, "worker")
    os.kill(server, signal.SIGSTOP)
    (processes.folder / "mark-stopped").touch()
    read_until(job, "closes")
    time.sleep(0.2)
    os.kill(worker, signal.SIGINT)
    read_until(job, "interrupted")
    os.kill(server, signal.SIGCONT)
    finish(job)


@pytest.mark.parametrize("wrong", ["servers=5", "on_death='continue'"])
def test_a_worker_that_asks_for_another_job_has_not_taken_part(processes, wrong):
    text = f"""
    if os.environ["TKV_RANK"] == "1":
        try:
            mx.kv.create("dist_sync", {wrong})
        except mx.errors.FailedPreconditionError as error:
            print("refused:", error, flush=True)
    with mx.kv.create("dist_sync") as kv:
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)))
        print("sum", kv.pull("w").asnumpy()[0], kv.rejoined, flush=True)
    """
    status, said = finish(processes.launch(text))
    assert status == 0 and said.count("sum 2.0 False") == 2 and "refused: create" in said, said


def test_a_restarted_worker_goes_on(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((4,)))
    if kv.rejoined:
        print("goes on from round", kv.round("w"))
    for step in range(kv.round("w"), 60):
        if step == 25 and kv.rank == 1 and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
        kv.push("w", mx.nd.ones((4,)) * (step + 1))
        value = kv.pull("w").asnumpy()[0]
        assert value in (2 * (step + 1), step + 1), (step, value)
        if not (kv.rejoined or step == 25):
            assert step > 25 or value == 2 * (step + 1)
    print("done", kv.round("w"), value)
    kv.close()
    """
    status, said = finish(processes.launch(text, "--restart", "1"))
    assert status == 0, said
    assert "it is started again (1 of 1)" in said
    assert re.search(r"goes on from round 2\d", said), said
    assert said.count("done 60 120.0") == 2, said


def test_a_second_claim_to_a_rank_ends_the_first(processes):
    text = """
    import subprocess
    if "SECOND" in os.environ:
        kv = mx.kv.create("dist_sync", server_patience=10)
        kv.init("w", mx.nd.zeros((2,)))
        print("second", kv.rejoined)
        os._exit(0)
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((2,)))
    kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
    if kv.rank == 1:
        subprocess.run([sys.executable, "-u", __file__], env={**os.environ, "SECOND": "1"}, check=True)
        try:
            kv.push("w", mx.nd.ones((2,)))
            kv.pull("w")
        except mx.errors.AbortedError as error:
            print("first:", error)
        try:
            kv.close()
        except mx.errors.AbortedError:
            pass  # the push was on its way when the life ended, and the pull was the first to be told
    """
    status, said = finish(processes.launch(text))
    assert status == 0, said
    assert "second True" in said
    assert re.search(r"first: .*this life is over", said), said


def test_a_child_of_fork_gets_an_error_and_harms_nobody(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((2,)))
    pid = os.fork()
    if pid == 0:
        for attempt in (lambda: kv.pull("w"), lambda: mx.kv.create("dist_sync")):
            try:
                attempt()
            except mx.errors.FailedPreconditionError as error:
                print("child:", error, flush=True)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    kv.push("w", mx.nd.ones((2,)))
    print("parent", kv.pull("w").asnumpy()[0])
    kv.close()
    """
    status, said = finish(processes.launch(text))
    assert status == 0, said
    assert said.count("child:") == 4 and said.count("parent 2.0") == 2, said


def test_mxnets_variables_start_a_job(processes):
    script = processes.script(TRAIN.replace("import tensorkv as mx", "import mxnet as mx"))
    variables = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": 9091 + os.getpid() % 1000,
        "DMLC_NUM_WORKER": 2,
        "DMLC_NUM_SERVER": 1,
    }
    roles = ["scheduler", "server", "worker", "worker"]
    command = [sys.executable, "-u", "-m", "tensorkv.mxnet", script]
    started = [processes.start(command, DMLC_ROLE=role, **variables) for role in roles]
    for role, process in zip(roles, started, strict=True):
        status, said = finish(process)
        assert status == 0, (role, said)
        assert ("weights -30.0 -19.0" in said) == (role == "worker"), (role, said)


def test_a_worker_that_is_killed_without_a_launcher_is_named_at_once(processes):
    script = processes.script(SURVIVOR + "work(100_000, doomed=1)")
    variables = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": 11_091 + os.getpid() % 1000,
        "DMLC_NUM_WORKER": 3,
        "DMLC_NUM_SERVER": 1,
    }
    command = [sys.executable, "-u", "-m", "tensorkv.mxnet", script]
    roles = ["scheduler", "server", "worker", "worker", "worker"]
    started = [processes.start(command, DMLC_ROLE=role, **variables) for role in roles]
    ended = [finish(process) for process in started[2:]]
    assert sorted(status for status, _ in ended) == [-signal.SIGKILL, 7, 7], ended
    for status, said in ended:
        if status == 7:
            assert re.search(r"UnavailableError: .*'w'.*worker 1", said), said
            assert all(s < SOON for s in seconds_of(said)), said


def test_a_server_script_serves_by_mxnets_class(processes):
    script = processes.script("""
    kv = mx.kv.create("dist_sync")
    if os.environ["DMLC_ROLE"] != "worker":
        mx.kvstore_server.KVStoreServer(kv).run()
        print("served")
        sys.exit(0)
    kv.init(1, mx.nd.ones((2,)))
    kv.push(1, mx.nd.ones((2,)) * 4)
    print("value", kv.pull(1).asnumpy()[0])
    """)
    variables = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": 10_091 + os.getpid() % 1000,
        "DMLC_NUM_WORKER": 1,
        "DMLC_NUM_SERVER": 1,
    }
    roles = ["scheduler", "server", "worker"]
    started = [processes.start([sys.executable, script], DMLC_ROLE=role, **variables) for role in roles]
    for role, process in zip(roles, started, strict=True):
        status, said = finish(process)
        assert status == 0, (role, said)
        assert ("value 4.0" if role == "worker" else "served") in said, (role, said)


def test_without_a_launcher_the_ways_to_start_are_listed(processes):
    status, said = finish(processes.start([sys.executable, processes.script("mx.kv.create('dist_sync')")]))
    assert status == 1
    for way in (
        "tkv launch",
        "srun --mpi=pmix",
        "tensorkv.ray.start()",
        "DMLC_ROLE",
        "or 'self' for a job of this worker",
    ):
        assert way in said


@pytest.mark.parametrize(
    "variables, words",
    [
        ({"TKV_ROLE": "worker"}, "TKV_HEAD is not set"),
        (
            {"TKV_ROLE": "boss", "TKV_HEAD": "tcp:127.0.0.1:1"},
            "TKV_ROLE='boss'; there are worker, server, head and observer",
        ),
        ({"TKV_HEAD": "nowhere"}, "address 'nowhere'"),
        (
            {"TKV_HEAD": "tcp:::1:7000"},
            "address 'tcp:::1:7000': tcp:HOST:PORT (an IPv6 address in brackets: tcp:[::1]:7",
        ),
        ({"TKV_HEAD": "tcp:[::1]:1", "TKV_INSECURE_NETWORK": "1"}, "tcp:[::1]:1"),
        ({"TKV_HEAD": "tcp:127.0.0.1:1", "TKV_RANK": "x"}, "TKV_RANK='x'"),
        ({"TKV_HEAD": "tcp:127.0.0.1:1", "TKV_TOKEN_FILE": "/no/such"}, "TKV_TOKEN_FILE='/no/such'"),
        ({"DMLC_ROLE": "worker"}, "DMLC_PS_ROOT_URI is not set"),
        ({"TKV_HEAD": "tcp:127.0.0.1:1", "TKV_INSECURE_NETWORK": "1"}, "Connection refused"),
        ({"TKV_HEAD": "tcp:127.0.0.1:1"}, "TKV_TOKEN_FILE"),
    ],
)
def test_wrong_variables_are_named(processes, variables, words):
    text = "mx.kv.create('dist_sync', patience=0.5)"
    status, said = finish(processes.start([sys.executable, processes.script(text)], **variables))
    assert status == 1 and words in said, said


def test_another_token_is_refused(processes, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name * 20)
        (tmp_path / name).chmod(0o600)
    head = processes.start(
        [
            sys.executable,
            "-u",
            "-m",
            "tensorkv",
            "head",
            "--workers",
            "1",
            "--servers",
            "1",
            "--head",
            "tcp:127.0.0.1:0",
        ],
        TKV_TOKEN_FILE=tmp_path / "one",
    )
    address = head.stdout.readline().split()[-1]
    text = "mx.kv.create('dist_sync', patience=100)"
    begin = time.time()
    worker = processes.start(
        [sys.executable, processes.script(text)], TKV_HEAD=address, TKV_TOKEN_FILE=tmp_path / "two"
    )
    status, said = finish(worker)
    assert status == 1 and "UnauthenticatedError" in said and "another token" in said, said
    assert time.time() - begin < 30
    head.terminate()
    assert finish(head)[0] == 128 + signal.SIGTERM


def test_an_object_with_set_get_and_wait_brings_processes_together(processes, tmp_path):
    text = (
        FILE_STORE
        + """
import threading
def mark_inside_close(name):  # tells rank 0 that the main thread of this process is in kv.close()
    end = time.monotonic() + 60
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code.co_name != "close":
        assert time.monotonic() < end, "close() was not called"
        time.sleep(0.001)
    mark(name)
rank = int(sys.argv[1])
for life in range(2):  # closed and created again
    kv = mx.kv.create("dist_sync", bootstrap=FileStore(sys.argv[2]), rank=rank, num_workers=3)
    assert (kv.rank, kv.num_workers) == (rank, 3)
    kv.init("w", mx.nd.zeros((500_000,)))
    kv.push("w", mx.nd.ones((500_000,)) * (rank + 1))
    print("sum", kv.pull("w").asnumpy()[-1])
    if rank == 0:
        for other in (1, 2):
            until_marked(f"{life} {other}")
        assert kv.pull("w").asnumpy()[0] == 6  # the closes of the others wait for rank 0, as they host servers
    else:
        threading.Thread(target=mark_inside_close, args=(f"{life} {rank}",)).start()
    kv.close()
"""
    )
    script = processes.script(text)
    started = [processes.start([sys.executable, script, str(rank), str(tmp_path)]) for rank in range(3)]
    for process in started:
        status, said = finish(process)
        assert status == 0 and said.count("sum 6.0") == 2, said


def three_that_host(processes, folder, text):
    """Start three workers that host the servers, and rank 0 the head; their script has `create(kind)` and `keys`."""
    script = processes.script(
        FILE_STORE
        + """
def create(kind):
    return mx.kv.create(kind, bootstrap=FileStore(sys.argv[2]), rank=int(sys.argv[1]), num_workers=3)
keys = list(range(20))  # on all three servers
"""
        + textwrap.dedent(text)
    )
    return [processes.start([sys.executable, script, str(rank), str(folder)]) for rank in range(3)]


def test_rank_0_that_dies_with_the_head_is_dead_for_the_others(processes, tmp_path):
    started = three_that_host(
        processes,
        tmp_path,
        """
        kv = create("dist_sync")
        kv.init(keys, [mx.nd.zeros((2,))] * 20)
        kv.push(keys, [mx.nd.ones((2,))] * 20)
        assert all(value.asnumpy()[0] == 3 for value in kv.pull(keys))
        kv.barrier()
        if kv.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        known = set()
        for key in keys:
            try:
                kv.push(key, mx.nd.ones((2,)))
                kv.pull(key)
            except mx.errors.UnavailableError as error:
                known.add(str(error).partition(": ")[2])
        print(sorted(known), flush=True)
        try:
            kv.close()
        except mx.errors.UnavailableError as error:  # of the last push
            assert "server 0 is dead" in str(error)
        print("closed", flush=True)
        """,
    )
    assert finish(started[0])[0] == -signal.SIGKILL
    begin = time.monotonic()
    for process in started[1:]:
        status, said = finish(process, timeout=100)
        assert status == 0 and "closed" in said, said
        assert "worker 0 is dead; round 2 needs it" in said, said
        assert "server 0 is dead; the job cannot go on: start it again from your checkpoint" in said, said
    assert time.monotonic() - begin < 25  # its patience for other workers is 600 s, for a server 30 s


def test_what_rank_0_has_set_outlives_it_with_the_head(processes, tmp_path):
    """The workers may not know yet that the servers' new optimizer counts, and rank 0 has pushed nothing with it."""
    started = three_that_host(
        processes,
        tmp_path,
        """
        kv = create("dist_async")
        kv.init(keys, [mx.nd.zeros((2,))] * 20)
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
        kv.barrier()
        for key in keys if kv.rank == 1 else []:
            kv.push(key, mx.nd.ones((2,)))
        kv.barrier()
        if kv.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        until_marked("killed")
        lost = []
        for step in range(3):
            for key in keys:
                try:
                    kv.push(key, mx.nd.ones((2,)))
                    kv.pull(key)
                except mx.errors.UnavailableError as error:
                    assert "server 0 is dead" in str(error), error
                    lost.append(key)
        mark(f"pushed {kv.rank}")
        until_marked(f"pushed {3 - kv.rank}")
        left = [key for key in keys if key not in lost]
        print([kv.pull(key).asnumpy()[0] for key in left] == [7.0] * len(left), len(left) > 5, flush=True)
        if kv.rank == 2:
            mark("closing")
        else:
            until_marked("closing")
            time.sleep(2)  # its server serves on while this worker is connected
            assert all(kv.pull(key).asnumpy()[0] == 7 for key in left)
        try:
            kv.close()
        except mx.errors.UnavailableError as error:
            assert "server 0 is dead" in str(error)
        print("closed", flush=True)
        """,
    )
    assert finish(started[0])[0] == -signal.SIGKILL
    (tmp_path / "mark-killed").touch()
    for process in started[1:]:
        status, said = finish(process, timeout=100)
        assert status == 0 and "True True" in said and "closed" in said, said


def shares_the_cores(said, workers):
    """Return whether each of `workers` workers uses its equal part of this machine's cores."""
    used = re.findall(r"worker \d+: large operations use (\d+) of (\d+) cores", said)
    return len(used) == workers and all(int(part) == max(1, int(cores) // workers) for part, cores in used)


MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]


def test_mpirun_starts_workers_that_host_the_servers(processes):
    script = processes.script(TRAIN)
    status, said = finish(
        processes.start([*MPIRUN, "-bind-to", "none", "-n", "2", sys.executable, script], TKV_LOG="debug")
    )
    assert status == 0 and said.count("weights -30.0 -19.0") == 2, said
    assert shares_the_cores(said, 2), said


def test_under_mpirun_create_says_that_it_waits_for_processes_that_make_no_store(processes):
    script = processes.script("time.sleep(8) if os.environ['PMIX_RANK'] == '1' else None\n" + TRAIN)
    status, said = finish(processes.start([*MPIRUN, "-n", "2", sys.executable, script]))
    assert status == 0 and said.count("still waiting 5 s for processes of the group of 2") == 1, said


def test_under_mpirun_the_token_is_that_of_the_first_process_and_another_one_is_refused(processes, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(f"the secret {name} of this test\n")
    script = processes.script(TRAIN)

    def run(first, second):
        parts = [["-n", "1", *given, sys.executable, script] for given in (first, second)]
        return finish(processes.start([*MPIRUN, *parts[0], ":", *parts[1]], TKV_TRANSPORT="tcp"))

    one, two = (["-x", f"TKV_TOKEN_FILE={tmp_path / name}"] for name in ("one", "two"))
    for others in (one, []):
        status, said = run(one, others)
        assert status == 0 and said.count("weights -30.0 -19.0") == 2, said
    status, said = run(one, two)
    assert status != 0 and "TKV_TOKEN_FILE names another token here than in the process with the head" in said, said


def test_under_mpirun_a_create_that_was_too_early_is_made_again(processes):
    script = processes.script(
        """
        if os.environ["PMIX_RANK"] == "0":
            try:
                mx.kv.create("dist_sync", patience=1)
            except mx.errors.DeadlineExceededError as error:
                print("too early:", error, flush=True)
            mark("refused")
        until_marked("refused")
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)))
        print("sum", kv.pull("w").asnumpy()[0], flush=True)
        kv.close()
        """
    )
    status, said = finish(processes.start([*MPIRUN, "-n", "2", sys.executable, script]))
    assert status == 0 and said.count("sum 2.0") == 2 and said.count("too early") == 1, said


@pytest.mark.framework
def test_torchruns_store_has_the_patience_of_the_program_and_hears_ctrl_c(processes):
    pytest.importorskip("torch")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        torchrun = {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        port = str(nobody.getsockname()[1])
        script = processes.script(
            "import torch.distributed; print('begins', flush=True); mx.kv.create('dist_sync', patience=float(sys.argv[1]))"
        )
        status, said = finish(processes.start([sys.executable, script, "1"], **torchrun, MASTER_PORT=port))
        assert "DeadlineExceededError: create: waited 1 s for torchrun's store at 127.0.0.1:" in said, said
        waiting = processes.start([sys.executable, "-u", script, "60"], **torchrun, MASTER_PORT=port)
        read_until(waiting, "begins")
        time.sleep(1)
        waiting.send_signal(signal.SIGINT)
        status, said = finish(waiting, timeout=20)
        assert "KeyboardInterrupt" in said, said
        status, said = finish(processes.start([sys.executable, script, "1"], **torchrun))
        assert (
            "InvalidArgumentError: create: TORCHELASTIC_RUN_ID is set, as by torchrun, and MASTER_PORT is not" in said
        ), said


RUN_SERVER = "import tensorkv as mx; mx.kvstore_server.KVStoreServer(None).run()"


@pytest.mark.parametrize(
    "words", [["-m", "tensorkv", "server"], ["-m", "tensorkv.server"], ["-c", RUN_SERVER]], ids=["command", "module", "class"]
)  # fmt: skip
def test_mpirun_starts_servers_as_a_second_context(processes, words):
    script = processes.script(TRAIN)
    serve = [sys.executable, *words]
    command = [*MPIRUN, "-n", "2", sys.executable, script, ":", "-n", "2", *serve]
    status, said = finish(processes.start(command))
    assert status == 0 and said.count("weights -30.0 -19.0") == 2, said


@pytest.mark.framework
def test_torchrun_starts_a_job(processes):
    pytest.importorskip("torch")
    script = processes.script(TRAIN)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", script]
    status, said = finish(processes.start(command, TKV_LOG="debug"), timeout=120)
    assert status == 0 and said.count("weights -30.0 -19.0") == 2, said
    assert shares_the_cores(said, 2), said


@pytest.mark.framework
def test_torchrun_starts_the_workers_again_as_a_job_of_its_own(processes):
    pytest.importorskip("torch")
    script = processes.script(
        """
        kv = mx.kv.create("dist_sync")
        again = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        assert not kv.rejoined and kv.num_workers == 2
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)) * (kv.rank + 1))
        if again == 0 and kv.rank == 1:
            sys.exit(3)
        line = f"start {again} rank {kv.rank} round {kv.round('w')} {kv.pull('w').asnumpy()}\\n"
        os.write(1, line.encode())  # at once: both write to one pipe
        """
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--standalone",
    ]
    status, said = finish(processes.start([*command, script]), timeout=180)
    assert status == 0 and said.count("round 1 [3. 3.]") in (2, 3), said
    assert {f"start 1 rank {rank} round 1 [3. 3.]" for rank in (0, 1)} <= set(said.splitlines()), said


@pytest.mark.framework
def test_a_torchrun_job_goes_on_with_fewer_workers_when_a_node_is_lost(processes):
    """The agent that is left starts its worker again as one of a smaller world, which finds a job of its own."""
    pytest.importorskip("torch")
    script = processes.script(
        """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((2,)))
        if kv.num_workers == 2:
            kv.pushpull("w", mx.nd.ones((2,)))
            print("two", kv.rank, "pid", os.getpid(), flush=True)
            until_marked("lost")
        value = mx.nd.ones((2,))
        kv.pushpull("w", value)
        print("world", kv.num_workers, value.asnumpy(), flush=True)
        """
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3",
        "--rdzv-backend", "c10d", "--rdzv-id", "elastic", "--rdzv-endpoint", f"127.0.0.1:{port}",
    ]  # fmt: skip
    conf = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,is_host="
    stays, lost = [processes.start([*command, "--rdzv-conf", conf + is_host, script]) for is_host in ("true", "false")]
    read_until(stays, "two")
    said = read_until(lost, "two")
    os.killpg(lost.pid, signal.SIGKILL)
    os.kill(int(re.search(r"pid (\d+)", said).group(1)), signal.SIGKILL)
    (processes.folder / "mark-lost").touch()
    status, rest = finish(stays, timeout=180)
    assert status == 0 and "world 1 [1. 1.]" in rest, rest


def test_a_bootstrap_that_is_none_is_named(processes):
    text = "mx.kv.create('dist_sync', bootstrap=5, rank=0, num_workers=1)"
    status, said = finish(processes.start([sys.executable, processes.script(text)]))
    assert status == 1 and "without set()" in said
    text = FILE_STORE + "mx.kv.create('dist_sync', bootstrap=FileStore('/tmp'), rank=2, num_workers=2)"
    status, said = finish(processes.start([sys.executable, processes.script(text)]))
    assert status == 1 and "rank=2, num_workers=2; a rank from 0 to num_workers - 1 is needed" in said


def test_a_launcher_without_standard_files_starts_a_job(processes, tmp_path):
    """The launcher's own files must not get the numbers 0 to 2, because output would then be written to its sockets."""
    script = processes.script(TRAIN)
    launch = f"{sys.executable} -m tensorkv launch -n 2 -s 1 --log {tmp_path}/logs {sys.executable} -u {script}"
    status, _ = finish(processes.start(["sh", "-c", f"exec {launch} <&- >&- 2>&-"]))
    said = [(tmp_path / "logs" / f"worker-{rank}.log").read_text() for rank in (0, 1)]
    assert status == 0 and all("weights -30.0 -19.0" in text for text in said), said


def test_a_launcher_that_cannot_print_says_so_and_goes_on(processes, tmp_path):
    launch = f"{sys.executable} -m tensorkv launch -n 2 -s 1 --log {tmp_path}/logs {sys.executable} -u {processes.script(TRAIN)}"
    status, said = finish(processes.start(["sh", "-c", f"exec {launch} >/dev/full"]))
    assert status == 2 and said.count("output of the processes cannot be passed on: No space left on device") == 1, said
    assert "weights -30.0 -19.0" in (tmp_path / "logs" / "worker-1.log").read_text()


def cpu_seconds(pid):
    """Return the CPU time that all threads of a process have used."""
    used = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            used += int(file.read().split()[0])
    return used / 1e9


def test_an_idle_job_uses_less_than_a_thousandth_of_a_core(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((1000,)))
    kv.pushpull("w", mx.nd.ones((1000,)), out=mx.nd.zeros((1000,)))
    print("ready", flush=True)
    time.sleep(100)
    """
    job = processes.launch(text, workers=1, servers=1)
    read_until(job, "ready")
    pids = {"head": job.pid, "server": pids_of(job, "server")[0], "worker": pids_of(job, "worker")[0]}
    least = dict.fromkeys(pids, 1.0)
    for _ in range(6):  # other load on the machine makes a window worse, never better
        begin, before = time.time(), {name: cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(3)
        for name, pid in pids.items():
            least[name] = min(least[name], (cpu_seconds(pid) - before[name]) / (time.time() - begin))
        if max(least.values()) < 0.001:
            break
    job.terminate()
    finish(job)
    assert max(least.values()) < 0.001, least


@pytest.mark.framework
def test_a_data_loader_with_workers_of_its_own_beside_a_store(processes):
    pytest.importorskip("torch")
    text = """
    import torch
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, i):
            return torch.full((50_000,), float(i))
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((50_000,)))
    out = torch.zeros(50_000)
    for epoch in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
            kv.push("w", batch.sum(0))
            kv.pull("w", out=out)
            assert (out == 2 * batch.sum(0)).all()
    kv.close()
    print("good", flush=True)
    """
    status, said = finish(processes.launch(text), timeout=120)
    assert status == 0 and said.count("good") == 2, said
