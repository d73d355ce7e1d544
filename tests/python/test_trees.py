"""Dicts of arrays as keys and values."""

import collections
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import errors


class Dense(NamedTuple):
    w: Any
    b: Any


def dense(value=1):
    return Dense(np.full((2, 3), value, np.float32), np.full(3, value, np.float32))


@pytest.fixture(params=["local", "dist_sync"])
def kv(request):
    with mx.kv.create(request.param, **({} if request.param == "local" else {"bootstrap": "self"})) as store:
        yield store


def params():
    return {
        "layer1": {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)},
        "scale": np.full(1, 5, np.float32),
    }


def test_names_are_joined_by_dots(kv):
    kv.init(params())
    assert kv.keys() == ["layer1.w", "layer1.b", "scale"]
    assert kv.pull("layer1.w").asnumpy().sum() == 6


def test_a_pull_gives_the_form_back(kv):
    kv.init(params())
    kv.push({"layer1": {"w": np.full((2, 3), 2, np.float32)}})
    pulled = kv.pull({"layer1": {"w": None, "b": np.empty(0)}})
    assert list(pulled) == ["layer1"]
    assert isinstance(pulled["layer1"]["w"], mx.nd.NDArray)
    assert isinstance(pulled["layer1"]["b"], np.ndarray)
    assert pulled["layer1"]["w"].asnumpy().max() == 2
    ticket = kv.pull({"scale": None}, async_op=True)
    assert ticket.wait()["scale"].asnumpy().tolist() == [5]
    assert isinstance(kv.pull({"scale": None}, like=np.empty(0))["scale"], np.ndarray)


def test_outputs_are_found_by_name(kv):
    kv.init(params())
    out = {"scale": np.zeros(1, np.float32), "layer1": {"b": np.ones(3, np.float32), "w": mx.nd.zeros((2, 3))}}
    assert kv.pull(params(), out=out) is None
    assert out["scale"].tolist() == [5]
    assert out["layer1"]["w"].asnumpy().sum() == 6
    grads = params()
    kv.pushpull(grads, out=out)
    assert out["scale"].tolist() == [5]
    kv.pushpull({"scale": grads["scale"]})
    kv.pushpull({"scale": grads["scale"]}, async_op=True).wait()


def test_a_list_of_dicts_is_summed(kv):
    kv.init(params())
    kv.push([params(), params(), params()])
    assert kv.pull("scale").asnumpy().tolist() == [15]
    kv.push({"scale": [np.ones(1, np.float32), np.ones(1, np.float32)]})
    assert kv.pull("scale").asnumpy().tolist() == [2]
    assert kv.push([params(), params()], async_op=True).wait() is None
    assert kv.pull("scale").asnumpy().tolist() == [10]


def test_whole_numbers_stay_keys(kv):
    kv.init({3: np.ones(2, np.float32), 5: np.zeros(2, np.float32)})
    assert kv.keys() == [3, 5]
    assert kv.pull({3: None})[3].asnumpy().tolist() == [1, 1]


def test_named_tuples_and_tuples_come_back_as_they_are(kv):
    tree = {"layers": (dense(1), dense(2)), "none": (), "scale": np.ones(1, np.float32)}
    kv.init(tree)
    assert kv.keys() == ["layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b", "scale"]
    pulled = kv.pull(tree)
    assert type(pulled["layers"]) is tuple and pulled["none"] == ()
    assert type(pulled["layers"][1]) is Dense and pulled["layers"][1].b.tolist() == [2, 2, 2]
    assert kv.pull({"layers": (Dense(None, np.empty(0)),)})["layers"][0].w.shape == (2, 3)
    kv.push([tree, tree])
    out = {"scale": np.zeros(1, np.float32), "layers": (dense(), dense())}
    kv.pull(out, out=out)
    assert out["layers"][1].w.max() == 4 and out["scale"].tolist() == [2]
    kv.pushpull(out)
    assert out["layers"][0].w.max() == 2


def test_a_named_tuple_may_be_the_whole_tree_or_a_tuple_of_keys(kv):
    kv.init(dense())
    assert kv.keys() == ["w", "b"]
    kv.push([dense(3), dense(4)])
    assert kv.pull(dense()).b.tolist() == [7, 7, 7] and type(kv.pull(dense(), async_op=True).wait()) is Dense
    keys = Dense("w", "b")
    assert [array.shape for array in kv.pull(keys)] == [(2, 3), (3,)]
    kv.push(keys, list(dense(5)))
    assert kv.pull("b").asnumpy().tolist() == [5, 5, 5]


def test_dicts_of_other_kinds_come_back_as_they_are(kv):
    tree = collections.OrderedDict(b=np.ones(1, np.float32), a=collections.defaultdict(int, c=np.ones(2, np.float32)))
    kv.init(tree)
    pulled = kv.pull(tree)
    assert type(pulled) is collections.OrderedDict and list(pulled) == ["b", "a"]
    assert type(pulled["a"]) is collections.defaultdict and pulled["a"]["nothing"] == 0
    assert "nothing" not in tree["a"]


def test_a_list_in_a_tree_has_one_array_of_each_device(kv):
    kv.init({"l": dense()})
    kv.push({"l": Dense([dense(1).w, dense(2).w], [dense(3).b])})
    assert kv.pull("l.w").asnumpy().max() == 3 and kv.pull("l.b").asnumpy().max() == 3
    outs = [np.zeros((2, 3), np.float32), mx.nd.zeros((2, 3))]
    kv.pull({"l": {"w": None}}, out={"l": {"w": outs}})
    assert outs[0].max() == outs[1].asnumpy().max() == 3


def test_broadcast_gives_the_first_values_in_the_same_form(kv):
    given = kv.broadcast({"l": dense(4), "scale": mx.nd.ones((1,))})
    assert type(given["l"]) is Dense and isinstance(given["l"].w, np.ndarray) and given["l"].w.max() == 4
    assert isinstance(given["scale"], mx.nd.NDArray) and kv.keys() == ["l.w", "l.b", "scale"]
    out = {"m": dense(0)}
    assert kv.broadcast({"m": dense(5)}, out=out) is None and out["m"].b.tolist() == [5, 5, 5]
    for call in (
        lambda: kv.broadcast({"n": dense()}, dense()),
        lambda: kv.broadcast({"n": dense()}, out={"n": {"w": dense().w}}),
        lambda: kv.broadcast({"n": dense()}, out={"n": Dense(dense().w, dense().w)}),
        lambda: kv.broadcast({"n": None}),
        lambda: kv.broadcast({"n": [dense().w, dense().w]}),
        lambda: kv.broadcast("n", dense().w),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="^broadcast"):
            call()
    assert len(kv) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kv, p: kv.init({}), "init: the tree has no arrays"),
        (
            lambda kv, p: kv.init({"a.b": p["scale"], "a": {"b": p["scale"]}}),
            "two arrays of the tree have the name 'a.b'",
        ),
        (lambda kv, p: kv.init({("a",): p["scale"]}), "names are strings or whole numbers"),
        (lambda kv, p: kv.init({True: p["scale"]}), "names are strings or whole numbers"),
        (lambda kv, p: kv.init({"new": p["scale"]}, p["scale"]), "a second argument was given"),
        (lambda kv, p: kv.push(p, p), "a second argument was given"),
        (lambda kv, p: kv.push([p, {"scale": p["scale"]}]), "tree 1 of the list has no 'layer1.w'"),
        (lambda kv, p: kv.push([{"scale": p["scale"]}, p]), "tree 1 of the list has 'layer1.w'"),
        (lambda kv, p: kv.pull(p, out={"scale": p["scale"]}), "`out` has no 'layer1.w'"),
        (lambda kv, p: kv.pull({"scale": None}, out=p), "`out` has 'layer1.w'"),
        (lambda kv, p: kv.pull(p, out=p["scale"]), "a tree is needed as `out`"),
        (lambda kv, p: kv.push({"scale": None}), "scale"),
        (lambda kv, p: kv.init((p, p)), "init: a tuple of 2 trees; a list of trees is one of each device, a dict"),
        (lambda kv, p: kv.init({"new": [p, p]}), "init 'new': a list of containers in a tree; a list has one array"),
        (lambda kv, p: kv.push({"scale": [dense()]}), "push 'scale': a list of containers in a tree"),
        (lambda kv, p: kv.init([dense(), dense()]), "init 'w': 2 values, one is needed"),
        (lambda kv, p: kv.push([dense(), p]), "tree 1 of the list has no 'w'"),
        (lambda kv, p: kv.init({"new": ()}), "init: the tree has no arrays"),
        (lambda kv, p: kv.push("scale"), "scale"),
    ],
)
def test_what_does_not_fit_changes_nothing(kv, call, message):
    kv.init(params())
    with pytest.raises(errors.InvalidArgumentError, match=message.replace("(", r"\(")):
        call(kv, params())
    assert kv.keys() == ["layer1.w", "layer1.b", "scale"]
    assert kv.pull("scale").asnumpy().tolist() == [5]


def test_a_dict_that_holds_itself_is_an_error(kv):
    tree = {}
    tree["again"] = tree
    with pytest.raises(errors.InvalidArgumentError, match="nest deeper"):
        kv.init(tree)


def test_a_name_that_is_missing_is_told(kv):
    kv.init(params())
    with pytest.raises(errors.KeyNotFoundError, match="layer2"):
        kv.push({"layer2": {"w": np.ones(1, np.float32)}})


@pytest.mark.framework
def test_pytrees_of_jax(kv):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.tree_util.register_pytree_with_keys_class
    class Layer:
        def __init__(self, w, b):
            self.w, self.b = w, b

        def tree_flatten_with_keys(self):
            return ((jax.tree_util.GetAttrKey("w"), self.w), (jax.tree_util.GetAttrKey("b"), self.b)), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    layer = Layer(jnp.ones((2,)), jnp.zeros((3,)))
    kv.init(layer)
    assert kv.keys() == ["w", "b"]
    pulled = kv.pull(layer)
    assert isinstance(pulled, Layer) and pulled.w.tolist() == [1, 1]
    given = kv.broadcast({"more": (layer,)})["more"][0]
    assert isinstance(given, Layer) and isinstance(given.b, jax.Array) and "more.0.b" in kv
    summed = kv.pushpull(Layer(jnp.full((2,), 3.0), jnp.ones((3,))))
    assert isinstance(summed, Layer) and summed.w.tolist() == [3, 3]


@pytest.mark.framework
def test_a_registered_dataclass_comes_back_as_it_is_in_other_containers_too(kv):
    import dataclasses

    jax = pytest.importorskip("jax")

    @dataclasses.dataclass
    class State:
        mean: Any
        name: str

    jax.tree_util.register_dataclass(State, ["mean"], ["name"])
    state = State(np.ones(2, np.float32), "first")
    kv.init({"l": (state, dense())})
    assert kv.keys() == ["l.0.mean", "l.1.w", "l.1.b"]
    pulled = kv.pull({"l": (state, dense())})["l"]
    assert type(pulled[0]) is State and pulled[0].name == "first" and pulled[0].mean.tolist() == [1, 1]
    assert type(pulled[1]) is Dense


def test_numpys_whole_numbers_are_names(kv):
    kv.init({np.int64(7): np.ones(2, np.float32)})
    assert kv.keys() == [7] and type(kv.keys()[0]) is int
    assert kv.pull({np.int64(7): np.ones(2, np.float32)})[7].tolist() == [1, 1]


def test_numpys_whole_numbers_are_parts_of_names(kv):
    kv.init({np.uint8(3): {np.int32(1): np.zeros(2, np.float32)}})
    assert kv.keys() == ["3.1"]


def test_a_dict_that_grows_meanwhile_is_what_it_was(kv):
    kv.init(["a", "b"], [np.ones(2, np.float32)] * 2)
    tree = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}
    ticket = kv.pull(tree, async_op=True)
    tree["c"] = np.zeros(2, np.float32)
    assert sorted(ticket.wait()) == ["a", "b"]
