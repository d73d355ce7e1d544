"""Checks the coverage of the simulation: every kind of message meets every state of its receiver under every fault, or
tests/coverage.txt says why it cannot.

Reads the table of `tkv sim --coverage` from standard input and prints it with the verdict."""

import fnmatch
import pathlib
import sys

LIST = pathlib.Path(__file__).resolve().parent.parent / "tests" / "coverage.txt"
# Fewer meetings than this are chance: such a cell may be empty after any change, and keeps its exception.
RARE = 100


def read_list():
    """Return (rows, exceptions): the possible combinations, and the cells that may be empty with their reasons."""
    rows, exceptions = [], []
    for number, line in enumerate(LIST.read_text().splitlines(), 1):
        text, _, reason = line.partition("#")
        words = text.split()
        if not words:
            continue
        if words[0] == "row":
            receiver, messages, states = words[1], words[2].split(","), words[3].split(",")
            rows += [(receiver, message, state) for message in messages for state in states]
        elif words[0] == "may-miss" and len(words) == 5 and reason.strip():
            exceptions.append(tuple(word.split(",") for word in words[1:]))
        else:
            raise SystemExit(f"{LIST.name}:{number}: neither a row nor an exception with its reason")
    return rows, exceptions


def matches(exception, cell):
    """Tell whether an exception covers a cell (receiver, message, state, fault)."""
    return all(any(fnmatch.fnmatch(part, word) for word in words) for part, words in zip(cell, exception, strict=True))


def main():
    """Compare the table with the list; the exit status is 0 if they fit."""
    lines = [line.rstrip("\n") for line in sys.stdin]
    table = [line.split("\t") for line in lines if "\t" in line]
    if not table:
        raise SystemExit("coverage: no table on standard input")
    faults = table[0][3:]
    counts = {(r[0], r[1], r[2].replace(" ", "-")): [int(c) for c in r[3:]] for r in table[1:]}
    rows, exceptions = read_list()
    used = [False] * len(exceptions)
    problems = [f"{' '.join(row)} is not in {LIST.name}" for row in counts if row not in rows]
    print(f"{'receiver':<9}{'message':<13}{'state':<14}" + "".join(f"{fault[:9]:>10}" for fault in faults))
    for row in sorted(rows):
        cells = counts.get(row, [0] * len(faults))
        print(f"{row[0]:<9}{row[1]:<13}{row[2]:<14}" + "".join(f"{count:>10}" for count in cells))
        for fault, count in zip(faults, cells, strict=True):
            fitting = [i for i, exception in enumerate(exceptions) if matches(exception, (*row, fault))]
            for i in fitting:
                used[i] = used[i] or count < RARE
            if count == 0 and not fitting:
                problems.append(f"{' '.join(row)} never met {fault}")
    problems += [
        f"no empty cell needs: may-miss {' '.join(','.join(w) for w in e)}"
        for e, u in zip(exceptions, used, strict=True)
        if not u
    ]
    for problem in problems:
        print(f"coverage: {problem}")
    filled = sum(count > 0 for row in rows for count in counts.get(row, [0] * len(faults)))
    print(f"{filled} of {len(rows) * len(faults)} cells filled, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
