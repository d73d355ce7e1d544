"""Learns which items users like, and recommends items from a copy of the tables that follows the training.

    tkv launch -n 2 -s 2 python examples/recommender.py out/clicks & python examples/recommender.py out/clicks --serve

The hash of a name is the id of its row. The servers keep the rows and run AdaGrad. A name gets its row in the second step
with a click on it; 2,000 steps without a click remove it. Rank 0 writes the rows that changed in 100 steps into a file,
which the process that serves reads. Every fifth file has all rows, because changes do not say which were removed.
"""

import argparse
import hashlib
import time
from pathlib import Path

import numpy as np
import tensorkv as tkv
from safetensors.numpy import load_file, save_file

DIM, USERS, ITEMS, KINDS, STEPS, TABLES = 16, 2_000, 500, 10, 500, ["users", "items"]


def row_id(name: str) -> int:
    """Return 63 bits of the hash of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") & (2**63 - 1)


USER_IDS, ITEM_IDS = (np.array([row_id(f"{k}-{i}") for i in range(n)]) for k, n in (("user", USERS), ("item", ITEMS)))


def clicks(step: int, rank: int, size: int = 512) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids of users and of items, and 1 (liked) or -1. A user likes the items of one kind."""
    random = np.random.default_rng((step, rank))
    users, items = random.integers(0, USERS, size), random.integers(0, ITEMS, size)
    items = np.where(random.random(size) < 0.4, items - items % KINDS + users % KINDS, items)  # shown on purpose
    return USER_IDS[users], ITEM_IDS[items], np.where(items % KINDS == users % KINDS, 1, -1).astype(np.float32)


def write_rows(kv: tkv.KVStore, seen: dict[str, int], path: Path) -> None:
    """Write the rows that were pushed after the versions `seen`, or all, if it is empty; set it to those written."""
    tensors = {"all": np.array([not seen])}
    for table in TABLES:
        changed = kv.export_rows(table, since=seen.get(table))
        tensors |= {f"{table}#ids": changed.ids, table: changed.values.asnumpy()}
        seen[table] = changed.version
    save_file(tensors, part := path.with_suffix(".part"))
    part.rename(path)  # under its name a file is whole


def train(folder: Path) -> None:
    """Run one worker: pull the rows of a batch, push their gradients."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(f"the folder {folder} is not empty")
    seen: dict[str, int] = {}
    with tkv.kv.create("dist_sync") as kv:
        kv.set_optimizer(tkv.optimizer.AdaGrad(learning_rate=0.2))
        for table in TABLES:
            kv.init_table(table, DIM, initializer=tkv.init.Normal(0.1), admit=2, evict={"age": 2_000})
        for step in range(1, STEPS + 1):
            *ids, liked = clicks(step, kv.rank)
            user, item = kv.pull_rows(TABLES, ids)
            score = liked * (user * item).sum(axis=1)
            error = (-liked / (1 + np.exp(score)))[:, None]
            kv.push_rows(TABLES, ids, [error * item, error * user])
            if step % 100 == 0:
                print(f"step {step}: loss {np.logaddexp(0, -score).mean():.3f}", flush=True)
                if kv.rank == 0:
                    write_rows(kv, seen if step % 500 else {}, folder / f"{step:06}.safetensors")
        if kv.rank == 0:
            for table in TABLES:
                stats = kv.table_stats(table)
                print(f"{table}: {stats['rows']:,} rows, {stats['memory_bytes'] / stats['rows']:,.0f} bytes a row")
            (folder / "end").touch()


def serve(folder: Path) -> None:
    """Recommend items to a user after each file, until the training has ended or has written nothing for a minute."""
    rows: dict[str, dict[int, np.ndarray]] = {}
    done, latest = set[Path](), time.monotonic()
    while not ((folder / "end").exists() and done == set(folder.glob("*.safetensors"))):
        for path in sorted(set(folder.glob("*.safetensors")) - done):
            done.add(path)
            latest, tensors = time.monotonic(), load_file(path)
            for table in TABLES:
                kept = {} if tensors["all"][0] else rows[table]
                rows[table] = kept | dict(zip(tensors[f"{table}#ids"].tolist(), tensors[table], strict=True))
            items = np.stack([rows["items"].get(row, np.zeros(DIM)) for row in ITEM_IDS.tolist()])
            liked = items @ rows["users"].get(row_id("user-7"), np.zeros(DIM))
            print(f"{path.stem}: user-7 may like {', '.join(f'item-{i}' for i in np.argsort(-liked)[:5])}", flush=True)
        if time.monotonic() - latest > 60:
            raise SystemExit("no file for a minute: is the training dead?")
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an empty folder for the files of changes")
    parser.add_argument("--serve", action="store_true", help="recommend instead of training")
    arguments = parser.parse_args()
    serve(arguments.folder) if arguments.serve else train(arguments.folder)
