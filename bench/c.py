"""Compares calls of the C interface with the same calls in C++: a push and a pull of 1 KiB in one process.

Both are measured in nanoseconds, interleaved in one run. The figures are medians. The goal is at most 50 ns more for C.
The difference is reported, never asserted.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys

import machine

GOAL_NS = 50


def measure(program, calls, repetitions):
    """Return the medians in C++ and in C, and of the differences; the first repetition warms up."""
    said = subprocess.run(
        [program, str(calls), str(repetitions + 1)], check=True, capture_output=True, text=True
    ).stdout
    pairs = [tuple(map(float, line.split())) for line in said.splitlines()][1:]
    cpp, c = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"cpp_ns": cpp, "c_ns": c, "more_ns": statistics.median(b - a for a, b in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--mxnet", help="not needed here")
    parser.add_argument("--smoke", action="store_true", help="few calls: shows that it runs")
    arguments = parser.parse_args()
    folder = arguments.build / "bench"
    calls, repetitions = (1000, 3) if arguments.smoke else (100_000, 21)
    row = measure(folder / "c_abi", calls, repetitions)
    idle = machine.idle_scaling(ctypes.CDLL(str(folder / "liblimit.so")))
    data = {"row": row, "goal_ns": GOAL_NS, "idle": idle, "cpu": machine.cpu_name(), "smoke": arguments.smoke}
    out = pathlib.Path("out")
    out.mkdir(exist_ok=True)
    (out / "bench-c.json").write_text(json.dumps(data, indent=1))
    print(f"push + pull of 1 KiB: C++ {row['cpp_ns']:.0f} ns, C {row['c_ns']:.0f} ns")
    print(
        f"the C interface: {row['more_ns']:+.0f} ns (goal {GOAL_NS}); two threads do {idle:.2f} times the work of one"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
