"""A Slurm of two nodes on one machine: munged, slurmctld and two slurmd of the test's own, without systemd."""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest
from hosts import hosts  # noqa: F401 - a fixture
from jobs import wait_until

KILL_WAIT = 3  # seconds between SIGTERM and SIGKILL
NODE_TIMEOUT = 10  # seconds until a silent node is down

# Two nodes with as many CPUs as a test asks for, independent of the machine.  The backfill scheduler starts
# heterogeneous jobs; without a rate of its own it looks twice a minute.
CONFIGURATION = """
ClusterName=tkv
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={kill_wait}
SlurmdTimeout={node_timeout}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    """Return numbers of free ports."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def processes_of(configuration):
    """Return {pid: command} of the processes with this configuration: daemons, steps, and their programs."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if f"SLURM_CONF={configuration}".encode() in environment:
            found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


class Slurm:
    """Nodes `n1` and `n2`; `command` of the variables `variables` reaches them.

    Args:
        places: for each node its address, and the words before a command that run it there.
    """

    def __init__(self, places):
        # A short path: it holds the names of Unix sockets.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tkv-slurm-"))
        self.places = dict(zip(("n1", "n2"), places, strict=True))
        self.configuration = self.folder / "slurm.conf"
        # Without the mark by which a test finds the processes that it has started itself.
        unwanted = ("TKV_", "SLURM_", "PYTHONUNBUFFERED")  # the last: see Processes.start
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
        self.environment["SLURM_CONF"] = str(self.configuration)
        self.environment["PATH"] += ":/usr/sbin"  # where daemons are, and not every user looks
        self.daemons = {}

    def start(self):
        """Write the configuration, start the daemons, and wait until both nodes are idle."""
        for needed in ("munged", "slurmctld", "slurmd", "srun"):
            if shutil.which(needed, path=self.environment["PATH"]) is None:
                raise RuntimeError(f"there is no {needed}; ./dev setup all installs it")
        folder = self.folder
        folder.chmod(0o755)  # munged wants its socket to be in reach of all
        for name in ("munge", "state", "log", *(f"{kind}/{node}" for kind in ("spool", "tmp") for node in self.places)):
            (folder / name).mkdir(parents=True, mode=0o755)
        key = folder / "munge/key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        host = socket.gethostname().partition(".")[0]
        port, *ports = free_ports(1 + len(self.places))
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=16 State=UNKNOWN"
            for (name, (address, _)), port in zip(self.places.items(), ports, strict=True)
        ]
        self.configuration.write_text(
            CONFIGURATION.format(
                host=host,
                address=self.places["n1"][0],
                user=pwd.getpwuid(os.geteuid()).pw_name,
                port=port,
                folder=folder,
                kill_wait=KILL_WAIT,
                node_timeout=NODE_TIMEOUT,
                nodes="\n".join(nodes),
            )
        )
        # slurmd asks for a plugin of control groups, also where nothing uses it.
        (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n")
        munge = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._start("munged", "munged", "-F", *(f"--{word}={folder}/munge/{name}" for word, name in munge.items()))
        self._wait(lambda: (folder / "munge/socket").is_socket(), "munged listens")
        self._start("slurmctld", *self.places["n1"][1], "slurmctld", "-D", "-i", "-f", self.configuration)
        for name in self.places:
            self.start_node(name)
        self._wait(lambda: self.state() == "idle", "both nodes are idle")
        self.own = set(processes_of(self.configuration))

    def _start(self, name, *command, **variables):
        words = [str(word) for word in command]
        with open(self.folder / "log" / name, "a") as file:
            self.daemons[name] = subprocess.Popen(
                words, env={**self.environment, **variables}, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def start_node(self, name):
        """Start the daemon of a node; the processes of its steps have the variable that the tasks have."""
        self._start(name, *self.places[name][1], "slurmd", "-D", "-N", name, SLURMD_NODENAME=name)

    def _wait(self, condition, what):
        try:
            wait_until(condition, 30)
        except AssertionError:
            said = "\n".join(f"-- {log.name}\n{log.read_text()[-2000:]}" for log in (self.folder / "log").iterdir())
            raise RuntimeError(f"after 30 s it is not so that {what}:\n{said}") from None

    def ask(self, *command, check=True):
        """Return the output of a command of Slurm."""
        words = [*self.places["n1"][1], *command]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self):
        """Return the states of the nodes, one where they are the same."""
        return " ".join(sorted(set(self.ask("sinfo", "-hN", "-o", "%t", check=False).split())))

    def srun(self, *words):
        """Return a command that runs tasks with PMIx."""
        return [*self.places["n1"][1], "srun", "--mpi=pmix", *map(str, words)]

    def steps(self):
        """Return {pid: command} of the processes other than the daemons."""
        return {pid: said for pid, said in processes_of(self.configuration).items() if pid not in self.own}

    def stop_node(self, name):
        """Kill the daemon of a node, and nothing else."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def lose(self, name):
        """Kill the daemon of a node and all that runs there, as a loss of power does."""
        self.stop_node(name)
        for pid in self.steps():
            with contextlib.suppress(OSError):
                if f"SLURMD_NODENAME={name}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)

    def settle(self):
        """End the jobs of a test, and bring back the nodes that it has lost; nothing runs then."""
        self.ask("scancel", "--full", "-u", str(os.geteuid()))
        for name in set(self.places) - set(self.daemons):
            self.start_node(name)
            self.own.add(self.daemons[name].pid)
        self._wait(lambda: self.state() == "idle" and not self.steps(), "nothing runs and both nodes are idle")

    def end(self):
        """Stop the daemons, and remove their files."""
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in processes_of(self.configuration):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(self.configuration))
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def running(places):
    """Give a Slurm of these places."""
    made = Slurm(places)
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def slurm_here():
    """Two nodes of this host."""
    with running([("127.0.0.1", [])] * 2) as made:
        yield made


@pytest.fixture(scope="module")
def slurm_of_hosts(hosts):  # noqa: F811
    """Two nodes, each a host of its own."""
    with running([(hosts.address[name], hosts.on(name)) for name in "ab"]) as made:
        yield made
