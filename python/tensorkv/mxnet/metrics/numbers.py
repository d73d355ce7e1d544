"""Measures of predicted numbers, and of losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as _np

from ...errors import InvalidArgumentError, UnimplementedError
from .base import EvalMetric, Host, NamedMetric, alias, check_label_shapes, host, listed, register


class _Difference(NamedMetric):
    """A mean over all elements of each pair of arrays, averaged over pairs."""

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
        wanted, found = (array.reshape(len(array), 1) if array.ndim == 1 else array for array in (label, pred))
        try:
            return self._of(wanted - found), 1
        except ValueError:
            raise InvalidArgumentError(
                f"{type(self).__name__}: labels of shape {label.shape}, predictions of {pred.shape}"
            ) from None

    def _of(self, difference: Host) -> Any:
        raise UnimplementedError(f"{type(self).__name__}: the class defines no _of")


@register
class MAE(_Difference):
    """The mean absolute difference.

    Example:
        >>> metric = mx.metric.MAE()
        >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([1, 4])])
        >>> metric.get()
        ('mae', 1.0)
    """

    _default_name = "mae"

    def _of(self, difference: Host) -> Any:
        return abs(difference).mean()


@register
class MSE(_Difference):
    """The mean squared difference.

    Example:
        >>> metric = mx.metric.MSE()
        >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([1, 4])])
        >>> metric.get()
        ('mse', 2.0)
    """

    _default_name = "mse"

    def _of(self, difference: Host) -> Any:
        return (difference**2.0).mean()


@register
class RMSE(_Difference):
    """The root of the mean squared difference.

    Example:
        >>> metric = mx.metric.RMSE()
        >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([3, 4])])
        >>> metric.get()
        ('rmse', 2.0)
    """

    _default_name = "rmse"

    def _of(self, difference: Host) -> Any:
        return _np.sqrt((difference**2.0).mean())


@alias("pearsonr")
@register
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions of the same shape.

    Args:
        average: ``'macro'``: the mean over arrays; ``'micro'``: of all elements together, since `reset`.

    Example:
        >>> metric = mx.metric.PearsonCorrelation()
        >>> metric.update([mx.nd.array([1, 2, 3])], [mx.nd.array([2, 4, 6])])
        >>> round(metric.get()[1], 6)
        1.0
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str = "macro",
    ) -> None:
        """Keep how arrays are averaged."""
        if average not in ("macro", "micro"):
            raise InvalidArgumentError(f"PearsonCorrelation: average={average!r}; there are macro and micro")
        self.average: str = average
        super().__init__(name, output_names, label_names)

    def reset(self) -> None:
        """Begin anew."""
        self._moments: Host = _np.zeros(
            5
        )  # means of labels and predictions; sums of their squares and of their product
        self._count = 0
        super().reset()

    def update(self, labels: Any, preds: Any) -> None:
        """Take labels and predictions of the same shape: arrays, or lists of arrays."""
        if self.average == "macro":
            super().update(labels, preds)
            return
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        found = self._count, self._moments
        for label, pred in zip(labels, preds, strict=True):
            found = _merged(*found, *self._flat(host(label), host(pred)))
        self._count, self._moments = found
        self._add(0.0, len(labels))

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
        wanted, found = self._flat(label, pred)
        return _np.corrcoef(found, wanted)[0, 1], 1

    @staticmethod
    def _flat(label: Host, pred: Host) -> tuple[Host, Host]:
        check_label_shapes(label, pred, shape=True)
        return label.astype(_np.float64).ravel(), pred.astype(_np.float64).ravel()

    def _value(self, total: float, count: float) -> float:
        if self.average == "macro" or not count:
            return super()._value(total, count)
        squares = self._moments[2] * self._moments[3]
        return float(self._moments[4] / math.sqrt(squares)) if squares else math.nan


def _merged(known: int, moments: Host, label: Host, pred: Host) -> tuple[int, Host]:
    """Return number and moments of the elements known and of further ones together."""
    count = len(label)
    whole = known + count
    means = _np.array([label.mean(), pred.mean()])
    from_mean = _np.array([label, pred]) - means[:, None]
    shift = means - moments[:2]
    products = [(0, 0), (1, 1), (0, 1)]
    within = [(from_mean[i] * from_mean[j]).sum() + shift[i] * shift[j] * known * count / whole for i, j in products]
    return whole, _np.concatenate([moments[:2] + shift * count / whole, moments[2:] + within])


@register
class Loss(NamedMetric):
    """The mean of all elements of the predictions, which are losses; labels do not count.

    Example:
        >>> metric = mx.metric.Loss()
        >>> metric.update(None, mx.nd.array([1, 3]))
        >>> metric.get()
        ('loss', 2.0)
    """

    _default_name = "loss"

    def update(self, labels: Any, preds: Any) -> None:
        """Take losses: an array, or a list of arrays."""
        self._add_all((pred.sum(), pred.size) for pred in map(host, listed(preds)))


@register
class Torch(Loss):
    """`Loss` by another name.

    Example:
        >>> mx.metric.create('torch').name
        'torch'
    """

    _default_name = "torch"


@register
class Caffe(Loss):
    """`Loss` by another name.

    Example:
        >>> mx.metric.create('caffe').name
        'caffe'
    """

    _default_name = "caffe"
