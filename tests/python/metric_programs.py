"""Random uses of `mx.metric`, and what MXNet 1.9.1's measures have said, in metric_programs.json.

PYTHON-WITH-MXNET tests/python/metric_programs.py [COUNT [FILE]]

For more uses than the default write another FILE, and run test_metric_programs.py with TKV_TEST_METRIC_PROGRAMS=FILE.
"""

import json
import pathlib
import random
import sys

import numpy as np

OF_CLASSES = (
    ("acc", {}),
    ("top_k_accuracy", {"top_k": 2}),
    ("top_k_accuracy", {"top_k": 3}),
    ("perplexity", {"ignore_label": None}),
    ("perplexity", {"ignore_label": 1}),
    ("ce", {}),
    ("ce", {"eps": 0.1}),
    ("nll_loss", {}),
    ("pcc", {}),
)
OF_TWO = (("f1", {}), ("f1", {"average": "micro"}), ("mcc", {}), ("mcc", {"average": "micro"}), ("pcc", {}))
OF_VALUES = (
    ("mae", {}),
    ("mse", {}),
    ("rmse", {}),
    ("loss", {}),
    ("pearsonr", {}),
    ("pearsonr", {"average": "micro"}),
    (["mae", "rmse"], {}),
)


def updates(seed):
    """Return a measure's name and arguments, and for each update a step: reset, or labels and predictions."""
    rng = random.Random(seed)
    numbers = np.random.RandomState(seed)
    kind = rng.choice((OF_CLASSES, OF_TWO, OF_VALUES))
    name, arguments = rng.choice(kind)
    width = 2 if kind is OF_TWO else rng.choice((3, 4, 7))
    dtype = rng.choice(("float32", "float32", "float64", "int32"))

    def pair():
        count = rng.choice((2, 5, 16))
        if kind is OF_VALUES:
            shape = (count,) if name == "pearsonr" or rng.random() < 0.6 else (count, 3)
            label = numbers.randint(-8, 9, shape) / 4
            return label.astype("float32"), (label + numbers.randint(-8, 9, shape) / 8).astype("float32")
        pred = np.argsort(numbers.rand(count, width)).astype("float32") + 1  # without ties, which argsort may order
        label = numbers.randint(0, width, count).astype(dtype)
        return label, pred / pred.sum(axis=1, keepdims=True)

    def step():
        return (
            rng.choice(("reset", "reset_local"))
            if rng.random() < 0.2
            else [pair() for _ in range(rng.choice((1, 1, 2)))]
        )

    return name, arguments, [step() for _ in range(rng.randrange(1, 6))]


def result(mx, seed):
    """Return names and values after each step; None stands for a step that fails, the last one."""
    name, arguments, steps = updates(seed)
    measured = mx.metric.create(name, **arguments)
    said = []
    for step in steps:
        try:
            if isinstance(step, str):
                getattr(measured, step)()
            else:
                pairs = [[mx.nd.array(one, dtype=one.dtype) for one in pair] for pair in step]
                measured.update([label for label, _ in pairs], [pred for _, pred in pairs])
            pairs = measured.get_name_value() + measured.get_global_name_value()
            said.append([[str(one), float(value)] for one, value in pairs])
        except Exception:
            return [*said, None]
    return said


if __name__ == "__main__":
    import mxnet

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(result(mxnet, seed)) for seed in range(count))
    path.write_text("[\n" + lines + "\n]\n")
