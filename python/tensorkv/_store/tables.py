"""Tables of rows: `init_table`, their statistics, export and import."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from .._array import rows as _rows
from .._array.elements import dtype_name, is_scalar, number, shape_list
from .._array.ndarray import NDArray
from .._array.rows import is_rows
from .._part import part_of
from ..errors import InvalidArgumentError, KVError
from .arguments import pairs_of
from .together import created_by_all
from .values import GivenRows, KeyForm, array_of, rows_given, shape_and_dtype
from .view import KVStoreView

if TYPE_CHECKING:
    from .._types import DType, Key, Mode, RowIds, Shape
    from .._update.running import Running
    from ..initializer import Initializer
    from ..optimizer import Optimizer, Program

_SCORES = ("age", "count", "norm")
_ADMIT_MAX, _AGE_END = 32767, 2**48


def constant(who: str, value: Any) -> float:
    """Return a number as a float64 that equals it."""
    given = number(value)
    try:
        if float(given) == given or given != given:
            return float(given)
    except OverflowError:
        pass
    raise InvalidArgumentError(f"{who}: initializer {given}, which no float64 is")


def initializer_of(who: str, given: Any) -> _core.RowInitializer:
    """Return the values that rows begin with."""
    from .. import initializer as init

    if given is None or is_scalar(given):
        return _core.RowInitializer("constant", 0.0 if given is None else constant(who, given))
    made: Any = init.create(given) if isinstance(given, str) else given
    if isinstance(made, type) and issubclass(made, init.Initializer):
        made = made()
    kind = type(made)
    if kind in (init.Zero, init.One, init.Constant) and is_scalar(made.value):
        return _core.RowInitializer("constant", constant(who, made.value))
    if kind in (init.Uniform, init.Normal):
        from ..random import _stream

        seed = int(_stream().integers(0, 2**63))
        if kind is init.Uniform:
            return _core.RowInitializer("uniform", -made.scale, made.scale, seed)
        return _core.RowInitializer("normal", 0.0, made.sigma, seed)
    raise InvalidArgumentError(
        f"{who}: initializer {type(made).__name__}; a number, or Zero, One, Constant of a number, Uniform or Normal of tkv.init is needed"
    )


def whole_number(who: str, what: str, given: object, first: int, end: int) -> int:
    """Return a whole number from `first` to below `end`; raise if there is none."""
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or not first <= given < end:
        raise InvalidArgumentError(f"{who}: {what}{given!r}; a whole number from {first} to {end - 1} is needed")
    return int(given)


def policy_of(who: str, admit: object, evict: object, notes: object, memory: object) -> _core.RowPolicy:
    """Return which rows a table admits, removes and has in memory."""
    if not isinstance(notes, bool):
        raise InvalidArgumentError(f"{who}: notes={notes!r}; True or False is needed")
    options: dict[str, Any] = {
        "admit_count": whole_number(who, "admit=", admit, 1, _ADMIT_MAX + 1),
        "memory_max": 0 if memory is None else whole_number(who, "memory=", memory, 1, 2**63),
        "has_notes": notes,
    }
    if evict is None:
        return _core.RowPolicy(**options)
    if not isinstance(evict, dict):
        raise InvalidArgumentError(f"{who}: evict={evict!r}; a dict with 'age', or with 'rows' and 'by', is needed")
    for name in evict:
        if name not in ("age", "rows", "by"):
            raise InvalidArgumentError(f"{who}: evict has {name!r}; there are 'age', 'rows' and 'by'")
    if "age" not in evict and "rows" not in evict:
        raise InvalidArgumentError(f"{who}: evict={evict!r} evicts nothing; 'age' or 'rows' is needed")
    if "age" in evict:
        options["age_max"] = whole_number(who, "evict has 'age': ", evict["age"], 1, _AGE_END)
    if "rows" not in evict:
        if "by" in evict:
            raise InvalidArgumentError(f"{who}: evict has 'by', which is for 'rows': how many are kept")
        return _core.RowPolicy(**options)
    options["rows_max"] = whole_number(who, "evict has 'rows': ", evict["rows"], 1, _rows.ROWS_MAX)
    options["score"] = evict.get("by", "age")
    if options["score"] not in _SCORES:
        raise InvalidArgumentError(f"{who}: evict has 'by': {options['score']!r}; there are 'age', 'count' and 'norm'")
    return _core.RowPolicy(**options)


class TableRows(NamedTuple):
    """Rows of a table as they were at one version."""

    ids: np.ndarray[Any, np.dtype[np.int64]]  #: ascending, of shape (n,)
    values: NDArray  #: of shape (n, ...), row i for ids[i]
    version: int  #: what `since` of a later export takes


@part_of("KVStore")
class KVStoreTables(KVStoreView):
    """The part of KVStore that makes keys of rows and looks after them."""

    _running: Running | None = None  # the optimizer that the store runs without Python
    _own: dict[Any, Running]  # of keys that have one for themselves

    def _info(self, verb: str, key: Any) -> KeyForm:
        return KeyForm(*self._describe_rows(verb, key))

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
            self._init_rows_given(*pairs_of("init", key, value), mode)

    def _init_rows_given(self, keys: list[Any], values: list[list[Any]], mode: str) -> None:
        for key, given in zip(keys, values, strict=True):
            if len(given) != 1:
                raise InvalidArgumentError(f"init {key!r}: {len(given)} values, one is needed")
        given = [
            rows_given(f"init {key!r}", one, True) if is_rows(one) else one
            for key, (one,) in zip(keys, values, strict=True)
        ]
        by_rows = [one if isinstance(one, GivenRows) else None for one in given]
        forms = [
            _core.TableForm(
                row_shape=one.shape[1:],
                dtype=shape_and_dtype(one.values)[1],
                row_count=one.shape[0],
                policy=_core.RowPolicy(replaces_all=True),
            )
            if one
            else None
            for one in by_rows
        ]
        ids = [[one.ids] if one and len(one.ids) else [] for one in by_rows]
        data = [[one.values] if one and len(one.ids) else [] for one in by_rows]
        whole = [[] if isinstance(one, GivenRows) else [one] for one in given]
        self._init_rows("init", keys, forms, ids, data, whole, mode)

    def _meets_table(self, key: Any, row_shape: list[int], dtype: str) -> None:
        """Look at a new table before it is made."""

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
                `Normal` of `tkv.init`, or the name of one; default 0. The numbers of a row depend on its id and on a
                seed that `tkv.random` gives, in a distributed store that of rank 0, and on nothing else.
            rows: the bound that ids are below; default 2**63, so that ids are all int64 numbers from 0.
            optimizer: an optimizer for this key alone, in the place of the store's: one of `tkv.optimizer`, whose later
                changes count at the next push, or a `tkv.Program`. In a job every rank gives the same one.
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
            >>> kv = tkv.kv.create('local')
            >>> kv.init_table('users', 4, initializer=tkv.init.Constant(0.5))
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
        form = _core.TableForm(
            row_shape=row_shape,
            dtype=name,
            row_count=int(count),
            policy=policy_of(who, admit, evict, notes, memory),
            initializer=initializer_of(who, initializer),
        )

        def start(native: _core.Optimizer | None) -> None:
            with created_by_all("init_table"):
                self._init_rows("init_table", [key], [form], [[]], [[]], [[]], mode or "", native)

        if optimizer is None:
            self._meets_table(key, row_shape, name)
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
                f"{who}: optimizer of type {type(optimizer).__name__}; one of tkv.optimizer or a tkv.Program is needed"
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
            >>> kv = tkv.kv.create('local')
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
            FailedPreconditionError: this worker is saving or exporting, or another worker has done so for the whole
                patience; an export waits for other workers first.

        Example:
            >>> kv = tkv.kv.create('local')
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
        begin = whole_number(who, "first=", first, 0, _rows.ROWS_MAX + 1)
        end = _rows.ROWS_MAX if last is None else whole_number(who, "last=", last, 0, _rows.ROWS_MAX + 1)
        after = None if since is None else whole_number(who, "since=", since, 0, 2**64)
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
            >>> kv = tkv.kv.create('local')
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
        array = array_of(who, values, self._info("import_rows", key))
        self._import_rows([key], [[wanted]], [[array]])
