"""Compares gradient compression and tables of rows with the limits of memory, and measures both between processes.

All run interleaved. The figures are medians.

Kernels run on one core over 64 MiB of float32:

- 2bit, against a loop that moves the fewest bytes for it (12.25 per element: the gradient read, the residual read and
  written, the code written), and against its definition as a loop over elements;
- decoding that adds, against decoding into an array and adding that;
- the cast to bfloat16, against a copy of as many bytes (6 per element).

Push + pull of 64 MiB runs between one worker and one server over TCP, with and without 2bit, beside MXNet 1.9.1 with
and without its own compression.

Tables run bench/rows.cc, which reads and updates 64 Ki rows of 64 float32 on one core. Their bounds are the same bytes
at known places, and std::unordered_map. Then come pull, and push + pull, of as many rows of a table of a million by
SGD: in one process, between a worker and a server, and by MXNet's row_sparse.
"""

import argparse
import ctypes
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import machine
from dist import MIB, Alone, MXNet, TensorKV, human

COMPRESSION = {"type": "2bit", "threshold": 1.0}  # the threshold of the pushed ones, which are thus exact
ELEMENT_BYTES = 4


class Kernels:
    """The program of bench/compress.cc."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, what, encoding, count, repeats):
        self.process.stdin.write(f"{what} {encoding} {count} {repeats}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# Each row: name, kernel, encoding, the kernel to compare with, its name, and the least factor by which ours is faster.
ROWS = [
    ("2bit, compress", "encode", "2bit", "limit_2bit", "of the limit of 12.25 bytes an element", 0.85),
    ("2bit, compress", "encode", "2bit", "scalar", "a loop over elements", 3),
    ("2bit, decompress and add", "decode_add", "2bit", "two_passes", "two passes", 2),
    ("bf16, cast", "cast", "bf16", "limit_cast", "of a copy of 6 bytes an element", 0.85),
    ("bf16, compress", "encode", "bf16", "limit_2bit", "of the limit of 2bit", None),
    ("int8, compress", "encode", "int8", "limit_2bit", "of the limit of 2bit", None),
    ("1bit, compress", "encode", "1bit", "limit_2bit", "of the limit of 2bit", None),
    ("topk of 1 %, choose", "topk", "2bit", "limit_2bit", "of the limit of 2bit", None),
]


def kernel_rows(kernels, count, repetitions):
    wanted = dict.fromkeys((what, encoding) for _, what, encoding, _, _, _ in ROWS)
    wanted |= dict.fromkeys((peer, encoding) for _, _, encoding, peer, _, _ in ROWS)
    times = {key: [] for key in wanted}
    for repetition in range(repetitions + 1):  # the first warms up
        for what, encoding in wanted:
            seconds = kernels.seconds(what, encoding, count, 1)
            if repetition:
                times[what, encoding].append(seconds)
    for row, what, encoding, peer, peer_name, bar in ROWS:
        own, other = statistics.median(times[what, encoding]), statistics.median(times[peer, encoding])
        yield judged(row, own, other, peer_name, bar)


# Bars of a table: the share of the limit, and the speed beside std::unordered_map.
TABLE_BARS = {"read": (0.80, 2), "sgd": (0.75, 2), "read zipf": (0.65, 1.3), "sgd zipf": (0.60, 1.3)}
LONGEST_MS = 5


def table_rows(program, smoke):
    text = subprocess.run([program, *(["--smoke"] if smoke else [])], check=True, capture_output=True, text=True).stdout
    for r in json.loads(text.splitlines()[-1]):
        table = f"{r['rows'] >> 20} Mi rows" if r["rows"] >= 1 << 20 else f"{r['rows'] >> 10} Ki rows"
        if "longest_ms" in r:
            row = f"longest event of 100,000 new rows, {table}"
            yield judged(row, 1e-3 * r["longest_cpu_ms"], 1e-3 * LONGEST_MS, "the bar", 1)
            continue
        bar, map_bar = TABLE_BARS.get(r["name"], (None, None))
        own = r["seconds"]
        name = f"{r['name']} of 64 Ki rows, {table}"
        yield judged(name, own, own * r["of_limit"], "of the limit", bar)
        yield judged(name, own, own * r["of_huge"], "of the limit in huge pages", None)
        if r["of_map"] > 0:
            yield judged(name, own, own * r["of_map"], "std::unordered_map", map_bar)


def table_job_rows(mxnet_python, nbytes, repetitions):
    """Yield rows of tables between processes, in one process, and of MXNet."""
    repeats = 2
    for workload, bar in (("rows, pull", 0.5), ("rows, push+pull", 0.5)):
        jobs = {"job": TensorKV(1, 1, "auto"), "one process": Alone(), "MXNet": MXNet(mxnet_python, 1, 1)}
        seconds = {name: [] for name in jobs}
        try:
            for job in jobs.values():
                with job.awake():
                    job.set_up(workload, nbytes)
            for repetition in range(repetitions + 1):
                for name, job in jobs.items():
                    with job.awake():
                        reply = job.ask({"step": repeats})
                    if repetition:
                        seconds[name].append(reply["seconds"])
        finally:
            for job in jobs.values():
                job.close()
        median = {name: statistics.median(values) for name, values in seconds.items()}
        row = f"{workload} of {human(nbytes)}, a server on this host"
        yield judged(row, median["job"], median["one process"], "one process", bar)
        yield judged(row, median["job"], median["MXNet"], "MXNet's row_sparse", None)


def judged(row, own, other, peer_name, bar):
    ratio = other / own
    verdict = "" if bar is None else "met" if ratio >= bar else "missed"
    return {
        "row": row,
        "ms": 1e3 * own,
        "peer": peer_name,
        "peer_ms": 1e3 * other,
        "ratio": ratio,
        "bar": bar,
        "verdict": verdict,
    }


def job_rows(mxnet_python, nbytes, repetitions):
    """Push + pull of one key over TCP; each job keeps its compression for good."""
    repeats = 2
    jobs = {
        "plain": TensorKV(1, 1, "tcp"),
        "2bit": TensorKV(1, 1, "tcp"),
        "MXNet": MXNet(mxnet_python, 1, 1),
        "MXNet, 2bit": MXNet(mxnet_python, 1, 1),
    }
    try:
        for name, job in jobs.items():
            with job.awake():
                request = {"setup": "push+pull", "bytes": nbytes}
                if "2bit" in name:
                    request["compression"] = COMPRESSION
                if not job.ask(request)["correct"]:
                    raise SystemExit(f"{name}: a wrong result")
        seconds, sent = {name: [] for name in jobs}, {}
        for repetition in range(repetitions + 1):
            for name, job in jobs.items():
                with job.awake():
                    reply = job.ask({"step": repeats})
                sent[name] = reply["sent"]
                if repetition:
                    seconds[name].append(reply["seconds"])
    finally:
        for job in jobs.values():
            job.close()
    median = {name: statistics.median(values) for name, values in seconds.items()}
    row = f"push + pull of {human(nbytes)} with 2bit, TCP"
    yield judged(row, median["2bit"], median["plain"], "without compression", 1)
    yield judged(row, median["2bit"], median["MXNet, 2bit"], "MXNet with 2bit", None)
    yield judged(row, median["2bit"], median["MXNet"], "MXNet", None)
    ratio = sent["plain"] / sent["2bit"]
    yield {
        "row": f"bytes that a push of {human(nbytes)} puts on the wire",
        "bytes": sent["2bit"],
        "peer": "without compression",
        "peer_bytes": sent["plain"],
        "ratio": ratio,
        "bar": 15,
        "verdict": "met" if ratio >= 15 else "missed",
    }


def report(data):
    lines = [
        f"Machine: {data['machine']}, {data['threads']} threads, {data['date']}. Idle check: {data['idle']:.2f}. "
        f"Medians of {data['repetitions']}.",
        "",
        "| row | TensorKV | against | | ratio | bar | |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in data["rows"]:
        own, other = (
            (f"{r['ms']:.2f} ms", f"{r['peer_ms']:.2f} ms")
            if "ms" in r
            else (f"{r['bytes']:.0f} B", f"{r['peer_bytes']:.0f} B")
        )
        bar = "" if r["bar"] is None else f"≥ {r['bar']}"
        lines.append(f"| {r['row']} | {own} | {r['peer']} | {other} | {r['ratio']:.2f} | {bar} | {r['verdict']} |")
    return "\n".join(lines)


def picture(data, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in data["rows"] if "ms" in r]
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    axes.barh([f"{r['row']}, {r['peer']}" for r in rows], [r["ratio"] for r in rows])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xlabel="times as fast", title="compression and rows")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", required=True, help="a Python with MXNet 1.9.1")
    parser.add_argument("--build", required=True, help="build folder with the kernels")
    parser.add_argument("--smoke", action="store_true", help="small and once: checks results and files, not time")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/performance.md")
    arguments = parser.parse_args()
    nbytes = 64 * MIB
    if arguments.smoke:
        arguments.repetitions, nbytes = 1, MIB
    build = pathlib.Path(arguments.build) / "bench"
    idle = machine.idle_scaling(ctypes.CDLL(str(build / "liblimit.so")))
    kernels = Kernels(build / "compress")
    rows = list(kernel_rows(kernels, nbytes // ELEMENT_BYTES, arguments.repetitions))
    kernels.close()
    rows += job_rows(arguments.mxnet, nbytes, arguments.repetitions)
    rows += table_rows(build / "rows", arguments.smoke)
    rows += table_job_rows(arguments.mxnet, nbytes // 4, arguments.repetitions)
    data = {
        "machine": platform.processor() or machine.cpu_name(),
        "threads": 2,
        "date": time.strftime("%Y-%m-%d"),
        "idle": idle,
        "repetitions": arguments.repetitions,
        "rows": rows,
    }
    return machine.publish("sparse", data, report(data), picture, arguments.write_docs)


if __name__ == "__main__":
    sys.exit(main())
