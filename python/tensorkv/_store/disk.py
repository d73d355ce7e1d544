"""Snapshots of a store, and files of its optimizer's states."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from .. import _core, ticket
from .._part import part_of
from ..errors import (
    FailedPreconditionError,
    FolderNotFoundError,
    InvalidArgumentError,
    KeyNotFoundError,
    SnapshotNotFoundError,
    UnimplementedError,
)
from . import helpers as _helpers
from . import snapshots as _snapshots
from .together import called_by_all
from .updating import KVStoreUpdating

if TYPE_CHECKING:
    from .._update.running import Running
    from ..ticket import Ticket


def _place(verb: str, path: str | os.PathLike[str]) -> str:
    """Return a path as the core takes it.

    Raises:
        InvalidArgumentError: the path is not valid UTF-8.
    """
    try:
        place = os.fsdecode(path)
        place.encode()
    except (TypeError, UnicodeEncodeError):
        place = ""
    if not place:
        raise InvalidArgumentError(f"{verb}: {path!r}; a path, as text of UTF-8, is needed")
    return place


@part_of("KVStore")
class KVStoreDisk(KVStoreUpdating):
    """The part of KVStore that saves and loads."""

    @overload
    def save(self, path: str | os.PathLike[str], *, async_op: Literal[False] = False) -> str: ...

    @overload
    def save(self, path: str | os.PathLike[str], *, async_op: Literal[True]) -> Ticket[str]: ...

    @overload
    def save(self, path: str | os.PathLike[str], *, async_op: bool) -> Ticket[str] | str: ...

    def save(self, path: str | os.PathLike[str], *, async_op: bool = False) -> Ticket[str] | str:
        """Save all values and the optimizer's states as a new snapshot in the folder `path`.

        A snapshot is a folder ``path/000001`` and so on, of safetensors files with an index that other readers of such
        folders know. A snapshot appears only when it is complete, and each tensor has a checksum. The newest two of
        the same stores are kept. In ``dist_sync`` every key is saved at the round of this worker's last push, and in ``dist_async`` as it
        is; the other workers continue meanwhile. All ranks may call it: the lowest one that lives writes, on its
        machine.

        Args:
            path: the folder; created if it does not exist.
            async_op: return a Ticket as soon as all keys are fixed at their rounds; a thread writes them while pushes
                continue. The ticket's wait returns the path. The ticket keeps the store until the snapshot is written.
                If neither ticket nor store is kept, two seconds are left to write it, and a warning reports when they
                were too short.

        Returns:
            the path of the snapshot; ``''`` on ranks that do not write: others are lower, or have saved the same values
            and left.

        Raises:
            ResourceExhaustedError: the disk is full.
            FailedPreconditionError: no permission, or another save is under way there.
            UnavailableError: any other error of the disk, or a server is out of reach. Earlier snapshots are still
                there.

        Example:
            >>> import tempfile
            >>> kv = tkv.kv.create()
            >>> kv.init('w', tkv.nd.ones((2,)))
            >>> folder = tempfile.mkdtemp()
            >>> kv.save(folder).removeprefix(folder)
            '/000001'
            >>> kv.push('w', tkv.nd.zeros((2,)))
            >>> kv.load(folder)
            {'w': 0}
            >>> out = tkv.nd.zeros((2,))
            >>> kv.pull('w', out=out)
            >>> out.asnumpy()
            array([1., 1.], dtype=float32)
        """
        _helpers.check_disk(self, "save")
        if async_op:
            operation = self._save_async(_place("save", path))
            return ticket.Ticket(operation, "save", operation.saved_path, self)
        return self._save(_place("save", path))

    def load(self, path: str | os.PathLike[str]) -> dict[int | str, int]:
        """Put values and states back from a snapshot.

        The store needs the same keys, shapes and dtypes as the saved one, and the same optimizer if the snapshot has
        states. The number of servers may differ. Every rank calls it; the lowest one that lives reads. From then on
        `round` of a synchronous key continues, on every rank, from the saved round. The whole snapshot is checked
        before anything changes.

        Args:
            path: a folder of snapshots, or one of them. In a folder the newest counts that has this store, or the
                newest of another store if all are of that one. PATH/store-1 names store 1 of several.

        Returns:
            `round` of each key.

        Raises:
            SnapshotNotFoundError: there is none.
            DataLossError: it is damaged; names the file and the key.
            InvalidArgumentError: other keys, shapes or dtypes; or the keys of several stores, without this one's.
            FailedPreconditionError: the states are of another optimizer, or of a newer format. Or `rejoined` is
                true and this life of the worker has pushed nothing yet: the servers have the values already. Or all is
                loaded, but this rank does not find the snapshot, and a learning-rate schedule in Python needs its counts of updates.
        """
        place = _place("load", path)
        seen = _snapshots.Place(place, self._updates_in if self._runs() else None)
        with _helpers.loading(self), called_by_all("every worker calls load"):
            try:
                rounds = self._load(place)
            except (KeyNotFoundError, FileNotFoundError) as missing:
                raise SnapshotNotFoundError(str(missing)) from None
        # Rounds of an asynchronous key are each worker's own pushes, and no snapshot has them.
        self._go_on("load", place, seen, None if _core.is_async(self.type) else rounds)
        return rounds

    def save_optimizer_states(self, fname: str | os.PathLike[str], dump_optimizer: bool = False) -> None:
        """Save the optimizer's states as one safetensors file; in a job, the lowest rank writes it.

        Args:
            fname: the file. An existing file is replaced only when the new one is completely on the disk.
            dump_optimizer: MXNet pickles the optimizer if it is True. Here the file always has the optimizer's program
                and its hyperparameters, to look at; a store that loads keeps its own, so that True is an error.

        Raises:
            FailedPreconditionError: there is no optimizer.
            UnimplementedError: an optimizer or updater that is Python code keeps states which are no arrays, numbers, texts,
                None, or lists, tuples or dicts of them.
            FolderNotFoundError: there is no folder for the file.
        """
        if dump_optimizer:
            raise UnimplementedError(
                "save_optimizer_states: dump_optimizer=True; the file names the program and its hyperparameters, and "
                "whoever loads it calls set_optimizer before"
            )
        file = _place("save_optimizer_states", fname)
        try:
            self._save_states(file)
        except (KeyNotFoundError, FileNotFoundError) as missing:
            if os.path.isdir(os.path.dirname(os.path.abspath(file))):
                raise
            raise FolderNotFoundError(str(missing)) from None

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Restore the optimizer's states from a file of `save_optimizer_states` or a snapshot of `save`; values stay.

        Every rank calls it, after `set_optimizer` with the same optimizer.

        Raises:
            SnapshotNotFoundError, DataLossError, InvalidArgumentError, FailedPreconditionError: as `load`.
        """
        place = _place("load_optimizer_states", fname)
        seen = _snapshots.Place(place, self._updates_in if self._runs() else None)
        try:
            with called_by_all("every worker calls load_optimizer_states"):
                self._load_states(place)
        except (KeyNotFoundError, FileNotFoundError) as missing:
            raise SnapshotNotFoundError(str(missing)) from None
        self._go_on("load_optimizer_states", place, seen, None)

    def _runs(self) -> list[Running]:
        """Return the optimizers that the store runs without Python."""
        return [running for running in (self._running, *self._own.values()) if running is not None]

    def _go_on(self, verb: str, path: str, seen: _snapshots.Place, rounds: Mapping[Any, int] | None) -> None:
        """Have the optimizers that the store runs count on from the updates of a snapshot, which all ranks have loaded.

        Args:
            verb: for the error.
            path: the path that the verb was given.
            seen: the path as this rank saw it before the load.
            rounds: as of `_snapshots.Place.counts`.
        """
        all_running = self._runs()
        if not all_running:
            return
        counts = seen.counts(rounds)
        if counts is not None:
            for running in all_running:
                running.go_on(counts)
        elif any(running.asks for running in all_running):
            raise FailedPreconditionError(
                f"{verb} {path}: all is loaded, but the schedule of the learning rate is Python code, which needs the counts of"
                " updates there on every rank. This rank does not find the snapshot that was loaded: it cannot read the path,"
                f" or another snapshot was saved or removed meanwhile; {verb} one snapshot, such as FOLDER/000004, again on"
                " every rank, in a folder that all of them see"
            )
