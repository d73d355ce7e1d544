"""Arrays on GPUs and tensors of other frameworks in the same memory, on the pretended driver."""

import pathlib
import textwrap

import pytest
from test_gpu import run

HEAD = f"""
import ctypes, gc, sys, types, weakref
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import numpy as np, pytest
import tensorkv as mx
assert mx.num_gpus() == 4
import gpu_framework
from gpu_framework import CUDA, Framework, Received, Tensor, capsule, exchange_api

ONE_TO_FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]

def orders(count):
    for seed in range(count):
        CUDA.fake_seed(ctypes.c_uint64(seed))
        yield seed

def known_framework(name):
    "A module and its class of tensors, which say what the current stream is as PyTorch and CuPy do; 'torch, exchange': by DLPack 1.3."
    name, _, by = name.partition(", ")
    module = types.ModuleType(name)
    current = {{}}
    members = {{"__module__": name}}
    if by == "exchange":
        members["api"] = api = exchange_api(current)  # kept by the class
        members["__dlpack_c_exchange_api__"] = capsule(ctypes.addressof(api), b"dlpack_exchange_api")
        members["__dlpack__"] = None  # nobody asks
    elif name == "torch":
        module.cuda = types.SimpleNamespace(
            current_stream=lambda i: types.SimpleNamespace(cuda_stream=current[i]))
    else:
        module.cuda = types.SimpleNamespace(
            get_current_stream=lambda i: types.SimpleNamespace(ptr=current[i]))
    sys.modules[name] = module
    kind = type("Tensor", (Tensor,), members)
    def tensor(framework, *arguments):
        current[framework.index] = framework.stream
        return kind(framework, *arguments)
    return tensor
"""


def program(text, **variables):
    return run("-c", HEAD + textwrap.dedent(text), **variables)


# --------------------------------------------------------------------------------------------------------------- import


def test_what_a_framework_writes_late_is_read():
    program("""
        for seed in orders(200):
            t = Tensor(Framework(seed % 4), ONE_TO_FIVE)
            a = mx.nd.from_dlpack(t)
            assert a.context == mx.gpu(seed % 4) and a.data_ptr == t.address
            assert (a + 1).asnumpy().tolist() == [2, 3, 4, 5, 6] and a.asnumpy().tolist() == ONE_TO_FIVE
            a += 1  # the framework goes on without a wait of its own
            assert t.read() == [2, 3, 4, 5, 6]
    """)


def test_stores_of_one_process_take_tensors_as_values_and_outputs():
    program("""
        for seed in orders(50):
            kv = mx.kv.create("device" if seed % 2 else "local")
            frameworks = [Framework(seed % 4), Framework((seed + 1) % 4)]
            values = [Tensor(f, ONE_TO_FIVE) for f in frameworks]
            outs = [Tensor(f, [0.0] * 5) for f in frameworks]
            kv.init("a", values[0])
            kv.push("a", values)
            kv.pull("a", out=outs)
            assert [out.read() for out in outs] == [[2, 4, 6, 8, 10]] * 2
            kv.pushpull("a", values, out=values)
            assert values[1].read() == [2, 4, 6, 8, 10]
            assert not any(t.exports for t in values + outs)
    """)


def test_jobs_take_tensors_as_values_and_outputs():
    program("""
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            kv.init("a", Tensor(Framework(0), ONE_TO_FIVE))
            many = [float(i) for i in range(80000)]
            kv.init("many", mx.nd.zeros((80000,)))
            for seed in orders(50):
                frameworks = [Framework(seed % 4), Framework((seed + 1) % 4)]
                values = [Tensor(f, ONE_TO_FIVE) for f in frameworks]
                outs = [Tensor(f, [0.0] * 5) for f in frameworks]
                kv.push("a", values)
                kv.pull("a", out=outs)
                assert [out.read() for out in outs] == [[2, 4, 6, 8, 10]] * 2
                ticket = kv.pushpull("a", values, out=values, async_op=True)
                ticket.wait()
                assert values[1].read() == [2, 4, 6, 8, 10]
                if seed % 10 == 0:
                    large = Tensor(frameworks[0], many)
                    kv.push("many", large)
                    large.write([0.0] * 80000)
                    kv.pull("many", out=large)
                    assert large.read() == many
                    values.append(large)
                kv.pull("a")  # the next call lets go of what tickets have held
                mx.nd.waitall()
                assert not any(t.exports for t in values + outs)
    """)


def test_a_pull_into_memory_of_others_is_awaited():
    program("""
        import asyncio
        async def pulls(kv, out):
            for seed in orders(30):
                await kv.pull("a", out=out, async_op=True)
                ended = []
                ticket = kv.pull("a", out=out, async_op=True)
                ticket.add_done_callback(lambda t: ended.append((t.done(), t.cancel())))
                await ticket
                while not ended:
                    await asyncio.sleep(0.001)
                assert ended == [(True, False)], ended
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            for count in 5, 80000:
                out = mx.nd.zeros((count,), mx.gpu(1))
                if "a" in kv:
                    kv.delete("a")
                kv.init("a", mx.nd.ones((count,)))
                exported = out.__dlpack__(stream=-1)
                asyncio.run(pulls(kv, out))
                assert out.asnumpy().min() == 1
    """)


# A store of one process, and a job in one.
KINDS = pytest.mark.parametrize("kind", ['"local"', '"dist_sync", bootstrap="self"'])


@KINDS
@pytest.mark.parametrize("name", ["torch", "torch, exchange", "cupy"])
def test_the_current_stream_of_a_framework_waits_and_the_host_does_not(name, kind):
    program(f"""
        tensor = known_framework({name!r})
        with mx.kv.create({kind}) as kv:
            kv.init("a", mx.nd.array(ONE_TO_FIVE))
            for seed in orders(50):
                t = tensor(Framework(seed % 4), [0.0] * 5)
                kv.pull("a", out=t)
                CUDA.fake_stop(1)  # a host that waited now would never go on
                kv.pull("a", out=t)
                CUDA.fake_stop(0)
                assert t.read() == ONE_TO_FIVE
                kv.push("a", t)
                t.write([7.0] * 5)
                assert kv.pull("a").asnumpy().tolist() == ONE_TO_FIVE
    """)


@pytest.mark.parametrize("name", ["torch", "torch, exchange"])
def test_a_wait_that_is_left_out_is_a_race(name):
    with pytest.raises(AssertionError, match="race"):
        program(f"""
            t = known_framework({name!r})(Framework(0), ONE_TO_FIVE)
            CUDA.fake_leave_out(1)
            mx.nd.array(t).asnumpy()
        """)


def test_tensors_of_several_gpus_in_one_call_are_waited_for_on_each():
    program("""
        tensor = known_framework("torch, exchange")
        for seed in orders(100):
            kv = mx.kv.create("device" if seed % 2 else "local")
            keys = [str(i) for i in range(6)]
            kv.init(keys, [mx.nd.zeros((5,))] * 6)
            frameworks = [Framework(i) for i in range(4)]
            values = [[tensor(frameworks[k], [float(i)] * 5) for k in range(3)] for i in range(6)]
            outs = [tensor(frameworks[i % 4], [0.0] * 5) for i in range(6)]
            kv.push(keys, values)
            kv.pull(keys, out=outs)
            assert [out.read() for out in outs] == [[3.0 * i] * 5 for i in range(6)]
            array = mx.nd.from_dlpack(values[1][0])
            array += 1
            mx.nd.waitall()
            assert values[1][0].read() == [2.0] * 5
    """)


def test_tensors_that_only_a_gpu_still_uses_survive_the_garbage_collector():
    program("""
        tensor = known_framework("torch, exchange")
        frameworks = [Framework(i) for i in range(4)]
        gc.set_threshold(1)
        for seed in orders(10):
            with mx.kv.create("device" if seed % 2 else "local") as kv:
                kv.init("a", mx.nd.zeros((5,)))
                for push in range(5):
                    kv.push("a", [tensor(f, [float(push)] * 5) for f in frameworks])
                    gc.collect()
                assert kv.pull("a").asnumpy().tolist() == [4.0 * 4] * 5
    """)


@KINDS
@pytest.mark.parametrize("name", ["torch", "torch, exchange"])
def test_a_tensor_lives_as_long_as_a_gpu_uses_it(kind, name):
    program(f"""
        tensor = known_framework({name!r})
        with mx.kv.create({kind}) as kv:
            kv.init("a", mx.nd.array(ONE_TO_FIVE))
            for seed in orders(50):
                t = tensor(Framework(0), [0.0] * 5)
                seen = weakref.ref(t)
                kv.pull("a", out=t)
                del t
                mx.nd.waitall()
                gc.collect()
                assert seen() is None
    """)


def test_a_tensor_that_is_not_where_it_says_is_refused():
    program("""
        t = Tensor(Framework(2), ONE_TO_FIVE)
        t.says = 2, 1
        kv = mx.kv.create("local")
        kv.init("a", mx.nd.zeros((5,)))
        with pytest.raises(mx.errors.InvalidArgumentError) as refused:
            kv.push("a", t)
        assert str(refused.value) == "push 'a': array: its memory is that of gpu(2), and not of gpu(1)"
        t.says = 2, 7
        with pytest.raises(mx.errors.InvalidArgumentError, match="this machine has 4 GPUs"):
            mx.nd.from_dlpack(t)
        t.says = 10, 0
        with pytest.raises(mx.errors.UnimplementedError, match="device type 10 is not supported; cpu and cuda are"):
            mx.nd.from_dlpack(t)
        assert kv.pull("a").asnumpy().max() == 0
    """)


def test_rows_at_one_distance_are_shared_and_other_strides_refused():
    program("""
        f = Framework(1)
        t = Tensor(f, [float(i) for i in range(12)], (3, 2), (4, 1))
        a = mx.nd.from_dlpack(t)
        assert a.asnumpy().tolist() == [[0, 1], [4, 5], [8, 9]] and not a.contiguous
        a *= 10
        a[1] = 7
        assert t.read() == [0, 10, 2, 3, 7, 7, 6, 7, 80, 90, 10, 11]
        with pytest.raises(mx.errors.UnimplementedError, match=r"strides \\(1, 3\\) of shape \\(3, 4\\) on gpu\\(1\\)"):
            mx.nd.from_dlpack(Tensor(f, [0.0] * 12, (3, 4), (1, 3)))
    """)


# --------------------------------------------------------------------------------------------------------------- export


def test_a_consumer_reads_what_was_written_before():
    program("""
        for seed in orders(100):
            index = seed % 4
            f = Framework(index, [1, 2, None][seed % 3])
            a = mx.nd.array(ONE_TO_FIVE, mx.gpu(index)) + 1
            got = Received(f, a, None if seed % 3 == 0 else "own")
            assert (got.tensor.device_type, got.tensor.device_id) == (2, index) == a.__dlpack_device__()
            assert got.read() == [2, 3, 4, 5, 6]
            a += 1
            assert got.read() == [3, 4, 5, 6, 7]
            copied = Received(f, a, copy=True)
            assert copied.read() == got.read() and copied.tensor.data != got.tensor.data == a.data_ptr
    """)


def test_the_host_gets_a_copy():
    program("""
        a = mx.nd.array(ONE_TO_FIVE, mx.gpu(1))
        class OnHost:
            def __dlpack__(self, **_):
                return a.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
            def __dlpack_device__(self):
                return 1, 0
        seen = np.from_dlpack(OnHost())
        a[:] = 0
        assert seen.tolist() == ONE_TO_FIVE
        for device, copy in (((1, 0), False), ((2, 0), None), ((2, 0), True)):
            with pytest.raises(BufferError, match=r"on gpu\\(1\\)"):
                a.__dlpack__(dl_device=device, copy=copy)
        with pytest.raises(BufferError):
            mx.nd.ones((2,)).__dlpack__(dl_device=(2, 0))
    """)


def test_streams_that_are_none_are_refused():
    program("""
        a = mx.nd.array(ONE_TO_FIVE, mx.gpu(1))
        for stream in (0, -2):
            with pytest.raises(mx.errors.InvalidArgumentError, match="1 is the legacy default stream"):
                a.__dlpack__(stream=stream)
        with pytest.raises(TypeError):
            a.__dlpack__(stream="1")
        assert a.asnumpy().tolist() == ONE_TO_FIVE
    """)


@pytest.mark.parametrize("name", ["torch", "torch, exchange"])
def test_a_framework_that_captures_a_graph_is_refused(name):
    program(f"""
        f = Framework(1)
        t = known_framework({name!r})(f, ONE_TO_FIVE)
        a = mx.nd.array(ONE_TO_FIVE, mx.gpu(1))
        kv = mx.kv.create("local")
        kv.init("a", mx.nd.zeros((5,)))
        CUDA.fake_capture(f.stream_arg, 1)
        for use in (
            lambda: mx.nd.from_dlpack(t), lambda: kv.push("a", t), lambda: kv.pull("a", out=t), lambda: Received(f, a)
        ):
            with pytest.raises(mx.errors.FailedPreconditionError, match="captured into a CUDA graph"):
                use()
        assert not t.asked, "nothing of ours becomes a part of the graph"
        CUDA.fake_capture(f.stream_arg, 0)
        kv.push("a", t)
        assert kv.pull("a").asnumpy().tolist() == Received(f, a).read() == ONE_TO_FIVE
    """)


# ----------------------------------------------------------------------------------------------- optimizers of frameworks

TORCH = """
import torch
import tensorkv.testing, tensorkv.torch
OnGpu, given = gpu_framework.torch_on_gpus()

def model_of(framework, seed=0):
    "Parameters on a GPU, or on the CPU where there is no framework."
    rng = np.random.default_rng(seed)
    values = {
        name: torch.tensor(rng.normal(size=shape).astype("float32"))
        for name, shape in (("a.weight", (4, 5)), ("a.bias", (5,)), ("b.weight", (5, 2)))
    }
    return {n: OnGpu.of(framework, v, True) if framework else torch.nn.Parameter(v) for n, v in values.items()}

def loss_of(model, step, rank):
    x = torch.tensor(np.random.default_rng(10 * step + rank).normal(size=(6, 4)).astype("float32"))
    hidden = torch.tanh(x @ model["a.weight"] + model["a.bias"])
    return ((hidden @ model["b.weight"] - x[:, :2]) ** 2).mean()

def values_of(model):
    "What the GPU has, as the stream of the framework finds it, behind what torch.optim has written."
    return [p.written().read() if isinstance(p, OnGpu) else p.detach().reshape(-1).tolist() for p in model.values()]

def optimizer_of(who, model, kv, overlap):
    ours = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    if who.startswith("trainer"):
        return mx.torch.Trainer(model, ours, kvstore=kv, update_on_kvstore=who == "trainer")
    if who == "torch.optim":
        ours = torch.optim.SGD(list(model.values()), 0.1, 0.9)
    return mx.torch.KVOptimizer(model, kv, ours, overlap=overlap)

def train(kv, model, who, overlap, steps=range(4), opt=None):
    "Train, and return which gradients the store was given in each backward pass."
    opt = opt or optimizer_of(who, model, kv, overlap)
    pushed = []
    for step in steps:
        for p in model.values():
            p.grad = None
        del given[:]
        loss_of(model, step, kv.rank).backward()
        pushed.append(list(given))
        grads = {p.grad.memory.address: name for name, p in model.items() if isinstance(p.grad, OnGpu)}
        pushed[-1] = [grads[address] for address in pushed[-1]]
        opt.step(*[1] * who.startswith("trainer"))
    return pushed

def store_of(kind):
    return mx.kv.create(kind, **({"bootstrap": "self"} if kind == "dist_sync" else {}))
"""


@pytest.mark.framework
@pytest.mark.parametrize("kind", ["local", "device", "dist_sync"])
def test_parameters_of_torch_on_a_gpu_train_as_on_the_cpu(kind):
    """Gradients leave by their addresses, in the backward pass or behind it, and results are the same bits."""
    pytest.importorskip("torch")
    program(
        TORCH
        + f"""
ways = [(who, overlap) for who in ("store", "torch.optim") for overlap in (True, False)]
for who, overlap in [*ways, ("trainer", False), ("trainer on workers", False)]:
    with store_of({kind!r}) as kv:
        wanted = model_of(None)
        train(kv, wanted, who, overlap)
    for seed in orders(2):
        with store_of({kind!r}) as kv:
            gpu = (len(who) + seed) % 4
            model = model_of(Framework(gpu))
            pushed = train(kv, model, who, overlap)
            names = set(model) if overlap else set()
            assert all(set(one) == names for one in pushed), pushed
            assert not overlap or all(one[0] == "b.weight" for one in pushed), "the last layer's comes first"
            assert values_of(model) == values_of(wanted), (who, overlap, seed)
            assert kv.pull("a.weight").context == (mx.gpu(gpu) if {kind!r} == "device" else mx.cpu())
"""
    )


@pytest.mark.framework
def test_workers_with_a_gpu_each_train_as_on_the_cpu():
    pytest.importorskip("torch")
    program(
        TORCH
        + """
def run(who, on_gpus):
    models = [model_of(Framework(rank) if on_gpus else None, seed=rank) for rank in range(2)]
    def work(kv):
        opt = optimizer_of(who, models[kv.rank], kv, False)
        for step in range(4):
            for p in models[kv.rank].values():
                p.grad = None
            loss_of(models[kv.rank], step, kv.rank).backward()
            opt.step(*[2] * (who == "trainer"))
    with mx.testing.cluster(workers=2, servers=2, patience=60) as job:
        job.run(work)
    return [values_of(model) for model in models]

for who in ("store", "torch.optim", "trainer"):
    wanted = run(who, False)
    for seed in orders(2):
        found = run(who, True)
        assert found[0] == found[1] == wanted[0] == wanted[1], who
"""
    )


@pytest.mark.framework
@pytest.mark.parametrize("kind", ["device", "dist_sync"])
def test_a_write_into_parameters_on_a_gpu_counts_with_assign_and_is_refused_without(kind):
    pytest.importorskip("torch")
    program(
        TORCH
        + f"""
def halve(model, counts):
    for p in model.values():
        if counts:
            with torch.no_grad():
                p.mul_(0.5)
        else:  # without the version that autograd counts
            p.data.as_subclass(torch.Tensor).mul_(0.5)
            if isinstance(p, OnGpu):
                p.clean[:] = [None]

def after(framework, counts, who):
    with store_of({kind!r}) as kv:
        model = model_of(framework)
        opt = optimizer_of(who, model, kv, False)
        train(kv, model, who, False, range(2), opt)
        halve(model, counts)
        opt.assign()
        train(kv, model, who, False, range(2, 4), opt)
        return values_of(model)

for who, counts in [(who, counts) for who in ("store", "trainer") for counts in (True, False)]:
    assert after(Framework(1), counts, who) == after(None, counts, who)
    with store_of({kind!r}) as kv:
        model = model_of(Framework(2))
        opt = optimizer_of(who, model, kv, False)
        train(kv, model, who, False, range(2), opt)
        halve(model, counts)
        late = 0 if counts else 1  # a write without a version is seen one step later
        train(kv, model, who, False, range(late), opt)
        with pytest.raises(mx.errors.FailedPreconditionError, match=r"changed since the last step.*call assign"):
            train(kv, model, who, False, range(1), opt)
"""
    )


@pytest.mark.framework
@pytest.mark.parametrize("kind", ["local", "device", "dist_sync"])
def test_arrays_of_jax_on_a_gpu_train_as_on_the_cpu(kind):
    """The new parameters are on the GPU of the old ones, each in the memory that the store has written."""
    pytest.importorskip("jax")
    program(f"""
        import jax
        import tensorkv.jax
        plain = jax.dlpack.from_dlpack

        class Leaf(Tensor):
            dtype = np.dtype("float32")
            def devices(self):
                return [types.SimpleNamespace(platform="gpu", local_hardware_id=self.framework.index)]

        class Given:
            def __init__(self, array):
                self.received = Received(frameworks[array.context.device_id], array)
                self.context, self.address = array.context, array.data_ptr
            def read(self):
                assert self.received.tensor.data == self.address
                return self.received.read()

        jax.Array = (jax.Array, Leaf)
        jax.dlpack.from_dlpack = lambda array, **options: (
            Given(array) if array.context.device_type == "gpu" else plain(array, **options))
        frameworks = [Framework(i) for i in range(4)]

        def tree_of(seed, index):
            rng = np.random.default_rng(seed)
            values = {{"w": rng.normal(size=(3, 4)), "b": (rng.normal(size=5), [rng.normal(size=1)])}}
            if index is None:
                return jax.tree_util.tree_map(lambda v: jax.numpy.asarray(v, "float32"), values)
            return jax.tree_util.tree_map(
                lambda v: Leaf(frameworks[index], v.reshape(-1).astype("f").tolist(), v.shape), values)

        def run(index):
            with mx.kv.create({kind!r}, **({{"bootstrap": "self"}} if {kind!r} == "dist_sync" else {{}})) as kv:
                opt = mx.jax.KVOptimizer(tree_of(0, index), kv, mx.optimizer.Adam(learning_rate=0.1))
                found = [opt.params] + [opt.step(tree_of(seed, index)) for seed in range(1, 4)]
                found += [opt.assign(tree_of(9, index)), opt.step(tree_of(4, index))]
                leaves = jax.tree_util.tree_leaves(found)
                if index is None:
                    return [leaf.reshape(-1).tolist() for leaf in leaves]
                assert {{leaf.context for leaf in leaves}} == {{mx.gpu(index)}}
                assert kv.pull("w").context == (mx.gpu(index) if {kind!r} == "device" else mx.cpu())
                return [leaf.read() for leaf in leaves]

        wanted = run(None)
        for seed in orders(5):
            assert run(seed % 4) == wanted
    """)
