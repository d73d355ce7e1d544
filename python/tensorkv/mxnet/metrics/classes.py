"""Measures of predicted classes and of their probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as _np

from ...errors import InvalidArgumentError, UnimplementedError
from .base import EvalMetric, Host, alias, check_label_shapes, host, ratio, register


@alias("acc")
@register
class Accuracy(EvalMetric):
    """The part of predictions that are right.

    Args:
        axis: of the classes, where predictions have more axes than labels.

    Example:
        >>> metric = mx.metric.Accuracy()
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[0.9, 0.1], [0.8, 0.2]])])
        >>> metric.get()
        ('accuracy', 0.5)
    """

    def __init__(
        self,
        axis: int = 1,
        name: str = "accuracy",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Keep the axis."""
        super().__init__(name, output_names, label_names, axis=axis)
        self.axis: int = axis

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
        if pred.shape != label.shape:
            pred = pred.argmax(axis=self.axis)
        chosen, wanted = pred.astype(_np.int32).ravel(), label.astype(_np.int32).ravel()
        check_label_shapes(wanted, chosen)
        return (chosen == wanted).sum(), len(chosen)


@alias("top_k_accuracy", "top_k_acc")
@register
class TopKAccuracy(EvalMetric):
    """The part of labels that are among the `top_k` classes with the largest predictions.

    Args:
        top_k: 2 or more.

    Example:
        >>> metric = mx.metric.TopKAccuracy(top_k=2)
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[0.5, 0.4, 0.1], [0.5, 0.1, 0.4]])])
        >>> metric.get()
        ('top_k_accuracy_2', 0.5)
    """

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Keep the number."""
        if top_k <= 1:
            raise InvalidArgumentError(f"TopKAccuracy: top_k={top_k}; Accuracy is for 1")
        super().__init__(f"{name}_{top_k}", output_names, label_names, top_k=top_k)
        self.top_k: int = top_k

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
        if pred.ndim > 2:
            raise InvalidArgumentError(f"TopKAccuracy: predictions of shape {pred.shape}; one or two axes are needed")
        wanted = label.astype(_np.int32).ravel()
        check_label_shapes(wanted, pred)
        if pred.ndim == 1:
            order = pred.astype(_np.float32).argsort()
            return (order == wanted).sum(), len(pred)
        chosen = _np.argpartition(pred.astype(_np.float32), -min(self.top_k, pred.shape[1]))[:, -self.top_k :]
        return (chosen == wanted[:, None]).sum(), len(pred)


class _Binary(EvalMetric):
    """A measure of the confusion matrix of two classes."""

    sum_metric: float
    num_inst: float
    global_sum_metric: float
    global_num_inst: float
    _table: Host  # [label, prediction]
    _global_table: Host

    def __init__(
        self,
        name: str,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str = "macro",
    ) -> None:
        """Keep how updates are averaged."""
        if average not in ("macro", "micro"):
            raise InvalidArgumentError(f"{type(self).__name__}: average={average!r}; there are macro and micro")
        self.average: str = average
        super().__init__(name, output_names, label_names)

    def update(self, labels: Any, preds: Any) -> None:
        """Take labels, 0 or 1, and predictions of two classes: arrays, or lists of arrays."""
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        added = sum((self._count(host(one), host(other)) for one, other in zip(labels, preds, strict=True)), _zeros())
        self._table = self._table + added
        self._global_table = self._global_table + added
        if self.average == "macro":
            self.sum_metric += self._of_table(self._table)
            self.global_sum_metric += self._of_table(self._global_table)
            self.num_inst += 1
            self.global_num_inst += 1
            self._table, self._global_table = _zeros(), _zeros()
            return
        self.num_inst, self.global_num_inst = int(self._table.sum()), int(self._global_table.sum())
        self.sum_metric = self._of_table(self._table) * self.num_inst
        self.global_sum_metric = self._of_table(self._global_table) * self.global_num_inst

    def _count(self, label: Host, pred: Host) -> Host:
        wanted = label.astype(_np.int32).ravel()
        check_label_shapes(wanted, pred)
        if len(_np.unique(wanted)) > 2:
            raise InvalidArgumentError(f"{type(self).__name__}: labels of more than two classes")
        pairs = 2 * (wanted == 1) + (pred.argmax(axis=1) == 1)
        return _np.bincount(pairs, minlength=4).reshape(2, 2)

    def _of_table(self, table: Host) -> float:
        raise UnimplementedError(f"{type(self).__name__}: the class defines no _of_table")

    def reset(self) -> None:
        """Begin anew."""
        self._global_table = _zeros()
        super().reset()

    def reset_local(self) -> None:
        """Reset the result of `get`; that of `get_global` stays."""
        self._table = _zeros()
        super().reset_local()


def _zeros() -> Host:
    return _np.zeros((2, 2), _np.int64)


@register
class F1(_Binary):
    """The harmonic mean of precision and recall, of two classes.

    Args:
        average: ``'macro'``: the mean over updates; ``'micro'``: of all samples together.

    Example:
        >>> metric = mx.metric.F1()
        >>> metric.update([mx.nd.array([0, 1, 1])], [mx.nd.array([[0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])])
        >>> metric.get()
        ('f1', 0.5)
    """

    def __init__(
        self,
        name: str = "f1",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str = "macro",
    ) -> None:
        """Keep how updates are averaged."""
        super().__init__(name, output_names, label_names, average)

    def _of_table(self, table: Host) -> float:
        precision = ratio(table[1, 1], table[:, 1].sum())
        recall = ratio(table[1, 1], table[1].sum())
        return float(ratio(2 * precision * recall, precision + recall))


@register
class MCC(_Binary):
    """Matthews' correlation coefficient of two classes.

    Args:
        average: as of `F1`.

    Example:
        >>> metric = mx.metric.MCC()
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[0.3, 0.7], [0.2, 0.8]])])
        >>> metric.get()
        ('mcc', 0.0)
    """

    def __init__(
        self,
        name: str = "mcc",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        average: str = "macro",
    ) -> None:
        """Keep how updates are averaged."""
        super().__init__(name, output_names, label_names, average)

    def _of_table(self, table: Host) -> float:
        sums = [float(total) for total in (*table.sum(axis=0), *table.sum(axis=1)) if total]
        return float(table[1, 1] * table[0, 0] - table[0, 1] * table[1, 0]) / math.sqrt(math.prod(sums))


@register
class PCC(EvalMetric):
    """The correlation of classes, of any number of them: `MCC` of two.

    Example:
        >>> metric = mx.metric.PCC()
        >>> metric.update([mx.nd.array([0, 1, 2])], [mx.nd.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])])
        >>> metric.get()
        ('pcc', 1.0)
    """

    def __init__(
        self,
        name: str = "pcc",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        has_global_stats: bool = True,
    ) -> None:
        """Keep the names; every measure has global values."""
        super().__init__(name, output_names, label_names)

    def reset(self) -> None:
        """Begin anew."""
        self._global_table: Host = _np.zeros((2, 2))
        super().reset()

    def reset_local(self) -> None:
        """Reset the result of `get`; that of `get_global` stays."""
        self._table: Host = _np.zeros((2, 2))
        super().reset_local()

    def update(self, labels: Any, preds: Any) -> None:
        """Take labels and predictions: arrays, or lists of arrays."""
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        added = _np.zeros((2, 2))
        for label, pred in zip(map(host, labels), map(host, preds), strict=True):
            wanted = label.astype(_np.int32).ravel()
            chosen = (pred.argmax(axis=1) if pred.shape != label.shape else pred.astype(_np.int32)).ravel()
            check_label_shapes(wanted, chosen)
            if len(wanted) and min(wanted.min(), chosen.min()) < 0:
                raise InvalidArgumentError("PCC: a class below 0")
            size = int(max(wanted.max(initial=1), chosen.max(initial=1))) + 1
            table = _np.bincount(chosen * size + wanted, minlength=size * size).reshape(size, size)
            added = _summed(added, table)
        self._table, self._global_table = _summed(self._table, added), _summed(self._global_table, added)
        self._add(0.0, 1)

    def get(self) -> tuple[Any, Any]:
        """Return name and value."""
        return self.name, _correlation(self._table) if self.num_inst else math.nan

    def get_global(self) -> tuple[Any, Any]:
        """Return name and value since `reset`."""
        return self.name, _correlation(self._global_table) if self.global_num_inst else math.nan


def _summed(one: Host, other: Host) -> Host:
    """Return the sum of tables of different sizes."""
    size = max(len(one), len(other))
    result = _np.zeros((size, size))
    for table in (one, other):
        result[: len(table), : len(table)] += table
    return result


def _correlation(table: Host) -> float:
    """Return the correlation of the rows' and the columns' class."""
    total, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
    spread = (rows * (total - rows)).sum() * (columns * (total - columns)).sum()
    return float((table.diagonal() * total - rows * columns).sum() / spread**0.5) if spread else math.nan


@register
class Perplexity(EvalMetric):
    """The exponential of the mean cross entropy of predictions, which are probabilities.

    Args:
        ignore_label: a label whose samples do not count; None for none.
        axis: of the classes.

    Example:
        >>> metric = mx.metric.Perplexity(ignore_label=None)
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[0.5, 0.5], [0.5, 0.5]])])
        >>> round(metric.get()[1], 6)
        2.0
    """

    def __init__(
        self,
        ignore_label: int | None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Keep label and axis."""
        super().__init__(name, output_names, label_names, ignore_label=ignore_label, axis=axis)
        self.ignore_label: int | None = ignore_label
        self.axis: int = axis

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
        classes = _np.moveaxis(pred, self.axis, -1)
        probability = _picked(self, label, classes.reshape(-1, classes.shape[-1]))
        counted = probability[label.ravel() != self.ignore_label] if self.ignore_label is not None else probability
        return -_np.log(_np.maximum(1e-10, counted)).sum(), counted.size

    def _value(self, total: float, count: float) -> float:
        return math.exp(total / count) if count else math.nan


def _picked(metric: EvalMetric, label: Host, pred: Host) -> Host:
    """Return the prediction of each sample's label."""
    wanted = label.astype(_np.int64).ravel()
    check_label_shapes(wanted, pred)
    if pred.ndim != 2:
        raise InvalidArgumentError(f"{type(metric).__name__}: predictions of shape {pred.shape}; two axes are needed")
    outside = (wanted < 0) | (wanted >= pred.shape[1])
    ignored = getattr(metric, "ignore_label", None)
    if ignored is not None:
        outside &= wanted != ignored
    if outside.any():
        raise InvalidArgumentError(
            f"{type(metric).__name__}: label {int(wanted[outside][0])}; there are {pred.shape[1]} classes"
        )
    picked: Host = pred[_np.arange(len(wanted)), wanted.clip(0, pred.shape[1] - 1)]
    return picked


class _LogLikelihood(EvalMetric):
    """Minus the mean logarithm of the predicted probability of each label."""

    def __init__(self, eps: float, name: str, output_names: list[str] | None, label_names: list[str] | None) -> None:
        super().__init__(name, output_names, label_names, eps=eps)
        self.eps: float = eps

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
        return -_np.log(_picked(self, label, pred) + self.eps).sum(), len(pred)


@alias("ce")
@register
class CrossEntropy(_LogLikelihood):
    """The mean cross entropy of predictions, which are probabilities.

    Args:
        eps: added to each probability.

    Example:
        >>> metric = mx.metric.CrossEntropy(eps=0)
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[1, 0], [0, 1]])])
        >>> metric.get()[1] == 0
        True
    """

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "cross-entropy",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Keep `eps`."""
        super().__init__(eps, name, output_names, label_names)


@alias("nll_loss")
@register
class NegativeLogLikelihood(_LogLikelihood):
    """The mean negative logarithm of the likelihood; the same as `CrossEntropy`.

    Args:
        eps: added to each probability.

    Example:
        >>> metric = mx.metric.create('nll_loss')
        >>> metric.update([mx.nd.array([0])], [mx.nd.array([[1, 0]])])
        >>> metric.get()[0]
        'nll-loss'
    """

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "nll-loss",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Keep `eps`."""
        super().__init__(eps, name, output_names, label_names)
