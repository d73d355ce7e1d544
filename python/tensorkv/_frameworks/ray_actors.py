"""The actors of a job under Ray: one with the head, which also says who is which worker, and one for each server.

Both are asynchronous actors. Their methods run on one event loop, so that no locks are needed; blocking calls run on a
thread. The head's address and the job's token are only ever in replies, because Ray writes arguments, names and
variables to its tables and logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from .. import _core
from .._store.log import logger
from ..errors import FailedPreconditionError

_LOOK_EVERY = 0.05  # seconds
_TELLING = 1.0  # seconds in which workers learn that the job has been stopped
_RESTORED = b"restored\n"  # what `tkv restorer` says


class Terms(NamedTuple):
    """The data that the processes of one run of a job share."""

    id: str
    url: str
    head: str  # the address in the URL
    token: str
    workers: int
    servers: int
    options: dict[str, Any]


class TensorKVServer:
    """The actor of one server. Ray starts it again in a fresh process, which holds nothing until `begin`."""

    def __init__(self, index: int) -> None:
        """Take the index of the server."""
        self._index = index
        self._run = 0
        self._service: _core.Service | None = None

    async def begin(self, head: Any, run: int) -> None:
        """Serve in a run of the job; the values of the one before are gone."""
        self._run = run
        self._service = None
        terms: Terms = await head.terms.remote(run)
        service = await asyncio.to_thread(
            _core.Service,
            "server",
            terms.id,
            terms.url,
            terms.token,
            self._index,
            terms.workers,
            terms.servers,
            terms.options,
        )
        if self._run == run:
            self._service = service

    async def serve(self, run: int) -> None:
        """Return when all workers of that run have left, or another one has begun."""
        service = self._service
        while service is not None and self._run == run:
            if await asyncio.to_thread(service.wait, 0.5):
                return

    async def run(self) -> int:
        """Return which run it serves in; 0: in none."""
        return self._run

    async def node(self) -> str:
        """Return the address of its machine."""
        return str(ray.util.get_node_ip_address())


class Phase(enum.Enum):
    """How far a run is."""

    STARTING = "servers start"
    RESTORING = "a snapshot is put back"
    READY = "ready"
    ENDED = "ended"
    LOST = "lost"


class Lost(Exception):
    """A server has gone, and its values with it."""

    def __init__(self, index: int, why: str) -> None:
        """Keep the number of the server; `why` is Ray's reason."""
        super().__init__(why)
        self.index = index


class Owner(NamedTuple):
    """The identity of a worker: a driver, or an actor or task, whose id stays the same when Ray restarts it."""

    kind: str
    id: str

    def __str__(self) -> str:
        """Return it as errors show it."""
        return f"{self.kind} {self.id}"


class TensorKVHead:
    """The actor with the head: makes one run of the job after another, and gives workers their places."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        """Keep the plan that `start` has made."""
        self._name: str = plan["name"]
        self._workers: int = plan["workers"]
        self._patience: float = plan["patience"]
        self._options: dict[str, Any] = plan["options"]
        self._saving: dict[str, Any] = plan["saving"]  # the options of stores that save snapshots
        self._snapshots: str | None = plan["snapshots"]
        self._has_saved = False  # a snapshot was there
        self._servers: list[Any] = []
        self._group: Any = None
        self._token = _core.new_token()
        self._phase = Phase.STARTING
        self._why = ""  # it ended or is lost
        self._run = 0
        self._terms: Terms | None = None
        self._serving: set[int] = set()
        self._service: _core.Service | None = None
        self._service_before: _core.Service | None = None
        self._owners: dict[int, Owner] = {}
        self._placed: set[Owner] = set()  # in this run
        self._life: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------------------------------------- runs

    async def begin(self, servers: list[Any], group: Any) -> None:
        """Start the job on the actors of its servers; `group` is a placement group that ends with it, or None."""
        self._servers, self._group = servers, group
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        """Make runs until all workers have left, or values are lost for good."""
        try:
            while True:
                try:
                    await self._run_once()
                    self._phase, self._why = Phase.ENDED, "all its workers have left"
                    return self._release()
                except Lost as lost:
                    logger.warning("job %s: server %d has died: %s", self._name, lost.index, lost)
                    if self._service is not None:  # the workers learn it at once, from wherever they are
                        await asyncio.to_thread(self._service.exited, "server", lost.index)
                    if self._owners and self._snapshots is None:
                        self._phase = Phase.LOST
                        self._why = (
                            f"server {lost.index} has died, and its values are lost: there are no snapshots to go on"
                            " from; stop the job and start another one, with snapshots= and snapshot_every= to go on by"
                            " itself"
                        )
                        return
        except Exception as error:
            self._phase, self._why = Phase.LOST, reason(error)
            logger.warning("job %s is lost: %s", self._name, self._why)

    async def _run_once(self) -> None:
        """Return when all workers have left.

        Raises:
            Lost: a server has died.
        """
        self._run += 1
        self._phase = Phase.STARTING
        self._serving, self._placed = set(), set()
        # A process that is still in the run before leaves it by its head, and a process knows jobs by their ids.
        self._service_before = self._service
        job_id = f"{self._name}-{_core.new_token()[:8]}"
        size = (self._workers, len(self._servers))
        self._service = await asyncio.to_thread(
            _core.Service, "head", job_id, "", self._token, -1, *size, self._options
        )
        self._terms = Terms(job_id, self._service.url, self._service.address, self._token, *size, self._options)
        tasks = [asyncio.create_task(self._serve(index)) for index in range(len(self._servers))]
        tasks.append(asyncio.create_task(self._get_ready()))
        looking = asyncio.create_task(self._look_for_save())
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, looking):
                task.cancel()
            await asyncio.gather(*tasks, looking, return_exceptions=True)

    async def _serve(self, index: int) -> None:
        """Return when the server is of no more use.

        Raises:
            Lost: its actor has died. Ray starts it again.
        """
        server, run = self._servers[index], self._run
        own = ray.get_runtime_context().current_actor
        while True:
            try:
                await server.begin.remote(own, run)
                break
            except ActorUnavailableError:  # it is being started again
                await asyncio.sleep(_LOOK_EVERY)
        self._serving.add(index)
        try:
            await server.serve.remote(run)
        except RayActorError as error:
            raise Lost(index, reason(error)) from error

    async def _get_ready(self) -> None:
        """Put a snapshot back, if there is one, and let workers in.

        Raises:
            FailedPreconditionError: there was a snapshot, and it is gone; the job would begin anew.
        """
        while len(self._serving) < len(self._servers):
            await asyncio.sleep(_LOOK_EVERY)
        if self._snapshots is None or not await asyncio.to_thread(_core.has_snapshot, self._snapshots):
            if self._has_saved:
                raise FailedPreconditionError(f"there is no snapshot in {self._snapshots} any more")
            self._phase = Phase.READY
            return
        self._has_saved = True
        self._phase = Phase.RESTORING
        logger.info("job %s goes on from the snapshot in %s", self._name, self._snapshots)
        assert self._terms is not None
        with Restorers(self._terms, self._snapshots) as restorers:
            await asyncio.to_thread(restorers.wait_until_restored)
            self._phase = Phase.READY
            # The restorers end one by one when the workers come; the rest of them ends with the run.
            while not restorers.have_ended():
                await asyncio.sleep(1)

    async def _look_for_save(self) -> None:
        """Return when there is a snapshot. Without this a lost folder looks like one in which nothing was saved."""
        while self._snapshots is not None and not self._has_saved:
            await asyncio.sleep(1)
            with contextlib.suppress(Exception):  # a damaged one is an error where it is put back
                self._has_saved = await asyncio.to_thread(_core.has_snapshot, self._snapshots)

    async def terms(self, run: int) -> Terms:
        """Return the data that a server needs for that run."""
        if run != self._run or self._terms is None:
            raise FailedPreconditionError(f"run {run} is over")
        return self._terms

    async def end(self) -> None:
        """End the job, its servers and its placement group."""
        self._phase, self._why = Phase.ENDED, "it has been stopped"
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        self._release()
        if self._service is not None and self._placed:
            # Open stores learn of the end from the head, which stays until they have had time to.
            await asyncio.to_thread(self._service.exited, "server", 0)
            await asyncio.to_thread(self._service.wait, _TELLING)
        self._service = self._service_before = None

    def _release(self) -> None:
        """Release the servers' actors and their placement group."""
        for server in self._servers:
            ray.kill(server)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)

    # --------------------------------------------------------------------------------------------------------- places

    async def look(self) -> dict[str, Any]:
        """Return where the job is and how far; the URL is None if there is none."""
        return {
            "url": self._terms and self._terms.url,
            "token": self._token,
            "phase": self._phase.value,
            "why": self._why,
            "run": self._run,
            "owners": {rank: str(owner) for rank, owner in sorted(self._owners.items())},
            "options": self._options,
            "saving": self._saving,
            "patience": self._patience,
        }

    async def ready(self) -> dict[str, Any]:
        """Return, when workers can come or never will, an error or {}."""
        return await self._until_ready(time.monotonic() + self._patience)

    async def place(self, kind: str, identity: str, rank: int | None, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the store of a worker, or an error, after at most the job's patience.

        Args:
            kind: of the worker's owner.
            identity: of the owner.
            rank: that it asks for, or None.
            said: its options for the whole job.
        """
        own = {"on_death": self._options["on_death"], "num_workers": self._workers, "servers": len(self._servers)}
        for name, value in said.items():
            if value != own[name]:
                argument = "workers" if name == "num_workers" else name
                return _error(
                    "InvalidArgumentError",
                    f"store: {name}={value!r}, and job '{self._name}' has {own[name]!r}: {argument}= of"
                    " tensorkv.ray.start() says it for all",
                )
        owner, deadline = Owner(kind, identity), time.monotonic() + self._patience
        while True:
            if error := await self._until_ready(deadline):
                return error
            # A worker that asks again may have noticed the death of a server before Ray has reported it.
            if owner not in self._placed or await self._do_all_serve(deadline):
                break
            if time.monotonic() > deadline:
                return self._late("a server does not answer")
            await asyncio.sleep(_LOOK_EVERY)
        found = await self._rank_of(owner, rank)
        if isinstance(found, dict):
            return found
        self._placed.add(owner)
        assert self._terms is not None
        options = {name: value for name, value in self._options.items() if name != "rows_dir"}  # that of the servers
        place = {"url": self._terms.url, "token": self._token, "rank": found}
        return {"place": place, "options": {**options, **self._saving}}

    async def _until_ready(self, deadline: float) -> dict[str, Any]:
        """Return {} when workers may come, or an error."""
        while self._phase is not Phase.READY:
            if self._phase in (Phase.ENDED, Phase.LOST):
                verb = "has ended" if self._phase is Phase.ENDED else "is lost"
                return _error("FailedPreconditionError", f"job '{self._name}' {verb}: {self._why}")
            if time.monotonic() > deadline:
                away = [f"server {i}" for i in range(len(self._servers)) if i not in self._serving]
                return self._late(f"not there: {', '.join(away)}" if away else self._phase.value)
            await asyncio.sleep(_LOOK_EVERY)
        return {}

    def _late(self, why: str) -> dict[str, Any]:
        return _error("DeadlineExceededError", f"waited {self._patience:g} s for job '{self._name}': {why}")

    async def _do_all_serve(self, deadline: float) -> bool:
        """Return whether the actors of all servers live, and serve in this run."""
        run = self._run
        asked = [server.run.remote() for server in self._servers]
        try:
            left = max(_LOOK_EVERY, deadline - time.monotonic())
            replies = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), left)
        except asyncio.TimeoutError:
            return False
        return replies == [run] * len(self._servers)

    async def _rank_of(self, owner: Owner, wanted: int | None) -> int | dict[str, Any]:
        """Return the rank of an owner, which gets one where it has none, or an error."""
        if wanted is not None and not 0 <= wanted < self._workers:
            return _error(
                "InvalidArgumentError",
                f"rank={wanted}: job '{self._name}' has {self._workers} workers, 0 to {self._workers - 1}",
            )
        for rank, other in self._owners.items():
            if other == owner and wanted in (None, rank):
                return rank
            if other == owner:
                return _error("InvalidArgumentError", f"rank={wanted}: this {owner} is worker {rank} already")
        free = [rank for rank in range(self._workers) if rank not in self._owners and wanted in (None, rank)]
        if not free:
            taken = {rank: other for rank, other in self._owners.items() if wanted in (None, rank)}
            dead = {rank for rank, other in taken.items() if await asyncio.to_thread(is_gone, other)}
            free = sorted(rank for rank in dead if self._owners.get(rank) == taken[rank])
        if not free:
            owners = ", ".join(f"{rank} is {other}" for rank, other in sorted(self._owners.items())[:8])
            what = f"rank={wanted} is taken" if wanted is not None else f"all {self._workers} places are taken"
            return _error(
                "FailedPreconditionError",
                f"job '{self._name}': {what} ({owners}); a place is free again when its actor is dead for good, and"
                " tensorkv.ray.start(workers=...) says how many there are",
            )
        self._owners[free[0]] = owner
        return free[0]


def _error(name: str, text: str) -> dict[str, Any]:
    """Return an error as data, because Ray would put an exception into one of its own, after its traceback."""
    return {"error": name, "text": text}


def reason(error: Exception) -> str:
    """Return an error of Ray in one line: its first one, and the last one, which says why."""
    lines = str(getattr(error, "cause", error)).strip().splitlines() or [type(error).__name__]
    return " ".join(dict.fromkeys([lines[0].strip(), lines[-1].strip()]))


def is_gone(owner: Owner) -> bool:
    """Return whether an actor is dead for good. Ray keeps no such record of tasks and drivers."""
    from ray._private.state import actors  # the public one needs Ray's dashboard

    return owner.kind == "actor" and actors(owner.id).get("State") == "DEAD"


class Restorers:
    """The first incarnations of all ranks: processes that load a snapshot and end when the workers come."""

    def __init__(self, terms: Terms, folder: str) -> None:
        """Start them."""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._said = [tempfile.TemporaryFile() for _ in range(terms.workers)]  # by each on standard error
        # A file for the token that has no name, and that only this user can read.
        token = os.memfd_create("tensorkv-token")
        try:
            os.fchmod(token, 0o600)
            os.write(token, terms.token.encode())
            for rank in range(terms.workers):
                self._processes.append(self._started(terms, rank, token))
        except BaseException:
            self.end()
            raise
        finally:
            os.close(token)

    def _started(self, terms: Terms, rank: int, token: int) -> subprocess.Popen[bytes]:
        own = {"TKV_RANK": str(rank), "TKV_TOKEN_FILE": f"/proc/self/fd/{token}"}
        return subprocess.Popen(
            [sys.executable, "-m", "tensorkv", "restorer", self._folder],
            env={**_clean_environment(), **dict(_variables(terms)), **own},
            pass_fds=[token],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said[rank],
        )

    def wait_until_restored(self) -> None:
        """Return when all have said so; each of them has deadlines of its own.

        Raises:
            FailedPreconditionError: one has failed.
        """
        for rank, process in enumerate(self._processes):
            assert process.stdout is not None
            if process.stdout.readline() != _RESTORED:
                self._said[rank].seek(0)
                said = self._said[rank].read().decode(errors="replace").strip()
                raise FailedPreconditionError(f"restore {self._folder}: worker {rank}: {said}")

    def have_ended(self) -> bool:
        """Return whether all restorers have ended, as they do when the workers take their places."""
        return all([process.poll() is not None for process in self._processes])  # each is asked: none stays a zombie

    def end(self) -> None:
        """End the processes that are left."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for said in self._said:
            said.close()

    def __enter__(self) -> Restorers:
        """Return them."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End them."""
        self.end()


def _clean_environment() -> dict[str, str]:
    """Return the environment without variables that would assign this process to another job."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TKV_", "DMLC_", "PMIX_"))}


def _variables(terms: Terms) -> Iterator[tuple[str, str]]:
    """Yield the variables by which a process of its own is a worker of the job."""
    yield "TKV_HEAD", terms.head
    yield "TKV_JOB", terms.id
    yield "TKV_ROLE", "worker"
    yield "TKV_WORKERS", str(terms.workers)
    yield "TKV_SERVERS", str(terms.servers)
    texts = _core.options_in_force("dist_sync", terms.options)
    for row in _core.option_table():
        if {row["name"], row["seconds"]} & terms.options.keys():
            yield row["environment"], texts[row["name"]]
