"""The verbs of a round: push, pull, pushpull, broadcast.

Each takes one key or a list of keys. With ``async_op=True`` a verb starts the operation and returns its Ticket.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .. import ticket
from .._part import part_of
from ..errors import InvalidArgumentError
from . import trees as _trees
from .arguments import title
from .key_verbs import KVStoreKeys
from .together import created_by_all
from .values import each_in_framework_of, empty_like, has_rows, in_framework_of

if TYPE_CHECKING:
    from .._array.ndarray import NDArray
    from .._types import Arrays, ArraysOfKeys, K, Key, Keys, Targets, Tree
    from ..ticket import Ticket

A = TypeVar("A")


def nothing() -> None:
    """Return None, the result of a push."""


@part_of("KVStore")
class KVStoreVerbs(KVStoreKeys):
    """The part of KVStore that sums values and gives them out."""

    @overload
    def push(self, key: Key, value: Arrays, priority: int = 0, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def push(self, key: Key, value: Arrays, priority: int = 0, *, async_op: Literal[True]) -> Ticket[None]: ...
    @overload
    def push(self, key: Key, value: Arrays, priority: int = 0, *, async_op: bool) -> Ticket[None] | None: ...
    @overload
    def push(
        self, key: Keys[K], value: ArraysOfKeys, priority: int = 0, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def push(
        self, key: Keys[K], value: ArraysOfKeys, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def push(self, key: Keys[K], value: ArraysOfKeys, priority: int = 0, *, async_op: bool) -> Ticket[None] | None: ...
    @overload
    def push(self, key: Tree, *, priority: int = 0, async_op: Literal[False] = False) -> None: ...
    @overload
    def push(self, key: Tree, *, priority: int = 0, async_op: Literal[True]) -> Ticket[None]: ...
    def push(
        self,
        key: Key | Keys[Any] | Tree,
        value: Arrays | ArraysOfKeys | None = None,
        priority: int = 0,
        *,
        async_op: bool = False,
    ) -> Ticket[None] | None:
        """Sum the values given for each key, from left to right, and hand the sum to the updater (default: assign).

        Args:
            key: a key or a list of keys. A key that is given twice counts as one with all its values. Or a tree, as of
                `init`. In a list of trees, one of each device, the values are summed.
            value: for one key an array or a list of arrays, each with the key's shape and dtype; for a list of keys a list
                of such. Arrays of other frameworks are read in place, never copied; strided ones are packed. A
                row-sparse value changes only its rows in a key that is kept by rows; without an updater it replaces the
                whole value of one that `init` made. In another key its missing rows count as zeros, except that a lazy
                optimizer does not update them.
            priority: in a distributed store messages that wait for a server leave in the order of their priority, the
                highest first; others ignore it. Pushes of one key keep their order.
            async_op: return a Ticket, which is done when the round is complete. Without it a push of a distributed store
                returns when the arrays may be changed again, and its failure is raised by the next call on the key.

        Returns:
            None, or a Ticket with `async_op`.

        Raises:
            KeyNotFoundError: a key was never initialised.
            InvalidArgumentError: another shape or dtype, an empty list, bool values in a sum.
            DeadlineExceededError: another thread used a key longer than the patience.
            FailedPreconditionError: the store is closed, was made before a fork, or the updater pushes its own key.
            Exception: the exception that the updater raised. In every case no key of the call has changed, nor its
                states of an optimizer or of `state`.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.zeros((2,)))
            >>> kv.push(3, [tkv.nd.ones((2,)), tkv.nd.ones((2,)) * 2])
            >>> kv.pull(3).asnumpy()
            array([3., 3.], dtype=float32)
        """
        running = self._running
        if self._own or (running is not None and running.is_watching):
            if not _trees.is_tree(key):  # whose keys come back here as a list
                with self._turns(key):
                    return self._give(key, value, priority, async_op)
        return self._give(key, value, priority, async_op)

    def _give(self, key: Any, value: Any, priority: int, async_op: bool) -> Ticket[None] | None:
        """Push; what the optimizer needs to know is known."""
        if async_op:
            operation = self._push_async(key, value, priority)
            if operation is not None:
                return ticket.Ticket(operation, title("push", key), nothing)
        elif self._push(key, value, priority):
            return None
        if _trees.is_tree(key):
            _trees.alone("push", value)
            keys, values, _ = _trees.flatten("push", key)
            return self.push(keys, values, priority, async_op=async_op)
        return self._push_with_rows(key, value, priority, async_op)  # type: ignore[no-any-return]

    @overload
    def pull(self, key: Tree, out: Tree, priority: int = 0, *, async_op: Literal[False] = False) -> None: ...
    @overload
    def pull(self, key: Tree, out: Tree, priority: int = 0, *, async_op: Literal[True]) -> Ticket[None]: ...
    @overload
    def pull(self, key: Tree, out: None = None, priority: int = 0, *, async_op: Literal[False] = False) -> Any: ...
    @overload
    def pull(self, key: Tree, out: None = None, priority: int = 0, *, async_op: Literal[True]) -> Ticket[Any]: ...
    @overload
    def pull(
        self,
        key: Key,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        async_op: Literal[False] = False,
    ) -> NDArray: ...
    @overload
    def pull(
        self, key: Key, out: Arrays, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def pull(
        self, key: Key, out: None = None, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[True]
    ) -> Ticket[NDArray]: ...
    @overload
    def pull(
        self, key: Key, out: Arrays, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def pull(
        self, key: Key, out: None = None, priority: int = 0, ignore_sparse: bool = True, *, async_op: bool
    ) -> Ticket[NDArray] | NDArray: ...
    @overload
    def pull(
        self, key: Key, out: Arrays, priority: int = 0, ignore_sparse: bool = True, *, async_op: bool
    ) -> Ticket[None] | None: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        async_op: Literal[False] = False,
    ) -> list[NDArray]: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: ArraysOfKeys,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def pull(
        self, key: Keys[K], out: None = None, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[True]
    ) -> Ticket[list[NDArray]]: ...
    @overload
    def pull(
        self, key: Keys[K], out: ArraysOfKeys, priority: int = 0, ignore_sparse: bool = True, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def pull(
        self, key: Keys[K], out: None = None, priority: int = 0, ignore_sparse: bool = True, *, async_op: bool
    ) -> Ticket[list[NDArray]] | list[NDArray]: ...
    @overload
    def pull(
        self, key: Keys[K], out: ArraysOfKeys, priority: int = 0, ignore_sparse: bool = True, *, async_op: bool
    ) -> Ticket[None] | None: ...
    @overload
    def pull(
        self,
        key: Key,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: Literal[False] = False,
    ) -> A: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: list[A],
        async_op: Literal[False] = False,
    ) -> list[A]: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: Literal[False] = False,
    ) -> list[A]: ...
    @overload
    def pull(
        self,
        key: Key,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: Literal[True],
    ) -> Ticket[A]: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: list[A],
        async_op: Literal[True],
    ) -> Ticket[list[A]]: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: Literal[True],
    ) -> Ticket[list[A]]: ...
    @overload
    def pull(
        self,
        key: Key,
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: bool,
    ) -> Ticket[A] | A: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: list[A],
        async_op: bool,
    ) -> Ticket[list[A]] | list[A]: ...
    @overload
    def pull(
        self,
        key: Keys[K],
        out: None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: A,
        async_op: bool,
    ) -> Ticket[list[A]] | list[A]: ...
    def pull(
        self,
        key: Key | Keys[Any] | Tree,
        out: Arrays | ArraysOfKeys | Tree | None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
        *,
        like: Any = None,
        async_op: bool = False,
    ) -> Any:
        """Copy the value of each key into its outputs, or return it.

        Args:
            key: a key or a list of keys. Or a tree, as of `init`: `out` is a tree with the same names, or one of the same
                form is returned, whose arrays are of the framework of the initial values.
            out: for one key an array or a list of arrays of the key's shape, for a list of keys a list of such: NDArray,
                NumPy, PyTorch or any other writable array. Converts between float dtypes. An array given for several
                keys holds the last one. PyTorch's autograd counts the call as a write to its tensors.
            priority: as push.
            ignore_sparse: leave row-sparse outputs as they are, as MXNet does; False gives them all rows that are not zero.
                Without `out` a key that is kept by rows gives all rows as a dense array.
            like: an array whose framework the result has, if there is no `out`. If it is another framework's array in
                host memory, the result is in host memory too, wherever the key is.
            async_op: return a Ticket; its wait returns the result of the pull.

        Returns:
            A Ticket with `async_op`; None with `out`; else a new NDArray with the key's shape, dtype and context, a
            list of them for a list of keys. The context of a key is cpu(0). In a `device` or `nccl` store it is the
            key's home GPU from the first push of GPU arrays until `load`.

        Raises:
            KeyNotFoundError: a key was never initialised.
            InvalidArgumentError: another shape, a dtype that does not convert, `like` beside `out`; a read-only output, one whose
                elements share memory, a JAX array, a tensor that requires grad; `like` an array of JAX, where the key has 64
                bits and jax_enable_x64 is not set. No output was written.
            DeadlineExceededError, FailedPreconditionError: as push.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init('w', tkv.nd.ones((2,)))
            >>> a = np.zeros(2, np.float32)
            >>> kv.pull('w', out=a)
            >>> a
            array([1., 1.], dtype=float32)
        """
        if out is not None:
            if like is not None:
                raise InvalidArgumentError("pull: `out` and `like`; the framework of `out` is that of the result")
            if async_op:
                operation = self._pull_async(key, out, priority)
                if operation is not None:
                    return ticket.Ticket(operation, title("pull", key), nothing)
            elif self._pull(key, out, priority):
                return None
            if _trees.is_tree(key):
                keys, _, _ = _trees.flatten("pull", key)
                outs = _trees.outputs("pull", keys, out)
                return self.pull(keys, outs, priority, ignore_sparse, async_op=async_op)
            return self._pull_with_rows(key, out, priority, ignore_sparse, async_op)
        fresh = self._fresh("pull", key)
        if fresh is None and _trees.is_tree(key):
            return self._pull_tree(key, priority, like, async_op)
        if fresh is None:
            return self._pull_whole(key, priority, lambda fresh: in_framework_of(fresh, like), async_op)
        if async_op:
            operation = self._pull_async(key, fresh, priority)
            assert operation is not None  # `fresh` is dense
            return ticket.Ticket(operation, title("pull", key), functools.partial(in_framework_of, fresh, like))
        self._pull(key, fresh, priority)
        return in_framework_of(fresh, like)

    def _pull_tree(self, tree: Any, priority: int, like: Any, async_op: bool) -> Any:
        """Return values in the form of a tree, each like its leaf, or like `like`."""
        keys, leaves, form = _trees.flatten("pull", tree)
        fresh = self._fresh("pull", keys)

        def result_of(arrays: list[Any]) -> Any:
            examples = [like] * len(keys) if like is not None else _trees.examples(leaves)
            return form(each_in_framework_of(arrays, examples))

        if fresh is None:
            return self._pull_whole(keys, priority, result_of, async_op)
        operation = self._pull_async(keys, fresh, priority)
        assert operation is not None  # `fresh` is dense
        pending: Ticket[Any] = ticket.Ticket(operation, title("pull", keys), lambda: result_of(fresh))
        return pending if async_op else pending.wait()

    @overload
    def pushpull(
        self, key: Key, value: Arrays, out: Arrays, priority: int = 0, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def pushpull(
        self, key: Key, value: Arrays, out: Arrays, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def pushpull(
        self, key: Key, value: Arrays, out: Arrays, priority: int = 0, *, async_op: bool
    ) -> Ticket[None] | None: ...
    @overload
    def pushpull(
        self,
        key: Keys[K],
        value: ArraysOfKeys,
        out: ArraysOfKeys,
        priority: int = 0,
        *,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def pushpull(
        self, key: Keys[K], value: ArraysOfKeys, out: ArraysOfKeys, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def pushpull(
        self, key: Keys[K], value: ArraysOfKeys, out: ArraysOfKeys, priority: int = 0, *, async_op: bool
    ) -> Ticket[None] | None: ...
    @overload
    def pushpull(
        self, key: Key, value: Targets, out: None = None, priority: int = 0, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def pushpull(
        self, key: Key, value: Arrays, out: None = None, priority: int = 0, *, async_op: Literal[False] = False
    ) -> Any: ...
    @overload
    def pushpull(
        self, key: Key, value: Arrays, out: None = None, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def pushpull(self, key: Key, value: Arrays, out: None = None, priority: int = 0, *, async_op: bool) -> Any: ...
    @overload
    def pushpull(
        self, key: Keys[K], value: Targets, out: None = None, priority: int = 0, *, async_op: Literal[False] = False
    ) -> None: ...
    @overload
    def pushpull(
        self,
        key: Keys[K],
        value: ArraysOfKeys,
        out: None = None,
        priority: int = 0,
        *,
        async_op: Literal[False] = False,
    ) -> Any: ...
    @overload
    def pushpull(
        self, key: Keys[K], value: ArraysOfKeys, out: None = None, priority: int = 0, *, async_op: Literal[True]
    ) -> Ticket[None]: ...
    @overload
    def pushpull(
        self, key: Keys[K], value: ArraysOfKeys, out: None = None, priority: int = 0, *, async_op: bool
    ) -> Any: ...
    @overload
    def pushpull(
        self, key: Tree, *, out: Tree | None = None, priority: int = 0, async_op: Literal[False] = False
    ) -> Any: ...
    @overload
    def pushpull(
        self, key: Tree, *, out: Tree | None = None, priority: int = 0, async_op: Literal[True]
    ) -> Ticket[None]: ...
    def pushpull(
        self,
        key: Key | Keys[Any] | Tree,
        value: Arrays | ArraysOfKeys | None = None,
        out: Arrays | ArraysOfKeys | Tree | None = None,
        priority: int = 0,
        *,
        async_op: bool = False,
    ) -> Any:
        """Push, then pull, in one pass over memory. Without `out` the values themselves take the result.

        Row-sparse values need an `out`, dense or row-sparse, which gets all rows.

        Args:
            key, value, priority: as push.
            out: as pull.
            async_op: return a Ticket, which is done when the outputs are written.

        Returns:
            None, or a Ticket with `async_op`; for JAX values without `out`, a new JAX array of the key's shape and dtype, a
            list for a list of keys.

        Raises:
            As push and pull; then neither the store nor an output has changed.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> kv.init(3, tkv.nd.zeros((2,)))
            >>> grads = [tkv.nd.ones((2,)), tkv.nd.ones((2,))]
            >>> kv.pushpull(3, grads)
            >>> grads[0].asnumpy()
            array([2., 2.], dtype=float32)
        """
        running = self._running
        if not self._own and (running is None or not running.is_watching):
            return self._exchange(key, value, out, priority, async_op)
        if _trees.is_tree(key):
            return self._pushpull_tree(key, value, out, priority, async_op)
        with self._turns(key) as asks:
            result = self._exchange(key, value, out, priority, async_op, is_turn=asks)
        # Other threads have their turn while this one waits for the round.
        return result.wait() if asks and not async_op else result

    def _exchange(self, key: Any, value: Any, out: Any, priority: int, async_op: bool, is_turn: bool = False) -> Any:
        """Push and pull; of a turn of this thread return a Ticket in any case."""
        if async_op or is_turn:
            operation = self._pushpull_async(key, value, out, priority)
            if operation is not None:
                return ticket.Ticket(operation, title("pushpull", key), nothing)
        elif self._pushpull(key, value, out, priority):
            return None
        if _trees.is_tree(key):
            return self._pushpull_tree(key, value, out, priority, async_op)
        if has_rows(key, value, out):
            return self._pushpull_with_rows(key, value, out, priority, async_op or is_turn)
        # JAX arrays cannot take the result: it comes back as new ones.
        if async_op:
            raise InvalidArgumentError(f"{title('pushpull', key)}: JAX values need an `out` where async_op is set")
        fresh = self._fresh("pushpull", key)
        if fresh is None:
            raise InvalidArgumentError(
                f"{title('pushpull', key)}: JAX values need an `out` where a key is kept by rows"
            )
        if is_turn:
            operation = self._pushpull_async(key, value, fresh, priority)
            assert operation is not None  # there is an `out`
            return ticket.Ticket(operation, title("pushpull", key), functools.partial(in_framework_of, fresh, value))
        self._pushpull(key, value, fresh, priority)
        return in_framework_of(fresh, value)

    def _pushpull_tree(self, tree: Any, value: Any, out: Any, priority: int, async_op: bool) -> Any:
        _trees.alone("pushpull", value)
        keys, values, form = _trees.flatten("pushpull", tree)
        outs = None if out is None else _trees.outputs("pushpull", keys, out)
        result = self.pushpull(keys, values, outs, priority, async_op=async_op)
        return form(result) if isinstance(result, list) else result

    @overload
    def broadcast(self, key: Key, value: Arrays, out: Arrays, priority: int = 0) -> None: ...
    @overload
    def broadcast(self, key: Keys[K], value: ArraysOfKeys, out: ArraysOfKeys, priority: int = 0) -> None: ...
    @overload
    def broadcast(self, key: Tree, *, out: Tree, priority: int = 0) -> None: ...
    @overload
    def broadcast(self, key: Tree, *, priority: int = 0) -> Any: ...
    def broadcast(
        self,
        key: Key | Keys[Any] | Tree,
        value: Arrays | ArraysOfKeys | None = None,
        out: Arrays | ArraysOfKeys | Tree | None = None,
        priority: int = 0,
    ) -> Any:
        """Init, then pull of the same keys: every output gets the initial value.

        Args:
            key, value: as init; the keys must be new.
            out: as pull. Optional for a tree, whose values are then returned.
            priority: as push, for the pull.

        Returns:
            None. For a tree without `out`: new arrays in the form of the tree, each in the framework of its value.

        Raises:
            As init and pull; then no key was created and no output written.

        Example:
            >>> kv = tkv.kv.create('local')
            >>> outs = [tkv.nd.zeros((2,), tkv.cpu(i)) for i in range(2)]
            >>> kv.broadcast('w', tkv.nd.ones((2,)), out=outs)
            >>> outs[1].asnumpy()
            array([1., 1.], dtype=float32)
            >>> kv.broadcast({'scale': np.ones(2, np.float32)})
            {'scale': array([1., 1.], dtype=float32)}
        """
        if _trees.is_tree(key):
            return self._broadcast_tree(key, value, out, priority)
        if out is None:
            raise InvalidArgumentError(f"{title('broadcast', key)}: no `out`; arrays that take the value are needed")
        self._meets(key, value)
        with created_by_all("broadcast"):
            if not self._broadcast(key, value, out, priority):
                self._broadcast_with_rows(key, value, out, priority)
        return None

    def _broadcast_tree(self, tree: Any, value: Any, out: Any, priority: int) -> Any:
        _trees.alone("broadcast", value)
        keys, values, form = _trees.flatten("broadcast", tree)
        if out is not None:
            self.broadcast(keys, values, _trees.outputs("broadcast", keys, out), priority)
            return None
        examples = _trees.examples(values)
        fresh = [empty_like(f"broadcast {key!r}", example) for key, example in zip(keys, examples, strict=True)]
        self.broadcast(keys, values, fresh, priority)
        return form(each_in_framework_of(fresh, examples))
