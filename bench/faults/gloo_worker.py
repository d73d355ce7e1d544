"""A rank of `torch.distributed` with Gloo: the sum alone, by all-reduce; with `head`: the store where ranks meet."""

import datetime
import os
import sys
import time

import rounds
import torch
import torch.distributed as dist

PATIENCE = datetime.timedelta(seconds=float(os.environ["FAULTS_PATIENCE"]))
WHERE = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


class Gloo:
    errors = (dist.DistError,)

    def join(self):
        self.rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.TCPStore(*WHERE, is_master=False, timeout=PATIENCE)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=count, timeout=PATIENCE)
        self.each = sum(range(1, count + 1))

    def round(self, number):
        self.values = torch.full((rounds.COUNT,), float((self.rank + 1) * number))
        self.there_and_back()
        return int((self.values != self.each * number).sum())

    def there_and_back(self):
        dist.all_reduce(self.values)

    def leave(self):
        dist.destroy_process_group()


if sys.argv[1:] == ["head"]:
    kept = dist.TCPStore(*WHERE, is_master=True, wait_for_workers=False)
    print("listens", flush=True)
    while True:
        time.sleep(1)
rounds.run(Gloo)
