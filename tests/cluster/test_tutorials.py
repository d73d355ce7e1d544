"""The tutorials' steps in jobs of processes: the function that they give to _set_updater runs on the servers."""

import pytest
from jobs import finish

TUTORIAL = """
kv = mx.kv.create("TYPE")
shape = (2, 3)
values = []
def show(array):
    numbers = np.unique(array.asnumpy())
    assert len(numbers) == 1 and array.shape == shape, array
    values.append(float(numbers[0]))

kv.init(3, make(shape) * 2)
a = make(shape)
kv.pull(3, out=a); show(a)
kv.push(3, make(shape) * 8)
kv.pull(3, out=a); show(a)
contexts = [mx.cpu(i) for i in range(4)]
b = [make(shape, ctx=ctx) for ctx in contexts]
kv.push(3, b)
kv.pull(3, out=a); show(a)
def update(key, input, stored):
    print("update on key: %d" % key, flush=True)
    stored += input * 2
kv._set_updater(update)
kv.pull(3, out=a); show(a)
kv.push(3, make(shape))
kv.pull(3, out=a); show(a)
b = [make(shape, ctx=ctx) for ctx in contexts]
kv.pull(3, out=b); show(b[1])
keys = [5, 7, 9]
kv.init(keys, [make(shape)] * len(keys))
kv.push(keys, [make(shape)] * len(keys))
b = [make(shape)] * len(keys)
kv.pull(keys, out=b); show(b[1])
b = [[make(shape, ctx=ctx) for ctx in contexts]] * len(keys)
kv.push(keys, b)
kv.pull(keys, out=b); show(b[1][1])
kv.barrier()
print(f"rank {kv.rank} saw {values}", flush=True)
kv.close()
"""

# The output of each step, by the number of workers n. All workers push the same; `stored` grows by 2 · the sum over
# workers.
SHOWN = {
    1: [2.0, 8.0, 4.0, 4.0, 6.0, 6.0, 3.0, 11.0],
    2: [2.0, 16.0, 8.0, 8.0, 12.0, 12.0, 5.0, 21.0],
}


@pytest.mark.parametrize("make", ["mx.nd.ones", "mx.np.ones"])
@pytest.mark.parametrize("type", ["dist_sync", "dist_sync_device"])
@pytest.mark.parametrize("workers", SHOWN)
def test_the_tutorial_with_its_updater_on_the_servers(processes, workers, type, make):
    text = f"make = {make}\n" + TUTORIAL.replace("TYPE", type)
    status, said = finish(processes.launch(text, workers=workers, servers=2))
    assert status == 0, said
    for rank in range(workers):
        assert f"rank {rank} saw {SHOWN[workers]}" in said, said
    for key in (3, 5, 7, 9):
        assert said.count(f"update on key: {key}\n") == 1, said


def test_the_tutorial_of_the_store_for_devices_with_its_small_steps(processes):
    text = """
    from tensorkv import np, cpu
    kv = mx.kv.create("dist_sync_device")
    shape = (2, 3)
    kv.init(3, np.ones(shape) * -2)
    out = np.zeros(shape)
    kv.push(3, np.ones(shape) * -7)
    kv.pull(3, out=out)
    assert (out.asnumpy() == -14).all(), out
    contexts = [cpu(i) for i in range(3)]
    kv.push(3, [np.ones(shape, ctx=ctx) for ctx in contexts])
    kv.pull(3, out=out)
    assert (out.asnumpy() == 6).all(), out
    def update(key, input, stored):
        print("update on key: %d" % key)
        stored += input * 0.01
    kv._set_updater(update)
    kv.push(3, mx.nd.ones(shape) * 5)
    kv.pull(3, out=out)
    expected = mx.nd.ones(shape).asnumpy() * np_float(6) + np_float(10) * np_float(0.01)
    assert (out.asnumpy() == expected).all(), out
    kv.barrier()
    print("good", flush=True)
    """
    text = "import numpy\nnp_float = numpy.float32\n" + "\n".join(
        line.removeprefix("    ") for line in text.splitlines()
    )
    status, said = finish(processes.launch(text))
    assert status == 0, said
    assert said.count("good") == 2, said
