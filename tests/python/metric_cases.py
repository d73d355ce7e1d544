"""Measures that this package and MXNet 1.9.1 compute alike; read by metric_oracle.py too."""

import numpy as np

CASES = {
    "accuracy": ("acc", {}, "classes"),
    "accuracy of chosen classes": ("accuracy", {}, "chosen"),
    "accuracy of an axis": ("acc", {"axis": 0}, "columns"),
    "top 2": ("top_k_accuracy", {"top_k": 2}, "classes"),
    "top 4": ("top_k_acc", {"top_k": 4}, "classes"),
    "F1": ("f1", {}, "binary"),
    "F1 micro": ("f1", {"average": "micro"}, "binary"),
    "MCC": ("mcc", {}, "binary"),
    "MCC micro": ("mcc", {"average": "micro"}, "binary"),
    "perplexity": ("perplexity", {"ignore_label": None}, "classes"),
    "perplexity without a label": ("perplexity", {"ignore_label": 1}, "classes"),
    "MAE": ("mae", {}, "values"),
    "MAE of rows": ("mae", {}, "rows"),
    "MSE": ("mse", {}, "values"),
    "RMSE": ("rmse", {}, "values"),
    "cross entropy": ("ce", {}, "classes"),
    "cross entropy with eps": ("ce", {"eps": 0.1}, "classes"),
    "negative log likelihood": ("nll_loss", {}, "classes"),
    "Pearson": ("pearsonr", {}, "values"),
    "Pearson micro": ("pearsonr", {"average": "micro"}, "values"),
    "PCC": ("pcc", {}, "classes"),
    "loss": ("loss", {}, "values"),
    "two": (["mae", "mse"], {}, "values"),
    "a function": (lambda label, pred: float(abs(label - pred).max()), {"name": "worst"}, "values"),
    "a function of sum and count": (lambda label, pred: (float(pred.sum()), 7), {"name": "sum"}, "values"),
}


def arrays(kind, seed):
    """Return labels and predictions of one update."""
    rng = np.random.default_rng(seed)
    if kind in ("values", "rows"):
        shape = (6,) if kind == "values" else (6, 3)
        label = rng.normal(size=shape).astype("float32")
        return [label], [(label + rng.normal(size=shape)).astype("float32")]
    classes = 2 if kind == "binary" else 4
    pred = rng.random((10, classes)).astype("float32")
    pred /= pred.sum(axis=1, keepdims=True)
    label = rng.integers(0, classes, 10).astype("float32")
    if kind == "chosen":
        return [label], [rng.integers(0, classes, 10).astype("float32")]
    return [label], [pred.T.copy() if kind == "columns" else pred]


def run(create, array, case):
    """Return the results of a measure after each of three updates, with a reset_local before the last one."""
    metric, kwargs, kind = CASES[case]
    measured = create(metric, **kwargs)
    said = []
    for number in range(3):
        if number == 2:
            measured.reset_local()
        labels, preds = arrays(kind, number)
        measured.update([array(one) for one in labels], [array(one) for one in preds])
        said.append([pair for pairs in (measured.get_name_value(), measured.get_global_name_value()) for pair in pairs])
    return [[[str(name), float(value)] for name, value in step] for step in said]
