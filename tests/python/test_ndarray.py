"""Arrays as scripts use them."""

import copy
import pickle
import threading

import numpy as np
import pytest
import tensorkv as mx
from tensorkv.errors import InvalidArgumentError

DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64"]


def test_constructors_and_their_defaults():
    assert mx.nd.zeros(3).shape == (3,) and mx.nd.zeros((2, 3)).dtype is np.float32
    assert mx.nd.array(np.arange(3)).dtype is np.float32 and mx.nd.array(np.ones(2)).dtype is np.float32
    assert mx.nd.array(mx.nd.ones((2,), dtype="int32")).dtype is np.int32
    assert mx.nd.array([]).shape == (0,)
    assert mx.nd.array(5).shape == ()
    assert mx.nd.array([1, 2], mx.cpu(1), dtype="int64").context == mx.cpu(1)
    assert mx.nd.arange(2, 8, 2, repeat=2, dtype="int32").asnumpy().tolist() == [2, 2, 4, 4, 6, 6]
    assert mx.nd.full((2,), 7, dtype=np.float16).asnumpy().tolist() == [7, 7]
    assert mx.nd.empty((2, 0)).size == 0
    assert mx.nd.random_uniform(-1, 1, shape=(5,)).shape == (5,) and mx.nd.random_normal(shape=(2, 2)).shape == (2, 2)


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_every_dtype_by_name_and_by_type(dtype):
    for spelled in (dtype, np.dtype(dtype), np.dtype(dtype).type):
        a = mx.nd.ones((2,), dtype=spelled)
        assert a.dtype is np.dtype(dtype).type and a.asnumpy().dtype == dtype
    assert np.asarray(a).dtype == dtype and pickle.loads(pickle.dumps(a)).dtype is a.dtype


def test_bfloat16_through_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = mx.nd.full((3,), 1.5, dtype="bfloat16")
    assert a.dtype == "bfloat16" and a.asnumpy().dtype == ml_dtypes.bfloat16
    assert (a + a).astype("float32").asnumpy().tolist() == [3, 3, 3]
    source = np.array([1, 2], ml_dtypes.bfloat16)
    view = mx.nd.from_dlpack(source)
    assert view.data_ptr == source.ctypes.data and view.dtype_name == "bfloat16"
    assert pickle.loads(pickle.dumps(a)).astype("float32").asnumpy().tolist() == [1.5] * 3
    assert "1.5" in repr(a)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.nd.zeros((2, -1)),
        lambda: mx.nd.zeros((2,), dtype="complex128"),
        lambda: mx.nd.array([[1], [2, 3]]),
        lambda: mx.nd.array(["a"]),
        lambda: mx.nd.ones((1,) * 33),
        lambda: mx.Context("tpu", 0),
        lambda: mx.cpu(-1),
        lambda: mx.cpu("0"),
        lambda: mx.nd.array([300], dtype="uint8"),
        lambda: mx.nd.from_dlpack(5),
        lambda: mx.nd.ones((2,)).asscalar(),
        lambda: len(mx.nd.array(1)),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(mx.errors.InvalidArgumentError):
        make()


def test_no_memory_is_an_error_not_an_abort():
    with pytest.raises(MemoryError):
        mx.nd.empty((1 << 50,))


def test_contexts_are_values():
    assert mx.cpu() == mx.Context("cpu", 0) == mx.Context(mx.cpu(0)) and mx.cpu(0) != mx.cpu(1) != mx.gpu(1)
    assert len({mx.cpu(0), mx.cpu(0), mx.gpu(0)}) == 2 and repr(mx.gpu(1)) == "gpu(1)"
    assert pickle.loads(pickle.dumps(mx.cpu(3))) == mx.cpu(3) and mx.cpu(1).device_typeid == 1
    with pytest.raises(AttributeError):
        mx.cpu().device_id = 1
    assert mx.test_utils.list_gpus() == list(range(mx.context.num_gpus()))


def test_the_default_context_of_mxnets_class_says_what_to_use():
    said = r"^Context\.default_ctx is not here: .*`with context:`.*mx\.current_context\(\)"
    for found in (mx.Context, mx.cpu()):
        assert not hasattr(found, "default_ctx")
        with pytest.raises(AttributeError, match=said):
            found.default_ctx
    with pytest.raises(AttributeError, match=said):
        mx.Context.default_ctx = mx.gpu(0)
    with pytest.raises(AttributeError, match="'Context' object has no attribute 'nothing'"):
        mx.cpu().nothing


def test_the_default_context_is_that_of_the_innermost_with_block_of_the_thread():
    outer = mx.current_context()
    with mx.cpu(1):
        with mx.cpu(2) as inner, pytest.raises(ZeroDivisionError):
            assert mx.nd.ones((2,)).context == mx.nd.array([1]).context == inner == mx.current_context()
            _ = 1 / 0
        assert mx.nd.zeros((2,)).context == mx.cpu(1)
        found = []
        thread = threading.Thread(target=lambda: found.append(mx.current_context()))
        thread.start()
        thread.join()
        assert found == [mx.cpu(0)]
        assert mx.nd.array(mx.nd.ones((2,), mx.cpu(5))).context == mx.cpu(5)
    assert mx.current_context() == outer


# -------------------------------------------------------------------------------------------------------------- sharing


@pytest.mark.host
def test_asarray_is_a_view_and_asnumpy_a_copy():
    a = mx.nd.ones((2, 3))
    view = np.asarray(a)
    assert view.ctypes.data == a.data_ptr
    view[0, 0] = 5
    assert a[0, 0].asscalar() == 5
    a.asnumpy()[:] = 9
    assert a.asnumpy().max() == 5
    assert np.array(a, dtype="float64").dtype == np.float64
    del a
    assert view[0, 0] == 5, "the view keeps the memory"


def test_a_view_of_the_memory_of_others_keeps_them_alive():
    source = np.arange(4, dtype=np.float32)
    a = mx.nd.from_dlpack(source)
    assert a.data_ptr == source.ctypes.data
    del source
    assert a.asnumpy().tolist() == [0, 1, 2, 3]


def test_read_only_and_strided_sources():
    source = np.arange(6, dtype=np.float32)
    source.flags.writeable = False
    a = mx.nd.from_dlpack(source)
    assert a.read_only
    for write in (lambda: a.__iadd__(1), lambda: a.__setitem__(0, 1), lambda: a.__setitem__(slice(None), 1)):
        with pytest.raises(mx.errors.InvalidArgumentError, match="read-only"):
            write()
    backwards = mx.nd.from_dlpack(np.arange(6, dtype=np.float32).reshape(2, 3)[::-1, ::2])
    assert not backwards.contiguous and backwards.asnumpy().tolist() == [[3, 5], [0, 2]]
    backwards += 1
    assert backwards.asnumpy().tolist() == [[4, 6], [1, 3]]
    assert memoryview(mx.nd.from_dlpack(bytearray(b"ab")).asnumpy())[0] == ord("a")


def test_copies():
    a = mx.nd.ones((2,), mx.cpu(1))
    for other in (a.copy(), copy.copy(a), copy.deepcopy(a), pickle.loads(pickle.dumps(a)), a.astype("float32")):
        other[:] = 7
        assert other.context == mx.cpu(1) and a.asnumpy().max() == 1
    assert a.as_in_context(mx.cpu(1)) is a and a.as_in_context(mx.cpu(2)).context == mx.cpu(2)
    b = mx.nd.zeros((2,), dtype="float64")
    assert a.copyto(b) is b and b.asnumpy().tolist() == [1, 1]
    assert a.copyto(mx.cpu(3)).context == mx.cpu(3)
    with pytest.raises(mx.errors.InvalidArgumentError):
        a.copyto(mx.nd.zeros((3,)))


# ------------------------------------------------------------------------------------------------------------- indexing


def test_rows_and_slices_are_views():
    a = mx.nd.array([[1, 2], [3, 4], [5, 6]])
    a[1] += 10
    a[np.int64(0)][:] = 0
    a[1:][1] = 9
    assert a.asnumpy().tolist() == [[0, 0], [13, 14], [9, 9]]
    assert a[-1].asnumpy().tolist() == [9, 9] and a[5:].shape == (0, 2)
    v = mx.nd.array([1, 2, 3])
    assert v[1].shape == (1,) and v[1].asscalar() == 2
    v[1] += 5
    assert v.asnumpy().tolist() == [1, 7, 3]
    assert mx.np.array([1, 2])[1].shape == ()


def test_other_indices_copy_and_assign():
    a = mx.nd.array([[1, 2, 3], [4, 5, 6]])
    assert a[:, 1:3].asnumpy().tolist() == [[2, 3], [5, 6]]
    assert a[0, 1].asscalar() == 2 and a[::-1].asnumpy()[0, 0] == 4
    assert a[mx.nd.array([1, 0])].asnumpy()[0, 0] == 4
    a[:, 1] = 0
    a[0] = [7, 8, 9]
    a[1] = mx.nd.ones((3,))
    assert a.asnumpy().tolist() == [[7, 8, 9], [1, 1, 1]]
    a[:] = 2
    assert a.asnumpy().min() == 2
    for bad in (lambda: a[2], lambda: a[-3], lambda: a[0, 9], lambda: a.__setitem__(5, 1)):
        with pytest.raises(IndexError):
            bad()
    with pytest.raises(ValueError):
        a[0] = [1, 2]


def test_iteration_len_and_truth():
    a = mx.nd.array([[1, 2], [3, 4]])
    assert len(a) == 2 and [r.asnumpy().sum() for r in a] == [3, 7]
    assert bool(mx.nd.array([1])) and not bool(mx.nd.array([0])) and float(mx.nd.array([2])) == 2
    with pytest.raises(ValueError):
        bool(a)


def test_reshape_and_transpose():
    a = mx.nd.arange(6)
    assert (
        a.reshape((2, 3)).shape
        == a.reshape(2, 3).shape
        == a.reshape(-1, 3).shape
        == a.reshape(shape=(2, 3)).shape
        == (2, 3)
    )
    a.reshape((2, 3))[0][:] = 9
    assert a.asnumpy()[0] == 9
    assert a.reshape(2, 3).T.shape == (3, 2)
    with pytest.raises(ValueError):
        a.reshape((4, 2))


def test_codes_of_reshape_give_views_and_mx_np_has_none():
    a = mx.nd.zeros((2, 3, 4))
    a.reshape((-3, 0))[5] = 1
    a.reshape((-1, 0), reverse=True)[0] = 2
    assert a.asnumpy()[1, 2].tolist() == [1] * 4 and a.asnumpy()[0, 0].tolist() == [2] * 4
    assert a.reshape((0, -2, -1)).shape == (2, 3, 4, 1) and a.reshape((-4, 1, 2, -1)).shape == (1, 2, 12)
    assert mx.nd.zeros((0, 3)).reshape((0, -2)).shape == (0, 3)
    assert mx.np.zeros((0, 3)).reshape(3, 0).shape == (3, 0) and mx.np.ones((2, 3)).reshape(-1).shape == (6,)
    for call in (
        lambda: a.reshape((-4, 2, 2, -2)),
        lambda: mx.np.ones((2, 3)).reshape((0, -1)),
        lambda: mx.np.ones((2, 3)).reshape((-2,)),
        lambda: mx.np.ones((2, 3)).reshape((2, 3), reverse=True),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match="reshape|shape:"):
            call()


# ----------------------------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_is_numpys(dtype):
    x, y = np.array([1, 2, 5, 7], dtype), np.array([3, 2, 4, 1], dtype)
    a, b = mx.nd.array(x, dtype=dtype), mx.nd.array(y, dtype=dtype)
    for got, want in (
        (a + b, x + y),
        (a - b, x - y),
        (a * b, x * y),
        (a + 2, x + 2),
        (2 * a, 2 * x),
        (9 - a, 9 - x),
        (a * np.float32(2), x * 2),
        (a == b, x == y),
        (a != b, x != y),
        (a < b, x < y),
        (a <= b, x <= y),
        (a > b, x > y),
        (a >= 5, x >= 5),
        (a**2, x * x),
        (2**a, 2 ** x.astype("int64")),
        (a % 3, x % 3),
        (9 % a, 9 % x),
        (a % b, x % y),
        (x % b, x % y),
    ):
        assert got.dtype is a.dtype and np.array_equal(got.asnumpy(), want.astype(dtype))
    if dtype.startswith("float"):
        assert np.array_equal((a / b).asnumpy(), x / y) and np.array_equal((1 / a).asnumpy(), np.asarray(1, dtype) / x)
        assert np.array_equal((-a).asnumpy(), -x) and np.array_equal(abs(-a).asnumpy(), x)
    else:
        with pytest.raises(ValueError, match="do not have this operation"):
            a / b
        with pytest.raises(ValueError, match="cannot hold"):
            a + 0.5


def test_in_place_changes_shared_memory():
    a = mx.nd.ones((2, 2))
    row, alias = a[0], a
    a += 1
    a *= mx.nd.full((2, 2), 3)
    a -= np.ones((2, 2), np.float32)
    a /= 5
    assert alias is a and row.asnumpy().tolist() == [1, 1]
    a += 2
    a **= 2
    a %= np.full((2, 2), 5, np.float32)
    assert alias is a and row.asnumpy().tolist() == [4, 4]
    x = alias = mx.np.ones((2, 2))
    x @= x
    x **= 2
    x %= 3
    assert alias is x and alias.asnumpy().tolist() == [[1, 1], [1, 1]]


def test_operators_that_mxnet_has_only_in_np():
    a, x = mx.nd.ones((2, 2)), mx.np.ones((2, 2))
    assert type(x @ a) is mx.np.ndarray and (np.ones((3, 2), np.float32) @ x).asnumpy().tolist() == [[2, 2]] * 3
    assert np.isnan((x % 0).asnumpy()).all() and not (a % 0).asnumpy().any()
    for call in (lambda: a @ a, lambda: a // 2, lambda: x // 2, lambda: a ** [2], lambda: a % "x"):
        with pytest.raises(TypeError, match="unsupported operand"):
            call()
    with pytest.raises(ValueError, match="matmul"):
        x @ mx.np.ones((3, 2))
    with pytest.raises(ValueError, match="the result has shape"):
        x @= mx.np.ones((2, 3))
    with pytest.raises(ValueError, match="power: int32 elements"):
        mx.nd.ones((2,), dtype="int32") ** 0.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [7, 5000])
def test_views_that_overlap_are_read_before_they_are_written(dtype, rows):
    want = (np.arange(rows) % 5).astype(dtype)
    a = mx.nd.array(want, dtype=dtype)
    for to, source in ((slice(1, None), slice(None, -1)), (slice(None, -2), slice(2, None))):
        a[to] += a[source]
        want[to] += want[source]
        assert np.array_equal(a.asnumpy(), want)


def test_broadcasting_and_mixed_operands():
    a = mx.nd.ones((2, 3))
    assert (a + mx.nd.array([1, 2, 3])).asnumpy()[1].tolist() == [2, 3, 4]
    assert (mx.nd.ones((2, 1)) * mx.nd.ones((1, 3))).shape == (2, 3)
    assert isinstance(np.ones((2, 3), np.float32) * a, mx.nd.NDArray)
    assert isinstance(mx.np.ones((2,)) + 1, mx.np.ndarray)
    a += mx.nd.array([1, 2, 3])
    assert a.asnumpy()[0].tolist() == [2, 3, 4]
    with pytest.raises(ValueError, match=r"shape \(2, 3\) with \(2,\)"):
        a + mx.nd.ones((2,))
    with pytest.raises(TypeError):
        a + "x"
    with pytest.raises(ValueError):
        a + mx.nd.ones((2, 3), dtype="float64")


def test_scalars_that_a_dtype_cannot_hold():
    with pytest.raises(ValueError, match="cannot hold"):
        mx.nd.ones((1,), dtype="uint8") + 256
    assert (mx.nd.ones((1,), dtype="int64") * 2**40).asscalar() == 2**40


# ------------------------------------------------------------------------------------------------------ printing, files


def test_printing():
    ones = mx.nd.ones((2, 3))
    assert repr(ones) == f"\n[[1. 1. 1.]\n [1. 1. 1.]]\n<NDArray 2x3 @{ones.context}>"
    assert repr(mx.np.ones((2,), dtype="float64")) == "array([1., 1.], dtype=float64)"
    assert repr(mx.np.zeros((2, 0))) == "array([], shape=(2, 0))" or mx.np.zeros((2, 0)).shape == (2, 0)
    assert str(mx.np.ones((2,))) == "[1. 1.]"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not written by tkv.nd.save"),
        (b"\x12\x01" + bytes(40), "a file of MXNet that is damaged"),
        (b"text", "not written by tkv.nd.save"),
    ],
    ids=["empty", "MXNet's", "text"],
)
def test_a_file_of_another_make_is_refused_without_advice_to_unpickle(tmp_path, content, said):
    path = tmp_path / "net.params"
    path.write_bytes(content)
    with pytest.raises(mx.errors.InvalidArgumentError, match=rf"net.params': {said}") as caught:
        mx.nd.load(str(path))
    assert "pickle" not in str(caught.value)


def test_save_and_load(tmp_path):
    path = tmp_path / "weights"
    mx.nd.save(path, {"w:1": mx.nd.ones((2,)), "b": mx.nd.full((1,), 3, dtype="bfloat16")})
    loaded = mx.nd.load(path)
    assert list(loaded) == ["w:1", "b"] and loaded["b"].astype("float32").asscalar() == 3
    mx.nd.save(str(path), [mx.nd.zeros((i,)) for i in range(12)])
    assert [a.shape[0] for a in mx.nd.load(path)] == list(range(12))
    with pytest.raises(ValueError):
        mx.nd.save(path, {"w": 5})
    assert len(mx.nd.load(path)) == 12 and len(list(tmp_path.iterdir())) == 1, "a failed save leaves the old file alone"
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="load"):
        mx.nd.load(path)


def test_random_streams_repeat():
    mx.random.seed(3)
    first = mx.random.uniform(0, 1, shape=(4,)).asnumpy()
    mx.random.seed(3)
    assert np.array_equal(first, mx.random.uniform(0, 1, shape=(4,)).asnumpy())


def test_helpers_of_test_scripts():
    mx.test_utils.assert_almost_equal(mx.nd.ones((2,)), np.ones(2))
    with pytest.raises(AssertionError):
        mx.test_utils.assert_almost_equal(mx.nd.ones((2,)), np.zeros(2))
    mx.test_utils.assert_exception(lambda: mx.nd.zeros((-1,)), mx.MXNetError)
    with pytest.raises(AssertionError):
        mx.test_utils.assert_exception(lambda: None, mx.MXNetError)
    assert mx.test_utils.same(mx.nd.ones((2,)), mx.nd.ones((2,))) and not mx.test_utils.same(mx.nd.ones((2,)), [1, 2])
    assert (
        mx.test_utils.rand_ndarray((2, 3)).shape == (2, 3) and mx.test_utils.default_context() == mx.current_context()
    )
    assert mx.base.py_str(b"a") == "a" == mx.base.py_str("a")
    import os

    with mx.test_utils.environment({"TKV_NO": "1"}):
        assert os.environ["TKV_NO"] == "1"
    assert "TKV_NO" not in os.environ


def test_integers_of_64_bits_stay_exact():
    big = 2**53 + 1
    a = mx.nd.zeros((2,), dtype="int64")
    a[:] = big
    assert a.asnumpy().tolist() == [big] * 2
    assert mx.nd.full((2,), -big, dtype="int64").asnumpy().tolist() == [-big] * 2
    zero = mx.nd.zeros((2,), dtype="int64")
    assert (zero + big).asnumpy().tolist() == [big] * 2
    assert (big - zero).asnumpy().tolist() == [big] * 2
    zero += np.int64(big)
    assert zero.asnumpy().tolist() == [big] * 2
    assert (zero == big).asnumpy().tolist() == [1, 1] and (zero > big - 1).asnumpy().tolist() == [1, 1]
    zero[:] = 2**63 - 1
    assert zero.asnumpy().tolist() == [2**63 - 1] * 2
    with pytest.raises(mx.KVError):
        zero[:] = 2**63
    assert mx.nd.full((1,), big).asnumpy().tolist() == [float(np.float32(big))]


# ----------------------------------------------------------------------------------------------------------- conveniences


def test_sums_over_axes_are_numpys():
    a = mx.nd.arange(0, 6).reshape(2, 3)
    assert a.sum().asnumpy().tolist() == [15] and np.sum(a).asnumpy().tolist() == [15]
    assert a.sum(0).asnumpy().tolist() == [3, 5, 7] and np.sum(a, axis=1).asnumpy().tolist() == [3, 12]
    assert a.sum((0, 1), keepdims=True).shape == (1, 1) and a.sum(axis=-1, keepdims=True).shape == (2, 1)
    assert mx.nd.zeros((0, 2)).sum(axis=1).shape == (0,)
    for wrong in ({"axis": 2}, {"axis": "x"}, {"out": a}):
        with pytest.raises(InvalidArgumentError, match="sum: "):
            a.sum(**wrong)


def test_sums_of_narrow_numbers_are_wide():
    assert mx.nd.full((3,), 200, dtype="uint8").sum().asnumpy().tolist() == [600]
    assert mx.nd.full((3,), 200, dtype="uint8").sum().dtype is np.int64
    assert mx.nd.ones((300,), dtype="bool").sum().asnumpy().tolist() == [300]
    assert mx.nd.ones((4096,), dtype="float16").sum().asnumpy().tolist() == [4096]
    assert mx.nd.array([2**24, 1, 1]).sum().asnumpy().tolist() == [2**24 + 2]


def test_operands_that_an_integer_dtype_cannot_hold_are_refused():
    a = mx.nd.ones((2,), dtype="uint8")
    for operand in (np.array([300, 1]), np.array([0.5, 1]), np.array([-1, 1])):
        with pytest.raises(InvalidArgumentError, match="uint8 cannot hold the values"):
            a + operand
        with pytest.raises(InvalidArgumentError, match="uint8 cannot hold the values"):
            a += operand
    assert (a + np.array([2, 3])).asnumpy().tolist() == [3, 4]


@pytest.mark.parametrize("make", [mx.nd.array, mx.np.array])
def test_arrays_are_made_of_real_numbers(make):
    for wrong in (["1"], [None], [1j], np.array(["2020-01-01"], "M8[D]"), np.ma.masked_array([1, 2], [0, 1])):
        with pytest.raises(InvalidArgumentError, match="array: "):
            make(wrong)


def test_arange_keeps_64_bits_and_refuses_what_does_not_fit():
    big = 2**53
    assert mx.nd.arange(big, big + 3, dtype="int64").asnumpy().tolist() == [big, big + 1, big + 2]
    with pytest.raises(InvalidArgumentError, match="arange: .*uint8 holds 0 to 255"):
        mx.nd.arange(300, dtype="uint8")


def test_bfloat16_is_rounded_to_once():
    pytest.importorskip("ml_dtypes")
    above = 1 + 2**-8 + 2**-30  # rounded by way of float32, this would be 1
    for source in ([above], np.array([above])):
        assert mx.nd.array(source, dtype="bfloat16").astype("float32").asnumpy().tolist() == [1 + 2**-7]
    a = mx.nd.zeros((1,), dtype="bfloat16")
    a[...] = [above]
    assert a.astype("float32").asnumpy().tolist() == [1 + 2**-7]


def test_an_order_other_than_c_is_refused():
    for make in (mx.np.empty, mx.np.zeros, mx.np.ones):
        with pytest.raises(InvalidArgumentError, match="C order"):
            make((2,), order="F")


def test_an_empty_dict_comes_back_as_a_dict(tmp_path):
    for data in ({}, []):
        mx.nd.save(tmp_path / "f", data)
        assert mx.nd.load(tmp_path / "f") == data


def test_arguments_that_reshape_does_not_know_are_refused():
    a = mx.nd.zeros((2, 3))
    for dims, named in (((6,), {"order": "C"}), ((), {"shape": (6,), "order": "C"}), ((6,), {"shape": (6,)})):
        with pytest.raises(TypeError):  # InvalidArgumentError is one
            a.reshape(*dims, **named)


def test_arrays_are_not_made_by_their_class():
    for cls in (mx.nd.NDArray, mx.np.ndarray):
        with pytest.raises(InvalidArgumentError, match=r"tkv\.nd\.array\(\)"):
            cls([1, 2])


def test_errors_of_python_name_the_class_that_users_know():
    with pytest.raises(TypeError, match=r"^KVStore\.push\(\) missing 1 required positional argument: 'key'"):
        mx.kv.create("local").push()
    with pytest.raises(TypeError, match=r"^NDArray\.asnumpy\(\) takes 1 positional argument"):
        mx.nd.zeros(2).asnumpy(1)
