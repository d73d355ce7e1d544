"""Random jobs in which lives end and come again: processes are killed and stopped by a plan that a seed draws.

TKV_TEST_CHAOS_RUNS is the number of seeds, TKV_TEST_CHAOS_FIRST the first one. Each element of a key counts one step:
worker r adds 16^r there. A value thus shows each push that is lost or applied twice, in each part of a key.
"""

import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import threading
import time

import pytest
import tensorkv as mx
from jobs import living

CHUNK = 262_144
SILENCE, GRACE, TERM_GRACE, PATIENCE = 2.0, 1, 3, 6  # seconds
SENT = {
    "worker": [
        "HELLO",
        "INIT",
        "DESCRIBE",
        "PUSH",
        "PULL",
        "CONTROL",
        "COMMIT",
        "ABSTAIN",
        "CLOSE",
        "RELEASE",
        "GOODBYE",
    ],
    "server": ["HELLO", "OK", "ACCEPTED", "VALUE", "META", "EXISTS", "GOODBYE"],
}
RECEIVED = {
    "worker": ["WELCOME", "OK", "ACCEPTED", "VALUE", "META", "EXISTS", "EPOCH"],
    "server": ["HELLO", "INIT", "DESCRIBE", "PUSH", "PULL", "CONTROL", "ABSTAIN", "CLOSE", "RELEASE", "EPOCH"],
}
STOPS = {"briefly": 0.4, "too long": SILENCE + 0.8, "for ever": None}

WORK = """
import json
CHUNK = 262_144
plan = json.loads(os.environ["PLAN"])
steps, sizes, exact = plan["steps"], plan["sizes"], plan["policy"] != "continue"
rank, workers = int(os.environ["TKV_RANK"]), int(os.environ["TKV_WORKERS"])
names = [*sizes, "rows"]
class Raised(Exception):
    pass
def fail(number, frame):
    raise Raised from None  # a traceback names no exception that was being handled then
signal.signal(signal.SIGUSR1, fail)
folder = os.path.dirname(os.path.abspath(__file__))

def optimizer():
    if plan["optimizer"] == "SGD":
        return mx.optimizer.SGD(learning_rate=-1.0)
    return mx.Program("program add\\ny = add value sum\\nvalue <- y\\n")

def set_optimizer(kv, number):
    kv.set_optimizer(optimizer())
    name = f"set-{number}-{os.environ['TKV_JOB']}"
    # Under continue the call of a higher rank counts only if all lower ones are dead at that time.
    while not exact and not os.path.exists(f"{folder}/mark-{name}"):
        if all(worker["state"] in ("dead", "left") for worker in kv.status()["workers"][:rank]):
            kv.set_optimizer(optimizer())
            mark(name)
        time.sleep(0.01)

print("born", rank, flush=True)
stores = [mx.kv.create("dist_sync") for _ in range(plan["stores"])]
for number, kv in enumerate([*stores]):
    try:
        kv.init("begin", np.zeros(1, np.float32))
    except mx.errors.FailedPreconditionError as error:  # an earlier life has died while it left
        assert "is over: every worker had closed it" in str(error), error
        print("is over", rank, number, flush=True)
        stores.remove(kv)
        continue
    for name, size in sizes.items():
        first = np.zeros(size, np.float32)
        first[steps::CHUNK] = rank + 1  # shows who has created the part
        kv.init(name, first)
    kv.init_table("rows", 1)
    set_optimizer(kv, number)

def push(kv, name, step):
    if name == "rows":
        return kv.push_rows(name, np.array([step - 1]), np.full((1, 1), 16.0**rank, np.float32))
    value = np.zeros(sizes[name], np.float32)
    value[step - 1 :: CHUNK] = 16.0**rank
    return kv.push(name, value)

def ledger(kv, name):  # [part, rank, step]: how often it was applied
    if name == "rows":
        parts = np.asarray(kv.pull_rows(name, np.arange(steps))).reshape(1, steps)
    else:
        value = kv.pull(name).asnumpy()
        parts = np.stack([value[at : at + steps + 1] for at in range(0, len(value), CHUNK)])
        makers = set(parts[:, steps].tolist())
        assert len(makers) == 1 and makers <= ({1.0} if exact else {1.0, 2.0, 3.0}), f"{name} was made by {makers}"
        assert np.count_nonzero(value) == np.count_nonzero(parts), f"{name} has values elsewhere"
    found = parts[:, None, :steps].astype(np.int64) >> (4 * np.arange(workers))[None, :, None] & 15
    assert found.max() <= 1, f"{name}: applied twice: {np.argwhere(found > 1).tolist()}"
    return found

keys = [(kv, name) for kv in stores for name in names]
rounds = [kv.round(name) for kv, name in keys]
first = len(names) * (plan["stores"] - len(stores))  # stores are closed in their order
print("begins", rank, json.dumps([steps] * first + rounds), flush=True)
mine = [[] for _ in keys]  # steps that this life has pushed
for step in range(min(rounds, default=steps) + 1, steps + 1):
    pushed = []
    for i, (kv, name) in enumerate(keys):
        if kv.round(name) < step:
            push(kv, name, step)
            mine[i].append(step - 1)
            pushed.append(first + i)
        found = ledger(kv, name)
        assert found[:, rank, mine[i]].all(), f"{name}: a push of step {step} or before is lost"
        assert not exact or found[:, :, :step].all(), f"{name}: step {step} or before lacks a push"
    print("did", rank, step, json.dumps(pushed), flush=True)
    time.sleep(plan["pace"])
print("waits", rank, flush=True)
until_marked("done", 100)
lacks = []
for i, (kv, name) in enumerate(keys):
    lacks += [[first + i, *map(int, at)] for at in np.argwhere(ledger(kv, name) == 0)]
print("ends", rank, json.dumps(lacks), flush=True)
for kv in stores:
    kv.close()
"""


@dataclasses.dataclass
class Event:
    """A thing that happens as soon as a worker has done a step; step 0 is the start of the processes.

    All workers may be killed while the launcher is stopped: they are then dead at the same time. Late is the kill of a
    worker that leaves.
    """

    kind: str  # any | first | all | twice | server | stop | raise | late
    step: int
    rank: int = 0
    delay: float = 0.0
    stop: str = ""


@dataclasses.dataclass
class Plan:
    """Options of a job and its events."""

    policy: str
    restarts: int
    saves_every: int  # 0: the job has no snapshots
    workers: int
    servers: int
    stores: int
    steps: int
    pace: float
    sizes: dict
    optimizer: str
    points: list  # failpoints, some of them at the moment in which rank 0 creates its first keys
    events: list

    def options(self, folder):
        patience = PATIENCE if self.policy == "wait" and self.restarts == 0 else 60
        words = ["--on-death", self.policy, "--restart", self.restarts, "--grace", GRACE]
        words += ["--silence-ms", int(1000 * SILENCE), "--patience-ms", 1000 * patience, "--server-patience-ms", 5000]
        if self.saves_every:
            words += ["--restore", folder, "--snapshot-every", self.saves_every]
        if self.points:
            words += ["--failpoints", ",".join(self.points)]
        return [str(word) for word in words]

    def longest_end(self):
        """Return the seconds in which the launcher ends after the last event, on a busy machine."""
        stops = sum(event.kind == "stop" for event in self.events) + "".join(self.points).count("stop")
        waited = PATIENCE if self.policy == "wait" and self.restarts == 0 else 0
        lives = 8 * (len(self.events) + len(self.points) * (1 + self.restarts))
        return 20 + lives + stops * (SILENCE + GRACE + TERM_GRACE) + waited + GRACE + TERM_GRACE


def draw(seed):
    """Return the plan of a seed."""
    choose = random.Random(seed)
    workers, steps = choose.randint(1, 3), choose.randint(6, 12)
    plan = Plan(
        policy=choose.choice(["fail", "continue", "wait"]),
        restarts=choose.choice([0, 1, 3]),
        saves_every=choose.choice([0, choose.randint(2, 4)]),
        workers=workers,
        servers=choose.randint(1, 2),
        stores=choose.randint(1, 2),
        steps=steps,
        pace=choose.choice([0, 0.02, 0.08]),
        sizes={key: choose.choice([40, 5_000, 300_000, 600_000]) for key in "ab"[: choose.randint(1, 2)]},
        optimizer=choose.choice(["SGD", "program"]),
        points=[],
        events=[],
    )
    if choose.random() < 0.3:
        moments = ["sent:HELLO:1", "sent:HELLO:2", "sent:INIT:1", "sent:INIT:2", "sent:INIT:5"]
        moments += ["sent:DESCRIBE:1"] * (plan.policy == "continue")
        plan.points.append(f"worker 0:{choose.choice(moments)}:kill")
    for _ in range(choose.choice([0, 0, 1, 2])):
        who = choose.choice(["worker", "worker", "worker", "server"])
        name = choose.choice(SENT[who] if (way := choose.choice(["sent", "received"])) == "sent" else RECEIVED[who])
        action = choose.choice(["cut", "cut", "kill", "kill", "stop"])
        if who == "server" and not plan.saves_every:
            action = "cut"
        if name == "GOODBYE" and action == "stop":
            action = "kill"  # a script may go on behind its leave, so nobody ends a process that hangs there
        rank = choose.randrange(workers if who == "worker" else plan.servers)
        again = choose.choice(["", "", " again"])
        plan.points.append(f"{who} {rank}{again}:{way}:{name}:{choose.choice([1, 2, choose.randint(3, 30)])}:{action}")
    kinds = ["any", "any", "first", "all", "twice", "raise", "raise", "stop"] + ["server", "server"] * bool(
        plan.saves_every
    )
    count = choose.choice([0, 1, 1, 2] if plan.points else [1, 1, 2, 3])
    for step in sorted(choose.randint(0, steps + 1) for _ in range(count)):
        delay = choose.choice([0, choose.uniform(0, 0.15)])
        event = Event(choose.choice(kinds), step, choose.randrange(workers), delay)
        if event.kind == "first":
            event.rank = 0
        if event.kind == "server":
            event.rank = choose.randrange(plan.servers)
        if event.kind == "stop":
            event.stop = choose.choice(list(STOPS))
        if event.kind == "all":
            event.stop = choose.choice(["", "launcher"])
        plan.events.append(event)
    if choose.random() < 0.2:
        how = choose.choice(["", "raise"])
        plan.events.append(Event("late", steps + 2, choose.randrange(workers), choose.uniform(0, 0.1), how))
    return plan


class Story:
    """A job with its events: reads what it says and does to it what the plan says."""

    def __init__(self, job, plan):
        self.job, self.plan = job, plan
        self.lines = []
        self.done = []  # (kind, rank) of each kill and stop that has hit a process
        self.changed = threading.Condition()
        self.has_ended = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.job.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()

    def said(self):
        return "".join(self.lines)

    def until(self, condition, seconds):
        """Return true when a condition of the lines holds; false if the job ends before, or the time."""
        with self.changed:
            self.changed.wait_for(lambda: self.has_ended or condition(), seconds)
            return condition() and not self.has_ended

    def has_done(self, step):
        if step == 0:
            return any(re.search(r"\bborn \d+$", line) for line in self.lines)
        if step > self.plan.steps + 1:
            return any(re.search(r"\bends \d+ ", line) for line in self.lines)
        if step > self.plan.steps:
            return any(re.search(r"\bwaits \d+$", line) for line in self.lines)
        return any(int(n) >= step for line in self.lines for n in re.findall(r"\bdid \d+ (\d+) ", line))

    def has_begun(self, rank):
        """Return true if the newest process of a worker, which stands still, has joined."""
        time.sleep(0.1)  # until its lines are read
        begun = started = -1
        for number, line in enumerate(self.lines):
            if re.search(rf"\bbegins {rank} ", line):
                begun = number
            elif re.search(rf"worker {rank} .*it is started again|the job is started again", line):
                started = number
        return begun > started

    def births(self, rank):
        return sum(line.rstrip().endswith(f" born {rank}") for line in self.lines)

    def tell(self, role, rank, number):
        """Send a signal to a process, which may be about to start; returns its pid, or None if there is none."""
        end = time.monotonic() + 3
        while time.monotonic() < end and self.job.poll() is None:
            pid = living(self.job, role).get(rank)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    return pid
            time.sleep(0.01)
        return None

    def kill(self, role, rank, number=signal.SIGKILL):
        if self.tell(role, rank, number):
            self.done.append((role, rank))

    def happen(self, event):
        if not self.until(lambda: self.has_done(event.step), 40):
            return
        time.sleep(event.delay)
        if event.kind == "all":
            if event.stop:
                os.kill(self.job.pid, signal.SIGSTOP)
            for rank, pid in living(self.job, "worker").items():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.done.append(("worker", rank))
            os.kill(self.job.pid, signal.SIGCONT)
        elif event.kind == "stop":
            pid = self.tell("worker", event.rank, signal.SIGSTOP)
            if pid is None:
                return
            if STOPS[event.stop] is None and not self.has_begun(event.rank):
                os.kill(pid, signal.SIGCONT)  # nobody ends a process that hangs before it has joined
                return
            self.done.append(("stop", event.rank))
            if STOPS[event.stop] is not None:
                time.sleep(STOPS[event.stop])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        else:
            born = self.births(event.rank)
            role = "server" if event.kind == "server" else "worker"
            self.kill(role, event.rank, signal.SIGUSR1 if "raise" in (event.kind, event.stop) else signal.SIGKILL)
            if event.kind == "twice" and self.until(lambda: self.births(event.rank) > born, 5):
                time.sleep(event.delay)
                self.kill("worker", event.rank)


FAILURE = re.compile(r"tkv launch: (worker|server) (\d+) (?:was killed by signal (\d+)|ended with status (\d+))(.*)")
NOT_RESTORED = re.compile(r"has not restored .*: status (\d+)$")


@dataclasses.dataclass
class Told:
    """Facts that the lines of a job tell."""

    status: int = 0  # of the first process that has failed for good
    failures: dict = dataclasses.field(default_factory=dict)  # {(role, rank): how often}
    silent: list = dataclasses.field(default_factory=list)
    ends: dict = dataclasses.field(default_factory=dict)  # {rank: pushes that its last pulls lacked}
    acknowledged: dict = dataclasses.field(default_factory=dict)  # {rank: {(key, step)}}
    job_restarts: int = 0
    has_left: bool = False  # a worker was killed after its leave, or after the end of the job


BEGINS = re.compile(r"\bbegins (\d+) (\[.*\])$")


def bases(lines):
    """Return, for each start of the job, the lowest round of each key with which a worker begins, or None.

    A worker that comes late finds the rounds that the others have made since.
    """
    found = [None]
    for line in lines:
        if "the job is started again" in line:
            found.append(None)
        elif begins := BEGINS.search(line):
            rounds = json.loads(begins[2])
            found[-1] = rounds if found[-1] is None else [min(pair) for pair in zip(found[-1], rounds, strict=True)]
    return found


def kept_of(acknowledged, rounds):
    """Return the acknowledged pushes that these rounds contain."""
    return {(key, step) for key, step in acknowledged if step <= rounds[key]}


def read(lines, plan):
    """Return the facts, and check what has to hold line by line."""
    told, restarts, has_lost_server, base = Told(), {}, False, bases(lines)
    for line in lines:
        if re.search(r"tkv launch: server \d+ (?:is silent|was killed|ended with)", line):
            has_lost_server = True
        if found := FAILURE.search(line):
            who, rest = (found[1], int(found[2])), found[5]
            told.failures[who] = told.failures.get(who, 0) + 1
            if "it is started again" in rest:
                restarts[who] = restarts.get(who, 0) + 1
                assert f"({restarts[who]} of {plan.restarts})" in rest, line
            elif "the job is started again" not in rest:
                has_left = who[1] in told.ends and "it is not started again, because" in rest
                told.has_left |= has_left
                is_over = has_lost_server and "because the job cannot go on" in rest
                assert who[0] == "server" or restarts.get(who, 0) == plan.restarts or has_left or is_over, line
                told.status = told.status or (128 + int(found[3]) if found[3] else int(found[4]))
        elif found := NOT_RESTORED.search(line):
            told.status = told.status or int(found[1]) or 1
        if "the job is started again" in line:
            told.job_restarts += 1
            assert f"({told.job_restarts} of {plan.restarts})" in line, line
            told.status, told.ends, restarts, has_lost_server = 0, {}, {}, False
            if (rounds := base[told.job_restarts]) is not None:  # later pushes are lost with the servers
                told.acknowledged = {rank: kept_of(before, rounds) for rank, before in told.acknowledged.items()}
        if found := re.search(r"tkv launch: worker (\d+) is silent", line):
            told.silent.append(int(found[1]))
        if found := BEGINS.search(line):
            rank, rounds = int(found[1]), json.loads(found[2])
            before = told.acknowledged.setdefault(rank, set())
            kept = kept_of(before, rounds)
            assert kept == before, f"acknowledged pushes are lost: {before - kept}: {line}"
        elif found := re.search(r"\bdid (\d+) (\d+) (\[.*\])$", line):
            told.acknowledged[int(found[1])] |= {(key, int(found[2])) for key in json.loads(found[3])}
        elif found := re.search(r"\bends (\d+) (\[.*\])$", line):
            told.ends[int(found[1])] = json.loads(found[2])
    return told


def deaths(plan, story, told, role="worker"):
    """Return {rank: how often at most its process has ended, or its life was declared over, from outside}."""
    count = dict.fromkeys(range(plan.workers if role == "worker" else plan.servers), 0)
    for kind, rank in story.done:
        if (kind == "server") == (role == "server"):
            count[rank] += 1
    for point in plan.points:
        who, rank, again = re.match(r"(\w+) (\d+)( again)?:", point).groups()
        if who == role and not point.endswith("cut"):
            count[int(rank)] += 100 if again else 1
    if role == "server":
        return count
    for rank in told.silent:  # a machine that is too busy
        count[rank] += ("stop", rank) not in story.done
    return count


def must_succeed(plan, story, told, died):
    """Return true if the restarts are certain to suffice."""
    servers = sum(deaths(plan, story, told, "server").values())
    if told.has_left:
        return False
    if servers:  # a kill may hit a process that puts the snapshot back, and costs a start of the whole job
        return servers + sum(died.values()) <= plan.restarts
    if not any(died.values()):
        return True
    # Under `fail` each worker may fail once with an error of another one's death. An incarnation that died before it
    # had joined counts as none.
    is_early = bool(plan.points) or plan.events[0].step == 0
    others = int(plan.policy == "fail" and plan.workers > 1) * (2 if is_early else 1)
    return max(died.values()) + others <= plan.restarts


def check(plan, story, told, status, folder):
    died = deaths(plan, story, told)
    said = story.said()
    others = re.findall(r"^\[worker \d\] (?!tensorkv\.errors\.|Raised)[\w.]*Error\b.*", said, re.MULTILINE)
    assert not others, f"a worker has found a wrong value: {others[0]}"
    assert status == told.status, f"the exit status is {status}, and the first failure has {told.status}"
    servers = sum(deaths(plan, story, told, "server").values())
    is_certain = must_succeed(plan, story, told, died)
    if is_certain:
        assert status == 0, f"the restarts suffice: {died}"
    if status == 0:
        assert set(told.ends) == set(range(plan.workers)), f"ended: {sorted(told.ends)}"
    if plan.restarts == 0 and story.done and not plan.points:
        kind, rank = story.done[0]
        is_sure = {event.kind for event in plan.events} <= {"any", "first", "all", "twice", "server"}
        assert status == 128 + signal.SIGKILL or not is_sure or told.silent, f"{kind} {rank} was killed first"
    if plan.policy == "continue" and servers == 0:
        survivors = {rank for rank, n in died.items() if n == 0 or (plan.restarts and is_certain)}
        assert survivors <= set(told.ends), f"nothing stops {survivors}, and {sorted(told.ends)} have ended"
    for (role, rank), count in told.failures.items():
        if role == "worker" and plan.policy == "continue" and servers == 0:
            assert count <= died[rank], f"worker {rank} has failed {count} times, and died {died[rank]} times"
    parts_of = [-(-size // CHUNK) for size in plan.sizes.values()] + [1]
    for lacks in told.ends.values():
        torn = {}
        for key, part, rank, step in lacks:
            where = f"key {key} part {part} worker {rank} step {step + 1}"
            assert plan.policy == "continue" and died[rank] + servers, f"lost: {where}"
            assert (key, step + 1) not in told.acknowledged.get(rank, ()), f"acknowledged and lost: {where}"
            torn.setdefault((rank, step, key), set()).add(part)
        mixed = {(rank, step) for (rank, step, key), at in torn.items() if len(at) < parts_of[key % len(parts_of)]}
        for rank, n in died.items():
            assert sum(rank == of for of, _ in mixed) <= n + servers, f"worker {rank} died {n} times; mixed: {mixed}"
    if status == 0 and plan.saves_every:
        check_saved(plan, folder)


def check_saved(plan, folder):
    """Load the last snapshot of a job that has ended well: it is the end of the job."""
    for number in range(plan.stores):
        kv = mx.kv.create("local")
        for name, size in plan.sizes.items():
            kv.init(name, mx.nd.zeros((size,)))
        kv.init("begin", mx.nd.zeros((1,)))
        kv.init_table("rows", 1)
        if plan.optimizer == "SGD":
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
        else:
            kv.set_optimizer(mx.Program("program add\ny = add value sum\nvalue <- y\n"))
        rounds = kv.load(folder / f"store-{number}" if plan.stores > 1 else folder)
        is_whole = {rounds[name] for name in [*plan.sizes, "rows"]} == {plan.steps}
        assert is_whole, f"store {number} is saved with {rounds}"
        for name in plan.sizes:
            value = kv.pull(name).asnumpy()
            whole = sum(16**rank for rank in range(plan.workers))
            if plan.policy != "continue":
                assert all((value[at : at + plan.steps] == whole).all() for at in range(0, len(value), CHUNK)), name


FIRST = int(os.environ.get("TKV_TEST_CHAOS_FIRST", "0"))
RUNS = int(os.environ.get("TKV_TEST_CHAOS_RUNS", "7"))


@pytest.mark.timeout(300)  # above the longest bound of a plan
@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_lives_end_and_come_again(processes, tmp_path, seed):
    plan = draw(seed)
    folder = tmp_path / "saved"
    variables = {"PLAN": json.dumps(dataclasses.asdict(plan)), "OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
    job = processes.launch(WORK, *plan.options(folder), workers=plan.workers, servers=plan.servers, **variables)
    story = Story(job, plan)
    try:
        for event in plan.events:
            if event.kind != "late":
                story.happen(event)
        story.until(lambda: story.has_done(plan.steps + 1), 40)
        (processes.folder / "mark-done").touch()
        if plan.events and plan.events[-1].kind == "late":
            story.happen(plan.events[-1])
        story.reader.join(plan.longest_end())
        assert not story.reader.is_alive(), f"the launcher has not ended in {plan.longest_end():.0f} s"
        status = job.wait(5)
        told = read(story.lines, plan)
        print(f"{plan}\ndone: {story.done}, status {status}, ends {told.ends}")
        check(plan, story, told, status, folder)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{plan}\ndone: {story.done}\n{story.said()}") from error
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            story.reader.join(10)
