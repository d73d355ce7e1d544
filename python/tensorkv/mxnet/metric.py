"""Measures of a model: ``mx.metric``, with MXNet's names and results. NumPy computes them in host memory."""

from .metrics.base import CompositeEvalMetric, CustomMetric, EvalMetric, alias, check_label_shapes, create, np, register
from .metrics.classes import F1, MCC, PCC, Accuracy, CrossEntropy, NegativeLogLikelihood, Perplexity, TopKAccuracy
from .metrics.numbers import MAE, MSE, RMSE, Caffe, Loss, PearsonCorrelation, Torch

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
