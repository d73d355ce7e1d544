"""A trainer with the names and the meaning of MXNet's gluon.Trainer, for parameters of PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from . import _create, _stepping
from . import ndarray as nd
from ._torch_params import named_of
from .errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from .optimizer import Optimizer, Updater, create

if TYPE_CHECKING:
    from .kvstore import KVStore


class Trainer:
    """MXNet's gluon.Trainer, for parameters of PyTorch.

    Args:
        params: what ``model.named_parameters()`` gives, a dict of names and parameters, or parameters. A parameter's name is
            its key; one without a name has its number as name. Those that do not require a gradient are left out.
        optimizer: a name, or one of `mx.optimizer`.
        optimizer_params: its arguments, where `optimizer` is a name.
        kvstore: a store, or the type of one; None for none.
        compression_params: as of `KVStore.set_gradient_compression`.
        update_on_kvstore: True: the store runs the optimizer, on its servers where it is distributed, and has the parameters.
            False: the store sums gradients and each worker runs the optimizer. None: what ``MXNET_UPDATE_ON_KVSTORE`` says,
            else True.

    Every worker makes the same trainer, and has the parameters of rank 0 from then on. As MXNet's `backward` replaces gradients where PyTorch's
    adds to them, a step takes the gradients away: ``parameter.grad`` is None behind it.

    Example:
        >>> model = torch.nn.Linear(3, 1)
        >>> trainer = mx.torch.Trainer(model.named_parameters(), 'sgd', {'learning_rate': 0.1}, kvstore='local')
        >>> x = torch.ones(4, 3)
        >>> for _ in range(100):
        ...     loss = ((model(x) - 2) ** 2).sum()
        ...     loss.backward()
        ...     trainer.step(batch_size=4)
        >>> bool(loss < 1e-6)
        True
    """

    def __init__(
        self,
        params: Any,
        optimizer: str | Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: str | KVStore | None = "device",
        compression_params: Mapping[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        """Make the keys, and give all workers the parameters of rank 0."""
        self._params: dict[str, Any] = {}
        for number, (name, parameter) in enumerate(named_of(params)):
            key = str(number) if name is None else name
            if key in self._params:
                raise InvalidArgumentError(f"Trainer: two parameters have the name {key!r}")
            if parameter.device.type != "cpu":
                raise UnimplementedError(f"Trainer: {key!r} is on {parameter.device}; stores take tensors on the CPU")
            if parameter.requires_grad:
                self._params[key] = parameter
        if not self._params:
            raise InvalidArgumentError("Trainer: there is no parameter that requires a gradient")
        if isinstance(optimizer, Optimizer):
            if optimizer_params:
                raise InvalidArgumentError(
                    "Trainer: optimizer_params beside an optimizer; give its name, or set them there"
                )
            self._optimizer = optimizer
        else:
            self._optimizer = create(optimizer, **(optimizer_params or {}))
        self._scale: float = self._optimizer.rescale_grad
        self._kv: KVStore | None = _create.create(kvstore) if isinstance(kvstore, str) else kvstore
        if compression_params is not None:
            if self._kv is None:
                raise InvalidArgumentError("Trainer: compression_params without a store")
            self._kv.set_gradient_compression(compression_params)
        if update_on_kvstore is None:
            update_on_kvstore = os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") not in ("0", "")
            update_on_kvstore = update_on_kvstore and self._kv is not None
        elif update_on_kvstore and self._kv is None:
            raise InvalidArgumentError("Trainer: update_on_kvstore=True without a store")
        self._is_on_store = bool(update_on_kvstore)
        self._updater = Updater(self._optimizer)
        self._begin()

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The learning rate now, as `Optimizer.learning_rate`."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate, on every worker alike."""
        self._optimizer.set_learning_rate(lr)

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients of all workers, divide them by `batch_size`, and change the parameters.

        Args:
            batch_size: number of samples of all workers together, where the loss is a sum; 1 where it is a mean.
            ignore_stale_grad: a parameter without a gradient takes part with zeros; otherwise it is an error.

        Raises:
            FailedPreconditionError: a parameter has no gradient.
            KVError: as ``kv.pushpull``.
        """
        grads = self._gradients("step", ignore_stale_grad)
        self._rescale(batch_size)
        weights = [parameter.detach() for parameter in self._params.values()]
        if self._is_on_store:
            assert self._kv is not None
            self._kv.pushpull(list(self._params), grads, weights)
        else:
            if self._kv is not None:
                self._kv.pushpull(list(self._params), grads, grads)
            self._update(grads)
        self._end(weights)

    def allreduce_grads(self) -> None:
        """Sum the gradients of all workers in place, to look at or change them before `update`; parameters without take part with zeros.

        Raises:
            FailedPreconditionError: the store runs the optimizer; update_on_kvstore=False is needed.
        """
        self._check_own("allreduce_grads")
        if self._kv is None:
            return
        grads = self._gradients("allreduce_grads", ignore_stale_grad=True)
        self._kv.pushpull(list(self._params), grads, grads)
        for parameter, grad in zip(self._params.values(), grads, strict=True):
            if parameter.grad is None:
                parameter.grad = grad
        torch.autograd.graph.increment_version([parameter.grad for parameter in self._params.values()])

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Change the parameters by the gradients divided by `batch_size`, on this worker.

        Raises:
            FailedPreconditionError: the store runs the optimizer; or a parameter has no gradient.
        """
        self._check_own("update")
        grads = self._gradients("update", ignore_stale_grad)
        self._rescale(batch_size)
        self._update(grads)
        self._end([parameter.detach() for parameter in self._params.values()])

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Save what the optimizer keeps beside the parameters."""
        if self._is_on_store:
            assert self._kv is not None
            self._kv.save_optimizer_states(fname)
            return
        arrays = {
            f"{kind}.{key}.{number}": array
            for kind, key, states in self._states()
            for number, array in enumerate(states)
        }
        nd.save(os.fspath(fname), arrays)

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Put back what `save_states` has saved.

        Raises:
            InvalidArgumentError: it was saved of other parameters, or another optimizer; nothing has changed.
        """
        if self._is_on_store:
            assert self._kv is not None
            self._kv.load_optimizer_states(fname)
            return
        found = nd.load(os.fspath(fname))
        if not isinstance(found, dict):
            raise InvalidArgumentError(f"load_states: {os.fspath(fname)!r} has no names; save_states writes them")
        fresh = Updater(self._optimizer)
        counts: dict[str, int] = {}
        wanted: dict[str, nd.NDArray] = {}
        for key, parameter in self._params.items():
            if f"count.{key}.0" not in found:
                continue
            counts[key] = int(found[f"count.{key}.0"].asnumpy()[0])
            state = self._optimizer.create_state_multi_precision(key, nd.from_dlpack(parameter.detach()))
            fresh.states[key] = state
            wanted.update({f"state.{key}.{number}": array for number, array in enumerate(_arrays(state))})
        names = {*wanted, *(f"count.{key}.0" for key in counts)}
        if names != found.keys():
            first = min(names ^ found.keys())
            raise InvalidArgumentError(
                f"load_states: {os.fspath(fname)!r} {'has' if first in found else 'lacks'} {first!r}; the parameters or the optimizer"
                " are others"
            )
        for name, array in wanted.items():
            if array.shape != found[name].shape or array.dtype != found[name].dtype:
                raise InvalidArgumentError(
                    f"load_states: {name!r} is {found[name].dtype_name} of shape {found[name].shape},"
                    f" {array.dtype_name} of {array.shape} is needed"
                )
        for name, array in wanted.items():
            array[:] = found[name]
        self._updater.states = fresh.states
        for key, count in counts.items():
            self._optimizer._set_count(key, (count, max(counts.values())))

    # ------------------------------------------------------------------------------------------------------ within

    def _states(self) -> list[tuple[str, str, list[Any]]]:
        """Return kind, key and arrays of each state, and of each count of updates."""
        found: list[tuple[str, str, list[Any]]] = []
        for key, state in self._updater.states.items():
            count = nd.array([self._optimizer._count_of(key)[1] or 0], dtype="int64")
            found += [("count", key, [count]), ("state", key, _arrays(state))]
        return found

    def _check_own(self, name: str) -> None:
        if self._is_on_store:
            raise FailedPreconditionError(
                f"{name}: the store runs the optimizer; Trainer(..., update_on_kvstore=False) is needed"
            )

    def _gradients(self, verb: str, ignore_stale_grad: bool) -> list[Any]:
        """Return a gradient for each parameter, or raise."""
        grads = []
        for key, parameter in self._params.items():
            grad = parameter.grad
            if grad is None:
                if not ignore_stale_grad:
                    raise FailedPreconditionError(
                        f"{verb}: {key!r} has no gradient since the last step; ignore_stale_grad=True takes zeros for it"
                    )
                grad = torch.zeros_like(parameter, requires_grad=False)
            elif grad.is_sparse:
                raise UnimplementedError(
                    f"{verb}: the gradient of {key!r} is sparse, which Trainer does not take; kv.push does "
                    "(docs/sparse.md), and torch.nn.Embedding(sparse=False) gives a dense one"
                )
            grads.append(grad.detach())
        return grads

    def _rescale(self, batch_size: float) -> None:
        if not batch_size > 0:
            raise InvalidArgumentError(f"batch_size: {batch_size!r}, a positive number is needed")
        if self._optimizer.rescale_grad != self._scale / batch_size:
            self._optimizer.rescale_grad = self._scale / batch_size

    def _begin(self) -> None:
        """Make the keys, and take the parameters of rank 0."""
        if self._kv is None:
            return
        keys, values = list(self._params), [parameter.detach() for parameter in self._params.values()]
        if self._is_on_store:
            _stepping.check_optimizer("Trainer", self._kv, self._optimizer)
        else:
            _stepping.check_sums("Trainer with update_on_kvstore=False", self._kv, "update_on_kvstore=True")
        with _stepping.running(self._kv, self._optimizer if self._is_on_store else None):
            self._kv.init(keys, values)
            self._kv.pull(keys, out=values)
        torch.autograd.graph.increment_version(values)

    def _update(self, grads: list[Any]) -> None:
        """Run the optimizer here, on the tensors' own memory."""
        for (key, parameter), grad in zip(self._params.items(), grads, strict=True):
            self._updater(key, nd.from_dlpack(grad), nd.from_dlpack(parameter.detach()))

    def _end(self, weights: list[Any]) -> None:
        torch.autograd.graph.increment_version(weights)
        for parameter in self._params.values():
            parameter.grad = None


def _arrays(state: Any) -> list[nd.NDArray]:
    """Return the arrays of a state in their order."""
    if state is None:
        return []
    if isinstance(state, (list, tuple)):
        return [array for one in state for array in _arrays(one)]
    return [state]
