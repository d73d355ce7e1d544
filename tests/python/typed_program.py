"""A program of a user that the type checkers read and that runs: every kind of store, every verb, tickets, errors.

Each `assert_type` says what editors complete there. test_types.py has mypy --strict and pyright check it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorkv as mx
from tensorkv.errors import InvalidArgumentError, KeyNotFoundError
from typing_extensions import assert_type

Float32 = npt.NDArray[np.float32]
SHAPE = (2, 3)


# ---------------------------------------------------------------------------------------------------- a trainer of a user


@dataclass
class Model:
    """A linear model whose weights live in a store."""

    kv: mx.KVStore
    weights: dict[str, Float32]
    history: list[float] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return list(self.weights)

    def start(self, optimizer: mx.optimizer.Optimizer) -> None:
        self.kv.init(self.names, [self.weights[name] for name in self.names])
        self.kv.set_optimizer(optimizer)

    def gradients(self, images: Float32, labels: Float32) -> dict[str, Float32]:
        error = images @ self.weights["w"] + self.weights["b"] - labels
        self.history.append(float((error * error).mean()))
        return {"w": (images.T @ error / len(images)).astype(np.float32), "b": error.mean(axis=0)}

    def step(self, images: Float32, labels: Float32) -> None:
        grads = self.gradients(images, labels)
        values = [grads[name] for name in self.names]
        outs = [self.weights[name] for name in self.names]
        assert_type(self.kv.pushpull(self.names, values, out=outs), None)

    async def step_async(self, images: Float32, labels: Float32) -> None:
        grads = self.gradients(images, labels)
        tickets = [self.kv.push(name, grads[name], priority=-i, async_op=True) for i, name in enumerate(self.names)]
        assert_type(tickets, list[mx.Ticket[None]])
        await asyncio.gather(*tickets)
        pulled = await self.kv.pull(self.names, async_op=True)
        assert_type(pulled, list[mx.NDArray])
        for name, value in zip(self.names, pulled, strict=True):
            self.weights[name] = value.asnumpy()


def regression(kv: mx.KVStore, optimizer: mx.optimizer.Optimizer, steps: int) -> Model:
    random = np.random.default_rng(0)
    images = random.normal(size=(64, 4)).astype(np.float32)
    truth = random.normal(size=(4, 1)).astype(np.float32)
    model = Model(kv, {"w": np.zeros((4, 1), np.float32), "b": np.zeros((1,), np.float32)})
    model.start(optimizer)
    for _ in range(steps):
        model.step(images, images @ truth)
    asyncio.run(model.step_async(images, images @ truth))
    return model


def test_a_model_is_trained() -> None:
    with mx.kv.create("local", threads=1) as kv:
        assert_type(kv, mx.KVStore)
        model = regression(kv, mx.optimizer.SGD(learning_rate=0.5, momentum=0.5, rescale_grad=1.0), 40)
    assert model.history[-1] < model.history[0] / 100


# ---------------------------------------------------------------------------------------------------------- making stores


def test_every_kind_of_store() -> None:
    assert_type(mx.kv.create(), mx.KVStore)
    assert_type(mx.create("device"), mx.KVStore)
    assert_type(mx.kv.create("teststore"), mx.kv.TestStore)
    for kind in ("local", "local_update_cpu", "device", "local_allreduce_cpu"):
        with mx.kv.create(kind, patience_ms=1000) as kv:
            assert_type(kv.type, str)
            assert_type(kv.rank, int)
            assert_type(kv.num_workers, int)
            assert_type(kv.rejoined, bool)
            assert kv.type == kind
    with mx.kv.create("dist_sync", bootstrap="self", servers=2, staleness=0, deterministic=True, log="off") as kv:
        kv.init(0, np.zeros(2, np.float32), mode="sync")
        assert_type(kv.round(0), int)
        assert_type(kv.stats(), dict[str, Any])
        assert_type(kv.barrier(), None)
        assert_type(kv.barrier(async_op=True).wait(), None)
    constructed = mx.KVStore("local", threads=1)
    assert_type(constructed.close(), None)


async def life_of_a_store() -> Float32:
    async with await mx.kv.create_async("dist_async", bootstrap="self", patience=60.0) as kv:
        assert_type(kv, mx.KVStore)
        ticket = kv.init("w", mx.nd.ones(SHAPE), async_op=True)
        assert_type(ticket, mx.Ticket[None])
        assert_type(await ticket, None)
        value = await kv.pull("w", async_op=True)
        assert_type(value, mx.NDArray)
        task = asyncio.create_task(kv.pull("w", async_op=True))
        assert_type(await task, mx.NDArray)
        assert_type(await asyncio.wait_for(kv.pull(["w"], async_op=True), 10), list[mx.NDArray])
        first, second = await asyncio.gather(kv.pull("w", async_op=True), kv.push("w", value, async_op=True))
        assert_type(first, mx.NDArray)
        assert_type(second, None)
    return value.asnumpy()


def test_a_life_in_an_event_loop() -> None:
    assert asyncio.run(life_of_a_store()).tolist() == [[1.0] * 3] * 2


# ----------------------------------------------------------------------------------------- each verb, one key and several


def one_key(kv: mx.KVStore, key: int | str, wait: bool) -> None:
    a = mx.nd.ones(SHAPE)
    outs = [mx.nd.zeros(SHAPE, mx.cpu(i)) for i in range(2)]
    assert_type(kv.init(key, a), None)
    assert_type(kv.push(key, a), None)
    assert_type(kv.push(key, [a, a], 1), None)
    assert_type(kv.push(key, np.ones(SHAPE, np.float32), priority=1, async_op=False), None)
    assert_type(kv.push(key, a, async_op=True), mx.Ticket[None])
    assert_type(kv.push(key, a, 0, async_op=True).wait(), None)
    assert_type(kv.push(key, a, async_op=wait), mx.Ticket[None] | None)
    assert_type(kv.pull(key), mx.NDArray)
    assert_type(kv.pull(key, out=a), None)
    assert_type(kv.pull(key, outs, 0, True), None)
    assert_type(kv.pull(key, async_op=True), mx.Ticket[mx.NDArray])
    assert_type(kv.pull(key, async_op=True).wait(timeout=10), mx.NDArray)
    assert_type(kv.pull(key, async_op=wait), mx.Ticket[mx.NDArray] | mx.NDArray)
    assert_type(kv.pull(key, out=outs, async_op=True), mx.Ticket[None])
    assert_type(kv.pull(key, out=outs, async_op=wait), mx.Ticket[None] | None)
    assert_type(kv.pull(key, like=np.zeros(SHAPE, np.float32)).dtype, np.dtype[np.float32])
    assert_type(kv.pull(key, like=a, async_op=True).wait(), mx.NDArray)
    assert_type(kv.pull(key, like=a, async_op=wait), mx.Ticket[mx.NDArray] | mx.NDArray)
    assert_type(kv.pushpull(key, a), None)
    assert_type(kv.pushpull(key, [a, a.copy()], out=outs), None)
    assert_type(kv.pushpull(key, a, out=a, async_op=True), mx.Ticket[None])
    assert_type(kv.pushpull(key, a, async_op=True).wait(), None)
    assert_type(kv.pushpull(key, a, out=outs, async_op=wait), mx.Ticket[None] | None)
    assert_type(key in kv, bool)
    kv.delete(key)
    assert_type(kv.init(key, a, async_op=True).wait(), None)
    kv.delete(key)
    assert_type(kv.init(key, a, async_op=wait), mx.Ticket[None] | None)
    mx.nd.waitall()
    kv.close(async_op=True).wait()


def several_keys(kv: mx.KVStore, keys: list[int] | list[str], wait: bool) -> None:
    values = [mx.nd.ones(SHAPE) for _ in keys]
    nested = [[value, value] for value in values]
    assert_type(kv.init(keys, values), None)
    assert_type(kv.push(keys, values), None)
    assert_type(kv.push(keys, nested, async_op=True).wait(), None)
    assert_type(kv.push(keys, nested, async_op=wait), mx.Ticket[None] | None)
    assert_type(kv.pull(keys), list[mx.NDArray])
    assert_type(kv.pull(keys, out=values), None)
    assert_type(kv.pull(keys, out=nested, async_op=True).wait(), None)
    assert_type(kv.pull(keys, async_op=True).wait()[0], mx.NDArray)
    assert_type(kv.pull(keys, async_op=wait), mx.Ticket[list[mx.NDArray]] | list[mx.NDArray])
    assert_type(kv.pull(keys, like=np.zeros(0, np.float32))[0].dtype, np.dtype[np.float32])
    assert_type(kv.pull(keys, like=values, async_op=True), mx.Ticket[list[mx.NDArray]])
    assert_type(kv.pull(keys, like=values[0], async_op=wait), mx.Ticket[list[mx.NDArray]] | list[mx.NDArray])
    assert_type(kv.pushpull(keys, values), None)
    assert_type(kv.pushpull(keys, nested, out=values), None)
    assert_type(kv.pushpull(keys, values, async_op=True).wait(), None)
    assert_type(kv.pushpull(keys, values, out=nested, async_op=wait), mx.Ticket[None] | None)
    assert_type(kv.keys(), list[int | str])
    assert_type(list(kv), list[int | str])
    assert_type(len(kv), int)


def test_each_verb() -> None:
    for wait in (False, True):
        for key in (3, "w"):
            one_key(mx.kv.create("local"), key, wait)
        several_keys(mx.kv.create("local"), [1, 2], wait)
        several_keys(mx.kv.create("local"), ["a", "b"], wait)
    with mx.kv.create("local") as kv:
        outs = [np.zeros(2, np.float32), np.zeros(2, np.float32)]
        assert_type(kv.broadcast(np.int64(7), np.ones(2, np.float32), outs), None)
        assert_type(kv.broadcast((8, 9), outs, [outs, outs]), None)
        assert_type(kv.pull((np.int32(8), 9)), list[mx.NDArray])
        kv.init([np.int64(10), np.int64(11)], outs)
        kv.push(7, memoryview(outs[0].tobytes()).cast("f"))  # the buffer protocol


class Params(NamedTuple):
    """Parameters of a user."""

    w: Float32
    b: Float32


def test_trees() -> None:
    with mx.kv.create("local") as kv:
        params = Params(np.zeros(2, np.float32), np.zeros(2, np.float32))
        kv.init({"dense": params})
        kv.push([{"dense": params}, {"dense": params}], async_op=True).wait()
        pulled: Params = kv.broadcast(params)
        kv.push(params)
        kv.push([params, params])
        kv.pull(params, out=params)
        pulled = kv.pull(params)
        pulled = kv.pull(params, async_op=True).wait()
        kv.pushpull(pulled)
        kv.pushpull(params, out=pulled)


# ---------------------------------------------------------------------------------------------------------------- updaters


class Halve(mx.optimizer.Optimizer):
    """An optimizer of a user."""

    def update(self, index: Any, weight: mx.NDArray, grad: mx.NDArray, state: Any) -> None:
        weight -= grad * 0.5


def schedule(updates: int) -> float:
    return 0.5**updates


def test_updaters() -> None:
    kv = mx.kv.create("local")
    kv.init(1, mx.nd.zeros(SHAPE))
    seen: list[int | str] = []

    def add(key: int | str, input: mx.NDArray, stored: mx.NDArray) -> None:
        seen.append(key)
        stored += input * 2

    assert_type(kv.set_updater(add), None)
    kv.push(1, mx.nd.ones(SHAPE))
    assert seen == [1]
    kv.set_updater(None)
    kv.set_updater(mx.Program("program twice\ndouble = mul sum 2\nvalue <- double\n"))
    kv.set_updater(mx.optimizer.get_updater(Halve()))
    kv.set_updater(lambda key, input, stored: stored.__iadd__(input))
    kv.push(1, mx.nd.ones(SHAPE))
    assert_type(kv.is_capable("optimizer"), bool)
    for optimizer in (
        mx.optimizer.Adam(beta1=0.8, wd=0.1),
        Halve(learning_rate=0.1),
        mx.optimizer.SGD(lr_scheduler=schedule),
    ):
        kv.set_optimizer(optimizer)
        kv.push(1, mx.nd.ones(SHAPE))
    sgd = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9, multi_precision=True)
    assert_type(sgd, mx.optimizer.SGD)
    assert_type(sgd.learning_rate, float)
    sgd.learning_rate = 0.2
    sgd.set_lr_mult({1: 0.5, "w": 2})
    assert_type(mx.optimizer.create("adam", beta1=0.5), mx.optimizer.Adam)
    assert_type(mx.optimizer.create("test", rescale_grad=2), mx.optimizer.Optimizer)
    updater = mx.optimizer.get_updater(sgd)
    assert_type(updater(0, mx.nd.ones(SHAPE), mx.nd.ones(SHAPE)), None)
    program = mx.Program("program add\nparam rate 0.5\nw = mul sum rate\nvalue <- w\n")
    assert_type(program.params, dict[str, float])


@mx.optimizer.register
class Third(mx.optimizer.SGD):
    """A class that `register` gives back as it is."""

    def thrice(self) -> float:
        return 3 * self.lr


@mx.kv.KVStoreBase.register
class Silent(mx.kv.KVStoreBase):
    """A store of another make."""

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        return None

    def extra(self) -> str:
        return "extra"


def test_what_is_registered_keeps_its_class() -> None:
    assert_type(Third(learning_rate=1.0).thrice(), float)
    assert_type(Silent().extra(), str)
    assert isinstance(mx.kv.create("silent"), Silent)


# ------------------------------------------------------------------------------------------------------------------ arrays


def test_row_sparse_arrays() -> None:
    a = mx.nd.sparse.row_sparse_array(([[1.0, 2.0]], [1]), shape=(3, 2))
    assert_type(a, mx.nd.RowSparseNDArray)
    assert_type(a.tostype("default"), mx.NDArray)
    assert_type(mx.nd.ones(SHAPE).tostype("row_sparse"), mx.nd.RowSparseNDArray)
    assert_type(mx.nd.ones(SHAPE).tostype("default"), mx.NDArray)
    assert_type(mx.nd.zeros(SHAPE, stype="row_sparse"), mx.nd.RowSparseNDArray)
    assert_type(mx.nd.sparse.zeros("default", SHAPE), mx.NDArray)
    assert_type(a.copyto(mx.cpu(1)), mx.nd.RowSparseNDArray)
    assert_type(a.copyto(mx.nd.zeros((3, 2))), mx.NDArray)
    assert_type(a.retain([1]).data, mx.NDArray)
    a += a
    a[:] = 0
    with mx.kv.create() as kv:
        kv.init("d", mx.nd.ones((3, 2)))
        assert_type(kv.pull("d", out=a, ignore_sparse=False), None)
        assert a.asnumpy().max() == 1
        assert_type(mx.optimizer.SGD(lazy_update=False, wd=0.5).lazy_update, bool)
        assert_type(mx.optimizer.NAG(lazy_update=False).lazy_update, bool)


def test_arrays() -> None:
    a = mx.nd.array([[1, 2], [3, 4]], mx.cpu(1), dtype="float32")
    assert_type(a + 1, mx.NDArray)
    assert_type(2.0 * a - a / 2, mx.NDArray)
    assert_type(-abs(a), mx.NDArray)
    assert_type(a == 1, mx.NDArray)
    assert_type(a < a, mx.NDArray)
    assert_type(a[0], mx.NDArray)
    assert_type(a[:, 1], mx.NDArray)
    assert_type(a.shape, tuple[int, ...])
    assert_type(a.size, int)
    assert_type(a.context, mx.Context)
    assert_type(a.asnumpy(), np.ndarray[Any, Any])
    assert_type(a.reshape(4), mx.NDArray)
    assert_type(a.reshape((-1, 1)), mx.NDArray)
    assert_type(a.reshape(shape=(4,)), mx.NDArray)
    assert_type(a.astype(np.float64), mx.NDArray)
    assert_type(a.copyto(mx.cpu(2)), mx.NDArray)
    assert_type(a.as_in_context(mx.cpu()), mx.NDArray)
    assert_type(a.T.sqrt().sum(), mx.NDArray)
    assert_type([row for row in a], list[mx.NDArray])
    assert_type(float(a.sum()), float)
    a[0] = [5, 6]
    a[:] = 7
    a[1, :] += np.ones(2, np.float32)
    a += 1
    a *= a
    for dtype in ("float16", np.int8, np.dtype("int64"), float):
        assert_type(mx.nd.zeros(2, dtype=dtype), mx.NDArray)
    assert_type(mx.np.ones(SHAPE), mx.np.ndarray)
    assert_type(mx.np.ones(SHAPE) + 1, mx.np.ndarray)
    assert_type(mx.np.arange(3).as_nd_ndarray(), mx.NDArray)
    assert_type(mx.nd.from_dlpack(np.zeros(2)), mx.NDArray)
    assert_type(np.asarray(a), npt.NDArray[Any])
    assert np.from_dlpack(mx.nd.ones((2,))).shape == (2,)
    assert_type(mx.random.uniform(-1, 1, shape=SHAPE), mx.NDArray)
    assert_type(mx.nd.random_normal(shape=(2,)), mx.NDArray)
    assert_type(mx.nd.full((2,), 7), mx.NDArray)
    assert_type(mx.nd.arange(0, 4, 2, repeat=2, dtype="int32"), mx.NDArray)
    assert mx.test_utils.same(pickle.loads(pickle.dumps(a)), a)
    path = os.path.join(tempfile.mkdtemp(), "arrays")
    mx.nd.save(path, {"a": a, "b": mx.np.ones(2)})
    mx.nd.save(path, [a])
    assert len(mx.nd.load(path)) == 1


def total(arrays: Sequence[mx.nd.NDArray]) -> mx.nd.NDArray:
    """Arrays are of one class in a user's own functions, whatever way they are spelt."""
    result = arrays[0].copy()
    for array in arrays[1:]:
        result += array
    return result


def test_a_function_of_a_user() -> None:
    assert total([mx.nd.ones(2), mx.np.ones(2)]).asnumpy().tolist() == [2, 2]


# ------------------------------------------------------------------------------------------------------- contexts, errors


def test_contexts_and_errors() -> None:
    here: mx.Context = mx.cpu(1)
    assert_type(here.device_id, int)
    assert_type(mx.num_gpus(), int)
    assert mx.Context("cpu", 1) == here and mx.current_context() != here
    with mx.kv.create("local") as kv:
        try:
            kv.pull("w")
        except KeyNotFoundError as error:
            assert_type(error.code, int)
        try:
            kv.init("w", mx.nd.ones(SHAPE))
            kv.push("w", mx.nd.ones(2))
        except (InvalidArgumentError, mx.MXNetError) as error:
            assert_type(str(error), str)
        errors: tuple[type[mx.KVError], ...] = (mx.errors.UnavailableError, mx.errors.DeadlineExceededError)
        assert all(issubclass(kind, OSError) for kind in errors)


# ---------------------------------------------------------------------------------------------------------------- tickets


def test_tickets() -> None:
    kv = mx.kv.create("local")
    kv.init("w", mx.nd.ones(SHAPE))
    ticket = kv.pull("w", async_op=True)
    called: list[bool] = []

    def note(done: mx.Ticket[mx.NDArray]) -> None:
        called.append(done.done())

    ticket.add_done_callback(note)
    assert_type(ticket.cancel(), bool)
    assert_type(ticket.cancelled(), bool)
    assert_type(ticket.wait(), mx.NDArray)
    kv.close()


# ----------------------------------------------------------------------------------------------------- jobs among threads


def test_a_job_among_threads() -> None:
    with mx.testing.cluster(workers=2, servers=1, mode="dist_sync", patience=60, on_death="fail") as job:
        assert_type(job, mx.testing.Cluster)
        assert_type(job.store(0), mx.KVStore)

        def train(kv: mx.KVStore) -> float:
            kv.init("w", mx.nd.zeros((1,)))
            kv.push("w", mx.nd.ones((1,)))
            return float(kv.pull("w"))

        results = job.run(train)
        assert_type(results, list[float])
        assert results == [2.0, 2.0]


def test_mxnets_names() -> None:
    mx.install_as_mxnet()
    assert_type(mx.base.py_str(b"w3"), str)
    assert_type(mx.kvstore.create("local"), mx.KVStore)
    server = mx.kvstore_server.KVStoreServer(mx.kv.create("local"))
    try:
        assert_type(server.run(), None)
    except mx.errors.FailedPreconditionError:
        pass


if __name__ == "__main__":
    for name, value in list(globals().items()):
        if name.startswith("test_"):
            value()
            print(name)
