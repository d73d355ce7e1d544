"""The way in which `tkv launch` handles its command and the output of its processes."""

import json
import os
import pathlib
import re
import signal
import sys
import time

import pytest
import tensorkv
from jobs import SOON, finish, pids_of, read_until, tkv, wait_until

TKV = [sys.executable, "-m", "tensorkv"]


def memory_of(pid, field="VmRSS"):
    """Return the MiB of memory that a process has, or has had at most (VmHWM)."""
    with open(f"/proc/{pid}/status") as file:
        return int(next(line for line in file if line.startswith(field)).split()[1]) / 1024


WORDS = [
    '["a", {"b": 1}]', "[1,2]", "[", "", " ", "-n", "--workers=9", "--help", "--", "-x", "a=b", "%%", "it's \"so\"",
    "two\nlines", "\\n", "{}", "$HOME", "*",
]  # fmt: skip


@pytest.mark.parametrize("mark", [[], ["--"]], ids=["plain", "after --"])
def test_what_follows_the_command_is_passed_on_byte_for_byte(processes, mark):
    script = processes.script("import json; print('words ' + json.dumps(sys.argv[1:]))")
    command = [*TKV, "launch", "-n1", "--servers=1", "--grace", "7", *mark, sys.executable, script, *WORDS]
    status, said = finish(processes.start(command))
    assert status == 0, said
    line = next(line for line in said.splitlines() if "words " in line)
    assert json.loads(line.split("words ", 1)[1]) == WORDS


@pytest.mark.parametrize(
    "words, expected",
    [
        (["launch", "-n", "1"], "launch: there is no command to run"),
        (["launch", ""], "launch: there is no command to run"),
        (["launch", "true", ":", "-n", "1", ""], "launch: there is no command to run"),
        (["launch", "--restore", "/dev/null", "true"], "launch: --restore /dev/null: a file of 0 bytes is no snapshot"),
        (["launch", "--sevrers", "1", "true"], "launch: '--sevrers' was not expected; did you mean '--servers'?"),
        (["launch", "--onDeath=wait", "true"], "launch: '--onDeath=wait' was not expected; did you mean '--on-death'?"),
        (["launch", "-n", "0", "true"], "--workers"),
        (["launch", "-np", "2", "true"], "launch: instead of '-np' use -n N"),
        (["launch", "-hostfile", "h.txt", "true"], "launch: instead of '-hostfile' use --hosts FILE"),
        (["launch", "--timeout=5", "true"], "launch: instead of '--timeout=5' use `timeout SECONDS tkv launch ...`"),
        (["launch", "-hold", "true"], "launch: '-hold' was not expected"),
        (["launch", "-n=2", "true"], "launch: instead of '-n=2' write '-n 2'"),
        (["launch", "true", ":", "-np", "2", "true"], "launch: instead of '-np' use -n N"),
        (
            ["launch", "true", ":", "-n", "2", "--wdir", "/"],
            "behind ':' only -n N or --observers N comes before a comm",
        ),
        (["launch", "--hosts", "a,b", "true"], "'a,b': No such file or directory; a file is needed, with one host in"),
        (["launch", "2", "true"], "launch: '2' is no program in PATH"),
        (["launch", "true x"], "'true x' is no program in PATH; the command and its arguments are words of their own"),
        (["launch", "/dev/null"], "launch: '/dev/null' cannot be run: Permission denied"),
        (["lauch", "-n", "1", "true"], "there is no command 'lauch'; did you mean 'launch'?"),
        (["nonsense"], "there is no command 'nonsense'; there are "),
        ([], "A subcommand is required"),
        (["config", "x"], "config: 'x' was not expected"),
        (["server"], "TKV_HEAD is not set, and the job needs it: the address that `tkv head` prints"),
        (["server", "--rank", "many"], "--rank"),
        (["launch", "-x", "NOT_SET_HERE", "true"], "-x 'NOT_SET_HERE': NOT_SET_HERE is not set here"),
        (["launch", "-x", "=3", "true"], "-x '=3': a variable has a name"),
        (["launch", "-x", "TKV_RANK=3", "true"], "the launcher itself says TKV_RANK to each process"),
        (["launch", "-x", "TKV_LOG=loud", "true"], "TKV_LOG='loud'"),
        (["launch", "--address", "127.0.0.1", "true"], "--address requires --hosts"),
        (["launch", "--hosts", "", "true"], "--hosts: is empty"),
        (["launch", "--log", "", "true"], "--log: is empty"),
        (["launch", "--grace", "-5", "true"], "--grace: Value -5"),
        (["launch", "--tcp=0", "true"], "tcp was given"),
        (["launch", "--tcp", "--transport", "unix", "true"], "--tcp excludes --transport"),
        (["launch", "--deterministic=7", "true"], "deterministic='7': 0 or 1 is needed"),
        (["head", "--workers", "-5"], "--workers: Value -5"),
        (["head", "--servers", "0"], "--servers: Value 0"),
        (["server", "--rank", "-3"], "--rank: Value -3"),
        (["server", "--head", ""], "--head: is empty"),
        (["head", "--job", ""], "--job: is empty"),
        (["doctor", "--address", "127.0.0.1"], "--address requires --hosts"),
        (["doctor", "--patience", "5"], "--patience requires --hosts"),
        (["sim", "--seed", "-1"], "--seed: is no whole number"),
        (["sim", "--count", "0"], "--count: Value 0"),
        (["sim", "--count", "-2"], "--count: is no whole number"),
        (["sim", "--jobs", "0"], "--jobs: Value 0"),
        (["sim", "--failures-max", "0"], "--failures-max: Value 0"),
        (["sim", "--jobs", "4", "--count", "9", "--faults", "rain"], "no fault 'rain'; there are all, "),
        (["sim", "--jobs", "4", "--count", "9", "--servers", "1000000000"], "1000000000 servers"),
        (["sim", "--jobs", "4", "--count", "9", "--workers", "-1"], "-1 workers"),
        (["sim", "--hashes", "--coverage"], "excludes"),
        (["explore", "--large", "PLCPL"], "excludes"),
        (["explore", "--list", "PLCPL"], "excludes"),
        (["explore", "--list", "--jobs", "0"], "--jobs: Value 0"),
        (["explore", "--list", "--states-max", "-3"], "--states-max: is no whole number"),
    ],
)
def test_a_usage_error_is_named_and_ends_with_status_2(processes, words, expected):
    status, said = finish(processes.start([*tkv(*words[:1]), *words]))
    assert status == 2 and expected in said, said


def test_a_script_that_needs_python_is_told_so(processes, tmp_path):
    (tmp_path / "train.py").write_text("print(1)")
    status, said = finish(processes.start(["bash", "-c", f"cd {tmp_path}; exec {' '.join(TKV)} launch train.py"]))
    assert status == 2 and "launch: 'train.py' is no program in PATH; is `python train.py` meant?" in said, said


def shell(tmp_path, text):
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/bash\n" + text)
    script.chmod(0o755)
    return script


def test_what_a_script_pipes_through_another_program_is_whole(processes, tmp_path):
    """`tee` still writes when the shell has ended."""
    script = shell(tmp_path, f"exec > >(while read -r x; do echo $x; done | tee {tmp_path}/log.$TKV_RANK)\nseq 5000\n")
    status, said = finish(processes.start([*TKV, "launch", "-n", "2", "-s", "1", script]))
    assert status == 0, said[-1000:]
    for rank in "01":
        assert said.count(f"[worker {rank}] ") == 5000
        assert len((tmp_path / f"log.{rank}").read_text().split()) == 5000


@pytest.mark.parametrize("seconds, is_killed", [(0.7, False), (60, True)])
def test_a_process_that_a_script_leaves_behind_has_two_seconds(processes, tmp_path, seconds, is_killed):
    script = shell(tmp_path, f"(sleep {seconds}; echo saved) &\necho trained\n")
    status, said = finish(processes.start([*TKV, "launch", "-n", "1", "-s", "1", script]))
    assert status == 0 and "[worker 0] trained" in said, said
    assert ("[worker 0] saved" in said) is not is_killed, said
    line = "worker 0 has ended; processes that it had started still ran 2 s later, and were killed"
    assert (line in said) is is_killed, said


def test_what_others_say_of_the_job_is_not_said_again(processes):
    for who, variables in (
        ("DMLC_*", {"DMLC_ROLE": "server"}),
        ("mpirun or srun", {"PMIX_RANK": 0, "PMIX_NAMESPACE": "x"}),
    ):
        status, said = finish(processes.start([*TKV, "server", "--rank", "3"], **variables))
        assert status == 2 and f"have no effect here, where {who} says who takes part" in said, said


def test_an_address_that_no_host_needs_is_refused(processes, tmp_path):
    (tmp_path / "hosts").write_text("localhost\n")
    words = ["launch", "--hosts", str(tmp_path / "hosts"), "--address", "127.0.0.1", "true"]
    status, said = finish(processes.start([*TKV, *words]))
    assert status == 2 and "are this machine, and nobody has to reach it" in said, said


def test_variables_that_are_given_reach_the_workers_and_the_options_in_them_the_head_too(processes):
    script = "print('has', os.environ['GIVEN'], os.environ['HERE'], os.environ['TKV_ON_DEATH'])"
    words = ["-x", "GIVEN=a=b", "-x", "HERE", "-xTKV_ON_DEATH=continue"]
    status, said = finish(processes.launch(script, *words, workers=1, servers=1, HERE="here"))
    assert status == 0 and "has a=b here continue" in said, said


@pytest.mark.parametrize(
    "flag, before, expected", [("=0", "1", "0"), ("=false", "1", "0"), ("", "0", "1"), ("=1", "0", "1")]
)
def test_a_flag_with_a_value_counts_beside_its_variable(processes, flag, before, expected):
    script = "print('has', os.environ['TKV_DETERMINISTIC'])"
    job = processes.launch(script, f"--deterministic{flag}", workers=1, servers=1, TKV_DETERMINISTIC=before)
    status, said = finish(job)
    assert status == 0 and f"has {expected}" in said, said


def test_help_and_version_are_no_errors(processes):
    for words in (["--help"], ["help"], ["launch", "--help"], ["--version"]):
        status, said = finish(processes.start([*TKV, *words]))
        assert status == 0 and said, (words, said)


LOUD = """
if os.environ["TKV_RANK"] == "0":
    line = b"x" * 999 + b"\\n"
    for i in range(16):  # 16 MB as fast as the pipe takes them
        os.write(1, line)
        written = 0
        piece = line * 1000
        while written < len(piece):
            written += os.write(1, piece[written:])
    print("loud end", flush=True)
else:
    print("quiet", flush=True)
    open(sys.argv[1], "w").close()
"""


def test_a_launcher_that_nobody_reads_lets_its_processes_wait_and_holds_little(processes, tmp_path):
    mark = tmp_path / "quiet"
    command = [*TKV, "launch", "-n", "2", "-s", "1", sys.executable, processes.script(LOUD), str(mark)]
    job = processes.start(command)
    wait_until(mark.exists)
    wait_until(lambda: len(pids_of(job, "worker")) == 1)  # that has ended; the loud one waits for us
    status, said = finish(job)
    most = said.count("x" * 999)
    assert status == 0 and most == 16 * 1001 and "quiet" in said and "loud end" in said, said[-500:]


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "not read"])
def test_a_fast_writer_costs_the_launcher_little_memory_and_does_not_starve_the_others(processes, is_read, tmp_path):
    text = """
    if os.environ["TKV_RANK"] == "0":
        while True:
            os.write(1, b"y\\n" * 32768)
    time.sleep(0.5)
    print("slow one", flush=True)
    open(sys.argv[1], "w").close()
    """
    mark = tmp_path / "slow"
    job = processes.start(
        [*TKV, "launch", "-n", "2", "-s", "1", "--grace", "1", sys.executable, processes.script(text), str(mark)]
    )
    tail = b""
    while is_read and b"slow one" not in tail:
        tail = tail[-100:] + os.read(job.stdout.fileno(), 1 << 16)
    wait_until(mark.exists)
    wait_until(lambda: len(pids_of(job, "worker")) == 1)
    assert memory_of(job.pid, "VmHWM") < 40
    begin = time.time()
    os.kill(job.pid, signal.SIGINT)
    time.sleep(0.1)
    os.kill(job.pid, signal.SIGINT)
    status, _ = finish(job, timeout=20)
    assert status == 128 + signal.SIGINT and time.time() - begin < 10


def test_a_launcher_whose_output_nobody_takes_ends_by_a_signal(processes):
    job = processes.launch("while True: os.write(1, b'y\\n' * 32768)", workers=1, servers=1)
    wait_until(lambda: pids_of(job, "worker"))
    (worker,) = pids_of(job, "worker")

    def is_blocked():
        with open(f"/proc/{worker}/wchan") as file:
            return "pipe" in file.read()

    wait_until(is_blocked)
    begin = time.time()
    for _ in range(2):
        os.kill(job.pid, signal.SIGTERM)
        time.sleep(0.2)
    assert job.wait(timeout=10) == 128 + signal.SIGTERM and time.time() - begin < 8


def test_an_unfinished_last_line_is_passed_on(processes):
    status, said = finish(processes.launch("os.write(1, b'no end of line')", workers=1, servers=1))
    assert status == 0 and "[worker 0] no end of line\n" in said, said


POLICY = """
try:
    kv = mx.kv.create("dist_sync"{arguments})
except mx.KVError as error:
    print(f"refused {{type(error).__name__}}: {{error}}", flush=True)
    sys.exit(0)
kv.init("w", mx.nd.zeros((2,)))
kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
kv.barrier()
if kv.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
out = mx.nd.zeros((2,))
kv.pushpull("w", mx.nd.ones((2,)), out=out)
print("went on", out.asnumpy()[0], flush=True)
"""


@pytest.mark.parametrize(
    "options, variables, arguments",
    [
        (["--on-death", "continue"], {}, ""),
        ([], {"TKV_ON_DEATH": "continue"}, ""),
        (["--on-death", "continue"], {}, ", on_death='continue'"),
        (["--on-death", "continue"], {"TKV_ON_DEATH": "fail"}, ""),
    ],
)
def test_what_rounds_do_without_the_dead_can_be_said_by_flag_and_variable(processes, options, variables, arguments):
    status, said = finish(processes.launch(POLICY.format(arguments=arguments), *options, servers=1, **variables))
    assert "went on 1.0" in said, said


def test_a_worker_that_asks_for_another_policy_than_the_jobs_is_refused(processes):
    job = processes.launch(POLICY.format(arguments=", on_death='continue'"), servers=1)
    status, said = finish(job)
    assert status == 0, said
    assert (
        said.count("refused FailedPreconditionError: create 'dist_sync': on_death='continue', the job has 'fail'") == 2
    )


def test_a_worker_that_asks_for_another_number_of_servers_is_refused(processes):
    status, said = finish(processes.launch("mx.kv.create('dist_sync', servers=3)", workers=1, servers=1))
    assert status == 1 and "servers=3, the job has 1" in said, said


def test_a_malformed_address_of_the_head_is_refused_at_once(processes):
    begin = time.time()
    text = "mx.kv.create('dist_sync')"
    status, said = finish(processes.start([sys.executable, processes.script(text)], TKV_HEAD="127.0.0.1:9400"))
    assert status == 1 and "TKV_HEAD='127.0.0.1:9400'" in said and "tcp:" in said, said
    assert time.time() - begin < 10  # of 30 seconds of patience


@pytest.mark.parametrize("again", ["", " again"])
def test_a_rehearsed_death_is_of_one_life_unless_it_is_asked_for_again(processes, again):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((2,)))
    for step in range(kv.round("w"), 20):
        kv.pushpull("w", mx.nd.ones((2,)), out=mx.nd.zeros((2,)))
    print("done", kv.rejoined, flush=True)
    """
    failpoint = f"worker 1{again}:sent:PUSH:8:kill"
    status, said = finish(processes.launch(text, "--restart", "1", servers=1, TKV_FAILPOINTS=failpoint))
    assert "it is started again (1 of 1)" in said, said
    if again:
        assert status == 128 + signal.SIGKILL, said
    else:
        assert status == 0 and said.count("done") == 2, said


@pytest.mark.parametrize("options", [[], ["--tcp"], ["--tcp", "--tls", "on"]], ids=["unix", "tcp", "tls"])
def test_rounds_wait_for_a_life_that_somebody_starts_by_hand(processes, options):
    text = """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((2,)))
        out = mx.nd.zeros((2,))
        for step in range(kv.round("w") + 1, 4):
            if kv.rank == 1 and step == 2 and not kv.rejoined:
                os.kill(os.getpid(), signal.SIGKILL)
            kv.pushpull("w", mx.nd.ones((2,)), out=out)
        kv.barrier()
        print(f"rank {kv.rank} at the end has {out.asnumpy()[0]}", flush=True)
        kv.close()
    """
    job = processes.launch(text, "--on-death", "wait", "--grace", "0", *options, servers=1)
    said = read_until(job, "start it with")
    variables = dict(re.findall(r"(TKV_\w+)=(\S+)", said.split("start it with")[1]))
    assert variables["TKV_RANK"] == "1", said
    assert ("TKV_TOKEN_FILE" in variables) == bool(options), said
    assert variables.get("TKV_TLS") == ("on" if "--tls" in options else None), said
    again = processes.start([sys.executable, "-u", str(processes.folder / "script.py")], **variables)
    status, later = finish(again)
    assert status == 0 and "rank 1 at the end has 2.0" in later, later
    status, later = finish(job)
    assert status == 128 + signal.SIGKILL and "rank 0 at the end has 2.0" in later, later


def test_servers_stay_for_a_worker_that_somebody_has_started_by_hand(processes):
    text = """
        with mx.kv.create("dist_sync") as kv:
            kv.init("w", mx.nd.zeros((2,)))
            for step in range(kv.round("w") + 1, 4):
                if kv.rank == 1 and step == 2 and not kv.rejoined:
                    os.kill(os.getpid(), signal.SIGKILL)
                kv.push("w", mx.nd.ones((2,)))
                kv.pull("w")
            if kv.rejoined:
                until_marked("alone")
                time.sleep(4)  # longer than servers stay when all workers have ended
            print(f"rank {kv.rank} at the end has {kv.pull('w').asnumpy()[0]}", flush=True)
    """
    job = processes.launch(text, "--on-death", "wait", servers=1)
    said = read_until(job, "start it with")
    variables = dict(re.findall(r"(TKV_\w+)=(\S+)", said.split("start it with")[1]))
    again = processes.start([sys.executable, "-u", str(processes.folder / "script.py")], **variables)
    read_until(job, "rank 0 at the end has 2.0")
    (processes.folder / "mark-alone").touch()
    status, said = finish(again)
    assert status == 0 and "rank 1 at the end has 2.0" in said and "dead" not in said, said
    begin = time.monotonic()
    status, said = finish(job)
    assert status == 128 + signal.SIGKILL and time.monotonic() - begin < SOON, said


def test_a_variable_that_nothing_reads_is_told_by_the_launcher(processes):
    status, said = finish(processes.start([*TKV, "launch", "true"], TKV_STALENES="3"))
    assert status == 0 and "nothing reads the variable TKV_STALENES; did you mean 'TKV_STALENESS'?" in said, said


def test_the_launchers_own_lines_are_logged_with_their_times(processes, tmp_path):
    job = processes.launch(
        "sys.exit(3 if os.environ['TKV_RANK'] == '1' else 0)",
        "--log",
        str(tmp_path / "logs"),
        "--restart",
        "1",
        servers=1,
    )
    status, said = finish(job)
    lines = (tmp_path / "logs" / "launcher.log").read_text().splitlines()
    assert status == 3 and all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \S", line) for line in lines), lines
    for event in ("worker 1 started, pid ", "worker 0 ended with status 0", "it is started again (1 of 1)"):
        assert any(event in line for line in lines), lines
    assert sum("worker 1 ended with status 3" in line for line in lines) == 2, lines


def test_lines_of_the_log_say_when_and_who(processes):
    job = processes.launch("mx.kv.create('dist_sync').close()", workers=1, servers=1, TKV_LOG="debug")
    status, said = finish(job)
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}"
    assert status == 0, said
    assert re.search(rf"\[worker 0\] {when} debug tensorkv pid=\d+ role=worker rank=0: ", said), said
    assert re.search(rf"{when} info tensorkv pid=\d+: worker 0 joined", said), said  # by the head


WAITS = "print('under way', flush=True); time.sleep(600)"


def secrets_in(folder):
    return sorted(folder.glob("tkv-*/*"))


def test_no_secret_outlives_a_launcher_that_is_killed(processes, tmp_path):
    temp = tmp_path / "temp"
    temp.mkdir()
    own = tmp_path / "own token"
    own.touch(mode=0o600)
    own.write_text("a secret of the user\n")
    for variables in ({}, {"TKV_TOKEN_FILE": own}):
        job = processes.launch(WAITS, "--tcp", workers=1, servers=1, TMPDIR=temp, **variables)
        read_until(job, "under way")
        assert [path.name for path in secrets_in(temp)] == ["token"]  # or a copy of the user's
        os.kill(job.pid, signal.SIGKILL)
        wait_until(lambda: not any(temp.iterdir()), seconds=10)
    assert own.read_text() == "a secret of the user\n"


def test_the_modes_of_a_secret_do_not_depend_on_the_umask(processes, tmp_path):
    temp = tmp_path / "temp"
    temp.mkdir()
    script = processes.script(WAITS)
    words = [*TKV, "launch", "-n", "1", "-s", "1", "--tcp", sys.executable, "-u", script]
    job = processes.start(["sh", "-c", 'umask 777; exec "$@"', "sh", *words], TMPDIR=temp)
    read_until(job, "under way")
    (token,) = secrets_in(temp)
    assert token.stat().st_mode & 0o777 == 0o600 and token.parent.stat().st_mode & 0o777 == 0o700
    job.terminate()
    finish(job)
    assert not any(temp.iterdir())


def test_a_limit_on_the_size_of_files_ends_no_launcher(processes, tmp_path):
    """The program itself: Python, which starts `tkv` as a rule, ignores SIGXFSZ, and what it starts does as well."""
    program = pathlib.Path(tensorkv.__file__).parent / "bin" / "tkv"
    script = processes.script("for i in range(3000): print('line', i)\nprint('the last word')")
    log = tmp_path / "log"
    words = [program, "launch", "-n", "1", "-s", "1", "--log", log, sys.executable, script]
    status, said = finish(processes.start(["bash", "-c", 'ulimit -f 10; exec "$@"', "bash", *words]))
    assert status >= 0 and "the last word" in said, (status, said[-2000:])


def test_the_status_is_that_of_a_killed_worker_though_another_one_is_seen_to_end_at_the_same_time(processes, tmp_path):
    text = """
    rank = int(os.environ["TKV_RANK"])
    mark(f"begun {rank}")
    until_marked("stopped")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    sys.exit(7)
    """
    job = processes.launch(text, servers=1)
    wait_until(lambda: all((tmp_path / f"mark-begun {rank}").exists() for rank in range(2)))
    os.kill(job.pid, signal.SIGSTOP)
    (tmp_path / "mark-stopped").touch()
    time.sleep(1.5)
    os.kill(job.pid, signal.SIGCONT)
    status, said = finish(job)
    assert status == 128 + signal.SIGKILL and "worker 0 ended with status 7" in said, said
