"""Ways to find the other processes of a job that need Python code."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import DeadlineExceededError, FailedPreconditionError, InvalidArgumentError, UnavailableError

if TYPE_CHECKING:
    from .._types import Rendezvous

RAY_PREFIX = "tensorkv:"  # of the names of the actors with the heads of jobs under Ray


def from_torchrun(type: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options by which the processes of torchrun find each other; none without torchrun."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        _check_no_torch_variables()
        return {}
    try:
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined,unused-ignore]
    except ImportError as error:
        raise FailedPreconditionError(
            f"create: torchrun started this process, and its store needs torch: {error}"
        ) from error
    for name, variable in (("rank", "RANK"), ("num_workers", "WORLD_SIZE")):
        if options.get(name) not in (None, _number(variable)):
            raise InvalidArgumentError(f"create: {name}={options[name]!r}, torchrun says {os.environ[variable]}")
    rank, num_workers = _number("RANK"), _number("WORLD_SIZE")
    host, port = _text("MASTER_ADDR"), _number("MASTER_PORT")
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    patience = int(_core.options_in_force(type, options)["patience_ms"]) / 1000
    deadline = time.monotonic() + patience
    if not is_master:
        _wait_for_port(host, port, deadline, patience)
    try:
        store = TCPStore(
            host,
            port,
            is_master=is_master,
            timeout=timedelta(seconds=max(1.0, deadline - time.monotonic())),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except Exception as error:  # torch has several for it
        raise UnavailableError(f"create: torchrun's store at {host}:{port}: {error}") from error
    # The prefix separates this start of the job from the keys that an earlier start has left in the store. The number
    # of workers belongs to it because torchrun does not count a start with another number as a restart. A later start
    # with the same number finds the old keys; the core then notices that the head is gone.
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"tensorkv/{os.environ['TORCHELASTIC_RUN_ID']}/{restarts}/{num_workers}"
    return {"bootstrap": PrefixStore(prefix, store), "rank": rank, "num_workers": num_workers}


def _check_no_torch_variables() -> None:
    """Raise FailedPreconditionError if nothing but the variables of torch.distributed says who takes part.

    Launchers such as those of Kubeflow, DeepSpeed and SageMaker set these without torchrun.
    """
    names = ("MASTER_ADDR", "RANK", "WORLD_SIZE")
    if _core.job_signs() or not all(os.environ.get(name) for name in names):
        return
    raise FailedPreconditionError(
        "create: MASTER_ADDR, RANK and WORLD_SIZE are set, and torchrun has not started this process. Give create() a"
        " store of PyTorch, at a free port of that host: bootstrap=torch.distributed.TCPStore(MASTER_ADDR, PORT,"
        " is_master=RANK == 0, wait_for_workers=False), rank=RANK, num_workers=WORLD_SIZE; or start the job by"
        " `torchrun`, `mpirun` or `tkv launch -n WORKERS -s SERVERS COMMAND`"
    )


def _text(variable: str) -> str:
    """Return the value of a variable that torchrun sets."""
    if text := os.environ.get(variable):
        return text
    raise InvalidArgumentError(f"create: TORCHELASTIC_RUN_ID is set, as by torchrun, and {variable} is not")


def _number(variable: str) -> int:
    text = _text(variable)
    if text.isdecimal():
        return int(text)
    raise InvalidArgumentError(f"create: {variable}={text!r}: a whole number is needed, as torchrun sets it")


def _wait_for_port(host: str, port: int, deadline: float, patience: float) -> None:
    """Return when somebody listens there. torch itself would wait without hearing Ctrl-C."""
    import socket  # slow to import

    while True:
        try:
            return socket.create_connection((host, port), timeout=1).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise DeadlineExceededError(
                    f"create: waited {patience:g} s for torchrun's store at {host}:{port}: {error}"
                ) from error
            time.sleep(0.05)


def from_ray(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a worker of a job of `tensorkv.ray.start`; none if this process sees no such job."""
    ray = sys.modules.get("ray")
    if ray is None or not hasattr(ray, "is_initialized") or not ray.is_initialized():
        return {}
    # Ray may be here for something else.
    if "TKV_RAY_JOB" not in os.environ and not any(n.startswith(RAY_PREFIX) for n in ray.util.list_named_actors()):
        if _core.job_signs():
            return {}
        raise FailedPreconditionError(
            "create: this process is of Ray, and there is no job in its namespace: tensorkv.ray.start() in the driver starts"
            " one, and nothing else says who takes part"
        )
    from .. import ray as jobs

    return jobs.job()._options(options)


def set_value(store: Rendezvous, key: str, value: str) -> str | None:
    """Set the value of a key; return None, or why not."""
    try:
        store.set(key, value)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # every such store has an exception of its own for it
        return f"{type(error).__name__}: {error}"
    return None


def get_value(store: Rendezvous, key: str, seconds: float) -> tuple[str | None, str | None]:
    """Return (the value of a key as text, None), or (None, the reason) if it is not set in time."""
    begun = time.monotonic()
    try:
        store.wait([key], timedelta(seconds=seconds))
        value = store.get(key)
        return (value.decode() if isinstance(value, (bytes, bytearray)) else str(value)), None
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # as above; one that comes at once is not asked again at once
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
        return None, f"{type(error).__name__}: {error}"
