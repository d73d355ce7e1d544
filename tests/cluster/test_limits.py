"""A limit of one process is an error of the call that meets it: every role of a job under every limit.

While a job runs, one of its processes gets a limit, and a worker calls everything that takes memory, descriptors or files.
Each call ends soon, well or by an error that names the missing resource. When the limit is lifted, the job continues.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import time

import pytest
from jobs import FILE_STORE, finish, pids_of, read_until, restorer_of, start_by_hand, wait_until

SLACK = 4 << 20  # bytes of memory for small allocations
PATIENCE = 6  # seconds; the longest wait for a server that cannot accept

# Tries a call and says its error and time; part of the scripts below, which have a store `kv`.
ATTEMPT = """
def attempt(name, call):
    begin = time.monotonic()
    try:
        call()
        said = "done", ""
    except Exception as error:
        said = type(error).__name__, error
    print(f"{name} of {kv.rank}: {said[0]} after {time.monotonic() - begin:.1f} s: {said[1]}", flush=True)
"""

WORK = (
    ATTEMPT
    + """
kv = mx.kv.create("dist_async", server_patience=6, patience=20)
small, one = np.zeros(3, np.float32), np.ones(3, np.float32)
big, out = np.ones(12_000_000, np.float32), np.zeros(12_000_000, np.float32)
folder = os.environ["FOLDER"]
kv.init("w", small)

def second_store():
    with mx.kv.create("dist_async", server_patience=6, patience=20) as other:
        other.init("x", small)
        other.push("x", one)
        other.pull("x", out=small)

def go_on():
    for _ in range(20):
        kv.push("w", one)
        kv.pull("w", out=small)

def connect():
    with mx.kv.connect(kv.url, server_patience=6) as eye:
        eye.pull("w")

def init_both():
    kv.init("big", big)
    kv.init("more", big)

def push_both():
    for key in ("big", "more"):
        kv.push(key, big)
        kv.pull(key, out=out)

def rows():  # more than the memory of their table
    kv.init_table("rows", 256, memory=1 << 20)
    for step in range(40):
        kv.push_rows("rows", np.arange(1000) + 1000 * step, np.ones((1000, 256), np.float32), async_op=True).wait()
    kv.pull_rows("rows", [0, 7999])

go_on()
print("under way", kv.url, flush=True)
until_marked("limited")
attempt("go on", go_on)
if kv.rank == 0:
    attempt("save", lambda: kv.save(folder + "/first"))
    attempt("init", init_both)
    attempt("push", push_both)
    attempt("save", lambda: kv.save(folder + "/second"))
    attempt("trace", lambda: kv.trace(folder + "/trace"))
    if "TKV_ROWS_DIR" in os.environ:
        attempt("rows", rows)
    print("long " * 1000, flush=True)
    attempt("connect", connect)
    attempt("create", second_store)
    time.sleep(0.5)  # a launcher may write the long line to the log after it has passed it on
print("tried", flush=True)
until_marked("lifted")
attempt("go on again", go_on)
if kv.rank == 0:
    attempt("save again", lambda: kv.save(folder + "/third"))
    attempt("create again", second_store)
attempt("close", kv.close)
"""
)

OBSERVER = """
import resource
which, size = eval(os.environ["LIMIT"])
before = resource.getrlimit(which)
resource.setrlimit(which, (size or int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize(), before[1]))
for again in (False, True):
    begin = time.monotonic()
    try:
        with mx.kv.connect(sys.argv[1]) as eye:
            eye.pull("w")
        said = "done", ""
    except Exception as error:
        said = type(error).__name__, error
    resource.setrlimit(which, before)
    word = "connect again" if again else "connect"
    print(f"{word} of -1: {said[0]} after {time.monotonic() - begin:.1f} s: {said[1]}", flush=True)
"""

# Limits: the resource, its value (None: the memory in use and a little), and the words that name the missing resource.
LIMITS = {
    "memory": (resource.RLIMIT_AS, None, "memory|allocate|no thread|Resource temporarily"),
    "files": (resource.RLIMIT_NOFILE, 3, "Too many open files"),
    "sizes": (resource.RLIMIT_FSIZE, 1000, "File too large|limit on the size of files"),
}

# Calls that fail, by role and limit; every other call is done, or fails in the same way.
FAIL = {
    ("worker", "files"): ("save", "connect", "trace"),
    ("worker", "sizes"): ("save",),
    ("worker", "memory"): ("save",),
}


# Words of a log by which a server or a launcher says that it has met its limit. A launcher needs little memory.
SAID = {
    ("server", "memory"): "shared memory: mmap of .*Cannot allocate memory",
    ("server", "files"): "accepts no connection: Too many open files",
    ("server", "sizes"): "rows cannot be written there: File too large",
    ("launcher", "files"): "accepts no connection: Too many open files",
    ("launcher", "sizes"): "the log of worker 0 ends here: File too large",
}


def limit(pid, name, slack=SLACK):
    """Limit a process, and return a function that lifts the limit again."""
    which, size, _ = LIMITS[name]
    if size is None:
        with open(f"/proc/{pid}/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize() + slack
    if which == resource.RLIMIT_NOFILE:  # poll(2) refuses more descriptors than the limit
        size = 1 + max(int(one) for one in os.listdir(f"/proc/{pid}/fd"))
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (size, before[1]))
    return lambda: resource.prlimit(pid, which, before)


def outcomes(said):
    """Return (call, type of its error or "done", seconds, text) of each attempt."""
    found = re.findall(r"([a-z ]+) of (-?\d): (\w+) after ([\d.]+) s: (.*)", said)
    return [(call.strip(), kind, float(seconds), text) for call, _, kind, seconds, text in found]


def check(said, name, role, fail):
    """Check the output of a job: every call has ended soon, and every error names the missing resource."""
    assert not re.search(r"terminate called|std::bad_alloc|Fatal Python|killed by signal|core dumped", said), said
    assert said.count("resumed the session") + said.count("is silent for") <= 5, said
    made = outcomes(said)
    for call, kind, seconds, text in made:
        assert seconds < PATIENCE + 4, (call, seconds, said)
        if call.endswith("again"):
            assert kind == "done", (call, text, said)
        if kind == "done":
            continue
        # A process that others cannot reach says by itself why; they only see that it does not answer.
        is_unreachable = role != "worker" and name == "files" and kind in ("UnavailableError", "DeadlineExceededError")
        # A worker whose push was taken waits for the worker whose push was refused.
        is_patient = kind == "DeadlineExceededError" and "for worker" in text
        assert is_unreachable or is_patient or kind in ("ResourceExhaustedError", "KeyNotFoundError"), (
            call,
            kind,
            text,
            said,
        )
        if kind == "ResourceExhaustedError":
            assert re.search(LIMITS[name][2], text), (call, text)
    for call in fail:
        assert any(one[0] == call and one[1] == "ResourceExhaustedError" for one in made), (call, said)
    return made


@pytest.fixture
def folders(tmp_path):
    """Return the folder of a job. At the end its secrets and sockets are gone from there, and from /dev/shm."""
    (tmp_path / "temp").mkdir()
    before = set(os.listdir("/dev/shm"))
    yield tmp_path
    assert not list((tmp_path / "temp").iterdir())
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "tkv" in name or "tensorkv" in name]


def variables(folder):
    return {"FOLDER": folder, "TMPDIR": folder / "temp", "TKV_LOG": "warning", "MALLOC_ARENA_MAX": 1}


def start(processes, folder, *options, **more):
    return processes.launch(
        WORK, "--log", str(folder / "logs"), *options, workers=2, servers=2, **variables(folder), **more
    )


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("role", ["worker", "server", "launcher"])
def test_a_limit_is_an_error_of_the_call_that_meets_it(processes, folders, role, name):
    tables = {"TKV_ROWS_DIR": folders / "temp"} if name == "sizes" else {}
    job = start(processes, folders, **tables)
    said = read_until(job, "under way", count=2)
    lift = limit(job.pid if role == "launcher" else pids_of(job, role)[0], name)
    (folders / "mark-limited").touch()
    said += read_until(job, "tried", count=2)
    lift()
    (folders / "mark-lifted").touch()
    status, rest = finish(job)
    made = check(said + rest, name, role, FAIL.get((role, name), ()))
    assert status == 0 and [one[0] for one in made].count("go on again") == 2, said + rest
    logged = said + rest + (folders / "logs" / "launcher.log").read_text()
    assert re.search(SAID.get((role, name), ""), logged), logged


@pytest.mark.parametrize("name", LIMITS)
def test_an_observer_names_what_it_lacks(processes, folders, name):
    job = start(processes, folders)
    url = re.search(r"under way (\S+)", read_until(job, "under way", count=2))[1]
    script = processes.script(OBSERVER, "observer.py")
    chosen = (int(LIMITS[name][0]), LIMITS[name][1])
    _, seen = finish(processes.start([sys.executable, "-u", script, url], LIMIT=chosen, TKV_LOG="warning"))
    made = check(seen, name, "observer", ("connect",) if name == "files" else ())
    assert [one[0] for one in made] == ["connect", "connect again"], seen
    for mark in ("limited", "lifted"):
        (folders / f"mark-{mark}").touch()
    assert finish(job)[0] == 0


def pages_of(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0])


@pytest.mark.parametrize("name", LIMITS)
def test_a_restorer_names_what_it_lacks(processes, folders, name):
    job = start(processes, folders)
    for mark in ("limited", "lifted"):
        (folders / f"mark-{mark}").touch()
    assert finish(job)[0] == 0
    for _ in range(4 if name == "memory" else 1):  # memory ends at another point of its work each time
        begin = time.monotonic()
        job = start(processes, folders, "--restore", str(folders / "second"))
        pid = wait_until(lambda: restorer_of(job))
        if name == "memory":  # behind its shared memory, after which nothing is left for it
            wait_until(lambda: pages_of(pid) > 1_000_000)
        os.kill(pid, signal.SIGSTOP)
        which, size, words = LIMITS[name]
        resource.prlimit(pid, which, (size or 64 << 20,) * 2)
        os.kill(pid, signal.SIGCONT)
        status, said = finish(job)
        if name == "sizes":  # a restorer writes no file
            assert status == 0, said
        else:
            assert 0 < status < 128 and re.search(f"{words}|Error 24", said), (status, said)
            assert time.monotonic() - begin < 15, said  # the other restorer does not wait for its grace
        check(said, name, "restorer", ())


LARGE = (
    ATTEMPT
    + """
kv = mx.kv.create("dist_sync", server_patience=6, patience=6)
small, one = np.zeros(3, np.float32), np.ones(3, np.float32)
big, out = np.ones(12_000_000, np.float32), np.zeros(12_000_000, np.float32)
kv.init(["small", "big"], [small, np.zeros_like(big)])
kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.5, epsilon=0))

attempt("small", lambda: kv.pushpull("small", one, out=small))
print("under way", flush=True)
until_marked("limited")
def push_big():
    if os.environ["HOW"] == "pushpull":
        return kv.pushpull("big", big, out=out)
    kv.push("big", big, async_op=True).wait()

for _ in range(2):
    attempt("big", push_big)
attempt("small", lambda: kv.pushpull("small", one, out=small))
print("tried", flush=True)
until_marked("lifted")
attempt("small again", lambda: kv.pushpull("small", one, out=small))
print("weights", *small, flush=True)
for _ in range(2 - kv.round("big")):
    attempt("big again", push_big)
kv.pull("big", out=out)
print("big is", out.min(), out.max(), kv.round("big"), flush=True)
attempt("close again", kv.close)
"""
)


@pytest.mark.parametrize("how", ["pushpull", "wait"])
def test_a_push_for_which_a_server_has_no_memory_counts_for_nobody_until_it_is_repeated(processes, folders, how):
    """A key of many parts with states of Adam; connections stay, and other keys go on."""
    options = ("--tcp", "--log", str(folders / "logs"))
    job = processes.launch(LARGE, *options, workers=2, servers=1, HOW=how, **variables(folders))
    said = read_until(job, "under way", count=2)
    lift = limit(pids_of(job, "server")[0], "memory")
    (folders / "mark-limited").touch()
    said += read_until(job, "tried", count=2)
    lift()
    (folders / "mark-lifted").touch()
    status, rest = finish(job)
    made = check(said + rest, "memory", "worker", ("big",))
    kinds = sorted((call, kind) for call, kind, _, _ in made)
    done = {(call, "done") for call in ("big again", "close again", "small", "small again")}
    waits = ("big", "DeadlineExceededError")  # for the other worker, whose push was refused
    assert status == 0 and set(kinds) - {waits} == done | {("big", "ResourceExhaustedError")}, said + rest
    assert rest.count("big is -1.0 -1.0 2") == 2, said + rest
    assert all("'big'" in text for call, _, _, text in made if call == "big"), made
    assert re.search(r"server 0\] .*PUSH of worker \d: .*memory", said), said + rest
    assert rest.count("weights -1.5 -1.5 -1.5") == 2, rest


# Limits of the processes on another host, where ssh sets them, and the words that name the missing resource.
FAR = {
    "memory": ("-v 20000", "failed to map segment|Cannot allocate|no memory"),
    "files": ("-n 8", "Too many open files"),
    "sizes": ("-f 0", "the token's file: File too large"),
}


@pytest.mark.parametrize("name", FAR)
def test_an_agent_on_another_host_names_what_it_lacks(processes, tmp_path, name):
    ulimit, words = FAR[name]
    ssh, hosts = tmp_path / "ssh", tmp_path / "hosts"
    ssh.write_text(
        '#!/bin/sh\nfor word; do [ "$word" = -G ] && echo hostname 127.0.0.1 && exit; done\n'
        f'for last; do :; done\nulimit {ulimit} && exec sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    hosts.write_text("elsewhere\n")
    text = "kv = mx.kv.create('dist_sync', patience=5)\nkv.init('w', mx.nd.zeros((2,)))\nkv.close()"
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    begin = time.monotonic()
    status, said = finish(processes.launch(text, "--hosts", str(hosts), servers=1, TKV_SSH=ssh, PATH=path))
    assert 0 < status < 128 and re.search(words, said), (status, said)
    assert not re.search("terminate called|core dumped", said) and time.monotonic() - begin < 20, said


MANY_OBSERVERS = """
kv = mx.kv.create("dist_async", server_patience=6, patience=20)
kv.init("w", np.zeros(3, np.float32))
print("under way", flush=True)
until_marked("limited")
eyes, said, begin = [], "", time.monotonic()
try:
    for _ in range(200 if kv.rank == 0 else 0):
        eyes.append(mx.kv.connect(kv.url, patience=2, server_patience=2))
        eyes[-1].pull("w")
except mx.errors.KVError as error:
    said = f"{type(error).__name__}: {error}"
time.sleep(1.5)  # members and observers send their PINGs
for _ in range(20):
    kv.push("w", np.ones(3, np.float32))
    kv.pull("w")
print(f"rank {kv.rank}: {len(eyes)} observers after {time.monotonic() - begin:.1f} s: {said}", flush=True)
until_marked("lifted")
for eye in eyes:
    eye.close()
with mx.kv.connect(kv.url, server_patience=6) as eye:
    eye.pull("w")
kv.close()
print("left", flush=True)
"""


def check_crowd(said, logged):
    assert not re.search(r"terminate called|Traceback|out of reach;|is dead", said + logged), said + logged
    count, seconds = re.search(r"rank 0: (\d+) observers after ([\d.]+) s: \w+Error: ", said).groups()
    assert 0 < int(count) < 200 and float(seconds) < 2 * PATIENCE, said
    assert 1 <= logged.count("accepts no connection: Cannot allocate memory: connections=") <= 4, logged


@pytest.mark.parametrize("options", [(), ("--tcp",)], ids=["unix", "tcp"])
def test_a_launcher_without_memory_refuses_new_peers_and_its_job_goes_on(processes, folders, options):
    job = processes.launch(MANY_OBSERVERS, *options, workers=2, servers=1, **variables(folders))
    said = read_until(job, "under way", count=2)
    lift = limit(job.pid, "memory", slack=0)
    (folders / "mark-limited").touch()
    said += read_until(job, "observers after", count=2)
    lift()
    (folders / "mark-lifted").touch()
    status, rest = finish(job)
    assert status == 0 and rest.count("left") == 2, said + rest
    check_crowd(said + rest, said + rest)


@pytest.mark.parametrize("role", ["head", "server"])
def test_a_head_or_server_without_memory_refuses_new_peers_and_goes_on(processes, folders, role):
    started = start_by_hand(processes, MANY_OBSERVERS, workers=1, TKV_LOG="warning", MALLOC_ARENA_MAX=1)
    worker = started["worker 0"]
    said = read_until(worker, "under way")
    lift = limit(started[role].pid, "memory", slack=0)
    (folders / "mark-limited").touch()
    said += read_until(worker, "observers after")
    lift()
    (folders / "mark-lifted").touch()
    status, rest = finish(worker)
    assert status == 0 and "left" in rest, said + rest
    logged = {name: finish(started[name]) for name in ("head", "server")}
    assert [status for status, _ in logged.values()] == [0, 0], logged
    check_crowd(said + rest, logged[role][1])


@pytest.mark.parametrize("name", ["files", "sizes"])
def test_a_head_of_its_own_at_a_limit_is_named_by_the_call_that_meets_it(processes, folders, name):
    started = start_by_hand(processes, WORK, workers=1, **variables(folders))
    worker = started["worker 0"]
    said = read_until(worker, "under way")
    lift = limit(started["head"].pid, name)
    (folders / "mark-limited").touch()
    said += read_until(worker, "tried")
    lift()
    (folders / "mark-lifted").touch()
    status, rest = finish(worker)
    made = check(said + rest, name, "head", ())
    assert status == 0 and [one[0] for one in made].count("go on again") == 1, said + rest
    logged = {role: finish(started[role]) for role in ("head", "server")}
    assert [status for status, _ in logged.values()] == [0, 0], logged
    assert ("accepts no connection: Too many open files" in logged["head"][1]) == (name == "files"), logged


LONG_LINES = """
kv = mx.kv.create("dist_async", server_patience=6, patience=20)
kv.init("w", np.zeros(3, np.float32))
print("under way", flush=True)
until_marked("limited")
if kv.rank == 0:
    print("x" * 3_000_000, flush=True)
kv.push("w", np.ones(3, np.float32))
print("tried", flush=True)
until_marked("lifted")
if kv.rank == 0:
    print("z" * 3_000_000, flush=True)
kv.close()
"""


def test_a_launcher_without_memory_for_output_says_so_and_its_job_goes_on(processes, folders):
    job = processes.launch(LONG_LINES, "--log", str(folders / "logs"), workers=2, servers=1, **variables(folders))
    read_until(job, "under way", count=2)
    lift = limit(job.pid, "memory", slack=0)
    (folders / "mark-limited").touch()
    said = read_until(job, "tried", count=2)
    lift()
    (folders / "mark-lifted").touch()
    status, rest = finish(job)
    said = re.sub("x{100,}", "x", said)
    assert status == 0 and rest.count("z") == 3_000_000, (status, said)
    note = "tkv launch: the launcher has no memory for output of worker 0; some of it is lost"
    assert said.count(note) == 1, said
    assert note.removeprefix("tkv launch: ") in (folders / "logs" / "launcher.log").read_text()


UNWRITTEN = """
import resource, sys, time
import numpy as np, tensorkv as mx
kv = mx.kv.create("dist_sync", bootstrap="self", patience=5)
kv.init("w", np.zeros(4, np.float32))
before = resource.getrlimit(resource.RLIMIT_AS)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 4 * 2**20, before[1]))  # less than the stack of a thread
try:
    kv.save(sys.argv[1], async_op=True)
    said = "it is saved"
except mx.errors.ResourceExhaustedError as error:
    said = str(error)
resource.setrlimit(resource.RLIMIT_AS, before)
print(said, kv.save(sys.argv[1]), flush=True)
begin = time.monotonic()
kv.close()
print(f"closed after {time.monotonic() - begin:.1f} s", flush=True)
"""


def test_a_save_for_which_there_is_no_thread_stands_in_the_way_of_no_other(processes, tmp_path):
    status, said = finish(processes.start([sys.executable, "-u", processes.script(UNWRITTEN), str(tmp_path)]))
    assert status == 0 and "save: no thread to write a snapshot with" in said, said
    assert f"{tmp_path}/000001" in said and "closed after 0." in said, said


FILES = """
import resource
print("begins with", resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
options = {}
if len(sys.argv) > 1:
    options = {"bootstrap": FileStore(sys.argv[1]), "rank": 0, "num_workers": 1}
kv = mx.kv.create("dist_sync", **options)
print("goes on with", resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
sys.stdin.readline()
kv.close()
"""


def test_servers_and_launchers_take_the_hard_limit_of_files_and_workers_keep_theirs(processes, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = processes.script(FILE_STORE + FILES, "hosting.py")
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        job = processes.launch(FILES, workers=1, servers=1, stdin=subprocess.PIPE)
        hosting = processes.start([sys.executable, "-u", script, str(tmp_path)], stdin=subprocess.PIPE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    raised = min(hard, 1 << 20)
    said = read_until(job, "goes on")
    assert "begins with 200" in said and "goes on with 200" in said, said
    for pid in (job.pid, *pids_of(job, "server")):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] == raised, pid
    said = read_until(hosting, "goes on")
    assert "begins with 200" in said and f"goes on with {raised}" in said, said
    for process in (job, hosting):
        process.stdin.write("\n")
        process.stdin.flush()
        assert finish(process)[0] == 0


def has_namespaces():
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode == 0


@pytest.mark.skipif(not has_namespaces(), reason="mounting a small disk takes the right to do so")
@pytest.mark.parametrize("place", ["/dev/shm", "disk", "logs", "temp"])
def test_a_full_disk_is_named_where_it_is_written_to(processes, folders, place):
    full = place if place.startswith("/") else str(folders / place)
    os.makedirs(full, exist_ok=True)
    fill = f'mount -t tmpfs -o size=16k none {full} && dd if=/dev/zero of={full}/filler bs=16k count=1 2>&-; exec "$@"'
    script = processes.script(WORK)
    where = folders / "disk" if place == "disk" else folders
    for mark in ("limited", "lifted"):
        (folders / f"mark-{mark}").touch()
    words = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2", "--tcp", "--log", str(folders / "logs")]
    variables = {"FOLDER": where, "TMPDIR": folders / "temp", "TKV_LOG": "warning"}
    job = processes.start(["unshare", "-m", "sh", "-c", fill, "sh", *words, sys.executable, "-u", script], **variables)
    status, said = finish(job)
    if place == "temp":  # of the token
        assert 0 < status < 128 and "No space left on device" in said, (status, said)
        return
    assert status == 0, (status, said)
    for call, kind, _, text in outcomes(said):
        if place == "disk" and (call.startswith("save") or (call == "close" and kind != "done")):
            assert kind == "ResourceExhaustedError" and "No space left on device" in text, (call, kind, text)
        else:
            assert kind == "done", (call, kind, text)
