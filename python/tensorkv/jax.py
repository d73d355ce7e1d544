"""The store as an optimizer of JAX's pytrees: ``tensorkv.jax``.

This module needs JAX; ``import tensorkv`` does not load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.core import Tracer

from . import _stepping
from ._trees import Form, flatten_pytree
from .errors import FailedPreconditionError, InvalidArgumentError
from .optimizer import Optimizer, Program

if TYPE_CHECKING:
    from .kvstore import KVStore

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

    def pull(self) -> Any:
        """Return the tree as the store has it."""
        arrays = self._kv.pull(self.keys, like=jax.numpy.zeros(()))
        return self.form(list(arrays))

    def pushpull(self, tree: Any) -> Any:
        """Push a tree and return what the store has then."""
        pushed: Any = self._kv.pushpull(self.keys, self.values(tree))  # new arrays: nobody writes into those of JAX
        return self.form(list(pushed))


class KVOptimizer:
    """Parameters, a pytree, that a store changes: ``params = opt.step(grads)``.

    Each array of the tree is a key of the store, whose name is the way to it with dots between. Every worker makes the same
    KVOptimizer. `step` is called outside of ``jax.jit``, with the gradients that the jitted function returns; results are new
    arrays, which nobody copies, on the CPU.

    Args:
        params: a pytree of arrays.
        kv: the store.
        optimizer: one of `mx.optimizer`, or a `Program`; None where the store has its updater already.
        average: divide the sums of a synchronous store by the number of workers, by the optimizer's `rescale_grad`.
        prefix: put before each name; models that share a store need different ones.

    Attributes:
        params: the parameters: at first those of rank 0, on every worker.

    Raises:
        AlreadyExistsError: the store has a key with such a name.
        FailedPreconditionError: no optimizer, and the store assigns; the store has another updater.

    Example:
        >>> kv = mx.kv.create('local')
        >>> opt = mx.jax.KVOptimizer({'w': jax.numpy.zeros(3)}, kv, mx.optimizer.SGD(learning_rate=0.1))
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
        with _stepping.running(kv, optimizer, _stepping.divisor_of(kv, average)):
            self._leaves = _Leaves("KVOptimizer", kv, params, prefix)
            self.params: Any = self._leaves.pull()

    def step(self, grads: Any) -> Any:
        """Push gradients, wait for those of all workers, and return the new parameters.

        Args:
            grads: a pytree of the form, shapes and dtypes of the parameters.

        Raises:
            InvalidArgumentError: another form.
            FailedPreconditionError: inside of a function that JAX transforms.
            KVError: as ``kv.pushpull``; the parameters stay.
        """
        self.params = self._leaves.pushpull(grads)
        return self.params


class GradientTransformation(NamedTuple):
    """A pair of functions as optax has them: ``init(params)`` and ``update(updates, state, params=None)``."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


def average(kv: KVStore, *, prefix: str = "") -> GradientTransformation:
    """Return a transformation in optax's form that gives every worker the mean of all workers' gradients.

    ``optax.chain(mx.jax.average(kv), optax.adam(1e-3))`` is an optimizer whose states are on each worker. Both functions run
    outside of ``jax.jit``. ``init(params)`` returns the parameters of rank 0 as its state, with which all workers begin.

    Args:
        kv: a store without updater, and not ``dist_async``, which has no sums of all workers; a worker that is started again
            while its job goes on is refused.
        prefix: put before each name.

    Example:
        >>> kv = mx.kv.create('local')
        >>> mean = mx.jax.average(kv)
        >>> params = mean.init({'w': jax.numpy.zeros(3)})
        >>> updates, params = mean.update({'w': jax.numpy.ones(3)}, params)
        >>> updates['w'].tolist()
        [1.0, 1.0, 1.0]
    """
    _stepping.check_sums("average", kv, "KVOptimizer")
    leaves: list[_Leaves] = []

    def init(params: Any) -> Any:
        leaves.append(_Leaves("average", kv, params, prefix))
        return leaves[0].pull()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if not leaves:
            raise FailedPreconditionError("average: update before init(params)")
        summed = leaves[0].pushpull(updates)
        if kv.num_workers == 1:
            return summed, state
        return jax.tree_util.tree_map(lambda leaf: leaf / kv.num_workers, summed), state

    return GradientTransformation(init, update)
