"""Learns word vectors with tables of embeddings on the servers; a batch pulls and pushes only the rows that it needs.

The method is skip-gram with negative sampling (Mikolov et al., 2013). The text is installed already: Python's own help
(``pydoc_data.topics``) and the docstrings of NumPy. A word is a row of two tables. A step pulls the rows of its words,
computes the gradient in NumPy and pushes it. The servers run AdaGrad on the pushed rows. Workers do not wait for one
another.

    tkv launch -n 2 -s 2 python examples/word_embeddings.py
    tkv launch -n 2 -s 2 --restart 1 python examples/word_embeddings.py --kill    # worker 1 dies half way and goes on

At the end rank 0 shows the nearest neighbours of some words, and draws them.
"""

import argparse
import ast
import os
import pathlib
import pydoc_data.topics
import re
import signal
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorkv as tkv

DIM = 48
NEGATIVES = 5  # words that are not in the context, for each pair
WINDOW = 5
TABLES = ["words", "contexts"]
SHOWN = ["class", "function", "integer", "string", "exception", "matrix", "file", "random"]
Array = npt.NDArray[Any]


def docstrings(folder: pathlib.Path) -> list[str]:
    """Return the docstrings of all modules below a folder, without its tests."""
    texts = []
    for path in sorted(folder.rglob("*.py")):
        if "tests" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    texts.append(ast.get_docstring(node) or "")
    return texts


class Text:
    """Words as numbers from 0, the most frequent one first."""

    def __init__(self, seldom: int = 10) -> None:
        texts = [*pydoc_data.topics.topics.values(), *docstrings(pathlib.Path(np.__file__).parent)]
        words = re.findall(r"[a-z]{2,}", "\n".join(texts).lower())
        counts = [(word, n) for word, n in sorted(Counter(words).items()) if n >= seldom]
        counts.sort(key=lambda pair: -pair[1])
        self.words = [word for word, _ in counts]
        self.number = {word: i for i, word in enumerate(self.words)}
        frequency = np.array([n for _, n in counts], float)
        # Frequent words are dropped more often, and drawn less often than they occur.
        keep = np.minimum(1, np.sqrt(1e-3 / (frequency / frequency.sum())))
        text = np.array([self.number[word] for word in words if word in self.number])
        self.text = text[np.random.default_rng(0).random(len(text)) < keep[text]]
        noise = np.cumsum(frequency**0.75)
        self.noise = noise / noise[-1]

    def batch(self, step: int, rank: int, size: int) -> tuple[Array, Array]:
        """Return centres of shape (size,) and contexts of shape (size, 1 + NEGATIVES), of which the first is true.

        They depend only on the step and the worker, so that a step can be repeated.
        """
        random = np.random.default_rng((step, rank))
        position = random.integers(WINDOW, len(self.text) - WINDOW, size)
        distance = random.integers(1, random.integers(1, WINDOW + 1, size) + 1) * random.choice([-1, 1], size)
        contexts = np.searchsorted(self.noise, random.random((size, 1 + NEGATIVES)))
        contexts[:, 0] = self.text[position + distance]
        return self.text[position], contexts


def gradient(word: Array, context: Array) -> tuple[float, Array, Array]:
    """Return the loss of a pair, and the gradients of (size, DIM) centres and (size, 1 + NEGATIVES, DIM) contexts."""
    sign = np.full(context.shape[1], -1, np.float32)
    sign[0] = 1
    score = (context @ word[:, :, None])[:, :, 0] * sign
    error = -sign / (1 + np.exp(score))
    loss = np.logaddexp(0, -score).sum(axis=1).mean()
    return float(loss), (error[:, None, :] @ context)[:, 0], error[:, :, None] * word[:, None, :]


def train(kv: tkv.KVStore, notes: tkv.KVStore, text: Text, arguments: argparse.Namespace) -> list[float]:
    """Run the steps of one worker; return their losses. A worker that is started again continues at its noted step."""
    # Rank 0 makes the tables and the others wait for them. Nobody can push before the tables have their optimizer.
    kv.set_optimizer(tkv.optimizer.AdaGrad(learning_rate=arguments.learning_rate))
    kv.init_table("words", DIM, initializer=tkv.init.Uniform(0.5 / DIM))
    kv.init_table("contexts", DIM)
    # A store without an optimizer assigns pushed values: row r is the number of steps that worker r has done.
    notes.init_table("steps", 1, dtype="int64")
    begin = int(notes.pull_rows("steps", kv.rank))
    if kv.rejoined:
        print(f"started again; goes on with step {begin}", flush=True)
    losses = []
    for step in range(begin, arguments.steps):
        if arguments.kill and kv.rank == 1 and step == arguments.steps // 2 and not kv.rejoined:
            os.kill(os.getpid(), signal.SIGKILL)
        ids = text.batch(step, kv.rank, arguments.batch)
        loss, *gradients = gradient(*kv.pull_rows(TABLES, ids))
        # A push is certain only when its ticket is done. A step is therefore noted after the servers have its push.
        kv.push_rows(TABLES, ids, gradients, async_op=True).wait()
        notes.push_rows("steps", kv.rank, np.array([step + 1]), async_op=True).wait()
        losses.append(loss)
        if (step + 1) % (arguments.steps // 5) == 0:
            print(f"step {step + 1}/{arguments.steps}  loss {np.mean(losses[-20:]):.3f}", flush=True)
    return losses


def nearest(vectors: Array, word: int, count: int) -> list[int]:
    """Return the words with the smallest angles to a word."""
    return [int(i) for i in np.argsort(-(vectors @ vectors[word])) if i != word][:count]


def draw(text: Text, vectors: Array, groups: dict[str, list[int]], path: str) -> None:
    """Draw words and their neighbours in the plane of the two directions in which they differ most."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = np.array([i for group in groups.values() for i in group])
    centred = vectors[chosen] - vectors[chosen].mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    points = centred @ directions[:2].T
    figure, axes = pyplot.subplots(figsize=(10, 8))
    axes.scatter(*points.T, s=4, color="lightgrey")
    colours = np.repeat(np.arange(len(groups)), [len(group) for group in groups.values()])
    for (x, y), i, colour in zip(points, chosen, colours, strict=True):
        word = text.words[i]
        weight = "bold" if word in groups else "normal"
        axes.annotate(word, (x, y), fontsize=8, color=f"C{colour}", weight=weight)
    axes.set(title="Words and those nearest to them", xticks=[], yticks=[])
    figure.tight_layout()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kv", default="dist_async", choices=["dist_async", "local"], help="type of the store")
    parser.add_argument("--steps", type=int, default=1000, help="of each worker")
    parser.add_argument("--batch", type=int, default=1024, help="pairs of a step")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--picture", metavar="SVG", default="out/embeddings.svg", help="where the picture goes")
    parser.add_argument("--kill", action="store_true", help="worker 1 kills itself half way")
    arguments = parser.parse_args()
    if arguments.steps < 5 or arguments.batch < 1:
        parser.error("--steps is at least 5, --batch at least 1")

    text = Text()
    tkv.random.seed(0)
    with tkv.kv.create(arguments.kv) as kv, tkv.kv.create(arguments.kv) as notes:
        begin = time.perf_counter()
        losses = train(kv, notes, text, arguments)
        kv.barrier()  # all have pushed
        seconds = time.perf_counter() - begin
        if kv.rank != 0:
            return 0
        vectors = kv.pull_rows("words", np.arange(len(text.words)))
        pairs = arguments.steps * arguments.batch * kv.num_workers
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = {word: [text.number[word], *nearest(vectors, text.number[word], 8)] for word in SHOWN}
    for word, group in groups.items():
        print(f"{word:12}{' '.join(text.words[i] for i in group[1:])}")
    draw(text, vectors, groups, arguments.picture)
    print(f"text                    {len(text.text):,} words, {len(text.words):,} different ones")
    print(f"loss                    {np.mean(losses[:20]):.3f} at first, {np.mean(losses[-20:]):.3f} at last")
    print(f"pairs per second        {pairs / seconds:,.0f}")
    print(f"rows per second         {2 * pairs * (2 + NEGATIVES) / seconds:,.0f} (pulled and pushed)")
    print(f"picture                 {os.path.abspath(arguments.picture)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
