"""The processes of the rehearsals of docs/failures.md, their scripts, and the list of rehearsals."""

import functools
import os
import pathlib
import re
import resource
import sys
import threading

import numpy as np
import tensorkv as mx
from jobs import Processes, finish, read_until
from jobs import wait_until as wait_until_soon

TKV = [sys.executable, "-u", "-m", "tensorkv"]
LONG = ("--silence-ms", "60000")  # the silence of a process cannot be how others know of its end
REHEARSALS = {}
wait_until = functools.partial(wait_until_soon, seconds=60)

# The beginning of every script. `met` calls, and says the error and its time, or that there was none.
BEGIN = """
rank = int(os.environ.get("TKV_RANK") or 0)
ones = np.ones(4, np.float32)
def create(kind="dist_sync", **options):
    return mx.kv.create(kind, **options)
def brief(patience, *keys):  # a store of short patience and its keys, made when all workers are there
    global first
    first = create()
    if not first.rejoined:
        first.barrier()
    kv = create(patience=patience)
    for moment in (0, 1):
        for key in keys if moment == min(rank, 1) else ():
            kv.init(key, np.zeros(4, np.float32))
        if moment == 0 and not first.rejoined:
            first.barrier()
    return kv
def step(kv, key="w"):
    kv.push(key, ones)
    return kv.pull(key)
def met(call, name="it", tells=True):
    begin = time.monotonic()
    try:
        call()
        if tells:
            print(f"{name} of {rank} is done (after {time.monotonic() - begin:.2f} s)", flush=True)
    except BaseException as error:
        line = f"{name} of {rank} met {type(error).__name__}: {error} (after {time.monotonic() - begin:.2f} s)"
        print(line, flush=True)
        try:
            with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "errors"), "a") as file:
                print(line, file=file)
        except OSError:
            pass  # a limit of the rehearsal
        return error
def die(how=signal.SIGKILL):
    os.kill(os.getpid(), how)
def first_life():  # true once for each rank
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"mark-lived-{rank}")
    is_first = not os.path.exists(path)
    open(path, "w").close()
    return is_first
"""


class Stage:
    """The processes of one rehearsal. Each script has a folder of its own, with the marks of its job."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = self.here = folder
        self.processes = Processes(folder)
        self.start_process, self.processes.start = self.processes.start, self.start
        self.count = 0

    def start(self, command, **variables):
        return self.start_process(command, TKV_TEST_MARK=os.getpid(), **variables)

    def script(self, text):
        self.count += 1
        self.here = self.folder / f"job{self.count}"
        self.here.mkdir()
        self.processes.folder = self.here
        return self.processes.script(BEGIN + "\n" + text)

    def launch(self, text, *options, workers=2, servers=1, before=(), **variables):
        command = [*before, *TKV, "launch", "-n", str(workers), "-s", str(servers), *map(str, options)]
        return self.start([*command, sys.executable, "-u", self.script(text)], **variables)

    def run(self, text, *options, **more):
        return finish(self.launch(text, *options, **more), timeout=100)

    def mark(self, name):
        """Mark a moment of the newest job."""
        (self.here / f"mark-{name}").touch()

    def until_marked(self, name):
        wait_until((self.here / f"mark-{name}").exists)

    def by_hand(self, text, workers=2, servers=1, head=(), **variables):
        """Start a head, servers and workers without a launcher; returns them by name."""
        words = ["head", "--workers", str(workers), "--servers", str(servers), *head]
        started = {"head": self.start([*TKV, *words], TKV_JOB="hand", **variables)}
        address = read_until(started["head"], "head listens at").split()[-1]
        self.common = {**variables, "TKV_HEAD": address, "TKV_JOB": "hand"}
        for number in range(servers):
            started[f"server {number}"] = self.start([*TKV, "server", "--rank", str(number)], **self.common)
        script = self.script(text)
        for number in range(workers):
            worker = [sys.executable, "-u", script]
            started[f"worker {number}"] = self.start(worker, TKV_RANK=number, TKV_ROLE="worker", **self.common)
        return started


def rehearses(what):
    """Register the rehearsal of a row, which the row's first cell names."""

    def register(function):
        assert what not in REHEARSALS, what
        REHEARSALS[what] = function
        return function

    return register


def longest(said, name="it", rank=None, error=r"\w+Error"):
    """Return the longest time of the errors of a call."""
    who = r"\d+" if rank is None else rank
    found = re.findall(rf"{name} of {who} met {error}.*\(after ([\d.]+) s\)", said)
    assert found, f"nobody met an error: {said}"
    return max(map(float, found))


def of_worker(rank, said):
    """Return the lines of a worker."""
    return "\n".join(line for line in said.splitlines() if line.startswith(f"[worker {rank}]"))


def limit(pid, which, size):
    """Limit a process; returns a function that lifts the limit."""
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (size, before[1]))
    return lambda: resource.prlimit(pid, which, before)


def memory_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def files_of(pid):
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1


TRAIN = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
while kv.round("w") < 6:
    if rank == 1 and kv.round("w") == 3 and not kv.rejoined:
        END
    if met(lambda: step(kv)) is not None:
        os._exit(7)
print("went on to the end", flush=True)
"""


def from_a_snapshot(stage):
    """A job that saves every round, and whose script loads, is killed and started again; done once for all rows."""
    with SNAPSHOT_LOCK:
        return started_from_a_snapshot(stage)


SNAPSHOT_LOCK = threading.Lock()


@functools.cache
def started_from_a_snapshot(stage):
    folder = stage.folder / "saved"
    text = """
import contextlib
kv = create()
kv.init("w", np.zeros(4, np.float32))
with contextlib.suppress(mx.errors.SnapshotNotFoundError):
    kv.load(os.environ["FOLDER"])
print("begins at", kv.round("w"), flush=True)
while kv.round("w") < 6:
    step(kv)
    kv.save(os.environ["FOLDER"])
    kv.barrier()
    if kv.round("w") == 3 and first_life():
        die()
print("went on to the end", flush=True)
"""
    stage.run(text, FOLDER=folder)
    status, said = stage.run(text, FOLDER=folder)
    assert status == 0 and said.count("begins at 3") == 2 and said.count("went on") == 2, said
    return True


FROM_A_SNAPSHOT = "start the job again from a snapshot"


# Goes on until the mark "end" is there; rank 0 alone looks, so that all see it in the same round.
GO_ON = """
kv = create()
kv.init("w", np.zeros(4, np.float32))
step(kv)
print("under way", kv.url, flush=True)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-end")
value = [2]
def again():
    kv.push("w", ones * (rank == 0 and os.path.exists(path)))
    value[0] = kv.pull("w").asnumpy()[0]
while value[0] != 1:
    if met(again, tells=False) is not None:
        os._exit(7)
    time.sleep(0.02)
print("went on to the end", flush=True)
"""


def save_two_snapshots(folder):
    """Save a key after one and after two rounds of a job of one worker."""
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", np.zeros(4, np.float32))
        for _ in range(2):
            kv.push("w", np.ones(4, np.float32))
            kv.pull("w")
            kv.save(folder)
