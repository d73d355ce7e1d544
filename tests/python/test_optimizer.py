"""Optimizers in the store, by hand and under other frameworks' formulas."""

import inspect

import numpy as np
import pytest
import tensorkv as mx

OPTIMIZERS = [
    lambda: mx.optimizer.SGD(learning_rate=0.1, wd=0.01, rescale_grad=0.5, clip_gradient=0.4),
    lambda: mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.01),
    lambda: mx.optimizer.Adam(wd=0.01, clip_gradient=0.5),
    lambda: mx.optimizer.Test(rescale_grad=0.25),
]


def numpy_sgd(w, g, lr, wd, rescale, clip):
    return w - lr * (np.clip(g * rescale, -clip, clip) + wd * w)


def test_sgd_is_its_formula(kv):
    rng = np.random.default_rng(0)
    w = rng.normal(size=50)
    kv.init("w", mx.nd.array(w, dtype="float64"))
    kv.set_optimizer(OPTIMIZERS[0]())
    for _ in range(5):
        g = rng.normal(size=50)
        kv.push("w", mx.nd.array(g, dtype="float64"))
        w = numpy_sgd(w, g, 0.1, 0.01, 0.5, 0.4)
    np.testing.assert_allclose(kv.pull("w").asnumpy(), w, rtol=1e-13)


def test_adam_is_its_formula(kv):
    rng = np.random.default_rng(0)
    w, m, v = rng.normal(size=50), np.zeros(50), np.zeros(50)
    kv.init("w", mx.nd.array(w, dtype="float64"))
    kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.01, wd=0.1, clip_gradient=0.5))
    for t in range(1, 8):
        g = rng.normal(size=50)
        kv.push("w", mx.nd.array(g, dtype="float64"))
        g = np.clip(g + 0.1 * w, -0.5, 0.5)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    np.testing.assert_allclose(kv.pull("w").asnumpy(), w, rtol=1e-12)


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("multi_precision", [False, True])
def test_the_store_and_the_updater_have_the_same_bits(make, dtype, multi_precision):
    rng = np.random.default_rng(1)
    optimizer = make()
    optimizer.multi_precision = multi_precision
    weight = mx.nd.array(rng.normal(size=37)).astype(dtype)
    kv = mx.kv.create("local")
    kv.init(3, weight)
    kv.set_optimizer(optimizer)
    other = make()
    other.multi_precision = multi_precision
    updater = mx.optimizer.get_updater(other)
    for _ in range(4):
        grad = mx.nd.array(rng.normal(size=37)).astype(dtype)
        kv.push(3, grad)
        updater(3, grad, weight)
    stored = kv.pull(3)
    assert stored.astype("float32").asnumpy().tobytes() == weight.astype("float32").asnumpy().tobytes()


def test_multi_precision_keeps_what_sixteen_bits_lose(kv):
    kv.init(1, mx.nd.full((1,), 2048, dtype="float16"))
    kv.set_optimizer(mx.optimizer.create("test", rescale_grad=0.25, multi_precision=True))
    for _ in range(16):
        kv.push(1, mx.nd.ones((1,), dtype="float16"))
    assert kv.pull(1).asscalar() == 2052


def test_hyperparameters_change_at_the_next_push(kv):
    kv.init(1, mx.nd.zeros((1,)))
    sgd = mx.optimizer.SGD(learning_rate=1)
    kv.set_optimizer(sgd)
    kv.push(1, mx.nd.ones((1,)))
    sgd.set_learning_rate(0.5)
    kv.push(1, mx.nd.ones((1,)))
    sgd.learning_rate = 0.25
    sgd.rescale_grad = 2
    kv.push(1, mx.nd.ones((1,)))
    assert kv.pull(1).asscalar() == -2


def test_multipliers_by_key_and_by_name():
    for optimizer in (
        mx.optimizer.SGD(learning_rate=1),
        mx.optimizer.SGD(learning_rate=1, lr_scheduler=None, param_idx2name={0: "a_weight", 1: "b_weight"}),
    ):
        optimizer.set_lr_mult({"b_weight": 0.5} if optimizer.idx2name else {1: 0.5})
        kv = mx.kv.create("local")
        kv.init([0, 1], [mx.nd.zeros((1,))] * 2)
        kv.set_optimizer(optimizer)
        kv.push([0, 1], [mx.nd.ones((1,))] * 2)
        assert [kv.pull(k).asscalar() for k in (0, 1)] == [-1, -0.5]
    biased = mx.optimizer.SGD(wd=0.1, param_idx2name={0: "a_bias", 1: "a_weight"})
    assert (biased._get_wd(0), biased._get_wd(1)) == (0, 0.1), "biases do not decay, as in MXNet"


def test_a_scheduler_decides_the_learning_rate(kv):
    kv.init(1, mx.nd.zeros((1,)))
    optimizer = mx.optimizer.SGD(lr_scheduler=lambda num_update: 1.0 / num_update)
    kv.set_optimizer(optimizer)
    for _ in range(2):
        kv.push(1, mx.nd.ones((1,)))
    assert kv.pull(1).asscalar() == -1.5
    with pytest.raises(ValueError):
        optimizer.set_learning_rate(1)


def test_a_class_with_its_own_update_runs_in_the_store(kv):
    class Signed(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape)

        def update(self, index, weight, grad, state):
            state += 1
            weight -= grad.sign() * self.lr

    kv.init(1, mx.nd.zeros((2,)))
    kv.set_optimizer(Signed(learning_rate=0.5))
    for _ in range(2):
        kv.push(1, mx.nd.array([3, -4]))
    assert kv.pull(1).asnumpy().tolist() == [-1, 1]
    assert kv._updater.states[1].asnumpy().tolist() == [2, 2]


def test_a_subclass_of_a_builtin_with_its_own_update_is_not_replaced(kv):
    class Frozen(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            pass

    kv.init(1, mx.nd.ones((1,)))
    kv.set_optimizer(Frozen())
    kv.push(1, mx.nd.ones((1,)))
    assert kv.pull(1).asscalar() == 1


def test_create_by_name_and_mistakes(kv):
    assert isinstance(mx.optimizer.create("SGD", learning_rate=1), mx.optimizer.SGD)
    assert mx.optimizer.Optimizer.create_optimizer("adam").learning_rate == 0.001
    with pytest.raises(KeyError, match=r"did you mean 'sgd'\? There are adadelta, adagrad, adam"):
        mx.optimizer.create("sgdd")
    with pytest.raises(NotImplementedError, match="defines no update"):
        kv.init(1, mx.nd.ones((1,)))
        kv.set_optimizer(mx.optimizer.Optimizer())
        kv.push(1, mx.nd.ones((1,)))
    with pytest.raises(TypeError):
        kv.set_optimizer("sgd")
    kv.set_optimizer(mx.optimizer.Adam())
    kv.init(2, mx.nd.ones((2,), dtype="int32"))
    with pytest.raises(ValueError, match="push 2: program adam does not update int32 keys .*leave this key out"):
        kv.push(2, mx.nd.ones((2,), dtype="int32"))


def test_the_store_of_integers_runs_integer_programs(kv):
    kv.init(1, mx.nd.zeros((2,), dtype="int64"))
    kv.set_optimizer(mx.optimizer.Test(rescale_grad=-3))
    kv.push(1, [mx.nd.full((2,), 2**40, dtype="int64")] * 2)
    assert kv.pull(1).asnumpy().tolist() == [-3 * 2**41] * 2


@pytest.mark.parametrize(
    "make_store", [lambda: mx.kv.create("local"), lambda: mx.kv.create("dist_sync", bootstrap="self")]
)
def test_the_same_optimizer_again_keeps_its_states_and_another_one_does_not(make_store):
    def adam(**other):
        return mx.optimizer.Adam(learning_rate=0.5, **other)

    def after(optimizers):
        with make_store() as store:
            store.init(1, mx.nd.array([1, -2, 3]))
            for optimizer in optimizers:
                if optimizer:
                    store.set_optimizer(optimizer)
                store.push(1, mx.nd.array([1, 0.5, -1]))
            return store.pull(1).asnumpy().tolist()

    assert after([adam(), None, None]) == after([adam(), adam(), adam()])
    twice = adam()
    assert after([twice, None]) == after([twice, twice])
    assert after([adam(), None]) != after([adam(), adam(beta1=0.5)])
    scheduled = [adam(lr_scheduler=mx.lr_scheduler.CosineScheduler(5)) for _ in range(2)]
    assert after([scheduled[0], None]) == after(scheduled)
    weighted = [adam(), adam()]
    weighted[1].set_lr_mult({1: 0.5})
    assert after([weighted[0], None]) != after(weighted)


def test_the_optimizer_that_goes_on_is_the_one_that_was_set_last(kv):
    first, second = mx.optimizer.SGD(learning_rate=1), mx.optimizer.SGD(learning_rate=1)
    kv.init(1, mx.nd.zeros((1,)))
    kv.set_optimizer(first)
    kv.set_optimizer(second)
    first.learning_rate = 100
    kv.push(1, mx.nd.ones((1,)))
    second.learning_rate = 2
    kv.push(1, mx.nd.ones((1,)))
    assert kv.pull(1).asscalar() == -3


# ---------------------------------------------------------------------------------------------------------------- mistakes

CLASSES = sorted(
    {c for c in mx.optimizer.Optimizer.opt_registry.values() if c.__module__.startswith("tensorkv")}, key=str
)


@pytest.mark.parametrize("make", [*CLASSES, mx.optimizer.Optimizer], ids=lambda c: c.__name__)
def test_each_hyperparameter_that_is_no_number_is_refused_by_its_name(make):
    numbers = {
        p.name: p.default
        for klass in (make, mx.optimizer.Optimizer)
        for p in inspect.signature(klass).parameters.values()
        if p.annotation.startswith(("float", "int"))
    }
    unused = {"warmup_epochs", "updates_per_epoch", "begin_epoch", "num_epochs", "batch_scale"}  # of LBSGD
    assert {"learning_rate", "wd", "rescale_grad", "clip_gradient", "begin_num_update"} <= set(numbers)
    for name in set(numbers) - unused:
        for wrong in ("a", [1.0], np.ones(2), 1j):
            with pytest.raises(mx.errors.InvalidArgumentError, match=rf"^{name}: .* a number is needed"):
                make(**{name: wrong})
        make(**{name: np.float32(1)})


def test_a_hyperparameter_that_becomes_no_number_stays_what_it_was():
    optimizer = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    with pytest.raises(mx.errors.InvalidArgumentError, match="learning_rate: 'fast'"):
        optimizer.learning_rate = "fast"
    with pytest.raises(mx.errors.InvalidArgumentError, match="momentum: None"):
        optimizer.momentum = None
    assert (optimizer.lr, optimizer.momentum) == (0.1, 0.9)


@pytest.mark.parametrize(
    ("name", "near"),
    [("learning_rte", "learning_rate"), ("momentun", "momentum"), ("rescale", "rescale_grad"), ("decay_of_it", None)],
)
def test_an_argument_that_no_optimizer_has_proposes_the_nearest(name, near):
    class Mine(mx.optimizer.SGD):
        def __init__(self, speed=1, **options):
            super().__init__(**options)

    for make in (mx.optimizer.SGD, Mine, lambda **options: mx.optimizer.create("sgd", **options)):
        with pytest.raises(TypeError, match=rf"no argument '{name}'" + (f"; did you mean '{near}'" if near else "$")):
            make(**{name: 1})
    with pytest.raises(TypeError, match=r"Mine\(\) has no argument 'spead'; did you mean 'speed'"):
        Mine(spead=1)


@pytest.mark.parametrize("name", ["_update_impl", "_get_lrs", "fused_step"])
def test_a_hook_that_only_mxnets_update_calls_is_refused(name):
    """A class that defines update as well may call the hook itself."""
    hooked = type("Hooked", (mx.optimizer.SGD,), {name: lambda self, *args: None})
    with pytest.raises(mx.errors.UnimplementedError, match=f"Hooked: no update calls {name} here"):
        hooked()
    type("Updating", (hooked,), {"update": lambda self, *args: getattr(self, name)(*args)})()


def test_an_optimizer_of_ones_own_asks_for_rates_as_in_mxnet():
    """The lists of MXNet 1.9.1: an update of several keys asks for all rates at once."""

    class Mine(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            return None

        def update(self, index, weight, grad, state):
            self._update_count([index])
            (lr,), (wd,) = self._get_lrs([index]), self._get_wds([index])
            weight[:] = weight - lr * (grad + wd * weight)

    mine = Mine(learning_rate=0.5, wd=0.25)
    mine.set_lr_mult({1: 2})
    kv = mx.kv.create()
    kv.set_optimizer(mine)
    for key, expected in ((0, 2 - 0.5 * 1.5), (1, 2 - 1.5)):
        kv.init(key, mx.nd.full((2,), 2))
        kv.push(key, mx.nd.ones((2,)))
        out = mx.nd.zeros((2,))
        kv.pull(key, out=out)
        assert out.tolist() == [expected] * 2
    assert mine._get_lrs([0, 1]) == [0.5, 1.0] and mine._get_wds((0,)) == [0.25]
    mine._update_count((5, 6))
    assert mine._index_update_count[5] == mine._index_update_count[6] == 1


@pytest.mark.parametrize("name", ["update", "update_multi_precision"])
def test_lists_are_updated_one_after_the_other(name):
    sgd = mx.optimizer.SGD(learning_rate=1)
    weights = [mx.nd.ones((2,)), mx.nd.full((3,), 5)]
    getattr(sgd, name)([0, 1], weights, [mx.nd.ones((2,)), mx.nd.full((3,), 2)], [None, None])
    assert weights[0].tolist() == [0, 0] and weights[1].tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="shorter"):
        getattr(sgd, name)([0, 1], weights, weights[:1], [None, None])


def test_states_of_an_updater_are_where_their_weights_are():
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.9))
    assert updater.states_synced == {}
    updater(3, mx.nd.ones((2,)), mx.nd.ones((2,)))
    assert updater.states_synced == {3: True}
