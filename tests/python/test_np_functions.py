"""Functions and methods of `mx.np` with the arguments that NumPy and MXNet take."""

import errno
import pickle

import numpy as np
import pytest
import tensorkv as mx
from tensorkv.errors import InvalidArgumentError


class Table:
    """An object that NumPy reads by its `__array__`, with a dtype of its own, as data frames have."""

    dtype = "Int64"

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2], dtype or "int64")


class Tensor:
    """An array that speaks DLPack, whose dtype has a name as PyTorch's have."""

    dtype = type("dtype", (), {"__str__": lambda self: "torch.int64"})()

    def __init__(self):
        self._values = np.array([2**24 + 1])

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_an_array_or_a_scalar_of_numpy_keeps_its_dtype(dtype):
    for given in (np.array([1, 0], dtype), np.ones((), dtype), np.dtype(dtype).type(1), mx.nd.ones((2,), dtype=dtype)):
        found = mx.np.array(given)
        assert found.dtype_name == dtype and found.tolist() == np.asarray(given).tolist()
        assert mx.np.array(given, dtype="float64").dtype_name == "float64"


def test_large_integers_and_masks_of_numpy_stay_what_they_are():
    assert mx.np.array(np.array([2**24 + 1])).tolist() == [2**24 + 1]
    assert mx.np.array([3, 1, 2])[mx.np.array(np.array([True, False, True]))].tolist() == [3, 2]
    assert mx.np.array(np.array([1, 2], ">i4")).dtype_name == "int32"


@pytest.mark.parametrize("given", [[1, 2], (True, False), [np.int64(3)], 3, True, 2.5, range(3), np.array([1], object)])
def test_lists_and_numbers_of_python_are_float32(given):
    assert mx.np.array(given).dtype_name == "float32"


def test_an_array_of_a_framework_keeps_its_dtype():
    assert mx.np.array(Tensor()).dtype_name == "int64" and mx.np.array(Tensor()).tolist() == [2**24 + 1]
    assert mx.np.array(Tensor(), dtype="float64").dtype_name == "float64"


def test_an_object_with_a_dtype_that_numpy_does_not_know_is_read_by_numpy():
    assert mx.np.array(Table()).dtype_name == "int64" and mx.np.array(Table()).tolist() == [1, 2]


def test_a_condition_alone_gives_a_tuple_that_is_an_index():
    m = mx.np.array([[0, 1], [2, 0]])
    at = mx.np.where(m > 0)
    assert type(at) is tuple and [part.tolist() for part in at] == [[0, 1], [1, 0]]
    assert m[at].tolist() == [1, 2]
    assert type(mx.np.split(m, 2)) is list


METHODS = """flatten() flatten(order='C') round() round(1) round(decimals=-1) argsort() argsort(axis=0) argsort(0) argsort(axis=None)
sum(dtype='float64') sum(dtype='int32') sum(0) sum(axis=(0,1),keepdims=True) sum(0,'float64') max(axis=0) mean(axis=1) std() var()
prod() argmax(axis=1) argmin() cumsum() cumsum(axis=0) any() all() squeeze() clip(0.5,2) dot(x.T) repeat(2) take([1,0]) swapaxes(0,1)
reshape(3,2) reshape((3,2)) reshape(-1,order='C') transpose() transpose(1,0) transpose((1,0)) copy() copy(order='C') tolist() item(1)
astype('int32') astype('int32',copy=False) astype('float64','C','safe') clip(max=1) clip(min=0) clip(0,1)"""


@pytest.mark.parametrize("case", METHODS.split())
def test_methods_that_numpy_has_are_numpys(case):
    theirs = np.array([[2.5, 0.5, -1.5], [3.25, 1.75, 0.5]], np.float32)
    ours = mx.np.array(theirs)
    wanted = eval(f"x.{case}", {"x": theirs})
    found = eval(f"x.{case}", {"x": ours})
    if isinstance(found, mx.np.ndarray):
        wanted = np.asarray(wanted)
        assert found.shape == wanted.shape and found.dtype_name == wanted.dtype.name
        np.testing.assert_allclose(found.asnumpy(), wanted, 1e-6)
    else:
        assert found == wanted
    assert ours.tolist() == theirs.tolist()


def test_sort_of_an_array_is_in_place():
    a = mx.np.array([[3, 1, 2], [5, 6, 4]])
    assert a.sort() is None and a.tolist() == [[1, 2, 3], [4, 5, 6]]
    a[...] = a[::-1]
    assert a.sort(axis=0) is None and a.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(InvalidArgumentError, match="^sort: "):
        a.sort(axis=2)


OUT = """add(x,x) add(x,1) exp(x) maximum(x,x) equal(x,x) mean(x,axis=0) sum(x) sum(x,axis=1,keepdims=True) prod(x) cumsum(x,axis=0) dot(x,x.T)
matmul(x,x.T) concatenate([x,x]) stack([x,x]) clip(x,0,1) take(x,[0,1]) argmax(x,axis=1) max(x) any(x,axis=0) outer(x,x) std(x) var(x)"""


@pytest.mark.parametrize("case", OUT.split())
def test_out_is_written_and_returned(case):
    theirs = np.array([[2.5, 0.5, -1.5], [3.25, 1.75, 0.5]], np.float32)
    wanted = np.asarray(eval(f"n.{case}", {"n": np, "x": theirs}))
    out = mx.np.zeros(wanted.shape, dtype=wanted.dtype.name)
    found = eval(f"n.{case[:-1]},out=out)", {"n": mx.np, "x": mx.np.array(theirs), "out": out})
    assert found is out
    np.testing.assert_allclose(out.asnumpy(), wanted, 1e-6)


def test_out_by_position_and_of_methods():
    a, out = mx.np.array([1, 4]), mx.np.zeros(2)
    assert mx.np.sqrt(a, out) is out and out.tolist() == [1, 2]
    assert mx.np.add(a, a, out) is out and out.tolist() == [2, 8]
    total = mx.np.zeros(())
    assert mx.np.mean(a, None, None, total) is total and total.item() == 2.5
    assert a.mean(out=total) is total and a.sum(out=total) is total and total.item() == 5
    assert a.round(out=out) is out and out.tolist() == [1, 4]


def test_out_may_be_an_input_and_keeps_what_where_leaves_out():
    a = mx.np.array([1, 2, 3])
    assert mx.np.multiply(a, a, out=a) is a and a.tolist() == [1, 4, 9]
    mx.np.add(a, 1, out=a, where=a > 3)
    assert a.tolist() == [1, 5, 10]


def test_an_out_that_does_not_fit_is_refused_and_stays():
    a, out = mx.np.array([1.5, 2.5]), mx.np.zeros(2, dtype="int32")
    for call in (
        lambda: mx.np.add(a, a, out=out),
        lambda: mx.np.add(a, a, out=mx.np.zeros(3)),
        lambda: mx.np.add(a, a, out=np.zeros(2)),
        lambda: a.sum(out=mx.np.zeros(2)),
    ):
        with pytest.raises(InvalidArgumentError, match="^(add|sum): "):
            call()
    assert out.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("value", "dtype"), [(True, "bool"), (np.bool_(False), "bool"), (3, "float32"), (2.5, "float32")]
)
def test_full_has_the_dtype_of_its_value_where_that_is_a_bool(value, dtype):
    assert mx.np.full((2,), value).dtype_name == dtype
    assert mx.np.full((2,), value, dtype="float64").dtype_name == "float64"


def test_probabilities_in_float32_are_taken():
    for p in (mx.np.array([0.1, 0.2, 0.3, 0.2, 0.2]), mx.np.array([1 / 5] * 5), mx.nd.array([0.5, 0.5, 0, 0, 0])):
        mx.np.random.seed(1)
        drawn = mx.np.random.choice(5, 2000, p=p).asnumpy()
        assert np.bincount(drawn, minlength=5) / 2000 == pytest.approx(p.asnumpy(), abs=0.06)
    for wrong in ([0.5, 0.4], [1.5, -0.5], [1.0]):
        with pytest.raises(InvalidArgumentError, match="^choice: "):
            mx.np.random.choice(2, 3, p=mx.np.array(wrong))


def test_a_cast_that_is_not_allowed_is_refused():
    a = mx.np.array([1.5])
    for casting in ("safe", "same_kind", "equiv", "no"):
        with pytest.raises(InvalidArgumentError, match="^astype: float32 to int32"):
            a.astype("int32", casting=casting)
    with pytest.raises(InvalidArgumentError, match="C order"):
        a.astype("int32", order="F")
    with pytest.raises(InvalidArgumentError, match="C order"):
        a.copy(order="F")


def test_numbers_at_equal_distances_with_the_distance():
    found, step = mx.np.linspace(0, 1, 5, retstep=True)
    assert found.tolist() == [0, 0.25, 0.5, 0.75, 1] and found.dtype_name == "float32" and step == 0.25
    rows = mx.np.linspace(mx.np.array([0, 10]), mx.np.array([1, 20]), 3, axis=1, dtype="float64")
    assert rows.tolist() == [[0, 0.5, 1], [10, 15, 20]] and rows.dtype_name == "float64"


ARGUMENTS = """reshape(x,newshape=(3,2)) reshape(a=x,newshape=(6,),order='F') round(x,decimals=1) concatenate(seq=(x,x),axis=1) add(x1=x,x2=x)
matmul(a=x,b=x.T) stack(arrays=[x,x]) zeros_like(x,order='C') full_like(x,fill_value=3,dtype='int32') std(x,ddof=1) sum(x,initial=2.0)
argsort(x,kind='stable') sort(x,kind=None) flip(m=x,axis=0) take(x,indices=[0],axis=1) clip(x,a_min=0,a_max=1) where(condition=x>0,x=x,y=x)"""


@pytest.mark.parametrize("case", ARGUMENTS.split())
def test_arguments_have_the_names_of_mxnet(case):
    theirs = np.array([[2.5, 0.5, -1.5], [3.25, 1.75, 0.5]], np.float32)
    found = eval(f"n.{case}", {"n": mx.np, "x": mx.np.array(theirs)})
    by_place = case.replace("newshape=", "").replace("seq=", "").replace("x1=x,x2=x", "x,x").replace("a=x", "x")
    by_place = by_place.replace("b=x.T", "x.T").replace("condition=x>0,x=x,y=x", "x>0,x,x")
    np.testing.assert_allclose(found.asnumpy(), eval(f"n.{by_place}", {"n": np, "x": theirs}), 1e-6)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "complex64"])
def test_sums_of_fractions_keep_them(dtype):
    halves = mx.np.array([[0.5, 0.25], [0.25, 0.75]], dtype=dtype)
    for total, expected in ((halves.sum(), 1.75), (halves.sum(axis=1), [0.75, 1]), (halves.sum(dtype=dtype), 1.75)):
        assert total.dtype_name == dtype and total.tolist() == expected


def test_arrays_like_others_may_have_another_context_or_memory():
    a, out = mx.np.ones((2,)), mx.np.zeros((2,))
    assert mx.np.zeros_like(a, ctx=mx.cpu(1)).context == mx.cpu(1)
    assert mx.np.full_like(a, 7, out=out) is out and out.tolist() == [7, 7]
    assert mx.np.full((2,), 3, out=out) is out and out.tolist() == [3, 3]
    assert mx.np.flip(mx.np.array([1, 2]), out=out) is out and out.tolist() == [2, 1]


@pytest.mark.parametrize("call", ["uniform(size=(2,), out=o)", "randint(5, size=(2,), out=o)", "choice(5, 2, out=o)"])
def test_draws_fill_an_array_that_is_there(call):
    out = mx.np.full((2,), -1)
    assert eval(f"r.{call}", {"r": mx.np.random, "o": out}) is out and (out >= 0).all().item()
    with pytest.raises(InvalidArgumentError, match=r"^out: shape \(3,\)"):
        eval(f"r.{call}", {"r": mx.np.random, "o": mx.np.zeros(3)})


def test_parameters_that_a_distribution_cannot_have_are_named():
    for call in (lambda: mx.np.random.exponential(-1), lambda: mx.np.random.randint(3, 3)):
        with pytest.raises(InvalidArgumentError, match="^(exponential|randint): "):
            call()


def test_a_dtype_is_numpys_and_a_number_takes_a_form():
    array = mx.np.array([1, 2.5])
    assert array.dtype == "float32" and array.dtype is np.dtype("float32") and {array.dtype: 1}[np.dtype("float32")]
    assert mx.np.ones(2, dtype="bfloat16").dtype == "bfloat16"
    assert f"{array[1]:.2f} {array.mean():.3f}" == "2.50 1.750"
    with pytest.raises(TypeError):
        f"{array:.2f}"


@pytest.mark.parametrize(
    "name, parameters", [("normal", (0, 1)), ("uniform", (0, 1)), ("gumbel", (0, 1)), ("poisson", (2,))]
)
def test_shapes_of_draws_may_be_positional(name, parameters):
    draw = getattr(mx.np.random, name)
    assert draw(*parameters, (2, 3)).shape == (2, 3)
    with pytest.raises(mx.errors.InvalidArgumentError, match="size is given twice"):
        draw(*parameters, (2,), size=(2,))
    if name in ("normal", "uniform"):
        assert draw(*parameters, 4, "float64").dtype == "float64"
    else:
        assert draw(*parameters, 4, mx.cpu(1)).context == mx.cpu(1)


def test_arrays_of_npx_load_are_those_of_np(tmp_path):
    mx.npx.save(str(tmp_path / "w"), {"w": mx.np.array([[1, 2], [3, 4.0]])})
    w = mx.npx.load(str(tmp_path / "w"))["w"]
    assert type(w) is mx.np.ndarray and w[w > 2].asnumpy().tolist() == [3, 4]
    with pytest.raises(mx.base.MXNetError, match="No such file") as caught:
        mx.npx.load(str(tmp_path / "none"))
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(error, FileNotFoundError) and error.filename == str(tmp_path / "none")
        assert (error.errno, error.strerror) == (errno.ENOENT, "No such file or directory")
