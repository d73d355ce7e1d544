"""Compares the distributed store with the limits of sockets and shared memory, and with MXNet.

All run interleaved on one machine. Each repetition measures the raw exchange, TensorKV and MXNet 1.9.1 (`dist_sync`,
ps-lite) one after another, with the same Python script in every worker. MXNet's processes are stopped (SIGSTOP) while
another system is measured. TensorKV's processes only idle, because a stopped head or server counts as silent; the row
of the idle processes shows their CPU. The figure is the median.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib.util
import json
import os
import pathlib
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import machine

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
RAW_SHM_COPIES = 3


def human(n):
    return f"{n // MIB} MiB" if n >= MIB else f"{n // 1024} KiB" if n >= 1024 else f"{n} B"


class Raw:
    """The raw exchanges without a store."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, kind, nbytes, repeats):
        self.process.stdin.write(f"{kind} {nbytes} {repeats}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Job:
    """Servers and workers that run dist_peer.py."""

    def __init__(self, workers):
        self.count = workers
        self.processes, self.workers = [], []

    def start(self, command, variables, worker=False):
        process = subprocess.Popen(
            command,
            env={**os.environ, **{k: str(v) for k, v in variables.items()}},
            stdin=subprocess.PIPE if worker else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_SHOW") else subprocess.DEVNULL,
            text=True,
        )
        self.processes.append(process)
        if worker:
            self.workers.append(process)
        return process

    def signal(self, number):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def ask(self, request):
        """Ask all workers at once; return the reply of the slowest for each field."""
        for worker in self.workers:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
        replies = []
        for worker in self.workers:
            line = worker.stdout.readline()
            if not line:
                raise SystemExit(f"a worker of {self.name} ended while it ran {request}")
            replies.append(json.loads(line))
        return {key: (all if key == "correct" else max)(reply[key] for reply in replies) for key in replies[0]}

    def set_up(self, workload, nbytes):
        if not self.ask({"setup": workload, "bytes": nbytes})["correct"]:
            raise SystemExit(f"{workload} {human(nbytes)}: {self.name} gave a wrong result")

    def close(self):
        self.signal(signal.SIGCONT)
        for worker in self.workers:
            worker.stdin.close()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


class TensorKV(Job):
    """A job of TensorKV; `transport` is the option of that name, `options` are other environment variables."""

    def __init__(self, workers, servers, transport, tkv=None, worker_command=None, **options):
        super().__init__(workers)
        self.name = f"tensorkv, {transport}"
        self.folder = tempfile.TemporaryDirectory()
        token = pathlib.Path(self.folder.name, "token")
        token.touch(0o600)
        token.write_text(os.urandom(32).hex())
        tkv = tkv or pathlib.Path(sys.executable).parent / "tkv"
        variables = {"TKV_TRANSPORT": transport, "TKV_TOKEN_FILE": token, "TKV_JOB": "bench"}
        variables |= {"TKV_WORKERS": workers, "TKV_SERVERS": servers, **options}
        where = ["--head", "tcp:127.0.0.1:0"] if transport == "tcp" else []
        self.head = self.start([tkv, "head", *where], variables)
        variables["TKV_HEAD"] = self.head.stdout.readline().split()[-1]
        self.servers = [self.start([tkv, "server"], {**variables, "TKV_RANK": rank}) for rank in range(servers)]
        command = worker_command or [sys.executable, HERE / "dist_peer.py", "tensorkv"]
        for rank in range(workers):
            self.start(command, {**variables, "TKV_ROLE": "worker", "TKV_RANK": rank}, worker=True)

    @functools.cached_property
    def addresses(self):
        """The servers' addresses, which they print when they listen."""
        return [server.stdout.readline().split()[-1] for server in self.servers]

    @contextlib.contextmanager
    def awake(self):
        yield self

    def close(self):
        super().close()
        self.folder.cleanup()


class Alone(Job):
    """A store of one process, run by the same script."""

    def __init__(self):
        super().__init__(1)
        self.name = "tensorkv, one process"
        self.start([sys.executable, HERE / "dist_peer.py", "tensorkv", "local"], {}, worker=True)

    @contextlib.contextmanager
    def awake(self):
        yield self


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Stopped(Job):
    """A job that is stopped while others are measured."""

    def sleep(self):
        self.signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def awake(self):
        self.signal(signal.SIGCONT)
        try:
            yield self
        finally:
            self.sleep()


class MXNet(Stopped):
    """A scheduler, servers and workers by the variables of its launcher."""

    def __init__(self, python, workers, servers):
        super().__init__(workers)
        self.name = "mxnet"
        variables = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": free_port()}
        variables |= {"DMLC_NUM_WORKER": workers, "DMLC_NUM_SERVER": servers, "DMLC_NODE_HOST": "127.0.0.1"}
        for role in ["scheduler"] + ["server"] * servers:
            self.start([python, "-c", "import mxnet"], {**variables, "DMLC_ROLE": role})
        for _ in range(workers):
            self.start([python, HERE / "dist_peer.py", "mxnet"], {**variables, "DMLC_ROLE": "worker"}, worker=True)


class Gloo(Stopped):
    """The all-reduce of `torch.distributed`: the sum alone, without servers."""

    def __init__(self, workers):
        super().__init__(workers)
        self.name = "gloo"
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": workers}
        for rank in range(workers):
            self.start([sys.executable, HERE / "dist_peer.py", "gloo"], {**variables, "RANK": rank}, worker=True)

    @staticmethod
    def is_installed():
        return importlib.util.find_spec("torch") is not None


def repeats_for(nbytes):
    return max(2, min(200, 128 * MIB // max(1, nbytes)))


def step_seconds(job, repeats):
    with job.awake():
        return job.ask({"step": repeats})["seconds"]


def set_up(jobs, workload, nbytes):
    for job in jobs:
        with job.awake():
            job.set_up(workload, nbytes)


def large_rows(raw, ours, mxnet, transport, sizes, repetitions):
    """Push + pull of one key: against the raw exchange of the same bytes, and MXNet."""
    kind = "tcp" if transport == "tcp" else "shm"
    kinds = ("tcp", "tcpspin") if kind == "tcp" else ("shm",)  # the better of both
    bars = {"tcp": (0.80, 3), "shm": (0.65, 8)}[kind]
    for nbytes in sizes:
        set_up((ours, mxnet), "push+pull", nbytes)
        repeats = repeats_for(nbytes)
        columns = {"raw": [], "tensorkv": [], "mxnet": []}
        for repetition in range(repetitions + 1):  # the first warms up
            times = {
                "raw": min(raw.seconds(k, nbytes, repeats) for k in kinds),
                "tensorkv": step_seconds(ours, repeats),
                "mxnet": step_seconds(mxnet, max(1, repeats // 4)),
            }
            for name, seconds in times.items():
                if repetition:
                    columns[name].append(seconds)
        median = {name: statistics.median(values) for name, values in columns.items()}
        of_limit, times_mxnet = median["raw"] / median["tensorkv"], median["mxnet"] / median["tensorkv"]
        missed = []
        if nbytes >= 16 * MIB and of_limit < bars[0]:
            missed.append(f"limit {bars[0]}")
        if nbytes == 64 * MIB and times_mxnet < bars[1]:
            missed.append(f"MXNet {bars[1]}")
        judged = nbytes >= 16 * MIB
        yield {
            "row": f"push + pull, {'TCP' if kind == 'tcp' else 'one host'}",
            "size": human(nbytes),
            "ms": {name: 1e3 * seconds for name, seconds in median.items()},
            "gb_per_s": 2 * nbytes / median["tensorkv"] / 1e9,
            "of_limit": of_limit,
            "times_mxnet": times_mxnet,
            "verdict": ("missed: " + ", ".join(missed) if missed else "met") if judged else "",
        }


def compared(row, ours, peer, peer_name, bar, at_most=False):
    """Return a row of two figures in seconds; the ratio is how many times faster (`at_most`: slower) ours is."""
    ratio = ours / peer if at_most else peer / ours
    met = bar is None or (ratio <= bar if at_most else ratio >= bar)
    return {
        "row": row,
        "us": 1e6 * ours,
        "peer": peer_name,
        "peer_us": 1e6 * peer,
        "ratio": ratio,
        "bar": "" if bar is None else f"{'≤' if at_most else '≥'} {bar}",
        "verdict": "" if bar is None else "met" if met else "missed",
    }


def throughput_rows(row, workload, nbytes, ours, peers, repetitions, repeats):
    """Yield rows that compare `ours` with other jobs; `peers` are (job, name in the table, bar or None)."""
    jobs = [job for job, _, _ in peers]
    set_up((ours, *jobs), workload, nbytes)
    columns = [[] for _ in range(1 + len(jobs))]
    for repetition in range(repetitions + 1):
        times = [step_seconds(ours, repeats), *(step_seconds(job, max(1, repeats // 4)) for job in jobs)]
        if repetition:
            for column, seconds in zip(columns, times, strict=True):
                column.append(seconds)
    own, *others = (statistics.median(column) for column in columns)
    for (_, name, bar), seconds in zip(peers, others, strict=True):
        yield compared(row, own, seconds, name, bar)


def guard_rows(plain, sizes, repetitions):
    """Yield rows for push + pull over TCP with a check of values and with TLS, beside TCP without either."""
    guards = (
        ("with check_values", TensorKV(1, 1, "tcp", TKV_CHECK_VALUES="1"), 1.10, True),
        ("with TLS", TensorKV(1, 1, "tcp", TKV_TLS="on"), 0.55, False),
    )
    for nbytes in sizes:
        set_up((plain, *(job for _, job, _, _ in guards)), "push+pull", nbytes)
        columns = [[] for _ in range(1 + len(guards))]
        for repetition in range(repetitions + 1):
            times = [step_seconds(job, repeats_for(nbytes)) for job in (plain, *(job for _, job, _, _ in guards))]
            if repetition:
                for column, seconds in zip(columns, times, strict=True):
                    column.append(seconds)
        bare, *guarded = (statistics.median(column) for column in columns)
        for (name, _, bar, at_most), seconds in zip(guards, guarded, strict=True):
            judged = nbytes >= 64 * MIB
            row = f"{human(nbytes)} push + pull by TCP {name}"
            yield compared(row, seconds, bare, "TCP without", bar if judged else None, at_most)
    for _, job, _, _ in guards:
        job.close()


def latency_rows(raw, row, workload, ours, mxnet, repetitions, repeats):
    """Yield rows of latency, beside a socket whose two sides sleep, and MXNet."""
    set_up((ours, mxnet), workload, 64)
    columns = {"raw": [], "p50": [], "p99": [], "mxnet": []}
    for repetition in range(repetitions + 1):
        sleeping = raw.seconds("unix", 64, repeats)
        own = ours.ask({"each": repeats})
        with mxnet.awake():
            theirs = mxnet.ask({"each": max(10, repeats // 10)})["p50"]
        if repetition:
            for name, value in (("raw", sleeping), ("p50", own["p50"]), ("p99", own["p99"]), ("mxnet", theirs)):
                columns[name].append(value)
    median = {name: statistics.median(values) for name, values in columns.items()}
    row = f"{row} (p99 {1e6 * median['p99']:.0f} µs)"
    yield compared(row, median["p50"], median["raw"], "raw sleeping socket", 1.6, at_most=True)
    yield compared(row, median["p50"], median["mxnet"], "MXNet", 2)


def status_of(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise KeyError(field)


def cpu_seconds(pid):
    """Return the CPU time of all threads of a process, with the precision of nanoseconds."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def idle_row(job, seconds):
    processes = job.processes
    before = [cpu_seconds(p.pid) for p in processes]
    time.sleep(seconds)
    shares = [(cpu_seconds(p.pid) - b) / seconds for p, b in zip(processes, before, strict=True)]
    worst = max(shares)
    return {
        "row": f"idle processes for {seconds} s, the busiest of {len(shares)}",
        "text": f"{100 * worst:.3f} % of a core",
        "bar": "< 0.1 %",
        "verdict": "met" if worst < 0.001 else "missed",
    }


def memory_row(job, keys, calls):
    """Return the growth of a server's and of a worker's memory by small messages."""
    server = job.servers[0].pid
    job.set_up("400 keys", 64)
    job.ask({"step": min(calls, 2000)})
    before = status_of(server, "VmRSS"), status_of(job.workers[0].pid, "VmRSS")
    job.ask({"step": calls})
    after = status_of(server, "VmRSS"), status_of(job.workers[0].pid, "VmRSS")
    growth = [1024 * (b - a) for a, b in zip(before, after, strict=True)]
    messages = calls * keys
    per_message = max(growth) / messages
    return {
        "row": f"{messages:.0e} small messages: growth of server, worker",
        "text": f"{growth[0]} B, {growth[1]} B: {per_message:.4f} B a message",
        "bar": "0 B a message",
        "verdict": "met" if per_message <= 0 else "missed",
    }


def flood_row(job, repetitions, rate, seconds):
    """Return the effect of strangers' connections to a working server, beside the same to a plain listener."""
    flood = [sys.executable, HERE / "flood.py"]
    plain = subprocess.Popen([*flood, "--listen"], stdout=subprocess.PIPE, text=True)
    targets = {"server": job.addresses[0].removeprefix("tcp:"), "plain": f"127.0.0.1:{plain.stdout.readline().strip()}"}
    job.set_up("push+pull", MIB)
    steps = 1 + int(0.5 * seconds / step_seconds(job, 20))
    before = status_of(job.servers[0].pid, "VmRSS")
    columns = {"server": [], "plain": []}
    for repetition in range(repetitions + 1):
        for name, target in targets.items():
            strangers = subprocess.Popen([*flood, target, str(rate), str(seconds)], stdout=subprocess.DEVNULL)
            time.sleep(0.2)
            taken = step_seconds(job, steps)
            strangers.wait()
            if repetition:
                columns[name].append(taken)
    growth = status_of(job.servers[0].pid, "VmRSS") - before
    plain.kill()
    plain.wait()
    plain.stdout.close()
    ours, theirs = (statistics.median(column) for column in columns.values())
    row = f"1 MiB push + pull by TCP, {rate} strangers a second at the server (RSS + {max(0, growth) / 1024:.1f} MiB)"
    return compared(row, ours, theirs, "as many at a plain listener", 1.05, at_most=True)


def state_row():
    job = TensorKV(1, 1, "auto")
    job.set_up("push+pull", 16 * MIB)
    base = status_of(job.servers[0].pid, "VmRSS")
    for _ in range(16):
        job.set_up("push+pull", 64 * MIB)
    rss = status_of(job.servers[0].pid, "VmRSS") / 1024
    job.close()
    state = 16 * 64 + 16
    bar = 1.1 * state + 64
    return {
        "row": f"RSS of a server with {state} MiB of values ({base / 1024:.0f} MiB with 16)",
        "text": f"{rss:.0f} MiB",
        "bar": f"≤ {bar:.0f} MiB",
        "verdict": "met" if rss <= bar else "missed",
    }


def start_row(build, repetitions):
    """Measure the start of head, server and worker as programs, until the first push is accepted."""

    def first_push():
        begin = time.perf_counter()
        job = TensorKV(1, 1, "auto", build / "cli" / "tkv", [build / "bench" / "first_push"])
        line = job.workers[0].stdout.readline()
        seconds = time.perf_counter() - begin
        if "accepted" not in line:
            raise SystemExit("first_push failed")
        job.close()
        return seconds

    def empty():
        begin = time.perf_counter()
        subprocess.run(["/bin/true"], check=True)
        return time.perf_counter() - begin

    first_push(), empty()
    pairs = [(first_push(), empty()) for _ in range(repetitions)]
    ours, true = (statistics.median(column) for column in zip(*pairs, strict=True))
    return compared("start of head, server, worker to the first push", ours, true, "fork + exec of /bin/true", 10, True)


def report(data):
    lines = [
        f"Machine: {data['machine']}, {data['threads']} threads, {data['date']}. Idle check: {data['idle']:.2f} "
        f"(at least 1.9 is needed). Medians of {data['repetitions']}. The raw exchange of one host makes {RAW_SHM_COPIES} "
        "copies, the fewest that this design needs: into shared memory, into the value, out of it.",
        "",
        "| row | size | TensorKV ms | raw ms | MXNet ms | GB/s | of the limit | × MXNet | bar |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in data["large"]:
        lines.append(
            f"| {r['row']} | {r['size']} | {r['ms']['tensorkv']:.2f} | {r['ms']['raw']:.2f} | {r['ms']['mxnet']:.2f} "
            f"| {r['gb_per_s']:.1f} | {r['of_limit']:.2f} | {r['times_mxnet']:.1f} | {r['verdict']} |"
        )
    lines += ["", "| row | TensorKV | against | ratio | bar | |", "|---|---|---|---|---|---|"]
    for r in data["small"]:
        if "text" in r:
            lines.append(f"| {r['row']} | {r['text']} | | | {r['bar']} | {r['verdict']} |")
        else:
            lines.append(
                f"| {r['row']} | {r['us']:.0f} µs | {r['peer']}: {r['peer_us']:.0f} µs | {r['ratio']:.2f} | {r['bar']} "
                f"| {r['verdict']} |"
            )
    return "\n".join(lines)


def picture(data, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    labels = [f"{r['row'].removeprefix('push + pull, ')}, {r['size']}" for r in data["large"]]
    for offset, name in ((-0.27, "raw"), (0, "tensorkv"), (0.27, "mxnet")):
        positions = [i + offset for i in range(len(labels))]
        axes.bar(positions, [r["ms"][name] for r in data["large"]], 0.25, label={"raw": "raw exchange"}.get(name, name))
    axes.set(yscale="log", ylabel="ms, push + pull", title="one worker, one server, one key")
    axes.set_xticks(range(len(labels)), labels, rotation=20, fontsize=8)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", required=True, help="python that has MXNet")
    parser.add_argument("--build", required=True, help="build folder with the raw exchanges")
    parser.add_argument("--smoke", action="store_true", help="small and once: checks results and files, not time")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument(
        "--only", default="", help="only the parts that this text names: guards, large, small, two, process"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    arguments = parser.parse_args()
    sizes, repeats, idle_seconds, calls = [64 * MIB, 16 * MIB, MIB], 1000, 10, 25_000
    if arguments.smoke:
        arguments.repetitions, sizes, repeats, idle_seconds, calls = 1, [MIB], 20, 1, 50
    n = arguments.repetitions
    build = pathlib.Path(arguments.build)
    idle = machine.idle_scaling(ctypes.CDLL(str(build / "bench" / "liblimit.so")))
    large, small = [], []

    def wanted(part):
        return not arguments.only or part in arguments.only

    def add(rows, row):
        rows.append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)

    raw = Raw(build / "bench" / "raw_exchange")
    if wanted("guards"):
        tcp = TensorKV(1, 1, "tcp")
        for row in guard_rows(tcp, sizes, n):
            add(small, row)
        tcp.close()
    if wanted("large") or wanted("small"):
        near, tcp, mxnet = TensorKV(1, 1, "auto"), TensorKV(1, 1, "tcp"), MXNet(arguments.mxnet, 1, 1)
        set_up((near, tcp, mxnet), "push+pull", 64)
        if wanted("large"):
            for transport, job in (("tcp", tcp), ("auto", near)):
                for row in large_rows(raw, job, mxnet, transport, sizes, n):
                    add(large, row)
        if wanted("small"):
            many = "400 keys × 1 KiB in one call"
            for row in throughput_rows(many, "400 keys", 1024, near, [(mxnet, "MXNet", 20)], n, 40):
                add(small, row)
            for name, workload in (("64 B push accepted", "push accepted"), ("64 B pushpull", "pushpull")):
                for row in latency_rows(raw, name, workload, near, mxnet, n, repeats):
                    add(small, row)
            add(small, idle_row(near, idle_seconds))
            add(small, memory_row(near, 400, calls))
            add(small, flood_row(tcp, n, 1000, 1 if arguments.smoke else 2))
        for job in (near, tcp, mxnet):
            job.close()
    if wanted("two"):
        near, mxnet = TensorKV(2, 2, "auto"), MXNet(arguments.mxnet, 2, 2)
        set_up((near, mxnet), "push+pull", 64)
        for row in latency_rows(raw, "barrier of 2", "barrier", near, mxnet, n, repeats // 2):
            add(small, row)
        gloo = [Gloo(2)] if Gloo.is_installed() else []
        workloads = [
            ("64 MiB pushpull", "pushpull", 64 * MIB, 4, None),
            ("ResNet-50's 161 tensors", "resnet50", 4, 2, 3),
        ]
        if arguments.smoke:
            workloads = [("1 MiB pushpull", "pushpull", MIB, 4, None)]
        for name, workload, nbytes, steps, bar in workloads:
            peers = [(mxnet, "MXNet", bar), *((job, "Gloo's all-reduce", None) for job in gloo)]
            for row in throughput_rows(f"{name}, 2 workers, 2 servers", workload, nbytes, near, peers, n, steps):
                add(small, row)
        for job in (near, mxnet, *gloo):
            job.close()
    if wanted("process"):
        add(small, start_row(build, n))
        if not arguments.smoke:
            add(small, state_row())
    raw.close()
    data = {
        "machine": platform.processor() or machine.cpu_name(),
        "threads": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
        "idle": idle,
        "repetitions": n,
        "large": large,
        "small": small,
    }
    if arguments.only:
        return 0
    return machine.publish("dist", data, report(data), picture, arguments.write_docs)


if __name__ == "__main__":
    sys.exit(main())
