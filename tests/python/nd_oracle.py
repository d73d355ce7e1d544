"""Writes nd_oracle.json: MXNet 1.9.1's results of the expressions in nd_cases.py, as dtype, shape and elements.

PYTHON-WITH-MXNET tests/python/nd_oracle.py
"""

import json
import pathlib

import mxnet as mx
from nd_cases import ARRAYS, CASES

names = {"nd": mx.nd}
for name, text in ARRAYS.items():
    names[name] = eval(text, names)
results = {}
for case in CASES:
    result = eval(case, names)
    results[case] = [
        [part.dtype.__name__, list(part.shape), part.asnumpy().astype("float64").round(9).reshape(-1).tolist()]
        for part in (result if isinstance(result, (list, tuple)) else [result])
    ]
text = ",\n".join(f"{json.dumps(case)}: {json.dumps(value)}" for case, value in results.items())
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + text + "\n}\n")
