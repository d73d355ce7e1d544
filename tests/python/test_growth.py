"""A key costs the same however many others there are."""

import concurrent.futures
import time

import numpy as np
import tensorkv as mx

FEW, MANY = 2_000, 16_000
MOST = 4  # times as much CPU for a key: tables outgrow caches; work on all that waits would be 8 times as much


def data(count):
    return [f"k{i}" for i in range(count)], [np.full(2, i, np.float32) for i in range(count)]


def cpu_of_each(work, count):
    """Return the seconds of CPU time of all threads for each key; the less of two."""
    spent = []
    for _ in range(2):
        begin = time.process_time()
        work(count)
        spent.append((time.process_time() - begin) / count)
    return min(spent)


def check(work):
    few = cpu_of_each(work, FEW)
    many = cpu_of_each(work, MANY)
    assert many < MOST * few, f"{few * 1e6:.1f} us for each of {FEW} keys, {many * 1e6:.1f} us for each of {MANY}"


def test_a_worker_alone_makes_pushes_and_pulls_many_keys():
    def work(count):
        keys, values = data(count)
        outs = [np.zeros(2, np.float32) for _ in keys]
        with mx.kv.create("dist_sync", bootstrap="self") as kv:
            kv.init(keys, values)
            kv.push(keys, values)
            kv.pull(keys, out=outs)
        assert all(np.array_equal(out, value) for out, value in zip(outs, values, strict=True))

    check(work)


def test_workers_wait_for_many_keys_of_worker_0():
    def work(count):
        keys, values = data(count)
        with mx.testing.cluster(workers=2, servers=1) as job:
            first, second = job.store(0), job.store(1)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(second.init, keys, values)
                time.sleep(0.2)  # its questions are there before the answers, as where worker 0 reads a checkpoint
                first.init(keys, values)
            waiting.result()  # raises the error of the thread
            assert len(second.keys()) == count

    check(work)
