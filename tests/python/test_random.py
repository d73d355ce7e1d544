"""Random arrays: one stream, which a seed starts again, with the shapes, dtypes, bounds and moments that were asked for."""

import inspect

import numpy as np
import pytest
import tensorkv as mx

DRAWN = {
    "uniform": (lambda m: m.uniform(-1, 3, shape=(20_000,)), 1, 16 / 12),
    "normal": (lambda m: m.normal(2, 3, shape=(20_000,)), 2, 9),
    "randn": (lambda m: m.randn(100, 200, loc=1, scale=2), 1, 4),
    "randint": (lambda m: m.randint(0, 11, shape=(20_000,)), 5, 10),
    "exponential": (lambda m: m.exponential(2, shape=(20_000,)), 2, 4),
    "gamma": (lambda m: m.gamma(3, 2, shape=(20_000,)), 6, 12),
    "poisson": (lambda m: m.poisson(4, shape=(20_000,)), 4, 4),
    "negative_binomial": (lambda m: m.negative_binomial(4, 0.5, shape=(20_000,)), 4, 8),
    "generalized_negative_binomial": (lambda m: m.generalized_negative_binomial(3, 0.5, shape=(20_000,)), 3, 7.5),
    "multinomial": (lambda m: m.multinomial(mx.nd.array([0.25, 0.75]), shape=(20_000,)), 0.75, 3 / 16),
}


@pytest.mark.parametrize("name", DRAWN)
def test_distributions_have_their_moments_and_a_seed_repeats_them(name):
    draw, mean, variance = DRAWN[name]
    mx.random.seed(7)
    first = draw(mx.random).asnumpy()
    mx.random.seed(7)
    assert np.array_equal(draw(mx.nd.random).asnumpy(), first)
    assert first.dtype == (np.int32 if name in ("randint", "multinomial") else np.float32)
    assert first.mean() == pytest.approx(mean, abs=6 * np.sqrt(variance / 20_000))
    assert first.var() == pytest.approx(variance, rel=0.15)


def test_every_function_has_a_test():
    assert set(mx.random.__all__) == {*DRAWN, "seed", "shuffle"}


def test_a_shuffle_keeps_rows():
    rows = mx.nd.arange(200).reshape((100, 2))
    found = mx.nd.random.shuffle(rows)
    assert sorted(found.asnumpy()[:, 0].tolist()) == list(range(0, 200, 2))
    assert (found.asnumpy()[:, 1] - found.asnumpy()[:, 0] == 1).all() and not np.array_equal(
        found.asnumpy(), rows.asnumpy()
    )
    assert rows[0].asnumpy().tolist() == [0, 1]


def test_draws_of_several_rows():
    chances = mx.nd.array([[0, 1, 0], [1, 0, 0]])
    assert mx.random.multinomial(chances, shape=(3,)).asnumpy().tolist() == [[1, 1, 1], [0, 0, 0]]
    assert mx.random.multinomial(chances).shape == (2,)
    for wrong in ([0.5, 0.4], [1.5, -0.5]):
        with pytest.raises(mx.errors.InvalidArgumentError, match="sum to 1"):
            mx.random.multinomial(mx.nd.array(wrong))


@pytest.mark.parametrize(
    "name", [name for name in mx.random.__all__ if "out" in inspect.signature(getattr(mx.random, name)).parameters]
)
def test_every_function_fills_the_array_that_it_is_given(name):
    arguments = {"randint": (0, 9), "randn": (3, 4), "multinomial": (mx.nd.array([[0.5, 0.5]] * 3),)}.get(name, ())
    shape = {} if name == "randn" else {"shape": (4,) if name == "multinomial" else (3, 4)}
    out = mx.nd.full((3, 4), -7, dtype="float64")
    assert getattr(mx.random, name)(*arguments, out=out, **shape) is out
    assert (out.asnumpy() != -7).all()
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"out: shape \(2,\), \(3, 4\) is needed"):
        getattr(mx.random, name)(*arguments, out=mx.nd.zeros((2,)), **shape)


def test_results_in_an_array_that_is_there():
    out = mx.nd.zeros((2, 3), dtype="float64")
    assert mx.random.uniform(5, 6, shape=(2, 3), out=out) is out and out.min().asscalar() >= 5
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"out: shape \(2, 3\), \(4,\) is needed"):
        mx.random.normal(shape=(4,), out=out)
    classes, likely = mx.random.multinomial(mx.nd.array([0.25, 0.75]), shape=(50,), get_prob=True)
    wanted = np.log(np.array([0.25, 0.75]))[classes.asnumpy()]
    np.testing.assert_allclose(likely.asnumpy(), wanted, rtol=1e-6)


def test_bounds():
    with pytest.raises(mx.errors.InvalidArgumentError, match="no number from 3 to below 3"):
        mx.random.randint(3, 3)
    assert set(mx.random.randint(-1, 1, shape=(100,)).asnumpy().tolist()) == {-1, 0}


ARGUMENTS = {"beta": (2, 3), "chisquare": (2,), "gamma": (2,), "pareto": (3,), "power": (2,), "weibull": (2,)}


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in mx.np.random.__all__
        if n not in ("choice", "permutation", "rand", "randint", "randn", "seed", "shuffle")
    ],
)
def test_numpys_distributions_are_numpys(name):
    arguments = ARGUMENTS.get(name, ())
    mx.np.random.seed(3)
    found = getattr(mx.np.random, name)(*arguments, size=(4, 5))
    wanted = getattr(np.random.default_rng(3), name)(*arguments, size=(4, 5))
    assert type(found) is mx.np.ndarray and np.array_equal(found.asnumpy(), wanted.astype(np.float32))
    assert inspect.getdoc(getattr(mx.np.random, name))


def test_numpys_other_functions():
    mx.np.random.seed(5)
    assert mx.np.random.rand(2, 3).shape == (2, 3) and mx.np.random.randn(4).shape == (4,)
    assert mx.np.random.randint(3, size=(50,)).dtype == np.int64
    assert set(mx.np.random.randint(1, 3, size=(50,)).asnumpy().tolist()) == {1, 2}
    assert sorted(mx.np.random.permutation(5).asnumpy().tolist()) == list(range(5))
    drawn = mx.np.random.choice(mx.np.array([2.0, 4.0]), size=(100,), p=[0, 1])
    assert set(drawn.asnumpy().tolist()) == {4}
    a = mx.np.arange(50)
    assert mx.np.random.shuffle(a) is None and sorted(a.asnumpy().tolist()) == list(range(50))
    assert mx.np.random.uniform().shape == ()


PARAMETERS = {
    "uniform": ([0, 10], [1, 20]),
    "normal": ([-5, 100], [1, 2]),
    "exponential": ([1, 50],),
    "gamma": ([1, 50], [1, 2]),
    "poisson": ([1, 90],),
    "negative_binomial": ([1, 40], [0.5, 0.25]),
    "generalized_negative_binomial": ([1, 90], [0.0, 0.25]),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_are_arrays_give_numbers_for_each_element(name):
    arrays = [mx.nd.array([values]) for values in PARAMETERS[name]]
    draw = getattr(mx.nd.random, name)
    assert draw(*arrays).shape == (1, 2) and draw(*arrays, shape=3).shape == (1, 2, 3)
    assert draw(*arrays, shape=(1,)).shape == (1, 2, 1)
    many = draw(*arrays, shape=(30, 20), dtype="float64")
    assert many.shape == (1, 2, 30, 20) and many.dtype_name == "float64"
    low, high = many.asnumpy()[0].mean(axis=(1, 2))
    assert low < 3 and high > 12
    out = mx.nd.full((1, 2), -1e9)
    assert draw(*arrays, out=out) is out and (out.asnumpy() > -1e9).all()
    assert draw(*[mx.nd.array(values, mx.cpu(1)) for values in PARAMETERS[name]], ctx=mx.cpu(0)).context == mx.cpu(1)


def test_draws_with_axes_and_arrays():
    assert mx.random.randn(2, 3, loc=mx.nd.array([1, 2]), scale=mx.nd.array([1, 2])).shape == (2, 2, 3)


def test_parameters_of_two_kinds_or_shapes_are_refused():
    a = mx.nd.array([1, 2])
    for call in (
        lambda: mx.random.uniform(a, 3),
        lambda: mx.random.uniform(0, a),
        lambda: mx.random.uniform(a, mx.nd.ones((3,))),
        lambda: mx.random.uniform(a, mx.nd.ones((1, 2))),
        lambda: mx.random.uniform(np.zeros(2), np.ones(2)),
        lambda: mx.random.uniform([0, 1], [1, 2]),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match="^uniform: parameters of"):
            call()
    with pytest.raises(mx.errors.InvalidArgumentError, match="^exponential: "):
        mx.random.exponential(-1)


@pytest.mark.parametrize("name", ["uniform", "normal", "randint"])
def test_a_draw_without_a_shape_has_that_of_out(name):
    out = mx.nd.full((2, 3), -1e9)
    assert getattr(mx.random, name)(0, 5, out=out) is out and (out.asnumpy() > -1e9).all()
    assert getattr(mx.random, name)(0, 5).shape == (1,)
