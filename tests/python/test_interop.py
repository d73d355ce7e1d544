"""Arrays of other frameworks: read and written where they are, refused by name where they must not be written."""

import array
import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import tensorkv as mx

S = (4, 3)


def frameworks():
    def torch_array(x):
        import torch

        return torch.from_numpy(np.array(x))

    def jax_array(x):
        import jax.numpy

        return jax.numpy.asarray(x)

    return [
        pytest.param(np.array, id="numpy"),
        pytest.param(torch_array, id="torch", marks=pytest.mark.framework),
        pytest.param(jax_array, id="jax", marks=pytest.mark.framework),
    ]


def pointer(x):
    if isinstance(x, np.ndarray):
        return x.ctypes.data
    return x.data_ptr() if hasattr(x, "data_ptr") else x.unsafe_buffer_pointer()


@pytest.fixture(params=frameworks())
def make(request):
    return request.param


def test_values_are_seen_without_copy(make):
    x = make(np.arange(12, dtype=np.float32).reshape(S))
    assert mx.nd.from_dlpack(x).data_ptr == pointer(x)


def test_every_verb_takes_them_as_values(kv, make):
    one, two = make(np.ones(S, np.float32)), make(np.full(S, 2, np.float32))
    kv.init(["a", "b"], [one, two])
    kv.push("a", [one, two, mx.nd.ones(S)])
    assert kv.pull("a").asnumpy().tolist() == np.full(S, 4).tolist()
    kv.push(["a", "b"], [one, [two, two]])
    out = np.zeros(S, np.float32)
    kv.pushpull("b", [two, one], out=out)
    assert out.max() == 3
    kv.broadcast("c", one, out)
    assert out.max() == 1
    assert np.asarray(one).max() == 1 and np.asarray(two).max() == 2


PEAK = """
import resource, sys
import numpy as np
import tensorkv as mx
kind = sys.argv[1]
host = np.ones(64 << 20, np.float32)
if kind == 'numpy':
    x = host
elif kind == 'torch':
    import torch
    x = torch.from_numpy(host)
else:
    import jax.numpy
    x = jax.numpy.asarray(host)
    x.block_until_ready()
kv = mx.kv.create('local', threads=1)
kv.init(1, x)
kv.push(1, x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    kv.push(1, [x, x])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    "kind",
    ["numpy", pytest.param("torch", marks=pytest.mark.framework), pytest.param("jax", marks=pytest.mark.framework)],
)
def test_a_push_of_256_mib_takes_no_memory_for_its_values(kind):
    run = subprocess.run([sys.executable, "-c", PEAK, kind], capture_output=True, text=True, timeout=110)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 16 << 10, "KiB beyond the peak before"


def test_results_come_in_the_framework_of_like(kv, make):
    x = make(np.zeros(S, np.float32))
    kv.init(["a", "b"], [mx.nd.ones(S), mx.nd.full(S, 2)])
    got = kv.pull("a", like=x)
    assert type(got) is type(x) and np.asarray(got).max() == 1
    both = kv.pull(["a", "b"], like=x)
    assert [type(y) for y in both] == [type(x)] * 2 and np.asarray(both[1]).max() == 2
    assert isinstance(kv.pull("a", like=mx.nd.ones((1,))), mx.nd.NDArray)
    later = kv.pull("a", like=x, async_op=True).wait()
    assert type(later) is type(x) and np.asarray(later).tolist() == np.asarray(got).tolist()
    with pytest.raises(ValueError, match="`like` is of type"):
        kv.pull("a", like=object())
    with pytest.raises(ValueError, match="like: the list of examples is empty"):
        kv.pull("a", like=[])


@pytest.mark.framework
def test_like_takes_a_subclass_of_torch_and_refuses_what_has_no_elements(kv):
    torch = pytest.importorskip("torch")

    class Marked(torch.Tensor):
        pass

    kv.init("a", mx.nd.ones(S))
    for example in (torch.zeros(1).as_subclass(Marked), torch.nn.Parameter(torch.zeros(1))):
        found = kv.pull("a", like=example)
        assert type(found) is torch.Tensor and found.max() == 1
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"pull: `like` is on the device meta.*torch\.empty\(0\)"):
        kv.pull("a", like=torch.zeros(1, device="meta"))
    with pytest.raises(mx.errors.InvalidArgumentError, match="`like` is of type Linear; an array is needed"):
        kv.pull("a", like=torch.nn.Linear(1, 1))


SEVERAL_DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np, tensorkv as mx
kv = mx.kv.create()
kv.init("a", np.zeros(4, np.float32))
for spec in ("d", None):
    mesh = jax.sharding.Mesh(jax.devices(), ("d",))
    x = jax.device_put(jax.numpy.ones(4), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(spec)))
    try:
        kv.push("a", x)
    except mx.errors.InvalidArgumentError as error:
        print(error)
    kv.push("a", np.asarray(x))
assert kv.pull("a").asnumpy().tolist() == [1] * 4
"""


@pytest.mark.framework
def test_an_array_of_jax_on_several_devices_says_what_to_pass():
    pytest.importorskip("jax")
    run = subprocess.run([sys.executable, "-c", SEVERAL_DEVICES], capture_output=True, text=True, timeout=110)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("push 'a': a ") and line.endswith(
            "it is on 2 devices, and the store takes arrays of one; numpy.asarray(array) is one on the host"
        )


# ----------------------------------------------------------------------------------------------------- numpy, buffers


def test_numpy_outputs_of_every_layout(kv):
    kv.init("a", mx.nd.array(np.arange(12).reshape(S)))
    for out in (
        np.zeros(S, np.float32),
        np.zeros((3, 4), np.float32).T,
        np.zeros((8, 6), np.float32)[::-2, ::2],
        np.zeros(S),
    ):
        kv.pull("a", out=out)
        assert np.array_equal(out, np.arange(12).reshape(S))
    values = [np.asfortranarray(np.ones(S, np.float32)), np.ones((4, 6), np.float32)[:, ::-2]]
    kv.push("a", values)
    assert kv.pull("a").asnumpy().max() == 2
    kv.pushpull("a", values)
    assert values[0].max() == 2 == values[1].min()


def test_a_read_only_numpy_array_is_a_value_but_no_output(kv):
    x = np.ones(S, np.float32)
    x.flags.writeable = False
    kv.init("a", x)
    kv.push("a", [x, x])
    for verb in (lambda: kv.pull("a", out=x), lambda: kv.pushpull("a", x)):
        with pytest.raises(ValueError, match="'a': the output is read-only"):
            verb()
    assert kv.pull("a").asnumpy().max() == 2 and x.max() == 1


def test_buffers_are_arrays(kv):
    kv.init("a", array.array("f", [1, 2, 3]))
    kv.init("raw", b"abc")
    out = array.array("d", [0, 0, 0])
    kv.pull("a", out=out)
    assert list(out) == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        kv.pull("raw", out=memoryview(b"xyz"))


def test_foreign_owners_are_released(kv):
    x = np.ones(S, np.float32)
    before = sys.getrefcount(x)
    kv.init("a", x)
    for _ in range(3):
        kv.push("a", [x, x])
        kv.pull("a", out=x)
        with pytest.raises(ValueError):
            kv.push("a", [x, np.ones((1,), np.float32)])
    gc.collect()
    assert sys.getrefcount(x) == before


# ------------------------------------------------------------------------------------------------------------- PyTorch


@pytest.mark.framework
class TestTorch:
    def test_outputs_are_written_in_place(self, kv):
        import torch

        kv.init("a", mx.nd.ones(S))
        for out in (
            torch.zeros(S),
            torch.zeros(S, dtype=torch.float64),
            torch.zeros((3, 4)).t(),
            torch.zeros(S, dtype=torch.bfloat16),
        ):
            where = out.data_ptr()
            kv.pull("a", out=out)
            assert out.data_ptr() == where and out.min() == 1
        x = torch.full(S, 5.0)
        kv.pushpull("a", [x, torch.ones(S)])
        assert x.min() == 6

    def test_bfloat16_is_stored_and_summed(self, kv):
        import torch

        x = torch.full(S, 1.5, dtype=torch.bfloat16)
        kv.init("a", x)
        kv.push("a", [x, x])
        assert kv.pull("a", like=x).dtype == torch.bfloat16 and kv.pull("a", like=x).float().max() == 3

    def test_what_must_not_be_written_is_refused_by_name(self, kv):
        import torch

        kv.init("a", mx.nd.ones(S))
        leaf = torch.zeros(S, requires_grad=True)
        with pytest.raises(ValueError, match="'a': a tensor that requires grad"):
            kv.pull("a", out=leaf)
        with pytest.raises(ValueError, match="requires grad"):
            kv.pushpull("a", leaf)
        negative = torch.zeros(S, dtype=torch.complex64).conj().imag
        assert negative.is_neg()
        with pytest.raises(ValueError, match="negative view"):
            kv.pull("a", out=negative)
        with pytest.raises(ValueError, match="negative view"):
            kv.push("a", negative)
        with pytest.raises(ValueError, match="conjugate"):
            kv.push("a", torch.zeros(S, dtype=torch.complex64).conj())
        assert leaf.max() == 0 and kv.pull("a").asnumpy().max() == 1

    def test_a_subclass_of_tensor_is_refused_where_a_tensor_is(self, kv):
        import torch

        class Mine(torch.Tensor):
            pass

        kv.init("a", mx.nd.ones(S))
        conjugate = torch.ones(S, dtype=torch.complex64).conj()
        negative = conjugate.imag.as_subclass(Mine)
        assert type(negative) is Mine and negative.is_neg()
        for view in (negative, torch.nn.Parameter(conjugate.imag, requires_grad=False)):
            with pytest.raises(ValueError, match="negative view"):
                kv.push("a", view)
            with pytest.raises(ValueError, match="negative view"):
                mx.nd.array(view)
        leaf = torch.zeros(S, requires_grad=True).as_subclass(Mine)
        with pytest.raises(ValueError, match="requires grad"):
            kv.pull("a", out=leaf)
        kv.push("a", torch.full(S, 3.0).as_subclass(Mine))
        assert kv.pull("a").asnumpy().max() == 3

    def test_parameters_and_their_gradients_are_values(self, kv):
        import torch

        w = torch.nn.Parameter(torch.ones(S))
        (w * 2).sum().backward()
        kv.init("w", w)
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.25))
        kv.push("w", w.grad)
        kv.pull("w", out=w.data)
        assert w.min() == 0.5

    def test_the_optimizers_are_torchs(self):
        import torch

        rng = np.random.default_rng(0)
        start = rng.normal(size=40)
        pairs = [
            (mx.optimizer.SGD(learning_rate=0.1, wd=0.01), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01)),
            (mx.optimizer.SGD(learning_rate=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
            # torch adds epsilon after the bias correction, MXNet before: the same without it.
            (mx.optimizer.Adam(learning_rate=0.01, epsilon=0), lambda p: torch.optim.Adam(p, lr=0.01, eps=0)),
        ]
        for ours, theirs in pairs:
            kv = mx.kv.create("local")
            kv.init(0, start)
            kv.set_optimizer(ours)
            weight = torch.tensor(start, requires_grad=True)
            optimizer = theirs([weight])
            for _ in range(6):
                grad = rng.normal(size=40)
                kv.push(0, grad)
                weight.grad = torch.tensor(grad)
                optimizer.step()
            np.testing.assert_allclose(kv.pull(0).asnumpy(), weight.detach().numpy(), rtol=1e-12)

    def test_a_dataloader_with_workers_beside_a_live_store(self, kv):
        import torch

        kv.init(0, mx.nd.zeros((300, 1000)))
        big = mx.nd.ones((300, 1000))
        dataset = torch.utils.data.TensorDataset(torch.arange(64.0))
        for context in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context=context)
            total = 0
            for (batch,) in loader:
                kv.push(0, [big, big])
                total += batch.sum().item()
            assert total == 63 * 64 / 2
        assert kv.pull(0).asnumpy().max() == 2


# ----------------------------------------------------------------------------------------------------------------- JAX


@pytest.mark.framework
class TestJax:
    def test_arrays_are_never_written_into(self, kv):
        import jax.numpy as jnp

        x = jnp.zeros(S)
        kv.init("a", mx.nd.ones(S))
        with pytest.raises(ValueError, match="'a': a JAX array is immutable"):
            kv.pull("a", out=x)
        with pytest.raises(ValueError, match="JAX array is immutable"):
            kv.pushpull("a", mx.nd.ones(S), out=[x])
        with pytest.raises(ValueError, match="JAX array is immutable"):
            kv.broadcast("b", x, x)
        assert x.max() == 0 and "b" not in kv

    def test_pushpull_returns_a_new_array(self, kv):
        import jax
        import jax.numpy as jnp

        x, y = jnp.ones(S), jnp.full(S, 2.0)
        kv.init(["a", "b"], [x, x])
        got = kv.pushpull("a", [x, y])
        assert isinstance(got, jax.Array) and got.max() == 3 and x.max() == 1
        both = kv.pushpull(["a", "b"], [x, [y, y]])
        assert [float(g.max()) for g in both] == [1, 4] and all(isinstance(g, jax.Array) for g in both)
        kv.push("a", y)
        assert got.max() == 3, "what was returned is not the store"

    def test_bfloat16(self, kv):
        import jax.numpy as jnp

        x = jnp.full(S, 1.5, dtype=jnp.bfloat16)
        kv.init("a", x)
        kv.push("a", [x, x])
        assert float(kv.pull("a", like=x).max()) == 3


def test_a_masked_array_is_refused_because_its_mask_would_be_lost():
    masked = np.ma.array(np.ones(2, np.float32), mask=[True, False])
    kv = mx.kv.create("local")
    for use in (lambda: kv.init("a", masked), lambda: mx.nd.from_dlpack(masked)):
        with pytest.raises(mx.errors.InvalidArgumentError, match="masked array"):
            use()


def test_a_class_that_calls_itself_numpys_is_not_read_as_one(kv):
    kv.init(3, np.zeros((2, 3), np.float32))

    class Fake:
        pass

    Fake.__name__ = Fake.__qualname__ = "ndarray"
    Fake.__module__ = "numpy"
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.push(3, Fake())

    class Derived(np.ndarray):
        pass

    kv.push(3, np.full((2, 3), 5, np.float32).view(Derived))
    assert kv.pull(3).asnumpy()[0, 0] == 5


def test_memory_that_a_dtype_cannot_read_is_refused_or_converted_as_it_always_was(kv):
    kv.init(3, np.zeros((2, 3), np.float32))
    odd = np.zeros(4 * 6 + 1, np.uint8)[1:].view(np.float32).reshape(2, 3)  # not aligned
    swapped = np.ones((2, 3), ">f4")
    apart = np.zeros((2, 3), np.dtype([("x", np.float32), ("y", np.int8)]))["x"]  # 5 bytes between neighbours
    for values in (odd, swapped, apart):
        before = kv.pull(3).asnumpy()
        try:
            kv.push(3, values)
        except mx.errors.KVError as error:
            assert "3" in str(error)
            np.testing.assert_array_equal(kv.pull(3).asnumpy(), before)
        else:
            np.testing.assert_array_equal(kv.pull(3).asnumpy(), values)


@pytest.mark.parametrize("make", [lambda: mx.kv.create("local"), lambda: mx.kv.create("dist_sync", bootstrap="self")])
def test_no_array_of_a_call_that_has_returned_is_kept(make):
    with make() as kv:
        kv.init("w", mx.nd.zeros((50_000,)))
        for _ in range(100):
            pushed, pulled = np.ones(50_000, np.float32), np.zeros(50_000, np.float32)
            ends = [weakref.ref(pushed), weakref.ref(pulled)]
            kv.pushpull("w", pushed, out=pulled)
            del pushed, pulled
            assert [end() for end in ends] == [None, None]


# ------------------------------------------------------------------------------------------------------ errors of others


def test_whatever_an_export_raises_is_a_kverror_with_its_text(kv):
    class Unprintable(Exception):
        def __str__(self):
            raise ValueError

    class Export:
        def __init__(self, error):
            self.error = error

        def __dlpack__(self, **options):
            raise self.error

        def __dlpack_device__(self):
            return (1, 0)

    odd = type("Odd", (Export,), {"__module__": property(lambda self: 1)})
    half = type("Half", (Export,), {"__module__": "\udc80"})
    kv.init("w", np.zeros(2, np.float32))
    for value, text in (
        (Export(RuntimeError("\udc80")), r"a .*Export that cannot be shared: \\udc80"),
        (Export(Unprintable()), "a .*Export that cannot be shared: <no text>"),
        (odd(ValueError("mine")), "a Odd that cannot be shared: mine"),
        (half(ValueError("mine")), r"a \\udc80.Half that cannot be shared: mine"),
        (memoryview(bytearray(16)).cast("P"), "a memoryview that cannot be shared: "),
    ):
        with pytest.raises(mx.errors.InvalidArgumentError, match="^push 'w': " + text):
            kv.push("w", value)
    with pytest.raises(mx.errors.InvalidArgumentError, match="does not fit 64 bits"):
        kv.push(10**5000, np.zeros(2, np.float32))
    with pytest.raises(mx.errors.InvalidArgumentError, match="url="):
        mx.kv.create("dist_sync", url="\udc80")


def test_the_functions_that_make_arrays_name_themselves_in_errors():
    for module in (mx.nd, mx.np):
        for name, arguments in (("arange", (0, 1, 0)), ("eye", (-1,)), ("linspace", (0, 1, -1))):
            with pytest.raises(mx.errors.InvalidArgumentError, match=f"^{name}: "):
                getattr(module, name)(*arguments)
    with pytest.raises(mx.errors.InvalidArgumentError, match="^arange: "):
        mx.nd.arange(3, repeat=-1)


def test_numpys_reductions_take_arrays():
    array = mx.nd.array([1, 2, 3])
    for reduce, wanted in ((np.mean, 2), (np.sum, 6), (np.max, 3), (np.min, 1), (np.prod, 6)):
        assert reduce(array).asnumpy().tolist() == [wanted]
    with pytest.raises(mx.errors.InvalidArgumentError, match="mean: `dtype`"):
        np.mean(array, dtype="float64")
