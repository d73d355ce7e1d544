"""Rules of the store as Python users meet them. The rules of every store are tested in tests/conformance."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import tensorkv as mx
from tensorkv._store import life as _life

S = (2, 3)


def value_of(kv, key):
    return kv.pull(key).asnumpy().ravel().tolist()[0]


# ---------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "key", [0, -5, 2**63 - 1, -(2**63), np.int64(7), np.int32(-7), np.uint8(9), "w", "", "ключ", "重み"]
)
def test_every_kind_of_key(kv, key):
    kv.init(key, mx.nd.ones(S))
    kv.push(key, mx.nd.ones(S) * 2)
    assert value_of(kv, key) == 2
    assert list(kv) == [key] and key in kv


@pytest.mark.parametrize("key", [True, 1.5, None, b"w", 2**63, (1, 2.5), np.bool_(True), np.float32(1), "\ud800"])
def test_what_is_no_key_is_refused(kv, key):
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.init(key, mx.nd.ones(S))
    assert len(kv) == 0


def test_ints_and_strings_do_not_mix(kv):
    kv.init(3, mx.nd.ones(S))
    with pytest.raises(mx.errors.InvalidArgumentError, match="'3': a string key, the store has integer keys"):
        kv.init("3", mx.nd.ones(S))
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.push([3, "3"], [mx.nd.ones(S)] * 2)


def test_an_unknown_key_is_a_key_error_that_names_it(kv):
    for verb in (lambda: kv.push("w3", mx.nd.ones(S)), lambda: kv.pull("w3"), lambda: kv.pull("w3", out=mx.nd.ones(S))):
        with pytest.raises(KeyError, match="'w3': no such key"):
            verb()
    kv.init("w3", mx.nd.ones(S))


# --------------------------------------------------------------------------------------------------------------- lists


def test_lists_of_keys_and_lists_of_lists(kv):
    keys = ["a", "b"]
    kv.init(keys, [mx.nd.zeros(S), mx.nd.zeros((4,))])
    kv.push(keys, [[mx.nd.ones(S)] * 3, mx.nd.ones((4,))])
    outs = kv.pull(keys)
    assert [o.shape for o in outs] == [S, (4,)] and [o.asnumpy().max() for o in outs] == [3, 1]
    into = [[mx.nd.zeros(S), mx.nd.zeros(S)], mx.nd.zeros((4,))]
    kv.pull(keys, out=into)
    assert into[0][1].asnumpy().min() == 3


@pytest.mark.parametrize(
    "keys, make",
    [
        ([], lambda: []),
        ([1, 2], lambda: [mx.nd.ones(S)]),
        ([1, 2], lambda: mx.nd.ones((2, 3))),  # MXNet would push the rows
        (1, lambda: []),
        ([1], lambda: [[]]),
        (1, lambda: None),
        (1, lambda: "text"),
        (1, lambda: 5.0),
        (1, lambda: [[mx.nd.ones(S)]]),
        (1, lambda: mx.nd.ones((3, 2))),
        (1, lambda: mx.nd.ones(S, dtype="float64")),
        (1, lambda: np.ones(S, np.complex64)),
        (1, lambda: np.ones(S, np.uint32)),
        (1, lambda: np.array([object()] * 6).reshape(S)),
        (1, lambda: np.ones(S, ">f4")),
    ],
)
def test_a_bad_push_changes_nothing(kv, keys, make):
    kv.init([1, 2], [mx.nd.ones(S)] * 2)
    with pytest.raises(mx.errors.InvalidArgumentError, match="push"):
        kv.push(keys, make())
    assert value_of(kv, 1) == 1 and value_of(kv, 2) == 1


def test_duplicate_keys_in_one_call_are_one_list(kv):
    kv.init([1, 2], [mx.nd.zeros(S)] * 2)
    kv.push([1, 2, 1], [mx.nd.ones(S), mx.nd.ones(S) * 5, mx.nd.ones(S) * 2])
    assert value_of(kv, 1) == 3 and value_of(kv, 2) == 5
    outs = [mx.nd.zeros(S) for _ in range(3)]
    kv.pull([1, 2, 1], out=outs)
    assert [o.asnumpy().max() for o in outs] == [3, 5, 3]


def test_repeated_outputs_hold_the_last_key(kv):
    kv.init([1, 2], [mx.nd.zeros(S), mx.nd.ones(S)])
    out = [mx.nd.zeros(S)] * 2
    kv.pull([1, 2], out=out)
    assert out[0].asnumpy().max() == 1


# --------------------------------------------------------------------------------------------------------------- verbs


def test_assign_copies_both_ways(kv):
    x = mx.nd.ones(S)
    kv.init(1, x)
    x[:] = 9
    assert value_of(kv, 1) == 1
    kv.push(1, x)
    x[:] = 7
    assert value_of(kv, 1) == 9
    kv.pull(1)[:] = 5
    assert value_of(kv, 1) == 9


def test_positional_out_priority_and_ignore_sparse(kv):
    kv.init(1, mx.nd.ones(S))
    a = mx.nd.zeros(S)
    kv.push(1, mx.nd.ones(S), 5)
    kv.push(1, mx.nd.ones(S), priority=-1)
    kv.pull(1, a, 3, False)
    kv.pull(1, out=a, priority=3, ignore_sparse=True)
    assert a.asnumpy().max() == 1


def test_pushpull_in_place_and_into_outputs(kv):
    kv.init(1, mx.nd.zeros(S))
    grads = [mx.nd.ones(S), mx.nd.ones(S) * 2]
    assert kv.pushpull(1, grads) is None
    assert [g.asnumpy().max() for g in grads] == [3, 3]
    out = mx.nd.zeros(S)
    kv.pushpull(1, grads, out=out, priority=1)
    assert out.asnumpy().max() == 6


def test_a_failed_broadcast_creates_nothing(kv):
    with pytest.raises(mx.errors.InvalidArgumentError, match="broadcast 1: the output has shape"):
        kv.broadcast(1, mx.nd.ones(S), out=[mx.nd.zeros(S), mx.nd.zeros((1,))])
    assert 1 not in kv
    out = mx.nd.zeros(S)
    kv.broadcast(1, mx.nd.ones(S), out)
    assert out.asnumpy().max() == 1


def test_pull_converts_floats_and_nothing_else(kv):
    kv.init(1, mx.nd.full(S, 1.5))
    for dtype in ("float64", "float16", "bfloat16"):
        out = mx.nd.zeros(S, dtype=dtype)
        kv.pull(1, out=out)
        assert out.astype("float32").asnumpy().max() == 1.5
    with pytest.raises(mx.errors.InvalidArgumentError, match="only floats convert"):
        kv.pull(1, out=mx.nd.zeros(S, dtype="int32"))


def test_second_init_is_an_error(kv):
    kv.init(1, mx.nd.ones(S))
    with pytest.raises(mx.errors.AlreadyExistsError, match="init 1: the key is there already"):
        kv.init(1, mx.nd.zeros(S))
    with pytest.raises(mx.errors.AlreadyExistsError):
        kv.init([2, 1], [mx.nd.ones(S)] * 2)
    assert list(kv) == [1] and value_of(kv, 1) == 1


def test_init_takes_a_list_of_one(kv):
    kv.init(1, [mx.nd.ones(S)])
    with pytest.raises(mx.errors.InvalidArgumentError, match="init 2: 2 values, one is needed"):
        kv.init(2, [mx.nd.ones(S)] * 2)


# ------------------------------------------------------------------------------------------------------------- updater


def test_the_updater_gets_the_key_in_its_own_kind_and_order():
    for keys in ([9, 5, 7], ["b", "a", "c"]):
        seen = []
        with mx.kv.create("local") as kv:
            kv.init(keys, [mx.nd.zeros(S)] * 3)
            kv._set_updater(lambda key, sum, stored: seen.append(key))  # noqa: B023
            kv.push(keys + keys, [mx.nd.ones(S)] * 6)
        assert seen == keys


def test_an_exception_in_the_updater_reaches_the_caller_and_changes_no_key(kv):
    kv.init([1, 2, 3], [mx.nd.zeros(S)] * 3)

    def update(key, sum, stored):
        stored += sum
        if key == 2:
            raise ZeroDivisionError("mine")

    kv.set_updater(update)
    with pytest.raises(ZeroDivisionError, match="mine"):
        kv.push([1, 2, 3], [mx.nd.ones(S)] * 3)
    assert [value_of(kv, k) for k in (1, 2, 3)] == [0, 0, 0]
    kv.push([1, 3], [mx.nd.ones(S)] * 2)
    assert value_of(kv, 3) == 1


def test_the_updater_may_use_other_keys_but_not_its_own(kv):
    kv.init([1, 2], [mx.nd.zeros(S)] * 2)

    def update(key, sum, stored):
        stored[:] = sum
        if key == 1:
            kv.push(2, sum * 10)
            assert value_of(kv, 2) == 10
            kv.pull(1)

    kv.set_updater(update)
    with pytest.raises(mx.errors.FailedPreconditionError, match="pull 1: the updater that is running"):
        kv.push(1, mx.nd.ones(S))
    assert value_of(kv, 1) == 0 and value_of(kv, 2) == 10


def test_what_the_updater_keeps_is_not_the_store(kv):
    kept = []
    kv.init(1, mx.nd.zeros(S))
    kv.set_updater(lambda key, sum, stored: kept.extend([sum, stored]))
    pushed = mx.nd.ones(S)
    kv.push(1, pushed)
    kept[0][:] = 50
    kept[1][:] = 60
    assert value_of(kv, 1) == 0 and pushed.asnumpy().max() == 1


def test_programs_and_none_are_updaters(kv):
    kv.init(1, mx.nd.ones(S))
    kv.set_updater(mx.Program("program add\nw = add value sum\nvalue <- w\n"))
    kv.push(1, mx.nd.ones(S))
    assert value_of(kv, 1) == 2
    kv.set_updater(None)
    kv.push(1, mx.nd.ones(S) * 5)
    assert value_of(kv, 1) == 5
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.set_updater(3)
    with pytest.raises(mx.errors.InvalidArgumentError, match="line 2: 'plus' is no operation"):
        mx.Program("program p\nw = plus value sum\n")


def test_an_updater_that_refers_to_its_store_is_collected():
    class Trainer:
        def __init__(self):
            self.kv = mx.kv.create("local")
            self.kv.init(1, mx.nd.zeros(S))
            self.kv.set_updater(self.update)

        def update(self, key, sum, stored):
            stored += sum

    trainer = Trainer()
    trainer.kv.push(1, mx.nd.ones(S))
    watch = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert watch() is None


# ----------------------------------------------------------------------------------------------------------- the object


def test_properties_and_protocols():
    kv = mx.kv.create("Local_Update_CPU")
    assert (kv.type, kv.rank, kv.num_workers) == ("local_update_cpu", 0, 1)
    kv.init("a", mx.nd.ones(S))
    assert len(kv) == 1 and "a" in kv and "b" not in kv and list(kv) == ["a"] == kv.keys()
    assert repr(kv) == "<KVStore 'local_update_cpu' rank 0 of 1, 1 keys>"
    kv.barrier()
    kv._barrier()
    assert isinstance(kv, mx.kv.KVStoreBase) and issubclass(mx.kv.KVStore, mx.kv.KVStoreBase)
    assert kv.is_capable("optimizer") and mx.kv.KVStore.is_capable(mx.kv.KVStoreBase.OPTIMIZER)
    with pytest.raises(ValueError):
        kv.is_capable("telepathy")
    with pytest.raises(TypeError, match=r"^KVStore\.is_capable\(\)"):
        kv.is_capable()
    for copies in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(NotImplementedError, match="KVStore: a store is memory of one process and cannot be copied"):
            copies(kv)
    kv.close()
    kv.close()
    assert repr(kv) == "<KVStore 'local_update_cpu' closed>"
    for verb in (lambda: kv.push("a", mx.nd.ones(S)), lambda: len(kv), lambda: "a" in kv, kv.barrier):
        with pytest.raises(mx.errors.FailedPreconditionError, match="the store is closed"):
            verb()


def test_a_store_that_could_not_be_closed_goes_on():
    kv = mx.kv.create("local")
    kv.init(0, mx.nd.ones(S))
    refused = []

    class Closes(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            with pytest.raises(mx.errors.FailedPreconditionError, match="close: an updater of this store is running"):
                kv.close()
            refused.append(len(kv))
            super().update(index, weight, grad, state)

    kv.set_optimizer(Closes(learning_rate=1))
    updater = kv._updater
    kv.push(0, mx.nd.ones(S))
    assert refused == [1] and kv._updater is updater is not None
    assert repr(kv) == "<KVStore 'local' rank 0 of 1, 1 keys>" and _life.is_open(kv)
    kv.close()
    assert kv._updater is None and not _life.is_open(kv)


@pytest.mark.parametrize(
    "name", ["local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"]
)
def test_every_type_gives_its_name_back(name):
    assert mx.kv.create(name).type == name


def test_create_never_guesses():
    assert mx.kv.create().type == "local"
    with pytest.raises(mx.errors.InvalidArgumentError, match="create 'loca': no such type; there are local"):
        mx.kv.create("loca")
    with pytest.raises(TypeError):
        mx.kv.create(5)
    with pytest.raises(mx.errors.InvalidArgumentError):
        mx.kv.create("local", threads=-1)


def test_registered_stores_are_found_and_may_shadow():
    @mx.kv.KVStoreBase.register
    class Mine(mx.kv.KVStoreBase):
        pass

    assert type(mx.kv.create("MINE")) is Mine
    del mx._store.base._registry["mine"]


def test_teststore():
    kv = mx.kv.create("teststore")
    assert (kv.type, kv.rank, kv.num_workers) == ("teststore", 0, 1)
    out = [mx.nd.zeros(S), mx.nd.zeros(S)]
    kv.broadcast(1, mx.nd.ones(S), out)
    kv.broadcast(1, mx.nd.ones(S), out)
    kv.pushpull(1, out)
    assert out[0].asnumpy().max() == 2
    assert not kv.is_capable("optimizer")
    for call in (
        lambda: kv.set_optimizer(None),
        lambda: kv.save_optimizer_states("f"),
        lambda: kv.load_optimizer_states("f"),
    ):
        with pytest.raises(NotImplementedError):
            call()


def test_a_store_is_true_whatever_it_holds():
    kv = mx.kv.create("local")
    assert kv and len(kv) == 0
    kv.close()
    assert kv


def test_a_server_says_how_to_serve_where_a_script_uses_its_store(monkeypatch):
    monkeypatch.setenv("TKV_ROLE", "head")
    monkeypatch.setenv("TKV_WORKERS", "1")
    monkeypatch.setenv("TKV_SERVERS", "1")
    kv = mx.kv.create("dist_sync")
    for use in (lambda: kv.init("w", mx.nd.ones((2,))), lambda: kv.pushpull("w", mx.nd.ones((2,)))):
        with pytest.raises(
            mx.errors.FailedPreconditionError, match="is a head of its job; .*python -m tensorkv.mxnet SCRIPT"
        ):
            use()


def test_commands_of_mxnet_carry_no_code():
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        with pytest.raises(mx.errors.UnimplementedError, match="the body is a pickle"):
            kv._send_command_to_servers(0, b"x")
        kv.init("w", mx.nd.zeros(S))
        kv._send_command_to_servers(0, mx.optimizer.SGD(learning_rate=-1))
        kv.push("w", mx.nd.ones(S))
        kv.push("w", mx.nd.ones(S))
        assert kv.pull("w").asnumpy().max() == 2


def test_what_is_no_key_is_in_no_store():
    kv = mx.kv.create("local")
    kv.init("1", mx.nd.ones(S))
    for other in (None, 1.0, True, b"1", ["1"], object()):
        assert other not in kv
    assert "1" in kv and 1 not in kv
    kv.close()
    with pytest.raises(mx.KVError):
        "1" in kv  # noqa: B015


@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_the_later_key_wins_where_two_have_one_output(type):
    options = {"threads": 2} if type == "local" else {"bootstrap": "self"}
    with mx.kv.create(type, **options) as kv:
        size = 64_000
        kv.init(["a", "b"], [mx.nd.ones((size,), dtype="float16") * factor for factor in (1, 2)])
        wide = np.zeros(size)  # four times as many bytes as the values: large enough for two threads
        for _ in range(300):
            kv.pull(["a", "b"], out=[wide, wide])
            assert (wide == 2).all()


@pytest.mark.parametrize("type", ["local", "dist_sync"])
def test_the_later_key_wins_where_the_output_of_the_earlier_one_is_strided(type):
    with mx.kv.create(type, **({"bootstrap": "self"} if type == "dist_sync" else {})) as kv:
        kv.init(["a", "b"], [mx.nd.ones((4, 3)) * factor for factor in (1, 2)])
        memory = np.zeros((4, 6), np.float32)
        strided, dense = memory[:, ::2], memory.reshape(-1)[:12].reshape(4, 3)
        kv.pull(["a", "b"], out=[strided, dense])
        assert (dense == 2).all()
        kv.pull(["a", "b"], out=[dense, strided])
        assert (strided == 2).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_call_of_very_many_small_keys(seed):
    random = np.random.default_rng(seed)
    with mx.kv.create("local") as kv:
        shapes = [(), (1,), (3,), (4, 5), (64,), (2, 0)]
        keys = [f"k{i}" for i in range(3000)]
        values = [random.integers(-9, 9, shapes[i % 6]).astype("float32") for i in range(3000)]
        kv.init(keys, values)
        stored = dict(zip(keys, values, strict=True))
        for _ in range(4):
            chosen = [keys[i] for i in random.integers(0, 3000 if seed % 2 else 1500, random.integers(900, 2500))]
            if seed >= 2:
                chosen = list(dict.fromkeys(chosen))
            pushed = [
                [
                    random.integers(-9, 9, stored[key].shape).astype("float32")
                    for _ in range(random.choice([1, 1, 1, 2, 3]))
                ]
                for key in chosen
            ]
            sums = {}
            for key, parts in zip(chosen, pushed, strict=True):
                sums[key] = sums.get(key, 0) + sum(parts)
            if seed % 3 == 0:
                outs = [np.empty_like(stored[key]) for key in chosen]
                kv.pushpull(chosen, pushed, out=outs)
                for key, out in zip(chosen, outs, strict=True):
                    assert np.array_equal(out, sums[key])
            else:
                kv.push(chosen, [mx.nd.array(parts[0]) if len(parts) == 1 else parts for parts in pushed])
            stored.update(sums)
            for key, value in zip(keys, kv.pull(keys), strict=True):
                assert np.array_equal(value.asnumpy(), stored[key])


def test_a_call_of_very_many_keys_changes_none_where_one_cannot_be_summed():
    with mx.kv.create("local") as kv:
        keys = list(range(2000))
        kv.init(keys, [np.zeros(2, "float32")] * 1999 + [np.zeros(2, "uint16")])
        kv.push(keys, [np.ones(2, "float32")] * 1999 + [np.ones(2, "uint16")])
        with pytest.raises(mx.errors.MXNetError, match="1999"):
            kv.push(keys, [[np.full(2, 5, "float32")] * 2] * 1999 + [[np.full(2, 5, "uint16")] * 2])
        with pytest.raises(mx.errors.MXNetError, match="1999"):
            kv.push(keys, [np.full(2, 5, "float32")] * 1999 + [np.zeros(3, "uint16")])
        assert all((value.asnumpy() == 1).all() for value in kv.pull(keys))


def test_a_list_of_numbers_is_told_to_be_one_array_of_each_device(kv):
    kv.init("w", mx.nd.ones((2,)))
    for call in (
        lambda: kv.init("x", [1.0, 2.0]),
        lambda: kv.push("w", [1.0, 2.0]),
        lambda: kv.push("w", (1, 2)),
        lambda: kv.push("w", [[1, 2], [3, 4]]),
        lambda: kv.push(["w"], [[1.0, 2.0]]),
        lambda: kv.push({"w": [1.0, 2.0]}),
        lambda: kv.pull("w", out=[0.0, 0.0]),
        lambda: kv.pushpull("w", [mx.nd.ones((2,)), 2]),
        lambda: kv.broadcast("x", [1.0, 2.0], out=mx.nd.ones((2,))),
    ):
        with pytest.raises(
            mx.errors.InvalidArgumentError,
            match=r"^\w+ '[wx]': a (number|list) in a list; .* one array of each device, and tkv\.nd\.array",
        ):
            call()
    assert kv.keys() == ["w"] and kv.pull("w").asnumpy().tolist() == [1, 1] and kv.round("w") == 0


@pytest.mark.parametrize("how", ["at the end", "by return code 0", "by return code 3", "by an error"])
def test_what_fails_in_closing_is_raised_unless_it_would_hide_a_failure(how, monkeypatch, caplog):
    """A program that ends well must learn that its pushes are lost; a program that fails must see its own failure."""
    ends = {"by return code 0": SystemExit(0), "by return code 3": SystemExit(3), "by an error": ValueError("first")}
    kv = mx.kv.create("local")

    def close(self, **_):
        raise mx.errors.UnavailableError("close: lost")

    with monkeypatch.context() as patched, caplog.at_level("WARNING", "tensorkv"):
        patched.setattr(type(kv), "close", close)
        with pytest.raises(BaseException) as caught, kv:
            if how in ends:
                raise ends[how]
    kv.close()
    if how in ("at the end", "by return code 0"):
        assert str(caught.value) == "close: lost"
    else:
        assert caught.value is ends[how]
        assert "close: lost" in [*getattr(caught.value, "__notes__", []), *caplog.messages]


def test_errors_of_a_call_carry_no_others():
    """A call is not tried in one way and then in another: an updater's TypeError, and a row-sparse value of another shape."""

    def raising(key, grad, weight):
        raise TypeError("mine")

    kv = mx.kv.create()
    kv.init("w", np.zeros((4, 2), np.float32))
    rows = mx.nd.sparse.row_sparse_array((np.ones((1, 3), np.float32), [0]), shape=(4, 3))
    with pytest.raises(mx.errors.InvalidArgumentError, match="shape") as caught:
        kv.push("w", rows)
    assert caught.value.__context__ is None
    kv.set_updater(raising)
    with pytest.raises(TypeError, match="mine") as caught:
        kv.push("w", np.ones((4, 2), np.float32))
    assert caught.value.__context__ is None
