"""`mx.init`: MXNet's formulas. Random ones by their bounds and moments."""

import numpy as np
import pytest
import tensorkv as mx


def filled(init, shape, name="fc_weight", dtype="float32"):
    array = mx.nd.full(shape, 9, dtype=dtype)
    init(name, array)
    return array.asnumpy()


@pytest.mark.parametrize(
    ("init", "shape", "scale"),
    [
        (mx.init.Uniform(), (200, 100), 0.07),
        (mx.init.Uniform(0.5), (20000,), 0.5),
        (mx.init.Xavier(), (200, 100), np.sqrt(3 / 150)),
        (mx.init.Xavier(factor_type="in", magnitude=2), (200, 100), np.sqrt(2 / 100)),
        (mx.init.Xavier(factor_type="out"), (200, 100), np.sqrt(3 / 200)),
        (mx.init.Xavier(), (64, 32, 3, 3), np.sqrt(3 / (48 * 9))),
    ],
)
def test_uniform_ones_fill_their_range(init, shape, scale):
    values = filled(init, shape)
    assert 0.99 * scale < values.max() <= scale * 1.0001 and -scale * 1.0001 <= values.min() < -0.99 * scale
    assert abs(values.std() - scale / np.sqrt(3)) < 0.03 * scale


@pytest.mark.parametrize(
    ("init", "shape", "sigma"),
    [
        (mx.init.Normal(), (20000,), 0.01),
        (mx.init.Xavier("gaussian", "in", 2), (200, 100), np.sqrt(2 / 100)),
        (mx.init.MSRAPrelu(), (200, 100), np.sqrt(2 / (1 + 0.25**2) / 150)),
        (mx.init.MSRAPrelu("out", 0), (200, 100), np.sqrt(2 / 200)),
    ],
)
def test_normal_ones_have_their_deviation(init, shape, sigma):
    values = filled(init, shape)
    assert abs(values.std() - sigma) < 0.03 * sigma and abs(values.mean()) < 0.05 * sigma


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (4, 3, 3)])
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_orthogonal_ones_are(shape, kind):
    values = filled(mx.init.Orthogonal(2, kind), shape).reshape(shape[0], -1)
    product = values @ values.T if values.shape[0] < values.shape[1] else values.T @ values
    np.testing.assert_allclose(product, 4 * np.eye(4), atol=1e-5)


def test_a_seed_gives_the_same_again():
    both = []
    for _ in range(2):
        mx.random.seed(3)
        both.append(filled(mx.init.Xavier(), (3, 4)))
    np.testing.assert_array_equal(*both)


def test_the_name_says_what_a_parameter_is():
    init = mx.init.Normal()
    for name, value in {"a_bias": 0, "a_gamma": 1, "a_beta": 0, "a_running_mean": 0, "a_moving_var": 1}.items():
        assert (filled(init, (2,), name) == value).all()
    with pytest.raises(mx.errors.InvalidArgumentError, match="Normal: the name 'foo' says not what it is"):
        filled(init, (2,), "foo")


def test_those_without_chance():
    np.testing.assert_allclose(  # as MXNet 1.9.1 has it
        filled(mx.init.Bilinear(), (1, 1, 4, 4))[0, 0, :2],
        [[0.0625, 0.1875, 0.1875, 0.0625], [0.1875, 0.5625, 0.5625, 0.1875]],
    )
    assert filled(mx.init.LSTMBias(), (8,)).tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert filled(mx.init.Constant(np.arange(2)), (2,)).tolist() == [0, 1]
    assert filled(mx.init.One(), (2,), dtype="float16").dtype == np.float16
    mixed = mx.init.Mixed([".*bias", ".*"], [mx.init.Zero(), mx.init.One()])
    assert filled(mixed, (2,), "a_bias").tolist() == [0, 0] and filled(mixed, (2,)).tolist() == [1, 1]


@pytest.mark.parametrize(
    "name", "bilinear constant lstmbias msraprelu normal one ones orthogonal uniform xavier zero zeros".split()
)
def test_every_one_is_made_by_its_name_and_by_what_it_dumps(name):
    init = mx.init.create(name.upper(), **({"value": 3} if name == "constant" else {}))
    again = mx.init.create(init.dumps())
    assert type(again) is type(init) and again.dumps() == init.dumps() and mx.init.create(init) is init


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mx.init.create("he"), "initializer 'he': there are"),
        (lambda: mx.init.create("Unifrm"), "initializer 'Unifrm': there are .*; did you mean 'uniform'?"),
        (lambda: mx.init.create(mx.init.Zero(), value=3), "Zero.* already; 'value' comes too late"),
        (lambda: mx.init.create(mx.init.Zero().dumps(), value=3), r"zero.* already; 'value' comes too late"),
        (lambda: mx.init.Xavier("cauchy"), "rnd_type: 'cauchy'"),
        (lambda: mx.init.Xavier(factor_type="all"), "factor_type: 'all'"),
        (lambda: mx.init.Orthogonal(rand_type="x"), "rand_type: 'x'"),
        (lambda: mx.init.Uniform("wide"), "scale: 'wide'"),
        (lambda: filled(mx.init.Xavier(), (3,)), r"Xavier: fc_weight has shape \(3,\); at least two axes"),
        (lambda: filled(mx.init.Bilinear(), (3,)), "four axes"),
        (lambda: mx.init.Normal()(3, mx.nd.ones((2,))), "types int and NDArray"),
        (lambda: mx.init.Normal()("a_weight", np.ones(2)), "types str and ndarray"),
        (lambda: mx.init.Initializer()("a_weight", mx.nd.ones((2,))), "defines no _init_weight"),
        (lambda: mx.init.Mixed(["a"], []), "1 patterns and 0"),
        (lambda: mx.init.Mixed(["a"], [mx.init.Zero()])("b", mx.nd.ones((2,))), "no pattern for 'b'"),
    ],
)
def test_what_cannot_be_says_why(make, message):
    with pytest.raises((mx.errors.InvalidArgumentError, mx.errors.KeyNotFoundError), match=message):
        make()


def test_initializers_of_the_same_arguments_are_equal():
    assert mx.init.Xavier() == mx.init.Xavier() and hash(mx.init.Xavier()) == hash(mx.init.Xavier())
    assert mx.init.Xavier() != mx.init.Xavier(magnitude=2) and mx.init.Zero() != mx.init.One()
    assert mx.init.Zero() != "zero"


def test_bounds_of_quantised_arrays_are_0_and_1():
    w = mx.nd.full((2,), 5)
    mx.init.Xavier()("conv_min", w)
    assert w.tolist() == [0, 0]
    mx.init.Xavier()("conv_max", w)
    assert w.tolist() == [1, 1]
