"""Jobs that srun and sbatch start: their results, and the errors of other workers when a process ends."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from hosts import hosts  # noqa: F401 - a fixture
from jobs import children_of_this_test, finish, read_until, unix_sockets, wait_until
from slurm import KILL_WAIT, slurm_here, slurm_of_hosts  # noqa: F401 - fixtures
from test_late import BRIEF_CLOCKS, trained
from test_late import TRAIN as LATE_TRAIN
from test_processes import SURVIVOR, TRAIN, seconds_of

pytestmark = pytest.mark.framework  # a part of ./dev check --all, as what needs large packages
ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-u"]
RANKED = TRAIN.replace(
    "kv.close()", "print(f\"rank {kv.rank} of {os.environ['SLURM_PROCID']}\", flush=True)\nkv.close()"
)


@pytest.fixture
def slurm(slurm_here):  # noqa: F811
    """Two nodes of this host; nothing runs before a test, and nothing after it."""
    yield slurm_here
    slurm_here.settle()


def srun(processes, slurm, *words, **variables):
    """Start tasks."""
    return processes.start(slurm.srun(*words), **{"SLURM_CONF": slurm.configuration, **variables})


def sbatch(slurm, script, **variables):
    """Submit a script; its output goes to a file beside it. Return (number of the job, that file)."""
    said = script.with_suffix(".said")
    words = ["sbatch", "--parsable", f"--output={said}", f"--chdir={script.parent}", str(script)]
    environment = {**os.environ, "SLURM_CONF": str(slurm.configuration), **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), said


def until_said(file, word, count=1):
    """Return the output of a job once it has printed a word so often."""

    def text():
        return file.read_text() if file.exists() else ""

    try:
        wait_until(lambda: text().count(word) >= count, 60)
    except AssertionError:
        pytest.fail(f"the job has not said '{word}' {count} times in 60 s; it said:\n{text()}")
    return text()


def unix_names():
    """Return the names of all Unix sockets of this machine."""
    with open("/proc/net/unix") as file:
        return {line.split()[-1] for line in file}


def blocks(language):
    """Return the code blocks of the page on Slurm."""
    text = (ROOT / "docs" / "slurm.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


# ---- what comes out


@pytest.mark.parametrize("variables", [{}, {"TKV_TRANSPORT": "tcp"}], ids=["auto", "tcp"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_srun_starts_workers_that_host_the_servers(processes, slurm, nodes, variables):
    """The token for TCP comes through PMIx, like all other job data."""
    job = srun(processes, slurm, "-N", nodes, "-n", 4, *PYTHON, processes.script(RANKED), **variables)
    status, said = finish(job)
    assert status == 0 and said.count("weights -100.0 -39.0") == 4, said
    assert sorted(re.findall(r"rank (\d) of (\d)", said)) == [(str(rank), str(rank)) for rank in range(4)], said


@pytest.mark.parametrize("late", [0, 1])
def test_srun_waits_for_a_worker_that_is_late(processes, slurm, late):
    words = ["-N", 2, "-n", 2, *PYTHON, processes.script(LATE_TRAIN), "SLURM_PROCID", late]
    status, said = finish(srun(processes, slurm, *words, **BRIEF_CLOCKS))
    assert status == 0 and trained(said), said


def test_the_digits_are_read(processes, slurm, tmp_path):
    words = [ROOT / "examples" / "digits.py", "--kv", "dist_sync", "--picture", tmp_path / "digits.png"]
    status, said = finish(srun(processes, slurm, "-n", 4, *PYTHON, *words), timeout=200)
    assert status == 0 and float(re.search(r"test accuracy +(\S+)", said).group(1)) >= 0.95, said


def test_servers_of_their_own_by_a_list_of_programs(processes, slurm, tmp_path):
    programs = tmp_path / "programs"
    python = " ".join(PYTHON)
    programs.write_text(f"0-1 {python} {processes.script(RANKED)}\n2-3 {python} -m tensorkv server\n")
    status, said = finish(srun(processes, slurm, "-N", 2, "-n", 4, "--multi-prog", programs))
    assert status == 0 and said.count("weights -30.0 -19.0") == 2, said
    assert said.count("server listens at") == 2, said


def test_servers_of_their_own_by_a_heterogeneous_job(processes, slurm, tmp_path):
    """All tasks end; srun itself may stay, which Slurm 22.05 does now and then after a step of two parts."""
    python = " ".join(PYTHON)
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --ntasks=2\n#SBATCH hetjob\n#SBATCH --ntasks=2\n"
        f"srun --mpi=pmix --het-group=0 {python} {processes.script(RANKED)} : --het-group=1 {python} -m tensorkv server\n"
    )
    _, file = sbatch(slurm, script)
    said = until_said(file, "weights -30.0 -19.0", 2)
    assert said.count("server listens at") == 2, said
    wait_until(lambda: not [said for said in children_of_this_test().values() if "tensorkv" in said])


def test_the_script_of_the_documents_saves_at_the_signal_and_goes_on_when_it_is_run_again(processes, slurm, tmp_path):
    (script,), (train,) = (
        [block for block in blocks("sh") if "#SBATCH" in block and "tkv launch" not in block],
        blocks("python"),
    )
    assert "--nodes=16" in script and "--cpus-per-task=8" in script
    (tmp_path / "job.sh").write_text(
        script.replace("--nodes=16", "--nodes=1").replace("--cpus-per-task=8", "--cpus-per-task=1")
    )
    (tmp_path / "train.py").write_text(train)
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    job, file = sbatch(slurm, tmp_path / "job.sh", PATH=path)
    until_said(file, "from round 0", 4)
    slurm.ask("scancel", "--signal=USR1", job)
    wait_until(lambda: [folder for folder in (tmp_path / "snapshots").glob("0*") if folder.is_dir()])
    slurm.ask("scancel", job)
    wait_until(lambda: not children_of_this_test())
    job, file = sbatch(slurm, tmp_path / "job.sh", PATH=path)
    said = until_said(file, "from round", 8)  # the second incarnation prints it after the first one
    rounds = {int(text) for text in re.findall(r"from round (\d+)", said)[4:]}
    assert len(rounds) == 1 and rounds.pop() > 0, said


@pytest.mark.parametrize("who", ["all", "rank 0, from which the others get it"])
def test_a_job_with_a_token_of_its_own_is_looked_at_from_outside(processes, slurm, tmp_path, who):
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("a secret of this test alone\n")
    text = SURVIVOR + "print(f'at {kv.url} .', flush=True)\nuntil_marked('go')\nkv.close()"
    first = "true" if who == "all" else "[ $SLURM_PROCID = 0 ]"
    command = f"{first} && export TKV_TOKEN_FILE={token}; exec {' '.join(PYTHON)} {processes.script(text)}"
    job = srun(processes, slurm, "-N", 2, "-n", 2, "bash", "-c", command, TKV_TRANSPORT="tcp")
    url = re.search(r"at (\S+) \.", read_until(job, " .", 2))[1]
    words = [*PYTHON, "-m", "tensorkv", "get", "w", url, "--out", tmp_path / "w.npy"]
    status, said = finish(processes.start(words))
    assert status != 0 and "TCP needs a token" in said, said
    status, said = finish(processes.start([*words, "--token-file", token]))
    assert status == 0 and (tmp_path / "w.npy").exists(), said
    (processes.folder / "mark-go").touch()
    status, said = finish(job)
    assert status == 0, said


def test_servers_that_only_rank_0_says_are_told_by_the_others(processes, slurm):
    python = f"{' '.join(PYTHON)} {processes.script(RANKED)}"
    command = f"[ $SLURM_PROCID = 0 ] && export TKV_SERVERS=1; exec {python}"
    words = ["--kill-on-bad-exit=1", "-n", 4, "bash", "-c", command]
    status, said = finish(srun(processes, slurm, *words, TKV_TRANSPORT="tcp"))
    assert status != 0 and "servers=4 here, and 1 in the process with the head" in said, said


def test_a_task_without_pmix_is_told_how_to_get_it(processes, slurm):
    script = processes.script('mx.kv.create("dist_sync")')
    job = processes.start(["srun", "--mpi=none", "-n", "1", *PYTHON, script], SLURM_CONF=slurm.configuration)
    status, said = finish(job)
    assert status != 0 and "a task of Slurm without PMIx; start it by `srun --mpi=pmix`" in said, said


def test_a_signal_before_the_end_of_the_time_leaves_servers_alone(processes, slurm, tmp_path):
    text = """
    import threading
    asked = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: asked.set())
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.ones((2,)))
    print("under way", flush=True)
    assert asked.wait(60)
    print("weights", kv.pull("w").asnumpy(), flush=True)
    kv.close()
    """
    programs = tmp_path / "programs"
    python = " ".join(PYTHON)
    programs.write_text(f"0-1 {python} {processes.script(text)}\n2-3 {python} -m tensorkv server\n")
    job = srun(processes, slurm, "-N", 2, "-n", 4, "--multi-prog", programs)
    read_until(job, "under way", 2)
    slurm.ask("scancel", "--signal=USR1", "-u", str(os.geteuid()))
    status, said = finish(job)
    assert status == 0 and said.count("weights") == 2, said


# ---- what ends, and what the others see


def test_scancel_ends_everything_and_leaves_nothing(processes, slurm, tmp_path):
    """A rank that ignores the first signal gets the second one after KillWait."""
    text = SURVIVOR + "if kv.rank == 2: signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwork(100_000)"
    script = processes.script(text)
    memory = set(os.listdir("/dev/shm"))
    files = set(tmp_path.iterdir())
    job = srun(processes, slurm, "-N", 2, "-n", 4, *PYTHON, script)
    read_until(job, "under way", 4)
    sockets = unix_sockets(children_of_this_test())
    assert len(sockets) >= 4
    begin = time.time()
    slurm.ask("scancel", "-u", str(os.geteuid()))
    status, said = finish(job)
    assert status != 0 and "CANCELLED" in said, said
    wait_until(lambda: not children_of_this_test())
    assert time.time() - begin < KILL_WAIT + 5
    wait_until(lambda: not sockets & unix_names())  # a process has lost its memory before its files
    assert set(os.listdir("/dev/shm")) == memory and set(tmp_path.iterdir()) == files


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_killed_task_is_named_at_once_by_the_others(processes, slurm, nodes):
    """Even with --kill-on-bad-exit=0, Slurm's PMIx ends the step soon afterwards."""
    script = processes.script(SURVIVOR + "work(100_000, doomed=1)")
    begin = time.time()
    job = srun(processes, slurm, "--kill-on-bad-exit=0", "-N", nodes, "-n", 4, *PYTHON, script)
    status, said = finish(job)
    assert status != 0 and re.search(r"task 1: Killed", said), said
    assert re.search(r"rank [023] step \d+: UnavailableError: .*(worker|server) 1 is dead", said), said
    assert all(s < 2 for s in seconds_of(said)) and time.time() - begin < 30, said


def test_a_task_that_ends_by_an_exception_is_named_by_the_others(processes, slurm):
    script = processes.script(SURVIVOR + "if kv.rank == 1: raise ValueError('of the script')\nwork(100_000)")
    job = srun(processes, slurm, "--kill-on-bad-exit=0", "-n", 4, *PYTHON, script)
    status, said = finish(job)
    assert status != 0 and "of the script" in said, said
    named = re.findall(r"rank ([023]) step \d+: UnavailableError: .*(?:worker|server) 1", said)
    assert sorted(named) == ["0", "2", "3"], said


def test_a_node_that_is_lost_is_named_by_its_rank(processes, slurm):
    job = srun(
        processes,
        slurm,
        "--kill-on-bad-exit=0",
        "-N",
        2,
        "-n",
        2,
        *PYTHON,
        processes.script(SURVIVOR + "work(100_000)"),
    )
    read_until(job, "under way", 2)
    slurm.lose("n2")
    said = read_until(job, "UnavailableError")
    assert re.search(r"rank 0 step \d+: UnavailableError: .*(worker|server) 1 is dead", said), said
    assert all(s < 2 for s in seconds_of(said)), said
    wait_until(lambda: not [said for said in children_of_this_test().values() if not said.startswith("srun")], 10)
    os.killpg(job.pid, signal.SIGKILL)  # how long srun waits for a node without a daemon is Slurm's affair


def test_a_daemon_that_ends_alone_ends_no_task(processes, slurm):
    text = SURVIVOR + "work(30)\nuntil_marked('go')\nwork(30)\nkv.close()\nprint('went on', flush=True)"
    job = srun(processes, slurm, "-N", 2, "-n", 2, *PYTHON, processes.script(text))
    read_until(job, "under way", 2)
    slurm.stop_node("n2")
    (processes.folder / "mark-go").touch()
    status, said = finish(job)
    assert status == 0 and said.count("went on") == 2, said


def test_a_signal_by_scancel_reaches_every_task(processes, slurm):
    text = """
    kv = mx.kv.create("dist_sync")
    print("here", flush=True)
    try:
        time.sleep(100)
    except KeyboardInterrupt:
        print(f"rank {kv.rank} was asked", flush=True)
    kv.close()
    """
    job = srun(processes, slurm, "-n", 3, *PYTHON, processes.script(text))
    read_until(job, "here", 3)
    slurm.ask("scancel", "--signal=INT", "-u", str(os.geteuid()))
    status, said = finish(job)
    assert status == 0 and sorted(re.findall(r"rank (\d) was asked", said)) == ["0", "1", "2"], said


# ---- two hosts


def test_nodes_without_a_route_to_anywhere_else_reach_each_other(processes, slurm_of_hosts):  # noqa: F811
    """As nodes of a cluster often are; the two hosts know their own network alone."""
    script = processes.script(RANKED + "print(os.readlink('/proc/self/ns/net'), flush=True)")
    job = srun(processes, slurm_of_hosts, "-N", 2, "-n", 4, *PYTHON, script)
    status, said = finish(job)
    slurm_of_hosts.settle()
    assert status == 0 and said.count("weights -100.0 -39.0") == 4, said
    assert len(set(re.findall(r"net:\[\d+\]", said))) == 2, said


def test_a_host_that_is_cut_off_is_named_after_its_silence(processes, slurm_of_hosts, hosts):  # noqa: F811
    script = processes.script(SURVIVOR + "work(100_000)")
    job = srun(processes, slurm_of_hosts, "--kill-on-bad-exit=0", "-N", 2, "-n", 2, *PYTHON, script)
    read_until(job, "under way", 2)
    hosts.cut()
    try:
        said = read_until(job, "UnavailableError")
        assert re.search(r"rank 0 step \d+: UnavailableError: .*(worker|server) 1 is dead", said), said
        assert all(4 < s < 9 for s in seconds_of(said)), said
    finally:
        hosts.mend()
        slurm_of_hosts.settle()
