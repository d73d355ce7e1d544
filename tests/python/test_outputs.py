"""Arrays that verbs write to: every producer and layout, in every verb and store, is written whole or refused and untouched."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorkv as mx

S = (2, 3)
SHARED = "more than one element of the output refers to one memory location; give a contiguous array"
STORES = ["local", "device", "dist_sync", "dist_async"]


class Exported:
    """An array of no framework, which speaks DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Cupy(Exported):
    """An array whose type has the name of another framework's."""


Cupy.__module__ = "cupy"


def strided(shape, strides, count=16):
    memory = np.zeros(count, np.float32)
    return np.lib.stride_tricks.as_strided(memory[4:], shape, [4 * step for step in strides])


LAYOUTS = {  # strides of arrays of shape S, and whether two elements share memory
    "rows": ((0, 1), True),
    "columns": ((1, 0), True),
    "one element": ((0, 0), True),
    "windows": ((1, 1), True),
    "windows of two": ((2, 1), True),
    "backwards": ((-1, 1), True),
    "spread": ((5, 1), False),
    "transposed": ((1, 2), False),
    "interleaved": ((3, 2), False),
    "reversed": ((-3, 1), False),
}


def of_torch(array):
    torch = pytest.importorskip("torch")
    # PyTorch has no negative strides.
    return torch.as_strided(torch.zeros(16), S, [step // 4 for step in array.strides], 4)


PRODUCERS = [
    pytest.param(lambda array: array, id="numpy"),
    pytest.param(of_torch, id="torch", marks=pytest.mark.framework),
    pytest.param(Exported, id="own class"),
    pytest.param(Cupy, id="cupy's name"),
    pytest.param(lambda array: mx.nd.from_dlpack(Exported(array)), id="view"),
    pytest.param(lambda array: mx.nd.from_dlpack(array)[0:2], id="slice"),
]


def values(array):
    return np.asarray(array.array if isinstance(array, Exported) else array).copy()


@pytest.fixture(params=STORES)
def store(request):
    options = {"bootstrap": "self"} if request.param.startswith("dist") else {}
    with mx.kv.create(request.param, **options) as kv:
        kv.init("w", np.arange(6, dtype=np.float32).reshape(S))
        kv.init("r", mx.nd.array(np.arange(6).reshape(S)).tostype("row_sparse"))
        yield kv


def verbs(kv, out, ones):
    """Return calls that write 0 to 5 to an array, and calls that write a sum of ones."""
    return {
        "pull": lambda: kv.pull("w", out=out),
        "pull of a list": lambda: kv.pull(["w"], out=[[out]]),
        "pull of a tree": lambda: kv.pull({"w": 0}, out={"w": out}),
        "pull of a ticket": lambda: kv.pull("w", out=out, async_op=True).wait(),
        "pull of rows": lambda: kv.pull("r", out=out),
        "pull of all rows": lambda: kv.pull("r", out=out, ignore_sparse=False),
        "pull_rows": lambda: kv.pull_rows("r", [0, 1], out=out),
        "pull_rows of a ticket": lambda: kv.pull_rows("r", [0, 1], out=out, async_op=True).wait(),
        "pushpull": lambda: kv.pushpull("w", ones, out=out),
        "pushpull of a ticket": lambda: kv.pushpull("w", ones, out=out, async_op=True).wait(),
        "broadcast": lambda: kv.broadcast("new", ones, out=out),
    }


VERBS = list(verbs(None, None, None))


@pytest.mark.parametrize("make", PRODUCERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_output_is_written_whole_or_refused(store, make, layout):
    strides, shares = LAYOUTS[layout]
    if make is of_torch and min(strides) < 0:
        return
    for name in VERBS:
        out = make(strided(S, strides))
        call = verbs(store, out, np.ones(S, np.float32))[name]
        if shares:
            with pytest.raises(mx.errors.InvalidArgumentError, match=SHARED) as caught:
                call()
            assert any(f"'{key}'" in str(caught.value) for key in ("w", "r", "new")), caught.value
            assert values(out).max() == 0
            assert store.keys() == ["w", "r"] and store.round("w") == 0
            assert store.pull("w").asnumpy().reshape(-1).tolist() == list(range(6))
        else:
            call()
            wanted = np.ones(S) if name.startswith(("pushpull", "broadcast")) else np.arange(6).reshape(S)
            assert values(out).tolist() == wanted.tolist()
            if name == "broadcast":
                store.delete("new")
            if name.startswith("pushpull"):
                store.push("w", np.arange(6, dtype=np.float32).reshape(S))


@pytest.mark.parametrize("make", PRODUCERS)
def test_a_value_whose_elements_share_memory_is_read(store, make):
    for strides, shares in LAYOUTS.values():
        if shares and min(strides) >= 0:
            array = strided(S, strides)
            array[...] = np.arange(6).reshape(S)
            value = make(array)
            wanted = values(value)
            store.push("w", value)
            assert store.pull("w").asnumpy().tolist() == wanted.tolist()


@pytest.mark.parametrize("name", [name for name, (strides, shares) in LAYOUTS.items() if shares and min(strides) >= 0])
def test_a_row_sparse_pull_gives_its_output_memory_of_its_own(store, name):
    """Rows of an array may share memory; those that a pull gives it share none, and the former memory stays."""
    memory = strided(S, LAYOUTS[name][0])
    out = mx.nd.sparse.row_sparse_array((mx.nd.from_dlpack(memory), [0, 1]), shape=S)
    store.row_sparse_pull("r", out=out, row_ids=[1, 0, 1])
    assert out.asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]] and memory.max() == 0
    store.row_sparse_pull("r", out=[out], row_ids=[1])
    assert out.asnumpy().tolist() == [[0, 0, 0], [3, 4, 5]] and memory.max() == 0
    for dense in (memory, mx.nd.from_dlpack(memory)):
        for call in (store.row_sparse_pull, lambda *a, **o: store.row_sparse_pull(*a, async_op=True, **o).wait()):
            with pytest.raises(mx.errors.InvalidArgumentError, match="row_sparse_pull 'r': .*RowSparseNDArray"):
                call("r", out=dense, row_ids=[0, 1])
    assert memory.max() == 0


@pytest.mark.parametrize("make", PRODUCERS[2:])
def test_a_read_only_output_is_refused(store, make):
    array = np.zeros(S, np.float32)
    array.flags.writeable = False
    out = make(array)
    for call in verbs(store, out, np.ones(S, np.float32)).values():
        with pytest.raises(mx.errors.InvalidArgumentError, match="the output is read-only"):
            call()
    assert store.keys() == ["w", "r"]


def test_an_array_itself_writes_to_no_memory_that_elements_share():
    array = mx.nd.from_dlpack(strided(S, (0, 1)))

    def assign(key, value):
        array[key] = value

    for call in (
        lambda: assign(slice(None), 3),
        lambda: assign(0, 3),
        lambda: assign((0, 1), 3),
        lambda: array.__iadd__(1),
        lambda: mx.nd.ones(S).copyto(array),
        lambda: mx.nd.exp(mx.nd.ones(S), out=array),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match="more than one element of the"):
            call()
    assert array.asnumpy().max() == 0


@pytest.mark.framework
class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_a_leaf_that_requires_grad_is_refused(self, store, torch):
        out = torch.zeros(S, requires_grad=True)
        for call in verbs(store, out, np.ones(S, np.float32)).values():
            with pytest.raises(mx.errors.InvalidArgumentError, match="requires grad.*tensor.data"):
                call()
        assert out.detach().max() == 0

    @pytest.mark.parametrize("name", VERBS)
    def test_a_backward_pass_sees_what_a_verb_wrote(self, store, torch, name):
        x, out = torch.ones(S, requires_grad=True), torch.full(S, 2.0)
        y = (x * out).sum()
        verbs(store, out, np.ones(S, np.float32))[name]()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        assert x.grad is None

    def test_a_verb_that_fails_is_no_write(self, store, torch):
        x, out = torch.ones(S, requires_grad=True), torch.full(S, 2.0)
        y = (x * out).sum()
        for call in (
            lambda: store.pull("none", out=out),
            lambda: store.pull("w", out=[out, np.zeros(5, np.float32)]),
            lambda: store.pull("none", out=out, async_op=True),
        ):
            with pytest.raises(mx.errors.KVError):
                call()
        y.backward()
        assert x.grad.tolist() == [[2.0] * 3] * 2

    def test_a_ticket_is_a_write_when_it_begins_and_once_when_it_is_done(self, store, torch):
        out = torch.zeros(S)
        before = out._version
        ticket = store.pull("w", out=out, async_op=True)
        begun = out._version
        ticket.wait()
        done = out._version
        ticket.wait()
        assert before < begun < done == out._version

    def test_values_and_their_gradients_are_no_writes(self, store, torch):
        value = torch.ones(S)
        before = value._version
        store.push("w", value)
        store.pushpull("w", value, out=np.zeros(S, np.float32))
        store.push_rows("r", [0, 1], value)
        assert value._version == before
        store.pushpull("w", value)
        assert value._version > before

    def test_tensors_of_inference_mode_are_written(self, store, torch):
        with torch.inference_mode():
            out = torch.zeros(S)
            store.pull("w", out=out)
        store.pull_rows("r", [0, 1], out=out)
        assert out.tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_a_tensor_without_memory_is_named_with_what_gives_its_elements(self, kv, torch):
        class Wrapper(torch.Tensor):
            @staticmethod
            def __new__(cls):
                return torch.Tensor._make_wrapper_subclass(cls, S)

            @classmethod
            def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
                raise NotImplementedError

        class Local(Wrapper):
            def to_local(self):
                return torch.ones(S)

        kv.init("w", torch.zeros(S))
        with pytest.raises(mx.errors.InvalidArgumentError, match="'w': a .*Wrapper that has no memory of its own"):
            kv.push("w", Wrapper())
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"'w': a .*Local .*to_local\(\)"):
            kv.push("w", Local())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            masked = torch.masked.masked_tensor(torch.ones(S), torch.ones(S, dtype=torch.bool))
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"'w': a .*MaskedTensor.*get_data\(\)"):
            kv.push("w", masked)
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(S)
        with pytest.raises(mx.errors.InvalidArgumentError, match="'w': a .*FakeTensor"):
            kv.push("w", fake)


def test_no_verb_imports_torch():
    program = (
        "import sys, numpy as np, tensorkv as mx\n"
        "kv = mx.kv.create('local'); kv.init('w', np.ones(3, np.float32)); out = np.zeros(3, np.float32)\n"
        "kv.pull('w', out=out); kv.pushpull('w', out, out=out); kv.pull('w', out=out, async_op=True).wait()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.framework
class TestJax:
    @pytest.fixture(autouse=True)
    def jax(self):
        return pytest.importorskip("jax")

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
    def test_what_jax_would_cut_is_refused(self, kv, jax, dtype):
        jnp = jax.numpy
        kv.init("wide", np.array([5_000_000_000], dtype))
        for call in (
            lambda: kv.pull("wide", like=jnp.zeros(0)),
            lambda: kv.pull(["wide"], like=jnp.zeros(0)),
            lambda: kv.pull("wide", like=jnp.zeros(0), async_op=True).wait(),
            lambda: kv.pull({"wide": jnp.zeros(0)}),
        ):
            with pytest.raises(mx.errors.InvalidArgumentError, match=f"{dtype}.*jax_enable_x64"):
                call()
        assert kv.pull("wide", like=np.zeros(0)).tolist() == [5_000_000_000]
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            assert kv.pull("wide", like=jnp.zeros(0)).tolist() == [5_000_000_000]

    @pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float16", "bool"])
    def test_what_jax_holds_comes_as_it_is(self, kv, jax, dtype):
        kv.init("w", np.ones(3, dtype))
        found = kv.pull("w", like=jax.numpy.zeros(0))
        assert found.dtype == dtype and found.tolist() == [1, 1, 1]

    def test_a_jax_array_is_no_output(self, store, jax):
        out = jax.numpy.zeros(S)
        for name, call in verbs(store, out, np.ones(S, np.float32)).items():
            with pytest.raises(mx.errors.InvalidArgumentError, match="JAX array is immutable"):
                call()
            assert store.keys() == ["w", "r"], name
