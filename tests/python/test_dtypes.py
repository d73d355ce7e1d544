"""Element types that are stored and assigned only: values pass unchanged, and sums and updates of them are refused by name."""

import itertools

import ml_dtypes
import numpy as np
import pytest
import tensorkv as mx

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
STORED = (*FLOAT8, "uint16", "uint32", "uint64", "complex64")


def numpy_of(name):
    return np.dtype(getattr(ml_dtypes, name) if name in FLOAT8 else name)


def any_bits(name, count=40, seed=0):
    """Values of every kind: what the bits are means nothing to a store."""
    return np.frombuffer(np.random.default_rng(seed).bytes(count * numpy_of(name).itemsize), numpy_of(name)).copy()


def same(found, wanted):
    found = found.asnumpy() if isinstance(found, mx.nd.NDArray) else np.asarray(found)
    assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def stores(work, workers=1):
    """Run `work` with a store of one process, and with those of a job."""
    if workers == 1:
        work(mx.kv.create())
    for mode in ("dist_sync", "dist_async"):
        with mx.testing.cluster(workers, 2, mode, patience=60) as job:
            job.run(work)


@pytest.mark.parametrize("name", STORED)
def test_values_pass_unchanged(name):
    def work(kv):
        first, second, third = (any_bits(name, seed=seed) for seed in range(3))
        kv.init("w", first)
        same(kv.pull("w"), first)
        kv.push("w", second)
        out = np.zeros_like(first)
        kv.pull("w", out=out)
        same(out, second)
        kv.pushpull("w", third, out=out)
        same(out, third)
        strided = np.repeat(first, 2)[::2]
        kv.push("w", [strided])
        array = mx.nd.empty(first.shape, dtype=name)
        kv.pull("w", out=array)
        same(array, first)
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"{name}.*float32|float32.*{name}"):
            kv.pull("w", out=mx.nd.empty(first.shape))

    stores(work)


@pytest.mark.parametrize("name", STORED)
def test_sums_and_updates_are_refused_by_name(name):
    def work(kv):
        value = any_bits(name)
        kv.init("w", value)
        with pytest.raises(
            mx.errors.InvalidArgumentError, match=f"push 'w': {name} values cannot be summed or updated"
        ):
            kv.push("w", [value, value])
        kv.set_optimizer(mx.optimizer.SGD())
        with pytest.raises(
            mx.errors.InvalidArgumentError, match=f"push 'w': {name} values cannot be summed or updated"
        ):
            kv.push("w", value)
        same(kv.pull("w"), value)

    stores(work)


def test_sums_of_several_workers_are_refused_by_name():
    def work(kv):
        kv.init("w", any_bits("uint32"))
        with pytest.raises(mx.errors.InvalidArgumentError, match="push 'w': uint32 values cannot be summed"):
            kv.push("w", any_bits("uint32"))

    stores(work, workers=2)


@pytest.mark.parametrize("name", STORED)
def test_snapshots_and_files_keep_them(name, tmp_path):
    value = any_bits(name)
    kv = mx.kv.create()
    kv.init("w", value)
    kv.save(tmp_path / "snapshot")
    other = mx.kv.create()
    other.init("w", np.zeros_like(value))
    other.load(tmp_path / "snapshot")
    same(other.pull("w"), value)
    mx.nd.save(str(tmp_path / "file"), {"w": other.pull("w")})
    same(mx.nd.load(str(tmp_path / "file"))["w"], value)


@pytest.mark.parametrize("name", STORED)
def test_arrays_of_them(name):
    dtype = numpy_of(name)
    value = any_bits(name)
    array = mx.nd.array(value, dtype=name)
    same(array, value)
    assert array.dtype_name == name and array.astype(name, copy=False) is array
    assert mx.nd.from_dlpack(value).data_ptr == value.ctypes.data
    assert np.asarray(array).ctypes.data == array.data_ptr and np.asarray(array).dtype == dtype
    same(array[3:7], value[3:7])
    array[1] = 2
    array[2:4] = [1, 0]
    assert array.asnumpy()[1:4].tolist() == [2, 1, 0]
    array[:] = 1
    assert set(array.asnumpy().tolist()) == {1}
    assert set(mx.nd.full((3,), 3, dtype=name).asnumpy().tolist()) == {3}
    assert "1" in repr(array) and "1" in repr(mx.np.array([1], dtype=name))
    for module in (mx.nd, mx.np):
        ones = module.ones((2,), dtype=name)
        if module is mx.nd or name not in ("uint16", "uint32", "uint64"):
            with pytest.raises(mx.errors.InvalidArgumentError, match=f"{name} arrays have no arithmetic"):
                ones + ones
        with pytest.raises(mx.errors.InvalidArgumentError, match=f"{name} arrays have no arithmetic"):
            ones += 1
    if dtype.kind == "u":
        assert mx.nd.array([7.0, 0.0]).astype(name).asnumpy().tolist() == [7, 0]
        for bad in (-1, 2 ** (8 * dtype.itemsize), 0.5):
            with pytest.raises(mx.errors.InvalidArgumentError):
                array[:] = bad
            with pytest.raises(mx.errors.InvalidArgumentError):
                mx.nd.full((2,), bad, dtype=name)
        assert mx.nd.full((2,), 2 ** (8 * dtype.itemsize) - 1, dtype=name).asnumpy()[0] == np.iinfo(dtype).max


def test_complex_numbers_are_no_real_ones():
    array = mx.nd.array([1 + 2j, -1j], dtype="complex64")
    assert array.asnumpy().tolist() == [1 + 2j, -1j]
    array[0] = 3j
    array[1:] = np.complex64(1 + 1j)
    assert array.asnumpy().tolist() == [3j, 1 + 1j]
    real = mx.nd.zeros((2,))
    for call in (
        lambda: real.__setitem__(0, 1j),
        lambda: real.__setitem__(slice(None), np.complex64(1j)),
        lambda: mx.nd.array([1j]),
        lambda: mx.nd.full((2,), 1j),
        lambda: mx.nd.sum(array),
        lambda: array.astype("float32"),
    ):
        with pytest.raises((mx.errors.InvalidArgumentError, TypeError)):
            call()
    assert real.asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("name", FLOAT8)
def test_float8_is_rounded_once_to_nearest_even(name):
    dtype = numpy_of(name)
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    for wide in ("float32", "float64", "float16"):
        np.testing.assert_array_equal(mx.nd.array(codes, dtype=name).astype(wide).asnumpy(), codes.astype(wide))
    finite = np.unique(codes.astype(np.float64)[np.isfinite(codes.astype(np.float64))])
    middles = (finite[1:] + finite[:-1]) / 2
    largest = finite[-1] * np.array([1, 1 + 1 / 32, 1 + 1 / 16, 1.125, 1.25, 1.5, 4, 1e30])
    numbers = np.concatenate([finite, middles, largest, -largest, [np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-324]])
    wanted = numbers.astype(np.float32).astype(dtype)  # each is a float32, so that this rounds once
    same(mx.nd.array(numbers, dtype="float64").astype(name), wanted)
    same(mx.nd.array(numbers, dtype=name), wanted)
    for x, code in itertools.islice(zip(numbers, wanted, strict=True), 0, None, 7):
        same(mx.nd.full((1,), x, dtype=name), np.array([code]))
    # A hair above the middle of two is the upper one, also where the hair is lost in float32.
    positive = finite[finite > 0]
    above = (positive[1:] + positive[:-1]) / 2 * (1 + 2**-40)
    assert mx.nd.array(above, dtype=name).astype("float64").asnumpy().tolist() == positive[1:].tolist()


@pytest.mark.framework
@pytest.mark.parametrize("name", STORED)
def test_tensors_of_pytorch_and_jax_share_memory(name):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    value = any_bits(name)
    tensor = torch.from_numpy(value.view(np.uint8).copy()).view(getattr(torch, name))
    array = mx.nd.from_dlpack(tensor)
    assert array.dtype_name == name and array.data_ptr == tensor.data_ptr()
    assert torch.from_dlpack(array).dtype == tensor.dtype
    kv = mx.kv.create()
    kv.init("w", tensor)
    out = torch.zeros_like(tensor)
    kv.pull("w", out=out)
    assert torch.equal(out.view(torch.uint8), tensor.view(torch.uint8))
    if name != "uint64":  # JAX has none without its option
        leaf = jax.numpy.asarray(value)
        kv.push("w", leaf)
        same(kv.pull("w", like=leaf), value)


@pytest.mark.parametrize(
    ("dtype", "scalar", "wanted"),
    [
        ("float32", np.float64(0.1), "float32"),
        ("float16", np.float32(0.1), "float16"),
        ("uint8", np.int8(1), "uint8"),
        ("int32", np.float32(0.5), "float64"),
        ("int32", np.bool_(True), "int32"),
    ],
)
def test_a_numpy_scalar_beside_an_mx_np_array_counts_as_a_python_number(dtype, scalar, wanted):
    array = mx.np.ones((2,), dtype=dtype)
    alike = (array + scalar.item()).asnumpy()
    for result in (array + scalar, scalar + array):
        assert isinstance(result, mx.np.ndarray) and np.dtype(result.dtype) == wanted
        assert (result.asnumpy() == alike).all()
