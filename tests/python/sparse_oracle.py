"""Writes sparse_oracle.json: MXNet 1.9.1's results of the expressions in sparse_cases.py.

PYTHON-WITH-MXNET tests/python/sparse_oracle.py
"""

import json
import pathlib

import mxnet as mx
from sparse_cases import CASES, result

results = {case: result(mx, case) for case in CASES}
text = ",\n".join(f"{json.dumps(case)}: {json.dumps(value)}" for case, value in results.items())
pathlib.Path(__file__).with_suffix(".json").write_text("{\n" + text + "\n}\n")
