"""Compares updates with the limits of memory, and the interpreter with a hand-written loop.

All run interleaved, and the figure is the median. Each repetition measures:

- the limit kernel (one source that is read; weight and states that are read and written);
- the hand-written loop, if the optimizer has no kernel of its own;
- a push of one NDArray to the store of one process, which updates as a server does after the last worker's push.

Then a snapshot of 1 GiB is compared with a plain sequential write of as many bytes with fsync. The rounds of a job are
measured meanwhile.
"""

import argparse
import ctypes
import functools
import math
import os
import pathlib
import platform
import shutil
import statistics
import sys
import tempfile
import time

import machine
import numpy as np
import tensorkv as mx
from local import MIB, Limit, aligned, human, repeats_for

FUSED = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adagrad": 1}  # and the number of its states
FUSED_BAR, HAND_BAR, SAVE_BAR, ROUNDS_BAR = 0.90, 0.5, 0.7, 0.7
LR, WD = 0.01, 0.01
EPSILON = 1e-8


@functools.cache
def nadam_schedule(t):
    """Return the product of nadam's momenta up to update t."""
    schedule = 1.0
    for k in range(1, t + 1):
        schedule *= nadam_momentum(k)
    return schedule


def nadam_momentum(t):
    return 0.9 * (1 - 0.5 * 0.96 ** (t * 0.004))


def nadam_numbers(t):
    """Return the numbers that nadam's program computes in update t: scale_g, scale_m and coef2."""
    now, after, schedule = nadam_momentum(t), nadam_momentum(t + 1), nadam_schedule(t)
    return (1 - now) / (1 - schedule), after / (1 - schedule * after), 1 - 0.999**t


# Names of the store's hyperparameters, number of states, and the numbers of the hand-written loop in update t.
HAND = {
    "nag": ({"momentum": 0.9}, 1, lambda t: [0.9]),
    "signum": ({"momentum": 0.9, "wd_lh": 0}, 1, lambda t: [0.9, 0.1]),
    "rmsprop": ({"gamma1": 0.9, "epsilon": EPSILON}, 1, lambda t: [0.9, 0.1, EPSILON]),
    "rmsprop_centered": (
        {"gamma1": 0.9, "gamma2": 0.9, "epsilon": EPSILON},
        3,
        lambda t: [0.9, 0.1, EPSILON, 0.9],
    ),
    "adadelta": ({"rho": 0.9, "epsilon": 1e-5}, 2, lambda t: [0.9, 0.1, 1e-5]),
    "adamax": ({"beta1": 0.9, "beta2": 0.999}, 2, lambda t: [0.9, 0.1, 0.999]),
    "nadam": (
        {"beta1": 0.9, "beta2": 0.999, "epsilon": EPSILON},
        2,
        lambda t: [0.9, 0.1, 0.999, 0.001, *nadam_numbers(t), EPSILON],
    ),
    "ftrl": ({"lamda1": 0.01, "beta": 1}, 2, lambda t: [0.01, 1]),
    "ftml": (
        {"beta1": 0.6, "beta2": 0.999, "epsilon": EPSILON},
        3,
        lambda t: [0.6, 0.4, 0.999, 0.001, (1 - 0.6**t) / LR, 1 - 0.999**t, EPSILON],
    ),
    "lamb": (
        {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6},
        2,
        lambda t: [0.9, 0.1, 0.999, 0.001, 1 - 0.9**t, 1 - 0.999**t, 1e-6],
    ),
}


def rate_of(name, t):
    """Return the learning rate for a hand-written loop in update t."""
    return LR / (1 - 0.9**t) if name == "adamax" else LR


class Hand:
    """The hand-written loop of one optimizer over arrays of one size."""

    def __init__(self, library, name, count):
        self.function, self.name, self.count = getattr(library, f"hand_{name}"), name, count
        self.grad, self.weight = aligned(count), aligned(count)
        self.states = [aligned(count) for _ in range(HAND[name][1])]
        for state in self.states:
            state[:] = 0
        self.pointers = (ctypes.c_void_p * len(self.states))(*[state.ctypes.data for state in self.states])
        self.updates = 0

    def step(self, repeats):
        scalars = []
        for _ in range(repeats):
            self.updates = self.updates % 1000 + 1
            numbers = [rate_of(self.name, self.updates), WD, *HAND[self.name][2](self.updates)]
            scalars.append((ctypes.c_float * len(numbers))(*numbers))
        begin = time.perf_counter()
        for numbers in scalars:
            self.function(
                ctypes.c_void_p(self.grad.ctypes.data),
                ctypes.c_void_p(self.weight.ctypes.data),
                self.pointers,
                ctypes.c_size_t(self.count),
                numbers,
            )
        return (time.perf_counter() - begin) / repeats


class Ours:
    """The store of one process with this optimizer."""

    def __init__(self, name, params, count):
        self.kv = mx.kv.create("local")
        self.kv.init(0, mx.nd.ones((count,)))
        optimizer = mx._core.Optimizer.create(name)
        for param, value in {**params, "learning_rate": LR, "wd": WD}.items():
            optimizer.set_param(param, value)
        self.kv._run_native(optimizer)
        self.grad = mx.nd.ones((count,))

    def step(self, repeats):
        begin = time.perf_counter()
        for _ in range(repeats):
            self.kv.push(0, self.grad)
        return (time.perf_counter() - begin) / repeats

    def value(self):
        return self.kv.pull(0).asnumpy()


def check_same(library):
    """Check that the hand-written loops and the programs compute the same."""
    rng = np.random.default_rng(1)
    start, grad = (rng.normal(size=4096).astype(np.float32) for _ in range(2))
    for name, (params, _, _) in HAND.items():
        ours, hand = Ours(name, params, 4096), Hand(library, name, 4096)
        ours.kv.delete(0)
        ours.kv.init(0, mx.nd.array(start))
        ours.grad[:] = grad
        hand.weight[:], hand.grad[:] = start, grad
        ours.step(3), hand.step(3)
        if not np.allclose(ours.value(), hand.weight, rtol=2e-3, atol=2e-4):
            raise SystemExit(
                f"{name}: the hand-written loop computes something else, by {abs(ours.value() - hand.weight).max()}"
            )


def measure(limit, library, name, size, repetitions):
    """Return the row of one optimizer and one size."""
    count = size // 4
    params, states = ({}, FUSED[name]) if name in FUSED else HAND[name][:2]
    limit.setup(size, [(1, 1 + states, 0)])
    ours = Ours(name, params, count)
    hand = Hand(library, name, count) if name in HAND else None
    repeats = repeats_for(size)
    times = {"limit": [], "tensorkv": [], "hand": []}
    for repetition in range(repetitions + 1):  # the first warms up
        seconds = {
            "limit": limit.best((1, 1 + states, 0), repeats),
            "tensorkv": ours.step(repeats),
            "hand": hand.step(repeats) if hand else math.nan,
        }
        if repetition:
            for key, value in seconds.items():
                times[key].append(value)
    median = {key: statistics.median(values) for key, values in times.items()}
    assert np.isfinite(ours.value()).all()
    bar, ratio = (FUSED_BAR, "limit") if name in FUSED else (HAND_BAR, "hand")
    reached = median[ratio] / median["tensorkv"]
    return {
        "row": name,
        "size": human(size),
        "bytes": size,
        "bytes_per_element": 4 * (3 + 2 * states),
        "ms": {key: 1e3 * value for key, value in median.items()},
        "of_limit": median["limit"] / median["tensorkv"],
        "of_hand": median["hand"] / median["tensorkv"],
        "gb_per_s": 4 * (3 + 2 * states) * count / median["tensorkv"] / 1e9,
        "verdict": "met" if reached >= bar else f"missed: {ratio} {bar}",
    }


def plain_write(folder, nbytes):
    """Return the seconds of writing `nbytes` sequentially, until they are on the disk."""
    block = memoryview(np.ones(8 * MIB, np.uint8))
    path = os.path.join(folder, "plain")
    begin = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for at in range(0, nbytes, len(block)):
            file.write(block[: min(len(block), nbytes - at)])
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    os.unlink(path)
    return seconds


def snapshot_rows(nbytes, repetitions):
    """Return rows for a snapshot against a plain write, and for rounds during a snapshot against rounds alone."""
    folder = tempfile.mkdtemp(dir=pathlib.Path.cwd())
    keys = list(range(16))
    try:
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            value = mx.nd.ones((nbytes // 16 // 4,))
            kv.init(keys, [value] * 16)
            kv.init(16, mx.nd.ones((MIB // 4,)))
            grad, out = mx.nd.ones((MIB // 4,)), mx.nd.ones((MIB // 4,))

            def rounds(seconds=None, ticket=None):
                """Return the rounds of 1 MiB per second, for `seconds` or until the ticket is done."""
                begin, count = time.perf_counter(), 0
                while (ticket is not None and not ticket.done()) or (
                    ticket is None and time.perf_counter() - begin < seconds
                ):
                    kv.pushpull(16, grad, out=out)
                    count += 1
                return count / (time.perf_counter() - begin)

            saved, plain, alone, beside = [], [], [], []
            for _ in range(repetitions):
                plain.append(plain_write(folder, nbytes))
                begin = time.perf_counter()
                kv.save(folder)
                saved.append(time.perf_counter() - begin)
                alone.append(rounds(seconds=0.5))
                beside.append(rounds(ticket=kv.save(folder, async_op=True)))
    finally:
        shutil.rmtree(folder)
    ratio = statistics.median(p / s for p, s in zip(plain, saved, strict=True))
    meanwhile = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
    return [
        {
            "row": f"snapshot of {human(nbytes)}, against a plain write with fsync",
            "gb_per_s": nbytes / statistics.median(saved) / 1e9,
            "peer_gb_per_s": nbytes / statistics.median(plain) / 1e9,
            "ratio": ratio,
            "verdict": "met" if ratio >= SAVE_BAR else f"missed: {SAVE_BAR}",
        },
        {
            "row": "rounds of 1 MiB while it is written, against rounds alone",
            "ratio": meanwhile,
            "verdict": "met" if meanwhile >= ROUNDS_BAR else f"missed: {ROUNDS_BAR}",
        },
    ]


def report(data):
    lines = [
        f"Machine: {data['machine']}, {data['threads']} threads, {data['date']}. Idle check: {data['idle']:.2f}. "
        f"Medians of {data['repetitions']}.",
        "",
        "| optimizer | array | bytes per element | TensorKV ms | limit ms | by hand ms | of the limit | of the loop by hand | bar |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in data["rows"]:
        by_hand = ("", "") if math.isnan(r["ms"]["hand"]) else (f"{r['ms']['hand']:.3f}", f"{r['of_hand']:.2f}")
        lines.append(
            f"| {r['row']} | {r['size']} | {r['bytes_per_element']} | {r['ms']['tensorkv']:.3f} | {r['ms']['limit']:.3f} "
            f"| {by_hand[0]} | {r['of_limit']:.2f} | {by_hand[1]} | {r['verdict']} |"
        )
    lines += ["", "| row | GB/s | ratio | |", "|---|---|---|---|"]
    for r in data["snapshot"]:
        speed = f"{r['gb_per_s']:.2f}, plain {r['peer_gb_per_s']:.2f}" if "gb_per_s" in r else ""
        lines.append(f"| {r['row']} | {speed} | {r['ratio']:.2f} | {r['verdict']} |")
    return "\n".join(lines)


def picture(data, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for name in dict.fromkeys(r["row"] for r in data["rows"]):
        points = sorted((r["bytes"], r["of_limit"]) for r in data["rows"] if r["row"] == name)
        axes.plot(*zip(*points, strict=True), marker="o", linestyle="-" if name in FUSED else ":", label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="bytes per array", ylabel="share of the limit kernel", title="one update of one key")
    axes.legend(fontsize=7, ncols=3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", help="unused here")
    parser.add_argument("--build", required=True, help="build folder with the limit kernels")
    parser.add_argument("--smoke", action="store_true", help="small and once: checks results and files, not time")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--only", help="only optimizers whose name holds this text, and no snapshot")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/performance.md")
    arguments = parser.parse_args()
    sizes, save_bytes = [MIB, 16 * MIB, 64 * MIB], 1024 * MIB
    if arguments.smoke:
        arguments.repetitions, sizes, save_bytes = 1, [64 * 1024], 4 * MIB
    threads = len(os.sched_getaffinity(0))
    build = pathlib.Path(arguments.build) / "bench"
    limit, library = Limit(build / "liblimit.so", threads), ctypes.CDLL(str(build / "libhand.so"))
    idle = machine.idle_scaling(limit.library)
    check_same(library)
    rows = []
    for name in [*FUSED, *HAND]:
        for size in sizes if not arguments.only or arguments.only in name else []:
            rows.append(measure(limit, library, name, size, arguments.repetitions))
            r = rows[-1]
            print(
                f"{name:17} {r['size']:>8}  of limit {r['of_limit']:.2f}  of hand {r['of_hand']:.2f}  {r['gb_per_s']:5.1f} GB/s  {r['verdict']}",
                flush=True,
            )
    limit.arrays = []
    data = {
        "machine": platform.processor() or machine.cpu_name(),
        "threads": threads,
        "date": time.strftime("%Y-%m-%d"),
        "idle": idle,
        "repetitions": arguments.repetitions,
        "rows": rows,
        "snapshot": [] if arguments.only else snapshot_rows(save_bytes, min(5, arguments.repetitions)),
    }
    return machine.publish("update", data, report(data), picture, arguments.write_docs)


if __name__ == "__main__":
    sys.exit(main())
