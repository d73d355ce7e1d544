"""The common part of the workers of every system: they make rounds and report them, one JSON object per line.

A round has two workers. Worker r contributes (r + 1) n in round n, so that every element of the result is known. The
driver controls the workers by files in a folder: `last` (the last round), `hold-NAME` (that worker waits between two
rounds) and `save-N` (save).
"""

import json
import math
import os
import pathlib
import sys
import threading
import time

KEY = "embed.weight"
BYTES = int(os.environ.get("FAULTS_BYTES", 1 << 20))
COUNT = BYTES // 4
PAUSE = 0.05  # seconds between two rounds
lock = threading.Lock()


def tell(event, **fields):
    with lock:
        print(json.dumps({"at": time.monotonic(), "event": event, **fields}), flush=True)


class Control:
    """Requests of the driver, read between two rounds."""

    def __init__(self):
        self.folder = pathlib.Path(os.environ["FAULTS_FOLDER"])
        self.held = self.folder / f"hold-{os.environ['FAULTS_NAME']}"
        self.saves = 0

    def last(self):
        try:
            return int((self.folder / "last").read_text() or 0)
        except FileNotFoundError:
            return math.inf

    def hold(self):
        while self.held.exists():
            time.sleep(0.01)

    def ask_head(self):
        """Return whether this worker is to make a call that needs the head; true once per request."""
        asked = self.folder / f"ask-{os.environ['FAULTS_NAME']}"
        if not asked.exists():
            return False
        asked.unlink()
        return True

    def save(self):
        """Return whether the worker is to save now."""
        if not (self.folder / f"save-{self.saves + 1}").exists():
            return False
        self.saves += 1
        return True


def error_fields(error, system):
    return {
        "type": type(error).__name__,
        "typed": isinstance(error, (KeyboardInterrupt, *system.errors)),
        "text": " ".join(str(error).split())[:1500],
    }


def save(system, control):
    """Save; report a failure and go on."""
    try:
        system.save(control.folder / "disk", control.saves)
        tell("saved", number=control.saves)
    except Exception as error:
        tell("save failed", **error_fields(error, system))


def ask_head(system):
    """Make a call that needs the head; report a failure and go on."""
    begin = time.monotonic()
    try:
        system.ask_head()
        tell("asked", seconds=time.monotonic() - begin)
    except Exception as error:
        tell("asked", seconds=time.monotonic() - begin, **error_fields(error, system))


def run(make):
    """Make rounds until the last one that the driver requests. An error ends the process, as it ends any script."""
    control, system, doing, done = Control(), make(), "join", 0
    tell("begins")
    try:
        done = system.join() or 0
        tell("joined")
        if "FAULTS_BANDWIDTH" in os.environ:
            tell("round", round=1, wrong=system.round(1))
            measure(system)
            return
        while done < control.last():
            control.hold()
            if control.ask_head():
                ask_head(system)
            if os.environ["FAULTS_NAME"] == "worker 0" and control.save():
                doing = "save"
                save(system, control)
            done += 1
            doing = f"round {done}"
            tell("round", round=done, wrong=system.round(done))
            time.sleep(PAUSE)
        doing = "leave"
        system.leave()
        if control.saves:
            tell("read back", same=system.read_back(control.folder / "disk"))
        tell("ended")
    except BaseException as error:
        tell("error", doing=doing, **error_fields(error, system))
        raise


def measure(system):
    """For each line of input report the seconds in which all bytes are sent and received back."""
    for _ in sys.stdin:
        begin = time.perf_counter()
        system.there_and_back()
        tell("measured", seconds=time.perf_counter() - begin)
