"""Compares Java's calls with those of C++.

A push and a pull of wrapped memory, in Java through direct buffers, run in two processes that take turns. The bound for
the transition from Java to C++ is its cheapest call. The goals are:

- 64 MiB at 0.9 of the speed of C++;
- 1 KiB in at most six times two such calls;
- 1,000,000 pushes and pulls that leave the heap unchanged.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
LARGE, SMALL = 64 << 20, 1 << 10
GROWTH = 1 << 20  # bytes that the collector may leave


class Peer:
    """A process that answers lines with lines."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, *words):
        """Return the numbers of the answer."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        return [float(number) for number in self.process.stdout.readline().split()]

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait(60)


def java():
    """Return the command of Java's side, with the classes that ./dev jvm has built."""
    target = ROOT / "jvm" / "core" / "target"
    (javacpp,) = (pathlib.Path.home() / ".m2/repository/org/bytedeco/javacpp").glob("*/javacpp-*[0-9].jar")
    path = ":".join(str(p) for p in (target / "classes", target / "test-classes", target / "native", javacpp))
    return [
        "java",
        f"-Dorg.bytedeco.javacpp.cachedir={target / 'javacpp'}",
        "-Xmx256m",
        "-cp",
        path,
        "org.tensorkv.Bench",
    ]


def measure(cpp, jvm, smoke):
    """Return the results of all turns."""
    turns, large, small = (1, 1, 1000) if smoke else (9, 10, 200_000)
    jvm.ask(SMALL, small)  # compiled by then
    rows = {"large": [], "small": []}
    for _ in range(turns):
        for name, size, count in (("large", LARGE, large), ("small", SMALL, small)):
            rows[name].append((*cpp.ask(size, count), *jvm.ask(size, count)))
    result = {
        name: {"cpp_ns": statistics.median(r[0] for r in pairs), "java_ns": statistics.median(r[1] for r in pairs)}
        for name, pairs in rows.items()
    }
    (result["call_ns"],) = jvm.ask("call", 1_000_000)
    result["heap_growth"], result["made"] = jvm.ask("heap", 1000 if smoke else 1_000_000)
    return result


def report(data):
    """Return the table."""
    large, small, call = data["large"], data["small"], data["call_ns"]
    speed = large["cpp_ns"] / large["java_ns"]
    beyond = (small["java_ns"] - small["cpp_ns"]) / (2 * call)
    whole = small["java_ns"] / (2 * call)
    lines = [
        "| | C++ | Java | ratio | goal |",
        "|---|---|---|---|---|",
        f"| push and pull of 64 MiB | {large['cpp_ns'] / 1e6:.2f} ms | {large['java_ns'] / 1e6:.2f} ms | {speed:.2f} of the speed | 0.9 |",
        f"| of 1 KiB | {small['cpp_ns']:.0f} ns | {small['java_ns']:.0f} ns | {whole:.1f} times two native calls of {call:.1f} ns; beyond C++ {beyond:.1f} | 6 |",
        f"| heap after 1,000,000 of them | | {data['heap_growth'] / 1024:+.0f} KiB | {data['made']:.0f} bytes of objects each | 1 MiB |",
    ]
    return "\n".join(lines)


def main():
    """Run and print; the exit status reports whether results and heap are right, never the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the release build")
    parser.add_argument("--mxnet", help="not used: MXNet's Scala package is not installed")
    parser.add_argument("--smoke", action="store_true", help="few calls, one turn")
    arguments = parser.parse_args()
    idle = machine.idle_scaling(ctypes.CDLL(str(arguments.build / "bench" / "liblimit.so")))
    cpp, jvm = Peer([arguments.build / "bench" / "jvm_peer"]), Peer(java())
    try:
        data = {"machine": machine.cpu_name(), "date": time.strftime("%Y-%m-%d"), "idle": idle}
        data |= measure(cpp, jvm, arguments.smoke)
    finally:
        cpp.close()
        jvm.close()
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path("out/bench-jvm.json").write_text(json.dumps(data, indent=1) + "\n")
    print(f"{report(data)}\n\nidle check: {idle:.2f}; wrote out/bench-jvm.json")
    right = min(*data["large"].values(), *data["small"].values(), data["call_ns"]) > 0
    return 0 if right and data["heap_growth"] < GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
