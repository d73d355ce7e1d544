"""How much of what memory allows does one shard on one core reach, and how does it grow?

Runs protocol_bench, which interleaves the shard and its bound in one process, and prints its rows: pushpulls of 1 KiB over
10 to 1,000,000 keys, one of 64 MiB, and the messages and bytes of a round of 1 to 64 workers.
"""

import argparse
import json
import pathlib
import subprocess
import sys


def main():
    """Run and print; the exit status says whether messages and bytes are as computed, never how fast it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the release build")
    parser.add_argument("--mxnet", help="not used: MXNet has no such part")
    parser.add_argument("--smoke", action="store_true", help="few keys, one repetition")
    arguments = parser.parse_args()
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
                    f"limit {row['limit_ns']:>14,.0f} ns, {row['of_limit']:.2f} of it"
                )
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path("out/bench-protocol.json").write_text(json.dumps(rows, indent=1) + "\n")
    counts = [row for row in rows if row["row"] == "messages"]
    right = counts and all(row["sent"] == row["answered"] == row["expected"] for row in counts)
    return 0 if process.returncode == 0 and right else 1


if __name__ == "__main__":
    sys.exit(main())
