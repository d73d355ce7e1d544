"""The verbs of a store for row-sparse values, and for rows by their ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from .. import ticket
from .._array import rows as _rows
from .._array.elements import FLOATS, is_row_sparse
from .._array.ndarray import NDArray
from .._array.rows import is_rows
from .._part import part_of
from ..errors import InvalidArgumentError
from ..ndarray import sparse
from .arguments import as_list, check_priority, columns_of, grouped, one_or_all, pairs_of, title
from .row_pulls import RowPulls, assigning_rows, like_ids, requests_of, ticket_of
from .tables import KVStoreTables
from .tables import TableRows as TableRows  # older pickles have it here
from .values import (
    GivenRows,
    KeyForm,
    array_of,
    check_dtype_of_output,
    check_range,
    check_rows,
    check_whole,
    dense_of,
    form_of_value,
    new_array,
    rows_given,
    shown_form,
)

if TYPE_CHECKING:
    from .._types import Key, Keys, RowIds
    from ..ndarray.sparse import RowSparseNDArray
    from ..ticket import Ticket


@part_of("KVStore")
class KVStoreRows(KVStoreTables):
    """The part of KVStore for rows."""

    # --------------------------------------------------------------------------------------------------------- pushing

    def _push_with_rows(self, key: Any, value: Any, priority: int, async_op: bool) -> Any:
        """Push values some of which are row-sparse."""
        pairs = pairs_of("push", key, value)
        dense: dict[Any, list[Any]] = {}
        rows: dict[Any, list[GivenRows]] = {}
        infos = dict([(one, self._info("push", one)) for one in pairs[0]])
        for one, values in grouped(*pairs).items():
            who = f"push {one!r}"
            are_rows = [is_rows(v) for v in values]
            given = [rows_given(who, v) for v, is_one in zip(values, are_rows, strict=True) if is_one]
            for part in given:
                check_rows(who, part, infos[one])
            if values and all(are_rows):
                rows[one] = given
            else:
                dense[one] = [dense_of(v) if is_one else v for v, is_one in zip(values, are_rows, strict=True)]
        ids = [[part.ids for part in parts] for parts in rows.values()]
        data = [[part.values for part in parts] for parts in rows.values()]
        arguments = ("push", list(rows), ids, data, list(dense), list(dense.values()), priority)
        if not async_op:
            self._push_rows(*arguments)
            return None
        return ticket_of([self._push_rows_async(*arguments)], title("push", one_or_all(pairs[0])), lambda: None)

    @overload
    def push_rows(
        self,
        key: Key | Keys[Any],
        row_ids: RowIds,
        values: Any,
        priority: int = 0,
        *,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def push_rows(
        self, key: Key | Keys[Any], row_ids: RowIds, values: Any, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def push_rows(
        self, key: Key | Keys[Any], row_ids: RowIds, values: Any, priority: int = 0, *, async_op: bool
    ) -> Ticket[None] | None: ...
    def push_rows(
        self, key: Key | Keys[Any], row_ids: RowIds, values: Any, priority: int = 0, *, async_op: bool = False
    ) -> Ticket[None] | None:
        """Push some rows: sum those of one id and hand them to the updater (default: store them).

        Without an updater the other rows of a table stay, and the other rows of a key that `init` made become 0.

        Args:
            key: a key or a list of keys. If a key is not kept by rows, the other rows count as zeros.
            row_ids: whole numbers, of any shape, in any order, with repetitions, in an array of any framework or a list; for
                a list of keys a list of such.
            values: an array of any framework of shape ``ids.shape + row shape``, in the key's dtype; for a list of keys a list
                of such.
            priority, async_op: as `push`.

        Raises:
            KeyNotFoundError: a key was never initialised.
            OutOfRangeError: an id that the key does not have.
            InvalidArgumentError: another shape or dtype, ids that are no whole numbers.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init_table('t', 2)
            >>> kv.push_rows('t', [5, 3, 5], np.array([[1, 1], [2, 2], [3, 3]], np.float32))
            >>> kv.pull_rows('t', [3, 5]).asnumpy()
            array([[2., 2.],
                   [4., 4.]], dtype=float32)
        """
        running = self._running
        if self._own or (running is not None and running.is_watching):
            with self._turns(key):
                return self._give_rows(key, row_ids, values, priority, async_op)
        return self._give_rows(key, row_ids, values, priority, async_op)

    def _give_rows(self, key: Any, row_ids: Any, values: Any, priority: int, async_op: bool) -> Ticket[None] | None:
        check_priority("push_rows", key, priority)
        keys, columns = columns_of("push_rows", key, row_ids, values)
        ids: list[Any] = []
        data: list[Any] = []
        for one, given_ids, given in zip(keys, *columns, strict=True):
            who = f"push_rows {one!r}"
            info = self._info("push_rows", one)
            found = _rows.ids_of(who, given_ids)
            check_range(who, found, info)
            array = array_of(who, given, info)
            row_shape = info.shape if info.rows is not None else info.shape[1:]
            if array.shape != (*found.shape, *row_shape):
                flat_ids = ", or row_ids.reshape(-1)" if array.shape == (found.size, *row_shape) else ""
                raise InvalidArgumentError(
                    f"{who}: values of shape {array.shape}; ids of shape {found.shape} and rows of shape {tuple(row_shape)} need "
                    f"{(*found.shape, *row_shape)}{flat_ids}"
                )
            # No ids are a push, too: in a round the others wait for this worker.
            flat = array if array.contiguous else array.copy()
            ids.append([found.reshape(-1)])
            data.append([flat._reshape([found.size, *row_shape])])
        arguments: Any = ("push_rows", keys, ids, data, [], [], priority)
        if async_op:
            operations = [self._push_rows_async(*arguments)] if keys else []
            return ticket_of(operations, title("push_rows", key), lambda: None)
        if keys:
            self._push_rows(*arguments)
        return None

    # --------------------------------------------------------------------------------------------------------- pulling

    def _pull_with_rows(self, key: Any, out: Any, priority: int, ignore_sparse: bool, async_op: bool) -> Any:
        """Pull into outputs some of which are row-sparse."""
        pairs = pairs_of("pull", key, out)
        return self._planned(*pairs, priority, ignore_sparse).run(self, async_op, lambda: None, pairs[0])

    def _planned(self, keys: list[Any], outs: list[list[Any]], priority: int, ignore_sparse: bool) -> RowPulls:
        """Return the readings of a pull, whose outs are looked at."""
        pulls = RowPulls("pull", keys, priority)
        for key, targets in zip(keys, outs, strict=True):
            info = self._info("pull", key)
            if not targets:
                raise InvalidArgumentError(f"pull {key!r}: no outputs")
            kept = [target for target in targets if not (ignore_sparse and is_row_sparse(target))]
            if len(kept) < len(targets):
                from .log import logger

                logger.info("pull %r: row-sparse outputs stay as they are unless ignore_sparse=False", key)
            for target in kept:
                self._plan_one(pulls, key, info, target)
        return pulls

    def _plan_one(self, pulls: RowPulls, key: Any, info: KeyForm, target: Any) -> None:
        who = f"pull {key!r}"
        if _rows.is_of_torch(target) or _rows.is_of_scipy(target):
            raise InvalidArgumentError(
                f"{who}: type {type(target).__name__}; a RowSparseNDArray or a dense array is needed"
            )
        is_sparse = is_row_sparse(target)
        view = target if is_sparse else pulls.view(who, target)
        if view.shape != info.whole():
            raise InvalidArgumentError(f"{who}: an output of shape {view.shape}, the key has {shown_form(info)}")
        check_whole(who, info)
        check_dtype_of_output(who, view.dtype_name, info.dtype)
        array = new_array(view.shape, view.dtype_name, view) if is_sparse else view
        pulls.add_whole(key, array)
        if is_sparse:
            pulls.ends.append(lambda: target._take(array))

    def _pull_whole(self, key: Any, priority: int, like: Callable[[Any], Any], async_op: bool) -> Any:
        """Pull without an output keys some of which are kept by rows."""
        check_priority("pull", key, priority)
        keys = as_list(key)
        fresh = []
        for one in keys:
            info = self._info("pull", one)
            check_whole(f"pull {one!r}", info)
            fresh.append(new_array(info.whole(), info.dtype))
        pulls = self._planned(keys, [[array] for array in fresh], priority, False)
        return pulls.run(self, async_op, lambda: like(fresh if isinstance(key, (list, tuple)) else fresh[0]), keys)

    def _pushpull_with_rows(self, key: Any, value: Any, out: Any, priority: int, async_op: bool) -> Any:
        """Push, then pull, where a value or an output is row-sparse."""
        if out is None:
            raise InvalidArgumentError(f"{title('pushpull', key)}: `out` is needed where a value is row-sparse")
        pairs, targets = pairs_of("pushpull", key, value), pairs_of("pushpull", key, out)
        pulls = self._planned(*targets, priority, False)
        if not async_op:
            self._push_any(key, value, priority, False)
            return pulls.run(self, False, lambda: None, pairs[0])
        pushed: Ticket[None] = self._push_any(key, value, priority, True)
        return pulls.run(self, True, lambda: pushed.wait(), pairs[0])

    def _push_any(self, key: Any, value: Any, priority: int, async_op: bool) -> Any:
        if async_op:
            operation = self._push_async(key, value, priority)
            if operation is not None:
                return ticket.Ticket(operation, title("push", key), lambda: None)
        elif self._push(key, value, priority):
            return None
        return self._push_with_rows(key, value, priority, async_op)

    def _broadcast_with_rows(self, key: Any, value: Any, out: Any, priority: int) -> None:
        """Init, then pull, where a value or an output is row-sparse."""
        pairs, targets = pairs_of("broadcast", key, value), pairs_of("broadcast", key, out)
        for one, values, outs in zip(pairs[0], pairs[1], targets[1], strict=True):
            who = f"broadcast {one!r}"
            if len(values) != 1 or not outs:
                raise InvalidArgumentError(
                    f"{who}: {len(values)} values and {len(outs)} outputs, one and at least one are needed"
                )
            wanted, dtype = form_of_value(who, values[0], False)
            for target in outs:
                found, found_dtype = form_of_value(who, target, True)
                if found != wanted:
                    raise InvalidArgumentError(f"{who}: an output of shape {found}, the value has {wanted}")
                check_dtype_of_output(who, found_dtype, dtype)
            if is_rows(values[0]):
                check_whole(who, KeyForm(wanted[1:], dtype, wanted[0]))
        self._init_given(key, value, "")
        self._planned(*targets, priority, False).run(self, False, lambda: None, pairs[0])

    def row_sparse_pull(
        self, key: Key | Keys[Any], out: Any = None, priority: int = 0, row_ids: Any = None, *, async_op: bool = False
    ) -> Any:
        """Copy rows of keys that are kept by rows into row-sparse arrays, or return such.

        An output becomes the rows that were asked for: its indices are the ids, sorted, each once, and its other rows are
        zero.

        Args:
            key: a key or a list of keys.
            out: for one key a RowSparseNDArray or a list of them, for a list of keys a list of such; each of the shape
                ``(rows,) + row shape`` of the key. Converts between float dtypes.
            priority: as `push`.
            row_ids: whole numbers (floats too, where these are exact), of any shape, in any order, with repetitions, in an array of any framework
                or a list of numbers; for all outputs. Or a list of such, one for each output; for a list of keys a list of
                those.
            async_op: return a Ticket; the outputs have their rows when its `wait` has returned.

        Returns:
            None, or a Ticket with `async_op`; without `out` a new RowSparseNDArray, a list of them for a list of keys or of
            ids.

        Raises:
            KeyNotFoundError: a key was never initialised.
            OutOfRangeError: an id that is negative or that the key does not have.
            InvalidArgumentError: a key that is not kept by rows, a dense output (see `pull_rows`) or one of another shape, another
                number of ids than of outputs, no `row_ids`. No output has changed.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.ones((4, 2)).tostype('row_sparse'))
            >>> out = tkv.nd.sparse.zeros('row_sparse', (4, 2))
            >>> kv.row_sparse_pull('w', out=out, row_ids=tkv.nd.array([3, 0, 3]))
            >>> out.indices.asnumpy(), out.data.asnumpy()
            (array([0, 3]), array([[1., 1.],
                   [1., 1.]], dtype=float32))
        """
        keys, outs, sets, is_single = requests_of(key, out, row_ids)
        pulls = RowPulls("row_sparse_pull", key, priority)
        made = [self._plan_sparse(pulls, one, targets, ids) for one, targets, ids in zip(keys, outs, sets, strict=True)]

        def result() -> Any:
            if out is not None:
                return None
            each = [arrays[0] if is_one else arrays for arrays, is_one in zip(made, is_single, strict=True)]
            return each if isinstance(key, (list, tuple)) else each[0]

        return pulls.run(self, async_op, result, keys)

    def _plan_sparse(
        self, pulls: RowPulls, key: Any, outs: list[Any] | None, sets: list[np.ndarray[Any, Any]]
    ) -> list[RowSparseNDArray]:
        """Add the readings of one key; return the arrays that take them."""
        who = f"row_sparse_pull {key!r}"
        info = self._info("row_sparse_pull", key)
        if info.rows is None:
            raise InvalidArgumentError(
                f"{who}: the key is dense; pull gives its value, and init with a row-sparse value, or init_table, makes a key of rows"
            )
        targets = (
            outs if outs is not None else [sparse.zeros("row_sparse", info.whole(), None, info.dtype) for _ in sets]
        )
        if len(sets) not in (1, len(targets)) or not targets:
            raise InvalidArgumentError(
                f"{who}: {len(sets)} arrays of ids for {len(targets)} outputs; one for each is needed, or one"
            )
        for ids in sets:
            check_range(who, ids, info)
        read: list[NDArray] = []
        for place, target in enumerate(targets):
            ids = sets[place if len(sets) > 1 else 0]
            if not is_row_sparse(target):
                raise InvalidArgumentError(
                    f"{who}: an output of type {type(target).__name__}; a RowSparseNDArray is needed, and pull_rows gives rows "
                    "as a dense array"
                )
            if not info.takes(target.shape):
                raise InvalidArgumentError(f"{who}: an output of shape {target.shape}, the key has {shown_form(info)}")
            _rows.check_ids(who, ids, target.shape[0], f"the output has shape {target.shape}")
            if len(sets) > 1 or place == 0:
                data = new_array((len(ids), *info.shape), target.dtype_name, target)
                pulls.add(key, ids, data)
                read.append(data)
                pulls.ends.append(assigning_rows(target, data, ids, is_copy=False))
            else:
                pulls.ends.append(assigning_rows(target, read[0], ids, is_copy=True))
        return targets

    def pull_rows(
        self, key: Key | Keys[Any], row_ids: RowIds, out: Any = None, priority: int = 0, *, async_op: bool = False
    ) -> Any:
        """Return the rows with these ids, in their order, or copy them into `out`: the look-up of an embedding.

        Args:
            key: a key that is kept by rows, or a list of such.
            row_ids: whole numbers, of any shape, in any order, with repetitions, in an array of any framework or a list; for
                a list of keys a list of such.
            out: a writable array of any framework, of shape ``ids.shape + row shape``; for a list of keys a list of such.
                Converts between float dtypes.
            priority: as `push`.
            async_op: return a Ticket; its wait gives what pull_rows would have given.

        Returns:
            A Ticket with `async_op`, None with `out`. Else a new array in the key's dtype, of shape ``ids.shape + row shape``, or
            a list of them for a list of keys. Its framework is that of the ids; for a list or a range it is an NDArray.

        Raises:
            KeyNotFoundError: a key was never initialised.
            OutOfRangeError: an id that is negative or that the key does not have.
            InvalidArgumentError: a key that is not kept by rows, ids that are no whole numbers, an `out` of another shape, a
                read-only one or one whose elements share memory.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.array([[0, 1], [2, 3], [4, 5]]).tostype('row_sparse'))
            >>> kv.pull_rows('w', np.array([[2, 1], [1, 1]]))[0]
            array([[4., 5.],
                   [2., 3.]], dtype=float32)
        """
        if out is not None:
            keys, columns = columns_of("pull_rows", key, row_ids, out)
        else:
            keys, (ids_of_keys,) = columns_of("pull_rows", key, row_ids)
            columns = [ids_of_keys, [None] * len(keys)]
        pulls = RowPulls("pull_rows", key, priority)
        results = [self._plan_rows(pulls, *one) for one in zip(keys, *columns, strict=True)]

        def result() -> Any:
            if out is not None:
                return None
            found = [give() for give in results]
            return found if isinstance(key, (list, tuple)) else found[0]

        return pulls.run(self, async_op, result, keys)

    def _plan_rows(self, pulls: RowPulls, key: Any, row_ids: Any, out: Any) -> Callable[[], Any]:
        """Add the reading of one key; return a function that gives its result."""
        who = f"pull_rows {key!r}"
        info = self._info("pull_rows", key)
        if info.rows is None:
            raise InvalidArgumentError(
                f"{who}: the key is dense; pull gives its value, and init with a row-sparse value, or init_table, makes a key of rows"
            )
        ids = _rows.ids_of(who, row_ids)
        check_range(who, ids, info)
        shape = (*ids.shape, *info.shape)
        target = new_array(shape, info.dtype) if out is None else pulls.view(who, out)
        if target.shape != shape:
            raise InvalidArgumentError(f"{who}: an output of shape {target.shape}, {shape} is needed")
        target._check_writable(who, "output")
        if target.dtype_name != info.dtype and not {target.dtype_name, info.dtype} <= set(FLOATS):
            raise InvalidArgumentError(
                f"{who}: the output is {target.dtype_name}, the key has {info.dtype}; only floats convert"
            )
        packed = target if target.contiguous else new_array(shape, target.dtype_name)
        if ids.size:
            pulls.add(key, ids.reshape(-1), packed._reshape([ids.size, *info.shape]))
        if packed is not target:
            pulls.ends.append(lambda: target._assign(packed))
        return lambda: like_ids(target, row_ids)
