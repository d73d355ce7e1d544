"""Every optimizer against its formula, against MXNet and PyTorch, and in every kind of store the same bits."""

import json
import pathlib

import numpy as np
import pytest
import tensorkv as mx
from optimizer_cases import CASES, COUNT, FORMULA_ONLY, STEPS, formula, gradient, start

ORACLE = json.loads(pathlib.Path(__file__).with_name("optimizer_oracle.json").read_text())
STORES = {
    "local": lambda: mx.kv.create("local"),
    "dist_sync": lambda: mx.kv.create("dist_sync", bootstrap="self"),
}


def make(case):
    name, arguments = CASES[case]
    return getattr(mx.optimizer, name)(**arguments)


def run(store, case, dtype, gradients):
    """Return the weights after each gradient was pushed."""
    with STORES[store]() as kv:
        kv.init("w", mx.nd.array(start(), dtype=dtype))
        kv.set_optimizer(make(case))
        for one in gradients:
            kv.push("w", mx.nd.array(one, dtype=dtype))
        return kv.pull("w").asnumpy()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("store", STORES)
def test_it_is_its_formula(store, case):
    gradients = [gradient(step) for step in range(1, STEPS + 1)]
    weights, update = np.array(start()), formula(case)
    for step, one in enumerate(gradients, 1):
        weights = update(weights, np.array(one), step)
    np.testing.assert_allclose(run(store, case, "float64", gradients), weights, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("case", [case for case in CASES if case not in FORMULA_ONLY])
def test_it_is_what_other_libraries_compute(case):
    ours = run("local", case, "float32", [gradient(step) for step in range(1, STEPS + 1)])
    assert ORACLE[case], "somebody else has it"
    for library, weights in ORACLE[case].items():
        np.testing.assert_allclose(ours, weights, rtol=2e-4, atol=2e-6, err_msg=library)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_servers_local_stores_and_updaters_have_the_same_bits(case, dtype):
    gradients = [gradient(step) for step in range(1, 8)]
    weight = mx.nd.array(start()).astype(dtype)
    updater = mx.optimizer.get_updater(make(case))
    results = []
    for store in STORES:
        with STORES[store]() as kv:
            kv.init(0, mx.nd.array(start()).astype(dtype))
            kv.set_optimizer(make(case))
            for one in gradients:
                kv.push(0, mx.nd.array(one).astype(dtype))
            results.append(kv.pull(0).astype("float64").asnumpy().tobytes())
    for one in gradients:
        updater(0, mx.nd.array(one).astype(dtype), weight)
    assert results == [weight.astype("float64").asnumpy().tobytes()] * 2


EXTREMES = {
    "nothing": [0.0] * 6,
    "a NaN": [1.0, float("nan"), 1.0, 1.0, 1.0, 1.0],
    "an infinity": [1.0, float("inf"), 1.0, 1.0, 1.0, 1.0],
    "both infinities": [1.0, float("inf"), float("-inf"), 1.0, 1.0, 1.0],
    "denormals": [5e-324, -5e-324, 1e-310, 0.0, 1e-310, 5e-324],
    "the largest": [1.7e308, -1.7e308, 1.7e308, 1.0, 1.0, 0.0],
    "the smallest": [1e-200, -1e-200, 1e-160, 0.0, 1e-160, 1e-200],
    "a minus zero": [-0.0, 0.0, -0.0, 1.0, -0.0, 0.0],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("clips", [True, False])
def test_extreme_gradients_give_what_the_formula_gives(case, clips, monkeypatch):
    name, arguments = CASES[case]
    if not clips:
        monkeypatch.setitem(CASES, case, (name, {**arguments, "clip_gradient": float("inf")}))
    columns = list(EXTREMES.values())
    weights, update = np.array(start(len(columns))), formula(case)
    with mx.kv.create("local") as kv, np.errstate(all="ignore"):
        kv.init("w", mx.nd.array(weights, dtype="float64"))
        kv.set_optimizer(make(case))
        for step, one in enumerate(zip(*columns, strict=True), 1):
            kv.push("w", mx.nd.array(one, dtype="float64"))
            weights = update(weights, np.array(one), step)
            stored = kv.pull("w").asnumpy()
            for i, extreme in enumerate(EXTREMES):
                np.testing.assert_allclose(
                    stored[i], weights[i], rtol=1e-9, atol=1e-300, err_msg=f"{extreme}, step {step}"
                )


BIG = 600_000  # more than one chunk


@pytest.mark.parametrize("workers, servers", [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("name", ["LAMB", "LARS"])
def test_norms_are_of_the_whole_value_on_servers_too(name, workers, servers):
    values, grads = np.sin(np.arange(BIG)).astype("float32"), np.cos(np.arange(BIG)).astype("float32")
    optimizer = {"learning_rate": 0.5, "rescale_grad": 1 / workers}
    with mx.kv.create("local") as kv:
        kv.init("w", values)
        kv.set_optimizer(getattr(mx.optimizer, name)(**optimizer))
        for _ in range(3):
            kv.push("w", grads * workers)
        expected = kv.pull("w").asnumpy()
    assert not np.array_equal(expected, values)

    def work(kv):
        kv.set_optimizer(getattr(mx.optimizer, name)(**optimizer))
        kv.init("w", values)
        for _ in range(3):
            kv.push("w", grads)
        return kv.pull("w").asnumpy()

    with mx.testing.cluster(workers=workers, servers=servers) as cluster:
        for result in cluster.run(work):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("servers", [1, 2])
def test_a_key_that_has_parts_already_is_refused_and_nothing_changes(servers):
    def work(kv):
        kv.init("small", mx.nd.ones((4,)))
        kv.init("w", np.ones(BIG, "float32"))
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
        with pytest.raises(mx.errors.FailedPreconditionError, match="key 'w' lies in 3 parts.*'lamb'"):
            kv.set_optimizer(mx.optimizer.LAMB())
        kv.push("w", np.ones(BIG, "float32"))
        assert not kv.pull("w").asnumpy().any()
        kv.delete("w")
        kv.set_optimizer(mx.optimizer.LAMB())
        kv.push("small", mx.nd.ones((4,)))
        return kv.pull("small").asnumpy()[0]

    with mx.testing.cluster(workers=1, servers=servers) as cluster:
        assert cluster.run(work)[0] < 1


def test_a_value_of_more_than_one_part_is_refused_at_init():
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.set_optimizer(mx.optimizer.LARS())
        with pytest.raises(mx.errors.ResourceExhaustedError, match="init 'w': 268435457 bytes.*'lars'.*268435456"):
            kv.init("w", np.zeros((1 << 28) + 1, "int8"))


def test_lars_leaves_biases_to_the_plain_rate():
    def change(key, store="local", **arguments):
        with STORES[store]() as kv:
            kv.init(key, mx.nd.ones((4,)))
            kv.set_optimizer(mx.optimizer.LARS(learning_rate=0.5, eta=0.1, **arguments))
            kv.push(key, mx.nd.ones((4,)))
            return 1 - kv.pull(key).asnumpy()[0]

    for store in STORES:
        assert change("fc_bias", store) == 0.5
        assert change("fc_weight", store) == pytest.approx(0.05)
        assert change(3, store, param_idx2name={3: "bn_gamma"}) == 0.5
    updater = mx.optimizer.get_updater(mx.optimizer.LARS(learning_rate=0.5, eta=0.1))
    weight = mx.nd.ones((4,))
    updater("fc_bias", mx.nd.ones((4,)), weight)
    assert weight.asnumpy()[0] == 0.5


def test_lars_lets_the_momentum_grow_with_the_rate():
    def weights(correction):
        optimizer = mx.optimizer.LARS(learning_rate=0.5, momentum=0.5, momentum_correction=correction)
        with mx.kv.create("local") as kv:
            kv.init("bias", mx.nd.zeros((1,)))
            kv.set_optimizer(optimizer)
            kv.push("bias", mx.nd.ones((1,)))
            optimizer.lr = 1.0
            kv.push("bias", mx.nd.ones((1,)))
            return kv.pull("bias").asnumpy()[0]

    assert weights(False) == -0.5 - (0.5 * 0.5 + 1)
    assert weights(True) == -0.5 - (0.5 * 2 * 0.5 + 1)


SGLD = {"learning_rate": 0.25, "wd": 0.5, "rescale_grad": 0.5, "clip_gradient": 0.5}


def sgld(values, servers=0, seed=0, steps=2, key="w"):
    """Return the weights after some steps; in a local store without servers."""

    def work(kv):
        kv.init(key, values)
        kv.set_optimizer(mx.optimizer.SGLD(seed=seed, **SGLD))
        for _ in range(steps):
            kv.push(key, mx.nd.array(np.cos(np.arange(values.size)), dtype=values.dtype_name))
        return kv.pull(key).astype("float64").asnumpy()

    if servers == 0:
        with mx.kv.create("local") as kv:
            return work(kv)
    with mx.testing.cluster(workers=1, servers=servers) as cluster:
        return cluster.run(work)[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_sgld_draws_the_same_noise_on_any_number_of_servers(dtype):
    values = mx.nd.array(np.sin(np.arange(BIG))).astype(dtype)
    expected = sgld(values)
    for servers in (1, 3):
        np.testing.assert_array_equal(sgld(values, servers), expected)
    for other in (sgld(values, seed=1), sgld(values, key="v"), sgld(values, steps=1)):
        assert np.mean(other == expected) < 0.05


def test_sgld_is_half_a_step_and_normal_noise():
    values, gradient = np.sin(np.arange(BIG)), np.cos(np.arange(BIG))
    moved = sgld(mx.nd.array(values, dtype="float64"), steps=1)
    noise = moved - (values - 0.125 * (np.clip(0.5 * gradient, -0.5, 0.5) + 0.5 * values))
    assert abs(noise.mean()) < 5 * 0.5 / BIG**0.5
    assert abs(noise.var() - 0.25) < 5 * 0.25 * (2 / BIG) ** 0.5
    assert abs(np.mean(noise**4) - 3 * 0.25**2) < 5 * 0.25**2 * (96 / BIG) ** 0.5
    updater, weight = mx.optimizer.get_updater(mx.optimizer.SGLD(**SGLD)), mx.nd.array(values, dtype="float64")
    updater("w", mx.nd.array(gradient, dtype="float64"), weight)
    np.testing.assert_array_equal(weight.asnumpy(), moved)


def test_lbsgd_that_adds_batches_up_says_what_to_use():
    with pytest.raises(mx.errors.UnimplementedError, match="LBSGD: batch_scale=4.*LARS.*lr_scheduler"):
        mx.optimizer.LBSGD(batch_scale=4)


def test_every_class_has_a_case():
    named = {name for name, _ in CASES.values()}
    kinds = {kind for kind in map(mx.optimizer.__dict__.get, mx.optimizer.__all__) if isinstance(kind, type)}
    optimizers = {kind.__name__ for kind in kinds if issubclass(kind, mx.optimizer.Optimizer)}
    assert optimizers - named == {"Optimizer", "Test", "ccSGD", "SGLD"}
    assert COUNT > 16
