"""The store as an optimizer of PyTorch: the class KVOptimizer."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .._store import helpers as _helpers
from ..errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError
from ..optimizer import Optimizer, Program
from . import stepping as _stepping
from .steps import Steps
from .torch_keys import ParameterKeys
from .torch_params import check_closure, check_same, gradient_of, groups_of, named_of
from .torch_rates import GroupRates
from .torch_states import STORE, check_states, keep_masters, states_of, take_states
from .torch_watch import Gradients, Watch

if TYPE_CHECKING:
    from .._store.kvstore import KVStore
    from ..ticket import Ticket


class KVOptimizer(torch.optim.Optimizer):  # type: ignore[misc,unused-ignore]  # PyTorch may be missing where types are checked
    """A torch.optim.Optimizer whose step goes through a store: ``loss.backward(); opt.step()``.

    Each parameter is a key of the store. Every worker makes the same KVOptimizer; from then on all have the parameters of
    rank 0. A gradient is pushed as soon as the backward pass has computed it, while the rest of the pass goes on, and `step`
    waits for the sums. Gradients are sent from, and results written to, the tensors' own memory, on the CPU or on a GPU. With
    a ``device`` store the parameters of a GPU are summed and updated there.

    Args:
        params: what ``model.named_parameters()`` gives, or parameters, or dicts of such with ``params``, ``lr`` and
            ``weight_decay`` (param groups). A parameter's name is its key; one without a name has its number as name.
            Parameters that do not require a gradient are left out.
        kv: the store.
        optimizer: the object that changes the parameters.

            - one of `tkv.optimizer` or a `Program`: the store does, on its servers if it is distributed, with one
              state for all workers.
            - a torch.optim.Optimizer of the same parameters: each worker does, after the store has averaged the gradients.
              ``dist_async`` is refused, because it has no sums of all workers. A worker that restarts while its job
              continues, and a job that continues from a snapshot (``--restore``), are refused because no server has the
              parameters. `kv.save` and `kv.load` are refused, because the store has only sums of gradients; use
              ``torch.save`` of `state_dict`.
            - None: the store does, with the optimizer or updater set earlier by ``kv.set_optimizer`` or
              ``kv.set_updater``.
        average: divide the sums of a synchronous store by the number of workers, as DistributedDataParallel does: an
            optimizer's `rescale_grad` is divided. False: the gradient is the sum.
        overlap: push in the backward pass. Then there is one backward pass for each step, but for those inside `no_sync`;
            anything else is an error. False: push in `step`.
        prefix: put before each name; models that share a store need different ones.

    Between the backward pass and `step` each worker has only its own gradients. With several workers a script that changes
    them there (to clip them, to unscale them) gets an error, because DistributedDataParallel has averaged them at this place.
    With a torch.optim.Optimizer it calls `reduce` before the change.

    Every worker has to call `step` as often as the others. A parameter that has no gradient then counts as zeros, so
    that the gradients of other workers still count. A parameter that no longer requires a gradient takes no part, on
    any worker. A parameter that starts to require a gradient takes part from its next step on.

    A learning-rate scheduler of PyTorch works if every worker uses it alike: `lr` and `weight_decay` of each group
    count from the next step on.

    If the store changes the parameters, it has their values. A script that writes into parameters itself (to load
    weights, to clamp them, to average them) calls `assign` afterwards; without it the next step is an error.
    ``kv.load`` writes the loaded values into the parameters. `state_dict` has the states of the store's optimizer.

    Raises:
        AlreadyExistsError: the store has a key with such a name; give other names by `prefix`.
        InvalidArgumentError: no parameters, two with one name, one with two names, another option in a group than ``lr`` and ``weight_decay``.
        FailedPreconditionError: `optimizer` is None, and the store assigns; the store has another updater; a gradient that was
            pushed has been changed; a second backward pass before the step; parameters that have been written without
            `assign`.
        UnimplementedError: a sparse gradient; a tensor that is neither on the CPU nor on an NVIDIA GPU; a torch.optim.Optimizer
            that calls its closure several times, as LBFGS; a copy or pickle of a KVOptimizer.

    Example:
        >>> model = torch.nn.Linear(3, 1)
        >>> kv = tkv.kv.create('local')
        >>> opt = tkv.torch.KVOptimizer(model.named_parameters(), kv, tkv.optimizer.SGD(learning_rate=0.1))
        >>> x = torch.ones(4, 3)
        >>> for _ in range(100):
        ...     opt.zero_grad()
        ...     loss = ((model(x) - 2) ** 2).mean()
        ...     loss.backward()
        ...     opt.step()
        >>> bool(loss < 1e-6), sorted(kv.keys())
        (True, ['bias', 'weight'])
    """

    __module__ = "tensorkv.torch"  # its public name

    def __init__(
        self,
        params: Iterable[Any],
        kv: KVStore,
        optimizer: Optimizer | Program | Any = None,
        *,
        average: bool = True,
        overlap: bool = True,
        prefix: str = "",
    ) -> None:
        """Make the keys, and give all workers the parameters of rank 0."""
        self._local: Any = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        self._kv, self._overlap, self._prefix = kv, overlap, prefix
        self._keys = ParameterKeys("KVOptimizer", kv)
        self._watch = Watch()
        self._steps = Steps(kv)
        self._is_reduced = False
        self._priorities: dict[Any, int] = {}
        self._pushed: dict[Any, Ticket[None]] = {}
        self._spent: set[Any] = set()  # parameters whose present gradients a failed step has pushed
        self._computed = Gradients()  # of the last backward pass
        self._is_synced = True
        self._divisor = _stepping.divisor_of(kv, average)
        self._is_made = False
        if self._local is not None:
            check_closure(self._local)
            _stepping.check_sums("KVOptimizer with a torch.optim.Optimizer", kv, "one of tkv.optimizer")
        else:
            _stepping.check_optimizer("KVOptimizer", kv, optimizer)
        self._optimizer = optimizer if isinstance(optimizer, Optimizer) else None
        groups = groups_of(params)
        named = [one for group in groups for one in group["params"]]
        bare = [{**group, "params": [parameter for _, parameter in group["params"]]} for group in groups]
        self._rates = GroupRates(self._optimizer)
        own = self._rates.options()
        if self._local is None:
            for group in bare:
                self._rates.check_group(group)
        else:
            check_same(bare, self._local.param_groups)
        super().__init__(bare, own)
        self._is_made = True
        if self._local is not None:
            self._adopt()
            self.defaults = self._local.defaults
            self._local.register_load_state_dict_post_hook(self._hook(lambda adopting, _: adopting._adopt()))
        new, frozen = self._keys.find_new(named, prefix)
        if not new:
            raise InvalidArgumentError("KVOptimizer: there is no parameter that requires a gradient")
        has_rates = any(group.keys() & own.keys() for group in groups)
        if has_rates:
            self._rates.check(self.param_groups)
        with _stepping.running(kv, optimizer if self._local is None else None, self._divisor):
            self._register(new)
            self._rates.note(self.param_groups)
            if has_rates:
                self._rates.apply(self.param_groups, self._keys.names)
        self._keys.reserve(frozen, reads_trained=self._local is None)
        if self._local is not None:  # its gradients leave before its steps begin
            self._steps.loaded(self._keys.params)
        _helpers.helpers_of(kv).add(self)

    def _adopt(self) -> None:
        """Have the groups and the states of the torch.optim.Optimizer, which makes new ones when it loads."""
        self.param_groups, self.state = self._local.param_groups, self._local.state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to train, on every worker alike."""
        if not self._is_made:  # the base class adds the first groups
            super().add_param_group(param_group)
            return
        named = named_of(param_group["params"])
        bare = {**param_group, "params": [parameter for _, parameter in named]}
        if self._local is None:
            self._rates.check_group(bare)
        new, frozen = self._keys.find_new(named, self._prefix)
        groups = list(self.param_groups)
        if self._local is not None:
            has_names = any("param_names" in group for group in groups) and all(name is not None for name, _ in named)
            self._local.add_param_group({**param_group, "params": named} if has_names else bare)
        else:
            super().add_param_group(bare)
        try:
            self._register(new)
        except BaseException:
            self.param_groups[:] = groups
            raise
        self._keys.reserve(frozen, reads_trained=self._local is None)

    def _register(self, new: dict[str, Any]) -> None:
        """Make the keys of parameters, take the values of rank 0, and hear of the gradients."""
        if not new:
            return
        count = len(self._keys.params)
        try:
            self._keys.make(new)
        except AlreadyExistsError as error:
            raise AlreadyExistsError(
                f"{error}; give another KVOptimizer of the same store other names with prefix=, or another store"
            ) from None
        for place, parameter in enumerate(new.values(), count):
            self._priorities[parameter] = -place
            parameter.register_hook(self._hook(KVOptimizer._check_unpushed, parameter))
            parameter.register_post_accumulate_grad_hook(self._hook(KVOptimizer._take_gradient))
        self._note(new.values())

    def _note(self, params: Iterable[Any]) -> None:
        """Take the parameters as those of the store, if it has them."""
        if self._local is None:
            self._watch.note(params)

    def _register_unfrozen(self) -> dict[str, Any]:
        """Make the keys of parameters that require a gradient for the first time, on every worker alike; return both."""
        new = self._keys.unfrozen()
        if not new:
            return new
        if self._local is not None:
            known = {parameter for group in self._local.param_groups for parameter in group["params"]}
            strange = [key for key, parameter in new.items() if parameter not in known]
            if strange:
                raise FailedPreconditionError(
                    f"KVOptimizer: {strange[0]!r} requires a gradient now, and the optimizer does not have it; call"
                    " add_param_group with it"
                )
        with _stepping.unfreezing(new):
            self._register(new)
        self._rates.apply(self.param_groups, self._keys.names)
        return new

    def _hook(self, method: Callable[..., None], *bound: Any) -> Callable[[Any], None]:
        """Return a hook that does nothing when this optimizer is gone: the parameters may outlive it."""
        me = weakref.ref(self)

        def hook(tensor: Any) -> None:
            self = me()
            if self is not None:
                method(self, *(bound or (tensor,)))

        return hook

    # ------------------------------------------------------------------------------------------------------------ a step

    def _check_unpushed(self, parameter: Any) -> None:
        """Raise if a backward pass would add to a gradient that has been pushed."""
        self._check_unspent([parameter])
        if not self._is_synced:
            return
        if self._is_reduced:
            if parameter.grad is not None:
                raise FailedPreconditionError(
                    "KVOptimizer: a backward pass between reduce() and step(), which would add one worker's gradients to the mean of"
                    " all; call step() or zero_grad() before"
                )
            self._is_reduced = False  # the script has dropped the gradients and makes no step of them
        if parameter in self._pushed:
            raise FailedPreconditionError(
                f"KVOptimizer: a second backward pass before step(), and the gradient of {self._keys.names[parameter]!r} has been pushed;"
                " put all but the last pass inside `with opt.no_sync():`, or give overlap=False"
            )

    def _check_unspent(self, parameters: Iterable[Any]) -> None:
        """Raise if a step that failed has pushed one of these gradients: a second push would count it twice."""
        for parameter in self._spent.intersection(parameters):
            if parameter.grad is not None:
                raise FailedPreconditionError(
                    f"KVOptimizer: the last step failed after the gradient of {self._keys.names[parameter]!r} had been pushed, and a second"
                    " push would count it twice; call zero_grad() and make another backward pass"
                )
            self._spent.discard(parameter)

    def _take_gradient(self, parameter: Any) -> None:
        """Note a gradient that the backward pass has computed, and push it if that is wanted."""
        if self._overlap and self._is_synced:
            self._push_one(parameter)
        # The sum of a gradient that has been pushed is written into its memory before `step` if optimizers run on workers.
        matters = self._local is None if parameter in self._pushed else self._is_shared()
        self._computed.note(parameter, has_digest=matters)

    def _is_shared(self) -> bool:
        """Return whether the mean is made of the gradients of several workers."""
        return self._kv.num_workers > 1 and not _core.is_async(self._kv.type)

    def _push_one(self, parameter: Any) -> None:
        """Push a gradient in the backward pass; the layers that the next forward pass needs first leave first."""
        if not self._pushed and not self._steps.is_under_way:
            self._check_written()
            self._take_rates()
        self._check_unpushed(parameter)
        key, grad = self._keys.names[parameter], self._gradient(parameter)
        if not self._steps.is_under_way:
            self._begin_step()
        if not self._steps.lacks(key):
            return
        if self._local is not None:
            self._pushed[parameter] = self._kv.pushpull(
                [key], [grad], [grad], self._priorities[parameter], async_op=True
            )
            return
        with self._steps.noted():
            self._pushed[parameter] = self._kv.push([key], [grad], self._priorities[parameter], async_op=True)

    def _begin_step(self) -> None:
        """Begin a step in which the parameters that require a gradient now take part, or note which ones have come since."""
        self._steps.begin([*self._keys.taking_part(), *self._keys.unfrozen()], self._keys.every())

    def _gradient(self, parameter: Any) -> Any:
        """Return the gradient as the store takes it; zeros if there is none."""
        return gradient_of("KVOptimizer", "KVOptimizer", self._keys.names[parameter], parameter)

    @property
    def steps(self) -> int:
        """How many steps this worker has made, also before a restart or a load; a script goes on with the next one.

        If the worker died within a step, that step does not count: the restarted worker makes it again, and pushes only the
        gradients that were missing. In a job that continues from a snapshot, and after ``kv.load``, the parameter that
        has been trained most often counts. An asynchronous store has no rounds: after ``kv.load`` it counts from 0.

        Raises:
            FailedPreconditionError: the worker has been started again, and the store is asynchronous.
            KVError: as ``kv.round``.

        Example:
            >>> model = torch.nn.Linear(3, 1)
            >>> opt = tkv.torch.KVOptimizer(model.named_parameters(), tkv.kv.create(), tkv.optimizer.SGD(learning_rate=1))
            >>> for step in range(opt.steps, 2):
            ...     model(torch.ones(3)).sum().backward()
            ...     opt.step()
            >>> opt.steps
            2
        """
        return self._steps.made(self._keys.every())

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add gradients up: backward passes inside push nothing, as with DistributedDataParallel.

        Example:
            >>> model = torch.nn.Linear(3, 1, bias=False)
            >>> opt = tkv.torch.KVOptimizer(model.parameters(), tkv.kv.create(), tkv.optimizer.SGD(learning_rate=1))
            >>> before = model.weight.detach().clone()
            >>> with opt.no_sync():
            ...     model(torch.ones(3)).backward()
            >>> model(torch.ones(3)).backward()
            >>> opt.step()
            >>> (before - model.weight.detach()).round(decimals=3).tolist()
            [[2.0, 2.0, 2.0]]
        """
        before, self._is_synced = self._is_synced, False
        try:
            yield
        finally:
            self._is_synced = before

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch.optim.Optimizer; between a backward pass that pushes and its step it is an error."""
        if self._pushed:
            first = self._keys.names[next(iter(self._pushed))]
            raise FailedPreconditionError(
                f"KVOptimizer: zero_grad() between backward() and step(); the gradient of {first!r} has been pushed; put a backward"
                " pass whose gradients are thrown away inside `with opt.no_sync():`, or give overlap=False"
            )
        self._is_reduced = False
        self._spent.clear()
        self._steps.undo()
        self._computed = Gradients()
        super().zero_grad(set_to_none)

    def _check_written(self) -> None:
        """Raise if the script has converted parameters, or has written into parameters that the store has."""
        self._keys.check_forms()
        if self._local is not None:
            return
        found = [self._keys.names[parameter] for parameter in self._watch.written(self._taking_part())]
        if found:
            raise _stepping.written("KVOptimizer", found)

    def assign(self) -> None:
        """Have the store take the parameters as they are now: those of rank 0, for all workers.

        Every worker calls it, between two steps, after it has written into parameters: after ``model.load_state_dict``, a
        clamp, an average that is copied in. The optimizer's states stay.

        Raises:
            FailedPreconditionError: between a backward pass that has pushed gradients and its step.
            KVError: as ``kv.assign``.

        Example:
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> opt = tkv.torch.KVOptimizer(model.named_parameters(), tkv.kv.create(), tkv.optimizer.SGD(learning_rate=1))
            >>> _ = model.load_state_dict({'weight': torch.full((1, 1), 7.0)})
            >>> opt.assign()
            >>> model(torch.ones(1, 1)).sum().backward()
            >>> opt.step()
            >>> model.weight.item()
            6.0
        """
        self._check_between("assign")
        self._keys.check_forms()
        self._kv.assign(list(self._keys.params), [parameter.detach() for parameter in self._keys.names])
        self._take()

    def _take(self) -> None:
        """Read all parameters from the store."""
        values = [parameter.detach() for parameter in self._keys.names]
        self._watch.drop(self._keys.names)
        self._kv.pull(list(self._keys.params), out=values)
        torch.autograd.graph.increment_version(values)
        self._watch.forget()
        self._note(self._keys.names)

    def _check_between(self, verb: str) -> None:
        """Raise between a backward pass that has pushed and its step."""
        if self._pushed:
            first = self._keys.names[next(iter(self._pushed))]
            raise FailedPreconditionError(
                f"{verb}: the gradient of {first!r} has been pushed, and step() has not been called; call {verb} behind step()"
            )

    def _check_disk(self, verb: str) -> None:
        if self._local is not None:
            _stepping.refuse_disk(
                f"a KVOptimizer with {type(self._local).__name__}",
                verb,
                "torch.save saves the model and opt.state_dict()",
            )
        if verb == "load":
            self._check_between(verb)

    def _loaded(self) -> None:
        self._take()
        self._steps.loaded(self._keys.every())

    def reduce(self) -> None:
        """Replace every gradient by the mean of all workers' gradients, to look at or change it before `step`.

        Every worker calls it, between the backward pass and `step`, where a torch.optim.Optimizer changes the parameters. All
        workers have the same gradients then, so that each clips by the same norm, and each takes the same decision to skip a
        step. ``torch.amp.GradScaler`` needs it: ``scaler.scale(loss).backward(); opt.reduce(); scaler.step(opt); scaler.update()``.
        With `average=False` the gradients are sums.

        Raises:
            FailedPreconditionError: the store changes the parameters; a second call before `step`.
            KVError: as ``kv.pushpull``.

        Example:
            >>> model = torch.nn.Linear(3, 1)
            >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> opt = tkv.torch.KVOptimizer(model.named_parameters(), tkv.kv.create(), sgd)
            >>> model(torch.ones(3)).sum().backward()
            >>> opt.reduce()
            >>> norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            >>> opt.step()
        """
        if self._local is None:
            raise FailedPreconditionError(
                "reduce: the store changes the parameters with the sums that it makes; give KVOptimizer a torch.optim.Optimizer, "
                "which changes them on each worker"
            )
        if self._is_reduced:
            raise FailedPreconditionError(
                "reduce: the gradients are the mean of all workers already; call step() or zero_grad()"
            )
        self._finish(self._sum_gradients)
        self._is_reduced = True

    def _finish(self, end: Callable[[dict[Any, Ticket[None]]], None]) -> None:
        """Push the gradients that the backward pass has not pushed, and wait for all pushes."""
        self._check_unspent(self._taking_part())
        pushed, self._pushed = self._pushed, {}
        computed, self._computed = self._computed, Gradients()
        is_repeatable = False
        try:
            with (
                torch.no_grad(),
                _stepping.equally_often("calls step() without gradients, which takes part with zeros"),
            ):
                self._check_unchanged(pushed, computed)
                self._check_written()  # once more where the backward pass has: its step would undo a write behind it
                try:
                    unfrozen = self._register_unfrozen()
                except BaseException:  # the step can be repeated, and pushes no gradient twice
                    self._pushed, self._computed, pushed = pushed, computed, {}
                    is_repeatable = True
                    raise
                if not pushed:
                    self._take_rates()
                with _stepping.unfreezing(unfrozen):
                    end(pushed)
        except BaseException:
            self._spent.update(pushed)
            for ticket in pushed.values():  # nobody reads a gradient's memory when the step has ended
                with contextlib.suppress(Exception):
                    ticket.wait()
            if not is_repeatable:
                risen = self._steps.fail()
                self._spent.update(parameter for parameter, name in self._keys.names.items() if name in risen)
            raise
        finally:
            if not is_repeatable:
                self._steps.end()

    # torch.amp.GradScaler calls step() also where it has found an infinite gradient.
    _step_supports_amp_scaling = True

    def _unscale(self) -> bool:
        """Divide the gradients by the scale of a GradScaler that calls step(); return whether all of them are finite."""
        if getattr(self, "found_inf", None) is None:
            return True
        if self._local is None or not self._is_reduced:
            remedy = (
                "call opt.reduce() before scaler.step()"
                if self._local is not None
                else "give KVOptimizer a torch.optim.Optimizer and call opt.reduce() before scaler.step()"
            )
            raise FailedPreconditionError(
                f"KVOptimizer: a GradScaler decides by the gradients of this worker alone, so that workers would disagree; {remedy}"
            )
        grads = [parameter.grad for parameter in self._taking_part()]
        with torch.no_grad():
            if not all(bool(torch.isfinite(grad).all()) for grad in grads):
                return False
            scale = getattr(self, "grad_scale", None)
            if scale is not None:
                factor = scale.double().reciprocal().float()
                for grad in grads:
                    grad.mul_(factor.to(grad.device))
        return True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push the remaining gradients, wait for the sums of all workers, and change the parameters.

        Args:
            closure: computes the loss again, with its backward pass.

        Returns:
            the closure's result, or None.

        Raises:
            FailedPreconditionError: parameters that have been written without `assign`; a GradScaler without `reduce`; gradients
                that have been changed without `reduce`, unless `overlap` writes sums into them meanwhile (docs/torch.md);
                gradients that a step pushed before it failed.
            InvalidArgumentError: a parameter has another dtype or shape than its key; another option of a group than `lr` and
                `weight_decay` has been set, if the store runs the optimizer.
            UnavailableError: another worker has left, and makes no more steps.
            KVError: as ``kv.push`` and ``kv.pull``, with the key and the peer. Parameters are as before the step, and
                gradients may have been used. If a worker continues after a network error, it has the servers'
                parameters after its next step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._unscale():
            self._is_reduced = False
        elif self._local is None:
            self._finish(self._step_store)
        else:
            if not self._is_reduced:
                self._finish(self._sum_gradients)
            self._is_reduced = False
            self._local.step()
        return loss

    def _check_unchanged(self, pushed: dict[Any, Ticket[None]], computed: Gradients) -> None:
        """Raise if the script has changed gradients before they were summed, or the rates that they were sent with."""
        is_shared = self._is_shared()
        for parameter in computed.changed():
            if parameter not in pushed and (not is_shared or parameter.grad is None):
                continue
            if not is_shared:
                remedy = "was pushed before; overlap=False pushes in step()"
            elif self._local is not None:
                remedy = "is this worker's alone; call opt.reduce() before the change, which gives every worker the mean of all"
            else:
                remedy = (
                    "is this worker's alone; clip_gradient= of the optimizer clips the mean of all, and a torch.optim.Optimizer with"
                    " opt.reduce() allows any change"
                )
            raise FailedPreconditionError(
                f"KVOptimizer: the gradient of {self._keys.names[parameter]!r} has been changed between backward() and step(), and {remedy}"
            )
        if pushed and not self._rates.are_taken(self.param_groups):
            raise FailedPreconditionError(
                "KVOptimizer: lr or weight_decay of a group has been changed between backward() and step(), when gradients had been"
                " pushed; change them behind step(), or give overlap=False"
            )

    def _taking_part(self) -> list[Any]:
        return list(self._keys.taking_part().values())

    def _step_store(self, pushed: dict[Any, Ticket[None]]) -> None:
        """Have the store change the parameters."""
        params = self._taking_part()
        outs = [parameter.detach() for parameter in params]
        keys = [self._keys.names[parameter] for parameter in params]
        grads = {p: self._gradient(p) for p in params if p not in pushed}  # may raise; then no step has begun
        self._begin_step()
        late = [p for p in grads if self._steps.lacks(self._keys.names[p])]
        self._watch.drop(params)
        with self._steps.noted():
            if len(late) == len(params):
                self._kv.pushpull(keys, [grads[p] for p in late], outs)
            else:
                if late:
                    self._kv.push([self._keys.names[p] for p in late], [grads[p] for p in late])
                for ticket in pushed.values():
                    ticket.wait()
                self._kv.pull(keys, out=outs)
        torch.autograd.graph.increment_version(outs)
        self._note(params)

    def _sum_gradients(self, pushed: dict[Any, Ticket[None]]) -> None:
        """Have the store sum the gradients, and divide them if they are averaged."""
        params = self._taking_part()
        late = [parameter for parameter in params if parameter not in pushed]
        keys = [self._keys.names[parameter] for parameter in late]
        grads = [self._gradient(parameter) for parameter in late]  # may raise; then no step has begun
        self._begin_step()
        lacking = [place for place, key in enumerate(keys) if self._steps.lacks(key)]
        _stepping.sum_lacking(self._kv, keys, grads, lacking)
        for ticket in pushed.values():
            ticket.wait()
        for parameter, grad in zip(late, grads, strict=True):
            if parameter.grad is None:
                parameter.grad = grad
        all_grads = [parameter.grad for parameter in params]
        torch.autograd.graph.increment_version(all_grads)
        if self._divisor > 1:
            torch._foreach_div_(all_grads, float(self._divisor))  # type: ignore[attr-defined,unused-ignore]

    # ---------------------------------------------------------------------------------------------------------- rates

    def _take_rates(self) -> None:
        """Tell the store the rates that a scheduler or the script has changed in the groups."""
        if self._local is None:
            self._rates.take(self.param_groups, self._keys.names)

    def state_dict(self) -> dict[str, Any]:
        """Return the groups and the states, for ``torch.save``: those of the torch.optim.Optimizer, or those of the store.

        If the store runs the optimizer, only the lowest rank that lives has its states, as a tensor of bytes in the
        entry ``'store'``. On other ranks that entry is None. Save the dict whose ``'store'`` is not None.

        Raises:
            KVError: as ``kv.save_optimizer_states``.
        """
        found: dict[str, Any]
        if self._local is not None:
            found = self._local.state_dict()
            return found
        self._check_between("state_dict")
        found = super().state_dict()
        found[STORE] = states_of(self._kv)
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take groups and states back; `lr` and `weight_decay` count from the next step on.

        If the store runs the optimizer, every worker calls it. The store then takes the current parameters, as `assign`
        does, so load the model first. The float32 masters of parameters of 16 bits come back if all of these are the
        parameters that the states were saved with; otherwise they begin anew from the parameters.

        Raises:
            InvalidArgumentError: no states of a store; those of another rank than 0; a parameter that has another dtype or shape
                than its key. Nothing has changed then.
            ValueError: other groups. Nothing has changed then.
            KVError: as ``kv.load_optimizer_states`` and ``kv.assign``.

        Example:
            >>> model = torch.nn.Linear(2, 1, bias=False)
            >>> momentum = lambda: tkv.optimizer.SGD(learning_rate=0.1, momentum=0.9)
            >>> opt = tkv.torch.KVOptimizer(model.named_parameters(), tkv.kv.create(), momentum())
            >>> model(torch.ones(2)).sum().backward()
            >>> opt.step()
            >>> saved = {'model': model.state_dict(), 'opt': opt.state_dict()}  # torch.save(saved, file)
            >>> model.load_state_dict(saved['model'])
            <All keys matched successfully>
            >>> opt = tkv.torch.KVOptimizer(model.named_parameters(), tkv.kv.create(), momentum())
            >>> opt.load_state_dict(saved['opt'])
        """
        if self._local is not None:
            self._local.load_state_dict(state_dict)
            return
        check_states("KVOptimizer", state_dict)
        self._check_between("load_state_dict")
        self._keys.check_forms()
        before = [{**group} for group in self.param_groups]
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        try:
            take_states("KVOptimizer", self._kv, state_dict)
        except BaseException:
            self.param_groups[:] = before
            raise
        self.assign()
        keep_masters(self._kv, state_dict, self._keys.params)

    def __getstate__(self) -> dict[str, Any]:
        """Raise: a store is not copied."""
        raise _stepping.copied("KVOptimizer", "copy or save its state_dict()")

    def __repr__(self) -> str:
        """Return a text with the store, the number of parameters and the optimizer."""
        who = type(self._local or self._optimizer).__name__ if self._local or self._optimizer else "the store's updater"
        return f"<KVOptimizer of {len(self._keys.names)} parameters in {self._kv!r}, changed by {who}>"
