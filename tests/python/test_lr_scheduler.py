"""Schedules: MXNet's functions, computed by stores and servers as by hand."""

import copy
import math
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorkv as mx

S = mx.lr_scheduler
UPDATES = range(1, 41)
STORES = {
    "local": lambda: mx.kv.create("local"),
    "dist_sync": lambda: mx.kv.create("dist_sync", bootstrap="self"),
}
WARM = {"warmup_steps": 5, "warmup_begin_lr": 0.1}
MAKERS = {
    "factor": lambda: S.FactorScheduler(step=7, factor=0.5, base_lr=0.8),
    "factor that stops": lambda: S.FactorScheduler(step=3, factor=0.1, stop_factor_lr=0.01, base_lr=1),
    "factor after a warm-up": lambda: S.FactorScheduler(step=6, factor=0.5, base_lr=1, **WARM),
    "steps": lambda: S.MultiFactorScheduler([4, 9, 30], factor=0.25, base_lr=1, **WARM),
    "polynomial": lambda: S.PolyScheduler(30, base_lr=1, pwr=2, final_lr=0.05, **WARM),
    "root": lambda: S.PolyScheduler(30, base_lr=1, pwr=0.5),
    "cosine": lambda: S.CosineScheduler(30, base_lr=1, final_lr=0.1, **WARM),
    "constant warm-up": lambda: S.CosineScheduler(30, base_lr=1, warmup_mode="constant", **WARM),
}


def mxnets(name, n):
    """Return the learning rate by the formulas of MXNet's documentation."""
    warm = name in ("factor after a warm-up", "steps", "polynomial", "cosine")
    if (warm or name == "constant warm-up") and n < 5:
        return 0.1 + 0.9 * n / 5 if warm else 0.1
    begin = 5 if warm or name == "constant warm-up" else 0
    done = (min(n, 30) - begin) / (30 - begin)
    return {
        "factor": lambda: 0.8 * 0.5 ** ((n - 1) // 7),
        "factor that stops": lambda: max(0.01, 0.1 ** ((n - 1) // 3)),
        "factor after a warm-up": lambda: 0.5 ** ((n - 1) // 6),
        "steps": lambda: 0.25 ** sum(n > step for step in (4, 9, 30)),
        "polynomial": lambda: 0.05 + 0.95 * (1 - done) ** 2,
        "root": lambda: (1 - done) ** 0.5,
        "cosine": lambda: 0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2,
        "constant warm-up": lambda: (1 + math.cos(math.pi * done)) / 2,
    }[name]()


@pytest.mark.parametrize("name", MAKERS)
def test_it_is_mxnets_function(name):
    schedule = MAKERS[name]()
    for n in UPDATES:
        assert schedule(n) == pytest.approx(mxnets(name, n), rel=1e-13, abs=1e-15), n


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", MAKERS)
def test_stores_compute_it_themselves(store, name):
    with STORES[store]() as kv:
        kv.init(1, mx.nd.zeros((1,), dtype="float64"))
        kv.set_optimizer(mx.optimizer.SGD(lr_scheduler=MAKERS[name]()))
        assert kv._running is not None, "no Python"
        before = 0.0
        for n in UPDATES:
            kv.push(1, mx.nd.ones((1,), dtype="float64"))
            after = kv.pull(1).asscalar()
            assert before - MAKERS[name]()(n) == after, n
            before = after


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["SGD", "Adam", "NAG", "Ftrl"])
def test_stores_and_updaters_have_the_same_bits(store, kind):
    def make():
        schedule = S.CosineScheduler(8, warmup_steps=2)
        return getattr(mx.optimizer, kind)(
            learning_rate=0.5, lr_scheduler=schedule, begin_num_update=1, wd=0.1, param_idx2name={3: "w_weight"}
        )

    optimizer, weight = make(), mx.nd.ones((4,))
    optimizer.set_lr_mult({3: 0.3})
    updater = mx.optimizer.get_updater(optimizer)
    other = make()
    other.set_lr_mult({3: 0.3})
    with STORES[store]() as kv:
        kv.init(3, weight)
        kv.set_optimizer(other)
        assert kv._running is not None
        for n in range(10):
            gradient = mx.nd.array([n, 1, -1, 0.5])
            kv.push(3, gradient)
            updater(3, gradient, weight)
        assert kv.pull(3).asnumpy().tobytes() == weight.asnumpy().tobytes()


def test_the_learning_rate_of_the_optimizer_is_the_base():
    for schedule in (S.PolyScheduler(10), S.CosineScheduler(10), S.FactorScheduler(3, 0.5)):
        optimizer = mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=schedule)
        assert (schedule.base_lr, optimizer.learning_rate, schedule.warmup_final_lr) == (0.5, 0.5, 0.5)


OPTIMIZERS = sorted(set(mx.optimizer.Optimizer.opt_registry.values()), key=lambda klass: klass.__name__)


@pytest.mark.parametrize("klass", [k for k in OPTIMIZERS if k.__module__.startswith("tensorkv") and k._mapping])
def test_the_base_of_the_schedule_counts_where_no_learning_rate_is_given(klass):
    schedule = S.FactorScheduler(step=2, factor=0.5, base_lr=0.25)
    optimizer = klass(lr_scheduler=schedule)
    assert (schedule.base_lr, optimizer.learning_rate) == (0.25, 0.25)
    created = mx.optimizer.create(klass.__name__, lr_scheduler=S.FactorScheduler(step=2, factor=0.5, base_lr=0.25))
    assert created.learning_rate == 0.25
    assert klass(lr_scheduler=schedule, learning_rate=0.125).learning_rate == 0.125
    assert klass().learning_rate == klass().lr == klass._learning_rate


@pytest.mark.parametrize("store", STORES)
def test_the_learning_rate_of_an_optimizer_that_a_store_runs_is_the_rate_now(store):
    schedule = S.FactorScheduler(2, 0.5, base_lr=1.0)
    optimizer = mx.optimizer.SGD(lr_scheduler=schedule)
    twin = mx.optimizer.get_updater(mx.optimizer.SGD(lr_scheduler=S.FactorScheduler(2, 0.5, base_lr=1.0)))
    weight = mx.nd.zeros((1,))
    with STORES[store]() as kv:
        kv.init(["a", "b"], [weight] * 2)
        kv.push("a", weight)  # before the optimizer: no update
        kv.set_optimizer(optimizer)
        assert (optimizer.num_update, optimizer.learning_rate) == (0, 1.0)
        for _ in range(5):
            kv.push("a", mx.nd.ones((1,)))
            twin("a", mx.nd.ones((1,)), weight)
            assert (optimizer.num_update, optimizer.learning_rate) == (
                twin.optimizer.num_update,
                twin.optimizer.learning_rate,
            )
        kv.push(["b"], [weight])
        with pytest.raises(mx.errors.KVError):
            kv.push("a", mx.nd.ones((7,)))
        kv.set_optimizer(optimizer)  # the same one goes on
        assert optimizer.num_update == 5 and copy.deepcopy(optimizer).num_update == 5
        other = mx.optimizer.SGD(lr_scheduler=schedule, begin_num_update=7)
        kv.set_optimizer(other)
        kv.push("b", weight)
        assert (optimizer.num_update, other.num_update) == (5, 8)
        kv.delete("a")
        kv.init("a", weight)
        kv.push("a", weight)
        assert other.num_update == 8
    assert (optimizer.num_update, other.num_update, optimizer.learning_rate) == (5, 8, 0.25)
    with STORES[store]() as kv:  # begins with fresh states
        kv.set_optimizer(optimizer)
        kv.init("a", weight)
        kv.push("a", weight)
        assert optimizer.num_update == 1


def test_each_worker_that_has_set_the_optimizer_knows_the_rate():
    with mx.testing.cluster(workers=2) as job:

        def work(kv):
            optimizer = mx.optimizer.SGD(lr_scheduler=S.FactorScheduler(1, 0.5, base_lr=1.0))
            kv.init(0, mx.nd.zeros((1,)))
            kv.set_optimizer(optimizer)
            for _ in range(3):
                kv.push(0, mx.nd.ones((1,)))
            return optimizer.num_update, optimizer.learning_rate, kv.pull(0).asscalar()

        assert job.run(work) == [(3, 0.25, -3.5)] * 2


def test_a_change_of_the_schedule_counts_at_the_next_push(kv):
    schedule = S.FactorScheduler(100, base_lr=1.0)
    kv.init(1, mx.nd.zeros((1,)))
    kv.set_optimizer(mx.optimizer.SGD(lr_scheduler=schedule))
    kv.push(1, mx.nd.ones((1,)))
    schedule.base_lr = 0.25
    kv.push(1, mx.nd.ones((1,)))
    assert kv.pull(1).asscalar() == -1.25
    schedule.base_lr = "fast"
    with pytest.raises(mx.errors.InvalidArgumentError, match="base_lr: 'fast'"):
        kv.push(1, mx.nd.ones((1,)))
    assert kv.pull(1).asscalar() == -1.25


def test_another_form_of_schedule_needs_set_optimizer(kv):
    optimizer = mx.optimizer.SGD(lr_scheduler=S.MultiFactorScheduler([2], 0.5))
    kv.init(1, mx.nd.zeros((1,)))
    kv.set_optimizer(optimizer)
    optimizer.lr_scheduler.step.append(3)
    with pytest.raises(mx.errors.FailedPreconditionError, match=r"lr_scheduler: .*set_optimizer again"):
        kv.push(1, mx.nd.ones((1,)))
    for other in (None, S.PolyScheduler(10), lambda n: 0.1):
        with pytest.raises(mx.errors.FailedPreconditionError, match="lr_scheduler: .*set_optimizer again"):
            optimizer.lr_scheduler = other
    kv.set_optimizer(optimizer)
    kv.push(1, mx.nd.ones((1,)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: S.FactorScheduler(0), "step: 0, a whole number from 1"),
        (lambda: S.FactorScheduler(2.5), "step: 2.5"),
        (lambda: S.FactorScheduler(True), "step: True"),
        (lambda: S.FactorScheduler(float("inf")), "step: inf, a whole number from 1"),
        (lambda: S.FactorScheduler(np.nan), "step: nan, a whole number from 1"),
        (lambda: S.PolyScheduler(-float("inf")), "max_update: -inf"),
        (lambda: S.FactorScheduler(1, factor=1.5), "factor: 1.5"),
        (lambda: S.FactorScheduler(1, factor="half"), "factor: 'half'"),
        (lambda: S.MultiFactorScheduler([]), "step: "),
        (lambda: S.MultiFactorScheduler([3, 3]), "have to increase"),
        (lambda: S.MultiFactorScheduler(list(range(1, 60))), "1 to 50"),
        (lambda: S.PolyScheduler(5, warmup_steps=5), "max_update: 5, a whole number from 6"),
        (lambda: S.CosineScheduler(5, warmup_mode="slow"), "warmup_mode: 'slow'"),
        (lambda: S.CosineScheduler(5, warmup_begin_lr=1), "warmup_begin_lr: 1 is more than base_lr"),
        (lambda: S.CosineScheduler(5, warmup_steps=-1), "warmup_steps: -1"),
        (lambda: S.LRScheduler()(1), "defines no __call__"),
        (lambda: mx.optimizer.SGD(learning_rate=1, lr_scheduler=0.1), "lr_scheduler: type float"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(mx.errors.KVError, match=message):
        make()


class Inverse(S.LRScheduler):
    def __call__(self, num_update):
        return self.base_lr / num_update


class Halved(S.CosineScheduler):
    def __call__(self, num_update):
        return super().__call__(num_update) / 2


@pytest.mark.parametrize("make", [lambda: Inverse(1.0), lambda: Halved(10), lambda: lambda count: 0.5**count])
@pytest.mark.parametrize("optimizer", [mx.optimizer.SGD, mx.optimizer.Adam])
def test_a_schedule_of_the_user_gives_the_same_in_every_store(make, optimizer):
    """A local store calls it with the update; a distributed one takes its learning rate before the push."""

    def act(kv):
        with kv:
            kv.init(["a", "b"], [mx.nd.ones((2,))] * 2)
            made = optimizer(lr_scheduler=make(), wd=0.1)
            made.set_lr_mult({"b": 0.5})
            kv.set_optimizer(made)
            for n in range(5):
                kv.push("a", mx.nd.ones((2,)) * n)
                kv.pushpull(["a", "b"], [mx.nd.ones((2,))] * 2, out=[mx.nd.zeros((2,))] * 2)
            return [value.asnumpy().tolist() for value in kv.pull(["a", "b"])], made.num_update

    results = [act(make()) for make in STORES.values()]
    assert results[0][1] == 10 and all(result == results[0] for result in results)


def test_a_schedule_that_raises_or_a_push_that_fails_counts_no_update():
    def schedule(count):
        if count == 2:
            raise ZeroDivisionError("at 2")
        return 1.0 / count

    with STORES["dist_sync"]() as kv:
        kv.init(0, mx.nd.zeros((1,)))
        optimizer = mx.optimizer.SGD(lr_scheduler=schedule, wd=0)
        kv.set_optimizer(optimizer)
        kv.push(0, mx.nd.ones((1,)))
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="at 2"):
                kv.push(0, mx.nd.ones((1,)))
        assert optimizer.num_update == 1 and kv.pull(0).asscalar() == -1
        optimizer.lr_scheduler = lambda count: 1.0 * count
        for key, value in ((0, mx.nd.ones((3,))), (9, mx.nd.ones((1,))), ([0], None), ({"a": 1}, None)):
            with pytest.raises((mx.errors.KVError, TypeError)):
                kv.push(key, value)
            with pytest.raises((mx.errors.KVError, TypeError)):
                kv.pushpull(key, value, out=mx.nd.zeros((1,)))
        assert optimizer.num_update == 1
        kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == -3 and optimizer.learning_rate == 2
        optimizer.lr_scheduler = None  # the store goes on with `lr`
        optimizer.lr = 0.5
        kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == -3.5


@pytest.mark.parametrize("rate", [None, "fast", 1j])
def test_a_schedule_has_to_give_a_number(rate):
    with STORES["dist_sync"]() as kv:
        kv.init(0, mx.nd.zeros((1,)))
        kv.set_optimizer(mx.optimizer.SGD(lr_scheduler=lambda count: rate))
        with pytest.raises(mx.errors.InvalidArgumentError, match="lr_scheduler"):
            kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == 0


def test_schedules_have_mxnets_name():
    code = (
        "import tensorkv; tensorkv.install_as_mxnet(); from mxnet import lr_scheduler; import mxnet.lr_scheduler as m; "
    )
    code += "print(m.PolyScheduler(4)(1), lr_scheduler is m)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[1] == "True"
    assert np.isfinite(float(done.stdout.split()[0]))


class Noted:
    """A schedule of the user's that notes the updates it is asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, count):
        self.asked.append(count)
        return 1.0 / count


def one():
    return mx.nd.ones((1,))


def store_with(store, optimizer, keys=("w",)):
    kv = STORES[store]()
    kv.init(list(keys), [mx.nd.zeros((1,))] * len(keys))
    kv.set_optimizer(optimizer)
    return kv


@pytest.mark.parametrize("store", STORES)
def test_a_schedule_of_the_user_goes_on_after_load(store, tmp_path):
    with store_with(store, mx.optimizer.Adam(lr_scheduler=Noted())) as kv:
        for _ in range(5):
            kv.push("w", one())
        kv.save(tmp_path)
        kv.push("w", one())
        expected = kv.pull("w").asscalar()
    schedule = Noted()
    with store_with(store, mx.optimizer.Adam(lr_scheduler=schedule)) as kv:
        kv.load(tmp_path)
        kv.push("w", one())
        assert (schedule.asked, kv.round("w"), kv.pull("w").asscalar()) == ([6], 6, expected)


@pytest.mark.parametrize("store", STORES)
def test_each_store_asks_by_its_own_updates_of_the_key(store):
    optimizer = mx.optimizer.SGD(lr_scheduler=Noted(), begin_num_update=2)
    stores = [store_with(store, optimizer, keys=("a", "b")) for _ in range(2)]
    for _ in range(3):
        for kv in stores:
            kv.push("a", one())
    stores[0].push(["b", "a"], [one(), one()])
    assert optimizer.lr_scheduler.asked == [3, 3, 4, 4, 5, 5, 3, 6]
    assert optimizer.num_update == 6
    for kv in stores:
        kv.close()


@pytest.mark.parametrize("store", STORES)
def test_a_key_that_is_made_anew_begins_with_its_first_update_and_fresh_states(store):
    schedule = Noted()
    with STORES[store]() as kv:
        kv.init("w", mx.nd.zeros((1,)))
        kv.push("w", one() * 0)  # assigned, and no update
        kv.set_optimizer(mx.optimizer.SGD(momentum=0.5, lr_scheduler=schedule))
        for shape in ((1,), (3,)):
            kv.push("w", mx.nd.ones(kv.pull("w").shape))
            kv.push("w", mx.nd.ones(kv.pull("w").shape))
            kv.delete("w")
            kv.init("w", mx.nd.zeros(shape))
        kv.push("w", mx.nd.ones((3,)))
        assert (schedule.asked, kv.pull("w").asnumpy().tolist()) == ([1, 2, 1, 2, 1], [-1] * 3)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("verb", ["push", "pushpull"])
def test_threads_that_push_a_key_have_a_rate_each(store, verb):
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with store_with(store, mx.optimizer.SGD(lr_scheduler=float)) as kv:

            def work():
                for _ in range(100):
                    getattr(kv, verb)("w", mx.nd.ones((1,)))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (kv.pull("w").asscalar(), kv.round("w")) == (-400 * 401 / 2, 400)
    finally:
        sys.setswitchinterval(switch)


def test_threads_that_exchange_keys_do_not_wait_for_each_other():
    """A round is waited for outside of a thread's turn: that of worker 1 takes keys in the other order."""
    with mx.testing.cluster(workers=2) as job:

        def work(kv):
            kv.init(["a", "b"], [mx.nd.zeros((1,))] * 2)
            kv.set_optimizer(mx.optimizer.SGD(lr_scheduler=float))
            began = threading.Event()

            def first():
                began.set()
                kv.pushpull("ab"[kv.rank], mx.nd.ones((1,)))

            thread = threading.Thread(target=first)
            thread.start()
            began.wait()
            kv.pushpull("ba"[kv.rank], mx.nd.ones((1,)))
            thread.join()
            return [value.asscalar() for value in kv.pull(["a", "b"])]

        assert job.run(work) == [[-2, -2]] * 2


@pytest.mark.parametrize("given", [np.array, np.float32, lambda x: mx.nd.array([x]).reshape(())])
@pytest.mark.parametrize("store", [*STORES, "updater"])
def test_a_schedule_may_give_any_number(store, given):
    optimizer = mx.optimizer.SGD(lr_scheduler=lambda count: given(0.5))
    if store == "updater":
        weight = mx.nd.zeros((1,))
        mx.optimizer.get_updater(optimizer)("w", one(), weight)
    else:
        with store_with(store, optimizer) as kv:
            kv.push("w", one())
            weight = kv.pull("w")
    assert weight.asscalar() == -0.5


@pytest.mark.parametrize("given", [None, "0.5", np.ones(1), 1j])
@pytest.mark.parametrize("store", [*STORES, "updater"])
def test_what_is_no_number_names_the_schedule_the_key_and_the_update(store, given):
    def fading(count):
        return given

    optimizer = mx.optimizer.SGD(lr_scheduler=fading, begin_num_update=3)
    updater, weight = mx.optimizer.get_updater(optimizer), mx.nd.zeros((1,))
    with store_with(store if store in STORES else "local", optimizer) as kv:
        with pytest.raises(
            mx.errors.InvalidArgumentError,
            match=r"key 'w': lr_scheduler: fading \(.*\) gives .* for update 4, a number",
        ):
            updater("w", one(), weight) if store == "updater" else kv.push("w", one())
        assert (kv.round("w"), kv.pull("w").asscalar(), weight.asscalar(), optimizer.num_update) == (0, 0, 0, 3)


class Warmer(S.FactorScheduler):
    def get_warmup_lr(self, num_update):
        return 0.25 * num_update


@pytest.mark.parametrize("store", STORES)
def test_a_warm_up_of_the_users_own_is_used(store):
    schedule = Warmer(100, base_lr=8.0, warmup_steps=3, warmup_begin_lr=1.0)
    assert [schedule(count) for count in (1, 2, 3)] == [0.25, 0.5, 8]
    with store_with(store, mx.optimizer.SGD(lr_scheduler=schedule)) as kv:
        for _ in range(3):
            kv.push("w", one())
        assert kv.pull("w").asscalar() == -8.75


@pytest.mark.parametrize("count", [-1, math.nan, 0.5, "1", None])
def test_updates_begin_at_a_whole_number(count):
    with pytest.raises(mx.errors.InvalidArgumentError, match="begin_num_update: .*number"):
        mx.optimizer.SGD(begin_num_update=count)
    optimizer = mx.optimizer.SGD()
    with pytest.raises(mx.errors.InvalidArgumentError, match="begin_num_update: .*number"):
        optimizer.begin_num_update = count
    assert optimizer.begin_num_update == 0
