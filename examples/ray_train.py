"""Trains a network on handwritten digits with Ray Train: its workers push gradients of PyTorch, the store runs SGD.

    python examples/ray_train.py --die-at 100

The images are those of ``examples/digits.py``. Each worker of a ``TorchTrainer`` joins the store with its own rank.

With ``--die-at`` the process of worker 1 kills itself at that step. Ray Train then starts all workers again as new
actors. They take the places of the dead ones and continue after their last pushes. No checkpoint is needed, because the
servers keep running.
"""

import argparse
import os
import signal
import sys
from typing import Any

import digits
import numpy as np
import ray
import ray.train
import ray.train.torch
import tensorkv as tkv
import tensorkv.ray
import torch

BATCH = 64


def model_of() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))


def train(config: dict[str, Any]) -> dict[str, Any]:
    """Train as one worker; the trainer's result has the value that worker 0 returns."""
    rank = ray.train.get_context().get_world_rank()
    (images, labels), tests = digits.load_digits("float32")
    model = model_of()
    weights = dict(model.named_parameters())
    names = list(weights)
    with config["job"].store(rank=rank) as kv:
        kv.init(names, [weights[name].detach() for name in names])
        kv.set_optimizer(tkv.optimizer.SGD(learning_rate=0.3, rescale_grad=1 / BATCH))
        for step, indices in digits.batches(len(labels), BATCH, config["epochs"]):
            # Without those that an earlier incarnation has pushed.
            keys = [name for name in names if kv.round(name) <= step]
            if not keys:
                continue
            if step == config["die_at"] and rank == 1 and not kv.rejoined:
                os.kill(os.getpid(), signal.SIGKILL)
            pull(kv, weights)
            mine = np.array_split(indices, kv.num_workers)[rank]
            model.zero_grad()
            scores = model(torch.from_numpy(images[mine]))
            torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels[mine]), reduction="sum").backward()
            kv.push(keys, [weights[name].grad for name in keys])
        pull(kv, weights)
        rejoined = kv.rejoined
    right = model(torch.from_numpy(tests[0])).argmax(axis=1).numpy() == tests[1]
    return {"accuracy": float(right.mean()), "rejoined": rejoined}


def pull(kv: tkv.KVStore, weights: dict[str, torch.nn.Parameter]) -> None:
    """Copy the values of the store to the weights."""
    for name, weight in weights.items():
        weight.data.copy_(torch.from_dlpack(kv.pull(name)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--die-at", type=int, default=-1, metavar="STEP", help="worker 1 kills itself there")
    parser.add_argument("--storage", metavar="FOLDER", help="where Ray Train keeps its results; default its own")
    arguments = parser.parse_args()

    ray.init()
    with tensorkv.ray.start(arguments.workers, arguments.servers) as job:
        trainer = ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"job": job, "epochs": arguments.epochs, "die_at": arguments.die_at},
            scaling_config=ray.train.ScalingConfig(num_workers=arguments.workers, resources_per_worker={"CPU": 0.5}),
            run_config=ray.train.RunConfig(
                storage_path=arguments.storage, failure_config=ray.train.FailureConfig(max_failures=1)
            ),
        )
        result = trainer.fit().return_value
    print(f"test accuracy {result['accuracy']:.4f}, workers were started again: {result['rejoined']}")
    return int(result["accuracy"] < 0.95 or result["rejoined"] != (arguments.die_at >= 0))


if __name__ == "__main__":
    sys.exit(main())
