"""A run that is stopped at any point and then continued ends with the bits of a run that was not stopped.

Each trial draws a type of store, an updater, a way of stopping and going on, and the moment from its seed. TKV_TEST_STOPS says
how many trials there are; without it a few of them cover each updater and each way once.
"""

import json
import os
import random
import re
import signal
import sys

import pytest
from jobs import finish, restorer_of, wait_until

WORK = """
import hashlib, json
case = json.loads(os.environ["CASE"])
KIND, UPDATER, STEPS = case["kind"], case["updater"], case["steps"]
IDS = np.array([1, 5, 2**40, 7, 11])
mx.random.seed(3)  # of rows that nobody has pushed

class Own(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return mx.nd.zeros(weight.shape), {"sum": np.zeros(weight.shape, "f4")}
    def update(self, index, weight, grad, state):
        self._update_count(index)
        state[0][:] = state[0] * 0.75 + grad / self._index_update_count[index]
        state[1]["sum"] += grad.asnumpy()
        weight -= state[0] * 0.125 + mx.nd.array(state[1]["sum"]) * 0.01

class Harmonic(mx.lr_scheduler.LRScheduler):
    def __call__(self, num_update):
        return self.base_lr / num_update

def program():
    return mx.Program("program own\\nparam rate 0.125\\nstate m\\nold = mul m 0.75\\nnew = add old sum\\n"
                      "step = mul new rate\\nv = sub value step\\nm <- new\\nvalue <- v\\n")

def make(updater):
    options = {} if KIND == "local" else {"deterministic": True}
    kv = mx.kv.create(KIND, **options)
    if updater == "compression":
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    if updater == "table":
        kv.init_table("a", 3, admit=2, evict={"age": 4}, optimizer=mx.optimizer.Adam(learning_rate=0.01))
        kv.init_table("b", 2, initializer=mx.init.Uniform(0.5))
    else:
        kv.init(["a", "b"], [np.linspace(-1, 1, n).astype("f4") for n in (5, 3000)])
    if updater in ("momentum", "two stores"):
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.05, momentum=0.9, wd=0.01))
    if updater in ("adam", "table"):
        schedule = mx.lr_scheduler.FactorScheduler(step=3, factor=0.5, base_lr=0.1)
        kv.set_optimizer(mx.optimizer.Adam(lr_scheduler=schedule))
    if updater == "own schedule":
        kv.set_optimizer(mx.optimizer.SGD(momentum=0.5, lr_scheduler=Harmonic(0.5)))
    if updater == "own":
        kv.set_optimizer(Own() if KIND == "local" else program())
    if updater == "function":
        def momentum(key, grad, weight):
            m = kv.state("m")
            m *= 0.75
            m += grad
            weight -= m * 0.125
        kv.set_updater(momentum)
    return kv

def read(kv, key):
    return kv.pull_rows(key, IDS).copy() if UPDATER == "table" else kv.pull(key).asnumpy()

def push(kv, key, step):
    value = read(kv, key)
    gradient = value * np.float32(0.1 * (kv.rank + 1)) + np.float32(((step * 7 + kv.rank * 3) % 11 - 5) / 8)
    if UPDATER == "table":
        some = np.arange(len(IDS)) % 3 != step % 3
        kv.push_rows(key, IDS[some], gradient[some])
    else:
        kv.push(key, gradient)

def path_of(number):
    return os.path.join(case["save"], str(number))

stores = [make("adam")] if UPDATER == "two stores" else []
stores.append(make(UPDATER))
begin = case.get("begin", 0)
if begin:
    for number, kv in enumerate(stores):
        kv.load(path_of(number))
print("begins", *(kv.round("a") for kv in stores), flush=True)
for step in range(begin + 1, STEPS + 1):
    done = 0
    for kv in reversed(stores):
        for key in ("a", "b"):
            if KIND == "dist_async" or kv.round(key) < step:
                push(kv, key, step)
            done += 1
            kill = case.get("kill")
            if kill and (kill["rank"], kill["step"], kill["done"]) == (kv.rank, step, done):
                if not os.path.exists(kill["mark"]):
                    open(kill["mark"], "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(case.get("pace", 0))
    if step == case.get("save_at"):
        for number, kv in enumerate(stores):
            kv.save(path_of(number))
            if case.get("load_back"):
                kv.load(path_of(number))
digest = hashlib.sha256()
for kv in stores:
    for key in ("a", "b"):
        digest.update(read(kv, key).tobytes())
        if UPDATER == "table":
            ids = kv.export_rows(key)[0] if kv.rank == 0 else []
            digest.update(str([int(one) for one in ids]).encode())
if KIND != "local":
    stores[0].barrier()
print(f"rank {stores[0].rank} ends with {digest.hexdigest()}", flush=True)
for kv in stores:
    kv.close()
"""

UPDATERS = (
    "none",
    "momentum",
    "adam",
    "own schedule",
    "own",
    "function",
    "table",
    "two stores",
    "compression",
)
PACE = 0.05  # seconds of a step, so that snapshots are written while a job runs
WAYS = ("save and load", "restore", "beside", "from one snapshot", "worker dies", "server dies", "restorer dies")


class Trial:
    """Runs of one program: straight on, or stopped and gone on with."""

    def __init__(self, processes, folder, kind, updater, workers):
        self.processes, self.folder = processes, folder
        self.kind, self.updater, self.workers = kind, updater, workers

    def start(self, *options, steps, variables=None, **case):
        case = {"kind": self.kind, "updater": self.updater, "steps": steps, "save": str(self.folder / "save"), **case}
        variables = {"CASE": json.dumps(case), "OMP_NUM_THREADS": 1, **(variables or {})}
        if self.kind == "local":
            return self.processes.start([sys.executable, "-u", self.processes.script(WORK)], **variables)
        return self.processes.launch(WORK, *options, workers=self.workers, servers=1, **variables)

    def run(self, *options, status=0, **case):
        """Return (the end state of each rank, all output)."""
        found, said = finish(self.start(*options, **case), timeout=120)
        assert found == status, said
        return sorted(re.findall(r"rank \d+ ends with \w+", said)), said

    def ends(self, job):
        """Return the end state of each rank of a started job, and all output."""
        status, said = finish(job, timeout=120)
        assert status == 0, said
        return sorted(re.findall(r"rank \d+ ends with \w+", said)), said


def gone_on(trial, way, choose, steps):
    """Stop a run at a random moment, continue it, and return its end, and the options for an uninterrupted run."""
    at = choose.randint(1, steps - 1)
    run, folder = str(trial.folder / "run"), trial.folder
    keys = 4 if trial.updater == "two stores" else 2
    every = ("--snapshot-every", str(choose.randint(1, 3)))
    push = choose.randint(max(at, steps // 2) * keys * trial.workers, steps * keys * trial.workers)
    dies = {"TKV_FAILPOINTS": f"server 0:received:PUSH:{push}:kill"}
    if way == "save and load":
        trial.run(steps=at, save_at=at)
        return trial.run(steps=steps, begin=at)[0], {"save_at": at, "load_back": True} if owes(trial) else {}
    if way == "worker dies":
        kill = {
            "rank": choose.randrange(trial.workers),
            "step": at,
            "done": choose.randint(1, keys),
            "mark": str(folder / "killed"),
        }
        end, said = trial.run("--restart", "1", steps=steps, kill=kill)
        assert "it is started again (1 of 1)" in said, said
        return end, {}
    if way == "restore":
        killed = f"server 0:received:PUSH:{choose.randint(1, steps * keys * trial.workers)}:kill"
        job = trial.start("--restore", run, *every, steps=steps, pace=PACE, variables={"TKV_FAILPOINTS": killed})
        finish(job, timeout=120)
        return trial.run("--restore", run, *every, steps=steps)[0], {}
    if way == "server dies":
        end, said = trial.run("--restore", run, *every, "--restart", "1", steps=steps, pace=PACE, variables=dies)
        assert "the job is started again (1 of 1)" in said, said
        return end, {}
    old = str(folder / "old")
    trial.run("--restore", old, *every, steps=at)
    before = sorted(os.listdir(old))
    path = old if way != "from one snapshot" else os.path.join(old, choose.choice(before))
    if way == "restorer dies":
        job = trial.start("--restore", path, "--restart", "2", steps=steps)
        os.kill(wait_until(lambda: restorer_of(job)), signal.SIGKILL)
        return trial.ends(job)[0], {}
    places = ("--restore", path, "--snapshots", run)
    end, _ = trial.run(*places, *every, "--restart", "1", steps=steps, pace=PACE, variables=dies)
    assert sorted(os.listdir(old)) == before
    return end, {}


def owes(trial):
    """Return whether the residuals of a run are lost with it, as documented."""
    return trial.updater == "compression"


def ways_of(kind, updater):
    """Return the ways in which a store of this type can be stopped and continued with the same bits."""
    if kind != "dist_sync" or updater == "compression":
        return WAYS[:1]  # rounds of other types do not say where a job is; residuals are in no snapshot
    if updater == "own schedule":
        return tuple(way for way in WAYS if way != "worker dies")
    return WAYS


def kinds_of(updater):
    return ("local", "dist_sync") if updater == "table" else ("local", "dist_sync", "dist_async")


def check(processes, folder, seed, kind, updater, way):
    choose = random.Random(seed)
    steps = choose.randint(8, 14)
    trial = Trial(processes, folder, kind, updater, 1 if kind != "dist_sync" else choose.randint(1, 2))
    end, straight = gone_on(trial, way, choose, steps)
    (folder / "save").mkdir(exist_ok=True)
    expected, _ = trial.run(steps=steps, **straight)
    assert len(end) == trial.workers and end == expected, (seed, kind, updater, way)


TRIALS = int(os.environ.get("TKV_TEST_STOPS", "0"))
ALL = [(kind, updater, way) for updater in UPDATERS for kind in kinds_of(updater) for way in ways_of(kind, updater)]
SAMPLE = (
    ("local", "own", "save and load"),
    ("local", "function", "save and load"),
    ("local", "own schedule", "save and load"),
    ("dist_async", "momentum", "save and load"),
    ("dist_sync", "compression", "save and load"),
    ("dist_sync", "two stores", "server dies"),
    ("dist_sync", "adam", "beside"),
    ("dist_sync", "table", "restore"),
    ("dist_sync", "function", "from one snapshot"),
    ("dist_sync", "none", "worker dies"),
    ("dist_sync", "own", "restorer dies"),
)


@pytest.mark.skipif(TRIALS > 0, reason="all of them are tried")
@pytest.mark.parametrize(("kind", "updater", "way"), SAMPLE, ids=lambda word: word.replace(" ", "-"))
def test_a_stopped_run_ends_as_one_that_was_not(processes, tmp_path, kind, updater, way):
    check(processes, tmp_path, f"{kind} {updater} {way}", kind, updater, way)


@pytest.mark.parametrize("seed", range(TRIALS))
def test_runs_stopped_anywhere_end_as_those_that_were_not(processes, tmp_path, seed):
    check(processes, tmp_path, seed, *ALL[seed % len(ALL)])
