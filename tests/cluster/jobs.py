"""Jobs of real processes: starts them, reads their output, and checks that nothing of them is left."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import textwrap
import threading
import time

import pytest

SOON = 4.0  # seconds until a death on this host has to be known; by its silence it is after 4.5 at the earliest

BUILT = pathlib.Path(__file__).parents[2] / "build" / "release" / "cli" / "tkv"


def tkv(subcommand=""):
    """Return the words that run the package's command, or for sim and explore, which packages lack, that of the build."""
    if subcommand not in ("sim", "explore"):
        return [sys.executable, "-m", "tensorkv"]
    if not BUILT.exists():
        pytest.skip("./dev build makes the command that has sim and explore")
    return [str(BUILT)]


PRELUDE = """
import os, signal, sys, time
import numpy as np
import tensorkv as mx
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it
def mark(name):  # tells the other processes of the test, which wait by `until_marked`
    open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-" + name), "w").close()
def until_marked(name, longest=60):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-" + name)
    end = time.monotonic() + longest
    while not os.path.exists(path):
        assert time.monotonic() < end, f"nobody has marked {name}"
        time.sleep(0.01)
"""


# A bootstrap object that brings processes together by files in a folder; scripts put it before their own lines.
FILE_STORE = """
class FileStore:
    def __init__(self, folder):
        self.folder = folder
    def path(self, key):
        return os.path.join(self.folder, key.replace("/", "_"))
    def set(self, key, value):
        with open(self.path(key) + ".new", "w") as file:
            file.write(value)
        os.rename(self.path(key) + ".new", self.path(key))
    def wait(self, keys, timeout):
        end = time.time() + timeout.total_seconds()
        while not all(os.path.exists(self.path(key)) for key in keys):
            if time.time() > end:
                raise TimeoutError(keys)
            time.sleep(0.01)
    def get(self, key):
        with open(self.path(key), "rb") as file:
            return file.read()
"""


class Terminal:
    """The terminal of a process, seen from its keyboard and its screen."""

    def __init__(self, file, process):
        self.file = file
        self.process = process
        self.shown = ""  # everything

    def type(self, text):
        """Press keys, and return False if the terminal takes no more."""
        try:
            return os.write(self.file, text.encode()) == len(text.encode())
        except BlockingIOError:
            return False

    def read(self, seconds):
        """Read once, and return False at the end of the session."""
        if not select.select([self.file], [], [], seconds)[0]:
            return True
        try:
            got = os.read(self.file, 1 << 16)
        except OSError:  # nobody has the terminal open any more
            return False
        self.shown += got.decode(errors="replace")
        return bool(got)

    def read_until(self, text, count=1, seconds=30):
        """Read until the screen has shown a text so often."""
        deadline = time.monotonic() + seconds
        while self.shown.count(text) < count:
            if not self.read(0.1) or time.monotonic() > deadline:
                pytest.fail(f"the terminal does not show {text!r}; it shows:\n{self.shown}")

    def finish(self, seconds=60):
        """Read until the session's end, and return (exit status, everything shown)."""
        deadline = time.monotonic() + seconds
        while self.read(0.1):
            if time.monotonic() > deadline:
                os.killpg(self.process.pid, signal.SIGKILL)
                pytest.fail(f"the session does not end; the terminal shows:\n{self.shown}")
        return self.process.wait(timeout=10), self.shown


class Processes:
    """Starts processes and remembers them, so that none outlives the test."""

    def __init__(self, folder):
        self.folder = folder
        self.started = []
        self.terminals = []

    def script(self, text, name="script.py"):
        """Write a script and return its path; jobs that start side by side may share it, and see it whole or not at all."""
        path = self.folder / name
        written = self.folder / f"{name}.{threading.get_ident()}"
        written.write_text(PRELUDE + textwrap.dedent(text))
        written.replace(path)
        return str(path)

    def start(self, command, stdin=None, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, becomes=None, **variables):
        """Start a command with variables added to a clean environment; `becomes` runs in the process before that."""
        # Without buffers a print is written in pieces, which mix where processes have one output.
        unwanted = ("TKV_", "DMLC_", "PYTHONUNBUFFERED")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        environment.update({k: str(v) for k, v in variables.items()})
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
            preexec_fn=becomes,
        )
        self.started.append(process)
        return process

    def start_on_terminal(self, command, **given):
        """Start a command as the leader of a terminal's session, and return its Terminal."""
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        files = {"stdin": theirs, "stdout": theirs, "stderr": theirs, **given}
        process = self.start(command, becomes=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0), **files)
        os.close(theirs)
        self.terminals.append(Terminal(ours, process))
        return self.terminals[-1]

    def launch(self, text, *options, workers=2, servers=2, **variables):
        """Start a job of a script."""
        command = [sys.executable, "-m", "tensorkv", "launch", "-n", str(workers), "-s", str(servers), *options]
        return self.start([*command, sys.executable, "-u", self.script(text)], **variables)

    def end(self):
        """Kill the processes that are left."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdout is not None:
                process.stdout.close()
            process.wait()
        for terminal in self.terminals:
            os.close(terminal.file)


def finish(process, timeout=60):
    """Return (exit status, everything said)."""
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        pytest.fail(f"the job did not end in {timeout} s; it said:\n{said}")
    return process.returncode, said


def wait_until(condition, seconds=30):
    """Poll until a condition holds and return its value; fail if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
    return result


def read_until(process, word, count=1):
    """Return the output of a process until it has printed a word so often."""
    said = ""
    while said.count(word) < count:
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"the job ended before it said '{word}'; it said:\n{said}")
        said += line
    return said


def children_of_this_test():
    """Return {pid: command} of the processes of this test: TKV_TEST_MARK in their environment, or in their command, says so."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if b"TKV_TEST_MARK=" + str(os.getpid()).encode() in environment.split(b"\0"):
            found[int(pid)] = command
    return found


def unix_sockets(pids):
    """Return the names of the library's abstract sockets that these processes hold; other jobs of the machine may run."""
    held = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    held.update(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor.path)))
    with open("/proc/net/unix") as file:
        return {line.split()[-1] for line in file if "@tkv-" in line and line.split()[6] in held}


def living(job, role):
    """Return {rank: pid} of the launched job's processes in that role."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(v.split(b"=", 1) for v in file.read().split(b"\0") if b"=" in v)
            with open(f"/proc/{pid}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == job.pid and variables.get(b"TKV_ROLE") == role.encode():
            found[int(variables[b"TKV_RANK"])] = int(pid)
    return found


def pids_of(job, role):
    """Return the processes of the launched job in that role, in the order of their ranks."""
    found = living(job, role)
    return [found[rank] for rank in sorted(found)]


def is_stopped(pid):
    """Return True if a process is stopped; a SIGCONT before that has no effect."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "Tt"


def restorer_of(job):
    """Return a process that puts a snapshot back for the launched job; None: there is none now."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                is_restorer = b"restorer" in file.read().split(b"\0")[:4]
            with open(f"/proc/{pid}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if is_restorer and parent == job.pid:
            return int(pid)
    return None


def start_by_hand(processes, text, workers=2, **variables):
    """Start a head, a server and workers without a launcher; returns them by name."""
    command = [sys.executable, "-u", "-m", "tensorkv"]
    head = processes.start([*command, "head", "--workers", str(workers), "--servers", "1"], TKV_JOB="hand", **variables)
    line = read_until(head, "head listens at").splitlines()[-1]
    common = {**variables, "TKV_HEAD": line.split()[-1], "TKV_JOB": "hand"}
    started = {"head": head, "server": processes.start([*command, "server", "--rank", "0"], **common)}
    script = processes.script(text)
    for rank in range(workers):
        started[f"worker {rank}"] = processes.start(
            [sys.executable, "-u", script], TKV_RANK=rank, TKV_ROLE="worker", **common
        )
    return started
