"""Bindings of the TensorKV core; use the package tensorkv."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, overload

from numpy.typing import NDArray as NumpyArray
from typing_extensions import CapsuleType, Self



_A = TypeVar("_A", bound=Array)

def _error_codes() -> dict[str, int]: ...

def _code_of_system_error(arg: int, /) -> int: ...

class Array:
    """
    A dense tensor: a handle on shared memory. Use tensorkv.ndarray.NDArray.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, a tuple of int."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    @property
    def dtype_name(self) -> str:
        """Element type by NumPy's name."""

    @property
    def _context(self) -> tuple[Literal["cpu", "gpu"], int]: ...

    @property
    def data_ptr(self) -> int:
        """Address of the first element; waits until the memory may be written."""

    @property
    def read_only(self) -> bool:
        """Whether operations refuse to write into the array."""

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without holes."""

    def _slice(self, begin: int, end: int) -> Self: ...

    def _at(self, index: int) -> Self: ...

    def _reshape(self, shape: Sequence[int]) -> Self: ...

    def _copy(self) -> Self: ...

    def _with_context(self, kind: str, index: int) -> Self: ...

    def _as(self, type: type[_A]) -> _A: ...

    def _assign(self, source: Array) -> None: ...

    def _fill(self, value: float) -> None: ...

    def _numpy_for_reading(self) -> NumpyArray[Any]: ...

    def _numpy_for_writing(self) -> NumpyArray[Any]: ...

    def _numpy_for_sharing(self) -> NumpyArray[Any]: ...

    def _check_writable(self, verb: str, name: str) -> None:
        """
        Raises if nothing may be written; the message begins with `verb` and calls the array by `name`.
        """

    def _wait_to_read(self) -> None: ...

    def _is_readable(self) -> bool:
        """Returns false if reading would wait for an operation."""

    def _capsule(self, versioned: bool, stream: int) -> CapsuleType: ...

class _Lent:
    """Memory that NumPy is about to look at."""

    def __dlpack__(self, **kwargs: object) -> CapsuleType: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

def _num_gpus() -> int: ...

def _gpu_memory(index: int) -> tuple[int, int]: ...

def _wait_all() -> None: ...

def _register_array_class(type: type[Array]) -> None: ...

def _empty(type: type[_A], shape: Sequence[int], dtype: str, kind: str, index: int) -> _A: ...

def _view_of(type: type[_A], object: object, writable: bool) -> _A: ...

_BINARY_OPS: dict[str, int]

_UNARY_OPS: dict[str, int]

def _binary(type: type[_A], op: int, a: Array | float, b: Array | float) -> _A: ...

def _binary_into(op: int, a: Array, b: Array | float, out: Array) -> None: ...

def _unary(type: type[_A], op: int, a: Array) -> _A: ...

def _convert_float(type: type[_A], a: Array, dtype: str) -> _A: ...

def _digests(arrays: list[Any]) -> list[int]: ...

class Program:
    """A parsed update program. Use tensorkv.Program."""

    def __init__(self, text: str) -> None: ...

    INSTRUCTIONS_MAX: Final[int] = ...
    """Operations that a program may have."""

    STATES_MAX: Final[int] = ...
    """States that a program may have."""

    @property
    def name(self) -> str:
        """The program's name."""

    @property
    def text(self) -> str:
        """The text form, normalised."""

    @property
    def states(self) -> list[str]:
        """Names of the states that are arrays."""

    @property
    def scalar_states(self) -> dict[str, float]:
        """States that are scalars, and their values before the first update."""

    @property
    def params(self) -> dict[str, float]:
        """Hyperparameters and their defaults."""

    def __repr__(self) -> str: ...

class Optimizer:
    """
    A program with the values of its hyperparameters; stores see changes at once.
    """

    def __init__(self, program: Program, multi_precision: bool = False, lazy: bool = True) -> None: ...

    @staticmethod
    def create(name: str, params: Mapping[str, float] = {}, multi_precision: bool = False, lazy: bool = True) -> Optimizer:
        """A built-in by name."""

    @property
    def program(self) -> Program:
        """The program."""

    def param(self, name: str) -> float:
        """The value of a hyperparameter."""

    def set_param(self, name: str, value: float) -> None:
        """Changes a hyperparameter."""

    def scalar(self, name: str, t: float, n: float = 1.0) -> float:
        """
        The value of a scalar of the program in round `t` with `n` contributors.
        """

    def set_multiplier(self, param: str, key: int | str, factor: float) -> None:
        """For `key` the hyperparameter counts `factor` times its value."""

    def params_for(self, key: object | None) -> dict[str, float]:
        """The hyperparameters of a key, its multipliers included."""

    def apply(self, key: int | str, round: int, grad: Array, weight: Array, states: list[Any], master: Array | None) -> None:
        """One update of `weight` by `grad`, outside a store."""

def seconds(seconds: float, verb: str, argument: str) -> float:
    """
    Returns a duration that a user has given, bounded; refuses negative ones and NaN.
    """

class Waker:
    """Ids of operations that have ended, and a file that can be read then."""

    def __init__(self) -> None: ...

    def fileno(self) -> int: ...

    def add(self, id: int) -> None: ...

    def take(self) -> list[int]: ...

    def wake_for_notices(self, id: int) -> None:
        """Each notice of a store adds the id from now on."""

class Interruption:
    """Ends what the thread that enters it waits for."""

    def __init__(self) -> None: ...

    def ask(self) -> None: ...

    def enter(self) -> None: ...

    @staticmethod
    def leave() -> None: ...

class Operation:
    """An operation of a store; see tensorkv.Ticket."""

    def done(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> None: ...

    def cancel(self) -> bool: ...

    def on_end(self, waker: Waker, id: int) -> None: ...

    def failure(self) -> tuple[str, str] | None: ...

    def saved_path(self) -> str: ...

def _set_step(number: int, keys: int) -> tuple[int, int]: ...

def _take_notices() -> list[tuple[int, str]]: ...

class Store:
    """What KVStore is made of."""

    @overload
    def __init__(self, type: str, options: dict[str, Any]) -> None: ...
    @overload
    def __init__(self, cluster: Cluster, rank: int) -> None: ...
    @overload
    def __init__(self, url: str, options: dict[str, Any], store: int) -> None: ...
    @overload
    def __init__(self, cluster: Cluster) -> None: ...

    def _init(self, key: object | None, value: object | None, mode: str) -> bool: ...

    def _assign(self, key: object | None, value: object | None) -> None: ...

    def _push(self, key: object | None, value: object | None, priority: object | None) -> bool: ...

    def _push_async(self, key: object | None, value: object | None, priority: int) -> Operation | None: ...

    def _pull(self, key: object | None, out: object | None, priority: object | None) -> bool: ...

    def _pull_async(self, key: object | None, out: object | None, priority: int) -> Operation | None: ...

    def _pushpull(self, key: object | None, value: object | None, out: object | None, priority: object | None) -> bool: ...

    def _pushpull_async(self, key: object | None, value: object | None, out: object | None, priority: int) -> Operation | None: ...

    def _broadcast(self, key: object | None, value: object | None, out: object | None, priority: object | None) -> bool: ...

    def _fresh(self, verb: str, key: object) -> Any: ...

    def _describe(self, verb: str, key: object) -> tuple[tuple[int, ...], str]:
        """Returns shape and dtype of a key."""

    def _update_of(self, key: object | None) -> Optimizer | None:
        """What servers update a key with now; None: they assign."""

    def _set_function(self, steps: object | None) -> None: ...

    def _set_optimizer(self, optimizer: Optimizer) -> None: ...

    def _set_gradient_compression(self, type: str, threshold: float, ratio: float, keys: str) -> None: ...

    def _close(self, has_failed: bool = False) -> None: ...

    def _barrier(self) -> None: ...

    def _barrier_async(self) -> Operation: ...

    def _save(self, path: str) -> str: ...

    def _save_async(self, path: str) -> Operation: ...

    def _load(self, path: str) -> dict[int | str, int]: ...

    def _updates_in(self, path: str) -> dict[int | str, int]: ...

    def _trace_start(self) -> None: ...

    def _trace_pause(self) -> None: ...

    def _trace_write(self, file: str) -> tuple[int, int]: ...

    def _save_states(self, file: str) -> None: ...

    def _load_states(self, file: str) -> None: ...

    def _delete(self, key: object | None) -> None: ...

    def _round(self, key: object | None) -> int: ...

    def _former_step(self, key: object | None) -> tuple[int, int]: ...

    def _contains(self, key: object | None) -> bool: ...

    def _keys(self) -> list[int | str]: ...

    def _status(self) -> str: ...

    @property
    def _url(self) -> str: ...

    def _stats(self) -> dict[str, Any]: ...

    def _size(self) -> int: ...

    def _num_dead_node(self, arg: int, /) -> int: ...

    @property
    def _rejoined(self) -> bool: ...

    @property
    def _type(self) -> str: ...

    @property
    def _rank(self) -> int: ...

    @property
    def _num_workers(self) -> int: ...

    def _init_rows(self, verb: str, keys: object, forms: Sequence[TableForm | None], ids: object, values: object, whole: object, mode: str, optimizer: Optimizer | None = None) -> None: ...

    def _push_rows(self, verb: str, keys: object, ids: object, values: object, whole_keys: object, whole_values: object, priority: object | None) -> None: ...

    def _push_rows_async(self, verb: str, keys: object, ids: object, values: object, whole_keys: object, whole_values: object, priority: int) -> Operation: ...

    def _pull_rows(self, verb: str, keys: object, ids: object, outs: object, priority: object | None) -> None: ...

    def _pull_rows_async(self, verb: str, keys: object, ids: object, outs: object, priority: int) -> Operation: ...

    def _export_rows(self, key: object, first: int, end: int, since: int | None) -> tuple[Any, Any, int]: ...

    def _import_rows(self, key: object, ids: object, values: object) -> None: ...

    def _table_stats(self, key: object) -> dict[str, int]: ...

    def _describe_rows(self, verb: str, key: object) -> tuple[tuple[int, ...], str, int | None]:
        """
        Returns shape, dtype and None of a plain key, and of a table the shape of a row, the dtype and the number of rows.
        """

class RowInitializer:
    """The value of rows that were never written."""

    def __init__(self, kind: str = 'constant', a: float = 0.0, b: float = 0.0, seed: int = 0) -> None: ...

class RowPolicy:
    """Which rows a table admits, removes and has in memory."""

    def __init__(self, *, admit_count: int = 1, age_max: int = 0, rows_max: int = 0, score: str = 'age', has_notes: bool = False, memory_max: int = 0, replaces_all: bool = False) -> None: ...

class TableForm:
    """The form of a table of rows."""

    def __init__(self, *, row_shape: Sequence[int], dtype: str, row_count: int, initializer: RowInitializer = ..., policy: RowPolicy = ...) -> None: ...

def _fit_one_array(rows: int, row_bytes: int) -> bool:
    """Returns true if all rows of a table fit into one array."""

class Cluster:
    """Servers and head of a job; see tensorkv.testing.cluster."""

    def __init__(self, workers: int, servers: int, type: str, options: dict[str, Any]) -> None: ...

    def kill_server(self, index: int) -> None:
        """Ends a server, as if its process had died."""

    def kill_head(self) -> None:
        """Ends the head: data goes on, nobody joins any more."""

def role() -> str | None:
    """
    Returns what this process is in its job, 'worker', 'server', 'head' or 'observer'; None without a launcher.
    """

def new_token() -> str:
    """Returns a fresh secret for a job."""

def job_signs() -> list[str]:
    """
    Returns what in the environment says which job this process belongs to, first what decides.
    """

class Service:
    """A head or a server on a thread of this process."""

    def __init__(self, role: str, name: str, url: str, token: str, rank: int, workers: int, servers: int, options: dict[str, object]) -> None: ...

    @property
    def url(self) -> str: ...

    @property
    def address(self) -> str:
        """Where it listens, as TKV_HEAD names it where it is the head."""

    def wait(self, seconds: float) -> bool:
        """Returns whether it is of no more use: every worker has left."""

    def exited(self, role: str, index: int) -> None:
        """Tells a head that a process has ended."""

    def gone(self, role: str, index: int, has_failed: bool) -> None:
        """
        Tells a head that no later process takes the place of one that has ended.
        """

    def stop(self) -> None: ...

def has_snapshot(folder: str) -> bool:
    """Returns whether a load would find a snapshot there."""

def is_in_group() -> bool:
    """Returns whether an MPI launcher has started this process."""

def serve() -> None:
    """Serves as the environment says, until all workers have left."""

def is_distributed(type: str) -> bool:
    """Returns whether a store of that type has several workers."""

def is_async(type: str) -> bool:
    """Returns whether keys of a store of that type are asynchronous."""

def nearest(word: str, names: Sequence[str]) -> str:
    """Returns the name that is near to a word, or ''."""

def option_table() -> list[dict[str, str]]:
    """Returns the table of options, a dict for each."""

def options_in_force(type: str, options: dict[str, Any]) -> dict[str, str]:
    """
    Returns what a store of that type would have for its options, as texts.
    """

class References:
    """The references of objects at one time."""

    def __init__(self, objects: list[Any], kinds: Sequence[type]) -> None: ...

    def changed(self) -> list[Any]: ...

    def referents_of(self, object: object) -> list[Any] | None: ...

    def kinds(self) -> list[type]: ...

    def of_kinds(self, kinds: Sequence[type]) -> list[Any]: ...

def _warn_of_leaks(warn: bool) -> None:
    """For tests of the bindings."""

def version() -> str: ...

def config() -> str: ...

def _empty_call(key: object, value: object) -> None: ...
