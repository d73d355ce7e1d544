"""Jobs of two hosts: started by ssh, examined by the doctor, and cut apart."""

import os
import re
import shutil
import signal
import sys
import time

import pytest
from hosts import hosts  # noqa: F401 - a fixture
from jobs import FILE_STORE, SOON, finish, read_until, wait_until
from test_late import BRIEF_CLOCKS, BRIEFLY
from test_lives import LEFT_AND_FAILED
from test_processes import SURVIVOR, TRAIN, seconds_of

TKV = [sys.executable, "-m", "tensorkv"]


@pytest.fixture
def start(processes, hosts, tmp_path, monkeypatch):  # noqa: F811
    """Starts a command on host a, in the test's folder."""
    monkeypatch.chdir(tmp_path)

    def start(*command, **variables):
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        return processes.start([*hosts.on("a"), *command], **{"TKV_SSH": hosts.ssh, "PATH": path, **variables})

    return start


def launch(start, processes, hosts, text, *options, workers=2, servers=2, names=("localhost", "b"), **variables):  # noqa: F811
    """Start a job of a script, its launcher on host a."""
    counts = ["-n", str(workers), "-s", str(servers), "--hosts", hosts.list(*names)]
    return start(*TKV, "launch", *counts, *options, "python", "-u", processes.script(text), **variables)


def test_a_job_of_two_hosts_has_the_sums_of_all(start, processes, hosts):  # noqa: F811
    told = "t = kv.stats()['traffic']; print('encrypted', t['encrypted_out_bytes'] > 0, flush=True)\n"
    text = (
        TRAIN.replace("kv.close()", told + "kv.close()")
        + "print(f'at {os.getcwd()} by {sys.executable} in {os.readlink(\"/proc/self/ns/net\")}', flush=True)"
    )
    job = launch(start, processes, hosts, text, workers=3)
    status, said = finish(job)
    assert status == 0, said
    assert said.count("weights -60.0 -29.0") == 3, said
    places = set(re.findall(r"at (\S+) by (\S+) in (\S+)", said))
    assert {folder for folder, _, _ in places} == {os.getcwd()}
    assert {python for _, python, _ in places} == {sys.executable}  # the Python in use, though sshd gives another PATH
    assert len({space for _, _, space in places}) == 2
    assert said.count("encrypted True") == 3, "between hosts by default"


def test_hosts_without_a_route_to_anywhere_else_reach_each_other(processes, hosts, tmp_path):  # noqa: F811
    """Nothing says where the head is to listen: its host's own network is found, as these hosts know no other."""
    text = (
        FILE_STORE
        + 'kv = mx.kv.create("dist_sync", bootstrap=FileStore(sys.argv[2]), rank=int(sys.argv[1]), num_workers=2)'
    )
    script = processes.script(TRAIN.replace('kv = mx.kv.create("dist_sync")', text))
    started = [
        processes.start([*hosts.on(name), sys.executable, script, str(rank), str(tmp_path)])
        for rank, name in enumerate("ab")
    ]
    for job in started:
        status, said = finish(job)
        assert status == 0 and "weights -30.0 -19.0" in said, said


def test_the_remote_side_is_told_what_it_needs(start, processes, hosts):  # noqa: F811
    text = """
    token = os.environ["TKV_TOKEN_FILE"]
    assert os.stat(token).st_mode & 0o777 == 0o600
    secret = open(token).read().strip()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            assert secret not in open(f"/proc/{pid}/cmdline").read()
        except OSError:
            pass
    print(os.environ["TKV_PATIENCE_MS"], os.environ.get("COLOUR"), os.environ.get("SECRET_OF_A"), flush=True)
    print("token", token, flush=True)
    """
    variables = {"TKV_PATIENCE_MS": 70_000, "COLOUR": "green", "SECRET_OF_A": "x"}
    status, said = finish(
        launch(start, processes, hosts, text, "-x", "COLOUR", workers=1, servers=1, names=["b"], **variables)
    )
    assert status == 0 and "70000 green None" in said, said
    assert not os.path.exists(re.search(r"token (\S+)", said).group(1))


def test_statuses_and_signals_cross_hosts(start, processes, hosts):  # noqa: F811
    status, said = finish(launch(start, processes, hosts, "sys.exit(3 if os.environ['TKV_RANK'] == '1' else 0)"))
    assert status == 3 and "worker 1 ended with status 3" in said, said
    status, said = finish(launch(start, processes, hosts, "sys.exit(200 if os.environ['TKV_RANK'] == '1' else 0)"))
    assert status == 200 and "worker 1 ended with status 200" in said, said  # 128 + 72: there is no such signal
    status, said = finish(launch(start, processes, hosts, SURVIVOR + "work(100_000, doomed=1)", "--grace", "5"))
    assert status == 128 + signal.SIGKILL and "worker 1 was killed by signal 9" in said, said
    assert re.search(r"rank 0 step \d+: UnavailableError: .*worker 1", said), said
    assert all(s < SOON for s in seconds_of(said)), said
    job = launch(start, processes, hosts, "kv = mx.kv.create('dist_sync'); print('here', flush=True); time.sleep(100)")
    said = read_until(job, "here", 2)
    begin = time.time()
    os.kill(job.pid, signal.SIGINT)
    status, rest = finish(job)
    assert status == 128 + signal.SIGINT and rest.count("KeyboardInterrupt") >= 2, said + rest
    assert time.time() - begin < 10


def test_nothing_is_left_on_a_host_when_the_launcher_is_killed(start, processes, hosts):  # noqa: F811
    job = launch(start, processes, hosts, "kv = mx.kv.create('dist_sync'); print('here', flush=True); time.sleep(100)")
    read_until(job, "here", 2)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()  # the fixture sees that nothing is left, on either host: they share this machine's processes


def test_more_processes_than_sshd_lets_in_at_once(start, processes, hosts):  # noqa: F811
    status, said = finish(
        launch(start, processes, hosts, "print('here', flush=True)", workers=24, servers=2, names=["b"])
    )
    assert status == 0 and said.count("here") == 24, said


def test_agents_that_are_late_are_awaited(start, processes, hosts, tmp_path):  # noqa: F811
    """The server and the worker of host b come a second after those of host a."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\ncase "$*" in *" agent") sleep {BRIEFLY} ;; esac\nexec {hosts.ssh} "$@"\n')
    ssh.chmod(0o755)
    status, said = finish(launch(start, processes, hosts, TRAIN, TKV_SSH=ssh, **BRIEF_CLOCKS))
    assert status == 0 and said.count("weights -30.0 -19.0") == 2, said


def test_a_worker_on_another_host_is_started_again(start, processes, hosts):  # noqa: F811
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((4,)))
    for step in range(kv.round("w"), 40):
        if step == 20 and kv.rank == 1 and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
        kv.push("w", mx.nd.ones((4,)))
        kv.pull("w")
    print("done", kv.round("w"), flush=True)
    kv.close()
    """
    status, said = finish(launch(start, processes, hosts, text, "--restart", "1"))
    assert status == 0 and said.count("done 40") == 2, said
    assert "worker 1 was killed by signal 9; it is started again (1 of 1)" in said


def test_a_worker_on_another_host_that_has_left_is_not_started_again(start, processes, hosts):  # noqa: F811
    status, said = finish(launch(start, processes, hosts, LEFT_AND_FAILED, "--restart", "1"))
    assert status == 3 and "worker 1 ended with status 3; it is not started again, because" in said, said


@pytest.mark.parametrize(
    "names, ssh, words",
    [
        (["nowhere"], None, "host 'nowhere': no way to nowhere"),
        (["-oProxyCommand=true"], None, "line 2: '-oProxyCommand=true' is not the name of one host"),
        (["a b"], None, "line 2: 'a b' is not the name of one host"),
        ([], None, "there are none"),
        (["b"], "no-such-ssh", "no-such-ssh: No such file or directory; TKV_SSH names another command"),
    ],
)
def test_wrong_hosts_are_named(start, processes, hosts, names, ssh, words):  # noqa: F811
    variables = {"TKV_SSH": ssh} if ssh else {}
    begin = time.time()
    status, said = finish(launch(start, processes, hosts, "pass", names=names, **variables))
    assert status == 2 and words in said, said
    assert time.time() - begin < 15


@pytest.fixture
def silent_ssh(tmp_path):
    """An ssh that answers no question about its configuration."""
    path = tmp_path / "silent-ssh"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 100\n")
    path.chmod(0o755)
    return path


def test_an_ssh_that_hangs_is_named_in_time(start, processes, hosts, silent_ssh):  # noqa: F811
    begin = time.time()
    status, said = finish(launch(start, processes, hosts, "pass", names=["b"], TKV_SSH=silent_ssh))
    assert status == 2 and f"host 'b': `{silent_ssh} -G` has not ended in 10 s" in said, said
    assert time.time() - begin < 20


def test_ctrl_c_ends_the_wait_for_an_ssh_that_hangs(start, processes, hosts, silent_ssh, tmp_path):  # noqa: F811
    job = launch(start, processes, hosts, "pass", names=["b"], TKV_SSH=silent_ssh)
    begin = time.time()
    while not os.path.exists(tmp_path / "asked"):
        assert time.time() < begin + 10
        time.sleep(0.01)
    begin = time.time()
    job.send_signal(signal.SIGINT)
    finish(job)
    assert time.time() - begin < 8


def test_a_restart_outlasts_a_host_that_cannot_be_reached_for_a_moment(start, processes, hosts, tmp_path):  # noqa: F811
    # The first two ways to the host are the server's and the worker's; the next one fails.
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"""#!/bin/sh
        case "$*" in *-G*) exec {hosts.ssh} "$@" ;; esac
        echo >> {tmp_path}/ways
        [ $(wc -l < {tmp_path}/ways) != 3 ] || {{ echo no way; exit 255; }}
        exec {hosts.ssh} "$@"
        """
    )
    ssh.chmod(0o755)
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((4,)))
    kv.push("w", mx.nd.ones((4,)))
    kv.pull("w")
    if not kv.rejoined:
        os.kill(os.getpid(), signal.SIGKILL)
    print("done", kv.round("w"), flush=True)
    kv.close()
    """
    job = launch(start, processes, hosts, text, "--restart", "2", names=["b"], workers=1, servers=1, TKV_SSH=ssh)
    status, said = finish(job)
    assert "it is started again in" in said and "no way" in said, said
    assert "done 2" in said and status == 0, said


def test_a_host_without_tensorkv_is_named(start, processes, hosts, tmp_path):  # noqa: F811
    # A python that is on this host alone, as far as the other one can see: it is gone when ssh gets there.
    here = tmp_path / "here"
    shutil.copytree(os.path.dirname(sys.executable), here / "bin", symlinks=True)
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nmv {here} {here}-gone 2>/dev/null\nexec {hosts.ssh} "$@"\n')
    ssh.chmod(0o755)
    variables = {"TKV_SSH": str(ssh), "PYTHONPATH": os.path.dirname(os.path.dirname(__import__("tensorkv").__file__))}
    counts = ["-n", "1", "-s", "1", "--hosts", hosts.list("b")]
    job = start(str(here / "bin" / "python"), "-m", "tensorkv", "launch", *counts, "true", **variables)
    status, said = finish(job)
    assert status == 2 and "host 'b' has no tensorkv that" in said and "install tensorkv" in said, said


def test_the_doctor_finds_nothing_between_good_hosts(start, hosts):  # noqa: F811
    status, said = finish(start(*TKV, "doctor", "--hosts", hosts.list("a", "b")))
    assert status == 0, said
    assert said.count("way there") == said.count("way back") == 2
    assert said.count("there and back in") == 10 and "BAD" not in said, said
    assert "nothing stands in the way of a job" in said


def test_the_doctor_says_what_is_wrong_and_how_to_repair_it(start, hosts, tmp_path):  # noqa: F811
    status, said = finish(start(*TKV, "doctor", "--hosts", hosts.list("nowhere")))
    assert status == 1 and re.search(r"BAD +ssh +host 'nowhere' cannot be reached", said), said
    assert "-> `ssh nowhere true` has to work without a question" in said
    # Another version at the other side.
    fake = tmp_path / "ssh"
    fake.write_text("#!/bin/sh\necho welcome to this host\necho tkv-agent 9.9.9 protocol 7\nsleep 5\n")
    fake.chmod(0o755)
    status, said = finish(start(*TKV, "doctor", "--hosts", hosts.list("b"), TKV_SSH=fake))
    assert status == 1 and re.search(r"BAD +version +9\.9\.9 protocol 7 there, \S+ protocol \d+ here", said), said
    # A host that prints unexpected output for ever.
    fake.write_text("#!/bin/sh\nexec yes welcome\n")
    begin = time.time()
    status, said = finish(start(*TKV, "doctor", "--hosts", hosts.list("b"), TKV_SSH=fake))
    assert status == 1 and "host 'b' has no tensorkv" in said and time.time() - begin < 10, said[:1000]
    # An ssh that says nothing.
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    status, said = finish(start(*TKV, "doctor", "--hosts", hosts.list("b"), "--patience", "1", TKV_SSH=fake))
    assert status == 1 and re.search(r"BAD +ssh +host 'b' says nothing for 1 s", said), said
    assert "-> `ssh b true` has to come back at once" in said
    # Another token at the other side: the path given to the agent is another file there.
    for name in ("here", "there"):
        (tmp_path / name).write_text(name * 20)
        (tmp_path / name).chmod(0o600)
    other = tmp_path / "other-ssh"
    other.write_text(
        '#!/bin/sh\ncase "$*" in *agent*) sed -zu "s#/here\\$#/there#" | '
        + f'{hosts.ssh} "$@";; *) {hosts.ssh} "$@";; esac\n'
    )
    other.chmod(0o755)
    status, said = finish(
        start(*TKV, "doctor", "--hosts", hosts.list("b"), TKV_SSH=other, TKV_TOKEN_FILE=tmp_path / "here")
    )
    assert status == 1 and re.search(r"BAD +way there +.*another token", said), said
    assert "-> give both hosts the same file behind TKV_TOKEN_FILE" in said


def test_the_doctor_sees_a_limit_and_a_bad_token(start, tmp_path):
    command = f"ulimit -n 60; exec {sys.executable} -m tensorkv doctor"
    status, said = finish(start("sh", "-c", command))
    assert status == 0 and re.search(r"note +files +this process may open 60", said) and "-> ulimit -n 4096" in said, (
        said
    )
    status, said = finish(start(*TKV, "doctor", TKV_PATIENCE_MS="soon"))
    assert status == 1 and re.search(r"BAD +variables +TKV_PATIENCE_MS='soon'", said), said
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    status, said = finish(start(*TKV, "doctor", TKV_TOKEN_FILE=token))
    assert status == 1 and re.search(r"BAD +variables +TKV_TOKEN_FILE='.*': others can read it; chmod 600", said), said
    token.chmod(0o600)
    status, said = finish(start(*TKV, "doctor", TKV_TOKEN_FILE=token))
    assert status == 0 and "TKV_TOKEN_FILE names a token" in said, said


def test_hosts_that_are_cut_apart_have_errors_in_time(start, processes, hosts):  # noqa: F811
    job = launch(
        start, processes, hosts, SURVIVOR + "work(100_000)", "--grace", "20", servers=1,
        TKV_SERVER_PATIENCE_MS=6000,
    )  # fmt: skip
    read_until(job, "under way", 2)
    hosts.cut()
    try:
        status, rest = finish(job, timeout=90)
    finally:
        hosts.mend()
    # Worker 0 is with the head and the server: worker 1 has fallen silent for it.
    found = re.search(r"rank 0 step \d+: UnavailableError: .*worker 1 is dead.*\(after ([\d.]+) s\)", rest)
    assert found and float(found.group(1)) < 7, rest
    assert status != 0


def test_a_short_cut_is_waited_out(start, processes, hosts):  # noqa: F811
    job = launch(start, processes, hosts, SURVIVOR + "print('ready', flush=True)\nwork(400)\nprint('went on')")
    read_until(job, "ready", 2)
    hosts.cut()
    time.sleep(2)
    hosts.mend()
    status, rest = finish(job, timeout=90)
    assert status == 0 and rest.count("went on") == 2, rest


def test_a_worker_on_another_host_answers_at_a_terminal(processes, hosts, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    text = "answer = None\nbreakpoint()\nprint('has', answer, repr(sys.stdin.read()), flush=True)"
    words = [*TKV, "launch", "-n", "1", "-s", "1", "--hosts", hosts.list("b")]
    words += ["python", "-u", processes.script(text)]
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    job = processes.start_on_terminal([*hosts.on("a"), *words], TKV_SSH=hosts.ssh, PATH=path)
    job.read_until("(Pdb) ")
    job.type("answer = 40 + 2\n")
    job.read_until("(Pdb) ", count=2)
    job.type("c\n")
    job.type("more\n")
    job.type("\x04")
    status, shown = job.finish()
    assert status == 0 and "[worker 0] has 42 'more\\n'" in shown, shown


def test_a_file_for_a_worker_on_another_host_is_refused_if_it_is_asked_for(start, processes, hosts, tmp_path):  # noqa: F811
    text = "print('reads', repr(sys.stdin.read()), flush=True)"
    (tmp_path / "in").write_text("text\n")
    for options, expected, words in (
        ([], 0, "[worker 0] reads ''"),
        (["--stdin", "0"], 2, "--stdin 0: that worker is on host 'b', which only a terminal reaches, no file or pipe"),
    ):
        with open(tmp_path / "in") as file:
            job = launch(start, processes, hosts, text, *options, workers=1, servers=1, names=("b",), stdin=file)
            status, said = finish(job)
        assert status == expected and words in said, said


def test_signals_reach_a_worker_on_another_host_and_its_stderr_comes_back(start, processes, hosts, tmp_path):  # noqa: F811
    text = """
    got = set()
    for name in ("SIGUSR1", "SIGUSR2", "SIGCONT"):
        signal.signal(getattr(signal, name), lambda number, frame: got.add(number))
    mark("ready")
    while len(got) < 3:
        time.sleep(0.01)
    print("got", sorted(got), file=sys.stderr, flush=True)
    """
    with open(tmp_path / "err.txt", "w") as err:
        job = launch(start, processes, hosts, text, workers=1, servers=1, names=("b",), stderr=err)
        wait_until((tmp_path / "mark-ready").exists)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP):
            job.send_signal(number)
        status, said = finish(job)
    told = (tmp_path / "err.txt").read_text()
    assert status == 0 and said == "" and "[worker 0] got [10, 12, 18]\n" in told, (said, told)
