"""Trains a network of JAX on digits with two workers; each is one JAX process, and the servers run Adam.

    tkv launch -n 2 -s 2 --restart 3 python examples/jax_digits.py
    TKV_FAILPOINTS="worker 1:sent:PUSH:300:kill" ...the same, to see a worker die

The loss and its gradient are compiled by ``jax.jit``. The step of the optimizer is outside: the store takes gradients
and gives parameters, both pytrees of JAX arrays.
"""

import argparse
from typing import Any

import digits
import jax
import jax.numpy as jnp
import numpy as np
import tensorkv as tkv
from tensorkv.jax import KVOptimizer

Params = dict[str, jax.Array]


def logits(params: Params, images: jax.Array) -> jax.Array:
    """Return scores of shape (count, 10) of images of shape (count, 64)."""
    return jax.nn.relu(images @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross entropy."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(params, images)), labels[:, None], axis=1).mean()


loss_and_gradient: Any = jax.jit(jax.value_and_grad(loss))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    (images, labels), test = digits.load_digits("float32")
    with tkv.kv.create("dist_sync") as kv:
        params = {name: jnp.asarray(value) for name, value in digits.initial_weights("float32").items()}
        opt = KVOptimizer(params, kv, tkv.optimizer.Adam(learning_rate=0.01))
        if opt.steps:
            print(f"goes on behind step {opt.steps}", flush=True)
        for step in range(opt.steps, arguments.steps):
            # The batch depends on the step and the rank alone, so that a step can be made again.
            batch = np.random.default_rng((step, kv.rank)).integers(0, len(labels), 64)
            mean, gradient = loss_and_gradient(opt.params, images[batch], labels[batch])
            opt.step(gradient)
            if opt.steps % 50 == 0:
                print(f"step {opt.steps}: loss {mean:.4f}", flush=True)
        if kv.rank == 0:
            print(f"test accuracy {(logits(opt.params, test[0]).argmax(axis=1) == test[1]).mean():.3f}")


if __name__ == "__main__":
    main()
