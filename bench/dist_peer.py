"""A worker of a job under test: sets a workload up and times its steps on request, on `tensorkv`, MXNet or Gloo.

`dist_peer.py tensorkv|mxnet|gloo [STORE]`; STORE is dist_sync. Requests and replies are JSON, one per line, on stdin
and stdout:

- {"setup": NAME, "bytes": N, "compression": PARAMS} sets a workload up.
- {"step": REPEATS} replies with the seconds of one step and, for `tensorkv`, the bytes that it put on the wire.
- {"each": REPEATS} replies with the median and the 99th percentile of single steps.
"""

import importlib
import json
import os
import sys
import time

KEYS = 400
ROW, TABLE_ROWS = 64, 1 << 20


def resnet50():
    """Return the number of elements of each of ResNet-50's 161 tensors (He et al. 2015, table 1)."""
    sizes = []

    def conv(inputs, outputs, kernel):
        sizes.extend([inputs * outputs * kernel * kernel, outputs, outputs])  # with its normalization

    conv(3, 64, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            conv(inputs, width, 1)
            conv(width, width, 3)
            conv(width, 4 * width, 1)
            if block == 0:
                conv(inputs, 4 * width, 1)
            inputs = 4 * width
    return [*sizes, 2048 * 1000, 1000]


class Worker:
    def __init__(self, package, store="dist_sync"):
        self.mx = importlib.import_module(package)
        self.is_mxnet = package == "mxnet"
        self.kv = self.mx.kv.create(store)
        self.next_key = 0

    def full(self, count, value):
        return self.mx.nd.full((count,), value)

    def new_keys(self, counts):
        """Create fresh keys with `counts` elements each; return lists of keys, values and outs."""
        keys = [str(self.next_key + i) for i in range(len(counts))]
        self.next_key += len(counts)
        self.kv.init(keys, [self.full(count, 0) for count in counts])
        return keys, [self.full(count, 1) for count in counts], [self.full(count, 0) for count in counts]

    def finish(self):
        if self.is_mxnet:
            self.mx.nd.waitall()

    def sent_bytes(self):
        """Return the bytes that this worker has put on the wire; 0 for MXNet, which does not count them."""
        if self.is_mxnet:
            return 0
        return self.kv.stats()["traffic"]["wire_out_bytes"]

    def close(self):
        if not self.is_mxnet:
            self.kv.close()

    def push_pull(self, count):
        (key,), (value,), (out,) = self.new_keys([count])

        def step():
            self.kv.push(key, value)
            self.kv.pull(key, out=out)
            self.finish()

        return step, lambda: out.asnumpy()[-1] == self.kv.num_workers

    def many(self, counts):
        keys, values, outs = self.new_keys(counts)

        def step():
            if self.is_mxnet:
                self.kv.push(keys, values)
                self.kv.pull(keys, out=outs)
                self.finish()
            else:
                self.kv.pushpull(keys, values, out=outs)

        return step, lambda: all(out.asnumpy()[-1] == self.kv.num_workers for out in outs)

    def push_accepted(self, count):
        (key,), (value,), (out,) = self.new_keys([count])

        def step():
            if self.is_mxnet:
                self.kv.push(key, value)
                self.finish()
            else:
                self.kv.push(key, value, async_op=True).wait()

        def check():
            self.kv.pull(key, out=out)
            return out.asnumpy()[-1] == self.kv.num_workers

        return step, check

    def rows(self, count, pushes):
        """Return a step that pulls so many elements of a table of a million rows, after a push of them where it pushes."""
        import numpy as np

        mx, kv, key, row = self.mx, self.kv, str(self.next_key), ROW
        self.next_key += 1
        draw = np.random.default_rng(0)
        ids = draw.choice(TABLE_ROWS, count // row, replace=False).astype(np.int64)
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, wd=0))
        if self.is_mxnet:
            shape = (TABLE_ROWS, row)
            kv.init(key, mx.nd.ones(shape).tostype("row_sparse"))
            ids.sort()  # MXNet loses rows of unsorted ids
            row_ids = mx.nd.array(ids, dtype="int64")
            grad = mx.nd.sparse.row_sparse_array((mx.nd.ones((len(ids), row)), row_ids), shape=shape)
            out = mx.nd.sparse.zeros("row_sparse", shape)

            def step():
                if pushes:
                    kv.push(key, grad)
                kv.row_sparse_pull(key, out=out, row_ids=row_ids)
                self.finish()

            return step, lambda: bool((out.data.asnumpy() == (0.5 if pushes else 1)).all())
        kv.init_table(key, row, notes=False)
        kv.push_rows(
            key, np.arange(TABLE_ROWS), -2 * np.ones((TABLE_ROWS, row), np.float32)
        )  # times the learning rate: ones
        grad, out = np.ones((len(ids), row), np.float32), np.zeros((len(ids), row), np.float32)

        def step():
            if pushes:
                kv.push_rows(key, ids, grad)
            kv.pull_rows(key, ids, out=out)

        return step, lambda: bool((out == (0.5 if pushes else 1)).all())

    def barrier(self, _):
        return (self.kv._barrier if self.is_mxnet else self.kv.barrier), lambda: True

    def set_up(self, name, count):
        if name == "push+pull":
            return self.push_pull(count)
        if name == "push accepted":
            return self.push_accepted(count)
        if name == "pushpull":
            return self.many([count])
        if name == "400 keys":
            return self.many([count] * KEYS)
        if name == "resnet50":
            return self.many(resnet50())
        if name.startswith("rows"):
            return self.rows(count, name == "rows, push+pull")
        return self.barrier(count)


class GlooWorker:
    """Sums by `torch.distributed` alone: no store and no updater, each worker has all values."""

    is_mxnet = False

    def __init__(self):
        import torch
        import torch.distributed

        self.torch, self.group = torch, torch.distributed
        self.group.init_process_group("gloo")

    def finish(self):
        pass

    def sent_bytes(self):
        return 0

    def set_up(self, name, count):
        tensors = [self.torch.ones(n) for n in (resnet50() if name == "resnet50" else [count])]

        def step():
            works = [self.group.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()

        def check():
            correct = all(tensor[-1] == self.group.get_world_size() for tensor in tensors)
            for tensor in tensors:
                tensor.zero_()  # the sum is in place; other values would change it
            return correct

        return step, check

    def close(self):
        self.group.destroy_process_group()


def main():
    worker = GlooWorker() if sys.argv[1] == "gloo" else Worker(*sys.argv[1:])
    step = check = None
    for line in sys.stdin:
        request = json.loads(line)
        if "setup" in request:
            step = check = None  # free the last workload's arrays first
            if "compression" in request:
                worker.kv.set_gradient_compression(request["compression"])
            step, check = worker.set_up(request["setup"], max(1, request["bytes"] // 4))
            step()
            worker.finish()
            reply = {"correct": bool(check()), "pid": os.getpid()}
        elif "each" in request:
            times = []
            for _ in range(request["each"]):
                begin = time.perf_counter()
                step()
                times.append(time.perf_counter() - begin)
            times.sort()
            reply = {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}
        else:
            before = worker.sent_bytes()
            begin = time.perf_counter()
            for _ in range(request["step"]):
                step()
            reply = {
                "seconds": (time.perf_counter() - begin) / request["step"],
                "sent": (worker.sent_bytes() - before) / request["step"],
            }
        print(json.dumps(reply), flush=True)
    worker.close()


if __name__ == "__main__":
    main()
