"""Draws a job of digits.py on one time axis: digits_picture.py FOLDER PNG

FOLDER has what the workers (``--events``) and digits_watch.py have written. The picture shows the loss of each worker,
the rounds per second, who was alive, and when a worker was killed and came again.
"""

import json
import sys
from pathlib import Path
from typing import Any

COLORS = {"alive": "#2da44e", "awaited": "#d4a72c", "dead": "#cf222e", "left": "#8c959f"}
Line = dict[str, Any]


def lines_of(path: Path) -> list[Line]:
    """Return the objects of a file of JSON lines; a last line that is cut off is left out."""
    found = []
    for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
        if line.endswith("\n"):
            found.append(json.loads(line))
    return found


def draw_states(axes: Any, seen: list[Line], begin: float) -> None:
    """Draw a bar for each process, in the color of its state."""
    names = [f"worker {i}" for i in range(len(seen[0]["workers"]))]
    names += [f"server {i}" for i in range(len(seen[0]["servers"]))]
    for row, name in enumerate(names):
        kind, index = name.split()
        states = [one[kind + "s"][int(index)] for one in seen]
        for here, after, state in zip(seen, seen[1:], states, strict=False):
            start = here["time"] - begin
            axes.barh(row, after["time"] - here["time"], left=start, height=0.7, color=COLORS.get(state, "#8250df"))
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel="seconds", ylim=(len(names) + 0.6, -0.6))
    shown = [state for state in COLORS if any(state in one["workers"] + one["servers"] for one in seen[:-1])]
    axes.legend([axes.barh(0, 0, color=COLORS[state]) for state in shown], shown, loc="lower left", ncols=len(shown))


def rates(seen: list[Line], begin: float) -> tuple[list[float], list[float]]:
    """Return times, and the rounds per second between one look before each and one after it."""
    times, found = [], []
    seen = [one for one in seen if one["round"] is not None]  # the job has keys
    for first, last in zip(seen, seen[2:], strict=False):
        times.append((first["time"] + last["time"]) / 2 - begin)
        found.append((last["round"] - first["round"]) / (last["time"] - first["time"]))
    return times, found


def draw(folder: Path, picture: Path) -> str:
    """Draw the picture and return its caption."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workers = [lines_of(path) for path in sorted(folder.glob("worker-*.jsonl"))]
    seen = lines_of(folder / "job.jsonl")
    begin = min(line["time"] for lines in [*workers, seen] for line in lines)
    figure, panels = pyplot.subplots(3, 1, figsize=(10, 7.5), sharex=True, height_ratios=[3, 2, 2])
    for rank, lines in enumerate(workers):
        steps = [line for line in lines if "loss" in line]
        times = [line["time"] - begin for line in steps]
        panels[0].plot(times, [line["loss"] for line in steps], ".", markersize=2, label=f"worker {rank}")
    panels[0].set(ylabel="loss", yscale="log", title="Two workers train on handwritten digits, two servers run SGD")
    panels[0].legend(loc="upper left", markerscale=4)
    panels[1].plot(*rates(seen, begin), color="#57606a")
    panels[1].set(ylabel="rounds per second", ylim=(0, None))
    draw_states(panels[2], seen, begin)
    for line in (line for lines in workers for line in lines):
        what = "killed" if "killed" in line else "again" if line.get("began") else ""
        for panel in panels if what else []:
            panel.axvline(line["time"] - begin, color="#cf222e" if what == "killed" else "#2da44e", linestyle="--")
        if what:
            text = f"kill -9, step {line['killed']}" if what == "killed" else f"back, step {line['began']}"
            side = "right" if what == "killed" else "left"
            panels[0].annotate(text, (line["time"] - begin, panels[0].get_ylim()[0] * 1.3), ha=side)
    end = next(line for lines in workers for line in lines if "difference" in line)
    caption = (
        f"The weights match those of one process without the store: the largest difference is {end['difference']:.1e}.  "
        f"{end['accuracy']:.1%} of the test images are read right."
    )
    figure.text(0.5, 0.01, caption, ha="center")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(picture, dpi=110)
    return caption


if __name__ == "__main__":
    print(draw(Path(sys.argv[1]), Path(sys.argv[2])))
    print(f"picture  {Path(sys.argv[2]).absolute()}")
