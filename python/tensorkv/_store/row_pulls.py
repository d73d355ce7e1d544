"""The reads of one call of `pull`, `pull_rows` or `row_sparse_pull`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, ticket
from .._array import rows as _rows
from .._array.elements import is_scalar
from .._array.ndarray import NDArray
from ..errors import InvalidArgumentError
from .arguments import as_list, check_priority, columns_of, one_or_all, title
from .values import view_of

if TYPE_CHECKING:
    from ..ticket import Ticket


class RowPulls:
    """The reads of one call, and the actions for when they are done."""

    def __init__(self, verb: str, key: Any, priority: int) -> None:
        check_priority(verb, key, priority)
        self.verb, self.priority = verb, priority
        self.keys: list[Any] = []
        self.ids: list[Any] = []
        self.outs: list[Any] = []
        self.whole_keys: list[Any] = []
        self.whole_outs: list[Any] = []
        self.ends: list[Callable[[], Any]] = []
        self.foreign: list[Any] = []  # outputs of other frameworks

    def add(self, key: Any, ids: Any, out: Any) -> None:
        """Add a read of rows into `out`, of shape ``(len(ids), ...)``, for `run`; without ids there is nothing to read."""
        if len(ids):
            self.keys.append(key)
            self.ids.append([ids])
            self.outs.append([out])

    def view(self, who: str, out: Any) -> NDArray:
        """Return an output as an array of this package."""
        if not isinstance(out, (NDArray, np.ndarray)):
            self.foreign.append(out)
        return view_of(who, out, True)

    def add_whole(self, key: Any, out: Any) -> None:
        """Add a read of the whole value of a key, for `run`."""
        self.whole_keys.append(key)
        self.whole_outs.append(out)

    def _note_written(self) -> None:
        if self.foreign:
            from .._array import interop as _interop

            _interop.note_written(self.foreign)

    def run(self, store: _core.Store, async_op: bool, result: Callable[[], Any], shown: list[Any]) -> Any:
        """Read, and return the result or a Ticket."""

        def end() -> Any:
            for one in self.ends:
                one()
            self._note_written()
            return result()

        if not async_op:
            if self.whole_keys:
                store._pull(self.whole_keys, self.whole_outs, self.priority)
            if self.keys:
                store._pull_rows(self.verb, self.keys, self.ids, self.outs, self.priority)
            return end()
        operations = []
        if self.whole_keys:
            operations.append(store._pull_async(self.whole_keys, self.whole_outs, self.priority))
        if self.keys:
            operations.append(store._pull_rows_async(self.verb, self.keys, self.ids, self.outs, self.priority))
        self._note_written()
        return ticket_of(operations, title(self.verb, one_or_all(shown)), end)


def ticket_of(operations: list[Any], title: str, end: Callable[[], Any]) -> Ticket[Any]:
    """Return the ticket of operations that have begun."""
    if not operations:
        return ticket.in_thread(end, title)
    *others, last = operations

    def result() -> Any:
        for other in others:
            other.wait(None)
        return end()

    return ticket.Ticket(last, title, only_once(result))


def only_once(end: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls `end` until it succeeds once, and from then on returns that result."""
    results: list[Any] = []

    def result() -> Any:
        if not results:
            results.append(end())
        return results[0]

    return result


def requests_of(
    key: Any, out: Any, row_ids: Any
) -> tuple[list[Any], list[list[Any] | None], list[list[np.ndarray[Any, Any]]], list[bool]]:
    """Return keys, and for each its outputs, its ids, and whether there is one array of ids."""
    who = "row_sparse_pull"
    if not isinstance(key, (list, tuple)):
        outs = None if out is None else as_list(out)
        return [key], [outs], [id_sets(f"{who} {key!r}", row_ids)], [is_ids(row_ids)]
    keys = list(key)
    if not keys:
        raise InvalidArgumentError(f"{who}: no keys")
    if out is None:
        outs_of_keys: list[list[Any] | None] = [None] * len(keys)
    else:
        outs_of_keys = [as_list(one) for one in columns_of(who, keys, out)[1][0]]
    ids = [row_ids] if is_ids(row_ids) else list(row_ids)
    if len(ids) not in (1, len(keys)):
        raise InvalidArgumentError(
            f"{who}: {len(ids)} arrays of ids for {len(keys)} keys; one for each is needed, or one"
        )
    ids = ids * len(keys) if len(ids) == 1 else ids
    sets = [id_sets(f"{who} {one!r}", given) for one, given in zip(keys, ids, strict=True)]
    return keys, outs_of_keys, sets, [is_ids(one) for one in ids]


def is_ids(row_ids: Any) -> bool:
    """Return whether this is one array of ids, not a list of such."""
    if not isinstance(row_ids, (list, tuple)):
        return True
    return all(is_scalar(one) and not isinstance(one, np.ndarray) for one in row_ids)


def id_sets(who: str, row_ids: Any) -> list[np.ndarray[Any, Any]]:
    """Return sorted ids, each once: one array, or one of each item of a list."""
    if row_ids is None:
        raise InvalidArgumentError(f"{who}: row_ids are needed; pull(key, out, ignore_sparse=False) gives all rows")
    given = [row_ids] if is_ids(row_ids) else list(row_ids)
    return [np.unique(_rows.ids_of(who, one)) for one in given]


def assigning_rows(target: Any, data: NDArray, ids: np.ndarray[Any, Any], is_copy: bool) -> Callable[[], None]:
    """Return a function that gives an array the rows that have been read."""

    def take() -> None:
        rows = data if data.dtype_name == target.dtype_name else data.astype(target.dtype_name)
        if rows.context != target.context:
            rows = rows.copyto(target.context)
        target._data, target._ids = rows.copy() if is_copy and rows is data else rows, ids

    return take


def like_ids(array: NDArray, ids: Any) -> Any:
    """Return the array in the framework of `ids`: itself for a list, a range or an int, and NumPy's for ids of no framework."""
    from .._array import interop as _interop

    if isinstance(ids, (list, tuple, range, int)):
        return array
    return _interop.like(array, ids if _interop.has_framework(ids) else np.empty(0))
