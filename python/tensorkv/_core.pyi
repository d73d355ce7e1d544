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

    def _fill(self, value: float) -> None: ...

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

class Ticket:
    """
    An operation under way: what `async_op=True` gives back.

    Can be awaited. A failure that nobody waits for is raised by the next call on its key and by close().

    Example:
        >>> kv = mx.kv.create('local')
        >>> kv.init(3, mx.nd.ones((2,)))
        >>> ticket = kv.pull(3, async_op=True)
        >>> ticket.wait().asnumpy()
        array([1., 1.], dtype=float32)
        >>> ticket.done()
        True
    """

    def wait(self, timeout: object | None = None) -> object:
        """
        Waits until the operation is done and returns its result.

        Args:
            timeout: in seconds; the operation itself goes on when it is over.

        Raises:
            DeadlineExceededError: not done in time.
            KVError: what made the operation fail.
        """

    def done(self) -> bool:
        """Returns whether the operation has ended, well or not."""

    def __await__(self) -> object:
        """Waits without blocking the event loop."""

def _take_notices() -> list[tuple[int, str]]: ...

class Store:
    """The verbs of a store. Use tensorkv.kvstore.create()."""

    @overload
    def __init__(self, type: str, options: dict) -> None: ...

    @overload
    def __init__(self, cluster: Cluster, rank: int) -> None: ...

    def init(self, key: object | None, value: object | None, *, mode: object | None = None) -> None:
        """
        Creates each key with a copy of its value; shape and dtype stay those of the value.

        Args:
            key: an int (64-bit, also NumPy integers) or a str, or a list of them; one kind per store.
            value: an NDArray or any array with DLPack or the buffer protocol, of any shape and dtype; for a list of keys
                a list of the same length.
            mode: ``'sync'`` or ``'async'``, of these keys in a distributed store; default that of the store. A store in one
                process takes it and has one mode.

        In a distributed store rank 0 creates the key and the others find it: they wait for rank 0, and the shapes and dtypes of
        all ranks have to be equal, as have the modes: every worker makes the same stores in the same order. What is wrong with the
        arguments is found before anything is created; where a server or rank 0 is lost on the way, keys of the list that were
        created before stay (``key in kv`` tells which), and a key that was created in part can be tried again.

        Raises:
            AlreadyExistsError: a key is there already, or stands twice in the call. No key of the call was created.
            InvalidArgumentError: int and str keys in one store, lists of different lengths, no array; in a distributed store
                another shape, dtype or mode than rank 0's.
            DeadlineExceededError, UnavailableError: in a distributed store rank 0 or a server did not come, or is dead.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2, 3)))
            >>> kv.init(['a'], [mx.nd.zeros((2,))])
            Traceback (most recent call last):
            tensorkv.errors.InvalidArgumentError: init 'a': a string key, the store has integer keys
        """

    def push(self, key: object | None, value: object | None, priority: int = 0, async_op: bool = False) -> object:
        """
        Sums the values given for each key, from left to right, and hands the sum to the updater (default: assign).

        Args:
            key: a key or a list of keys. A key that stands twice counts as one with all its values.
            value: for one key an array or a list of arrays, each with the key's shape and dtype; for a list of keys a list
                of such. Arrays of other frameworks are read where they are, never copied; strided ones are packed.
            priority: in a distributed store, what waits to leave for a server does so the larger first; in others nothing
                waits. Pushes of one key keep their order.
            async_op: return a Ticket, which is done when the round is complete. Without it a push of a distributed store
                returns when the arrays may be changed again, and its failure is raised by the next call on the key.

        Returns:
            None, or a Ticket with `async_op`.

        Raises:
            KeyNotFoundError: a key was never initialised.
            InvalidArgumentError: another shape or dtype, an empty list, bool values in a sum.
            DeadlineExceededError: another thread used a key longer than the patience.
            FailedPreconditionError: the store is closed, was made before a fork, or the updater pushes its own key.
            Exception: what the updater raised. In every case no key of the call has changed.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.zeros((2,)))
            >>> kv.push(3, [mx.nd.ones((2,)), mx.nd.ones((2,)) * 2])
            >>> kv.pull(3).asnumpy()
            array([3., 3.], dtype=float32)
        """

    def pull(self, key: object | None, out: object | None = None, priority: int = 0, ignore_sparse: bool = True, like: object | None = None, async_op: bool = False) -> object:
        """
        Copies the value of each key into its outputs, or returns it.

        Args:
            key: a key or a list of keys.
            out: for one key an array or a list of arrays of the key's shape, for a list of keys a list of such: NDArray,
                NumPy, PyTorch or any other writable array. Converts between float dtypes. Where one array stands for several
                keys it holds the last one.
            priority: as push.
            ignore_sparse: accepted; every array is dense.
            like: where there is no `out`, the framework of this array is that of the result.
            async_op: return a Ticket; its wait gives what pull would have given.

        Returns:
            A Ticket with `async_op`; None with `out`; else a new NDArray with the key's shape, dtype and context, a list of them for a list of keys.

        Raises:
            KeyNotFoundError: a key was never initialised.
            InvalidArgumentError: another shape, a dtype that does not convert, a read-only output, a JAX array, a tensor that
                requires grad. No output was written.
            DeadlineExceededError, FailedPreconditionError: as push.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init('w', mx.nd.ones((2,)))
            >>> a = np.zeros(2, np.float32)
            >>> kv.pull('w', out=a)
            >>> a
            array([1., 1.], dtype=float32)
        """

    def pushpull(self, key: object | None, value: object | None, out: object | None = None, priority: int = 0, async_op: bool = False) -> object:
        """
        Push, then pull, in one pass over memory. Without `out` the values themselves take the result.

        Args:
            key, value, priority: as push.
            out: as pull.
            async_op: return a Ticket, which is done when the outputs are written.

        Returns:
            None, or a Ticket with `async_op`; for JAX values without `out`, a new JAX array of the key's shape and dtype, a list for a list of keys.

        Raises:
            As push and pull; then neither the store nor an output has changed.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.zeros((2,)))
            >>> grads = [mx.nd.ones((2,)), mx.nd.ones((2,))]
            >>> kv.pushpull(3, grads)
            >>> grads[0].asnumpy()
            array([2., 2.], dtype=float32)
        """

    def broadcast(self, key: object | None, value: object | None, out: object | None, priority: int = 0) -> None:
        """
        Init, then pull of the same keys: every output gets the initial value.

        Args:
            key, value: as init; the keys must be new.
            out: as pull.
            priority: as push, for the pull.

        Raises:
            As init and pull; then no key was created and no output written.

        Example:
            >>> kv = mx.kv.create('local')
            >>> outs = [mx.nd.zeros((2,), mx.cpu(i)) for i in range(2)]
            >>> kv.broadcast('w', mx.nd.ones((2,)), out=outs)
            >>> outs[1].asnumpy()
            array([1., 1.], dtype=float32)
        """

    def _set_function(self, function: object | None) -> None: ...

    def _set_optimizer(self, optimizer: Optimizer) -> None: ...

    def _close(self) -> None: ...

    def _barrier(self) -> None:
        """Waits until every worker has come here; in one process there is one."""

    def delete(self, key: object | None) -> None:
        """
        Removes a key; a later init makes it anew.

        In a distributed store every worker calls it, between two barriers.

        Raises:
            KeyNotFoundError: no such key.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2,)))
            >>> kv.delete(3)
            >>> 3 in kv
            False
        """

    def round(self, key: object | None) -> int:
        """
        Returns how often this worker has pushed the key: the number of its last round.

        A worker that has been started again goes on from the round that its earlier life had reached.

        Example:
            >>> kv = mx.kv.create('local')
            >>> kv.init(3, mx.nd.ones((2,)))
            >>> kv.push(3, mx.nd.ones((2,)))
            >>> kv.round(3)
            1
        """

    @property
    def rejoined(self) -> bool:
        """Whether this worker has lived before in this job."""

    def _keys(self) -> list: ...

    def __len__(self) -> int: ...

    def __contains__(self, key: object | None) -> bool: ...

    @property
    def type(self) -> str:
        """The name that the store was created with."""

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""

    @property
    def num_workers(self) -> int:
        """Number of workers."""

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
