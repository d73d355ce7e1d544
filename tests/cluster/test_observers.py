"""Looking into a running job from outside: readers of `connect`, and tkv status, top, keys and get, over real sockets."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import urllib.request

import numpy as np
import pytest
import tensorkv as mx
from jobs import finish, pids_of, read_until, wait_until
from test_cli import objects

TKV = [sys.executable, "-m", "tensorkv"]

# Rank 0 pushes two rounds of 'w' and waits; rank 1 pushes one, so that round 2 waits for it until the test marks "on".
TRAINER = """
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((3,)))
    kv.init("b", mx.nd.zeros((600000,), dtype="float16"))
    kv.push("w", mx.nd.ones((3,)) * (kv.rank + 1))
    kv.barrier()
    if kv.rank == 0:
        kv.push("w", mx.nd.ones((3,)))
        print("url", kv.url, flush=True)
        print("pushed", flush=True)
    until_marked("on")
    if kv.rank == 1:
        kv.push("w", mx.nd.ones((3,)))
    assert (kv.pull("w").asnumpy() == 2).all()
    until_marked("bye")
    kv.close()
"""


def token_of(processes, name="token"):
    path = processes.folder / name
    path.write_text("a secret of sixteen bytes and more")
    path.chmod(0o600)
    return path


@pytest.fixture
def job(processes):
    """A job that waits in round 2 of 'w', with its URL; it continues at the mark "on", and ends at the mark "bye"."""
    launched = processes.launch(TRAINER)
    said = read_until(launched, "pushed")
    launched.url = re.search(r"url (\S+)", said).group(1)
    yield launched
    for mark in ("on", "bye"):
        (processes.folder / f"mark-{mark}").touch()
    status, said = finish(launched)
    assert status == 0, said


def reader(processes, text, *words, **variables):
    return finish(processes.start([sys.executable, "-u", processes.script(text, "reader.py"), *words], **variables))


def test_explain_says_what_a_server_computes_for_a_key(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init("plain", mx.nd.zeros((3,)))
    kv.init("w", mx.nd.zeros((3,)))
    print("assigned", kv.url, flush=True)
    until_marked("set")
    kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.25, beta1=0.5))
    kv.push("w", mx.nd.ones((3,)))
    kv.pull("w").wait_to_read()
    print("updated", flush=True)
    until_marked("bye")
    kv.close()
    """
    launched = processes.launch(text, workers=3)
    where = ["--url", read_until(launched, "assigned", count=3).split("assigned ")[1].split()[0]]
    status, (made,) = objects(processes, "explain", "--key", "w", *where)
    assert status == 0 and made == {"event": "assignment", "key": "w"}
    (processes.folder / "mark-set").touch()
    read_until(launched, "updated", count=3)
    status, (made,) = objects(processes, "explain", "--key", "w", *where)
    assert status == 0 and made["name"] == "adam" and made["round"] == 2 and made["workers"] == 3
    params = {one["name"]: one["value"] for one in made["params"]}
    assert params["learning_rate"] == "0.25" and params["beta1"] == "0.5"
    status, said = finish(processes.start([*TKV, "explain", "--key", "W", *where]))
    assert status != 0 and "explain: no key 'W' among the 2 of store 0; did you mean 'w'?" in said, said
    (processes.folder / "mark-bye").touch()
    status, said = finish(launched)
    assert status == 0, said


def test_a_reader_finds_keys_and_reads_the_newest_whole_round(processes, job):
    status, said = reader(
        processes,
        """
        with mx.kv.connect(sys.argv[1]) as eye:
            assert eye.rank == -1 and eye.num_workers == 2 and eye.type == "observer", eye
            assert eye.keys() == ["b", "w"] and "w" in eye and "x" not in eye
            assert eye.describe("w") == ((3,), "float32") and eye.describe("b") == ((600000,), "float16")
            assert (eye.pull("w").asnumpy() == 3).all() and eye.round("w") == 1
            assert (eye.pull("b").asnumpy() == 0).all() and eye.round("b") == 0
            assert eye.url == sys.argv[1] and repr(eye) == f"<KVStore 'observer' of 2 workers, store at {eye.url!r}>"
            try:
                eye.push("w", mx.nd.ones((3,)))
            except mx.errors.FailedPreconditionError as error:
                print(error)
            try:
                eye.pull("x")
            except mx.errors.KeyNotFoundError as error:
                print(error)
        """,
        job.url,
    )
    assert status == 0, said
    assert "push: this store is an observer's, which only reads" in said and "pull 'x': no such key" in said, said


def test_readers_come_and_go_and_no_round_waits_for_one(processes, job):
    for _ in range(3):
        status, said = reader(processes, "eye = mx.kv.connect(sys.argv[1]); print(eye.pull('w').asnumpy())", job.url)
        assert status == 0 and "[3. 3. 3.]" in said, said  # and it went without close()


def test_a_reader_waits_for_no_round_that_is_open(processes, job):
    status, said = reader(
        processes,
        """
        eye = mx.kv.connect(sys.argv[1])
        print(eye.round("w"), eye.pull("w").asnumpy(), eye.round("w"), flush=True)
        mark("on")
        while eye.round("w") < 2:
            value = eye.pull("w").asnumpy()
        print("then", value)
        """,
        job.url,
    )
    assert status == 0 and "0 [3. 3. 3.] 1" in said and "then [2. 2. 2.]" in said, said


def test_status_says_who_is_waited_for(processes, job):
    status, [one] = objects(processes, "status", job.url)
    assert status == 0 and one["wrong"] == "", one
    assert [worker["state"] for worker in one["workers"]] == ["alive"] * 2
    assert [server["error"] for server in one["servers"]] == [""] * 2
    assert {key["key"]: key["bytes"] for key in one["keys"]} == {"b": 1200000, "w": 12}
    [waits] = [found for found in one["rounds"] if found["key"] == "'w'"]
    assert waits["round"] == 2 and waits["waits_for"] == [1] and waits["seconds"] > 0, waits
    assert one["slowest"] == 1, one
    ended, said = finish(processes.start([*TKV, "status", job.url]))
    assert ended == 0 and re.search(r"round 2 of 'w' waits (\d+ ms|\d+\.\d s) for worker 1", said), said
    assert "slowest  worker 1" in said, said


def test_a_probe_says_well_and_what_is_wrong_with_a_job_that_is_gone(processes, job):
    assert finish(processes.start([*TKV, "status", "--probe", job.url])) == (0, "healthy\n")
    gone = job.url.replace("tkv-head-", "tkv-head-0")
    status, said = finish(processes.start([*TKV, "status", "--probe", "--patience", "1", gone]))
    assert status == 1 and "waited 1000 ms for the head" in said, said
    status, [one] = objects(processes, "status", "--probe", job.url)
    assert status == 0 and one == {"event": "probe", "healthy": True, "text": ""}


def test_a_worker_that_died_is_what_is_wrong(processes):
    launched = processes.launch(
        """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((3,)))
        if kv.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        print("url", kv.url, flush=True)
        until_marked("on")
        """,
        "--on-death",
        "continue",
    )
    said = read_until(launched, "url")
    url = re.search(r"url (\S+)", said).group(1)
    if "killed by signal 9" not in said:  # else the launcher has told of the death first
        read_until(launched, "killed by signal 9")
    assert finish(processes.start([*TKV, "status", "--probe", url])) == (1, "worker 1 is dead\n")
    (processes.folder / "mark-on").touch()
    finish(launched)


def test_keys_and_get_write_what_others_read(processes, job, tmp_path):
    status, found = objects(processes, "keys", job.url)
    assert status == 0 and [(one["key"], one["shape"], one["dtype"], one["round"]) for one in found] == [
        ("b", [600000], "float16", 0),
        ("w", [3], "float32", 1),
    ]
    status, said = finish(processes.start([*TKV, "keys", job.url]))
    assert status == 0 and re.search(r"^w +float32 +\(3\) +12 B  round 1$", said, re.MULTILINE), said
    status, [one] = objects(processes, "get", "w", job.url, "--out", str(tmp_path / "w.npy"))
    assert status == 0 and one["round"] == 1, one
    assert np.load(tmp_path / "w.npy").tolist() == [3, 3, 3]
    status, said = finish(processes.start([*TKV, "get", "b", job.url, "-o", str(tmp_path / "b.safetensors")]))
    assert status == 0, said
    raw = (tmp_path / "b.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    assert json.loads(raw[8 : 8 + size]) == {"b": {"dtype": "F16", "shape": [600000], "data_offsets": [0, 1200000]}}
    assert (8 + size) % 8 == 0 and raw[8 + size :] == bytes(1200000)


@pytest.mark.parametrize(
    "words, expected",
    [
        (["get", "ww", "URL", "-o", "x.npy"], "get: no key 'ww' among the 2 of store 0; did you mean 'w'?"),
        (["get", "w", "URL", "-o", "x.txt"], "--out x.txt: a name that ends in .npy or .safetensors is needed"),
        (["get", "w", "URL", "-o", "/nowhere/x.npy"], "get: /nowhere/x.npy.part"),
        (["get", "w", "URL", "-o", "x.npy", "--store", "3"], "no key 'w' among the 0 of store 3"),
        (["status", "http://x:1/j"], "'http://x:1/j' is no URL of a job: it does not begin with tkv://"),
        (["status", "tkv://x:1"], "it names no job"),
        (["status", "URLx"], "job '"),
        (
            ["status", "no-such-job"],
            "no job 'no-such-job' of yours has its head at a Unix socket of this machine; there are ",
        ),
        (["status", "--stuck-after", "5", "URL"], "--stuck-after requires --probe"),
        (["status", "--bind", "::1", "URL"], "--bind requires --metrics"),
        (["status", "--metrics", "0", "--bind", "everywhere", "URL"], "--bind everywhere: an address is needed"),
    ],
    ids=str,
)
def test_mistakes_are_named(processes, job, words, expected):
    words = [word.replace("URL", job.url) for word in words]
    status, said = finish(processes.start([*TKV, *words, "--patience", "20"]))
    assert status == 2 and expected in said, said


def test_get_leaves_no_part_of_a_file_and_knows_every_name(processes):
    text = """
    kv = mx.kv.create("dist_sync")
    kv.init(["", "__metadata__"], [mx.nd.ones((2,))] * 2)
    print(f"url {kv.url} .", flush=True)
    until_marked("bye")
    kv.close()
    """
    launched = processes.launch(text, workers=1)
    url = re.search(r"url (\S+) ", read_until(launched, " .")).group(1)
    folder = processes.folder / "x.npy"
    folder.mkdir()
    status, said = finish(processes.start([*TKV, "get", "", url, "-o", folder]))
    assert status == 2 and "Is a directory" in said, said
    assert not list(processes.folder.glob("x.npy.part*"))
    file = processes.folder / "m.safetensors"
    for key, name in (("", ""), ("__metadata__", "__metadata__#")):
        status, said = finish(processes.start([*TKV, "get", key, url, "-o", file]))
        assert status == 0, said
        raw = file.read_bytes()
        assert list(json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])) == [name]
    (processes.folder / "mark-bye").touch()
    assert finish(launched)[0] == 0


def test_top_ends_where_nobody_reads_any_more(processes, job):
    top = f"{' '.join(TKV)} top --interval 0.1 {job.url}"
    status, said = finish(processes.start(["bash", "-c", f"{top} | head -3"]), timeout=30)
    assert status == 0 and "rounds" in said and "standard output" not in said, said
    status, said = finish(processes.start(["bash", "-c", f"{top} > /dev/full"]), timeout=30)
    assert status == 2 and "standard output: No space left on device" in said, said


def test_metrics_are_in_prometheus_form_and_of_now(processes, job):
    server = processes.start([*TKV, "status", "--metrics", "0", job.url])
    url = re.search(r"metrics at (\S+)", read_until(server, "metrics at")).group(1)
    assert url.startswith("http://127.0.0.1:")
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    plain = re.sub(r'job="[0-9a-f]{16}"', "JOB", text)
    samples = dict(line.rsplit(" ", 1) for line in plain.splitlines() if not line.startswith("#"))
    assert samples['tensorkv_key_rounds_total{JOB,key="w",store="0"}'] == "1"
    assert samples['tensorkv_worker_awaited_rounds{JOB,rank="1"}'] != "0"
    assert samples['tensorkv_worker_state{JOB,rank="0",state="alive"}'] == "1"
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [0-9.e+-]+', line), line
    head = urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10)
    assert head.status == 200 and int(head.headers["Content-Length"]) > 0 and head.read() == b""
    for wrong in (url + "x", urllib.request.Request(url, data=b"", method="POST")):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(wrong, timeout=10)
    server.send_signal(signal.SIGTERM)
    assert finish(server)[0] == 128 + signal.SIGTERM


def test_top_keeps_to_the_size_of_its_terminal(processes, job):
    rows, columns = 4, 30
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    top = subprocess.Popen([*TKV, "top", "--interval", "0.1", "--count", "3", job.url], stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # how a terminal without a process ends
        while block := os.read(ours, 4096):
            said += block
    os.close(ours)
    assert top.wait(30) == 0, said
    tables = re.split("\x1b\\[(\\d+)A\x1b\\[J", said.decode())
    assert len(tables) == 5, said
    for table, up in zip(tables[::2], [*tables[1::2], None], strict=True):
        lines = table.splitlines()
        assert len(lines) < rows and max(map(len, lines)) <= columns, lines
        assert up is None or int(up) == len(lines)


def test_top_shows_rates_and_ends_with_the_job(processes):
    launched = processes.launch(
        """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((300000,)))
        print("url", kv.url, flush=True)
        while not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-on")) or kv.round("w") % 2:
            kv.pushpull("w", mx.nd.ones((300000,)))
        kv.close()
        """,
        workers=1,
    )
    url = re.search(r"url (\S+)", read_until(launched, "url")).group(1)
    status, found = objects(processes, "top", "--interval", "0.2", "--count", "3", url)
    assert status == 0 and len(found) == 3, found
    assert found[-1]["keys"][0]["name"] == "'w'" and found[-1]["keys"][0]["rounds_per_second"] > 0, found
    assert found[-1]["workers"][0]["bytes_per_second"] > 0, found
    top = processes.start([*TKV, "top", "--interval", "0.1", url])
    assert "\x1b" not in read_until(top, "rounds/s")  # no terminal
    (processes.folder / "mark-on").touch()
    assert finish(launched)[0] == 0
    status, said = finish(top)
    assert status == 0 or re.search(r"^tkv: .*(the head|server \d+)", said, re.M), said


@pytest.mark.parametrize("options", [[], ["--tcp"]], ids=["unix", "tcp"])
def test_a_launched_job_with_a_token_of_ones_own_lets_in_who_has_it(processes, options):
    token = token_of(processes)
    launched = processes.launch(TRAINER, *options, TKV_TOKEN_FILE=token)
    url = re.search(r"url (\S+)", read_until(launched, "pushed")).group(1)
    status, said = finish(processes.start([*TKV, "status", url]))
    assert status != 0 and "token" in said, said
    status, said = finish(processes.start([*TKV, "status", "--token-file", token, url]))
    assert status == 0 and url in said, said
    for mark in ("on", "bye"):
        (processes.folder / f"mark-{mark}").touch()
    status, said = finish(launched)
    assert status == 0, said


def test_the_only_job_of_this_machine_needs_no_url_and_several_are_listed(processes, job):
    status, said = finish(processes.start([*TKV, "status"]))
    if status == 2:  # others run beside this test
        assert "jobs run on this machine, say which: " in said and job.url in said, said
    else:
        assert job.url in said, said
    _, head, name = re.match(r"tkv://(unix:\S+?)(tkv-head\S+)/(\w+)", job.url).groups()
    address = job.url.removeprefix("tkv://").rsplit("/", 1)[0].replace("%2F", "/")
    status, said = finish(processes.start([*TKV, "status"], TKV_HEAD=address, TKV_JOB=name))
    assert status == 0 and job.url in said, (head, said)


@pytest.fixture
def named(processes):
    """Two jobs that wait for the mark "go", launched as digits-west and digits-east."""
    text = """
    kv = mx.kv.create("dist_sync")
    print(f"begun {kv.rank}.", flush=True)
    until_marked("go")
    kv.close()
    """
    jobs = [processes.launch(text, "--name", f"digits-{side}", workers=1, servers=1) for side in ("west", "east")]
    for job in jobs:
        read_until(job, "begun 0.")
    yield jobs
    (processes.folder / "mark-go").touch()
    for job in jobs:
        status, said = finish(job)
        assert status == 0, said


def test_a_job_is_found_by_its_name(processes, named):
    status, said = finish(processes.start([*TKV, "jobs"]))
    assert status == 0, said
    for side, job in zip(("west", "east"), named, strict=True):
        line = next(line for line in said.splitlines() if line.startswith(f"digits-{side}-"))
        assert re.fullmatch(rf"digits-{side}-[0-9a-f]{{16}} +pid {job.pid} +\d+ s  .*launch -n 1 .*", line), line
        for name in (f"digits-{side}", line.split()[0]):
            status, shown = finish(processes.start([*TKV, "status", name]))
            assert status == 0 and shown.startswith(f"job      {line.split()[0]} "), shown
    status, shown = finish(processes.start([*TKV, "status", "digits"]))
    assert status == 2 and "2 jobs 'digits' run on this machine, say which: " in shown, shown
    for job in named:
        assert f"(pid {job.pid})" in shown, shown
    status, found = objects(processes, "jobs")
    assert status == 0, found
    pids = {job["pid"]: job for job in found}
    assert pids[named[0].pid]["job"].startswith("digits-west-") and "launch" in pids[named[0].pid]["command"]
    assert pids[named[0].pid]["url"].endswith(pids[named[0].pid]["job"]) and pids[named[0].pid]["seconds"] < 600
    with mx.kv.connect("digits-east") as reader:
        assert reader.url.endswith(reader.status()["job"]) and "/digits-east-" in reader.url


@pytest.mark.parametrize("name", ["two words", "-n", "a" * 41, "a/b"])
def test_a_name_that_no_socket_can_have_is_refused(processes, name):
    status, said = finish(processes.start([*TKV, "launch", f"--name={name}", "true"]))
    assert status == 2 and "is no name of 1 to 40 letters, digits" in said, said


def test_a_probe_calls_a_job_that_stands_still_stuck(processes, job):
    status, said = finish(processes.start([*TKV, "status", "--probe", job.url]))
    assert (status, said) == (0, "healthy\n")
    stuck = [*TKV, "status", "--probe", "--stuck-after"]
    status, said = finish(processes.start([*stuck, "600", job.url]))
    assert (status, said) == (0, "healthy\n")
    wait_until(lambda: finish(processes.start([*stuck, "0.5", job.url]))[0] == 1)
    status, said = finish(processes.start([*stuck, "0.5", job.url]))
    assert status == 1 and re.fullmatch(r"round 2 of 'w' waits (\d+ ms|\d+\.\d s) for worker 1\n", said), said


def test_between_hosts_a_reader_needs_the_token(processes):
    token = token_of(processes)
    head = processes.start([*TKV, "head", "--workers", "1", "--servers", "1", "--head", "tcp:127.0.0.1:0", "--job", "t"],
                           TKV_TOKEN_FILE=token)  # fmt: skip
    address = re.search(r"listens at (\S+)", read_until(head, "listens")).group(1)
    variables = {"TKV_HEAD": address, "TKV_JOB": "t", "TKV_TOKEN_FILE": token}
    server = processes.start([*TKV, "server"], **variables)
    worker = processes.start(
        [sys.executable, "-u", processes.script(
            """
            kv = mx.kv.create("dist_sync")
            kv.init(7, mx.nd.ones((2,)))
            print("url", kv.url, flush=True)
            until_marked("on")
            kv.close()
            """, "worker.py")],
        **variables,
    )  # fmt: skip
    url = re.search(r"url (\S+)", read_until(worker, "url")).group(1)
    assert url == f"tkv://{address.removeprefix('tcp:')}/t"
    text = "print(mx.kv.connect(sys.argv[1], token_file=sys.argv[2] or None, server_patience=5).pull(7).asnumpy())"
    status, said = reader(processes, text, url, str(token))
    assert status == 0 and "[1. 1.]" in said, said
    other = token_of(processes, "other")
    other.write_text("another secret of many bytes")
    status, said = reader(processes, text, url, str(other))
    assert status == 1 and "UnauthenticatedError" in said, said
    status, said = reader(processes, text, url, "")
    assert status == 1 and "UnauthenticatedError" in said, said
    other.chmod(0o644)
    status, said = reader(processes, text, url, str(other))
    assert status == 1 and "others can read it; chmod 600 it" in said, said
    # The error of a worker too many names `connect`.
    text = "mx.kv.create('dist_sync', url=sys.argv[1], token_file=sys.argv[2], server_patience=5)"
    status, said = reader(processes, text, url, str(token))
    assert status == 1 and "all 1 workers have joined; connect looks at a job from outside" in said, said
    (processes.folder / "mark-on").touch()
    assert finish(worker)[0] == finish(server)[0] == finish(head)[0] == 0


def test_a_worker_may_name_its_job_instead_of_its_environment(processes):
    token = token_of(processes)
    head = processes.start([*TKV, "head", "--workers", "2", "--servers", "1", "--head", "tcp:127.0.0.1:0", "--job", "t"],
                           TKV_TOKEN_FILE=token)  # fmt: skip
    address = re.search(r"listens at (\S+)", read_until(head, "listens")).group(1)
    server = processes.start([*TKV, "server"], TKV_HEAD=address, TKV_JOB="t", TKV_TOKEN_FILE=token)
    script = processes.script(
        """
        kv = mx.kv.create("dist_sync", url=sys.argv[1], token_file=sys.argv[2], rank=int(sys.argv[3]))
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)) * (kv.rank + 1))
        print(kv.rank, kv.pull("w").asnumpy())
        kv.close()
        """
    )
    url = f"tkv://{address.removeprefix('tcp:')}/t"
    workers = [processes.start([sys.executable, script, url, token, str(rank)]) for rank in range(2)]
    for rank, worker in enumerate(workers):
        assert finish(worker) == (0, f"{rank} [3. 3.]\n")
    assert finish(server)[0] == finish(head)[0] == 0


def test_several_programs_are_one_job(processes):
    other = processes.script(
        """
        eye = mx.kv.connect()
        assert os.environ["TKV_ROLE"] == "observer" and "TKV_RANK" not in os.environ
        try:
            mx.kv.create("dist_sync")
        except mx.errors.FailedPreconditionError as error:
            print(error)
        while "w" not in eye or eye.round("w") < 1:
            if "w" in eye:
                eye.pull("w")
        print("read", eye.pull("w").asnumpy(), flush=True)
        mark("on")
        """,
        "reader.py",
    )
    third = processes.script(
        """
        kv = mx.kv.create("dist_sync")
        assert kv.rank == 1 and kv.num_workers == 2 and sys.argv[1:] == ["-n", "--"]
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)))
        kv.close()
        """,
        "third.py",
    )
    first = processes.script(
        """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((2,)))
        kv.push("w", mx.nd.ones((2,)))
        until_marked("on")
        kv.close()
        """
    )
    python = [sys.executable, "-u"]
    command = [
        *TKV,
        "launch",
        "-n",
        "1",
        *python,
        first,
        ":",
        "-n",
        "1",
        *python,
        third,
        "-n",
        "--",
        ":",
        "--observers",
        "1",
    ]
    status, said = finish(processes.start([*command, *python, other]))
    assert status == 0, said
    assert "[observer 0] read [2. 2.]" in said and "this process is an observer of its job" in said, said


def test_a_reader_that_fails_is_told_of_and_counts_and_one_that_outlives_the_job_does_not(processes):
    launch = [*TKV, "launch", "-n", "1", sys.executable, processes.script("mx.kv.create('dist_sync').close()"), ":"]
    status, said = finish(processes.start([*launch, "--observers", "1", "sleep", "600"]))
    assert status == 0, said
    worker = processes.script("kv = mx.kv.create('dist_sync'); until_marked('x'); time.sleep(4); kv.close()", "w.py")
    launch[4:6] = [sys.executable, worker]
    bad = processes.script("mark('x'); sys.exit(5)", "bad.py")
    status, said = finish(processes.start([*launch, "--observers", "1", sys.executable, bad]))
    assert status == 5 and "observer 0 ended with status 5" in said, said


@pytest.mark.parametrize(
    "words", [["true", ":", "-n"], ["true", ":", "-n", "2"], ["true", ":", "-n", "x", "true"], [":", "-n1", "true"]]
)
def test_a_program_behind_a_colon_says_how_often_it_runs(processes, words):
    status, said = finish(processes.start([*TKV, "launch", *words]))
    assert status == 2 and ("a whole number" in said or "no command" in said), said


def test_a_colon_that_no_number_follows_is_a_word_of_the_command(processes):
    status, said = finish(processes.start([*TKV, "launch", "-n", "1", "echo", "a", ":", "b", ":"]))
    assert status == 0 and "[worker 0] a : b :" in said, said
    status, said = finish(processes.start([*TKV, "launch", "-n", "1", "echo", "one", ":", "-n2", "echo", "two"]))
    assert status == 0 and said.count("two") == 2 and "[worker 2] two" in said, said


def test_what_is_looked_at_is_what_there_is_now(processes):
    launched = processes.launch(
        """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((2,)))
        print("url", kv.url, flush=True)
        until_marked("seen")
        kv.delete("w")
        kv.init("w", mx.nd.zeros((9,)))
        mark("anew")
        until_marked("seen-again")
        kv.delete("w")
        mark("gone")
        until_marked("bye")
        """,
        workers=1,
    )
    url = re.search(r"url (\S+)", read_until(launched, "url")).group(1)
    status, said = reader(
        processes,
        """
        eye = mx.kv.connect(sys.argv[1])
        assert eye.describe("w")[0] == (2,) and eye.pull("w").shape == (2,)
        mark("seen")
        until_marked("anew")
        assert eye.describe("w")[0] == (9,) and "w" in eye
        mark("seen-again")
        until_marked("gone")
        assert "w" not in eye and eye.keys() == []
        mark("bye")
        """,
        url,
    )
    assert status == 0, said
    assert finish(launched)[0] == 0


def test_rounds_go_on_after_a_load_as_workers_count_them(processes, tmp_path):
    text = """
        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.zeros((2,)))
        if sys.argv[1] == "save":
            for _ in range(5):
                kv.pushpull("w", mx.nd.ones((2,)))
            kv.save(sys.argv[2])
        else:
            print("url", kv.url, flush=True)
            until_marked("pulled")
            kv.load(sys.argv[2])
            kv.pushpull("w", mx.nd.ones((2,)))
            assert kv.round("w") == 6
            mark("loaded")
            until_marked("bye")
    """
    script = processes.script(text)
    launch = [*TKV, "launch", "-n", "1", sys.executable, "-u", script]
    status, said = finish(processes.start([*launch, "save", tmp_path / "snapshots"]))
    assert status == 0, said
    launched = processes.start([*launch, "load", tmp_path / "snapshots"])
    url = re.search(r"url (\S+)", read_until(launched, "url")).group(1)
    status, said = reader(
        processes,
        """
        eye = mx.kv.connect(sys.argv[1])
        eye.pull("w")
        assert eye.round("w") == 0
        mark("pulled")
        until_marked("loaded")
        eye.pull("w")
        print("round", eye.round("w"), [key["round"] for key in eye.status()["keys"]])
        mark("bye")
        """,
        url,
    )
    assert status == 0 and "round 6 [6]" in said, said
    assert finish(launched)[0] == 0


def test_ctrl_c_ends_a_look_at_a_server_that_says_nothing(processes, job):
    def sockets(pid):
        with contextlib.suppress(OSError):  # a file that is being closed
            folder = f"/proc/{pid}/fd"
            return sum(os.readlink(f"{folder}/{file}").startswith("socket:") for file in os.listdir(folder))
        return 0

    [server, _] = pids_of(job, "server")
    os.kill(server, signal.SIGSTOP)
    try:
        looking = processes.start([*TKV, "status", "--patience", "60", job.url])
        wait_until(lambda: sockets(looking.pid) >= 3)  # to the head and to both servers: it has asked
        looking.send_signal(signal.SIGINT)
        status, said = finish(looking, timeout=20)
    finally:
        os.kill(server, signal.SIGCONT)
    assert status == 128 + signal.SIGINT and "workers" not in said, said


def test_a_job_whose_server_never_came_can_be_looked_at(processes):
    head = processes.start([*TKV, "head", "--workers", "1", "--servers", "1", "--job", "alone"])
    address = re.search(r"listens at (\S+)", read_until(head, "listens")).group(1)
    status, said = finish(processes.start([*TKV, "status", "--patience", "5"], TKV_HEAD=address, TKV_JOB="alone"))
    assert status == 0 and "server 0 has not come yet" in said, said
    head.terminate()
    finish(head)
