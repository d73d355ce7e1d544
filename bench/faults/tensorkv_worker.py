"""A worker of TensorKV: pushes and pulls one key by a store of several workers."""

import numpy as np
import rounds
import tensorkv as mx


class TensorKV:
    errors = (mx.KVError,)

    def join(self):
        self.kv = mx.kv.create("dist_sync")
        self.kv.init(rounds.KEY, np.zeros(rounds.COUNT, np.float32))
        self.out = np.zeros(rounds.COUNT, np.float32)
        self.each = sum(range(1, self.kv.num_workers + 1))
        return self.kv.round(rounds.KEY)

    def round(self, number):
        self.values = np.full(rounds.COUNT, (self.kv.rank + 1) * number, np.float32)
        self.there_and_back()
        return int((self.out != self.each * number).sum())

    def there_and_back(self):
        self.kv.push(rounds.KEY, self.values)
        self.kv.pull(rounds.KEY, out=self.out)

    def ask_head(self):
        self.kv.set_optimizer(mx.optimizer.SGD())

    def save(self, folder, number):
        self.kv.save(folder)
        self.saved = self.each * self.kv.round(rounds.KEY)

    def read_back(self, folder):
        """Return whether a store of one process reads the last saved values from the newest snapshot."""
        with mx.kv.create("local") as kv:
            kv.init(rounds.KEY, np.zeros(rounds.COUNT, np.float32))
            kv.load(folder)
            return bool((kv.pull(rounds.KEY).asnumpy() == self.saved).all())

    def leave(self):
        self.kv.close()


rounds.run(TensorKV)
