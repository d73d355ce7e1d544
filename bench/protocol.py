"""Compares one shard on one core with the limits of memory, and measures how its cost grows.

Runs protocol_bench, which interleaves the shard and its bounds in one process, and prints its rows. The rows are
pushpulls of 1 KiB over 10 to 1,000,000 keys, one of 64 MiB, and the messages and bytes of a round of 1 to 64 workers.
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import time

import machine


def report(data):
    """Return the tables for docs/performance.md."""
    lines = [
        f"Machine: {data['machine']}, {data['date']}. Idle check: {data['idle']:.2f} (at least {machine.IDLE} is needed). Medians of 9.",
        "",
        "| keys | bytes of each | pushpull | limit | of the limit | bar | of a limit that touches all bytes | pushpulls/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in data["rows"]:
        if row["row"] == "messages":
            continue
        bar = 0.8 if row["row"] == "large" else 0.3
        verdict = "met" if row["of_limit"] >= bar else "missed"
        lines.append(
            f"| {row['keys']:,} | {row['bytes']:,} | {row['ns'] / 1e3:,.2f} µs | {row['limit_ns'] / 1e3:,.2f} µs | {row['of_limit']:.2f} "
            f"| {bar}: {verdict} | {row['of_all_bytes']:.2f} | {1e9 / row['ns']:,.0f} |"
        )
    lines += [
        "",
        "| workers | operations in a round | answers | 2·W·C·K | bytes held | bytes known |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['workers']} | {row['sent']} | {row['answered']} | {row['expected']} | {row['bytes_held']:,} | {row['bytes_known']:,} |"
        for row in data["rows"]
        if row["row"] == "messages"
    ]
    return "\n".join(lines)


def main():
    """Run and print; the exit status reports whether messages and bytes are as computed, never the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the release build")
    parser.add_argument("--mxnet", help="not used: MXNet has no such part")
    parser.add_argument("--smoke", action="store_true", help="few keys, one repetition")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    arguments = parser.parse_args()
    idle = machine.idle_scaling(ctypes.CDLL(str(arguments.build / "bench" / "liblimit.so")))
    command = [arguments.build / "bench" / "protocol_bench", *(["--smoke"] if arguments.smoke else [])]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            rows.append(row)
            if row["row"] == "messages":
                print(
                    f"{row['workers']:3d} workers: {row['sent']} operations, {row['answered']} answers, "
                    f"2 W C K = {row['expected']}; {row['bytes_held']} bytes held, {row['bytes_known']} known"
                )
            else:
                print(
                    f"{row['keys']:>9,} keys of {row['bytes']:>12,} bytes: {row['ns']:>14,.0f} ns, "
                    f"limit {row['limit_ns']:>14,.0f} ns, {row['of_limit']:.2f} of it, "
                    f"{row['of_all_bytes']:.2f} of one that touches all bytes"
                )
    pathlib.Path("out").mkdir(exist_ok=True)
    data = {"machine": machine.cpu_name(), "date": time.strftime("%Y-%m-%d"), "idle": idle, "rows": rows}
    pathlib.Path("out/bench-protocol.json").write_text(json.dumps(data, indent=1) + "\n")
    counts = [row for row in rows if row["row"] == "messages"]
    right = counts and all(row["sent"] == row["answered"] == row["expected"] for row in counts)
    print(f"idle check: {idle:.2f}")
    if arguments.write_docs:
        if idle < machine.IDLE:
            print("not written to docs: the machine is not idle")
            return 1
        machine.write_docs("protocol", report(data))
    return 0 if process.returncode == 0 and right else 1


if __name__ == "__main__":
    sys.exit(main())
