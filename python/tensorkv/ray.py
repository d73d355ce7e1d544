"""Jobs whose servers are actors of Ray, and whose workers are any actors, tasks or drivers: ``tensorkv.ray``.

This module needs Ray; ``import tensorkv`` does not load it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

try:
    import ray
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "tensorkv.ray needs Ray, which is not installed here: pip install 'ray>=2.40'", name="ray"
    ) from error

from . import _core, errors
from ._array.files import replaced
from ._hints import check_names
from ._store.bootstrap import RAY_PREFIX
from ._store.create import observer
from ._store.kvstore import KVStore
from .errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    KeyNotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._types import OnDeath

_OLDEST = (2, 40)
if tuple(int(part) for part in ray.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(f"tensorkv.ray needs Ray {_OLDEST[0]}.{_OLDEST[1]} or later, this is {ray.__version__}")

from ray.exceptions import GetTimeoutError, RayActorError  # noqa: E402
from ray.util.placement_group import PlacementGroup  # noqa: E402
from ray.util.scheduling_strategies import (  # noqa: E402
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from ._frameworks.ray_actors import TensorKVHead, TensorKVServer, reason  # noqa: E402

__all__ = ["Job", "job", "start"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_ANSWER = 10.0  # seconds in which a head actor answers a call that needs no waiting
_OVER = ("ended", "lost")  # phases
_OF_CONNECTIONS = {"transport", "tls", "check_values", "silence", "silence_ms"}
_OF_OBSERVERS = {"patience", "server_patience", "threads", "log"} | _OF_CONNECTIONS
_NOT_HERE = {"snapshots", "snapshot_every", "on_death", "patience", "servers", "failpoints"}

_SERVERS = "tensorkv-servers:"  # of the names of their actors and placement groups, behind it the job's name

# The jobs that this driver has started, by namespace and name. Ray ends an actor without references, so they are kept.
_started: dict[tuple[str, str], _Started] = {}


class _Started:
    """The actors of a job."""

    def __init__(self, head: Any) -> None:
        self.actors = [head]


class Job:
    """A job of the cluster; make one with `start`, find one with `job`.

    A Job may be passed to actors and tasks, which call `store` to become workers. As a context manager it stops the job
    at the end of the block.
    """

    def __init__(self, name: str, namespace: str, patience: float) -> None:
        """Take the name and Ray's namespace of the job; see `start`."""
        self.name = name
        self.namespace = namespace
        self.patience = patience

    def store(self, type: str = "dist_sync", rank: int | None = None, **options: Any) -> KVStore:
        """Return a store of this actor, task or driver, which is a worker of the job from now on.

        An actor that Ray restarts after its death is the same worker: the next incarnation of its rank.
        If a worker had pushed before, `KVStore.rejoined` is true, and `KVStore.round` says from which push on it continues. The same holds for a
        task that Ray retries. If a server has died and the job has snapshots, this call waits until the job has
        restarted from them.

        Args:
            type: as in `create`, a distributed one.
            rank: of this worker; default the lowest that is free. A rank whose actor is dead for good is free again.
            options: as in `create`; they go before those of `start`.

        Raises:
            FailedPreconditionError: all places are taken, or that of `rank` is; the job has ended, or is lost with a server.
            DeadlineExceededError: servers are not there after the job's patience.
            UnavailableError: the head's actor is dead.
            KeyNotFoundError: the job has been stopped, or its driver has ended.
        """
        if not _core.is_distributed(type):
            raise InvalidArgumentError(
                f"store: type={type!r}; a store of a job is a distributed one, such as 'dist_sync'"
            )
        return KVStore(type, **self._options({**options, "rank": rank}))

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a store of this process, which has a place in the job from now on."""
        for name in ("url", "token_file", "bootstrap"):
            if given.get(name) is not None:
                raise InvalidArgumentError(f"store: {name} says which job is meant, and this is job '{self.name}'")
        own = {
            name: value for name, value in given.items() if value is not None and name not in ("rank", "num_workers")
        }
        _core.options_in_force("dist_sync", own)  # checks them: a place is taken for good
        saving = {"snapshots", "snapshot_every"}
        if own.keys() & saving and not saving <= own.keys() | self._look()["saving"].keys():
            raise InvalidArgumentError("store: snapshots and snapshot_every go together")
        rank = given.get("rank")
        if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int)):
            raise InvalidArgumentError(f"store: rank={rank!r}, a whole number is needed")
        kind, identity = _owner()
        said = {name: given[name] for name in ("on_death", "num_workers", "servers") if given.get(name) is not None}
        reply = self._ask("place", kind, identity, rank, said, longest=self.patience + _ANSWER)
        return {**_without(reply["options"], own), **own, **reply["place"]}

    @property
    def url(self) -> str:
        """The address of the job, as `KVStore.url`; another one when the job has restarted after a server's death."""
        return self._url("url", self._look())

    def status(self) -> dict[str, Any]:
        """Return the state of the job as `KVStore.status` does, with its state under Ray.

        phase: ``'servers start'``, ``'a snapshot is put back'``, ``'ready'``, ``'ended'`` or ``'lost'``, with ``why``.
        run: how often the servers have started; every later start loads the newest snapshot.
        owners: which actor, task or driver each rank is.

        A job that has ended or is lost has these entries alone.
        """
        look = self._look()
        try:
            with self._observer("status", look) as eye:
                core = eye.status()
        except (FailedPreconditionError, UnavailableError, DeadlineExceededError):
            look = self._look()
            if look["url"] is not None and look["phase"] not in _OVER:
                raise
            core = {}
        return {**core, **{name: look[name] for name in ("phase", "why", "run", "owners")}}

    def connect(self, **options: Any) -> KVStore:
        """Return a store that looks at the job and reads its values from outside, in any process that Ray connects.

        Args:
            options: as in `tensorkv.kv.connect`, which describes such a store.

        Raises:
            FailedPreconditionError: the job has ended.
            UnavailableError: the head's actor is dead.
            KeyNotFoundError: the job has been stopped, or its driver has ended.
        """
        for name in ("url", "token_file"):
            if name in options:
                raise InvalidArgumentError(f"connect: {name} says which job is meant, and this is job '{self.name}'")
        check_names("connect", "option", [name for name in options if name != "store"], _OF_OBSERVERS)
        return self._observer("connect", self._look(), **options)

    def write_token(self, path: str | os.PathLike[str]) -> None:
        """Write the secret of the job to a file that only this user can read, for commands outside of Ray.

        ``TKV_TOKEN_FILE=PATH tkv status URL`` looks at the job then; `url` is the URL. The secret stays the same for
        the whole job, also when the job restarts after a server's death.

        Raises:
            InvalidArgumentError: there is something else than a regular file.
            OSError: the file cannot be written; it is as it was.
        """
        token = self._look()["token"]
        with replaced(path, 0o600) as out:
            out.write(f"{token}\n".encode())

    def _observer(self, verb: str, look: Mapping[str, Any], *, store: int = 0, **options: Any) -> KVStore:
        """Return a store that looks at the job, of whose options it takes those of connections."""
        own = {name: value for name, value in options.items() if value is not None}
        shared = {name: value for name, value in _without(look["options"], own).items() if name in _OF_CONNECTIONS}
        return observer(self._url(verb, look), {**shared, **own, "token": look["token"]}, store)

    def stop(self) -> None:
        """End the job and its servers, wherever it is called. Idempotent.

        Stores that are open get UnavailableError within a second, which says that a server is dead.
        """
        started = _started.pop((self.namespace, self.name), None)
        with contextlib.suppress(KeyNotFoundError, UnavailableError, DeadlineExceededError):
            self._ask("end", longest=_ANSWER)
        with contextlib.suppress(KeyNotFoundError):
            ray.kill(self._head())
        for actor in started.actors if started is not None else ():
            ray.kill(actor)
        self._end_what_is_left()

    def _end_what_is_left(self) -> None:
        """End the servers and the placement group of a head that has died, also if another driver has started them."""
        mine = f"{_SERVERS}{self.name}:"
        for found in ray.util.list_named_actors(all_namespaces=True):
            if found["namespace"] == self.namespace and found["name"].startswith(mine):
                with contextlib.suppress(ValueError):  # it has ended meanwhile
                    ray.kill(ray.get_actor(found["name"], self.namespace))
        for group in ray.util.placement_group_table().values():
            if group["name"].startswith(mine) and group["state"] != "REMOVED":
                with contextlib.suppress(ValueError):  # as above, or another namespace has it
                    ray.util.remove_placement_group(ray.util.get_placement_group(group["name"]))

    def __enter__(self) -> Self:
        """Return the job."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the job."""
        self.stop()

    def __repr__(self) -> str:
        """Return the name and the namespace."""
        return f"<Job '{self.name}' in Ray's namespace '{self.namespace}'>"

    def _url(self, verb: str, look: Mapping[str, Any]) -> str:
        if look["url"] is None:
            raise UnavailableError(f"{verb}: job '{self.name}' has no head yet: {look['phase']}")
        return cast("str", look["url"])

    def _look(self) -> dict[str, Any]:
        return self._ask("look", longest=_ANSWER)

    def _has_lost_its_head(self) -> bool:
        """Return whether the head actor of a job of this name is dead; its servers may live, and its name is taken."""
        try:
            self._look()
        except UnavailableError:
            return True
        except (KeyNotFoundError, DeadlineExceededError):
            pass
        return False

    def _head(self) -> Any:
        """Return the actor that has the head."""
        _check_connected("job")
        try:
            return ray.get_actor(RAY_PREFIX + self.name, self.namespace)
        except ValueError as error:
            raise KeyNotFoundError(
                f"job '{self.name}': there is none in Ray's namespace '{self.namespace}': it has been stopped, its driver has"
                " ended, or its head's actor has died; tensorkv.ray.start() starts one"
            ) from error

    def _ask(self, method: str, *arguments: Any, longest: float) -> dict[str, Any]:
        """Return the reply of the head's actor to a method call."""
        try:
            reply = ray.get(getattr(self._head(), method).remote(*arguments), timeout=longest)
        except GetTimeoutError as error:
            raise DeadlineExceededError(
                f"job '{self.name}': waited {longest:g} s for the actor of its head, which does not answer"
            ) from error
        except RayActorError as error:
            raise UnavailableError(
                f"job '{self.name}': the actor of its head is dead, and nobody can join: {reason(error)}; stop the"
                " job and start another one"
            ) from error
        if reply and "error" in reply:
            raise getattr(errors, reply["error"])(reply["text"])
        return cast("dict[str, Any]", reply)


def start(
    workers: int,
    servers: int = 1,
    *,
    name: str = "job",
    placement: str | PlacementGroup | None = "SPREAD",
    on_death: OnDeath = "wait",
    resources: Mapping[str, Any] | None = None,
    snapshots: str | os.PathLike[str] | None = None,
    snapshot_every: str | int | None = None,
    patience: float = 60.0,
    **options: Any,
) -> Job:
    """Start a job: an actor with its head, and one for each server. The job ends with `Job.stop`, or with this driver.

    Args:
        workers: number of workers, which are not started here: any actor or task is one by `Job.store`.
        servers: number of servers.
        name: of the job; the head's actor is named ``'tensorkv:NAME'`` in this driver's namespace.
        placement: how the servers are spread over the nodes: a strategy of Ray's placement groups (``'SPREAD'``,
            ``'PACK'``, ``'STRICT_SPREAD'``, ``'STRICT_PACK'``), a placement group with a bundle for each server, or None for
            Ray's own choice.
        on_death: what a round does without a worker that has died, as in `create`; by default it waits for the next
            incarnation.
        resources: of each server's actor, as in Ray's ``options``; default ``{'num_cpus': 1}``.
        snapshots: a folder that all nodes see. A job continues from the newest snapshot there when it is started and
            when a server has died. Without a folder the death of a server ends the job.
        snapshot_every: how often the stores save there by themselves, as in `create`.
        patience: seconds that this call waits for the cluster's resources, and `Job.store` for servers.
        options: those of the whole job, as in `create`: ``transport``, ``silence``, ``staleness``, ``server_patience``, ...

    Raises:
        FailedPreconditionError: Ray is not connected.
        AlreadyExistsError: there is a job of that name.
        DeadlineExceededError: the cluster has no room for the servers; the error names the wanted and the available
            resources.
        ImportError: by ``import tensorkv.ray``: there is no Ray, or it is too old.
    """
    _check_connected("start")
    plan = _plan(workers, servers, name, on_death, snapshots, snapshot_every, patience, options)
    wanted = dict(resources) if resources is not None else {"num_cpus": 1}
    where = _Placement(placement, servers, wanted)
    deadline = time.monotonic() + patience
    context = ray.get_runtime_context()
    found = Job(name, context.namespace, patience)
    here = NodeAffinitySchedulingStrategy(context.get_node_id(), soft=True)
    # The head runs on the driver's node, because the job ends with either of them.
    actor = ray.remote(TensorKVHead).options(
        name=RAY_PREFIX + name, num_cpus=0, max_restarts=0, scheduling_strategy=here
    )
    try:
        if found._has_lost_its_head():
            found.stop()
        head = actor.remote(plan)
    except ValueError as error:
        if "taken" not in str(error) and "exists" not in str(error):
            raise
        raise AlreadyExistsError(
            f"start: there is a job '{name}' in Ray's namespace '{found.namespace}'; give another name, or stop that one:"
            f" tensorkv.ray.job('{name}').stop()"
        ) from error
    made = _started[found.namespace, name] = _Started(head)
    try:
        found._end_what_is_left()  # by a head of that name whose actor is gone
        own = f"{_SERVERS}{name}:{_core.new_token()[:8]}"
        group = where.reserve(own, deadline)
        actor = ray.remote(TensorKVServer)
        made.actors += [
            actor.options(
                name=f"{own}:{index}", max_restarts=-1, max_task_retries=0, **wanted, **where.of(index)
            ).remote(index)
            for index in range(servers)
        ]
        ray.get(head.begin.remote(made.actors[1:], group), timeout=max(1.0, deadline - time.monotonic()))
        found._ask("ready", longest=patience + _ANSWER)
    except (DeadlineExceededError, GetTimeoutError) as error:
        why = _shortage(servers, wanted, placement)
        found.stop()
        raise DeadlineExceededError(f"start: job '{name}': waited {patience:g} s; {why}") from error
    except BaseException:
        found.stop()
        raise
    return found


def job(name: str | None = None) -> Job:
    """Return a job of this driver's namespace; in an actor or a task that is the namespace of the driver that made it.

    Args:
        name: of the job; default that of the variable ``TKV_RAY_JOB``, else the only one there is.

    Raises:
        KeyNotFoundError: there is none.
        InvalidArgumentError: there are several; lists them.
    """
    _check_connected("job")
    name = name if name is not None else os.environ.get("TKV_RAY_JOB")
    if name is None:
        names = job_names()
        if len(names) > 1:
            raise InvalidArgumentError(
                f"job: there are {len(names)} in this namespace of Ray, {', '.join(names)}; TKV_RAY_JOB says which one is"
                " meant, or use tensorkv.ray.job(NAME).store()"
            )
        if not names:
            raise KeyNotFoundError("job: there is none in this namespace of Ray; tensorkv.ray.start() starts one")
        name = names[0]
    found = Job(name, ray.get_runtime_context().namespace, _ANSWER)
    with contextlib.suppress(UnavailableError):  # the head is dead, and the job can be stopped
        found.patience = found._look()["patience"]
    return found


def job_names() -> list[str]:
    """Return the names of the jobs of this namespace."""
    return sorted(n.removeprefix(RAY_PREFIX) for n in ray.util.list_named_actors() if n.startswith(RAY_PREFIX))


def _without(options: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the others do not say, in either unit."""
    said = set(others)
    for row in _core.option_table():
        names = {row["name"], row["seconds"]} - {""}
        if names & said:
            said |= names
    return {name: value for name, value in options.items() if name not in said}


def _check_connected(verb: str) -> None:
    if not ray.is_initialized():
        raise FailedPreconditionError(f"{verb}: Ray is not connected; call ray.init() first")


def _owner() -> tuple[str, str]:
    """Return kind and id of this driver, actor or task; they stay the same when Ray restarts an actor or task."""
    context = ray.get_runtime_context()
    if (actor := context.get_actor_id()) is not None:
        return "actor", actor
    if context.worker.mode == ray.WORKER_MODE:
        return "task", str(context.get_task_id())
    return "driver", context.get_job_id()


def _plan(
    workers: int,
    servers: int,
    name: str,
    on_death: str,
    snapshots: str | os.PathLike[str] | None,
    snapshot_every: str | int | None,
    patience: float,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments of the head's actor; raise if one is wrong."""
    for what, count in (("workers", workers), ("servers", servers)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidArgumentError(f"start: {what}={count!r}, a whole number from 1 on is needed")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise InvalidArgumentError(f"start: name={name!r}, up to 64 letters, digits and ._- are needed")
    if isinstance(patience, bool) or not isinstance(patience, (int, float)) or not patience > 0:
        raise InvalidArgumentError(f"start: patience={patience!r}, a number of seconds is needed")
    known = [text for row in _core.option_table() for text in (row["name"], row["seconds"]) if text]
    check_names("start", "option", options, [option for option in known if option not in _NOT_HERE])
    if options.get("insecure_network"):
        raise InvalidArgumentError("start: insecure_network has no effect: the head's actor makes a token for the job")
    if snapshot_every is not None and snapshots is None:
        raise InvalidArgumentError(f"start: snapshot_every={snapshot_every!r} needs snapshots=, the folder to save to")
    folder = None if snapshots is None else os.path.abspath(os.fspath(snapshots))
    if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):
        raise InvalidArgumentError(f"start: snapshots={folder!r} is a file, a folder is needed")
    saving = {"snapshots": folder, "snapshot_every": snapshot_every} if snapshot_every is not None else {}
    shared = {**{key: value for key, value in options.items() if value is not None}, "on_death": on_death}
    _core.options_in_force("dist_sync", {**shared, **saving})  # checks them
    return {
        "name": name,
        "workers": workers,
        "patience": float(patience),
        "options": shared,
        "saving": saving,
        "snapshots": folder,
    }


class _Placement:
    """The placement of the servers on the nodes."""

    def __init__(self, placement: str | PlacementGroup | None, servers: int, resources: Mapping[str, Any]) -> None:
        self._bundles = [_bundle(resources)] * servers
        self._strategy = placement if isinstance(placement, str) else None
        self._group = placement if isinstance(placement, PlacementGroup) else None
        if not isinstance(placement, (str, PlacementGroup, type(None))) or (
            self._strategy is not None and self._strategy not in _STRATEGIES
        ):
            raise InvalidArgumentError(
                f"start: placement={placement!r}; there are {', '.join(_STRATEGIES)}, a placement group, and None"
            )
        if self._group is not None and self._group.bundle_count < servers:
            raise InvalidArgumentError(
                f"start: the placement group has {self._group.bundle_count} bundles, and there are {servers} servers"
            )
        if self._strategy is not None and not any(self._bundles[0].values()):
            raise InvalidArgumentError(
                f"start: placement={placement!r} and resources={dict(resources)!r}: a bundle of a placement group has some;"
                " placement=None needs none"
            )

    def reserve(self, name: str, deadline: float) -> PlacementGroup | None:
        """Wait for the placement group; make the one of a strategy, under that name, and return it.

        Raises:
            DeadlineExceededError: the cluster has no room for it.
        """
        made = None
        if self._strategy is not None:
            made = self._group = ray.util.placement_group(self._bundles, self._strategy, name=name)
        try:
            if self._group is not None and not self._group.wait(max(0.1, deadline - time.monotonic())):
                raise DeadlineExceededError("the placement group is not there")
        except BaseException:
            if made is not None:
                ray.util.remove_placement_group(made)
            raise
        return made

    def of(self, index: int) -> dict[str, Any]:
        """Return the options of a server's actor that say where it goes."""
        if self._group is None:
            return {}
        return {"scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, index)}


def _bundle(resources: Mapping[str, Any]) -> dict[str, float]:
    """Return the resources that an actor takes of a node, under the names that nodes have for them."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    unknown = [name for name in resources if name not in (*names, "resources")]
    if unknown:
        raise InvalidArgumentError(
            f"start: resources has {', '.join(map(repr, unknown))}; there are {', '.join(names)}, and resources for others"
        )
    found = {names[name]: float(amount) for name, amount in resources.items() if name in names}
    return {**found, **{name: float(amount) for name, amount in resources.get("resources", {}).items()}}


def _shortage(servers: int, resources: Mapping[str, Any], placement: object) -> str:
    """Return a text with the resources that the servers need and those of the cluster."""
    total, free = ray.cluster_resources(), ray.available_resources()
    lines = [
        f"{name} {amount:g} (the cluster has {total.get(name, 0):g}, {free.get(name, 0):g} of it free)"
        for name, amount in _bundle(resources).items()
    ]
    nodes = sum(node["Alive"] for node in ray.nodes())
    apart = ", and STRICT_SPREAD a node for each" if placement == "STRICT_SPREAD" else ""
    return (
        f"{servers} servers, on {nodes} nodes, want each {', '.join(lines) or 'nothing'}{apart}; give fewer servers or other"
        " resources=, another placement=, or more patience= where nodes are on their way"
    )
