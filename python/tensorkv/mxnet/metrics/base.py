"""Classes from which measures derive, measures by name, several measures together, and measures of functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as _np

from ..._array import nd
from ...errors import InvalidArgumentError, KeyNotFoundError, UnimplementedError

M = TypeVar("M", bound="type[EvalMetric]")
_registry: dict[str, type[EvalMetric]] = {}
Host = _np.ndarray[Any, Any]


def host(array: Any) -> Host:
    """Return an array of any framework as one of NumPy."""
    return array.asnumpy() if isinstance(array, nd.NDArray) else _np.asarray(array)


def ratio(part: float, whole: float) -> float:
    """Return a quotient, or 0 if the whole is 0 or negative."""
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
        labels, preds = listed(labels), listed(preds)
    return labels, preds


def listed(arrays: Any) -> list[Any]:
    """Return a list of arrays if one array was given."""
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
        self._add_all(self._measure(host(one), host(other)) for one, other in zip(labels, preds, strict=True))

    def _measure(self, label: Host, pred: Host) -> tuple[Any, int]:
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
        """Return name and value since `reset`; of a class that keeps no ``global_num_inst``, as `get`."""
        if not self.global_num_inst:
            return self.get()
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
    return list(zip(listed(name), listed(value), strict=True))


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


class NamedMetric(EvalMetric):
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
            self._feval(host(label), host(pred)) for pred, label in zip(listed(preds), listed(labels), strict=False)
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
