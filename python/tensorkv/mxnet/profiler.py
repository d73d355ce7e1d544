"""Traces of pushes, pulls and updates on workers and servers, with their times: ``mx.profiler``.

`KVStore.trace` is the short way. The functions here have MXNet's names and act on the store that was made last. A trace
covers this worker and all servers; ``profile_process`` only says which file `dump` writes.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from .._store import life as _life
from .._store.trace import Trace
from ..errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from .._store.kvstore import KVStore

    ProfiledProcess = Literal["worker", "server"]

__all__ = [
    "Trace",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "resume",
    "set_config",
    "set_kvstore_handle",
    "set_state",
]


_DEFAULTS = {"worker": "profile.json", "server": "server_profile.json"}
_files: dict[str, str] = {}  # as `set_config` has been given them, or if the process was when the trace began
_traced: dict[str, Trace] = {}  # of the processes that are in state run, or have been


def _check_process(what: str, process: str) -> None:
    if process not in _DEFAULTS:
        raise InvalidArgumentError(f"{what}: profile_process={process!r}: there are 'worker' and 'server'")


def set_config(**options: Any) -> None:
    """Say which file `dump` writes.

    Args:
        options: ``filename``, ``'profile.json'`` for the worker and ``'server_profile.json'`` for the servers where it is
            not given; ``profile_process``, ``'worker'`` or ``'server'``. ``profile_all``, ``profile_api``,
            ``profile_imperative`` and ``profile_symbolic`` are taken: pushes, pulls and updates are always noted, and
            there is nothing else.

    Raises:
        UnimplementedError: ``profile_memory``, ``aggregate_stats``, ``continuous_dump`` or ``dump_period``.
        InvalidArgumentError: another option.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), 'profile.json')
        >>> kv = mx.kv.create()
        >>> kv.init('w', mx.nd.ones((2,)))
        >>> mx.profiler.set_config(filename=file)
        >>> mx.profiler.set_state('run')
        >>> kv.push('w', mx.nd.ones((2,)))
        >>> mx.profiler.dump()
        >>> os.path.exists(file)
        True
    """
    process = options.pop("profile_process", "worker")
    _check_process("set_config", process)
    for name in ("profile_all", "profile_api", "profile_imperative", "profile_symbolic"):
        options.pop(name, None)
    for name in ("profile_memory", "aggregate_stats", "continuous_dump", "dump_period"):
        if options.pop(name, None):
            raise UnimplementedError(f"set_config: {name} is not here; kv.stats() has sums")
    file = options.pop("filename", None)
    if options:
        raise InvalidArgumentError(f"set_config: there is no option {next(iter(options))!r}")
    if file is not None:
        _files[process] = os.path.abspath(os.fspath(file))


def set_state(state: str = "stop", profile_process: ProfiledProcess = "worker") -> None:
    """Begin to note spans (``'run'``), or pause (``'stop'``); `dump`, or else the end of the process, writes them.

    Raises:
        FailedPreconditionError: there is no store.
        InvalidArgumentError: another state.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), 'profile.json')
        >>> kv = mx.kv.create()
        >>> kv.init('w', mx.nd.ones((2,)))
        >>> mx.profiler.set_config(filename=file)
        >>> mx.profiler.set_state('run')
        >>> kv.push('w', mx.nd.ones((2,)))
        >>> mx.profiler.set_state('stop')
        >>> mx.profiler.dump()
        >>> os.path.exists(file)
        True
    """
    _check_process("set_state", profile_process)
    if state == "stop":
        pause(profile_process)
    elif state == "run":
        resume(profile_process)
    else:
        raise InvalidArgumentError(f"set_state: {state!r}: there are 'run' and 'stop'")


def pause(profile_process: ProfiledProcess = "worker") -> None:
    """Note nothing more until `resume`.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), 'profile.json')
        >>> kv = mx.kv.create()
        >>> kv.init('w', mx.nd.ones((2,)))
        >>> mx.profiler.set_config(filename=file)
        >>> mx.profiler.set_state('run')
        >>> mx.profiler.pause()
        >>> kv.push('w', mx.nd.ones((2,)))  # is not noted
        >>> mx.profiler.resume()
        >>> mx.profiler.dump()
    """
    _check_process("pause", profile_process)
    trace = _traced.get(profile_process)
    if trace is not None and not trace._session.is_over:
        trace.pause()


def resume(profile_process: ProfiledProcess = "worker") -> None:
    """Go on after `pause`, or begin.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), 'profile.json')
        >>> kv = mx.kv.create()
        >>> kv.init('w', mx.nd.ones((2,)))
        >>> mx.profiler.set_config(filename=file)
        >>> mx.profiler.set_state('run')
        >>> mx.profiler.pause()
        >>> mx.profiler.resume()
        >>> kv.push('w', mx.nd.ones((2,)))
        >>> mx.profiler.dump()
    """
    _check_process("resume", profile_process)
    file = _files.setdefault(profile_process, os.path.abspath(_DEFAULTS[profile_process]))
    trace = next((trace for trace in _traced.values() if not trace._session.is_over), None)
    if trace is None or not _life.is_open(trace._store):
        store = _life.newest()
        if store is None:
            raise FailedPreconditionError("profiler: there is no store; create one first")
        trace = store.trace(file)
    else:
        trace.resume()
    _traced[profile_process] = trace


def dump(finished: bool = True, profile_process: ProfiledProcess = "worker") -> None:
    """Write the file and end the trace.

    Args:
        finished: True. MXNet's False, which writes a file and continues the trace, is refused.
        profile_process: the file is that of `set_config`.

    Raises:
        FailedPreconditionError: nothing was noted.
        UnimplementedError: `finished` is false.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), 'profile.json')
        >>> kv = mx.kv.create()
        >>> kv.init('w', mx.nd.ones((2,)))
        >>> mx.profiler.set_config(filename=file)
        >>> mx.profiler.set_state('run')
        >>> kv.push('w', mx.nd.ones((2,)))
        >>> mx.profiler.dump()
        >>> '"push ' in open(file).read()
        True
    """
    _check_process("dump", profile_process)
    if not finished:
        raise UnimplementedError("dump: finished=False is not here: the trace ends with its file")
    trace = _traced.pop(profile_process, None)
    if trace is None:
        raise FailedPreconditionError("dump: nothing was noted; set_state('run') begins")
    file = _files[profile_process]
    if trace._session.is_over:  # with the other process's file, or with the store
        if os.path.realpath(file) != os.path.realpath(trace._session.path):
            shutil.copyfile(trace._session.path, file)
        return
    trace._session.path = file
    try:
        trace.stop()
    except Exception:
        _traced[profile_process] = trace
        raise


def _dump_all() -> None:
    """Write a trace that no `dump` has written."""
    process: ProfiledProcess
    for process in ("worker", "server"):
        if process in _traced:
            dump(profile_process=process)


_life.before_end(_dump_all)


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> NoReturn:
    """Raise an UnimplementedError: ``kv.stats()`` has sums.

    Example:
        >>> mx.profiler.dumps()
        Traceback (most recent call last):
        tensorkv.errors.UnimplementedError: dumps: sums are not here; kv.stats() has them, and dump writes every span
    """
    raise UnimplementedError("dumps: sums are not here; kv.stats() has them, and dump writes every span")


def set_kvstore_handle(handle: KVStore) -> None:
    """Say which store is profiled, if it is not the one that was made last.

    Args:
        handle: the store itself.

    Raises:
        InvalidArgumentError: it is no open store.

    Example:
        >>> first, second = mx.kv.create(), mx.kv.create()
        >>> mx.profiler.set_kvstore_handle(first)
    """
    try:
        is_open = _life.is_open(handle)
    except TypeError:
        is_open = False
    if not is_open:
        raise InvalidArgumentError(f"set_kvstore_handle: {handle!r} is no open store")
    _life.opened(handle)


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """As `set_config`; `mode`, which selects MXNet's events, has no effect here.

    Example:
        >>> import os, tempfile
        >>> mx.profiler.profiler_set_config('all', os.path.join(tempfile.mkdtemp(), 'profile.json'))
    """
    set_config(filename=filename)


def profiler_set_state(state: str = "stop") -> None:
    """As `set_state`.

    Example:
        >>> import os, tempfile
        >>> kv = mx.kv.create()
        >>> mx.profiler.set_config(filename=os.path.join(tempfile.mkdtemp(), 'profile.json'))
        >>> mx.profiler.profiler_set_state('run')
        >>> mx.profiler.dump_profile()
    """
    set_state(state)


def dump_profile() -> None:
    """As `dump`.

    Example:
        >>> import os, tempfile
        >>> kv = mx.kv.create()
        >>> mx.profiler.set_config(filename=os.path.join(tempfile.mkdtemp(), 'profile.json'))
        >>> mx.profiler.profiler_set_state('run')
        >>> mx.profiler.dump_profile()
    """
    dump()
