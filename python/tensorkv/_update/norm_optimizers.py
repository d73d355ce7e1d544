"""The optimizers whose step depends on norms, which need a value whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UnimplementedError
from .base import Optimizer, bound, builtin
from .checks import number
from .reporting_dict import ReportingDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from .._array.ndarray import NDArray
    from .._types import HyperparametersBesideLazy, OtherHyperparameters

__all__ = ["LAMB", "LARS", "LBSGD"]

_COMMON = {
    "learning_rate": "lr",
    "wd": "wd",
    "rescale_grad": "rescale_grad",
    "clip_gradient": "clip_gradient",
}


@builtin
class LAMB(Optimizer):
    """LAMB (You et al., arXiv 1904.00962): Adam's step, as long as the weight.

    ``u = m / (sqrt(v) + epsilon) + wd * weight; weight -= lr * clamp(norm(weight)) / norm(u) * u`` with `m` and `v` corrected
    for their zero start. If one of the norms is 0, the step is ``lr * u``. The norms are of all elements of a key. In a
    distributed store a key made after `set_optimizer` is therefore stored whole on one server, and has at most 256 MiB.

    Args:
        learning_rate: default 0.001, or the `base_lr` of `lr_scheduler`.
        beta1: decay of the mean.
        beta2: decay of the variance.
        epsilon: added to the root of the corrected variance.
        lower_bound: the least norm of a weight; None, 0 and negative ones do not bind.
        upper_bound: the largest norm of a weight; None, 0 and negative ones do not bind.
        bias_correction: whether `m` and `v` are corrected.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.LAMB().epsilon
        1e-06
    """

    _program = "lamb"
    _learning_rate = 0.001
    _numbers = Optimizer._numbers | {"lower_bound", "upper_bound"}
    _mapping = {
        **_COMMON,
        "beta1": "beta1",
        "beta2": "beta2",
        "epsilon": "epsilon",
        "bias_correction": "bias_correction",
    }

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction
        super().__init__(learning_rate=learning_rate, **kwargs)

    def _params(self) -> dict[str, float]:
        lower = 0.0 if self.lower_bound is None else max(number("lower_bound", self.lower_bound), 0.0)
        return {**super()._params(), "lower_bound": lower, "upper_bound": bound("upper_bound", self.upper_bound)}


_NO_NORM = ("gamma", "beta", "bias")


@builtin
class LARS(Optimizer):
    """LARS (You, Gitman and Ginsburg, arXiv 1708.03888): momentum whose rate follows the norms of weight and gradient.

    ``mom = momentum * mom - rate * (clip(rescale_grad * grad) + wd * weight); weight += mom``.

    The rate is ``lr * eta * norm(weight) / (norm(rescale_grad * grad) + wd * norm(weight) + eps)``.
    If one of the norms is 0, or the name of the key ends with ``gamma``, ``beta`` or ``bias``, `rate` is `lr`.

    The norms are of all elements of a key. In a distributed store a key made after `set_optimizer` is therefore stored
    whole on one server, and has at most 256 MiB.

    Args:
        momentum: factor of the last step.
        lazy_update: see Optimizer.
        eta: factor of the norm of the weight.
        eps: added to the norms below.
        momentum_correction: whether the momentum grows with the learning rate (Goyal et al., arXiv 1706.02677).
        **kwargs: those of Optimizer. The name of a key is that in `param_idx2name`, or the key itself.

    Example:
        >>> tkv.optimizer.LARS(momentum=0.9).eta
        0.001
    """

    _program = "lars"
    _mapping = {
        **_COMMON,
        "momentum": "momentum",
        "eta": "eta",
        "eps": "eps",
        "momentum_correction": "momentum_correction",
    }
    _goes_by_name = True

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0,
        momentum_correction: bool = True,
        **kwargs: Unpack[HyperparametersBesideLazy],
    ) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        self.eta = eta
        self.eps = eps
        self.momentum_correction = momentum_correction
        super().__init__(lazy_update=lazy_update, **kwargs)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set factors of the weight decay, a dict from keys or names.

        As in MXNet, named parameters that do not end in ``_weight`` start at 0.
        """
        none = {name: 0.0 for name in self.idx2name.values() if not name.endswith("_weight")}
        super().set_wd_mult({**none, **ReportingDict(self, "wd_mult", args_wd_mult)})

    def _factors_by_name(self, index: Any) -> dict[str, float]:
        return {"adapt": 0.0 if str(self.idx2name.get(index, index)).endswith(_NO_NORM) else 1.0}


@builtin
class LBSGD(Optimizer):
    """MXNet's large batch SGD, in which each push is an update: SGD, or with `warmup_strategy` ``'lars'`` a rate by
    norms.

    ``rate = lr * clamp(norm(weight) / sqrt(norm(grad) ** 2 + wd * norm(weight) ** 2), 0.01, 100)``. As in MXNet, ``grad``
    is the pushed sum of all workers: `rescale_grad` and `clip_gradient` change it after its norm is taken. The warm-ups of
    MXNet lead from 1 to `batch_scale`; a schedule of `tkv.lr_scheduler` says the same of any optimizer.

    Args:
        momentum: factor of the last step.
        multi_precision: float16 and bfloat16 weights keep a float32 master.
        warmup_strategy: ``'lars'``, or ``'linear'``, ``'power2'`` and ``'sqrt'``, which change nothing of one batch.
        warmup_epochs: accepted, as are the other three: they are of the warm-up.
        batch_scale: 1: MXNet adds the gradients of so many batches up before an update.
        updates_per_epoch: accepted.
        begin_epoch: accepted.
        num_epochs: accepted.
        **kwargs: those of Optimizer.

    Raises:
        UnimplementedError: a `batch_scale` other than 1.

    Example:
        >>> tkv.optimizer.LBSGD(momentum=0.9, warmup_strategy='lars').batch_scale
        1
    """

    _program = "sgd"
    _mapping = {**_COMMON, "momentum": "momentum"}

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: int = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.begin_epoch = begin_epoch
        self.num_epochs = num_epochs
        super().__init__(multi_precision=multi_precision, **kwargs)
        self._program_name()

    def _program_name(self, states: list[NDArray] | None = None) -> str:
        if self.batch_scale != 1:
            raise UnimplementedError(
                f"LBSGD: batch_scale={self.batch_scale} adds the gradients of several batches up before an update. Push their "
                "sum, with a rescale_grad for all of them, and give LARS or SGD a warm-up of tkv.lr_scheduler"
            )
        if self.warmup_strategy == "lars":
            return "lbsgd"
        return "momentum" if self.momentum != 0 or states else "sgd"
