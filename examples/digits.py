"""Trains a network on handwritten digits through a store: four workers push gradients, the store runs SGD.

The images are the 1,797 of 8 × 8 points that scikit-learn carries (Alpaydin and Kaynak, 1998). The network has two
layers, in NumPy. Each of four workers computes the gradient of its part of every batch and pushes it; the store sums
the four, runs SGD, and every worker pulls the weights back. At the end the same batches are trained without the store,
in float32 and in float64, and the weights must agree.

With ``--kv dist_sync`` each worker is a process of its own, and the servers run SGD:

    tkv launch -n 2 -s 2 python examples/digits.py --kv dist_sync

With ``--checkpoint FILE`` a job that lost a server and is started again continues from its last checkpoint. With
``--events FOLDER`` each worker writes the times of its steps there, for digits_picture.py.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorkv as tkv

WORKERS = 4
KEYS = ["w1", "b1", "w2", "b2"]
LEARNING_RATE = 0.3
Array = npt.NDArray[Any]
Weights = dict[str, Array]
Data = tuple[Array, Array]  # images, labels
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def load_digits(dtype: str) -> tuple[Data, Data]:
    """Return ((images, labels) to train on, (images, labels) to test on): every fifth image is a test."""
    from sklearn.datasets import load_digits as load

    digits: Any = load()
    images, labels = (digits.data / 16).astype(dtype), digits.target
    test = np.arange(len(labels)) % 5 == 0
    return (images[~test], labels[~test]), (images[test], labels[test])


def initial_weights(dtype: str, hidden: int = 64) -> Weights:
    """Return the weights to start from, the same for every run."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (64, hidden), "b1": (hidden,), "w2": (hidden, 10), "b2": (10,)}
    scale = {"w1": 1 / 8, "b1": 0, "w2": 1 / 8, "b2": 0}
    return {key: (rng.normal(size=shapes[key]) * scale[key]).astype(dtype) for key in KEYS}


def batches(count: int, batch: int, epochs: int) -> Iterator[tuple[int, Array]]:
    """Yield (step, indices of the images of one batch): the same sequence in every run."""
    step = 0
    for epoch in range(epochs):
        order = np.random.default_rng(epoch + 1).permutation(count)
        for begin in range(0, count - batch + 1, batch):
            yield step, order[begin : begin + batch]
            step += 1


def forward(weights: Weights, images: Array) -> tuple[Array, Array]:
    """Return the hidden layer and the probabilities of the ten digits."""
    hidden = np.tanh(images @ weights["w1"] + weights["b1"])
    scores = hidden @ weights["w2"] + weights["b2"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradient(weights: Weights, images: Array, labels: Array) -> tuple[float, Weights]:
    """Return the sum of the losses and, for each key, the sum of the gradients over the images."""
    hidden, probability = forward(weights, images)
    loss = -np.log(np.maximum(probability[np.arange(len(labels)), labels], 1e-30)).sum()
    error = probability
    error[np.arange(len(labels)), labels] -= 1
    back = (error @ weights["w2"].T) * (1 - hidden * hidden)
    return loss, {"w1": images.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ error, "b2": error.sum(axis=0)}


def parts(indices: Array) -> list[Array]:
    """Return the indices of each worker."""
    return np.array_split(indices, WORKERS)


class Progress:
    """A bar on a terminal, a line every tenth elsewhere."""

    def __init__(self, total: int, quiet: bool = False) -> None:
        self.total, self.quiet, self.shown = total, quiet, -1

    def show(self, done: int, text: str) -> None:
        tenth = done * 40 // self.total if sys.stdout.isatty() else done * 10 // self.total
        if self.quiet or tenth == self.shown:
            return
        self.shown = tenth
        if sys.stdout.isatty():
            print(f"\r[{'█' * tenth}{'·' * (40 - tenth)}] {text}", end="\n" if done == self.total else "", flush=True)
        else:
            print(f"{100 * done // self.total:3d} %  {text}", flush=True)


class Events:
    """A file of what a worker has done and when: a JSON object in each line."""

    def __init__(self, folder: str | None, rank: int) -> None:
        self.path = Path(folder) / f"worker-{rank}.jsonl" if folder else None

    def add(self, **event: Any) -> None:
        """Write an event with its time. A killed worker leaves whole lines."""
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"time": time.time(), **event}) + "\n")


def train_with_store(
    kv: tkv.KVStore, data: Data, weights: Weights, arguments: argparse.Namespace, progress: Progress
) -> tuple[list[float], float]:
    """Train through the store `kv`; return the losses of the steps and the images per second."""
    images, labels = data
    contexts = [tkv.cpu(i) for i in range(WORKERS)]
    start = resume(kv, weights, arguments)
    kv.set_optimizer(tkv.optimizer.SGD(learning_rate=LEARNING_RATE, rescale_grad=1 / arguments.batch))
    replicas = [{key: np.empty_like(weights[key]) for key in KEYS} for _ in contexts]
    pull_targets = [[replica[key] for replica in replicas] for key in KEYS]
    kv.pull(KEYS, out=pull_targets)
    schedule = list(batches(len(labels), arguments.batch, arguments.epochs))
    losses, begin = [], time.perf_counter()
    for step, indices in schedule[start:]:
        results = [gradient(w, images[i], labels[i]) for w, i in zip(replicas, parts(indices), strict=True)]
        kv.push(KEYS, [[grads[key] for _, grads in results] for key in KEYS])
        kv.pull(KEYS, out=pull_targets)
        losses.append(sum(loss for loss, _ in results) / arguments.batch)
        progress.show(step + 1, f"step {step + 1}/{len(schedule)}  loss {losses[-1]:.3f}")
        if arguments.checkpoint and (step + 1) % arguments.every == 0:
            save({key: kv.pull(key).asnumpy() for key in KEYS}, step + 1, arguments.checkpoint)
    seconds = time.perf_counter() - begin
    return losses, len(losses) * arguments.batch / seconds


def resume(kv: tkv.KVStore, weights: Weights, arguments: argparse.Namespace) -> int:
    """Put the weights of the checkpoint, or the initial ones, into the store; return the job's first step.

    Only rank 0 reads the file. The step is a key, too, so that all workers count from the same one. A worker that
    restarts while its job runs also uses this key, whatever has been saved meanwhile.
    """
    begin = 0
    if kv.rank == 0 and arguments.checkpoint and os.path.exists(arguments.checkpoint):
        saved: dict[str, tkv.NDArray] = tkv.nd.load(arguments.checkpoint)
        weights = {key: saved[key].asnumpy() for key in KEYS}
        begin = int(saved["step"])
    kv.init([*KEYS, "step"], [*(weights[key] for key in KEYS), np.array([begin])])
    step = int(kv.pull("step"))
    if step:
        print(f"resumed from {arguments.checkpoint} at step {step}", flush=True)
    return step


def save(weights: Weights, step: int, path: str) -> None:
    """Write the weights and the step; the old checkpoint is replaced only by a complete one."""
    tkv.nd.save(
        path, {"step": tkv.nd.array([step], dtype="int64"), **{key: tkv.nd.array(weights[key]) for key in KEYS}}
    )


def train_as_worker(
    kv: tkv.KVStore, data: Data, weights: Weights, arguments: argparse.Namespace, progress: Progress
) -> tuple[Weights, list[float]]:
    """Train as one worker of a job; return its weights and the losses of its parts of the batches.

    A worker that is started again continues after its last counted push of each key.
    """
    images, labels = data
    start = resume(kv, weights, arguments)
    kv.set_optimizer(tkv.optimizer.SGD(learning_rate=LEARNING_RATE, rescale_grad=1 / arguments.batch))
    weights = {key: kv.pull(key).asnumpy() for key in KEYS}
    schedule = list(batches(len(labels), arguments.batch, arguments.epochs))
    events = Events(arguments.events, kv.rank)
    events.add(began=start + min(kv.round(key) for key in KEYS))
    if kv.rejoined:
        print(f"started again; goes on with step {start + min(kv.round(key) for key in KEYS)}", flush=True)
    losses = []
    for step, indices in schedule[start:]:
        # All keys except those that an earlier incarnation has pushed.
        keys = [key for key in KEYS if start + kv.round(key) <= step]
        if not keys:
            continue
        if step == arguments.die_at and kv.rank == 1 and not kv.rejoined:
            events.add(killed=step)
            os.kill(os.getpid(), signal.SIGKILL)
        mine = np.array_split(indices, kv.num_workers)[kv.rank]
        loss, grads = gradient(weights, images[mine], labels[mine])
        kv.pushpull(keys, [grads[key] for key in keys], out=[weights[key] for key in keys])
        losses.append(float(loss) / len(mine))
        events.add(step=step, loss=losses[-1])
        progress.show(step + 1, f"step {step + 1}/{len(schedule)}  loss {losses[-1]:.3f}")
        if arguments.checkpoint and kv.rank == 0 and (step + 1) % arguments.every == 0:
            save(weights, step + 1, arguments.checkpoint)
    return weights, losses


def run_worker(arguments: argparse.Namespace) -> int:
    """Run one worker of a distributed job; rank 0 checks the result. Return the exit status."""
    data, (images, labels) = load_digits("float32")
    start = initial_weights("float32")
    with tkv.kv.create(arguments.kv) as kv:
        rank, workers = kv.rank, kv.num_workers
        print(f"TensorKV {tkv.__version__}: worker {rank} of {workers}, a {arguments.kv!r} store", flush=True)
        steps = len(data[1]) // arguments.batch * arguments.epochs
        begin = time.perf_counter()
        weights, losses = train_as_worker(kv, data, start, arguments, Progress(steps))
        seconds = time.perf_counter() - begin
    if rank != 0:
        return 0
    alone = train_without_store(data, start, arguments)
    difference = max(np.abs(weights[key] - alone[key]).max() for key in KEYS)
    accuracy, matrix = judge(weights, images, labels)
    Events(arguments.events, rank).add(difference=float(difference), accuracy=accuracy)
    if losses:
        draw(losses, matrix, accuracy, arguments.picture)
    print(f"test accuracy           {accuracy:.4f}")
    print(f"images per second       {len(losses) * arguments.batch / seconds:,.0f}")
    print(f"against no store        {difference:.1e} (largest difference of a weight)")
    print(f"picture                 {os.path.abspath(arguments.picture)}")
    # A worker that died in the middle of a step repeats it with other weights.
    return status_of(accuracy, [("float32", difference, TOLERANCE["float32"] if arguments.die_at < 0 else 0.1)])


def train_without_store(data: Data, weights: Weights, arguments: argparse.Namespace) -> Weights:
    """Train on the same batches with the same arithmetic, in NumPy alone."""
    images, labels = data
    weights = {key: value.copy() for key, value in weights.items()}
    for _, indices in batches(len(labels), arguments.batch, arguments.epochs):
        results = [gradient(weights, images[i], labels[i])[1] for i in parts(indices)]
        for key in KEYS:
            total = sum(grads[key] for grads in results)
            weights[key] -= (LEARNING_RATE * (total * (1 / arguments.batch))).astype(weights[key].dtype)
    return weights


def compare(dtype: str, arguments: argparse.Namespace, quiet: bool) -> tuple[tkv.KVStore, list[float], float, float]:
    """Train with and without the store; return the store, its history and the largest difference of any weight."""
    train, _ = load_digits(dtype)
    kv = tkv.kv.create(arguments.kv)
    steps = len(train[1]) // arguments.batch * arguments.epochs
    losses, speed = train_with_store(kv, train, initial_weights(dtype), arguments, Progress(steps, quiet))
    alone = train_without_store(train, initial_weights(dtype), arguments)
    difference = max(np.abs(kv.pull(key).asnumpy() - alone[key]).max() for key in KEYS)
    return kv, losses, speed, difference


def confusion(kv: tkv.KVStore, dtype: str) -> tuple[float, Array]:
    """Return the accuracy on the test images, and the counts of each digit (row) read as each digit (column)."""
    _, (images, labels) = load_digits(dtype)
    return judge({key: kv.pull(key).asnumpy() for key in KEYS}, images, labels)


def judge(weights: Weights, images: Array, labels: Array) -> tuple[float, Array]:
    """Return the accuracy of the weights, and the counts of each digit (row) read as each digit (column)."""
    _, probability = forward(weights, images)
    matrix = np.zeros((10, 10), int)
    np.add.at(matrix, (labels, probability.argmax(axis=1)), 1)
    return matrix.trace() / matrix.sum(), matrix


def status_of(accuracy: float, differences: list[tuple[str, float, float]]) -> int:
    """Return the exit status; report a wrong accuracy or a wrong (dtype, difference, tolerance)."""
    for dtype, found, tolerance in differences:
        if not found <= tolerance:
            print(f"the weights differ by {found:.1e} in {dtype}, at most {tolerance} is right", file=sys.stderr)
            return 1
    if accuracy < 0.95:
        print("the accuracy is below 0.95", file=sys.stderr)
        return 1
    return 0


def draw(losses: list[float], matrix: Array, accuracy: float, path: str) -> None:
    """Draw the loss curve and the confusion matrix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    left.plot(losses, linewidth=0.8)
    left.set(xlabel="step", ylabel="loss", title="Loss of each batch", yscale="log")
    right.imshow(np.log1p(matrix), cmap="Blues")
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            right.text(
                column, row, count, ha="center", va="center", fontsize=8, color="white" if row == column else "black"
            )
    right.set(
        xlabel="read as", ylabel="digit", title=f"Test images: {accuracy:.1%} right", xticks=range(10), yticks=range(10)
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def make_parser(text: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that `run_worker` takes."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kv", default="local", help="type of the store")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--checkpoint", metavar="FILE", help="save all keys here and resume from it")
    parser.add_argument("--every", type=int, default=100, metavar="N", help="steps between checkpoints")
    parser.add_argument("--picture", metavar="PNG", default="digits.png", help="where the picture goes")
    parser.add_argument("--events", metavar="FOLDER", help="where workers write the times of their steps")
    parser.add_argument("--die-at", type=int, default=-1, metavar="STEP", help="worker 1 of a job kills itself there")
    return parser


def main() -> int:
    parser = make_parser(__doc__)
    arguments = parser.parse_args()
    if arguments.batch < WORKERS or arguments.epochs < 1 or arguments.every < 1:
        parser.error(f"--batch is at least {WORKERS}, --epochs and --every at least 1")

    if arguments.kv.startswith(("dist", "p3")):
        return run_worker(arguments)
    print(f"TensorKV {tkv.__version__}: {WORKERS} workers, a {arguments.kv!r} store, batches of {arguments.batch}")
    kv, losses, speed, difference = compare("float32", arguments, quiet=False)
    accuracy, matrix = confusion(kv, "float32")
    if losses:
        draw(losses, matrix, accuracy, arguments.picture)
    arguments.checkpoint = None
    _, _, _, difference64 = compare("float64", arguments, quiet=True)

    print(f"test accuracy           {accuracy:.4f}")
    print(f"images per second       {speed:,.0f}")
    print(
        f"against no store        float32 {difference:.1e}, float64 {difference64:.1e} (largest difference of a weight)"
    )
    print(f"picture                 {os.path.abspath(arguments.picture)}")
    found = [("float32", difference), ("float64", difference64)]
    return status_of(accuracy, [(dtype, largest, TOLERANCE[dtype]) for dtype, largest in found])


if __name__ == "__main__":
    sys.exit(main())
