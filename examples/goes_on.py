"""Resumes a job after a server was killed: the job saves by itself and restarts by itself.

    tkv launch -n 2 -s 2 --restore run --snapshot-every 10 --restart 1 python examples/goes_on.py
    TKV_FAILPOINTS="server 0:received:PUSH:60:kill" ...the same, to see one die

The script only needs to find its step. Keys, values, the optimizer's states and rounds are restored before
it begins again.
"""

import argparse

import numpy as np
import tensorkv as tkv


def batch_of(step: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets; they depend only on the step and the worker, so that a step can be repeated."""
    random = np.random.default_rng((step, rank))
    inputs = random.normal(size=(32, 16)).astype(np.float32)
    return inputs, inputs @ np.linspace(-1, 1, 16, dtype=np.float32)


def main() -> None:
    """Fit a line by steps that all workers make together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    with tkv.kv.create("dist_sync") as kv:
        kv.init("w", np.zeros(16, np.float32))
        kv.set_optimizer(tkv.optimizer.Adam(learning_rate=0.05, rescale_grad=1 / kv.num_workers))
        begin = kv.round("w")
        if begin:
            print(f"worker {kv.rank} goes on behind step {begin}", flush=True)
        weights = kv.pull("w").asnumpy()
        for step in range(begin, arguments.steps):
            inputs, targets = batch_of(step, kv.rank)
            error = inputs @ weights - targets
            kv.pushpull("w", inputs.T @ error / len(inputs), out=weights)
        if kv.rank == 0:
            print("weights", " ".join(f"{weight:.6f}" for weight in weights))


if __name__ == "__main__":
    main()
