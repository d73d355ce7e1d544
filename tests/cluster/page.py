"""Reads the tables of docs/failures.md, and compares a row with the events of its rehearsal."""

import pathlib
import re
from typing import NamedTuple

DOCS = pathlib.Path(__file__).parents[2] / "docs"
SLACK = 15.0  # seconds that a busy machine may add to any time of the page

# Beginnings of code spans that are not output: commands, calls, options and variables.
NOT_QUOTED = re.compile(r"KVError|tkv |kv\.|mx\.|tkv\.|--|TKV_|ulimit|py-spy|create\(|sys\.|on_death|kill ")


class Row(NamedTuple):
    """A row of a table of failures."""

    what: str
    seen: str
    when: str
    remedy: str

    def quotations(self):
        """Return the texts that the page quotes from errors and logs, as patterns of one line."""
        spans = re.findall(r"`([^`]+)`", self.seen)
        return [pattern_of(s) for s in spans if (" " in s or re.match(r"\w+Error\b", s)) and not NOT_QUOTED.match(s)]


class Seen(NamedTuple):
    """The events of a rehearsal.

    `times` has (words of the column "when", measured seconds, factor): the page's figure is the factor times as long as
    the rehearsal's, which has set an option to a shorter time. `did` has words of the column "what to do" that helped.
    """

    said: str
    times: tuple = ()
    did: tuple = ()


def pattern_of(quotation):
    """Return a pattern: any number, address, key and path may stand where the page has an example of one."""
    text = re.escape(quotation).replace("\\ ", " ")
    text = re.sub(r"\d+(\\\.\d+)*", r"[\\d.]+", text).replace("…", ".*")
    text = re.sub(r"'\w'", "'[^']*'", text)
    text = re.sub(r" /\w+", r" /\\S+", text)
    return re.sub(r"^(\w+Error): ", r"\1: .*", text, count=1)


def tables(page):
    """Return the tables of a page of docs: lists of rows, which are lists of cells, the heads first."""
    found, inside = [], False
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            if not set(line) <= set("|- "):
                found[-1].append([cell.strip() for cell in cells])
        inside = line.startswith("|")
    return found


def failures():
    """Return the rows of all tables of failures."""
    heads = ["what happens", "what the others see", "when", "what to do"]
    return [Row(*cells) for table in tables("failures.md") if table[0] == heads for cells in table[1:]]


def seconds_in(words):
    """Return (least, most) seconds of the words of a time: "at once" and "at most 2 s" have no least."""
    if "at once" in words or "at its" in words:
        return 0.0, SLACK
    number, unit = re.search(r"([\d.]+) (ms|s)\b", words).groups()
    seconds = float(number) / (1000 if unit == "ms" else 1)
    return (0.0 if "at most" in words or "within" in words else seconds), seconds


def compare(row, seen):
    """Compare a row with its rehearsal."""
    context = f"\nthe row: {row}\nthe rehearsal: {seen.times} {seen.did}\n{seen.said}"
    for pattern in row.quotations():
        assert re.search(pattern, seen.said), f"nothing says {pattern!r}{context}"
    if row.seen.startswith("nothing"):
        assert not re.search(r"\w+Error\b", seen.said), f"the page promises that nothing is seen{context}"
    assert bool(row.when) == bool(seen.times), f"the column 'when' and the measured times differ{context}"
    for words, seconds, factor in seen.times:
        assert words in row.when, f"the column 'when' does not say {words!r}{context}"
        least, most = seconds_in(words)
        assert 0.8 * least / factor - 0.2 <= seconds <= most / factor + SLACK, f"{words}: {seconds} s{context}"
    assert bool(row.remedy) == bool(seen.did), f"the column 'what to do' and what helped differ{context}"
    for words in seen.did:
        assert words in row.remedy, f"the column 'what to do' does not say {words!r}{context}"
