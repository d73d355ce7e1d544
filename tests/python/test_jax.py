"""tensorkv.jax: pytrees that train through the store train as they do in one process on the joined batch."""

import copy
import doctest
import pickle
import threading

import numpy as np
import pytest
import tensorkv as mx
from optimizer_cases import CASES, CLIP, WHOLE, whole_steps, whole_truth

jax = pytest.importorskip("jax")
import tensorkv.jax  # noqa: E402

pytestmark = pytest.mark.framework
WORKERS, STEPS = 2, 50


def start(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "layers": [
            {"w": jax.numpy.asarray(rng.normal(size=(5, 8)), "float32"), "b": jax.numpy.zeros(8)},
            {"w": jax.numpy.asarray(rng.normal(size=(8, 2)), "float32"), "b": jax.numpy.zeros(2)},
        ],
        "scale": jax.numpy.ones(()),
    }


@jax.jit
@jax.grad
def gradient(params, x):
    first, second = params["layers"]
    hidden = jax.numpy.tanh(x @ first["w"] + first["b"])
    found = params["scale"] * (hidden @ second["w"] + second["b"])
    return ((found - x[:, :2]) ** 2).mean()


def batch_of(step, part=None):
    x = np.random.default_rng(step).normal(size=(4 * WORKERS, 5)).astype("float32")
    return x if part is None else x[part * 4 : part * 4 + 4]


def alone(momentum=0.0):
    params = start()
    velocity = jax.tree_util.tree_map(jax.numpy.zeros_like, params)
    for step in range(STEPS):
        grads = gradient(params, batch_of(step))
        velocity = jax.tree_util.tree_map(lambda v, g: momentum * v - 0.1 * g, velocity, grads)
        params = jax.tree_util.tree_map(lambda p, v: p + v, params, velocity)
    return params


def close(found, wanted):
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(wanted)
    for one, other in zip(*map(jax.tree_util.tree_leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def together(function, mode="dist_sync", workers=WORKERS):
    with mx.testing.cluster(workers, 2, mode, patience=60) as job:
        return job.run(function)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_together_is_training_alone(momentum):
    def work(kv):
        optimizer = mx.optimizer.SGD(learning_rate=0.1, momentum=momentum)
        opt = mx.jax.KVOptimizer(start(seed=kv.rank), kv, optimizer)
        params = opt.params
        for step in range(STEPS):
            params = opt.step(gradient(params, batch_of(step, kv.rank)))
        return params

    for found in together(work):
        close(found, alone(momentum))


@pytest.mark.parametrize("case", [*WHOLE, "clip"])
def test_a_program_that_needs_a_value_whole_has_the_norm_of_all_workers(case):
    first, gradients = whole_steps(WORKERS)

    def work(kv):
        kind, arguments = CASES.get(case, (None, None))
        ours = getattr(mx.optimizer, kind)(**arguments) if kind else mx.Program(CLIP)
        opt = mx.jax.KVOptimizer({name: jax.numpy.asarray(value) for name, value in first.items()}, kv, ours)
        for workers in gradients:
            params = opt.step({name: jax.numpy.asarray(value) for name, value in workers[kv.rank].items()})
        return params

    results = together(work)
    for name, wanted in whole_truth(case, first, gradients).items():
        np.testing.assert_allclose(results[0][name], wanted, rtol=2e-5, atol=2e-6)
        assert (results[0][name] == results[1][name]).all()


def test_means_in_the_form_of_optax():
    def work(kv):
        mean = mx.jax.average(kv)
        params = mean.init(start(seed=kv.rank))
        for step in range(STEPS):
            updates, _ = mean.update(gradient(params, batch_of(step, kv.rank)), None, params)
            params = jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, updates)
        return params

    for found in together(work):
        close(found, alone())


def test_results_stay_what_they_are():
    opt = mx.jax.KVOptimizer(jax.numpy.zeros(1000), mx.kv.create(), mx.optimizer.SGD(learning_rate=1))
    first = opt.params
    second = opt.step(jax.numpy.ones(1000))
    opt.step(jax.numpy.ones(1000))
    assert first.max() == 0 and second.min() == second.max() == -1 and opt.params.max() == -2


def test_gradients_of_numpy_stay_what_they_are():
    opt = mx.jax.KVOptimizer({"w": np.zeros(2, np.float32)}, mx.kv.create(), mx.optimizer.SGD(learning_rate=1))
    grad = np.ones(2, np.float32)
    assert opt.step({"w": grad})["w"].tolist() == [-1, -1]
    assert opt.step({"w": grad})["w"].tolist() == [-2, -2]
    assert grad.tolist() == [1, 1]
    assert opt.steps == 2


def test_mistakes_are_said():
    kv = mx.kv.create()
    with pytest.raises(mx.errors.FailedPreconditionError, match="the store assigns"):
        mx.jax.KVOptimizer(start(), kv)
    with pytest.raises(mx.errors.InvalidArgumentError, match="type str"):
        mx.jax.KVOptimizer(start(), kv, "sgd")
    with pytest.raises(mx.errors.InvalidArgumentError, match="no arrays"):
        mx.jax.KVOptimizer({}, kv, mx.optimizer.SGD())
    numbers = jax.numpy.arange(3)
    for leaf, dtype in ((numbers, "int32"), (numbers > 0, "bool"), (np.arange(3), "int"), (7, "int")):
        for tree, name in (({"w": jax.numpy.zeros(2), "n": leaf}, r"\['n'\]"), ([start(), (leaf,)], r"\[1\]\[0\]")):
            with pytest.raises(mx.errors.InvalidArgumentError, match=f"KVOptimizer: {name} is {dtype}.*leave it out"):
                mx.jax.KVOptimizer(tree, kv, mx.optimizer.SGD())
    assert kv.keys() == []
    opt = mx.jax.KVOptimizer(start(), kv, mx.optimizer.SGD())
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"'scale' is in one only"):
        opt.step({"layers": start()["layers"]})
    with pytest.raises(mx.errors.FailedPreconditionError, match="jit"):
        jax.jit(opt.step)(start())
    with pytest.raises(mx.errors.InvalidArgumentError, match="shape"):
        opt.step(start() | {"scale": jax.numpy.ones(3)})
    assert kv.round("scale") == 0 and opt.steps == 0
    with pytest.raises(mx.errors.FailedPreconditionError, match="has an updater"):
        mx.jax.average(kv)
    with pytest.raises(mx.errors.FailedPreconditionError, match=r"update before init"):
        mx.jax.average(mx.kv.create()).update(start(), None)
    with pytest.raises(mx.errors.FailedPreconditionError, match=r"the store has an updater.*optimizer=None"):
        mx.jax.KVOptimizer(start(), kv, mx.optimizer.Adam(), prefix="other.")
    other = mx.jax.KVOptimizer(start(), kv, prefix="other.")
    assert "other.scale" in kv and other.params["scale"] == 1


def test_what_fails_half_way_leaves_store_and_optimizer_as_they_were():
    def work(kv):
        kv.init("scale", mx.nd.zeros((1,)))
        optimizer = mx.optimizer.SGD()
        with pytest.raises(mx.errors.AlreadyExistsError, match="'scale'"):
            mx.jax.KVOptimizer(start(), kv, optimizer)
        assert optimizer.rescale_grad == 1
        kv.barrier()
        kv.push("scale", mx.nd.ones((1,)))
        assert kv.pull("scale").asnumpy() == WORKERS, "assigned"

    together(work)


def test_means_need_sums():
    def work(kv):
        with pytest.raises(mx.errors.FailedPreconditionError, match="dist_async has no sums of all workers"):
            mx.jax.average(kv)

    together(work, "dist_async")


def test_a_store_of_means_neither_saves_nor_loads(tmp_path):
    """Such a store has sums of gradients, and a snapshot of them would look like one of the parameters."""
    kv, other = mx.kv.create(), mx.kv.create()
    other.init("scale", np.ones((), np.float32))
    there = other.save(str(tmp_path / "there"))
    mean = mx.jax.average(kv)
    kv.init("other", np.zeros(3, np.float32))
    kv.save(str(tmp_path / "before"))  # before init of the means the store is as any other
    mean.init(start())
    for call in (lambda: kv.save(str(tmp_path / "sums")), lambda: kv.load(there)):
        with pytest.raises(
            mx.errors.FailedPreconditionError, match=r"tkv\.jax\.average .*only sums of gradients; save the"
        ):
            call()
    assert not (tmp_path / "sums").exists()


def test_a_worker_that_skips_a_mean_is_told_of():
    has_ended = threading.Event()

    def work(kv):
        mean = mx.jax.average(kv)
        params = mean.init(start())
        if kv.rank == 1:
            assert has_ended.wait(60)
            return
        try:
            remedy = "; every worker makes the same number of steps: a worker that skips a step calls update with gradients of zero"
            with pytest.raises(mx.errors.DeadlineExceededError, match=rf"for worker 1 \(alive\), round 1{remedy}"):
                mean.update(params, None)
        finally:
            has_ended.set()

    with mx.testing.cluster(WORKERS, 1, patience=2) as job:
        job.run(work)


def test_an_init_of_average_that_fails_behind_its_keys_can_be_repeated(monkeypatch):
    kv = mx.kv.create()
    mean, pull = mx.jax.average(kv), kv.pull

    def fails(*args, **options):
        monkeypatch.setattr(kv, "pull", pull)
        raise mx.errors.UnavailableError("pull: server 1 is out of reach")

    monkeypatch.setattr(kv, "pull", fails)
    with pytest.raises(mx.errors.UnavailableError):
        mean.init(start())
    with pytest.raises(mx.errors.FailedPreconditionError, match=r"update before init"):
        mean.update(start(), None)
    with pytest.raises(mx.errors.InvalidArgumentError, match="a tree of 1 arrays"):
        mean.init({"scale": jax.numpy.ones(())})
    close(mean.init(start()), start())
    close(mean.update(start(), None)[0], start())
    with pytest.raises(mx.errors.AlreadyExistsError):
        mean.init(start())


def test_a_copy_of_average_sums_in_the_same_keys():
    mean = mx.jax.average(mx.kv.create())
    mean.init(start())
    close(copy.deepcopy(mean).update(start(), None)[0], start())


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda copies: copies.__name__)
def test_an_optimizer_is_not_copied(copies):
    opt = mx.jax.KVOptimizer(start(), mx.kv.create(), mx.optimizer.SGD())
    with pytest.raises(mx.errors.UnimplementedError, match="a KVOptimizer belongs to a store and cannot be copied"):
        copies(opt)


def test_a_pickle_of_average_is_refused_by_its_name():
    with pytest.raises(mx.errors.UnimplementedError, match="average: a transformation belongs to a store"):
        pickle.dumps(mx.jax.average(mx.kv.create()))


def test_the_examples_of_the_docstrings_run():
    failed, tried = doctest.testmod(mx.jax, globs={"tkv": mx, "jax": jax, "np": np})
    assert tried and not failed
