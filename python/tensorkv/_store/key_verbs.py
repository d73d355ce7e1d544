"""The verbs that give keys their values: init and assign.

Both take one key, a list of keys or a tree of arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from .. import ticket
from .._part import part_of
from ..errors import InvalidArgumentError
from . import trees as _trees
from .arguments import title
from .row_verbs import KVStoreRows
from .together import called_by_all, created_by_all

if TYPE_CHECKING:
    from .._types import Arrays, ArraysOfKeys, K, Key, Keys, Mode, Tree
    from ..ticket import Ticket


@part_of("KVStore")
class KVStoreKeys(KVStoreRows):
    """The part of KVStore that gives keys their values."""

    def _meets(self, key: Any, value: Any) -> None:
        """Look at new keys before they are made."""

    @overload
    def init(self, key: Key, value: Arrays, *, mode: Mode | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def init(self, key: Key, value: Arrays, *, mode: Mode | None = None, async_op: Literal[True]) -> Ticket[None]: ...
    @overload
    def init(self, key: Key, value: Arrays, *, mode: Mode | None = None, async_op: bool) -> Ticket[None] | None: ...
    @overload
    def init(
        self, key: Keys[K], value: ArraysOfKeys, *, mode: Mode | None = None, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def init(
        self, key: Keys[K], value: ArraysOfKeys, *, mode: Mode | None = None, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def init(
        self, key: Keys[K], value: ArraysOfKeys, *, mode: Mode | None = None, async_op: bool
    ) -> Ticket[None] | None: ...
    @overload
    def init(self, key: Tree, *, mode: Mode | None = None, async_op: Literal[False] = False) -> None: ...
    @overload
    def init(self, key: Tree, *, mode: Mode | None = None, async_op: Literal[True]) -> Ticket[None]: ...
    def init(
        self,
        key: Key | Keys[Any] | Tree,
        value: Arrays | ArraysOfKeys | None = None,
        *,
        mode: Mode | None = None,
        async_op: bool = False,
    ) -> Ticket[None] | None:
        """Create each key with a copy of its value; shape and dtype stay those of the value.

        Args:
            key: an int (64-bit, also NumPy integers) or a str, or a list of them; one kind per store. Or a tree: a dict of
                names and values, or a NamedTuple, which may nest: the key of an array is the names on the way to it with
                dots between them. In a tree a tuple has the parts 0, 1 and so on, and a list one array of each device.
                If JAX is loaded, its registered containers, such as a dataclass, are trees too.
            value: an NDArray or any array with DLPack or the buffer protocol, of any shape and dtype; for a list of keys
                a list of the same length. A row-sparse one (of `tkv.nd.sparse` or SciPy, a ``torch.sparse_coo`` tensor) makes
                a key that is kept by rows. Without an updater a push replaces its whole value: rows that are not pushed
                become 0.
            mode: ``'sync'`` or ``'async'``, of these keys in a distributed store; default that of the store. A store in one
                process takes it and has one mode.
            async_op: return a Ticket, which is done when the keys exist; until then the values must not change.

        In a distributed store rank 0 creates the key, and the other ranks wait for it. Shapes, dtypes and modes have to
        be equal on all ranks. Every worker makes the same stores in the same order. Under ``on_death='continue'`` the
        lowest rank that lives creates keys when rank 0 is dead or has left.

        Wrong arguments are found before any key is created. If a server or rank 0 is lost meanwhile, keys of the list
        that were already created stay (``key in kv`` tells which). A key that was created in part can be tried again.

        Raises:
            AlreadyExistsError: a key exists already, or is given twice in the call. No key of the call was created.
            InvalidArgumentError: int and str keys in one store, lists of different lengths, no array; in a distributed
                store another shape, dtype or mode than rank 0's.
            DeadlineExceededError, UnavailableError: in a distributed store rank 0 or a server did not come, or is dead, or
                rank 0 has closed the store.
            FailedPreconditionError: this worker has been started again, and all workers had closed the store before.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.ones((2, 3)))
            >>> kv.init(['a'], [tkv.nd.zeros((2,))])
            Traceback (most recent call last):
            tensorkv.errors.InvalidArgumentError: init 'a': a string key, the store has integer keys
        """
        if mode not in (None, "sync", "async"):
            raise InvalidArgumentError(f"{title('init', key)}: mode {mode!r}; there are sync and async")
        own = mode or ""
        if _trees.is_tree(key):
            _trees.alone("init", value)
            key, value, _ = _trees.flatten("init", key)
        self._meets(key, value)
        if async_op:
            return ticket.in_thread(lambda: self._init_by_all(key, value, own), title("init", key))
        self._init_by_all(key, value, own)
        return None

    def _init_by_all(self, key: Any, value: Any, mode: str) -> None:
        with created_by_all("init"):
            self._init_given(key, value, mode)

    def assign(self, key: Key | Keys[Any] | Tree, value: Arrays | ArraysOfKeys | None = None) -> None:
        """Give keys new values, as a script does that loads weights into a running store.

        The optimizer's states, its counts and the rounds of the keys stay. A push sums values and runs the updater;
        assign does neither.

        Args:
            key: a key, a list of keys or a tree, as for `init`. Each key exists and is given once in the call.
            value: an array of the key's shape and dtype; for a list of keys a list of the same length.

        In a distributed store every worker calls it with the same keys, between two steps, and waits for the others.
        The values of rank 0 count, or of the lowest rank that lives. Each worker's next pull has them.

        Raises:
            KeyNotFoundError: no such key. Nothing has changed.
            InvalidArgumentError: another shape or dtype than the key's, a key twice. Nothing has changed.
            FailedPreconditionError: a worker that was started again and has pushed nothing since; a round that has begun.
            DeadlineExceededError, UnavailableError: another worker did not call it, or is dead.
            UnimplementedError: a key that is kept by rows, whose rows `import_rows` replaces.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.zeros((2,)))
            >>> kv.set_optimizer(tkv.optimizer.SGD(learning_rate=1.0))
            >>> kv.assign('w', tkv.nd.full((2,), 5))
            >>> kv.push('w', tkv.nd.ones((2,)))
            >>> kv.pull('w').asnumpy().tolist()
            [4.0, 4.0]
        """
        if _trees.is_tree(key):
            _trees.alone("assign", value)
            key, value, _ = _trees.flatten("assign", key)
        with called_by_all("every worker calls assign"):
            self._assign(key, value)
