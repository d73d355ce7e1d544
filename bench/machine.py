"""What every benchmark says of its machine, and where its table is written."""

import ctypes
import pathlib
import statistics
import time

HERE = pathlib.Path(__file__).resolve().parent
IDLE = 1.9  # at least, for a run that may be written to docs


def idle_scaling(library):
    """Twice the work on two threads in the time of one gives 2.0 on a machine with nobody else on it."""
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


def write_docs(section, text):
    """Put a table between the marks of its section in docs/performance.md."""
    path = HERE.parent / "docs" / "performance.md"
    before, _, rest = path.read_text().partition(f"<!-- {section}: begin -->\n")
    _, _, after = rest.partition(f"<!-- {section}: end -->")
    path.write_text(f"{before}<!-- {section}: begin -->\n{text}\n<!-- {section}: end -->{after}")
