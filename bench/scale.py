"""Measures the cost of a job as it grows: processes of one host, and thousands of members in the simulation.

On one host: jobs of 2 to 64 processes by `tkv launch`, three workers for each server. The figures are the time until
all have joined, the first round, memory, files and threads of each kind of process, and their CPU when idle. The bound
for the start is as many processes that only import the package.

Beyond: `scale_sim`, the state machines of a job of 16 to 4,096 members in one thread. The figures are messages and
bytes of a round, EPOCHs and CPU at joins, deaths and leaves, the time to a verdict, and connections. Jobs of 64 workers
with up to 100,000 keys show the CPU of a message while all other operations are in progress.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import machine

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
PATIENCE = 300  # seconds for all workers of a job to report that they have joined
EVENTS = {"join": "joins", "deaths told": "deaths, told", "deaths silent": "deaths, silent", "leave": "leaves"}
WAITING = ["init", "first round", "round", "round after deaths", "control", "round after control", "delete"]
WORKERS = 64  # of the jobs with many keys
# The smallest message for one changed seat: header, entry, the previous EPOCH, rank, seat.
DIFFERENCE = 48 + 64 + 8 + 4 + 13


# ------------------------------------------------------------------------------------------------- processes of one host
def children_of(pid):
    """Return the ids of all processes below this one."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def cpu_seconds(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def usage(pid):
    """Return memory in MiB, open files and threads of a process."""
    proc = pathlib.Path(f"/proc/{pid}")
    rollup = {line.split()[0]: line.split()[1] for line in (proc / "smaps_rollup").read_text().splitlines()[1:]}
    return {
        "pss": int(rollup["Pss:"]) / 1024,
        "rss": int(rollup["Rss:"]) / 1024,
        "files": len(list((proc / "fd").iterdir())),
        "threads": len(list((proc / "task").iterdir())),
    }


def most(rows):
    return {field: max(row[field] for row in rows) for field in rows[0]}


def bare_start(workers, servers, tkv):
    """Start as many idle processes; return the seconds until all have begun, and the memory of one that imports."""
    begin = time.monotonic()
    program = "import sys, tensorkv; print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    idle = [subprocess.Popen([sys.executable, "-c", program], **pipes) for _ in range(workers)]
    ended = [subprocess.Popen([tkv, "--version"], stdout=subprocess.DEVNULL) for _ in range(servers)]
    for process in idle:
        process.stdout.readline()
    for process in ended:
        process.wait()
    seconds = time.monotonic() - begin
    pss = usage(idle[0].pid)["pss"]
    for process in idle:
        process.communicate()
    return seconds, pss


@contextlib.contextmanager
def job(command, pipe):
    """Run a launcher whose workers wait until this process closes the pipe."""
    os.mkfifo(pipe)
    file = os.open(pipe, os.O_RDWR)
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield launcher
    except BaseException:
        launcher.terminate()
        raise
    finally:
        os.close(file)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(PATIENCE)
        launcher.kill()
        launcher.wait()


def await_workers(launcher, folder, workers):
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.glob("*.json"))) < workers:
        if launcher.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(
                f"a job of {workers} workers: {'it ended' if launcher.poll() is not None else 'not there'}"
            )
        time.sleep(0.02)
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def on_one_host(processes, idle_seconds):
    """Measure a job of `processes` workers and servers, with the head in the launcher."""
    servers = max(1, processes // 4)
    workers = processes - servers
    tkv = pathlib.Path(sys.executable).parent / "tkv"
    bare_seconds, bare_pss = bare_start(workers, servers, tkv)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [
            tkv,
            "launch",
            "-n",
            str(workers),
            "-s",
            str(servers),
            sys.executable,
            HERE / "scale_peer.py",
            folder,
        ]
        begin = time.monotonic()
        with job(command, folder / "go") as launcher:
            times = await_workers(launcher, folder, workers)
            kinds = {"head": [launcher.pid], "server": [], "worker": []}
            for pid in children_of(launcher.pid):
                is_worker = b"scale_peer.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                kinds["worker" if is_worker else "server"].append(pid)
            before = {pid: cpu_seconds(pid) for pids in kinds.values() for pid in pids}
            time.sleep(idle_seconds)
            idle = {pid: (cpu_seconds(pid) - seconds) / idle_seconds for pid, seconds in before.items()}
            used = {pid: usage(pid) for pid in before}
        if launcher.returncode != 0:
            raise SystemExit(f"a job of {processes} processes ended with {launcher.returncode}")
    row = {"processes": processes, "workers": workers, "servers": servers, "bare s": bare_seconds, "bare pss": bare_pss}
    row["joined"] = max(t["all joined"] for t in times) - begin
    for stage, previous in (("keys made", "all joined"), ("first round", "keys made"), ("second round", "first round")):
        row[stage] = max(t[stage] for t in times) - max(t[previous] for t in times)
    for kind, pids in kinds.items():
        row[kind] = most([{**used[pid], "idle": 100 * idle[pid]} for pid in pids])
    row["pss"] = sum(used[pid]["pss"] for pid in used)
    row["idle"] = 100 * sum(idle.values())
    return row


# --------------------------------------------------------------------------------------------------------- the simulation
def simulate(program, members, *more):
    """Return the phases of a job of `members`, by name.

    Args:
        more: servers and keys; without them an eighth of the members, with a key on each
    """
    phases = {}
    begin = time.monotonic()
    with subprocess.Popen([program, *map(str, (members, *more))], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            phase = json.loads(line)
            phases[phase.pop("phase")] = phase
    if process.returncode != 0:
        raise SystemExit(f"scale_sim {members} failed")
    return {"members": members, "seconds": time.monotonic() - begin, "phases": phases}


def messages(phase, *types):
    """Return the number of messages of these types and their bytes; of all types if none is named."""
    found = [phase["messages"].get(name, [0, 0]) for name in types or phase["messages"]]
    return sum(count for count, _ in found), sum(size for _, size in found)


def epoch_row(run, name):
    """Return the EPOCHs of a phase, beside one for each change, one for all changes, and each with its change alone."""
    phase = run["phases"][name]
    count, size = messages(phase, "EPOCH")
    changes, whole = phase["changes"], phase["epoch_bytes"]
    names = list(run["phases"])
    before = run["phases"][names[names.index(name) - 1]]["head_links"] if name != "join" else 0
    told = (before + phase["head_links"]) / 2  # of each change, in the mean
    told += 1.5 if name == "join" else 0  # a joining member gets all seats with its WELCOME, and its own
    return {
        "members": phase["members"],
        "changes": changes,
        "announced": phase["epochs"],
        "messages": count,
        "bytes": size,
        "one by one": changes * told * whole,
        "once": max(before, phase["head_links"]) * whole,
        "as difference": changes * told * DIFFERENCE,
        "head cpu": phase["head_cpu_ms"],
        "others cpu": phase["server_cpu_ms"] + phase["worker_cpu_ms"],
        "verdict p50": phase.get("verdict_p50_ms"),
        "verdict max": phase.get("verdict_max_ms"),
        "all know": phase["all_know_ms"],
    }


def exponent(rows, value):
    """Return the exponent with which a figure grows between the two largest numbers of members."""
    if len(rows) < 2 or not value(rows[-2]) or not value(rows[-1]):
        return float("nan")
    return math.log(value(rows[-1]) / value(rows[-2])) / math.log(rows[-1]["members"] / rows[-2]["members"])


def human(n):
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1000
    return ""


# ------------------------------------------------------------------------------------------------------------------ report
def host_tables(rows):
    lines = [
        "| processes | head + servers + workers | all joined s | bare s | keys made ms | first round ms | second round ms | CPU of all, idle |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        stages = " | ".join(f"{1e3 * row[stage]:.0f}" for stage in ("keys made", "first round", "second round"))
        lines.append(
            f"| {row['processes']} | 1 + {row['servers']} + {row['workers']} | {row['joined']:.2f} | {row['bare s']:.2f} "
            f"| {stages} | {row['idle']:.2f} % of a core |"
        )
    lines += [
        "",
        "| processes | PSS of all MiB | of the head | a server | a worker | a bare worker | files of head, server, worker | threads | CPU, idle |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        kinds = [row[kind] for kind in ("head", "server", "worker")]
        pss = " | ".join(f"{kind['pss']:.1f}" for kind in kinds)
        files, threads = (", ".join(str(kind[field]) for kind in kinds) for field in ("files", "threads"))
        idle = ", ".join(f"{kind['idle']:.2f} %" for kind in kinds)
        lines.append(
            f"| {row['processes']} | {row['pss']:.0f} | {pss} | {row['bare pss']:.1f} | {files} | {threads} | {idle} |"
        )
    return lines


def round_table(runs):
    lines = [
        "| members | workers, servers | messages of a round | 4·W·S | frames | bytes | 2·W·S·1 KiB | server CPU µs a message | worker "
        "| connections: head, server, worker | N, W + 1, S + 1 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        phase = run["phases"]["round"]
        count, _ = messages(phase, "PUSH", "PULL", "ACCEPTED", "VALUE")
        w, s = phase["workers"], phase["servers"]
        per = [1e3 * phase[f"{kind}_cpu_ms"] / count for kind in ("server", "worker")]
        lines.append(
            f"| {w + s:,} | {w:,}, {s:,} | {count:,} | {4 * w * s:,} | {phase['frames']:,} | {human(phase['bytes'])} "
            f"| {human(2 * w * s * 1024)} | {per[0]:.2f} | {per[1]:.2f} "
            f"| {phase['head_links']:,}, {phase['server_links']:,}, {phase['worker_links']:,} | {w + s:,}, {w + 1:,}, {s + 1:,} |"
        )
    return lines


def epoch_table(runs, name):
    rows = [epoch_row(run, name) for run in runs]
    verdict = "verdict p50, max ms | " if rows[0]["verdict p50"] is not None else ""
    lines = [
        f"| members | {EVENTS[name]} | EPOCHs made | EPOCH messages | bytes | one by one | once | as differences | {verdict}"
        "all know after ms | head CPU ms | CPU of all others ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|" + ("---|" if verdict else ""),
    ]
    for row in rows:
        times = f"{row['verdict p50']:,.1f}, {row['verdict max']:,.1f} | " if verdict else ""
        lines.append(
            f"| {row['members']:,} | {row['changes']:,.0f} | {row['announced']:,} | {row['messages']:,} | {human(row['bytes'])} "
            f"| {human(row['one by one'])} | {human(row['once'])} | {human(row['as difference'])} | {times}{row['all know']:,.1f} "
            f"| {row['head cpu']:,.1f} | {row['others cpu']:,.1f} |"
        )
    powers = [exponent(rows, lambda row, field=field: row[field]) for field in ("bytes", "head cpu", "others cpu")]
    lines.append("")
    lines.append(
        "Power of the members, between the last two sizes: bytes {:.1f}, head CPU {:.1f}, CPU of the others {:.1f}.".format(
            *powers
        )
    )
    return lines


def idle_table(runs):
    lines = [
        "| members | PINGs and PONGs a second | 4·N | bytes a second | head CPU ms a second | µs a PING |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        phase = run["phases"]["idle"]
        count, size = messages(phase)
        pings = max(1, messages(phase, "PING")[0])
        lines.append(
            f"| {phase['members']:,} | {count:,} | {4 * phase['members']:,} | {human(size)} | {phase['head_cpu_ms']:.1f} "
            f"| {1e3 * phase['head_cpu_ms'] / pings:.2f} |"
        )
    return lines


def waiting_table(runs):
    """Return a table of the CPU of a message by the number of keys, all of which are in progress at once."""
    counts = [run["keys"] for run in runs]
    lines = [
        f"| phase | {' | '.join(f'{count:,} keys' for count in counts)} | last ÷ first |",
        "|---" * (len(counts) + 2) + "|",
    ]
    for name in WAITING:
        costs = [run["phases"][name]["cpu_us_per_message"] for run in runs]
        lines.append(f"| {name} | {' | '.join(f'{cost:.2f}' for cost in costs)} | {costs[-1] / costs[0]:.1f} |")
    return lines


def simulated_tables(runs):
    lines = ["### A round, simulated", "", *round_table(runs), ""]
    for name, title in EVENTS.items():
        lines += [f"### {title.capitalize()}, within one second, simulated", "", *epoch_table(runs, name), ""]
    return [*lines, "### A second in which nothing happens, simulated", "", *idle_table(runs)]


def report(data):
    """Return the tables for docs/scale.md."""
    lines = [
        f"Machine: {data['machine']}, {data['threads']} threads, {data['date']}. Idle check: {data['idle']:.2f}.",
        "",
    ]
    lines += ["### Processes of one host", "", *host_tables(data["host"]), ""]
    title = f"### CPU of a message while others wait, {WORKERS} workers and one server, in µs, simulated"
    lines += [title, "", *waiting_table(data["waiting"]), ""]
    return "\n".join(lines + simulated_tables(data["simulated"]))


def picture(data, path):
    """Draw four panels over the number of members, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7))
    members = [run["members"] for run in data["simulated"]]
    for name, title in EVENTS.items():
        rows = [epoch_row(run, name) for run in data["simulated"]]
        (line,) = axes[0][0].plot(members, [row["bytes"] for row in rows], "o-", label=title)
        axes[0][0].plot(members, [row["one by one"] for row in rows], ":", color=line.get_color())
        axes[0][1].plot(members, [row["head cpu"] for row in rows], "o-", label=title)
    axes[0][0].set(title="EPOCH bytes (dotted: one by one)", ylabel="bytes")
    axes[0][1].set(title="CPU of the head", ylabel="ms")
    rounds = [run["phases"]["round"] for run in data["simulated"]]
    axes[1][0].plot(members, [messages(r)[0] for r in rounds], "o-", label="messages")
    axes[1][0].plot(members, [4 * r["workers"] * r["servers"] for r in rounds], "k:", label="4·W·S")
    axes[1][0].set(title="a round", ylabel="messages")
    processes = [row["processes"] for row in data["host"]]
    axes[1][1].plot(processes, [row["joined"] for row in data["host"]], "o-", label="all joined")
    axes[1][1].plot(processes, [row["bare s"] for row in data["host"]], "k:", label="bare processes")
    axes[1][1].set(title="start on one host", ylabel="seconds")
    for panel, sizes in zip(axes.flat, [members, members, members, processes], strict=True):
        panel.set(xscale="log", yscale="log", xlabel="processes" if sizes is processes else "members")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.minorticks_off()
        panel.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Run, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the release build")
    parser.add_argument("--mxnet", help="not used: MXNet has no such part")
    parser.add_argument(
        "--smoke", action="store_true", help="2 and 4 processes, 16 and 64 members: checks results and files, not time"
    )
    parser.add_argument(
        "--only", choices=["host", "simulated", "waiting"], help="one of the three parts; nothing is written"
    )
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/scale.md")
    arguments = parser.parse_args()
    processes, members, idle_seconds = [2, 4, 8, 16, 32, 64], [16, 64, 256, 1024, 4096], 5
    keys = [1_000, 10_000, 100_000]
    if arguments.smoke:
        processes, members, idle_seconds, keys = [2, 4], [16, 64], 1, [10, 100]
    idle = machine.idle_scaling(ctypes.CDLL(str(arguments.build / "bench" / "liblimit.so")))
    program = arguments.build / "bench" / "scale_sim"
    host, simulated, waiting = [], [], []
    if arguments.only in (None, "host"):
        for count in processes:
            host.append(on_one_host(count, idle_seconds))
            print(json.dumps(host[-1]), flush=True)
    if arguments.only in (None, "waiting"):
        for count in keys:
            waiting.append({**simulate(program, WORKERS + 1, 1, count), "keys": count})
            print(f"{count} keys in {waiting[-1]['seconds']:.1f} s", flush=True)
    if arguments.only in (None, "simulated"):
        for count in members:
            run = simulate(program, count)
            simulated.append(run)
            print(f"{count} members in {run['seconds']:.1f} s", flush=True)
    if arguments.only:
        tables = {"host": (host_tables, host), "simulated": (simulated_tables, simulated)}
        table, rows = tables.get(arguments.only, (waiting_table, waiting))
        print("\n".join(table(rows)))
        return 0
    data = {
        "machine": machine.cpu_name(),
        "threads": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
        "idle": idle,
        "host": host,
        "simulated": simulated,
        "waiting": waiting,
    }
    return machine.publish("scale", data, report(data), picture, arguments.write_docs, page="scale")


if __name__ == "__main__":
    sys.exit(main())
