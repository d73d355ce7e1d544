"""The systems of the table: how each is started by documented means, and the words that name a peer in its errors.

A system's documented deadline is set to PATIENCE if its default is longer, so that waiting for it fits the table.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys

from job import START, CannotMeasure

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 30  # seconds
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+\]?:\d+")
NO_SERVER = "no server: peers talk to each other"
NO_HEAD = "no head: agents find each other by address"
NO_TOKEN = "no token: who reaches the port takes part"


class System:
    """A system: `name` in the command, `title` in the table; `not_here` has faults that do not apply, and why."""

    not_here = {}
    has_keys = False
    can_ask_head = False  # True if the worker's script has a call that needs the head
    head_words = ("head",)
    services = ()  # processes that serve until they are killed
    bandwidth_workers = 2

    def __init__(self, arguments):
        self.python = self.find_python(arguments)

    def find_python(self, arguments):
        return pathlib.Path(arguments.peers) / self.name / "bin" / "python"

    def version(self):
        """Return the version of the package; raise CannotMeasure with the reason if it cannot be used here."""
        if not self.python.exists():
            log = self.python.parents[1] / "install.log"
            raise CannotMeasure(f"not installed: {last_line(log.read_text()) if log.exists() else f'no {self.python}'}")
        done = subprocess.run([self.python, "-c", self.ask_version], capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise CannotMeasure(f"{last_line(done.stderr)[:120]}…")
        return last_line(done.stdout)

    def words_for(self, name):
        """Return the words by which an error names that process."""
        return [name]


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"


class TensorKV(System):
    """A head, a server and two workers started by hand, as docs/launching.md says, with default timeouts."""

    name, title, has_keys, can_ask_head = "tensorkv", "TensorKV", True, True
    ask_version = "import tensorkv; print(tensorkv.__version__)"
    bandwidth_workers = 1

    def __init__(self, arguments, transport="auto"):
        super().__init__(arguments)
        self.transport = transport
        self.old_site = arguments.old_site

    def find_python(self, arguments):
        return pathlib.Path(sys.executable)

    def token(self, job, name="token"):
        path = job.folder / name
        if not path.exists():
            path.touch(0o600)
            path.write_text(os.urandom(32).hex())
        return path

    def start(self, job, workers=2):
        transport = "tcp" if job.hosts else self.transport
        self.variables = {"TKV_TOKEN_FILE": self.token(job), "TKV_JOB": "faults", "TKV_TRANSPORT": transport}
        self.variables |= {"TKV_WORKERS": workers, "TKV_SERVERS": 1}
        self.tkv = pathlib.Path(sys.executable).parent / "tkv"
        where = ["--head", f"tcp:{job.address('head')}:0"] if transport == "tcp" else []
        job.start("head", [self.tkv, "head", *where], self.variables)
        self.variables["TKV_HEAD"] = job.wait_for_line("head", "head listens at").split()[-1]
        job.start("server 0", [self.tkv, "server"], {**self.variables, "TKV_RANK": 0})
        for rank in range(workers):
            self.start_worker(job, rank)

    def start_worker(self, job, rank, as_name=None, **more):
        variables = {**self.variables, "TKV_ROLE": "worker", "TKV_RANK": rank, **more}
        job.start(f"worker {rank}", [self.python, HERE / "tensorkv_worker.py"], variables, as_name)

    def start_again(self, job):
        self.start_worker(job, 1, "worker 1 again")

    def start_stranger(self, job):
        self.start_worker(job, 1, "stranger", TKV_TOKEN_FILE=self.token(job, "another"))

    def start_other_version(self, job):
        if not self.old_site:
            raise CannotMeasure("no package of another version was given: --old-site")
        self.start_worker(job, 1, "stranger", PYTHONPATH=self.old_site, PYTHONDONTWRITEBYTECODE=1)


class MXNet(System):
    """A scheduler, a server and two workers by the variables of its launcher."""

    name, title, has_keys = "mxnet", "MXNet 1.9.1, ps-lite", True
    ask_version = "import mxnet; print(mxnet.__version__)"
    head_words = ("scheduler", "head")
    bandwidth_workers = 1
    not_here = {
        "wrong token": NO_TOKEN,
        "another version": "no version is exchanged; another ps-lite is not on PyPI for this Python",
    }

    def find_python(self, arguments):
        return pathlib.Path(arguments.mxnet)

    def start(self, job, workers=2):
        self.variables = {"DMLC_PS_ROOT_URI": job.address("head"), "DMLC_PS_ROOT_PORT": 9000}
        self.variables |= {"DMLC_NUM_WORKER": workers, "DMLC_NUM_SERVER": 1}
        for name, role in (("head", "scheduler"), ("server 0", "server")):
            variables = {**self.variables, "DMLC_ROLE": role, "DMLC_NODE_HOST": job.address(name)}
            job.start(name, [self.python, "-c", "import mxnet"], variables)
        for rank in range(workers):
            self.start_worker(job, rank)

    def start_worker(self, job, rank, as_name=None):
        name = f"worker {rank}"
        variables = {**self.variables, "DMLC_ROLE": "worker", "DMLC_NODE_HOST": job.address(name)}
        job.start(name, [self.python, HERE / "mxnet_worker.py"], variables, as_name)

    def start_again(self, job):
        """Start another worker: the scheduler assigns ranks, so that only a worker too many is possible."""
        self.start_worker(job, 1, "worker 1 again")


class Gloo(System):
    """Two ranks of `torch.distributed`, which meet at a TCPStore in another process."""

    name, title = "gloo", "Gloo (torch.distributed)"
    ask_version = "import torch, torch.distributed; torch.distributed.is_gloo_available() or exit('no Gloo'); print('torch', torch.__version__)"
    head_words = ("store", "master")
    services = ("head",)
    not_here = {
        "server killed": NO_SERVER,
        "server stopped": NO_SERVER,
        "full disk": "Gloo keeps nothing that could be saved",
        "wrong token": NO_TOKEN,
    }

    def find_python(self, arguments):
        return pathlib.Path(sys.executable)

    def start(self, job, workers=2):
        self.variables = {"MASTER_ADDR": job.address("head"), "MASTER_PORT": 9100, "WORLD_SIZE": workers}
        self.variables |= {"FAULTS_PATIENCE": PATIENCE}
        job.start("head", [self.python, HERE / "gloo_worker.py", "head"], self.variables)
        job.wait_for_line("head", "listens")
        for rank in range(workers):
            self.start_worker(job, rank)

    def start_worker(self, job, rank, as_name=None):
        interface = {"GLOO_SOCKET_IFNAME": "cable" if job.hosts else "lo"}
        variables = {**self.variables, "RANK": rank, **interface}
        job.start(f"worker {rank}", [self.python, HERE / "gloo_worker.py"], variables, as_name)

    def start_again(self, job):
        self.start_worker(job, 1, "worker 1 again")

    def start_other_version(self, job):
        raise CannotMeasure("a second torch is 3 GB; Gloo exchanges no version")

    def words_for(self, name):
        return [name.replace("worker", "rank"), name.replace("worker ", "rank=")]


class NIXL(System):
    """Two agents with listeners; worker 0 writes into the memory of worker 1."""

    name, title = "nixl", "NIXL"
    ask_version = "import importlib.metadata, nixl._api; print(importlib.metadata.version('nixl'))"
    not_here = {
        "server killed": NO_SERVER,
        "server stopped": NO_SERVER,
        "head killed": NO_HEAD,
        "head stopped": NO_HEAD,
        "full disk": "NIXL moves bytes and keeps none",
        "wrong token": NO_TOKEN,
    }

    def start(self, job, workers=2):
        for rank in reversed(range(workers)):
            self.start_worker(job, rank, 5500 + rank)

    def start_worker(self, job, rank, port, as_name=None):
        variables = {"RANK": rank, "PORT": port, "PEER_PORT": 5500 + 1 - rank}
        variables |= {"UCX_NET_DEVICES": "cable"} if job.hosts else {}
        variables["PEER_ADDRESS"] = job.address(f"worker {1 - rank}")
        variables["NIXL_LOG_LEVEL"] = "WARN"
        job.start(f"worker {rank}", [self.python, HERE / "nixl_worker.py"], variables, as_name)

    def start_again(self, job):
        self.start_worker(job, 1, 5502, "worker 1 again")

    def start_other_version(self, job):
        raise CannotMeasure("only one version is installed")


class Mooncake(System):
    """Two transfer engines over TCP and a metadata server; worker 0 writes worker 1's memory and reads it back."""

    name, title = "mooncake", "Mooncake Transfer Engine"
    ask_version = "import importlib.metadata, mooncake.engine; print(importlib.metadata.version('mooncake-transfer-engine-non-cuda'))"
    head_words = ("metadata",)
    services = ("head",)
    not_here = {
        "server killed": NO_SERVER,
        "server stopped": NO_SERVER,
        "full disk": "the transfer engine moves bytes and keeps none",
        "wrong token": NO_TOKEN,
    }

    def start(self, job, workers=2):
        server = self.python.parent / "mooncake_http_metadata_server"
        job.start("head", [server, "--host", job.address("head"), "--port", 9200], {"PYTHONUNBUFFERED": 1})
        job.wait_until(lambda: is_open(job.address("head"), 9200), START, "the metadata server")
        for rank in reversed(range(workers)):
            self.start_worker(job, rank)

    def start_worker(self, job, rank, as_name=None):
        variables = {"RANK": rank, "ADDRESS": job.address(f"worker {rank}"), "PORT": 9300 + rank}
        variables["METADATA"] = f"http://{job.address('head')}:9200/metadata"
        variables["MC_FORCE_TCP"] = 1
        job.start(f"worker {rank}", [self.python, HERE / "mooncake_worker.py"], variables, as_name)

    def start_again(self, job):
        self.start_worker(job, 1, "worker 1 again")

    def start_other_version(self, job):
        raise CannotMeasure("only one version is installed")

    def words_for(self, name):
        return [":9301"] if name.startswith("worker 1") else [":9300"] if name == "worker 0" else [name]


def is_open(address, port):
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


class TorchStore(System):
    """The newest torchstore with the newest torchmonarch, as pip installs them: they have not started together yet."""

    name, title, has_keys = "torchstore", "torchstore", True
    ask_version = """
import asyncio, importlib.metadata, torchstore
asyncio.run(torchstore.initialize())
print(importlib.metadata.version("torchstore"))
"""

    def start(self, job, workers=2):
        raise CannotMeasure("it starts, and bench/faults has no worker for it")


SYSTEMS = {system.name: system for system in (TensorKV, MXNet, Gloo, NIXL, Mooncake, TorchStore)}
