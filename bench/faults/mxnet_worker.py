"""A worker of MXNet: pushes and pulls one key by its parameter servers."""

import mxnet as mx
import rounds


class MXNet:
    errors = (mx.MXNetError,)

    def join(self):
        self.kv = mx.kv.create("dist_sync")
        self.kv.init(rounds.KEY, mx.nd.zeros((rounds.COUNT,)))
        self.out = mx.nd.zeros((rounds.COUNT,))
        self.each = sum(range(1, self.kv.num_workers + 1))

    def round(self, number):
        self.values = mx.nd.full((rounds.COUNT,), (self.kv.rank + 1) * number)
        self.there_and_back()
        return int((self.out.asnumpy() != self.each * number).sum())

    def there_and_back(self):
        self.kv.push(rounds.KEY, self.values)
        self.kv.pull(rounds.KEY, out=self.out)
        self.out.wait_to_read()

    def save(self, folder, number):
        """Save as `mx.model.save_checkpoint` saves parameters: a file for each epoch."""
        mx.nd.save(str(folder / f"model-{number:04d}.params"), {f"arg:{rounds.KEY}": self.out})
        self.saved = number, self.out.asnumpy()

    def read_back(self, folder):
        number, values = self.saved
        found = mx.nd.load(str(folder / f"model-{number:04d}.params"))
        return bool((found[f"arg:{rounds.KEY}"].asnumpy() == values).all())

    def leave(self):
        """Do nothing: a store of MXNet leaves when its process ends."""


rounds.run(MXNet)
