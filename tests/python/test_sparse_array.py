"""Row-sparse arrays: their construction, results and errors, against dense arrays of NumPy."""

import copy
import operator
import pickle

import numpy as np
import pytest
import tensorkv as mx

sparse = mx.nd.sparse
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"]


def rows(data=((1, 2), (3, 4)), indices=(0, 2), shape=(4, 2), dtype=None):
    return sparse.row_sparse_array((list(data), list(indices)), shape=shape, dtype=dtype)


def random_rows(random, shape, dtype="float32", density=0.5):
    chosen = np.flatnonzero(random.random(shape[0]) < density)
    data = random.integers(-8, 9, (len(chosen), *shape[1:]))
    return sparse.row_sparse_array((data, chosen), shape=shape, dtype=dtype)


def is_whole(a):
    """Check that indices and data fit together and keep the rules of a row-sparse array."""
    indices = a.indices.asnumpy()
    assert indices.dtype == np.int64 and indices.shape == (a.data.shape[0],)
    assert (np.diff(indices) > 0).all() and (indices >= 0).all() and (indices < a.shape[0]).all()
    assert a.data.shape[1:] == a.shape[1:] and a.data.dtype_name == a.dtype_name
    return True


def same(a, dense, stype="row_sparse"):
    assert a.stype == stype and a.shape == dense.shape
    if stype == "row_sparse":
        is_whole(a)
    np.testing.assert_array_equal(a.astype("float64").asnumpy(), np.asarray(dense, np.float64))


# ------------------------------------------------------------------------------------------------------------- making


@pytest.mark.host
def test_what_an_array_has():
    a = rows()
    assert (a.shape, a.ndim, a.size, len(a), a.stype, a.dtype, a.dtype_name) == (
        (4, 2),
        2,
        8,
        4,
        "row_sparse",
        np.float32,
        "float32",
    )
    assert a.context == a.ctx == mx.cpu() and repr(a) == "\n<RowSparseNDArray 4x2 @cpu(0)>"
    assert a.indices.asnumpy().tolist() == [0, 2] and a.indices.dtype is np.int64
    assert a.data.asnumpy().tolist() == [[1, 2], [3, 4]]
    assert a.asnumpy().tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]] == np.asarray(a).tolist()
    assert a.asnumpy().dtype == np.float32


def test_indices_are_a_copy_and_data_is_the_memory():
    a = rows()
    a.indices[:] = 7
    a.data[:] = 9
    assert a.asnumpy().tolist() == [[9, 9], [0, 0], [9, 9], [0, 0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda data, ids: (data, ids),
        lambda data, ids: (data.tolist(), ids.tolist()),
        lambda data, ids: (data, tuple(ids.tolist())),
        lambda data, ids: (mx.nd.array(data), mx.nd.array(ids)),
        lambda data, ids: (mx.nd.array(data), mx.nd.array(ids, dtype="int32")),
        lambda data, ids: (data, ids.astype(np.uint8)),
        lambda data, ids: (data, ids.astype(np.float16)),
        lambda data, ids: (data, [np.int64(i) for i in ids]),
    ],
)
def test_of_data_and_indices_in_any_order(make):
    data, ids = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([5, 0, 3])
    a = sparse.row_sparse_array(make(data, ids), shape=(7, 2))
    assert is_whole(a) and a.indices.asnumpy().tolist() == [0, 3, 5]
    assert a.data.asnumpy().tolist() == [[2, 3], [4, 5], [0, 1]] and a.dtype is np.float32


def test_the_shape_is_what_the_largest_index_asks_for():
    assert sparse.row_sparse_array(([[1.0, 2.0]], [3])).shape == (4, 2)
    assert sparse.row_sparse_array((np.ones((1, 2, 3)), [3])).shape == (4, 2, 3)
    assert sparse.row_sparse_array(([1.0, 2.0], [4, 1]), shape=(6,)).asnumpy().tolist() == [0, 2, 0, 0, 1, 0]


def test_the_dtype_is_that_of_an_array():
    assert sparse.row_sparse_array((np.ones((1, 2)), [0])).dtype is np.float64
    assert sparse.row_sparse_array((mx.nd.ones((1, 2), dtype="float16"), [0])).dtype is np.float16
    assert sparse.row_sparse_array(([[1, 2]], [0])).dtype is np.float32
    assert sparse.row_sparse_array((np.ones((1, 2)), [0]), dtype="int8").dtype is np.int8
    assert sparse.row_sparse_array(np.eye(2, dtype=np.int64)).dtype is np.int64


def test_data_is_copied():
    data, dense = np.ones((1, 2), np.float32), mx.nd.ones((2, 2))
    of_pair, of_dense = sparse.row_sparse_array((data, [1]), shape=(2, 2)), sparse.row_sparse_array(dense)
    data[:] = 5
    dense[:] = 5
    assert of_pair.asnumpy().max() == 1 and of_dense.asnumpy().max() == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_a_dense_array_and_back(dtype):
    dense = mx.nd.array([[0, 0], [1, 0], [0, 0], [2, 3]], dtype=dtype)
    for a in (dense.tostype("row_sparse"), sparse.row_sparse_array(dense), mx.nd.cast_storage(dense, "row_sparse")):
        assert is_whole(a) and a.indices.asnumpy().tolist() == [1, 3] and a.dtype_name == dtype
        back = a.tostype("default")
        assert back.dtype_name == dtype and back.stype == "default"
        assert (back == dense).astype("float32").asnumpy().all()
    assert dense.tostype("default") is dense and dense.stype == "default"


def test_of_a_dense_array_without_elements_or_rows():
    assert mx.nd.zeros((0, 3)).tostype("row_sparse").shape == (0, 3)
    assert mx.nd.zeros((3, 0)).tostype("row_sparse").indices.shape == (0,)
    assert mx.nd.array([0, 5, 0]).tostype("row_sparse").indices.asnumpy().tolist() == [1]
    with pytest.raises(mx.errors.InvalidArgumentError, match="no rows"):
        mx.np.zeros(()).tostype("row_sparse")


def test_rows_of_nan_and_negative_zero():
    a = mx.nd.array([[np.nan, 0], [0, 0], [-0.0, 0]]).tostype("row_sparse")
    assert 0 in a.indices.asnumpy() and 1 not in a.indices.asnumpy()


def test_zeros_and_empty_have_no_rows():
    for a in (
        sparse.zeros("row_sparse", (3, 2), mx.cpu(1), "float16"),
        sparse.zeros(shape=(3, 2), ctx=mx.cpu(1), stype="row_sparse", dtype="float16"),
        mx.nd.zeros((3, 2), mx.cpu(1), "float16", stype="row_sparse"),
        mx.nd.empty((3, 2), mx.cpu(1), "float16", stype="row_sparse"),
        sparse.empty("row_sparse", (3, 2), mx.cpu(1), "float16"),
        sparse.zeros_like(rows(shape=(3, 2), dtype="float16").copyto(mx.cpu(1))),
    ):
        assert is_whole(a) and a.indices.shape == (0,) and a.data.shape == (0, 2)
        assert (a.shape, a.context, a.dtype) == ((3, 2), mx.cpu(1), np.float16) and not a.asnumpy().any()
    assert sparse.zeros("default", (3, 2)).stype == "default" == sparse.empty("default", 3).stype
    assert sparse.row_sparse_array((3, 2)).shape == (3, 2) and sparse.row_sparse_array((3, 2, 4)).shape == (3, 2, 4)


def test_a_first_extent_costs_nothing():
    a = sparse.row_sparse_array(([[1.0, 2.0]], [2**62]), shape=(2**63, 2))
    assert len(a.indices) == 1 and (a * 2).data.asnumpy().tolist() == [[2, 4]] and (a + a).data.asnumpy().max() == 4
    with pytest.raises(mx.errors.KVError):
        sparse.zeros("row_sparse", (2**50, 2**10)).asnumpy()


def test_of_another_row_sparse_array():
    a = rows()
    for b in (sparse.row_sparse_array(a), sparse.array(a), mx.nd.array(a), a.copy(), a.tostype("row_sparse")):
        assert b is not a and b.stype == "row_sparse"
        b.data[:] = 9
    assert a.asnumpy().max() == 4
    assert sparse.row_sparse_array(a, ctx=mx.cpu(2), dtype="int32").context == mx.cpu(2)
    assert sparse.array(a, dtype="float64").dtype is np.float64


BAD = {
    "twice": (lambda: rows(indices=(2, 2)), mx.errors.InvalidArgumentError, "row 2 stands twice"),
    "negative": (lambda: rows(indices=(0, -1)), mx.errors.OutOfRangeError, r"row -1; the array has shape \(4, 2\)"),
    "beyond": (lambda: rows(indices=(0, 4)), mx.errors.OutOfRangeError, r"row 4; the array has shape \(4, 2\)"),
    "fraction": (lambda: rows(indices=(0, 1.5)), mx.errors.InvalidArgumentError, "1.5 is no id"),
    "nan": (lambda: rows(indices=(0, np.nan)), mx.errors.InvalidArgumentError, "nan is no id"),
    "infinite": (lambda: rows(indices=(0, np.inf)), mx.errors.InvalidArgumentError, "inf is no id"),
    "bool": (lambda: rows(indices=(False, True)), mx.errors.InvalidArgumentError, "False is no id"),
    "text": (lambda: rows(indices=("0", "1")), mx.errors.InvalidArgumentError, "'0' is no id"),
    "none": (lambda: rows(indices=(0, None)), mx.errors.InvalidArgumentError, "None is no id"),
    "2**63": (lambda: rows(indices=(0, 2**63)), mx.errors.OutOfRangeError, "row 9223372036854775808"),
    "2**64": (lambda: rows(indices=(0, 2**64)), mx.errors.OutOfRangeError, "row 18446744073709551616"),
    "1e19": (lambda: rows(indices=(0, 1e19)), mx.errors.OutOfRangeError, "below 2"),
    "fewer": (lambda: rows(indices=(0,)), mx.errors.InvalidArgumentError, "a row for each index"),
    "two axes": (lambda: rows(indices=((0,), (1,))), mx.errors.InvalidArgumentError, "a row for each index"),
    "wider": (lambda: rows(shape=(4, 3)), mx.errors.InvalidArgumentError, r"rows of shape \(2,\)"),
    "flat": (lambda: rows(shape=(4,)), mx.errors.InvalidArgumentError, r"rows of shape \(2,\)"),
    "no shape": (
        lambda: sparse.row_sparse_array((np.zeros((0, 2)), [])),
        mx.errors.InvalidArgumentError,
        "shape= is needed",
    ),
    "number": (lambda: sparse.row_sparse_array((1, [0])), mx.errors.InvalidArgumentError, "a row for each index"),
    "three": (lambda: sparse.row_sparse_array(([1], [0], [0])), mx.errors.InvalidArgumentError, "a tuple of 3"),
    "csr": (lambda: sparse.zeros("csr", (2, 2)), mx.errors.UnimplementedError, "scipy.sparse"),
    "tostype csr": (lambda: mx.nd.ones((2, 2)).tostype("csr"), mx.errors.UnimplementedError, "scipy.sparse"),
    "stype": (lambda: sparse.zeros("rsp", (2, 2)), mx.errors.InvalidArgumentError, "'row_sparse'"),
    "ones": (lambda: mx.nd.ones((2, 2), stype="row_sparse"), mx.errors.UnimplementedError, "tkv.nd.zeros"),
    "class": (lambda: sparse.RowSparseNDArray(), mx.errors.InvalidArgumentError, "row_sparse_array"),
    "array": (lambda: sparse.array(np.ones((2, 2))), mx.errors.InvalidArgumentError, "tkv.nd.array"),
    "other shape": (
        lambda: sparse.row_sparse_array(rows(), shape=(5, 2)),
        mx.errors.InvalidArgumentError,
        r"shape \(5, 2\), the array has \(4, 2\)",
    ),
    "no rows": (lambda: sparse.zeros("row_sparse", ()), mx.errors.InvalidArgumentError, "a first extent"),
    "item": (lambda: rows()[0], mx.errors.InvalidArgumentError, "retain"),
    "slice": (lambda: rows()[0:2], mx.errors.InvalidArgumentError, "tostype"),
    "iteration": (lambda: list(rows()), mx.errors.InvalidArgumentError, "tostype"),
    "truth": (lambda: bool(rows()), mx.errors.InvalidArgumentError, "one element is needed"),
    "set item": (lambda: rows().__setitem__(0, 1), mx.errors.InvalidArgumentError, "alone"),
    "set shape": (lambda: rows().__setitem__(slice(None), rows(shape=(5, 2))), mx.errors.InvalidArgumentError, "shape"),
    "copyto shape": (lambda: rows().copyto(mx.nd.zeros((3, 2))), mx.errors.InvalidArgumentError, "shape"),
    "copyto type": (lambda: rows().copyto(np.zeros((4, 2))), mx.errors.InvalidArgumentError, "ndarray"),
    "sum shape": (lambda: rows() + rows(shape=(5, 2)), mx.errors.InvalidArgumentError, "shape"),
    "sum dtype": (lambda: rows() + rows(dtype="float64"), mx.errors.InvalidArgumentError, "float64"),
    "retain": (lambda: rows().retain([4]), mx.errors.OutOfRangeError, "row 4"),
    "retain dense": (lambda: sparse.retain(mx.nd.ones((2, 2)), [0]), mx.errors.InvalidArgumentError, "NDArray"),
    "cast": (lambda: mx.nd.cast_storage(np.ones((2, 2)), "row_sparse"), mx.errors.InvalidArgumentError, "NDArray"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_an_error_that_says_so(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call()


def test_names_that_are_not_here_say_what_to_use():
    with pytest.raises(AttributeError, match="tostype"):
        rows().reshape  # noqa: B018
    with pytest.raises(AttributeError, match=r"mx\.nd\.sparse\.csr_matrix is not here: .*scipy"):
        sparse.csr_matrix  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rows().nothing  # noqa: B018


# ------------------------------------------------------------------------------------------------------- what it does


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(6, 3), (5,), (4, 2, 3), (0, 2), (3, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_arithmetic_of_arrays_is_that_of_dense_ones(seed, shape, dtype):
    random = np.random.default_rng(seed)
    a, b = (random_rows(random, shape, dtype) for _ in range(2))
    d = mx.nd.array(random.integers(-8, 9, shape), dtype=dtype)
    x, y, z = a.asnumpy(), b.asnumpy(), d.asnumpy()
    for op in (operator.add, operator.sub, operator.mul):
        same(op(a, b), op(x, y))
        same(op(d, a), op(z, x), "default")
    for op in (operator.add, operator.sub):
        same(op(a, d), op(x, z), "default")
    same(a * d, x * z)
    same(a + z, x + z, "default")
    same(z - a, z - x, "default")
    same(-a, -x)
    same(abs(a), np.abs(x))
    assert a is not b and np.array_equal(a.asnumpy(), x) and np.array_equal(b.asnumpy(), y)


@pytest.mark.parametrize("scalar", [0, 1, 2, -3, 0.5, np.float32(2), np.int64(0)])
def test_arithmetic_with_numbers_keeps_what_stays_zero(scalar):
    a = rows()
    x = a.asnumpy()
    kind = "row_sparse" if scalar == 0 else "default"
    same(a + scalar, x + scalar, kind)
    same(scalar + a, x + scalar, kind)
    same(a - scalar, x - scalar, kind)
    same(scalar - a, scalar - x, "default")
    same(a * scalar, x * scalar)
    same(scalar * a, x * scalar)
    if scalar != 0:
        same(a / scalar, x / np.float32(scalar))
    same(a**2, x**2, "default")
    same(a % 2, x % 2, "default")


def test_quotients_are_dense_but_by_a_number():
    a, b, d = rows(), rows(((2, 2), (4, 4)), (1, 2)), mx.nd.ones((4, 2))
    for quotient in (a / b, a / d, d / a, 2 / a):
        assert quotient.stype == "default"
    assert (a / b).asnumpy()[2].tolist() == [0.75, 1] and np.isnan((a / b).asnumpy()[3]).all()


def test_comparisons_are_row_sparse_where_zeros_stay():
    a, b = rows(), rows(indices=(1, 2))
    x, y = a.asnumpy(), b.asnumpy()
    for op in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        same(op(a, b), op(x, y), "default")
        for scalar in (-1, 0, 1, 3):
            same(op(a, scalar), op(x, scalar), "default" if op(0, scalar) else "row_sparse")


def test_broadcasting_is_dense():
    same(rows() + mx.nd.ones((1, 2)), rows().asnumpy() + 1, "default")
    same(rows() * mx.nd.array([[1], [2], [3], [4]]), rows().asnumpy() * [[1], [2], [3], [4]], "default")


@pytest.mark.parametrize("op", [operator.iadd, operator.isub, operator.imul])
@pytest.mark.parametrize(
    "make", [lambda: rows(indices=(1, 2)), lambda: mx.nd.ones((4, 2)), lambda: 2, lambda: np.ones((4, 2), np.float32)]
)
def test_in_place_changes_the_array_itself(op, make):
    a, other = rows(), make()
    handle, x = a, a.asnumpy()
    a = op(a, other)
    assert a is handle
    same(a, op(x, np.asarray(other)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dense_array_takes_rows_in_place(dtype):
    d, a = mx.nd.ones((4, 2), dtype=dtype), rows(dtype=dtype)
    view = d[0:4]
    d += a
    d += a
    d -= a
    assert view.astype("float32").asnumpy().tolist() == [[2, 3], [1, 1], [4, 5], [1, 1]]
    d *= a
    assert view.astype("float32").asnumpy().tolist() == [[2, 6], [0, 0], [12, 20], [0, 0]]
    d[:] = a
    assert view.astype("float32").asnumpy().tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]]
    with pytest.raises(mx.errors.InvalidArgumentError):
        d += rows(shape=(5, 2), dtype=dtype)


def test_assignment_replaces_all_rows():
    a = rows()
    for value, wanted in [
        (3, np.full((4, 2), 3)),
        (0, np.zeros((4, 2))),
        (rows(indices=(1, 3)), rows(indices=(1, 3)).asnumpy()),
        (mx.nd.ones((4, 2)), np.ones((4, 2))),
        (np.eye(4, 2), np.eye(4, 2)),
        (rows(dtype="float64"), rows().asnumpy()),
    ]:
        a[:] = value
        same(a, wanted)
        assert a.dtype is np.float32
    before = a.asnumpy()
    a[:] = a
    same(a, before)
    assert a[:] is a and a[...] is a


def test_an_assigned_array_is_a_copy():
    a, b = rows(), sparse.zeros("row_sparse", (4, 2))
    b[:] = a
    c = a.copyto(sparse.zeros("row_sparse", (4, 2)))
    a.data[:] = 9
    assert b.asnumpy().max() == c.asnumpy().max() == 4


@pytest.mark.host
def test_copyto_and_contexts():
    a = rows()
    assert a.copyto(mx.cpu(1)).context == mx.cpu(1) and a.as_in_context(mx.cpu()) is a
    assert a.as_in_ctx(mx.cpu(2)).context == mx.cpu(2)
    dense, other = mx.nd.ones((4, 2), dtype="float16"), sparse.zeros("row_sparse", (4, 2), mx.cpu(3), "float64")
    assert a.copyto(dense) is dense and dense.asnumpy().tolist() == a.asnumpy().tolist()
    assert a.copyto(other) is other and (other.context, other.dtype) == (mx.cpu(3), np.float64)
    same(other, a.asnumpy())
    target = sparse.zeros("row_sparse", (4, 2))
    assert mx.nd.ones((4, 2)).copyto(target) is target and len(target.indices) == 4


def test_astype_keeps_rows():
    a = rows()
    assert a.astype("float32", copy=False) is a and a.astype("float32") is not a
    for dtype in DTYPES:
        b = a.astype(dtype)
        assert b.dtype_name == dtype and b.indices.asnumpy().tolist() == [0, 2]


def test_retain_has_each_asked_row_once():
    a = rows()
    for b in (a.retain([3, 2, 2]), sparse.retain(a, mx.nd.array([[2, 3]])), a.retain(np.array([2.0, 3.0]))):
        assert is_whole(b) and b.indices.asnumpy().tolist() == [2, 3]
        assert b.data.asnumpy().tolist() == [[3, 4], [0, 0]] and b.shape == a.shape
    assert a.retain([]).indices.shape == (0,)


@pytest.mark.parametrize(
    "name",
    "abs arcsin arcsinh arctan arctanh cbrt ceil degrees expm1 fix floor log1p negative radians relu rint round sign sin sinh sqrt "
    "square tan tanh trunc".split(),
)
def test_functions_that_keep_zeros_are_row_sparse(name):
    a = rows(((0.25, 0.5), (0.75, 1.0)))
    for result in (getattr(mx.nd, name)(a), getattr(sparse, name)(a)):
        assert result.stype == "row_sparse" and result.indices.asnumpy().tolist() == [0, 2]
        np.testing.assert_array_equal(result.asnumpy(), getattr(mx.nd, name)(a.tostype("default")).asnumpy())
    if hasattr(a, name):
        assert getattr(a, name)().stype == "row_sparse"


def test_other_functions_are_dense():
    a, d = rows(), mx.nd.ones((2, 2))
    for result, wanted in [
        (a.exp(), np.exp(a.asnumpy())),
        (mx.nd.cos(a), np.cos(a.asnumpy())),
        (a.sum(), [10]),
        (sparse.sum(a, axis=1), [3, 0, 7, 0]),
        (a.norm(), [np.sqrt(30)]),
        (mx.nd.norm(a, ord=1), [10]),
        (a.mean(), [1.25]),
        (a.max(), [4]),
        (a.min(), [0]),
        (mx.nd.dot(a, d), a.asnumpy() @ np.ones((2, 2))),
        (mx.nd.dot(mx.nd.ones((2, 4)), a), [[4, 6], [4, 6]]),
        (mx.nd.concat(a, a, dim=0), np.concatenate([a.asnumpy()] * 2)),
        (mx.nd.add_n(a, mx.nd.ones((4, 2)), a), 2 * a.asnumpy() + 1),
        (a.clip(1, 3), np.clip(a.asnumpy(), 1, 3)),
    ]:
        assert result.stype == "default"
        np.testing.assert_allclose(result.asnumpy(), wanted, rtol=1e-6)
    assert a.clip(0, 3).stype == "row_sparse" and mx.nd.add_n(a, a).stype == "row_sparse"
    same(mx.nd.add_n(a), a.asnumpy())
    assert a.sum(keepdims=True).shape == (1, 1)


def test_functions_of_two_arrays_are_the_operators():
    a, b = rows(), rows(indices=(1, 2))
    same(sparse.add(a, b), a.asnumpy() + b.asnumpy())
    same(sparse.subtract(1, a), 1 - a.asnumpy(), "default")
    same(sparse.multiply(a, 2), a.asnumpy() * 2)
    same(sparse.divide(a, 2), a.asnumpy() / 2)
    same(mx.nd.elemwise_add(a, b), a.asnumpy() + b.asnumpy())
    out = sparse.zeros("row_sparse", (4, 2))
    assert mx.nd.square(a, out=out) is out
    same(out, a.asnumpy() ** 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pickle_and_copies_are_by_value(dtype):
    a = rows(dtype=dtype).copyto(mx.cpu(1))
    for b in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a), a.copy()):
        assert b.dtype_name == dtype and b.context == mx.cpu(1) and is_whole(b)
        b.data[:] = 7
    assert a.data.astype("float32").asnumpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_files_hold_row_sparse_arrays(tmp_path, dtype):
    data = {
        "a": rows(dtype=dtype),
        "none": sparse.zeros("row_sparse", (2**63, 3), dtype=dtype),
        "dense": mx.nd.ones((2,)),
        7: sparse.row_sparse_array(([1, 2], [2**62, 5]), shape=(2**63,), dtype=dtype),
    }
    for given in (data, list(data.values()), data["a"]):
        mx.nd.save(tmp_path / "f", given)
        found = mx.nd.load(tmp_path / "f")
        wanted = given if isinstance(given, dict) else dict(enumerate(given if isinstance(given, list) else [given]))
        assert list(found) == list(wanted) if isinstance(found, dict) else len(found) == len(wanted)
        for name, array in wanted.items():
            assert (found[name].stype, found[name].shape, found[name].dtype_name) == (
                array.stype,
                array.shape,
                array.dtype_name,
            )
            if array.stype == "row_sparse":
                assert is_whole(found[name])
                assert found[name].indices.asnumpy().tolist() == array.indices.asnumpy().tolist()
                assert found[name]._data._numpy_for_reading().tobytes() == array._data._numpy_for_reading().tobytes()


@pytest.mark.parametrize(
    "members",
    [
        {"item:rows-ids:0": np.array([4, 0], np.uint64)},
        {"item:rows-float32:0": np.ones((1, 2), np.float32)},
        {"item:rows-float32:0": np.ones((1, 2), np.float32), "item:rows-ids:0": np.array([4, 0], np.uint64)},
        {"item:rows-ids:0": np.array([4, 0], np.uint64), "item:rows-float32:1": np.ones((1, 2), np.float32)},
        {"item:rows-ids:0": np.array([4, 0], np.uint64), "item:float32:0": np.ones((1, 2), np.float32)},
        {"item:rows-ids:0": np.array([4, 4], np.uint64), "item:rows-float32:0": np.ones((1, 2), np.float32)},
        {"item:rows-ids:0": np.array([4, 1, 1], np.uint64), "item:rows-float32:0": np.ones((2, 2), np.float32)},
        {"item:rows-ids:0": np.array([4, 2**63], np.uint64), "item:rows-float32:0": np.ones((1, 2), np.float32)},
        {"item:rows-ids:0": np.array([2**64 - 1, 0], np.uint64), "item:rows-float32:0": np.ones((1, 2), np.float32)},
        {"item:rows-ids:0": np.array([], np.uint64), "item:rows-float32:0": np.ones((0, 2), np.float32)},
        {"item:rows-ids:0": np.array([4, 0], np.int64), "item:rows-float32:0": np.ones((1, 2), np.float32)},
        {"item:rows-ids:0": np.array([4], np.uint64), "item:rows-float32:0": np.ones((), np.float32)},
        {"item:rows-ids:0": np.array([[4, 0]], np.uint64), "item:rows-float32:0": np.ones((1, 2), np.float32)},
    ],
)
def test_a_file_with_other_rows_is_refused(tmp_path, members):
    np.savez(tmp_path / "f.npz", **members)
    with pytest.raises(mx.errors.InvalidArgumentError, match="not written by tkv.nd.save"):
        mx.nd.load(tmp_path / "f.npz")


def test_as_keys_and_modules_of_mxnet():
    mx.install_as_mxnet()
    import mxnet
    import mxnet.ndarray.sparse
    import tensorkv.ndarray.sparse
    from mxnet.ndarray.sparse import RowSparseNDArray

    assert RowSparseNDArray is sparse.RowSparseNDArray is mx.nd.RowSparseNDArray
    assert mxnet.nd.sparse is mxnet.ndarray.sparse is sparse is tensorkv.ndarray.sparse
    assert RowSparseNDArray.__module__ == "tensorkv.ndarray.sparse"


def test_rand_ndarray():
    a = mx.test_utils.rand_ndarray((50, 2), "row_sparse", density=0.5)
    assert is_whole(a) and 0 < len(a.indices) < 50
    assert len(mx.test_utils.rand_ndarray((5, 2), "row_sparse", density=1).indices) == 5


def test_wait_to_read_and_format():
    a = rows()
    a.wait_to_read()
    a.check_format()


# --------------------------------------------------------------------------------------------------- other packages


@pytest.mark.framework
def test_of_a_sparse_tensor_of_torch_and_back():
    torch = pytest.importorskip("torch")
    tensor = torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]]), torch.tensor([[1.0, 2], [3, 4], [5, 6]]), (4, 2))
    a = sparse.row_sparse_array(tensor)
    assert is_whole(a) and a.indices.asnumpy().tolist() == [0, 2]
    assert a.asnumpy().tolist() == tensor.to_dense().tolist()
    with pytest.raises(mx.errors.InvalidArgumentError, match="2 sparse axes"):
        sparse.row_sparse_array(torch.eye(3).to_sparse())
    with pytest.raises(mx.errors.InvalidArgumentError, match="layout"):
        sparse.row_sparse_array(torch.eye(3).to_sparse_csr())
    from tensorkv.torch import sparse_tensor

    back = sparse_tensor(a)
    assert back.is_coalesced() and torch.equal(back.to_dense(), tensor.to_dense())
    assert sparse.row_sparse_array((torch.ones(1, 2), torch.tensor([3]))).shape == (4, 2)


def test_of_a_matrix_of_scipy_and_back():
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.coo_matrix(([1.0, 2, 3], ([3, 0, 3], [1, 0, 1])), shape=(5, 2))
    for source in (matrix, matrix.tocsr(), matrix.tocsc()):
        a = sparse.row_sparse_array(source)
        assert is_whole(a) and a.indices.asnumpy().tolist() == [0, 3] and a.dtype is np.float64
        np.testing.assert_array_equal(a.asnumpy(), matrix.toarray())
        np.testing.assert_array_equal(a.asscipy().toarray(), matrix.toarray())
    assert sparse.array(matrix, dtype="float32").dtype is np.float32
    assert sparse.zeros("row_sparse", (3, 2)).asscipy().nnz == 0


# ------------------------------------------------------------------------------------------ updates outside of a store


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "ftrl"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.host
def test_a_lazy_update_changes_the_rows_of_the_gradient_alone(name, dtype):
    random = np.random.default_rng(5)
    options = {"momentum": 0.5, "wd": 0.25} if name == "sgd" else {"wd": 0.25}
    start = random.integers(-8, 9, (6, 3)).astype(dtype)
    weights = [mx.nd.array(start, dtype=dtype) for _ in range(2)]
    lazy, dense = (
        mx.optimizer.get_updater(mx.optimizer.create(name, multi_precision=True, **options)) for _ in range(2)
    )
    for _ in range(4):
        gradient = random.integers(-8, 9, (2, 3)).astype(dtype)
        lazy(0, sparse.row_sparse_array((gradient, [1, 4]), shape=(6, 3)), weights[0])
        whole = np.zeros((6, 3), dtype)
        whole[[1, 4]] = gradient
        dense(0, mx.nd.array(whole, dtype=dtype), weights[1])
    found, all_rows = (w.asnumpy() for w in weights)
    np.testing.assert_array_equal(found[[1, 4]], all_rows[[1, 4]])
    np.testing.assert_array_equal(found[[0, 2, 3, 5]], start[[0, 2, 3, 5]])


@pytest.mark.host
def test_an_update_that_is_not_lazy_is_that_of_the_dense_gradient():
    gradient = rows()
    weights = [mx.nd.ones((4, 2)) for _ in range(2)]
    updaters = [mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.5, wd=0.25, lazy_update=False)) for _ in range(2)]
    for _ in range(3):
        updaters[0](0, gradient, weights[0])
        updaters[1](0, gradient.tostype("default"), weights[1])
    np.testing.assert_array_equal(weights[0].asnumpy(), weights[1].asnumpy())
    assert weights[0].asnumpy()[1, 0] < 1


def test_lazy_update_is_kept_with_the_other_hyperparameters():
    for make in (mx.optimizer.SGD, mx.optimizer.Adam, mx.optimizer.AdaGrad, mx.optimizer.LAMB, mx.optimizer.LARS):
        assert make().lazy_update is True
        optimizer = pickle.loads(pickle.dumps(make(lazy_update=False)))
        assert optimizer.lazy_update is False and copy.deepcopy(optimizer).lazy_update is False
    kv = mx.kv.create()
    optimizer = mx.optimizer.SGD()
    kv.set_optimizer(optimizer)
    with pytest.raises(mx.errors.FailedPreconditionError, match="lazy_update"):
        optimizer.lazy_update = False
    assert optimizer.lazy_update is True


def test_arithmetic_keeps_bits_of_16_bit_floats():
    a = rows(dtype="bfloat16")
    assert (a + a).dtype_name == "bfloat16"
    assert (a * 2).astype("float32").asnumpy().tolist() == [[2, 4], [0, 0], [6, 8], [0, 0]]
