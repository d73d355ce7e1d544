"""The optimizers that run in the store without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Optimizer, builtin

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._array.ndarray import NDArray
    from .._types import (
        Hyperparameters,
        HyperparametersBesideLazy,
        OtherHyperparameters,
        OtherHyperparametersBesideLazy,
    )

__all__ = [
    "DCASGD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "FTML",
    "Ftrl",
    "NAG",
    "Nadam",
    "RMSProp",
    "SGD",
    "SGLD",
    "Signum",
    "Test",
    "ccSGD",
]

_COMMON = {
    "learning_rate": "lr",
    "wd": "wd",
    "rescale_grad": "rescale_grad",
    "clip_gradient": "clip_gradient",
}


@builtin
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum where `momentum` is not 0.

    ``weight -= lr * (clip(rescale_grad * grad) + wd * weight)``; with momentum
    ``mom = momentum * mom - lr * (...); weight += mom``.

    Args:
        momentum: factor of the last step.
        lazy_update: see Optimizer.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=1e-4).lr
        0.1
    """

    _program = "sgd"
    _mapping = {**_COMMON, "momentum": "momentum"}

    def __init__(
        self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Unpack[HyperparametersBesideLazy]
    ) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        super().__init__(lazy_update=lazy_update, **kwargs)

    def _program_name(self, states: list[NDArray] | None = None) -> str:
        return "momentum" if self.momentum != 0 or states else "sgd"


@builtin
class Adam(Optimizer):
    """Adam (Kingma and Ba, arXiv 1412.6980) in MXNet's form: the bias correction is in the learning rate.

    Args:
        learning_rate: default 0.001, or the `base_lr` of `lr_scheduler`.
        beta1: decay of the mean.
        beta2: decay of the variance.
        epsilon: added to the root of the variance.
        lazy_update: see Optimizer.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.Adam().lr
        0.001
    """

    _program = "adam"
    _learning_rate = 0.001
    _mapping = {**_COMMON, "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Unpack[OtherHyperparametersBesideLazy],
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        super().__init__(learning_rate=learning_rate, lazy_update=lazy_update, **kwargs)


@builtin
class Test(Optimizer):
    """``weight += rescale_grad * grad``, for tests.

    Example:
        >>> tkv.optimizer.create('test', rescale_grad=2).rescale_grad
        2
    """

    __test__ = False  # not a test class for pytest
    _program = "test"
    _mapping = {"rescale_grad": "rescale_grad"}


@builtin
class ccSGD(SGD):  # noqa: N801  # MXNet's name
    """Another name of SGD.

    Example:
        >>> tkv.optimizer.create('ccsgd', learning_rate=0.5).lr
        0.5
    """


@builtin
class NAG(Optimizer):
    """Nesterov's accelerated gradient; SGD where `momentum` is 0.

    ``mom = momentum * mom - lr * (clip(rescale_grad * grad) + wd * weight)``;
    ``weight += momentum * mom - lr * (...)``.

    Args:
        momentum: factor of the last step.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.NAG(momentum=0.9).momentum
        0.9
    """

    _program = "nag"
    _mapping = {**_COMMON, "momentum": "momentum"}

    def __init__(self, momentum: float = 0.0, **kwargs: Unpack[Hyperparameters]) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        super().__init__(**kwargs)

    def _program_name(self, states: list[NDArray] | None = None) -> str:
        return "nag" if self.momentum != 0 or states else "sgd"


@builtin
class Signum(Optimizer):
    """The sign of the momentum, or of the gradient where `momentum` is 0 (Bernstein et al., arXiv 1802.04434).

    ``mom = momentum * mom - (1 - momentum) * (clip(rescale_grad * grad) + wd * weight)``;
    ``weight = (1 - lr * wd_lh) * weight + lr * sign(mom)``. Without momentum
    ``weight = (1 - lr * (wd + wd_lh)) * weight - lr * sign(grad)``. The sign of a NaN is 0.

    Args:
        learning_rate: default 0.01, or the `base_lr` of `lr_scheduler`.
        momentum: factor of the last direction.
        wd_lh: weight decay beside the gradient (Loshchilov and Hutter, arXiv 1711.05101).
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.Signum().momentum
        0.9
    """

    _program = "signum"
    _mapping = {**_COMMON, "momentum": "momentum", "wd_lh": "wd_lh"}

    def __init__(
        self,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        wd_lh: float = 0.0,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        self.wd_lh = wd_lh
        super().__init__(learning_rate=learning_rate, **kwargs)

    def _program_name(self, states: list[NDArray] | None = None) -> str:
        return "signum" if self.momentum != 0 or states else "signsgd"


@builtin
class AdamW(Optimizer):
    """Adam whose weight decay stands beside the gradient (Loshchilov and Hutter, arXiv 1711.05101), as in PyTorch.

    ``weight = (1 - lr * wd) * weight - lr * m / (sqrt(v) + epsilon)`` with `m` and `v` corrected for their zero start.

    Args:
        learning_rate: default 0.001, or the `base_lr` of `lr_scheduler`.
        beta1: decay of the mean.
        beta2: decay of the variance.
        epsilon: added to the root of the corrected variance.
        wd: weight decay, 0.01 unless it is given.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.AdamW().wd
        0.01
    """

    _program = "adamw"
    _learning_rate = 0.001
    _mapping = {**_COMMON, "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        super().__init__(learning_rate=learning_rate, **{"wd": 0.01, **kwargs})  # type: ignore[arg-type]


@builtin
class Adamax(Optimizer):
    """Adam with the largest gradient in the place of the variance (Kingma and Ba, arXiv 1412.6980, section 7).

    An element whose gradients so far were all 0 stays as it is; MXNet makes it NaN.

    Args:
        learning_rate: default 0.002, or the `base_lr` of `lr_scheduler`.
        beta1: decay of the mean.
        beta2: decay of the largest gradient.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.Adamax().lr
        0.002
    """

    _program = "adamax"
    _learning_rate = 0.002
    _mapping = {**_COMMON, "beta1": "beta1", "beta2": "beta2"}

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        super().__init__(learning_rate=learning_rate, **kwargs)


@builtin
class Nadam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, "Incorporating Nesterov momentum into Adam", 2016).

    The product of the momenta is kept for each key; MXNet 1.9 keeps one for all keys, so that each key advances the others'.

    Args:
        learning_rate: default 0.001, or the `base_lr` of `lr_scheduler`.
        beta1: decay of the mean.
        beta2: decay of the variance.
        epsilon: added to the root of the corrected variance.
        schedule_decay: how fast the momentum warms up.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.Nadam().schedule_decay
        0.004
    """

    _program = "nadam"
    _learning_rate = 0.001
    _mapping = {
        **_COMMON,
        "beta1": "beta1",
        "beta2": "beta2",
        "epsilon": "epsilon",
        "schedule_decay": "schedule_decay",
    }

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        super().__init__(learning_rate=learning_rate, **kwargs)


@builtin
class AdaGrad(Optimizer):
    """AdaGrad (Duchi, Hazan and Singer, JMLR 12, 2011).

    ``history += g ** 2; weight -= lr * (g / sqrt(history + eps) + wd * weight)`` with
    ``g = clip(rescale_grad * grad)``.

    Args:
        eps: added to the sum of squares.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.AdaGrad().float_stable_eps
        1e-07
    """

    _program = "adagrad"
    _mapping = {**_COMMON, "epsilon": "float_stable_eps"}

    def __init__(self, eps: float = 1e-7, **kwargs: Unpack[Hyperparameters]) -> None:
        """Keep the hyperparameters."""
        self.float_stable_eps = eps
        super().__init__(**kwargs)


@builtin
class AdaDelta(Optimizer):
    """AdaDelta (Zeiler, arXiv 1212.5701).

    ``weight -= lr * (delta + wd * weight)``; MXNet 1.9 takes a learning rate and ignores it.

    Args:
        rho: decay of both means.
        epsilon: added to both means.
        learning_rate: factor of the step, default 1, or the `base_lr` of `lr_scheduler`.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.AdaDelta().lr
        1.0
    """

    _program = "adadelta"
    _learning_rate = 1.0
    _mapping = {**_COMMON, "rho": "rho", "epsilon": "epsilon"}

    def __init__(
        self,
        rho: float = 0.9,
        epsilon: float = 1e-5,
        learning_rate: float | None = None,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.rho = rho
        self.epsilon = epsilon
        super().__init__(learning_rate=learning_rate, **kwargs)


@builtin
class RMSProp(Optimizer):
    """RMSProp (Tieleman and Hinton, 2012), or its centered form with momentum (Graves, arXiv 1308.0850).

    ``n = gamma1 * n + (1 - gamma1) * g ** 2; weight -= lr * g / sqrt(n + epsilon)``.

    The centered form is ``m = gamma1 * m + (1 - gamma1) * g``,
    ``delta = gamma2 * delta - lr * g / sqrt(n - m ** 2 + epsilon); weight += delta``.

    Args:
        learning_rate: default 0.001, or the `base_lr` of `lr_scheduler`.
        gamma1: decay of the means.
        gamma2: momentum of the centered form.
        epsilon: added below the root.
        centered: the centered form; decided when a store begins to run the optimizer.
        clip_weights: bound of each element of the weight; None, 0 and negative ones do not clip.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.RMSProp(centered=True).gamma2
        0.9
    """

    _program = "rmsprop"
    _learning_rate = 0.001
    _mapping = {
        **_COMMON,
        "gamma1": "gamma1",
        "gamma2": "gamma2",
        "epsilon": "epsilon",
        "clip_weights": "clip_weights",
        "centered": "centered",
    }

    def __init__(
        self,
        learning_rate: float | None = None,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.epsilon = epsilon
        self.centered = centered
        self.clip_weights = clip_weights
        super().__init__(learning_rate=learning_rate, **kwargs)

    def _program_name(self, states: list[NDArray] | None = None) -> str:
        return "rmsprop_centered" if self.centered else "rmsprop"

    def _params(self) -> dict[str, float]:
        params = super()._params()
        unused = ("centered",) if self.centered else ("centered", "gamma2")
        return {name: value for name, value in params.items() if name not in unused}


@builtin
class Ftrl(Optimizer):
    """FTRL-proximal (McMahan et al., "Ad click prediction", KDD 2013).

    Args:
        lamda1: factor of the L1 norm, which sets weights to 0.
        learning_rate: default 0.1, or the `base_lr` of `lr_scheduler`.
        beta: smoothing of the learning rate of each element.
        **kwargs: those of Optimizer; `wd` is the factor of the L2 norm.

    Example:
        >>> tkv.optimizer.Ftrl().lamda1
        0.01
    """

    _program = "ftrl"
    _learning_rate = 0.1
    _mapping = {**_COMMON, "lamda1": "lamda1", "beta": "beta"}

    def __init__(
        self,
        lamda1: float = 0.01,
        learning_rate: float | None = None,
        beta: float = 1.0,
        **kwargs: Unpack[OtherHyperparameters],
    ) -> None:
        """Keep the hyperparameters."""
        self.lamda1 = lamda1
        self.beta = beta
        super().__init__(learning_rate=learning_rate, **kwargs)


@builtin
class FTML(Optimizer):
    """Follow the moving leader (Zheng and Kwok, ICML 2017).

    Args:
        beta1: decay of the gradients.
        beta2: decay of their squares.
        epsilon: added to the root of the corrected squares.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.FTML().beta1
        0.6
    """

    _program = "ftml"
    _mapping = {**_COMMON, "beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}

    def __init__(
        self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Unpack[Hyperparameters]
    ) -> None:
        """Keep the hyperparameters."""
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        super().__init__(**kwargs)


@builtin
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics (Welling and Teh, ICML 2011): half a step of SGD, and noise.

    ``weight -= lr / 2 * (clip(rescale_grad * grad) + wd * weight); weight += sqrt(lr) * noise``. The noise is normal,
    and depends only on the seed, the key, the number of the key's update and the position of the element. A repeated
    run therefore has the same noise, on any number of servers and in one process.

    Args:
        seed: a number; another one makes other noise.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.SGLD(seed=7).seed
        7
    """

    _program = "sgld"
    _mapping = {**_COMMON, "seed": "seed"}

    def __init__(self, seed: int = 0, **kwargs: Unpack[Hyperparameters]) -> None:
        """Keep the hyperparameters."""
        self.seed = seed
        super().__init__(**kwargs)


@builtin
class DCASGD(Optimizer):
    """SGD with a compensation of delay (Zheng et al., arXiv 1609.08326).

    ``g = clip(rescale_grad * grad); mom = momentum * mom - lr * (g + wd * weight + lamda * g ** 2 * (weight - previous))``;
    ``previous = weight; weight += mom``. As in MXNet `previous` is the weight before the last update, of whichever worker.

    Args:
        momentum: factor of the last step; MXNet 1.9 fails with one.
        lamda: factor of the compensation.
        **kwargs: those of Optimizer.

    Example:
        >>> tkv.optimizer.DCASGD().lamda
        0.04
    """

    _program = "dcasgd"
    _mapping = {**_COMMON, "momentum": "momentum", "lamda": "lamda"}

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Unpack[Hyperparameters]) -> None:
        """Keep the hyperparameters."""
        self.momentum = momentum
        self.lamda = lamda
        super().__init__(**kwargs)
