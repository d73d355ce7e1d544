"""Learns which items users like, and recommends items from a copy of the tables that follows the training.

    tkv launch -n 2 -s 2 python examples/recommender.py out/clicks & python examples/recommender.py out/clicks --serve

Users and items have names, and the hash of a name is the id of its row. The servers keep the rows of both tables and
run AdaGrad. The second click on a name makes its row; 2,000 steps without a click remove it. After each 100 steps rank 0
writes the rows that have changed into a file of safetensors, and the process that serves reads it.
"""

import argparse
import hashlib
import time
from pathlib import Path

import numpy as np
import tensorkv as tkv
from safetensors.numpy import load_file, save_file

DIM, USERS, ITEMS, KINDS = 16, 2_000, 500, 10
TABLES = ["users", "items"]


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


def write_changes(kv: tkv.KVStore, seen: dict[str, int | None], path: Path) -> None:
    """Write the rows that were pushed since the last call, under another name until the file is whole."""
    tensors: dict[str, np.ndarray] = {}
    for table in TABLES:
        changed = kv.export_rows(table, since=seen.get(table))
        tensors |= {f"{table}#ids": changed.ids, table: changed.values.asnumpy()}
        seen[table] = changed.version
    save_file(tensors, path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def train(steps: int, folder: Path) -> None:
    """Run one worker: pull the rows of a batch, push their gradients."""
    seen: dict[str, int | None] = {}
    with tkv.kv.create("dist_sync") as kv:
        kv.set_optimizer(tkv.optimizer.AdaGrad(learning_rate=0.2))
        for table in TABLES:
            kv.init_table(table, DIM, initializer=tkv.init.Normal(0.1), admit=2, evict={"age": 2_000})
        losses = []
        for step in range(1, steps + 1):
            users, items, liked = clicks(step, kv.rank)
            user, item = kv.pull_rows(TABLES, [users, items])
            score = liked * (user * item).sum(axis=1)
            losses.append(np.logaddexp(0, -score).mean())
            error = (-liked / (1 + np.exp(score)))[:, None]
            kv.push_rows(TABLES, [users, items], [error * item, error * user])
            if step % 100 == 0:
                print(f"step {step}: loss {np.mean(losses[-100:]):.3f}", flush=True)
                if kv.rank == 0:
                    write_changes(kv, seen, folder / f"{step:06}.safetensors")
        if kv.rank == 0:
            for table in TABLES:
                stats = kv.table_stats(table)
                print(f"{table}: {stats['rows']:,} rows, {stats['memory_bytes'] / stats['rows']:,.0f} bytes a row")
            (folder / "end").touch()


def serve(folder: Path) -> None:
    """Recommend items to a user after each file of changes, until the training has ended."""
    rows: dict[str, dict[int, np.ndarray]] = {table: {} for table in TABLES}
    done: set[Path] = set()
    while not ((folder / "end").exists() and done == set(folder.glob("*.safetensors"))):
        for path in sorted(set(folder.glob("*.safetensors")) - done):
            done.add(path)
            tensors = load_file(path)
            for table in TABLES:
                rows[table].update(zip(tensors[f"{table}#ids"].tolist(), tensors[table], strict=True))
            items = {i: rows["items"][int(ITEM_IDS[i])] for i in range(ITEMS) if int(ITEM_IDS[i]) in rows["items"]}
            if (user := rows["users"].get(row_id("user-7"))) is not None:
                best = sorted(items, key=lambda i: -float(items[i] @ user))[:5]
                print(f"{path.stem}: user-7 may like {', '.join(f'item-{i}' for i in best)}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an empty folder for the files of changes")
    parser.add_argument("--serve", action="store_true", help="recommend instead of training")
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    serve(arguments.folder) if arguments.serve else train(arguments.steps, arguments.folder)
