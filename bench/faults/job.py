"""The processes of a job under test, their reports, and the two hosts on which some of them run."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

MARK = "FAULTS_CELL"
START = 300  # seconds in which a job has to make its first rounds, on a busy machine, too
ADDRESS = {"a": "10.77.0.1", "b": "10.77.0.2"}


class CannotMeasure(Exception):
    """The reason why there is no figure."""


class Process:
    """A process of the job. Threads of the harness read its reports and note its end."""

    def __init__(self, name, command, variables, folder):
        self.name, self.events, self.said, self.ended_at = name, [], [], None
        self.errors = folder / f"{name}.stderr"
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self._read, self._wait)]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.said.append(line.rstrip())

    def _wait(self):
        self.process.wait()
        self.ended_at = time.monotonic()

    def find(self, event):
        """Return the first event of that name, or None."""
        return next((one for one in list(self.events) if one["event"] == event), None)

    def has_failed(self):
        return self.ended_at or self.find("error")

    def rounds(self):
        """Return the events of the rounds that it has ended."""
        return [one for one in list(self.events) if one["event"] == "round"]

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def last_words(self):
        return " ".join(self.errors.read_text(errors="replace").split())[-1500:]


class Job:
    """Starts processes, remembers them and ends them all."""

    def __init__(self, folder, hosts=None, nbytes=1 << 20, more=()):
        self.folder, self.hosts, self.processes = folder, hosts, {}
        (folder / "tmp").mkdir()
        names = ("TKV_", "DMLC_", "PS_", "GLOO_", "NIXL_", "UCX_", "MC_", "TORCH", "MASTER_")
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self.variables |= {
            MARK: str(os.getpid()),
            "FAULTS_FOLDER": str(folder),
            "FAULTS_BYTES": str(nbytes),
            "TMPDIR": str(folder / "tmp"),
            **dict(more),
        }

    def address(self, name):
        """Return the address of a process's host; if there are two hosts, worker 1 is on the second."""
        return "127.0.0.1" if self.hosts is None else ADDRESS[self.host(name)]

    def host(self, name):
        return "b" if name.startswith("worker 1") else "a"

    def start(self, name, command, variables, as_name=None):
        """Start a process; `as_name` tells it from an earlier process with the same name."""
        where = self.hosts.on(self.host(name)) if self.hosts else []
        own = {key: str(value) for key, value in variables.items()}
        shown = as_name or name
        environment = {**self.variables, **own, "FAULTS_NAME": shown}
        self.processes[shown] = Process(shown, [*where, *command], environment, self.folder)
        return self.processes[shown]

    def wait_until(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                words = "; ".join(f"{p.name}: {p.last_words()[-300:]}" for p in self.processes.values())
                raise CannotMeasure(f"{what} has not come in {seconds} s: {words}")
            time.sleep(0.01)

    def wait_for_line(self, name, word, seconds=START):
        """Return the first line in which a process prints a word."""
        process = self.processes[name]
        self.wait_until(lambda: any(word in line for line in process.said), seconds, f"'{word}' of {name}")
        return next(line for line in process.said if word in line)

    def wait_for_round(self, number, names):
        for name in names:
            process = self.processes[name]

            def made(process=process):
                return len(process.rounds()) >= number or process.has_failed()

            self.wait_until(made, START, f"round {number} of {name}")
            if process.has_failed():
                raise CannotMeasure(f"{name} has failed before the fault: {process.last_words()[-300:]}")

    def begins(self, name):
        """Return when a process that was started late has finished its imports."""
        process = self.processes[name]
        self.wait_until(lambda: process.find("begins") or process.ended_at, START, f"the begin of {name}")
        return (process.find("begins") or {"at": process.ended_at})["at"]

    def hold(self, name):
        (self.folder / f"hold-{name}").touch()

    def release(self, name):
        (self.folder / f"hold-{name}").unlink(missing_ok=True)

    def end_after(self, rounds):
        """Let the workers make some more rounds and leave."""
        newest = max((one["round"] for p in self.processes.values() for one in p.rounds()), default=0)
        (self.folder / "last.new").write_text(str(newest + rounds))
        (self.folder / "last.new").rename(self.folder / "last")

    def left(self):
        """Return the remaining processes: the names of ours, and the commands of their children."""
        names = {p.process.pid: name for name, p in self.processes.items()}
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if int(pid) != os.getpid() and f"{MARK}={os.getpid()}".encode() in environment:
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(names.get(int(pid)) or command.strip()[:60])
        return sorted(found)

    def kill(self):
        """Kill all processes."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.process.pid, signal.SIGKILL)
        for process in self.processes.values():
            process.process.wait()
            for thread in process.threads:
                thread.join(5)
            process.process.stdin.close()
            process.process.stdout.close()

    def files_left(self):
        """Return the files left behind in shared memory and in the folder for temporary files."""
        found = [str(path) for path in pathlib.Path("/dev/shm").iterdir()] if os.environ.get("FAULTS_SANDBOX") else []
        return found + [path.name for path in (self.folder / "tmp").iterdir()]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise CannotMeasure(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def settle(*ip):
    """Wait until the addresses of a namespace can be bound, after the kernel's check for duplicate addresses."""
    asked = time.monotonic()
    while run(*ip, "-o", "address", "show", "tentative"):
        if time.monotonic() > asked + 30:
            raise CannotMeasure("an address of this host cannot be bound after 30 s")
        time.sleep(0.05)


class Hosts:
    """Two network namespaces with a cable between them; `a` is this process's own, made for the cell."""

    def __init__(self):
        if not os.environ.get("FAULTS_SANDBOX"):
            raise CannotMeasure("no namespaces may be made here")
        run("ip", "netns", "add", "b")
        run("ip", "-n", "b", "link", "set", "lo", "up")
        run("ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", "b")
        self.side = {"a": ["ip"], "b": ["ip", "-n", "b"]}
        for host, ip in self.side.items():
            run(*ip, "address", "add", f"{ADDRESS[host]}/24", "dev", "cable")
            run(*ip, "link", "set", "cable", "up")
        for ip in self.side.values():
            settle(*ip)

    def on(self, host):
        return ["ip", "netns", "exec", "b"] if host == "b" else []

    def cut(self):
        """Pull the cable: packets are lost without an error, unlike on a link that is down."""
        for host, ip in self.side.items():
            other = ADDRESS["b" if host == "a" else "a"]
            run(*ip, "neigh", "replace", other, "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "cable")

    def mend(self):
        for host, ip in self.side.items():
            run(*ip, "neigh", "del", ADDRESS["b" if host == "a" else "a"], "dev", "cable")
