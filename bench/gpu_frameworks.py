"""Compares stores on a GPU, used with PyTorch's tensors, with PyTorch itself: a line of JSON for each figure.

Times are the host's, between two moments when the GPU is idle, in turns, medians of nine. `./dev gpu bench` runs it if
there are a GPU and PyTorch.
"""

import json
import statistics
import time

import tensorkv as mx
import torch

TURNS = 9


def seconds(work, calls):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    mx.nd.waitall()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls


def in_turn(works, calls=1):
    """Return the medians of some works that run in turn, after one turn that is not counted."""
    times = [[seconds(work, calls) for work in works] for _ in range(TURNS + 1)][1:]
    return [statistics.median(one) for one in zip(*times, strict=True)]


def say(name, ours, theirs, what):
    """Print how many times faster ours is; the goal is to be no slower."""
    row = {"name": name, "value": round(theirs / ours, 3), "unit": f"x {what}", "wanted": ">= 1"}
    row["ours_us"], row["theirs_us"] = round(1e6 * ours, 1), round(1e6 * theirs, 1)
    print(json.dumps(row), flush=True)


def sums(count, dtype, sources):
    values = [torch.randn(count, device="cuda").to(dtype) for _ in range(sources)]
    kv = mx.kv.create("device")
    kv.init("w", torch.zeros(count, dtype=dtype))
    out = torch.empty(count, device="cuda", dtype=dtype)

    def theirs():
        torch.add(values[0], values[1], out=out)
        for value in values[2:]:
            out.add_(value)

    name = f"pushpull of {sources} x {count * out.element_size() >> 20} MiB, {str(dtype)[6:]}"
    say(name, *in_turn([lambda: kv.pushpull("w", values, out=out), theirs]), "torch.add")


def adam(shapes, calls, name):
    """Pushpull of one gradient per key with Adam, beside the fused Adam of PyTorch."""
    parameters = [torch.randn(shape, device="cuda") for shape in shapes]
    grads = [torch.randn(shape, device="cuda") for shape in shapes]
    keys = [str(i) for i in range(len(shapes))]
    kv = mx.kv.create("device")
    kv.init(keys, parameters)
    kv.set_optimizer(mx.optimizer.create("adam"))
    theirs = [torch.nn.Parameter(p.clone()) for p in parameters]
    for parameter, grad in zip(theirs, grads, strict=True):
        parameter.grad = grad
    works = [lambda: kv.pushpull(keys, grads, out=parameters)]
    for words in ({"fused": True}, {"foreach": True}):
        works.append(torch.optim.Adam(theirs, **words).step)
    ours, fused, foreach = in_turn(works, calls)
    say(name, ours, fused, "torch.optim.Adam(fused=True)")
    say(name, ours, foreach, "torch.optim.Adam(foreach=True)")


def main():
    mx.num_gpus()
    source = torch.randn(64 << 20, device="cuda")
    target = torch.empty_like(source)
    (copy,) = in_turn([lambda: target.copy_(source)])
    row = {
        "name": "PyTorch's copy of 256 MiB within the GPU",
        "value": round(2 * source.nbytes / copy / 1e9),
        "unit": "GB/s",
    }
    print(json.dumps({**row, "wanted": ""}), flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        for sources in (2, 4, 8):
            sums((256 << 20) // dtype.itemsize, dtype, sources)
    adam([(64 << 20,)], 1, "Adam, 256 MiB")
    adam([(1024,)] * 400, 20, "Adam, 400 keys of 4 KiB")
    resnet = [(64, 3, 7, 7)] + [(256, 256, 3, 3)] * 50 + [(256,)] * 100 + [(1000, 2048)]
    adam(resnet, 10, "Adam, 152 keys, 127 MB")
    kv = mx.kv.create("device")
    one, out = torch.ones(1024, device="cuda"), torch.empty(1024, device="cuda")
    kv.init("w", one)
    ours, theirs = in_turn([lambda: kv.pushpull("w", [one, one], out=out), lambda: torch.add(one, one, out=out)], 200)
    say("pushpull of 2 x 4 KiB", ours, theirs, "torch.add")


if __name__ == "__main__":
    main()
