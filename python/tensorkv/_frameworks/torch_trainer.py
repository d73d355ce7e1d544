"""A trainer with the names and the meaning of MXNet's gluon.Trainer, for parameters of PyTorch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from .._array import nd
from .._store import create as _create
from .._store import helpers as _helpers
from ..errors import FailedPreconditionError, InvalidArgumentError
from ..optimizer import Optimizer, Program, Updater, create
from . import stepping as _stepping
from .steps import Steps
from .torch_keys import ParameterKeys
from .torch_params import gradient_of, named_of
from .torch_states import STORE, check_states, keep_masters, states_of, take_states
from .torch_watch import Watch

if TYPE_CHECKING:
    from .._store.kvstore import KVStore


class Trainer:
    """MXNet's gluon.Trainer, for parameters of PyTorch.

    Args:
        params: what ``model.named_parameters()`` gives, a dict of names and parameters, or parameters. A parameter's name is
            its key; one without a name has its number as name. Parameters that do not require a gradient are left out.
        optimizer: a name, or one of `tkv.optimizer`.
        optimizer_params: its arguments, where `optimizer` is a name.
        kvstore: a store, or the type of one; None for none.
        compression_params: as of `KVStore.set_gradient_compression`.
        update_on_kvstore: True: the store runs the optimizer and has the parameters, on its servers if it is
            distributed. False: the store sums gradients and each worker runs the optimizer. None: as
            ``MXNET_UPDATE_ON_KVSTORE`` says, else True.

    Every worker makes the same trainer, and has the parameters of rank 0 from then on. Parameters may be on the CPU and on GPUs.
    A parameter that does not require a gradient takes no part, on any worker; it may require one later. A step removes
    the gradients: ``parameter.grad`` is None after it. The reason is that MXNet's `backward` replaces gradients, while
    PyTorch's adds to them.

    If the store runs the optimizer, it has the values of the parameters. A script that writes into them calls `assign`
    afterwards; without it the next step is an error. ``kv.load`` writes the loaded values into the parameters.

    Raises:
        InvalidArgumentError: no parameter that requires a gradient, two with one name, one with two names; an optimizer of another type, such as a
            `Program`, which `KVOptimizer` takes.
        KeyNotFoundError: no optimizer has that name.
        UnimplementedError: a copy or pickle of a Trainer that has a store.

    Example:
        >>> model = torch.nn.Linear(3, 1)
        >>> trainer = tkv.torch.Trainer(model.named_parameters(), 'sgd', {'learning_rate': 0.1}, kvstore='local')
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
        self._watch = Watch()
        new, frozen = ParameterKeys("Trainer", None).find_new(named_of(params))
        if not new:
            raise InvalidArgumentError("Trainer: there is no parameter that requires a gradient")
        if isinstance(optimizer, Optimizer):
            if optimizer_params:
                raise InvalidArgumentError(
                    "Trainer: optimizer_params beside an optimizer; give its name, or set them there"
                )
            self._optimizer = optimizer
        elif isinstance(optimizer, str):
            self._optimizer = create(optimizer, **(optimizer_params or {}))
        else:
            ours = (
                "; tkv.torch.KVOptimizer and kv.set_optimizer take a Program" if isinstance(optimizer, Program) else ""
            )
            ours = "; tkv.torch.KVOptimizer takes it" if isinstance(optimizer, torch.optim.Optimizer) else ours
            raise InvalidArgumentError(
                f"Trainer: optimizer of type {type(optimizer).__qualname__}; a name or one of tkv.optimizer is needed{ours}"
            )
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
        self._steps = None if self._kv is None else Steps(self._kv)
        self._updater = Updater(self._optimizer)
        self._keys = ParameterKeys("Trainer", self._kv)
        self._begin(new, frozen)

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

    @property
    def steps(self) -> int:
        """How many steps this worker has made, also before a restart or a load; a script goes on with the next one.

        If the worker died within a step, that step does not count: the restarted worker makes it again, and pushes only the
        gradients that were missing. In a job that continues from a snapshot, and after ``kv.load``, the parameter that
        has been trained most often counts. An asynchronous store has no rounds: after ``kv.load`` it counts from 0.

        Raises:
            FailedPreconditionError: the Trainer has no store; the worker has been started again, and the store is asynchronous.
        """
        if self._steps is None:
            raise FailedPreconditionError("steps: the Trainer has no store, which counts them")
        return self._steps.made(self._keys.every())

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients of all workers, divide them by `batch_size`, and change the parameters.

        Args:
            batch_size: number of samples of all workers together, if the loss is a sum; 1 if it is a mean.
            ignore_stale_grad: a parameter without a gradient takes part with zeros; otherwise it is an error.

        Raises:
            FailedPreconditionError: a parameter has no gradient; parameters that have been written without `assign`.
            KVError: as ``kv.pushpull``.
        """
        unfrozen = self._register_unfrozen()
        self._check_written()
        grads = self._gradients("step", ignore_stale_grad)
        self._rescale(batch_size)
        keys = list(self._taking_part())
        weights = [parameter.detach() for parameter in self._taking_part().values()]
        if self._is_on_store:
            assert self._kv is not None and self._steps is not None
            self._watch.drop(self._taking_part().values())
            begun = self._steps.one(keys, self._keys.every())
            with _equally_often(), _stepping.unfreezing(unfrozen), begun as lacking:
                if len(lacking) == len(keys):
                    self._kv.pushpull(keys, grads, weights)
                else:
                    if lacking:
                        self._kv.push([keys[place] for place in lacking], [grads[place] for place in lacking])
                    self._kv.pull(keys, out=weights)
        else:
            if self._kv is not None:
                assert self._steps is not None
                with _equally_often(), _stepping.unfreezing(unfrozen), self._steps.one(keys) as lacking:
                    _stepping.sum_lacking(self._kv, keys, grads, lacking)
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
        unfrozen = self._register_unfrozen()
        grads = self._gradients("allreduce_grads", ignore_stale_grad=True)
        params = self._taking_part()
        assert self._steps is not None
        with _equally_often(), _stepping.unfreezing(unfrozen), self._steps.one(list(params)) as lacking:
            _stepping.sum_lacking(self._kv, list(params), grads, lacking)
        for parameter, grad in zip(params.values(), grads, strict=True):
            if parameter.grad is None:
                parameter.grad = grad
        torch.autograd.graph.increment_version([parameter.grad for parameter in params.values()])

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Change the parameters by the gradients divided by `batch_size`, on this worker.

        Raises:
            FailedPreconditionError: the store runs the optimizer; or a parameter has no gradient.
        """
        self._check_own("update")
        self._register_unfrozen()
        grads = self._gradients("update", ignore_stale_grad)
        self._rescale(batch_size)
        self._update(grads)
        self._end([parameter.detach() for parameter in self._taking_part().values()])

    def assign(self) -> None:
        """Have all workers take the parameters of rank 0 as they are now, and the store too, if it has them.

        Every worker calls it, between two steps, after it has written into parameters: after ``model.load_state_dict``, a
        clamp, an average that is copied in. The optimizer's states stay.

        Raises:
            KVError: as ``kv.assign``.
        """
        if self._kv is None:
            return
        self._keys.check_forms()
        self._kv.assign(list(self._keys.params), [parameter.detach() for parameter in self._keys.params.values()])
        self._take()

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's states as tensors, for ``torch.save``.

        If the store runs the optimizer, only the lowest rank that lives has its states, as a tensor of bytes in the
        entry ``'store'``. On other ranks that entry is None. Save the dict of rank 0.

        Raises:
            KVError: as ``kv.save_optimizer_states``.
        """
        if self._is_on_store:
            assert self._kv is not None
            return {STORE: states_of(self._kv)}
        return {name: torch.from_dlpack(array.copy()) for name, array in self._named_states().items()}  # type: ignore[attr-defined,unused-ignore]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the states that `state_dict` has returned.

        If the store runs the optimizer, every worker calls it. The store then takes the current parameters, as `assign`
        does, so load the model first. The float32 masters of parameters of 16 bits come back if all of these are the
        parameters that the states were saved with; otherwise they begin anew from the parameters.

        Raises:
            InvalidArgumentError: it is of other parameters, another optimizer, or another rank than 0.
            KVError: as ``kv.load_optimizer_states`` and ``kv.assign``.
        """
        if self._is_on_store:
            assert self._kv is not None
            check_states("Trainer", state_dict)
            take_states("Trainer", self._kv, state_dict)
            self.assign()
            keep_masters(self._kv, state_dict, self._keys.params)
            return
        self._take_states("load_state_dict", {name: nd.from_dlpack(tensor) for name, tensor in state_dict.items()})

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Save the optimizer's states."""
        if self._is_on_store:
            assert self._kv is not None
            self._kv.save_optimizer_states(fname)
            return
        nd.save(os.fspath(fname), self._named_states())

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Restore the states that `save_states` has saved.

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
        self._take_states(f"load_states: {os.fspath(fname)!r}", found)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for copy and pickle, or raise: a store is not copied."""
        if self._kv is not None:
            raise _stepping.copied("Trainer", "copy or save its state_dict()")
        return self.__dict__

    # ------------------------------------------------------------------------------------------------------ within

    def _take_states(self, what: str, found: Mapping[str, Any]) -> None:
        """Put back the states of this worker's optimizer, or raise and change nothing."""
        fresh = Updater(self._optimizer)
        counts: dict[str, int] = {}
        wanted: dict[str, nd.NDArray] = {}
        for key, parameter in self._keys.params.items():
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
                f"{what}: {'has' if first in found else 'lacks'} {first!r}; the parameters or the optimizer are others"
            )
        for name, array in wanted.items():
            if array.shape != found[name].shape or array.dtype != found[name].dtype:
                raise InvalidArgumentError(
                    f"{what}: {name!r} is {found[name].dtype_name} of shape {found[name].shape},"
                    f" {array.dtype_name} of {array.shape} is needed"
                )
        for name, array in wanted.items():
            array[:] = found[name]
        self._updater.states = fresh.states
        for key, count in counts.items():
            self._optimizer._set_count(key, (max(counts.values()), count))

    def _named_states(self) -> dict[str, Any]:
        return {
            f"{kind}.{key}.{number}": array
            for kind, key, states in self._states()
            for number, array in enumerate(states)
        }

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
        for key, parameter in self._taking_part().items():
            if parameter.grad is None and not ignore_stale_grad:
                raise FailedPreconditionError(
                    f"{verb}: {key!r} has no gradient since the last step; ignore_stale_grad=True takes zeros for it"
                )
        return [gradient_of(verb, "Trainer", key, parameter) for key, parameter in self._taking_part().items()]

    def _rescale(self, batch_size: float) -> None:
        if not batch_size > 0:
            raise InvalidArgumentError(f"batch_size: {batch_size!r}, a positive number is needed")
        if self._optimizer.rescale_grad != self._scale / batch_size:
            self._optimizer.rescale_grad = self._scale / batch_size

    def _begin(self, new: dict[str, Any], frozen: dict[Any, str]) -> None:
        """Make the keys, and take the parameters of rank 0."""
        if self._kv is None:
            self._keys.make(new)
            self._keys.reserve(frozen, reads_trained=False)
            return
        if self._is_on_store:
            _stepping.check_optimizer("Trainer", self._kv, self._optimizer)
        else:
            _stepping.check_sums("Trainer with update_on_kvstore=False", self._kv, "update_on_kvstore=True")
        with _stepping.running(self._kv, self._optimizer if self._is_on_store else None):
            self._keys.make(new)
            self._note()
            self._keys.reserve(frozen, reads_trained=self._is_on_store)
        _helpers.helpers_of(self._kv).add(self)

    def _take(self) -> None:
        """Read all parameters from the store."""
        assert self._kv is not None
        values = [parameter.detach() for parameter in self._keys.params.values()]
        self._watch.drop(self._keys.params.values())
        self._kv.pull(list(self._keys.params), out=values)
        torch.autograd.graph.increment_version(values)
        self._watch.forget()
        self._note()

    def _taking_part(self) -> dict[str, Any]:
        """Return the parameters that require a gradient now, on every worker alike."""
        return self._keys.taking_part()

    def _note(self) -> None:
        """Take the parameters as those of the store, if it has them."""
        if self._is_on_store:
            self._watch.note(self._taking_part().values())

    def _check_written(self) -> None:
        """Raise if the script has converted parameters, or has written into parameters that the store has."""
        self._keys.check_forms()
        if not self._is_on_store:
            return
        written = set(self._watch.written(self._taking_part().values()))
        if written:
            raise _stepping.written(
                "Trainer", [key for key, parameter in self._keys.params.items() if parameter in written]
            )

    def _register_unfrozen(self) -> dict[str, Any]:
        """Make the keys of parameters that require a gradient for the first time, on every worker alike; return both."""
        new = self._keys.unfrozen()
        if not new:
            return new
        with _stepping.unfreezing(new):
            self._keys.make(new)
        if self._is_on_store:
            self._watch.note(new.values())
        return new

    def _check_disk(self, verb: str) -> None:
        if not self._is_on_store:
            _stepping.refuse_disk(
                "a Trainer with update_on_kvstore=False", verb, "torch.save saves the model and trainer.state_dict()"
            )

    def _loaded(self) -> None:
        self._take()
        if self._steps is not None:
            self._steps.loaded(self._keys.every())

    def _update(self, grads: list[Any]) -> None:
        """Run the optimizer here, on the tensors' own memory."""
        for (key, parameter), grad in zip(self._taking_part().items(), grads, strict=True):
            self._updater(key, nd.from_dlpack(grad), nd.from_dlpack(parameter.detach()))

    def _end(self, weights: list[Any]) -> None:
        torch.autograd.graph.increment_version(weights)
        self._note()
        for parameter in self._keys.params.values():
            parameter.grad = None


def _equally_often() -> contextlib.AbstractContextManager[None]:
    return _stepping.equally_often(
        "calls step(..., ignore_stale_grad=True) without gradients, which takes part with zeros"
    )


def _arrays(state: Any) -> list[nd.NDArray]:
    """Return the arrays of a state in their order."""
    if state is None:
        return []
    if isinstance(state, (list, tuple)):
        return [array for one in state for array in _arrays(one)]
    return [state]
