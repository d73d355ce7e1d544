r"""Looks at a running job of digits.py from outside, and writes what it sees: digits_watch.py FOLDER

    tkv launch -n 2 -s 2 python examples/digits.py --kv dist_sync --events FOLDER \
        : --observers 1 python examples/digits_watch.py FOLDER

Each line of FOLDER/job.jsonl has the time, the states of workers and servers, and the newest round of any key.
"""

import json
import sys
import time
from pathlib import Path

import tensorkv as tkv


def watch(path: Path) -> None:
    """Write a line each tenth of a second, until the job ends."""
    with tkv.kv.connect() as kv, path.open("w", buffering=1) as file:
        while True:
            try:
                status = kv.status()
            except tkv.errors.UnavailableError:  # the job has ended since the last look
                return
            workers = [worker["state"] for worker in status["workers"]]
            seen = {
                "time": time.time(),
                "workers": workers,
                "servers": [server["state"] for server in status["servers"]],
                "round": max((key["round"] for key in status["keys"]), default=None),
            }
            file.write(json.dumps(seen) + "\n")
            if "alive" not in workers and "left" in workers:
                return
            time.sleep(0.1)


if __name__ == "__main__":
    watch(Path(sys.argv[1]) / "job.jsonl")
