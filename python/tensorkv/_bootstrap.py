"""Ways in which processes find each other that live in Python."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from ._types import Rendezvous


def from_torchrun(rank: int | None, num_workers: int | None) -> dict[str, Any]:
    """Return the options by which the processes of torchrun find each other; none without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return {}
    try:
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined,unused-ignore]
    except ImportError as error:
        raise FailedPreconditionError(
            f"create: torchrun started this process, and its store needs torch: {error}"
        ) from error
    for name, given, variable in (("rank", rank, "RANK"), ("num_workers", num_workers, "WORLD_SIZE")):
        if given is not None and given != int(os.environ[variable]):
            raise InvalidArgumentError(f"create: {name}={given!r}, torchrun says {os.environ[variable]}")
    rank, num_workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    agent_has_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not agent_has_it,
        timeout=timedelta(seconds=300),
        wait_for_workers=False,
        multi_tenant=True,
    )
    # What an earlier start of the same job has left there is not ours. A start with more or fewer workers counts as no
    # restart, and one with as many after another one looks like it: there the core sees that the head is gone.
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"tensorkv/{os.environ['TORCHELASTIC_RUN_ID']}/{restarts}/{num_workers}"
    return {"bootstrap": PrefixStore(prefix, store), "rank": rank, "num_workers": num_workers}


def from_ray(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a worker of a job that `tensorkv.ray.start` has made; none where this process sees no such job."""
    ray = sys.modules.get("ray")
    if ray is None or not hasattr(ray, "is_initialized") or not ray.is_initialized():
        return {}
    # Ray may be here for something else.
    if "TKV_RAY_JOB" not in os.environ and not any(n.startswith("tensorkv:") for n in ray.util.list_named_actors()):
        if _core.job_signs():
            return {}
        raise FailedPreconditionError(
            "create: this process is of Ray, and there is no job in its namespace: tensorkv.ray.start() in the driver starts"
            " one, and nothing else says who takes part"
        )
    from . import ray as jobs

    return jobs.job()._options(options)


def get_value(store: Rendezvous, key: str, seconds: float) -> tuple[str | None, str | None]:
    """Return (the value of a key as text, None), or (None, why not) where nobody has set it in so long."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except Exception as error:  # every such store has an exception of its own for it
        return None, f"{type(error).__name__}: {error}"
    value = store.get(key)
    return (value.decode() if isinstance(value, (bytes, bytearray)) else str(value)), None
