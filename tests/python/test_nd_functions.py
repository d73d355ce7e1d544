"""Functions of `mx.nd` and `mx.np` on arrays in host memory: the same as MXNet's and NumPy's."""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorkv as mx
from nd_cases import ARRAYS, CASES, DIFFERENT

ORACLE = json.loads(pathlib.Path(__file__).with_name("nd_oracle.json").read_text())


@pytest.fixture
def names():
    found = {"nd": mx.nd}
    for name, text in ARRAYS.items():
        found[name] = eval(text, found)
    return found


def test_the_oracle_has_every_case():
    assert list(ORACLE) == list(dict.fromkeys(CASES))


@pytest.mark.parametrize("case", dict.fromkeys(CASES))
def test_a_function_gives_what_mxnet_gives(names, case):
    before = {name: value.asnumpy() for name, value in names.items() if isinstance(value, mx.nd.NDArray)}
    result = eval(case, names)
    parts = result if isinstance(result, list) else [result]
    assert len(parts) == len(ORACLE[case])
    for part, (dtype, shape, elements) in zip(parts, ORACLE[case], strict=True):
        assert type(part) is mx.nd.NDArray
        assert part.shape == tuple(shape)
        exact = {"sum", "cumsum", "prod"} & {case.split("(")[0][3:]} and dtype not in ("float32", "float16")
        assert part.dtype_name == ("int64" if exact else dtype)
        size = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(part.astype("float64").asnumpy().reshape(-1), elements, size, size)
    for name, value in before.items():
        np.testing.assert_array_equal(names[name].asnumpy(), value)


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_has_no_sense_is_an_error_that_names_the_function(names, case):
    kind = getattr(mx.errors, DIFFERENT[case], TypeError)
    with pytest.raises(kind, match=case[3:].split("(")[0]):
        eval(case, names)


ABSENT = {  # arguments that MXNet has, and what the error says to use
    "nd.softmax(a, length=a)": "mx.nd.softmax(mx.nd.where(",
    "nd.softmax(a, use_length=True)": "mx.nd.where(",
    "a.softmax(length=a)": "mx.nd.where(",
    "nd.log_softmax(a, use_length=True)": "mx.nd.log_softmax(mx.nd.where(",
    "nd.norm(a, out_dtype='float64')": "astype",
    "nd.reshape(a, target_shape=(3, 2))": "shape=",
    "nd.reshape(a, shape=(3, 2), keep_highest=True)": "shape=",
    "nd.reshape_like(a, b, lhs_begin=0, lhs_end=1)": "mx.nd.reshape(",
    "nd.concat(a, b, num_args=2)": "leave it out",
    "nd.stack(a, b, num_args=2)": "leave it out",
    "nd.add_n(a, b, num_args=2)": "leave it out",
}


@pytest.mark.parametrize("case", ABSENT)
def test_an_argument_that_mxnet_has_and_we_do_not_says_what_to_use(names, case):
    name, _, rest = case.partition("(")
    argument = re.findall(r"(\w+)=", rest)[-1 if "keep" in rest else 0]
    with pytest.raises(mx.errors.UnimplementedError) as error:
        eval(case, names)
    said = str(error.value)
    assert said.startswith(
        f"{name[name.index('.') + 1 :]}: {'lhs_begin' if 'lhs' in case else argument}= is not here: "
    )
    assert ABSENT[case] in said and said.endswith(" (docs/mxnet.md)")


def test_other_arguments_are_errors_of_the_call(names):
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        mx.nd.softmax(names["a"], nothing=1)


def test_from_numpy_shares_memory_or_copies_as_asked():
    x = np.zeros(2)
    mx.nd.from_numpy(x)[:] = 1
    mx.nd.from_numpy(x, zero_copy=True)[:] += 1
    copied = mx.nd.from_numpy(x, zero_copy=False)
    copied[:] = 7
    assert x.tolist() == [2, 2] and copied.dtype_name == "float64"


def test_random_functions_fill_an_array():
    out = mx.nd.zeros((3,))
    assert mx.nd.random_uniform(1, 2, out=out) is out and out.min().asscalar() >= 1
    assert mx.nd.random_normal(50, 1, out=out, name="x") is out and out.min().asscalar() > 9


def test_results_have_the_context_and_the_class_of_the_first_array():
    a = mx.nd.ones((2, 2), mx.cpu(1))
    assert mx.nd.exp(a).context == mx.cpu(1) and mx.nd.split(a, 2)[1].context == mx.cpu(1)
    assert type(mx.nd.exp(mx.np.ones((2,)))) is mx.np.ndarray
    assert mx.nd.softmax(a.astype("bfloat16")).dtype_name == "bfloat16"


def test_a_result_in_out_takes_its_dtype():
    a, out = mx.nd.array([1.5, 2.5]), mx.nd.zeros((2,), dtype="float64")
    assert mx.nd.square(a, out=out) is out and out.asnumpy().tolist() == [2.25, 6.25]
    assert mx.nd.square(a, out=a) is a and a.asnumpy().tolist() == [2.25, 6.25]


NUMPY = """exp(x) log(x) sqrt(x) x.mean() mean(x,axis=1) x.max() x.argmax() argmax(x,axis=1) dot(x,x.T) x.dot(x.T) matmul(x,x.T)
concatenate([x,x]) stack([x,x],axis=1) where(x>0.5,x,-x) clip(x,0.2,0.6) sort(x) argsort(x) x.std() var(x,axis=0) cumsum(x)
x.cumsum(axis=1) split(x,3,axis=1) transpose(x) expand_dims(x,0) squeeze(x) tile(x,2) add(x,k) k.mean() sum(k) power(x,2)
isnan(x) any(x>0.9) outer(x[0],x[1]) x.take(k[0]) maximum(x,0.5) equal(x,x) full_like(x,7) logical_not(x) mod(x,2)"""


@pytest.mark.parametrize("case", NUMPY.split())
def test_functions_of_np_are_those_of_numpy(case):
    x = np.array([[0.25, 0.5, 0.75], [1, 0.125, 0.375]], np.float32)
    k = np.array([[1, 0, 2]], np.int64)

    def of(module, make):
        functions = {name: getattr(module, name) for name in mx.np.__all__ if name != "ndarray"}
        result = eval(case, {**functions, "x": make(x), "k": make(k)})
        return result if isinstance(result, list) else [result]

    ours = of(mx.np, lambda array: mx.np.array(array, dtype=array.dtype))
    for mine, wanted in zip(ours, of(np, np.array), strict=True):
        assert mine.shape == np.shape(wanted) and mine.dtype_name == np.asarray(wanted).dtype.name
        np.testing.assert_allclose(mine.asnumpy(), wanted, 1e-6)


def test_np_says_what_is_wrong():
    for call in (
        lambda: mx.np.dot(mx.np.ones((2,)), mx.np.ones((3,))),
        lambda: mx.np.exp(1),
        lambda: mx.np.mean(mx.np.ones((2,)), axis=3),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"^(dot|exp|mean): "):
            call()


READ = {
    "nd.maximum(i, 0)": 3,
    "nd.clip(nd.abs(i) * 4, 0, 3)": 3,
    "nd.where(i > 0, i, s)": 3,
    "nd.divide(nd.add(1, i), nd.sqrt(nd.square(i)))": 4 / 3,
    "nd.lesser(i, 2)": 0,
    "nd.sign(i) + nd.equal(i, 3)": 2,
}


@pytest.mark.parametrize("text", READ)
def test_a_function_that_servers_run_may_call_them(text):
    def update(key, i, s):
        s += eval(text, {"nd": mx.nd, "i": i, "s": s})

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init(0, mx.nd.ones((2,)))
        kv.set_updater(update)
        kv.push(0, mx.nd.full((2,), 3))
        np.testing.assert_allclose(kv.pull(0).asnumpy(), 1 + READ[text], 1e-6)


@pytest.mark.parametrize("text", ["nd.exp(i)", "nd.dot(i, i)", "nd.square(i, out=s)", "i.exp()"])
def test_a_function_that_servers_run_says_what_it_may_not_call(text):
    def update(key, i, s):
        s += eval(text, {"nd": mx.nd, "i": i, "s": s})

    with mx.kv.create("dist_sync", bootstrap="self") as kv:
        kv.init(0, mx.nd.ones((2,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match="a function that servers run has"):
            kv.set_updater(update)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_temperature_of_zero_is_refused(name):
    softmax = getattr(mx.nd, name)
    with pytest.raises(mx.errors.InvalidArgumentError, match=f"^{name}: temperature: 0, another number is needed"):
        softmax(mx.nd.ones((2,)), temperature=0)
    assert softmax(mx.nd.ones((2,)), temperature=None).asnumpy() == pytest.approx(softmax(mx.nd.ones((2,))).asnumpy())


@pytest.mark.parametrize("shape", [(), (1,)])
def test_where_takes_numbers_beside_arrays_of_one_element(shape):
    large, condition = mx.nd.full(shape, 1.5e38), mx.nd.zeros(shape)
    assert mx.nd.where(condition, 1, large).asnumpy() == np.float32(1.5e38)
    assert mx.nd.where(condition, large, 0.5).asnumpy() == np.float32(0.5)


MIXED = """add multiply maximum equal logical_and broadcast_add broadcast_lesser elemwise_mul dot concat stack add_n power modulo""".split()


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize(("one", "other"), [("float16", "float32"), ("float32", "float16"), ("bfloat16", "float16")])
def test_two_dtypes_are_refused_also_of_16_bits(name, one, other):
    a, b = mx.nd.ones((2, 2), dtype=one), mx.nd.ones((2, 2), dtype=other)
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"^\w+: b?float\d+ with b?float\d+; astype\(\) first"):
        getattr(mx.nd, name)(a, b)
    assert getattr(mx.nd, name)(a, a).dtype_name == one


def test_two_dtypes_of_16_bits_are_refused_by_every_function_of_several_arrays():
    h, f = mx.nd.ones((1, 2, 2), dtype="float16"), mx.nd.ones((1, 2, 2))
    for call in (
        lambda: mx.nd.batch_dot(h, f),
        lambda: mx.nd.concatenate([h, f]),
        lambda: mx.nd.stack([h, f]),
        lambda: mx.nd.where(f, h, f),
        lambda: mx.nd.where(condition=f, x=f, y=h),
        lambda: mx.nd.add(h, f.asnumpy()),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"float16 with float32; astype\(\) first"):
            call()
    assert mx.nd.take(mx.nd.ones((2,), dtype="float16"), mx.nd.ones((1,))).dtype_name == "float16"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_where_has_the_dtype_of_its_choices(dtype):
    a = mx.nd.array([1, 2], dtype=dtype)
    for condition in ("float32", "int32", dtype):
        chosen = mx.nd.where(mx.nd.array([1, 0], dtype=condition), a, a + a)
        assert chosen.dtype_name == dtype and chosen.astype("float32").asnumpy().tolist() == [1, 4]
    assert mx.nd.where(mx.nd.array([1, 0]), a, 7).dtype_name == dtype
    assert mx.nd.where(mx.nd.array([1, 0]), y=a, x=7).astype("float32").asnumpy().tolist() == [7, 2]


def test_axes_that_dot_does_not_sum_over_stay_in_order():
    a, b = np.arange(24.0).reshape(2, 3, 4), np.arange(10.0).reshape(2, 5)
    found = mx.nd.dot(mx.nd.array(a), mx.nd.array(b), transpose_a=True)
    np.testing.assert_array_equal(found.asnumpy(), np.einsum("kij,kl->ijl", a, b))
    c, d = np.arange(20.0).reshape(4, 5), np.arange(30.0).reshape(2, 3, 5)
    found = mx.nd.dot(mx.nd.array(c), mx.nd.array(d), transpose_b=True)
    np.testing.assert_array_equal(found.asnumpy(), np.einsum("ik,jlk->ijl", c, d))
    square = np.arange(27.0).reshape(3, 3, 3)
    found = mx.nd.dot(mx.nd.array(square), mx.nd.array(square), transpose_a=True, transpose_b=True)
    np.testing.assert_array_equal(found.asnumpy(), np.einsum("kij,lmk->ijlm", square, square))
    with pytest.raises(mx.errors.InvalidArgumentError, match="^dot: forward_stype='csr'"):
        mx.nd.dot(mx.nd.array(c), mx.nd.array(c), transpose_b=True, forward_stype="csr")


def test_sum_and_sign_of_an_array_are_the_functions():
    t = mx.nd.arange(24).reshape((2, 3, 4))
    assert t.sum(axis=1, exclude=True).shape == (3,) and t.sum(axis=()).asscalar() == 276 and np.sum(t) == 276
    assert t.sum(0, True).shape == (1, 3, 4)
    assert mx.nd.array([-3, 0, 5], dtype="int32").sign().tolist() == [-1, 0, 1]


ARGUMENTS = {  # which MXNet documents, with its results
    "nd.topk(x, axis=None, k=2)": [3, 4],
    "nd.topk(x, axis=None, k=2, ret_typ='mask')": [[0, 0, 0], [1, 1, 0]],
    "nd.topk(x, axis=None, k=2, ret_typ='value')": [9, 8],
    "nd.topk(x, k=0)": [[0, 2, 1], [0, 1, 2]],
    "nd.topk(x, axis=None, k=-1, is_ascend=True)": [1, 2, 0, 5, 4, 3],
    "nd.diag(t)": [[0, 16], [1, 17], [2, 18], [3, 19]],
    "nd.diag(t, k=-1, axis1=0, axis2=2)": [[12], [16], [20]],
    "nd.diag(t, axis1=-1, axis2=-2)": [[0, 5, 10], [12, 17, 22]],
    "nd.diag(x, k=1, axis1=1, axis2=0)": [9],
    "nd.cumsum(x, axis=0, dtype='int32')": [[3, 1, 2], [12, 9, 9]],
    "nd.cumsum(nd.array([1.5, 2.5]), dtype='int32')": [1, 3],
    "nd.softmax(nd.zeros((2,), dtype='float16'), dtype='float64')": [0.5, 0.5],
    "nd.log_softmax(nd.zeros((1,)), dtype='float64')": [0],
    "nd.broadcast_like(nd.array([[1, 2, 3]]), nd.ones((5, 2)), lhs_axes=(0,), rhs_axes=(1,))": [[1, 2, 3]] * 2,
    "nd.cast(x, 'int32', out=nd.zeros((2, 3), dtype='int32'))": [[3, 1, 2], [9, 8, 7]],
    "nd.full((2,), 3, out=nd.zeros((2,)))": [3, 3],
    "nd.power(base=x, exp=2)": [[9, 1, 4], [81, 64, 49]],
    "nd.abs(x, name='abs0')": [[3, 1, 2], [9, 8, 7]],
    "nd.abs(-x, nd.zeros((2, 3)))": [[3, 1, 2], [9, 8, 7]],
    "nd.concatenate([x, x], axis=1, always_copy=False)": [[3, 1, 2] * 2, [9, 8, 7] * 2],
    "nd.arange(1, 3, 1, 2, None, None, 'int32')": [1, 1, 2, 2],
    "nd.arange(3, infer_range=False)": [0, 1, 2],
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_of_mxnet_are_taken(case):
    x, t = mx.nd.array([[3, 1, 2], [9, 8, 7]]), mx.nd.arange(24).reshape((2, 3, 4))
    found = eval(case, {"nd": mx.nd, "x": x, "t": t})
    assert found.tolist() == ARGUMENTS[case]
    if "dtype=" in case:
        assert found.dtype_name == case.rpartition("dtype='")[2].partition("'")[0]


def test_arguments_that_have_no_sense_are_named():
    x = mx.nd.ones((1, 3))
    for call in (
        lambda: mx.nd.broadcast_like(x, x, lhs_axes=(0,)),
        lambda: mx.nd.broadcast_like(x, x, lhs_axes=(1,), rhs_axes=(1,)),
        lambda: mx.nd.diag(x, axis1=0, axis2=2),
        lambda: mx.nd.topk(x, k=4),
        lambda: mx.nd.where(mx.nd.ones((1,), dtype="int32"), 1.5, 0),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match="^(broadcast_like|diag|topk|where): "):
            call()


def test_errors_of_python_name_the_function():
    for call, text in (
        (lambda: mx.nd.clip(mx.nd.ones(1)), r"^clip\(\) missing 2 required"),
        (lambda: mx.nd.exp(mx.nd.ones(1), axis=1), r"^exp\(\) got an unexpected keyword argument 'axis'"),
        (lambda: mx.nd.mean(mx.nd.ones(1), axes=1), r"^mean\(\) got an unexpected"),
        (lambda: mx.nd.power(mx.nd.ones(1), to=1), r"^power\(\) got an unexpected"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
