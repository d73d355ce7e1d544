"""Random calls of `mx.nd`, and MXNet 1.9.1's results of them in nd_programs.json: as dtype, shape and elements.

PYTHON-WITH-MXNET tests/python/nd_programs.py [COUNT [FILE]]

For more calls than the default write another FILE, and run test_function_programs.py with TKV_TEST_ND_PROGRAMS=FILE.
"""

import json
import pathlib
import random
import sys

import numpy as np

SHAPES = ((4,), (2, 3), (3, 2), (2, 1, 3), (2, 3, 4))
FLOATS = "exp expm1 cbrt sin cos arctan tanh sigmoid softsign degrees mean norm"  # functions that take no integers here
EVERY = (
    "abs square sign negative relu floor ceil trunc fix round rint logical_not zeros_like ones_like sum max min nansum"
)
BINARY = "add subtract multiply modulo maximum minimum equal not_equal greater greater_equal lesser lesser_equal"
BINARY += " logical_and logical_or logical_xor broadcast_add broadcast_maximum broadcast_lesser"


def program(seed):
    """Return a call as text, and the NumPy arrays x and y that it names."""
    rng, numbers = random.Random(seed), np.random.RandomState(seed)
    shape, dtype = rng.choice(SHAPES), rng.choice(("float32", "float32", "float64", "float16", "int32"))
    axis, other = rng.choice((0, 1, -1, None)), rng.choice((shape, (1,) * len(shape)))

    def array(extents, name):
        values = numbers.randint(-8, 9, extents)
        return (values / 4 if name.startswith("float") else values).astype(name)

    arrays = {"x": array(shape, dtype), "y": array(other, rng.choice((dtype, dtype, "float16", "float32")))}
    name = rng.choice((EVERY if dtype == "int32" else EVERY + " " + FLOATS).split())
    reduces = name in ("sum", "max", "min", "nansum", "mean", "norm")
    rest = f", axis={() if axis is None else axis}, keepdims={rng.random() < 0.4}" if reduces else ""
    calls = [
        f"nd.{name}(x{rest})",
        f"nd.{name}(x{rest})",
        f"nd.{rng.choice(BINARY.split())}(x, y)",
        f"nd.{rng.choice(BINARY.split())}(x, {rng.choice((2, -1, 0))})",
        f"nd.topk(x, axis={axis}, k={rng.choice((0, 1, 2))}, ret_typ={rng.choice(('value', 'mask'))!r})",
        f"nd.sort(x, axis={axis}, is_ascend={rng.random() < 0.5})",
        f"nd.argmax(x, axis={axis})",
        f"x.sum(axis={rng.choice((0, 1, -1, (0,)))}, exclude={rng.random() < 0.5})",
        rng.choice(("nd.dot(x, x, transpose_a=True)", "nd.dot(x, x, transpose_b=True)")),
        rng.choice(
            ("nd.where(x > 0, x, x * 2)", "nd.concat(x, y, dim=0)", "nd.stack(x, x, axis=1)", "nd.add_n(x, x, y)")
        ),
        rng.choice(("nd.flatten(x)", "nd.flip(x, axis=0)", "nd.tile(x, 2)", "nd.expand_dims(x, 0)", "nd.transpose(x)")),
        rng.choice(("nd.squeeze(x)", "nd.clip(x, -1, 1)", "nd.slice_axis(x, axis=0, begin=0, end=1)", "nd.diag(x)")),
        rng.choice(
            ("nd.take(x, nd.array([0, 5]))", "nd.batch_dot(x, x, transpose_b=True)", f"nd.repeat(x, 2, axis={axis})")
        ),
    ]
    return rng.choice(calls), arrays


def result(nd, seed):
    """Return dtype, shape and elements of a call, or None where it fails."""
    text, arrays = program(seed)
    try:
        found = eval(
            text, {"nd": nd, **{name: nd.array(values, dtype=values.dtype) for name, values in arrays.items()}}
        )
        elements = found.asnumpy()
    except Exception:
        return None
    return [str(elements.dtype), list(elements.shape), elements.astype("float64").round(9).reshape(-1).tolist()]


if __name__ == "__main__":
    import mxnet

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(result(mxnet.nd, seed)) for seed in range(count))
    path.write_text("[\n" + lines + "\n]\n")
