"""A store under test, in its own process: reads workloads line by line, sets each up, then times steps on request.

Runs the same code on `tensorkv` and on MXNet: `peer.py PACKAGE`. Requests are JSON lines on stdin: {"setup": NAME,
"bytes": N} and {"step": REPEATS}. The reply to a step, on stdout, is the seconds of one.
"""

import importlib
import json
import sys
import time

KEYS = 400


def full(mx, count, value, worker=0):
    return mx.nd.full((count,), value, mx.cpu(worker))


def four_values(mx, kv, count):
    kv.init(3, full(mx, count, 0))
    return [full(mx, count, i + 1, i) for i in range(4)], [full(mx, count, 0, i) for i in range(4)]


def push_pull(mx, count):
    kv = mx.kv.create("local")
    values, outs = four_values(mx, kv, count)

    def step():
        kv.push(3, values)
        kv.pull(3, out=outs)

    return kv, step, lambda: outs[3].asnumpy()[-1] == 10


def pushpull(mx, count):
    kv = mx.kv.create("local")
    values, outs = four_values(mx, kv, count)
    return kv, lambda: kv.pushpull(3, values, out=outs), lambda: outs[3].asnumpy()[-1] == 10


def with_optimizer(make):
    def workload(mx, count):
        kv = mx.kv.create("local")
        values, outs = four_values(mx, kv, count)
        kv.set_optimizer(make(mx))
        return kv, lambda: kv.pushpull(3, values, out=outs), lambda: outs[3].asnumpy()[-1] < 0

    return workload


def interpreted_adam(mx, count):
    """Adam by the interpreter: renaming one of the program's arrays keeps the fused kernel from being used."""
    kv = mx.kv.create("local")
    value = full(mx, count, 1)
    kv.init(3, full(mx, count, 0))
    text = mx._core.Optimizer.create("adam").program.text
    kv.set_updater(mx.Program(text.replace("bottom", "divisor")))
    return kv, lambda: kv.push(3, value), lambda: kv.pull(3).asnumpy()[-1] < 0


def fused_adam(mx, count):
    kv = mx.kv.create("local")
    value = full(mx, count, 1)
    kv.init(3, full(mx, count, 0))
    kv.set_optimizer(mx.optimizer.Adam())
    return kv, lambda: kv.push(3, value), lambda: kv.pull(3).asnumpy()[-1] < 0


def many_keys(mx, count):
    kv = mx.kv.create("local")
    keys = list(range(KEYS))
    kv.init(keys, [full(mx, count, 0)] * KEYS)
    values = [[full(mx, count, 1, i) for i in range(4)] for _ in keys]
    outs = [[full(mx, count, 0, i) for i in range(4)] for _ in keys]

    def step():
        kv.push(keys, values)
        kv.pull(keys, out=outs)

    return kv, step, lambda: outs[-1][3].asnumpy()[-1] == 4


def one_key(mx, count):
    kv = mx.kv.create("local")
    value, out = full(mx, count, 1), full(mx, count, 0)
    kv.init(3, value)

    def step():
        kv.push(3, value)
        kv.pull(3, out=out)

    return kv, step, lambda: out.asnumpy()[-1] == 1


def empty_calls(mx, count):
    value = full(mx, count, 1)
    call = mx._core._empty_call

    def step():
        call(3, value)
        call(3, value)

    return None, step, lambda: True


def maker(kind):
    """Return the function that makes an array of a framework: mx, count -> array."""
    if kind == "NDArray":
        return lambda mx, count: full(mx, count, 1)
    module = importlib.import_module({"NumPy": "numpy", "PyTorch": "torch", "JAX": "jax.numpy"}[kind])
    return lambda mx, count: module.ones((count,), dtype=module.float32)


def held_by_users(kind, keys):
    """A pushpull of a framework's arrays into others; of JAX's arrays, which are immutable, into NDArrays."""

    def workload(mx, count):
        kv = mx.kv.create("local")
        make, make_out = maker(kind), maker("NDArray" if kind == "JAX" else kind)
        names = list(range(keys))
        values, outs = [make(mx, count) for _ in names], [make_out(mx, count) for _ in names]
        kv.init(names, values)
        if keys == 1:
            names, values, outs = names[0], values[0], outs[0]
        last = outs if keys == 1 else outs[-1]
        return kv, lambda: kv.pushpull(names, values, out=outs), lambda: float(last[-1]) == 1

    return workload


WORKLOADS = {
    "push+pull": push_pull,
    "pushpull": pushpull,
    "sgd": with_optimizer(lambda mx: mx.optimizer.SGD(learning_rate=0.1)),
    "adam": with_optimizer(lambda mx: mx.optimizer.Adam()),
    "interpreted adam": interpreted_adam,
    "fused adam": fused_adam,
    "400 keys": many_keys,
    "one key": one_key,
    "two empty calls": empty_calls,
    **{
        f"{keys} x {kind}": held_by_users(kind, keys)
        for kind in ("NDArray", "NumPy", "PyTorch", "JAX")
        for keys in (1, 100, 400, 100_000)
    },
}


def main():
    mx = importlib.import_module(sys.argv[1])
    step = check = kv = None
    for line in sys.stdin:
        request = json.loads(line)
        if "setup" in request:
            step = check = kv = None  # free the last workload's arrays first
            kv, step, check = WORKLOADS[request["setup"]](mx, request["bytes"] // 4)
            step()
            mx.nd.waitall()
            reply = {"correct": bool(check())}
        else:
            repeats = request["step"]
            begin = time.perf_counter()
            for _ in range(repeats):
                step()
            mx.nd.waitall()
            reply = {"seconds": (time.perf_counter() - begin) / repeats}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
