"""A run that is stopped at any point and then continued ends with the bits of a run that was not stopped.

Each trial draws a type of store, the updaters of its stores, and a way of stopping and going on. Its seed gives the moment and
the number of workers. The number of servers is drawn for each job, so that a run may go on with another one. TKV_TEST_STOPS
says how many trials there are; without it a few of them cover each updater and each way.

Combinations without a defined result are left out:

- In dist_async a restarted worker repeats the steps behind its last note, and several workers push in any order.
- Snapshots of a store that only sums gradients are refused.
- A model that repeats a step may compute gradients with parameters of two steps. So its gradients do not depend on them if a
  worker dies within a step.
- A worker may die while parts of a key have its push. With compression the repeated push has another residual, so keys have one
  part there.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys

import pytest
from jobs import children_of_this_test, finish, restorer_of, wait_until
from stopped import PROGRAM

STORES = {  # updaters of all stores of a run, where it has several
    "two stores": ("adam", "momentum"),
    "four stores": ("adam", "table", "function", "momentum"),
    "notes": ("momentum", "notes"),
    "helpers": ("KVOptimizer", "table", "Trainer"),
}
PUSHES = {"notes": 1, "KVOptimizer": 4, "Trainer": 4, "JAX": 4}  # keys that a step pushes; 2 of other updaters
BY_STORE = ("KVOptimizer", "Trainer", "JAX")  # helpers for frameworks, with parameters and states on the servers
BY_WORKERS = ("KVOptimizer by workers", "Trainer by workers")
FRAMEWORKS = (*BY_STORE, *BY_WORKERS, "helpers")
UPDATERS = (
    "none",
    "momentum",
    "adam",
    "own schedule",
    "own",
    "function",
    "table",
    "compression",
    *STORES,
    *BY_STORE,
    *BY_WORKERS,
)
PACE = 0.05  # seconds of a step, so that snapshots are written while a job runs
WAYS = (
    "save and load",
    "state dicts",
    "restore",
    "beside",
    "from one snapshot",
    "worker dies",
    "server dies",
    "restorer dies",
    "launcher dies",
)


class Trial:
    """Runs of one program: straight on, or stopped and gone on with."""

    def __init__(self, processes, folder, choose, kind, updater):
        self.processes, self.folder, self.choose = processes, folder, choose
        (folder / "save").mkdir()
        self.kind, self.updater = kind, updater
        self.updaters = STORES.get(updater, (updater,))
        self.workers = 1 if kind != "dist_sync" else choose.randint(1, 2 if updater in FRAMEWORKS else 3)
        self.steps = choose.randint(8, 14)
        self.keys = sum(PUSHES.get(each, 2) for each in self.updaters)
        # Calls of the program in a step, behind each of which it may die: a helper's call pushes all of its keys.
        self.moments = sum(1 if each in FRAMEWORKS or each == "notes" else 2 for each in self.updaters)
        self.case = {
            "kind": kind,
            "updaters": self.updaters,
            "size": choose.choice((3000, 300_000)),  # one part, and two
            "overlap": choose.random() < 0.5,
            "linear": False,
            "save": str(folder / "save"),
        }

    def start(self, *options, servers=None, variables=None, **case):
        case = {**self.case, "steps": self.steps, **case}
        variables = {"CASE": json.dumps(case), "OMP_NUM_THREADS": 1, **(variables or {})}
        if self.kind == "local":
            return self.processes.start([sys.executable, "-u", self.processes.script(PROGRAM)], **variables)
        servers = servers or self.choose.randint(1, 2)
        return self.processes.launch(PROGRAM, *options, workers=self.workers, servers=servers, **variables)

    def run(self, *options, **case):
        """Return (the end state of each rank, all output)."""
        return self.ends(self.start(*options, **case))

    def ends(self, job):
        """Return the end state of each rank of a started job, and all output."""
        status, said = finish(job, timeout=120)
        assert status == 0, said
        return sorted(re.findall(r"rank \d+ ends with \w+", said)), said

    def kill(self, victim, at, **more):
        """Return the case of a run in which a worker kills the victim in a step."""
        mark, rank = str(self.folder / "killed"), self.choose.randrange(self.workers)
        done = self.choose.randint(1, self.moments)
        return {"kill": {"victim": victim, "rank": rank, "step": at, "done": done, "mark": mark, **more}}

    def death_of_a_server(self, first):
        """Return the options of a run in which a server dies, in this step or later: a worker or a failpoint kills it."""
        servers = self.choose.randint(1, 2)
        if servers == 1 and self.choose.random() < 0.5:
            push = self.choose.randint(first * self.keys * self.workers, self.steps * self.keys * self.workers)
            return {"servers": 1, "variables": {"TKV_FAILPOINTS": f"server 0:received:PUSH:{push}:kill"}}
        at, rank = self.choose.randint(first, self.steps), self.choose.randrange(servers)
        return {"servers": servers, **self.kill("server", at, server=rank)}


def gone_on(trial, way):
    """Stop a run at a random moment, continue it, and return its end, and the output of all its parts."""
    choose, steps = trial.choose, trial.steps
    at = choose.randint(1, steps - 1)
    run, folder = str(trial.folder / "run"), trial.folder
    every = ("--snapshot-every", str(choose.randint(1, 3)))
    saves = ("--restore", run, *every)
    if way in ("save and load", "state dicts"):
        trial.case["by_states"] = way == "state dicts"
        trial.run(steps=at, save_at=at)
        return trial.run(begin=at)
    if way == "worker dies":
        options = ("--restart", "1", *choose.choice(((), saves)))
        end, said = trial.run(*options, **death_of_a_worker(trial, at))
        assert "it is started again (1 of 1)" in said, said
        return end, said
    if way == "launcher dies":
        job = trial.start(*saves, pace=PACE, **choose.choice(({}, trial.kill("launcher", at))))
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(choose.uniform(0, 3))
        job.kill()
        first = finish(job)[1]
        if choose.random() < 0.5:  # else the same command is there before its processes have ended
            wait_until(lambda: children_of_this_test().keys() <= {os.getpid()})
        end, said = trial.run(*saves)
        return end, first + said
    if way == "restore":
        job = trial.start(*saves, pace=PACE, **trial.death_of_a_server(1))
        first = finish(job, timeout=120)[1]
        end, said = trial.run(*saves)
        return end, first + said
    dies = {"pace": PACE, **trial.death_of_a_server(max(at, steps // 2))}
    if way == "server dies":
        end, said = trial.run(*saves, "--restart", "1", **dies)
        assert "the job is started again (1 of 1)" in said, said
        return end, said
    old = str(folder / "old")
    trial.run("--restore", old, *every, steps=at)
    before = sorted(os.listdir(old))
    path = old if way != "from one snapshot" else os.path.join(old, choose.choice(before))
    if way == "restorer dies":
        job = trial.start("--restore", path, "--restart", "2")
        os.kill(wait_until(lambda: restorer_of(job)), signal.SIGKILL)
        return trial.ends(job)
    places = ("--restore", path, "--snapshots", run)
    end, said = trial.run(*places, *every, "--restart", "1", **dies)
    assert sorted(os.listdir(old)) == before
    return end, said


def death_of_a_worker(trial, at):
    """Return the case of a run in which a worker dies: behind a call of a step, or at a message of one."""
    if not set(trial.updaters) & set(FRAMEWORKS) or trial.choose.random() < 0.5:
        return trial.kill("worker", at)
    trial.case["linear"] = True
    push = trial.choose.randint(1, trial.steps * trial.keys)
    return {"variables": {"TKV_FAILPOINTS": f"worker {trial.choose.randrange(trial.workers)}:sent:PUSH:{push}:kill"}}


def drops_of(said):
    """Return the rounds behind which the residuals of each key of each rank were lost: the beginnings of their processes."""
    drops = {}
    for rank, rounds in re.findall(r"rank (\d+) begins behind (.*)", said):
        for key, round_ in json.loads(rounds)[-1].items():
            drops.setdefault(rank, {}).setdefault(key, []).append(round_)
    return drops


def ways_of(kind, updater):
    """Return the ways in which a store of this type can be stopped and continued with the same bits."""
    if updater in BY_WORKERS:
        return ("state dicts",)
    by_states = ("state dicts",) if updater in ("KVOptimizer", "Trainer") and kind != "dist_async" else ()
    if kind == "local" or (kind == "dist_async" and updater != "notes"):
        return ("save and load", *by_states)  # rounds of other types do not say where a job is
    without = {"state dicts"} - set(by_states)
    if kind == "dist_async" or updater == "own schedule":
        without.add("worker dies")
    return tuple(way for way in WAYS if way not in without)


def kinds_of(updater):
    """Return the types of stores that can go on with these updaters."""
    if updater == "notes":
        return ("dist_async",)
    if updater in ("table", "four stores", "helpers", *BY_WORKERS):
        return ("local", "dist_sync")
    if updater == "compression":
        return ("dist_sync", "dist_async")  # a local store sends nothing
    return ("local", "dist_sync", "dist_async")


def check(processes, folder, seed, kind, updater, way):
    trial = Trial(processes, folder, random.Random(seed), kind, updater)
    if updater == "compression" and way == "worker dies":
        trial.case["size"] = 3000  # of a key of several parts, each part may have got the push with another residual
    end, said = gone_on(trial, way)
    # No save has residuals: the run that is not stopped compresses by arithmetic of its own, which loses them likewise.
    straight = {"drops": drops_of(said)} if updater == "compression" else {}
    expected, straight_said = trial.run(**straight)
    what = (seed, kind, updater, way, trial.case)
    assert len(end) == trial.workers and end == expected, f"{what}\nstopped:\n{said}\nstraight:\n{straight_said}"


TRIALS = int(os.environ.get("TKV_TEST_STOPS", "0"))
ALL = [(kind, updater, way) for updater in UPDATERS for kind in kinds_of(updater) for way in ways_of(kind, updater)]
SAMPLE = (
    ("local", "own", "save and load"),
    ("local", "function", "save and load"),
    ("local", "own schedule", "save and load"),
    ("dist_async", "momentum", "save and load"),
    ("dist_async", "notes", "server dies"),
    ("dist_sync", "compression", "worker dies"),
    ("dist_sync", "compression", "from one snapshot"),
    ("dist_sync", "two stores", "server dies"),
    ("dist_sync", "four stores", "launcher dies"),
    ("dist_sync", "four stores", "worker dies"),
    ("dist_sync", "adam", "beside"),
    ("dist_sync", "table", "restore"),
    ("dist_sync", "function", "from one snapshot"),
    ("dist_sync", "none", "worker dies"),
    ("dist_sync", "own", "restorer dies"),
    ("dist_sync", "KVOptimizer", "server dies"),
    ("dist_sync", "KVOptimizer", "worker dies"),
    ("dist_sync", "Trainer", "state dicts"),
    ("dist_sync", "Trainer by workers", "state dicts"),
    ("local", "KVOptimizer by workers", "state dicts"),
    ("dist_sync", "JAX", "launcher dies"),
    ("dist_sync", "helpers", "restore"),
)


def marks_of(updater):
    return [pytest.mark.framework] if updater in FRAMEWORKS else []


@pytest.mark.timeout(400)  # up to three jobs, whose workers may import PyTorch
@pytest.mark.skipif(TRIALS > 0, reason="all of them are tried")
@pytest.mark.parametrize(
    ("kind", "updater", "way"),
    [pytest.param(*sample, marks=marks_of(sample[1])) for sample in SAMPLE],
    ids=lambda word: word.replace(" ", "-"),
)
def test_a_stopped_run_ends_as_one_that_was_not(processes, tmp_path, kind, updater, way):
    check(processes, tmp_path, f"{kind} {updater} {way}", kind, updater, way)


@pytest.mark.timeout(400)  # up to three jobs, whose workers may import PyTorch
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=marks_of(ALL[seed % len(ALL)][1])) for seed in range(TRIALS)]
)
def test_runs_stopped_anywhere_end_as_those_that_were_not(processes, tmp_path, seed):
    check(processes, tmp_path, seed, *ALL[seed % len(ALL)])
