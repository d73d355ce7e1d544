"""Trains the digits of digits.py with four workers, each on its own thread, and two servers that run SGD.

This is the tutorial's page on several workers. Only the store is shared. Each worker computes the gradient of its part
of every batch, pushes it, and pulls the weights that the servers have updated. At the end the weights are compared with
training in one process, and two runs with ``deterministic=True`` are compared bit for bit.
"""

import sys
from argparse import Namespace
from typing import Any

import digits
import numpy as np
import tensorkv as tkv

SERVERS = 2


def work(kv: tkv.KVStore, data: digits.Data, start: digits.Weights, arguments: Namespace) -> digits.Weights:
    """Run one worker; a training script of several workers needs nothing more than this function."""
    images, labels = data
    # Rank 0 creates the keys; the others wait for it and check their shapes.
    kv.init(digits.KEYS, [start[key] for key in digits.KEYS])
    # The servers run the optimizer. Rank 0 defines it for all.
    kv.set_optimizer(tkv.optimizer.SGD(learning_rate=digits.LEARNING_RATE, rescale_grad=1 / arguments.batch))
    weights = {key: start[key].copy() for key in digits.KEYS}
    for _, indices in digits.batches(len(labels), arguments.batch, arguments.epochs):
        mine = np.array_split(indices, kv.num_workers)[kv.rank]
        _, grads = digits.gradient(weights, images[mine], labels[mine])
        # Each pull returns the round of the last push: the sum over all workers.
        kv.pushpull(digits.KEYS, [grads[key] for key in digits.KEYS], out=[weights[key] for key in digits.KEYS])
    return weights


def train(data: digits.Data, start: digits.Weights, arguments: Namespace, **options: Any) -> list[digits.Weights]:
    """Run a job of four workers and two servers in this process; return the weights that each worker ends with."""
    with tkv.testing.cluster(workers=digits.WORKERS, servers=SERVERS, **options) as job:
        return job.run(lambda kv: work(kv, data, start, arguments))


def main() -> int:
    arguments = Namespace(batch=64, epochs=int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    data, (images, labels) = digits.load_digits("float32")
    start = digits.initial_weights("float32")
    results = train(data, start, arguments)
    for weights in results[1:]:
        assert all((weights[key] == results[0][key]).all() for key in digits.KEYS), "all workers have the same weights"
    alone = digits.train_without_store(data, start, arguments)
    difference = max(np.abs(results[0][key] - alone[key]).max() for key in digits.KEYS)
    first = train(data, start, arguments, deterministic=True)[0]
    second = train(data, start, arguments, deterministic=True)[0]
    equal = all((first[key] == second[key]).all() for key in digits.KEYS)
    _, probability = digits.forward(results[0], images)
    print(f"workers, servers        {digits.WORKERS}, {SERVERS}")
    print(f"test accuracy           {(probability.argmax(axis=1) == labels).mean():.4f}")
    print(f"against one process     {difference:.1e} (largest difference of a weight)")
    print(f"two deterministic runs  {'equal, bit for bit' if equal else 'DIFFERENT'}")
    return 0 if difference <= digits.TOLERANCE["float32"] and equal else 1


if __name__ == "__main__":
    sys.exit(main())
