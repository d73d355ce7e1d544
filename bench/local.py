"""Compares the store of one process with the limits of memory, and with MXNet on the same work.

All run interleaved. Each repetition measures the limit kernel, TensorKV and MXNet 1.9.1 one after another, each in its
own process. A process is stopped (SIGSTOP) while another is measured. The figure is the median.

The limit kernel moves the fewest bytes that the row needs, with the same threads and the better of temporal and
non-temporal stores. A row is void if its limit kernel is slower than 0.7 of a non-temporal copy of the same run.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

import machine
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20


def human(n):
    return f"{n // MIB} MiB" if n >= MIB else f"{n // 1024} KiB"


class Peer:
    """A process that runs peer.py. The process is stopped unless a request is in progress."""

    def __init__(self, python, package):
        self.process = subprocess.Popen(
            [python, str(HERE / "peer.py"), package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, request):
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            raise RuntimeError(f"the peer ended while it ran {request}")
        os.kill(self.process.pid, signal.SIGSTOP)
        return json.loads(reply)

    def close(self):
        os.kill(self.process.pid, signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


class Limit:
    """The limit kernels over arrays of one size."""

    def __init__(self, library, threads):
        self.library = ctypes.CDLL(str(library))
        self.library.limit_compute.restype = ctypes.c_double
        self.threads = threads
        self.arrays = []

    def setup(self, nbytes, passes):
        """Make the arrays that the passes (sources, states, outputs) share."""
        self.arrays = []  # freed before the new ones are made
        self.count = nbytes // 4
        self.arrays = [aligned(self.count) for _ in range(max(sum(shape) for shape in passes))]

    def best(self, shape, repeats):
        """Return the seconds of one pass: the better of temporal and non-temporal stores, on one thread or all."""
        return min(self.run(shape, nt, threads, repeats) for nt in (False, True) for threads in {1, self.threads})

    def run(self, shape, nt, threads, repeats):
        arguments, first = [], 0
        for n in shape:
            part = self.arrays[first : first + n]
            first += n
            arguments += [n, (ctypes.c_void_p * max(1, n))(*[a.ctypes.data for a in part])]
        begin = time.perf_counter()
        self.library.limit_run(*arguments, ctypes.c_size_t(self.count), threads, int(nt), repeats)
        return (time.perf_counter() - begin) / repeats

    def copy(self):
        begin = time.perf_counter()
        self.library.limit_copy(
            ctypes.c_void_p(self.arrays[0].ctypes.data),
            ctypes.c_void_p(self.arrays[-1].ctypes.data),
            ctypes.c_size_t(self.count),
            self.threads,
        )
        return 8 * self.count / (time.perf_counter() - begin)


def aligned(count):
    raw = np.zeros(count + 16, np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    array = raw[skip : skip + count]
    array[:] = 1
    return array


# Row: name, workload, bytes, the limit kernel's passes as (sources, states, outputs), bars as (of limit, times MXNet).
def rows(sizes):
    for size in sizes:
        large = size >= 64 * MIB
        assign = (0.90, 2.5) if large else (0.80, 1.0)
        update = (0.90, 4.0) if large else (0.80, 1.0)
        judged = size >= 64 * MIB or size == MIB
        yield "push + pull", "push+pull", size, [(4, 0, 1), (1, 0, 4)], assign if judged else None
        yield "pushpull", "pushpull", size, [(4, 0, 5)], assign if judged else None
        yield "pushpull, SGD", "sgd", size, [(4, 1, 4)], update if judged else None
        yield "pushpull, Adam", "adam", size, [(4, 3, 4)], update if judged else None


def bytes_per_element(passes):
    return sum(4 * (s + 2 * t + o) for s, t, o in passes)


def repeats_for(size):
    return max(1, min(2000, 64 * MIB // size))


def measure_row(limit, ours, mxnet, row, repetitions):
    name, workload, size, passes, bar = row
    repeats = repeats_for(size)
    limit.setup(size, passes)
    correct = [peer.ask({"setup": workload, "bytes": size})["correct"] for peer in (ours, mxnet)]
    if not all(correct):
        raise SystemExit(f"{name} {human(size)}: a store gave a wrong result: tensorkv, mxnet = {correct}")
    times = {"limit": [], "tensorkv": [], "mxnet": []}
    copies = []
    for repetition in range(repetitions + 1):  # the first warms up
        limit_seconds = 0.0
        for shape in passes:
            limit.run(shape, True, limit.threads, 1)
            limit_seconds += limit.best(shape, repeats)
        copies.append(limit.copy())
        seconds = {"limit": limit_seconds}
        seconds["tensorkv"] = ours.ask({"step": repeats})["seconds"]
        seconds["mxnet"] = mxnet.ask({"step": max(1, repeats // 4)})["seconds"]
        if repetition:
            for key, value in seconds.items():
                times[key].append(value)
    median = {key: statistics.median(values) for key, values in times.items()}
    moved = bytes_per_element(passes) * (size // 4)
    share = moved / median["limit"] / statistics.median(copies)
    result = {
        "row": name,
        "size": human(size),
        "bytes": size,
        "bytes_per_element": bytes_per_element(passes),
        "ms": {key: 1e3 * value for key, value in median.items()},
        "of_limit": median["limit"] / median["tensorkv"],
        "times_mxnet": median["mxnet"] / median["tensorkv"],
        "limit_of_copy": share,
        "gb_per_s": moved / median["tensorkv"] / 1e9,
        "bar": bar,
    }
    result["verdict"] = verdict(result)
    return result


def verdict(result):
    if result["limit_of_copy"] < 0.7:
        return "void"
    if result["bar"] is None:
        return ""
    of_limit, times_mxnet = result["bar"]
    missed = []
    if of_limit and result["of_limit"] < of_limit:
        missed.append(f"limit {of_limit}")
    if times_mxnet and result["times_mxnet"] < times_mxnet:
        missed.append(f"MXNet {times_mxnet}")
    return "missed: " + ", ".join(missed) if missed else "met"


def interleaved(pairs, repetitions):
    """Return medians of (peer, workload, bytes, repeats), measured in turns; the workloads of a peer are adjacent."""
    times = [[] for _ in pairs]
    for _ in range(repetitions):
        for i, (peer, workload, size, repeats) in enumerate(pairs):
            peer.ask({"setup": workload, "bytes": size})
            times[i].append(min(peer.ask({"step": repeats})["seconds"] for _ in range(3)))
    return [statistics.median(t) for t in times]


def small_rows(ours, mxnet, build, repetitions):
    """Rows whose bound is not memory."""
    results = []

    def add(row, ours_seconds, peer_seconds, peer, bar, better="higher"):
        ratio = peer_seconds / ours_seconds if better == "higher" else ours_seconds / peer_seconds
        met = bar is None or (ratio >= bar if better == "higher" else ratio <= bar)
        results.append(
            {
                "row": row,
                "us": ours_seconds * 1e6,
                "peer": peer,
                "peer_us": peer_seconds * 1e6,
                "ratio": ratio,
                "bar": "" if bar is None else f"{'≥' if better == 'higher' else '≤'} {bar}",
                "verdict": "" if bar is None else "met" if met else "missed",
            }
        )

    a, b = interleaved([(ours, "400 keys", 1024, 20), (mxnet, "400 keys", 1024, 2)], repetitions)
    add("400 keys × 1 KiB × 4 values, push + pull", a, b, "MXNet", 10)
    a, b, c = interleaved(
        [(ours, "one key", 1024, 5000), (ours, "two empty calls", 1024, 20000), (mxnet, "one key", 1024, 300)],
        repetitions,
    )
    add("1 KiB key, push + pull from Python", a, b, "two empty calls", 8, better="lower")
    add("1 KiB key, push + pull from Python", a, c, "MXNet", 3)
    for kind, bars in (("NumPy", {1: 3, 400: 1.5}), ("PyTorch", {1: 5}), ("JAX", {})):
        if importlib.util.find_spec({"NumPy": "numpy", "PyTorch": "torch", "JAX": "jax"}[kind]) is None:
            continue
        for keys in (1, 400):
            pairs = [(ours, f"{keys} x {other}", 1024, 20_000 // keys) for other in (kind, "NDArray")]
            a, b = interleaved(pairs, repetitions)
            name = f"{keys} key{'s' * (keys > 1)} × 1 KiB, pushpull of {kind}'s arrays"
            add(name, a, b, "NDArrays", bars.get(keys), better="lower")
    a, b = interleaved([(ours, "100000 x NDArray", 64, 2), (ours, "100 x NDArray", 64, 1000)], repetitions)
    add("a key of 64 bytes in a pushpull of 100,000", a / 100_000, b / 100, "in one of 100", 2, better="lower")
    a, b = interleaved([(ours, "interpreted adam", 64 * MIB, 2), (ours, "fused adam", 64 * MIB, 2)], repetitions)
    add("Adam by the interpreter, 64 MiB", a, b, "fused kernel", 0.5)
    program = pathlib.Path(build) / "bench" / "store_bench"
    if program.exists():
        output = subprocess.run(
            [program, "--benchmark_format=json", "--benchmark_min_time=0.2"], capture_output=True, text=True, check=True
        ).stdout
        one = json.loads(output)["benchmarks"][0]["real_time"] * 1e-9
        add("1 KiB key, push + pull from C++", one, 1e-6, "goal of 1 µs", 1)
    return results


def memory_row(python):
    code = (
        "import tensorkv as mx, resource\n"
        "kv = mx.kv.create('local')\n"
        "value = mx.nd.ones((4 << 20,))\n"
        "kv.init(list(range(64)), [value] * 64)\n"
        "for i in range(64): kv.push(i, [value, value])\n"
        "print([int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS')][0])\n"
    )
    rss = int(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout) / 1024
    bar = 1.02 * 1024 + 64
    return {
        "row": "store of 1 GiB of values, RSS",
        "mib": rss,
        "bar": f"≤ {bar:.0f} MiB",
        "verdict": "met" if rss <= bar else "missed",
    }


def import_row(python, repetitions):
    def seconds(module):
        begin = time.perf_counter()
        subprocess.run([python, "-c", f"import {module}"], check=True)
        return time.perf_counter() - begin

    seconds("tensorkv"), seconds("numpy")
    pairs = [(seconds("tensorkv"), seconds("numpy")) for _ in range(repetitions)]
    ours, numpy = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "row": "import tensorkv against import numpy",
        "ms": ours * 1e3,
        "numpy_ms": numpy * 1e3,
        "ratio": ours / numpy,
        "bar": "≤ 1.5",
        "verdict": "met" if ours / numpy <= 1.5 else "missed",
    }


def report(data):
    lines = [
        f"Machine: {data['machine']}, {data['threads']} threads, {data['date']}. Idle check: {data['idle']:.2f} "
        f"(two threads do {data['idle']:.2f} times the work of one; at least 1.9 is needed). "
        f"Non-temporal copy: {data['copy_gb_per_s']:.1f} GB/s. Medians of {data['repetitions']}.",
        "",
        "| row | array | bytes per element | TensorKV ms | limit ms | MXNet ms | of the limit | × MXNet | limit / copy | bar |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in data["rows"]:
        lines.append(
            f"| {r['row']} | {r['size']} | {r['bytes_per_element']} | {r['ms']['tensorkv']:.3f} | {r['ms']['limit']:.3f} "
            f"| {r['ms']['mxnet']:.3f} | {r['of_limit']:.2f} | {r['times_mxnet']:.1f} | {r['limit_of_copy']:.2f} | {r['verdict']} |"
        )
    lines += ["", "| row | TensorKV | against | ratio | bar | |", "|---|---|---|---|---|---|"]
    for r in data["small"]:
        lines.append(
            f"| {r['row']} | {r['us']:.2f} µs | {r['peer']}: {r['peer_us']:.2f} µs | {r['ratio']:.2f} | {r['bar']} | {r['verdict']} |"
        )
    m, i = data["memory"], data["import"]
    lines.append(f"| {m['row']} | {m['mib']:.0f} MiB | | | {m['bar']} | {m['verdict']} |")
    lines.append(
        f"| {i['row']} | {i['ms']:.0f} ms | {i['numpy_ms']:.0f} ms | {i['ratio']:.2f} | {i['bar']} | {i['verdict']} |"
    )
    return "\n".join(lines)


def picture(data, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    names = sorted({r["row"] for r in data["rows"]})
    for name in names:
        points = sorted((r["bytes"], r["of_limit"]) for r in data["rows"] if r["row"] == name)
        axes.plot(*zip(*points, strict=True), marker="o", label=f"TensorKV, {name}")
        points = sorted((r["bytes"], r["ms"]["limit"] / r["ms"]["mxnet"]) for r in data["rows"] if r["row"] == name)
        axes.plot(
            *zip(*points, strict=True),
            marker=".",
            linestyle=":",
            color=axes.lines[-1].get_color(),
            label=f"MXNet, {name}",
        )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(
        xscale="log", xlabel="bytes per array", ylabel="share of the limit kernel", title="4 values summed, pulled to 4"
    )
    axes.legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", required=True, help="python that has MXNet")
    parser.add_argument("--build", required=True, help="build folder with the limit kernels")
    parser.add_argument("--smoke", action="store_true", help="small and once: checks results and files, not time")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--only", help="only rows whose name holds this text")
    parser.add_argument("--sizes", help="bytes per array, with commas")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    arguments = parser.parse_args()
    sizes = [4096, 64 * 1024, MIB, 16 * MIB, 64 * MIB, 256 * MIB]
    if arguments.smoke:
        arguments.repetitions, sizes = 1, [4096, MIB]
    if arguments.sizes:
        sizes = [int(s) for s in arguments.sizes.split(",")]
    threads = len(os.sched_getaffinity(0))
    limit = Limit(pathlib.Path(arguments.build) / "bench" / "liblimit.so", threads)
    idle = machine.idle_scaling(limit.library)
    ours, mxnet = Peer(sys.executable, "tensorkv"), Peer(arguments.mxnet, "mxnet")
    results = []
    for row in rows(sizes):
        if arguments.only and arguments.only not in row[0]:
            continue
        result = measure_row(limit, ours, mxnet, row, arguments.repetitions)
        results.append(result)
        print(
            f"{result['row']:16} {result['size']:>8}  of limit {result['of_limit']:.2f}  × MXNet {result['times_mxnet']:6.1f}"
            f"  limit/copy {result['limit_of_copy']:.2f}  {result['gb_per_s']:6.1f} GB/s  {result['verdict']}",
            flush=True,
        )
    limit.setup(64 * MIB, [(1, 0, 1)])
    data = {
        "machine": platform.processor() or machine.cpu_name(),
        "threads": threads,
        "date": time.strftime("%Y-%m-%d"),
        "idle": idle,
        "copy_gb_per_s": statistics.median(limit.copy() for _ in range(9)) / 1e9,
        "repetitions": arguments.repetitions,
        "rows": results,
    }
    limit.arrays = []
    if not arguments.only:
        data["small"] = small_rows(ours, mxnet, arguments.build, arguments.repetitions)
        data["memory"] = memory_row(sys.executable)
        data["import"] = import_row(sys.executable, arguments.repetitions)
    ours.close()
    mxnet.close()
    if arguments.only:
        return 0
    return machine.publish("local", data, report(data), picture, arguments.write_docs)


if __name__ == "__main__":
    sys.exit(main())
