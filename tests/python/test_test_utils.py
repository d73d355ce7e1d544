"""Helpers of MXNet's test scripts: the same tolerances, and names that are not here say what to use."""

import numpy as np
import pytest
import tensorkv as mx
from tensorkv import test_utils


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [("float16", 1.08, 1.2), ("float32", 1.001, 1.002), ("float64", 1.000009, 1.00002), ("int32", 1, 2)],
)
def test_tolerances_are_those_of_the_dtype(dtype, near, far):
    one = mx.nd.ones((3,), dtype=dtype)
    test_utils.assert_almost_equal(one, np.full(3, near, dtype))
    with pytest.raises(AssertionError, match="a and b differ"):
        test_utils.assert_almost_equal(one, np.full(3, far, dtype))


def test_the_larger_tolerance_of_two_dtypes_counts():
    test_utils.assert_almost_equal(mx.nd.ones((2,)), np.full(2, 1.0008))
    test_utils.assert_almost_equal(np.full(2, 1.0008), mx.nd.ones((2,)))
    test_utils.assert_almost_equal(np.float32(1), 1.00001)


def test_tolerances_that_are_given_count():
    one, other = np.ones(2, np.float32), np.full(2, 1.5, np.float32)
    test_utils.assert_almost_equal(one, other, rtol=0, atol=0.5)
    test_utils.assert_almost_equal(one, other, atol={np.dtype(np.float32): 0.6})
    with pytest.raises(AssertionError):
        test_utils.assert_almost_equal(one, other, rtol=0, atol={np.dtype(np.float64): 0.6})
    with pytest.raises(AssertionError, match="x and y differ"):
        test_utils.assert_almost_equal(one, other, names=("x", "y"), mismatches=(3, 3))


def test_shapes_broadcast_unless_they_may_not():
    test_utils.assert_almost_equal(np.ones((2, 3)), np.ones(3))
    assert test_utils.almost_equal(np.ones((2, 3)), np.ones(3))
    for call in (test_utils.assert_almost_equal, test_utils.almost_equal):
        with pytest.raises(AssertionError, match=r"a.shape = \(2, 3\) and b.shape = \(3,\)"):
            call(np.ones((2, 3)), np.ones(3), use_broadcast=False)


def test_random_shapes_and_arrays():
    for _ in range(20):
        assert all(1 <= n <= 3 for n in test_utils.rand_shape_nd(4, dim=3)) and len(test_utils.rand_shape_2d()) == 2
        assert all(1 <= n <= m for n, m in zip(test_utils.rand_shape_3d(1, 2, 3), (1, 2, 3), strict=True))
    assert {0, 1} >= set(test_utils.rand_shape_nd(9, dim=1, allow_zero_size=True))
    one, other = test_utils.random_arrays((2, 3), ())
    assert one.shape == (2, 3) and other.shape == () and one.dtype == other.dtype == test_utils.default_dtype()
    assert test_utils.random_arrays((4,)).shape == (4,)


def test_a_test_that_fails_by_chance_is_run_again():
    runs = []

    @test_utils.retry(3)
    def test():
        runs.append(1)
        assert len(runs) > 2

    test()
    assert len(runs) == 3
    with pytest.raises(AssertionError):
        test_utils.retry(2)(lambda: test_utils.assert_almost_equal(1, 2))()


def test_views_have_the_same_memory():
    a = mx.nd.arange(4)
    assert test_utils.same_array(a, a[:]) and not test_utils.same_array(a, a.copy())
    assert a.tolist() == [0, 1, 2, 3] and not test_utils.same_array(a, mx.nd.ones((2,)))
