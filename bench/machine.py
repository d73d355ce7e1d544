"""The common part of all benchmarks: the description of the machine, and the place of the tables."""

import ctypes
import json
import pathlib
import statistics
import time

HERE = pathlib.Path(__file__).resolve().parent
IDLE = 1.9  # the least value of a run whose results may be written to docs


def idle_scaling(library):
    """Return the scaling of two threads over one: 2.0 on an idle machine, as twice the work takes the same time."""
    steps = ctypes.c_size_t(20_000_000)

    def seconds(threads):
        begin = time.perf_counter()
        library.limit_compute(threads, steps)
        return time.perf_counter() - begin

    library.limit_compute.restype = ctypes.c_double
    seconds(2)
    pairs = [(seconds(1), seconds(2)) for _ in range(5)]
    return statistics.median(2 * one / two for one, two in pairs)


def cpu_name():
    """Return the name of the processor."""
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def write_docs(section, text, page="performance"):
    """Put a table between the marks of its section in docs/PAGE.md."""
    path = HERE.parent / "docs" / f"{page}.md"
    before, _, rest = path.read_text().partition(f"<!-- {section}: begin -->\n")
    _, _, after = rest.partition(f"<!-- {section}: end -->")
    path.write_text(f"{before}<!-- {section}: begin -->\n{text}\n<!-- {section}: end -->{after}")


def publish(name, data, text, picture, into_docs, page="performance"):
    """Write out/bench-NAME.json and .png and print the table; put it into the docs if the machine is idle. Return the status."""
    out = pathlib.Path("out")
    out.mkdir(exist_ok=True)
    (out / f"bench-{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False))
    picture(data, out / f"bench-{name}.png")
    print(f"\n{text}\n\nwrote out/bench-{name}.json and out/bench-{name}.png")
    if not into_docs:
        return 0
    if data["idle"] < IDLE:
        print("not written to docs: the machine is not idle")
        return 1
    write_docs(name, text, page)
    return 0
