"""Rehearsals of the rows of docs/failures.md about servers, the head, the launcher and connections."""

import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from hosts import hosts  # noqa: F401 - a fixture
from jobs import FILE_STORE, finish, living, pids_of, read_until
from page import Seen
from stage import GO_ON, LONG, TKV, TRAIN, files_of, from_a_snapshot, limit, longest, rehearses, wait_until


@rehearses("a server is killed, or is stopped (SIGSTOP)")
def a_server_is_killed(stage):
    text = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
while not met(lambda: step(kv)):
    time.sleep(0.02)
os._exit(7)
"""
    said, times = "", []
    for how, options, words in ((signal.SIGKILL, LONG, "at once"), (signal.SIGSTOP, (), "5 s")):
        job = stage.launch(text, "--grace", 20, *options)
        one = read_until(job, "is done", 4)
        os.kill(pids_of(job, "server")[0], how)
        one += finish(job)[1]
        times.append((words, longest(one), 1))
        said += one
    train = TRAIN.replace("not kv.rejoined", "first_life()").replace("END", "mark('kill'); time.sleep(60)")
    folder = stage.folder / "saved"
    job = stage.launch(train, "--restore", folder, "--snapshot-every", 1, "--restart", 1)
    stage.until_marked("kill")
    os.kill(pids_of(job, "server")[0], signal.SIGKILL)
    status, again = finish(job)
    assert status == 0 and "the job is started again (1 of 1)" in again and again.count("went on") == 2, again
    did = ("`tkv launch --restore FOLDER --snapshot-every N --restart N`", "**start it again from your checkpoint**")
    return Seen(said, tuple(times), did)


@rehearses("a server is started again, empty")
def a_server_is_started_again(stage):
    started = stage.by_hand("""
kv = create()
kv.init("w", np.zeros(4, np.float32))
step(kv)
mark(f"ready {rank}")
until_marked("joined")
met(lambda: step(kv))
os._exit(7)
""")
    stage.until_marked("ready 0")
    stage.until_marked("ready 1")
    again = stage.start([*TKV, "server", "--rank", "0", "--log-level", "info"], **stage.common)
    read_until(again, "event=joined")
    stage.mark("joined")
    said = finish(started["worker 0"])[1] + finish(started["worker 1"])[1]
    return Seen(said, (("at its join", longest(said), 1),), ("the same",) if from_a_snapshot(stage) else ())


@rehearses("a connection is lost")
def a_connection_is_lost(stage):
    cuts = (
        "worker 1:sent:PUSH:3:cut,server 0:received:PUSH:7:cut,worker 0:received:VALUE:3:cut,head:received:PING:1:cut"
    )
    status, said = stage.run(TRAIN.replace("END", "pass"), "--failpoints", cuts)
    assert status == 0 and said.count("went on to the end") == 2, said
    return Seen(said)


@rehearses("a server cannot be reached")
def a_server_cannot_be_reached(stage):
    started = stage.by_hand(
        """
kv = create(server_patience=3)
kv.init("w", np.zeros(4, np.float32))
step(kv)
mark("ready")
until_marked("stopped")
met(lambda: step(kv))
os._exit(7)
""",
        workers=1,
        TKV_SILENCE_MS=60_000,
        TKV_FAILPOINTS="worker 0:sent:PUSH:2:cut",
    )
    stage.until_marked("ready")
    os.kill(started["server 0"].pid, signal.SIGSTOP)
    stage.mark("stopped")
    _, said = finish(started["worker 0"])
    os.kill(started["server 0"].pid, signal.SIGCONT)
    return Seen(said, (("30 s", longest(said), 10),))


class Cable:
    """The two hosts, for one rehearsal at a time."""

    def __init__(self):
        self.lock, self.hosts, self.is_known = threading.Lock(), None, False

    def __enter__(self):
        if self.hosts is None:
            pytest.skip("no network namespaces here")
        self.lock.acquire()
        # The first way to a new host may take longer than the launcher waits for an agent.
        if not self.is_known:
            self.is_known = True
            subprocess.run([*self.hosts.on("a"), *self.hosts.ssh.split(), "b", "true"], timeout=100, check=True)

    def __exit__(self, *_):
        self.lock.release()


CABLE = Cable()


def launch_on_hosts(stage, text, *options, **variables):
    """Start a job of two workers: all on host a but worker 1; return (job, its output until both are under way)."""
    made = CABLE.hosts
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    words = ["-n", "2", "-s", "1", "--hosts", made.list("localhost", "b"), *map(str, options)]
    command = [*made.on("a"), *TKV, "launch", *words, "python", "-u", stage.script(text)]
    for _ in range(3):  # a busy machine may take longer than the launcher waits for an agent
        job = stage.start(command, TKV_SSH=made.ssh, PATH=path, **variables)
        said = ""
        while said.count("under way") < 2 and (line := job.stdout.readline()):
            said += line
        if said.count("under way") == 2:
            return job, said
    raise AssertionError(said)


def children_of(job):
    """Return [(pid, command)] of the children of a process."""
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
        pids = [int(pid) for pid in file.read().split()]
    return [(pid, pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")) for pid in pids]


def worker_1_of(stage):
    """Return the process of worker 1, which on another host is no child of the launcher."""
    name = str(stage.folder).encode()
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if name in (path / "cmdline").read_bytes() and b"TKV_RANK=1" in (path / "environ").read_bytes().split(
                b"\0"
            ):
                return int(path.name)
    raise AssertionError("there is no worker 1")


def sshd_of(pid):
    """Return the process of sshd that a process on another host belongs to."""
    while "sshd" not in pathlib.Path(f"/proc/{pid}/cmdline").read_text().partition(" ")[0]:
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1
    return pid


@rehearses("two hosts are cut apart")
def two_hosts_are_cut_apart(stage):
    with CABLE:
        job, said = launch_on_hosts(stage, GO_ON, "--grace", 20, TKV_SERVER_PATIENCE_MS=3000)
        CABLE.hosts.cut()
        try:
            said += finish(job, timeout=80)[1]
            wait_until(lambda: "it of 1 met" in (stage.here / "errors").read_text())  # its output cannot pass
        finally:
            CABLE.hosts.mend()
    said += (stage.here / "errors").read_text()
    return Seen(said, (("5 s of silence", longest(said, rank=0), 1), ("30 s", longest(said, rank=1), 10)))


@rehearses("the cut is shorter")
def the_cut_is_shorter(stage):
    with CABLE:
        job, _ = launch_on_hosts(stage, GO_ON)
        CABLE.hosts.cut()
        time.sleep(1.5)
        CABLE.hosts.mend()
        stage.mark("end")
        status, said = finish(job)
    assert status == 0 and said.count("went on to the end") == 2, said
    return Seen(said)


@rehearses("the ssh connection from `tkv launch` to host `b` is lost")
def the_ssh_connection_is_lost(stage):
    with CABLE:
        job, said = launch_on_hosts(stage, GO_ON, *LONG, "--grace", 20)
        worker = worker_1_of(stage)
        os.kill(sshd_of(worker), signal.SIGKILL)
        begin = time.monotonic()
        said += read_until(job, "of 0 met")
        took = time.monotonic() - begin
        wait_until(lambda: not os.path.exists(f"/proc/{worker}"))
        on_b = time.monotonic() - begin
        said += finish(job)[1]
    return Seen(said, (("at once if the connection closes", took, 1), ("within 2 s", on_b, 1)))


@rehearses("the head is lost")
def the_head_is_lost(stage):
    started = stage.by_hand("""
kv = create(server_patience=3)
kv.init("w", np.zeros(4, np.float32))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
step(kv)
print("under way", flush=True)
until_marked("killed")
for _ in range(10):
    met(lambda: step(kv))
if rank == 0:
    met(lambda: kv.set_optimizer(mx.optimizer.Adam()), "optimizer")
    met(lambda: mx.kv.connect(kv.url, patience=2, server_patience=2), "connect")
    mark("asked")
until_marked("asked")
met(lambda: step(kv))
print("went on to the end", flush=True)
os._exit(0)
""")
    said = read_until(started["worker 0"], "under way") + read_until(started["worker 1"], "under way")
    os.kill(started["head"].pid, signal.SIGKILL)
    stage.mark("killed")
    said += finish(started["worker 0"])[1] + finish(started["worker 1"])[1]
    finish(started["server 0"])
    assert not re.search("it of . met", said) and said.count("went on to the end") == 2, said
    assert re.search("warning|head", said) and "connect of 0 met" in said, said
    return Seen(said, (("at once on the head's host", longest(said, "optimizer"), 1),))


@rehearses("rank 0 dies and it hosts the head (mpirun, srun, torchrun, a bootstrap object)")
def rank_0_dies_with_the_head(stage):
    text = """
kv = create(bootstrap=FileStore(sys.argv[2]), rank=int(sys.argv[1]), num_workers=3)
rank = kv.rank
keys = [str(key) for key in range(12)]  # on all three servers
for key in keys:
    kv.init(key, np.zeros(4, np.float32))
for key in keys:
    step(kv, key)
kv.barrier()
if rank == 0:
    die()
for key in keys:
    met(lambda: step(kv, key))
mark(f"met {rank}")
until_marked(f"met {3 - rank}")  # its process has a server
os._exit(7)
"""
    script = stage.script(FILE_STORE + text)
    started = [stage.start([sys.executable, "-u", script, str(n), str(stage.folder)]) for n in range(3)]
    said = "".join(finish(process)[1] for process in started)
    return Seen(said, (("at once on that host", longest(said), 1),))


@rehearses("the launcher is killed")
def the_launcher_is_killed(stage):
    job = stage.launch(GO_ON)
    read_until(job, "under way", 2)
    pids = [pid for pid, _ in children_of(job)]
    assert len(pids) >= 3, pids
    os.kill(job.pid, signal.SIGKILL)
    begin = time.monotonic()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    return Seen("", (("2 s", max(2.0, time.monotonic() - begin), 1),))


@rehearses("two processes claim one rank")
def two_processes_claim_one_rank(stage):
    text = """
import subprocess
kv = create()
kv.init("w", np.zeros(4, np.float32))
if "SECOND" in os.environ:
    print("second", kv.rejoined, flush=True)
    os._exit(0)
step(kv)
if rank == 1:
    subprocess.run([sys.executable, "-u", __file__], env={**os.environ, "SECOND": "1"}, check=True)
    met(lambda: step(kv))
    os._exit(0)
"""
    _, said = stage.run(text)
    assert "second True" in said, said
    return Seen(said, (("at its next call", longest(said, rank=1), 1),))


@rehearses(
    "the head, a server or another worker of mpirun, srun, torchrun or a bootstrap object is not there at `create`"
)
def somebody_is_missing_at_create(stage):
    script = stage.script("met(lambda: mx.kv.create('dist_sync', patience=float(sys.argv[1])))")
    nobody = {"TKV_HEAD": "tcp:127.0.0.1:1", "TKV_INSECURE_NETWORK": "1"}
    no_head = stage.start([sys.executable, "-u", script, "7"], **nobody)
    url = stage.script("met(lambda: mx.kv.connect('tkv://127.0.0.1:1/job'), 'connect')")
    no_job = stage.start([sys.executable, "-u", url], TKV_INSECURE_NETWORK=1, TKV_SERVER_PATIENCE_MS=3000)
    head = stage.start([*TKV, "head", "--workers", "1", "--servers", "3"], TKV_JOB="hand")
    common = {"TKV_HEAD": read_until(head, "head listens at").split()[-1], "TKV_JOB": "hand"}
    server = stage.start([*TKV, "server", "--rank", "1", "--log-level", "info"], TKV_PATIENCE_MS=60_000, **common)
    read_until(server, "event=listening")
    worker = stage.start([sys.executable, "-u", script, "4"], TKV_RANK=0, **common)
    _, said = finish(no_head)
    _, of_servers = finish(worker)
    _, of_connect = finish(no_job)
    assert "still waiting 5 s for the head" in said, said
    for process in (server, head):
        process.terminate()
        finish(process)
    # They may start in any order: here the head is the last.
    status, again = finish(late_head(stage))
    assert status == 0 and "went on to the end" in again, again
    times = (("600 s", longest(said), 600 / 7), ("`connect`: 30 s", longest(of_connect, "connect"), 10))
    return Seen(said + of_servers + of_connect, times, ("start what is missing; they may start in any order",))


def late_head(stage):
    """Start a worker and a server of a job whose head comes a second later; return the worker."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp:127.0.0.1:{free.getsockname()[1]}"
    common = {"TKV_HEAD": address, "TKV_INSECURE_NETWORK": 1, "TKV_JOB": "late"}
    text = "kv = create()\nkv.init('w', ones)\nstep(kv)\nprint('went on to the end', flush=True)"
    worker = stage.start([sys.executable, "-u", stage.script(text)], TKV_RANK=0, **common)
    stage.start([*TKV, "server", "--rank", "0"], **common)
    time.sleep(1)
    stage.start([*TKV, "head", "--workers", "1", "--servers", "1"], **common)
    return worker


# ---- connections that are refused or changed ----------------------------------------------------


def token(path, text="a token of this test, long enough\n"):
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def a_head(stage, *words, **variables):
    """Start a head that listens at a port of this machine; return (the process, its address)."""
    command = [*TKV, "head", "--workers", "1", "--servers", "1", "--head", "tcp:127.0.0.1:0", *words]
    head = stage.start(command, **{"TKV_JOB": "hand", **variables})
    return head, read_until(head, "head listens at").split()[-1]


def a_worker(stage, text, address, **variables):
    common = {"TKV_HEAD": address, "TKV_JOB": "hand", "TKV_RANK": 0}
    return stage.start([sys.executable, "-u", stage.script(text)], **{**common, **variables})


@rehearses("another token, no token")
def another_token(stage):
    head, address = a_head(stage, TKV_TOKEN_FILE=token(stage.folder / "one"))
    other = token(stage.folder / "two", "another token of this test, as long\n")
    met = [a_worker(stage, "met(create)", address, **more) for more in ({"TKV_TOKEN_FILE": other}, {})]
    said = [finish(process)[1] for process in met]
    assert all("UnauthenticatedError" in one for one in said), said
    assert "head -c 32 /dev/urandom | base64 > job.token" in said[1], said
    head.terminate()
    finish(head)
    return Seen("".join(said), (("at once", longest("".join(said)), 1),))


@rehearses("TLS that one process wants and another has off")
def tls_that_one_side_wants(stage):
    secret = {"TKV_TOKEN_FILE": token(stage.folder / "one")}
    head, address = a_head(stage, TKV_TLS="on", **secret)
    _, said = finish(a_worker(stage, "met(create)", address, TKV_TLS="off", **secret))
    head.terminate()
    finish(head)
    return Seen(said, (("at once", longest(said), 1),))


class Proxy:
    """Passes on the bytes of connections to an address; `change(connection, begin, bytes)` of what comes back."""

    def __init__(self, address, change):
        self.there = address.removeprefix("tcp:").rpartition(":")
        self.change, self.count = change, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            there = socket.create_connection((self.there[0], int(self.there[2])))
            number, self.count = self.count, self.count + 1
            threading.Thread(target=self.pass_on, args=(here, there, None), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(there, here, number), daemon=True).start()

    def pass_on(self, source, target, number):
        begin = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data if number is None else self.change(number, begin, data))
                begin += len(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@rehearses("bytes are changed on the way, by TLS or with `check_values`")
def bytes_are_changed(stage):
    secret = {"TKV_TOKEN_FILE": token(stage.folder / "one"), "TKV_JOB": "hand", "TKV_TRANSPORT": "tcp"}
    said = ""
    for variables in ({"TKV_TLS": "on"}, {"TKV_CHECK_VALUES": "1"}):
        variables = {**secret, **variables, "TKV_LOG": "info"}
        head, address = a_head(stage, **variables)
        server = stage.start([*TKV, "server", "--rank", "0"], TKV_HEAD=address, **variables)
        changed = []

        def change(number, begin, data, changed=changed):
            if changed or not (stage.here / "mark-joined").exists():
                return data
            changed.append(len(data))
            return data[:-1] + bytes([data[-1] ^ 1])

        proxy = Proxy(address, change)
        worker = a_worker(
            stage,
            "kv = create()\nkv.init('w', np.zeros(4, 'f4'))\nmark('joined')\nuntil_marked('changed')\n"
            "time.sleep(1.5)\nkv.set_optimizer(mx.optimizer.SGD())\nstep(kv)\nkv.close()\nprint('went on', flush=True)",
            proxy.address,
            **variables,
        )
        wait_until(lambda: changed)  # noqa: B023
        stage.mark("changed")
        status, one = finish(worker)
        assert status == 0 and "went on" in one and proxy.count >= 2, one
        said += one
        for process in (server, head):
            process.terminate()
            finish(process)
        proxy.listener.close()
    return Seen(said)


@rehearses("another version of the protocol")
def another_version(stage):
    secret = {"TKV_TOKEN_FILE": token(stage.folder / "one")}
    head, address = a_head(stage, **secret)

    def change(number, begin, data):  # the version of the greeting, behind its four bytes of magic
        return data if begin else data[:4] + struct.pack("<I", struct.unpack("<I", data[4:8])[0] + 1) + data[8:]

    proxy = Proxy(address, change)
    _, said = finish(a_worker(stage, "met(create)", proxy.address, **secret))
    head.terminate()
    finish(head)
    proxy.listener.close()
    return Seen(said, (("at once", longest(said), 1),))


@rehearses("a child of `fork()` uses the store")
def a_child_of_fork(stage):
    text = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
pid = os.fork()
if pid == 0:
    met(lambda: kv.pull("w"))
    os._exit(0)
os.waitpid(pid, 0)
step(kv)
print("went on to the end", flush=True)
"""
    status, said = stage.run(text, workers=1)
    assert status == 0 and "went on to the end" in said, said
    return Seen(said, (("at once", longest(said), 1),))


SHARED = """
kv = create()
kv.init("w", np.zeros(300_000, np.float32))
kv.push("w", np.ones(300_000, np.float32))
assert kv.pull("w").asnumpy()[-1] == 2
print("went on to the end", flush=True)
"""


@rehearses("a limit on files, addresses or memory forbids shared memory")
def no_shared_memory(stage):
    before = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh")
    status, said = stage.run(SHARED, before=before, TKV_LOG="warning")
    warnings = re.findall(r"\[worker 0\].*warning.*shared memory.*", said)
    assert status == 0 and said.count("went on to the end") == 2 and len(warnings) == 1, said
    for before, variables in ((before, {"TKV_TRANSPORT": "unix"}), ((), {})):
        status, again = stage.run(SHARED, before=before, TKV_LOG="warning", **variables)
        assert status == 0 and "shared memory" not in again, again
    return Seen(said, (), ("raise the limit, or `TKV_TRANSPORT=unix`",))


@rehearses("a worker or observer has no descriptor or no memory for a connection")
def a_worker_has_no_descriptor(stage):
    text = """
import resource
kv = create(server_patience=20)
first = np.zeros(4, np.float32)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), before[1]))
met(lambda: kv.init("w", first))
resource.setrlimit(resource.RLIMIT_NOFILE, before)
for _ in range(100):
    if met(lambda: kv.init("w", first), "again") is None:
        break
    time.sleep(0.1)
step(kv)
print("went on to the end", flush=True)
"""
    status, said = stage.run(text, workers=1, servers=2)
    assert status == 0 and "went on to the end" in said, said
    return Seen(said, (("at once", longest(said), 1),), ("raise the limit (`ulimit -n`)",))


@rehearses("a server or the head has no descriptor for another connection")
def a_server_has_no_descriptor(stage):
    text = """
kv = create("dist_async")
kv.init("w", np.zeros(4, np.float32))
print("under way", flush=True)
until_marked("limited")
def look():
    with mx.kv.connect(kv.url, patience=60, server_patience=3) as eye:
        eye.pull("w")
met(look)
step(kv)
print("tried", flush=True)
until_marked("lifted")
met(look, "again")
print("went on to the end", flush=True)
"""
    job = stage.launch(text, workers=1, TKV_LOG="warning")
    said = read_until(job, "under way")
    (server,) = pids_of(job, "server")
    lift = limit(server, resource.RLIMIT_NOFILE, files_of(server))
    stage.mark("limited")
    said += read_until(job, "tried")
    lift()
    stage.mark("lifted")
    status, rest = finish(job)
    assert status == 0 and "again of 0 is done" in rest, said + rest
    return Seen(said, (("30 s", longest(said), 10),), ("raise the limit",))


@rehearses("strangers at a port")
def strangers_at_a_port(stage):
    job = stage.launch(GO_ON, "--tcp")
    said = read_until(job, "under way", 2)
    (server,) = pids_of(job, "server")
    listening = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout
    port = re.search(rf":(\d+) .*pid={server},", listening)[1]
    flood = pathlib.Path(__file__).parents[2] / "bench" / "flood.py"
    made = subprocess.run(
        [sys.executable, flood, f"127.0.0.1:{port}", "300", "2"], capture_output=True, text=True, check=True
    )
    assert int(made.stdout) > 50, made.stdout
    stage.mark("end")
    status, rest = finish(job)
    assert status == 0 and rest.count("went on to the end") == 2, said + rest
    return Seen(said + rest)


@rehearses("the head or its launcher is stopped for a while (SIGSTOP, a paused machine; Ctrl-Z stops the whole job)")
def the_launcher_is_stopped(stage):
    job = stage.launch(GO_ON)
    said = read_until(job, "under way", 2)
    os.kill(job.pid, signal.SIGSTOP)
    time.sleep(8)
    os.kill(job.pid, signal.SIGCONT)
    time.sleep(1)
    stage.mark("end")
    status, rest = finish(job)
    said += rest
    assert status == 0 and said.count("went on to the end") == 2 and "is dead" not in said, said
    assert "the head is out of reach" in said, said
    return Seen(said, (), ("continue it",))


def sockets_of(pid):
    """Return the number of sockets that a process has."""
    links = [os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return sum(link.startswith("socket:") for link in links)


@rehearses("a peer asks and never reads the answers")
def a_peer_never_reads(stage):
    text = """
kv = create("dist_async")
kv.init("big", np.zeros(8_000_000, np.float32))
kv.init("w", np.zeros(4, np.float32))
kv.barrier()
if rank == 1:
    calls = [kv.pull("big", out=np.zeros(8_000_000, np.float32), async_op=True) for _ in range(8)]
    mark("stops")
    die(signal.SIGSTOP)
    for call in calls:
        call.wait()
    print("read all", flush=True)
    mark("end")
else:
    until_marked("stops")
    while not os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-end")):
        step(kv)
        time.sleep(0.05)
print("went on to the end", flush=True)
"""
    job = stage.launch(text, "--tcp", "--silence-ms", 120_000, TKV_LOG="warning")
    stage.until_marked("stops")
    worker, (server,) = living(job, "worker")[1], pids_of(job, "server")
    begin, before = time.monotonic(), sockets_of(server)
    wait_until(lambda: sockets_of(server) < before)
    took = time.monotonic() - begin
    os.kill(worker, signal.SIGCONT)
    status, said = finish(job)
    assert status == 0 and "read all" in said and said.count("went on to the end") == 2, said
    assert "still waiting 5 s for worker 1 to read" in said, said
    return Seen(said, (("30 s", took, 1),))
