"""Random calls of `mx.random` and of initializers, and what MXNet 1.9.1 has drawn, in random_programs.json: dtype, shape and moments.

PYTHON-WITH-MXNET tests/python/random_programs.py [COUNT [FILE]]

For more calls than the default write another FILE, and run test_random_programs.py with TKV_TEST_RANDOM_PROGRAMS=FILE.
"""

import json
import pathlib
import random
import sys

FLOATS = ("float32", "float32", "float64", "float16")


def program(seed):
    """Return a call as text. Arrays are named by `nd`."""
    rng = random.Random(seed)
    size = rng.choice((2000, (40, 50), (2, 3), 4, 1))

    def numbers(low, high):
        return rng.randrange(low * 4, high * 4 + 1) / 4

    def parameters(*bounds):
        """Return numbers within bounds, or arrays of two."""
        if rng.random() < 0.6:
            return ", ".join(str(numbers(*bound)) for bound in bounds)
        return ", ".join(f"nd.array([{numbers(*bound)}, {numbers(*bound)}])" for bound in bounds)

    def rest(dtypes):
        return rng.choice(("", f", shape={size}", f", shape={size}, dtype={rng.choice(dtypes)!r}"))

    low = rng.randrange(-9, 9)
    matrix = rng.choice(("[0.25, 0.75]", "[[0.25, 0.75], [1.0, 0.0]]", "[[0.5, 0.25, 0.25]]"))
    calls = (
        f"uniform({parameters((-3, 0), (1, 3))}{rest(FLOATS)})",
        f"normal({parameters((-3, 3), (1, 3))}{rest(FLOATS)})",
        f"randn({', '.join(map(str, size)) if isinstance(size, tuple) else size}, loc={numbers(-3, 3)}, scale={numbers(1, 3)})",
        f"exponential({parameters((1, 3))}{rest(FLOATS)})",
        f"gamma({parameters((1, 4), (1, 3))}{rest(FLOATS)})",
        f"poisson({parameters((1, 6))}{rest(FLOATS)})",
        f"negative_binomial({rng.randrange(1, 6)}, {rng.choice((0.25, 0.5, 0.75))}{rest(FLOATS)})",
        f"generalized_negative_binomial({numbers(1, 4)}, {rng.choice((0.25, 0.5))}{rest(FLOATS)})",
        f"randint({low}, {low + rng.randrange(1, 20)}{rest(('int32', 'int64'))})",
        f"multinomial(nd.array({matrix}){rng.choice(('', f', shape={size}'))})",
        f"multinomial(nd.array({matrix}){rng.choice(('', f', shape={size}'))}, get_prob=True)",
        f"multinomial(nd.array({matrix}), dtype={rng.choice(('int32', 'float32', 'float64', 'uint8'))!r})",
        f"shuffle(nd.arange({rng.randrange(1, 60)}))",
    )
    return f"random.{rng.choice(calls)}" if rng.random() < 0.7 else initializer(rng)


def initializer(rng):
    """Return a call that fills an array by an initializer, as text."""
    kind = rng.choice(("uniform", "gaussian"))
    factor, scale = rng.choice(("avg", "in", "out")), rng.randrange(1, 13) / 4
    made = rng.choice(
        (
            f"Uniform({scale})",
            f"Normal({scale})",
            f"Constant({scale})",
            "Zero()",
            "One()",
            f"Xavier({kind!r}, {factor!r}, {scale})",
            f"MSRAPrelu({factor!r}, {scale / 8})",
            f"Orthogonal({scale})",
            "Bilinear()",
            f"LSTMBias({scale})",
            f"Mixed(['.*bias', '.*'], [mx.init.Zero(), mx.init.Uniform({scale})])",
        )
    )
    shape = rng.choice(((40, 50), (20, 10, 3, 5), (8, 1, 4, 4), (2000,), (8,)))
    name = rng.choice(
        ("fc_weight", "fc_weight", "fc_bias", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_running_var", "x")
    )
    dtype = rng.choice(("float32", "float64"))
    return f"filled(mx.init.{made}, {name!r}, {shape}, {dtype!r})"


def result(mx, seed):
    """Return dtype, shape, mean and standard deviation of each array that a call gives, or None where it fails."""
    mx.random.seed(seed)

    def filled(init, name, shape, dtype):
        array = mx.nd.full(shape, 9, dtype=dtype)
        init(mx.init.InitDesc(name), array)
        return array

    try:
        found = eval(program(seed), {"mx": mx, "random": mx.random, "nd": mx.nd, "filled": filled})
        arrays = [one.asnumpy() for one in (found if isinstance(found, (list, tuple)) else [found])]
    except Exception:
        return None
    return [
        [str(one.dtype), list(one.shape), float(one.astype("float64").mean()), float(one.astype("float64").std())]
        for one in arrays
    ]


if __name__ == "__main__":
    import mxnet

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(result(mxnet, seed)) for seed in range(count))
    path.write_text("[\n" + lines + "\n]\n")
