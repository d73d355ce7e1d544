"""Measures of a model: ``mx.metric``, with MXNet's names and results. NumPy computes them in host memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as _np

from .._array import nd
from ..errors import InvalidArgumentError, KeyNotFoundError, UnimplementedError

__all__ = [
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "Caffe",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "F1",
    "Loss",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "Torch",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "register",
]

M = TypeVar("M", bound="type[EvalMetric]")
_registry: dict[str, type[EvalMetric]] = {}
_Host = _np.ndarray[Any, Any]


def _host(array: Any) -> _Host:
    """Return an array of any framework as one of NumPy."""
    return array.asnumpy() if isinstance(array, nd.NDArray) else _np.asarray(array)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Raise if labels and predictions do not match: in their number, or with `shape` in their shapes.

    Args:
        wrap: return a list if one array was given.

    Example:
        >>> mx.metric.check_label_shapes([1, 2], [3])
        Traceback (most recent call last):
        tensorkv.errors.InvalidArgumentError: labels: 2, and 1 of predictions
    """
    found = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if found[0] != found[1]:
        raise InvalidArgumentError(f"labels: {found[0]}, and {found[1]} of predictions")
    if wrap:
        labels, preds = _listed(labels), _listed(preds)
    return labels, preds


def _listed(arrays: Any) -> list[Any]:
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]


class EvalMetric:
    """Base class. A subclass defines ``_measure(label, pred)``, which returns a sum and a count, or ``update(labels, preds)``.

    Args:
        name: the name of the measure in `get`.
        output_names, label_names: those that `update_dict` takes; None for all.

    Attributes:
        sum_metric, num_inst: sum and count since `reset_local`; ``global_sum_metric`` and ``global_num_inst`` since `reset`.

    Example:
        >>> class Largest(mx.metric.EvalMetric):
        ...     def _measure(self, label, pred):
        ...         return float(pred.max()), 1
        >>> metric = Largest('largest')
        >>> metric.update([mx.nd.zeros((2,))], [mx.nd.array([3, 5])])
        >>> metric.get()
        ('largest', 5.0)
    """

    sum_metric: float
    num_inst: float
    global_sum_metric: float
    global_num_inst: float

    def __init__(
        self, name: str, output_names: list[str] | None = None, label_names: list[str] | None = None, **kwargs: Any
    ) -> None:
        """Keep the names; `get_config` returns further arguments."""
        self.name: str = str(name)
        self.output_names: list[str] | None = output_names
        self.label_names: list[str] | None = label_names
        self._kwargs: dict[str, Any] = kwargs
        self.reset()

    def __str__(self) -> str:
        """Return the names and the values."""
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, and the name of the class as ``metric``."""
        own = {"metric": type(self).__name__, "name": self.name}
        return {**self._kwargs, **own, "output_names": self.output_names, "label_names": self.label_names}

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """As `update`, of dicts of arrays."""
        self.update(_chosen(label, self.label_names, "label"), _chosen(pred, self.output_names, "output"))

    def update(self, labels: Any, preds: Any) -> None:
        """Take labels and predictions: arrays, or lists of arrays of the same length.

        Raises:
            InvalidArgumentError: as many labels as predictions are needed, of shapes that fit; nothing has been taken.
        """
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        self._add_all(self._measure(_host(one), _host(other)) for one, other in zip(labels, preds, strict=True))

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
        """Return a sum and a count."""
        raise UnimplementedError(f"{type(self).__name__}: the class defines neither _measure(label, pred) nor update")

    def _add_all(self, found: Iterable[tuple[Any, Any]]) -> None:
        """Add sums and counts once all of them are computed, because each computation may raise."""
        for total, count in [(float(total), 0 + count) for total, count in found]:
            self._add(total, count)

    def _add(self, total: float, count: float) -> None:
        self.sum_metric += total
        self.global_sum_metric += total
        self.num_inst += count
        self.global_num_inst += count

    def _state(self) -> Any:
        """Return a copy of the attributes; an update only replaces their values."""
        return dict(vars(self))

    def _set_state(self, state: Any) -> None:
        vars(self).clear()
        vars(self).update(state)

    def reset(self) -> None:
        """Begin anew."""
        self.global_num_inst, self.global_sum_metric = 0, 0.0
        self.reset_local()

    def reset_local(self) -> None:
        """Reset the result of `get`; that of `get_global` stays."""
        self.num_inst, self.sum_metric = 0, 0.0

    def get(self) -> tuple[Any, Any]:
        """Return name and value; the value is nan before the first update."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """Return name and value since `reset`."""
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def _value(self, total: float, count: float) -> float:
        return total / count if count else math.nan

    def get_name_value(self) -> list[tuple[str, float]]:
        """Return pairs of name and value."""
        return _pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """Return pairs of name and value since `reset`."""
        return _pairs(*self.get_global())


def _pairs(name: Any, value: Any) -> list[tuple[str, float]]:
    return list(zip(_listed(name), _listed(value), strict=True))


def _chosen(arrays: Mapping[str, Any], names: list[str] | None, kind: str) -> list[Any]:
    missing = [name for name in names or () if name not in arrays]
    if missing:
        raise InvalidArgumentError(f"update_dict: no {kind} {missing[0]!r}; there are {', '.join(map(str, arrays))}")
    return [arrays[name] for name in names] if names is not None else list(arrays.values())


def register(klass: M) -> M:
    """Make `create` find the class by its name in lower case; return it. A decorator.

    Example:
        >>> @mx.metric.register
        ... class Mine(mx.metric.MSE):
        ...     pass
        >>> mx.metric.create('mine').name
        'mse'
    """
    _registry[klass.__name__.lower()] = klass
    return klass


def alias(*names: str) -> Callable[[M], M]:
    """Return a decorator that makes `create` find a class by further names.

    Example:
        >>> @mx.metric.alias('error')
        ... class Error(mx.metric.MAE):
        ...     pass
        >>> type(mx.metric.create('error')).__name__
        'Error'
    """

    def decorate(klass: M) -> M:
        for name in names:
            _registry[name.lower()] = klass
        return klass

    return decorate


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """Return a measure by name, in any case; of a function, a CustomMetric; of a list, all of them together.

    Raises:
        KeyNotFoundError: no such measure, with a list of those there are.
        InvalidArgumentError: arguments beside a measure that has them already.

    Example:
        >>> mx.metric.create(['acc', 'ce']).get()
        (['accuracy', 'cross-entropy'], [nan, nan])
    """
    if isinstance(metric, EvalMetric):
        if args or kwargs:
            raise InvalidArgumentError(
                f"metric {metric.name}: it has its arguments already; further ones come too late"
            )
        return metric
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(one, *args, **kwargs) for one in metric])
    klass = _registry.get(str(metric).lower())
    if klass is None:
        raise KeyNotFoundError(f"metric {metric!r}: there are {', '.join(sorted(_registry))}")
    return klass(*args, **kwargs)


class _Named(EvalMetric):
    """A measure with a name of its own."""

    _default_name = ""

    def __init__(
        self, name: str | None = None, output_names: list[str] | None = None, label_names: list[str] | None = None
    ) -> None:
        """Keep the names."""
        super().__init__(name or self._default_name, output_names, label_names)


@alias("composite")
@register
class CompositeEvalMetric(EvalMetric):
    """Several measures of the same labels and predictions; `get` gives lists.

    Example:
        >>> both = mx.metric.CompositeEvalMetric(['mae', 'mse'])
        >>> both.update(mx.nd.array([1, 2]), mx.nd.array([1, 4]))
        >>> both.get()
        (['mae', 'mse'], [1.0, 2.0])
    """

    def __init__(
        self,
        metrics: list[Any] | None = None,
        name: str = "composite",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Make the measures, each from an argument of `create`."""
        self.metrics: list[EvalMetric] = [create(one) for one in metrics or ()]
        super().__init__(name, output_names, label_names)

    def add(self, metric: Any) -> None:
        """Add a measure, given as an argument of `create`."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """Return one of the measures."""
        if not -len(self.metrics) <= index < len(self.metrics):
            raise InvalidArgumentError(f"get_metric: {index}; there are {len(self.metrics)}")
        return self.metrics[index]

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """As `update`, of dicts of arrays."""
        if self.label_names is not None:
            label = {name: array for name, array in label.items() if name in self.label_names}
        if self.output_names is not None:
            pred = {name: array for name, array in pred.items() if name in self.output_names}
        self._have_all(lambda metric: metric.update_dict(label, pred))

    def update(self, labels: Any, preds: Any) -> None:
        """Have each measure take labels and predictions; if one raises, none has."""
        self._have_all(lambda metric: metric.update(labels, preds))

    def _have_all(self, update: Callable[[EvalMetric], None]) -> None:
        before = self._state()
        try:
            for metric in self.metrics:
                update(metric)
        except BaseException:
            self._set_state(before)
            raise

    def _state(self) -> Any:
        return [metric._state() for metric in self.metrics]

    def _set_state(self, state: Any) -> None:
        for metric, one in zip(self.metrics, state, strict=True):
            metric._set_state(one)

    def reset(self) -> None:
        """Begin anew."""
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        """Reset the result of `get`; that of `get_global` stays."""
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[Any, Any]:
        """Return lists of names and values."""
        found = [pair for metric in self.metrics for pair in metric.get_name_value()]
        return [name for name, _ in found], [value for _, value in found]

    def get_global(self) -> tuple[Any, Any]:
        """Return lists of names and values since `reset`."""
        found = [pair for metric in self.metrics for pair in metric.get_global_name_value()]
        return [name for name, _ in found], [value for _, value in found]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, with those of each measure."""
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


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

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
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

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
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
    _table: _Host  # [label, prediction]
    _global_table: _Host

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
        added = sum((self._count(_host(one), _host(other)) for one, other in zip(labels, preds, strict=True)), _zeros())
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

    def _count(self, label: _Host, pred: _Host) -> _Host:
        wanted = label.astype(_np.int32).ravel()
        check_label_shapes(wanted, pred)
        if len(_np.unique(wanted)) > 2:
            raise InvalidArgumentError(f"{type(self).__name__}: labels of more than two classes")
        pairs = 2 * (wanted == 1) + (pred.argmax(axis=1) == 1)
        return _np.bincount(pairs, minlength=4).reshape(2, 2)

    def _of_table(self, table: _Host) -> float:
        raise UnimplementedError(f"{type(self).__name__}: the class defines no _of_table")

    def reset(self) -> None:
        """Begin anew."""
        self._global_table = _zeros()
        super().reset()

    def reset_local(self) -> None:
        """Reset the result of `get`; that of `get_global` stays."""
        self._table = _zeros()
        super().reset_local()


def _zeros() -> _Host:
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

    def _of_table(self, table: _Host) -> float:
        precision = _ratio(table[1, 1], table[:, 1].sum())
        recall = _ratio(table[1, 1], table[1].sum())
        return float(_ratio(2 * precision * recall, precision + recall))


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

    def _of_table(self, table: _Host) -> float:
        sums = [float(total) for total in (*table.sum(axis=0), *table.sum(axis=1)) if total]
        return float(table[1, 1] * table[0, 0] - table[0, 1] * table[1, 0]) / math.sqrt(math.prod(sums))


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

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
        classes = _np.moveaxis(pred, self.axis, -1)
        probability = _picked(self, label, classes.reshape(-1, classes.shape[-1]))
        counted = probability[label.ravel() != self.ignore_label] if self.ignore_label is not None else probability
        return -_np.log(_np.maximum(1e-10, counted)).sum(), counted.size

    def _value(self, total: float, count: float) -> float:
        return math.exp(total / count) if count else math.nan


def _picked(metric: EvalMetric, label: _Host, pred: _Host) -> _Host:
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
    picked: _Host = pred[_np.arange(len(wanted)), wanted.clip(0, pred.shape[1] - 1)]
    return picked


class _Difference(_Named):
    """A mean over all elements of each pair of arrays, averaged over pairs."""

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
        wanted, found = (array.reshape(len(array), 1) if array.ndim == 1 else array for array in (label, pred))
        try:
            return self._of(wanted - found), 1
        except ValueError:
            raise InvalidArgumentError(
                f"{type(self).__name__}: labels of shape {label.shape}, predictions of {pred.shape}"
            ) from None

    def _of(self, difference: _Host) -> Any:
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

    def _of(self, difference: _Host) -> Any:
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

    def _of(self, difference: _Host) -> Any:
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

    def _of(self, difference: _Host) -> Any:
        return _np.sqrt((difference**2.0).mean())


class _LogLikelihood(EvalMetric):
    """Minus the mean logarithm of the predicted probability of each label."""

    def __init__(self, eps: float, name: str, output_names: list[str] | None, label_names: list[str] | None) -> None:
        super().__init__(name, output_names, label_names, eps=eps)
        self.eps: float = eps

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
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
        self._moments: _Host = _np.zeros(
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
            found = _merged(*found, *self._flat(_host(label), _host(pred)))
        self._count, self._moments = found
        self._add(0.0, len(labels))

    def _measure(self, label: _Host, pred: _Host) -> tuple[Any, int]:
        wanted, found = self._flat(label, pred)
        return _np.corrcoef(found, wanted)[0, 1], 1

    @staticmethod
    def _flat(label: _Host, pred: _Host) -> tuple[_Host, _Host]:
        check_label_shapes(label, pred, shape=True)
        return label.astype(_np.float64).ravel(), pred.astype(_np.float64).ravel()

    def _value(self, total: float, count: float) -> float:
        if self.average == "macro" or not count:
            return super()._value(total, count)
        squares = self._moments[2] * self._moments[3]
        return float(self._moments[4] / math.sqrt(squares)) if squares else math.nan


def _merged(known: int, moments: _Host, label: _Host, pred: _Host) -> tuple[int, _Host]:
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
        self._global_table: _Host = _np.zeros((2, 2))
        super().reset()

    def reset_local(self) -> None:
        """Reset the result of `get`; that of `get_global` stays."""
        self._table: _Host = _np.zeros((2, 2))
        super().reset_local()

    def update(self, labels: Any, preds: Any) -> None:
        """Take labels and predictions: arrays, or lists of arrays."""
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        added = _np.zeros((2, 2))
        for label, pred in zip(map(_host, labels), map(_host, preds), strict=True):
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


def _summed(one: _Host, other: _Host) -> _Host:
    """Return the sum of tables of different sizes."""
    size = max(len(one), len(other))
    result = _np.zeros((size, size))
    for table in (one, other):
        result[: len(table), : len(table)] += table
    return result


def _correlation(table: _Host) -> float:
    """Return the correlation of the rows' and the columns' class."""
    total, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
    spread = (rows * (total - rows)).sum() * (columns * (total - columns)).sum()
    return float((table.diagonal() * total - rows * columns).sum() / spread**0.5) if spread else math.nan


@register
class Loss(_Named):
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
        self._add_all((pred.sum(), pred.size) for pred in map(_host, _listed(preds)))


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


@register
class CustomMetric(EvalMetric):
    """A metric from a function of labels and predictions (NumPy arrays) that returns a number, or a sum and a count.

    Args:
        feval: the function.
        name: by default that of the function.
        allow_extra_outputs: take more predictions than labels; those without label do not count.

    Example:
        >>> metric = mx.metric.CustomMetric(lambda label, pred: abs(label - pred).max(), name='worst')
        >>> metric.update([mx.nd.array([1, 2])], [mx.nd.array([1, 5])])
        >>> metric.get()
        ('worst', 3.0)
    """

    def __init__(
        self,
        feval: Callable[[Any, Any], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        """Keep the function."""
        own = getattr(feval, "__name__", type(feval).__name__)
        own = f"custom({own})" if "<" in own else own
        super().__init__(name or own, output_names, label_names)
        self._feval, self._allow_extra_outputs = feval, allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        """Call the function for each pair of arrays."""
        if not self._allow_extra_outputs:
            check_label_shapes(labels, preds)
        found = [
            self._feval(_host(label), _host(pred)) for pred, label in zip(_listed(preds), _listed(labels), strict=False)
        ]
        self._add_all(one if isinstance(one, tuple) else (one, 1) for one in found)

    def get_config(self) -> dict[str, Any]:
        """Refuse: a function is no data."""
        raise UnimplementedError("get_config: a CustomMetric is a function")


def np(
    numpy_feval: Callable[[Any, Any], Any], name: str | None = None, allow_extra_outputs: bool = False
) -> CustomMetric:
    """Return a CustomMetric of a function.

    Example:
        >>> def worst(label, pred):
        ...     return abs(label - pred).max()
        >>> mx.metric.np(worst).name
        'worst'
    """

    @functools.wraps(numpy_feval)
    def feval(label: Any, pred: Any) -> Any:
        return numpy_feval(label, pred)

    return CustomMetric(feval, name, allow_extra_outputs)
