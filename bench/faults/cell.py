"""Measures one cell of the table: starts a job, injects the fault, and judges each survivor's report."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from job import CannotMeasure, Hosts, Job, run
from rounds import KEY
from systems import ADDRESS, PATIENCE

LONGEST = 60  # seconds after which a survivor hangs
LEFT_AFTER = 5  # seconds after the last survivor's end
SILENCE = 5  # TensorKV's default
AT_ONCE = 0
COMES = 15  # seconds after which a process that was started late has affected the others
WORKERS = ("worker 0", "worker 1")
TITLES = {
    "worker 1": "worker 1",
    "server 0": "the server",
    "head": "the head (MXNet: the scheduler; Gloo: the store at which ranks meet; Mooncake: the metadata server)",
}
GOES_ON = "goes on"


class Fault:
    """A fault in a job; `what` describes it in the table.

    survivors: {name: peers of which its error should name one, or None if it has none}.
    deadlines: TensorKV's, in seconds, {name: deadline} or one for all; GOES_ON if no error is wanted.
    lasts: the fault's duration in seconds.
    """

    hosts, nbytes, lasts = False, 1 << 20, 0
    asks_head = False
    stopped = None  # the process that is stopped for a while
    released = ()

    def start(self, system, job):
        system.start(job)
        job.wait_for_round(5, WORKERS)

    def release(self, job):
        """Called when all other survivors have an outcome."""


class Killed(Fault):
    """SIGKILL."""

    def __init__(self, victim):
        self.victim, self.what = victim, f"SIGKILL for {TITLES[victim]}."
        self.survivors = {name: [victim] for name in WORKERS if name != victim}
        self.deadlines = GOES_ON if victim == "head" else AT_ONCE
        self.asks_head = victim == "head"

    def inject(self, system, job):
        job.processes[self.victim].signal(signal.SIGKILL)


class Stopped(Fault):
    """SIGSTOP; a stopped worker counts as a survivor, too."""

    lasts = 20

    def __init__(self, victim):
        self.victim = self.stopped = victim
        self.what = f"SIGSTOP for {TITLES[victim]}, and SIGCONT after {self.lasts} s."
        self.survivors = {name: [victim] for name in WORKERS}
        self.deadlines = {"head": GOES_ON, "server 0": SILENCE}.get(victim) or {"worker 0": SILENCE, "worker 1": 20}

    def inject(self, system, job):
        process = job.processes[self.victim]
        process.signal(signal.SIGSTOP)
        timer = threading.Timer(self.lasts, process.signal, [signal.SIGCONT])
        timer.daemon = True
        timer.start()


class Cut(Fault):
    what = "Worker 1 is on another host, and the cable between the two hosts is pulled out."
    hosts = True
    survivors = {"worker 0": ["worker 1"], "worker 1": ["server 0", "head", "worker 0"]}
    deadlines = {"worker 0": SILENCE, "worker 1": SILENCE + PATIENCE}

    def inject(self, system, job):
        job.hosts.cut()


class HalfOpen(Fault):
    what = "The other host forgets worker 1 while the cable is out: worker 0 has a connection that nobody has at the other side."
    hosts, nbytes = True, 4096  # small enough for the other host's kernel buffers: nothing waits to be sent again
    survivors = {"worker 0": ["worker 1"]}
    deadlines = SILENCE

    def inject(self, system, job):
        job.hold("worker 1")
        time.sleep(1)  # worker 0 waits for it
        job.hosts.cut()
        job.processes["worker 1"].signal(signal.SIGKILL)
        begin = time.monotonic()
        job.wait_until(lambda: job.processes["worker 1"].ended_at, 10, "the end of worker 1")
        job.hosts.mend()
        return begin


class SlowReader(Fault):
    what = "Worker 1 runs for 50 ms of each second, for 20 s: so rarely does it read."
    lasts, stopped = 20, "worker 1"
    survivors = {name: ["worker 1"] for name in WORKERS}
    deadlines = GOES_ON

    def inject(self, system, job):
        process = job.processes["worker 1"]

        def run_seldom():
            end = time.monotonic() + self.lasts
            while time.monotonic() < end:
                process.signal(signal.SIGSTOP)
                time.sleep(0.95)
                process.signal(signal.SIGCONT)
                time.sleep(0.05)

        threading.Thread(target=run_seldom, daemon=True).start()


class TwiceOneRank(Fault):
    what = "A second process claims rank 1 while the first one runs."
    survivors = {"worker 0": ["worker 1"], "worker 1": ["worker 1", "life"], "worker 1 again": ["worker 1"]}
    lasts = COMES
    deadlines = {"worker 0": GOES_ON, "worker 1": SILENCE, "worker 1 again": GOES_ON}

    def inject(self, system, job):
        system.start_again(job)
        return job.begins("worker 1 again")


class FullDisk(Fault):
    what = "Worker 0 saves, another process fills the disk, worker 0 saves again."
    survivors = {"worker 0": None, "worker 1": None}
    deadlines = GOES_ON

    def start(self, system, job):
        if not os.environ.get("FAULTS_SANDBOX"):
            raise CannotMeasure("no disk may be mounted here")
        self.disk = job.folder / "disk"
        self.disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=4m", "disk", str(self.disk))
        super().start(system, job)
        (job.folder / "save-1").touch()
        worker = job.processes["worker 0"]
        job.wait_until(lambda: worker.find("saved") or worker.find("save failed"), 30, "the first save")

    def inject(self, system, job):
        with contextlib.suppress(OSError), open(self.disk / "filler", "wb", 0) as filler:
            while True:
                filler.write(bytes(65536))
        begin = time.monotonic()
        (job.folder / "save-2").touch()
        return begin


class Stranger(Fault):
    survivors = {"stranger": ["worker 1", "head", "server 0"], "worker 0": None, "worker 1": None}
    deadlines = {"stranger": AT_ONCE, "worker 0": GOES_ON, "worker 1": GOES_ON}
    lasts = COMES

    def __init__(self, who, how):
        self.what, self.how = f"A process {who} wants to be worker 1 while the job runs.", how

    def inject(self, system, job):
        getattr(system, self.how)(job)
        return job.begins("stranger")


class CtrlC(Fault):
    what = (
        "Worker 1 does not come, SIGINT for worker 0, which waits for it; then worker 1 comes and finds worker 0 gone."
    )
    survivors = {"worker 0": None, "worker 1": ["worker 0"]}
    deadlines = {"worker 0": AT_ONCE, "worker 1": AT_ONCE}
    released = ("worker 1",)

    def inject(self, system, job):
        job.hold("worker 1")
        time.sleep(1)  # worker 0 waits for it
        begin = time.monotonic()
        job.processes["worker 0"].signal(signal.SIGINT)
        return begin

    def release(self, job):
        job.release("worker 1")


FAULTS = {
    "worker killed": Killed("worker 1"),
    "server killed": Killed("server 0"),
    "head killed": Killed("head"),
    "worker stopped": Stopped("worker 1"),
    "server stopped": Stopped("server 0"),
    "head stopped": Stopped("head"),
    "cut network": Cut(),
    "half-open": HalfOpen(),
    "slow reader": SlowReader(),
    "one rank twice": TwiceOneRank(),
    "full disk": FullDisk(),
    "wrong token": Stranger("with another token", "start_stranger"),
    "another version": Stranger("of another version", "start_other_version"),
    "Ctrl-C": CtrlC(),
}


class Watch:
    """Watches a survivor until its outcome is known."""

    def __init__(self, process, peers, begin, over):
        self.process, self.peers, self.begin, self.over = process, peers, begin, over

    def outcome(self):
        """Return the outcome, or None if it is not known yet."""
        process, now = self.process, time.monotonic()
        if error := process.find("error"):
            fields = {key: error[key] for key in ("type", "typed", "text", "doing")}
            return {"kind": "error", "seconds": error["at"] - self.begin, **fields}
        if failed := process.find("save failed"):
            fields = {key: failed[key] for key in ("type", "typed", "text")}
            if self.goes_on(failed["at"]):
                return {
                    "kind": "error",
                    "seconds": failed["at"] - self.begin,
                    "doing": "save",
                    "goes on": True,
                    **fields,
                }
        if process.ended_at:
            status = process.process.returncode
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            return {
                "kind": "died",
                "seconds": process.ended_at - self.begin,
                "type": how,
                "typed": False,
                "text": process.last_words(),
            }
        if not process.find("save failed") and self.goes_on(max(self.begin, self.over)):
            return {"kind": "goes on", "seconds": self.longest_pause()}
        if now > self.begin + LONGEST:
            return {"kind": "hangs", "seconds": now - self.begin}
        return None

    def goes_on(self, since, rounds=5, seconds=3):
        later = [one for one in self.process.rounds() if one["at"] > since]
        return len(later) >= rounds and time.monotonic() > since + seconds

    def longest_pause(self):
        """Return the longest time between two of its rounds, from the one before the fault on."""
        times = [one["at"] for one in self.process.rounds()]
        first = max([at for at in times if at <= self.begin], default=self.begin)
        times = [first, *(at for at in times if at > first)]
        return max((b - a for a, b in zip(times, times[1:])), default=0.0)


def judge(outcome, watch, system, key):
    """Add to the outcome whether the error names the peer and the key."""
    text = outcome.get("text", "")
    words = [
        word for peer in watch.peers or [] for word in (system.head_words if peer == "head" else system.words_for(peer))
    ]
    named = "yes" if any(word in text for word in words) else "address" if ADDRESS.search(text) else "no"
    outcome["names peer"] = "-" if watch.peers is None else named
    is_about_a_key = system.has_keys and watch.peers is not None and outcome.get("doing", "round").startswith("round")
    outcome["names key"] = "-" if not is_about_a_key else "yes" if key in text else "no"


def measure(fault_name, system):
    """Return the result of the cell, an object for JSON."""
    fault = FAULTS[fault_name]
    if fault_name in system.not_here:
        return {"kind": "n/a", "why": system.not_here[fault_name]}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    job = None
    try:
        job = Job(folder, Hosts() if fault.hosts else None, fault.nbytes)
        return watch_job(fault, system, job)
    except CannotMeasure as why:
        return {"kind": "not measured", "why": str(why)[:600]}
    finally:
        if job:
            job.kill()
        subprocess.run(["umount", "-q", folder / "disk"], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def ask_head(job, system):
    """Let worker 0 make a call that needs the head; return its outcome."""
    (job.folder / "ask-worker 0").touch()
    worker = job.processes["worker 0"]
    job.wait_until(lambda: worker.find("asked") or worker.ended_at, LONGEST, "an answer to a call that needs the head")
    asked = {"kind": "error", "doing": "ask", **(worker.find("asked") or {})}
    judge(asked, Watch(worker, ["head"], 0, 0), system, KEY)
    return asked


class WaitForCores:
    """Measures how long main threads were ready but had no core since the fault: the delay that a busy machine adds."""

    def __init__(self, processes):
        self.processes, self.first, self.grown = processes, {}, {}

    def sample(self):
        for process in self.processes:
            with contextlib.suppress(OSError):
                delay = int(pathlib.Path(f"/proc/{process.process.pid}/schedstat").read_text().split()[1])
                self.grown[process.name] = delay - self.first.setdefault(process.name, delay)

    def longest(self):
        return max(self.grown.values(), default=0) / 1e9


def watch_job(fault, system, job):
    fault.start(system, job)
    begin = time.monotonic()
    begin = fault.inject(system, job) or begin
    watches = {}
    for name, peers in fault.survivors.items():
        watches[name] = Watch(job.processes[name], peers, begin, begin + fault.lasts)
    outcomes = {}
    held = list(fault.released)
    wait = WaitForCores([process for name, process in job.processes.items() if name != fault.stopped])
    while len(outcomes) < len(watches):
        wait.sample()
        for name, watch in watches.items():
            if name not in outcomes and name not in held and (outcome := watch.outcome()):
                outcomes[name] = outcome
                judge(outcome, watch, system, KEY)
        if held and len(outcomes) + len(held) == len(watches):
            for name in held:
                watches[name].begin = watches[name].over = time.monotonic()
            held = []
            fault.release(job)
        time.sleep(0.02)
    if system.can_ask_head and fault.asks_head:
        outcomes["worker 0"]["asked"] = ask_head(job, system)
    if any(outcome["kind"] == "goes on" or "goes on" in outcome for outcome in outcomes.values()):
        end_of(job, outcomes)
    wrong = sum(one["wrong"] for process in job.processes.values() for one in process.rounds())
    time.sleep(max(0, begin + fault.lasts - time.monotonic()))  # a stopped process cannot end
    for name in system.services:
        job.processes[name].signal(signal.SIGKILL)
    left = left_by(job, [name for name, outcome in outcomes.items() if outcome["kind"] == "hangs"])
    read_back = job.processes["worker 0"].find("read back")
    job.kill()
    return {
        "kind": "measured",
        "survivors": outcomes,
        "wrong": wrong,
        "lost": bool(read_back and not read_back["same"]),
        "left": left,
        "files": job.files_left(),
        "waited for cores": wait.longest(),
    }


def left_by(job, hanging):
    """Return the processes that outlive the survivors by some seconds, and how long those ran that ended later."""
    begin = time.monotonic()
    ending = [process for name, process in job.processes.items() if name.startswith("worker") and name not in hanging]
    while time.monotonic() < begin + LONGEST and not all(process.ended_at for process in ending):
        time.sleep(0.05)
    begin = time.monotonic()
    time.sleep(LEFT_AFTER)
    left = now = job.left()
    ended = {}
    while set(now) - set(hanging) and time.monotonic() < begin + LONGEST:
        time.sleep(0.2)
        now = job.left()
        ended |= {name: time.monotonic() - begin for name in left if name not in now and name not in ended}
    return [f"{name} for {ended[name]:.0f} s" if name in ended else name for name in left]


def end_of(job, outcomes):
    """Let the survivors that go on leave; return how each ended."""
    job.end_after(40)
    names = [name for name, outcome in outcomes.items() if outcome["kind"] == "goes on" or "goes on" in outcome]
    processes = [job.processes[name] for name in names]
    end = time.monotonic() + PATIENCE + 15
    while time.monotonic() < end and not all(process.ended_at for process in processes):
        time.sleep(0.05)
    for name, process in zip(names, processes, strict=True):
        error = process.find("error")
        if error:
            end = f"{error['type']}: {error['text'][:300]}"
        elif not process.ended_at:
            end = "hangs"
        else:
            end = "" if process.find("ended") else "died"
        outcomes[name]["end"] = end
