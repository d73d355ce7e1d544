"""The verbs of a store for keys that are kept by rows, and the parts of the other verbs for row-sparse values.

A key that `init` was given a row-sparse value for, or that `init_table` has made, has its rows each by itself.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from .. import _core, ticket
from .._array import ndarray as nd
from .._array import rows as _rows
from .._array.elements import BITS, FLOATS, dtype_name, is_row_sparse, is_scalar, number, shape_list
from .._array.ndarray import NDArray
from .._array.rows import is_rows
from .._part import part_of
from ..errors import InvalidArgumentError, KVError
from ..ndarray import sparse
from .together import created_by_all

if TYPE_CHECKING:
    from .._types import DType, Key, Keys, Mode, RowIds, Shape
    from .._update.running import Running
    from ..initializer import Initializer
    from ..ndarray.sparse import RowSparseNDArray
    from ..optimizer import Optimizer, Program
    from ..ticket import Ticket

_CONSTANT, _UNIFORM, _NORMAL = 0, 1, 2
_ZERO = (_CONSTANT, 0.0, 0.0, 0)
_KEEP_ALL = (1, 0, 0, 0, False, 0)  # as of RowPolicy
_SCORES = ("age", "count", "norm")
_ADMIT_MAX, _AGE_END = 32767, 2**48


class _Info(NamedTuple):
    """The form of a key."""

    shape: tuple[int, ...]  # of one row if the key is kept by rows
    dtype: str
    rows: int | None  # ids are below it; None: the key is dense

    def whole(self) -> tuple[int, ...]:
        """Return the shape of the value with all rows."""
        return self.shape if self.rows is None else (self.rows, *self.shape)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether a value of that shape fits; of a key without an end any number of rows does."""
        return shape == self.whole() or (self.rows == _rows.ROWS_MAX and shape[1:] == self.shape and len(shape) > 0)


class _Given(NamedTuple):
    """The rows of a value: ids may repeat, in any order."""

    ids: np.ndarray[Any, Any]
    values: Any
    shape: tuple[int, ...]


def shape_and_dtype(value: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a row-sparse value."""
    return tuple(value.shape), dtype_name(value.dtype)


def _shape_and_dtype(who: str, value: Any, writable: bool) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of a dense or a row-sparse value or output."""
    if is_row_sparse(value) or (not writable and is_rows(value)):
        return shape_and_dtype(value)
    view = _view(who, value, writable)
    return view.shape, view.dtype_name


def _given(who: str, value: Any, is_unique: bool = False) -> _Given:
    """Return the rows of a row-sparse value, each once with `is_unique`."""
    if is_row_sparse(value):
        return _Given(value._ids, value._data, value._shape)
    if _rows.is_of_torch(value):
        return _Given(*_rows.rows_of_torch(who, value, is_unique))
    return _Given(*_rows.rows_of_scipy(who, value))


def _check_given(who: str, given: _Given, info: _Info) -> None:
    """Raise if rows are not those of a key."""
    if not info.takes(given.shape):
        raise InvalidArgumentError(f"{who}: shape {given.shape}, the key has {_shown(info)}")
    _check_dtype_of_values(who, given.values, dtype_name(getattr(given.values, "dtype_name", given.values.dtype)), info)


def _check_dtype_of_values(who: str, values: Any, found: str, info: _Info) -> None:
    """Raise if values are not of the dtype of the key."""
    if found != info.dtype:
        is_of_torch = type(values).__module__.partition(".")[0] == "torch"
        cast = f"to(torch.{info.dtype})" if is_of_torch else f"astype({info.dtype!r})"
        raise InvalidArgumentError(f"{who}: dtype {found}, the key has {info.dtype}; values.{cast} converts")


def _shown(info: _Info) -> str:
    if info.rows is None:
        return f"shape {info.shape}"
    return f"{'2**63' if info.rows == _rows.ROWS_MAX else info.rows} rows of shape {info.shape}"


def title(verb: str, key: object) -> str:
    """Return verb and key as a ticket shows them; of a list the first key."""
    if not isinstance(key, (list, tuple)):
        return f"{verb} {key!r}"
    return f"{verb} of {len(key)} keys, the first is {key[0]!r}" if key else verb


def check_priority(verb: str, key: object, priority: object) -> None:
    """Raise if a priority is none; asked after a TypeError, so that calls that are right do not pay for it."""
    try:
        if -(2**31) <= operator.index(priority) < 2**31:  # type: ignore[arg-type]  # what is no whole number raises
            return
    except TypeError:
        pass
    raise InvalidArgumentError(
        f"{title(verb, key)}: priority {priority!r}; a whole number from -2147483648 to 2147483647 is needed"
    ) from None


def _one_or_all(keys: list[Any]) -> Any:
    return keys[0] if len(keys) == 1 else keys


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _pairs(verb: str, key: Any, value: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return the keys, and for each the list of what was given for it."""
    if not isinstance(key, (list, tuple)):
        return [key], [_listed(value)]
    is_list = isinstance(value, (list, tuple))
    if not is_list or len(value) != len(key):
        found = f"one of {len(value)}" if is_list else "no list"
        raise InvalidArgumentError(f"{verb}: {len(key)} keys need a list of {len(key)} values, here is {found}")
    return list(key), [_listed(one) for one in value]


def has_rows(key: Any, *values: Any) -> bool:
    """Return true if a value or an output of a call is row-sparse; an output may be None."""
    given = [
        one for value in values if value is not None for one in (value if isinstance(key, (list, tuple)) else [value])
    ]
    return any(is_rows(one) for arrays in given for one in _listed(arrays))


def _by_key(keys: list[Any], values: list[list[Any]]) -> dict[Any, list[Any]]:
    """Return all values of each key, in the order of the keys."""
    groups: dict[Any, list[Any]] = {}
    for key, given in zip(keys, values, strict=True):
        groups.setdefault(key, []).extend(given)
    return groups


def _new(shape: Sequence[int], dtype: str, like: Any = None) -> NDArray:
    """Return an uninitialised array, in the context of another one."""
    context = like.context if like is not None else None
    kind, index = ("cpu", 0) if context is None else (context.device_type, context.device_id)
    return _core._empty(NDArray, list(shape), dtype, kind, index)


def _view(who: str, array: Any, writable: bool) -> NDArray:
    """Return an array of any framework as one of this package that shares its memory."""
    if isinstance(array, NDArray):
        return array._as(NDArray)
    try:
        return _core._view_of(NDArray, array, writable)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{who}: {error}") from None


def _once(end: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls `end` the first time, and gives its result each time."""
    results: list[Any] = []

    def result() -> Any:
        if not results:
            results.append(end())
        return results[0]

    return result


class _Pulls:
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
        """Read rows into an array of shape ``(len(ids), ...)``."""
        if len(ids):
            self.keys.append(key)
            self.ids.append([ids])
            self.outs.append([out])

    def view(self, who: str, out: Any) -> NDArray:
        """Return an output as an array of this package."""
        if not isinstance(out, (NDArray, np.ndarray)):
            self.foreign.append(out)
        return _view(who, out, True)

    def add_whole(self, key: Any, out: Any) -> None:
        """Read all of a key."""
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
        return _ticket(operations, title(self.verb, _one_or_all(shown)), end)


def _ticket(operations: list[Any], title: str, end: Callable[[], Any]) -> Ticket[Any]:
    """Return the ticket of operations that have begun."""
    if not operations:
        return ticket.in_thread(end, title)
    *others, last = operations

    def result() -> Any:
        for other in others:
            other.wait(None)
        return end()

    return ticket.Ticket(last, title, _once(result))


def _is_ids(row_ids: Any) -> bool:
    """Return whether this is one array of ids, not a list of such."""
    if not isinstance(row_ids, (list, tuple)):
        return True
    return all(is_scalar(one) and not isinstance(one, np.ndarray) for one in row_ids)


def _id_sets(who: str, row_ids: Any) -> list[np.ndarray[Any, Any]]:
    """Return sorted ids, each once: one array, or one of each item of a list."""
    if row_ids is None:
        raise InvalidArgumentError(f"{who}: row_ids are needed; pull(key, out, ignore_sparse=False) gives all rows")
    given = [row_ids] if _is_ids(row_ids) else list(row_ids)
    return [np.unique(_rows.ids_of(who, one)) for one in given]


def _constant(who: str, value: Any) -> float:
    """Return a number as a float64 that equals it."""
    given = number(value)
    try:
        if float(given) == given or given != given:
            return float(given)
    except OverflowError:
        pass
    raise InvalidArgumentError(f"{who}: initializer {given}, which no float64 is")


def _initializer_of(who: str, given: Any) -> tuple[int, float, float, int]:
    """Return kind, numbers and seed of what rows begin with."""
    from .. import initializer as init

    if given is None or is_scalar(given):
        return _CONSTANT, 0.0 if given is None else _constant(who, given), 0.0, 0
    made: Any = init.create(given) if isinstance(given, str) else given
    if isinstance(made, type) and issubclass(made, init.Initializer):
        made = made()
    kind = type(made)
    if kind in (init.Zero, init.One, init.Constant) and is_scalar(made.value):
        return _CONSTANT, _constant(who, made.value), 0.0, 0
    if kind in (init.Uniform, init.Normal):
        from ..random import _stream

        seed = int(_stream().integers(0, 2**63))
        if kind is init.Uniform:
            return _UNIFORM, -made.scale, made.scale, seed
        return _NORMAL, 0.0, made.sigma, seed
    raise InvalidArgumentError(
        f"{who}: initializer {type(made).__name__}; a number, or Zero, One, Constant of a number, Uniform or Normal of mx.init is needed"
    )


def _whole(who: str, what: str, given: object, first: int, end: int) -> int:
    """Return a whole number from `first` to below `end`; raise if there is none."""
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or not first <= given < end:
        raise InvalidArgumentError(f"{who}: {what}{given!r}; a whole number from {first} to {end - 1} is needed")
    return int(given)


def _policy_of(
    who: str, admit: object, evict: object, notes: object, memory: object
) -> tuple[int, int, int, int, bool, int]:
    """Return admission, age, number of rows, score, notes and memory as the core takes them."""
    if not isinstance(notes, bool):
        raise InvalidArgumentError(f"{who}: notes={notes!r}; True or False is needed")
    count = _whole(who, "admit=", admit, 1, _ADMIT_MAX + 1)
    most = 0 if memory is None else _whole(who, "memory=", memory, 1, 2**63)
    if evict is None:
        return count, 0, 0, 0, notes, most
    if not isinstance(evict, dict):
        raise InvalidArgumentError(f"{who}: evict={evict!r}; a dict with 'age', or with 'rows' and 'by', is needed")
    for name in evict:
        if name not in ("age", "rows", "by"):
            raise InvalidArgumentError(f"{who}: evict has {name!r}; there are 'age', 'rows' and 'by'")
    if "age" not in evict and "rows" not in evict:
        raise InvalidArgumentError(f"{who}: evict={evict!r} evicts nothing; 'age' or 'rows' is needed")
    age = _whole(who, "evict has 'age': ", evict["age"], 1, _AGE_END) if "age" in evict else 0
    if "rows" not in evict:
        if "by" in evict:
            raise InvalidArgumentError(f"{who}: evict has 'by', which is for 'rows': how many are kept")
        return count, age, 0, 0, notes, most
    rows = _whole(who, "evict has 'rows': ", evict["rows"], 1, _rows.ROWS_MAX)
    by = evict.get("by", "age")
    if by not in _SCORES:
        raise InvalidArgumentError(f"{who}: evict has 'by': {by!r}; there are 'age', 'count' and 'norm'")
    return count, age, rows, _SCORES.index(by), notes, most


class TableRows(NamedTuple):
    """Rows of a table as they were at one version."""

    ids: np.ndarray[Any, np.dtype[np.int64]]  #: ascending, of shape (n,)
    values: NDArray  #: of shape (n, ...), row i for ids[i]
    version: int  #: what `since` of a later export takes


@part_of("KVStore")
class KVStoreRows(_core.Store):
    """The part of KVStore for rows."""

    _running: Running | None = None  # the optimizer that the store runs without Python
    _own: dict[Any, Running]  # of keys that have one for themselves

    def _info(self, verb: str, key: Any) -> _Info:
        return _Info(*self._describe_rows(verb, key))

    @contextlib.contextmanager
    def _turns(self, keys: Any) -> Iterator[bool]:
        """Begin a push of these keys inside; give whether a schedule that is Python code was asked for it."""
        listed = keys if isinstance(keys, (list, tuple)) else [keys]
        try:
            mine = {key: self._own[key] for key in listed if key in self._own}
        except TypeError:  # the verb says what is wrong with the key
            mine = {}
        others = [key for key in listed if key not in mine] if mine else keys
        turns: list[tuple[Running, Any]] = [(running, key) for key, running in mine.items()]
        running = self._running
        if running is not None and running.is_watching and (not mine or others):
            turns.append((running, others))
        turns.sort(key=lambda turn: id(turn[0]))  # threads that name keys in other orders wait in one
        with contextlib.ExitStack() as stack:
            for one, asked in turns:
                stack.enter_context(one.turn(asked))
            yield any(one.asks for one in mine.values()) or (running is not None and running.asks)

    def _is_by_rows(self, key: Any) -> bool:
        """Return whether a key is there and is kept by rows."""
        try:
            return self._info("describe", key).rows is not None
        except KVError:
            return False

    # ---------------------------------------------------------------------------------------------------- making keys

    def _init_given(self, key: Any, value: Any, mode: str) -> None:
        """Create keys, those with row-sparse values by rows."""
        if not self._init(key, value, mode):
            self._init_rows_given(*_pairs("init", key, value), mode)

    def _init_rows_given(self, keys: list[Any], values: list[list[Any]], mode: str) -> None:
        for key, given in zip(keys, values, strict=True):
            if len(given) != 1:
                raise InvalidArgumentError(f"init {key!r}: {len(given)} values, one is needed")
        given = [
            _given(f"init {key!r}", one, True) if is_rows(one) else one
            for key, (one,) in zip(keys, values, strict=True)
        ]
        by_rows = [one if isinstance(one, _Given) else None for one in given]
        specs = [
            (list(one.shape[1:]), shape_and_dtype(one.values)[1], one.shape[0], _ZERO, _KEEP_ALL) if one else None
            for one in by_rows
        ]
        ids = [[one.ids] if one and len(one.ids) else [] for one in by_rows]
        data = [[one.values] if one and len(one.ids) else [] for one in by_rows]
        whole = [[] if isinstance(one, _Given) else [one] for one in given]
        self._init_rows("init", keys, specs, ids, data, whole, mode)

    def _meets_shape(self, key: Any, shape: tuple[int, ...], dtype: str) -> None:
        """Look at a new key before it is made."""

    def init_table(
        self,
        key: Key,
        dim: Shape,
        dtype: DType = "float32",
        initializer: Initializer | type[Initializer] | str | float | None = None,
        rows: int | None = None,
        *,
        optimizer: Optimizer | Program | None = None,
        admit: int = 1,
        evict: dict[str, Any] | None = None,
        notes: bool = True,
        memory: int | None = None,
        mode: Mode | None = None,
    ) -> None:
        """Create a table of rows, such as an embedding, whose rows exist only once they are pushed.

        Reading a row that nobody has pushed gives the initializer's value for it and creates no row. Memory therefore
        grows only with the pushed rows.

        Args:
            key: an int or a str.
            dim: the extent of a row, or its shape.
            dtype: of the rows.
            initializer: the initial value of rows: a number, or `Zero`, `One`, `Constant` of a number, `Uniform` or
                `Normal` of `mx.init`, or the name of one; default 0. The numbers of a row depend on its id and on a
                seed that `mx.random` gives, in a distributed store that of rank 0, and on nothing else.
            rows: the bound that ids are below; default 2**63, so that ids are all int64 numbers from 0.
            optimizer: an optimizer for this key alone, in the place of the store's: one of `mx.optimizer`, whose later
                changes count at the next push, or a `mx.Program`. In a job every rank gives the same one.
            admit: number of the push of an id that creates its row, 1 to 32767. Earlier pushes of the id are counted,
                and their values dropped.
            evict: which rows are removed. `{'age': n}` removes a row that more than n consecutive rounds (with
                `dist_async`: pushes) have not pushed. The row then reads like one that nobody has pushed; its optimizer
                states are removed, too. `{'rows': n, 'by': 'age'|'count'|'norm'}` removes rows when there are more than
                n, until 15/16 of n are left. The first rows to go are those with the oldest last push (default), those
                pushed in the fewest rounds, or those whose value has the smallest Euclidean norm. Each part of the
                table on a server (`table_stats` counts all parts) has its share of n, rounded up. Both may be given.
                Nothing depends on clocks: the same pushes keep the same rows.
            notes: note when and how often each row was pushed, in 16 bytes a row, for `export_rows(since=)`. Eviction
                by age or count notes it in any case.
            memory: limit of the bytes of rows in memory, with their optimizer states, on all servers together. The
                other rows are on a disk: those that have not been pushed for the longest time. Reads give the same
                values. Needs `rows_dir`: of `create` in one process, of `tkv launch` or `tkv server` in a job. The
                table takes more memory than its rows: docs/sparse.md has the rule.
            mode: as of `init`.

        Raises:
            AlreadyExistsError: the key is there already.
            FailedPreconditionError: `memory` without a `rows_dir`.
            InvalidArgumentError: another initializer, or one whose numbers are infinite as this dtype; rows of more than 31
                axes; a number of rows that is below 1 or above 2**63; as `init`.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init_table('users', 4, initializer=mx.init.Constant(0.5))
            >>> kv.push_rows('users', [10**12], np.ones((1, 4), np.float32))
            >>> kv.pull_rows('users', np.array([7, 10**12]))
            array([[0.5, 0.5, 0.5, 0.5],
                   [1. , 1. , 1. , 1. ]], dtype=float32)
        """
        who = f"init_table {key!r}"
        if mode not in (None, "sync", "async"):
            raise InvalidArgumentError(f"{who}: mode {mode!r}; there are sync and async")
        count = _rows.ROWS_MAX if rows is None else rows
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= _rows.ROWS_MAX:
            raise InvalidArgumentError(f"{who}: rows={rows!r}; a whole number from 1 to 2**63 is needed")
        try:
            row_shape, name = shape_list(dim), dtype_name(dtype)
        except TypeError:
            raise InvalidArgumentError(f"{who}: dim {dim!r}; a whole number or a shape is needed") from None
        if not all(0 <= extent < _rows.ROWS_MAX for extent in row_shape):
            raise InvalidArgumentError(f"{who}: dim {dim!r}; a row has 1 to 16777216 bytes")
        policy = _policy_of(who, admit, evict, notes, memory)
        spec = (row_shape, name, int(count), _initializer_of(who, initializer), policy)

        def start(native: _core.Optimizer | None) -> None:
            with created_by_all("init_table"):
                self._init_rows("init_table", [key], [spec], [[]], [[]], [[]], mode or "", native)

        if optimizer is None:
            self._meets_shape(key, (1, *row_shape), name)
            start(None)
        else:
            self._start_with_own(who, key, optimizer, start)

    def _start_with_own(
        self, who: str, key: Any, optimizer: object, start: Callable[[_core.Optimizer | None], None]
    ) -> None:
        """Make a key with an optimizer of its own."""
        from .._update.base import instance_hint
        from ..optimizer import Optimizer, Program

        if isinstance(optimizer, Program):
            start(optimizer._native)
            return
        if not isinstance(optimizer, Optimizer):
            raise InvalidArgumentError(
                f"{who}: optimizer of type {type(optimizer).__name__}; one of mx.optimizer or a mx.Program is needed"
                + instance_hint(optimizer)
            )
        store: Any = self  # a KVStore, whose part this is
        running = optimizer._run_in(store, key, start)
        if running is None:
            raise InvalidArgumentError(f"{who}: {optimizer._why_not_native(asks=True)}")
        self._own[key] = running

    def table_stats(self, key: Key) -> dict[str, int]:
        """Return counters of a key that is kept by rows, over all servers.

        Returns:
            a dict. `rows` counts the existing rows; rows evicted by age count until their memory is released.
            `candidates` counts ids that have been pushed less often than `admit` asks for, and `evicted` the rows
            removed since the key was made. `memory_bytes` is the memory of the whole key. `version` counts the rounds
            (with `dist_async`: pushes) of the key. `disk_rows` counts the rows that are on a disk, and `disk_bytes`
            their bytes there.

        Raises:
            KeyNotFoundError: no such key.
            InvalidArgumentError: a key that is not kept by rows.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init_table('users', 4, admit=2)
            >>> kv.push_rows('users', [3, 5], np.ones((2, 4), np.float32))
            >>> kv.push_rows('users', [3], np.ones((1, 4), np.float32))
            >>> stats = kv.table_stats('users')
            >>> stats['rows'], stats['candidates'], stats['version']
            (1, 1, 2)
        """
        return self._table_stats(key)

    def export_rows(self, key: Key, first: int = 0, last: int | None = None, *, since: int | None = None) -> TableRows:
        """Return the existing rows, all as they were at one version, while other workers continue to push.

        Args:
            key: of a table, or of any other key that is kept by rows.
            first, last: ids from `first` to below `last`; default all.
            since: only rows pushed after this version, which is the `version` of an earlier export. Rows removed
                meanwhile are not reported.

        Returns:
            ids, ascending; their values; and the version.

        Raises:
            KeyNotFoundError: no such key.
            InvalidArgumentError: a key that is not kept by rows; `first` above `last`; `since` of a key without notes.
            OutOfRangeError: a `since` that is later than the key's version.
            FailedPreconditionError: a save or another export of the job is under way.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init_table('t', 2)
            >>> kv.push_rows('t', [9, 4], np.ones((2, 2), np.float32))
            >>> kv.export_rows('t', last=9).ids
            array([4])
            >>> seen = kv.export_rows('t').version
            >>> kv.push_rows('t', [5], np.ones((1, 2), np.float32))
            >>> kv.export_rows('t', since=seen).ids
            array([5])
        """
        who = f"export_rows {key!r}"
        begin = _whole(who, "first=", first, 0, _rows.ROWS_MAX + 1)
        end = _rows.ROWS_MAX if last is None else _whole(who, "last=", last, 0, _rows.ROWS_MAX + 1)
        after = None if since is None else _whole(who, "since=", since, 0, 2**64)
        ids, values, version = self._export_rows(key, begin, end, after)
        return TableRows(ids.asnumpy(), values, version)

    def import_rows(self, key: Key, ids: RowIds, values: Any) -> None:
        """Replace rows by these values, without the optimizer; its states of these rows are dropped, and `admit` is
        ignored.

        In a distributed store one worker calls it, the lowest rank that lives, and in synchronous mode between two barriers.

        Args:
            key: of a table, or of any other key that is kept by rows.
            ids: whole numbers, each once; as of `export_rows`.
            values: of shape ``(len(ids), ...)`` and the key's dtype.

        Raises:
            KeyNotFoundError: no such key.
            InvalidArgumentError: an id that stands twice, another shape or dtype.
            OutOfRangeError: an id that the key does not have; nothing has changed.
            FailedPreconditionError: another rank, or a round of the key has begun.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init_table('t', 2)
            >>> kv.import_rows('t', [4, 9], np.ones((2, 2), np.float32))
            >>> kv.pull_rows('t', np.array([9, 5]))
            array([[1., 1.],
                   [0., 0.]], dtype=float32)
        """
        who = f"import_rows {key!r}"
        wanted = _rows.ids_of(who, ids)
        if wanted.ndim != 1:
            raise InvalidArgumentError(f"{who}: ids of shape {wanted.shape}, a list is needed")
        array = _array_of(who, values, self._info("import_rows", key))
        self._import_rows([key], [[wanted]], [[array]])

    # --------------------------------------------------------------------------------------------------------- pushing

    def _push_with_rows(self, key: Any, value: Any, priority: int, async_op: bool) -> Any:
        """Push values some of which are row-sparse."""
        pairs = _pairs("push", key, value)
        dense: dict[Any, list[Any]] = {}
        rows: dict[Any, list[_Given]] = {}
        infos = dict([(one, self._info("push", one)) for one in pairs[0]])
        for one, values in _by_key(*pairs).items():
            who = f"push {one!r}"
            are_rows = [is_rows(v) for v in values]
            given = [_given(who, v) for v, is_one in zip(values, are_rows, strict=True) if is_one]
            for part in given:
                _check_given(who, part, infos[one])
            if values and all(are_rows):
                rows[one] = given
            else:
                dense[one] = [_dense_of(v) if is_one else v for v, is_one in zip(values, are_rows, strict=True)]
        ids = [[part.ids for part in parts] for parts in rows.values()]
        data = [[part.values for part in parts] for parts in rows.values()]
        arguments = ("push", list(rows), ids, data, list(dense), list(dense.values()), priority)
        if not async_op:
            self._push_rows(*arguments)
            return None
        return _ticket([self._push_rows_async(*arguments)], title("push", _one_or_all(pairs[0])), lambda: None)

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
        """Push some rows: sum those of one id and hand them to the updater (default: store them, and leave the other rows).

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
            >>> kv = mx.kv.create('local')
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
        keys, columns = _columns("push_rows", key, row_ids, values)
        ids: list[Any] = []
        data: list[Any] = []
        for one, given_ids, given in zip(keys, *columns, strict=True):
            who = f"push_rows {one!r}"
            info = self._info("push_rows", one)
            found = _rows.ids_of(who, given_ids)
            _check_range(who, found, info)
            array = _array_of(who, given, info)
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
            return _ticket(operations, title("push_rows", key), lambda: None)
        if keys:
            self._push_rows(*arguments)
        return None

    # --------------------------------------------------------------------------------------------------------- pulling

    def _pull_with_rows(self, key: Any, out: Any, priority: int, ignore_sparse: bool, async_op: bool) -> Any:
        """Pull into outputs some of which are row-sparse."""
        pairs = _pairs("pull", key, out)
        return self._planned(*pairs, priority, ignore_sparse).run(self, async_op, lambda: None, pairs[0])

    def _planned(self, keys: list[Any], outs: list[list[Any]], priority: int, ignore_sparse: bool) -> _Pulls:
        """Return the readings of a pull, whose outs are looked at."""
        pulls = _Pulls("pull", keys, priority)
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

    def _plan_one(self, pulls: _Pulls, key: Any, info: _Info, target: Any) -> None:
        who = f"pull {key!r}"
        if _rows.is_of_torch(target) or _rows.is_of_scipy(target):
            raise InvalidArgumentError(
                f"{who}: type {type(target).__name__}; a RowSparseNDArray or a dense array is needed"
            )
        is_sparse = is_row_sparse(target)
        view = target if is_sparse else pulls.view(who, target)
        if view.shape != info.whole():
            raise InvalidArgumentError(f"{who}: an output of shape {view.shape}, the key has {_shown(info)}")
        _check_end(who, info)
        _check_dtype(who, view.dtype_name, info.dtype)
        array = _new(view.shape, view.dtype_name, view) if is_sparse else view
        pulls.add_whole(key, array)
        if is_sparse:
            pulls.ends.append(lambda: target._take(array))

    def _pull_whole(self, key: Any, priority: int, like: Callable[[Any], Any], async_op: bool) -> Any:
        """Pull without an output keys some of which are kept by rows."""
        check_priority("pull", key, priority)
        keys = _listed(key)
        fresh = []
        for one in keys:
            info = self._info("pull", one)
            _check_end(f"pull {one!r}", info)
            fresh.append(_new(info.whole(), info.dtype))
        pulls = self._planned(keys, [[array] for array in fresh], priority, False)
        return pulls.run(self, async_op, lambda: like(fresh if isinstance(key, (list, tuple)) else fresh[0]), keys)

    def _pushpull_with_rows(self, key: Any, value: Any, out: Any, priority: int, async_op: bool) -> Any:
        """Push, then pull, where a value or an output is row-sparse."""
        if out is None:
            raise InvalidArgumentError(f"{title('pushpull', key)}: `out` is needed where a value is row-sparse")
        pairs, targets = _pairs("pushpull", key, value), _pairs("pushpull", key, out)
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
        pairs, targets = _pairs("broadcast", key, value), _pairs("broadcast", key, out)
        for one, values, outs in zip(pairs[0], pairs[1], targets[1], strict=True):
            who = f"broadcast {one!r}"
            if len(values) != 1 or not outs:
                raise InvalidArgumentError(
                    f"{who}: {len(values)} values and {len(outs)} outputs, one and at least one are needed"
                )
            wanted, dtype = _shape_and_dtype(who, values[0], False)
            for target in outs:
                found, found_dtype = _shape_and_dtype(who, target, True)
                if found != wanted:
                    raise InvalidArgumentError(f"{who}: an output of shape {found}, the value has {wanted}")
                _check_dtype(who, found_dtype, dtype)
            if is_rows(values[0]):
                _check_end(who, _Info(wanted[1:], dtype, wanted[0]))
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
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((4, 2)).tostype('row_sparse'))
            >>> out = mx.nd.sparse.zeros('row_sparse', (4, 2))
            >>> kv.row_sparse_pull('w', out=out, row_ids=mx.nd.array([3, 0, 3]))
            >>> out.indices.asnumpy(), out.data.asnumpy()
            (array([0, 3]), array([[1., 1.],
                   [1., 1.]], dtype=float32))
        """
        keys, outs, sets, is_single = _requests(key, out, row_ids)
        pulls = _Pulls("row_sparse_pull", key, priority)
        made = [self._plan_sparse(pulls, one, targets, ids) for one, targets, ids in zip(keys, outs, sets, strict=True)]

        def result() -> Any:
            if out is not None:
                return None
            each = [arrays[0] if is_one else arrays for arrays, is_one in zip(made, is_single, strict=True)]
            return each if isinstance(key, (list, tuple)) else each[0]

        return pulls.run(self, async_op, result, keys)

    def _plan_sparse(
        self, pulls: _Pulls, key: Any, outs: list[Any] | None, sets: list[np.ndarray[Any, Any]]
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
            _check_range(who, ids, info)
        read: list[NDArray] = []
        for place, target in enumerate(targets):
            ids = sets[place if len(sets) > 1 else 0]
            if not is_row_sparse(target):
                raise InvalidArgumentError(
                    f"{who}: an output of type {type(target).__name__}; a RowSparseNDArray is needed, and pull_rows gives rows "
                    "as a dense array"
                )
            if not info.takes(target.shape):
                raise InvalidArgumentError(f"{who}: an output of shape {target.shape}, the key has {_shown(info)}")
            _rows.check_ids(who, ids, target.shape[0], f"the output has shape {target.shape}")
            if len(sets) > 1 or place == 0:
                data = _new((len(ids), *info.shape), target.dtype_name, target)
                pulls.add(key, ids, data)
                read.append(data)
                pulls.ends.append(_taking(target, data, ids, is_copy=False))
            else:
                pulls.ends.append(_taking(target, read[0], ids, is_copy=True))
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
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.array([[0, 1], [2, 3], [4, 5]]).tostype('row_sparse'))
            >>> kv.pull_rows('w', np.array([[2, 1], [1, 1]]))[0]
            array([[4., 5.],
                   [2., 3.]], dtype=float32)
        """
        if out is not None:
            keys, columns = _columns("pull_rows", key, row_ids, out)
        else:
            keys, (ids_of_keys,) = _columns("pull_rows", key, row_ids)
            columns = [ids_of_keys, [None] * len(keys)]
        pulls = _Pulls("pull_rows", key, priority)
        results = [self._plan_rows(pulls, *one) for one in zip(keys, *columns, strict=True)]

        def result() -> Any:
            if out is not None:
                return None
            found = [give() for give in results]
            return found if isinstance(key, (list, tuple)) else found[0]

        return pulls.run(self, async_op, result, keys)

    def _plan_rows(self, pulls: _Pulls, key: Any, row_ids: Any, out: Any) -> Callable[[], Any]:
        """Add the reading of one key; return a function that gives its result."""
        who = f"pull_rows {key!r}"
        info = self._info("pull_rows", key)
        if info.rows is None:
            raise InvalidArgumentError(
                f"{who}: the key is dense; pull gives its value, and init with a row-sparse value, or init_table, makes a key of rows"
            )
        ids = _rows.ids_of(who, row_ids)
        _check_range(who, ids, info)
        shape = (*ids.shape, *info.shape)
        target = _new(shape, info.dtype) if out is None else pulls.view(who, out)
        if target.shape != shape:
            raise InvalidArgumentError(f"{who}: an output of shape {target.shape}, {shape} is needed")
        target._check_writable(who, "output")
        if target.dtype_name != info.dtype and not {target.dtype_name, info.dtype} <= set(FLOATS):
            raise InvalidArgumentError(
                f"{who}: the output is {target.dtype_name}, the key has {info.dtype}; only floats convert"
            )
        packed = target if target.contiguous else _new(shape, target.dtype_name)
        if ids.size:
            pulls.add(key, ids.reshape(-1), packed._reshape([ids.size, *info.shape]))
        if packed is not target:
            pulls.ends.append(lambda: target._assign(packed))
        return lambda: _like(target, row_ids)


def _dense_of(value: Any) -> Any:
    """Return a row-sparse value as a dense array."""
    if is_row_sparse(value):
        return value.tostype("default")
    if _rows.is_of_torch(value):
        return _rows.summed(value.detach(), lambda tensor: tensor.to_dense())
    return value.toarray()


def _check_end(who: str, info: _Info) -> None:
    """Raise if all rows of a key are more than an array of them may have."""
    if info.rows is None:
        return
    if info.rows == _rows.ROWS_MAX:
        raise InvalidArgumentError(f"{who}: the key has 2**63 rows; pull_rows(key, ids) gives some")
    row_bytes = math.prod(info.shape) * np.dtype(BITS.get(info.dtype, info.dtype)).itemsize
    if info.rows * row_bytes > 2**30:
        raise InvalidArgumentError(
            f"{who}: the key is kept by rows, and {info.rows} of them are more than 1 GiB as an array; pull_rows(key, ids) gives some"
        )


def _check_dtype(who: str, dtype: str, wanted: str) -> None:
    """Raise if an output of the dtype cannot get a value."""
    if dtype != wanted and not (dtype in FLOATS and wanted in FLOATS):
        raise InvalidArgumentError(f"{who}: the output is {dtype}, the key has {wanted}; only floats convert")


def _check_range(who: str, ids: np.ndarray[Any, Any], info: _Info) -> None:
    rows = info.rows if info.rows is not None else (info.shape[0] if info.shape else 0)
    if not _rows.are_below(ids, rows):
        _rows.check_ids(who, ids, rows, f"the key has {_shown(info)}")


def _array_of(who: str, given: Any, info: _Info) -> NDArray:
    """Return values of any kind as an array: numbers in the dtype of the key, arrays as they are."""
    if isinstance(given, (list, tuple)) or is_scalar(given):
        try:
            return nd.array(given, dtype=info.dtype)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{who}: {error}") from None
    if is_rows(given):
        raise InvalidArgumentError(
            f"{who}: values of type {type(given).__name__} that are row-sparse; a dense array with a row for each id is needed, and "
            "push(key, value) takes row-sparse values, with the ids that they have"
        )
    array = _view(who, given, False)
    _check_dtype_of_values(who, given, array.dtype_name, info)
    return array


def _like(array: NDArray, ids: Any) -> Any:
    """Return an array in the framework of ids: of a list, a range or an int as it is, of what has no framework NumPy's."""
    from .._array import interop as _interop

    if isinstance(ids, (list, tuple, range, int)):
        return array
    return _interop.like(array, ids if _interop.has_framework(ids) else np.empty(0))


def _taking(target: Any, data: NDArray, ids: np.ndarray[Any, Any], is_copy: bool) -> Callable[[], None]:
    """Return a function that gives an array the rows that have been read."""

    def take() -> None:
        rows = data if data.dtype_name == target.dtype_name else data.astype(target.dtype_name)
        if rows.context != target.context:
            rows = rows.copyto(target.context)
        target._data, target._ids = rows.copy() if is_copy and rows is data else rows, ids

    return take


def _columns(verb: str, key: Any, *given: Any) -> tuple[list[Any], list[list[Any]]]:
    """Return keys, and for each argument its values by key."""
    if not isinstance(key, (list, tuple)):
        return [key], [[one] for one in given]
    for one in given:
        if not isinstance(one, (list, tuple)) or len(one) != len(key):
            found = f"one of {len(one)}" if isinstance(one, (list, tuple)) else "no list"
            raise InvalidArgumentError(f"{verb}: {len(key)} keys need a list of {len(key)}, here is {found}")
    return list(key), [list(one) for one in given]


def _requests(
    key: Any, out: Any, row_ids: Any
) -> tuple[list[Any], list[list[Any] | None], list[list[np.ndarray[Any, Any]]], list[bool]]:
    """Return keys, and for each its outputs, its ids, and whether there is one array of ids."""
    who = "row_sparse_pull"
    if not isinstance(key, (list, tuple)):
        outs = None if out is None else _listed(out)
        return [key], [outs], [_id_sets(f"{who} {key!r}", row_ids)], [_is_ids(row_ids)]
    keys = list(key)
    if not keys:
        raise InvalidArgumentError(f"{who}: no keys")
    if out is None:
        outs_of_keys: list[list[Any] | None] = [None] * len(keys)
    else:
        outs_of_keys = [_listed(one) for one in _columns(who, keys, out)[1][0]]
    ids = [row_ids] if _is_ids(row_ids) else list(row_ids)
    if len(ids) not in (1, len(keys)):
        raise InvalidArgumentError(
            f"{who}: {len(ids)} arrays of ids for {len(keys)} keys; one for each is needed, or one"
        )
    ids = ids * len(keys) if len(ids) == 1 else ids
    sets = [_id_sets(f"{who} {one!r}", given) for one, given in zip(keys, ids, strict=True)]
    return keys, outs_of_keys, sets, [_is_ids(one) for one in ids]
