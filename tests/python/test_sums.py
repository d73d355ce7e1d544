"""Sums of 16-bit values: made in float32 and rounded once, wherever they are made."""

import numpy as np
import pytest
import tensorkv as mx

DTYPES = ["float16", "bfloat16"]
BASE = {"float16": 2048, "bfloat16": 256}  # the least power of two to which one cannot be added
STORES = ["local", "device", "dist_sync", "dist_async"]


def store_of(type):
    return mx.kv.create(type, **({"bootstrap": "self"} if type.startswith("dist") else {}))


def full(value, dtype, shape=(2,)):
    return mx.nd.full(shape, value, dtype=dtype)


def wide(array):
    return array.astype("float32").asnumpy().ravel().tolist()


class Own(mx.optimizer.Optimizer):
    """An optimizer of one's own, which only Python runs."""

    def create_state(self, index, weight):
        return mx.nd.zeros(weight.shape, dtype=weight.dtype_name)

    def update(self, index, weight, grad, state):
        state[:] = 0.5 * state + grad
        weight -= self.lr * state


class Changed(mx.optimizer.SGD):
    """A built-in whose update is changed."""

    def update(self, index, weight, grad, state):
        super().update(index, weight, mx.nd.clip(grad, -1e6, 1e6), state)


def by_function(kv, rate):
    def update(key, grad, weight):
        weight -= rate * grad

    kv.set_updater(update)


def by_optimizer(make, **given):
    return lambda kv, rate: kv.set_optimizer(make(learning_rate=rate, **given))


def by_updater(**given):
    return lambda kv, rate: kv.set_updater(mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=rate, **given)))


UPDATERS = {
    "function": by_function,
    "own": by_optimizer(Own),
    "own-master": by_optimizer(Own, multi_precision=True),
    "changed": by_optimizer(Changed),
    "changed-master": by_optimizer(Changed, multi_precision=True),
    "updater": by_updater(),
    "updater-master": by_updater(multi_precision=True),
}


@pytest.mark.parametrize("type", ["local", "device"])
@pytest.mark.parametrize("updater", UPDATERS)
def test_python_gets_a_sum_that_16_bits_cannot_hold(type, updater):
    with store_of(type) as kv:
        kv.init([1, 2], [full(0, "float16"), full(0, "float16", (2, 1))])
        UPDATERS[updater](kv, 0.01)
        large = full(60000, "float16")
        kv.push(1, [large, large])
        assert wide(kv.pull(1)) == [-1200, -1200]
        rows = mx.nd.sparse.row_sparse_array((full(60000, "float16", (1, 1)), [1]), shape=(2, 1), dtype="float16")
        kv.push(2, [rows, rows])
        assert wide(kv.pull(2)) == [0, -1200]
        kv.push(2, [rows, full(60000, "float16", (2, 1))])
        assert wide(kv.pull(2))[1] < -2000


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("updater", UPDATERS)
def test_python_gets_a_sum_that_is_not_rounded(dtype, updater):
    with store_of("local") as kv:
        kv.init(1, full(BASE[dtype] / 128, dtype))
        UPDATERS[updater](kv, 1 / 128)
        kv.push(1, [full(BASE[dtype], dtype), full(1, dtype)])
        assert wide(kv.pull(1)) == [-1 / 128] * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_own_optimizer_without_a_master_works_on_float32_as_a_function_does(dtype):
    seen = []

    class Looking(Own):
        def update(self, index, weight, grad, state):
            seen.append((weight.dtype, grad.dtype, state.dtype))
            super().update(index, weight, grad, state)

    with store_of("local") as kv:
        kv.init(1, full(1, dtype))
        kv.set_optimizer(Looking(learning_rate=0.5))
        kv.push(1, full(1, dtype))
        assert wide(kv.pull(1)) == [0.5, 0.5]
    assert seen == [(np.float32,) * 3]


def pushed(kv, key, values, verb):
    if verb == "push":
        kv.push(key, values)
    elif verb == "pushpull":
        kv.pushpull(key, values, out=full(0, "float32", values[0].shape))
    else:
        kv.push(key, values, async_op=True).wait()


@pytest.mark.parametrize("master", [False, True])
@pytest.mark.parametrize("type", STORES)
def test_lists_and_repeated_ids_have_the_bits_of_local(type, master):
    random = np.random.default_rng(5)

    def work(kv, draws):
        got = []
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, multi_precision=master))
        for dtype in DTYPES:
            shape = (40, 25)
            names = [f"{dtype}-{what}" for what in ("list", "pushpull", "async", "mixed", "table")]
            kv.init(names[:4], [full(1, dtype, shape)] * 4)
            kv.init_table(names[4], 25, dtype, 1.0)
            for arrays, ids in draws:
                values = [mx.nd.array(a).astype(dtype) for a in arrays]
                for name, verb in zip(names[:3], ("push", "pushpull", "async"), strict=True):
                    pushed(kv, name, values, verb)
                kv.push(names[3], [values[0].tostype("row_sparse"), values[1]])
                kv.push_rows(names[4], ids, values[0])
            got += [wide(one) for one in kv.pull(names[:4])]
            got.append(wide(kv.pull_rows(names[4], mx.nd.arange(12, dtype="int64"))))
        return got

    draws = [(random.normal(size=(3, 40, 25)).astype(np.float32), random.integers(0, 12, 40)) for _ in range(2)]
    with store_of(type) as kv, store_of("local") as local:
        assert work(kv, draws) == work(local, draws)


@pytest.mark.parametrize("dtype", DTYPES)
def test_workers_of_a_job_round_nothing_of_what_they_sum(dtype):
    base = BASE[dtype]

    def work(kv):
        ones = full(1, dtype, (3, 2))
        kv.init(["w", "both", "rows"], [full(base + 2, dtype, (3, 2))] * 3)
        kv.init_table("t", 2, dtype, float(base + 2))
        if kv.rank == 0:
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
        kv.barrier()
        # A worker sums base + 1, which 16 bits cannot represent; the other one pushes a single value.
        first = kv.rank == 0
        kv.push("w", [full(base, dtype, (3, 2)), ones] if first else ones)
        kv.push("both", [full(base, dtype, (3, 2)), ones] if not first else [full(2, dtype, (3, 2)), -ones])
        repeated = mx.nd.array([[base, base], [1, 1]]).astype(dtype)
        kv.push_rows("t", [4, 4] if first else [4], repeated if first else full(1, dtype, (1, 2)))
        rows = mx.nd.sparse.row_sparse_array((full(base, dtype, (1, 2)), [1]), shape=(3, 2), dtype=dtype)
        one = mx.nd.sparse.row_sparse_array((full(1, dtype, (1, 2)), [1]), shape=(3, 2), dtype=dtype)
        kv.push("rows", [rows, one] if first else one)
        return [wide(kv.pull(key)) for key in ("w", "both", "rows")], wide(
            kv.pull_rows("t", mx.nd.array([4, 5], dtype="int64"))
        )

    with mx.testing.cluster(workers=2, servers=2) as job:
        for dense, table in job.run(work):
            assert dense == [[0.0] * 6, [0.0] * 6, [base + 2.0] * 2 + [0.0] * 2 + [base + 2.0] * 2]
            assert table == [0.0] * 2 + [base + 2.0] * 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_job_without_an_updater_rounds_once(dtype):
    base = BASE[dtype]

    def work(kv):
        kv.init("w", full(0, dtype))
        kv.push("w", [full(base, dtype), full(1, dtype)] if kv.rank == 0 else full(1, dtype))
        return wide(kv.pull("w"))

    with mx.testing.cluster(workers=2) as job:
        assert job.run(work) == [[base + 2.0] * 2] * 2


@pytest.mark.parametrize("store", ["dist_sync", "device"])
def test_what_is_owed_to_a_16_bit_key_is_added_before_the_sum_is_rounded(store):
    with store_of(store) as kv:
        kv.init("w", full(2052, "float16"))
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
        kv.set_gradient_compression({"type": "2bit", "threshold": 4096})
        kv.push("w", full(3, "float16"))  # all of it is owed
        assert wide(kv.pull("w")) == [2052] * 2
        kv.set_gradient_compression({"type": "none"})
        kv.push("w", full(2048, "float16"))
        assert wide(kv.pull("w")) == [1] * 2


def test_repeated_ids_of_a_sparse_tensor_are_summed_in_float32():
    torch = pytest.importorskip("torch")
    values = torch.tensor([[2048], [1], [1]], dtype=torch.float16)
    tensor = torch.sparse_coo_tensor(torch.tensor([[1, 1, 1]]), values, (3, 1))
    with store_of("local") as kv:
        kv.init("rows", tensor)
        kv.init("w", full(0, "float16", (3, 1)))
        kv.push("w", [tensor, full(0, "float16", (3, 1))])
        assert wide(kv.pull("w")) == [0, 2050, 0]
        assert wide(kv.pull_rows("rows", mx.nd.array([1], dtype="int64"))) == [2050]
