"""Measures have MXNet's results, take the arguments of scripts, and refuse arguments that do not fit."""

import json
import math
import pathlib

import numpy as np
import pytest
import tensorkv as mx
from metric_cases import CASES, run

ORACLE = json.loads(pathlib.Path(__file__).with_name("metric_oracle.json").read_text())


@pytest.mark.parametrize("array", [mx.nd.array, np.asarray], ids=["NDArray", "NumPy"])
@pytest.mark.parametrize("case", CASES)
def test_measures_say_what_mxnets_say(case, array):
    found = run(mx.metric.create, array, case)
    for step, wanted in zip(found, ORACLE[case], strict=True):
        if case == "Pearson micro":  # MXNet's get_global is 0
            assert step[1] == step[0] and wanted[1][1] == 0
            step, wanted = step[:1], wanted[:1]  # noqa: PLW2901
        assert [name for name, _ in step] == [name for name, _ in wanted]
        assert [value for _, value in step] == pytest.approx([value for _, value in wanted], rel=1e-5, nan_ok=True)


def test_a_measure_begins_as_nan_and_begins_anew():
    metric = mx.metric.create("mse")
    assert math.isnan(metric.get()[1])
    metric.update([mx.nd.ones((2,))], [mx.nd.zeros((2,))])
    metric.reset_local()
    assert math.isnan(metric.get()[1]) and metric.get_global() == ("mse", 1.0)
    metric.reset()
    assert math.isnan(metric.get_global()[1])
    assert str(metric).startswith("EvalMetric: {'mse':")


def test_dicts_of_arrays():
    metric = mx.metric.create("mae", output_names=["out"], label_names=["y"])
    arrays = {"y": mx.nd.ones((2,)), "out": mx.nd.zeros((2,)), "more": mx.nd.ones((3,))}
    metric.update_dict(arrays, arrays)
    assert metric.get() == ("mae", 1.0)
    with pytest.raises(mx.errors.InvalidArgumentError, match="no label 'y'; there are out"):
        metric.update_dict({"out": mx.nd.ones((2,))}, arrays)
    both = mx.metric.CompositeEvalMetric(["mae", "mse"], output_names=["out"], label_names=["y"])
    both.update_dict(arrays, arrays)
    assert both.get() == (["mae", "mse"], [1.0, 1.0])
    assert [config["metric"] for config in both.get_config()["metrics"]] == ["MAE", "MSE"]


LABELS, PREDS = mx.nd.array([0, 1]), mx.nd.array([[0.5, 0.5], [0.25, 0.75]])
BAD = {
    "an unknown name": (lambda: mx.metric.create("acuracy"), mx.errors.KeyNotFoundError, "there are acc"),
    "arguments of one that is made": (
        lambda: mx.metric.create(mx.metric.MSE(), name="mine"),
        mx.errors.InvalidArgumentError,
        "metric mse: it has its arguments already",
    ),
    "arguments of one in a list": (
        lambda: mx.metric.create(["top_k_acc", mx.metric.MSE()], 3),
        mx.errors.InvalidArgumentError,
        "metric mse: it has its arguments already",
    ),
    "more labels": (
        lambda: mx.metric.Accuracy().update([LABELS, LABELS], [PREDS]),
        mx.errors.InvalidArgumentError,
        "labels: 2, and 1",
    ),
    "another length": (
        lambda: mx.metric.CrossEntropy().update([LABELS], [PREDS[:1]]),
        mx.errors.InvalidArgumentError,
        "labels: 2, and 1",
    ),
    "no class": (
        lambda: mx.metric.CrossEntropy().update([mx.nd.array([0, 2])], [PREDS]),
        mx.errors.InvalidArgumentError,
        "label 2; there are 2 classes",
    ),
    "shapes": (
        lambda: mx.metric.MSE().update([mx.nd.ones((2, 3))], [mx.nd.ones((2, 2))]),
        mx.errors.InvalidArgumentError,
        r"shape \(2, 3\)",
    ),
    "three classes": (
        lambda: mx.metric.F1().update([mx.nd.array([0, 1, 2])], [mx.nd.ones((3, 2))]),
        mx.errors.InvalidArgumentError,
        "more than two",
    ),
    "top 1": (lambda: mx.metric.TopKAccuracy(), mx.errors.InvalidArgumentError, "Accuracy is for 1"),
    "an average": (lambda: mx.metric.F1(average="mean"), mx.errors.InvalidArgumentError, "macro and micro"),
    "no measure": (
        lambda: mx.metric.EvalMetric("x").update([LABELS], [PREDS]),
        mx.errors.UnimplementedError,
        "defines neither",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_does_not_fit_is_said(what):
    call, error, text = BAD[what]
    with pytest.raises(error, match=text):
        call()


def of_right_shape(label, pred):
    return 1.0, (1 if pred.shape[0] == 3 else "none")


ALL_OR_NOTHING = {
    "acc": "acc",
    "top_k_acc": mx.metric.TopKAccuracy(2),
    "f1": "f1",
    "f1 micro": mx.metric.F1(average="micro"),
    "mcc": "mcc",
    "perplexity": mx.metric.Perplexity(None),
    "mae": "mae",
    "mse": "mse",
    "rmse": "rmse",
    "ce": "ce",
    "pearsonr": "pearsonr",
    "pearsonr micro": mx.metric.PearsonCorrelation(average="micro"),
    "pcc": "pcc",
    "loss": "loss",
    "custom": of_right_shape,
    "composite": ["loss", "acc"],
    "nested": [["loss", of_right_shape], "acc"],
}


def state_of(metric):
    parts = [state_of(one) for one in getattr(metric, "metrics", [])]
    return metric.get(), metric.get_global(), getattr(metric, "num_inst", 0), parts


@pytest.mark.parametrize("what", ALL_OR_NOTHING)
def test_an_update_that_fails_has_taken_nothing(what):
    metric = mx.metric.create(ALL_OR_NOTHING[what])
    is_of_classes = what not in ("mae", "mse", "rmse", "pearsonr", "pearsonr micro")
    pred = mx.nd.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]] if is_of_classes else [0.1, 0.8, 0.3])
    label = mx.nd.array([0, 1, 1])
    metric.update([label], [pred])
    before = state_of(metric)
    bad = "no losses" if what == "loss" else mx.nd.ones((2, 5, 7))
    with pytest.raises((mx.KVError, TypeError, ValueError)):
        metric.update([label, label], [1 - pred, bad])
    assert state_of(metric) == before
    if what in ("composite", "nested"):
        with pytest.raises((mx.KVError, TypeError)):
            metric.update_dict({"a": label}, {"a": bad})
        assert state_of(metric) == before


def test_a_metric_that_sets_its_sums_itself_has_them_as_global_ones():
    class Three(mx.metric.EvalMetric):
        def update(self, labels, preds):
            self.sum_metric += 3
            self.num_inst += 2

    metric = Three("three")
    metric.update(None, None)
    assert metric.get_global() == ("three", 1.5) and metric.get_global_name_value() == [("three", 1.5)]
