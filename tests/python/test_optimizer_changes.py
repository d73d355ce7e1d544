"""Every change of an optimizer, before and after a store runs it, has the effect that it has in Python, or is an error.

The model is `mx.optimizer.Updater` on plain arrays, which asks the optimizer at each update, as MXNet does.
"""

import copy
import inspect
import pickle
import types

import numpy as np
import pytest
import tensorkv as mx

KEYS = (0, 1)
STORES = {
    "local": lambda: mx.kv.create("local"),
    "device": lambda: mx.kv.create("device"),
    "dist_sync": lambda: mx.kv.create("dist_sync", bootstrap="self"),
}
ARGUMENTS = {"learning_rate": 0.25, "wd": 0.125, "param_idx2name": {0: "a_weight", 1: "b_weight"}}
MAKERS = {
    "SGD": lambda: mx.optimizer.SGD(**ARGUMENTS),
    "momentum": lambda: mx.optimizer.SGD(momentum=0.75, **ARGUMENTS),
    "Adam": lambda: mx.optimizer.Adam(clip_gradient=0.5, **ARGUMENTS),
    "Test": lambda: mx.optimizer.Test(rescale_grad=0.5),
    "ccSGD": lambda: mx.optimizer.ccSGD(**ARGUMENTS),
    "NAG": lambda: mx.optimizer.NAG(**ARGUMENTS),
    "NAG with momentum": lambda: mx.optimizer.NAG(momentum=0.75, **ARGUMENTS),
    "Signum": lambda: mx.optimizer.Signum(**ARGUMENTS),
    "signSGD": lambda: mx.optimizer.Signum(momentum=0, **ARGUMENTS),
    "AdamW": lambda: mx.optimizer.AdamW(**ARGUMENTS),
    "Adamax": lambda: mx.optimizer.Adamax(**ARGUMENTS),
    "Nadam": lambda: mx.optimizer.Nadam(**ARGUMENTS),
    "AdaGrad": lambda: mx.optimizer.AdaGrad(**ARGUMENTS),
    "AdaDelta": lambda: mx.optimizer.AdaDelta(**ARGUMENTS),
    "RMSProp": lambda: mx.optimizer.RMSProp(**ARGUMENTS),
    "centered RMSProp": lambda: mx.optimizer.RMSProp(centered=True, **ARGUMENTS),
    "Ftrl": lambda: mx.optimizer.Ftrl(**ARGUMENTS),
    "FTML": lambda: mx.optimizer.FTML(**ARGUMENTS),
    "SGLD": lambda: mx.optimizer.SGLD(**ARGUMENTS),
    "DCASGD": lambda: mx.optimizer.DCASGD(momentum=0.75, **ARGUMENTS),
    "LAMB": lambda: mx.optimizer.LAMB(clip_gradient=0.5, **ARGUMENTS),
    "LARS": lambda: mx.optimizer.LARS(momentum=0.75, **ARGUMENTS),
    "LBSGD": lambda: mx.optimizer.LBSGD(**ARGUMENTS),
    "LBSGD by norms": lambda: mx.optimizer.LBSGD(warmup_strategy="lars", momentum=0.75, **ARGUMENTS),
}


class Parameter:
    """A parameter as Gluon gives it to param_dict."""

    def __init__(self, lr_mult=1.0, wd_mult=1.0):
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult


def halve(index, weight, grad, state):
    weight *= 0.5


def setting(name, value):
    return lambda o: setattr(o, name, value)


# Changes of an optimizer, by the public name that they use. Each of `first` comes before set_optimizer.
CHANGES = {
    "lr": [setting("lr", 0.5)],
    "learning_rate": [setting("learning_rate", 0.5)],
    "set_learning_rate": [lambda o: o.set_learning_rate(0.5)],
    "wd": [setting("wd", 0.5), setting("wd", 0)],
    "rescale_grad": [setting("rescale_grad", 2)],
    "clip_gradient": [setting("clip_gradient", v) for v in (0.375, None, 0, -1)],
    "momentum": [setting("momentum", 0.5), setting("momentum", 0)],
    "beta1": [setting("beta1", 0.5)],
    "beta2": [setting("beta2", 0.5)],
    "epsilon": [setting("epsilon", 0.5)],
    **{
        name: [setting(name, 0.5)]
        for name in ("gamma1", "gamma2", "rho", "lamda1", "beta", "wd_lh", "float_stable_eps", "schedule_decay")
    },
    "clip_weights": [setting("clip_weights", v) for v in (0.5, None, 0)],
    "lower_bound": [setting("lower_bound", v) for v in (20, None)],
    "upper_bound": [setting("upper_bound", v) for v in (0.5, None)],
    "bias_correction": [setting("bias_correction", False)],
    "seed": [setting("seed", 7)],
    "lamda": [setting("lamda", 0.5)],
    "eta": [setting("eta", 0.5)],
    "eps": [setting("eps", 0.5)],
    "momentum_correction": [setting("momentum_correction", False)],
    "warmup_strategy": [setting("warmup_strategy", v) for v in ("lars", "sqrt")],
    "centered": [setting("centered", True), setting("centered", False)],
    "lr_mult": [
        setting("lr_mult", {0: 0.5}),
        lambda o: o.lr_mult.__setitem__(1, 0.5),
        lambda o: o.lr_mult.update({0: 0.5, "b_weight": 2}),
        lambda o: o.lr_mult.__ior__({"a_weight": 0.5}),
        lambda o: o.lr_mult.setdefault(1, 0.5),
    ],
    "set_lr_mult": [lambda o: o.set_lr_mult({0: 0.5, "b_weight": 2})],
    "wd_mult": [setting("wd_mult", {0: 0.5}), lambda o: o.wd_mult.__setitem__("b_weight", 0)],
    "set_wd_mult": [lambda o: o.set_wd_mult({0: 0})],
    "idx2name": [lambda o: (o.lr_mult.update(c_weight=0.5), o.idx2name.__setitem__(0, "c_weight"))],
    "param_dict": [
        lambda o: o.param_dict.__setitem__(1, Parameter(0.5, 2)),
        setting("param_dict", {0: Parameter(0.5, 0)}),
    ],
    "multi_precision": [setting("multi_precision", True)],
    "lazy_update": [setting("lazy_update", False)],
    "lr_scheduler": [setting("lr_scheduler", lambda count: 0.5 / count if count else 0.5)],
    "begin_num_update": [setting("begin_num_update", 5)],
    "num_update": [setting("num_update", 7)],
    "update": [setting("update", halve)],
    "update_multi_precision": [setting("update_multi_precision", halve)],
    "create_state": [setting("create_state", lambda index, weight: [mx.nd.ones(weight.shape)] * 2)],
    "create_state_multi_precision": [
        setting("create_state_multi_precision", lambda index, weight: [mx.nd.ones(weight.shape)] * 2)
    ],
}
UNUSED = {
    "batch_scale": "1, or an error",
    **dict.fromkeys(("warmup_epochs", "updates_per_epoch", "begin_epoch", "num_epochs"), "of a warm-up from 1 to 1"),
}
OF_THE_CLASS = {"opt_registry", "register", "create_optimizer", "set_lr_scale"}
PYTHON = {"lr_scheduler", "update", "update_multi_precision", "create_state"}
PYTHON |= {"create_state_multi_precision"}
CASES = [
    pytest.param(maker, name, i, id=f"{maker}-{name}-{i}")
    for maker, make in MAKERS.items()
    for name, changes in CHANGES.items()
    for i in range(len(changes))
    if hasattr(make(), name)
]


class Arrays:
    """The model: the same calls on arrays of this process."""

    def __init__(self, optimizer):
        self.updater = mx.optimizer.get_updater(optimizer)
        self.values = {}

    def init(self, key, value):
        self.values[key] = value.copy()

    def push(self, key, value):
        self.updater(key, value, self.values[key])

    def pull(self, key):
        return self.values[key]


def begin(store, dtype):
    for key in KEYS:
        store.init(key, mx.nd.array([1 + key, -2, 3], dtype=dtype))


def push(store, dtype, times=2):
    for _ in range(times):
        for key in KEYS:
            store.push(key, mx.nd.array([1.5, -0.25, 1 + key], dtype=dtype))


def values(store):
    return [store.pull(key).astype("float32").asnumpy().tolist() for key in KEYS]


def told(optimizer):
    return {name: value for name, value in vars(optimizer).items() if name != "_stores"}


def model(make, first=None, then=None, dtype="float32"):
    """Return the values after two pushes, a change and two more."""
    optimizer = make()
    if first:
        first(optimizer)
    arrays = Arrays(optimizer)
    begin(arrays, dtype)
    push(arrays, dtype)
    if then:
        then(optimizer)
    push(arrays, dtype)
    return values(arrays)


def test_the_table_has_every_public_name():
    public = {name for make in MAKERS.values() for name in dir(make()) if not name.startswith("_")}
    assert public == set(CHANGES) | set(UNUSED) | OF_THE_CLASS


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("maker", "name", "i"), CASES)
def test_a_change_before_set_optimizer_has_its_effect_or_is_an_error(store, maker, name, i):
    make, change = MAKERS[maker], CHANGES[name][i]
    dtype = "float16" if name == "multi_precision" else "float32"
    optimizer = make()
    change(optimizer)
    with STORES[store]() as kv:
        begin(kv, dtype)
        if store == "dist_sync" and name in PYTHON - {"lr_scheduler"}:
            with pytest.raises(mx.errors.UnimplementedError, match="set_optimizer: .*Python"):
                kv.set_optimizer(optimizer)
            return
        kv.set_optimizer(optimizer)
        try:
            expected = model(make, first=change, dtype=dtype)
        except mx.errors.InvalidArgumentError:  # two states where the built-in has another number
            with pytest.raises(mx.errors.InvalidArgumentError):
                push(kv, dtype)
            return
        push(kv, dtype, 4)
        assert values(kv) == expected


# Changes after which other states are needed.
OTHER_STATES = {(maker, "momentum", 0) for maker in ("SGD", "ccSGD", "NAG", "signSGD", "LBSGD")} | {
    ("Signum", "momentum", 1)
}
OTHER_STATES |= {("RMSProp", "centered", 0), ("centered RMSProp", "centered", 1)}
OTHER_STATES |= {("LBSGD", "warmup_strategy", 0), ("LBSGD by norms", "warmup_strategy", 1)}


def has_effect(store, maker, name, i):
    """Return whether a store takes a change while it runs the optimizer without Python."""
    return (
        name not in PYTHON | {"multi_precision", "lazy_update", "begin_num_update"}
        and (maker, name, i) not in OTHER_STATES
    )


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("maker", "name", "i"), CASES)
def test_a_change_after_set_optimizer_has_its_effect_or_is_an_error(store, maker, name, i):
    make, change = MAKERS[maker], CHANGES[name][i]
    optimizer = make()
    with STORES[store]() as kv:
        begin(kv, "float32")
        kv.set_optimizer(optimizer)
        push(kv, "float32")
        before = copy.deepcopy(told(optimizer))
        works = has_effect(store, maker, name, i)
        if works:
            change(optimizer)
        else:
            with pytest.raises(mx.errors.FailedPreconditionError, match=f"{name}.*set_optimizer again"):
                change(optimizer)
            assert told(optimizer) == before
        push(kv, "float32")
        assert values(kv) == model(make, then=change if works else None)


# Changes that rightly change no value, by optimizer. `weight += rescale_grad * grad` needs nothing else. The count of updates
# matters only to optimizers that correct a mean for its zero start, and to schedulers. A sign forgets the size of a gradient. A few
# steps in 16 bits are exact. The mean of equal gradients is the gradient.
COUNTS = {"num_update", "begin_num_update"}
IN_VAIN = {
    **dict.fromkeys(MAKERS, COUNTS),
    **dict.fromkeys(("Adam", "AdamW", "Adamax", "Nadam", "FTML", "SGLD"), {"num_update"}),
    "Test": set(CHANGES)
    - {"rescale_grad", "update", "update_multi_precision", "create_state", "create_state_multi_precision"},
    "signSGD": COUNTS | {"clip_gradient", "rescale_grad"},
    "Signum": COUNTS | {"clip_gradient", "rescale_grad", "multi_precision", "wd", "wd_mult", "set_wd_mult"},
    "LAMB": {"num_update", "beta1", "beta2"},
    "Ftrl": COUNTS | {"multi_precision"},
    "AdamW": {"num_update", "rescale_grad", "clip_gradient", "beta2"},
}
IN_VAIN = {maker: names | {"lazy_update"} for maker, names in IN_VAIN.items()}  # every gradient is dense here
# Changes without effect, because the value is already set or this form of the optimizer does not use it.
IN_VAIN_TOO = {(m, "clip_gradient", i) for m in MAKERS for i in (1, 2, 3)} - {
    (maker, "clip_gradient", i) for maker in ("Adam", "LAMB") for i in (1, 2, 3)
}
IN_VAIN_TOO |= {(m, "momentum", 1) for m in ("SGD", "ccSGD", "NAG", "signSGD", "LBSGD")}
IN_VAIN_TOO |= {(m, "clip_weights", i) for m in ("RMSProp", "centered RMSProp") for i in (1, 2)}
IN_VAIN_TOO |= {("RMSProp", "centered", 1), ("RMSProp", "gamma2", 0), ("centered RMSProp", "centered", 0)}
IN_VAIN_TOO |= {("Signum", "momentum", 0), ("LAMB", "lower_bound", 1), ("LAMB", "upper_bound", 1)}
IN_VAIN_TOO |= {
    ("LBSGD", "warmup_strategy", 1),
    ("LBSGD by norms", "warmup_strategy", 0),
    ("LARS", "momentum_correction", 0),
}


def test_the_changes_of_the_table_change_something():
    cases = {case.values for case in CASES}
    vain = {(maker, name, i) for maker, name, i in cases if not differs(maker, name, i)}
    assert vain == {case for case in cases if case[1] in IN_VAIN[case[0]]} | IN_VAIN_TOO


def differs(maker, name, i):
    dtype = "float16" if name == "multi_precision" else "float32"
    try:
        return model(MAKERS[maker], first=CHANGES[name][i], dtype=dtype) != model(MAKERS[maker], dtype=dtype)
    except mx.errors.InvalidArgumentError:
        return True


@pytest.mark.parametrize("store", STORES)
def test_factors_that_are_taken_away_count_one_again(store):
    for take_away in (
        lambda o: o.set_lr_mult({}),
        lambda o: o.lr_mult.clear(),
        lambda o: o.lr_mult.pop(0),
        lambda o: o.lr_mult.popitem(),
        lambda o: o.lr_mult.__delitem__(0),
    ):
        optimizer = mx.optimizer.SGD(learning_rate=1)
        optimizer.set_lr_mult({0: 0})
        with STORES[store]() as kv:
            kv.init(0, mx.nd.zeros((1,)))
            kv.set_optimizer(optimizer)
            kv.push(0, mx.nd.ones((1,)))
            take_away(optimizer)
            kv.push(0, mx.nd.ones((1,)))
            assert kv.pull(0).asscalar() == -1


@pytest.mark.parametrize("store", STORES)
def test_an_object_of_param_dict_that_changes_counts_from_the_next_push_on(store):
    parameter = Parameter()
    optimizer = mx.optimizer.SGD(learning_rate=1, param_dict={0: parameter})
    with STORES[store]() as kv:
        kv.init([0, 1], [mx.nd.zeros((1,))] * 2)
        kv.set_optimizer(optimizer)
        for factor, verb in ((1, kv.push), (0.5, kv.push), (0, kv.pushpull)):
            parameter.lr_mult = factor
            verb([1, 0], [mx.nd.ones((1,)), mx.nd.ones((1,))])
        assert kv.pull(0).asscalar() == -1.5
        parameter.lr_mult = None
        with pytest.raises(
            mx.errors.InvalidArgumentError, match="lr_mult of 0: None has type NoneType, a number is needed"
        ):
            kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == -1.5


def test_all_stores_that_run_an_optimizer_see_its_changes():
    optimizer = mx.optimizer.SGD(learning_rate=1)
    stores = [make() for make in STORES.values()]
    for kv in stores:
        kv.init(0, mx.nd.zeros((1,)))
        kv.set_optimizer(optimizer)
    optimizer.lr = 0.5
    stores[0].set_updater(None)
    for kv in stores:
        kv.push(0, mx.nd.ones((1,)))
    assert [kv.pull(0).asscalar() for kv in stores] == [1, -0.5, -0.5]
    for kv in stores:
        kv.close()
    optimizer.lr_scheduler = lambda count: 1.0  # nobody runs it any more
    assert not optimizer._stores


def test_a_store_that_refuses_an_optimizer_does_not_bind_it(kv):
    optimizer = mx.optimizer.SGD()
    kv.close()
    with pytest.raises(mx.errors.FailedPreconditionError):
        kv.set_optimizer(optimizer)
    optimizer.multi_precision = True


WRONG = {
    "lr": [None, "0.1", np.ones(1), 1j],
    "wd": [None],
    "rescale_grad": [[]],
    "clip_gradient": [float("nan"), "x"],
    "momentum": [None],
    "lr_mult": [None, 3, {0: None}, {(1, 2): 1.0}, {None: 1.0}],
    "wd_mult": [[1], {0: "x"}],
    "param_dict": [{0: object()}],
    "idx2name": [7],
}


@pytest.mark.parametrize("name", ["SGD", "LARS"])
def test_factors_that_are_no_dict_are_refused(name):
    optimizer = mx.optimizer.create(name)
    for wrong in (3, None, [1]):
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"wd_mult: type {type(wrong).__name__}, a dict"):
            optimizer.set_wd_mult(wrong)


@pytest.mark.parametrize("name", [*WRONG, "learning_rate", "set_learning_rate", "set_lr_mult", "set_wd_mult"])
@pytest.mark.parametrize("store", STORES)
def test_a_change_that_fails_leaves_everything_as_it_was(store, name):
    attribute = {"learning_rate": "lr", "set_learning_rate": "lr"}.get(name, name.removeprefix("set_"))
    with STORES[store]() as kv:
        optimizer = MAKERS["momentum"]()
        begin(kv, "float32")
        kv.set_optimizer(optimizer)
        for value in WRONG[attribute]:
            before = copy.deepcopy(told(optimizer))
            with pytest.raises((mx.errors.InvalidArgumentError, AttributeError)):
                getattr(optimizer, name)(value) if name.startswith("set_") else setattr(optimizer, name, value)
            assert told(optimizer) == before, value
        with pytest.raises(AttributeError):
            del optimizer.lr
        push(kv, "float32", 4)
        assert values(kv) == model(MAKERS["momentum"])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_before_set_optimizer_is_an_error_there(name):
    for value in WRONG[name]:
        with mx.kv.create("local") as kv, pytest.raises((mx.errors.InvalidArgumentError, AttributeError)):
            optimizer = mx.optimizer.SGD(momentum=0.5)
            setattr(optimizer, name, value)
            kv.set_optimizer(optimizer)


def test_a_failed_change_in_place_leaves_the_dict_as_it_was(kv):
    optimizer = mx.optimizer.SGD()
    optimizer.set_lr_mult({0: 0.5})
    kv.set_optimizer(optimizer)
    for change in (
        lambda table: table.__setitem__(1, None),
        lambda table: table.update({1: 2, 2: "x"}),
        lambda table: table.setdefault((1,), 1),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError):
            change(optimizer.lr_mult)
        assert optimizer.lr_mult == {0: 0.5}


# ---- classes of users

OVERRIDES = {
    "update": lambda self, index, weight, grad, state: halve(index, weight, grad, state),
    "update_multi_precision": lambda self, index, weight, grad, state: halve(index, weight, grad, state),
    "create_state": lambda self, index, weight: mx.nd.ones(weight.shape),
    "create_state_multi_precision": lambda self, index, weight: [mx.nd.ones(weight.shape)],
    "_get_lr": lambda self, index: 0.125,
    "_get_wd": lambda self, index: 0.5,
    "_update_count": lambda self, index: self._index_update_count.__setitem__(index, 3),
    "learning_rate": property(lambda self: 0.125),
    "lr": property(lambda self: 0.125, lambda self, value: None),
    "momentum": property(lambda self: 0.5, lambda self, value: None),
    "rescale_grad": property(lambda self: 0.5, lambda self, value: None),
    "lr_mult": property(lambda self: {0: 0.5}, lambda self, value: None),
    "__getattribute__": lambda self, name: 0.125 if name == "lr" else object.__getattribute__(self, name),
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", OVERRIDES)
def test_what_a_subclass_overrides_runs_as_python_or_is_refused(store, name):
    own = type("Own", (mx.optimizer.SGD,), {name: OVERRIDES[name]})

    def make():
        return own(momentum=0.75, **ARGUMENTS)

    with STORES[store]() as kv:
        begin(kv, "float32")
        if store == "dist_sync":
            with pytest.raises(mx.errors.UnimplementedError, match=f"{name}.*Own.*|Own has a {name} of its own"):
                kv.set_optimizer(make())
            return
        kv.set_optimizer(make())
        push(kv, "float32", 4)
        assert values(kv) == model(make)
        if name != "_update_count":
            assert values(kv) != model(MAKERS["momentum"])


def test_a_built_in_that_is_patched_runs_as_python(kv, monkeypatch):
    monkeypatch.setattr(mx.optimizer.SGD, "update", lambda self, *update: halve(*update))
    kv.init(0, mx.nd.ones((1,)))
    kv.set_optimizer(mx.optimizer.SGD())
    kv.push(0, mx.nd.ones((1,)))
    assert kv.pull(0).asscalar() == 0.5


@pytest.mark.parametrize("base", [mx.optimizer.Optimizer, mx.optimizer.SGD])
def test_an_update_of_a_users_class_gets_the_master_and_its_own_state(kv, base):
    class Own(base):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape, dtype=weight.dtype)

        def update(self, index, weight, grad, state):
            assert {a.dtype_name for a in (weight, grad, state)} == {"float32"}
            state += 1
            weight += grad * 0.25

    kv.init(0, mx.nd.full((1,), 2048, dtype="float16"))
    kv.set_optimizer(Own(multi_precision=True))
    for _ in range(16):
        kv.push(0, mx.nd.ones((1,), dtype="float16"))
    assert kv.pull(0).asscalar() == 2052 and kv._updater.states[0][1].asscalar() == 16


def test_an_updater_runs_as_it_is_in_a_store_of_one_process(kv):
    class Twice(mx.optimizer.Updater):
        def __call__(self, index, grad, weight):
            super().__call__(index, grad, weight)
            super().__call__(index, grad, weight)

    kv.init(0, mx.nd.zeros((1,)))
    kv.set_updater(Twice(mx.optimizer.SGD(learning_rate=1)))
    kv.push(0, mx.nd.ones((1,)))
    assert kv.pull(0).asscalar() == -2
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=1, momentum=1))
    updater.states[0] = [mx.nd.full((1,), 5)]
    kv.set_updater(updater)
    kv.push(0, mx.nd.ones((1,)))
    assert kv.pull(0).asscalar() == 2 and updater.states[0][0].asscalar() == 4
    updater.optimizer, updater.states = mx.optimizer.Test(), {}
    kv.push(0, mx.nd.ones((1,)))
    assert kv.pull(0).asscalar() == 3


def test_a_distributed_store_runs_a_plain_updater_and_refuses_what_stays_in_python():
    plain = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=1, momentum=0.5))
    with_states = copy.deepcopy(plain)
    with_states.states[0] = [mx.nd.zeros((1,))]
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init(0, mx.nd.zeros((1,)))
        with pytest.raises(mx.errors.UnimplementedError, match="set_updater: the updater has states"):
            kv.set_updater(with_states)
        with pytest.raises(mx.errors.UnimplementedError, match="set_updater: the updater Own is Python code"):
            kv.set_updater(type("Own", (mx.optimizer.Updater,), {})(plain.optimizer))
        kv.set_updater(plain)
        kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == -1 and kv._updater is plain
        for change in (
            lambda: plain.states.__setitem__(0, []),
            lambda: plain.states.update({0: []}),
            lambda: setattr(plain, "states", {0: []}),
            lambda: setattr(plain, "optimizer", mx.optimizer.Test()),
            lambda: plain(0, mx.nd.ones((1,)), mx.nd.ones((1,))),
            lambda: plain.states,
            plain.get_states,
        ):
            with pytest.raises(
                mx.errors.FailedPreconditionError, match="keeps the states itself; save_optimizer_states"
            ):
                change()
    assert plain.states == {}
    plain.states[0] = []


@pytest.mark.parametrize("keys", [0, [0]])
def test_an_update_that_fails_is_not_counted(keys):
    class Fails(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            self._update_count(index)
            raise ZeroDivisionError

    for optimizer, error in ((Fails(), ZeroDivisionError), (mx.optimizer.Adam(), ValueError)):
        updater = mx.optimizer.get_updater(optimizer)
        one = mx.nd.ones((2,))
        wrong = mx.nd.ones((3,))
        with pytest.raises(error):
            updater(keys, *(([wrong], [one]) if keys == [0] else (wrong, one)))
        assert (optimizer.num_update, optimizer._index_update_count, updater.states) == (0, {}, {})
    with pytest.raises(mx.errors.InvalidArgumentError, match="updater: type str, one of tkv.optimizer is needed"):
        mx.optimizer.get_updater("sgd")(0, one, one)
    with pytest.raises(mx.errors.InvalidArgumentError, match="2 keys, 1 gradients and 2 weights"):
        updater([0, 1], [one], [one, one])
    assert (optimizer.num_update, updater.states) == (0, {})


# ---- copies

SHIPPING = [lambda o: pickle.loads(pickle.dumps(o)), copy.deepcopy, copy.copy]


@pytest.mark.parametrize("ship", SHIPPING)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_copy_of_an_optimizer_that_runs_is_another_one(kv, maker, ship):
    optimizer = MAKERS[maker]()
    optimizer.set_lr_mult({0: 0.5})
    kv.set_optimizer(optimizer)
    other = ship(optimizer)
    assert told(other) == told(optimizer)
    other.lr_mult[0] = 0.25
    other.multi_precision = True
    assert optimizer.lr_mult == {0: 0.5} and not optimizer.multi_precision
    with mx.kv.create("local") as second:
        second.set_optimizer(other)
        with pytest.raises(mx.errors.InvalidArgumentError):
            other.rescale_grad = None


@pytest.mark.parametrize("ship", SHIPPING)
def test_programs_and_updaters_can_be_copied(kv, ship):
    program = mx.Program("program add\nw = add value sum\nvalue <- w\n")
    kv.set_updater(program)
    other = ship(program)
    assert (type(other), other.text) == (mx.Program, program.text)
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.5))
    updater(0, mx.nd.ones((1,)), mx.nd.ones((1,)))
    kv.set_updater(updater)
    assert list(ship(updater).states) == [0]


def test_the_classes_of_the_table_are_those_of_the_package():
    public = [getattr(mx.optimizer, name) for name in mx.optimizer.__all__]
    classes = {c for c in public if inspect.isclass(c) and issubclass(c, mx.optimizer.Optimizer)}
    assert classes - {mx.optimizer.Optimizer} == {type(make()) for make in MAKERS.values()}
    assert not any(isinstance(value, types.FunctionType) for make in MAKERS.values() for value in vars(make()).values())


RATE = "program rate\nparam rate 1\nstate steps\nmore = add steps 1\nstep = mul sum rate\nw = add value step\nsteps <- more\nvalue <- w\n"


@pytest.mark.parametrize("verb", ["set_updater", "set_optimizer"])
@pytest.mark.parametrize("store", STORES)
def test_a_hyperparameter_of_a_program_counts_from_the_next_push_on(store, verb):
    program = mx.Program(RATE)
    with STORES[store]() as kv, STORES[store]() as other:
        for one in (kv, other):
            one.init(0, mx.nd.zeros((1,)))
            getattr(one, verb)(program)
            one.push(0, mx.nd.ones((1,)))
        program.set_param("rate", 10)
        for one in (kv, other):
            one.push(0, mx.nd.ones((1,)))
            assert one.pull(0).asscalar() == 11
        for name, value in (("rat", 1), ("rate", "x"), ("rate", None)):
            with pytest.raises(mx.errors.InvalidArgumentError, match=name):
                program.set_param(name, value)
        kv.push(0, mx.nd.ones((1,)))
        assert kv.pull(0).asscalar() == 21 and program.param("rate") == 10 and program.params == {"rate": 1}


@pytest.mark.parametrize("ship", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copy_of_a_program_has_its_hyperparameters_and_is_another_one(ship):
    program = mx.Program(RATE)
    program.set_param("rate", 10)
    copied = ship(program)
    program.set_param("rate", 5)
    assert copied.param("rate") == 10 and copied.text == program.text
