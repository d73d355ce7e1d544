"""Trains a convolutional network of PyTorch on digits; a worker or a server may die, and the job goes on.

    tkv launch -n 2 -s 2 --restart 3 --restore out/convnet --snapshot-every 50 python examples/convnet.py
    TKV_FAILPOINTS="worker 1:sent:PUSH:620:kill" ...the same, to see a worker die

The model, the data loader and the loss are PyTorch's own. The store has the weights, the states of Adam and the number
of steps, so a worker that is started again asks it where to go on. At the end rank 0 writes a file by ``torch.save``
and a picture of digits with their predictions. A model with BatchNorm's buffers or dropout needs more: docs/torch.md.
"""

import argparse
import itertools
import os
import pathlib
from collections.abc import Iterator

import digits  # beside this file: it loads the images
import tensorkv as tkv
import torch
from tensorkv.torch import KVOptimizer
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def dataset(data: digits.Data) -> TensorDataset:
    """Return images of shape (count, 1, 8, 8) and labels."""
    images, labels = data
    return TensorDataset(torch.from_numpy(images).reshape(-1, 1, 8, 8), torch.from_numpy(labels))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
    )


def batches(train: TensorDataset, kv: tkv.KVStore, batch: int, begin: int) -> Iterator[list[torch.Tensor]]:
    """Yield this worker's batches for ever, from step `begin` on: the same ones in every run."""
    sampler = DistributedSampler(train, kv.num_workers, kv.rank, seed=1, drop_last=True)
    epoch, skipped = divmod(begin, len(sampler) // batch)
    while True:
        sampler.set_epoch(epoch)
        yield from DataLoader(train, batch, sampler=list(sampler)[skipped * batch :], drop_last=True)
        epoch, skipped = epoch + 1, 0


def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """Return the fraction of the images that the model names rightly."""
    model.eval()
    images, labels = test.tensors
    with torch.no_grad():
        return float((model(images).argmax(dim=1) == labels).float().mean())


def draw(model: nn.Module, test: TensorDataset, path: pathlib.Path) -> None:
    """Draw 40 digits with their predictions, wrong ones in red."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 10, figsize=(8, 3.6))
    for axis, image, label in zip(axes.flat, *test.tensors, strict=False):
        guess = model(image[None]).argmax().item()
        axis.imshow(image[0], cmap="Greys")
        axis.set_title(str(guess), color="black" if guess == label else "red")
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path, default="out", help="folder of convnet.pt and convnet.png")
    arguments = parser.parse_args()
    train, test = map(dataset, digits.load_digits("float32"))
    model = network()
    with tkv.kv.create("dist_sync") as kv:
        opt = KVOptimizer(model.named_parameters(), kv, tkv.optimizer.Adam(learning_rate=0.003))
        if opt.steps:
            print(f"goes on after step {opt.steps}", flush=True)
        for images, labels in itertools.islice(batches(train, kv, 64, opt.steps), max(0, arguments.steps - opt.steps)):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model.train()(images), labels)
            loss.backward()
            opt.step()
            if opt.steps % 50 == 0:
                print(f"step {opt.steps}: loss {loss.item():.4f}", flush=True)
        if kv.rank == 0:
            os.makedirs(arguments.out, exist_ok=True)
            torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, arguments.out / "convnet.pt")
            print(f"test accuracy {accuracy(model, test):.3f}")
            draw(model, test, arguments.out / "convnet.png")


if __name__ == "__main__":
    main()
