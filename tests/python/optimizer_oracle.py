"""Writes optimizer_oracle.json: the weights after so many steps of MXNet 1.9.1 or PyTorch, in float32.

PYTHON-WITH-MXNET tests/python/optimizer_oracle.py mxnet
PYTHON-WITH-TORCH tests/python/optimizer_oracle.py torch
"""

import json
import pathlib
import sys

from optimizer_cases import CASES, FORMULA_ONLY, STEPS, gradient, start

FILE = pathlib.Path(__file__).with_suffix(".json")


def of_mxnet(case):
    """Return the weights by MXNet's own updater; None where it has no such optimizer."""
    import mxnet as mx

    name, arguments = CASES[case]
    # Its NAG decays a weight that it has moved already: in place, its kernel reads what it wrote.
    if not hasattr(mx.optimizer, name) or case in ("nag", *FORMULA_ONLY):
        return None
    updater = mx.optimizer.get_updater(getattr(mx.optimizer, name)(**arguments))
    weight = mx.nd.array(start())
    for step in range(1, STEPS + 1):
        updater(0, mx.nd.array(gradient(step)), weight)
    return weight.asnumpy()


def of_torch(case):
    """Return the weights by PyTorch; None where it has another formula."""
    import torch

    a = {"learning_rate": None, **CASES[case][1]}
    weight = torch.nn.Parameter(torch.tensor(start(), dtype=torch.float32))
    lr, wd = a["learning_rate"], a["wd"]
    makers = {
        "sgd": lambda: torch.optim.SGD([weight], lr, weight_decay=wd),
        "momentum": lambda: torch.optim.SGD([weight], lr, a["momentum"], weight_decay=wd),
        "nag": lambda: torch.optim.SGD([weight], lr, a["momentum"], weight_decay=wd, nesterov=True),
        "adamw": lambda: torch.optim.AdamW([weight], lr, (a["beta1"], a["beta2"]), weight_decay=wd),
    }
    if case not in makers:
        return None
    optimizer = makers[case]()
    for step in range(1, STEPS + 1):
        scaled = a["rescale_grad"] * torch.tensor(gradient(step), dtype=torch.float32)
        weight.grad = torch.clamp(scaled, -a["clip_gradient"], a["clip_gradient"])
        optimizer.step()
    return weight.detach().numpy()


def main(library):
    """Add the results of a library to the file."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    for case in CASES:
        weights = {"mxnet": of_mxnet, "torch": of_torch}[library](case)
        if weights is not None:
            known.setdefault(case, {})[library] = [float(w) for w in weights]
    FILE.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
