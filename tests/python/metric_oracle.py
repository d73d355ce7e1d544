"""Writes metric_oracle.json: the results of MXNet 1.9.1's measures for the arrays in metric_cases.py.

PYTHON-WITH-MXNET tests/python/metric_oracle.py
"""

import json
import pathlib

import mxnet as mx
from metric_cases import CASES, run

results = {case: run(mx.metric.create, mx.nd.array, case) for case in CASES}
text = ",\n".join(f"{json.dumps(case)}: {json.dumps(value)}" for case, value in results.items())
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + text + "\n}\n")
