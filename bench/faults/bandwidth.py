"""Measures a round trip of 64 MiB on one machine, by each system in turn."""

import pathlib
import shutil
import signal
import statistics
import tempfile
import time

from job import CannotMeasure, Job
from systems import SYSTEMS, TensorKV

MIB = 1 << 20
NBYTES = 64 * MIB
WHAT = {
    "tensorkv": "push and pull, one worker, one server",
    "mxnet": "push and pull, one worker, one server",
    "gloo": "all-reduce of two ranks",
    "nixl": "write, then read, two agents",
    "mooncake": "write, then read, two engines",
    "torchstore": "put and get, one storage volume",
}


class Contestant:
    """A job whose workers move the bytes on request. Idle jobs are stopped, but not TensorKV's: silence would count."""

    def __init__(self, system, title, workers):
        self.system, self.title, self.workers = system, title, workers
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
        self.job = Job(self.folder, nbytes=NBYTES, more={"FAULTS_BANDWIDTH": "1"})
        self.stoppable = not isinstance(system, TensorKV)
        self.seconds = []

    def start(self):
        self.system.start(self.job, self.workers)
        names = [f"worker {rank}" for rank in range(self.workers)]
        self.job.wait_for_round(1, names)
        self.told = names if self.system.name in ("gloo", "tensorkv", "mxnet") else names[:1]
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        if self.stoppable:
            for process in self.job.processes.values():
                process.signal(number)

    def once(self):
        """Return the seconds of the slowest worker."""
        self.signal(signal.SIGCONT)
        workers = [self.job.processes[name] for name in self.told]
        counts = [len(worker.events) for worker in workers]
        for worker in workers:
            worker.process.stdin.write("\n")
            worker.process.stdin.flush()
        for worker, count in zip(workers, counts, strict=True):
            self.job.wait_until(lambda: len(worker.events) > count, 120, "64 MiB")
        self.signal(signal.SIGSTOP)
        last = [worker.events[-1] for worker in workers]
        if any(one["event"] != "measured" for one in last):
            raise CannotMeasure(f"{self.title}: {last}")
        return max(one["seconds"] for one in last)

    def close(self):
        self.job.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def measure(arguments, repetitions=9):
    """Return a row for each system: the seconds of each repetition, or the reason why there are none."""
    rows, running = [], []
    contestants = [
        (TensorKV(arguments, "auto"), "TensorKV, shared memory"),
        (TensorKV(arguments, "tcp"), "TensorKV, TCP"),
    ]
    contestants += [(system(arguments), system.title) for name, system in SYSTEMS.items() if name != "tensorkv"]
    try:
        for system, title in contestants:
            row = {"title": title, "what": WHAT[system.name], "seconds": []}
            rows.append(row)
            try:
                system.version()
                one = Contestant(system, title, system.bandwidth_workers)
                running.append((one, row))
                one.start()
            except CannotMeasure as why:
                row["why"] = str(why)[:300]
        for repetition in range(repetitions + 1):  # the first warms up
            for one, row in running:
                if "why" in row:
                    continue
                try:
                    seconds = one.once()
                except CannotMeasure as why:
                    row["why"] = str(why)[:300]
                    continue
                if repetition:
                    row["seconds"].append(seconds)
    finally:
        for one, _ in running:
            one.close()
    return {"date": time.strftime("%Y-%m-%d"), "rows": rows}


def table(found):
    lines = ["| system | what | ms, median (lowest, highest) | GB/s |", "|---|---|---|---|"]
    for row in found["rows"]:
        if "why" in row:
            lines.append(f"| {row['title']} | {row['what']} | cannot be measured: {row['why']} | |")
            continue
        median = statistics.median(row["seconds"])
        span = f"{1e3 * median:.0f} ({1e3 * min(row['seconds']):.0f}, {1e3 * max(row['seconds']):.0f})"
        lines.append(f"| {row['title']} | {row['what']} | {span} | {2 * NBYTES / median / 1e9:.2f} |")
    return "\n".join(lines)
