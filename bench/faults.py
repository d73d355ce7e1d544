"""Compares the effects of faults on the survivors, in TensorKV and in other systems.

A cell is one fault in one system, which runs as its documentation says (scripts in bench/faults). A cell has:

- the seconds until each survivor has an error, and whether the error names peer and key;
- whether a value was wrong or lost;
- the processes and files that are left 5 s after the end of the last survivor.

A survivor without an error that makes no round for 60 s hangs. Each cell runs in its own namespaces (processes,
network, mounts). Cells are stored in out/faults, so that a later run continues. `--write` makes the table in
docs/faults.md from the stored cells. `--bandwidth` measures a round trip of 64 MiB in each system, interleaved.
"""

import argparse
import functools
import itertools
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

import machine

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "faults"))
import bandwidth  # noqa: E402
import cell  # noqa: E402
from job import CannotMeasure, run, settle  # noqa: E402
from systems import SYSTEMS, last_line  # noqa: E402

OURS = "tensorkv"
OURS_RUNS = 3
KEPT = pathlib.Path("out/faults")
MIB = 1 << 20
BUSY = 0.5  # seconds, or a tenth of the longest time, that a thread may have waited for a core: a cell with more is measured again


# ------------------------------------------------------------------------------------------------- one cell
def sandbox():
    """Return the command that runs another command in new namespaces, or [] if they are not permitted."""
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        command.insert(1, "--map-root-user")
    try:
        may = (
            subprocess.run([*command, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=30).returncode == 0
        )
    except OSError:
        may = False
    return command if may else []


def run_cell(fault, name):
    """Measure a cell in another process, so that its namespaces end with it."""
    prefix = sandbox()
    command = [*prefix, sys.executable, __file__, *sys.argv[1:], "--cell", fault, "--system", name]
    environment = {**os.environ, **({"FAULTS_SANDBOX": "1"} if prefix else {})}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=1200)
    if done.returncode != 0:
        raise SystemExit(f"{fault}, {name}: the harness has failed")
    return json.loads(last_line(done.stdout))


def cell_here(arguments, fault, name):
    """Measure a cell inside of the namespaces, after making the mounts that only this cell has."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored by what runs behind it
    if os.environ.get("FAULTS_SANDBOX"):
        run("ip", "link", "set", "lo", "up")
        for folder in ("/dev/shm", "/run"):
            run("mount", "-t", "tmpfs", "tmpfs", folder)
        run("mount", "-t", "sysfs", "sysfs", "/sys")  # UCX looks there for its devices
        if not cell.FAULTS[fault].hosts:  # Mooncake does not start where there is nothing but the loopback
            run("ip", "link", "add", "lan", "type", "veth", "peer", "name", "other")
            run("ip", "address", "add", "10.78.0.1/24", "dev", "lan")
            for link in ("lan", "other"):
                run("ip", "link", "set", link, "up")
            settle("ip")
    print(json.dumps(cell.measure(fault, SYSTEMS[name](arguments))))


def runs_of(name):
    return OURS_RUNS if name == OURS else 1


def kept(fault, name, number):
    return KEPT / f"{fault.replace(' ', '-')}.{name}.{number}.json"


def is_busy(found):
    """Return whether a process of the cell waited so long for a core that its times measure the machine."""
    longest = max((one["seconds"] for one in found.get("survivors", {}).values()), default=0)
    return found.get("waited for cores", 0) > max(BUSY, longest / 10)


def is_final(found, version):
    """Return whether a stored cell has this version and was measured on a machine with enough free cores."""
    return found["version"] == version and not is_busy(found)


def cells(arguments):
    """Measure the cells that are not stored yet; ours three times."""

    @functools.cache
    def version(name):
        try:
            return SYSTEMS[name](arguments).version(), None
        except CannotMeasure as why:
            return "", str(why)

    for number in range(1, OURS_RUNS + 1):
        for fault, name in itertools.product(cell.FAULTS, SYSTEMS):
            if arguments.only not in (None, fault) or arguments.system not in (None, name) or number > runs_of(name):
                continue
            path = kept(fault, name, number)
            if path.exists() and not arguments.again and is_final(json.loads(path.read_text()), version(name)[0]):
                continue
            is_version, why = version(name)
            found = {"kind": "not measured", "why": why} if why else run_cell(fault, name)
            found |= {"fault": fault, "system": name, "version": is_version, "date": time.strftime("%Y-%m-%d")}
            path.write_text(json.dumps(found, indent=1))
            busy = f" [busy: {found['waited for cores']:.1f} s without a core]" if is_busy(found) else ""
            said = "; ".join(filter(None, columns([found])))
            print(f"{time.strftime('%H:%M:%S')} {fault}, {name}, {number}: {said}{busy}", flush=True)


# ------------------------------------------------------------------------------------------------- what is shown
def seconds_words(values):
    """Return a time in words, or the range of several times."""
    low, high = (f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in (min(values), max(values)))
    return f"{low} s" if low == high else f"{low}–{high} s"


def survivor_words(ones):
    """Return in a few words the outcomes of a survivor in all runs."""
    kinds = sorted({(one["kind"], one.get("type", ""), "goes on" in one) for one in ones})
    found = []
    for kind, error, goes_on in kinds:
        same = [one for one in ones if (one["kind"], one.get("type", ""), "goes on" in one) == (kind, error, goes_on)]
        times = [one["seconds"] for one in same]
        if kind == "hangs":
            what = "**hangs**"
        elif kind == "goes on":
            what = "goes on" if max(times) < 1 else f"goes on after {seconds_words(times)}"
        else:
            what = f"{error} after {seconds_words(times)}" + (", and goes on" if goes_on else "")
        if asked := [one["asked"] for one in same if "asked" in one]:
            what += f"; a call that needs the head: {asked[0].get('type', 'works')} after {seconds_words([a['seconds'] for a in asked])}"
        if ends := sorted({one["end"].partition(":")[0] for one in same if one.get("end")}):
            what += f", and ends by {', '.join(ends)}"
        found.append(what)
    return " or ".join(found)


def one_word(values):
    """Return the value that several survivors share, "some" if they differ."""
    values = sorted({value for value in values if value != "-"})
    return "" if not values else values[0] if len(values) == 1 else "some"


def columns(runs):
    """Return the columns of a row: the survivors' outcomes, peer, key, wrong or lost values, left processes."""
    if runs[0]["kind"] == "n/a":
        return [f"n/a: {runs[0]['why']}", "", "", "", ""]
    unmeasured = [run["why"] for run in runs if run["kind"] != "measured"]
    if unmeasured:
        return [f"cannot be measured: {unmeasured[0]}", "", "", "", ""]
    survivors = {name: [run["survivors"][name] for run in runs] for name in sorted(runs[0]["survivors"])}
    seen = "; ".join(f"{name}: {survivor_words(ones)}" for name, ones in survivors.items())
    seen_by = [one for ones in survivors.values() for one in ones]
    errors = [
        one for one in [*seen_by, *(o["asked"] for o in seen_by if "asked" in o)] if one["kind"] in ("error", "died")
    ]
    wrong, lost = max(run["wrong"] for run in runs), any(run["lost"] for run in runs)
    bad = [f"{wrong} values wrong"] * bool(wrong) + ["the save before"] * lost
    left = sorted({what for run in runs for what in [*run["left"], *run["files"]]})
    if any(is_busy(run) for run in runs):
        seen += " (the machine was busy)"
    return [
        seen,
        one_word([one["names peer"] for one in errors]),
        one_word([one["names key"] for one in errors]),
        ", ".join(bad) or "nothing",
        ", ".join(left) or "nothing",
    ]


def verdict(fault, found):
    """Return the failed goals of a cell of TensorKV.

    An error must be typed, name its peer and come within its deadline + 1 s. Nothing may be wrong, lost or left behind.
    """
    if found["kind"] != "measured":
        return [found["why"]]
    missed = []
    deadlines = cell.FAULTS[fault].deadlines
    for name, one in found["survivors"].items():
        deadline = deadlines[name] if isinstance(deadlines, dict) else deadlines
        if one["kind"] == "error" and not one["typed"]:
            missed.append(f"{name}: {one['type']} is not typed")
        if one["kind"] in ("hangs", "died"):
            missed.append(f"{name} {one['kind']}")
        if one["kind"] == "error" and one["names peer"] not in ("yes", "-"):
            missed.append(f"{name}: the peer is not named")
        if (deadline == cell.GOES_ON) != (one["kind"] == "goes on" or "goes on" in one):
            missed.append(f"{name}: {one['kind']}")
        elif deadline != cell.GOES_ON and one["seconds"] > deadline + 1:
            missed.append(f"{name}: {one['seconds']:.1f} s, deadline {deadline} s")
        if "asked" in one and not (
            one["asked"].get("typed")
            and one["asked"]["names peer"] == "yes"
            and one["asked"]["seconds"] < cell.PATIENCE + 1
        ):
            missed.append(f"{name}: a call that needs the head: {one['asked']}")
    missed += [f"{found['wrong']} wrong values"] * bool(found["wrong"]) + ["a save is lost"] * found["lost"]
    return missed + [f"left: {one}" for one in [*found["left"], *found["files"]]]


def load(fault, name):
    """Return the stored runs of a cell."""
    paths = [kept(fault, name, number) for number in range(1, runs_of(name) + 1)]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def why_nowhere(name):
    """Return why no cell of a system can be measured, or None if one can."""
    reasons = {run.get("why") for fault in cell.FAULTS for run in load(fault, name)}
    return reasons.pop() if len(reasons) == 1 else None


def table():
    """Return the table of the stored cells: a part for each fault, a row for each system."""
    lines, met, missed = [], 0, []
    nowhere = {name: why for name in SYSTEMS if (why := why_nowhere(name))}
    for fault, fault_done in cell.FAULTS.items():
        lines += ["", f"### {fault[0].upper()}{fault[1:]}", "", fault_done.what, ""]
        lines += [
            "| system | each survivor | names peer | names key | wrong or lost | left behind |",
            "|---|---|---|---|---|---|",
        ]
        for name, system in SYSTEMS.items():
            if name not in nowhere and (runs := load(fault, name)):
                lines.append(f"| {' | '.join([system.title, *columns(runs)])} |".replace("  ", " "))
        verdicts = [verdict(fault, run) for run in load(fault, OURS)]
        met += len(verdicts) == OURS_RUNS and not any(verdicts)
        missed += [f"- {fault}, run {n}: {'; '.join(words)}" for n, words in enumerate(verdicts, 1) if words]
    first = f"TensorKV: typed, named, in time, nothing wrong and nothing left behind in all {OURS_RUNS} runs of {met} of {len(cell.FAULTS)} rows."
    absent = [f"{SYSTEMS[name].title} cannot be measured: {why}" for name, why in nowhere.items()]
    counts = {(fault, name): runs_of(name) - len(load(fault, name)) for fault in cell.FAULTS for name in SYSTEMS}
    gaps = [f"{SYSTEMS[name].title}: {fault}" for (fault, name), count in counts.items() if count]
    absent += [f"Not measured as often as they should be, or not at all: {', '.join(sorted(gaps))}."] if gaps else []
    missing = ["", "What is missing:", "", *missed] if missed else []
    return "\n".join([first, *(line for why in absent for line in ("", why)), *missing, *lines])


def measured_on():
    """Return machine, dates and versions of the stored cells."""
    found = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json")) if path.stem != "bandwidth"]
    versions = {SYSTEMS[one["system"]].title: one["version"] for one in found if one["version"]}
    dates = sorted({one["date"] for one in found})
    cores = len(os.sched_getaffinity(0))
    return (
        f"Machine: {machine.cpu_name()}, {cores} cores, Linux {platform.release()}, {' to '.join(sorted({dates[0], dates[-1]}))}. "
        f"Versions: {', '.join(f'{title}: {version}' for title, version in sorted(versions.items()))}."
    )


def smoke(arguments):
    """Measure a short fault of TensorKV only; return the exit status."""
    fault = "worker killed"
    found = run_cell(fault, OURS)
    missed = verdict(fault, found)
    print("; ".join(columns([found])), *missed, sep="\n")
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path("out/bench-faults.json").write_text(json.dumps(found, indent=1))
    return 1 if missed and not is_busy(found) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mxnet", required=True, help="python that has MXNet")
    parser.add_argument("--build", required=True, help="build folder, as of all benchmarks")
    parser.add_argument("--peers", required=True, help="folder with an environment for each of the other systems")
    parser.add_argument(
        "--old-site", help="folder with a package of TensorKV that speaks another version of the protocol"
    )
    parser.add_argument("--smoke", action="store_true", help="one short fault of ours")
    parser.add_argument("--only", choices=cell.FAULTS, metavar="FAULT", help="; ".join(cell.FAULTS))
    parser.add_argument("--system", choices=SYSTEMS, help="one system alone")
    parser.add_argument("--bandwidth", action="store_true", help="only measure 64 MiB there and back")
    parser.add_argument("--write", action="store_true", help="only write what is kept into docs/faults.md")
    parser.add_argument("--again", action="store_true", help="measure what is kept, too")
    parser.add_argument("--cell", choices=cell.FAULTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the cell in progress is ended, too
    if arguments.cell:
        cell_here(arguments, arguments.cell, arguments.system)
        return 0
    if arguments.smoke:
        return smoke(arguments)
    KEPT.mkdir(parents=True, exist_ok=True)
    figures = KEPT / "bandwidth.json"
    if arguments.bandwidth:
        figures.write_text(json.dumps(bandwidth.measure(arguments), indent=1))
        print(bandwidth.table(json.loads(figures.read_text())))
    elif not arguments.write:
        cells(arguments)
        print(table())
    if arguments.write:
        machine.write_docs("faults", f"{measured_on()}\n\n{table()}", "faults")
        if figures.exists():
            machine.write_docs("bandwidth", bandwidth.table(json.loads(figures.read_text())), "faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
