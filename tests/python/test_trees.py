"""Dicts of arrays as keys and values."""

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import errors


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kv, p: kv.init({}), "init: the dict is empty"),
        (
            lambda kv, p: kv.init({"a.b": p["scale"], "a": {"b": p["scale"]}}),
            "two arrays of the dict have the name 'a.b'",
        ),
        (lambda kv, p: kv.init({("a",): p["scale"]}), "names are strings or whole numbers"),
        (lambda kv, p: kv.init({True: p["scale"]}), "names are strings or whole numbers"),
        (lambda kv, p: kv.init({"new": p["scale"]}, p["scale"]), "a second argument was given"),
        (lambda kv, p: kv.push(p, p), "a second argument was given"),
        (lambda kv, p: kv.push([p, {"scale": p["scale"]}]), "dict 1 of the list has no 'layer1.w'"),
        (lambda kv, p: kv.push([{"scale": p["scale"]}, p]), "dict 1 of the list has 'layer1.w'"),
        (lambda kv, p: kv.pull(p, out={"scale": p["scale"]}), "`out` has no 'layer1.w'"),
        (lambda kv, p: kv.pull({"scale": None}, out=p), "`out` has 'layer1.w'"),
        (lambda kv, p: kv.pull(p, out=p["scale"]), "a dict is needed as `out`"),
        (lambda kv, p: kv.push({"scale": None}), "scale"),
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
    summed = kv.pushpull(Layer(jnp.full((2,), 3.0), jnp.ones((3,))))
    assert isinstance(summed, Layer) and summed.w.tolist() == [3, 3]
