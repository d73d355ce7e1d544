"""Gradient compression: the sent values of each type, the residuals, and the refused options."""

import fnmatch
import resource

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import testing

TYPES = ["fp16", "bf16", "int8", "2bit", "1bit", "topk"]
PARAMS = {
    "2bit": {"type": "2bit", "threshold": 0.5},
    "1bit": {"type": "1bit", "threshold": 0.25},
    "topk": {"type": "topk", "ratio": 0.1},
}


def params(kind):
    return PARAMS.get(kind, {"type": kind})


def bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32)


def sent(kind, x):
    """Return x, a float32 vector in one chunk, as it arrives by the definition of each type."""
    if kind == "fp16":
        return x.astype(np.float16).astype(np.float32)
    if kind == "bf16":
        return bf16(x)
    if kind == "int8":
        out = np.empty_like(x)
        for at in range(0, x.size, 1024):
            block = x[at : at + 1024]
            scale = np.float32(np.abs(block).max() / np.float32(127))
            out[at : at + 1024] = 0 if scale == 0 else np.rint(block / scale).astype(np.float32) * scale
        return out
    if kind == "2bit":
        return np.where(x >= 0.5, 0.5, np.where(x <= -0.5, -0.5, 0)).astype(np.float32)
    if kind == "1bit":
        return np.where(x > 0.25, 1, -1).astype(np.float32)
    out = np.zeros_like(x)
    chosen = np.argsort(-np.abs(x), kind="stable")[: int(np.ceil(np.float64(0.1) * x.size))]
    out[chosen] = x[chosen]
    return out


@pytest.mark.parametrize("kind", TYPES)
def test_each_push_sends_what_its_type_says_and_keeps_the_rest(kind):
    random = np.random.default_rng(1)
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.zeros((3000,)))
        kv.set_gradient_compression(params(kind))
        owed = np.zeros(3000, np.float32)
        for _ in range(5):
            gradient = random.normal(size=3000).astype(np.float32)
            kv.push("w", gradient)
            expected = sent(kind, owed + gradient)
            owed = (owed + gradient) - expected
            np.testing.assert_array_equal(kv.pull("w").asnumpy(), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_the_values_of_a_device_store_are_compressed_one_by_one(kind):
    random = np.random.default_rng(2)
    kv = mx.kv.create("device")
    kv.init(3, mx.nd.zeros((50, 20)))
    kv.set_gradient_compression(params(kind))
    owed = np.zeros((3, 1000), np.float32)
    for _ in range(4):
        gradients = random.normal(size=(3, 1000)).astype(np.float32)
        kv.push(3, [mx.nd.array(g.reshape(50, 20), ctx=mx.cpu(i)) for i, g in enumerate(gradients)])
        expected = np.zeros(1000, np.float32)
        for i in range(3):
            arrives = sent(kind, owed[i] + gradients[i])
            owed[i] = (owed[i] + gradients[i]) - arrives
            expected = expected + arrives
        np.testing.assert_array_equal(kv.pull(3).asnumpy().ravel(), expected)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_sent_and_what_is_owed_are_all_gradients(kind, dtype):
    """With type none at the end, the residuals go with the last push."""
    random = np.random.default_rng(3)
    for store, options in [("dist_sync", {"bootstrap": "self"}), ("device", {})]:
        with mx.kv.create(store, **options) as kv:
            kv.init("w", mx.nd.zeros((700,), dtype=dtype))
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1, multi_precision=True))
            kv.set_gradient_compression(params(kind))
            total = np.zeros(700)
            for _ in range(40):
                gradient = (random.integers(-64, 64, size=700) / 64).astype(dtype)
                total += gradient
                kv.push("w", gradient)
            kv.set_gradient_compression({"type": "none"})
            kv.push("w", np.zeros(700, dtype))
            tolerance = 1e-4 if dtype == "float32" else 0.02
            np.testing.assert_allclose(kv.pull("w").asnumpy().astype(np.float64), total, rtol=0, atol=tolerance)


def test_a_value_that_is_missing_from_a_push_keeps_what_it_owes():
    kv = mx.kv.create("device")
    kv.init("w", mx.nd.zeros((1,)))
    kv.set_gradient_compression({"type": "2bit", "threshold": 1})
    kv.push("w", [mx.nd.array([0.25]), mx.nd.array([0.5])])
    kv.set_gradient_compression({"type": "none"})
    kv.push("w", [mx.nd.zeros((1,))])
    assert kv.pull("w").asscalar() == 0.25
    kv.push("w", [mx.nd.zeros((1,)), mx.nd.zeros((1,))])
    assert kv.pull("w").asscalar() == 0.5


@pytest.mark.parametrize("store", ["dist_sync", "device"])
def test_what_is_owed_no_more_takes_no_memory(store):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    size = 24 << 20  # elements; the memory of so many is its own mapping
    gradient = mx.nd.ones((size,))
    with mx.kv.create(store, **({"bootstrap": "self"} if store == "dist_sync" else {})) as kv:
        kv.init("w", mx.nd.zeros((size,)))
        values = [gradient, gradient] if store == "device" else gradient
        kv.push("w", values)
        kv.set_gradient_compression({"type": "2bit"})
        kv.push("w", values)
        kv.barrier()
        before = resident()
        kv.set_gradient_compression({"type": "none"})
        for _ in range(2):
            kv.push("w", gradient)  # of a device store the second value goes on owing
            kv.barrier()
        assert resident() < before - size * 4 * 0.9


def test_workers_of_one_round_may_compress_differently():
    kinds = ["2bit", "topk", None]

    def work(kv):
        kv.init("w", mx.nd.zeros((2000,)))
        kind = kinds[kv.rank]
        if kind is not None:
            kv.set_gradient_compression(params(kind))
        gradient = np.random.default_rng(kv.rank).normal(size=2000).astype(np.float32)
        kv.push("w", gradient)
        return (sent(kind, gradient) if kind else gradient), kv.pull("w").asnumpy()

    with testing.cluster(workers=3, servers=2) as cluster:
        results = cluster.run(work)
    total = sum(arrives for arrives, _ in results)
    for _, pulled in results:
        np.testing.assert_allclose(pulled, total, rtol=0, atol=1e-6)


def test_keys_are_chosen_by_pattern():
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        names = ["fc.weight", "fc.bias", "conv.weight"]
        for name in names:
            kv.init(name, mx.nd.zeros((4,)))
        kv.set_gradient_compression({"type": "2bit"}, keys="*.weight")
        kv.set_gradient_compression({"type": "none"}, keys="conv*")
        for name in names:
            kv.push(name, mx.nd.full((4,), 0.75))
        assert [float(kv.pull(name).asnumpy()[0]) for name in names] == [0.5, 0.75, 0.75]


def test_pushpull_lists_and_several_values_are_compressed_too():
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init([1, 2], [mx.nd.zeros((3,))] * 2)
        kv.set_gradient_compression({"type": "2bit", "threshold": 1})
        outs = [mx.nd.zeros((3,)), mx.nd.zeros((3,))]
        kv.pushpull([1, 2], [[mx.nd.ones((3,)) * 0.5] * 4, [mx.nd.ones((3,)) * -3]], out=outs)
        assert outs[0].asnumpy().tolist() == [1, 1, 1] and outs[1].asnumpy().tolist() == [-1, -1, -1]
        kv.pushpull([1, 2], [mx.nd.zeros((3,)), mx.nd.zeros((3,))], out=outs)
        assert outs[0].asnumpy().tolist() == [1, 1, 1] and outs[1].asnumpy().tolist() == [-1, -1, -1]


def test_a_failed_call_owes_what_it_owed_before():
    kv = mx.kv.create("device")
    kv.init(["a", "b"], [mx.nd.zeros((2,))] * 2)
    kv.set_gradient_compression({"type": "2bit", "threshold": 1})
    kv.push("a", mx.nd.array([0.75, 0.25]))
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.push(["a", "b"], [mx.nd.array([0.75, 0.25]), mx.nd.zeros((3,))])

    def fails(key, grad, stored):
        raise ValueError("no")

    kv.set_updater(fails)
    with pytest.raises(ValueError):
        kv.push("a", mx.nd.array([0.75, 0.25]))
    kv.set_updater(None)
    kv.push("a", mx.nd.array([0.25, 0.25]))
    assert kv.pull("a").asnumpy().tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["int8", "2bit", "1bit", "topk"])
def test_elements_that_are_not_finite_count_as_0(kind):
    gradient = np.array([np.nan, np.inf, -np.inf, 1, -1, 0, 1e-42, 3e38] * 200, np.float32)
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.zeros((gradient.size,)))
        kv.set_gradient_compression(params(kind))
        for _ in range(3):
            kv.push("w", gradient)
            assert np.isfinite(kv.pull("w").asnumpy()).all()


def test_half_precision_sends_what_is_not_finite_and_no_new_infinity():
    gradient = np.array([np.nan, np.inf, -np.inf, 1e6, -1e6], np.float32)
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.zeros((5,)))
        kv.set_gradient_compression({"type": "fp16"})
        kv.push("w", gradient)
        value = kv.pull("w").asnumpy()
        assert np.isnan(value[0]) and value[1] == np.inf and value[2] == -np.inf
        assert value[3:].tolist() == [65504, -65504]
        kv.push("w", np.zeros(5, np.float32))
        assert kv.pull("w").asnumpy().tolist() == [0, 0, 0, 65504, -65504]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"type": "2bits"}, "did you mean '2bit'"),
        ({"type": "2bit", "threshold": 0}, "above 0"),
        ({"type": "2bit", "threshold": -0.5}, "above 0"),
        ({"type": "2bit", "threshold": "half"}, "a number is needed"),
        ({"type": "2bit", "thresold": 0.5}, "did you mean 'threshold'"),
        ({"type": "topk", "ratio": 2}, "at most 1"),
        ({"type": "topk", "threshold": 0.5}, "topk has no parameter 'threshold'"),
        ({"type": "int8", "threshold": 0.5}, "it takes none"),
        ({"threshold": 0.5}, "'type' is None"),
        ({}, "'type' is None"),
        ("2bit", "a dict is needed"),
        ({"type": "2bit", "threshold": 10**400}, "a number is needed"),
        ({"type": "\ud800"}, "'type' is"),
        ({"type": "2bit", "\ud800": 1}, "2bit has no parameter"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_so(given, says):
    for kv in (mx.kv.create("device"), mx.kv.create("dist_sync", bootstrap="self")):
        with pytest.raises(mx.errors.InvalidArgumentError, match=says):
            kv.set_gradient_compression(given)
        kv.close()


@pytest.mark.parametrize("keys", [["w", "v"], ("w",), None, b"w", True, 1.0, "\ud800"])
def test_keys_are_one_pattern_or_one_int_key(keys):
    kv = mx.kv.create("device")
    kv.init("w", mx.nd.zeros((1,)))
    with pytest.raises(mx.errors.InvalidArgumentError, match="a pattern such as"):
        kv.set_gradient_compression({"type": "2bit"}, keys=keys)
    kv.push("w", mx.nd.array([0.75]))
    assert kv.pull("w").asscalar() == 0.75


def test_an_int_key_may_be_one_of_numpy():
    kv = mx.kv.create("device")
    kv.init([3, 30], [mx.nd.zeros((1,))] * 2)
    kv.set_gradient_compression({"type": "2bit"}, keys=np.int64(3))
    kv.push([3, 30], [mx.nd.array([0.75])] * 2)
    assert [v.asscalar() for v in (kv.pull(3), kv.pull(30))] == [0.5, 0.75]


def test_a_store_that_sends_nothing_says_so():
    with pytest.raises(mx.errors.FailedPreconditionError, match="sends nothing"):
        mx.kv.create("local").set_gradient_compression({"type": "2bit"})


@pytest.mark.parametrize("store", ["device", "dist_sync"])
def test_a_key_that_cannot_be_compressed_is_named_and_can_be_left_out(store):
    with mx.kv.create(store, **({"bootstrap": "self"} if store == "dist_sync" else {})) as kv:
        kv.init(["n", "w"], [mx.nd.zeros((2,), dtype="int64"), mx.nd.zeros((2,))])
        kv.set_gradient_compression({"type": "2bit"})
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"push 'n': int64 values cannot be compressed"):
            kv.push(["w", "n"], [mx.nd.ones((2,)), mx.nd.ones((2,), dtype="int64")])
        assert kv.pull("w").asnumpy().tolist() == [0, 0]
        kv.set_gradient_compression({"type": "none"}, keys="n")
        kv.push("n", mx.nd.ones((2,), dtype="int64"))
        assert kv.pull("n").asnumpy().tolist() == [1, 1]


def test_a_pattern_that_only_tables_match_is_an_error_or_a_warning(caplog):
    kv = mx.kv.create("device")
    kv.init_table("emb.words", 2)
    kv.init("emb.bias", mx.nd.zeros((1,)))
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"keys='emb\.words' is a key that is kept by rows"):
        kv.set_gradient_compression({"type": "2bit"}, keys="emb.words")
    for pattern in ("*", "emb.*", "later"):  # a dense key matches, or may come
        kv.set_gradient_compression({"type": "2bit"}, keys=pattern)
    kv.set_gradient_compression({"type": "none"}, keys="emb.words")
    assert caplog.text == ""
    kv.set_gradient_compression({"type": "2bit"}, keys="*.w*")
    assert "keys='*.w*' matches only keys that are kept by rows so far, such as 'emb.words'" in caplog.text
    kv.init("fc.weight", mx.nd.zeros((1,)))
    kv.push("fc.weight", mx.nd.array([0.75]))
    assert kv.pull("fc.weight").asscalar() == 0.5


def test_a_name_that_is_no_pattern_of_itself_is_refused():
    kv = mx.kv.create("device")
    kv.init("layers[0]", mx.nd.zeros((1,)))
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"'layers\[\[\]0\]' matches it"):
        kv.set_gradient_compression({"type": "2bit"}, keys="layers[0]")
    kv.set_gradient_compression({"type": "2bit"}, keys="layers[[]0]")
    kv.push("layers[0]", mx.nd.array([0.75]))
    assert kv.pull("layers[0]").asscalar() == 0.5


def test_the_command_of_mxnet_does_the_same():
    kv = mx.kv.create("device")
    kv.init("w", mx.nd.zeros((2,)))
    kv.send_command_to_servers(4, {"type": "2bit", "threshold": "0.5"})
    kv.push("w", mx.nd.ones((2,)))
    assert kv.pull("w").asnumpy().tolist() == [0.5, 0.5]


def test_an_array_may_change_when_a_compressed_push_has_returned():
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init("w", mx.nd.zeros((100000,)))
        kv.set_gradient_compression({"type": "2bit", "threshold": 1})
        gradient = np.ones(100000, np.float32)
        for _ in range(20):
            gradient[:] = 1
            kv.push("w", gradient)
            gradient[:] = -1
            assert (kv.pull("w").asnumpy() == 1).all()


@pytest.mark.parametrize("store", ["dist_sync", "device"])
@pytest.mark.parametrize("kind", TYPES)
def test_finite_gradients_stay_finite_however_much_is_owed(kind, store):
    with mx.kv.create(store, **({"bootstrap": "self"} if store == "dist_sync" else {})) as kv:
        kv.init("w", np.zeros(1, np.float32))
        kv.set_gradient_compression(params(kind))
        for _ in range(4):
            kv.push("w", np.array([3e38], np.float32))
            arrived = kv.pull("w").asscalar()
            assert np.isfinite(arrived) and arrived > 0


PATTERNS = {
    "a\\b": "a\\b",
    "*\\*": "a\\b",
    "[^a]": "^",
    "[!a]": "b",
    "[]]": "]",
    "[a-c-e]x": "-x",
    "?": "ä",
    "[ä-ü]": "ö",
    "[": "[",
    "layer[0-9].*": "layer3.weight",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_in_python(pattern):
    others = ["b", "x", "a", "a]", "layerx.weight", "ab", "*", "ää"]
    keys = [PATTERNS[pattern], *(key for key in others if key != PATTERNS[pattern])]
    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init(keys, [np.zeros(1, np.float32)] * len(keys))
        kv.set_gradient_compression({"type": "2bit"}, keys=pattern)
        kv.push(keys, [np.array([0.75], np.float32)] * len(keys))
        compressed = [key for key in keys if kv.pull(key).asscalar() == 0.5]
    assert compressed == [key for key in keys if fnmatch.fnmatchcase(key, pattern)]
    assert PATTERNS[pattern] in compressed
