"""``kv.assign``: new values for keys that exist."""

import numpy as np
import pytest
import tensorkv as mx

KINDS = ["local", "device", "dist_sync", "dist_async"]


def store_of(kind):
    return mx.kv.create(kind, **({"bootstrap": "self"} if kind.startswith("dist") else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_replaced_and_states_go_on(kind):
    with store_of(kind) as kv:
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.5))
        kv.init(["a", "b"], [np.zeros(3, np.float32), np.ones(2, np.float32)])
        kv.push(["a", "b"], [np.ones(3, np.float32), np.ones(2, np.float32)])
        kv.assign("a", np.full(3, 10, np.float32))
        assert kv.pull("a").asnumpy().tolist() == [10] * 3
        kv.push(["a", "b"], [np.ones(3, np.float32), np.ones(2, np.float32)])
        assert kv.pull("a").asnumpy().tolist() == [8.5] * 3
        assert kv.pull("b").asnumpy().tolist() == [-1.5] * 2
        assert kv.round("a") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_keys_may_be_a_list_or_a_tree(kind):
    with store_of(kind) as kv:
        kv.init({"layer": {"w": np.zeros(2), "b": np.zeros(1)}})
        kv.assign({"layer": {"w": np.ones(2)}})
        kv.assign(["layer.b"], [np.full(1, 4.0)])
        assert kv.pull("layer.w").asnumpy().tolist() == [1, 1]
        assert kv.pull("layer.b").asnumpy().tolist() == [4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("key", "value", "error", "text"),
    [
        ("x", np.zeros(2), mx.errors.KeyNotFoundError, "assign 'x'"),
        ("a", np.zeros(3), mx.errors.InvalidArgumentError, r"assign 'a': shape \(3"),
        (
            "a",
            np.zeros(2, np.float32),
            mx.errors.InvalidArgumentError,
            "assign 'a': dtype float32, the key has float64",
        ),
        (["b", "b"], [np.zeros(2)] * 2, mx.errors.InvalidArgumentError, "the key stands twice"),
        ([], [], mx.errors.InvalidArgumentError, "empty"),
        ("t", np.zeros(2, np.float32), mx.errors.KVError, "assign 't'"),
    ],
)
def test_what_is_wrong_changes_nothing(kind, key, value, error, text):
    with store_of(kind) as kv:
        kv.init(["a", "b"], [np.ones(2), np.ones(2)])
        kv.init_table("t", 2)
        with pytest.raises(error, match=text):
            kv.assign(key, value)
        assert kv.pull("a").asnumpy().tolist() == kv.pull("b").asnumpy().tolist() == [1, 1]
        kv.push("a", np.full(2, 3.0))
        assert kv.pull("a").asnumpy().tolist() == [3, 3]


@pytest.mark.parametrize("mode", ["dist_sync", "dist_async"])
def test_the_values_of_rank_0_count_for_all(mode):
    shape = (600_000,)  # several chunks

    def work(kv):
        kv.init("w", np.zeros(shape, np.float32))
        kv.barrier()
        kv.pushpull("w", np.ones(shape, np.float32))
        kv.barrier()
        kv.assign("w", np.full(shape, 5 + kv.rank, np.float32))
        found = kv.pull("w").asnumpy()
        assert (found == 5).all()
        kv.barrier()
        kv.push("w", np.full(shape, 2, np.float32))
        if mode == "dist_sync":
            assert (kv.pull("w").asnumpy() == 4).all()

    with mx.testing.cluster(workers=2, servers=3, mode=mode, patience=30) as job:
        job.run(work)


def test_an_error_of_one_worker_is_the_error_of_all():
    def work(kv):
        kv.init("w", np.zeros(2))
        value = np.zeros(3 if kv.rank == 1 else 2)
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"assign 'w': shape \(3"):
            kv.assign("w", value)
        kv.push("w", np.ones(2))
        assert kv.pull("w").asnumpy().tolist() == [2, 2]

    with mx.testing.cluster(workers=2, servers=1, patience=30) as job:
        job.run(work)


def test_an_observer_assigns_nothing():
    with mx.testing.cluster(workers=1, servers=1) as job:

        def work(kv):
            kv.init("w", np.zeros(2))
            seen = job.observer()
            with pytest.raises(mx.errors.FailedPreconditionError, match="assign"):
                seen.assign("w", np.ones(2))

        job.run(work)
