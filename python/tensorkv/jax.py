"""The store as an optimizer of JAX's pytrees: ``tensorkv.jax``.

This module needs JAX; ``import tensorkv`` does not load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.core import Tracer

from ._array import nd
from ._frameworks import stepping as _stepping
from ._frameworks.steps import Steps
from ._store import helpers as _helpers
from ._store.trees import Form, flatten_pytree
from ._store.values import shape_and_dtype
from .context import Context, cpu, gpu
from .errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from .optimizer import Optimizer, Program

if TYPE_CHECKING:
    from ._store.kvstore import KVStore

__all__ = ["GradientTransformation", "KVOptimizer", "average"]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class _Leaves:
    """The arrays of a tree that are keys of a store."""

    def __init__(self, what: str, kv: KVStore, tree: Any, prefix: str) -> None:
        """Make the keys, with the values of rank 0."""
        self._what, self._kv = what, kv
        names, leaves, self.form = self._flatten(tree)
        if not names:
            raise InvalidArgumentError(f"{what}: the tree has no arrays")
        self._names = names
        self._places = [_gpu_of(leaf) for leaf in leaves]
        self._is_on_gpus = any(place is not None for place in self._places)
        self._infos = [shape_and_dtype(leaf) for leaf in leaves] if self._is_on_gpus else []
        self.keys: list[Any] = [f"{prefix}{name}" for name in names] if prefix else names
        kv.init(self.keys, leaves)

    def _flatten(self, tree: Any) -> tuple[list[int | str], list[Any], Form]:
        for leaf in jax.tree_util.tree_leaves(tree):
            if isinstance(leaf, Tracer):
                raise FailedPreconditionError(
                    f"{self._what}: called inside a function that JAX transforms (jit, grad, vmap); call it with the arrays that the"
                    " function returns"
                )
        if jax.tree_util.all_leaves([tree]):
            return ["value"], [tree], lambda values: values[0]
        return flatten_pytree(self._what, tree)

    def values(self, tree: Any) -> list[Any]:
        """Return the arrays of a tree of the same form."""
        names, leaves, _ = self._flatten(tree)
        if names != self._names:
            odd = next(iter(sorted(map(str, set(names) ^ set(self._names)))), "")
            raise InvalidArgumentError(
                f"{self._what}: a tree of {len(names)} arrays, and that of the parameters has {len(self._names)}; {odd!r} is in one only"
            )
        return leaves

    def assign(self, tree: Any) -> None:
        """Give the store the values of a tree."""
        self._kv.assign(self.keys, self.values(tree))

    def pull(self) -> Any:
        """Return the tree as the store has it, each array where the leaf was that made its key."""
        if self._is_on_gpus:
            outs = self._outs()
            self._kv.pull(self.keys, out=outs)
            return self.form(_given(outs))
        arrays = self._kv.pull(self.keys, like=jax.numpy.zeros(()))
        return self.form(list(arrays))

    def push(self, tree: Any, places: list[int]) -> None:
        """Push some arrays of a tree, given by their positions."""
        values = self.values(tree)
        self._kv.push([self.keys[place] for place in places], [values[place] for place in places])

    def pushpull(self, tree: Any) -> Any:
        """Push a tree and return the new values, each array on the device of the leaf that made its key."""
        if self._is_on_gpus:
            outs = self._outs()
            self._kv.pushpull(self.keys, self.values(tree), outs)
            return self.form(_given(outs))
        values = self.values(tree)
        if not all(isinstance(value, jax.Array) for value in values):  # a pushpull would write into arrays of NumPy
            self._kv.push(self.keys, values)
            return self.pull()
        pushed: Any = self._kv.pushpull(self.keys, values)
        return self.form(list(pushed))

    def _outs(self) -> list[nd.NDArray]:
        """Return new arrays for the values of all keys."""
        return [
            nd.empty(shape, cpu() if place is None else place, dtype)
            for (shape, dtype), place in zip(self._infos, self._places, strict=True)
        ]


def _gpu_of(leaf: Any) -> Context | None:
    """Return the GPU that a leaf is on; None for an array of the host."""
    devices = leaf.devices() if isinstance(leaf, jax.Array) else ()
    for device in devices:
        if device.platform in ("gpu", "cuda"):
            return gpu(device.local_hardware_id)
    return None


def _given(arrays: list[nd.NDArray]) -> list[Any]:
    """Return arrays as JAX's, which share their memory on GPUs."""
    return [jax.dlpack.from_dlpack(array) for array in arrays]


class KVOptimizer:
    """Parameters, a pytree, that a store changes: ``params = opt.step(grads)``.

    Each array of the tree is a key of the store, whose name is the way to it with dots between. Every worker makes the same
    KVOptimizer. `step` is called outside of ``jax.jit``, with the gradients that the jitted function returns; results are new
    arrays. The store has the values of the parameters: a script that changes some gives them to `assign`.

    Args:
        params: a pytree of arrays.
        kv: the store.
        optimizer: one of `tkv.optimizer`, or a `Program`; None if the store has its updater already.
        average: divide the sums of a synchronous store by the number of workers, by the optimizer's `rescale_grad`.
        prefix: put before each name; models that share a store need different ones.

    Raises:
        AlreadyExistsError: the store has a key with such a name.
        InvalidArgumentError: an array of integers or bools, which no optimizer updates.
        FailedPreconditionError: no optimizer, and the store assigns; the store has another updater.
        UnimplementedError: a copy or pickle of a KVOptimizer.

    Example:
        >>> kv = tkv.kv.create('local')
        >>> opt = tkv.jax.KVOptimizer({'w': jax.numpy.zeros(3)}, kv, tkv.optimizer.SGD(learning_rate=0.1))
        >>> grad = jax.jit(jax.grad(lambda params: ((params['w'] - 2) ** 2).sum()))
        >>> params = opt.params
        >>> for _ in range(100):
        ...     params = opt.step(grad(params))
        >>> params['w'].round(3).tolist()
        [2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        params: Any,
        kv: KVStore,
        optimizer: Optimizer | Program | None = None,
        *,
        average: bool = True,
        prefix: str = "",
    ) -> None:
        """Make the keys, and take the parameters of rank 0."""
        _stepping.check_optimizer("KVOptimizer", kv, optimizer)
        _check_floats(params)
        with _stepping.running(kv, optimizer, _stepping.divisor_of(kv, average)):
            self._leaves = _Leaves("KVOptimizer", kv, params, prefix)
            self._params: Any = self._leaves.pull()
        self._steps = Steps(kv)
        self._is_seen = True  # no load since `params` was read, or made by a step
        _helpers.helpers_of(kv).add(self)

    @property
    def params(self) -> Any:
        """The parameters as the store has them: at first those of rank 0, on every worker."""
        self._is_seen = True
        return self._params

    @property
    def steps(self) -> int:
        """How many steps this worker has made, also before a restart or a load; a script goes on with the next one.

        If the worker died within a step, that step does not count: the restarted worker makes it again, and pushes only the
        gradients that were missing. An asynchronous store has no rounds: after ``kv.load`` it counts from 0.

        Raises:
            FailedPreconditionError: the worker has been started again, and the store is asynchronous.
            KVError: as ``kv.round``.
        """
        return self._steps.made(self._leaves.keys)

    def assign(self, params: Any) -> Any:
        """Give the store other parameters, between two steps: those of rank 0 count, for all workers.

        Every worker calls it. The optimizer's states stay.

        Args:
            params: a pytree of the form, shapes and dtypes of the parameters.

        Returns:
            the parameters of rank 0.

        Raises:
            InvalidArgumentError: another form.
            KVError: as ``kv.assign``.

        Example:
            >>> opt = tkv.jax.KVOptimizer({'w': jax.numpy.zeros(2)}, tkv.kv.create(), tkv.optimizer.SGD(learning_rate=1))
            >>> params = opt.assign({'w': jax.numpy.full(2, 7.0)})
            >>> opt.step({'w': jax.numpy.ones(2)})['w'].tolist()
            [6.0, 6.0]
        """
        self._leaves.assign(params)
        self._params, self._is_seen = self._leaves.pull(), True
        return self._params

    def __getstate__(self) -> dict[str, Any]:
        """Raise: a store is not copied."""
        raise _stepping.copied("KVOptimizer", "copy its params or call kv.save")

    def _check_disk(self, verb: str) -> None:
        """Allow it: the store has the parameters."""

    def _loaded(self) -> None:
        self._params, self._is_seen = self._leaves.pull(), False
        self._steps.loaded(self._leaves.keys)

    def step(self, grads: Any) -> Any:
        """Push gradients, wait for those of all workers, and return the new parameters.

        Args:
            grads: a pytree of the form, shapes and dtypes of the parameters.

        Raises:
            InvalidArgumentError: another form.
            FailedPreconditionError: inside of a function that JAX transforms; gradients of parameters from before a
                ``kv.load``: read `params` behind it.
            KVError: as ``kv.pushpull``; the parameters stay.
        """
        if not self._is_seen:
            raise FailedPreconditionError(
                "KVOptimizer: step after kv.load with gradients of the parameters from before it; take `params = opt.params` behind"
                " the load and compute the gradients of those"
            )
        self._leaves.values(grads)  # raises if the form is another one
        with (
            _stepping.equally_often("calls step with gradients of zero"),
            self._steps.one(self._leaves.keys) as lacking,
        ):
            if len(lacking) == len(self._leaves.keys):
                self._params = self._leaves.pushpull(grads)
            else:
                if lacking:
                    self._leaves.push(grads, lacking)
                self._params = self._leaves.pull()
        return self._params


def _check_floats(params: Any) -> None:
    """Raise if a leaf is of a dtype that no optimizer updates."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = jax.numpy.result_type(leaf)
        if not jax.numpy.issubdtype(dtype, jax.numpy.inexact):
            raise InvalidArgumentError(
                f"KVOptimizer: {jax.tree_util.keystr(path)} is {dtype}; optimizers update floating-point arrays, so leave it out of"
                " the tree or give it to a store without optimizer"
            )


class GradientTransformation(NamedTuple):
    """A pair of functions as optax has them: ``init(params)`` and ``update(updates, state, params=None)``."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def average(kv: KVStore, *, prefix: str = "") -> GradientTransformation:
    """Return a transformation in optax's form that gives every worker the mean of all workers' gradients.

    ``optax.chain(tkv.jax.average(kv), optax.adam(1e-3))`` is an optimizer whose states are on each worker. Both functions run
    outside of ``jax.jit``. ``init(params)`` returns the parameters of rank 0 as its state, with which all workers begin.

    Args:
        kv: a store without updater, and not ``dist_async``, which has no sums of all workers. A worker that is started again
            while its job goes on, and a job that goes on from a snapshot (``--restore``), are refused. After ``init`` the store
            has sums of gradients, and ``kv.save`` and ``kv.load`` are refused.
        prefix: put before each name.

    Raises:
        FailedPreconditionError: such a store or job; ``update`` before ``init``; either within a function that JAX transforms.
        InvalidArgumentError: ``updates`` of another form than ``params``.
        AlreadyExistsError: ``init`` finds a key with such a name in the store.
        UnimplementedError: a pickle of the transformation.
        KVError: as ``kv.init`` and ``kv.pushpull``.

    Example:
        >>> kv = tkv.kv.create('local')
        >>> mean = tkv.jax.average(kv)
        >>> params = mean.init({'w': jax.numpy.zeros(3)})
        >>> updates, params = mean.update({'w': jax.numpy.ones(3)}, params)
        >>> updates['w'].tolist()
        [1.0, 1.0, 1.0]
    """
    averaging = _Averaging(kv, prefix)
    return GradientTransformation(averaging.init, averaging.update)


class _Averaging:
    """The functions of `average`, and the keys in which a store sums the gradients."""

    def __init__(self, kv: KVStore, prefix: str) -> None:
        """Make no key yet."""
        _stepping.check_sums("average", kv, "KVOptimizer")
        self._kv, self._prefix = kv, prefix
        self._leaves: _Leaves | None = None
        self._unread: _Leaves | None = None  # of an init that has made the keys and could not read them
        _helpers.helpers_of(kv).add(self)

    def init(self, params: Any) -> Any:
        if self._unread is None:
            self._unread = _Leaves("average", self._kv, params, self._prefix)
        else:
            self._unread.values(params)  # raises if the form is another one
        values = self._unread.pull()
        self._leaves, self._unread = self._unread, None
        return values

    def update(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if self._leaves is None:
            raise FailedPreconditionError("average: update before init(params)")
        with _stepping.equally_often("calls update with gradients of zero"):
            summed = self._leaves.pushpull(updates)
        workers = self._kv.num_workers
        return summed if workers == 1 else jax.tree_util.tree_map(lambda leaf: leaf / workers, summed), state

    def __deepcopy__(self, memo: dict[int, Any]) -> _Averaging:
        """Return itself: a copy of the transformation sums in the same keys."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Raise: a store is not copied."""
        raise UnimplementedError(
            "average: a transformation belongs to a store and cannot be pickled; make it in each process"
        )

    def _check_disk(self, verb: str) -> None:
        if self._leaves is not None or self._unread is not None:
            _stepping.refuse_disk(
                "tkv.jax.average", verb, "save the parameters and the optimizer's state by JAX's tools"
            )

    def _loaded(self) -> None:
        """Do nothing: a store with the keys of `init` has refused to load."""
