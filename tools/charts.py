"""Draws the charts of README.md from the measured tables of docs/faults.md, or checks that they are current.

tools/charts.py --write     writes docs/pictures/faults.svg and docs/pictures/bandwidth.svg
tools/charts.py             checks them
"""

import argparse
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "faults.md"
PICTURES = ROOT / "docs" / "pictures"
SHORT = {
    "TensorKV": "TensorKV",
    "MXNet 1.9.1, ps-lite": "MXNet",
    "Gloo (torch.distributed)": "Gloo",
    "NIXL": "NIXL",
    "Mooncake Transfer Engine": "Mooncake",
}
STYLE = """<style>
  text { fill: #1f2328; } .quiet { fill: #57606a; } .mark { font-weight: bold; }
  .goes { fill: #dafbe1; } .error { fill: #ddf4ff; } .hangs { fill: #cf222e; } .none { fill: #eaeef2; }
  .ours { fill: #1a7f37; } .theirs { fill: #8c959f; } text.hung { fill: #ffffff; font-weight: bold; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #9198a1; }
    .goes { fill: #12361f; } .error { fill: #0c2d4e; } .none { fill: #21262d; } .ours { fill: #3fb950; } .theirs { fill: #6e7681; }
  }
</style>"""


def block(text, name):
    """Return the lines that a benchmark has written between two markers of a page."""
    return text.partition(f"<!-- {name}: begin -->\n")[2].partition(f"<!-- {name}: end -->")[0].splitlines()


def cells_of(line):
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def outcome(survivors):
    """Return how a cell is drawn, its class and its text: by the worst that a survivor has met.

    A hang is the worst, then an error, with the longest time; then going on.
    """
    if "hangs" in survivors:
        return "hangs", "hangs"
    if survivors.startswith(("n/a", "cannot be measured")):
        return "none", "–"
    times = [
        float(found[1] or found[0])
        for found in re.findall(r"(?:Error|Failed|Interrupt|Exception) after ([\d.]+)(?:–([\d.]+))? s", survivors)
    ]
    if times:
        return "error", f"error, {max(times):g} s" if max(times) else "error, < 0.1 s"
    if "goes on" not in survivors:
        raise ValueError(f"{PAGE.name}: no outcome in {survivors!r}")
    return "goes", "goes on"


def faults(text):
    """Return {fault: {system: outcome}} of the page."""
    found, fault = {}, None
    for line in block(text, "faults"):
        if line.startswith("### "):
            fault = line[4:]
            found[fault] = {}
        elif line.startswith("| ") and cells_of(line)[0] in SHORT:
            system, survivors = cells_of(line)[:2]
            found[fault][SHORT[system]] = outcome(survivors)
    return found


def machine(text):
    """Return the machine and the dates of the page's runs."""
    lines = " ".join(block(text, "faults")[:3])
    return re.search(r"Machine: (.*?)\. Versions", lines)[1]


def svg(width, height, title, parts):
    """Return a picture that a reader of its text understands too."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="Helvetica, Arial, sans-serif" font-size="16" role="img" aria-label="{html.escape(title)}">'
    )
    return "\n".join([head, f"<title>{html.escape(title)}</title>", STYLE, *parts, "</svg>", ""])


def draw_faults(text):
    """Return the grid of faults and systems."""
    table, side, wide, tall, top = faults(text), 134, 118, 30, 34
    parts = []
    for column, system in enumerate(SHORT.values()):
        weight = ' class="mark"' if column == 0 else ""
        x = side + column * wide + wide / 2
        parts.append(f'<text x="{x:g}" y="22" text-anchor="middle"{weight}>{system}</text>')
    for row, (fault, systems) in enumerate(table.items()):
        y = top + row * tall
        parts.append(f'<text x="0" y="{y + 20}">{html.escape(fault.lower().replace("ctrl-c", "Ctrl-C"))}</text>')
        for column, system in enumerate(SHORT.values()):
            kind, said = systems[system]
            x = side + column * wide
            colour = ' class="hung"' if kind == "hangs" else ""
            parts.append(
                f'<rect x="{x + 2}" y="{y + 2}" width="{wide - 4}" height="{tall - 4}" rx="4" class="{kind}"/>'
            )
            parts.append(
                f'<text x="{x + wide / 2:g}" y="{y + 20}" text-anchor="middle" font-size="14"{colour}>{html.escape(said)}</text>'
            )
    bottom = top + len(table) * tall
    parts.append(
        f'<text x="0" y="{bottom + 22}" font-size="13" class="quiet">Worst outcome of the processes that survive, and the '
        f"time until the last one has its error.</text>"
    )
    parts.append(
        f'<text x="0" y="{bottom + 42}" font-size="13" class="quiet">A stopped process runs again after 20 s. –: the fault '
        f"means nothing there, or was not measured.</text>"
    )
    parts.append(f'<text x="0" y="{bottom + 62}" font-size="13" class="quiet">{html.escape(machine(text))}</text>')
    hangs = {system: sum(row[system][0] == "hangs" for row in table.values()) for system in SHORT.values()}
    title = f"{len(table)} faults, {len(SHORT)} systems. Faults in which a process hangs: " + ", ".join(
        f"{system} {count}" for system, count in hangs.items()
    )
    return svg(side + len(SHORT) * wide, bottom + 72, title, parts)


def bandwidth(text):
    """Return [(system, description, median in ms)] of the page, fastest first."""
    rows = []
    for line in block(text, "bandwidth"):
        cells = cells_of(line)
        if len(cells) == 4 and (found := re.match(r"(\d+) \(", cells[2])):
            rows.append((cells[0], cells[1], int(found[1])))
    return sorted(rows, key=lambda row: row[2])


def draw_bandwidth(text):
    """Return the bars of the time of 64 MiB there and back."""
    rows, side, tall, room = bandwidth(text), 250, 46, 400
    longest = max(row[2] for row in rows)
    parts = []
    for number, (system, description, ms) in enumerate(rows):
        y = 4 + number * tall
        ours = system.startswith("TensorKV")
        weight = ' class="mark"' if ours else ""
        length = max(2, round(room * ms / longest))
        parts.append(f'<text x="0" y="{y + 18}"{weight}>{html.escape(system)}</text>')
        parts.append(f'<text x="0" y="{y + 35}" font-size="13" class="quiet">{html.escape(description)}</text>')
        kind = "ours" if ours else "theirs"
        parts.append(f'<rect x="{side}" y="{y + 6}" width="{length}" height="26" rx="3" class="{kind}"/>')
        parts.append(f'<text x="{side + length + 8}" y="{y + 25}">{ms} ms</text>')
    bottom = 4 + len(rows) * tall
    parts.append(
        f'<text x="0" y="{bottom + 18}" font-size="13" class="quiet">64 MiB there and back, medians of nine. '
        f"{html.escape(machine(text))}</text>"
    )
    title = "64 MiB there and back: " + ", ".join(f"{system} {ms} ms" for system, _, ms in rows)
    return svg(side + room + 74, bottom + 28, title, parts)


def pictures(text):
    """Return {file name: content} of all charts."""
    return {"faults.svg": draw_faults(text), "bandwidth.svg": draw_bandwidth(text)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the charts")
    arguments = parser.parse_args()
    stale = []
    for name, content in pictures(PAGE.read_text()).items():
        path = PICTURES / name
        if arguments.write:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            stale.append(f"docs/pictures/{name}: not what docs/faults.md says; run tools/charts.py --write")
    print("\n".join(stale) or "charts: current")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
