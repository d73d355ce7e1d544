"""A message for each error site, kept in tests/errors.golden so that a reader can judge the texts."""

import pathlib
import sys

import numpy as np
import tensorkv as mx

GOLDEN = pathlib.Path(__file__).parents[1] / "errors.golden"
S = (2, 3)


def store():
    kv = mx.kv.create("local")
    kv.init([1, 2], [mx.nd.ones(S), mx.nd.ones((4,), dtype="int32")])
    return kv


def strings():
    kv = mx.kv.create("local")
    kv.init("w3", mx.nd.ones(S))
    return kv


def closed():
    kv = store()
    kv.close()
    return kv


def read_only():
    x = np.ones(S, np.float32)
    x.flags.writeable = False
    return x


def reenter():
    kv = store()
    kv.set_updater(lambda key, sum, stored: kv.push(key, sum))
    kv.push(1, mx.nd.ones(S))


def with_optimizer(kv, optimizer):
    kv.set_optimizer(optimizer)
    return kv


def set_later(optimizer, name, value):
    kv = with_optimizer(store(), optimizer)
    setattr(optimizer, name, value)
    return kv


def rows(data, indices, shape):
    return mx.nd.sparse.row_sparse_array((data, indices), shape=shape)


CASES = [
    lambda: mx.kv.create("loca"),
    lambda: mx.kv.create("dist_sync"),
    lambda: mx.kv.create(5),
    lambda: mx.kv.create("local", threads=-1),
    lambda: mx.kv.create("local", patience_ms=0),
    lambda: store().init(1, mx.nd.ones(S)),
    lambda: store().init([3, 3], [mx.nd.ones(S)] * 2),
    lambda: store().init("a", mx.nd.ones(S)),
    lambda: mx.kv.create("local").init([1, "a"], [mx.nd.ones(S)] * 2),
    lambda: store().init([], []),
    lambda: store().init(5, [mx.nd.ones(S)] * 2),
    lambda: store().init(2**63, mx.nd.ones(S)),
    lambda: store().init(1.5, mx.nd.ones(S)),
    lambda: store().init("\ud800", mx.nd.ones(S)),
    lambda: strings().push("w4", mx.nd.ones(S)),
    lambda: strings().push("w3", mx.nd.ones((2, 4))),
    lambda: strings().push("w3", mx.nd.ones(S, dtype="float64")),
    lambda: strings().push("w3", []),
    lambda: strings().push("w3", 5),
    lambda: strings().push("w3", [1.0, 2.0]),
    lambda: strings().push(["w3"], [[[1, 2], [3, 4]]]),
    lambda: strings().push("w3", np.ones(S, np.complex128)),
    lambda: strings().push("w3", np.ones(S, ">f4")),
    lambda: store().push([], []),
    lambda: store().push([1, 2], mx.nd.ones(S)),
    lambda: store().push([1, 2], [mx.nd.ones(S)]),
    lambda: reenter(),
    lambda: store().pull(7),
    lambda: store().pull(1, out=mx.nd.ones((6,))),
    lambda: store().pull(1, out=mx.nd.ones(S, dtype="int32")),
    lambda: store().pull(1, out=read_only()),
    lambda: store().pull(1, out=[]),
    lambda: store().pull(1, like=object()),
    lambda: store().pull(1, out=mx.nd.ones(S), like=mx.nd.ones(S)),
    lambda: store().broadcast(9, mx.nd.ones(S), mx.nd.ones((1,))),
    lambda: store().broadcast(1, mx.nd.ones(S), mx.nd.ones(S)),
    lambda: closed().push(1, mx.nd.ones(S)),
    lambda: store().set_updater(3),
    lambda: store().set_optimizer("sgd"),
    lambda: store().is_capable("speed"),
    lambda: with_optimizer(store(), mx.optimizer.Adam()).push(2, mx.nd.ones((4,), dtype="int32")),
    lambda: with_optimizer(store(), mx.optimizer.Test(rescale_grad=0.5)).push(2, mx.nd.ones((4,), dtype="int32")),
    lambda: store().set_gradient_compression({}),
    lambda: store().row_sparse_pull(1),
    lambda: store().save_optimizer_states("f", dump_optimizer=True),
    lambda: store().row_sparse_pull(1, row_ids=[0]),
    lambda: store().pull_rows(1, [0]),
    lambda: store().push_rows(1, [2], [[1, 2, 3]]),
    lambda: store().push_rows(1, [0], [[1, 2]]),
    lambda: store().init_table("t", 3, initializer=mx.init.Xavier()),
    lambda: mx.nd.sparse.zeros("csr", S),
    lambda: rows([[1, 2], [3, 4]], [0, 0], (4, 2)),
    lambda: rows([[1, 2], [3, 4]], [0, 4], (4, 2)),
    lambda: rows([[1, 2], [3, 4]], [0, -1], (4, 2)),
    lambda: rows([[1, 2], [3, 4]], [0, 0.5], (4, 2)),
    lambda: rows([[1, 2], [3, 4]], [0, 2**63], (4, 2)),
    lambda: rows([[1, 2], [3, 4]], [0], (4, 2)),
    lambda: rows([[1, 2], [3, 4]], [0, 1], (4, 3)),
    lambda: rows([[1, 2]], [0], (4, 2)) + rows([[1, 2]], [0], (3, 2)),
    lambda: mx.nd.ones(S, mx.gpu(0)),
    lambda: mx.Context("tpu", 0),
    lambda: mx.cpu(-1),
    lambda: mx.nd.ones((2, -3)),
    lambda: mx.nd.ones((1,) * 40),
    lambda: mx.nd.ones((2**40, 2**40)),
    lambda: mx.nd.empty((2**55,)),
    lambda: mx.nd.ones(S, dtype="complex128"),
    lambda: mx.nd.ones(S).reshape((4, 2)),
    lambda: mx.nd.ones(S)[7],
    lambda: mx.nd.ones(S) + mx.nd.ones((4,)),
    lambda: mx.nd.ones(S) + mx.nd.ones(S, dtype="int32"),
    lambda: mx.nd.ones(S, dtype="int32") / 2,
    lambda: mx.nd.ones(S, dtype="int32") + 0.5,
    lambda: mx.nd.ones(S, dtype="bool") + 1,
    lambda: mx.nd.from_dlpack(read_only()).__iadd__(1),
    lambda: mx.nd.ones(S).asscalar(),
    lambda: mx.nd.softmax(mx.nd.ones(S), temperature=0),
    lambda: mx.init.create(mx.init.Zero(), value=3),
    lambda: mx.init.create('["zero", {}]', value=3),
    lambda: mx.metric.create(mx.metric.MSE(), name="mine"),
    lambda: mx.lr_scheduler.FactorScheduler(float("inf")),
    lambda: mx.kv.create("local").load("load_dir/none"),
    lambda: mx.optimizer.create("sgdd"),
    lambda: mx.Program(""),
    lambda: mx.Program("program p\nw = plus value sum\n"),
    lambda: mx.Program("program p\nw = add value x\n"),
    lambda: mx._core.Optimizer.create("sgd").set_param("speed", 1.0),
    lambda: mx._core.Optimizer.create("lion"),
    lambda: store().init(5, mx.nd.ones(S), mode="x"),
    lambda: with_optimizer(store(), mx.optimizer.SGD(clip_gradient=float("nan"))),
    lambda: with_optimizer(store(), mx.optimizer.SGD(learning_rate="0.1")),
    lambda: set_later(mx.optimizer.SGD(), "momentum", 0.9),
    lambda: set_later(mx.optimizer.SGD(), "multi_precision", True),
    lambda: set_later(mx.optimizer.SGD(), "lr_scheduler", min),
    lambda: set_later(mx.optimizer.SGD(), "lr_mult", {1: None}),
    lambda: set_later(mx.optimizer.SGD(), "wd_mult", 5),
    lambda: mx.optimizer.get_updater(mx.optimizer.SGD())([1, 2], [mx.nd.ones(S)], [mx.nd.ones(S)]),
    lambda: mx.nd.save("/nowhere/f", {(1, 2): mx.nd.ones(S)}),
    lambda: mx.nd.save("/dev/null", []),
    lambda: mx.nd.load("/dev/null"),
    lambda: mx.nd.load("/proc/self/comm"),
]


def collect():
    """Return the text of the golden file: for each case the class and the message."""
    lines = []
    for case in CASES:
        try:
            case()
        except mx.KVError as error:
            lines.append(f"{type(error).__name__}: {error}")
        else:
            raise AssertionError(f"case {len(lines)} raised nothing")
    return "\n".join(lines) + "\n"


def test_every_message_is_the_golden_one():
    assert collect() == GOLDEN.read_text(), "./dev docs writes it again"


if __name__ == "__main__":
    sys.stdout.write(collect())
