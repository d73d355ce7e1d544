"""Trains a network on handwritten digits under Ray: TensorKV starts the servers as actors, workers are plain actors.

    python examples/ray_actors.py --die-at 300

The network, its data and the workers' code are those of ``examples/digits.py``. Its ``tkv.kv.create('dist_sync')`` finds
the job here.

With ``--die-at`` the process of worker 1 kills itself at that step. Ray starts its actor again, which continues as
worker 1 after its last push. The other workers do not start again. Worker 0 compares the weights with those of a run
without store.
"""

import argparse
import sys
from typing import Any

import digits
import ray
import tensorkv.ray


@ray.remote(max_restarts=1, max_task_retries=1)
class Worker:
    def train(self, arguments: argparse.Namespace) -> int:
        return digits.run_worker(arguments)


def main() -> int:
    parser = digits.make_parser(__doc__)
    parser.set_defaults(kv="dist_sync")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    arguments = parser.parse_args()

    ray.init()
    with tensorkv.ray.start(arguments.workers, arguments.servers):
        actor: Any = Worker  # Ray gives the class its `remote`
        workers = [actor.remote() for _ in range(arguments.workers)]
        return int(max(ray.get([worker.train.remote(arguments) for worker in workers])))


if __name__ == "__main__":
    sys.exit(main())
