"""Run hazard programs in a job of two workers: ``tkv launch -n 2 -s 1 python hazard_job.py SOCKET FIRST COUNT [late]``."""

import os
import sys
import time
from multiprocessing.connection import Client, Listener

import tensorkv as mx
from hazard_partners import PipePartner, serve_partner
from hazard_programs import LATE_PATIENCE, Wrong, check_programs


def dial(address):
    """Connect to worker 0, which may still be starting."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def main():
    """Play worker 0 or its partner."""
    address, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    is_late = len(sys.argv) > 4
    is_first = os.environ["TKV_RANK"] == "0"
    with mx.kv.create("dist_sync", patience=LATE_PATIENCE if is_late and is_first else 30) as kv:
        if not is_first:
            serve_partner(kv, dial(address))
            return
        with Listener(address, "AF_UNIX") as listener, listener.accept() as pipe:
            try:
                check_programs(range(first, first + count), kv, PipePartner(pipe), is_late)
            except Wrong as wrong:
                print(wrong, file=sys.stderr)
                sys.exit(1)
    print(f"{count} programs")


main()
