"""Tensors of PyTorch, CuPy and JAX on a real GPU. `./dev gpu check` runs it if there are a GPU and a framework's
package.

The frameworks' streams are delayed, so that a reader that does not wait for them reads the old values.
"""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorkv as mx
import tensorkv.testing

SIZE = (1 << 20) + 3
ROUNDS = 40
CYCLES = 2_000_000  # about a millisecond


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy")


def late(torch, value, dtype=None):
    """Return a tensor that is filled only after the current stream has slept."""
    tensor = torch.full((SIZE,), -1.0, dtype=dtype or torch.float32, device="cuda")
    torch.cuda._sleep(CYCLES)
    return tensor.fill_(value)


# -------------------------------------------------------------------------------------------------------- PyTorch: order


@pytest.mark.parametrize("kind", ["local", "device", "nccl"])
@pytest.mark.parametrize("on_side_stream", [False, True])
def test_values_that_torch_writes_late_are_summed_and_outputs_read_without_a_wait(torch, kind, on_side_stream):
    stream = torch.cuda.Stream() if on_side_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        kv = mx.kv.create(kind)
        kv.init("w", torch.zeros(SIZE))
        for i in range(ROUNDS):
            values = [late(torch, i), torch.full((SIZE,), 2.0, device="cuda")]
            out = torch.full((SIZE,), -1.0, device="cuda")
            kv.push("w", values)
            del values  # torch uses its memory next
            noise = [torch.full((SIZE,), 77.0, device="cuda") for _ in range(3)]
            kv.pull("w", out=out)
            doubled = out * 2
            assert doubled.min().item() == doubled.max().item() == 2 * (i + 2)
            del noise


def test_pushpull_in_place_goes_on_in_the_order_of_the_stream(torch):
    with torch.cuda.stream(torch.cuda.Stream()):
        kv = mx.kv.create("device")
        kv.init("w", torch.zeros(SIZE))
        tensor = torch.ones(SIZE, device="cuda")
        for _ in range(ROUNDS):
            torch.cuda._sleep(CYCLES // 4)
            kv.pushpull("w", [tensor, tensor], out=tensor)
            tensor /= 2
        assert tensor.min().item() == tensor.max().item() == 1


def test_400_keys_with_an_optimizer_have_the_bits_of_the_host(torch):
    generator = torch.Generator().manual_seed(1)
    keys = [str(i) for i in range(400)]
    stores = [mx.kv.create("device"), mx.kv.create("device")]
    for kv in stores:
        kv.init(keys, [torch.zeros(1 + i % 37, 8) for i in range(400)])
        kv.set_optimizer(mx.optimizer.create("adam", learning_rate=0.1))
    outs = [[torch.zeros(1 + i % 37, 8, device=where) for i in range(400)] for where in ("cuda", "cpu")]
    for _ in range(5):
        grads = [torch.randn(1 + i % 37, 8, generator=generator) for i in range(400)]
        stores[0].pushpull(keys, [g.cuda() for g in grads], out=outs[0])
        stores[1].pushpull(keys, grads, out=outs[1])
    for there, here in zip(*outs, strict=True):
        assert torch.equal(there.cpu().view(torch.int32), here.view(torch.int32))


def test_threads_with_streams_of_their_own(torch):
    kv = mx.kv.create("device")
    kv.init([str(i) for i in range(4)], [torch.zeros(SIZE)] * 4)
    wrong = []

    def work(key):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(ROUNDS // 2):
                out = torch.full((SIZE,), -1.0, device="cuda")
                kv.push(key, [late(torch, i), late(torch, int(key))])
                kv.pull(key, out=out)
                if not (out == i + int(key)).all().item():
                    wrong.append((key, i, out.min().item(), out.max().item()))

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --------------------------------------------------------------------------------------------------- PyTorch: the memory


def test_every_dtype_goes_there_and_back_in_the_same_memory(torch):
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"):
        dtype = getattr(torch, name)
        tensor = (
            torch.arange(5003, device="cuda") % 2 if name == "bool" else torch.arange(5003, device="cuda") % 100
        ).to(dtype)
        array = mx.nd.from_dlpack(tensor)
        assert array.context == mx.gpu(0) and array.data_ptr == tensor.data_ptr()
        back = torch.from_dlpack(array)
        assert back.data_ptr() == tensor.data_ptr() and back.dtype == dtype and torch.equal(back, tensor)
        copied = array.copy()
        assert torch.equal(torch.from_dlpack(copied), tensor)


def test_arrays_of_ours_are_tensors_that_torch_may_read_at_once(torch):
    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(ROUNDS):
            array = mx.nd.ones((SIZE,), mx.gpu(0))
            for _ in range(20):
                array += i
            tensor = torch.from_dlpack(array)
            assert (tensor == 1 + 20 * i).all().item()
            torch.cuda._sleep(CYCLES // 4)
            tensor.mul_(2)
            torch.cuda.current_stream().synchronize()
            assert array.asnumpy()[[0, -1]].tolist() == [2 + 40 * i] * 2


def test_rows_at_one_distance_are_values_and_outputs_and_other_strides_are_an_error(torch):
    whole = torch.arange(7 * 11, device="cuda", dtype=torch.float32).reshape(7, 11)
    outs = torch.zeros(7, 11, device="cuda")
    kv = mx.kv.create("device")
    kv.init("w", torch.zeros(7, 3))
    kv.push("w", [whole[:, 2:5], whole[:, 3:6]])
    kv.pull("w", out=outs[:, 4:7])
    want = torch.zeros(7, 11, device="cuda")
    want[:, 4:7] = whole[:, 2:5] + whole[:, 3:6]
    assert torch.equal(outs, want)
    with pytest.raises(mx.errors.UnimplementedError):
        kv.push("w", whole[:3, :7].t())
    kv.pull("w", out=outs[:, 4:7])
    assert torch.equal(outs, want)


def test_memory_is_let_go_when_nobody_has_it(torch):
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    kv = mx.kv.create("device")
    kv.init("w", torch.zeros(SIZE))
    for _ in range(100):
        value = torch.ones(SIZE, device="cuda")
        kv.push("w", [value, value])
        kv.pull("w", out=value)
        array = mx.nd.from_dlpack(value)
        array += 1
        del array, value
    mx.nd.waitall()
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_memory_is_told_as_torch_tells_it(torch):
    free, total = mx.context.gpu_memory_info(0)
    torch_free, torch_total = torch.cuda.mem_get_info(0)
    assert total == torch_total and abs(free - torch_free) < 64 << 20


def test_more_than_there_is_is_an_error_that_says_how_much(torch):
    free, _ = mx.context.gpu_memory_info(0)
    with pytest.raises(mx.errors.ResourceExhaustedError, match=r"bytes"):
        mx.nd.zeros((free // 4 + (1 << 28),), mx.gpu(0))
    assert (mx.nd.ones((3,), mx.gpu(0)) + 1).asnumpy().tolist() == [2, 2, 2]


def test_a_stream_that_is_captured_is_an_error_and_the_graph_is_whole(torch):
    kv = mx.kv.create("device")
    kv.init("w", torch.zeros(5))
    tensor = torch.ones(5, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode="relaxed")
        tensor += 1
        with pytest.raises(mx.errors.FailedPreconditionError, match="captured"):
            kv.push("w", tensor)
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    assert tensor.tolist() == [2] * 5
    kv.push("w", tensor)
    out = torch.zeros(5, device="cuda")
    kv.pull("w", out=out)
    assert out.tolist() == [2] * 5


def test_a_model_trains_on_the_gpu_as_by_torch_alone(torch):
    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10)).cuda()

    ours, theirs = model(), model()
    names = [name for name, _ in ours.named_parameters()]
    kv = mx.kv.create("device")
    kv.init(names, [p.data for p in ours.parameters()])
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for step in range(20):
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(step)).cuda()
        for net in (ours, theirs):
            net.zero_grad()
            net(x).square().mean().backward()
        kv.pushpull(names, [p.grad for p in ours.parameters()], out=[p.data for p in ours.parameters()])
        optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------------ jobs


def test_jobs_take_tensors_of_the_gpu(torch):
    with mx.testing.cluster(2, 2, "dist_sync_device") as job:

        def work(rank):
            with torch.cuda.stream(torch.cuda.Stream()):
                kv = job.store(rank)
                keys = [str(i) for i in range(8)]
                kv.init(keys, [torch.zeros(SIZE // 8)] * 8)
                for i in range(10):
                    values = [late(torch, i + rank)[: SIZE // 8] for _ in keys]
                    outs = [torch.full((SIZE // 8,), -1.0, device="cuda") for _ in keys]
                    kv.pushpull(keys, values, out=outs)
                    for out in outs:
                        assert out.min().item() == out.max().item() == 2 * i + 1
                kv.close()

        errors = []

        def guarded(rank):
            try:
                work(rank)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors


def test_a_child_of_a_fork_has_no_gpus_and_the_parent_goes_on(torch):
    array = mx.nd.ones((3,), mx.gpu(0))
    child = os.fork()
    if child == 0:
        try:
            assert mx.num_gpus() == 0
            with pytest.raises(mx.errors.FailedPreconditionError):
                mx.nd.ones((2,), mx.gpu(0))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert (array + 1).asnumpy().tolist() == [2, 2, 2]


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_process_may_end_with_work_under_way(end):
    code = f"""
import tensorkv as mx
kv = mx.kv.create("device")
kv.init("w", mx.nd.zeros((1 << 26,)))
v = mx.nd.ones((1 << 26,), mx.gpu(0))
for _ in range(20): kv.push("w", [v] * 8)
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


# ----------------------------------------------------------------------------------------------------------- CuPy, JAX


@pytest.mark.parametrize("stream", ["null", "non_blocking", "per_thread"])
def test_cupy_arrays_are_values_and_outputs_in_the_order_of_their_stream(cupy, stream):
    made = {
        "null": lambda: cupy.cuda.Stream.null,
        "non_blocking": lambda: cupy.cuda.Stream(non_blocking=True),
        "per_thread": lambda: cupy.cuda.Stream.ptds,
    }[stream]()
    slow = cupy.ones((2048, 2048), dtype=cupy.float32)
    with made:
        kv = mx.kv.create("device")
        kv.init("w", np.zeros(SIZE, np.float32))
        for i in range(ROUNDS):
            value = cupy.full(SIZE, -1, dtype=cupy.float32)
            for _ in range(3):
                slow @ slow  # delays the stream
            value.fill(i)
            out = cupy.full(SIZE, -1, dtype=cupy.float32)
            kv.push("w", [value, value])
            del value
            kv.pull("w", out=out)
            assert bool((out == 2 * i).all())
            array = mx.nd.from_dlpack(out)
            array += 1
            assert bool((cupy.from_dlpack(array) == 2 * i + 1).all())


def test_jax_arrays_are_values_and_arrays_of_ours_are_theirs(jax):
    kv = mx.kv.create("device")
    kv.init("w", np.zeros((257, 129), np.float32))
    step = jax.jit(lambda x, i: (x @ x.T @ x) * 0 + i)
    for i in range(ROUNDS):
        value = step(jax.numpy.ones((257, 129)), i)
        kv.push("w", [value, value])
        out = mx.nd.zeros((257, 129), mx.gpu(0))
        kv.pull("w", out=out)
        theirs = jax.dlpack.from_dlpack(out)
        assert bool((theirs == 2 * i).all()) and float((theirs + 1)[3, 4]) == 2 * i + 1
