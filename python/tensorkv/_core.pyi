"""Bindings of the TensorKV core; use the package tensorkv."""

from collections.abc import Mapping, Sequence
from typing import overload


def _error_codes() -> dict: ...

class Array:
    """
    A dense tensor: a handle on shared memory. Use tensorkv.ndarray.NDArray.
    """

    @property
    def shape(self) -> tuple:
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
    def _context(self) -> tuple[str, int]: ...

    @property
    def data_ptr(self) -> int:
        """Address of the first element; waits until the memory may be written."""

    @property
    def read_only(self) -> bool:
        """Whether operations refuse to write into the array."""

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without holes."""

    def _slice(self, begin: int, end: int) -> object: ...

    def _at(self, index: int) -> object: ...

    def _reshape(self, shape: Sequence[int]) -> object: ...

    def _copy(self) -> object: ...

    def _with_context(self, kind: str, index: int) -> object: ...

    def _as(self, type: object) -> object: ...

    def _assign(self, source: Array) -> None: ...

    def _fill(self, value: object) -> None: ...

    def _numpy_for_reading(self) -> object: ...

    def _numpy_for_writing(self) -> object: ...

    def _numpy_for_sharing(self) -> object: ...

    def _wait_to_read(self) -> None: ...

    def _capsule(self, versioned: bool) -> object: ...

class _Lent:
    """Memory that NumPy is about to look at."""

    def __dlpack__(self, **kwargs) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

def _wait_all() -> None: ...

def _register_array_class(type: object) -> None: ...

def _empty(type: object, shape: Sequence[int], dtype: str, kind: str, index: int) -> object: ...

def _view_of(type: object, object: object | None, writable: bool) -> object: ...

_BINARY_OPS: int = 12

_UNARY_OPS: int = 4

def _binary(type: object, op: int, a: object, b: object) -> object: ...

def _binary_into(op: int, a: Array, b: object, out: Array) -> None: ...

def _unary(type: object, op: int, a: Array) -> object: ...

def _convert_float(type: object, a: Array, dtype: str) -> object: ...

class Program:
    """
    An update as data: straight-line elementwise code on `sum`, `value` and states.

    The grammar is in docs/programs.md. Raises InvalidArgumentError naming the line.

    Example:
        >>> program = mx.Program('program add\\nw = add value sum\\nvalue <- w\\n')
        >>> program.name, program.states
        ('add', [])
    """

    def __init__(self, text: str) -> None: ...

    @property
    def name(self) -> str:
        """The program's name."""

    @property
    def text(self) -> str:
        """The text form, normalised."""

    @property
    def states(self) -> list[str]:
        """Names of the states."""

    @property
    def params(self) -> dict[str, float]:
        """Hyperparameters and their defaults."""

    def __repr__(self) -> str: ...

class Optimizer:
    """
    A program with the values of its hyperparameters; stores see changes at once.
    """

    def __init__(self, program: Program, multi_precision: bool = False) -> None: ...

    @staticmethod
    def create(name: str, params: Mapping[str, float] = {}, multi_precision: bool = False) -> Optimizer:
        """A built-in: sgd, momentum, adam, test."""

    @property
    def program(self) -> Program:
        """The program."""

    def param(self, name: str) -> float:
        """The value of a hyperparameter."""

    def set_param(self, name: str, value: float) -> None:
        """Changes a hyperparameter."""

    def set_multiplier(self, param: str, key: object | None, factor: float) -> None:
        """For `key` the hyperparameter counts `factor` times its value."""

    def apply(self, key: object | None, round: float, grad: Array, weight: Array, states: list, master: object | None) -> None:
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

def _take_notices() -> list[tuple[int, str]]: ...

class Store:
    """What KVStore is made of."""

    @overload
    def __init__(self, type: str, options: dict) -> None: ...

    @overload
    def __init__(self, cluster: Cluster, rank: int) -> None: ...

    def _init(self, key: object | None, value: object | None, mode: str) -> None: ...

    def _push(self, key: object | None, value: object | None, priority: int) -> None: ...

    def _push_async(self, key: object | None, value: object | None, priority: int) -> Operation: ...

    def _pull(self, key: object | None, out: object | None, priority: int) -> None: ...

    def _pull_async(self, key: object | None, out: object | None, priority: int) -> Operation: ...

    def _pushpull(self, key: object | None, value: object | None, out: object | None, priority: int) -> bool: ...

    def _pushpull_async(self, key: object | None, value: object | None, out: object | None, priority: int) -> Operation: ...

    def _broadcast(self, key: object | None, value: object | None, out: object | None, priority: int) -> None: ...

    def _fresh(self, verb: str, key: object | None) -> object: ...

    def _set_function(self, function: object | None) -> None: ...

    def _set_optimizer(self, optimizer: Optimizer) -> None: ...

    def _close(self) -> None: ...

    def _barrier(self) -> None: ...

    def _barrier_async(self) -> Operation: ...

    def _delete(self, key: object | None) -> None: ...

    def _round(self, key: object | None) -> int: ...

    def _contains(self, key: object | None) -> bool: ...

    def _keys(self) -> list: ...

    def _size(self) -> int: ...

    @property
    def _rejoined(self) -> bool: ...

    @property
    def _type(self) -> str: ...

    @property
    def _rank(self) -> int: ...

    @property
    def _num_workers(self) -> int: ...

class Cluster:
    """Servers and head of a job; see tensorkv.testing.cluster."""

    def __init__(self, workers: int, servers: int, type: str, options: dict) -> None: ...

    def kill_server(self, index: int) -> None:
        """Ends a server, as if its process had died."""

    def kill_head(self) -> None:
        """Ends the head: data goes on, nobody joins any more."""

def role() -> str | None:
    """
    Returns what this process is in its job, 'worker', 'server' or 'head'; None without a launcher.
    """

def is_in_group() -> bool:
    """Returns whether an MPI launcher has started this process."""

def serve() -> None:
    """Serves as the environment says, until all workers have left."""

def is_distributed(type: str) -> bool:
    """Returns whether a store of that type has several workers."""

def nearest(word: str, names: Sequence[str]) -> str:
    """Returns the name that is near to a word, or ''."""

def option_table() -> list:
    """Returns the table of options, a dict for each."""

def options_in_force(type: str, options: dict) -> dict:
    """
    Returns what a store of that type would have for its options, as texts.
    """

def version() -> str: ...

def config() -> str: ...

def _empty_call(key: object, value: object) -> None: ...
